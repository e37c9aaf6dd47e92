#include <inttypes.h>
#include <math.h>

#include "base/error.h"
#include "base/struct_size.h"
#include "tessera/training.h"

static bool is_rate(double rate)
{
    return isfinite(rate) && rate >= 0;
}

static tsr_status check(const tsr_schedule *schedule)
{
    TSR__REQUIRE(schedule->kind >= TSR_SCHEDULE_CONSTANT && schedule->kind <= TSR_SCHEDULE_COSINE,
                 "schedule: kind %d is none of tsr_schedule_kind", (int)schedule->kind);
    TSR__REQUIRE(is_rate(schedule->learning_rate) && is_rate(schedule->final_rate),
                 "schedule: the rates are %g and %g; they must be finite and at least 0",
                 schedule->learning_rate, schedule->final_rate);
    TSR__REQUIRE(schedule->warmup_steps >= 0, "schedule: %" PRId64 " steps of warm-up",
                 schedule->warmup_steps);
    TSR__REQUIRE(
        schedule->kind == TSR_SCHEDULE_CONSTANT || schedule->steps > schedule->warmup_steps,
        "schedule: %" PRId64 " steps, of which %" PRId64 " are the warm-up; there must be more",
        schedule->steps, schedule->warmup_steps);
    return TSR_OK;
}

tsr_status tsr_schedule_check(const tsr_schedule *schedule)
{
    TSR__REQUIRE(schedule, "schedule: schedule is NULL");
    TSR__TAKE(tsr_schedule, schedule);
    return check(schedule);
}

static double rate_of(const tsr_schedule *schedule, int64_t step)
{
    const double pi = 3.14159265358979323846;
    if (step < schedule->warmup_steps)
        return schedule->learning_rate * ((double)step + 1) / ((double)schedule->warmup_steps + 1);
    if (schedule->kind == TSR_SCHEDULE_CONSTANT)
        return schedule->learning_rate;
    if (step > schedule->steps)
        return schedule->final_rate;
    const double t = (double)(step - schedule->warmup_steps) /
                     (double)(schedule->steps - schedule->warmup_steps);
    const double part = schedule->kind == TSR_SCHEDULE_LINEAR ? 1 - t : 0.5 * (1 + cos(pi * t));
    return schedule->final_rate + part * (schedule->learning_rate - schedule->final_rate);
}

double tsr_schedule_rate(const tsr_schedule *schedule, int64_t step)
{
    tsr_schedule taken;
    if (!schedule || step < 0 || TSR__TAKE_PART(tsr_schedule, schedule, &taken) != TSR_OK ||
        check(&taken) != TSR_OK)
        return NAN;
    return rate_of(&taken, step);
}
