/* The forward pass of a model. Features between layers are f32, whatever the dtype of weights is.
 */
#include "model/model.h"

#include "base/alloc.h"
#include "base/error.h"

/* Destroys *at, and replaces it by `next`. */
static void advance(tsr_tensor **at, tsr_tensor *next)
{
    tsr_tensor_destroy(at);
    *at = next;
}

static tsr_status new_like(const tsr_model *m, const tsr_tensor *like, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(like);
    return tsr_tensor_create(m->device, TSR_F32, layout->ndim, layout->shape, out);
}

static tsr_status widen(tsr_model *m, tsr_tensor **at)
{
    tsr_tensor *wide = NULL;
    if (tsr_tensor_layout(*at)->dtype == TSR_F32)
        return TSR_OK;
    TSR__TRY(new_like(m, *at, &wide));
    const tsr_status status = tsr_copy(m->stream, wide, *at);
    if (status == TSR_OK)
        advance(at, wide);
    else
        tsr_tensor_destroy(&wide);
    return status;
}

/* Creates the input of this stage's first layer: from the tokens' ids in the first stage, from the
 * features of the previous stage in the others. */
static tsr_status enter(tsr_model *m, int64_t count, int64_t tokens, const int32_t *ids,
                        const tsr_tensor *from, tsr_tensor **out)
{
    if (!m->is_first) {
        const tsr_layout *layout = tsr_tensor_layout(from);
        return tsr_tensor_reshape(from, layout->ndim, layout->shape, out);
    }
    const int64_t shape[2] = {count, tokens};
    tsr_tensor *x = NULL;
    TSR__TRY(tsr_tensor_create(m->device, TSR_I32, 2, shape, &x));
    tsr_status status =
        tsr_tensor_upload(m->stream, x, ids, (uint64_t)(count * tokens) * sizeof *ids);
    if (status == TSR_OK)
        status = tsr_layer_forward(m->embedding, x, NULL, out);
    tsr_tensor_destroy(&x);
    return status;
}

/* Adds the learned positions of the step's tokens. */
static tsr_status add_positions(tsr_model *m, tsr_kv_cache *cache, tsr_tensor *at)
{
    const tsr_tensor *positions = tsr_kv_cache_positions(cache);
    const tsr_layout *layout = tsr_tensor_layout(at);
    const int64_t rows = layout->shape[0] * layout->shape[1], shape[2] = {rows, layout->shape[2]};
    tsr_tensor *flat = NULL, *learned = NULL, *all = NULL;
    if (!m->positions)
        return TSR_OK;
    tsr_status status = tsr_tensor_reshape(positions, 1, &rows, &flat);
    if (status == TSR_OK)
        status = tsr_tensor_reshape(at, 2, shape, &all);
    if (status == TSR_OK)
        status = tsr_tensor_create(m->device, TSR_F32, 2, shape, &learned);
    if (status == TSR_OK)
        status = tsr_index_select(m->stream, learned, m->positions, 0, flat);
    if (status == TSR_OK)
        status = tsr_add(m->stream, all, all, learned);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&learned);
    tsr_tensor_destroy(&all);
    return status;
}

static tsr_status pass(tsr_model *m, tsr_kv_cache *cache, tsr_tensor **at)
{
    tsr_tensor *next = NULL;
    TSR__TRY(widen(m, at));
    TSR__TRY(add_positions(m, cache, *at));
    for (int i = 0; i < m->layer_count; i++) {
        TSR__TRY(tsr_layer_forward_cached(m->blocks[m->first_layer + i], *at, cache, i, &next));
        advance(at, next);
    }
    if (!m->is_last)
        return TSR_OK;
    TSR__TRY(tsr_layer_forward(m->norm, *at, NULL, &next));
    advance(at, next);
    return TSR_OK;
}

tsr_status tsr__model_forward(tsr_model *m, tsr_kv_cache *cache, int64_t count, int64_t tokens,
                              const int32_t *ids, const tsr_tensor *x, tsr_tensor **out)
{
    tsr_tensor *at = NULL;
    TSR__TRY(enter(m, count, tokens, ids, x, &at));
    const tsr_status status = pass(m, cache, &at);
    if (status != TSR_OK) {
        tsr_tensor_destroy(&at);
        return status;
    }
    *out = at;
    return TSR_OK;
}

/* Gathers logits [rows, this rank's part] from all ranks, and downloads them to logits[rows ·
 * vocabulary]. */
static tsr_status gather(tsr_model *m, const tsr_tensor *own, int64_t rows, float *logits)
{
    const int64_t vocabulary = m->config->vocabulary, shape[2] = {rows, vocabulary};
    const int64_t part[2] = {rows, m->vocabulary[tsr_group_rank(m->group)]};
    tsr_tensor *flat = NULL, *all = NULL;
    tsr_status status = tsr_tensor_reshape(own, 2, part, &flat);
    if (status == TSR_OK)
        status = tsr_tensor_create(m->device, TSR_F32, 2, shape, &all);
    if (status == TSR_OK)
        status = tsr_group_all_gather(m->group, all, flat, 1, m->vocabulary);
    if (status == TSR_OK)
        status = tsr_tensor_download(m->stream, all, logits,
                                     (uint64_t)(rows * vocabulary) * sizeof *logits);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&all);
    return status;
}

tsr_status tsr__model_logits(tsr_model *m, const tsr_tensor *features, int64_t first, int64_t count,
                             float *logits)
{
    const int64_t sequences = tsr_tensor_layout(features)->shape[0];
    tsr_tensor *some = NULL, *own = NULL;
    TSR__TRY(tsr_tensor_slice(features, 1, first, first + count, 1, &some));
    tsr_status status = tsr_layer_forward(m->head, some, NULL, &own);
    if (status == TSR_OK)
        status = gather(m, own, sequences * count, logits);
    tsr_tensor_destroy(&some);
    tsr_tensor_destroy(&own);
    return status;
}
