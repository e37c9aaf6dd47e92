/* A schedule: the steps of one rank in one collective operation. Algorithms compute it by
 * arithmetic, without communication; progress/execute_schedule.c executes it. Counts and positions
 * are numbers of elements.
 *
 * Steps belong to rounds. All messages of a round start at once. When all of them have completed,
 * the local steps of the round run one after the other, and then the next round begins. In each
 * round, the sends from one rank to another match that rank's receives in the order of the steps.
 */
#ifndef TSR_COMM_ALGORITHMS_SCHEDULE_H
#define TSR_COMM_ALGORITHMS_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/algorithms/tree.h"
#include "tessera/base.h"

typedef enum tsr__array {
    TSR__AT_SEND, /* the caller's input, which is only read */
    TSR__AT_RECV, /* the caller's output, which may overlap the input */
    TSR__AT_TEMP  /* temp_count elements of temporary memory */
} tsr__array;

typedef struct tsr__span {
    tsr__array array;
    uint64_t start, count;
} tsr__span;

typedef enum tsr__step_kind {
    TSR__STEP_SEND,    /* sends `from` to `peer` */
    TSR__STEP_RECV,    /* receives `to` from `peer` */
    TSR__STEP_COPY,    /* copies `from` to `to` */
    TSR__STEP_COMBINE, /* to = op(from, with); `to` equals `from` or `with`, or overlaps neither */
    TSR__STEP_DIVIDE,  /* if the op is AVG, divides `to` by the number of ranks */
    /* to = op(from, …): combines `from` with `slots` other spans, which follow each other in memory
     * and of which `with` is the first. Their order does not change the result
     * (reduce/exact_combine.h). Divides if the op is AVG. */
    TSR__STEP_EXACT,
    /* A collective of the ranks of this rank's subtree, see hierarchical.h. It is the only step of
     * its round. */
    TSR__STEP_INNER
} tsr__step_kind;

typedef enum tsr__inner_kind {
    TSR__INNER_ALL_REDUCE,     /* `to` on all ranks = the reduction of `from` of all ranks */
    TSR__INNER_REDUCE,         /* `to` on rank `peer` = the reduction of `from` of all ranks */
    TSR__INNER_REDUCE_SCATTER, /* `to` = this rank's block of the reduction of `from` */
    TSR__INNER_ALL_GATHER,     /* `to` = `from` of all ranks, one block after the other */
    TSR__INNER_BROADCAST,      /* `to` of rank `peer` is copied to `to` of all ranks */
    TSR__INNER_BARRIER
} tsr__inner_kind;

typedef struct tsr__step {
    tsr__step_kind kind;
    uint32_t round;
    int peer; /* the other rank of a send or receive, or the root of an inner step */
    int slots;
    tsr__span from, with, to;
    tsr__inner_kind inner;
    /* Rank i of the `ranks` ranks of an inner reduce-scatter or all-gather has the block from
     * bounds[bounds + i] to bounds[bounds + ranks + i] of the schedule. */
    size_t bounds;
    int ranks;
} tsr__step;

typedef struct tsr__schedule {
    tsr__step *steps;
    size_t count, capacity;
    uint32_t round; /* the round of the steps that are being added */
    uint64_t temp_count;
    uint64_t *bounds; /* where the blocks of inner steps start and end: see tsr__step.bounds */
    size_t bounds_count, bounds_capacity;
    /* the error of the first step that could not be added; the schedule is then unusable */
    tsr_status status;
} tsr__schedule;

/* Removes the steps. Their memory stays allocated for reuse. */
void tsr__schedule_reset(tsr__schedule *schedule);
void tsr__schedule_finish(tsr__schedule *schedule);

static inline tsr__span tsr__span_of(tsr__array array, uint64_t start, uint64_t count)
{
    return (tsr__span){array, start, count};
}

void tsr__schedule_send(tsr__schedule *schedule, int peer, tsr__span from);
void tsr__schedule_recv(tsr__schedule *schedule, int peer, tsr__span to);
void tsr__schedule_copy(tsr__schedule *schedule, tsr__span from, tsr__span to);
void tsr__schedule_combine(tsr__schedule *schedule, tsr__span from, tsr__span with, tsr__span to);
void tsr__schedule_divide(tsr__schedule *schedule, tsr__span data);
void tsr__schedule_exact(tsr__schedule *schedule, tsr__span from, tsr__span with, int slots,
                         tsr__span to);
/* Adds an inner step, a collective of this rank's subtree, in a round of its own. `peer` is
 * the root, if there is one. If the kind has blocks, the caller must first add 2 · `ranks` bounds
 * with tsr__schedule_bound: where each block starts, then where each ends. */
void tsr__schedule_inner(tsr__schedule *schedule, tsr__inner_kind kind, int peer, tsr__span from,
                         tsr__span to, int ranks);
void tsr__schedule_bound(tsr__schedule *schedule, uint64_t bound);
/* Returns the blocks of an inner step, which are empty if its kind has none. */
static inline tsr__blocks tsr__inner_blocks(const tsr__schedule *schedule, const tsr__step *step)
{
    if (step->inner != TSR__INNER_REDUCE_SCATTER && step->inner != TSR__INNER_ALL_GATHER)
        return (tsr__blocks){.starts = NULL};
    const uint64_t *starts = schedule->bounds + step->bounds;
    return (tsr__blocks){.starts = starts, .ends = starts + step->ranks};
}
/* Steps added from now on belong to the next round. */
void tsr__schedule_next_round(tsr__schedule *schedule);
/* Reserves count · times elements in TEMP and returns where they start. If the product overflows,
 * sets the schedule's status. */
uint64_t tsr__schedule_temp(tsr__schedule *schedule, uint64_t count, int times);

#endif
