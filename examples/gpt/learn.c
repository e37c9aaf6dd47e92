/* Sends micro-batches through the stages, for training, evaluation and generation. */
#include <math.h>
#include <stdlib.h>

#include "experts.h"

/* The results of a forward pass that the backward pass needs. */
typedef struct passage {
    tsr_stack_saved *saved;
    tsr_layer_saved *head;
    tsr_tensor *logits; /* last stage: [rows, tokens, classes of this rank] */
    gpt_choices choices;
} passage;

static void passage_finish(passage *p)
{
    tsr_stack_saved_destroy(&p->saved);
    tsr_layer_saved_destroy(&p->head);
    tsr_tensor_destroy(&p->logits);
    experts_forget(&p->choices);
}

/* Makes the forward pass of this stage: from x, or in the first stage from `tokens`, to the
 * features *y, or in the last stage to logits. */
static tsr_status forward(gpt_model *self, const tsr_tensor *tokens, const tsr_tensor *x,
                          bool learning, passage *p, tsr_tensor **y)
{
    tsr_tensor *features = NULL;
    TRY(tsr_stack_forward(self->stack, self->is_first ? tokens : x, NULL,
                          learning ? &p->saved : NULL, &features));
    if (!self->is_last) {
        *y = features;
        return TSR_OK;
    }
    tsr_status status =
        tsr_stack_head_forward(self->stack, features, learning ? &p->head : NULL, &p->logits);
    tsr_tensor_destroy(&features);
    return status;
}

/* Makes the backward pass of this stage from dy, or in the last stage from dlogits. */
static tsr_status backward(gpt_model *self, const passage *p, const tsr_tensor *dy, tsr_tensor **dx)
{
    tsr_tensor *dhidden = NULL;
    if (!self->is_last)
        return tsr_stack_backward(self->stack, p->saved, dy, dx);
    TRY(tsr_stack_head_backward(self->stack, p->head, dy, &dhidden));
    tsr_status status = tsr_stack_backward(self->stack, p->saved, dhidden, dx);
    tsr_tensor_destroy(&dhidden);
    return status;
}

/* Losses ------------------------------------------------------------------------------------- */

static double tokens_of_batch(const gpt_model *self)
{
    return (double)self->training.batch * self->config->block;
}

/* Writes the sum of the windows' losses to `loss_sum`; with `accumulate` adds it. If `dlogits` is
 * not NULL, writes the gradient of the mean over the tokens of all ranks and micro-batches to
 * it. */
static tsr_status sum_losses(gpt_model *self, const passage *p, const tsr_tensor *y,
                             bool accumulate, tsr_tensor *dlogits)
{
    const tsr_layout *layout = tsr_tensor_layout(p->logits);
    int64_t rows = layout->shape[0] * layout->shape[1];
    double all = tokens_of_batch(self) * self->training.accumulate;
    tsr_tensor *logits = NULL, *labels = NULL;
    TRY(tsr_tensor_reshape(p->logits, 2, (int64_t[]){rows, layout->shape[2]}, &logits));
    tsr_status status = tsr_tensor_reshape(y, 1, &rows, &labels);
    if (status == TSR_OK)
        status = tsr_vocabulary_cross_entropy(self->job->tensor_group, self->losses, dlogits,
                                              logits, labels, self->config->model.vocabulary,
                                              &self->partition, (float)(1 / all));
    if (status == TSR_OK)
        status = tsr_reduce(self->job->stream, self->loss_sum, self->losses, 0, TSR_REDUCE_SUM,
                            accumulate);
    tsr_tensor_destroy(&logits);
    tsr_tensor_destroy(&labels);
    return status;
}

/* Computes the mean loss over `tokens` from `loss_sum`. The data-parallel and context-parallel
 * ranks of the last stage have different tokens, so their sums are added. All stages get the
 * result. */
static tsr_status take_loss(gpt_model *self, double tokens, double *out)
{
    const example_job *job = self->job;
    double all = 0;
    if (self->is_last) {
        float sum;
        TRY(tsr_tensor_download(job->stream, self->loss_sum, &sum, sizeof sum));
        all = (double)sum;
        TRY(tsr_comm_all_reduce(job->data_comm, &all, &all, 1, TSR_F64, TSR_OP_SUM, NULL));
    }
    TRY(tsr_comm_broadcast(job->stage_comm, &all, 1, TSR_F64, job->stages - 1, NULL));
    *out = all / tokens;
    return TSR_OK;
}

/* Training ----------------------------------------------------------------------------------- */

