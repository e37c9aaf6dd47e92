/* The state of communicators and requests. One tsr_comm_create makes one job: the first
 * communicator and all communicators that are made from it with tsr_comm_split and similar
 * functions. They share one transport, and a call that waits for one of them also advances the
 * operations of the others. */
#ifndef TSR_COMM_COMM_STATE_H
#define TSR_COMM_COMM_STATE_H

#include "base/clock.h"
#include "comm/algorithms/choose.h"
#include "comm/collective_call.h"
#include "comm/recovery/recovery.h"
#include "comm/reduce/reduce.h"
#include "comm/request_methods.h"
#include "comm/shm/mailbox.h"
#include "comm/shm/shm.h"
#include "comm/ucx/transport.h"

#define TSR__COMM_TIMEOUT_NS (60 * TSR__SECOND) /* the default timeout of a communicator */
#define TSR__COMM_WHY 512                       /* size in bytes of an error's text */
/* How many of its latest calls a communicator keeps, to compare them with the calls of ranks that
 * are behind. */
#define TSR__COMM_PAST 128
#define TSR__TOMBSTONES 8
/* The largest communicator in which a rank that has waited for a long time asks all other ranks for
 * their calls. In a larger communicator it asks only the ranks that it waits for, because there is
 * no connection to the others. */
#define TSR__MANY_RANKS TSR__CONNECT_ALL_RANKS

typedef struct tsr__job tsr__job;
typedef struct tsr__control tsr__control;

/* What a communicator stores about each of its ranks. */
typedef struct tsr__peer_state {
    bool left;          /* the rank has destroyed the communicator */
    bool job_continues; /* the rank has left, but still has other communicators of the job */
    uint32_t asked;    /* number of the last CONTROL_ASK to the rank (progress/control_channel.c) */
    uint32_t answered; /* number of the last CONTROL_ASK that the rank has answered */
    uint64_t sequence; /* number of collective calls that the rank had made when it answered */
} tsr__peer_state;

struct tsr_comm {
    tsr__job *job;
    tsr_comm *next; /* the next communicator in the job's list */
    uint32_t id;
    int rank, size;
    int *world_of; /* [size]: each rank's rank in the job */
    int local_rank, local_size;
    int *host_of; /* [size]: each rank's host; hosts are numbered in the order of their first ranks
                   */
    int host_count;
    tsr__shm *shm; /* NULL: this communicator does not use shared memory */
    /* The ranks shm_first … shm_first + shm_count − 1 use `shm`. These are all ranks or, if
     * operations are hierarchical (algorithms/hierarchical.h), the ranks of this rank's subtree. */
    int shm_first, shm_count;
    tsr__hierarchy hierarchy; /* subtrees > 1: some operations are hierarchical */
    /* How many hierarchical operations have been started, and how many have completed. They run one
     * after another. */
    uint64_t hierarchical_started, hierarchical_completed;
    /* [size]: pointers to the contributions that a step combines exactly (reduce/exact_combine.h);
     * one step at a time uses this array */
    const void **inputs;
    uint64_t timeout_ns;
    bool reproducible;

    uint64_t sequence; /* number of the next collective call */
    /* a hash of all collective calls of the communicator so far; ranks compare their hashes */
    uint32_t history;
    tsr__call past[TSR__COMM_PAST];
    int running; /* number of requests in progress */
    int held;    /* number of requests that the caller has not released, complete or not */

    tsr__peer_state *peers; /* [size] */
    bool has_departures;    /* at least one rank has left */
    /* the number of the last CONTROL_ASK that this rank has sent (progress/control_channel.c) */
    uint32_t questions;

    uint64_t grace_until_ns; /* end of the grace period; 0: there is none */
    bool grace_extended;
    tsr_status status; /* TSR_OK until the communicator fails */
    char why[TSR__COMM_WHY];
    /* must_cancel: tsr__job_apply must still cancel the requests; must_announce: it must still
     * report the failure to the other ranks */
    bool must_cancel, must_announce;
    bool was_shrunk; /* tsr_comm_shrink has made a communicator of the ranks that are left */
};

/* A received message that belongs to a different call than the request. */
typedef struct tsr__mismatch {
    int rank; /* the sender; −1: there is no such message */
    /* the signature of the sender's call (collective_call.h); for a send or receive, its dtype
     * instead */
    uint32_t signature;
    uint64_t sent_bytes, expected_bytes;
    /* deadline for the sender's answer to which call it is in; 0: not asked */
    uint64_t until_ns;
} tsr__mismatch;

struct tsr_request {
    tsr__request_base base;       /* without methods */
    tsr__job *job;                /* NULL: the job has ended, and only this handle is left */
    tsr_comm *comm;               /* NULL: the communicator was destroyed */
    tsr_request *next, *previous; /* the neighbours in the list job->requests or job->unused */
    tsr__call call;
    uint32_t signature; /* the signature of `call` */
    tsr_status status;
    bool done;

