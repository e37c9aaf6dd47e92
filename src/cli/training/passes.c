/* The passes of a step: micro-batches go through the stages. */
#include <math.h>
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "cli/training/dpo.h"
#include "cli/training/experts.h"

typedef enum purpose {
    LEARN,    /* forward and backward passes */
    EVALUATE, /* forward passes */
    REFER     /* forward passes of the base alone, for the log-probabilities of DPO */
} purpose;

typedef struct passes {
    training_model *model;
    purpose purpose;
    const data_batch *rows;    /* [micro_batches] */
    tsr_stack_saved **saved;   /* [micro_batches]; NULL: no backward passes */
    training_choices *choices; /* [micro_batches], of experts; NULL as `saved` */
    tsr_tensor *dhidden;       /* of the last stage's present micro-batch */
    double scale;              /* 1 / number of labels or of pairs */
    double **reference;        /* of DPO: [micro_batches][rows]: log-probabilities by the base */
    double loss;               /* of DPO: the mean, as far as it is known */
} passes;

/* Creates a tensor [rows, context] on the device. */
static tsr_status upload(const training_model *m, const data_batch *rows, tsr_dtype dtype,
                         const void *values, tsr_tensor **out)
{
    const int64_t shape[2] = {rows->rows, rows->context};
    TRY(tsr_tensor_create(m->job->device, dtype, 2, shape, out));
    return tsr_tensor_upload(m->job->stream, *out, values,
                             (uint64_t)(rows->rows * rows->context) * sizeof(int32_t));
}

/* The mean of labels --------------------------------------------------------------------------- */

/* Adds the losses of hidden states to model->loss, and computes the gradient of the hidden states
 * if there will be a backward pass. */
static tsr_status learn_labels(passes *p, const data_batch *rows, const tsr_tensor *hidden,
                               const tsr_tensor *labels)
{
    training_model *m = p->model;
    tsr_tensor *weights = NULL;
    tsr_status status =
        rows->weights != NULL ? upload(m, rows, TSR_F32, rows->weights, &weights) : TSR_OK;
    if (status == TSR_OK)
        status =
            tsr_stack_head_loss(m->stack, hidden,
                                tsr_head_loss_params(.labels = labels, .weights = weights,
                                                     .scale = (float)p->scale, .loss = m->loss),
                                p->saved != NULL ? &p->dhidden : NULL);
    tsr_tensor_destroy(&weights);
    return status;
}

/* DPO ------------------------------------------------------------------------------------------ */

/* Computes the log-probability of the labels of each row. */
static tsr_status sum_rows(passes *p, const data_batch *rows, const tsr_tensor *hidden,
                           const tsr_tensor *labels, double *out)
{
    training_model *m = p->model;
    const int64_t shape[2] = {rows->rows, rows->context}, count = shape[0] * shape[1];
    tsr_tensor *losses = NULL;
    float *all = cli_alloc((size_t)count, sizeof *all);
    tsr_status status = tsr_tensor_create(m->job->device, TSR_F32, 2, shape, &losses);
    if (status == TSR_OK)
        status = tsr_stack_head_loss(
            m->stack, hidden, tsr_head_loss_params(.labels = labels, .losses = losses), NULL);
    if (status == TSR_OK)
        status = tsr_tensor_download(m->job->stream, losses, all, (uint64_t)count * sizeof *all);
    for (int64_t i = 0; status == TSR_OK && i < count; i++)
        out[i / rows->context] -= (double)all[i];
    tsr_tensor_destroy(&losses);
    free(all);
    return status;
}

/* As learn_labels, for pairs of rows. */
static tsr_status learn_pairs(passes *p, int number, const tsr_tensor *hidden,
                              const tsr_tensor *labels)
{
    training_model *m = p->model;
    const data_batch *rows = &p->rows[number];
    const size_t count = (size_t)rows->rows, row = (size_t)rows->context;
    if (p->purpose == REFER)
        return sum_rows(p, rows, hidden, labels, p->reference[number]);
    double *own = cli_alloc(count, sizeof *own), *slopes = cli_alloc(count, sizeof *slopes);
    float *weights = cli_alloc(count * row, sizeof *weights);
    tsr_tensor *factors = NULL;
    tsr_status status = sum_rows(p, rows, hidden, labels, own);
    if (status == TSR_OK)
        p->loss +=
            training_dpo(rows, training_chosen.beta, own, p->reference[number], p->scale, slopes);
    for (size_t i = 0; i < count * row; i++)
        weights[i] = (float)slopes[i / row];
    if (status == TSR_OK && p->saved != NULL)
        status = upload(m, rows, TSR_F32, weights, &factors);
    if (status == TSR_OK && p->saved != NULL)
        status = tsr_stack_head_loss(m->stack, hidden,
                                     tsr_head_loss_params(.labels = labels, .weights = factors),
                                     &p->dhidden);
    tsr_tensor_destroy(&factors);
    free(own);
    free(slopes);
    free(weights);
    return status;
}

/* Passes of a micro-batch ---------------------------------------------------------------------- */

static tsr_status learn_hidden(passes *p, int number, const tsr_tensor *hidden)
{
    const data_batch *rows = &p->rows[number];
    tsr_tensor *labels = NULL;
    tsr_status status = upload(p->model, rows, TSR_I32, rows->labels, &labels);
    if (status == TSR_OK)
        status = p->reference != NULL ? learn_pairs(p, number, hidden, labels)
                                      : learn_labels(p, rows, hidden, labels);
    tsr_tensor_destroy(&labels);
    return status;
}

