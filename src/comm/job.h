/* What stands behind communicators and requests. A job is what one tsr_comm_create has made: one
 * transport, and the communicators that come of it, which progress together. */
#ifndef TSR_COMM_JOB_H
#define TSR_COMM_JOB_H

#include "base/clock.h"
#include "comm/algorithms/algorithms.h"
#include "comm/api/call.h"
#include "comm/reduce/reduce.h"
#include "comm/shm/shm.h"
#include "comm/ucx/transport.h"

#define TSR__COMM_TIMEOUT_NS (60 * TSR__SECOND) /* where the caller says 0 */
#define TSR__COMM_WHY 512                       /* bytes of an error's text */
#define TSR__GRAVES 8
#define TSR__COMM_PAST 128 /* calls a communicator remembers, for ranks that come later */

typedef struct tsr__control tsr__control;

struct tsr_comm {
    tsr__job *job;
    tsr_comm *next; /* in the job */
    uint32_t id;
    int rank, size;
    int *world_of;       /* of each rank: its rank in the job */
    tsr__board *board;   /* NULL: its ranks share no memory */
    const void **inputs; /* `size` of them, for one combination at a time */
    int local_rank, local_size;
    uint64_t timeout_ns;
    bool reproducible;

    uint64_t sequence; /* of the next collective */
    uint32_t history;  /* … and of all before it */
    tsr__call past[TSR__COMM_PAST];
    int running; /* requests … */
    int held;    /* … and those the caller has, done or not */

    uint64_t doubt_until_ns; /* 0: nothing seems amiss */
    bool was_away;           /* when that was over, and so doubts again */
    tsr_status status;       /* what it has failed with */
    char why[TSR__COMM_WHY];

    /* What has been heard of each rank. */
    struct tsr__rank_news {
        bool left;         /* it has destroyed the communicator */
        bool goes_on;      /* … and has others */
        uint32_t answered; /* the number of the last question that it answered */
        uint64_t sequence; /* its own, then */
    } * news;
    bool anyone_left;
    uint32_t asked; /* number of the last question */
};

struct tsr_request {
    tsr__job *job;                /* NULL: only the handle is left */
    tsr_comm *comm;               /* NULL: destroyed */
    tsr_request *next, *previous; /* in the job: all that somebody has a handle of; or unused */
    tsr__call call;
    uint32_t signature; /* of the call */
    tsr_status status;
    bool done;
    char why[TSR__COMM_WHY];

    const uint8_t *send;
    uint8_t *recv;
    uint8_t *temp;
    uint64_t temp_bytes;
    uint64_t element_bytes;
    tsr__combine_fn combine;
    tsr__divide_fn divide; /* NULL unless the op is AVG */
    tsr__schedule schedule;
    tsr__turn turn;
    uint64_t *starts; /* of blocks, where they differ */
    size_t starts_capacity;
    size_t round_start, round_end; /* steps */
    tsr__message *messages;        /* of the round's steps */
    size_t message_capacity;
    int flying;
    bool posted;
    bool troubled;    /* some message did not land as it should */
    bool leave_alone; /* being abandoned: messages land without consequences */

    uint64_t started_ns; /* 0: not looked at the clock yet */
    uint64_t deadline_ns, timeout_ns;
    uint64_t ask_ns;     /* when to ask the others next */
    uint32_t last_asked; /* the question before the deadline; 0: not yet */
    uint64_t verdict_ns; /* when its answers are due */
    /* A message has come that belongs to another call: what its sender is asked for, until then. */
    int suspect; /* a rank; −1: none */
    uint32_t suspect_signature;
    uint64_t suspect_bytes, expected_bytes;
    uint64_t suspect_until_ns;
};

struct tsr__job {
    int references;      /* communicators */
    unsigned generation; /* of the process that made it: base/fork.h */
    int rank, size;
    tsr__transport *transport; /* NULL: alone */
    int32_t *node_of;
    int64_t *pids;
    bool is_crowded; /* more ranks on this host than processors */
    uint32_t next_id;
    tsr_comm *comms;
    tsr_request *requests, *unused;
    int unused_count;
    struct tsr__left *left; /* what UCX may write to as long as the transport is there */
    tsr__control *control;
    tsr__boards *boards; /* NULL: no shared memory */
    bool anyone_left;    /* some communicator */
    uint64_t glance_ns;  /* when to look for processes that have ended, at the earliest */
    bool landed;         /* some message has landed since the requests were last looked at */
    const tsr__kernels *kernels;
    /* Of late communicators, whose messages are thrown away for a while. */
    struct tsr__grave {
        uint32_t comm;
        uint64_t until_ns;
    } graves[TSR__GRAVES];
    unsigned next_grave;
    bool is_haunted; /* some of them are of now */
};

/* fork.c: what a child of fork() may do, which is nothing -------------------------------------- */

/* Whether this process is a child of the one that made it. */
bool tsr__job_is_inherited(const tsr__job *job);
/* An error in such a child, on behalf of `name`. */
tsr_status tsr__job_refuse_child(const tsr__job *job, const char *name) TSR_NODISCARD;
/* What is in progress there goes on in the parent; the child's handle of it has failed. */
void tsr__request_leave_to_parent(tsr_request *request);

/* engine.c: requests from start to end -------------------------------------------------------- */