    /* The complete operation runs in shared memory, without a schedule. */
    bool in_shm;
    /* The operation in shared memory: the complete operation if in_shm is true, otherwise the inner
     * step in progress (a collective of the ranks of one subtree, algorithms/hierarchical.h). */
    tsr__shm_operation shm;

    /* The operation is hierarchical (algorithms/hierarchical.h). hierarchical_number counts such
     * operations of the communicator. */
    bool is_hierarchical;
    uint64_t hierarchical_number;
    /* the current round of the schedule is an inner step, which has not completed */
    bool inner_running;

    /* Unless in_shm is true: the schedule (algorithms/schedule.h), its data, and its current round.
     */
    tsr__schedule schedule;
    const uint8_t *send;
    uint8_t *recv;
    uint8_t *temp;
    uint64_t temp_bytes;
    uint64_t element_bytes;
    tsr__combine_fn combine;
    tsr__divide_fn divide; /* NULL unless the op is AVG */
    uint64_t *starts;      /* where each block starts, if their sizes differ */
    size_t starts_capacity;
    /* the first step of the current round in the schedule, and the first one after it */
    size_t round_start, round_end;
    bool posted;            /* the round's messages have been started */
    tsr__message *messages; /* one message for each step of the round */
    size_t message_capacity;
    int in_flight;
    bool has_failed_message;
    /* the request was cancelled: completions of its messages are ignored */
    bool is_cancelled;
    tsr__mismatch mismatch;

    uint64_t started_ns; /* 0: the clock has not been read yet */
    uint64_t deadline_ns, timeout_ns;
    uint64_t ask_ns;   /* when to ask the other ranks for their calls next */
    uint32_t question; /* the number of the last question (CONTROL_ASK) about this request */
    int question_to;   /* the rank that was asked; −1: all ranks */
    bool must_ask;     /* tsr__job_apply has yet to send the question */
    /* the number of the question that was asked shortly before the deadline; 0: not asked yet */
    uint32_t final_question;
    uint64_t answers_due_ns; /* deadline for the answers to final_question */
    bool gave_way;           /* answers_due_ns has been extended, which happens only once */

    char why[TSR__COMM_WHY]; /* the text of the request's error */
};

/* Returns whether a request may progress. Requests of a failed communicator must not: they are
 * about to be cancelled. */
static inline bool tsr__request_is_running(const tsr_request *request)
{
    return !request->done && request->comm->status == TSR_OK;
}

/* Returns whether the request is hierarchical and must wait for an earlier hierarchical operation
 * of its communicator, because these run one after another. */
static inline bool tsr__request_is_queued(const tsr_request *request)
{
    return request->is_hierarchical &&
           request->hierarchical_number != request->comm->hierarchical_completed;
}

/* A tombstone: the number of a communicator that has failed or was destroyed, whose late messages
 * are received and discarded. See tsr__tombstone_add. */
typedef struct tsr__tombstone {
    uint32_t comm;
    uint64_t until_ns;
} tsr__tombstone;

struct tsr__job {
    int references;      /* number of communicators */
    unsigned generation; /* the generation of the process that created the job, see base/fork.h */
    int rank, size;
    tsr__transport *transport; /* NULL: the job has one rank */
    tsr__mailbox *mailbox;     /* NULL: ranks of this host can only be reached by connections */
    /* [size]: whether this rank and rank i reach each other's mailbox, so that they need no
     * connection; both ranks have the same value */
    bool *is_near;
    bool all_near; /* every two ranks of the job reach each other's mailbox */
    int32_t *node_of;
    bool is_oversubscribed; /* more ranks run on this machine than there are processors for them */
    /* the last wait with a sleep was short, so this rank spins for longer before sleeping
     * (progress/progress.c) */
    bool spins_long;
    uint32_t next_id; /* the number of the next communicator */
    tsr_comm *comms;
    /* `requests`: those that callers hold; `unused`: released ones, for reuse */
    tsr_request *requests, *unused;
    int unused_count;
    /* buffers that UCX may still write to until the transport is destroyed */
    struct tsr__retained *retained;
    tsr__control *control;
    tsr__shm_regions *shm_regions; /* NULL: shared memory is disabled */
    uint64_t poll_ns;              /* when to check next whether processes have ended */
    /* messages have completed since the requests were last advanced */
    bool has_completions;
    bool must_apply; /* tsr__job_apply has questions to send, or failures to carry out */
    const tsr__kernels *kernels;
    tsr__tombstone tombstones[TSR__TOMBSTONES];
    unsigned next_tombstone;
    bool has_tombstones; /* some tombstones have not expired */
    tsr__roster roster;  /* what this rank knows in order to find the others after a failure */
};

#endif
