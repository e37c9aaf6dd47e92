/* The caches of a generator: that of its model, and that of a draft_model. */
#include "base/error.h"
#include "gpu/internal.h"
#include "model/generate/generator.h"
#include "model/model.h"
#include "tensor/dtype.h"

/* Chooses which states the cache of `model`, which may be the draft_model, keeps. */
static void choose_states(const tsr_generator *g, const tsr_model *m, tsr_kv_cache_params *out)
{
    const tsr_generator_params *p = &g->params;
    /* If a step cannot take the oldest pass in flight, it discards it with those behind it. The
     * last token before its drafts is computed again by a draft_model. */
    const int drafts = p->draft == TSR_DRAFT_NONE ? 0 : p->draft_tokens,
              passes = g->flight ? tsr__flight_ahead(g->flight) + 1 : 0;
    if (m != g->model) {
        tsr__generator_keep_tokens(drafts + 1, out);
        return;
    }
    tsr__generator_keep_tokens(drafts > passes ? drafts : passes, out);
    if (p->prefix_cache) /* which takes them after pieces of prompts */
        out->snapshots = p->snapshots > 0 ? p->snapshots : TSR_GENERATOR_USUAL_SNAPSHOTS;
}

tsr_status tsr__generator_create_cache(const tsr_generator *g, const tsr_model *m,
                                       tsr_kv_cache **out)
{
    int64_t kv_heads[TSR_MODEL_MAX_LAYERS], head_dims[TSR_MODEL_MAX_LAYERS],
        value_dims[TSR_MODEL_MAX_LAYERS], conv_floats[TSR_MODEL_MAX_LAYERS],
        state_floats[TSR_MODEL_MAX_LAYERS];
    bool values_in_keys[TSR_MODEL_MAX_LAYERS];
    const tsr_dtype dtype = m == g->model ? g->params.cache_dtype : m->cache_dtype;
    const int64_t block = (int64_t)tsr__dtype_block(dtype);
    for (int i = 0; i < m->layer_count; i++) {
        tsr_heads heads = TSR_INIT(tsr_heads);
        TSR__TRY(tsr_self_attention_get_heads(m->stack->blocks[i], &heads));
        kv_heads[i] = tsr__stack_keys_layer(m->stack, i) == i ? heads.kv_count : 0;
        head_dims[i] = heads.head_dim;
        value_dims[i] = heads.value_dim;
        if (heads.kv_count == 0) { /* no rows on this rank, but their size must suit the dtype */
            head_dims[i] = (head_dims[i] + block - 1) / block * block;
            value_dims[i] = (value_dims[i] + block - 1) / block * block;
        }
        values_in_keys[i] = heads.values_in_keys;
        conv_floats[i] = heads.conv_floats;
        state_floats[i] = heads.state_floats;
    }
    tsr_kv_cache_params params = {
        .struct_size = sizeof params,
        .stream = m->stream,
        .layers = m->layer_count,
        .layer_kv_heads = kv_heads,
        .layer_head_dims = head_dims,
        .layer_value_dims = value_dims,
        .layer_values_in_keys = values_in_keys,
        .dtype = dtype,
        .page_tokens = g->page_tokens,
        .pages = g->pages,
        .sequences = g->params.sequences,
    };
    if (tsr__generator_has_states(m)) {
        params.layer_conv_floats = conv_floats;
        params.layer_state_floats = state_floats;
        choose_states(g, m, &params);
    }
    const tsr_group *contexts = m == g->model ? m->context_group : NULL;
    if (!contexts)
        return tsr_kv_cache_create(&params, out);
    params.page_tokens /= tsr_group_size(contexts);
    return tsr__kv_cache_create_divided(&params, tsr_group_size(contexts), tsr_group_rank(contexts),
                                        out);
}
