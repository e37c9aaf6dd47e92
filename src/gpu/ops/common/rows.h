/* Functions that the operations on rows share: lists of dispatches, and properties of layouts. A
 * row consists of the elements along one dimension. */
#ifndef TSR_GPU_OPS_COMMON_ROWS_H
#define TSR_GPU_OPS_COMMON_ROWS_H

#include "gpu/stream/stream.h"
#include "shaders/params/rows.h"
#include "tensor/pieces.h"

/* The dispatches of one operation. All of them are added to the list before the first one is
 * recorded, so that an operation that fails has not recorded anything. A list must be initialised
 * with {0}. */
typedef struct tsr__dispatches {
    tsr__dispatch *items;
    char (*push)[TSR__PUSH_MAX]; /* the push constants of items[i] */
    size_t count, items_capacity, push_capacity;
} tsr__dispatches;

/* Adds a copy of `dispatch` and of its push constants. On failure the list is unchanged. */
tsr_status tsr__dispatches_add(tsr__dispatches *list, const tsr__dispatch *dispatch) TSR_NODISCARD;

/* Records all dispatches in order. On failure, none is recorded. */
tsr_status tsr__dispatches_record(tsr__dispatches *list, tsr_stream *stream) TSR_NODISCARD;

void tsr__dispatches_finish(tsr__dispatches *list);

/* Checks `dim`, where negative numbers count from the end, and sets *out to the dimension as a
 * number from 0 to ndim − 1. */
tsr_status tsr__require_dim(const char *op, const tsr_tensor *x, int dim, int *out) TSR_NODISCARD;

/* Returns the layout without the dimension `dim`, that is, the layout of the first elements of all
 * rows along that dimension. */
tsr_layout tsr__layout_without(const tsr_layout *layout, int dim);

/* Checks that y's shape is x's shape without the dimension `dim`, or with size 1 in that dimension.
 * Sets *out to y's layout without that dimension. */
tsr_status tsr__require_reduced(const char *op, const tsr_tensor *y, const tsr_tensor *x, int dim,
                                tsr_layout *out) TSR_NODISCARD;

/* Returns the form (TSR_ROW_…) in which rows can be read. A row has `count` elements that are
 * `step` elements apart. `piece` has one element for each row: its strides for `operand` say where
 * the rows start. The first row starts at `address`. The forms' values are ordered: if several
 * operands must have the same form, the smallest of theirs suits them all. */
uint32_t tsr__row_form(const tsr_device *device, const tsr__piece *piece, int operand,
                       tsr_dtype dtype, uint64_t address, int64_t step, int64_t count);

/* Returns the form of the rows of a tensor of two dimensions. The stride between rows can have any
 * size. */
uint32_t tsr__matrix_row_form(const tsr_tensor *matrix);
/* The same for kernels that also have the form TSR_ROW_ENDS4. Several operands with rows of the
 * same length need the smallest of their forms. */
uint32_t tsr__class_row_form(const tsr_tensor *matrix);

/* A tensor's stride along `dim`, in bytes. */
uint64_t tsr__stride_bytes(const tsr_tensor *tensor, int dim);

/* True if one invocation per row is fastest, whatever the length of rows. This holds for many rows
 * on CPU drivers: there, rows fill SIMD lanes as well as elements do, and a barrier means a switch
 * between all invocations of a workgroup. */
bool tsr__rows_alone(const tsr_device *device, uint64_t rows);

/* The number of processors (SMs, compute units) of a GPU; each workgroup runs on one of them. */
uint32_t tsr__processors(const tsr_device *device);

/* The largest number of iterations that all loops of an invocation together may execute in one
 * dispatch. On CPU drivers it is 60000, because Mesa's ends every loop after 65535 iterations, even
 * if work is left. */
uint32_t tsr__most_iterations(const tsr_device *device);

/* The largest number of steps of a serial loop in one dispatch, within tsr__most_iterations() and
 * the device's limit on work; at least 1. `step_work` is the work of all invocations together in a
 * step. */
int64_t tsr__steps_within_work(const tsr_device *device, double step_work);

/* A thread group is the invocations that compute one row of softmax, normalisation or
 * cross-entropy. tsr__thread_group_for returns their number; tsr__thread_group_workgroup returns
 * the size of workgroups, which consist of one or more thread groups of `threads` invocations. */
uint32_t tsr__thread_group_for(const tsr_device *device, uint64_t rows, int64_t count);
uint32_t tsr__thread_group_workgroup(uint32_t threads);

/* Lets the kernel keep rows of `count` elements in registers if they fit there, so that each
 * element is loaded once. `dispatch` computes complete rows. If they fit, adds the specialization
 * constants PHASE and HELD to it, which must be the next ones of its kernel. */
void tsr__thread_group_hold(tsr__dispatch *dispatch, const tsr_device *device, uint32_t threads,
                            int64_t count);

#endif
