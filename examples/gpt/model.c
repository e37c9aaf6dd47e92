#include "model.h"

#include <stdlib.h>
#include <string.h>

/* The description ------------------------------------------------------------------------------ */

static void describe(gpt_model *self, int64_t vocabulary)
{
    const gpt_options *o = self->options;
    const int64_t head = o->head_dim ? o->head_dim : o->width / o->heads;
    self->rope =
        (tsr_rope_params){.struct_size = sizeof self->rope, .theta = o->theta, .rotary_dim = head};
    self->experts = (tsr_model_experts){
        .struct_size = sizeof self->experts,
        .count = o->experts,
        .used = o->experts_used,
        .hidden = o->inner,
        .gating = o->sigmoid ? TSR_GATING_SIGMOID : TSR_GATING_SOFTMAX,
        .normalise = true,
        .choice_bias = o->sigmoid,
        .scale = o->route_scale,
        .activation = TSR_EXPERT_SWIGLU,
    };
    self->layer = (tsr_model_layer){
        .struct_size = sizeof self->layer,
        .heads = o->heads,
        .kv_heads = o->kv_heads,
        .head_dim = head,
        .hidden = o->inner,
        .rope = o->is_llama ? &self->rope : NULL,
        .gated = o->is_llama,
        .activation = o->is_llama ? TSR_ACT_SILU : TSR_ACT_GELU_ERF,
        .experts = o->experts > 0 ? &self->experts : NULL,
        .qk_norm = o->experts > 0 ? TSR_QK_NORM_HEADS : 0,
    };
    self->kinds[0] = &self->layer;
    self->config = (tsr_model_config){
        .struct_size = sizeof self->config,
        .architecture = o->experts == 0 ? (o->is_llama ? "llama" : "gpt2")
                        : o->sigmoid    ? "glm4_moe"
                                        : "qwen3_moe",
        .layers = o->layers,
        .width = o->width,
        .vocabulary = vocabulary,
        .context = o->block,
        .norm_epsilon = o->epsilon,
        .norm = o->is_llama ? TSR_NORM_RMS : TSR_NORM_LAYER,
        .learned_positions = !o->is_llama,
        .tied = !o->is_llama,
        .bos = -1,
        .kind_count = 1,
        .kinds = self->kinds,
    };
}

/* Creating ------------------------------------------------------------------------------------- */

static tsr_status divide_layers(gpt_model *self)
{
    const example_job *job = self->job;
    int *counts = calloc((size_t)job->stages, sizeof *counts);
    if (!counts)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = tsr_pipeline_divide(
        tsr_pipeline_divide_params(.blocks = self->config.layers, .stages = job->stages), counts);
    for (int s = 0; s < job->stage; s++)
        self->first_layer += counts[s];
    self->layers = counts[job->stage];
    self->is_first = job->stage == 0;
    self->is_last = job->stage == job->stages - 1;
    free(counts);
    return status;
}

/* Finds out which tokens of each window this rank has: a chunk from the front and one from the
 * back, if context ranks divide them. */
static tsr_status divide_tokens(gpt_model *self)
{
    const gpt_options *o = self->options;
    const tsr_partition_params *partition =
        tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = o->context_rates.values);
    TRY(tsr_context_divide(o->block, self->job->context,
                           o->context_rates.count > 0 ? partition : NULL, self->job->context_rank,
                           self->chunks));
    self->tokens = (int64_t)(self->chunks[0].count + self->chunks[1].count);
    return TSR_OK;
}

/* Divides the parameters among data-parallel ranks as --strategy says. */
static tsr_status shard(gpt_model *self)
{
    static const char *const everything[] = {"*", NULL};
    const bool is_shared = strcmp(self->options->strategy, "none") != 0;
    tsr_shard_kind kind = TSR_SHARD_FULL;
    tsr_shard_strategy *strategy = NULL;
    if (is_shared)
        TRY(tsr_shard_kind_parse(self->options->strategy, &kind));
    TRY(tsr_shard_strategy_create(tsr_shard_strategy_params(.kind = kind), &strategy));
    const tsr_status status = tsr_stack_shard(
        self->stack,
        tsr_fsdp_params(.group = self->job->data_group, .strategy = strategy,
                        .gather = is_shared ? NULL : everything, .reduction = TSR_OP_SUM));
    tsr_shard_strategy_destroy(&strategy);
    return status;
}

