/* Softmax, its logarithm, their gradients and cross-entropy on Mesa's CPU driver. There are three
 * kernels. shaders/cpu_drivers/softmax_chunks.comp computes statistics of chunks of rows.
 * softmax_rows.comp, or cross_entropy_rows.comp, combines them to statistics of rows.
 * softmax_apply.comp computes the result. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_SOFTMAX_CHUNKS_H
#define TSR_GPU_CPU_DRIVERS_OPS_SOFTMAX_CHUNKS_H

#include "gpu/ops/common/rows.h"
#include "shaders/params/softmax_chunks.h"

/* An operand: rows without gaps, `stride` bytes apart. */
typedef struct tsr__softmax_operand {
    uint64_t address; /* the address of the first row; 0: there is no such operand */
    uint64_t stride;
    tsr_dtype dtype;
    tsr__access access;
} tsr__softmax_operand;

typedef struct tsr__softmax_rows {
    const tsr_device *device;
    uint32_t function;            /* TSR_SOFTMAX_… */
    tsr__softmax_operand y, a, b; /* b only for gradients */
    uint32_t rows, count;         /* count: the number of elements of a row */
    tsr__access scratch;          /* tsr__softmax_scratch_bytes() bytes of scratch memory */
} tsr__softmax_rows;

/* True if the tensor is NULL or if its rows along the last dimension have no gaps. */
bool tsr__softmax_without_gaps(const tsr_tensor *tensor);

/* Returns the alignment that all rows of an operand have: 8, 4, 2 or 1 bytes. */
uint32_t tsr__softmax_alignment(const tsr__softmax_operand *operand);
/* True if the kernels for Mesa's CPU driver support all operands. */
bool tsr__softmax_operands_suit(const tsr__softmax_rows *work);

/* True if these kernels should be used. Does not use work->scratch. */
bool tsr__softmax_chunks_suit(const tsr__softmax_rows *work);

uint64_t tsr__softmax_scratch_bytes(const tsr__softmax_rows *work);

/* Adds the dispatches that compute the statistics of chunks. */
tsr_status tsr__softmax_chunks_add(tsr__dispatches *list,
                                   const tsr__softmax_rows *work) TSR_NODISCARD;
/* Adds the dispatches that compute the statistics of rows from those of their chunks.
 * Cross-entropy has a kernel of its own for this. */
tsr_status tsr__softmax_rows_add(tsr__dispatches *list,
                                 const tsr__softmax_rows *work) TSR_NODISCARD;
/* Adds the dispatches that compute the result from the statistics of rows. */
tsr_status tsr__softmax_apply_add(tsr__dispatches *list,
                                  const tsr__softmax_rows *work) TSR_NODISCARD;

/* Returns the range of scratch memory that contains the statistics of chunks. This function and
 * the following ones are for callers with their own second kernel. */
tsr__access tsr__softmax_chunk_stats(const tsr__softmax_rows *work, bool write);
/* Returns the range of scratch memory that contains the statistics of rows. */
tsr__access tsr__softmax_row_stats(const tsr__softmax_rows *work, bool write);
/* Returns the number of chunks of a row. */
uint32_t tsr__softmax_across(const tsr__softmax_rows *work);
/* Returns the number of columns at a row's end that do not fill a vector. */
uint32_t tsr__softmax_rest(const tsr__softmax_rows *work);

#endif
