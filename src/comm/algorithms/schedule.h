/* A schedule: the steps of one rank in one collective operation. Algorithms make it without
 * communication, as arithmetic; progress/execute.c executes it. Counts and positions are elements.
 *
 * Steps belong to rounds. The messages of a round start together. When all of them have completed,
 * the local steps of the round follow in order, and then the next round. Messages from one rank to
 * another match in the order of their steps. */
#ifndef TSR_COMM_ALGORITHMS_SCHEDULE_H
#define TSR_COMM_ALGORITHMS_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tessera/base.h"

typedef enum tsr__place {
    TSR__AT_SEND, /* the caller's input, only read */
    TSR__AT_RECV, /* the caller's output; may be the same memory as the input, or part of it */
    TSR__AT_TEMP  /* temp_count elements of temporary memory */
} tsr__place;

typedef struct tsr__span {
    tsr__place place;
    uint64_t start, count;
} tsr__span;

typedef enum tsr__step_kind {
    TSR__STEP_SEND,    /* `from`, to peer */
    TSR__STEP_RECV,    /* `to`, from peer */
    TSR__STEP_COPY,    /* to = from */
    TSR__STEP_COMBINE, /* to = op(from, with); `to` is one of the others, or overlaps neither */
    TSR__STEP_DIVIDE,  /* to /= number of ranks, if the op is AVG */
    TSR__STEP_EXACT /* to = op(from, with, the next span, …): `slots` spans after `from`, in any
                       order, as reduce/exact.h; divides if the op is AVG */
} tsr__step_kind;

typedef struct tsr__step {
    tsr__step_kind kind;
    uint32_t round;
    int peer; /* a rank of the communicator */
    int slots;
    tsr__span from, with, to;
} tsr__step;

typedef struct tsr__schedule {
    tsr__step *steps;
    size_t count, capacity;
    uint32_t round; /* of the steps being added */
    uint64_t temp_count;
    tsr_status status; /* the first failure to add a step; the schedule is then unusable */
} tsr__schedule;

/* Removes the steps and keeps their memory. */
void tsr__schedule_reset(tsr__schedule *schedule);
void tsr__schedule_finish(tsr__schedule *schedule);

static inline tsr__span tsr__span_of(tsr__place place, uint64_t start, uint64_t count)
{
    return (tsr__span){place, start, count};
}

void tsr__schedule_send(tsr__schedule *schedule, int peer, tsr__span from);
void tsr__schedule_recv(tsr__schedule *schedule, int peer, tsr__span to);
void tsr__schedule_copy(tsr__schedule *schedule, tsr__span from, tsr__span to);
void tsr__schedule_combine(tsr__schedule *schedule, tsr__span from, tsr__span with, tsr__span to);
void tsr__schedule_divide(tsr__schedule *schedule, tsr__span data);
void tsr__schedule_exact(tsr__schedule *schedule, tsr__span from, tsr__span with, int slots,
                         tsr__span to);
/* Steps added from now on belong to the next round. */
void tsr__schedule_next_round(tsr__schedule *schedule);
/* Reserves count · times elements in TEMP and returns where they start. Sets the schedule's status
 * if that overflows. */
uint64_t tsr__schedule_temp(tsr__schedule *schedule, uint64_t count, int times);

#endif
