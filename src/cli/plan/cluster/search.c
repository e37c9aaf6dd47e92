#include "cli/plan/cluster/search.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "tessera/pipeline.h"

/* With more hosts than this, only all hosts together and each host alone are tried. */
#define MAX_SUBSET_HOSTS 6

/* The ranks from which one set of candidates is made: each grid uses all of them. */
typedef struct pool {
    int count;
    int ranks[PLAN_MAX_CLUSTER_RANKS];
} pool;

/* What a rank has of the model ----------------------------------------------------------------- */

/* Returns the bytes that a block keeps for the backward pass of a row, in f32: the inputs of both
 * norms, q, k, v, the output of attention, the values inside the MLP, and the sums after the
 * residual connections. */
static double activation_bytes(const tsr_model_config *m, const tsr_model_rank_plan *rank)
{
    const double whole = 6 * (double)m->width,
                 attention = (2 * (double)rank->heads + 2 * (double)rank->kv_heads) *
                             (double)m->kinds[0].head_dim,
                 mlp = (m->kinds[0].gated ? 4 : 3) * (double)rank->hidden;
    return sizeof(float) * (whole + attention + mlp);
}

static plan_part part_of(const plan_search *s, const tsr_model_config *m,
                         const tsr_model_rank_plan *rank)
{
    const double head = (double)rank->vocabulary * (double)m->width,
                 /* on average, a row attends to half of the context; keys and values take 2
                  * operations each */
        seen = s->work.context / 2;
    return (plan_part){
        .block_bytes = (double)(rank->attention_bytes + rank->mlp_bytes + rank->norm_bytes),
        .block_parameters = fmax((double)rank->token_parameters - head, 0),
        .embedding_bytes = (double)rank->embedding_bytes,
        .head_bytes = (double)(m->tied ? rank->embedding_bytes : rank->head_bytes),
        .head_parameters = head,
        .cache_bytes = (double)rank->cache_bytes,
        .activation_bytes = activation_bytes(m, rank),
        .attention_flops = 4 * seen * (double)rank->heads * (double)m->kinds[0].head_dim,
        .tied = m->tied,
    };
}

/* The grid whose stage s has blocks[s] blocks. */
static plan_grid grid_of(const plan_candidate *c, const plan_part *parts, const int *blocks)
{
    return (plan_grid){.data = c->data,
                       .tensor = c->tensor,
                       .stages = c->stages,
                       .ranks = c->ranks,
                       .sharded = c->sharded,
                       .blocks = blocks,
                       .parts = parts};
}

static bool is_training(const plan_search *s)
{
    return s->work.goal == PLAN_TRAINING;
}

/* Returns whether measured passes of a rank count. They are not measured for training. */
static bool has_passes(const plan_search *s, const plan_rank *rank)
{
    return rank->passes > 0 && !is_training(s);
}

/* Returns the measured pass of a rank with as many rows as a pass of the candidate has. */
static plan_pass pass_of(const plan_search *s, const plan_candidate *c, const plan_rank *rank)
{
    const plan_grid grid = grid_of(c, NULL, NULL);
    return plan_pass_of(rank, plan_rows_of_pass(&s->work, &grid));
}

/* Returns the speed of a rank, in proportion to which it gets work: if its passes were measured,
 * the inverse of the time for its part of a layer in a group of equal ranks. */
static double speed_of(const plan_search *s, const plan_candidate *c, int rank)
{
    const plan_rank *r = &s->cluster->rank[rank];
    if (!has_passes(s, r))
        return s->work.goal == PLAN_GENERATION ? r->bandwidth : r->flops;
    const plan_pass pass = pass_of(s, c, r);
    return 1 / (pass.layer + pass.element * s->layer_parameters / c->tensor);
}

/* Measured speeds of equal ranks differ by noise. If those of all ranks of a candidate differ by no
 * more than this, all count as equal. */
#define NOISE 1.1

/* Sets the shares of a training: the speed of the slowest rank at each place of a tensor-parallel
 * group. */
static void set_shares(plan_candidate *c)
{
    for (int column = 0; column < c->tensor; column++) {
        c->shares[column] = c->rates[column];
        for (int row = c->tensor; row < c->count; row += c->tensor)
            c->shares[column] = fmin(c->shares[column], c->rates[row + column]);
    }
}

/* Returns the rates by which the ranks of a tensor-parallel group divide the model. */
static const double *group_rates(const plan_search *s, const plan_candidate *c, int first)
{
    return is_training(s) ? c->shares : &c->rates[first];
}

