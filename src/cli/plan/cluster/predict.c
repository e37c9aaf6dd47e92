#include "cli/plan/cluster/predict.h"

#include <math.h>
#include <stdlib.h>

#include "cli/lib/memory.h"

/* The seconds that one pass takes on a stage. In training, a pass is one micro-batch; in
 * generation, a part of the sequences; for a prompt, a part of the prompt. */
typedef struct pass {
    double compute, tensor;
} pass;

/* Forward and backward passes of training take 3 times a forward pass. */
#define TRAINING_PASSES 3
/* The bytes of a parameter, its gradient, and the two moments of AdamW, in f32. */
#define TRAINING_BYTES 16
/* The bytes that a step of AdamW reads and writes for each parameter. */
#define STEP_BYTES 28

static int place_of(const plan_grid *g, int stage, int row, int column)
{
    return (stage * g->data + row) * g->tensor + column;
}

static const plan_rank *rank_at(const plan_cluster *c, const plan_grid *g, int place)
{
    return &c->rank[g->ranks[place]];
}

static double share_of_blocks(const plan_work *w, const plan_grid *g, int stage)
{
    return (double)g->blocks[stage] / w->layers;
}

/* Returns into how many parts of equal size the generator divides the sequences: with one part for
 * each stage, all stages compute at the same time. */
static int parts_of_sequences(const plan_work *w, const plan_grid *g)
{
    int parts = g->stages < w->sequences ? g->stages : w->sequences;
    while (w->sequences % parts != 0)
        parts++;
    return parts;
}

double plan_rows_of_pass(const plan_work *w, const plan_grid *g)
{
    switch (w->goal) {
    case PLAN_GENERATION:
        return (double)w->sequences / parts_of_sequences(w, g);
    case PLAN_PROMPT:
        return w->pass_tokens;
    case PLAN_TRAINING:
        return w->context * w->sequences / g->data;
    }
    return 0;
}

/* Processors ----------------------------------------------------------------------------------- */

/* Returns how the grid's ranks share the processors of a host. */
static plan_turns turns_of(const plan_cluster *c, const plan_grid *g, int host)
{
    int ranks = 0;
    for (int place = 0; place < g->data * g->tensor * g->stages; place++)
        ranks += rank_at(c, g, place)->host == host;
    return (plan_turns){.ranks = c->processors[host] > 0 ? ranks / c->processors[host] : 1,
                        .awake = c->awake_seconds[host],
                        .asleep = c->asleep_seconds[host]};
}

/* Groups --------------------------------------------------------------------------------------- */

/* Returns the group of the places first, first + step, …, `size` places in total. The caller must
 * call free_group(). */
static plan_group make_group(const plan_cluster *c, const plan_grid *g, int first, int step,
                             int size)
{
    int *host = cli_alloc((size_t)size, sizeof *host);
    plan_turns *turns = cli_alloc((size_t)c->hosts, sizeof *turns);
    for (int i = 0; i < size; i++)
        host[i] = rank_at(c, g, first + i * step)->host;
    for (int h = 0; h < c->hosts; h++)
        turns[h] = turns_of(c, g, h);
    return (plan_group){.size = size,
                        .host = host,
                        .hosts = c->hosts,
                        .links = c->links,
                        .turns = turns,
                        .memory = c->memory,
                        .message_work = c->message_work};
}

static void free_group(plan_group *group)
{
    free((void *)group->host);
    free((void *)group->turns);
}

/* Computing ------------------------------------------------------------------------------------ */

plan_pass plan_pass_of(const plan_rank *rank, double rows)
{
    const plan_pass *last = &rank->pass[rank->passes - 1], *high = rank->pass;
    while (high < last && high->rows < rows)
        high++;
    plan_pass out = *high;
    if (rows > high->rows) {
        out.element *= rows / high->rows;
        out.head_element *= rows / high->rows;
    } else if (high > rank->pass) {
        const plan_pass *low = high - 1;
        const double part = (rows - low->rows) / (high->rows - low->rows);
        out = (plan_pass){rows,
                          low->pass + part * (high->pass - low->pass),
                          low->layer + part * (high->layer - low->layer),
                          low->element + part * (high->element - low->element),
                          low->head + part * (high->head - low->head),
                          low->head_element + part * (high->head_element - low->head_element)};
    }
    return out;
}

