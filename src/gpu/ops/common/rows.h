/* What the operations that work row by row share: lists of dispatches, and questions about layouts.
 * A row is the elements along one dimension. */
#ifndef TSR_GPU_OPS_COMMON_ROWS_H
#define TSR_GPU_OPS_COMMON_ROWS_H

#include "gpu/stream/stream.h"
#include "shaders/params/rows.h"
#include "tensor/pieces.h"

/* The dispatches of one operation, gathered before the first is recorded: so that it fails before
 * it has recorded anything. Starts as {0}. */
typedef struct tsr__dispatches {
    tsr__dispatch *items;
    char (*push)[TSR__PUSH_MAX]; /* the push constants of items[i] */
    size_t count, items_capacity, push_capacity;
} tsr__dispatches;

/* Adds a copy, push constants included. On failure the list is as before. */
tsr_status tsr__dispatches_add(tsr__dispatches *list, const tsr__dispatch *dispatch) TSR_NODISCARD;

/* Records the list in order, as a whole. */
tsr_status tsr__dispatches_record(tsr__dispatches *list, tsr_stream *stream) TSR_NODISCARD;

void tsr__dispatches_finish(tsr__dispatches *list);

/* `dim`, negative from the end, as 0 … ndim − 1. */
tsr_status tsr__require_dim(const char *op, const tsr_tensor *x, int dim, int *out) TSR_NODISCARD;

/* The layout of the first elements of x's rows along `dim`: x without that dimension. */
tsr_layout tsr__layout_without(const tsr_layout *layout, int dim);

/* y's layout without the reduced dimension `dim` of x, after checking that its shape is x's without
 * it or with it at size 1. */
tsr_status tsr__require_reduced(const char *op, const tsr_tensor *y, const tsr_tensor *x, int dim,
                                tsr_layout *out) TSR_NODISCARD;

/* The form (TSR_ROW_…) of rows of `count` elements that lie `step` apart and start where the piece
 * says, its first element at `address`. Of several operands' forms the smallest suits all. */
uint32_t tsr__row_form(const tsr__piece *piece, int operand, tsr_dtype dtype, uint64_t address,
                       int64_t step, int64_t count);

/* The same of a tensor of two dimensions whose rows may lie any stride apart. */
uint32_t tsr__matrix_row_form(const tsr_tensor *matrix);

/* A tensor's stride along `dim` in bytes. */
uint64_t tsr__stride_bytes(const tsr_tensor *tensor, int dim);

/* Whether one invocation per row is best however long the rows are: on CPU drivers, where rows
 * serve as SIMD lanes as well as elements do, and nothing costs more than the switches at barriers.
 */
bool tsr__rows_alone(const tsr_device *device, uint64_t rows);

/* How many invocations share a row of softmax and the like, and the size of their workgroups. */
uint32_t tsr__thread_group_for(const tsr_device *device, uint64_t rows, int64_t count);
uint32_t tsr__thread_group_workgroup(uint32_t threads);

#endif
