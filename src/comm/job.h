/* The state behind communicators and requests. A job is what one tsr_comm_create makes: one
 * transport, and all communicators derived from the first, which progress together. */
#ifndef TSR_COMM_JOB_H
#define TSR_COMM_JOB_H

#include "base/clock.h"
#include "comm/algorithms/algorithms.h"
#include "comm/call.h"
#include "comm/reduce/reduce.h"
#include "comm/shm/shm.h"
#include "comm/ucx/transport.h"

#define TSR__COMM_TIMEOUT_NS (60 * TSR__SECOND) /* the default */
#define TSR__COMM_WHY 512                       /* bytes of an error's text */
#define TSR__COMM_PAST 128 /* calls that a communicator remembers, to compare with slower ranks */
#define TSR__TOMBSTONES 8

typedef struct tsr__job tsr__job;
typedef struct tsr__control tsr__control;

/* A communicator's state for one of its ranks. */
typedef struct tsr__peer_state {
    bool left;          /* it has destroyed the communicator … */
    bool job_continues; /* … and still has others of the job */
    uint32_t answered;  /* number of the last question that it answered … */
    uint64_t sequence;  /* … and its place in the sequence of calls at that time */
} tsr__peer_state;

struct tsr_comm {
    tsr__job *job;
    tsr_comm *next; /* in the job */
    uint32_t id;
    int rank, size;
    int *world_of; /* each rank's rank in the job */
    int local_rank, local_size;
    tsr__shm *shm;       /* NULL: its ranks share no memory */
    const void **inputs; /* `size` of them: the contributions to one exact step at a time */
    uint64_t timeout_ns;
    bool reproducible;

    uint64_t sequence; /* of the next collective call */
    uint32_t history;  /* a hash of all collective calls so far */
    tsr__call past[TSR__COMM_PAST];
    int running; /* number of requests in progress */
    int held;    /* number of requests that the caller holds, done or not */

    tsr__peer_state *peers; /* of each rank */
    bool has_departures;    /* some rank has left */
    uint32_t questions;     /* the number of the last question */

    uint64_t grace_until_ns; /* end of the grace period; 0: there is none */
    bool grace_extended;
    tsr_status status; /* TSR_OK until it fails */
    char why[TSR__COMM_WHY];
    /* Effects of the failure that tsr__job_apply has yet to cause. */
    bool must_cancel, must_announce;
};

/* A message that belongs to another call than the request's. */
typedef struct tsr__mismatch {
    int rank;           /* its sender; −1: there is no such message */
    uint32_t signature; /* of the sender's call; of a direct message: its dtype */
    uint64_t sent_bytes, expected_bytes;
    uint64_t until_ns; /* end of the time in which the sender may name its call */
} tsr__mismatch;

struct tsr_request {
    tsr__job *job;                /* NULL: the handle is all that is left */
    tsr_comm *comm;               /* NULL: destroyed */
    tsr_request *next, *previous; /* in the job's list of held, or of unused requests */
    tsr__call call;
    uint32_t signature; /* of the call */
    tsr_status status;
    bool done;

    /* By shared memory, if shm.rounds > 0. */
    tsr__shm_operation shm;

    /* Otherwise by messages: the schedule, and the round in progress. */
    tsr__schedule schedule;
    const uint8_t *send;
    uint8_t *recv;
    uint8_t *temp;
    uint64_t temp_bytes;
    uint64_t element_bytes;
    tsr__combine_fn combine;
    tsr__divide_fn divide; /* NULL unless the op is AVG */
    uint64_t *starts;      /* of blocks of different sizes */
    size_t starts_capacity;
    size_t round_start, round_end; /* steps of the schedule */
    bool posted;                   /* the round's messages have been started */
    tsr__message *messages;        /* of the round's steps */
    size_t message_capacity;
    int in_flight;
    bool has_failed_message;
    bool is_cancelled; /* messages that complete now have no consequences */
    tsr__mismatch mismatch;

    uint64_t started_ns; /* 0: the clock has not been read yet */
    uint64_t deadline_ns, timeout_ns;
    uint64_t ask_ns;         /* when to ask the other ranks next */
    uint32_t question;       /* the number of the last question … */
    int question_to;         /* … and the rank to ask; −1: all */
    bool must_ask;           /* tsr__job_apply has yet to send it */
    uint32_t final_question; /* the one before the deadline; 0: not asked yet */
    uint64_t answers_due_ns; /* when its answers must have come */

    char why[TSR__COMM_WHY]; /* the text of its error */
};

/* A request whose communicator has failed is about to be cancelled, and does not progress. */
static inline bool tsr__request_is_running(const tsr_request *request)
{
    return !request->done && request->comm->status == TSR_OK;
}

/* See tsr__tombstone_add. */
typedef struct tsr__tombstone {
    uint32_t comm;
    uint64_t until_ns;
} tsr__tombstone;

struct tsr__job {
    int references;      /* communicators */
    unsigned generation; /* of the process that made it; see base/fork.h */
    int rank, size;
    tsr__transport *transport; /* NULL: a job of one rank */
    int32_t *node_of;
    bool is_oversubscribed; /* more ranks on this host than processors */
    uint32_t next_id;       /* of a communicator */
    tsr_comm *comms;
    tsr_request *requests, *unused;
    int unused_count;
    struct tsr__retained *retained; /* buffers that UCX may write to until the transport ends */
    tsr__control *control;
    tsr__shm_regions *shm_regions; /* NULL: shared memory is disabled */
    uint64_t poll_ns;              /* when to look for processes that have ended */
    bool has_completions;          /* of messages, since the requests were last advanced */
    bool must_apply;               /* some communicator or request has effects for tsr__job_apply */
    const tsr__kernels *kernels;
    tsr__tombstone tombstones[TSR__TOMBSTONES];
    unsigned next_tombstone;
    bool has_tombstones; /* some that have not expired */
};

#endif
