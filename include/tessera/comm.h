/* Communicators: the processes of a job, and the collective operations between them, on host
 * memory.
 *
 *     tsr_comm *comm = NULL;
 *     tsr_comm_create(NULL, &comm);
 *     tsr_comm_all_reduce(comm, gradients, gradients, count, TSR_F32, TSR_OP_AVG, NULL);
 *     tsr_comm_destroy(&comm);
 *
 * All ranks of a communicator must call the same collective operations in the same order, with the
 * same dtype, op, root and counts. A difference is detected, by the next call at the latest, and
 * reported on all ranks as TSR_ERR_INVALID with a text that names both calls.
 *
 * No call blocks for ever: every operation has a deadline. If a rank is killed, stopped, or leaves,
 * the others get TSR_ERR_PEER_LOST or TSR_ERR_TIMEOUT with a text that names the operation and the
 * rank. Then the communicator has failed on all its ranks: every later call returns the same error,
 * and the only useful call is tsr_comm_destroy. Communicators without a lost rank continue.
 *
 * Aliasing: an operation's comment says which buffers may be the same memory. Any other overlap of
 * memory that is read with memory that is written is TSR_ERR_INVALID. Buffers need no alignment.
 * Counts are elements, and may be 0.
 *
 * Threads: one thread at a time may use a communicator and all communicators that derive from the
 * same tsr_comm_create. In a child after fork() every call returns TSR_ERR_INVALID, requests in
 * progress have failed, and tsr_comm_destroy only sets the pointer to NULL. The parent is not
 * affected. */
#ifndef TESSERA_COMM_H
#define TESSERA_COMM_H

#include <stdbool.h>

#include "tessera/base.h"
#include "tessera/layout.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_comm tsr_comm;
typedef struct tsr_request tsr_request;

/* Creating ----------------------------------------------------------------------------------- */

/* How the processes of a job find each other. */
typedef enum tsr_bootstrap {
    TSR_BOOTSTRAP_AUTO = 0,     /* PMIX, ENV, SINGLE or JOIN, depending on environment variables */
    TSR_BOOTSTRAP_PMIX = 1,     /* mpirun, prterun, srun --mpi=pmix */
    TSR_BOOTSTRAP_ENV = 2,      /* RANK, WORLD_SIZE, MASTER_ADDR, …: tessera launch, torchrun */
    TSR_BOOTSTRAP_CALLBACK = 3, /* by the all-gather function in tsr_comm_params */
    TSR_BOOTSTRAP_SINGLE = 4,   /* this process alone; needs no network, and no UCX in the build */
    TSR_BOOTSTRAP_JOIN = 5      /* this process joins a running job: see tsr_comm_grow */
} tsr_bootstrap;

/* The caller's all-gather, for TSR_BOOTSTRAP_CALLBACK: every rank contributes `size_bytes` bytes,
 * the same number on all ranks, and gets the contributions of all ranks in `all`, in the order of
 * ranks. It is called a few times while the communicator is created, must enforce a deadline
 * itself, and returns 0 on success. */
typedef int (*tsr_all_gather_fn)(void *user, const void *mine, uint64_t size_bytes, void *all);

typedef struct tsr_comm_params {
    size_t struct_size;
    tsr_bootstrap bootstrap;
    /* The timeout of each operation, from its start, and of the creation; 0: 60 s. */
    uint64_t timeout_ns;
    /* Makes reductions independent of the number of ranks: see tsr_comm_all_reduce. */
    bool reproducible;

    /* TSR_BOOTSTRAP_CALLBACK only. */
    int rank, size;
    tsr_all_gather_fn all_gather;
    void *user;
} tsr_comm_params;
#define tsr_comm_params(...)                                                                       \
    (&(tsr_comm_params){.struct_size = sizeof(tsr_comm_params), __VA_ARGS__})

/* The largest number of ranks; more are TSR_ERR_UNSUPPORTED. */
#define TSR_MAX_COMM_SIZE 4096

