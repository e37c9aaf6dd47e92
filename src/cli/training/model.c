/* The layers that are trained, and their optimizer. */
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "cli/training/experts.h"

/* The number zero, in params whose default is another number. */
static float number(double value)
{
    return value == 0 ? (float)TSR_ZERO : (float)value;
}

/* Returns how many blocks need as much work as the head: the ratio of their numbers of weights. */
static double head_cost(const tsr_model_config *config)
{
    return (double)config->vocabulary * (double)config->width /
           (double)tsr_model_config_parameters(config, 0);
}

/* Divides what is trained over the data-parallel ranks. Adapters are small: every rank has all of
 * them, because memory to gather them would take more than it saves. */
static tsr_status shard(training_model *m, bool again)
{
    const training_options *o = &training_chosen;
    static const char *const everything[] = {"*", NULL};
    tsr_shard_strategy *strategy = NULL;
    TRY(tsr_shard_strategy_create(tsr_shard_strategy_params(.kind = o->strategy), &strategy));
    const tsr_fsdp_params *params =
        tsr_fsdp_params(.group = m->job->data_group, .strategy = strategy,
                        .gather = o->fsdp && o->full ? NULL : everything, .reduction = TSR_OP_SUM,
                        .replicas = o->elastic);
    const tsr_status status = m->own == NULL
                                  ? (again ? tsr_lora_reshard : tsr_lora_shard)(m->lora, params)
                              : again ? tsr_stack_reshard(m->own, params)
                                      : tsr_stack_shard(m->own, params);
    tsr_shard_strategy_destroy(&strategy);
    return status;
}

/* All layers trained --------------------------------------------------------------------------- */

/* Divides the layers over the stages. Gives this stage's first layer, and the number of its
 * layers. */
static tsr_status divide_layers(const training_model *m, const tsr_model_params *how, int *first,
                                int *count)
{
    const training_job *j = m->job;
    int *counts = cli_alloc((size_t)j->stage_count, sizeof *counts);
    tsr_status status = TSR_OK;
    if (how->stage_layers != NULL)
        for (int s = 0; s < j->stage_count; s++)
            counts[s] = how->stage_layers[s];
    else
        status = tsr_pipeline_divide(tsr_pipeline_divide_params(.blocks = m->config->layers,
                                                                .stages = j->stage_count,
                                                                .rates = how->stage_rates,
                                                                .last_cost = head_cost(m->config)),
                                     counts);
    *first = 0;
    for (int s = 0; s < j->stage; s++)
        *first += counts[s];
    *count = counts[j->stage];
    free(counts);
    return status;
}

static tsr_status open_layers(training_model *m, const tsr_model_file *weights)
{
    const training_options *o = &training_chosen;
    tsr_model_params how = TSR_INIT(tsr_model_params);
    training_chosen.stages.experts.unmixed = true;
    cli_stages_divide(&training_chosen.stages, m->job->replica, &how);
    TRY(divide_layers(m, &how, &m->first_layer, &m->layer_count));
    m->features = o->dtype != 0 ? o->dtype : TSR_F32;
    TRY(tsr_stack_create(
        tsr_stack_params(.config = m->config, .group = m->job->tensor_group,
                         .first_layer = m->first_layer, .layers = m->layer_count,
                         .partition = how.partition, .dtype = m->features, .seed = o->seed,
                         .recompute = o->recompute, .experts_over_data = o->experts_over_data,
                         .context_group = m->job->context_group, .trained = o->layers),
        &m->own));
    m->stack = m->own;
    TRY(shard(m, m->job->joined));
    return m->job->joined || weights == NULL ? TSR_OK : tsr_stack_load(m->own, weights);
}

/* An adapter of a frozen base ------------------------------------------------------------------ */

/* Returns whether the base is divided over data-parallel ranks while it is opened; passes gather it
 * layer by layer. The first magnitudes of DoRA are norms of weights, which must be in memory. */
