#include "comm/algorithms/schedule.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"

void tsr__schedule_reset(tsr__schedule *schedule)
{
    schedule->count = 0;
    schedule->round = 0;
    schedule->temp_count = 0;
    schedule->bounds_count = 0;
    schedule->status = TSR_OK;
}

void tsr__schedule_finish(tsr__schedule *schedule)
{
    tsr__free(schedule->steps);
    tsr__free(schedule->bounds);
    *schedule = (tsr__schedule){0};
}

static void append_step(tsr__schedule *schedule, tsr__step step)
{
    if (schedule->status != TSR_OK)
        return;
    void *steps = schedule->steps;
    schedule->status = tsr__grow(&steps, &schedule->capacity, schedule->count + 1, sizeof step);
    schedule->steps = steps;
    if (schedule->status != TSR_OK)
        return;
    step.round = schedule->round;
    schedule->steps[schedule->count++] = step;
}

void tsr__schedule_send(tsr__schedule *schedule, int peer, tsr__span from)
{
    append_step(schedule, (tsr__step){.kind = TSR__STEP_SEND, .peer = peer, .from = from});
}

void tsr__schedule_recv(tsr__schedule *schedule, int peer, tsr__span to)
{
    append_step(schedule, (tsr__step){.kind = TSR__STEP_RECV, .peer = peer, .to = to});
}

void tsr__schedule_copy(tsr__schedule *schedule, tsr__span from, tsr__span to)
{
    append_step(schedule, (tsr__step){.kind = TSR__STEP_COPY, .from = from, .to = to});
}

void tsr__schedule_combine(tsr__schedule *schedule, tsr__span from, tsr__span with, tsr__span to)
{
    append_step(schedule,
                (tsr__step){.kind = TSR__STEP_COMBINE, .from = from, .with = with, .to = to});
}

void tsr__schedule_divide(tsr__schedule *schedule, tsr__span data)
{
    append_step(schedule, (tsr__step){.kind = TSR__STEP_DIVIDE, .to = data});
}

void tsr__schedule_exact(tsr__schedule *schedule, tsr__span from, tsr__span with, int slots,
                         tsr__span to)
{
    append_step(
        schedule,
        (tsr__step){.kind = TSR__STEP_EXACT, .slots = slots, .from = from, .with = with, .to = to});
}

void tsr__schedule_bound(tsr__schedule *schedule, uint64_t bound)
{
    if (schedule->status != TSR_OK)
        return;
    void *bounds = schedule->bounds;
    schedule->status = tsr__grow(&bounds, &schedule->bounds_capacity, schedule->bounds_count + 1,
                                 sizeof *schedule->bounds);
    schedule->bounds = bounds;
    if (schedule->status == TSR_OK)
        schedule->bounds[schedule->bounds_count++] = bound;
}

void tsr__schedule_inner(tsr__schedule *schedule, tsr__inner_kind kind, int peer, tsr__span from,
                         tsr__span to, int ranks)
{
    tsr__schedule_next_round(schedule);
    append_step(schedule, (tsr__step){.kind = TSR__STEP_INNER,
                                      .peer = peer,
                                      .from = from,
                                      .to = to,
                                      .inner = kind,
                                      .bounds = schedule->bounds_count - 2 * (size_t)ranks,
                                      .ranks = ranks});
    tsr__schedule_next_round(schedule);
}

void tsr__schedule_next_round(tsr__schedule *schedule)
{
    schedule->round++;
}

uint64_t tsr__schedule_temp(tsr__schedule *schedule, uint64_t count, int times)
{
    uint64_t start = schedule->temp_count, all;
    if ((!tsr__mul_u64(count, (uint64_t)times, &all) ||
         !tsr__add_u64(start, all, &schedule->temp_count)) &&
        schedule->status == TSR_OK)
        schedule->status =
            tsr__fail(TSR_ERR_OVERFLOW, "comm: %d times %llu temporary elements are too many",
                      times, (unsigned long long)count);
    return start;
}