/* Creates the communicator of all ranks of the job. Collective: all ranks must call it, with the
 * same `reproducible`. Blocks until all ranks have connected, or the timeout. NULL `params` means
 * all defaults. After the bootstrap, messages between processes are neither authenticated nor
 * encrypted.
 *
 * Errors: TSR_ERR_INVALID for wrong parameters or environment variables; TSR_ERR_UNSUPPORTED for
 * more than one rank in a build without UCX, or for a bootstrap that is not in the build;
 * TSR_ERR_TIMEOUT naming the missing ranks; TSR_ERR_PEER_LOST; TSR_ERR_IO; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_create(const tsr_comm_params *params, tsr_comm **out);

/* Destroys a communicator. Not collective, and allowed while operations are in progress: their
 * requests fail, and their buffers are not accessed any more. Other ranks that wait for this rank
 * get TSR_ERR_PEER_LOST. Destroying the last communicator of a job blocks until its messages have
 * been delivered, for at most its timeout and at most 2 s (50 ms if it has failed). Sets *comm to
 * NULL. NULL is allowed. */
TSR_API void tsr_comm_destroy(tsr_comm **comm);

/* Creates one communicator for each colour, of the ranks that passed this `colour`. Its ranks are
 * ordered by `key`, and if keys are equal, by the rank in `comm`. A rank that passes
 * TSR_COLOUR_NONE gets NULL. Collective on `comm`; blocks until all ranks have called it, or the
 * timeout. The new communicator inherits the timeout and reproducibility; it does not depend on
 * `comm`, and must be destroyed separately.
 *
 * Errors: TSR_ERR_INVALID for a negative colour; TSR_ERR_UNSUPPORTED after a million communicators;
 * those of a collective operation. */
#define TSR_COLOUR_NONE (-1)
TSR_API TSR_NODISCARD tsr_status tsr_comm_split(tsr_comm *comm, int colour, int key,
                                                tsr_comm **out);

/* Creates another communicator of the same ranks, whose operations are independent of `comm`'s.
 * Collective; blocks as tsr_comm_split does. Errors: those of a collective operation. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_duplicate(tsr_comm *comm, tsr_comm **out);

typedef struct tsr_comm_shrink_params {
    size_t struct_size;
    uint64_t timeout_ns; /* 0: the communicator's timeout */
    /* Go on even if the ranks that call are not a majority (see below). The caller must know that
     * no other group of ranks goes on. */
    bool force;
} tsr_comm_shrink_params;
#define tsr_comm_shrink_params(...)                                                                \
    (&(tsr_comm_shrink_params){.struct_size = sizeof(tsr_comm_shrink_params), __VA_ARGS__})

/* Creates a communicator of the ranks of `comm` that are left, in the same order, for use after
 * TSR_ERR_PEER_LOST or TSR_ERR_TIMEOUT, or at any other time. All ranks that are left must call it,
 * within half the timeout of each other. NULL `params` means all defaults.
 *
 * A rank takes part by calling. The call waits for a rank that has not called until its process is
 * known to have ended, but for at most half the timeout: a stopped rank costs that time. If a rank
 * fails during the call, the others repeat the agreement without it.
 *
 * Two groups of ranks that cannot reach each other never both go on. A group goes on if it is more
 * than half of the ranks that are not known to have ended, or half of them and includes the lowest
 * rank among them. A rank is known to have ended if it ran on the same host and its process has
 * ended, or if its host refuses connections to it. After processes were killed, therefore, any
 * number of ranks may go on, even one, while stopped ranks and broken networks need a majority.
 *
 * `comm` fails on all its ranks at the start of the call (TSR_ERR_PEER_LOST: "rank 1 shrinks the
 * communicator"), so that ranks which wait in an operation can call, too. It must still be
 * destroyed. Communicators derived from it are not affected, and can be shrunk in the same way. The
 * new communicator inherits the timeout and reproducibility, and nothing else: it has connections
 * of its own, in which nothing that a rank of `comm` does, even later, can interfere. Blocks for at
 * most the timeout and 2 s.
 *
 * Errors: TSR_ERR_PEER_LOST if the others have gone on without this rank, because it did not call
 * in time (it was stopped, for example); TSR_ERR_TIMEOUT if there is no majority, or the ranks have
 * not connected in time; TSR_ERR_INVALID if `comm` has been shrunk already; TSR_ERR_UNSUPPORTED if
 * this process could not listen for the others when `comm` was created; TSR_ERR_NO_MEMORY;
 * TSR_ERR_IO. After an error the call may be repeated, unless this rank was left out. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_shrink(tsr_comm *comm,
                                                 const tsr_comm_shrink_params *params,
                                                 tsr_comm **out);

typedef struct tsr_comm_grow_params {
    size_t struct_size;
    /* How many processes may join; 0: one. */
    int count;
    /* How long to wait for them; 0: the communicator's timeout. */
    uint64_t timeout_ns;
} tsr_comm_grow_params;
#define tsr_comm_grow_params(...)                                                                  \
    (&(tsr_comm_grow_params){.struct_size = sizeof(tsr_comm_grow_params), __VA_ARGS__})

