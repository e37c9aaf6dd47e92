/* The inside of groups and their requests. Files use only those listed above them:
 *
 *     flat.c        makes operands contiguous, and copies results back to the caller's tensors
 *     request.c     a request: its queue, its end, and the communicator's operation for it
 *     direct.c      the path of tensors that the communicator can read and write in place
 *     staged.c      the path through a ring of host memory
 *     progress.c    advances all groups of a stream; waiting, testing, failing
 *     collective.c  the public operations: checks their arguments and prepares requests
 *     group.c       creates groups and chooses their path
 *     calibrate.c, efficiency.c
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
    TSR__GROUP_QUEUED, /* the device may still be producing the data */
    TSR__GROUP_ACTIVE,
    TSR__GROUP_DONE
} tsr__group_state;

/* The communicator sees flat operands. One side is the full one: a block of counts[r] elements for
 * each rank r, in the order of ranks. The other side is this rank's block. */
struct tsr_group_request {
    tsr_group *group;               /* NULL after it was destroyed: the request has failed */
    struct tsr_group_request *next; /* in the group's queue */
    tsr__group_kind kind;
    tsr_op op;
    int root;
    tsr_dtype dtype;
    uint64_t *counts; /* [size]; all-reduce and broadcast use counts[0] only */
    uint64_t most;    /* the largest of them */
    uint64_t size_bytes;
    tsr_tensor *in, *out; /* flat; `in` NULL: in place */
    bool in_place;        /* `in` is this rank's block of `out`, or `out` that of `in` */
    /* The caller's tensor, to which `out` is copied at the end. NULL: `out` is the caller's. */
    tsr_tensor *target;
    int dim;
    int64_t *sizes;

    uint64_t point; /* of the stream: when it is reached, the device has produced the data */
    tsr__group_state state;
    tsr_request *active; /* direct path */
    uint64_t issued;     /* staged path: elements of each block that have been given to pieces, */
    int unfinished;      /* and the number of pieces in use */
    tsr_status status;   /* the result */
    char why[TSR__GROUP_TEXT];
};

/* A piece of the ring. */
typedef struct tsr__group_piece {
    tsr_tensor *memory; /* u8 */
    uint8_t *host;
    tsr_group_request *request; /* NULL: free */
    uint64_t first;             /* elements of each block before it */
    uint64_t point;             /* of the stream: the device has filled the piece */
    bool started;
    tsr_request *active;
} tsr__group_piece;

/* What the groups of a stream wait for. */
typedef struct tsr__group_pending {
    bool device;
    uint64_t point;          /* the earliest of the stream */
    int transports;          /* the number of groups that wait for other ranks */
    tsr_group *group;        /* the last of them, */
    tsr_request **transport; /* and its oldest operation */
} tsr__group_pending;

/* How a group's requests reach the communicator. */
typedef struct tsr__group_path {
    /* Advances without blocking: starts operations that can start, completes those that ended. */
    tsr_status (*progress)(tsr_group *group);
    /* Cancels everything that is in progress in the communicator. */
    void (*cancel)(tsr_group *group);
    void (*add_pending)(tsr_group *group, tsr__group_pending *all);
} tsr__group_path;

/* All groups of one stream. They progress together: two ranks that wait for different groups would
 * block each other otherwise. */
typedef struct tsr__group_set {
    struct tsr__group_set *next;
    const tsr_stream *stream;
    tsr_group *groups;
} tsr__group_set;

struct tsr_group {
    tsr_stream *stream;
    tsr__group_set *set;
    tsr_group *next; /* of the set */
    tsr_comm *comm;
    int rank, size;
    const tsr__group_path *path;
    uint64_t piece_bytes;
    tsr__group_piece piece[TSR__GROUP_PIECES];
    int oldest, piece_count;  /* pieces in use: oldest, oldest + 1, … */
    uint64_t *counts;         /* [size]: scratch of the staged path */
    tsr_group_request *queue; /* in order, without those that are done */
    int active_count;
    tsr_status status; /* the error that the group failed with */
    char why[TSR__GROUP_TEXT];
    tsr_group_stats stats;
};

/* flat.c ----------------------------------------------------------------------------------------
 */

/* Whether the ranks' parts along `dim` follow each other in memory. */
bool tsr__group_is_flat(const tsr_layout *layout, int dim);
/* A contiguous tensor as a view of one dimension. */
tsr_status tsr__group_flatten(const tsr_tensor *tensor, tsr_tensor **out) TSR_NODISCARD;
/* A new flat tensor with as many elements. */
tsr_status tsr__group_new_flat(const tsr_group *group, const tsr_layout *like,
                               tsr_tensor **out) TSR_NODISCARD;
/* flat = tensor. */
tsr_status tsr__group_copy_to_flat(tsr_stream *stream, tsr_tensor *flat,
                                   const tsr_tensor *tensor) TSR_NODISCARD;
/* Each rank's block of `flat` = its part of `whole` along the request's dim. */
tsr_status tsr__group_copy_to_blocks(const tsr_group_request *request, tsr_tensor *flat,
                                     const tsr_tensor *whole) TSR_NODISCARD;
/* Records the copy from `out` to the request's target, if it has one. */
tsr_status tsr__group_copy_out(tsr_group_request *request) TSR_NODISCARD;

/* request.c -------------------------------------------------------------------------------------
 */

tsr_status tsr__group_request_new(tsr_group *group, tsr__group_kind kind,
                                  tsr_group_request **out) TSR_NODISCARD;
void tsr__group_request_free(tsr_group_request *request);
/* Puts a request whose operands are set at the end of the queue, behind everything that has been
 * recorded so far. */
tsr_status tsr__group_enqueue(tsr_group_request *request) TSR_NODISCARD;
/* The request has ended: releases its operands and takes it out of the queue. */
void tsr__group_done(tsr_group_request *request);
/* Starts the communicator's operation for `request` on host memory, with blocks of `counts`. */
tsr_status tsr__group_start(const tsr_group_request *request, void *in, void *out,
                            const uint64_t *counts, tsr_request **active) TSR_NODISCARD;

void tsr__group_pending_device(tsr__group_pending *all, uint64_t point);
void tsr__group_pending_transport(tsr__group_pending *all, tsr_group *group,
                                  tsr_request **transport);

/* direct.c, staged.c ----------------------------------------------------------------------------
 */

extern const tsr__group_path tsr__group_direct, tsr__group_staged;

/* progress.c ------------------------------------------------------------------------------------
 */

tsr_status tsr__group_join_set(tsr_group *group) TSR_NODISCARD;
void tsr__group_leave_set(tsr_group *group);

/* The error that the group has failed with, if it has. */
tsr_status tsr__group_check(const tsr_group *group) TSR_NODISCARD;
/* Fails the group and its requests, with the text "group: rank N WHAT". Other ranks that wait for
 * this rank get TSR_ERR_PEER_LOST. The thread's recorded error does not change. */
void tsr__group_abort(tsr_group *group, const char *what);

#endif
