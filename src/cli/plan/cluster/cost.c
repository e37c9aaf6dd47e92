#include "cli/plan/cluster/cost.h"

#include <math.h>
#include <stdlib.h>

#include "cli/lib/memory.h"
#include "tessera/pipeline.h"

/* Links ---------------------------------------------------------------------------------------- */

plan_link plan_link_of(double latency, double bandwidth)
{
    const double large = 1 << 20;
    return (plan_link){
        .count = 2, .bytes = {0, large}, .seconds = {latency, latency + large / bandwidth}};
}

/* Returns the additional time per byte between sizes i and i + 1 of the link's measurements. It is
 * at least 0, even if noise made the larger message faster. */
static double slope(const plan_link *link, int i)
{
    const double rise = link->seconds[i + 1] - link->seconds[i];
    return fmax(rise, 0) / (link->bytes[i + 1] - link->bytes[i]);
}

double plan_link_bandwidth(const plan_link *link)
{
    const int last = link->count - 1;
    const double per_byte = slope(link, last - 1);
    return per_byte > 0 ? 1 / per_byte : link->bytes[last] / link->seconds[last];
}

double plan_link_seconds(const plan_link *link, double bytes)
{
    int i = 0;
    while (i < link->count - 2 && bytes > link->bytes[i + 1])
        i++;
    if (bytes <= link->bytes[0])
        return link->seconds[0];
    if (bytes > link->bytes[link->count - 1])
        return link->seconds[link->count - 1] +
               (bytes - link->bytes[link->count - 1]) / plan_link_bandwidth(link);
    return link->seconds[i] + (bytes - link->bytes[i]) * slope(link, i);
}

/* Processors ----------------------------------------------------------------------------------- */

double plan_turns_seconds(const plan_turns *turns)
{
    return fmax(turns->ranks - 1, 0) * turns->asleep;
}

/* Pipelines ------------------------------------------------------------------------------------ */

typedef struct timetable {
    int stages, micro_batches;
    const double *passes, *sends;
    tsr_pipeline_step *steps; /* [stages][2 · micro_batches] */
    int *next;                /* [stages]: the next step of each stage */
    double *free;             /* [stages]: when the stage has finished its last step */
    double *ends;             /* [stages][2][micro_batches]: when a pass ended; < 0: not yet */
} timetable;

static double *end_of(const timetable *t, int stage, tsr_pass pass, int micro_batch)
{
    return &t->ends[(stage * 2 + (pass == TSR_PASS_BACKWARD)) * t->micro_batches + micro_batch];
}

/* Simulates the next step of a stage. Returns false if the end of the step that it waits for is not
 * known yet, or if there are no more steps. */
static bool make_step(const timetable *t, int stage)
{
    if (t->next[stage] == 2 * t->micro_batches)
        return false;
    const tsr_pipeline_step step = t->steps[stage * 2 * t->micro_batches + t->next[stage]];
    const bool forward = step.pass == TSR_PASS_FORWARD;
    const int from = forward ? stage - 1 : stage + 1;
    double arrives = 0;
    if (from >= 0 && from < t->stages) {
        const double sent = *end_of(t, from, step.pass, step.micro_batch);
        if (sent < 0)
            return false;
        arrives = sent + t->sends[forward ? from : stage];
    }
    t->free[stage] = fmax(t->free[stage], arrives) + t->passes[stage] * (forward ? 1 : 2) / 3;
    *end_of(t, stage, step.pass, step.micro_batch) = t->free[stage];
    t->next[stage]++;
    return true;
}

static double play(int stages, int micro_batches, const double *passes, const double *sends)
{
    const size_t count = (size_t)stages, all = count * 2 * (size_t)micro_batches;
    timetable t = {.stages = stages,
                   .micro_batches = micro_batches,
                   .passes = passes,
                   .sends = sends,
                   .steps = cli_alloc(all, sizeof *t.steps),
                   .next = cli_alloc(count, sizeof *t.next),
                   .free = cli_alloc(count, sizeof *t.free),
                   .ends = cli_alloc(all, sizeof *t.ends)};
    double end = 0;
    for (size_t i = 0; i < all; i++)
        t.ends[i] = -1;
    for (int s = 0; s < stages; s++) /* cannot fail, because the numbers are in range */
        (void)!tsr_pipeline_schedule(s, stages, micro_batches,
                                     t.steps + (size_t)s * 2 * (size_t)micro_batches);
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < stages; s++)
            while (make_step(&t, s))
                moved = true;
    }
    for (int s = 0; s < stages; s++)
        end = fmax(end, t.free[s]);
    free(t.steps);
    free(t.next);
    free(t.free);
    free(t.ends);
    return end;
}

double plan_pipeline_seconds(int stages, int micro_batches, const double *passes,
                             const double *sends)
{
    const int played = 4 * stages;
    if (micro_batches <= 2 * played)
        return play(stages, micro_batches, passes, sends);
    const double half = play(stages, played, passes, sends),
                 both = play(stages, 2 * played, passes, sends);
    return both + (micro_batches - 2 * played) * (both - half) / played;
}