/* Creates a communicator of the ranks of `comm`, in the same order, followed by processes that join
 * the job. Collective on `comm`, with the same `params`; NULL means all defaults. Waits until
 * `count` processes have joined or the time is over, and goes on with those that have: at least
 * one.
 *
 * A process joins by tsr_comm_create with TSR_BOOTSTRAP_JOIN, or TESSERA_BOOT=join, and the same
 * `reproducible`. It waits for the ranks to call tsr_comm_grow for its own timeout, and tries again
 * until then if another process is lost while it joins. They meet at
 * MASTER_ADDR and TESSERA_MASTER_PORT, at the lowest rank that runs on that machine, and
 * authenticate each other as at the start of a job (docs/launching.md).
 *
 * `comm` is not affected. It must still be destroyed, before or after the new communicator, which
 * inherits the timeout and reproducibility and nothing else. A program that looks for newcomers now
 * and then passes a short timeout, such as 50 ms, because a process that joins tries to connect
 * every 20 ms.
 *
 * Errors: TSR_ERR_TIMEOUT on all ranks if no process has joined; TSR_ERR_INVALID for a wrong
 * `count` or variable; TSR_ERR_IO if no rank runs on the machine of MASTER_ADDR, or its port is in
 * use; any error of the creation of a communicator, if a newcomer has failed or been lost. After
 * these errors, `comm` can still be used, and the call repeated. After TSR_ERR_PEER_LOST and the
 * other errors of a collective operation, `comm` has failed. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_grow(tsr_comm *comm, const tsr_comm_grow_params *params,
                                               tsr_comm **out);

/* Return this rank and the number of ranks, or 0 for NULL. */
TSR_API int tsr_comm_rank(const tsr_comm *comm);
TSR_API int tsr_comm_size(const tsr_comm *comm);
/* Return this rank's number among the communicator's ranks on the same host, and the number of
 * ranks on this host. */
TSR_API int tsr_comm_local_rank(const tsr_comm *comm);
TSR_API int tsr_comm_local_size(const tsr_comm *comm);
/* Return the number of hosts of the communicator's ranks, and the host of a rank. Hosts are
 * numbered from 0 in the order of their first ranks. Ranks that share a host can share memory. The
 * functions return 0 and −1 if `comm` is NULL or the rank is out of range. */
TSR_API int tsr_comm_host_count(const tsr_comm *comm);
TSR_API int tsr_comm_host(const tsr_comm *comm, int rank);

/* Sets the timeout of operations that start from now on, counted from the start of each; 0: 60 s.
 * Returns the timeout so far, or 0 for NULL. */
TSR_API uint64_t tsr_comm_set_timeout(tsr_comm *comm, uint64_t timeout_ns);

/* Returns TSR_OK, or the error with which the communicator has failed; tsr_last_error() then has
 * its text. Does not block. */
TSR_API tsr_status tsr_comm_status(const tsr_comm *comm);

/* Requests --------------------------------------------------------------------------------------
 *
 * The last parameter of an operation, `request`, may be NULL: the call blocks until the operation
 * is done on this rank, or its deadline has passed. Otherwise the call starts the operation without
 * blocking and sets *request. Until the request is done, the caller must not write to `send` nor
 * access `recv`. Arrays of counts are copied. Operations only progress inside calls of this
 * library: each call that waits or tests advances all requests.
 *
 * A request exists until tsr_request_wait, tsr_request_test or tsr_request_cancel has freed it;
 * requests may be freed in any order. A communicator may have TSR_MAX_COMM_REQUESTS requests at the
 * same time, done or not. Starting one more operation is TSR_ERR_INVALID.
 *
 * The functions below also take the requests of groups (group.h). */