/* Sets the mask of --dropout, which differs between steps, and between the rows of a step. */
static tsr_status set_dropout(const passes *p, int number)
{
    const training_options *o = &training_chosen;
    const training_model *m = p->model;
    const int64_t row = number * (o->batch / o->accumulate) + training_job_first_row(m->job);
    const tsr_random_params random = {.struct_size = sizeof random,
                                      .seed = (uint64_t)o->seed,
                                      .subsequence = (uint64_t)tsr_optimizer_steps(m->optimizer),
                                      .offset = (uint64_t)(row * o->context) *
                                                (uint64_t)m->config->width};
    if (o->layer_dropout == 0)
        return TSR_OK;
    return tsr_stack_set_dropout(m->stack, p->saved != NULL ? (float)o->layer_dropout : 0, &random);
}

static tsr_status forward(void *user, int number, const tsr_tensor *x, tsr_tensor **y)
{
    passes *p = user;
    training_model *m = p->model;
    const data_batch *rows = &p->rows[number];
    tsr_tensor *ids = NULL, *features = NULL;
    tsr_status status = set_dropout(p, number);
    if (status == TSR_OK && m->first)
        status = upload(m, rows, TSR_I32, rows->ids, &ids);
    if (status == TSR_OK)
        status = tsr_stack_forward(m->stack, m->first ? ids : x, rows->starts,
                                   p->saved != NULL ? &p->saved[number] : NULL, &features);
    tsr_tensor_destroy(&ids);
    if (status == TSR_OK && p->saved != NULL)
        status = training_experts_count(m, p->saved[number], &p->choices[number]);
    if (status != TSR_OK || !m->last) {
        *y = features;
        return status;
    }
    status = learn_hidden(p, number, features);
    tsr_tensor_destroy(&features);
    return status;
}

static tsr_status backward(void *user, int number, const tsr_tensor *dy, tsr_tensor **dx)
{
    passes *p = user;
    training_model *m = p->model;
    tsr_status status = training_experts_balance(m, &p->choices[number], number == 0);
    if (status == TSR_OK)
        status = tsr_stack_backward(m->stack, p->saved[number], m->last ? p->dhidden : dy, dx);
    training_experts_forget(&p->choices[number]);
    tsr_tensor_destroy(&p->dhidden);
    tsr_stack_saved_destroy(&p->saved[number]);
    return status;
}

/* All passes ----------------------------------------------------------------------------------- */

static tsr_status run(passes *p, int micro_batches)
{
    training_model *m = p->model;
    if (m->last)
        TRY(tsr_fill(m->job->stream, m->loss, 0));
    if (p->purpose == LEARN) {
        p->saved = cli_alloc((size_t)micro_batches, sizeof *p->saved);
        p->choices = cli_alloc((size_t)micro_batches, sizeof *p->choices);
    }
    const tsr_status status = tsr_pipeline_run(
        m->pipeline,
        tsr_pipeline_run_params(.micro_batches = micro_batches, .dtype = m->features, .ndim = 3,
                                .shape = {p->rows->rows, p->rows->context, m->config->width},
                                .forward = forward,
                                .backward = p->purpose == LEARN ? backward : NULL, .user = p));
    tsr_tensor_destroy(&p->dhidden);
    for (int i = 0; p->saved != NULL && i < micro_batches; i++) {
        tsr_stack_saved_destroy(&p->saved[i]);
        training_experts_forget(&p->choices[i]);
    }
    free(p->saved);
    free(p->choices);
    p->saved = NULL;
    p->choices = NULL;
    return status;
}

/* Gives the sum of the losses of all data-parallel ranks to all stages. */
static tsr_status take_loss(const passes *p, double *out)
{
    const training_model *m = p->model;
    double all = p->loss;
    if (m->last && p->reference == NULL) {
        float own;
        TRY(tsr_tensor_download(m->job->stream, m->loss, &own, sizeof own));
        all = (double)own;
    }
    if (m->last)
        TRY(tsr_comm_all_reduce(m->job->data, &all, &all, 1, TSR_F64, TSR_OP_SUM, NULL));
    TRY(training_job_share(m->job, &all));
    *out = all;
    return TSR_OK;
}

/* Computes the log-probabilities of the base. */
static tsr_status refer(const passes *p, int micro_batches)
{
    passes base = *p;
    base.purpose = REFER;
    tsr_lora_set_enabled(p->model->lora, false);
    const tsr_status status = run(&base, micro_batches);
    tsr_lora_set_enabled(p->model->lora, true);
    return status;
}

static tsr_status learn(passes *p, int micro_batches, double *loss)
{
    if (p->reference != NULL)
        TRY(refer(p, micro_batches));
    TRY(run(p, micro_batches));
    if (p->purpose == LEARN && p->model->own != NULL)
        TRY(tsr_stack_reduce_tied(p->model->stack, p->model->pipeline));
    return take_loss(p, loss);
}

tsr_status training_pass(training_model *m, int micro_batches, const data_batch *rows,
                         int64_t counted, bool learns, double *loss)
{
    passes p = {.model = m, .rows = rows, .purpose = learns ? LEARN : EVALUATE};
    p.scale = counted > 0 ? 1.0 / (double)counted : 1;
    if (training_chosen.dpo) {
        p.reference = cli_alloc((size_t)micro_batches, sizeof *p.reference);
        for (int i = 0; i < micro_batches; i++)
            p.reference[i] = cli_alloc((size_t)rows[i].rows, sizeof **p.reference);
    }
    const tsr_status status = learn(&p, micro_batches, loss);
    for (int i = 0; p.reference != NULL && i < micro_batches; i++)
        free(p.reference[i]);
    free(p.reference);
    return status;
}
