/* A call of tsr_matmul_grouped as plain numbers, and its kernels. */
#ifndef TSR_GPU_EXPERTS_GROUPED_H
#define TSR_GPU_EXPERTS_GROUPED_H

#include "gpu/experts/experts.h"
#include "shaders/params/grouped.h"
#include "tessera/quant.h"

typedef struct tsr__grouped {
    const tsr_matmul_grouped_params *params; /* of the library's own size */
    tsr__pairs pairs;
    tsr__pair_rows x, y;
    const tsr_tensor *w;
    const tsr_tensor *added; /* y has a row for each token, and this is added; or NULL */
    bool transposed;
    uint32_t experts, n, k;
    uint32_t weights_stride;
    float limit;
    tsr__sorted sorted; /* the caller's, or in scratch memory */
} tsr__grouped;

/* True if w and `up`, and their biases, have the same strides and dtypes, so that one dispatch can
 * multiply by both. */
bool tsr__grouped_pairs_up(const tsr__grouped *call);

/* The bytes of weights that a call reads at most: those of the experts that its pairs can have. */
double tsr__grouped_read_bytes(const tsr__grouped *call, const tsr_tensor *w);

/* The kernel for few tokens (grouped_few.c). */
bool tsr__grouped_few_suits(const tsr__grouped *call);
tsr_status tsr__grouped_few(tsr_stream *stream, const tsr__grouped *call) TSR_NODISCARD;

/* Records y = activation(rows), where rows [pairs, 2n] of f32 are the products with w and up. */
tsr_status tsr__pair_activate_record(tsr_stream *stream, const tsr__grouped *call,
                                     const tsr__access *rows) TSR_NODISCARD;

#endif
