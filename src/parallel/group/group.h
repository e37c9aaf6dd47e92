/* The internal functions of groups and their requests. Each file uses only the files listed above
 * it:
 *
 *     flat.c        makes operands contiguous, and copies results back
 *     wire.c        packs what is sent in a narrow format, and unpacks or adds what is received;
 *                   writes results to the caller's tensors
 *     request.c     a request: its queue, its end, and the communicator's operation for it
 *     direct.c      the path for tensors that the communicator can read and write in place
 *     staged.c      the path through host memory, as a ring of TSR__GROUP_PIECES buffers (pieces)
 *     deferred.c    requests that the host carries out after it has recorded what follows them
 *     progress.c    advances all groups of a stream; waiting, testing, failing
 *     collective.c  the public operations: checks their arguments and prepares requests
 *     group.c       creates groups and chooses their path
 *     calibrate.c   measures the speed of each rank
 *     efficiency.c  computes how well a partition uses these speeds */
#ifndef TSR_PARALLEL_GROUP_GROUP_H
#define TSR_PARALLEL_GROUP_GROUP_H

#include "base/error.h"
#include "comm/request_methods.h"
#include "parallel/group/deferred.h"
#include "tessera/group.h"

/* The largest number of operations that a group has in progress in its communicator at one time. */
#define TSR__MAX_GROUP_ACTIVE 16
#define TSR__GROUP_PIECES 4
#define TSR__GROUP_TEXT 512

typedef struct tsr__group_request tsr__group_request;

typedef enum tsr__group_kind {
    TSR__GROUP_ALL_REDUCE,
    TSR__GROUP_BROADCAST,
    TSR__GROUP_ALL_GATHER,
    TSR__GROUP_REDUCE_SCATTER,
    /* Inside the library only: */
    TSR__GROUP_ALL_TO_ALL, /* each rank sends a block to each rank */
    TSR__GROUP_EXCHANGE    /* each rank sends to one rank and receives from one */
} tsr__group_kind;

/* The operations of a communicator that a request has in progress: one, or those that receive and
 * send in an exchange. An entry is NULL if its operation is done or not started. */
typedef struct tsr__group_active {
    tsr_request *each[2];
} tsr__group_active;

typedef enum tsr__group_state {
    TSR__GROUP_QUEUED, /* the device may not have computed the data yet */
    TSR__GROUP_ACTIVE,
    TSR__GROUP_DONE
} tsr__group_state;

/* A request: one operation of a group. The communicator uses flat operands, which are contiguous.
 * One of the two operands is the full tensor: a block of counts[r] elements for each rank r, in the
 * order of ranks. The other operand is this rank's block. In an all-to-all, both operands have a
 * block for each rank, and those of `out` have recv_counts[r] elements. In an exchange, they have
 * counts[0] and recv_counts[0] elements. */
struct tsr__group_request {
    tsr__request_base base;
    tsr_group *group;         /* NULL: the group was destroyed, and the request has failed */
    tsr__group_request *next; /* the next request in the group's queue */
    tsr__group_kind kind;
    tsr_op op;
    int root; /* in an exchange: the rank that receives from this one */
    int from; /* in an exchange: the rank that sends to this one */
    tsr_dtype dtype;
    /* [size]: number of elements of each rank's block; all-reduce and broadcast use counts[0]
     * only */
    uint64_t *counts;
    uint64_t *recv_counts; /* [size]: all-to-all and exchange only */
    uint64_t most;         /* the largest element of counts and recv_counts */
    uint64_t size_bytes;
    /* Flat operands. An all-reduce and a broadcast have only `out`, which is read and written. */
    tsr_tensor *in, *out;
    /* One operand is a block of the other: in an all-gather `in` is this rank's block of `out`, in
     * a reduce-scatter `out` is this rank's block of `in`. */
    bool in_place;
    /* The caller's tensor, to which `out` is copied at the end. If NULL, `out` is a view of the
     * caller's tensor. */
    tsr_tensor *target;
    /* If not 0, the data are sent as this dtype. `serves` is then the operation that the caller
     * wants, and `kind` the operation that moves its data (see wire.c). */
    tsr_dtype wire;
    tsr__group_kind serves;
    int dim;
    int64_t *sizes;

    uint64_t point; /* the value of the stream's timeline at which the data have been computed */
    tsr__group_state state;
    tsr__group_active active; /* direct path, and deferred requests */
    /* Staged path only: number of elements of each block that have been assigned to pieces. */
    uint64_t issued;
    /* Staged path: number of pieces that the request uses. Deferred requests: how many uses of it
     * have not ended (deferred.c). */
    int unfinished;
    tsr_status status; /* the result of the request */
    char why[TSR__GROUP_TEXT];
};

/* A piece of host memory in the ring of the staged path. */
typedef struct tsr__group_piece {
    tsr_tensor *memory; /* dtype u8 */
    uint8_t *host;
    tsr__group_request *request; /* the request that uses the piece; NULL: the piece is free */
    uint64_t first;              /* number of elements of each block before this piece */
    uint64_t point; /* the value of the stream's timeline at which the piece is filled */
    bool started;
    tsr__group_active active;
} tsr__group_piece;

