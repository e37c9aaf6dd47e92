#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "names.h"

#define DEVIATION 0.02f /* standard deviation of the initial weights, as in GPT-2 */

static bool is_llama(const gpt_model *self)
{
    return self->config.style == GPT_STYLE_LLAMA;
}

/* Stages ------------------------------------------------------------------------------------- */

/* Returns how many blocks need as much work as the head: the ratio of their numbers of weights,
 * because both mostly multiply by their weights. */
static double head_cost(const gpt_config *config)
{
    double block = 0;
    for (int i = 0; i < names_count(config); i++) {
        gpt_parameter parameter;
        names_at(config, i, &parameter);
        if (names_block(&parameter) == 0)
            block += (double)parameter.rows * (double)parameter.columns;
    }
    return (double)config->vocabulary * (double)config->width / block;
}

/* Computes the speed of each stage. All ranks of a row share the work, so their speeds are added. A
 * stage is as fast as its slowest row. */
static void stage_rates(const example_job *job, const double *ranks, double *stages)
{
    for (int s = 0; s < job->stages; s++) {
        stages[s] = INFINITY;
        for (int d = 0; d < job->data; d++) {
            double sum = 0;
            for (int t = 0; t < job->tensor; t++)
                sum += ranks[(s * job->data + d) * job->tensor + t];
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
        .struct_size = sizeof divide, .blocks = self->config.layers, .stages = job->stages};
    if (how->kind == GPT_STAGES_GIVEN) {
        memcpy(self->stage_blocks, how->blocks, sizeof self->stage_blocks);
    } else {
        if (how->kind == GPT_STAGES_RATES) {
            TRY(measure_stages(job, rates));
            divide.rates = rates;
            divide.last_cost = head_cost(&self->config);
        }
        TRY(tsr_pipeline_divide(&divide, self->stage_blocks));
    }
    self->block_count = self->stage_blocks[job->stage];
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

static tsr_partition_params partition_by(const gpt_tensor_rates *rates)
{
    if (rates->count == 0)
        return (tsr_partition_params){.struct_size = sizeof(tsr_partition_params),
                                      .kind = TSR_PARTITION_UNEVEN};
    return (tsr_partition_params){.struct_size = sizeof(tsr_partition_params),
                                  .kind = TSR_PARTITION_WEIGHTED,
                                  .rates = rates->values};
}

static tsr_status create_blocks(gpt_model *self, const gpt_model_params *params, uint64_t seed)
{
    const gpt_config *c = &self->config;
    bool llama = is_llama(self);
    const tsr_init_params init = {
        .struct_size = sizeof init, .kind = TSR_INIT_NORMAL, .seed = seed, .deviation = DEVIATION};
    /* Each block adds two outputs to its input. The deviation is divided by the square root of the
     * number of these outputs in all blocks, as in GPT-2. */
    const tsr_init_params output = {.struct_size = sizeof output,
                                    .kind = TSR_INIT_NORMAL,
                                    .seed = seed,
                                    .deviation = DEVIATION / sqrtf(2.0f * (float)c->layers)};
    tsr_rope_params rope = c->rope;
    rope.struct_size = sizeof rope;
    rope.rotary_dim = gpt_config_head_dim(c);
    self->blocks = calloc((size_t)self->block_count, sizeof *self->blocks);
    if (!self->blocks)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < self->block_count; i++) {
        char name[32];
        snprintf(name, sizeof name, llama ? "layers.%d" : "h.%d", first_block(self) + i);
        TRY(tsr_block_create(
            tsr_block_params(.group = params->job->tensor_group, .name = name, .size = c->width,
                             .norm = {.kind = llama ? TSR_NORM_RMS : TSR_NORM_LAYER,
                                      .no_bias = !c->norm_bias,
                                      .epsilon = (float)c->norm_eps},
                             .attention = {.heads = c->heads,
                                           .kv_heads = c->kv_heads,
                                           .head_dim = c->head_dim,
                                           .no_bias = !c->qkv_bias,
                                           .no_output_bias = !c->output_bias,
                                           .rope = llama ? &rope : NULL,
                                           .qk_norm = c->qk_norm,
                                           .norm_epsilon = (float)c->norm_eps,
                                           .window = c->window,
                                           .partition = self->partition,
                                           .init = init,
                                           .output_init = output},
                             .mlp = {.hidden_size = c->inner,
                                     .no_bias = !c->mlp_bias,
                                     .gated = llama,
                                     .activation = c->activation,
                                     .partition = self->partition,
                                     .init = init,
                                     .output_init = output},
                             .recompute = params->recompute, .dtype = params->dtype,
                             .deferred = true),
            &self->blocks[i]));
    }
    return TSR_OK;
}

static tsr_status create_layers(gpt_model *self, const gpt_model_params *params)
{
    int64_t seed;
    const gpt_config *c = &self->config;
    const tsr_seed_point point = {.base = params->training->seed, .kind = TSR_SEED_OP, .op = 0};
    TRY(tsr_seed_hashed(&point, &seed));
    const tsr_init_params init = {
        .struct_size = sizeof init, TSR_INIT_NORMAL, (uint64_t)seed, DEVIATION};
    tsr_group *group = params->job->tensor_group;
    if (self->is_first || (self->is_last && c->tied))
        TRY(tsr_embedding_create(
            tsr_embedding_params(.group = group, .name = is_llama(self) ? "embed_tokens" : "wte",
                                 .vocabulary_size = c->vocabulary, .width = c->width,
                                 .dtype = params->dtype, .partition = self->partition, .init = init,
                                 .deferred = true),
            &self->embedding));
    TRY(create_blocks(self, params, (uint64_t)seed));
    if (!self->is_last)
        return TSR_OK;
    TRY(tsr_norm_create(tsr_norm_params(.group = group, .name = is_llama(self) ? "norm" : "ln_f",
                                        .size = c->width, .no_bias = !c->norm_bias,
                                        .kind = is_llama(self) ? TSR_NORM_RMS : TSR_NORM_LAYER,
                                        .epsilon = (float)c->norm_eps, .dtype = params->dtype,
                                        .deferred = true),
                        &self->norm));
    return tsr_column_linear_create(
        tsr_linear_params(.group = group, .name = "lm_head", .input_size = c->width,
                          .output_size = c->vocabulary, .no_bias = true, .dtype = params->dtype,
                          .partition = self->partition, .init = init, .deferred = true),
        &self->head);
}

/* Units -------------------------------------------------------------------------------------- */

/* Creates the embedding that is also the head, for a unit without a layer. */
static tsr_status draw_tokens(const gpt_model *self, tsr_parameter *out)
{
    tsr_tensor *flat = NULL;
    int64_t shape[2], count;
    *out = *tsr_layer_parameter(self->embedding, 0);
    shape[0] = out->length;
    shape[1] = out->global_shape[1];
    count = shape[0] * shape[1];
    out->tensor = NULL;
    if (self->rebuilds)
        return TSR_OK;
    TRY(tsr_tensor_create(self->job->device, out->dtype, 2, shape, &out->tensor));
    TRY(tsr_tensor_reshape(out->tensor, 1, &count, &flat));
    tsr_status status = tsr_layer_initial(self->embedding, 0, self->job->stream, 0, flat);
    tsr_tensor_destroy(&flat);
    return status;
}

/* Creates the learned positions, which every rank of a row has. */
static tsr_status draw_positions(const gpt_model *self, tsr_parameter *out)
{
    int64_t seed, shape[2] = {gpt_config_positions(&self->config), self->config.width};
    const tsr_seed_point point = {.base = self->training.seed, .kind = TSR_SEED_OP, .op = 1};
    TRY(tsr_seed_hashed(&point, &seed));
    *out = (tsr_parameter){.name = "wpe.weight",
                           .dtype = self->dtype,
                           .ndim = 2,
                           .global_shape = {shape[0], shape[1]},
                           .shard_dim = -1,
                           .length = shape[0]};
    TRY(tsr_tensor_create(self->job->device, self->dtype, 2, shape, &out->tensor));
    return tsr_random_normal(self->job->stream, out->tensor, 0, DEVIATION,
                             tsr_random_params(.seed = (uint64_t)seed));
}

/* Divides these units among data-parallel ranks as --strategy says. */
static tsr_status create_sharded(gpt_model *self, const char *strategy_name, int count,
                                 const tsr_fsdp_unit *units, tsr_fsdp **out)
{
    static const char *const everything[] = {"*", NULL};
    bool shared = strcmp(strategy_name, "none") != 0;
    tsr_shard_kind kind = TSR_SHARD_FULL;
    tsr_shard_strategy *strategy = NULL;
    if (shared)
        TRY(tsr_shard_kind_parse(strategy_name, &kind));
    TRY(tsr_shard_strategy_create(tsr_shard_strategy_params(.kind = kind), &strategy));
    const tsr_fsdp_params *params =
        tsr_fsdp_params(.group = self->job->data_group, .unit_count = count, .units = units,
                        .strategy = strategy, .gather = shared ? NULL : everything,
                        .reduction = TSR_OP_SUM, .replicas = self->is_elastic);
    tsr_status status =
        self->rebuilds ? tsr_fsdp_rebuild(params, out) : tsr_fsdp_create(params, out);
    tsr_shard_strategy_destroy(&strategy);
    return status;
}

/* A tied head is the embedding: two layers share one parameter, which is therefore a unit without a
 * layer. It has a sharding of its own, so that the first and the last stage have the same shards.
 */
static tsr_status shard_tied(gpt_model *self, const char *strategy)
{
    tsr_parameter tokens = {0};
    if (!self->config.tied || !self->embedding)
        return TSR_OK;
    tsr_status status = draw_tokens(self, &tokens);
    const tsr_fsdp_unit unit = {.parameter_count = 1, .parameters = &tokens};
    if (status == TSR_OK)
        status = create_sharded(self, strategy, 1, &unit, &self->tied);
    tsr_tensor_destroy(&tokens.tensor);
    self->units[self->unit_count++] = (gpt_unit){.layer = self->embedding};
    return status;
}

/* Adds a unit of `sharded`: a layer, or learned positions. Returns its number. */
static int add_unit(gpt_model *self, int *count, tsr_fsdp_unit *units, tsr_layer *layer,
                    const tsr_parameter *positions)
{
    units[*count] = layer ? (tsr_fsdp_unit){.layer = layer}
                          : (tsr_fsdp_unit){.parameter_count = 1, .parameters = positions};
    self->units[self->unit_count++] = (gpt_unit){.number = *count, .layer = layer};
    return (*count)++;
}

static tsr_status shard_rest(gpt_model *self, const char *strategy, tsr_fsdp_unit *units)
{
    const bool tied = self->config.tied;
    tsr_parameter positions = {0};
    tsr_status status = TSR_OK;
    int count = 0;
    if (self->is_first && !tied)
        self->embedding_unit = add_unit(self, &count, units, self->embedding, NULL);
    if (self->is_first && !is_llama(self)) {
        status = draw_positions(self, &positions);
        self->positions_unit = add_unit(self, &count, units, NULL, &positions);
    }
    self->block_unit = count;
    for (int i = 0; i < self->block_count; i++)
        add_unit(self, &count, units, self->blocks[i], NULL);
    if (self->is_last)
        self->norm_unit = add_unit(self, &count, units, self->norm, NULL);
    if (self->is_last && !tied)
        self->head_unit = add_unit(self, &count, units, self->head, NULL);
    if (status == TSR_OK)
        status = create_sharded(self, strategy, count, units, &self->sharded);
    tsr_tensor_destroy(&positions.tensor);
    return status;
}

static tsr_status shard(gpt_model *self, const char *strategy)
{
    const size_t most = (size_t)self->block_count + 4;
    uint64_t parameters = 0;
    tsr_fsdp_unit *units = calloc(most, sizeof *units);
    self->units = calloc(most, sizeof *self->units);
    tsr_status status = units && self->units ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = shard_tied(self, strategy);
    if (status == TSR_OK)
        status = shard_rest(self, strategy, units);
    free(units);
    TRY(status);
    for (int u = 0; u < self->unit_count; u++) {
        gpt_unit *unit = &self->units[u];
        if (u == 0 && self->tied) {
            unit->sharded = self->tied;
            continue;
        }
        unit->sharded = self->sharded;
        unit->first = parameters;
        parameters += (uint64_t)tsr_fsdp_parameter_count(self->sharded, unit->number);
    }
    return TSR_OK;
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
                             .adamw = {.beta1 = number(t->beta1),
                                       .beta2 = number(t->beta2),
                                       .epsilon = number(t->eps),
                                       .weight_decay = (float)t->weight_decay}),
        &self->optimizer));
    if (self->tied)
        TRY(tsr_optimizer_add_fsdp(self->optimizer, self->tied));
    return tsr_optimizer_add_fsdp(self->optimizer, self->sharded);
}

