/* Views of heads in the features of self-attention layers. */
#include "parallel/layers/self_attention.h"

tsr_status tsr__heads_of(tsr__temps *temps, const tsr_tensor *in, int64_t head_dim,
                         tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(in);
    const int last = layout->ndim - 1;
    int64_t shape[4] = {1, layout->shape[last - 1], layout->shape[last] / head_dim, head_dim};
    for (int d = 0; d < last - 1; d++)
        shape[0] *= layout->shape[d];
    tsr_tensor *split;
    TSR__TRY(tsr__temp_reshape(temps, in, 4, shape, &split));
    return tsr__temp_transpose(temps, split, 1, 2, out);
}

tsr_status tsr__by_heads(const tsr__attention *a, tsr__temps *temps, const tsr_tensor *in,
                         tsr_tensor **out)
{
    return tsr__heads_of(temps, in, a->heads.head_dim, out);
}

tsr_status tsr__split_heads(const tsr__attention *a, tsr__temps *temps,
                            const tsr_tensor *heads_view, tsr__qkv_heads *out)
{
    const int64_t heads = a->heads.count, kv_heads = a->heads.kv_count;
    TSR__TRY(tsr__temp_slice(temps, heads_view, 1, 0, heads, &out->q));
    if (a->shared_keys)
        return TSR_OK;
    TSR__TRY(tsr__temp_slice(temps, heads_view, 1, heads, kv_heads, &out->k));
    TSR__TRY(tsr__temp_slice(temps, heads_view, 1, 0, heads + kv_heads, &out->qk));
    const int64_t all = tsr_tensor_layout(heads_view)->shape[1], before = heads + 2 * kv_heads;
    if (all > heads + kv_heads)
        TSR__TRY(tsr__temp_slice(temps, heads_view, 1, heads + kv_heads, kv_heads, &out->v));
    return all > before ? tsr__temp_slice(temps, heads_view, 1, before, heads, &out->gate) : TSR_OK;
}

tsr_status tsr__qkv_split(const tsr__attention *a, tsr__temps *temps, const tsr_tensor *features,
                          tsr__qkv_heads *out)
{
    tsr_tensor *view;
    TSR__TRY(tsr__by_heads(a, temps, features, &view));
    return tsr__split_heads(a, temps, view, out);
}
