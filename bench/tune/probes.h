/* The products that stand for a class. */
#ifndef TSR_BENCH_TUNE_PROBES_H
#define TSR_BENCH_TUNE_PROBES_H

#include "bench/tune/case.h"

#define TUNE_PROBES 3
#define TUNE_REASON 256
#define TUNE_TRIES 3 /* of what seems slow, on a machine that may be busy */

/* The class's smallest product, the one it was named by, and its largest. */
typedef struct tune_probes {
    bench_context *context;
    int count;
    tune_case all[TUNE_PROBES];
    char *left_out; /* why nothing is measured, TUNE_REASON bytes; empty: it is */
} tune_probes;

/* Of the class of `product`, for a struct with context and left_out. Either way tune_probes_finish
 * follows. */
bool tune_probes_create(tune_probes *s, const tune_product *product);
void tune_probes_finish(tune_probes *s);

#endif
