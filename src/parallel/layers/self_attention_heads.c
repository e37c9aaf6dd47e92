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
    return tsr__heads_of(temps, in, a->heads.value_dim, out);
}

/* Creates a view [batch, heads, tokens, dim] of heads in a tensor [batch, tokens, features], the
 * first of which begins with feature `first`. */
static tsr_status heads_at(tsr__temps *temps, const tsr_tensor *in, int64_t first, int64_t heads,
                           int64_t dim, tsr_tensor **out)
{
    tsr_layout layout = *tsr_tensor_layout(in);
    layout.ndim = 4;
    layout.offset += first * layout.strides[2];
    layout.strides[3] = layout.strides[2];
    layout.strides[2] = layout.strides[1];
    layout.strides[1] = dim * layout.strides[3];
    layout.shape[2] = layout.shape[1];
    layout.shape[1] = heads;
    layout.shape[3] = dim;
    TSR__TRY(tsr_tensor_view(in, &layout, out));
    return tsr__temp_keep(temps, *out);
}

tsr_status tsr__qkv_split(const tsr__attention *a, tsr__temps *temps, const tsr_tensor *features,
                          tsr__qkv_heads *out)
{
    const tsr_layout *layout = tsr_tensor_layout(features);
    const int last = layout->ndim - 1;
    const int64_t heads = a->heads.count, kv_heads = a->heads.kv_count, dim = a->heads.head_dim,
                  values = a->heads.value_dim, keys_end = (heads + kv_heads) * dim,
                  values_end = keys_end + kv_heads * values, all = layout->shape[last];
    int64_t shape[3] = {1, layout->shape[last - 1], all};
    tsr_tensor *rows;
    for (int d = 0; d < last - 1; d++)
        shape[0] *= layout->shape[d];
    TSR__TRY(tsr__temp_reshape(temps, features, 3, shape, &rows));
    TSR__TRY(heads_at(temps, rows, 0, heads, dim, &out->q));
    if (a->shared_keys) {
        out->qk = out->q;
        return TSR_OK;
    }
    TSR__TRY(heads_at(temps, rows, heads * dim, kv_heads, dim, &out->k));
    TSR__TRY(heads_at(temps, rows, 0, heads + kv_heads, dim, &out->qk));
    if (all > keys_end)
        TSR__TRY(heads_at(temps, rows, keys_end, kv_heads, values, &out->v));
    return all > values_end ? heads_at(temps, rows, values_end, heads, values, &out->gate) : TSR_OK;
}
