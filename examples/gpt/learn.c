/* Sends micro-batches through the stages, for training, evaluation and generation. */
#include <math.h>
#include <stdlib.h>

#include "passes.h"

/* Losses ------------------------------------------------------------------------------------- */

static double tokens_of_batch(const gpt_model *self)
{
    return (double)self->training.batch * self->config.block;
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
                                              logits, labels, self->config.vocabulary,
                                              &self->partition, (float)(1 / all));
    if (status == TSR_OK)
        status = tsr_reduce(self->job->stream, self->loss_sum, self->losses, 0, TSR_REDUCE_SUM,
                            accumulate);
    tsr_tensor_destroy(&logits);
    tsr_tensor_destroy(&labels);
    return status;
}

/* Computes the mean loss over `tokens` from `loss_sum`. The data-parallel ranks of the last stage
 * have different windows, so their sums are added. All stages get the result. */
static tsr_status take_loss(gpt_model *self, double tokens, double *out)
{
    const example_job *job = self->job;
    double all = 0;
    if (self->is_last) {
        float sum;
        TRY(tsr_tensor_download(job->stream, self->loss_sum, &sum, sizeof sum));
        all = (double)sum;
        TRY(tsr_comm_all_reduce(job->data_comm, &all, &all, 1, TSR_F64, TSR_OP_SUM));
    }
    TRY(tsr_comm_broadcast(job->stage_comm, &all, 1, TSR_F64, job->stages - 1));
    *out = all / tokens;
    return TSR_OK;
}

/* Training ----------------------------------------------------------------------------------- */

typedef struct learning {
    gpt_model *model;
    const gpt_batch *batches;
    passage *passages; /* [micro-batches]; NULL: forward passes only */
} learning;

/* Sets the dropout mask. It differs between steps, and between the windows of a step. `number` is
 * that of the micro-batch. */
static tsr_status set_dropout(gpt_model *self, int number, bool is_on)
{
    const gpt_training *t = &self->training;
    int64_t row = (int64_t)number * t->batch + job_first_row(self->job);
    tsr_random_params random = {.struct_size = sizeof random,
                                .seed = (uint64_t)t->seed,
                                .subsequence = (uint64_t)tsr_optimizer_steps(self->optimizer),
                                .offset = (uint64_t)(row * self->config.block) *
                                          (uint64_t)self->config.width};
    float p = is_on ? (float)t->dropout : 0;
    for (int i = 0; t->dropout > 0 && i < self->block_count; i++)
        TRY(tsr_block_set_dropout(self->blocks[i], p, &random));
    return TSR_OK;
}

/* Gives the features to the next stage. The last stage gives nothing. */
static void hand_over(const gpt_model *self, passage *p, tsr_tensor **y)
{
    if (self->is_last)
        return;
    *y = p->at;
    p->at = NULL;
}

static tsr_status learn_forward(void *user, int number, const tsr_tensor *x, tsr_tensor **y)
{
    learning *l = user;
    gpt_model *self = l->model;
    passage *p = &l->passages[number];
    TRY(passage_init(self, p));
    TRY(set_dropout(self, number, true));
    TRY(passes_forward(self, l->batches[number].x, x, true, p));
    hand_over(self, p, y);
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
    if (l->model->is_last)
        TRY(tsr_tensor_reshape(l->model->dlogits, 3, tsr_tensor_layout(p->logits)->shape,
                               &dlogits));
    tsr_status status = passes_backward(l->model, p, dlogits ? dlogits : dy, dx);
    tsr_tensor_destroy(&dlogits);
    passage_finish(l->model, p);
    return status;
}

static tsr_status evaluate_forward(void *user, int number, const tsr_tensor *x, tsr_tensor **y)
{
    const learning *l = user;
    gpt_model *self = l->model;
    passage p = {0};
    tsr_status status = passage_init(self, &p);
    if (status == TSR_OK)
        status = passes_forward(self, l->batches[number].x, x, false, &p);
    if (status == TSR_OK && self->is_last)
        status = sum_losses(self, &p, l->batches[number].y, number > 0, NULL);
    if (status == TSR_OK)
        hand_over(self, &p, y);
    passage_finish(self, &p);
    return status;
}

/* Describes the features that go from stage to stage: `rows` sequences of `tokens` tokens. */
static tsr_pipeline_run_params features(const gpt_model *self, int64_t rows, int64_t tokens)
{
    return (tsr_pipeline_run_params){.struct_size = sizeof(tsr_pipeline_run_params),
                                     .dtype = self->dtype,
                                     .ndim = 3,
                                     .shape = {rows, tokens, self->config.width}};
}