static tsr_status create_losses(gpt_model *self)
{
    tsr_device *device = self->job->device;
    int64_t rows = (int64_t)job_rows(self->job) * self->config.block, one = 1;
    if (!self->is_last)
        return TSR_OK;
    TRY(tsr_tensor_create(device, TSR_F32, 1, &rows, &self->losses));
    TRY(tsr_tensor_create(device, TSR_F32, 1, &one, &self->loss_sum));
    if (self->job->ranks == 1 && !self->is_elastic)
        TRY(tsr_tensor_create_host(device, TSR_F32, 1, &one, &self->loss_seen));
    return tsr_tensor_create(device, self->dtype, 2,
                             (int64_t[]){rows, tsr_layer_parameter(self->head, 0)->length},
                             &self->dlogits);
}

tsr_status model_init(gpt_model *self, const gpt_model_params *params)
{
    *self = (gpt_model){.job = params->job,
                        .config = *params->config,
                        .training = *params->training,
                        .dtype = params->dtype,
                        .partition = partition_by(params->tensor_rates),
                        .is_elastic = params->elastic,
                        .rebuilds = params->job->joined};
    TRY(divide_blocks(self, params->stages));
    TRY(create_layers(self, params));
    TRY(shard(self, params->strategy));
    TRY(create_optimizer(self));
    return create_losses(self);
}

