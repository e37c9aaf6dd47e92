/* The parts of tessera plan: values of options, and the table. */
#ifndef TSR_CLI_PLAN_PLAN_H
#define TSR_CLI_PLAN_PLAN_H

#include <stdbool.h>
#include <stdio.h>

#include "tessera/shard.h"

/* Values separated by commas, of an option that may be repeated. Initialise with {0}. */
typedef struct plan_list {
    size_t count;
    char **texts; /* ends with NULL; NULL if the list is empty */
} plan_list;

/* Appends the values in `text`. Returns false if one of them is empty. */
bool plan_list_add(plan_list *list, const char *text);
void plan_list_free(plan_list *list);

/* Reads bytes: "1000", "1.5G", "1.5GiB"; K, M, G and T are powers of 1024. Returns false for
 * anything else, for more than 2^53, and for a fraction of a byte. */
bool plan_read_bytes(const char *text, uint64_t *out);
/* Reads a finite number that is not negative. */
bool plan_read_rate(const char *text, double *out);

/* Prints the plan as tables. `path` and `format` name the file of parameters. */
void plan_print(FILE *out, const tsr_shard_plan *plan, const char *path, const char *format);

#endif