static tsr_status run_batches(gpt_model *self, int count, learning *l)
{
    tsr_pipeline_run_params run = features(self, job_rows(self->job), self->config.block);
    run.micro_batches = count;
    run.forward = l->passages ? learn_forward : evaluate_forward;
    run.backward = l->passages ? learn_backward : NULL;
    run.user = l;
    return tsr_pipeline_run(self->pipeline, &run);
}

/* Adds the gradients of the parameter that the first and the last stage both have. */
static tsr_status reduce_tied(gpt_model *self)
{
    tsr_fsdp_shard shard;
    if (!self->tied || self->job->stages == 1)
        return TSR_OK;
    TRY(tsr_fsdp_shard_of(self->tied, 0, &shard));
    return shard.grad ? tsr_pipeline_reduce_ends(self->pipeline, shard.grad) : TSR_OK;
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
        passage_finish(self, &l.passages[i]);
    free(l.passages);
    TRY(status);
    return reduce_tied(self);
}

static tsr_status clip(gpt_model *self, bool deferred, double *grad_norm)
{
    const gpt_training *t = &self->training;
    const bool elsewhere = self->tied && !self->is_first;
    const char *const tied[] = {elsewhere ? tsr_fsdp_parameter(self->tied, 0, 0)->name : NULL,
                                NULL};
    /* The first and the last stage both have the embedding that is also the head. Only the first
     * stage counts it. */
    return tsr_optimizer_clip(
        self->optimizer, t->clip > 0 ? (float)t->clip : INFINITY,
        tsr_optimizer_clip_params(.group = self->job->tensor_group, .stages = self->job->stage_comm,
                                  .counted_elsewhere = elsewhere ? tied : NULL,
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
    const tsr_schedule schedule = {.kind = TSR_SCHEDULE_COSINE,
                                   .learning_rate = t->learning_rate,
                                   .final_rate = t->min_learning_rate,
                                   .warmup_steps = t->warmup_steps,
                                   .steps = t->decay_steps};
    TRY(tsr_schedule_check(&schedule));
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
    double rate = tsr_schedule_rate(&schedule, tsr_optimizer_steps(self->optimizer));
    TRY(tsr_optimizer_step(self->optimizer, (float)rate));
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
    int64_t first;
    float *logits;
} generation;

/* Gathers the logits from all ranks of a row, in the order of the classes. */
static tsr_status gather_logits(gpt_model *self, const passage *p, float *out)
{
    const tsr_parameter *weight = tsr_layer_parameter(self->head, 0);
    int64_t classes = self->config.vocabulary, here = weight->length;
    tsr_tensor *own = NULL, *part = NULL, *all = NULL;
    tsr_stream *stream = self->job->stream;
    TRY(tsr_tensor_create(self->job->device, TSR_F32, 1, &classes, &all));
    tsr_status status = tsr_fill(stream, all, 0);
    if (status == TSR_OK)
        status = tsr_tensor_reshape(p->logits, 1, &here, &own);
    if (status == TSR_OK)
        status = tsr_tensor_slice(all, 0, weight->offset, weight->offset + here, 1, &part);
    if (status == TSR_OK)
        status = tsr_copy(stream, part, own);
    /* Each class belongs to one rank; the other ranks add 0. */
    if (status == TSR_OK)
        status = tsr_group_all_reduce(self->job->tensor_group, all, TSR_OP_SUM);
    if (status == TSR_OK)
        status = tsr_tensor_download(stream, all, out, (uint64_t)classes * sizeof *out);
    tsr_tensor_destroy(&own);
    tsr_tensor_destroy(&part);
    tsr_tensor_destroy(&all);
    return status;
}

static tsr_status generate_forward(void *user, int number, const tsr_tensor *x, tsr_tensor **y)
{
    const generation *g = user;
    gpt_model *self = g->model;
    passage p = {0};
    (void)number;
    tsr_status status = passage_init(self, &p);
    if (status == TSR_OK)
        status = passes_cached(self, g->x, x, g->cache, g->first, &p);
    if (status == TSR_OK && self->is_last)
        status = gather_logits(self, &p, g->logits);
    if (status == TSR_OK)
        hand_over(self, &p, y);
    passage_finish(self, &p);
    return status;
}

tsr_status model_next(gpt_model *self, const tsr_tensor *x, tsr_kv_cache *cache, int64_t first,
                      float *logits)
{
    generation g = {self, x, cache, first, logits};
    tsr_pipeline_run_params run = features(self, 1, tsr_tensor_layout(x)->shape[1]);
    run.micro_batches = 1;
    run.forward = generate_forward;
    run.user = &g;
    TRY(tsr_pipeline_run(self->pipeline, &run));
    return tsr_comm_broadcast(self->job->stage_comm, logits, (uint64_t)self->config.vocabulary,
                              TSR_F32, self->job->stages - 1);
}
