/* The forward pass of a model. Features between layers are f32, whatever the dtype of weights is.
 */
#include "base/error.h"
#include "gpu/internal.h"
#include "model/model.h"
#include "model/stack/stack.h"

tsr_status tsr__model_forward(tsr_model *m, tsr_kv_cache *cache, int64_t count, int64_t tokens,
                              const int32_t *ids, const tsr_tensor *x, tsr_tensor **out)
{
    const int64_t shape[2] = {count, tokens};
    tsr_tensor *input = NULL;
    if (!m->is_first)
        return tsr__stack_blocks_cached(m->stack, x, cache, out);
    TSR__TRY(tsr_tensor_create(m->device, TSR_I32, 2, shape, &input));
    tsr_status status =
        tsr_tensor_upload(m->stream, input, ids, (uint64_t)(count * tokens) * sizeof *ids);
    if (status == TSR_OK)
        status = tsr__stack_blocks_cached(m->stack, input, cache, out);
    tsr_tensor_destroy(&input);
    return status;
}

/* Gives the features of a rank's last token to all ranks of the context group. */
static tsr_status share_last(const tsr_model *m, const tsr_tensor *features, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(features);
    const int64_t tokens = layout->shape[1], shape[3] = {1, 1, layout->shape[2]};
    tsr_tensor *last = NULL, *shared = NULL;
    TSR__TRY(tsr_tensor_slice(features, 1, tokens - 1, tokens, 1, &last));
    tsr_status status = tsr_tensor_create(m->device, layout->dtype, 3, shape, &shared);
    if (status == TSR_OK)
        status = tsr_copy(m->stream, shared, last);
    if (status == TSR_OK)
        status = tsr_group_broadcast(m->context_group, shared, tsr_group_size(m->context_group) - 1,
                                     NULL);
    tsr_tensor_destroy(&last);
    if (status == TSR_OK)
        *out = shared;
    else
        tsr_tensor_destroy(&shared);
    return status;
}

tsr_status tsr__model_forward_divided(tsr_model *m, tsr_kv_cache *cache, const int32_t *ids,
                                      tsr_tensor **out)
{
    tsr__kv_division division;
    tsr_tensor *features = NULL;
    TSR__TRY(tsr__kv_cache_divide_step(cache, &division));
    TSR__TRY(tsr__model_forward(m, cache, 1, division.own, ids + division.first, NULL, &features));
    const tsr_status status = share_last(m, features, out);
    tsr_tensor_destroy(&features);
    return status;
}

tsr_status tsr__model_logits(tsr_model *m, const tsr_tensor *features, int64_t first, int64_t count,
                             float *logits)
{
    tsr_tensor *some = NULL, *own = NULL;
    TSR__TRY(tsr_tensor_slice(features, 1, first, first + count, 1, &some));
    tsr_status status = tsr__stack_head_after_blocks(m->stack, some, &own);
    if (status == TSR_OK)
        status = tsr_stack_gather_logits(m->stack, own, logits);
    tsr_tensor_destroy(&some);
    tsr_tensor_destroy(&own);
    return status;
}
