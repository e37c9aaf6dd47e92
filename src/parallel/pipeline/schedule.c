/* The 1F1B schedule (one forward, one backward pass): computes the order of a stage's passes. */
#include <math.h>

#include "base/error.h"
#include "parallel/pipeline/schedule.h"

static bool is_valid(int stage, int stages, int micro_batches)
{
    return stages >= 1 && stages <= TSR_MAX_COMM_SIZE && stage >= 0 && stage < stages &&
           micro_batches >= 1 && micro_batches <= TSR_MAX_PIPELINE_BATCHES;
}

tsr_status tsr__pipeline_schedule(int stage, int stages, int micro_batches,
                                  tsr__pipeline_step *steps)
{
    TSR__REQUIRE(steps, "pipeline_schedule: steps is NULL");
    TSR__REQUIRE(is_valid(stage, stages, micro_batches),
                 "pipeline_schedule: stage %d of %d with %d micro-batches; 1 to %d stages and 1 to "
                 "%d micro-batches are allowed",
                 stage, stages, micro_batches, TSR_MAX_COMM_SIZE, TSR_MAX_PIPELINE_BATCHES);
    const int ahead = tsr__pipeline_in_flight(stage, stages, micro_batches);
    int forward = 0, backward = 0;
    for (int i = 0; i < 2 * micro_batches; i++) {
        const bool is_forward = forward < micro_batches && forward - backward < ahead;
        steps[i] = is_forward ? (tsr__pipeline_step){TSR_PASS_FORWARD, forward++}
                              : (tsr__pipeline_step){TSR_PASS_BACKWARD, backward++};
    }
    return TSR_OK;
}

int tsr__pipeline_in_flight(int stage, int stages, int micro_batches)
{
    if (!is_valid(stage, stages, micro_batches))
        return 0;
    return stages - stage < micro_batches ? stages - stage : micro_batches;
}

double tsr_pipeline_bubble(int stages, int micro_batches)
{
    if (!is_valid(0, stages, micro_batches))
        return (double)NAN;
    return (double)(stages - 1) / (double)(micro_batches + stages - 1);
}
