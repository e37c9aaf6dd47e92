/* Simulates all ranks of an operation in one process. An element is not a number. It records its
 * index, the ranks whose contributions it contains, and the order in which they were combined.
 * So a test can check all of these. */
#ifndef TESTS_COMM_PATTERN_SIM_H
#define TESTS_COMM_PATTERN_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/algorithms/hierarchical.h"

#define SIM_RANKS 64

typedef struct element {
    uint32_t index; /* POISON: memory that holds no element */
    uint32_t divided;
    uint64_t ranks; /* bit r: the element contains rank r's contribution */
    uint64_t order; /* a hash of the order in which contributions were combined; a+b and b+a have
                       the same */
} element;
#define POISON UINT32_MAX

element sim_leaf(int rank, uint64_t index);

/* One rank. In place, `recv` is a part of `send`, or `send` a part of `recv`; otherwise they are
 * separate. */
typedef struct sim_rank {
    tsr__schedule schedule;
    /* Which ranks take part in this rank's inner steps, the collectives inside a host
     * (hierarchical.h). NULL: the schedule has no inner steps. */
    const tsr__hierarchy *hierarchy;
    element *send, *recv, *temp;
    uint64_t send_count, recv_count;
    uint64_t heard; /* bit r: this rank has heard from rank r, directly or indirectly */
} sim_rank;

typedef struct sim_job {
    int size;
    bool rendezvous; /* sends wait for their receives; otherwise they complete at once */
    sim_rank ranks[SIM_RANKS];
} sim_job;

/* Executes all schedules. Fails the test if it finds a deadlock, a message whose size differs from
 * its receive's, a span outside its memory, overlapping messages in a round, or a combination of
 * elements with different indices. */
void sim_run(sim_job *sim);
void sim_finish(sim_job *sim);

#endif