/* Sets the rates of the ranks of a candidate: their speeds in relation to the slowest one, with the
 * three digits that are printed, so that programs which get them as an option divide the model in
 * the same way. */
static void set_rates(const plan_search *s, plan_candidate *c)
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
        snprintf(text, sizeof text, PLAN_RATE_FORMAT, c->rates[i] / least);
        c->rates[i] = equal ? 1 : strtod(text, NULL);
    }
    if (is_training(s))
        set_shares(c);
    for (int i = 0; i < c->count; i++) {
        const double *rates = group_rates(s, c, i - i % c->tensor);
        c->by_rates = c->by_rates || rates[i % c->tensor] != rates[0];
    }
}

/* Computes the part of the model that each rank of a tensor-parallel group has. */
static tsr_status divide_row(const plan_search *s, const tsr_model_config *m,
                             const plan_candidate *c, int row, plan_part *out)
{
    tsr_model_rank_plan *plans = cli_alloc((size_t)c->tensor, sizeof *plans);
    const tsr_status status = tsr_model_plan(
        s->file,
        tsr_model_plan_params(.ranks = c->tensor, .dtype = is_training(s) ? TSR_F32 : s->dtype,
                              .partition = {.kind = c->by_rates ? TSR_PARTITION_WEIGHTED
                                                                : TSR_PARTITION_UNEVEN,
                                            .rates = c->by_rates ? group_rates(s, c, row) : NULL},
                              .context = s->context, .sequences = s->work.sequences,
                              .cache_dtype = s->cache_dtype),
        NULL, plans, NULL);
    for (int i = 0; i < c->tensor && status == TSR_OK; i++)
        out[i] = part_of(s, m, &plans[i]);
    free(plans);
    return status;
}

/* Candidates ----------------------------------------------------------------------------------- */

/* Returns how many bytes a rank would need in addition to the memory that it has. */
static double missing_bytes(const plan_search *s, const plan_candidate *c, int place, double memory)
{
    const uint64_t limit = s->cluster->rank[c->ranks[place]].memory;
    return limit > 0 && memory > (double)limit ? memory - (double)limit : 0;
}

/* Returns how many blocks fit into the memory of all ranks of a stage. The function overwrites
 * blocks[stage]. */
static uint64_t most_blocks(const plan_search *s, const plan_candidate *c, const plan_part *parts,
                            int stage, int *blocks)
{
    const int each = c->count / c->stages;
    const plan_grid grid = grid_of(c, parts, blocks);
    for (int count = s->work.layers; count > 0; count--) {
        bool fits = true;
        blocks[stage] = count;
        for (int place = stage * each; place < (stage + 1) * each && fits; place++)
            fits = missing_bytes(s, c, place, plan_memory(&s->work, &grid, place)) == 0;
        if (fits)
            return (uint64_t)count;
    }
    return 0;
}

/* If stages have too many blocks for their memory, divides the blocks again, with the memory as a
 * limit. Changes nothing if the model does not fit then either. */
static tsr_status move_blocks(const plan_search *s, const plan_candidate *c, const plan_part *parts,
                              const tsr_pipeline_divide_params *by_rates)
{
    uint64_t *limits = cli_alloc((size_t)c->stages, sizeof *limits);
    int *blocks = cli_alloc((size_t)c->stages, sizeof *blocks);
    tsr_pipeline_divide_params params = *by_rates;
    bool possible = true, needed = false;
    for (int stage = 0; stage < c->stages; stage++) {
        limits[stage] = most_blocks(s, c, parts, stage, blocks);
        possible = possible && limits[stage] > 0;
        needed = needed || (uint64_t)c->blocks[stage] > limits[stage];
    }
    params.memory_bytes = limits;
    params.block_bytes = 1;
    tsr_status status = TSR_OK;
    if (needed && possible)
        status = tsr_pipeline_divide(&params, c->blocks);
    free(limits);
    free(blocks);
    return status == TSR_ERR_DEVICE_MEMORY ? TSR_OK : status;
}

/* Returns how many blocks take as long as the head, on the first rank of the last stage. */
static double head_blocks(const plan_search *s, const plan_candidate *c, const plan_part *parts)
{
    const int place = c->count - c->count / c->stages;
    const plan_part *part = &parts[place];
    const plan_rank *rank = &s->cluster->rank[c->ranks[place]];
    const double block = part->block_parameters / s->work.layers;
    if (s->work.goal == PLAN_PROMPT || block <= 0)
        return 0;
    if (!has_passes(s, rank))
        return part->head_parameters / block;
    const plan_pass pass = pass_of(s, c, rank);
    return (pass.head + part->head_parameters * pass.head_element) /
           (pass.layer + block * pass.element);
}