/* What the groups of a stream are waiting for. */
typedef struct tsr__group_pending {
    bool device;
    uint64_t point;   /* the earliest value of the stream's timeline that a group waits for */
    int transports;   /* number of groups that wait for other ranks */
    tsr_group *group; /* the last group that waits for other ranks */
    tsr_request **transport; /* the oldest operation of `group` */
} tsr__group_pending;

/* The functions of a path, which is the way in which a group's data reach the communicator. */
typedef struct tsr__group_path {
    /* Advances without blocking: starts the operations that can start, and completes those that
     * have ended. */
    tsr_status (*progress)(tsr_group *group);
    /* Cancels everything that is in progress in the communicator. */
    void (*cancel)(tsr_group *group);
    void (*add_pending)(tsr_group *group, tsr__group_pending *all);
    /* For deferred requests: whether one can be deferred; recording the copies to the memory that
     * the communicator uses, and those from it; and where the operands are in it. */
    bool (*fits)(const tsr__group_request *request);
    tsr_status (*fill)(const tsr__group_request *request);
    tsr_status (*empty)(const tsr__group_request *request);
    tsr_status (*memory)(const tsr__group_request *request, void **in, void **out);
} tsr__group_path;

/* All groups of one stream. They progress together: otherwise two ranks that wait for different
 * groups could block each other. */
typedef struct tsr__group_set {
    struct tsr__group_set *next;
    const tsr_stream *stream;
    tsr_group *groups;
} tsr__group_set;

struct tsr_group {
    tsr_stream *stream;
    tsr__group_set *set;
    tsr_group *next; /* the next group in the set */
    tsr_comm *comm;
    int rank, size;
    const tsr__group_path *path;
    uint64_t piece_bytes;
    tsr_dtype wire; /* activations are sent as this dtype; 0: as their own */
    bool allow_int8;
    tsr_precision precision;
    tsr__group_piece piece[TSR__GROUP_PIECES];
    int oldest, piece_count;        /* the pieces in use are oldest, oldest + 1, … */
    uint64_t *counts, *recv_counts; /* [size]: scratch memory of the staged path */
    tsr__group_request *queue; /* the requests that are not done, in the order of their calls */
    int active_count;
    bool defers;       /* between tsr__group_defer_begin and _end */
    int deferred;      /* requests whose host steps have not run */
    tsr_status status; /* the error with which the group has failed, or TSR_OK */
    char why[TSR__GROUP_TEXT];
    tsr_group_stats stats;
};

/* wire.c ------------------------------------------------------------------------------------- */

/* Checks that data can be sent as dtype `wire`: 0 (the tensor's own), f32, f16, bf16 or q8_0. */
tsr_status tsr__group_wire_check(const char *caller, tsr_dtype wire) TSR_NODISCARD;
/* Returns whether a tensor of `dtype` takes fewer bytes if it is sent as dtype `wire`. */
bool tsr__group_wire_narrows(tsr_dtype wire, tsr_dtype dtype);
/* Each of these functions sets the operands of a request that `serves` the operation in its name,
 * and records the packing of what this rank sends. The group must have several ranks. The sizes of
 * the ranks' parts must be set, and there must be elements. */
tsr_status tsr__group_wire_all_reduce(tsr__group_request *request,
                                      tsr_tensor *tensor) TSR_NODISCARD;
tsr_status tsr__group_wire_all_gather(tsr__group_request *request, tsr_tensor *out,
                                      const tsr_tensor *in) TSR_NODISCARD;
tsr_status tsr__group_wire_reduce_scatter(tsr__group_request *request, tsr_tensor *out,
                                          const tsr_tensor *in) TSR_NODISCARD;
/* Records writing the result from `out` to the request's target. Does nothing if the request has no
 * target. */
tsr_status tsr__group_copy_out(const tsr__group_request *request) TSR_NODISCARD;

/* flat.c ------------------------------------------------------------------------------------- */

/* Returns whether the tensor is contiguous and the ranks' parts along `dim` follow each other in
 * memory. */
bool tsr__group_is_flat(const tsr_layout *layout, int dim);
/* Creates a view of a contiguous tensor that has one dimension. */
tsr_status tsr__group_flatten(const tsr_tensor *tensor, tsr_tensor **out) TSR_NODISCARD;
/* Creates a flat tensor with as many elements as `like`. */
tsr_status tsr__group_new_flat(const tsr_group *group, const tsr_layout *like,
                               tsr_tensor **out) TSR_NODISCARD;
/* Copies `tensor` to `flat`, or back. Converts to the dtype of the destination. */
tsr_status tsr__group_copy_to_flat(tsr_stream *stream, tsr_tensor *flat,
                                   const tsr_tensor *tensor) TSR_NODISCARD;
tsr_status tsr__group_copy_from_flat(tsr_stream *stream, const tsr_tensor *flat,
                                     tsr_tensor *tensor) TSR_NODISCARD;
