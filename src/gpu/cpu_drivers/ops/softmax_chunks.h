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

/* The first function returns the alignment that all rows of an operand have: 8, 4, 2 or 1 bytes.
 * The second returns whether the kernels for Mesa's CPU driver support all operands. */
uint32_t tsr__softmax_alignment(const tsr__softmax_operand *operand);
bool tsr__softmax_operands_suit(const tsr__softmax_rows *work);

/* Whether these kernels should be used. Does not use work->scratch. */
bool tsr__softmax_chunks_suit(const tsr__softmax_rows *work);

uint64_t tsr__softmax_scratch_bytes(const tsr__softmax_rows *work);

/* Each of these functions adds the dispatches of one of the three kernels. Cross-entropy does not
 * call the second one, because it has its own kernel for statistics of rows. */
tsr_status tsr__softmax_chunks_add(tsr__dispatches *list,
                                   const tsr__softmax_rows *work) TSR_NODISCARD;
tsr_status tsr__softmax_rows_add(tsr__dispatches *list,
                                 const tsr__softmax_rows *work) TSR_NODISCARD;
tsr_status tsr__softmax_apply_add(tsr__dispatches *list,
                                  const tsr__softmax_rows *work) TSR_NODISCARD;

/* These functions are for callers with their own second kernel. They return the ranges of scratch
 * memory that contain the statistics of chunks and of rows, the number of chunks of a row, and the
 * number of columns at a row's end that do not fill a vector. */
tsr__access tsr__softmax_chunk_stats(const tsr__softmax_rows *work, bool write);
tsr__access tsr__softmax_row_stats(const tsr__softmax_rows *work, bool write);
uint32_t tsr__softmax_across(const tsr__softmax_rows *work);
uint32_t tsr__softmax_rest(const tsr__softmax_rows *work);

#endif
