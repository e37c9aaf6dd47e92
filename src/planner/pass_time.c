#include <math.h>

#include "planner/predict.h"

/* Forward and backward passes of training take 3 times a forward pass. */
#define TRAINING_PASSES 3

static int place_of(const tsr__grid *g, int stage, int row, int column)
{
    return (stage * g->data + row) * g->tensor + column;
}

static double share_of_blocks(const tsr__predictor *p, int stage)
{
    return (double)p->grid->blocks[stage] / p->work->layers;
}

int tsr__sequence_batches(const tsr__grid_work *w, const tsr__grid *g)
{
    int batches = g->stages < w->sequences ? g->stages : w->sequences;
    while (w->sequences % batches != 0)
        batches++;
    return batches;
}

double tsr__rows_of_pass(const tsr__grid_work *w, const tsr__grid *g)
{
    switch (w->goal) {
    case TSR_PLAN_GENERATION:
        return (double)w->sequences / tsr__sequence_batches(w, g);
    case TSR_PLAN_PROMPT:
        return w->pass_tokens;
    case TSR_PLAN_TRAINING:
        return w->context * w->sequences / g->data;
    }
    return 0;
}

/* The predictor -------------------------------------------------------------------------------- */

void tsr__predictor_init(const tsr_cluster *c, const tsr__grid_work *w, const tsr__grid *g,
                         tsr__predictor *out)
{
    int ranks[TSR_CLUSTER_MAX_HOSTS] = {0};
    *out = (tsr__predictor){.cluster = c, .work = w, .grid = g};
    for (int place = 0; place < g->data * g->tensor * g->stages; place++)
        ranks[tsr__rank_at(out, place)->host]++;
    for (int host = 0; host < c->hosts; host++)
        out->turns[host] =
            (tsr__turns){.ranks = c->processors[host] > 0 ? ranks[host] / c->processors[host] : 1,
                         .awake = c->awake_seconds[host],
                         .asleep = c->asleep_seconds[host]};
}

tsr__cost_group tsr__predictor_group(tsr__predictor *p, int first, int step, int size)
{
    for (int i = 0; i < size; i++)
        p->group_host[i] = tsr__rank_at(p, first + i * step)->host;
    return (tsr__cost_group){.size = size,
                             .host = p->group_host,
                             .hosts = p->cluster->hosts,
                             .links = p->cluster->links,
                             .turns = p->turns,
                             .memory = p->cluster->memory,
                             .message_work = p->cluster->message_work};
}

/* Computing ------------------------------------------------------------------------------------ */

tsr__measured_pass tsr__pass_of(const tsr__cluster_rank *rank, double rows)
{
    const tsr__measured_pass *last = &rank->pass[rank->passes - 1], *high = rank->pass;
    while (high < last && high->rows < rows)
        high++;
    tsr__measured_pass out = *high;
    if (rows > high->rows) {
        out.element *= rows / high->rows;
        out.expert_element *= rows / high->rows;
        out.head_element *= rows / high->rows;
    } else if (high > rank->pass) {
        const tsr__measured_pass *low = high - 1;
        const double part = (rows - low->rows) / (high->rows - low->rows);
        out = (tsr__measured_pass){
            rows,
            low->pass + part * (high->pass - low->pass),
            low->layer + part * (high->layer - low->layer),
            low->element + part * (high->element - low->element),
            low->head + part * (high->head - low->head),
            low->head_element + part * (high->head_element - low->head_element),
            low->expert_element + part * (high->expert_element - low->expert_element)};
    }
    return out;
}

/* Returns how many times as much work as its part the slowest rank has with whole experts. So many
 * rows of a prompt use all experts that the difference is small. */
static double expert_skew(const tsr__predictor *p, const tsr__model_share *held)
{
    return p->work->goal == TSR_PLAN_GENERATION ? fmax(held->expert_skew, 1) : 1;
}

/* A tile of a grouped product: so many rows of an expert read its matrices once. */
#define TILE_ROWS 64

