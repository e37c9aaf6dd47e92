#include "model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEVIATION 0.02f /* of the first weights, as in GPT-2 */
#define TOKENS 0        /* units */
#define POSITIONS 1     /* GPT-2 only */

/* Creating ---------------------------------------------------------------------------------------
 */

static bool is_llama(const gpt_model *self)
{
    return self->config.style == GPT_STYLE_LLAMA;
}

static tsr_status create_blocks(gpt_model *self, const gpt_model_params *params, uint64_t seed)
{
    const gpt_config *c = &self->config;
    bool llama = is_llama(self);
    const tsr_init_params init = {TSR_INIT_NORMAL, seed, DEVIATION};
    /* Outputs are added to the same vector twice in each block. */
    const tsr_init_params output = {TSR_INIT_NORMAL, seed,
                                    DEVIATION / sqrtf(2.0f * (float)c->layers)};
    const tsr_partition_params uneven = {.kind = TSR_PARTITION_UNEVEN};
    const tsr_rope_params rope = {.rotary_dim = c->width / c->heads, .theta = c->rope_theta};
    self->blocks = calloc((size_t)c->layers, sizeof *self->blocks);
    if (!self->blocks)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < c->layers; i++) {
        char name[32];
        snprintf(name, sizeof name, llama ? "layers.%d" : "h.%d", i);
        TRY(tsr_block_create(
            tsr_block_params(.group = params->job->tensor_group, .name = name, .size = c->width,
                             .norm = {.kind = llama ? TSR_NORM_RMS : TSR_NORM_LAYER,
                                      .no_bias = true,
                                      .epsilon = (float)c->norm_eps},
                             .attention = {.heads = c->heads,
                                           .kv_heads = c->kv_heads,
                                           .no_bias = true,
                                           .rope = llama ? &rope : NULL,
                                           .partition = uneven,
                                           .init = init,
                                           .output_init = output},
                             .mlp = {.hidden_size = c->inner,
                                     .no_bias = true,
                                     .gated = llama,
                                     .activation = llama ? TSR_ACT_SILU : TSR_ACT_GELU_ERF,
                                     .partition = uneven,
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
    const tsr_init_params init = {TSR_INIT_NORMAL, (uint64_t)seed, DEVIATION};
    const tsr_partition_params uneven = {.kind = TSR_PARTITION_UNEVEN};
    tsr_group *group = params->job->tensor_group;
    TRY(tsr_embedding_create(
        tsr_embedding_params(.group = group, .name = is_llama(self) ? "embed_tokens" : "wte",
                             .vocabulary_size = c->vocabulary, .width = c->width,
                             .dtype = params->dtype, .partition = uneven, .init = init,
                             .deferred = true),
        &self->embedding));
    TRY(create_blocks(self, params, (uint64_t)seed));
    TRY(tsr_norm_create(
        tsr_norm_params(.group = group, .name = is_llama(self) ? "norm" : "ln_f", .size = c->width,
                        .no_bias = true, .kind = is_llama(self) ? TSR_NORM_RMS : TSR_NORM_LAYER,
                        .epsilon = (float)c->norm_eps, .dtype = params->dtype, .deferred = true),
        &self->norm));
    return tsr_column_linear_create(
        tsr_linear_params(.group = group, .name = "lm_head", .input_size = c->width,
                          .output_size = c->vocabulary, .no_bias = true, .dtype = params->dtype,
                          .partition = uneven, .init = init, .deferred = true),
        &self->head);
}

/* What a layer's only parameter begins with, for a unit without a layer. */
static tsr_status draw(const gpt_model *self, const tsr_layer *layer, tsr_parameter *out)
{
    tsr_tensor *flat = NULL;
    int64_t shape[2], count;
    *out = *tsr_layer_parameter(layer, 0);
    shape[0] = out->length;
    shape[1] = out->global_shape[1];
    count = shape[0] * shape[1];
    TRY(tsr_tensor_create(self->job->device, out->dtype, 2, shape, &out->tensor));
    TRY(tsr_tensor_reshape(out->tensor, 1, &count, &flat));
    tsr_status status = tsr_layer_initial(layer, 0, self->job->stream, 0, flat);
    tsr_tensor_destroy(&flat);
    return status;
}

/* Learned positions, which every rank of a row has. */
static tsr_status draw_positions(const gpt_model *self, tsr_dtype dtype, tsr_parameter *out)
{
    int64_t seed, shape[2] = {self->config.block, self->config.width};
    const tsr_seed_point point = {.base = self->training.seed, .kind = TSR_SEED_OP, .op = 1};
    TRY(tsr_seed_hashed(&point, &seed));
    *out = (tsr_parameter){.name = "wpe.weight",
                           .dtype = dtype,
                           .ndim = 2,
                           .global_shape = {shape[0], shape[1]},
                           .shard_dim = -1,
                           .length = shape[0]};
    TRY(tsr_tensor_create(self->job->device, dtype, 2, shape, &out->tensor));
    return tsr_random_normal(self->job->stream, out->tensor, 0, DEVIATION,
                             &(tsr_random_params){.seed = (uint64_t)seed});
}

static tsr_status create_sharded(gpt_model *self, const gpt_model_params *params,
                                 const tsr_fsdp_unit *units)
{
    static const char *const everything[] = {"*", NULL};
    bool shared = strcmp(params->strategy, "none") != 0;
    tsr_shard_kind kind = TSR_SHARD_FULL;
    tsr_shard_strategy *strategy = NULL;
    if (shared)
        TRY(tsr_shard_kind_parse(params->strategy, &kind));
    TRY(tsr_shard_strategy_create(tsr_shard_strategy_params(.kind = kind), &strategy));
    tsr_status status = tsr_fsdp_create(
        tsr_fsdp_params(.group = self->job->data_group, .unit_count = self->units, .units = units,
                        .strategy = strategy, .gather = shared ? NULL : everything,
                        .reduction = TSR_OP_SUM),
        &self->sharded);
    tsr_shard_strategy_destroy(&strategy);
    return status;
}

/* GPT-2's head is its embedding: one parameter for two layers, and so a unit without a layer. */
static tsr_status shard(gpt_model *self, const gpt_model_params *params)
{
    tsr_parameter tokens = {0}, positions = {0};
    tsr_status status = TSR_OK;
    self->first_block = is_llama(self) ? 1 : 2;
    self->norm_unit = self->first_block + self->config.layers;
    self->units = self->norm_unit + (is_llama(self) ? 2 : 1);
    tsr_fsdp_unit *units = calloc((size_t)self->units, sizeof *units);
    if (!units)
        return TSR_ERR_NO_MEMORY;
    if (is_llama(self)) {
        units[TOKENS].layer = self->embedding;
        units[self->norm_unit + 1].layer = self->head;
    } else {
        status = draw(self, self->embedding, &tokens);
        if (status == TSR_OK)
            status = draw_positions(self, params->dtype, &positions);
        units[TOKENS] = (tsr_fsdp_unit){.parameter_count = 1, .parameters = &tokens};
        units[POSITIONS] = (tsr_fsdp_unit){.parameter_count = 1, .parameters = &positions};
    }
    for (int i = 0; i < self->config.layers; i++)
        units[self->first_block + i].layer = self->blocks[i];
    units[self->norm_unit].layer = self->norm;
    if (status == TSR_OK)
        status = create_sharded(self, params, units);
    tsr_tensor_destroy(&tokens.tensor);
    tsr_tensor_destroy(&positions.tensor);
    free(units);
    return status;
}

static int64_t classes_here(const gpt_model *self)
{
    return tsr_layer_parameter(self->head, 0)->length;
}

tsr_status model_init(gpt_model *self, const gpt_model_params *params)
{
    const gpt_training *t = params->training;
    *self = (gpt_model){.job = params->job, .config = *params->config, .training = *t};
    int64_t rows = (int64_t)(t->batch / params->job->data) * self->config.block, one = 1;
    TRY(create_layers(self, params));
    TRY(shard(self, params));
    TRY(tsr_optimizer_create(
        tsr_optimizer_params(.stream = self->job->stream, .decay_matrices = true,
                             .adamw = {.beta1 = (float)t->beta1,
                                       .beta2 = (float)t->beta2,
                                       .epsilon = (float)t->eps,
                                       .weight_decay = (float)t->weight_decay}),
        &self->optimizer));
    TRY(tsr_optimizer_add_fsdp(self->optimizer, self->sharded));
    TRY(tsr_tensor_create(self->job->device, TSR_F32, 1, &rows, &self->losses));
    TRY(tsr_tensor_create(self->job->device, TSR_F32, 1, &one, &self->loss_sum));
    return tsr_tensor_create(self->job->device, params->dtype, 2,
                             (int64_t[]){rows, classes_here(self)}, &self->dlogits);
}

void model_finish(gpt_model *self)
{
    tsr_optimizer_destroy(&self->optimizer);
    tsr_fsdp_destroy(&self->sharded);
    tsr_layer_destroy(&self->embedding);
    for (int i = 0; self->blocks && i < self->config.layers; i++)
        tsr_layer_destroy(&self->blocks[i]);
    free(self->blocks);
    tsr_layer_destroy(&self->norm);
    tsr_layer_destroy(&self->head);
    tsr_tensor_destroy(&self->losses);
    tsr_tensor_destroy(&self->loss_sum);
    tsr_tensor_destroy(&self->dlogits);
    *self = (gpt_model){0};
}

int64_t model_parameters(const gpt_model *self)
{
    int64_t sum = 0;
    for (int u = 0; u < self->units; u++) {
        for (int i = 0; i < tsr_fsdp_parameter_count(self->sharded, u); i++) {
            const tsr_parameter *p = tsr_fsdp_parameter(self->sharded, u, i);
            int64_t count = 1;
            for (int d = 0; d < p->ndim; d++)
                count *= p->global_shape[d];
            sum += count;
        }
    }
    return sum;
}

/* Passes ----------------------------------------------------------------------------------------
 */

/* What a forward pass leaves for the backward pass. */
typedef struct passage {
    tsr_layer_saved *embedding, **blocks, *norm, *head;
    tsr_tensor *at;     /* the features of each token after the last layer that has run */
    tsr_tensor *logits; /* [rows, tokens, classes of this rank] */
} passage;

static tsr_status passage_init(const gpt_model *self, passage *p)
{
    *p = (passage){.blocks = calloc((size_t)self->config.layers, sizeof *p->blocks)};
    return p->blocks ? TSR_OK : TSR_ERR_NO_MEMORY;
}

static void passage_finish(const gpt_model *self, passage *p)
{
    tsr_layer_saved_destroy(&p->embedding);
    for (int i = 0; p->blocks && i < self->config.layers; i++)
        tsr_layer_saved_destroy(&p->blocks[i]);
    free(p->blocks);
    tsr_layer_saved_destroy(&p->norm);
    tsr_layer_saved_destroy(&p->head);
    tsr_tensor_destroy(&p->at);
    tsr_tensor_destroy(&p->logits);
}

/* Replaces the features by a layer's output. */
static void advance(passage *p, tsr_tensor *next)
{
    tsr_tensor_destroy(&p->at);
    p->at = next;
}

/* The parameter of a unit without a layer, for the layer that uses it now. */
static tsr_status lend(gpt_model *self, int unit, tsr_layer *layer)
{
    const tsr_parameter *p = tsr_fsdp_parameter(self->sharded, unit, 0);
    return tsr_layer_set_parameter(layer, 0, p->tensor, p->grad, false);
}

/* A pass of the embedding or the head of GPT-2, from the parameter that they share. */
static tsr_status tied_forward(gpt_model *self, tsr_layer *layer, const tsr_tensor *x,
                               tsr_layer_saved **saved, tsr_tensor **y)
{
    TRY(tsr_fsdp_begin(self->sharded, TOKENS, TSR_PASS_FORWARD));
    tsr_status status = lend(self, TOKENS, layer);
    if (status == TSR_OK)
        status = tsr_layer_forward(layer, x, saved, y);
    if (status == TSR_OK)
        status = tsr_layer_set_parameter(layer, 0, NULL, NULL, false);
    if (status == TSR_OK)
        status = tsr_fsdp_end(self->sharded, TOKENS);
    return status;
}

static tsr_status tied_backward(gpt_model *self, tsr_layer *layer, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, tsr_tensor **dx)
{
    TRY(tsr_fsdp_begin(self->sharded, TOKENS, TSR_PASS_BACKWARD));
    tsr_status status = lend(self, TOKENS, layer);
    if (status == TSR_OK)
        status = tsr_layer_backward(layer, saved, dy, dx);
    if (status == TSR_OK)
        status = tsr_layer_set_parameter(layer, 0, NULL, NULL, false);
    if (status == TSR_OK)
        status = tsr_fsdp_end(self->sharded, TOKENS);
    return status;
}

static tsr_status embed(gpt_model *self, const tsr_tensor *x, tsr_layer_saved **saved,
                        tsr_tensor **y)
{
    return is_llama(self) ? tsr_fsdp_forward(self->sharded, TOKENS, x, saved, y)
                          : tied_forward(self, self->embedding, x, saved, y);
}

/* Adds the learned positions first, first + 1, … to the features of a sequence's tokens. */
static tsr_status add_positions(gpt_model *self, passage *p, int64_t first)
{
    if (is_llama(self))
        return TSR_OK;
    int64_t count = tsr_tensor_layout(p->at)->shape[1];
    tsr_tensor *rows = NULL, *sum = NULL;
    TRY(create_like(self->job->device, p->at, &sum));
    tsr_status status = tsr_fsdp_begin(self->sharded, POSITIONS, TSR_PASS_FORWARD);
    if (status == TSR_OK)
        status = tsr_tensor_slice(tsr_fsdp_parameter(self->sharded, POSITIONS, 0)->tensor, 0, first,
                                  first + count, 1, &rows);
    if (status == TSR_OK)
        status = tsr_add(self->job->stream, sum, p->at, rows);
    tsr_tensor_destroy(&rows);
    if (status == TSR_OK)
        status = tsr_fsdp_end(self->sharded, POSITIONS);
    if (status == TSR_OK)
        advance(p, sum);
    else
        tsr_tensor_destroy(&sum);
    return status;
}

static tsr_status positions_backward(gpt_model *self, const tsr_tensor *dy)
{
    if (is_llama(self))
        return TSR_OK;
    TRY(tsr_fsdp_begin(self->sharded, POSITIONS, TSR_PASS_BACKWARD));
    TRY(tsr_reduce(self->job->stream, tsr_fsdp_parameter(self->sharded, POSITIONS, 0)->grad, dy, 0,
                   TSR_REDUCE_SUM, false));
    return tsr_fsdp_end(self->sharded, POSITIONS);
}

static tsr_status project(gpt_model *self, passage *p, bool learning)
{
    tsr_layer_saved **saved = learning ? &p->head : NULL;
    return is_llama(self)
               ? tsr_fsdp_forward(self->sharded, self->norm_unit + 1, p->at, saved, &p->logits)
               : tied_forward(self, self->head, p->at, saved, &p->logits);
}

static tsr_status forward(gpt_model *self, const tsr_tensor *x, bool learning, passage *p)
{
    tsr_tensor *next = NULL;
    TRY(embed(self, x, learning ? &p->embedding : NULL, &p->at));
    TRY(add_positions(self, p, 0));
    for (int i = 0; i < self->config.layers; i++) {
        TRY(tsr_fsdp_forward(self->sharded, self->first_block + i, p->at,
                             learning ? &p->blocks[i] : NULL, &next));
        advance(p, next);
    }
    TRY(tsr_fsdp_forward(self->sharded, self->norm_unit, p->at, learning ? &p->norm : NULL, &next));
    advance(p, next);
    return project(self, p, learning);
}

/* Replaces *d by the gradient before a unit. */
static tsr_status back(gpt_model *self, int unit, const tsr_layer_saved *saved, tsr_tensor **d)
{
    tsr_tensor *before = NULL;
    TRY(tsr_fsdp_backward(self->sharded, unit, saved, *d, &before));
    tsr_tensor_destroy(d);
    *d = before;
    return TSR_OK;
}

static tsr_status backward_from(gpt_model *self, const passage *p, tsr_tensor **d)
{
    TRY(back(self, self->norm_unit, p->norm, d));
    for (int i = self->config.layers - 1; i >= 0; i--)
        TRY(back(self, self->first_block + i, p->blocks[i], d));
    TRY(positions_backward(self, *d));
    return is_llama(self) ? tsr_fsdp_backward(self->sharded, TOKENS, p->embedding, *d, NULL)
                          : tied_backward(self, self->embedding, p->embedding, *d, NULL);
}

static tsr_status backward(gpt_model *self, const passage *p, const tsr_tensor *dlogits)
{
    tsr_tensor *d = NULL;
    if (is_llama(self))
        TRY(tsr_fsdp_backward(self->sharded, self->norm_unit + 1, p->head, dlogits, &d));
    else
        TRY(tied_backward(self, self->head, p->head, dlogits, &d));
    tsr_status status = backward_from(self, p, &d);
    tsr_tensor_destroy(&d);
    return status;
}

/* Losses ----------------------------------------------------------------------------------------
 */

static double tokens_of_batch(const gpt_model *self)
{
    return (double)self->training.batch * self->config.block;
}

/* The sum of the windows' losses into `loss_sum`, or with `accumulate` added to it. With `dlogits`
 * also the gradient of the mean over the tokens of all ranks and micro-batches. */
static tsr_status sum_losses(gpt_model *self, const passage *p, const tsr_tensor *y,
                             bool accumulate, tsr_tensor *dlogits)
{
    const tsr_layout *layout = tsr_tensor_layout(p->logits);
    int64_t rows = layout->shape[0] * layout->shape[1];
    double all = tokens_of_batch(self) * self->training.accumulate;
    tsr_tensor *logits = NULL, *labels = NULL;
    const tsr_partition_params uneven = {.kind = TSR_PARTITION_UNEVEN};
    TRY(tsr_tensor_reshape(p->logits, 2, (int64_t[]){rows, layout->shape[2]}, &logits));
    tsr_status status = tsr_tensor_reshape(y, 1, &rows, &labels);
    if (status == TSR_OK)
        status = tsr_vocabulary_cross_entropy(self->job->tensor_group, self->losses, dlogits,
                                              logits, labels, self->config.vocabulary, &uneven,
                                              (float)(1 / all));
    if (status == TSR_OK)
        status = tsr_reduce(self->job->stream, self->loss_sum, self->losses, 0, TSR_REDUCE_SUM,
                            accumulate);
    tsr_tensor_destroy(&logits);
    tsr_tensor_destroy(&labels);
    return status;
}

static tsr_status learn(gpt_model *self, const tsr_tensor *x, const tsr_tensor *y, bool accumulate,
                        passage *p)
{
    TRY(forward(self, x, true, p));
    TRY(sum_losses(self, p, y, accumulate, self->dlogits));
    tsr_tensor *dlogits = NULL;
    const tsr_layout *layout = tsr_tensor_layout(p->logits);
    TRY(tsr_tensor_reshape(self->dlogits, 3, layout->shape, &dlogits));
    tsr_status status = backward(self, p, dlogits);
    tsr_tensor_destroy(&dlogits);
    return status;
}

/* The mean loss: `loss_sum` of the data-parallel ranks, which have other windows, over `tokens`. */
static tsr_status take_loss(gpt_model *self, double tokens, double *out)
{
    float sum;
    double all;
    TRY(tsr_tensor_download(self->job->stream, self->loss_sum, &sum, sizeof sum));
    all = (double)sum;
    TRY(tsr_comm_all_reduce(self->job->data_comm, &all, &all, 1, TSR_F64, TSR_OP_SUM));
    *out = all / tokens;
    return TSR_OK;
}

tsr_status model_update(gpt_model *self, double *loss, double *grad_norm)
{
    const gpt_training *t = &self->training;
    const tsr_schedule schedule = {.kind = TSR_SCHEDULE_COSINE,
                                   .learning_rate = t->learning_rate,
                                   .final_rate = t->min_learning_rate,
                                   .warmup_steps = t->warmup_steps,
                                   .steps = t->decay_steps};
    TRY(tsr_schedule_check(&schedule));
    /* The ranks of a row share the embedding that is also the head. */
    TRY(tsr_optimizer_clip(self->optimizer, t->clip > 0 ? (float)t->clip : INFINITY,
                           tsr_optimizer_clip_params(.group = self->job->tensor_group), grad_norm));
    double rate = tsr_schedule_rate(&schedule, tsr_optimizer_steps(self->optimizer));
    TRY(tsr_optimizer_step(self->optimizer, (float)rate));
    TRY(tsr_optimizer_zero_grad(self->optimizer));
    return take_loss(self, tokens_of_batch(self) * t->accumulate, loss);
}

/* Another mask in every step, and for every window of a step. `number` is that of the micro-batch.
 */
static tsr_status set_dropout(gpt_model *self, int number, bool learning)
{
    const gpt_training *t = &self->training;
    int64_t rows = t->batch / self->job->data;
    int64_t row = (int64_t)number * t->batch + self->job->data_rank * rows;
    tsr_random_params random = {.seed = (uint64_t)t->seed,
                                .subsequence = (uint64_t)tsr_optimizer_steps(self->optimizer),
                                .offset = (uint64_t)(row * self->config.block) *
                                          (uint64_t)self->config.width};
    float p = learning ? (float)t->dropout : 0;
    for (int i = 0; t->dropout > 0 && i < self->config.layers; i++)
        TRY(tsr_block_set_dropout(self->blocks[i], p, &random));
    return TSR_OK;
}

tsr_status model_learn(gpt_model *self, int number, const tsr_tensor *x, const tsr_tensor *y)
{
    passage p;
    TRY(set_dropout(self, number, true));
    TRY(passage_init(self, &p));
    tsr_status status = learn(self, x, y, number > 0, &p);
    passage_finish(self, &p);
    return status;
}

tsr_status model_evaluate(gpt_model *self, const tsr_tensor *x, const tsr_tensor *y, double *loss)
{
    passage p;
    TRY(set_dropout(self, 0, false));
    TRY(passage_init(self, &p));
    tsr_status status = forward(self, x, false, &p);
    if (status == TSR_OK)
        status = sum_losses(self, &p, y, false, NULL);
    passage_finish(self, &p);
    TRY(status);
    return take_loss(self, tokens_of_batch(self), loss);
}

/* Generation ------------------------------------------------------------------------------------
 */

/* A block's pass with the cache, from parameters that are gathered for it. */
static tsr_status forward_cached(gpt_model *self, int block, tsr_kv_cache *cache, passage *p)
{
    int unit = self->first_block + block;
    tsr_tensor *next = NULL;
    TRY(tsr_fsdp_begin(self->sharded, unit, TSR_PASS_FORWARD));
    TRY(tsr_layer_forward_cached(self->blocks[block], p->at, cache, block, &next));
    advance(p, next);
    return tsr_fsdp_end(self->sharded, unit);
}

static tsr_status next_logits(gpt_model *self, const tsr_tensor *x, tsr_kv_cache *cache,
                              int64_t first, passage *p)
{
    int64_t count = tsr_tensor_layout(x)->shape[1];
    tsr_tensor *last = NULL, *normed = NULL;
    TRY(embed(self, x, NULL, &p->at));
    TRY(add_positions(self, p, first));
    for (int i = 0; i < self->config.layers; i++)
        TRY(forward_cached(self, i, cache, p));
    TRY(tsr_tensor_slice(p->at, 1, count - 1, count, 1, &last));
    tsr_status status = tsr_fsdp_forward(self->sharded, self->norm_unit, last, NULL, &normed);
    tsr_tensor_destroy(&last);
    TRY(status);
    advance(p, normed);
    return project(self, p, false);
}

/* The logits of all ranks of a row, in the order of the classes. */
static tsr_status gather_logits(gpt_model *self, const passage *p, float *out)
{
    int64_t classes = self->config.vocabulary, here = classes_here(self);
    tsr_tensor *own = NULL, *part = NULL, *all = NULL;
    tsr_stream *stream = self->job->stream;
    TRY(tsr_tensor_create(self->job->device, TSR_F32, 1, &classes, &all));
    tsr_status status = tsr_fill(stream, all, 0);
    if (status == TSR_OK)
        status = tsr_tensor_reshape(p->logits, 1, &here, &own);
    int64_t offset = tsr_layer_parameter(self->head, 0)->offset;
    if (status == TSR_OK)
        status = tsr_tensor_slice(all, 0, offset, offset + here, 1, &part);
    if (status == TSR_OK)
        status = tsr_copy(stream, part, own);
    /* Each class has one rank; the others add 0. */
    if (status == TSR_OK)
        status = tsr_group_all_reduce(self->job->tensor_group, all, TSR_OP_SUM);
    if (status == TSR_OK)
        status = tsr_tensor_download(stream, all, out, (uint64_t)classes * sizeof *out);
    tsr_tensor_destroy(&own);
    tsr_tensor_destroy(&part);
    tsr_tensor_destroy(&all);
    return status;
}

tsr_status model_next(gpt_model *self, const tsr_tensor *x, tsr_kv_cache *cache, int64_t first,
                      float *logits)
{
    passage p;
    TRY(passage_init(self, &p));
    tsr_status status = next_logits(self, x, cache, first, &p);
    if (status == TSR_OK)
        status = gather_logits(self, &p, logits);
    passage_finish(self, &p);
    return status;
}