/* Returns the speed of a tensor-parallel group: how much work it does in the time in which its
 * slowest rank, in relation to its share, does its share. If the shares are in proportion to the
 * speeds, this is the sum of the speeds. */
static double group_speed(const plan_search *s, const plan_candidate *c, int first)
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
static tsr_status divide_blocks(const plan_search *s, const plan_candidate *c,
                                const plan_part *parts)
{
    double *rates = cli_alloc((size_t)c->stages, sizeof *rates);
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
                                               .last_cost = head_blocks(s, c, parts)};
    tsr_status status = tsr_pipeline_divide(&params, c->blocks);
    if (status == TSR_OK && c->stages > 1)
        status = move_blocks(s, c, parts, &params);
    free(rates);
    return status;
}

static void judge(const plan_search *s, const plan_part *parts, plan_candidate *c)
{
    const plan_grid grid = grid_of(c, parts, c->blocks);
    plan_predict(s->cluster, &s->work, &grid, &c->predicted);
    c->sharing = plan_sharing_of(s->cluster, c->count, c->ranks);
    for (int place = 0; place < c->count; place++) {
        c->memory[place] = plan_memory(&s->work, &grid, place);
        const double missing = missing_bytes(s, c, place, c->memory[place]);
        if (missing > c->missing_bytes) {
            c->missing_bytes = missing;
            c->missing_place = place;
        }
    }
}

static void free_candidate(plan_candidate *c)
{
    free(c->ranks);
    free(c->blocks);
    free(c->memory);
    free(c->rates);
    free(c->shares);
}

static tsr_status make(const plan_search *s, const tsr_model_config *m, const pool *from,
                       const plan_candidate *shape, plan_candidate *out)
{
    *out = *shape;
    out->count = out->data * out->tensor * out->stages;
    out->ranks = cli_alloc((size_t)out->count, sizeof *out->ranks);
    out->blocks = cli_alloc((size_t)out->stages, sizeof *out->blocks);
    out->memory = cli_alloc((size_t)out->count, sizeof *out->memory);
    out->rates = cli_alloc((size_t)out->count, sizeof *out->rates);
    out->shares = cli_alloc((size_t)out->tensor, sizeof *out->shares);
    memcpy(out->ranks, from->ranks, (size_t)out->count * sizeof *out->ranks);
    plan_part *parts = cli_alloc((size_t)out->count, sizeof *parts);
    tsr_status status = TSR_OK;
    set_rates(s, out);
    for (int row = 0; row < out->count && status == TSR_OK; row += out->tensor)
        status = divide_row(s, m, out, row, parts + row);
    if (status == TSR_OK)
        status = divide_blocks(s, out, parts);
    if (status == TSR_OK)
        judge(s, parts, out);
    free(parts);
    if (status != TSR_OK)
        free_candidate(out);
    return status;
}

/* Returns whether the model and the batch can be divided in this way. */
static bool is_possible(const plan_search *s, const tsr_model_config *m, const plan_candidate *c)
{
    if (c->tensor > m->kinds[0].heads || c->stages > m->layers)
        return false;
    return is_training(s) ? s->work.sequences % c->data == 0 : c->data == 1;
}

static tsr_status add_shape(const plan_search *s, const tsr_model_config *m, const pool *from,
                            const plan_candidate *shape, plan_candidates *out)
{
    if (!is_possible(s, m, shape))
        return TSR_OK;
    out->all = cli_resize(out->all, (size_t)out->count + 1, sizeof *out->all);
    const tsr_status status = make(s, m, from, shape, &out->all[out->count]);
    out->count += status == TSR_OK;
    return status;
}

/* Adds all grids that use all ranks of a pool. */
static tsr_status add_pool(const plan_search *s, const tsr_model_config *m, const pool *from,
                           plan_candidates *out)
{
    tsr_status status = TSR_OK;
    for (int stages = 1; stages <= from->count; stages++)
        for (int data = 1; data <= from->count / stages; data++) {
            if (from->count % (stages * data) != 0)
                continue;
            plan_candidate shape = {
                .data = data, .tensor = from->count / stages / data, .stages = stages};
            for (int sharded = 0; sharded <= (data > 1) && status == TSR_OK; sharded++) {
                shape.sharded = sharded;
                status = add_shape(s, m, from, &shape, out);
            }
        }
    return status;
}

