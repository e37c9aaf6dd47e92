#include "cli/training/experts.h"

#include <stdlib.h>

#include "cli/lib/memory.h"

/* Returns the experts of a layer of the model; 0: it has none. */
static int64_t experts_of(const training_model *m, int layer)
{
    const tsr_model_config *c = m->config;
    const tsr_model_layer *l = c->kinds[c->layer_kinds != NULL ? c->layer_kinds[layer] : 0];
    return l->experts != NULL ? l->experts->count : 0;
}

tsr_status training_experts_init(training_model *m)
{
    const training_options *o = &training_chosen;
    const bool is_balanced = o->balance > 0 || o->bias_rate > 0;
    if (!is_balanced && (m->own == NULL || o->model != NULL))
        return TSR_OK;
    for (int l = 0; l < m->config->layers; l++)
        if (experts_of(m, l) > m->experts)
            m->experts = experts_of(m, l);
    if (m->experts == 0 && is_balanced)
        return training_fail("--%s is for models with experts, and this one has none",
                             o->balance > 0 ? "balance" : "bias-rate");
    if (m->experts == 0)
        return TSR_OK;
    m->loads = cli_alloc((size_t)m->config->layers * (size_t)m->experts, sizeof *m->loads);
    return tsr_tensor_create(m->job->device, TSR_F32, 1, &m->experts, &m->balance);
}

void training_experts_finish(training_model *m)
{
    tsr_tensor_destroy(&m->balance);
    free(m->loads);
    m->loads = NULL;
}

/* Counting ------------------------------------------------------------------------------------- */

/* Adds up the probabilities of all experts over the tokens: sums[experts]. */
static tsr_status sum_probabilities(const training_model *m, const tsr_tensor *logits, float *sums)
{
    const tsr_layout *l = tsr_tensor_layout(logits);
    tsr_tensor *probabilities = NULL, *sum = NULL;
    tsr_status status = tsr_tensor_create(m->job->device, TSR_F32, 2, l->shape, &probabilities);
    if (status == TSR_OK)
        status = tsr_tensor_create(m->job->device, TSR_F32, 1, &l->shape[1], &sum);
    if (status == TSR_OK)
        status = tsr_softmax(m->job->stream, probabilities, logits, false);
    if (status == TSR_OK)
        status = tsr_reduce(m->job->stream, sum, probabilities, 0, TSR_REDUCE_SUM, false);
    if (status == TSR_OK)
        status =
            tsr_tensor_download(m->job->stream, sum, sums, (uint64_t)l->shape[1] * sizeof *sums);
    tsr_tensor_destroy(&probabilities);
    tsr_tensor_destroy(&sum);
    return status;
}

static tsr_status count_ids(const training_model *m, const tsr_tensor *ids, double *counts)
{
    const int64_t count = tsr_layout_count(tsr_tensor_layout(ids));
    int32_t *all = cli_alloc((size_t)count, sizeof *all);
    const tsr_status status =
        tsr_tensor_download(m->job->stream, ids, all, (uint64_t)count * sizeof *all);
    for (int64_t i = 0; i < count && status == TSR_OK; i++)
        counts[all[i]]++;
    free(all);
    return status;
}

/* Counts the choices of a block of this stage. All tensor-parallel ranks choose alike, so one of
 * them counts. */
static tsr_status count_block(const training_model *m, const tsr_stack_saved *saved, int block,
                              training_choices *out)
{
    const int layer = m->first_layer + block;
    const int64_t experts = experts_of(m, layer), at = layer * m->experts;
    tsr_moe_choice choice = TSR_INIT(tsr_moe_choice);
    if (experts == 0 || tsr_group_rank(m->job->tensor_group) != 0)
        return TSR_OK;
    TRY(tsr_stack_get_choice(saved, block, &choice));
    TRY(count_ids(m, choice.ids, out->sent + at));
    float *sums = cli_alloc((size_t)experts, sizeof *sums);
    const tsr_status status = sum_probabilities(m, choice.logits, sums);
    double *all = out->sent + m->config->layers * m->experts + at;
    for (int64_t e = 0; e < experts && status == TSR_OK; e++)
        all[e] = (double)sums[e];
    free(sums);
    return status;
}

