/* Models: their layers, and the order in which they are created and opened. */
#include "model/model.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "model/config/config.h"
#include "model/weights/elements.h"
#include "model/weights/weights.h"

void tsr_model_close(tsr_model **model)
{
    if (!model || !*model)
        return;
    tsr_model *m = *model;
    tsr_layer_destroy(&m->embedding);
    for (int i = 0; m->blocks && i < m->config->layers; i++)
        tsr_layer_destroy(&m->blocks[i]);
    tsr__free(m->blocks);
    tsr_layer_destroy(&m->norm);
    tsr_layer_destroy(&m->head);
    tsr_tensor_destroy(&m->positions);
    tsr_pipeline_destroy(&m->pipeline);
    tsr_comm_destroy(&m->stages);
    tsr__free(m->vocabulary);
    tsr__free(m->memory_bytes);
    tsr__free(m->rates);
    tsr__free(m->own_config);
    tsr__free(m);
    *model = NULL;
}

const tsr_model_config *tsr_model_get_config(const tsr_model *model)
{
    return model ? model->config : NULL;
}

tsr_group *tsr_model_group(const tsr_model *model)
{
    return model ? model->group : NULL;
}

tsr_dtype tsr_model_dtype(const tsr_model *model)
{
    return model ? model->kept.others : (tsr_dtype)0;
}

void tsr_model_get_stats(const tsr_model *model, tsr_model_stats *out)
{
    if (out)
        *out = model ? model->stats : (tsr_model_stats){0};
}

/* Layers ------------------------------------------------------------------------------------- */

/* Layers are created without memory; see memory.c. */

static tsr_status create_block(tsr_model *m, const tsr_partition_params *heads,
                               const tsr_partition_params *hidden, int index)
{
    const tsr_model_config *c = m->config;
    const tsr_model_layer *layer = tsr_model_config_layer(c, index);
    const float epsilon = (float)c->norm_epsilon;
    return tsr_block_create(tsr_block_params(.group = m->group, .size = c->width,
                                             .dtype = m->kept.others, .deferred = true,
                                             .norm = {.kind = c->norm,
                                                      .no_bias = !c->norm_bias,
                                                      .epsilon = epsilon,
                                                      .dtype = TSR_F32},
                                             .attention = {.heads = layer->heads,
                                                           .kv_heads = layer->kv_heads,
                                                           .head_dim = layer->head_dim,
                                                           .no_bias = !layer->qkv_bias,
                                                           .no_output_bias = !layer->output_bias,
                                                           .rope = layer->rope,
                                                           .qk_norm = layer->qk_norm,
                                                           .norm_epsilon = epsilon,
                                                           .norm_dtype = TSR_F32,
                                                           .window = layer->window,
                                                           .partition = *heads},
                                             .mlp = {.hidden_size = layer->hidden,
                                                     .no_bias = !layer->mlp_bias,
                                                     .gated = layer->gated,
                                                     .activation = layer->activation,
                                                     .partition = *hidden}),
                            &m->blocks[index]);
}

static tsr_status create_blocks(tsr_model *m, const tsr__weights *weights)
{
    const tsr_model_config *c = m->config;
    tsr_partition_params heads = m->partition, hidden = m->partition;
    TSR__TRY(tsr__kept_align_heads(&m->kept, weights, &heads.align));
    TSR__TRY(tsr__kept_align_hidden(&m->kept, weights, &hidden.align));
    m->blocks = tsr__calloc((size_t)c->layers, sizeof(tsr_layer *));
    if (!m->blocks)
        return TSR_ERR_NO_MEMORY;
    for (int i = m->first_layer; i < m->first_layer + m->layer_count; i++) {
        const tsr_status status = create_block(m, &heads, &hidden, i);
        if (status != TSR_OK)
            return tsr__fail_context(status, "model: layer %d", i);
    }
    return TSR_OK;
}

static tsr_status create_layers(tsr_model *m, const tsr__weights *weights)
{
    const tsr_model_config *c = m->config;
    if (m->is_first || (m->is_last && c->tied))
        TSR__TRY(
            tsr_embedding_create(tsr_embedding_params(.group = m->group, .name = "embedding",
                                                      .vocabulary_size = c->vocabulary,
                                                      .width = c->width, .dtype = m->kept.others,
                                                      .partition = m->partition, .deferred = true),
                                 &m->embedding));
    TSR__TRY(create_blocks(m, weights));
    if (!m->is_last)
        return TSR_OK;
    TSR__TRY(tsr_norm_create(tsr_norm_params(.group = m->group, .name = "norm", .size = c->width,
                                             .kind = c->norm, .no_bias = !c->norm_bias,
                                             .epsilon = (float)c->norm_epsilon, .dtype = TSR_F32,
                                             .deferred = true),
                             &m->norm));
    return tsr_column_linear_create(
        tsr_linear_params(.group = m->group, .name = "head", .input_size = c->width,
                          .output_size = c->vocabulary, .no_bias = true, .dtype = m->kept.others,
                          .partition = m->partition, .deferred = true),
        &m->head);
}