/* Zero among the options is the number zero, not the library's default. */
static float number(double value)
{
    return value == 0 ? (float)TSR_ZERO : (float)value;
}

static tsr_status create_optimizer(gpt_model *self)
{
    const gpt_options *o = self->options;
    TRY(tsr_optimizer_create(
        tsr_optimizer_params(.stream = self->job->stream, .decay_matrices = true,
                             .adamw = tsr_adamw_params(.beta1 = number(o->beta1),
                                                       .beta2 = number(o->beta2),
                                                       .epsilon = number(o->adam_epsilon),
                                                       .weight_decay = number(o->weight_decay))),
        &self->optimizer));
    return tsr_stack_add_to(self->stack, self->optimizer);
}

static tsr_status load_first_weights(gpt_model *self)
{
    tsr_model_file *file = NULL;
    if (!self->options->init)
        return TSR_OK;
    TRY(tsr_model_file_open_weights(self->options->init, &self->config, &file));
    const tsr_status status = tsr_stack_load(self->stack, file);
    tsr_model_file_close(&file);
    return status;
}

tsr_status model_init(gpt_model *self, const example_job *job, const gpt_options *o,
                      int64_t vocabulary)
{
    const int64_t one = 1;
    *self = (gpt_model){.job = job, .options = o};
    describe(self, vocabulary);
    self->partition =
        *tsr_partition_params(.kind = o->tensor_rates.count > 0 ? TSR_PARTITION_WEIGHTED
                                                                : TSR_PARTITION_UNEVEN,
                              .rates = o->tensor_rates.count > 0 ? o->tensor_rates.values : NULL);
    TRY(divide_layers(self));
    TRY(divide_tokens(self));
    TRY(tsr_pipeline_create(tsr_pipeline_params(.comm = job->stage_comm, .stream = job->stream),
                            &self->pipeline));
    TRY(tsr_stack_create(tsr_stack_params(.config = &self->config, .group = job->tensor_group,
                                          .first_layer = self->first_layer, .layers = self->layers,
                                          .partition = &self->partition, .dtype = o->dtype,
                                          .seed = o->seed, .recompute = o->recompute,
                                          .experts_over_data = o->experts_over_data,
                                          .context_group = job->context_group),
                         &self->stack));
    TRY(shard(self));
    TRY(create_optimizer(self));
    TRY(experts_init(self));
    TRY(tsr_tensor_create(job->device, TSR_F32, 1, &one, &self->loss));
    return load_first_weights(self);
}

void model_finish(gpt_model *self)
{
    experts_finish(self);
    tsr_optimizer_destroy(&self->optimizer);
    tsr_tensor_destroy(&self->loss);
    tsr_stack_destroy(&self->stack);
    tsr_pipeline_destroy(&self->pipeline);
}

/* Passes --------------------------------------------------------------------------------------- */

typedef struct passes {
    gpt_model *model;
    const int32_t *const *windows;
    double scale;            /* 1 / number of tokens */
    tsr_stack_saved **saved; /* [micro-batches]; NULL: no backward passes */
    gpt_choices *choices;    /* [micro-batches] */
    tsr_tensor *dhidden;     /* of the last stage's present micro-batch */
} passes;

/* Uploads this rank's tokens of a micro-batch, or with `shift` 1 the token that follows each. */
static tsr_status upload(const passes *p, int number, int shift, tsr_tensor **out)
{
    const gpt_model *m = p->model;
    const int64_t shape[2] = {job_rows(m->job), m->tokens};
    const size_t count = (size_t)(shape[0] * shape[1]);
    int32_t *host = malloc(count * sizeof *host), *at = host;
    if (!host)
        return TSR_ERR_NO_MEMORY;
    for (int64_t row = 0; row < shape[0]; row++)
        for (int c = 0; c < 2; c++) {
            const int32_t *window = p->windows[number * shape[0] + row];
            memcpy(at, window + m->chunks[c].start + shift, m->chunks[c].count * sizeof *at);
            at += m->chunks[c].count;
        }
    tsr_status status = tsr_tensor_create(m->job->device, TSR_I32, 2, shape, out);
    if (status == TSR_OK)
        status = tsr_tensor_upload(m->job->stream, *out, host, count * sizeof *host);
    free(host);
    return status;
}

/* Adds the losses of hidden states, and computes their gradient if there will be a backward pass.
 */
