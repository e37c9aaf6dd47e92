/* Finds the fastest way to compute one class of products on one device. */
#ifndef TSR_BENCH_TUNE_SEARCH_H
#define TSR_BENCH_TUNE_SEARCH_H

#include "bench/tune/probes.h"

/* The speed of a choice in relation to the built-in kernel (2: twice as fast), from pairs of
 * consecutive samples. */
typedef struct tune_ratio {
    int pairs;
    double median, p10, p90;
} tune_ratio;

typedef struct tune_result {
    int device_place;
    tune_product product; /* a product of the class */
    tsr__tuning_choice usual, winner;
    /* `won`: the tuning now uses the winner. `with_bias`: it also uses the winner for products with
     * an epilogue. */
    bool won, with_bias;
    int candidates; /* number of candidates that could compute the products */
    /* The speed of the winner in its second measurement, at the probe with the smallest gain.
     * Without a winner, the speed of the best candidate. If `ratio` has no pairs, all candidates
     * were dropped in the screening. */
    tune_ratio ratio;
} tune_result;

/* Kernels that were far slower than the built-in kernel on some product. They are not tried on
 * products of the same dtype and transposition whose m, n and k are all at least as large. An
 * object whose bytes are all 0 is an empty list. */
typedef struct tune_given_up {
    int count;
    struct tune_hopeless {
        tsr_dtype dtype;
        bool transposed;
        bench_shape shape;
        char kernel[TSR__TUNING_KERNEL_SIZE];
    } * all;
} tune_given_up;

/* Tunes the class of a product: measures it and sets the winner on the context's device, but does
 * not store it. `left_out` becomes empty, or the reason why nothing was measured: one product takes
 * longer than a measurement may last, or there is not enough memory. */
bool tune_search(bench_context *context, const tune_product *product, tune_given_up *given_up,
                 tune_result *out, char left_out[TUNE_REASON]);

#endif