typedef struct learning {
    gpt_model *model;
    const gpt_batch *batches;
    passage *passages; /* [micro-batches]; NULL: forward passes only */
} learning;

/* Sets the dropout mask. It differs between steps, between the windows of a step, and between the
 * tokens of context ranks. `number` is that of the micro-batch. */
static tsr_status set_dropout(gpt_model *self, int number, bool is_on)
{
    const gpt_training *t = &self->training;
    int64_t row = (int64_t)number * t->batch + job_first_row(self->job);
    tsr_random_params random = {
        .struct_size = sizeof random,
        .seed = (uint64_t)t->seed,
        .subsequence =
            (uint64_t)tsr_optimizer_steps(self->optimizer) * (uint64_t)self->job->context +
            (uint64_t)self->job->context_rank,
        .offset = (uint64_t)(row * self->config->block) * (uint64_t)self->config->model.width};
    float p = is_on ? (float)t->dropout : 0;
    return t->dropout > 0 ? tsr_stack_set_dropout(self->stack, p, &random) : TSR_OK;
}

static tsr_status learn_forward(void *user, int number, const tsr_tensor *x, tsr_tensor **y)
{
    learning *l = user;
    gpt_model *self = l->model;
    passage *p = &l->passages[number];
    TRY(set_dropout(self, number, true));
    TRY(forward(self, l->batches[number].x, x, true, p, y));
    TRY(experts_count(self, p->saved, &p->choices));
    /* `dlogits` can be overwritten: the last stage makes the backward pass of a micro-batch right
     * after its forward pass. */
    return self->is_last ? sum_losses(self, p, l->batches[number].y, number > 0, self->dlogits)
                         : TSR_OK;
}

static tsr_status learn_backward(void *user, int number, const tsr_tensor *dy, tsr_tensor **dx)
{
    learning *l = user;
    passage *p = &l->passages[number];
    tsr_tensor *dlogits = NULL;
    TRY(experts_balance(l->model, &p->choices, number == 0));
    if (l->model->is_last)
        TRY(tsr_tensor_reshape(l->model->dlogits, 3, tsr_tensor_layout(p->logits)->shape,
                               &dlogits));
    tsr_status status = backward(l->model, p, dlogits ? dlogits : dy, dx);
    tsr_tensor_destroy(&dlogits);
    passage_finish(p);
    return status;
}

static tsr_status evaluate_forward(void *user, int number, const tsr_tensor *x, tsr_tensor **y)
{
    const learning *l = user;
    gpt_model *self = l->model;
    passage p = {0};
    tsr_status status = forward(self, l->batches[number].x, x, false, &p, y);
    if (status == TSR_OK && self->is_last)
        status = sum_losses(self, &p, l->batches[number].y, number > 0, NULL);
    passage_finish(&p);
    return status;
}

/* Describes the features that go from stage to stage: `rows` sequences of `tokens` tokens. */
static tsr_pipeline_run_params features(const gpt_model *self, int64_t rows, int64_t tokens)
{
    return (tsr_pipeline_run_params){.struct_size = sizeof(tsr_pipeline_run_params),
                                     .dtype = self->dtype,
                                     .ndim = 3,
                                     .shape = {rows, tokens, self->config->model.width}};
}

static tsr_status run_batches(gpt_model *self, int count, learning *l)
{
    tsr_pipeline_run_params run = features(self, job_rows(self->job), self->tokens);
    run.micro_batches = count;
    run.forward = l->passages ? learn_forward : evaluate_forward;
    run.backward = l->passages ? learn_backward : NULL;
    run.user = l;
    return tsr_pipeline_run(self->pipeline, &run);
}

tsr_status model_learn(gpt_model *self, const gpt_batch *batches)
{
    int count = self->training.accumulate;
    learning l = {.model = self, .batches = batches};
    l.passages = calloc((size_t)count, sizeof *l.passages);
    if (!l.passages)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = run_batches(self, count, &l);
    for (int i = 0; i < count; i++)
        passage_finish(&l.passages[i]);
    free(l.passages);
    TRY(status);
    return tsr_stack_reduce_tied(self->stack, self->pipeline);
}