#define TSR_MAX_COMM_REQUESTS 32

/* Sets *done to whether the operation is done, without blocking. If it is done, returns its status,
 * frees the request and sets *request to NULL; otherwise returns TSR_OK. A NULL *request is done.
 */
TSR_API TSR_NODISCARD tsr_status tsr_request_test(tsr_request **request, bool *done);

/* Blocks until the operation is done or its deadline has passed. Returns its status, frees the
 * request and sets *request to NULL. Spins for up to 100 µs, then sleeps. TSR_OK for a NULL
 * *request. */
TSR_API TSR_NODISCARD tsr_status tsr_request_wait(tsr_request **request);

/* Cancels the operation, frees the request and sets *request to NULL; the buffers are not accessed
 * any more. Blocks for at most 60 ms per request in progress. Other ranks do not notice if the
 * operation is already done, or is a receive for which nothing has arrived. Otherwise the
 * communicator fails on all ranks (TSR_ERR_PEER_LOST: "rank 1 cancelled …"). NULL is fine. */
TSR_API void tsr_request_cancel(tsr_request **request);

/* Operations ------------------------------------------------------------------------------------
 *
 * `request` is described above; NULL: the call blocks. dtypes: TSR_F32, TSR_F64, TSR_F16, TSR_BF16,
 * TSR_I32, TSR_U32, TSR_I64, TSR_U8.
 *
 * Errors of all operations: TSR_ERR_INVALID (wrong dtype, op, root or rank, overlapping buffers,
 * NULL, or another rank has called something else); TSR_ERR_OVERFLOW (a count whose bytes do not
 * fit in 63 bits); TSR_ERR_NO_MEMORY (the operation has not started, and the other ranks wait for
 * it: call it again, or destroy the communicator); TSR_ERR_TIMEOUT; TSR_ERR_PEER_LOST. */

/* f16 and bf16 are combined in f32, and rounded to nearest even after each combination. Integers
 * wrap around. AVG is the sum divided by the number of ranks; integers are rounded towards zero.
 * For MIN and MAX, −0 is less than +0, and a NaN in any contribution gives NaN. Every NaN in a
 * result is the positive quiet NaN without payload. */
typedef enum tsr_op {
    TSR_OP_SUM = 1,
    TSR_OP_AVG = 2,
    TSR_OP_MIN = 3,
    TSR_OP_MAX = 4,
    TSR_OP_PROD = 5
} tsr_op;