static tsr_status add_losses(passes *p, int number, const tsr_tensor *hidden)
{
    gpt_model *m = p->model;
    tsr_tensor *labels = NULL;
    tsr_status status = upload(p, number, 1, &labels);
    if (status == TSR_OK)
        status = tsr_stack_head_loss(
            m->stack, hidden,
            tsr_head_loss_params(.labels = labels, .loss = m->loss, .scale = (float)p->scale),
            p->saved ? &p->dhidden : NULL);
    tsr_tensor_destroy(&labels);
    return status;
}

/* The forward pass of this stage: from tokens, or from the features of the stage before, to
 * features, or in the last stage to losses. */
static tsr_status forward(void *user, int number, const tsr_tensor *x, tsr_tensor **y)
{
    passes *p = user;
    gpt_model *m = p->model;
    tsr_tensor *tokens = NULL, *features = NULL;
    tsr_status status = m->is_first ? upload(p, number, 0, &tokens) : TSR_OK;
    if (status == TSR_OK)
        status = tsr_stack_forward(m->stack, m->is_first ? tokens : x, NULL,
                                   p->saved ? &p->saved[number] : NULL, &features);
    tsr_tensor_destroy(&tokens);
    if (status == TSR_OK && p->saved)
        status = experts_count(m, p->saved[number], &p->choices[number]);
    if (status == TSR_OK && m->is_last)
        status = add_losses(p, number, features);
    if (status == TSR_OK && !m->is_last)
        *y = features;
    else
        tsr_tensor_destroy(&features);
    return status;
}

static tsr_status backward(void *user, int number, const tsr_tensor *dy, tsr_tensor **dx)
{
    passes *p = user;
    gpt_model *m = p->model;
    tsr_status status = experts_balance(m, &p->choices[number], number == 0);
    if (status == TSR_OK)
        status = tsr_stack_backward(m->stack, p->saved[number], m->is_last ? p->dhidden : dy, dx);
    tsr_tensor_destroy(&p->dhidden);
    tsr_stack_saved_destroy(&p->saved[number]);
    experts_forget(&p->choices[number]);
    return status;
}

static tsr_status run(passes *p, int count)
{
    gpt_model *m = p->model;
    TRY(tsr_fill(m->job->stream, m->loss, 0));
    TRY(tsr_pipeline_run(
        m->pipeline,
        tsr_pipeline_run_params(.micro_batches = count, .dtype = m->options->dtype, .ndim = 3,
                                .shape = {job_rows(m->job), m->tokens, m->config.width},
                                .forward = forward, .backward = p->saved ? backward : NULL,
                                .user = p)));
    /* The head of a tied model is the embedding, of which the first and the last stage have one. */
    return p->saved ? tsr_stack_reduce_tied(m->stack, m->pipeline) : TSR_OK;
}

/* Adds the losses of all data-parallel and context ranks, and gives the sum to all stages. */
static tsr_status take_loss(const gpt_model *m, double *out)
{
    double all = 0;
    float own;
    if (m->is_last) {
        TRY(tsr_tensor_download(m->job->stream, m->loss, &own, sizeof own));
        all = (double)own;
        TRY(tsr_comm_all_reduce(m->job->data_comm, &all, &all, 1, TSR_F64, TSR_OP_SUM, NULL));
    }
    TRY(tsr_comm_broadcast(m->job->stage_comm, &all, 1, TSR_F64, m->job->stages - 1, NULL));
    *out = all;
    return TSR_OK;
}

tsr_status model_pass(gpt_model *self, int count, const int32_t *const *windows, bool learn,
                      double *loss)
{
    const gpt_options *o = self->options;
    passes p = {.model = self,
                .windows = windows,
                .scale = 1 / ((double)o->batch * (double)count * (double)o->block)};
    if (learn) {
        p.saved = calloc((size_t)count, sizeof *p.saved);
        p.choices = calloc((size_t)count, sizeof *p.choices);
    }
    tsr_status status = learn && !(p.saved && p.choices) ? TSR_ERR_NO_MEMORY : run(&p, count);
    for (int i = 0; p.saved && p.choices && i < count; i++) {
        tsr_stack_saved_destroy(&p.saved[i]);
        experts_forget(&p.choices[i]);
    }
    free(p.saved);
    free(p.choices);
    tsr_tensor_destroy(&p.dhidden);
    return status == TSR_OK ? take_loss(self, loss) : status;
}
