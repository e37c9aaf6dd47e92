/* Simulates a training step of a pipeline (see cost.h). */
#include <math.h>

#include "base/alloc.h"
#include "parallel/pipeline/schedule.h"
#include "planner/cost.h"

typedef struct timetable {
    int stages, micro_batches;
    const double *passes, *sends;
    tsr__pipeline_step *steps; /* [stages][2 · micro_batches] */
    int *next;                 /* [stages]: the next step of each stage */
    double *free;              /* [stages]: when the stage has finished its last step */
    double *ends;              /* [stages][2][micro_batches]: when a pass ended; < 0: not yet */
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
    const tsr__pipeline_step step = t->steps[stage * 2 * t->micro_batches + t->next[stage]];
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

/* Simulates all steps. */
static double simulate(timetable *t)
{
    double end = 0;
    for (int s = 0; s < t->stages; s++) /* cannot fail, because the numbers are in range */
        (void)!tsr__pipeline_schedule(s, t->stages, t->micro_batches,
                                      t->steps + (size_t)s * 2 * (size_t)t->micro_batches);
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < t->stages; s++)
            while (make_step(t, s))
                moved = true;
    }
    for (int s = 0; s < t->stages; s++)
        end = fmax(end, t->free[s]);
    return end;
}

static double simulate_step(int stages, int micro_batches, const double *passes,
                            const double *sends, tsr_status *status)
{
    const size_t count = (size_t)stages, all = count * 2 * (size_t)micro_batches;
    double seconds = 0;
    if (*status != TSR_OK)
        return 0;
    timetable t = {.stages = stages,
                   .micro_batches = micro_batches,
                   .passes = passes,
                   .sends = sends,
                   .steps = tsr__calloc(all, sizeof *t.steps),
                   .next = tsr__calloc(count, sizeof *t.next),
                   .free = tsr__calloc(count, sizeof *t.free),
                   .ends = tsr__calloc(all, sizeof *t.ends)};
    if (t.steps && t.next && t.free && t.ends) {
        for (size_t i = 0; i < all; i++)
            t.ends[i] = -1;
        seconds = simulate(&t);
    } else {
        *status = TSR_ERR_NO_MEMORY;
    }
    tsr__free(t.steps);
    tsr__free(t.next);
    tsr__free(t.free);
    tsr__free(t.ends);
    return seconds;
}

double tsr__training_seconds(int stages, int micro_batches, const double *passes,
                             const double *sends, tsr_status *status)
{
    const int played = 4 * stages;
    if (micro_batches <= 2 * played)
        return simulate_step(stages, micro_batches, passes, sends, status);
    const double half = simulate_step(stages, played, passes, sends, status),
                 both = simulate_step(stages, 2 * played, passes, sends, status);
    return both + (micro_batches - 2 * played) * (both - half) / played;
}
