/* Finds the fastest way to compute one class of products on one device. */
#ifndef TSR_BENCH_TUNE_SEARCH_H
#define TSR_BENCH_TUNE_SEARCH_H

#include "bench/tune/probes.h"

/* How many times as fast as the built-in kernel, from pairs of consecutive samples. */
typedef struct tune_ratio {
    int pairs;
    double median, p10, p90;
} tune_ratio;

typedef struct tune_result {
    int device_place;
    tune_product product; /* a product of the class */
    tsr_tuning_choice usual, winner;
    bool won, with_bias; /* the winner is in effect; the winner is also in effect for products with
                            an epilogue */
    int candidates;      /* number of candidates that could compute it */
    tune_ratio ratio;    /* of the winner's second measurement at the probe with the smallest gain;
                            without a winner, of the best candidate. No pairs: no candidate was near
                            the built-in kernel */
} tune_result;

/* Kernels that were far slower on a product. They are not tried on products of the same kind that
 * are no smaller in any direction. An empty list is zeroed. */
typedef struct tune_given_up {
    int count;
    struct tune_hopeless {
        tsr_dtype dtype;
        bool transposed;
        bench_shape shape;
        char kernel[TSR_TUNING_KERNEL_SIZE];
    } * all;
} tune_given_up;

/* Measures a class and sets the winner on the context's device, but does not store it. `left_out`
 * becomes empty, or the reason why nothing was measured: one product takes longer than a
 * measurement may last, or there is not enough memory. */
bool tune_search(bench_context *context, const tune_product *product, tune_given_up *given_up,
                 tune_result *out, char left_out[TUNE_REASON]);

#endif
