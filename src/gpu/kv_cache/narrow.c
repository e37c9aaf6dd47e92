/* Attention of f32 queries with keys and values in a cache of fewer bits, for which matrix units
 * need queries and results of 16 bits. */
#include "gpu/attention/call.h"
#include "gpu/internal.h"
#include "gpu/memory/tensor.h"

tsr_dtype tsr__attention_narrow_dtype(tsr_stream *stream, const tsr_tensor *q, const tsr_tensor *k,
                                      const tsr_tensor *v, const tsr_attention_params *params)
{
    const tsr_dtype cached = k->layout.dtype,
                    dtype = tsr__dtype_is_block(cached) ? TSR_F16 : cached;
    const int64_t *shape = q->layout.shape;
    tsr_tensor narrow_q = *q, narrow_y = *q;
    if (dtype == TSR_F32 || q->layout.dtype != TSR_F32 || tsr_layout_count(&q->layout) == 0)
        return TSR_F32;
    narrow_q.layout.dtype = narrow_y.layout.dtype = dtype;
    narrow_y.layout.shape[3] = v->layout.shape[3];
    const tsr__attention call = {.stream = stream,
                                 .y = &narrow_y,
                                 .q = &narrow_q,
                                 .k = k,
                                 .v = v,
                                 .params = *params,
                                 .batch = shape[0],
                                 .heads = shape[1],
                                 .q_len = shape[2],
                                 .head_dim = shape[3],
                                 .value_dim = v->layout.shape[3]};
    return tsr__attention_coopmat_suits(&(tsr__attention_pass){
               .call = &call, .kind = TSR_ATTENTION_FORWARD, .out = &narrow_y})
               ? dtype
               : TSR_F32;
}

tsr_status tsr__attention_narrowed(tsr_stream *stream, tsr_dtype dtype, tsr_tensor *y,
                                   tsr_tensor *lse, const tsr_tensor *q, const tsr_tensor *k,
                                   const tsr_tensor *v, const tsr_attention_params *params)
{
    tsr_device *device = tsr_stream_device(stream);
    const bool narrows = dtype != TSR_F32 && q->layout.dtype != dtype,
               widens = dtype != TSR_F32 && y->layout.dtype != dtype;
    tsr_tensor *narrow_q = NULL, *narrow_y = NULL;
    tsr_status status = TSR_OK;
    if (narrows)
        status = tsr_tensor_create(device, dtype, 4, q->layout.shape, &narrow_q);
    if (status == TSR_OK && widens)
        status = tsr_tensor_create(device, dtype, 4, y->layout.shape, &narrow_y);
    if (status == TSR_OK && narrows)
        status = tsr_copy(stream, narrow_q, q);
    if (status == TSR_OK)
        status =
            tsr_attention(stream, widens ? narrow_y : y, lse, narrows ? narrow_q : q, k, v, params);
    if (status == TSR_OK && widens)
        status = tsr_copy(stream, y, narrow_y);
    tsr_tensor_destroy(&narrow_q);
    tsr_tensor_destroy(&narrow_y);
    return status;
}