/* A request of `comm` without a plan, from the unused ones. */
tsr_status tsr__request_create(tsr_comm *comm, tsr_request **out) TSR_NODISCARD;
/* Back to the unused, or freed. */
void tsr__request_release(tsr_request *request);
/* What it belongs to goes away; the handle stays. */
void tsr__request_detach(tsr_request *request);

/* The call is set and the plan made: takes the memory, and starts. From then on a failure is the
 * communicator's. */
tsr_status tsr__request_start(tsr_request *request) TSR_NODISCARD;

/* It starts now, as far as its deadline is concerned. */
void tsr__request_stamp(tsr_request *request, uint64_t now_ns);

/* As far as it goes without waiting. */
void tsr__request_advance(tsr_request *request);
/* Nothing of it flies any more. It stays until it is released. */
void tsr__request_finish(tsr_request *request, tsr_status status);

/* drive.c ------------------------------------------------------------------------------------- */

/* Moves everything that can be moved; true when something was. */
bool tsr__job_drive(tsr__job *job);
/* The same until nothing moves, some times at the most. */
void tsr__job_listen(tsr__job *job);
/* Drives until the request is done. */
void tsr__request_drive(tsr_request *request);

/* abandon.c ----------------------------------------------------------------------------------- */

/* Ends a request, whatever flies. Afterwards nothing touches its buffers. */
void tsr__request_abandon(tsr_request *request, tsr_status status, const char *why);
/* What was left behind, when the transport is gone. */
void tsr__job_free_left(tsr__job *job);

/* trouble.c: deadlines, losses, disagreement -------------------------------------------------- */

/* Fails the communicator and all its requests, and tells the others, unless they told us. */
void tsr__comm_fail(tsr_comm *comm, bool tell, tsr_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Two calls that differ have met. */
void tsr__comm_disagree(tsr_comm *comm, const tsr__call *mine, int rank, const tsr__call *theirs);
/* Compares another rank's call, and the one before it, with those that this rank remembers. Fails
 * the communicator where they differ. */
void tsr__comm_compare(tsr_comm *comm, int rank, const tsr__call *call, const tsr__call *before);
/* The call of that number, or NULL when it is not remembered. */
const tsr__call *tsr__comm_past(const tsr_comm *comm, uint64_t sequence);
/* Processes that have ended, questions and deadlines; returns when to be called next. */
uint64_t tsr__job_tick(tsr__job *job, uint64_t now_ns);

/* dead.c ------------------------------------------------------------------------------------- */

void tsr__job_bury(tsr__job *job, uint32_t comm);
void tsr__job_discard(tsr__job *job);

/* losses.c ----------------------------------------------------------------------------------- */

/* Some message has not landed as it should. */
void tsr__request_trouble(tsr_request *request);
/* What waits for ranks that are gone comes into doubt. */
void tsr__comm_check_gone(tsr_comm *comm);
/* The doubts have lasted long enough. */
void tsr__comm_judge(tsr_comm *comm, uint64_t now_ns);

/* control.c: what communicators tell each other ------------------------------------------------ */

tsr_status tsr__control_open(tsr__job *job) TSR_NODISCARD;
/* Before the transport ends, and after. */
void tsr__control_cancel(tsr__job *job);
void tsr__control_close(tsr__job *job);
/* Handles what has come. */
bool tsr__control_drive(tsr__job *job);
/* Asks all ranks of the communicator, or one (−1: all), where they are. Returns the number of the
 * question. */
uint32_t tsr__control_ask(tsr_comm *comm, int rank, const tsr__call *call);
/* For a rank that sleeps: there is news on the board. */
void tsr__control_wake(tsr_comm *comm, int rank);
/* To all ranks, or one. */
void tsr__control_abort(tsr_comm *comm, int rank);
void tsr__control_leave(tsr_comm *comm);
/* A communicator has come into being: what was said about it before is applied. */
void tsr__control_catch_up(tsr_comm *comm);

/* comm.c ------------------------------------------------------------------------------------- */

/* A communicator of ranks world_of[0] … world_of[size − 1], which it takes over on success. */
tsr_status tsr__comm_make(tsr__job *job, uint32_t id, int rank, int size, int *world_of,
                          const tsr_comm *like, tsr_comm **out) TSR_NODISCARD;
/* One that nobody has used yet: takes its world_of with it. The job stays. */
void tsr__comm_unmake(tsr_comm *comm);
/* What it is in the end; its world_of has been changed. */
void tsr__comm_settle(tsr_comm *comm, uint32_t id, int rank, int size);
/* What a rank brings to a communicator that uses shared memory, taken before the others can be
 * waiting for what comes of it. */
typedef struct tsr__place_on_board {
    int page; /* −1: none */
    tsr__board *board;
    int32_t *pages; /* of each rank */
} tsr__place_on_board;
tsr_status tsr__comm_reserve_board(tsr__job *job, int size,
                                   tsr__place_on_board *place) TSR_NODISCARD;
/* All ranks use it if all can; `place` is given back otherwise. */
void tsr__comm_use_board(tsr_comm *comm, tsr__place_on_board *place);
void tsr__comm_give_back_board(tsr__job *job, tsr__place_on_board *place);
/* Ends the transport, and frees everything; no communicator is left. */
void tsr__job_end(tsr__job *job, uint64_t until_ns);

/* operation.c: what split uses ---------------------------------------------------------------- */

tsr_status tsr__comm_all_gather_as(tsr_comm *comm, tsr__call_kind kind, const void *send,
                                   void *recv, uint64_t size_bytes) TSR_NODISCARD;

#endif
