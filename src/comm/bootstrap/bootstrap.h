/* Bootstrapping a job: a process finds its rank and the number of ranks, and exchanges a few bytes
 * with the other ranks before there is any other connection. There are four kinds: PMIx (mpirun,
 * prterun, srun --mpi=pmix); environment variables with a rendezvous over TCP (tessera launch,
 * torchrun, any other launcher); an all-gather function of the caller; and a single process. Needs
 * no UCX.
 *
 * One thread at a time per object. */
#ifndef TSR_COMM_BOOTSTRAP_BOOTSTRAP_H
#define TSR_COMM_BOOTSTRAP_BOOTSTRAP_H

#include "base/clock.h"
#include "tessera/comm.h"

#define TSR__BOOTSTRAP_MAX_RANKS TSR_MAX_COMM_SIZE
#define TSR__BOOTSTRAP_MAX_BYTES 65536 /* that a rank may contribute to one exchange */
#define TSR__BOOTSTRAP_NODE_SIZE 16

typedef struct tsr__bootstrap tsr__bootstrap;

typedef enum tsr__bootstrap_kind {
    TSR__BOOTSTRAP_AUTO, /* chosen by the environment; never CALLBACK */
    TSR__BOOTSTRAP_PMIX,
    TSR__BOOTSTRAP_ENV,
    TSR__BOOTSTRAP_CALLBACK,
    TSR__BOOTSTRAP_SINGLE
} tsr__bootstrap_kind;

/* An all-gather of the caller: every rank contributes `size_bytes` bytes, the same number
 * everywhere; `all` gets the contributions in the order of ranks. Returns 0 on success. It has its
 * own deadlines. */
typedef int (*tsr__bootstrap_gather_fn)(void *user, const void *mine, uint64_t size_bytes,
                                        void *all);

typedef struct tsr__bootstrap_params {
    tsr__bootstrap_kind kind;
    uint64_t timeout_ns; /* until all ranks have joined; 0: 60 s */

    /* CALLBACK only */
    int32_t rank, size;
    tsr__bootstrap_gather_fn gather;
    void *user;
} tsr__bootstrap_params;

typedef struct tsr__bootstrap_info {
    tsr__bootstrap_kind kind; /* never AUTO */
    int32_t rank, size;
    int32_t local_rank, local_size; /* on this node: as the launcher says, or counted */
    int32_t node_count;
    const int32_t
        *node_of; /* of each rank: 0 … node_count − 1, in the order of their first ranks */
    /* A digest that is equal for ranks that can share memory: same kernel, same /dev/shm, and same
     * IPC, PID and network namespaces. If TESSERA_NODE is set, it is the digest of that name alone.
     */
    uint8_t node[TSR__BOOTSTRAP_NODE_SIZE];
} tsr__bootstrap_info;

/* The contributions of all ranks to an exchange. That of rank r is bytes[starts[r]] …
 * bytes[starts[r + 1] − 1]. If all sizes are multiples of 8, each is aligned to 8 bytes. */
typedef struct tsr__bootstrap_gathered {
    uint8_t *bytes;
    uint64_t *starts; /* size + 1 of them */
} tsr__bootstrap_gathered;

/* A deadline, and the timeout from which it was computed. Errors name the timeout, because part of
 * the time may have passed before the present call. */
typedef struct tsr__bootstrap_limit {
    uint64_t timeout_ns, deadline_ns;
} tsr__bootstrap_limit;

static inline tsr__bootstrap_limit tsr__bootstrap_limit_from_now(uint64_t timeout_ns)
{
    return (tsr__bootstrap_limit){.timeout_ns = timeout_ns,
                                  .deadline_ns = tsr__deadline_ns(timeout_ns)};
}

/* Opens a bootstrap and waits for all other ranks. Collective. `params` NULL is AUTO. Errors:
 * TSR_ERR_INVALID for a variable that is missing or out of range, or if this process belongs to
 * another job than rank 0; TSR_ERR_UNSUPPORTED for a kind that this build or this environment
 * lacks, or more than TSR__BOOTSTRAP_MAX_RANKS ranks; TSR_ERR_TIMEOUT, naming the missing ranks;
 * TSR_ERR_IO if rank 0 cannot listen; TSR_ERR_PEER_LOST if a rank has left. */
tsr_status tsr__bootstrap_open(const tsr__bootstrap_params *params,
                               tsr__bootstrap **out) TSR_NODISCARD;

/* Owned by the bootstrap. */
const tsr__bootstrap_info *tsr__bootstrap_get_info(const tsr__bootstrap *bootstrap);

/* An all-gather: every rank contributes up to TSR__BOOTSTRAP_MAX_BYTES bytes; sizes may differ and
 * be 0. Blocks until all ranks have called. `limit` NULL is the timeout of `open`, from now on.
 * Errors: TSR_ERR_TIMEOUT, naming the ranks that have not called; TSR_ERR_PEER_LOST, naming one
 * that has left. After an error the bootstrap can only be closed. */
tsr_status tsr__bootstrap_exchange(tsr__bootstrap *bootstrap, const void *mine, uint64_t size_bytes,
                                   const tsr__bootstrap_limit *limit,
                                   tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__bootstrap_gathered_finish(tsr__bootstrap_gathered *blocks);

/* Not collective. Accepts NULL; sets NULL. */
void tsr__bootstrap_close(tsr__bootstrap **bootstrap);

#endif
