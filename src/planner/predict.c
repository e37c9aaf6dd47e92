#include "planner/predict.h"

#include <math.h>

#include "base/alloc.h"

/* The bytes that a step of AdamW reads and writes for each parameter. */
#define STEP_BYTES 28

static int slowest_stage(const tsr__pass_time *passes, int stages)
{
    int slowest = 0;
    for (int s = 1; s < stages; s++)
        if (passes[s].compute + passes[s].tensor > passes[slowest].compute + passes[slowest].tensor)
            slowest = s;
    return slowest;
}

/* Training ------------------------------------------------------------------------------------- */

/* Adds the time of data parallelism and of the optimizer step. Ranks with the same share of the
 * parameters all-reduce gradients once for each micro-batch. With sharded parameters, they instead
 * gather the parameters for each pass and reduce-scatter the gradients. */
static void add_data(tsr__predictor *p, tsr__prediction *out)
{
    const tsr__grid_work *w = p->work;
    const tsr__grid *g = p->grid;
    const int each = g->data * g->tensor;
    double slowest = 0, step = 0;
    for (int place = 0; place < g->stages * each; place++) {
        const double parameters = tsr__grid_parameters(w, g, place);
        const double own = g->sharded ? parameters / g->data : parameters;
        step = fmax(step, own * STEP_BYTES / tsr__rank_at(p, place)->bandwidth);
        if (place % each >= g->tensor || g->data == 1)
            continue;
        const tsr__cost_group group = tsr__predictor_group(p, place, g->tensor, g->data);
        /* all tensor-parallel ranks send their shares at the same time, over the same link */
        const double bytes = parameters * sizeof(float) * g->tensor;
        slowest = fmax(
            slowest,
            g->sharded
                ? 3 * tsr__collective_seconds(&group, TSR__CALL_REDUCE_SCATTER, bytes, &p->status)
                : tsr__collective_seconds(&group, TSR__CALL_ALL_REDUCE, bytes, &p->status));
    }
    out->data += slowest * w->micro_batches;
    out->compute += step;
}

/* Returns the time in which the first and the last stage add the gradients of an embedding that is
 * also the head. */
static double ends_seconds(tsr__predictor *p)
{
    const tsr__grid *g = p->grid;
    const int each = g->data * g->tensor;
    if (g->stages == 1 || !g->model_shares[0].tied)
        return 0;
    const tsr__cost_group group = tsr__predictor_group(p, 0, (g->stages - 1) * each, 2);
    return tsr__collective_seconds(&group, TSR__CALL_ALL_REDUCE,
                                   g->model_shares[0].embedding_bytes * each, &p->status);
}

/* Returns the time in which all ranks add the norm of the gradients and the loss at the end of a
 * step. */
static double end_seconds(tsr__predictor *p)
{
    const tsr__grid *g = p->grid;
    const int all = g->data * g->tensor * g->stages;
    const tsr__cost_group group = tsr__predictor_group(p, 0, 1, all);
    return 2 * tsr__collective_seconds(&group, TSR__CALL_ALL_REDUCE, 2 * sizeof(float), &p->status);
}

/* Predicts a training from the times of passes and messages. no_sends[stages] are zeros, for the
 * time that a step would take without messages. */
static void add_training(tsr__predictor *p, const tsr__pass_time *passes, const double *busy,
                         const double *no_sends, const double *sends, tsr__prediction *out)
{
    const tsr__grid_work *w = p->work;
    const int stages = p->grid->stages;
    const tsr__pass_time *slowest = &passes[slowest_stage(passes, stages)];
    const double without_sends =
                     tsr__training_seconds(stages, w->micro_batches, busy, no_sends, &p->status),
                 with_sends =
                     tsr__training_seconds(stages, w->micro_batches, busy, sends, &p->status);
    out->compute = w->micro_batches * slowest->compute;
    out->tensor = w->micro_batches * slowest->tensor;
    out->idle = fmax(without_sends - out->compute - out->tensor, 0);
    out->pipeline = with_sends - without_sends + ends_seconds(p);
    out->data = end_seconds(p);
    add_data(p, out);
}

static void predict_training(tsr__predictor *p, const tsr__pass_time *passes, const double *sends,
                             tsr__prediction *out)
{
    const size_t stages = (size_t)p->grid->stages;
    double *busy = tsr__calloc(stages, sizeof *busy);
    double *no_sends = tsr__calloc(stages, sizeof *no_sends);
    if (busy && no_sends) {
        for (size_t s = 0; s < stages; s++)
            busy[s] = passes[s].compute + passes[s].tensor;
        add_training(p, passes, busy, no_sends, sends, out);
    } else {
        p->status = TSR_ERR_NO_MEMORY;
    }
    tsr__free(busy);
    tsr__free(no_sends);
}

/* Generating ----------------------------------------------------------------------------------- */

/* Returns how long the stages need for all micro-batches of the sequences. Measured rates are those
 * while all ranks compute, so a rank that has its processor for itself is faster. */