/* Returns the time that a stage's pass reads experts in the host's memory. */
static double host_seconds(const tsr__predictor *p, int stage, int place)
{
    const tsr__model_share *held = &p->grid->model_shares[place];
    const double rows = tsr__rows_of_pass(p->work, p->grid),
                 used = held->host_bytes * (1 - pow(1 - held->expert_use, rows)),
                 reads = fmax(rows * held->expert_use / TILE_ROWS, 1);
    if (held->host_bytes == 0)
        return 0;
    return share_of_blocks(p, stage) * used * reads * expert_skew(p, held) /
           tsr__rank_at(p, place)->host_bandwidth;
}

/* Returns the measured time of a stage's matrices of experts. Those in the host's memory take the
 * time to read them, if that is longer. */
static double expert_seconds(const tsr__predictor *p, int stage, int place,
                             const tsr__measured_pass *pass)
{
    const tsr__model_share *held = &p->grid->model_shares[place];
    const double element = pass->expert_element > 0 ? pass->expert_element : pass->element,
                 all = share_of_blocks(p, stage) * held->expert_parameters * element *
                       expert_skew(p, held),
                 on_host = held->host_bytes > 0
                               ? held->host_bytes / (held->host_bytes + held->expert_bytes)
                               : 0;
    return all * (1 - on_host) + fmax(all * on_host, host_seconds(p, stage, place));
}

/* Returns the time that a rank computes for a pass of generation or of a prompt, from measured
 * passes. */
static double measured_seconds(const tsr__predictor *p, int stage, int place)
{
    const tsr__grid_work *w = p->work;
    const tsr__grid *g = p->grid;
    const tsr__cluster_rank *rank = tsr__rank_at(p, place);
    const tsr__model_share *held = &g->model_shares[place];
    const double rows = tsr__rows_of_pass(w, g);
    const tsr__measured_pass here = tsr__pass_of(rank, rows),
                             /* for a prompt, only its last token goes through the head */
        head = w->goal == TSR_PLAN_PROMPT ? tsr__pass_of(rank, 1) : here;
    double seconds = here.pass + g->blocks[stage] * here.layer +
                     share_of_blocks(p, stage) *
                         (held->block_parameters - held->expert_parameters) * here.element +
                     expert_seconds(p, stage, place, &here);
    if (stage == g->stages - 1)
        seconds += head.head + held->head_parameters * head.head_element;
    return seconds;
}

double tsr__compute_seconds(const tsr__predictor *p, int stage, int place)
{
    const tsr__grid_work *w = p->work;
    const tsr__grid *g = p->grid;
    const tsr__cluster_rank *rank = tsr__rank_at(p, place);
    const tsr__model_share *held = &g->model_shares[place];
    const bool last = stage == g->stages - 1;
    if (rank->passes > 0 && w->goal != TSR_PLAN_TRAINING)
        return measured_seconds(p, stage, place);
    const double share = share_of_blocks(p, stage), rows = tsr__rows_of_pass(w, g),
                 /* for a prompt, only its last token goes through the head */
        head_rows = w->goal == TSR_PLAN_PROMPT ? 1 : rows;
    /* Experts that no row of the pass uses are not read. */
    const double unused = held->expert_bytes * pow(1 - held->expert_use, rows),
                 skewed = (held->expert_bytes - unused) * (expert_skew(p, held) - 1);
    double parameters = share * held->block_parameters * rows,
           bytes = share * (held->block_bytes - unused + skewed);
    if (last) {
        parameters += held->head_parameters * head_rows;
        bytes += held->head_bytes;
    }
    const double attention = held->attention_flops * g->blocks[stage] * rows;
    const double flops = 2 * parameters + attention, fixed = rank->layer_seconds * g->blocks[stage];
    if (w->goal == TSR_PLAN_TRAINING)
        return TRAINING_PASSES * (flops / rank->flops + fixed);
    if (w->goal == TSR_PLAN_GENERATION)
        /* sequences are half full on average */
        bytes += share *
                 ((held->cache_bytes - held->state_bytes) / 2 + 2 * held->used_state_bytes) /
                 tsr__sequence_batches(w, g);
    return fmax(flops / rank->flops, bytes / rank->bandwidth) + fixed +
           host_seconds(p, stage, place);
}

/* Messages ------------------------------------------------------------------------------------- */

/* Returns the time of the collectives of one tensor-parallel group (a row of the grid) in a pass.
 * These are two all-reduces of the activations for each block, two more in the backward pass, one
 * for the embedding, and those for the logits or their gradient. */
