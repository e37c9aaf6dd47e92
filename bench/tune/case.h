/* A product that the tuning measures: its operands and its verified result. */
#ifndef TSR_BENCH_TUNE_CASE_H
#define TSR_BENCH_TUNE_CASE_H

#include "bench/harness/bench.h"
#include "tool_seam.h"

/* y[m,n] = x[m,k] · w. If transposed, w is [n,k], as in a linear layer; otherwise it is [k,n]. */
typedef struct tune_product {
    tsr_dtype dtype;
    bool transposed;
    int64_t batch; /* 0: there is no batch dimension */
    bench_shape shape;
} tune_product;

typedef struct tune_case {
    bench_context *context;
    tune_product product;
    tsr_tensor *x, *w, *y, *bias;
    float *plain, *bias_values; /* `plain` is x·w without bias, as the built-in kernel has computed
                                   it, after verification */
    void *bytes;                /* memory to download y to, in the dtype */
    tsr__tuning_info info;
    double usual_ns; /* approximate time of one product with the built-in kernel */
    bool no_room;    /* tune_case_create failed because there is not enough device memory */
} tune_case;

/* Creates the operands, computes the product with the built-in choice and compares it with double
 * precision. Must be followed by tune_case_finish, also on failure. */
bool tune_case_create(bench_context *context, const tune_product *product, tune_case *out);
void tune_case_finish(tune_case *test);

/* Returns the parameters of tsr_matmul for the product, with or without a bias. */
tsr_matmul_params tune_case_params(const tune_case *test, bool bias);

/* Measures the mean time of `repetitions` products, recorded one after another and followed by one
 * wait. */
bool tune_case_time(tune_case *test, bool bias, const tsr__tuning_choice *choice,
                    uint64_t repetitions, double *ns);

/* Measures one more product. If its time is shorter than *ns, *ns becomes this time: other work on
 * the machine can only increase times, so the shorter time is more precise. */
bool tune_case_again(tune_case *test, const tsr__tuning_choice *choice, double *ns);

/* Computes the product with `choice` and compares every element with the built-in kernel's result.
 * If the kernel cannot compute the product, or there is not enough memory for it, *able becomes
 * false, and the function returns true. */
bool tune_case_verify(tune_case *test, bool bias, const tsr__tuning_choice *choice, bool *able);

/* Writes, for example, "f32 16x4096x4096 x·wᵀ". */
void tune_product_text(const tune_product *product, char *text, size_t size);

#endif
