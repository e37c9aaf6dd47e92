/* Softmax and its kin on Mesa's CPU driver, in three kernels:
 * shaders/cpu_drivers/softmax_chunks.comp, softmax_rows.comp (or another that leaves rows'
 * statistics) and softmax_apply.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_OPS_SOFTMAX_CHUNKS_H
#define TSR_GPU_CPU_DRIVERS_OPS_SOFTMAX_CHUNKS_H

#include "gpu/ops/common/rows.h"
#include "shaders/params/softmax_chunks.h"

/* An operand: rows without gaps, `stride` bytes from one to the next. */
typedef struct tsr__softmax_operand {
    uint64_t address; /* of the first row; 0: there is no such operand */
    uint64_t stride;
    tsr_dtype dtype;
    tsr__access access;
} tsr__softmax_operand;

typedef struct tsr__softmax_rows {
    const tsr_device *device;
    uint32_t function;            /* TSR_SOFTMAX_… */
    tsr__softmax_operand y, a, b; /* b: gradients only */
    uint32_t rows, count;         /* elements of a row */
    tsr__access scratch;          /* tsr__softmax_scratch_bytes() from begin_bytes on */
} tsr__softmax_rows;

/* Whether a tensor's rows, along its last dimension, have no gaps; NULL has none. */
bool tsr__softmax_without_gaps(const tsr_tensor *tensor);

/* What all rows of an operand are aligned to, of 8, 4 and 2 bytes, or 1; and whether the kernels
 * for Mesa's CPU driver take it. */
uint32_t tsr__softmax_alignment(const tsr__softmax_operand *operand);
bool tsr__softmax_operands_suit(const tsr__softmax_rows *work);

/* Whether these kernels suit. `scratch` is not looked at. */
bool tsr__softmax_chunks_suit(const tsr__softmax_rows *work);

uint64_t tsr__softmax_scratch_bytes(const tsr__softmax_rows *work);

/* The three steps; softmax takes all, cross-entropy has a second one of its own. */
tsr_status tsr__softmax_chunks_add(tsr__dispatches *list,
                                   const tsr__softmax_rows *work) TSR_NODISCARD;
tsr_status tsr__softmax_rows_add(tsr__dispatches *list,
                                 const tsr__softmax_rows *work) TSR_NODISCARD;
tsr_status tsr__softmax_apply_add(tsr__dispatches *list,
                                  const tsr__softmax_rows *work) TSR_NODISCARD;

/* For a second step: where in the scratch memory the chunks' statistics are and the rows' have to
 * be, how many chunks a row has, and how many columns at its end make no vector. */
tsr__access tsr__softmax_chunk_stats(const tsr__softmax_rows *work, bool write);
tsr__access tsr__softmax_row_stats(const tsr__softmax_rows *work, bool write);
uint32_t tsr__softmax_across(const tsr__softmax_rows *work);
uint32_t tsr__softmax_rest(const tsr__softmax_rows *work);

#endif
