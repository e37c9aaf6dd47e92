#include "comm/algorithms/schedule.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"

void tsr__plan_reset(tsr__plan *plan)
{
    plan->count = 0;
    plan->round = 0;
    plan->temp_count = 0;
    plan->status = TSR_OK;
}

void tsr__plan_forget(tsr__plan *plan)
{
    tsr__free(plan->steps);
    *plan = (tsr__plan){0};
}

static void add(tsr__plan *plan, tsr__step step)
{
    if (plan->status != TSR_OK)
        return;
    void *steps = plan->steps;
    plan->status = tsr__grow(&steps, &plan->capacity, plan->count + 1, sizeof step);
    plan->steps = steps;
    if (plan->status != TSR_OK)
        return;
    step.round = plan->round;
    plan->steps[plan->count++] = step;
}

void tsr__plan_send(tsr__plan *plan, int peer, tsr__span from)
{
    add(plan, (tsr__step){.kind = TSR__STEP_SEND, .peer = peer, .from = from});
}

void tsr__plan_recv(tsr__plan *plan, int peer, tsr__span to)
{
    add(plan, (tsr__step){.kind = TSR__STEP_RECV, .peer = peer, .to = to});
}

void tsr__plan_copy(tsr__plan *plan, tsr__span from, tsr__span to)
{
    add(plan, (tsr__step){.kind = TSR__STEP_COPY, .from = from, .to = to});
}

void tsr__plan_combine(tsr__plan *plan, tsr__span from, tsr__span with, tsr__span to)
{
    add(plan, (tsr__step){.kind = TSR__STEP_COMBINE, .from = from, .with = with, .to = to});
}

void tsr__plan_divide(tsr__plan *plan, tsr__span data)
{
    add(plan, (tsr__step){.kind = TSR__STEP_DIVIDE, .to = data});
}

void tsr__plan_exact(tsr__plan *plan, tsr__span from, tsr__span with, int slots, tsr__span to)
{
    add(plan,
        (tsr__step){.kind = TSR__STEP_EXACT, .slots = slots, .from = from, .with = with, .to = to});
}

void tsr__plan_next_round(tsr__plan *plan)
{
    plan->round++;
}

uint64_t tsr__plan_temp(tsr__plan *plan, uint64_t count, int times)
{
    uint64_t start = plan->temp_count, all;
    if ((!tsr__mul_u64(count, (uint64_t)times, &all) ||
         !tsr__add_u64(start, all, &plan->temp_count)) &&
        plan->status == TSR_OK)
        plan->status =
            tsr__fail(TSR_ERR_OVERFLOW, "comm: %d times %llu temporary elements are too many",
                      times, (unsigned long long)count);
    return start;
}
