/* Communicators: the processes of a job, and the collective operations between them, on host
 * memory.
 *
 *     tsr_comm *comm = NULL;
 *     tsr_comm_create(NULL, &comm);
 *     tsr_comm_all_reduce(comm, gradients, gradients, count, TSR_F32, TSR_OP_AVG);
 *     tsr_comm_destroy(&comm);
 *
 * All ranks of a communicator call the same operations in the same order, with the same dtype, op,
 * root and counts. What differs is found out and reported on all ranks, with both sides named
 * (TSR_ERR_INVALID), at the latest by the next call.
 *
 * Nothing waits for ever. Every operation has a deadline. Where a rank is killed, stopped, or
 * leaves, the others get TSR_ERR_PEER_LOST or TSR_ERR_TIMEOUT, which names the operation and the
 * rank. Then the communicator has failed, on all its ranks: every later call returns that same
 * error, and what is left to do is to destroy it. Communicators that share no lost rank go on.
 *
 * Where buffers may be the same is said with each operation; any other overlap of what is read with
 * what is written is an error. Buffers need no alignment. Counts are elements, and may be 0.
 *
 * One thread at a time uses a communicator, together with all those that were split or duplicated
 * from the same tsr_comm_create. A child after fork() can do nothing with it: its calls are
 * TSR_ERR_INVALID, requests in progress have failed there, and destroying it leaves it to the
 * parent, which goes on. */
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

/* Creating --------------------------------------------------------------------------------------
 */

/* How the processes find each other. */
typedef enum tsr_bootstrap {
    TSR_BOOTSTRAP_AUTO = 0, /* by what the environment holds: PMIX, ENV, else SINGLE */
    TSR_BOOTSTRAP_PMIX = 1, /* mpirun, prterun, srun --mpi=pmix */
    TSR_BOOTSTRAP_ENV = 2,  /* RANK, WORLD_SIZE, MASTER_ADDR, …: tessera launch, torchrun */
    TSR_BOOTSTRAP_CALLBACK = 3,
    TSR_BOOTSTRAP_SINGLE = 4 /* this process alone: needs no network, and no UCX in the build */
} tsr_bootstrap;

/* The caller's all-gather, for TSR_BOOTSTRAP_CALLBACK: every rank brings `size_bytes` bytes, the
 * same number everywhere, and gets those of all ranks in the order of ranks. Called a few times
 * while the communicator is created. Returns 0 when it worked. Deadlines are its own. */
typedef int (*tsr_all_gather_fn)(void *user, const void *mine, uint64_t size_bytes, void *all);

typedef struct tsr_comm_params {
    tsr_bootstrap bootstrap;
    /* The deadline of each operation, from its start, and of the creation; 0: 60 s. */
    uint64_t timeout_ns;
    /* Sums that do not depend on the number of ranks: see tsr_comm_all_reduce. */
    bool reproducible;

    /* TSR_BOOTSTRAP_CALLBACK only. */
    int rank, size;
    tsr_all_gather_fn all_gather;
    void *user;
} tsr_comm_params;
#define tsr_comm_params(...) (&(tsr_comm_params){__VA_ARGS__})

/* More ranks than this are TSR_ERR_UNSUPPORTED. */
#define TSR_MAX_COMM_SIZE 4096

/* Meets the other ranks: all call it, with the same `reproducible`. NULL `params` is all zero.
 * Messages of this library between processes are neither authenticated nor encrypted once they have
 * met.
 *
 * Errors: TSR_ERR_INVALID for parameters, or variables of the environment, that are wrong;
 * TSR_ERR_UNSUPPORTED for more than one rank in a build without UCX, or for a bootstrap that is not
 * in the build; TSR_ERR_TIMEOUT naming who did not come; TSR_ERR_PEER_LOST; TSR_ERR_IO;
 * TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_create(const tsr_comm_params *params, tsr_comm **out);

/* At any time, also with operations in progress: their requests then fail, and their buffers are
 * the caller's again. Not collective; the others are told, and whoever waits for this rank gets
 * TSR_ERR_PEER_LOST. A job's last communicator waits for messages that are on their way, at most as
 * long as its deadline, nor longer than 2 s, or than 50 ms if it has failed. NULL is fine; sets
 * NULL. */
TSR_API void tsr_comm_destroy(tsr_comm **comm);

