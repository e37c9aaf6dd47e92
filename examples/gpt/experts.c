#include "experts.h"

#include <stdlib.h>

/* Returns the experts of a layer of the model; 0: it has none. */
static int64_t experts_of(const gpt_model *self, int layer)
{
    const tsr_model_config *c = &self->config->model;
    const tsr_model_layer *l = c->kinds[c->layer_kinds ? c->layer_kinds[layer] : 0];
    return l->experts ? l->experts->count : 0;
}

static int first_layer(const gpt_model *self)
{
    int sum = 0;
    for (int s = 0; s < self->job->stage; s++)
        sum += self->stage_blocks[s];
    return sum;
}

tsr_status experts_init(gpt_model *self)
{
    const int layers = self->config->model.layers;
    for (int l = 0; l < layers; l++)
        if (experts_of(self, l) > self->experts)
            self->experts = experts_of(self, l);
    if (self->experts == 0)
        return TSR_OK;
    self->loads = calloc((size_t)layers * (size_t)self->experts, sizeof *self->loads);
    if (!self->loads)
        return TSR_ERR_NO_MEMORY;
    return tsr_tensor_create(self->job->device, TSR_F32, 1, &self->experts, &self->balance);
}

void experts_finish(gpt_model *self)
{
    tsr_tensor_destroy(&self->balance);
    free(self->loads);
    self->loads = NULL;
}

/* Counting ----------------------------------------------------------------------------------- */

/* Adds up the probabilities of all experts over the tokens: sums[experts]. */
static tsr_status sum_probabilities(gpt_model *self, const tsr_tensor *logits, float *sums)
{
    const tsr_layout *l = tsr_tensor_layout(logits);
    tsr_tensor *probabilities = NULL, *sum = NULL;
    tsr_status status = tsr_tensor_create(self->job->device, TSR_F32, 2, l->shape, &probabilities);
    if (status == TSR_OK)
        status = tsr_tensor_create(self->job->device, TSR_F32, 1, &l->shape[1], &sum);
    if (status == TSR_OK)
        status = tsr_softmax(self->job->stream, probabilities, logits, false);
    if (status == TSR_OK)
        status = tsr_reduce(self->job->stream, sum, probabilities, 0, TSR_REDUCE_SUM, false);
    if (status == TSR_OK)
        status =
            tsr_tensor_download(self->job->stream, sum, sums, (uint64_t)l->shape[1] * sizeof *sums);
    tsr_tensor_destroy(&probabilities);
    tsr_tensor_destroy(&sum);
    return status;
}

static tsr_status count_ids(gpt_model *self, const tsr_tensor *ids, double *counts)
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

/* Counts the choices of a block of this stage. All tensor-parallel ranks choose alike, so one of
 * them counts. */
static tsr_status count_block(gpt_model *self, const tsr_stack_saved *saved, int block,
                              gpt_choices *out)
{
    const int layer = first_layer(self) + block;
    const int64_t experts = experts_of(self, layer), at = layer * self->experts;
    tsr_moe_choice choice = TSR_INIT(tsr_moe_choice);
    float *sums;
    if (experts == 0 || self->job->tensor_rank != 0)
        return TSR_OK;
    TRY(tsr_stack_get_choice(saved, block, &choice));
    TRY(count_ids(self, choice.ids, out->sent + at));
    sums = calloc((size_t)experts, sizeof *sums);
    if (!sums)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = sum_probabilities(self, choice.logits, sums);
    double *all = out->sent + self->config->model.layers * self->experts + at;
    for (int64_t e = 0; e < experts && status == TSR_OK; e++)
        all[e] = (double)sums[e];
    free(sums);
    return status;
}

tsr_status experts_count(gpt_model *self, const tsr_stack_saved *saved, gpt_choices *out)
{
    const size_t count = 2 * (size_t)self->config->model.layers * (size_t)self->experts;
    if (count == 0)
        return TSR_OK;
    out->sent = calloc(count, sizeof *out->sent);
    out->sums = calloc(count, sizeof *out->sums);
    if (!out->sent || !out->sums)
        return TSR_ERR_NO_MEMORY;
    for (int b = 0; b < self->stage_blocks[self->job->stage]; b++)
        TRY(count_block(self, saved, b, out));
    return tsr_comm_all_reduce(self->job->world, out->sent, out->sums, count, TSR_F64, TSR_OP_SUM,
                               &out->request);
}

