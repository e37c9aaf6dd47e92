/* Copies the keys or values of a call to one place: from the pages of a cache, or from sequences of
 * different lengths, with zeros after their last key. Runs
 * shaders/cpu_drivers/attention_gather.comp. */
#ifndef TSR_GPU_CPU_DRIVERS_ATTENTION_GATHER_H
#define TSR_GPU_CPU_DRIVERS_ATTENTION_GATHER_H

#include "gpu/cpu_drivers/attention/blocks.h"

/* True if the call has pages, lengths or blocks, so that its keys and values are to be gathered. */
static inline bool tsr__attention_gathers(const tsr__attention *call)
{
    return call->params.pages || call->params.q_lengths || call->params.kv_lengths ||
           tsr__dtype_is_block(call->k->layout.dtype) || tsr__dtype_is_block(call->v->layout.dtype);
}

/* True if the kernel can gather the keys and values of this call. */
bool tsr__attention_gather_suits(const tsr__attention *call);

/* Copies the heads of the slice in `x`, which is the call's k or v, to `to`: f32 [batches,
 * kv_heads, kv_len, line]. If `lengths` is not NULL, writes to it how many queries and keys each
 * sequence of the slice has, i32 [batches, 2]. */
tsr_status tsr__attention_gather(const tsr__attention *call, const tsr__attention_slice *slice,
                                 const tsr_tensor *x, int64_t line, tsr__buffer *to,
                                 tsr__buffer *lengths) TSR_NODISCARD;

#endif