/* Returns the time that a rank computes for a pass of generation or of a prompt, from measured
 * passes. */
static double measured_seconds(const plan_cluster *c, const plan_work *w, const plan_grid *g,
                               int stage, int place)
{
    const plan_rank *rank = rank_at(c, g, place);
    const plan_part *part = &g->parts[place];
    const double rows = plan_rows_of_pass(w, g);
    const plan_pass here = plan_pass_of(rank, rows),
                    /* for a prompt, only its last token goes through the head */
        head = w->goal == PLAN_PROMPT ? plan_pass_of(rank, 1) : here;
    double seconds = here.pass + g->blocks[stage] * here.layer +
                     share_of_blocks(w, g, stage) * part->block_parameters * here.element;
    if (stage == g->stages - 1)
        seconds += head.head + part->head_parameters * head.head_element;
    return seconds;
}

/* Returns the time that a rank computes for a pass: the longer of the time for matrix products and
 * the time to read weights and cache. In training, only matrix products count. */
static double compute_seconds(const plan_cluster *c, const plan_work *w, const plan_grid *g,
                              int stage, int place)
{
    const plan_rank *rank = rank_at(c, g, place);
    const plan_part *part = &g->parts[place];
    const bool last = stage == g->stages - 1;
    if (rank->passes > 0 && w->goal != PLAN_TRAINING)
        return measured_seconds(c, w, g, stage, place);
    const double share = share_of_blocks(w, g, stage), rows = plan_rows_of_pass(w, g),
                 /* for a prompt, only its last token goes through the head */
        head_rows = w->goal == PLAN_PROMPT ? 1 : rows;
    double parameters = share * part->block_parameters * rows, bytes = share * part->block_bytes;
    if (last) {
        parameters += part->head_parameters * head_rows;
        bytes += part->head_bytes;
    }
    const double attention = part->attention_flops * g->blocks[stage] * rows;
    const double flops = 2 * parameters + attention, fixed = rank->layer_seconds * g->blocks[stage];
    if (w->goal == PLAN_TRAINING)
        return TRAINING_PASSES * (flops / rank->flops + fixed);
    if (w->goal == PLAN_GENERATION)
        /* sequences are half full on average */
        bytes += share * part->cache_bytes / 2 / parts_of_sequences(w, g);
    return fmax(flops / rank->flops, bytes / rank->bandwidth) + fixed;
}

/* Returns the time of the collectives of one tensor-parallel group (a row of the grid) in a pass.
 * These are two all-reduces of the activations for each block, two more in the backward pass, one
 * for the embedding, and those for the logits or their gradient. */
static double tensor_seconds(const plan_cluster *c, const plan_work *w, const plan_grid *g,
                             int stage, int row)
{
    const bool first = stage == 0, last = stage == g->stages - 1;
    const double rows = plan_rows_of_pass(w, g), bytes = rows * w->width * w->wire_bytes;
    const int place = place_of(g, stage, row, 0);
    int reductions = 2 * g->blocks[stage] * (w->goal == PLAN_TRAINING ? 2 : 1) + first;
    int others = 0;
    double logits = 0, device = 0;
    if (g->tensor == 1)
        return 0;
    plan_group group = make_group(c, g, place, 1, g->tensor);
    if (last && w->goal == PLAN_TRAINING) {
        reductions++;
        /* for each token: the largest logit, the sum of exponentials, and the target's logit */
        others = 3;
        logits = others *
                 plan_collective_seconds(&group, TSR_COLLECTIVE_ALL_REDUCE, rows * sizeof(float));
    } else if (last) {
        const double sequences = w->goal == PLAN_PROMPT ? 1 : rows;
        others = 1;
        logits = plan_collective_seconds(&group, TSR_COLLECTIVE_REDUCE_SCATTER,
                                         sequences * w->vocabulary * sizeof(float));
    }
    bool one_host = true;
    for (int column = 1; column < g->tensor; column++)
        one_host = one_host && group.host[column] == group.host[0];
    for (int column = 0; column < g->tensor; column++) {
        const plan_rank *rank = rank_at(c, g, place + column);
        device = fmax(device, one_host ? rank->host_collective_seconds : rank->collective_seconds);
    }
    const double sum =
        reductions * plan_collective_seconds(&group, TSR_COLLECTIVE_ALL_REDUCE, bytes) + logits +
        (reductions + others) * device;
    free_group(&group);
    return sum;
}

