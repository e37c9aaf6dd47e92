/* What the operations of mixtures of experts share: rows of pairs, and the steps of grouped
 * products. */
#ifndef TSR_GPU_EXPERTS_EXPERTS_H
#define TSR_GPU_EXPERTS_EXPERTS_H

#include "gpu/stream/stream.h"
#include "tessera/moe.h"

/* The pairs of a call: ids [tokens,chosen], and their stride from token to token. */
typedef struct tsr__pairs {
    const tsr_tensor *ids;
    uint32_t tokens, chosen, ids_stride;
} tsr__pairs;

/* Checks ids and reads their sizes. */
tsr_status tsr__pairs_of(const char *op, const tsr_stream *stream, const tsr_tensor *ids,
                         tsr__pairs *out) TSR_NODISCARD;

/* The rows of a tensor [tokens,width], or [tokens,chosen,width] with a row for each pair, as
 * kernels address them. */
typedef struct tsr__pair_rows {
    const tsr_tensor *tensor;
    int64_t width;
    bool per_pair;
    uint32_t stride; /* from row to row, in elements */
    uint32_t divide; /* the row of a pair is its number divided by this */
} tsr__pair_rows;

/* Checks that the tensor is a float with contiguous rows at equal distances. An output must have no
 * repeated element. */
tsr_status tsr__pair_rows_of(const char *op, const char *name, const tsr_stream *stream,
                             const tsr_tensor *tensor, int64_t tokens, int64_t chosen,
                             tsr__pair_rows *out) TSR_NODISCARD;
/* True if four neighbours, from a multiple of four on, can be loaded as one vector. */
bool tsr__pair_rows_aligned(const tsr__pair_rows *rows);

/* Checks a tensor [tokens,chosen] of f32 whose rows are contiguous, and gets its stride. */
tsr_status tsr__pair_numbers(const char *op, const char *name, const tsr_stream *stream,
                             const tsr_tensor *tensor, const tsr__pairs *pairs,
                             uint32_t *stride) TSR_NODISCARD;

/* The order of pairs by expert, as tsr_route_sort writes it. */
typedef struct tsr__sorted {
    tsr__access order, offsets;
} tsr__sorted;

/* Checks order and offsets against the number of pairs, and gets the number of experts. */
tsr_status tsr__sorted_of(const char *op, const tsr_stream *stream, const tsr_tensor *order,
                          const tsr_tensor *offsets, int64_t pairs, int64_t *experts,
                          tsr__sorted *out) TSR_NODISCARD;
/* Checks that there are not too many pairs for the device. */
tsr_status tsr__sort_check(const char *op, const tsr_stream *stream,
                           const tsr__pairs *pairs) TSR_NODISCARD;
/* Records the sort. */
tsr_status tsr__sort_pairs(tsr_stream *stream, const tsr__pairs *pairs, uint32_t experts,
                           const tsr__sorted *out) TSR_NODISCARD;

/* Records y[token] = Σ weights · x[pair] + added[token]; the caller has checked everything. weights
 * and `added` may be NULL; `added` has y's rows. */
tsr_status tsr__pair_sum_record(tsr_stream *stream, const tsr__pair_rows *y, uint64_t x,
                                tsr__access x_access, tsr_dtype x_dtype, uint32_t x_stride,
                                const tsr__pairs *pairs, uint32_t experts,
                                const tsr_tensor *weights, const tsr_tensor *added,
                                bool accumulate) TSR_NODISCARD;

#endif
