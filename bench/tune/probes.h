/* The probes of a class of products (gpu/matmul/tuning/tuning.h): the products that are measured to
 * tune the class. */
#ifndef TSR_BENCH_TUNE_PROBES_H
#define TSR_BENCH_TUNE_PROBES_H

#include "bench/tune/case.h"

#define TUNE_PROBES 3
#define TUNE_REASON 256
/* How often a product is measured before it counts as too slow to be tuned; once is not enough,
 * because the machine may be busy. */
#define TUNE_TRIES 3

/* The probes: the smallest and the largest product of the class, and the product for which the
 * class was created. */
typedef struct tune_probes {
    bench_context *context;
    int count;
    tune_case all[TUNE_PROBES];
    char *left_out; /* [TUNE_REASON]: why the class is not measured; empty if it is measured */
} tune_probes;

/* Creates the probes for the class of `product`. `s` must have context and left_out set. Must be
 * followed by tune_probes_finish, also on failure. */
bool tune_probes_create(tune_probes *s, const tune_product *product);
void tune_probes_finish(tune_probes *s);

#endif