/* Combines the contributions of all ranks: recv[i] = op over all ranks of send[i], for i < count,
 * on every rank. recv may be send.
 *
 * Order: the result has the same bits on every rank and in every run. The partial results that are
 * combined, and the order in which they are combined, depend on the number of ranks N only, not on
 * the count, the buffers or the transport. Let P be the largest power of two with P ≤ N. First
 * ranks 2i and 2i + 1 are combined for each i < N − P. Then the P partial results are combined in
 * pairs: first those whose numbers differ by 1, then their results, whose numbers differ by 2, then
 * by 4, …, P/2.
 *
 * In a `reproducible` communicator the result depends on the contributions only: neither on which
 * rank made which, nor on the number of ranks. An additional contribution of 0 to a sum, or of 1 to
 * a product, changes nothing, except that −0 plus +0 is +0. SUM and AVG of floats are the exact
 * sum, rounded once (AVG: twice). PROD multiplies in f64, the smallest contribution first. Each
 * rank receives the same number of bytes as in other communicators, but in N − 1 messages instead
 * of log2 N. For the cost of the arithmetic see docs/communication.md. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_reduce(tsr_comm *comm, const void *send, void *recv,
                                                     uint64_t count, tsr_dtype dtype, tsr_op op,
                                                     tsr_request **request);

/* An all-reduce whose result only `root` gets. recv[count] on root, where it may be send; other
 * ranks do not use recv, and may pass NULL. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_reduce(tsr_comm *comm, const void *send, void *recv,
                                                 uint64_t count, tsr_dtype dtype, tsr_op op,
                                                 int root, tsr_request **request);

/* An all-reduce of send[size · count] of which rank r gets block r: recv[count]. The bits are those
 * of the all-reduce. recv may be this rank's block of send, send + rank · count; the rest of send
 * is never written. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_reduce_scatter(tsr_comm *comm, const void *send,
                                                         void *recv, uint64_t count,
                                                         tsr_dtype dtype, tsr_op op,
                                                         tsr_request **request);
/* A reduce-scatter with blocks of counts[0], …, counts[size − 1] elements, one after the other,
 * into recv[counts[rank]]. All ranks must pass the same counts. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_reduce_scatter_v(tsr_comm *comm, const void *send,
                                                           void *recv, const uint64_t *counts,
                                                           tsr_dtype dtype, tsr_op op,
                                                           tsr_request **request);

/* Collects send[count] of all ranks, in the order of ranks, in recv[size · count] of every rank.
 * send may be this rank's block of recv, recv + rank · count. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_gather(tsr_comm *comm, const void *send, void *recv,
                                                     uint64_t count, tsr_dtype dtype,
                                                     tsr_request **request);
/* An all-gather in which rank r contributes counts[r] elements. All ranks must pass the same
 * counts. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_gather_v(tsr_comm *comm, const void *send, void *recv,
                                                       const uint64_t *counts, tsr_dtype dtype,
                                                       tsr_request **request);

/* Copies data[count] of root to data[count] of all ranks. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_broadcast(tsr_comm *comm, void *data, uint64_t count,
                                                    tsr_dtype dtype, int root,
                                                    tsr_request **request);

/* An all-gather whose result only root gets. Other ranks do not use recv, and may pass NULL. On
 * root, send may be its block of recv. gather_v: rank r contributes counts[r] elements. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_gather(tsr_comm *comm, const void *send, void *recv,
                                                 uint64_t count, tsr_dtype dtype, int root,
                                                 tsr_request **request);
TSR_API TSR_NODISCARD tsr_status tsr_comm_gather_v(tsr_comm *comm, const void *send, void *recv,
                                                   const uint64_t *counts, tsr_dtype dtype,
                                                   int root, tsr_request **request);

/* Distributes root's send[size · count]: rank r gets its block r, of `count` elements, in
 * recv[count]. Other ranks do not use send, and may pass NULL. On root, recv may be its block of
 * send. scatter_v: rank r gets counts[r] elements. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_scatter(tsr_comm *comm, const void *send, void *recv,
                                                  uint64_t count, tsr_dtype dtype, int root,
                                                  tsr_request **request);
TSR_API TSR_NODISCARD tsr_status tsr_comm_scatter_v(tsr_comm *comm, const void *send, void *recv,
                                                    const uint64_t *counts, tsr_dtype dtype,
                                                    int root, tsr_request **request);

/* Sends block r of send[size · count] to rank r, and receives block r of recv[size · count] from
 * it; blocks have `count` elements. recv may be send, at the cost of a temporary copy. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_to_all(tsr_comm *comm, const void *send, void *recv,
                                                     uint64_t count, tsr_dtype dtype,
                                                     tsr_request **request);
/* An all-to-all with blocks of send_counts[r] and recv_counts[r] elements, one after the other. The
 * number of elements that a rank sends to another must be the number that the other receives from
 * it. recv and send must not overlap. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_to_all_v(tsr_comm *comm, const void *send,
                                                       const uint64_t *send_counts, void *recv,
                                                       const uint64_t *recv_counts, tsr_dtype dtype,
                                                       tsr_request **request);

/* A barrier: it is done on each rank when all ranks have called it. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_barrier(tsr_comm *comm, tsr_request **request);

/* Sends data[count] to rank `to`, which receives it `from` this rank, with the same tag, count and
 * dtype. A rank cannot send to itself. Messages between two ranks with the same tag arrive in the
 * order of their sends. A send may complete before its receive starts. If count or dtype differ,
 * both ranks fail with TSR_ERR_INVALID. */
#define TSR_MAX_COMM_TAG 65535
TSR_API TSR_NODISCARD tsr_status tsr_comm_send(tsr_comm *comm, const void *data, uint64_t count,
                                               tsr_dtype dtype, int to, int tag,
                                               tsr_request **request);
TSR_API TSR_NODISCARD tsr_status tsr_comm_recv(tsr_comm *comm, void *data, uint64_t count,
                                               tsr_dtype dtype, int from, int tag,
                                               tsr_request **request);

#ifdef __cplusplus
}
#endif

#endif