void experts_forget(gpt_choices *choices)
{
    tsr_request_cancel(&choices->request);
    free(choices->sent);
    free(choices->sums);
    *choices = (gpt_choices){0};
}

/* Balance ------------------------------------------------------------------------------------ */

/* Computes the auxiliary loss over the tokens of all layers together, experts · Σ f_e · P_e, and
 * its gradient with respect to each token's probability of expert e. */
static double auxiliary_loss(const gpt_model *self, const double *sums, float *gradient)
{
    const int64_t layers = self->config->model.layers, experts = self->experts;
    const double tokens = (double)self->training.batch * self->config->block;
    const double *probabilities = sums + layers * experts;
    double aux = 0, with = 0;
    for (int l = 0; l < layers; l++)
        with += experts_of(self, l) > 0 ? tokens : 0;
    for (int64_t e = 0; e < experts; e++) {
        double chosen = 0, probability = 0;
        for (int64_t l = 0; l < layers; l++) {
            chosen += sums[l * experts + e];
            probability += probabilities[l * experts + e];
        }
        aux += (double)experts * chosen / with * probability / with;
        gradient[e] = (float)(self->training.balance * (double)experts * chosen / with / with /
                              self->training.accumulate);
    }
    return aux;
}

tsr_status experts_balance(gpt_model *self, gpt_choices *choices, bool first)
{
    const int64_t layers = self->config->model.layers, experts = self->experts;
    if (!choices->sums)
        return TSR_OK;
    TRY(tsr_request_wait(&choices->request));
    float *gradient = calloc((size_t)experts, sizeof *gradient);
    if (!gradient)
        return TSR_ERR_NO_MEMORY;
    const double aux = auxiliary_loss(self, choices->sums, gradient);
    self->aux = (first ? 0 : self->aux) + aux / self->training.accumulate;
    for (int64_t i = 0; i < layers * experts; i++)
        self->loads[i] = (first ? 0 : self->loads[i]) + choices->sums[i];
    tsr_status status = TSR_OK;
    if (self->training.balance > 0)
        status = tsr_tensor_upload(self->job->stream, self->balance, gradient,
                                   (uint64_t)experts * sizeof *gradient);
    free(gradient);
    for (int b = 0; b < self->stage_blocks[self->job->stage] && self->training.balance > 0; b++)
        if (status == TSR_OK && experts_of(self, first_layer(self) + b) > 0)
            status = tsr_moe_set_balance(tsr_stack_block(self->stack, b), self->balance);
    return status;
}

/* Biases ------------------------------------------------------------------------------------- */

tsr_status experts_shift(gpt_model *self)
{
    const int blocks = self->stage_blocks[self->job->stage], first = first_layer(self);
    if (self->experts == 0 || self->training.bias_rate == 0)
        return TSR_OK;
    const float **changes = calloc((size_t)blocks, sizeof *changes);
    float *all = calloc((size_t)blocks * (size_t)self->experts, sizeof *all);
    tsr_status status = changes && all ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int b = 0; b < blocks && status == TSR_OK; b++) {
        const int64_t experts = experts_of(self, first + b);
        const double *load = self->loads + (first + b) * self->experts;
        double mean = 0;
        for (int64_t e = 0; e < experts; e++)
            mean += load[e] / (double)experts;
        for (int64_t e = 0; e < experts; e++)
            all[b * self->experts + e] =
                (float)self->training.bias_rate * (float)((load[e] < mean) - (load[e] > mean));
        changes[b] = experts > 0 ? all + b * self->experts : NULL;
    }
    if (status == TSR_OK)
        status = tsr_stack_add_choice_biases(self->stack, changes);
    free(all);
    free(changes);
    return status;
}