tsr_status training_experts_count(training_model *m, const tsr_stack_saved *saved,
                                  training_choices *out)
{
    const size_t count = 2 * (size_t)m->config->layers * (size_t)m->experts;
    if (count == 0)
        return TSR_OK;
    out->sent = cli_alloc(count, sizeof *out->sent);
    out->sums = cli_alloc(count, sizeof *out->sums);
    for (int b = 0; b < m->layer_count; b++)
        TRY(count_block(m, saved, b, out));
    return tsr_comm_all_reduce(m->job->world, out->sent, out->sums, count, TSR_F64, TSR_OP_SUM,
                               &out->request);
}

void training_experts_forget(training_choices *choices)
{
    tsr_request_cancel(&choices->request);
    free(choices->sent);
    free(choices->sums);
    *choices = (training_choices){0};
}

/* Balance -------------------------------------------------------------------------------------- */

/* Computes the auxiliary loss over the tokens of all layers together, experts · Σ f_e · P_e, and
 * its gradient with respect to each token's probability of expert e. */
static double auxiliary_loss(const training_model *m, const double *sums, float *gradient)
{
    const training_options *o = &training_chosen;
    const int64_t layers = m->config->layers, experts = m->experts;
    const int64_t rows = o->batch / o->accumulate;
    const double tokens = (double)rows * (double)o->context;
    const double *probabilities = sums + layers * experts;
    double aux = 0, with = 0;
    for (int l = 0; l < layers; l++)
        with += experts_of(m, l) > 0 ? tokens : 0;
    for (int64_t e = 0; e < experts; e++) {
        double chosen = 0, probability = 0;
        for (int64_t l = 0; l < layers; l++) {
            chosen += sums[l * experts + e];
            probability += probabilities[l * experts + e];
        }
        aux += (double)experts * chosen / with * probability / with;
        gradient[e] =
            (float)(o->balance * (double)experts * chosen / with / with / (double)o->accumulate);
    }
    return aux;
}

tsr_status training_experts_balance(training_model *m, training_choices *choices, bool first)
{
    const training_options *o = &training_chosen;
    const int64_t layers = m->config->layers, experts = m->experts;
    if (choices->sums == NULL)
        return TSR_OK;
    TRY(tsr_request_wait(&choices->request));
    float *gradient = cli_alloc((size_t)experts, sizeof *gradient);
    const double aux = auxiliary_loss(m, choices->sums, gradient);
    m->auxiliary = (first ? 0 : m->auxiliary) + aux / (double)o->accumulate;
    for (int64_t i = 0; i < layers * experts; i++)
        m->loads[i] = (first ? 0 : m->loads[i]) + choices->sums[i];
    tsr_status status = TSR_OK;
    if (o->balance > 0)
        status = tsr_tensor_upload(m->job->stream, m->balance, gradient,
                                   (uint64_t)experts * sizeof *gradient);
    free(gradient);
    for (int b = 0; b < m->layer_count && o->balance > 0; b++)
        if (status == TSR_OK && experts_of(m, m->first_layer + b) > 0)
            status = tsr_moe_set_balance(tsr_stack_block(m->stack, b), m->balance);
    return status;
}

/* Biases --------------------------------------------------------------------------------------- */

tsr_status training_experts_shift(training_model *m)
{
    const float rate = (float)training_chosen.bias_rate;
    if (m->experts == 0 || rate == 0)
        return TSR_OK;
    const float **changes = cli_alloc((size_t)m->layer_count, sizeof *changes);
    float *all = cli_alloc((size_t)m->layer_count * (size_t)m->experts, sizeof *all);
    for (int b = 0; b < m->layer_count; b++) {
        const int64_t experts = experts_of(m, m->first_layer + b);
        const double *load = m->loads + (m->first_layer + b) * m->experts;
        double mean = 0;
        for (int64_t e = 0; e < experts; e++)
            mean += load[e] / (double)experts;
        for (int64_t e = 0; e < experts; e++)
            all[b * m->experts + e] = rate * (float)((load[e] < mean) - (load[e] > mean));
        changes[b] = experts > 0 ? all + b * m->experts : NULL;
    }
    const tsr_status status = tsr_stack_add_choice_biases(m->stack, changes);
    free(all);
    free(changes);
    return status;
}