/* Returns the time of a pass on a stage, which is that of its slowest tensor-parallel group. */
static pass stage_pass(const plan_cluster *c, const plan_work *w, const plan_grid *g, int stage)
{
    pass slowest = {0, 0};
    for (int row = 0; row < g->data; row++) {
        pass here = {0, tensor_seconds(c, w, g, stage, row)};
        for (int column = 0; column < g->tensor; column++)
            here.compute = fmax(here.compute,
                                compute_seconds(c, w, g, stage, place_of(g, stage, row, column)));
        if (here.compute + here.tensor > slowest.compute + slowest.tensor)
            slowest = here;
    }
    return slowest;
}

/* Returns the time to send the activations of a pass to the next stage. All ranks of a stage send
 * at the same time over the same link. */
static double send_seconds(const plan_cluster *c, const plan_work *w, const plan_grid *g, int stage)
{
    const double bytes = plan_rows_of_pass(w, g) * w->width * sizeof(float);
    const int each = g->data * g->tensor;
    double longest = 0;
    for (int i = 0; i < each; i++) {
        const int from = rank_at(c, g, stage * each + i)->host,
                  to = rank_at(c, g, (stage + 1) * each + i)->host;
        const plan_link *link = &c->links[from * c->hosts + to];
        const double wait = from == to ? 0 : (each - 1) * bytes / plan_link_bandwidth(link);
        const plan_turns turns = turns_of(c, g, to);
        longest = fmax(longest, plan_link_seconds(link, bytes) + wait + plan_turns_seconds(&turns));
    }
    return longest;
}

/* Whole steps ---------------------------------------------------------------------------------- */

/* Returns the number of parameters at a place, in elements of 4 bytes. */
static double parameters_at(const plan_work *w, const plan_grid *g, int place)
{
    const int stage = place / (g->data * g->tensor);
    const plan_part *part = &g->parts[place];
    const bool first = stage == 0, last = stage == g->stages - 1;
    double bytes = share_of_blocks(w, g, stage) * part->block_bytes;
    if (first)
        bytes += part->embedding_bytes;
    if (last && !(part->tied && first))
        bytes += part->head_bytes;
    return bytes / sizeof(float);
}

/* Adds the time of data parallelism and of the optimizer step. Ranks with the same part of the
 * parameters all-reduce gradients once for each micro-batch. With sharded parameters, they instead
 * gather the parameters for each pass and reduce-scatter the gradients. */
static void add_data(const plan_cluster *c, const plan_work *w, const plan_grid *g,
                     plan_prediction *out)
{
    const int each = g->data * g->tensor;
    double slowest = 0, step = 0;
    for (int place = 0; place < g->stages * each; place++) {
        const double parameters = parameters_at(w, g, place);
        const double own = g->sharded ? parameters / g->data : parameters;
        step = fmax(step, own * STEP_BYTES / rank_at(c, g, place)->bandwidth);
        if (place % each >= g->tensor || g->data == 1)
            continue;
        plan_group group = make_group(c, g, place, g->tensor, g->data);
        /* all tensor-parallel ranks send their shares at the same time, over the same link */
        const double bytes = parameters * sizeof(float) * g->tensor;
        slowest = fmax(
            slowest, g->sharded
                         ? 3 * plan_collective_seconds(&group, TSR_COLLECTIVE_REDUCE_SCATTER, bytes)
                         : plan_collective_seconds(&group, TSR_COLLECTIVE_ALL_REDUCE, bytes));
        free_group(&group);
    }
    out->data += slowest * w->micro_batches;
    out->compute += step;
}

static int slowest_stage(const pass *passes, int stages)
{
    int slowest = 0;
    for (int s = 1; s < stages; s++)
        if (passes[s].compute + passes[s].tensor > passes[slowest].compute + passes[slowest].tensor)
            slowest = s;
    return slowest;
}

/* Returns the time in which the first and the last stage add the gradients of an embedding that is
 * also the head. */
static double ends_seconds(const plan_cluster *c, const plan_grid *g)
{
    const int each = g->data * g->tensor;
    if (g->stages == 1 || !g->parts[0].tied)
        return 0;
    plan_group group = make_group(c, g, 0, (g->stages - 1) * each, 2);
    const double sum = plan_collective_seconds(&group, TSR_COLLECTIVE_ALL_REDUCE,
                                               g->parts[0].embedding_bytes * each);
    free_group(&group);
    return sum;
}

