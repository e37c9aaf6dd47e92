/* tessera plan: its options' values, and its table. */
#ifndef TSR_CLI_PLAN_H
#define TSR_CLI_PLAN_H

#include <stdbool.h>
#include <stdio.h>

#include "tessera/shard.h"

/* Values separated by commas, of an option that may be given several times. All are zeroed at
 * first, and what they hold is freed by plan_list_free. */
typedef struct plan_list {
    size_t count;
    char **texts; /* ended by NULL, once there is one */
} plan_list;

/* Appends what the text holds. False where something between commas is empty. */
bool plan_list_add(plan_list *list, const char *text);
void plan_list_free(plan_list *list);

/* "1.5G": bytes, or KiB, MiB, GiB, TiB with K, M, G, T, also with "iB" after it: 0, or 1 to 2^53.
 * False for anything else. */
bool plan_read_bytes(const char *text, uint64_t *out);
/* A finite number that is not negative. */
bool plan_read_rate(const char *text, double *out);

/* Prints the plan for people. `path` and `format` say where the parameters come from. */
void plan_print(FILE *out, const tsr_shard_plan *plan, const char *path, const char *format);

#endif
