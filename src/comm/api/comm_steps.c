#include "comm/api/comm_steps.h"

#include "base/error.h"
#include "comm/algorithms/choose.h"
#include "comm/shm/shm.h"

#define MAX_RANKS 4096
#define ELEMENT_BYTES sizeof(float)

/* Returns the number of bytes that each of `ranks` ranks reads from other ranks in a collective of
 * `bytes`. Each pass moves all bytes once; an all-reduce takes two passes, the other collectives
 * take one. */
static uint64_t bytes_read(uint64_t bytes, int ranks, int passes)
{
    return (uint64_t)passes * (bytes / (uint64_t)ranks) * (uint64_t)(ranks - 1);
}

static tsr__comm_step memory_step(uint32_t round, int first, int ranks, uint64_t bytes, bool twice)
{
    return (tsr__comm_step){.kind = TSR__COMM_STEP_MEMORY,
                            .round = round,
                            .peer = first,
                            .ranks = ranks,
                            .bytes = bytes_read(bytes, ranks, twice ? 2 : 1)};
}

static tsr__comm_step inner_step(const tsr__step *step, const tsr__hierarchy *hierarchy)
{
    const uint64_t count = step->from.count > step->to.count ? step->from.count : step->to.count;
    return memory_step(step->round, hierarchy->first, hierarchy->count, count * ELEMENT_BYTES,
                       step->inner == TSR__INNER_ALL_REDUCE);
}

/* Converts a step of a schedule to a tsr__comm_step. Returns false for kinds of steps that a
 * model of cost leaves out. */
static bool convert_step(const tsr__step *step, const tsr__hierarchy *hierarchy,
                         tsr__comm_step *out)
{
    switch (step->kind) {
    case TSR__STEP_SEND:
    case TSR__STEP_RECV:
        *out = (tsr__comm_step){
            .kind = step->kind == TSR__STEP_SEND ? TSR__COMM_STEP_SEND : TSR__COMM_STEP_RECV,
            .round = step->round,
            .peer = step->peer,
            .bytes =
                ELEMENT_BYTES * (step->kind == TSR__STEP_SEND ? step->from.count : step->to.count)};
        return true;
    case TSR__STEP_INNER:
        *out = inner_step(step, hierarchy);
        return true;
    case TSR__STEP_COPY:
    case TSR__STEP_COMBINE:
    case TSR__STEP_DIVIDE:
    case TSR__STEP_EXACT:
        break;
    }
    return false;
}

static void make_schedule(const tsr__comm_steps_params *p, const tsr__hierarchy *hierarchy,
                          tsr__schedule *schedule)
{
    const uint64_t count = p->bytes / ELEMENT_BYTES;
    const tsr__blocks blocks = {.each = count / (uint64_t)p->size};
    const tsr__collective collective = {.kind = p->collective,
                                        .size = p->size,
                                        .rank = p->rank,
                                        .hierarchy = hierarchy,
                                        .count = count,
                                        .element_bytes = ELEMENT_BYTES,
                                        .blocks = &blocks};
    (void)tsr__choose_schedule(schedule, &collective);
}

static tsr_status check_params(const tsr__comm_steps_params *p, uint64_t capacity,
                               const tsr__comm_step *steps, const uint64_t *count)
{
    TSR__REQUIRE(count, "comm_steps: count is NULL");
    TSR__REQUIRE(steps || capacity == 0, "comm_steps: steps is NULL, but capacity is %llu",
                 (unsigned long long)capacity);
    TSR__REQUIRE(p->collective == TSR__CALL_ALL_REDUCE ||
                     p->collective == TSR__CALL_REDUCE_SCATTER ||
                     p->collective == TSR__CALL_ALL_GATHER,
                 "comm_steps: unsupported collective %d", (int)p->collective);
    TSR__REQUIRE(p->size >= 1 && p->size <= MAX_RANKS, "comm_steps: size is %d; it must be 1 to %d",
                 p->size, MAX_RANKS);
    TSR__REQUIRE(p->rank >= 0 && p->rank < p->size, "comm_steps: rank %d is not one of %d ranks",
                 p->rank, p->size);
    TSR__REQUIRE(p->hosts, "comm_steps: hosts is NULL");
    return TSR_OK;
}

tsr_status tsr__comm_steps(const tsr__comm_steps_params *p, uint64_t capacity,
                           tsr__comm_step *steps, uint64_t *count)
{
    uint64_t found = 0;
    tsr__hierarchy hierarchy;
    TSR__TRY(check_params(p, capacity, steps, count));
    const tsr__topology topology =
        tsr__choose_topology(p->size, p->rank, p->hosts, TSR__SHM_MAX_RANKS, &hierarchy);
    if (p->size == 1) {
        *count = 0;
        return TSR_OK;
    }
    if (topology == TSR__TOPOLOGY_SHARED) {
        if (capacity > 0)
            steps[0] = memory_step(0, 0, p->size, p->bytes, p->collective == TSR__CALL_ALL_REDUCE);
        *count = 1;
        return TSR_OK;
    }
    tsr__schedule schedule = {0};
    make_schedule(p, topology == TSR__TOPOLOGY_HIERARCHICAL ? &hierarchy : NULL, &schedule);
    const tsr_status status = schedule.status;
    for (size_t i = 0; i < schedule.count && status == TSR_OK; i++) {
        tsr__comm_step step;
        if (!convert_step(&schedule.steps[i], &hierarchy, &step))
            continue;
        if (found < capacity)
            steps[found] = step;
        found++;
    }
    tsr__schedule_finish(&schedule);
    if (status == TSR_OK)
        *count = found;
    return status;
}
