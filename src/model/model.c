/* Models: their layers, and the order in which they are created and opened. */
#include "model/model.h"

#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "model/config/config.h"
#include "model/weights/elements.h"
#include "model/weights/weights.h"

void tsr_model_close(tsr_model **model)
{
    if (!model || !*model)
        return;
    tsr_model *m = *model;
    tsr_stack_destroy(&m->stack);
    tsr_pipeline_destroy(&m->pipeline);
    tsr_comm_destroy(&m->stages);
    tsr__free(m->memory_bytes);
    tsr__free(m->rates);
    tsr__free(m->hosts);
    tsr__free(m->expert_limits);
    tsr__free(m->own_config);
    tsr__free(m);
    *model = NULL;
}

const tsr_model_config *tsr_model_get_config(const tsr_model *model)
{
    return model ? model->config : NULL;
}

struct tsr_stack *tsr_model_stack(const tsr_model *model)
{
    return model ? model->stack : NULL;
}

tsr_status tsr_model_get_stats(const tsr_model *model, tsr_model_stats *out)
{
    TSR__REQUIRE(model && out, "model: %s is NULL", model ? "out" : "model");
    TSR__GIVE(tsr_model_stats, &model->stats, out);
    return TSR_OK;
}

/* Opening ------------------------------------------------------------------------------------ */

/* Creates the layers of this stage, without memory; see memory.c. */
static tsr_status create_layers(tsr_model *m, const tsr__weights *weights)
{
    const size_t ranks = (size_t)tsr_group_size(m->group);
    tsr__kind_division divisions[TSR_MODEL_MAX_LAYER_KINDS];
    for (int kind = 0; kind < m->config->kind_count; kind++) {
        tsr__kind_division *d = &divisions[kind];
        tsr__kept_hidden hidden;
        TSR__TRY(tsr__kept_align_heads(&m->kept, weights, kind, &d->heads));
        TSR__TRY(tsr__kept_align_shared(&m->kept, weights, kind, &d->shared));
        TSR__TRY(tsr__kept_divide_hidden(&m->kept, weights, kind, &hidden));
        d->hidden = hidden.align;
        TSR__TRY(tsr__kept_align_mlp(&m->kept, weights, kind, &d->mlp));
        d->whole_experts = hidden.whole_experts;
        d->teams =
            hidden.mixed ? m->hosts + (size_t)m->stage * (size_t)tsr_group_size(m->group) : NULL;
        d->expert_limits = hidden.whole_experts && m->expert_limits
                               ? m->expert_limits + (size_t)kind * ranks * (size_t)m->stage_count +
                                     ranks * (size_t)m->stage
                               : NULL;
    }
    return tsr__stack_create(&(tsr__stack_options){.config = m->config,
                                                   .group = m->group,
                                                   .context_group = m->context_group,
                                                   .first_layer = m->first_layer,
                                                   .layer_count = m->layer_count,
                                                   .partition = m->partition,
                                                   .divisions = divisions,
                                                   .dtype = m->kept.others,
                                                   .norm_dtype = TSR_F32,
                                                   .features = TSR_F32,
                                                   .recompute = m->recompute,
                                                   .tiled_delta_nets = m->kept.tiles,
                                                   .next_token = m->next_token,
                                                   .context = m->context},
                             &m->stack);
}

static tsr_status open_weights(tsr_model *m, const tsr_model_file *file,
                               const tsr_model_params *params)
{
    const tsr__weights *weights;
    tsr_heads heads = TSR_INIT(tsr_heads);
    TSR__TRY(tsr__model_file_weights(file, &weights));
    TSR__TRY(tsr__config_copy(&file->config->public, &m->own_config));
    m->config = &m->own_config->public;
    TSR__TRY(tsr__kept_choose(weights, tsr_group_size(m->group), params->dtype,
                              params->expert_division, &m->kept));
    const size_t first = (size_t)m->stage * (size_t)tsr_group_size(m->group);
    m->kept.hosts = m->hosts + first;
    if (m->partition.kind == TSR_PARTITION_WEIGHTED && m->partition.rates)
        m->kept.rates = m->rates + first;
    TSR__TRY(tsr__model_divide(m, weights, params));
    TSR__TRY(create_layers(m, weights));
    if (!params->sharded_over)
        TSR__TRY(tsr__model_allocate(m, weights));
    for (int i = 0; i < m->layer_count && m->stats.heads == 0; i++) {
        if (tsr__layer_has_state(tsr__config_layer(m->config, m->first_layer + i)))
            continue;
        TSR__TRY(tsr_self_attention_get_heads(m->stack->blocks[i], &heads));
        m->stats.heads = heads.count;
        m->stats.kv_heads = heads.kv_count;
        break;
    }
    m->stats.parameters = tsr_model_config_parameters(m->config, -1);
    return params->sharded_over ? tsr__model_load_sharded(m, weights, params)
                                : tsr__model_load(m, weights, params);
}

/* Tells all ranks whether all have opened the model, and with the same division of the layers,
 * which depends on params that each rank gets for itself. */
static tsr_status agree(const tsr_model *m, tsr_status own)
{
    const int rank = tsr_group_rank(m->group), ranks = tsr_group_size(m->group);
    const int stage = m->stage;
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

static tsr_status check_context_group(const tsr_model_params *params, const tsr_group *group)
{
    const int ranks = tsr_group_size(params->context_group);
    TSR__REQUIRE(ranks == 1 || !params->next_token,
                 "model: next_token cannot go with the %d ranks of a context_group", ranks);
    TSR__REQUIRE(ranks == 1 || tsr_group_stream(params->context_group) == tsr_group_stream(group),
                 "model: context_group has another stream than group");
    return TSR_OK;
}

static tsr_status open_model(const tsr_model_file *file, const tsr_model_params *params,
                             tsr_model *m)
{
    const uint64_t start = tsr__now_ns();
    m->partition.align = 0;
    m->partition.limits = NULL;
    if (m->partition.kind == TSR_PARTITION_EVEN)
        m->partition.kind = TSR_PARTITION_UNEVEN;
    const tsr_status status =
        file ? open_weights(m, file, params) : tsr__fail(TSR_ERR_INVALID, "model: file is NULL");
    m->stats.other_dtype = m->kept.others;
    m->partition.rates = NULL; /* the rates belong to the caller, and the weights to the file */
    m->kept.config = m->config;
    m->stats.open_ns = tsr__now_ns() - start;
    return agree(m, status);
}

tsr_status tsr_model_open(const tsr_model_file *file, const tsr_model_params *params,
                          tsr_model **out)
{
    tsr_partition_params partition;
    TSR__REQUIRE(out, "model: out is NULL");
    TSR__TAKE(tsr_model_params, params);
    TSR__TRY(TSR__TAKE_PART(tsr_partition_params, params->partition, &partition));
    tsr_group *group = params->group ? params->group : tsr_group_default();
    TSR__REQUIRE(group, "model: there is no group, and no default group");
    TSR__REQUIRE(!params->sharded_over || !params->next_token,
                 "model: with sharded_over, next_token must be false");
    TSR__TRY(check_context_group(params, group));
    tsr_model *m = tsr__calloc(1, sizeof *m);
    if (!m)
        return TSR_ERR_NO_MEMORY;
    m->group = group;
    if (tsr_group_size(params->context_group) > 1)
        m->context_group = params->context_group;
    m->partition = partition;
    m->context = params->context;
    m->recompute = params->recompute;
    m->host_experts = params->host_experts;
    m->next_token = params->next_token;
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