/* Returns the time in which all ranks add the norm of the gradients and the loss at the end of a
 * step. */
static double end_seconds(const plan_cluster *c, const plan_grid *g)
{
    const int all = g->data * g->tensor * g->stages;
    plan_group group = make_group(c, g, 0, 1, all);
    const double sum =
        2 * plan_collective_seconds(&group, TSR_COLLECTIVE_ALL_REDUCE, 2 * sizeof(float));
    free_group(&group);
    return sum;
}

static void predict_training(const plan_cluster *c, const plan_work *w, const plan_grid *g,
                             const pass *passes, const double *sends, plan_prediction *out)
{
    double *busy = cli_alloc((size_t)g->stages, sizeof *busy);
    double *nothing = cli_alloc((size_t)g->stages, sizeof *nothing);
    const pass *slowest = &passes[slowest_stage(passes, g->stages)];
    for (int s = 0; s < g->stages; s++)
        busy[s] = passes[s].compute + passes[s].tensor;
    const double alone = plan_pipeline_seconds(g->stages, w->micro_batches, busy, nothing),
                 all = plan_pipeline_seconds(g->stages, w->micro_batches, busy, sends);
    out->compute = w->micro_batches * slowest->compute;
    out->tensor = w->micro_batches * slowest->tensor;
    out->idle = fmax(alone - out->compute - out->tensor, 0);
    out->pipeline = all - alone + ends_seconds(c, g);
    out->data = end_seconds(c, g);
    add_data(c, w, g, out);
    free(busy);
    free(nothing);
}

/* Returns how long the stages need for all parts of the sequences. Measured rates are those while
 * all ranks compute, so a rank that has its processor for itself is faster. */
static double stages_seconds(const plan_cluster *c, const plan_work *w, const plan_grid *g,
                             const pass *passes, const double *sends, int parts)
{
    const size_t count = (size_t)g->stages, hosts = (size_t)c->hosts;
    const int each = g->data * g->tensor;
    double *compute = cli_alloc(count * hosts, sizeof *compute);
    double *messages = cli_alloc(count, sizeof *messages);
    int *ranks = cli_alloc(count * hosts, sizeof *ranks);
    for (int place = 0; place < g->stages * each; place++) {
        const int stage = place / each, host = rank_at(c, g, place)->host;
        const size_t at = (size_t)stage * hosts + (size_t)host;
        const plan_turns turns = turns_of(c, g, host);
        const double shared = compute_seconds(c, w, g, stage, place);
        ranks[at]++;
        compute[at] = fmax(compute[at], shared / fmax(turns.ranks, 1));
    }
    for (int s = 0; s < g->stages; s++)
        messages[s] = passes[s].tensor;
    const double seconds = plan_stages_seconds(&(plan_stages){.count = g->stages,
                                                              .parts = parts,
                                                              .hosts = c->hosts,
                                                              .compute = compute,
                                                              .messages = messages,
                                                              .sends = sends,
                                                              .ranks = ranks,
                                                              .processors = c->processors});
    free(compute);
    free(messages);
    free(ranks);
    return seconds;
}

/* Adds the time in which all ranks agree on the tokens that the last stage has chosen: first the
 * ranks of each stage, then the ranks with the same place in all stages. */
static void add_agreement(const plan_cluster *c, const plan_work *w, const plan_grid *g,
                          plan_prediction *out)
{
    const int each = g->data * g->tensor;
    const double bytes = 4.0 * (w->sequences + 1);
    double slowest = 0;
    for (int s = 0; s < g->stages; s++) {
        plan_group row = make_group(c, g, s * each, 1, g->tensor);
        slowest = fmax(slowest, plan_collective_seconds(&row, TSR_COLLECTIVE_ALL_REDUCE, bytes));
        free_group(&row);
    }
    plan_group across = make_group(c, g, 0, each, g->stages);
    out->tensor += slowest;
    out->pipeline += plan_collective_seconds(&across, TSR_COLLECTIVE_ALL_REDUCE, bytes);
    free_group(&across);
}