/* Opening ------------------------------------------------------------------------------------ */

static tsr_status divide_vocabulary(tsr_model *m)
{
    const int ranks = tsr_group_size(m->group);
    tsr_shard_range *ranges = tsr__calloc((size_t)ranks, sizeof *ranges);
    m->vocabulary = tsr__calloc((size_t)ranks, sizeof *m->vocabulary);
    tsr_status status = ranges && m->vocabulary ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr_partition((uint64_t)m->config->vocabulary, ranks, &m->partition, ranges);
    for (int r = 0; status == TSR_OK && r < ranks; r++)
        m->vocabulary[r] = (int64_t)ranges[r].count;
    tsr__free(ranges);
    return status;
}

static tsr_status open_weights(tsr_model *m, const tsr_model_file *file,
                               const tsr_model_params *params)
{
    const tsr__weights *weights;
    tsr_heads heads;
    TSR__TRY(tsr__model_file_weights(file, &weights));
    TSR__TRY(tsr__config_copy(&file->config->public, &m->own_config));
    m->config = &m->own_config->public;
    TSR__TRY(tsr__kept_choose(weights, tsr_group_size(m->group), params->dtype, &m->kept));
    TSR__TRY(divide_vocabulary(m));
    TSR__TRY(tsr__model_divide(m, weights, params));
    TSR__TRY(create_layers(m, weights));
    TSR__TRY(tsr__model_allocate(m, weights));
    TSR__TRY(tsr_self_attention_heads(m->blocks[m->first_layer], &heads));
    m->stats.heads = heads.count;
    m->stats.kv_heads = heads.kv_count;
    m->stats.parameters = tsr__weights_count(m->config);
    return tsr__model_load(m, weights, params);
}

/* Tells all ranks whether all have opened the model, and with the same division of the layers,
 * which depends on params that each rank gets for itself. */
static tsr_status agree(const tsr_model *m, tsr_status own)
{
    const int rank = tsr_group_rank(m->group), ranks = tsr_group_size(m->group);
    const int stage = tsr_pipeline_stage(m->pipeline);
    /* votes[0]: this rank's number over all stages if it has failed, otherwise -1. The other two
     * become the highest `division` and minus the lowest one; both have the same magnitude if all
     * ranks divide the layers the same way. */
    int32_t votes[] = {own == TSR_OK ? -1 : stage * ranks + rank, m->division, -m->division};
    const tsr__error text = tsr__error_take();
    const tsr_status status = tsr__model_all_max(m, votes, sizeof votes / sizeof *votes);
    const int failed = votes[0];
    if (own != TSR_OK) {
        tsr__error_put_back(&text);
        return own;
    }
    TSR__TRY(status);
    TSR__REQUIRE(
        failed >= 0 || votes[1] == -votes[2],
        "model: the ranks divide the layers over the stages in different ways; all ranks "
        "need the same params; by those of this rank, stage %d has %d layers from layer %d "
        "on",
        stage, m->layer_count, m->first_layer);
    if (failed < 0)
        return TSR_OK;
    return m->stages
               ? tsr__fail(TSR_ERR_INVALID, "model: rank %d of stage %d could not open the model",
                           failed % ranks, failed / ranks)
               : tsr__fail(TSR_ERR_INVALID, "model: rank %d could not open the model", failed);
}

static tsr_status open_model(const tsr_model_file *file, const tsr_model_params *params,
                             tsr_model *m)
{
    const uint64_t start = tsr__now_ns();
    m->partition = params->partition;
    m->partition.align = 0;
    m->partition.limits = NULL;
    if (m->partition.kind == TSR_PARTITION_EVEN)
        m->partition.kind = TSR_PARTITION_UNEVEN;
    const tsr_status status =
        file ? open_weights(m, file, params) : tsr__fail(TSR_ERR_INVALID, "model: file is NULL");
    m->partition.rates = NULL; /* the rates belong to the caller, and the weights to the file */
    m->kept.config = m->config;
    m->stats.open_ns = tsr__now_ns() - start;
    return agree(m, status);
}

tsr_status tsr_model_open(const tsr_model_file *file, const tsr_model_params *params,
                          tsr_model **out)
{
    const tsr_model_params usual = {0};
    TSR__REQUIRE(out, "model: out is NULL");
    if (!params)
        params = &usual;
    tsr_group *group = params->group ? params->group : tsr_group_default();
    TSR__REQUIRE(group, "model: there is no group, and no default group");
    tsr_model *m = tsr__calloc(1, sizeof *m);
    if (!m)
        return TSR_ERR_NO_MEMORY;
    m->group = group;
    m->stream = tsr_group_stream(group);
    m->device = tsr_stream_device(m->stream);
    tsr_status status = tsr__model_connect(m, params);
    if (status == TSR_OK)
        status = tsr__model_share_memory(m, params);
    if (status == TSR_OK)
        status = open_model(file, params, m);
    if (status != TSR_OK) {
        tsr_model_close(&m);
        return status;
    }
    *out = m;
    return TSR_OK;
}