/* Destroys the objects that depend on the present ranks. The parameters remain. */
static void forget_ranks(gpt_model *self)
{
    tsr_optimizer_destroy(&self->optimizer);
    free(self->units);
    self->units = NULL;
    self->unit_count = 0;
    tsr_tensor_destroy(&self->losses);
    tsr_tensor_destroy(&self->loss_sum);
    tsr_tensor_destroy(&self->loss_seen);
    tsr_tensor_destroy(&self->dlogits);
}

tsr_status model_rebuild(gpt_model *self, const char *strategy)
{
    forget_ranks(self);
    self->rebuilds = true;
    TRY(shard(self, strategy));
    TRY(create_optimizer(self));
    return create_losses(self);
}

void model_finish(gpt_model *self)
{
    forget_ranks(self);
    tsr_fsdp_destroy(&self->tied);
    tsr_fsdp_destroy(&self->sharded);
    tsr_layer_destroy(&self->embedding);
    for (int i = 0; self->blocks && i < self->block_count; i++)
        tsr_layer_destroy(&self->blocks[i]);
    free(self->blocks);
    tsr_layer_destroy(&self->norm);
    tsr_layer_destroy(&self->head);
    tsr_pipeline_destroy(&self->pipeline);
    *self = (gpt_model){0};
}
