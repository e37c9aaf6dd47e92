/* All ranks of an operation in one process. An element is not a number but where it comes from:
 * which element it is, of which ranks, and the order in which these were combined. */
#ifndef TESTS_COMM_PATTERN_SIM_H
#define TESTS_COMM_PATTERN_SIM_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/algorithms/algorithms.h"

#define SIM_RANKS 64

typedef struct element {
    uint32_t index; /* POISON when it is no element */
    uint32_t divided;
    uint64_t ranks; /* bit r: rank r's contribution is in it */
    uint64_t order; /* equal when combined in the same tree, whichever side came first */
} element;
#define POISON UINT32_MAX

element sim_leaf(int rank, uint64_t index);

/* One rank. `recv` lies in `send` when in place, or the other way round, or each by itself. */
typedef struct sim_rank {
    tsr__schedule schedule;
    element *send, *recv, *temp;
    uint64_t send_count, recv_count;
} sim_rank;

typedef struct sim_job {
    int size;
    bool rendezvous; /* sends wait for their receives; else they are done at once */
    sim_rank ranks[SIM_RANKS];
} sim_job;

/* Runs all plans to their end, or fails the test: a deadlock, a message of another size, a place
 * outside its memory, messages of one round on top of each other, elements combined that do not
 * belong together. */
void sim_run(sim_job *sim);
void sim_finish(sim_job *sim);

#endif