/* A communicator of those ranks that give the same `colour`, ordered by `key`, then by rank. With
 * TSR_COLOUR_NONE a rank gets none: *out is NULL. All ranks of `comm` call it. The new one inherits
 * deadline and reproducibility, does not depend on `comm`, and is destroyed by itself.
 *
 * Errors: TSR_ERR_INVALID for a negative colour; those of a collective. TSR_ERR_UNSUPPORTED after a
 * million communicators. */
#define TSR_COLOUR_NONE (-1)
TSR_API TSR_NODISCARD tsr_status tsr_comm_split(tsr_comm *comm, int colour, int key,
                                                tsr_comm **out);

/* The same ranks again, with operations of their own. Errors: those of a collective. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_duplicate(tsr_comm *comm, tsr_comm **out);

TSR_API int tsr_comm_rank(const tsr_comm *comm);
TSR_API int tsr_comm_size(const tsr_comm *comm);
/* Among the ranks of this communicator that run on this rank's host. */
TSR_API int tsr_comm_local_rank(const tsr_comm *comm);
TSR_API int tsr_comm_local_size(const tsr_comm *comm);

/* The deadline of operations that start from now on; 0: 60 s. */
TSR_API void tsr_comm_set_timeout(tsr_comm *comm, uint64_t timeout_ns);

/* TSR_OK, or what the communicator has failed with; then tsr_last_error() says it too. */
TSR_API tsr_status tsr_comm_status(const tsr_comm *comm);

/* Requests --------------------------------------------------------------------------------------
 *
 * Each operation has a second form, …_start, which returns before it is done. Until the request is
 * done, buffers must not be touched, except that both may read what is sent; arrays of counts
 * are not kept. A communicator may have up to TSR_MAX_COMM_REQUESTS requests, done or not, that
 * have not been waited for, tested to their end or cancelled, in any order; one more operation is
 * TSR_ERR_INVALID. Nothing progresses but inside calls of this library: any call that waits or
 * tests drives all requests.
 *
 * `timeout_ns` is the deadline from the start; 0: the communicator's. */
#define TSR_MAX_COMM_REQUESTS 32

/* Whether the operation is done. If so, returns how it ended, frees the request and sets it to
 * NULL; else returns TSR_OK. *request NULL: done. */
TSR_API TSR_NODISCARD tsr_status tsr_request_test(tsr_request **request, bool *done);

/* Until it is done, or its deadline passes; returns how it ended, frees the request and sets it to
 * NULL. Spins for some microseconds, then sleeps. *request NULL: TSR_OK. */
TSR_API TSR_NODISCARD tsr_status tsr_request_wait(tsr_request **request);

/* Gives up: frees the request and sets it to NULL; its buffers are the caller's again. Cancelling a
 * receive that nothing has arrived for, or what is done already, disturbs nobody; cancelling
 * anything else fails the communicator on all ranks (TSR_ERR_PEER_LOST: "rank 1 cancelled …"). NULL
 * is fine. */
TSR_API void tsr_request_cancel(tsr_request **request);

/* Operations ------------------------------------------------------------------------------------
 *
 * dtypes: TSR_F32, TSR_F64, TSR_F16, TSR_BF16, TSR_I32, TSR_U32, TSR_I64, TSR_U8.
 *
 * Errors of all: TSR_ERR_INVALID (dtype, op, root, rank, overlap, NULL, what other ranks called),
 * TSR_ERR_OVERFLOW (a count whose bytes do not fit 63 bits), TSR_ERR_NO_MEMORY (the operation does
 * not start, and the other ranks wait for it: call it again, or destroy), TSR_ERR_TIMEOUT,
 * TSR_ERR_PEER_LOST. */

/* f16 and bf16 are combined in f32, and rounded to nearest even where a partial result travels.
 * Integers wrap around. AVG is the sum divided by the number of ranks, of integers towards zero.
 * MIN and MAX: −0 is less than +0; NaN anywhere gives NaN. Every NaN that an operation makes is the
 * positive quiet one without payload. */
typedef enum tsr_op {
    TSR_OP_SUM = 1,
    TSR_OP_AVG = 2,
    TSR_OP_MIN = 3,
    TSR_OP_MAX = 4,
    TSR_OP_PROD = 5
} tsr_op;