static void add_host(const plan_cluster *c, int host, pool *out)
{
    for (int i = 0; i < c->ranks; i++)
        if (c->rank[i].host == host)
            out->ranks[out->count++] = i;
}

/* Returns the ranks of the hosts whose bits are set, or of all hosts. */
static pool pool_of(const plan_cluster *c, unsigned hosts, bool all)
{
    pool out = {0};
    for (int host = 0; host < c->hosts; host++)
        if (all || hosts >> host & 1u)
            add_host(c, host, &out);
    return out;
}

/* Returns whether the time of this rank alone can be predicted, which needs a processor for it. */
static bool has_processor(const plan_cluster *c, int rank)
{
    return !plan_sharing_of(c, 1, &rank).is_part;
}

/* Returns whether an earlier rank makes a candidate of this rank alone superfluous: it has the same
 * properties, and its time can be predicted if this rank's time can. */
static bool is_known(const plan_cluster *c, int rank)
{
    const plan_rank *r = &c->rank[rank];
    const bool predicted = has_processor(c, rank);
    for (int i = 0; i < rank; i++)
        if (has_processor(c, i) >= predicted && c->rank[i].flops == r->flops &&
            c->rank[i].bandwidth == r->bandwidth && c->rank[i].memory == r->memory &&
            c->rank[i].layer_seconds == r->layer_seconds)
            return true;
    return false;
}

static tsr_status add_all(const plan_search *s, const tsr_model_config *m, plan_candidates *out)
{
    const plan_cluster *c = s->cluster;
    const bool subsets = c->hosts <= MAX_SUBSET_HOSTS;
    tsr_status status = TSR_OK;
    for (int rank = 0; rank < c->ranks && status == TSR_OK; rank++)
        if (!is_known(c, rank) && c->ranks > 1) {
            const pool alone = {1, {rank}};
            status = add_pool(s, m, &alone, out);
        }
    for (unsigned hosts = 1; subsets && hosts + 1 < 1u << c->hosts && status == TSR_OK; hosts++) {
        const pool some = pool_of(c, hosts, false);
        if (some.count > 1)
            status = add_pool(s, m, &some, out);
    }
    for (int host = 0; !subsets && host < c->hosts && status == TSR_OK; host++) {
        pool some = {0};
        add_host(c, host, &some);
        if (some.count > 1)
            status = add_pool(s, m, &some, out);
    }
    const pool all = pool_of(c, 0, true);
    return status == TSR_OK ? add_pool(s, m, &all, out) : status;
}

/* Sorts candidates: the fastest first, and those whose time is not predicted last. Of equally fast
 * ones, the one with fewer ranks comes first, then the one with fewer stages. */
static int compare(const void *a, const void *b)
{
    const plan_candidate *x = a, *y = b;
    if (x->sharing.is_part != y->sharing.is_part)
        return x->sharing.is_part - y->sharing.is_part;
    if (x->predicted.seconds != y->predicted.seconds)
        return x->predicted.seconds < y->predicted.seconds ? -1 : 1;
    if (x->count != y->count)
        return x->count - y->count;
    return x->stages != y->stages ? x->stages - y->stages : x->sharded - y->sharded;
}

/* Counts the elements of a layer's matrices. */
static tsr_status count_layer(plan_search *s, const tsr_model_config *config)
{
    tsr_model_rank_plan whole;
    const tsr_status status = tsr_model_plan(
        s->file, tsr_model_plan_params(.ranks = 1, .context = s->context), NULL, &whole, NULL);
    if (status == TSR_OK)
        s->layer_parameters = part_of(s, config, &whole).block_parameters / config->layers;
    return status;
}

tsr_status plan_search_run(plan_search *s, plan_candidates *out)
{
    const tsr_model_config *config = tsr_model_file_config(s->file);
    *out = (plan_candidates){0};
    s->work.layers = config->layers;
    s->work.width = (double)config->width;
    s->work.vocabulary = (double)config->vocabulary;
    s->work.context = (double)(s->context > 0 ? s->context : config->context);
    tsr_status status = count_layer(s, config);
    if (status == TSR_OK)
        status = add_all(s, config, out);
    if (status != TSR_OK)
        plan_candidates_free(out);
    else
        qsort(out->all, (size_t)out->count, sizeof *out->all, compare);
    return status;
}

void plan_candidates_free(plan_candidates *candidates)
{
    for (int i = 0; i < candidates->count; i++)
        free_candidate(&candidates->all[i]);
    free(candidates->all);
    *candidates = (plan_candidates){0};
}