/* Copies each rank's part of `whole`, along the request's dim, to the block of that rank in `flat`,
 * or back. Converts to the dtype of the destination. */
tsr_status tsr__group_copy_to_blocks(const tsr__group_request *request, tsr_tensor *flat,
                                     const tsr_tensor *whole) TSR_NODISCARD;
tsr_status tsr__group_copy_from_blocks(const tsr__group_request *request, const tsr_tensor *flat,
                                       tsr_tensor *whole) TSR_NODISCARD;

/* request.c ---------------------------------------------------------------------------------- */

tsr_status tsr__group_request_new(tsr_group *group, tsr__group_kind kind,
                                  tsr__group_request **out) TSR_NODISCARD;
void tsr__group_request_free(tsr__group_request *request);
/* Appends a request to the queue. Its operands must be set. It starts after all work that has been
 * recorded on the stream so far. */
tsr_status tsr__group_enqueue(tsr__group_request *request) TSR_NODISCARD;
/* Completes a request: releases its operands and removes it from the queue. */
void tsr__group_done(tsr__group_request *request);
/* Starts the communicator's operation for `request` on host memory. `counts` are the sizes of the
 * blocks, and recv_counts those of the blocks of `out` in an all-to-all. */
tsr_status tsr__group_start(const tsr__group_request *request, void *in, void *out,
                            const uint64_t *counts, const uint64_t *recv_counts,
                            tsr__group_active *active) TSR_NODISCARD;
/* Sets *ended to whether all operations are done. If one fails, returns its error. */
tsr_status tsr__group_test_active(tsr__group_active *active, bool *ended) TSR_NODISCARD;
void tsr__group_cancel_active(tsr__group_active *active);
bool tsr__group_is_active(const tsr__group_active *active);

void tsr__group_pending_device(tsr__group_pending *all, uint64_t point);
void tsr__group_pending_transport(tsr__group_pending *all, tsr_group *group,
                                  tsr__group_active *active);

/* direct.c, staged.c ------------------------------------------------------------------------- */

extern const tsr__group_path tsr__group_direct, tsr__group_staged;

/* deferred.c --------------------------------------------------------------------------------- */

bool tsr__group_may_defer(const tsr__group_request *request);
/* Defers a request, which it takes over, also on failure. */
tsr_status tsr__group_defer(tsr__group_request *request) TSR_NODISCARD;

/* collective.c ------------------------------------------------------------------------------- */

/* Starts to send `in` to the rank `to`, and to receive `out` from the rank `from`. Both are
 * contiguous tensors of one dimension and of the same dtype; their sizes may differ. All ranks must
 * start the same exchanges with each other in the same order. */
tsr_status tsr__group_exchange_start(tsr_group *group, tsr_tensor *in, int to, tsr_tensor *out,
                                     int from, tsr_request **request) TSR_NODISCARD;

/* The numbers of rows in an all-to-all. */
typedef struct tsr__group_rows {
    const int64_t *sent, *received; /* [ranks]: from this rank to each, and from each to this one */
    int64_t most;                   /* the most that any rank sends to any; the same on all ranks */
} tsr__group_rows;
/* Sends rows of `in` to all ranks, first those for rank 0, and receives rows of `out` from them.
 * Both are contiguous matrices of the same width and dtype. Blocks until the rows have arrived. */
tsr_status tsr__group_all_to_all(tsr_group *group, tsr_tensor *out, const tsr_tensor *in,
                                 const tsr__group_rows *rows) TSR_NODISCARD;

/* progress.c --------------------------------------------------------------------------------- */

extern const tsr__request_methods tsr__group_request_methods;

tsr_status tsr__group_join_set(tsr_group *group) TSR_NODISCARD;
void tsr__group_leave_set(tsr_group *group);

/* Fails a group with `status` and the recorded error text. Cancels what is in progress and fails
 * all requests. */
void tsr__group_fail(tsr_group *group, tsr_status status);
/* Returns the error with which the group has failed, or TSR_OK. */
tsr_status tsr__group_check(const tsr_group *group) TSR_NODISCARD;
/* Waits for a request of a communicator while all groups of the stream of `group` advance: other
 * ranks may wait for these before they take part in the request's operation. */
tsr_status tsr__group_wait_beside(const tsr_group *group, tsr_request **request) TSR_NODISCARD;
/* Fails the group and its requests. The error text is "group: rank N WHAT". Other ranks that wait
 * for this rank get TSR_ERR_PEER_LOST. Does not change the error text that the thread has
 * recorded. */
void tsr__group_abort(tsr_group *group, const char *what);

/* group.c ------------------------------------------------------------------------------------ */

/* The dtype in which layers send activations (tsr_group_params.wire); 0: their own. */
tsr_dtype tsr__group_wire(const tsr_group *group);
/* Whether layers allow products by integers (tsr_group_params.allow_int8). */
bool tsr__group_allows_int8(const tsr_group *group);
/* How layers multiply by a weight in their forward passes (tsr_group_params.precision). */
tsr_precision tsr__group_precision(const tsr_group *group, const tsr_tensor *weight);

#endif
