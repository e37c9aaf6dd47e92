#include "experts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stages ------------------------------------------------------------------------------------- */

/* Returns how many blocks need as much work as the head: the ratio of their numbers of weights,
 * because both mostly multiply by their weights. */
static double head_cost(const tsr_model_config *config)
{
    return (double)config->vocabulary * (double)config->width /
           (double)tsr_model_config_parameters(config, 0);
}

/* Computes the speed of each stage. All ranks of a row share the work, so their speeds are added. A
 * stage is as fast as its slowest row. Context ranks count as rows. */
static void stage_rates(const example_job *job, const double *ranks, double *stages)
{
    const int rows = job->data * job->context;
    for (int s = 0; s < job->stages; s++) {
        stages[s] = INFINITY;
        for (int d = 0; d < rows; d++) {
            double sum = 0;
            for (int t = 0; t < job->tensor; t++)
                sum += ranks[(s * rows + d) * job->tensor + t];
            stages[s] = fmin(stages[s], sum);
        }
    }
}

static tsr_status measure_stages(const example_job *job, double *stages)
{
    tsr_group *all = NULL;
    double *ranks = calloc((size_t)job->ranks, sizeof *ranks);
    tsr_status status = ranks ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr_group_create(job->world, job->stream, NULL, &all);
    if (status == TSR_OK)
        status = tsr_calibrate(all, NULL, ranks);
    if (status == TSR_OK)
        stage_rates(job, ranks, stages);
    tsr_group_destroy(&all);
    free(ranks);
    return status;
}

static tsr_status divide_blocks(gpt_model *self, const gpt_stages *how)
{
    const example_job *job = self->job;
    double rates[GPT_MAX_STAGES];
    tsr_pipeline_divide_params divide = {
        .struct_size = sizeof divide, .blocks = self->config->model.layers, .stages = job->stages};
    if (how->kind == GPT_STAGES_GIVEN) {
        memcpy(self->stage_blocks, how->blocks, sizeof self->stage_blocks);
    } else {
        if (how->kind == GPT_STAGES_RATES) {
            TRY(measure_stages(job, rates));
            divide.rates = rates;
            divide.last_cost = head_cost(&self->config->model);
        }
        TRY(tsr_pipeline_divide(&divide, self->stage_blocks));
    }
    self->is_first = job->stage == 0;
    self->is_last = job->stage == job->stages - 1;
    return tsr_pipeline_create(tsr_pipeline_params(.comm = job->stage_comm, .stream = job->stream),
                               &self->pipeline);
}

/* Returns the number of this stage's first block. */
static int first_block(const gpt_model *self)
{
    int sum = 0;
    for (int s = 0; s < self->job->stage; s++)
        sum += self->stage_blocks[s];
    return sum;
}

/* Layers ------------------------------------------------------------------------------------- */

static tsr_status create_layers(gpt_model *self, const gpt_model_params *params)
{
    const gpt_rates *rates = params->tensor_rates;
    tsr_partition_params partition = TSR_INIT(tsr_partition_params);
    if (rates->count > 0)
        partition.kind = TSR_PARTITION_WEIGHTED;
    else
        partition.kind = TSR_PARTITION_UNEVEN;
    partition.rates = rates->count > 0 ? rates->values : NULL;
    self->partition = partition;
    return tsr_stack_create(
        tsr_stack_params(.config = &self->config->model, .group = params->job->tensor_group,
                         .first_layer = first_block(self),
                         .layers = self->stage_blocks[self->job->stage],
                         .partition = &self->partition, .dtype = params->dtype,
                         .seed = params->training->seed, .recompute = params->recompute,
                         .experts_over_data = params->experts_over_data,
                         .context_group = params->job->context_group),
        &self->stack);
}