static double stages_seconds(tsr__predictor *p, const tsr__pass_time *passes, const double *sends)
{
    const tsr__grid *g = p->grid;
    const size_t stages = (size_t)g->stages, hosts = (size_t)p->cluster->hosts;
    const int each = g->data * g->tensor;
    double seconds = 0;
    double *compute = tsr__calloc(stages * hosts, sizeof *compute);
    double *messages = tsr__calloc(stages, sizeof *messages);
    int *ranks = tsr__calloc(stages * hosts, sizeof *ranks);
    if (!compute || !messages || !ranks)
        p->status = TSR_ERR_NO_MEMORY;
    for (int place = 0; p->status == TSR_OK && place < g->stages * each; place++) {
        const int stage = place / each, host = tsr__rank_at(p, place)->host;
        const size_t i = (size_t)stage * hosts + (size_t)host;
        const double shared = tsr__compute_seconds(p, stage, place);
        ranks[i]++;
        compute[i] = fmax(compute[i], shared / fmax(p->turns[host].ranks, 1));
        messages[stage] = passes[stage].tensor;
    }
    if (p->status == TSR_OK) {
        const tsr__generating generating = {.stages = g->stages,
                                            .micro_batches = tsr__sequence_batches(p->work, g),
                                            .hosts = p->cluster->hosts,
                                            .compute = compute,
                                            .messages = messages,
                                            .sends = sends,
                                            .ranks = ranks,
                                            .processors = p->cluster->processors};
        seconds = tsr__generating_seconds(&generating, &p->status);
    }
    tsr__free(compute);
    tsr__free(messages);
    tsr__free(ranks);
    return seconds;
}

/* Adds the time in which all ranks agree on the tokens that the last stage has chosen: first the
 * ranks of each stage, then the ranks with the same place in all stages. */
static void add_agreement(tsr__predictor *p, tsr__prediction *out)
{
    const tsr__grid *g = p->grid;
    const int each = g->data * g->tensor;
    const double bytes = 4.0 * (p->work->sequences + 1);
    double slowest = 0;
    for (int s = 0; s < g->stages; s++) {
        const tsr__cost_group row = tsr__predictor_group(p, s * each, 1, g->tensor);
        slowest =
            fmax(slowest, tsr__collective_seconds(&row, TSR__CALL_ALL_REDUCE, bytes, &p->status));
    }
    const tsr__cost_group across = tsr__predictor_group(p, 0, each, g->stages);
    out->tensor += slowest;
    out->pipeline += tsr__collective_seconds(&across, TSR__CALL_ALL_REDUCE, bytes, &p->status);
}

/* Predicts generation. The stages compute the micro-batches of the sequences one after the other.
 * The next token of any sequence only starts when the last micro-batch has left the last stage,
 * because all ranks then agree on the tokens. */
static void predict_generation(tsr__predictor *p, const tsr__pass_time *passes, const double *sends,
                               tsr__prediction *out)
{
    const tsr__grid *g = p->grid;
    const int batches = tsr__sequence_batches(p->work, g);
    const double total = stages_seconds(p, passes, sends);
    const tsr__pass_time *slowest = &passes[slowest_stage(passes, g->stages)];
    for (int s = 0; s < g->stages; s++)
        out->pipeline += sends[s];
    out->tensor = batches * slowest->tensor;
    /* In `passes`, all ranks of a host compute at the same time. If some of them are idle, the
     * slowest stage needs less, so its time is limited to what is left of the total. */
    out->compute = fmin(batches * slowest->compute, total - out->pipeline - out->tensor);
    out->idle = total - out->pipeline - out->tensor - out->compute;
    add_agreement(p, out);
}

/* Predicts one pass of a long prompt. A stage starts the next pass while later stages compute the
 * earlier ones, so the slowest stage determines the time. */
static void predict_prompt(const tsr__predictor *p, const tsr__pass_time *passes,
                           tsr__prediction *out)
{
    const tsr__pass_time *slowest = &passes[slowest_stage(passes, p->grid->stages)];
    out->compute = slowest->compute;
    out->tensor = slowest->tensor;
}

static void predict_step(tsr__predictor *p, tsr__pass_time *passes, double *sends,
                         tsr__prediction *out)
{
    const int stages = p->grid->stages;
    for (int s = 0; s < stages; s++) {
        passes[s] = tsr__stage_pass(p, s);
        sends[s] = s < stages - 1 ? tsr__send_seconds(p, s) : 0;
    }
    switch (p->work->goal) {
    case TSR_PLAN_GENERATION:
        predict_generation(p, passes, sends, out);
        break;
    case TSR_PLAN_PROMPT:
        predict_prompt(p, passes, out);
        break;
    case TSR_PLAN_TRAINING:
        predict_training(p, passes, sends, out);
        break;
    }
    out->seconds = out->compute + out->tensor + out->data + out->pipeline + out->idle;
}

tsr_status tsr__predict(const tsr_cluster *cluster, const tsr__grid_work *work,
                        const tsr__grid *grid, tsr__prediction *out)
{
    tsr__predictor p;
    tsr__predictor_init(cluster, work, grid, &p);
    tsr__pass_time *passes = tsr__calloc((size_t)grid->stages, sizeof *passes);
    double *sends = tsr__calloc((size_t)grid->stages, sizeof *sends);
    *out = (tsr__prediction){0};
    if (passes && sends)
        predict_step(&p, passes, sends, out);
    else
        p.status = TSR_ERR_NO_MEMORY;
    tsr__free(passes);
    tsr__free(sends);
    return p.status;
}

/* Shared processors ---------------------------------------------------------------------------- */

tsr__grid_sharing tsr__sharing_of(const tsr_cluster *c, int count, const int *ranks)
{
    tsr__grid_sharing worst = {.host = -1};
    double most = 1;
    for (int host = 0; host < c->hosts; host++) {
        const double processors = c->processors[host];
        const bool less_than_one = processors < 1;
        int used = 0;
        for (int i = 0; i < count; i++)
            used += c->rank[ranks[i]].host == host;
        if (processors <= 0 || used <= processors || less_than_one < worst.less_than_one ||
            (less_than_one == worst.less_than_one && used / processors <= most))
            continue;
        most = used / processors;
        worst = (tsr__grid_sharing){host, used, less_than_one};
    }
    return worst;
}