static bool shards_early(void)
{
    return training_chosen.fsdp && !training_chosen.dora;
}

static tsr_status open_base(training_model *m, const tsr_model_file *file)
{
    const training_options *o = &training_chosen;
    tsr_model_params params = {.struct_size = sizeof params,
                               .group = m->job->tensor_group,
                               .stages = m->job->stages,
                               .dtype = o->dtype,
                               .recompute = o->recompute,
                               .context_group = m->job->context_group,
                               .sharded_over = shards_early() ? m->job->data_group : NULL};
    training_chosen.stages.experts.unmixed = true;
    cli_stages_divide(&training_chosen.stages, m->job->replica, &params);
    TRY(tsr_model_open(file, &params, &m->base));
    m->stack = tsr_model_stack(m->base);
    m->features = TSR_F32;
    return TSR_OK;
}

static tsr_status attach(training_model *m, const char *adapter)
{
    const training_options *o = &training_chosen;
    const tsr_lora_params *params =
        tsr_lora_params(.stack = m->stack, .targets = o->targets, .rank = (int)o->rank,
                        .alpha = o->alpha, .rank_stabilised = o->rank_stabilised, .dora = o->dora,
                        .layers = o->layers, .passes = (uint64_t)o->passes, .dropout = o->dropout,
                        .seed = o->seed, .trainable = true);
    TRY(adapter != NULL ? tsr_lora_load(adapter, params, &m->lora)
                        : tsr_lora_create(params, &m->lora));
    if (o->fsdp && !shards_early())
        TRY(tsr_stack_shard(m->stack, tsr_fsdp_params(.group = m->job->data_group)));
    return shard(m, m->job->joined);
}

/* The optimizer -------------------------------------------------------------------------------- */

static tsr_status create_optimizer(training_model *m)
{
    const training_options *o = &training_chosen;
    TRY(tsr_optimizer_create(
        tsr_optimizer_params(.stream = m->job->stream, .decay_matrices = true,
                             .adamw = tsr_adamw_params(.beta1 = number(o->beta1),
                                                       .beta2 = number(o->beta2),
                                                       .epsilon = number(o->epsilon),
                                                       .weight_decay = number(o->weight_decay))),
        &m->optimizer));
    return m->own != NULL ? tsr_stack_add_to(m->own, m->optimizer)
                          : tsr_lora_add_to(m->lora, m->optimizer);
}

/* The model ------------------------------------------------------------------------------------ */

tsr_status training_model_init(training_model *m, const tsr_model_file *file,
                               const tsr_model_file *weights, const char *adapter,
                               training_job *job)
{
    const int64_t one = 1;
    *m = (training_model){.job = job, .config = tsr_model_file_config(file)};
    m->first = job->stage == 0;
    m->last = job->stage == job->stage_count - 1;
    TRY(tsr_pipeline_create(tsr_pipeline_params(.comm = job->stages, .stream = job->stream),
                            &m->pipeline));
    if (training_chosen.full) {
        TRY(open_layers(m, weights));
    } else {
        TRY(open_base(m, file));
        TRY(attach(m, adapter));
    }
    TRY(create_optimizer(m));
    TRY(training_experts_init(m));
    return m->last ? tsr_tensor_create(job->device, TSR_F32, 1, &one, &m->loss) : TSR_OK;
}

tsr_status training_model_rebuild(training_model *m)
{
    tsr_optimizer_destroy(&m->optimizer);
    TRY(shard(m, true));
    return create_optimizer(m);
}

void training_model_finish(training_model *m)
{
    tsr_optimizer_destroy(&m->optimizer);
    tsr_tensor_destroy(&m->loss);
    training_experts_finish(m);
    tsr_lora_destroy(&m->lora);
    tsr_model_close(&m->base);
    tsr_stack_destroy(&m->own);
    tsr_pipeline_destroy(&m->pipeline);
    *m = (training_model){0};
}