/* Predicts generation. The stages compute the parts of the sequences one after the other. The next
 * token of any part only starts when the last part has left the last stage, because all ranks then
 * agree on the tokens. */
static void predict_generation(const plan_cluster *c, const plan_work *w, const plan_grid *g,
                               const pass *passes, const double *sends, plan_prediction *out)
{
    const int parts = parts_of_sequences(w, g);
    const double all = stages_seconds(c, w, g, passes, sends, parts);
    const pass *slowest = &passes[slowest_stage(passes, g->stages)];
    double through = 0;
    for (int s = 0; s < g->stages; s++)
        through += sends[s];
    out->pipeline = through;
    out->tensor = parts * slowest->tensor;
    /* The slowest stage may need less: `passes` has the times while all ranks compute. */
    out->compute = fmin(parts * slowest->compute, all - out->pipeline - out->tensor);
    out->idle = all - out->pipeline - out->tensor - out->compute;
    add_agreement(c, w, g, out);
}

/* Predicts one pass of a long prompt. A stage starts the next pass while later stages compute the
 * earlier ones, so the slowest stage determines the time. */
static void predict_prompt(const plan_grid *g, const pass *passes, plan_prediction *out)
{
    const pass *slowest = &passes[slowest_stage(passes, g->stages)];
    out->compute = slowest->compute;
    out->tensor = slowest->tensor;
}

void plan_predict(const plan_cluster *c, const plan_work *w, const plan_grid *g,
                  plan_prediction *out)
{
    pass *passes = cli_alloc((size_t)g->stages, sizeof *passes);
    double *sends = cli_alloc((size_t)g->stages, sizeof *sends);
    *out = (plan_prediction){0};
    for (int s = 0; s < g->stages; s++) {
        passes[s] = stage_pass(c, w, g, s);
        sends[s] = s < g->stages - 1 ? send_seconds(c, w, g, s) : 0;
    }
    if (w->goal == PLAN_TRAINING)
        predict_training(c, w, g, passes, sends, out);
    else if (w->goal == PLAN_GENERATION)
        predict_generation(c, w, g, passes, sends, out);
    else
        predict_prompt(g, passes, out);
    out->seconds = out->compute + out->tensor + out->data + out->pipeline + out->idle;
    free(passes);
    free(sends);
}

/* How far predictions can be trusted ----------------------------------------------------------- */

plan_sharing plan_sharing_of(const plan_cluster *c, int count, const int *ranks)
{
    plan_sharing worst = {.host = -1};
    double most = 1;
    for (int host = 0; host < c->hosts; host++) {
        const double processors = c->processors[host];
        const bool is_part = processors < 1;
        int there = 0;
        for (int i = 0; i < count; i++)
            there += c->rank[ranks[i]].host == host;
        if (processors <= 0 || there <= processors || is_part < worst.is_part ||
            (is_part == worst.is_part && there / processors <= most))
            continue;
        most = there / processors;
        worst = (plan_sharing){host, there, is_part};
    }
    return worst;
}

/* Memory --------------------------------------------------------------------------------------- */

double plan_memory(const plan_work *w, const plan_grid *g, int place)
{
    const int stage = place / (g->data * g->tensor);
    const plan_part *part = &g->parts[place];
    const bool first = stage == 0, last = stage == g->stages - 1;
    const double share = share_of_blocks(w, g, stage);
    if (w->goal != PLAN_TRAINING)
        return share * (part->block_bytes + part->cache_bytes) +
               (first ? part->embedding_bytes : 0) +
               (last && !(part->tied && first) ? part->head_bytes : 0);
    const double parameters = parameters_at(w, g, place), rows = plan_rows_of_pass(w, g);
    const int after = g->stages - stage,
              in_flight = after < w->micro_batches ? after : w->micro_batches;
    /* With sharded parameters, a rank has the complete parameters and gradients of two blocks. */
    const double full = 4 * part->block_bytes / w->layers,
                 state = g->sharded ? parameters * TRAINING_BYTES / g->data + full
                                    : parameters * TRAINING_BYTES;
    return state + in_flight * g->blocks[stage] * rows * part->activation_bytes +
           (last ? 2 * rows * w->vocabulary / g->tensor * sizeof(float) : 0);
}

uint64_t plan_whole_bytes(double bytes)
{
    return bytes < 0x1p64 ? (uint64_t)bytes : UINT64_MAX;
}
