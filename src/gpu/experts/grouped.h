/* A call of tsr_matmul_grouped as plain numbers, and its kernels. */
#ifndef TSR_GPU_EXPERTS_GROUPED_H
#define TSR_GPU_EXPERTS_GROUPED_H

#include "gpu/experts/experts.h"
#include "gpu/matmul/common/kernel.h"
#include "shaders/params/grouped.h"
#include "tessera/quant.h"

/* How tiles use cooperative matrices. */
typedef struct tsr__grouped_matrices {
    tsr_dtype dtype; /* of their elements; 0: they are not used */
    bool x_narrowed; /* rows of x become terms of `dtype`, in `narrowed` */
    uint32_t x_terms, w_terms;
    uint32_t rows, columns, depth; /* of a tile */
    tsr__matmul_fragment fragment;
    tsr__buffer *narrowed;
} tsr__grouped_matrices;

typedef struct tsr__grouped {
    const tsr_matmul_grouped_params *params; /* of the library's own size */
    tsr__pairs pairs;
    tsr__pair_rows x, y;
    const tsr_tensor *w;
    const tsr_tensor *added; /* y has a row for each token, and this is added; or NULL */
    bool transposed;
    uint32_t experts, n, k;
    uint32_t all_experts; /* from which ids were chosen; at least `experts` */
    uint32_t weights_stride;
    float limit;
    tsr__sorted sorted; /* the caller's, or in scratch memory */
    tsr__grouped_matrices matrices;
} tsr__grouped;

/* True if w and `up`, and their biases, have the same strides and dtypes, so that one dispatch can
 * multiply by both. */
bool tsr__grouped_pairs_up(const tsr__grouped *call);

/* The bytes of weights that a call reads at most: those of the experts that its pairs can have. */
double tsr__grouped_read_bytes(const tsr__grouped *call, const tsr_tensor *w);

/* The kernel for few tokens (grouped_few.c), unless it has failed its self-test. */
bool tsr__grouped_few_suits(const tsr_stream *stream, const tsr__grouped *call);
tsr_status tsr__grouped_few(tsr_stream *stream, const tsr__grouped *call) TSR_NODISCARD;

/* Tiles with cooperative matrices (grouped_coopmat.c). */

/* Sets call->matrices, if the device has matrix units for the call's dtypes and alignment. Tiles
 * have `rows` rows, or 32 if shared memory is too small. */
void tsr__grouped_choose_matrices(tsr_stream *stream, tsr__grouped *call, uint32_t rows);
/* The size of call->matrices.narrowed, and the dispatch that writes it; 0: rows of x are not
 * narrowed. */
uint64_t tsr__grouped_narrow_bytes(const tsr__grouped *call);
tsr_status tsr__grouped_narrow(tsr_stream *stream, const tsr__grouped *call) TSR_NODISCARD;
/* Turns a dispatch of matmul_grouped.comp into one with cooperative matrices; access[0] is x. */
void tsr__grouped_use_matrices(const tsr__grouped *call, const tsr_tensor *w, tsr_dtype y,
                               tsr_dtype bias, bool accumulate, bool gated,
                               struct tsr_grouped_push *push, tsr__dispatch *dispatch);

/* Records y = activation(rows), where rows [pairs, 2n] of f32 are the products with w and up. */
tsr_status tsr__pair_activate_record(tsr_stream *stream, const tsr__grouped *call,
                                     const tsr__access *rows) TSR_NODISCARD;

#endif
