/* The stages of a model: which layers each has, and what they exchange beside features. */
#include "base/alloc.h"
#include "base/error.h"
#include "model/model.h"

tsr_status tsr__model_connect(tsr_model *m, const tsr_model_params *params)
{
    TSR__TRY(tsr_pipeline_create(tsr_pipeline_params(.comm = params->stages, .stream = m->stream),
                                 &m->pipeline));
    return tsr_pipeline_stages(m->pipeline) > 1 ? tsr_comm_duplicate(params->stages, &m->stages)
                                                : TSR_OK;
}

static tsr_status check_given(const tsr_model *m, const int *counts, int stages)
{
    int64_t sum = 0;
    for (int s = 0; s < stages; s++) {
        TSR__REQUIRE(counts[s] >= 1, "model: stage %d has %d layers; at least 1 is needed", s,
                     counts[s]);
        sum += counts[s];
    }
    TSR__REQUIRE(sum == m->config.layers,
                 "model: the stages have %lld layers, but the model has %d", (long long)sum,
                 m->config.layers);
    return TSR_OK;
}

static void take_layers(tsr_model *m, const int *counts)
{
    const int stage = tsr_pipeline_stage(m->pipeline);
    m->is_first = stage == 0;
    m->is_last = stage == tsr_pipeline_stages(m->pipeline) - 1;
    m->first_layer = 0;
    for (int s = 0; s < stage; s++)
        m->first_layer += counts[s];
    m->layer_count = counts[stage];
    m->stats.first_layer = m->first_layer;
    m->stats.layers = m->layer_count;
}

/* Returns the cost of the head for a token, in blocks, from the sizes of their matrices. */
static double head_in_blocks(const tsr_model_config *c)
{
    const double width = (double)c->width, heads = (double)(2 * c->heads + 2 * c->kv_heads),
                 hidden = (double)((c->gated ? 3 : 2) * c->hidden);
    return (double)c->vocabulary * width / (width * (heads * (double)c->head_dim + hidden));
}

tsr_status tsr__model_divide(tsr_model *m, const tsr_model_params *params)
{
    const int stages = tsr_pipeline_stages(m->pipeline);
    if (params->stage_layers) {
        TSR__TRY(check_given(m, params->stage_layers, stages));
        take_layers(m, params->stage_layers);
        return TSR_OK;
    }
    int *counts = tsr__calloc((size_t)stages, sizeof *counts);
    if (!counts)
        return TSR_ERR_NO_MEMORY;
    tsr_status status =
        tsr_pipeline_divide(tsr_pipeline_divide_params(.blocks = m->config.layers, .stages = stages,
                                                       .rates = params->stage_rates,
                                                       .last_cost = head_in_blocks(&m->config)),
                            counts);
    if (status == TSR_OK)
        take_layers(m, counts);
    else
        status = tsr__fail_context(status, "model");
    tsr__free(counts);
    return status;
}

tsr_status tsr__model_all_max(const tsr_model *m, int32_t *values, uint64_t count)
{
    tsr_comm *const comms[] = {tsr_group_comm(m->group), m->stages};
    for (int i = 0; i < 2; i++)
        if (comms[i])
            TSR__TRY(tsr_comm_all_reduce(comms[i], values, values, count, TSR_I32, TSR_OP_MAX));
    return TSR_OK;
}

tsr_status tsr__model_from_last(const tsr_model *m, void *data, uint64_t count, tsr_dtype dtype)
{
    return m->stages
               ? tsr_comm_broadcast(m->stages, data, count, dtype, tsr_comm_size(m->stages) - 1)
               : TSR_OK;
}