static tsr_status clip(gpt_model *self, bool deferred, double *grad_norm)
{
    const gpt_training *t = &self->training;
    tsr_stack_info info = TSR_INIT(tsr_stack_info);
    TRY(tsr_stack_get_info(self->stack, &info));
    /* The first and the last stage both have the embedding that is also the head. Only the first
     * stage counts it. */
    return tsr_optimizer_clip(self->optimizer, t->clip > 0 ? (float)t->clip : INFINITY,
                              tsr_optimizer_clip_params(.group = self->job->tensor_group,
                                                        .stages = self->job->stage_comm,
                                                        .counted_elsewhere = info.counted_elsewhere,
                                                        .deferred = deferred),
                              grad_norm);
}

static double tokens_of_step(const gpt_model *self)
{
    return tokens_of_batch(self) * self->training.accumulate;
}

tsr_status model_update(gpt_model *self, double *loss, double *grad_norm, bool *later)
{
    const gpt_training *t = &self->training;
    const tsr_schedule *schedule =
        tsr_schedule(.kind = TSR_SCHEDULE_COSINE, .learning_rate = t->learning_rate,
                     .final_rate = t->min_learning_rate, .warmup_steps = t->warmup_steps,
                     .steps = t->decay_steps);
    TRY(tsr_schedule_check(schedule));
    *later = self->loss_seen != NULL;
    TRY(clip(self, *later, *later ? NULL : grad_norm));
    if (*later) {
        TRY(tsr_copy(self->job->stream, self->loss_seen, self->loss_sum));
        TRY(tsr_stream_mark(self->job->stream, &self->loss_point));
    } else {
        /* Take the loss before the optimizer's step, so that no step is made whose loss is
         * unknown. */
        TRY(take_loss(self, tokens_of_step(self), loss));
    }
    double rate = tsr_schedule_rate(schedule, tsr_optimizer_steps(self->optimizer));
    TRY(tsr_optimizer_step(self->optimizer, (float)rate));
    TRY(experts_shift(self));
    return tsr_optimizer_zero_grad(self->optimizer);
}

tsr_status model_results(gpt_model *self, double *loss, double *grad_norm)
{
    void *sum;
    TRY(tsr_stream_wait_point(self->job->stream, self->loss_point, UINT64_MAX));
    TRY(tsr_tensor_map(self->loss_seen, &sum));
    *loss = (double)*(const float *)sum / tokens_of_step(self);
    return tsr_optimizer_norm(self->optimizer, grad_norm);
}

tsr_status model_evaluate(gpt_model *self, int count, const gpt_batch *batches, double *loss)
{
    learning l = {.model = self, .batches = batches};
    TRY(set_dropout(self, 0, false));
    TRY(run_batches(self, count, &l));
    return take_loss(self, tokens_of_batch(self) * count, loss);
}

/* Generation --------------------------------------------------------------------------------- */

typedef struct generation {
    gpt_model *model;
    const tsr_tensor *x;
    tsr_kv_cache *cache;
    float *logits;
} generation;

/* Computes the logits of the last token, and gathers them from all ranks of a row. */
static tsr_status last_logits(gpt_model *self, const tsr_tensor *features, float *out)
{
    const int64_t count = tsr_tensor_layout(features)->shape[1];
    tsr_tensor *last = NULL, *logits = NULL;
    TRY(tsr_tensor_slice(features, 1, count - 1, count, 1, &last));
    tsr_status status = tsr_stack_head_forward(self->stack, last, NULL, &logits);
    if (status == TSR_OK)
        status = tsr_stack_gather_logits(self->stack, logits, out);
    tsr_tensor_destroy(&last);
    tsr_tensor_destroy(&logits);
    return status;
}

static tsr_status generate_forward(void *user, int number, const tsr_tensor *x, tsr_tensor **y)
{
    const generation *g = user;
    gpt_model *self = g->model;
    tsr_tensor *features = NULL;
    (void)number;
    TRY(tsr_stack_forward_cached(self->stack, self->is_first ? g->x : x, g->cache, &features));
    if (!self->is_last) {
        *y = features;
        return TSR_OK;
    }
    tsr_status status = last_logits(self, features, g->logits);
    tsr_tensor_destroy(&features);
    return status;
}

tsr_status model_next(gpt_model *self, const tsr_tensor *x, tsr_kv_cache *cache, float *logits)
{
    generation g = {self, x, cache, logits};
    tsr_pipeline_run_params run = features(self, 1, tsr_tensor_layout(x)->shape[1]);
    run.micro_batches = 1;
    run.forward = generate_forward;
    run.user = &g;
    TRY(tsr_pipeline_run(self->pipeline, &run));
    return tsr_comm_broadcast(self->job->stage_comm, logits,
                              (uint64_t)self->config->model.vocabulary, TSR_F32,
                              self->job->stages - 1, NULL);
}
