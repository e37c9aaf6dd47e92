/* One product that a tuning measures: its operands, and its result, verified once. */
#ifndef TSR_BENCH_TUNE_CASE_H
#define TSR_BENCH_TUNE_CASE_H

#include "bench/harness/bench.h"

/* y[m,n] = x[m,k] · w: w is [n,k] and transposed, as a linear layer has it, or [k,n]. */
typedef struct tune_product {
    tsr_dtype dtype;
    bool transposed;
    int64_t batch; /* 0: matrices without a batch dimension */
    bench_shape shape;
} tune_product;

typedef struct tune_case {
    bench_context *context;
    tune_product product;
    tsr_tensor *x, *w, *y, *bias;
    float *plain, *bias_values; /* the usual kernel's verified x·w, and a bias to add to it */
    void *bytes;                /* y in the dtype */
    tsr_tuning_info info;
    double usual_ns; /* one product by the usual kernel, roughly */
    bool no_room;    /* creating it failed for lack of device memory */
} tune_case;

/* Makes the operands, computes the product as usual and compares it with double precision. Either
 * way tune_case_finish follows. */
bool tune_case_create(bench_context *context, const tune_product *product, tune_case *out);
void tune_case_finish(tune_case *test);

/* What tsr_matmul takes for it, with a bias or without. */
tsr_matmul_params tune_case_params(const tune_case *test, bool bias);

/* The mean time of `repetitions` products, recorded one after another and waited for once. */
bool tune_case_time(tune_case *test, bool bias, const tsr_tuning_choice *choice,
                    uint64_t repetitions, double *ns);

/* One product once more; *ns becomes the shorter time, which is the truer one. */
bool tune_case_again(tune_case *test, const tsr_tuning_choice *choice, double *ns);

/* Computes it in this way and compares every element with the usual kernel's result. *able is false
 * where the kernel cannot do it or has no memory for it, and the result then true. */
bool tune_case_verify(tune_case *test, bool bias, const tsr_tuning_choice *choice, bool *able);

/* "f32 16x4096x4096 x·wᵀ" */
void tune_product_text(const tune_product *product, char *text, size_t size);

#endif
