/* Makes one candidate: which share of the model each of its ranks has, how its blocks are divided
 * over stages, and how long a step takes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "planner/search.h"
#include "tessera/pipeline.h"

/* The share of the model that a rank has ------------------------------------------------------- */

/* Returns the description of the rank's first layer with attention, of which the plan of a rank
 * gives the sizes; or of its first layer. */
static const tsr_model_layer *layer_of(const tsr_model_config *m, const tsr_model_rank_plan *rank)
{
    for (int i = rank->first_layer; m->layer_kinds && i < rank->first_layer + rank->layers; i++)
        if (m->kinds[m->layer_kinds[i]]->heads > 0)
            return m->kinds[m->layer_kinds[i]];
    return m->kinds[m->layer_kinds ? m->layer_kinds[rank->first_layer] : 0];
}

/* Returns the model's first kind of layer with experts, or NULL. */
static const tsr_model_experts *experts_of(const tsr_model_config *m)
{
    for (int i = 0; i < m->kind_count; i++)
        if (m->kinds[i]->experts)
            return m->kinds[i]->experts;
    return NULL;
}

/* Returns the hidden features that a rank computes for a row: of the experts that the row uses, as
 * large a part as the rank has of all. */
static double hidden_of(const tsr_model_config *m, const tsr_model_rank_plan *rank)
{
    const tsr_model_experts *e = experts_of(m);
    return e ? (double)(rank->experts * rank->expert_hidden * e->used) / (double)e->count
             : (double)rank->hidden;
}

/* Returns the features of a head's key and value. */
static double head_features(const tsr_model_config *m, const tsr_model_rank_plan *rank)
{
    const tsr_model_layer *layer = layer_of(m, rank);
    return (double)(layer->head_dim + layer->value_dim);
}

/* Returns the bytes that a block keeps for the backward pass of a row, in f32: the inputs of both
 * norms, q, k, v, the output of attention, the values inside the MLP, and the sums after the
 * residual connections. */
static double activation_bytes(const tsr_model_config *m, const tsr_model_rank_plan *rank)
{
    const double whole = 6 * (double)m->width,
                 attention = (double)(rank->heads + rank->kv_heads) * head_features(m, rank),
                 mlp = (layer_of(m, rank)->gated ? 4 : 3) * hidden_of(m, rank);
    return sizeof(float) * (whole + attention + mlp);
}

/* Returns the operations of an average block for a row, without products with weights. On average,
 * a row attends to half of the context; keys and values take 2 operations each. The delta rule
 * takes about 6 for each number of a state. */
static double attention_flops(const tsr__grid_search *s, const tsr_model_rank_plan *rank)
{
    const tsr_model_config *m = s->config;
    int with_attention = 0;
    for (int i = 0; i < m->layers; i++)
        with_attention += m->kinds[m->layer_kinds ? m->layer_kinds[i] : 0]->heads > 0;
    const double part = (double)with_attention / (double)m->layers,
                 states =
                     (double)rank->used_state_bytes / sizeof(float) / (double)s->work.sequences;
    return part * 2 * (s->work.context / 2) * (double)rank->heads * head_features(m, rank) +
           6 * states / (double)m->layers;
}

static tsr__model_share share_of(const tsr__grid_search *s, const tsr_model_rank_plan *rank)
{
    const tsr_model_config *m = s->config;
    const tsr_model_experts *experts = experts_of(m);
    const double head = (double)rank->vocabulary * (double)m->width;
    return (tsr__model_share){
        .block_bytes = (double)(rank->attention_bytes + rank->mlp_bytes + rank->norm_bytes),
        .block_parameters = fmax((double)rank->token_parameters - head, 0),
        .expert_bytes = (double)rank->expert_bytes,
        .expert_parameters = (double)rank->expert_parameters,
        .expert_skew = rank->expert_skew,
        .host_bytes = (double)rank->host_bytes,
        .expert_use = experts ? (double)experts->used / (double)experts->count : 0,
        .embedding_bytes = (double)rank->embedding_bytes,
        .head_bytes = (double)(m->tied ? rank->embedding_bytes : rank->head_bytes),
        .head_parameters = head,
        .cache_bytes = (double)rank->cache_bytes,
        .state_bytes = (double)rank->state_bytes,
        .used_state_bytes = (double)rank->used_state_bytes,
        .activation_bytes = activation_bytes(m, rank),
        .kv_bytes = sizeof(float) * (double)rank->kv_heads * head_features(m, rank),
        .kv_heads = rank->kv_heads,
        .attention_flops = attention_flops(s, rank),
        .tied = m->tied,
    };
}