/* Divides the parameters among data-parallel ranks as --strategy says. */
static tsr_status shard(gpt_model *self, const char *strategy_name, bool again)
{
    static const char *const everything[] = {"*", NULL};
    bool shared = strcmp(strategy_name, "none") != 0;
    tsr_shard_kind kind = TSR_SHARD_FULL;
    tsr_shard_strategy *strategy = NULL;
    if (shared)
        TRY(tsr_shard_kind_parse(strategy_name, &kind));
    TRY(tsr_shard_strategy_create(tsr_shard_strategy_params(.kind = kind), &strategy));
    const tsr_fsdp_params *params =
        tsr_fsdp_params(.group = self->job->data_group, .strategy = strategy,
                        .gather = shared ? NULL : everything, .reduction = TSR_OP_SUM,
                        .replicas = self->is_elastic);
    tsr_status status =
        again ? tsr_stack_reshard(self->stack, params) : tsr_stack_shard(self->stack, params);
    tsr_shard_strategy_destroy(&strategy);
    return status;
}

/* The model ---------------------------------------------------------------------------------- */

/* Zero in the configuration is the number zero, not the library's default. */
static float number(double value)
{
    return value == 0 ? (float)TSR_ZERO : (float)value;
}

static tsr_status create_optimizer(gpt_model *self)
{
    const gpt_training *t = &self->training;
    TRY(tsr_optimizer_create(
        tsr_optimizer_params(.stream = self->job->stream, .decay_matrices = true,
                             .adamw = tsr_adamw_params(.beta1 = number(t->beta1),
                                                       .beta2 = number(t->beta2),
                                                       .epsilon = number(t->eps),
                                                       .weight_decay = (float)t->weight_decay)),
        &self->optimizer));
    return tsr_stack_add_to(self->stack, self->optimizer);
}

static tsr_status create_losses(gpt_model *self)
{
    tsr_device *device = self->job->device;
    int64_t rows = (int64_t)job_rows(self->job) * self->tokens, one = 1;
    tsr_stack_info info = TSR_INIT(tsr_stack_info);
    if (!self->is_last)
        return TSR_OK;
    TRY(tsr_tensor_create(device, TSR_F32, 1, &rows, &self->losses));
    TRY(tsr_tensor_create(device, TSR_F32, 1, &one, &self->loss_sum));
    if (self->job->ranks == 1 && !self->is_elastic && self->experts == 0)
        TRY(tsr_tensor_create_host(device, TSR_F32, 1, &one, &self->loss_seen));
    TRY(tsr_stack_get_info(self->stack, &info));
    return tsr_tensor_create(device, self->dtype, 2, (int64_t[]){rows, info.logits},
                             &self->dlogits);
}

tsr_status model_init(gpt_model *self, const gpt_model_params *params)
{
    *self = (gpt_model){.job = params->job,
                        .config = params->config,
                        .training = *params->training,
                        .tokens = params->chunks->tokens,
                        .dtype = params->dtype,
                        .is_elastic = params->elastic};
    TRY(experts_init(self));
    TRY(divide_blocks(self, params->stages));
    TRY(create_layers(self, params));
    TRY(shard(self, params->strategy, params->job->joined));
    TRY(create_optimizer(self));
    return create_losses(self);
}

/* Destroys the objects that depend on the present ranks. The parameters remain. */
static void forget_ranks(gpt_model *self)
{
    tsr_optimizer_destroy(&self->optimizer);
    tsr_tensor_destroy(&self->losses);
    tsr_tensor_destroy(&self->loss_sum);
    tsr_tensor_destroy(&self->loss_seen);
    tsr_tensor_destroy(&self->dlogits);
}

tsr_status model_rebuild(gpt_model *self, const char *strategy)
{
    forget_ranks(self);
    TRY(shard(self, strategy, true));
    TRY(create_optimizer(self));
    return create_losses(self);
}

void model_finish(gpt_model *self)
{
    forget_ranks(self);
    tsr_stack_destroy(&self->stack);
    tsr_pipeline_destroy(&self->pipeline);
    experts_finish(self);
    *self = (gpt_model){0};
}