/* recv[i] = op over ranks of send[i], on every rank; recv may be send.
 *
 * Order: the same bits on every rank and in every run. Which partial results are combined, and in
 * which order, follows from the number of ranks alone, not from the count, the buffers or the
 * transport. Of N ranks, the last power of two in N, P, and r = N − P: ranks 2i and 2i+1 are
 * combined for i < r; then among the P partial results those at distance P/2, then P/4, …, 1.
 *
 * With `reproducible` the result depends on the contributions alone, not on who gave which, nor on
 * how many ranks there are (a contribution of 0 to a sum, or of 1 to a product, changes nothing but
 * -0, which a sum with +0 makes +0; NaNs become the same quiet one):
 * SUM and AVG of floats are the exact sum, rounded once (AVG: twice); PROD multiplies in f64, the
 * smallest contribution first. Each rank gets the same number of bytes as else, in N − 1 messages
 * rather than log2 N; see docs/communication.md for the cost of the arithmetic. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_reduce(tsr_comm *comm, const void *send, void *recv,
                                                     uint64_t count, tsr_dtype dtype, tsr_op op);
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_reduce_start(tsr_comm *comm, const void *send,
                                                           void *recv, uint64_t count,
                                                           tsr_dtype dtype, tsr_op op,
                                                           uint64_t timeout_ns, tsr_request **out);

/* The same on `root` alone; elsewhere recv is not used, and may be NULL. On root, recv may be
 * send. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_reduce(tsr_comm *comm, const void *send, void *recv,
                                                 uint64_t count, tsr_dtype dtype, tsr_op op,
                                                 int root);
TSR_API TSR_NODISCARD tsr_status tsr_comm_reduce_start(tsr_comm *comm, const void *send, void *recv,
                                                       uint64_t count, tsr_dtype dtype, tsr_op op,
                                                       int root, uint64_t timeout_ns,
                                                       tsr_request **out);

/* The same, of which rank r gets block r: send[size · count], recv[count]. recv may be this rank's
 * block of send, send + rank · count, which then alone is written. The bits are those of
 * all-reduce. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_reduce_scatter(tsr_comm *comm, const void *send,
                                                         void *recv, uint64_t count,
                                                         tsr_dtype dtype, tsr_op op);
TSR_API TSR_NODISCARD tsr_status tsr_comm_reduce_scatter_start(tsr_comm *comm, const void *send,
                                                               void *recv, uint64_t count,
                                                               tsr_dtype dtype, tsr_op op,
                                                               uint64_t timeout_ns,
                                                               tsr_request **out);
/* Blocks of counts[0], …, counts[size − 1] elements, one behind the other. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_reduce_scatter_v(tsr_comm *comm, const void *send,
                                                           void *recv, const uint64_t *counts,
                                                           tsr_dtype dtype, tsr_op op);
TSR_API TSR_NODISCARD tsr_status tsr_comm_reduce_scatter_v_start(tsr_comm *comm, const void *send,
                                                                 void *recv, const uint64_t *counts,
                                                                 tsr_dtype dtype, tsr_op op,
                                                                 uint64_t timeout_ns,
                                                                 tsr_request **out);

/* recv[size · count]: send[count] of all ranks, in their order. send may be this rank's block of
 * recv, recv + rank · count. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_gather(tsr_comm *comm, const void *send, void *recv,
                                                     uint64_t count, tsr_dtype dtype);
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_gather_start(tsr_comm *comm, const void *send,
                                                           void *recv, uint64_t count,
                                                           tsr_dtype dtype, uint64_t timeout_ns,
                                                           tsr_request **out);
/* Rank r brings counts[r] elements; all ranks know all counts. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_gather_v(tsr_comm *comm, const void *send, void *recv,
                                                       const uint64_t *counts, tsr_dtype dtype);
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_gather_v_start(tsr_comm *comm, const void *send,
                                                             void *recv, const uint64_t *counts,
                                                             tsr_dtype dtype, uint64_t timeout_ns,
                                                             tsr_request **out);

/* data[count] of root, to all. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_broadcast(tsr_comm *comm, void *data, uint64_t count,
                                                    tsr_dtype dtype, int root);
TSR_API TSR_NODISCARD tsr_status tsr_comm_broadcast_start(tsr_comm *comm, void *data,
                                                          uint64_t count, tsr_dtype dtype, int root,
                                                          uint64_t timeout_ns, tsr_request **out);

/* As all-gather, to root alone; elsewhere recv is not used, and may be NULL. On root, send may be
 * its block of recv. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_gather(tsr_comm *comm, const void *send, void *recv,
                                                 uint64_t count, tsr_dtype dtype, int root);
TSR_API TSR_NODISCARD tsr_status tsr_comm_gather_start(tsr_comm *comm, const void *send, void *recv,
                                                       uint64_t count, tsr_dtype dtype, int root,
                                                       uint64_t timeout_ns, tsr_request **out);
TSR_API TSR_NODISCARD tsr_status tsr_comm_gather_v(tsr_comm *comm, const void *send, void *recv,
                                                   const uint64_t *counts, tsr_dtype dtype,
                                                   int root);
TSR_API TSR_NODISCARD tsr_status tsr_comm_gather_v_start(tsr_comm *comm, const void *send,
                                                         void *recv, const uint64_t *counts,
                                                         tsr_dtype dtype, int root,
                                                         uint64_t timeout_ns, tsr_request **out);

/* recv[count] on rank r: block r of root's send[size · count]; elsewhere send is not used, and may
 * be NULL. On root, recv may be its block of send. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_scatter(tsr_comm *comm, const void *send, void *recv,
                                                  uint64_t count, tsr_dtype dtype, int root);
TSR_API TSR_NODISCARD tsr_status tsr_comm_scatter_start(tsr_comm *comm, const void *send,
                                                        void *recv, uint64_t count, tsr_dtype dtype,
                                                        int root, uint64_t timeout_ns,
                                                        tsr_request **out);
TSR_API TSR_NODISCARD tsr_status tsr_comm_scatter_v(tsr_comm *comm, const void *send, void *recv,
                                                    const uint64_t *counts, tsr_dtype dtype,
                                                    int root);
TSR_API TSR_NODISCARD tsr_status tsr_comm_scatter_v_start(tsr_comm *comm, const void *send,
                                                          void *recv, const uint64_t *counts,
                                                          tsr_dtype dtype, int root,
                                                          uint64_t timeout_ns, tsr_request **out);

/* Block r of send[size · count] goes to rank r, block r of recv[size · count] comes from it. recv
 * may be send, at the price of a copy. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_to_all(tsr_comm *comm, const void *send, void *recv,
                                                     uint64_t count, tsr_dtype dtype);
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_to_all_start(tsr_comm *comm, const void *send,
                                                           void *recv, uint64_t count,
                                                           tsr_dtype dtype, uint64_t timeout_ns,
                                                           tsr_request **out);
/* Blocks of send_counts and recv_counts elements, one behind the other: what this rank sends to r
 * is what r receives from it. recv and send do not overlap. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_to_all_v(tsr_comm *comm, const void *send,
                                                       const uint64_t *send_counts, void *recv,
                                                       const uint64_t *recv_counts,
                                                       tsr_dtype dtype);
TSR_API TSR_NODISCARD tsr_status tsr_comm_all_to_all_v_start(
    tsr_comm *comm, const void *send, const uint64_t *send_counts, void *recv,
    const uint64_t *recv_counts, tsr_dtype dtype, uint64_t timeout_ns, tsr_request **out);

/* No rank leaves before all have come. */
TSR_API TSR_NODISCARD tsr_status tsr_comm_barrier(tsr_comm *comm);
TSR_API TSR_NODISCARD tsr_status tsr_comm_barrier_start(tsr_comm *comm, uint64_t timeout_ns,
                                                        tsr_request **out);

/* From one rank to another, not itself. Messages between two ranks that have the same tag arrive in
 * the order of their sends. A send may be done before its receive has started. Count and dtype of a
 * receive are those of its send; else both fail. */
#define TSR_MAX_COMM_TAG 65535
TSR_API TSR_NODISCARD tsr_status tsr_comm_send(tsr_comm *comm, const void *data, uint64_t count,
                                               tsr_dtype dtype, int to, int tag);
TSR_API TSR_NODISCARD tsr_status tsr_comm_send_start(tsr_comm *comm, const void *data,
                                                     uint64_t count, tsr_dtype dtype, int to,
                                                     int tag, uint64_t timeout_ns,
                                                     tsr_request **out);
TSR_API TSR_NODISCARD tsr_status tsr_comm_recv(tsr_comm *comm, void *data, uint64_t count,
                                               tsr_dtype dtype, int from, int tag);
TSR_API TSR_NODISCARD tsr_status tsr_comm_recv_start(tsr_comm *comm, void *data, uint64_t count,
                                                     tsr_dtype dtype, int from, int tag,
                                                     uint64_t timeout_ns, tsr_request **out);

#ifdef __cplusplus
}
#endif

#endif