static double tensor_seconds(tsr__predictor *p, int stage, int row)
{
    const tsr__grid_work *w = p->work;
    const tsr__grid *g = p->grid;
    const bool first = stage == 0, last = stage == g->stages - 1;
    const double rows = tsr__rows_of_pass(w, g), bytes = rows * w->width * w->wire_bytes;
    const int place = place_of(g, stage, row, 0);
    int reductions = 2 * g->blocks[stage] * (w->goal == TSR_PLAN_TRAINING ? 2 : 1) + first;
    int others = 0;
    double logits = 0, device = 0;
    if (g->tensor == 1)
        return 0;
    const tsr__cost_group group = tsr__predictor_group(p, place, 1, g->tensor);
    if (last && w->goal == TSR_PLAN_TRAINING) {
        reductions++;
        /* for each token: the largest logit, the sum of exponentials, and the target's logit */
        others = 3;
        logits = others * tsr__collective_seconds(&group, TSR__CALL_ALL_REDUCE,
                                                  rows * sizeof(float), &p->status);
    } else if (last) {
        const double sequences = w->goal == TSR_PLAN_PROMPT ? 1 : rows;
        others = 1;
        logits = tsr__collective_seconds(&group, TSR__CALL_REDUCE_SCATTER,
                                         sequences * w->vocabulary * sizeof(float), &p->status);
    }
    bool one_host = true;
    for (int column = 1; column < g->tensor; column++)
        one_host = one_host && group.host[column] == group.host[0];
    for (int column = 0; column < g->tensor; column++) {
        const tsr__cluster_rank *rank = tsr__rank_at(p, place + column);
        device = fmax(device, one_host ? rank->host_collective_seconds : rank->collective_seconds);
    }
    return reductions * tsr__collective_seconds(&group, TSR__CALL_ALL_REDUCE, bytes, &p->status) +
           logits + (reductions + others) * device;
}

/* Returns the time in which the context ranks of a row exchange keys, values and their gradients in
 * a micro-batch: for each block a gather in the forward pass, and in the backward pass another one
 * and a reduction. All tensor-parallel ranks of the row send at the same time, over the same
 * link. */
static double context_seconds(tsr__predictor *p, int stage, int row)
{
    const tsr__grid_work *w = p->work;
    const tsr__grid *g = p->grid;
    if (w->context_ranks == 1)
        return 0;
    const int first = place_of(g, stage, row - row % w->context_ranks, 0);
    const tsr__cost_group group = tsr__predictor_group(p, first, g->tensor, w->context_ranks);
    const double bytes = g->model_shares[first].kv_bytes * tsr__context_tokens_of_pass(w, g);
    return 3 * g->blocks[stage] *
           tsr__collective_seconds(&group, TSR__CALL_REDUCE_SCATTER, bytes * g->tensor, &p->status);
}

tsr__pass_time tsr__stage_pass(tsr__predictor *p, int stage)
{
    const tsr__grid *g = p->grid;
    tsr__pass_time slowest = {0, 0};
    for (int row = 0; row < g->data; row++) {
        tsr__pass_time here = {0, tensor_seconds(p, stage, row) + context_seconds(p, stage, row)};
        for (int column = 0; column < g->tensor; column++)
            here.compute =
                fmax(here.compute, tsr__compute_seconds(p, stage, place_of(g, stage, row, column)));
        if (here.compute + here.tensor > slowest.compute + slowest.tensor)
            slowest = here;
    }
    return slowest;
}

double tsr__send_seconds(const tsr__predictor *p, int stage)
{
    const tsr_cluster *c = p->cluster;
    const tsr__grid *g = p->grid;
    const double bytes = tsr__rows_of_pass(p->work, g) * p->work->width * sizeof(float);
    const int each = g->data * g->tensor;
    double longest = 0;
    for (int i = 0; i < each; i++) {
        const int from = tsr__rank_at(p, stage * each + i)->host,
                  to = tsr__rank_at(p, (stage + 1) * each + i)->host;
        const tsr__link *link = &c->links[from * c->hosts + to];
        const double wait = from == to ? 0 : (each - 1) * bytes / tsr__link_bandwidth(link);
        const tsr__turns *turns = &p->turns[to];
        longest = fmax(longest, tsr__link_seconds(link, bytes) + wait + tsr__turns_seconds(turns));
    }
    return longest;
}
