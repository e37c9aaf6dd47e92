/* The inside of groups and their requests.
 *
 *     group.c       making a group, its default, figures
 *     lane.c        the groups of one stream, which progress together
 *     request.c     waiting, testing, cancelling; what one round of progress is
 *     direct.c      requests whose tensors the communicator reaches
 *     staged.c      requests whose data go through the ring of host memory
 *     collective.c  the operations: their arguments, and the copies before and after
 */
#ifndef TSR_PARALLEL_GROUP_GROUP_H
#define TSR_PARALLEL_GROUP_GROUP_H

#include "base/error.h"
#include "tessera/group.h"

/* Operations that a group has in progress in its communicator at one time. */
#define TSR__MAX_GROUP_ACTIVE 16
#define TSR__GROUP_PIECES 4
#define TSR__GROUP_TEXT 512

typedef enum tsr__group_kind {
    TSR__GROUP_ALL_REDUCE,
    TSR__GROUP_BROADCAST,
    TSR__GROUP_ALL_GATHER,
    TSR__GROUP_REDUCE_SCATTER
} tsr__group_kind;

typedef enum tsr__group_state {
    TSR__GROUP_QUEUED, /* the device may still be at work on the data */
    TSR__GROUP_ACTIVE,
    TSR__GROUP_DONE
} tsr__group_state;

/* What the communicator sees is flat: blocks of counts[0], counts[1], … elements, one for each rank
 * and one behind the other, on the whole side; one block on the other. */
struct tsr_group_request {
    tsr_group *group;               /* NULL once it is destroyed: the request has failed then */
    struct tsr_group_request *next; /* in the group's queue */
    tsr__group_kind kind;
    tsr_op op;
    int root;
    tsr_dtype dtype;
    uint64_t *counts; /* [size]; of all-reduce and broadcast counts[0] alone is used */
    uint64_t most;    /* the largest of them */
    uint64_t size_bytes;
    tsr_tensor *in, *out; /* flat; `in` NULL: in place */
    bool in_place;        /* `in` is this rank's block of `out`, or the other way round */
    /* What the caller's tensor needs after it, where `out` is a stand-in for it. */
    tsr_tensor *target;
    int dim;
    int64_t *sizes;

    uint64_t point; /* of the stream: the data are there */
    tsr__group_state state;
    tsr_request *active; /* direct */
    uint64_t issued;     /* staged: elements of each block that are on their way or there, */
    int unfinished;      /* and pieces on their way */
    tsr_status status;   /* how it ended */
    char why[TSR__GROUP_TEXT];
};

/* A piece of the ring. */
typedef struct tsr__group_piece {
    tsr_tensor *memory; /* u8 */
    uint8_t *host;
    tsr_group_request *request; /* NULL: free */
    uint64_t first;             /* elements of each block before it */
    uint64_t point;             /* the device has filled it */
    bool started;
    tsr_request *active;
} tsr__group_piece;

struct tsr_group {
    tsr_stream *stream;
    struct tsr__group_lane *lane;
    tsr_group *next; /* of the lane */
    tsr_comm *comm;
    int rank, size;
    bool staged;
    uint64_t piece_bytes;
    tsr__group_piece piece[TSR__GROUP_PIECES];
    int oldest, piece_count;  /* pieces in use: oldest, oldest + 1, … */
    uint64_t *counts;         /* [size], of the piece that is being worked on */
    tsr_group_request *queue; /* not done yet, in order */
    int active_count;
    tsr_status status; /* what it failed with */
    char why[TSR__GROUP_TEXT];
    tsr_group_stats stats;
};

/* Lanes -----------------------------------------------------------------------------------------
 */

typedef struct tsr__group_lane {
    struct tsr__group_lane *next;
    const tsr_stream *stream;
    tsr_group *groups;
} tsr__group_lane;

tsr_status tsr__group_lane_join(tsr_group *group) TSR_NODISCARD;
void tsr__group_lane_leave(tsr_group *group);

/* Requests --------------------------------------------------------------------------------------
 */

/* What the group has failed with, if it has. */
tsr_status tsr__group_check(const tsr_group *group) TSR_NODISCARD;

/* The group has failed with `status` and the recorded text: nothing goes on, all requests have
 * failed, other ranks are told. */
void tsr__group_fail(tsr_group *group, tsr_status status);
/* … because this rank has given up: it "cancelled a request". The recorded text stays, which may
 * say why. */
void tsr__group_give_up(tsr_group *group, const char *what);

/* Puts a request that has its tensors into the queue: everything recorded so far comes first. */
tsr_status tsr__group_enqueue(tsr_group_request *request) TSR_NODISCARD;

/* The communicator is through with it: records what is left to copy. */
tsr_status tsr__group_deliver(tsr_group_request *request) TSR_NODISCARD;
/* … and takes it out of the queue. */
void tsr__group_done(tsr_group_request *request);
void tsr__group_request_free(tsr_group_request *request);

/* One round: starts what can start, takes note of what has ended. */
tsr_status tsr__group_direct(tsr_group *group) TSR_NODISCARD;
tsr_status tsr__group_staged(tsr_group *group) TSR_NODISCARD;
void tsr__group_staged_cancel(tsr_group *group);

/* A communicator's operation for `request` on host memory, blocks of `counts`. */
tsr_status tsr__group_start(const tsr_group_request *request, void *in, void *out,
                            const uint64_t *counts, tsr_request **out_request) TSR_NODISCARD;

#endif
