/* Bootstrapping a job: a process finds its rank and the number of ranks, and exchanges a few bytes
 * with the other ranks before any other connection exists. There are four kinds of bootstrap: PMIx
 * (mpirun, prterun, srun --mpi=pmix); environment variables with a rendezvous over TCP (tessera
 * launch, torchrun, any other launcher); an all-gather function of the caller; and a single
 * process. None of them needs UCX.
 *
 * One thread at a time per object. */
#ifndef TSR_COMM_BOOTSTRAP_BOOTSTRAP_H
#define TSR_COMM_BOOTSTRAP_BOOTSTRAP_H

#include <sys/socket.h>

#include "base/clock.h"
#include "tessera/comm.h"

#define TSR__BOOTSTRAP_MAX_RANKS TSR_MAX_COMM_SIZE
#define TSR__BOOTSTRAP_MAX_BYTES 65536 /* the most that a rank may contribute to one exchange */
#define TSR__BOOTSTRAP_NODE_SIZE 16

typedef struct tsr__bootstrap tsr__bootstrap;

typedef enum tsr__bootstrap_kind {
    TSR__BOOTSTRAP_AUTO, /* chosen from the environment; never CALLBACK */
    TSR__BOOTSTRAP_PMIX,
    TSR__BOOTSTRAP_ENV,
    TSR__BOOTSTRAP_CALLBACK,
    TSR__BOOTSTRAP_SINGLE,
    TSR__BOOTSTRAP_JOIN /* joins a running job, whose ranks are growing (api/grow_comm.c) */
} tsr__bootstrap_kind;

/* An all-gather function of the caller. Every rank contributes `size_bytes` bytes, and this number
 * is the same on all ranks. The function writes all contributions to `all`, in the order of ranks,
 * and returns 0 on success. It must implement its own deadlines. */
typedef int (*tsr__bootstrap_gather_fn)(void *user, const void *mine, uint64_t size_bytes,
                                        void *all);

typedef struct tsr__bootstrap_params {
    tsr__bootstrap_kind kind;
    uint64_t timeout_ns; /* the time in which all ranks must join; 0: 60 s */

    /* Only for CALLBACK. */
    int32_t rank, size;
    tsr__bootstrap_gather_fn gather;
    void *user;
} tsr__bootstrap_params;

typedef struct tsr__bootstrap_info {
    tsr__bootstrap_kind kind; /* the kind that is used; never AUTO */
    int32_t rank, size;
    /* this rank's number among the ranks of its node, and their number; from the launcher if it
     * sets them, otherwise counted */
    int32_t local_rank, local_size;
    int32_t node_count;
    /* [size]: each rank's node, 0 … node_count − 1. Nodes are in the order
     * of their lowest ranks. */
    const int32_t *node_of;
    /* A hash that is equal for ranks that can share memory: those with the same running kernel, the
     * same /dev/shm, and the same IPC, PID and network namespaces. If TESSERA_NODE is set, this is
     * the hash of its value only. */
    uint8_t node[TSR__BOOTSTRAP_NODE_SIZE];
    /* The address of this process on the network of the rendezvous, or AF_UNSPEC if there is
     * none. */
    struct sockaddr_storage own_address;
} tsr__bootstrap_info;

/* The contributions of all ranks to an exchange. Rank r's contribution is bytes[starts[r]] …
 * bytes[starts[r + 1] − 1]. If all sizes are multiples of 8, each contribution is aligned to 8
 * bytes. */
typedef struct tsr__bootstrap_gathered {
    uint8_t *bytes;
    uint64_t *starts; /* [size + 1] */
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

/* Opens a bootstrap and blocks until all other ranks have opened theirs. Collective. If `params` is
 * NULL, the kind is AUTO. Errors: TSR_ERR_INVALID for a variable that is missing or out of range,
 * or if this process belongs to another job than rank 0; TSR_ERR_UNSUPPORTED for a kind that this
 * build or this environment does not support, or for more than TSR__BOOTSTRAP_MAX_RANKS ranks;
 * TSR_ERR_TIMEOUT, naming the missing ranks; TSR_ERR_IO if rank 0 cannot listen; TSR_ERR_PEER_LOST
 * if a rank has left. */
tsr_status tsr__bootstrap_open(const tsr__bootstrap_params *params,
                               tsr__bootstrap **out) TSR_NODISCARD;

/* The same as tsr__bootstrap_open, but the ranks exchange data through a rendezvous that recovery/
 * has made. This function owns the rendezvous from then on, even if it fails. */
struct tsr__rendezvous;
tsr_status tsr__bootstrap_open_adopted(struct tsr__rendezvous *rendezvous, int32_t rank,
                                       int32_t size, const tsr__bootstrap_limit *limit,
                                       tsr__bootstrap **out) TSR_NODISCARD;

/* Returns the properties of the job. The bootstrap owns them. */
const tsr__bootstrap_info *tsr__bootstrap_get_info(const tsr__bootstrap *bootstrap);

/* An all-gather: every rank contributes up to TSR__BOOTSTRAP_MAX_BYTES bytes. Sizes may differ
 * between ranks and may be 0. Blocks until all ranks have called. If `limit` is NULL, the timeout
 * is the one given to tsr__bootstrap_open, counted from this call. Errors: TSR_ERR_TIMEOUT, naming
 * the ranks that have not called; TSR_ERR_PEER_LOST, naming a rank that has left. After an error
 * the bootstrap can only be closed. */
tsr_status tsr__bootstrap_exchange(tsr__bootstrap *bootstrap, const void *mine, uint64_t size_bytes,
                                   const tsr__bootstrap_limit *limit,
                                   tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__bootstrap_gathered_finish(tsr__bootstrap_gathered *blocks);

/* Closes a bootstrap and sets the pointer to NULL. Not collective. Accepts NULL. */
void tsr__bootstrap_close(tsr__bootstrap **bootstrap);

#endif