/* Returns a candidate's grid whose stage s has blocks[s] blocks. */
static tsr__grid grid_of(const tsr__grid_candidate *c, const tsr__model_share *model_shares,
                         const int *blocks)
{
    return (tsr__grid){.data = c->data,
                       .tensor = c->tensor,
                       .stages = c->stages,
                       .ranks = c->ranks,
                       .sharded = c->sharded,
                       .blocks = blocks,
                       .model_shares = model_shares};
}

static bool is_training(const tsr__grid_search *s)
{
    return s->work.goal == TSR_PLAN_TRAINING;
}

/* Returns whether measured passes of a rank count. They are not measured for training. */
static bool has_passes(const tsr__grid_search *s, const tsr__cluster_rank *rank)
{
    return rank->passes > 0 && !is_training(s);
}

/* Returns the measured pass of a rank with as many rows as a pass of the candidate has. */
static tsr__measured_pass pass_of(const tsr__grid_search *s, const tsr__grid_candidate *c,
                                  const tsr__cluster_rank *rank)
{
    const tsr__grid grid = grid_of(c, NULL, NULL);
    return tsr__pass_of(rank, tsr__rows_of_pass(&s->work, &grid));
}

/* Returns the speed of a rank, in proportion to which it gets work: if its passes were measured,
 * the inverse of the time for its part of a layer in a group of equal ranks. */
static double speed_of(const tsr__grid_search *s, const tsr__grid_candidate *c, int rank)
{
    const tsr__cluster_rank *r = &s->cluster->rank[rank];
    if (!has_passes(s, r))
        return s->work.goal == TSR_PLAN_GENERATION ? r->bandwidth : r->flops;
    const tsr__measured_pass pass = pass_of(s, c, r);
    const double expert = pass.expert_element > 0 ? pass.expert_element : pass.element,
                 others = s->layer_parameters - s->layer_expert_parameters;
    return 1 /
           (pass.layer + (pass.element * others + expert * s->layer_expert_parameters) / c->tensor);
}

/* Measured speeds of equal ranks differ by noise. If those of all ranks of a candidate differ by no
 * more than this, all count as equal. */
#define NOISE 1.1

/* Sets the proportions of a training: the speed of the slowest rank at each place of a
 * tensor-parallel group. */
static void set_proportions(tsr__grid_candidate *c)
{
    for (int column = 0; column < c->tensor; column++) {
        c->proportions[column] = c->rates[column];
        for (int row = c->tensor; row < c->count; row += c->tensor)
            c->proportions[column] = fmin(c->proportions[column], c->rates[row + column]);
    }
}

/* Returns the rates by which the ranks of a tensor-parallel group divide the model. */
static const double *group_rates(const tsr__grid_search *s, const tsr__grid_candidate *c, int first)
{
    return is_training(s) ? c->proportions : &c->rates[first];
}

/* Sets the rates of the ranks of a candidate: their speeds in relation to the slowest one, with the
 * three digits that are printed, so that programs which get them as an option divide the model in
 * the same way. */
