/* Finding the fastest way to compute one class of products on one device. */
#ifndef TSR_BENCH_TUNE_SEARCH_H
#define TSR_BENCH_TUNE_SEARCH_H

#include "bench/tune/probes.h"

/* How many times as fast as the usual kernel, over pairs of samples taken one after the other. */
typedef struct tune_ratio {
    int pairs;
    double median, p10, p90;
} tune_ratio;

typedef struct tune_result {
    int device_place;
    tune_product product; /* one of the class */
    tsr_tuning_choice usual, winner;
    bool won, with_bias; /* the winner is in effect; for products with an epilogue, too */
    int candidates;      /* that could compute it */
    tune_ratio ratio; /* of the winner's second measurement, where it gained least; or of the best
                         candidate; no pairs: there was none near the usual one */
} tune_result;

/* Kernels that were far behind on a product, and not to be tried on those of the same kind that are
 * no smaller in any direction; zeroed is none. */
typedef struct tune_given_up {
    int count;
    struct tune_hopeless {
        tsr_dtype dtype;
        bool transposed;
        bench_shape shape;
        char kernel[TSR_TUNING_KERNEL_SIZE];
    } * all;
} tune_given_up;

/* Measures and, on the context's device, sets what won; nothing is stored. `left_out` is empty, or
 * why nothing was measured: one product takes longer than a measurement may last, or more memory
 * than there is. */
bool tune_search(bench_context *context, const tune_product *product, tune_given_up *given_up,
                 tune_result *out, char left_out[TUNE_REASON]);

#endif
