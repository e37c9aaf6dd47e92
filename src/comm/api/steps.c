/* Computes which messages, copies and combinations a rank would execute in a collective operation,
 * without a communicator. */
#include "base/error.h"
#include "base/struct_size.h"
#include "comm/algorithms/choose.h"
#include "comm/shm/shm.h"
#include "tessera/comm.h"

#define MAX_RANKS 4096
#define ELEMENT_BYTES sizeof(float)

static bool share_host(const int *hosts, int size)
{
    for (int i = 1; i < size; i++)
        if (hosts[i] != hosts[0])
            return false;
    return true;
}

/* Returns the number of bytes that each of `ranks` ranks reads from other ranks in a collective of
 * `bytes`. Each pass moves all bytes once; an all-reduce takes two passes, the other collectives
 * take one. */
static uint64_t bytes_read(uint64_t bytes, int ranks, int passes)
{
    return (uint64_t)passes * (bytes / (uint64_t)ranks) * (uint64_t)(ranks - 1);
}

static tsr_comm_step memory_step(uint32_t round, int first, int ranks, uint64_t bytes, bool twice)
{
    return (tsr_comm_step){.kind = TSR_COMM_STEP_MEMORY,
                           .round = round,
                           .peer = first,
                           .ranks = ranks,
                           .bytes = bytes_read(bytes, ranks, twice ? 2 : 1)};
}

static tsr_comm_step inner_step(const tsr__step *step, const tsr__levels *levels)
{
    const uint64_t count = step->from.count > step->to.count ? step->from.count : step->to.count;
    return memory_step(step->round, levels->first, levels->count, count * ELEMENT_BYTES,
                       step->inner == TSR__INNER_ALL_REDUCE);
}

/* Converts a step of a schedule to a tsr_comm_step. Returns false for kinds of steps that the
 * public API leaves out. */
static bool convert(const tsr__step *step, const tsr__levels *levels, tsr_comm_step *out)
{
    switch (step->kind) {
    case TSR__STEP_SEND:
    case TSR__STEP_RECV:
        *out = (tsr_comm_step){
            .kind = step->kind == TSR__STEP_SEND ? TSR_COMM_STEP_SEND : TSR_COMM_STEP_RECV,
            .round = step->round,
            .peer = step->peer,
            .bytes =
                ELEMENT_BYTES * (step->kind == TSR__STEP_SEND ? step->from.count : step->to.count)};
        return true;
    case TSR__STEP_INNER:
        *out = inner_step(step, levels);
        return true;
    case TSR__STEP_COPY:
    case TSR__STEP_COMBINE:
    case TSR__STEP_DIVIDE:
    case TSR__STEP_EXACT:
        break;
    }
    return false;
}

static void make(const tsr_comm_steps_params *p, const tsr__placement *placement,
                 tsr__schedule *schedule)
{
    const uint64_t count = p->bytes / ELEMENT_BYTES;
    const tsr__blocks blocks = {.each = count / (uint64_t)p->size};
    switch (p->collective) {
    case TSR_COLLECTIVE_ALL_REDUCE:
        (void)tsr__choose_all_reduce(schedule, placement, count, ELEMENT_BYTES);
        break;
    case TSR_COLLECTIVE_REDUCE_SCATTER:
        (void)tsr__choose_reduce_scatter(schedule, placement, &blocks);
        break;
    case TSR_COLLECTIVE_ALL_GATHER:
        (void)tsr__choose_all_gather(schedule, placement, &blocks, ELEMENT_BYTES);
        break;
    }
}

static tsr_status check(const tsr_comm_steps_params *p, uint64_t capacity,
                        const tsr_comm_step *steps, const uint64_t *count)
{
    TSR__REQUIRE(count, "comm_steps: count is NULL");
    TSR__REQUIRE(steps || capacity == 0, "comm_steps: steps is NULL, but capacity is %llu",
                 (unsigned long long)capacity);
    TSR__REQUIRE(p->collective >= TSR_COLLECTIVE_ALL_REDUCE &&
                     p->collective <= TSR_COLLECTIVE_ALL_GATHER,
                 "comm_steps: unsupported collective %d", (int)p->collective);
    TSR__REQUIRE(p->size >= 1 && p->size <= MAX_RANKS, "comm_steps: size is %d; it must be 1 to %d",
                 p->size, MAX_RANKS);
    TSR__REQUIRE(p->rank >= 0 && p->rank < p->size, "comm_steps: rank %d is not one of %d ranks",
                 p->rank, p->size);
    TSR__REQUIRE(p->hosts, "comm_steps: hosts is NULL");
    return TSR_OK;
}

tsr_status tsr_comm_steps(const tsr_comm_steps_params *params, uint64_t capacity,
                          tsr_comm_step *steps, uint64_t *count)
{
    TSR__REQUIRE(params, "comm_steps: params is NULL");
    TSR__TAKE(tsr_comm_steps_params, params);
    const tsr_comm_steps_params *p = params;
    uint64_t found = 0;
    TSR__TRY(check(p, capacity, steps, count));
    if (p->size == 1) {
        *count = 0;
        return TSR_OK;
    }
    if (p->size <= TSR__SHM_MAX_RANKS && share_host(p->hosts, p->size)) {
        if (capacity > 0)
            steps[0] =
                memory_step(0, 0, p->size, p->bytes, p->collective == TSR_COLLECTIVE_ALL_REDUCE);
        *count = 1;
        return TSR_OK;
    }
    tsr__levels levels;
    const bool has_levels =
        tsr__levels_find(p->size, p->rank, p->hosts, TSR__SHM_MAX_RANKS, &levels);
    const tsr__placement placement = {p->size, p->rank, has_levels ? &levels : NULL};
    tsr__schedule schedule = {0};
    make(p, &placement, &schedule);
    const tsr_status status = schedule.status;
    for (size_t i = 0; i < schedule.count && status == TSR_OK; i++) {
        tsr_comm_step step;
        if (!convert(&schedule.steps[i], &levels, &step))
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