static void set_rates(const tsr__grid_search *s, tsr__grid_candidate *c)
{
    double least = INFINITY, most = 0;
    bool measured = true;
    for (int i = 0; i < c->count; i++) {
        c->rates[i] = speed_of(s, c, c->ranks[i]);
        least = fmin(least, c->rates[i]);
        most = fmax(most, c->rates[i]);
        measured = measured && s->cluster->rank[c->ranks[i]].passes > 0;
    }
    const bool equal = measured && most <= NOISE * least;
    for (int i = 0; i < c->count; i++) {
        char text[32];
        snprintf(text, sizeof text, "%.3g", c->rates[i] / least);
        c->rates[i] = equal ? 1 : strtod(text, NULL);
    }
    if (is_training(s))
        set_proportions(c);
    for (int i = 0; i < c->count; i++) {
        const double *rates = group_rates(s, c, i - i % c->tensor);
        c->by_rates = c->by_rates || rates[i % c->tensor] != rates[0];
    }
}

/* Sets hosts[tensor] to numbers of the hosts of a tensor-parallel group's ranks. A host has the
 * number of its first rank in the group. */
static void number_hosts(const tsr__grid_search *s, const tsr__grid_candidate *c, int first,
                         int *hosts)
{
    for (int i = 0; i < c->tensor; i++) {
        const int host = s->cluster->rank[c->ranks[first + i]].host;
        hosts[i] = 0;
        while (s->cluster->rank[c->ranks[first + hosts[i]]].host != host)
            hosts[i]++;
    }
}

/* Computes the share of the model that each rank of a tensor-parallel group has. */
static tsr_status divide_group(const tsr__grid_search *s, tsr__grid_candidate *c, int first,
                               tsr__model_share *out)
{
    tsr_model_rank_plan *plans = tsr__calloc((size_t)c->tensor, sizeof *plans);
    int *hosts = tsr__calloc((size_t)c->tensor, sizeof *hosts);
    if (!plans || !hosts) {
        tsr__free(plans);
        tsr__free(hosts);
        return TSR_ERR_NO_MEMORY;
    }
    number_hosts(s, c, first, hosts);
    for (int i = 0; i < c->tensor; i++)
        plans[i] = TSR_INIT(tsr_model_rank_plan);
    const tsr_partition_params partition = {.struct_size = sizeof partition,
                                            .kind = c->by_rates ? TSR_PARTITION_WEIGHTED
                                                                : TSR_PARTITION_UNEVEN,
                                            .rates = c->by_rates ? group_rates(s, c, first) : NULL};
    const tsr_status status = tsr_model_plan(
        s->model,
        tsr_model_plan_params(.ranks = c->tensor, .dtype = is_training(s) ? TSR_F32 : s->dtype,
                              .partition = &partition, .context = s->context,
                              .sequences = s->work.sequences, .cache_dtype = s->cache_dtype,
                              .expert_division = s->experts, .host_experts = s->host_experts,
                              .hosts = is_training(s) ? NULL : hosts),
        NULL, plans, NULL);
    for (int i = 0; i < c->tensor && status == TSR_OK; i++)
        out[i] = share_of(s, &plans[i]);
    if (first == 0)
        c->experts = plans[0].expert_division;
    c->mixed = c->mixed || plans[0].expert_division == TSR_EXPERT_DIVISION_MIXED;
    tsr__free(plans);
    tsr__free(hosts);
    return status;
}

tsr_status tsr__grid_count_layer(tsr__grid_search *s)
{
    tsr_model_rank_plan whole = TSR_INIT(tsr_model_rank_plan);
    TSR__TRY(tsr_model_plan(s->model, tsr_model_plan_params(.ranks = 1, .context = s->context),
                            NULL, &whole, NULL));
    s->layer_parameters = share_of(s, &whole).block_parameters / s->config->layers;
    s->layer_expert_parameters = (double)whole.expert_parameters / s->config->layers;
    return TSR_OK;
}

/* Blocks of stages ----------------------------------------------------------------------------- */

/* Returns how many bytes a rank would need in addition to the memory that it has. */
static double missing_bytes(const tsr__grid_search *s, const tsr__grid_candidate *c, int place,
                            double memory)
{
    const uint64_t limit = s->cluster->rank[c->ranks[place]].memory;
    return limit > 0 && memory > (double)limit ? memory - (double)limit : 0;
}

