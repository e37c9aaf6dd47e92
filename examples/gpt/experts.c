/* The loads of experts in training, and what balances them: an auxiliary loss, or biases for the
 * choice. */
#include <stdlib.h>

#include "model.h"

tsr_status experts_init(gpt_model *self)
{
    const int64_t experts = self->options->experts;
    if (experts == 0)
        return TSR_OK;
    self->loads = calloc((size_t)(self->config.layers * experts), sizeof *self->loads);
    if (!self->loads)
        return TSR_ERR_NO_MEMORY;
    return tsr_tensor_create(self->job->device, TSR_F32, 1, &experts, &self->balance);
}

void experts_finish(gpt_model *self)
{
    tsr_tensor_destroy(&self->balance);
    free(self->loads);
    self->loads = NULL;
}

/* Counting ------------------------------------------------------------------------------------- */

/* Adds up the probabilities of all experts over the tokens: sums[experts]. */
static tsr_status sum_probabilities(const gpt_model *self, const tsr_tensor *logits, double *sums)
{
    const tsr_layout *l = tsr_tensor_layout(logits);
    const size_t experts = (size_t)l->shape[1];
    float *all = calloc(experts, sizeof *all);
    tsr_tensor *probabilities = NULL, *sum = NULL;
    tsr_status status = all ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr_tensor_create(self->job->device, TSR_F32, 2, l->shape, &probabilities);
    if (status == TSR_OK)
        status = tsr_tensor_create(self->job->device, TSR_F32, 1, &l->shape[1], &sum);
    if (status == TSR_OK)
        status = tsr_softmax(self->job->stream, probabilities, logits, false);
    if (status == TSR_OK)
        status = tsr_reduce(self->job->stream, sum, probabilities, 0, TSR_REDUCE_SUM, false);
    if (status == TSR_OK)
        status = tsr_tensor_download(self->job->stream, sum, all, experts * sizeof *all);
    for (size_t e = 0; e < experts && status == TSR_OK; e++)
        sums[e] = (double)all[e];
    tsr_tensor_destroy(&probabilities);
    tsr_tensor_destroy(&sum);
    free(all);
    return status;
}

static tsr_status count_ids(const gpt_model *self, const tsr_tensor *ids, double *counts)
{
    const int64_t count = tsr_layout_count(tsr_tensor_layout(ids));
    int32_t *all = calloc((size_t)count, sizeof *all);
    if (!all)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status =
        tsr_tensor_download(self->job->stream, ids, all, (uint64_t)count * sizeof *all);
    for (int64_t i = 0; i < count && status == TSR_OK; i++)
        counts[all[i]]++;
    free(all);
    return status;
}

tsr_status experts_count(gpt_model *self, const tsr_stack_saved *saved, gpt_choices *out)
{
    const int64_t experts = self->options->experts, all = self->config.layers * experts;
    if (experts == 0)
        return TSR_OK;
    out->sent = calloc(2 * (size_t)all, sizeof *out->sent);
    out->sums = calloc(2 * (size_t)all, sizeof *out->sums);
    if (!out->sent || !out->sums)
        return TSR_ERR_NO_MEMORY;
    /* All tensor-parallel ranks choose alike, so one of them counts. */
    for (int b = 0; b < self->layers && self->job->tensor_rank == 0; b++) {
        double *of_layer = out->sent + (self->first_layer + b) * experts;
        tsr_moe_choice choice = TSR_INIT(tsr_moe_choice);
        TRY(tsr_stack_get_choice(saved, b, &choice));
        TRY(count_ids(self, choice.ids, of_layer));
        TRY(sum_probabilities(self, choice.logits, of_layer + all));
    }
    return tsr_comm_all_reduce(self->job->world, out->sent, out->sums, 2 * (uint64_t)all, TSR_F64,
                               TSR_OP_SUM, &out->request);
}

void experts_forget(gpt_choices *choices)
{
    tsr_request_cancel(&choices->request);
    free(choices->sent);
    free(choices->sums);
    *choices = (gpt_choices){0};
}

/* Balance -------------------------------------------------------------------------------------- */

/* Computes the auxiliary loss over the tokens of all layers together, experts · Σ f_e · P_e, and
 * its gradient with respect to each token's probability of expert e. */
static double auxiliary_loss(const gpt_model *self, const double *sums, float *gradient)
{
    const gpt_options *o = self->options;
    const int64_t layers = self->config.layers, experts = o->experts;
    const double *probabilities = sums + layers * experts;
    const double tokens = (double)layers * (double)o->batch * (double)o->block;
    double aux = 0;
    for (int64_t e = 0; e < experts; e++) {
        double chosen = 0, probability = 0;
        for (int64_t l = 0; l < layers; l++) {
            chosen += sums[l * experts + e];
            probability += probabilities[l * experts + e];
        }
        aux += (double)experts * chosen / tokens * probability / tokens;
        gradient[e] =
            (float)(o->balance * (double)experts * chosen / tokens / tokens / o->accumulate);
    }
    return aux;
}

tsr_status experts_balance(gpt_model *self, gpt_choices *choices, bool first)
{
    const gpt_options *o = self->options;
    const int64_t all = (int64_t)self->config.layers * o->experts;
    if (!choices->sums)
        return TSR_OK;
    TRY(tsr_request_wait(&choices->request));
    float *gradient = calloc((size_t)o->experts, sizeof *gradient);
    if (!gradient)
        return TSR_ERR_NO_MEMORY;
    const double aux = auxiliary_loss(self, choices->sums, gradient);
    self->aux = (first ? 0 : self->aux) + aux / o->accumulate;
    for (int64_t i = 0; i < all; i++)
        self->loads[i] = (first ? 0 : self->loads[i]) + choices->sums[i];
    tsr_status status = TSR_OK;
    if (o->balance > 0)
        status = tsr_tensor_upload(self->job->stream, self->balance, gradient,
                                   (uint64_t)o->experts * sizeof *gradient);
    free(gradient);
    for (int b = 0; b < self->layers && o->balance > 0 && status == TSR_OK; b++)
        status = tsr_moe_set_balance(tsr_stack_block(self->stack, b), self->balance);
    return status;
}

/* Biases --------------------------------------------------------------------------------------- */

tsr_status experts_shift(gpt_model *self)
{
    const int64_t experts = self->options->experts;
    if (experts == 0 || self->options->bias_rate == 0)
        return TSR_OK;
    const float **changes = calloc((size_t)self->layers, sizeof *changes);
    float *all = calloc((size_t)(self->layers * experts), sizeof *all);
    tsr_status status = changes && all ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int b = 0; b < self->layers && status == TSR_OK; b++) {
        const double *load = self->loads + (self->first_layer + b) * experts;
        double mean = 0;
        for (int64_t e = 0; e < experts; e++)
            mean += load[e] / (double)experts;
        for (int64_t e = 0; e < experts; e++)
            all[b * experts + e] =
                (float)self->options->bias_rate * (float)((load[e] < mean) - (load[e] > mean));
        changes[b] = all + b * experts;
    }
    if (status == TSR_OK)
        status = tsr_stack_add_choice_biases(self->stack, changes);
    free(all);
    free(changes);
    return status;
}
