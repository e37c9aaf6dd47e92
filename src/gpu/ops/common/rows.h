/* Shared by the operations that work row by row: lists of dispatches, and properties of layouts. A
 * row is the elements along one dimension. */
#ifndef TSR_GPU_OPS_COMMON_ROWS_H
#define TSR_GPU_OPS_COMMON_ROWS_H

#include "gpu/stream/stream.h"
#include "shaders/params/rows.h"
#include "tensor/pieces.h"

/* The dispatches of one operation. They are collected before the first is recorded, so that an
 * operation fails before it has recorded anything. Starts as {0}. */
typedef struct tsr__dispatches {
    tsr__dispatch *items;
    char (*push)[TSR__PUSH_MAX]; /* the push constants of items[i] */
    size_t count, items_capacity, push_capacity;
} tsr__dispatches;

/* Adds a copy of `dispatch` and of its push constants. On failure the list is unchanged. */
tsr_status tsr__dispatches_add(tsr__dispatches *list, const tsr__dispatch *dispatch) TSR_NODISCARD;

/* Records the list in order: all dispatches or, on failure, none. */
tsr_status tsr__dispatches_record(tsr__dispatches *list, tsr_stream *stream) TSR_NODISCARD;

void tsr__dispatches_finish(tsr__dispatches *list);

/* Checks `dim`, which counts from the end if negative, and sets *out to the same as 0 … ndim − 1.
 */
tsr_status tsr__require_dim(const char *op, const tsr_tensor *x, int dim, int *out) TSR_NODISCARD;

/* The layout without the dimension `dim`: that of the first elements of all rows along it. */
tsr_layout tsr__layout_without(const tsr_layout *layout, int dim);

/* Checks that y's shape is x's without the dimension `dim`, or with size 1 there, and sets *out to
 * y's layout without that dimension. */
tsr_status tsr__require_reduced(const char *op, const tsr_tensor *y, const tsr_tensor *x, int dim,
                                tsr_layout *out) TSR_NODISCARD;

/* The form (TSR_ROW_…) of rows of `count` elements that are `step` elements apart; the piece gives
 * the rows' starts, the first of which is at `address`. The smallest of several operands' forms
 * suits all of them. */
uint32_t tsr__row_form(const tsr__piece *piece, int operand, tsr_dtype dtype, uint64_t address,
                       int64_t step, int64_t count);

/* The form of the rows of a tensor of two dimensions, with any stride from row to row. */
uint32_t tsr__matrix_row_form(const tsr_tensor *matrix);

/* A tensor's stride along `dim`, in bytes. */
uint64_t tsr__stride_bytes(const tsr_tensor *tensor, int dim);

/* Whether one invocation per row is best, however long the rows are. It is with many rows on CPU
 * drivers: rows fill SIMD lanes as well as elements do, and a barrier costs a switch between the
 * invocations of a workgroup. */
bool tsr__rows_alone(const tsr_device *device, uint64_t rows);

/* The most iterations of an invocation's loops, all together, in one dispatch. Mesa's CPU driver
 * leaves every loop after 65535. */
uint32_t tsr__most_iterations(const tsr_device *device);

/* How many invocations form a thread group, which shares a row of softmax, normalisation or
 * cross-entropy, and the size of their workgroups. */
uint32_t tsr__thread_group_for(const tsr_device *device, uint64_t rows, int64_t count);
uint32_t tsr__thread_group_workgroup(uint32_t threads);

#endif