/* Returns how many blocks fit into the memory of all ranks of a stage. The function overwrites
 * blocks[stage]. */
static uint64_t most_blocks(const tsr__grid_search *s, const tsr__grid_candidate *c,
                            const tsr__model_share *model_shares, int stage, int *blocks)
{
    const int each = c->count / c->stages;
    const tsr__grid grid = grid_of(c, model_shares, blocks);
    for (int count = s->work.layers; count > 0; count--) {
        bool fits = true;
        blocks[stage] = count;
        for (int place = stage * each; place < (stage + 1) * each && fits; place++)
            fits = missing_bytes(s, c, place, tsr__grid_memory(&s->work, &grid, place)) == 0;
        if (fits)
            return (uint64_t)count;
    }
    return 0;
}

/* Divides the blocks by rates, with blocks for which there is memory as limits. Changes nothing if
 * they do not fit. */
static tsr_status divide_within(const tsr_pipeline_divide_params *by_rates, const uint64_t *limits,
                                int *blocks)
{
    tsr_pipeline_divide_params params = *by_rates;
    params.memory_bytes = limits;
    params.block_bytes = 1;
    const tsr__error before = tsr__error_take();
    const tsr_status status = tsr_pipeline_divide(&params, blocks);
    if (status != TSR_OK && status != TSR_ERR_DEVICE_MEMORY)
        return status;
    tsr__error_put_back(&before);
    return TSR_OK;
}

/* If stages have too many blocks for their memory, divides the blocks again, with the memory as a
 * limit. Changes nothing if the model does not fit then either. */
static tsr_status move_blocks(const tsr__grid_search *s, const tsr__grid_candidate *c,
                              const tsr__model_share *model_shares,
                              const tsr_pipeline_divide_params *by_rates)
{
    uint64_t *limits = tsr__calloc((size_t)c->stages, sizeof *limits);
    int *blocks = tsr__calloc((size_t)c->stages, sizeof *blocks);
    bool possible = true, needed = false;
    tsr_status status = limits && blocks ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int stage = 0; status == TSR_OK && stage < c->stages; stage++) {
        limits[stage] = most_blocks(s, c, model_shares, stage, blocks);
        possible = possible && limits[stage] > 0;
        needed = needed || (uint64_t)c->blocks[stage] > limits[stage];
    }
    if (status == TSR_OK && needed && possible)
        status = divide_within(by_rates, limits, c->blocks);
    tsr__free(limits);
    tsr__free(blocks);
    return status;
}

/* Returns how many blocks take as long as the head, on the first rank of the last stage. */
static double head_blocks(const tsr__grid_search *s, const tsr__grid_candidate *c,
                          const tsr__model_share *model_shares)
{
    const int place = c->count - c->count / c->stages;
    const tsr__model_share *held = &model_shares[place];
    const tsr__cluster_rank *rank = &s->cluster->rank[c->ranks[place]];
    const double block = held->block_parameters / s->work.layers;
    if (s->work.goal == TSR_PLAN_PROMPT || block <= 0)
        return 0;
    if (!has_passes(s, rank))
        return held->head_parameters / block;
    const tsr__measured_pass pass = pass_of(s, c, rank);
    return (pass.head + held->head_parameters * pass.head_element) /
           (pass.layer + block * pass.element);
}

/* Returns the speed of a tensor-parallel group: how much work it does in the time in which its
 * slowest rank, in relation to its share, does its share. If the shares are in proportion to the
 * speeds, this is the sum of the speeds. */
static double group_speed(const tsr__grid_search *s, const tsr__grid_candidate *c, int first)
{
    const double *rates = group_rates(s, c, first);
    double sum = 0, slowest = INFINITY;
    for (int column = 0; column < c->tensor; column++) {
        sum += rates[column];
        slowest = fmin(slowest, c->rates[first + column] / rates[column]);
    }
    return sum * slowest;
}

