/* The parts of tessera plan: reading the values of options, and printing the table. */
#ifndef TSR_CLI_PLAN_PLAN_H
#define TSR_CLI_PLAN_PLAN_H

#include <stdbool.h>
#include <stdio.h>

#include "tessera/shard.h"

/* The values of an option, separated by commas. The option may be repeated. Initialise with {0}. */
typedef struct plan_list {
    size_t count;
    char **texts; /* ends with NULL; NULL if the list is empty */
} plan_list;

/* Appends the values in `text`. Returns false if one of them is empty. */
bool plan_list_add(plan_list *list, const char *text);
void plan_list_free(plan_list *list);

/* Reads a number such as a rate. Returns false if it is negative or not finite. */
bool plan_read_rate(const char *text, double *out);

/* Prints the plan as tables. `path` and `format` describe the file that the parameters come
 * from. */
void plan_print(FILE *out, const tsr_shard_plan *plan, const char *path, const char *format);

#endif
