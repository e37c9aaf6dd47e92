/* A training loop of real processes that goes on without ranks that are lost, and takes in new
 * ones. Its batches come from a sampler, so that a sample that is lost or repeated changes the
 * parameters. */
#ifndef TESTS_PARALLEL_ELASTIC_H
#define TESTS_PARALLEL_ELASTIC_H

#include <stdatomic.h>

#include "comm/values.h"
#include "tessera/tessera.h"

#define ELASTIC_BATCH 60 /* samples of a step; divides over 1 to 6 ranks */
#define ELASTIC_EPOCH 20 /* steps */
#define ELASTIC_LOSSES 3
#define ELASTIC_PASSED 64

/* Where a process is killed. */
typedef enum elastic_point {
    POINT_NONE,
    POINT_BACKWARD,       /* in the backward pass: some gradients are reduced, others are not */
    POINT_BEFORE_BARRIER, /* in the step: all gradients have been sent to the copies */
    POINT_AFTER_BARRIER,  /* in the step: some ranks have made it */
    POINT_MOVING,         /* in tsr_fsdp_rebuild, while shards are moved */
    POINT_REBUILT         /* in tsr_fsdp_rebuild, at its end */
} elastic_point;

typedef struct elastic_loss {
    elastic_point point;
    unsigned victims; /* numbers of processes, as a mask */
    /* At POINT_AFTER_BARRIER and POINT_REBUILT: processes that fail there, while others have
     * succeeded. */
    unsigned behind;
    int64_t at; /* the step, or the number of the rebuilding, counted from 1 */
} elastic_loss;

typedef struct elastic_job {
    int ranks;
    int steps;
    const char *hosts;   /* as in ranks_job */
    uint64_t timeout_ns; /* of operations and of shrinking; 0: 20 s */
    bool no_replicas, staged, layerwise, momentum, everywhere;
    tsr_dtype dtype; /* of the parameters; 0: f32 */
    elastic_loss losses[ELASTIC_LOSSES];
    int64_t joins_at;     /* ranks wait for a process to join before this step; 0: never */
    bool always_grows;    /* ranks look for processes that join now and then */
    const char *folder;   /* where each step's model is saved … */
    const char *compared; /* … and where an undisturbed job has saved the models that each rebuilt
                             model must be equal to */
    const char *refused;  /* the text of the error of tsr_fsdp_rebuild; NULL: none */
} elastic_job;

/* What processes tell the test. */
typedef struct elastic_shared {
    _Atomic int passed[ELASTIC_PASSED]; /* for each step, ranks that have passed its barrier */
    _Atomic int joined, shrinks, grows, left_out, worst_ms;
    _Atomic int resumed_at; /* the first step that is made after the first loss */
    /* Of each process, after its last step: the number of ranks, and which one it was. */
    _Atomic int ranks[MAX_RANKS], rank[MAX_RANKS];
    _Atomic int finish; /* for a job without a number of steps: end soon */
    _Atomic int final_ranks, final_steps;
} elastic_shared;

/* Run in each process: in one of the first ranks, and in one that joins, or has joined if it has a
 * communicator. `user` is the job. */
void elastic_rank(tsr_comm *comm, void *user);
void elastic_join(tsr_comm *comm, void *user);
/* Starts the first ranks of a job. */
void elastic_start(elastic_job *job);
/* Waits for the processes, of which the mask `killed` end by SIGKILL and the others well. */
void elastic_wait(int processes, unsigned killed);

#endif