/* Divides the blocks among stages by their rates and memory. The rate of a stage is that of its
 * slowest tensor-parallel group. The head counts as additional blocks of the last stage. */
static tsr_status divide_blocks(const tsr__grid_search *s, const tsr__grid_candidate *c,
                                const tsr__model_share *model_shares)
{
    double *rates = tsr__calloc((size_t)c->stages, sizeof *rates);
    if (!rates)
        return TSR_ERR_NO_MEMORY;
    for (int stage = 0; stage < c->stages; stage++) {
        rates[stage] = INFINITY;
        for (int row = 0; row < c->data; row++)
            rates[stage] =
                fmin(rates[stage], group_speed(s, c, (stage * c->data + row) * c->tensor));
    }
    const tsr_pipeline_divide_params params = {.struct_size = sizeof params,
                                               .blocks = s->work.layers,
                                               .stages = c->stages,
                                               .rates = rates,
                                               .last_cost = head_blocks(s, c, model_shares)};
    tsr_status status = tsr_pipeline_divide(&params, c->blocks);
    if (status == TSR_OK && c->stages > 1)
        status = move_blocks(s, c, model_shares, &params);
    tsr__free(rates);
    return status;
}

/* Candidates ----------------------------------------------------------------------------------- */

static tsr_status predict_candidate(const tsr__grid_search *s, const tsr__model_share *model_shares,
                                    tsr__grid_candidate *c)
{
    const tsr__grid grid = grid_of(c, model_shares, c->blocks);
    TSR__TRY(tsr__predict(s->cluster, &s->work, &grid, &c->predicted));
    c->sharing = tsr__sharing_of(s->cluster, c->count, c->ranks);
    for (int place = 0; place < c->count; place++) {
        const double memory = tsr__grid_memory(&s->work, &grid, place),
                     missing = missing_bytes(s, c, place, memory);
        c->memory[place] = tsr__whole_bytes(memory);
        if (missing > c->missing_bytes) {
            c->missing_bytes = missing;
            c->missing_place = place;
        }
    }
    return TSR_OK;
}

void tsr__grid_candidate_free(tsr__grid_candidate *c)
{
    tsr__free(c->ranks);
    tsr__free(c->blocks);
    tsr__free(c->memory);
    tsr__free(c->rates);
    tsr__free(c->proportions);
}

static tsr_status allocate(tsr__grid_candidate *c)
{
    c->ranks = tsr__calloc((size_t)c->count, sizeof *c->ranks);
    c->blocks = tsr__calloc((size_t)c->stages, sizeof *c->blocks);
    c->memory = tsr__calloc((size_t)c->count, sizeof *c->memory);
    c->rates = tsr__calloc((size_t)c->count, sizeof *c->rates);
    c->proportions = tsr__calloc((size_t)c->tensor, sizeof *c->proportions);
    return c->ranks && c->blocks && c->memory && c->rates && c->proportions ? TSR_OK
                                                                            : TSR_ERR_NO_MEMORY;
}

tsr_status tsr__grid_candidate_make(const tsr__grid_search *s, const int *ranks,
                                    const tsr__grid_candidate *shape, tsr__grid_candidate *out)
{
    tsr__grid_candidate c = *shape;
    c.count = c.data * c.tensor * c.stages;
    tsr__model_share *model_shares = tsr__calloc((size_t)c.count, sizeof *model_shares);
    tsr_status status = model_shares ? allocate(&c) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        memcpy(c.ranks, ranks, (size_t)c.count * sizeof *ranks);
        set_rates(s, &c);
    }
    for (int first = 0; first < c.count && status == TSR_OK; first += c.tensor)
        status = divide_group(s, &c, first, model_shares + first);
    if (status == TSR_OK)
        status = divide_blocks(s, &c, model_shares);
    if (status == TSR_OK)
        status = predict_candidate(s, model_shares, &c);
    tsr__free(model_shares);
    if (status == TSR_OK)
        *out = c;
    else
        tsr__grid_candidate_free(&c);
    return status;
}
