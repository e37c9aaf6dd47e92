/* The products that represent a class. */
#ifndef TSR_BENCH_TUNE_PROBES_H
#define TSR_BENCH_TUNE_PROBES_H

#include "bench/tune/case.h"

#define TUNE_PROBES 3
#define TUNE_REASON 256
#define TUNE_TRIES 3 /* for a product that seems slow, since the machine may be busy */

/* The smallest product of the class, its largest, and the one that named it. */
typedef struct tune_probes {
    bench_context *context;
    int count;
    tune_case all[TUNE_PROBES];
    char *left_out; /* why nothing is measured, TUNE_REASON bytes; empty: it is measured */
} tune_probes;

/* Creates the probes for the class of `product`. `s` must have context and left_out set. Must be
 * followed by tune_probes_finish, also on failure. */
bool tune_probes_create(tune_probes *s, const tune_product *product);
void tune_probes_finish(tune_probes *s);

#endif
