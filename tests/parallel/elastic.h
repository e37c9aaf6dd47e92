/* A training loop of real processes that continues without ranks that are lost, and takes in new
 * ones. Its batches come from a sampler, so that a sample that is lost or repeated changes the
 * parameters. */
#ifndef TESTS_PARALLEL_ELASTIC_H
#define TESTS_PARALLEL_ELASTIC_H

#include <stdatomic.h>

#include "comm/values.h"
#include "tessera/tessera.h"

#define ELASTIC_BATCH 60 /* samples in a step; can be divided over 1 to 6 ranks */
#define ELASTIC_EPOCH 20 /* steps in an epoch */
#define ELASTIC_LOSSES 3
#define ELASTIC_PASSED 64

/* Where a process is killed. */
typedef enum elastic_point {
    POINT_NONE,
    POINT_BACKWARD,       /* in the backward pass: some gradients are reduced, others are not */
    POINT_BEFORE_BARRIER, /* in the step: all gradients have been sent */
    POINT_AFTER_BARRIER,  /* in the step: some ranks have passed the barrier */
    POINT_MOVING,         /* in tsr_fsdp_rebuild, while shards are moved */
    POINT_REBUILT         /* in tsr_fsdp_rebuild, at its end */
} elastic_point;

typedef struct elastic_loss {
    elastic_point point;
    unsigned victims; /* a mask of the numbers of the processes that are killed */
    /* At POINT_AFTER_BARRIER and POINT_REBUILT: a mask of the processes that get an error there
     * while others succeed. */
    unsigned behind;
    int64_t at; /* the step, or the number of the rebuilding, counted from 1 */
} elastic_loss;

typedef struct elastic_job {
    int ranks;
    int steps;
    const char *hosts;   /* the host of each rank, as in ranks_job */
    uint64_t timeout_ns; /* of operations and of shrinking; 0: 20 s */
    bool no_replicas, staged, layerwise, momentum, everywhere;
    tsr_dtype dtype; /* of the parameters; 0: f32 */
    elastic_loss losses[ELASTIC_LOSSES];
    int64_t joins_at;     /* ranks wait for a process to join before this step; 0: never */
    bool always_grows;    /* from time to time, ranks look for processes that join */
    const char *folder;   /* where each step's model is saved … */
    const char *compared; /* … and where an undisturbed job has saved the models that each rebuilt
                             model must be equal to */
    const char *refused;  /* the text of the error of tsr_fsdp_rebuild; NULL: none */
} elastic_job;

/* What processes report to the test. */
typedef struct elastic_shared {
    _Atomic int passed[ELASTIC_PASSED]; /* for each step, ranks that have passed its barrier */
    _Atomic int joined, shrinks, grows, left_out, worst_ms;
    _Atomic int resumed_at; /* the first step after the first loss */
    /* For each process, after its last step: the number of ranks, and its rank. */
    _Atomic int ranks[MAX_RANKS], rank[MAX_RANKS];
    _Atomic int finish; /* for a job without a number of steps: end soon */
    _Atomic int final_ranks, final_steps;
} elastic_shared;

/* The functions that processes run. The first ranks of a job run elastic_rank. A further process
 * runs elastic_join: if `comm` is NULL, it must still join; otherwise it has joined already. `user`
 * is the job. */
void elastic_rank(tsr_comm *comm, void *user);
void elastic_join(tsr_comm *comm, void *user);
/* Starts the first ranks of a job. */
void elastic_start(elastic_job *job);
/* Waits for the processes. Those in the mask `killed` must end by SIGKILL, and the others must
 * succeed. */
void elastic_wait(int processes, unsigned killed);

#endif
