/* Who am I: a process finds its rank, the number of ranks and what each of them has to say, before
 * there is any other way to reach them. Four ways: PMIx (mpirun, prterun, srun --mpi=pmix),
 * variables of the environment with a rendezvous over TCP (tessera launch, torchrun, a launcher of
 * one's own), an all-gather of the caller's, or no one else at all. Needs no UCX.
 *
 * One thread at a time per object. */
#ifndef TSR_COMM_BOOTSTRAP_BOOTSTRAP_H
#define TSR_COMM_BOOTSTRAP_BOOTSTRAP_H

#include "base/clock.h"
#include "tessera/comm.h"

#define TSR__BOOTSTRAP_MAX_RANKS TSR_MAX_COMM_SIZE
#define TSR__BOOTSTRAP_MAX_BYTES 65536 /* bytes that a rank may bring to one exchange */
#define TSR__BOOTSTRAP_NODE_SIZE 16

typedef struct tsr__bootstrap tsr__bootstrap;

typedef enum tsr__bootstrap_kind {
    TSR__BOOTSTRAP_AUTO, /* by what the environment holds, or as TESSERA_BOOT says; never CALLBACK
                          */
    TSR__BOOTSTRAP_PMIX,
    TSR__BOOTSTRAP_ENV,
    TSR__BOOTSTRAP_CALLBACK,
    TSR__BOOTSTRAP_SINGLE
} tsr__bootstrap_kind;

/* The caller's all-gather: every rank brings `size_bytes` bytes, the same number everywhere, and
 * gets those of all ranks, in the order of ranks. 0 when it worked. Deadlines are its own. */
typedef int (*tsr__bootstrap_gather_fn)(void *user, const void *mine, uint64_t size_bytes,
                                        void *all);

typedef struct tsr__bootstrap_params {
    tsr__bootstrap_kind kind;
    uint64_t timeout_ns; /* until all ranks have met; 0: 60 s */

    /* CALLBACK only */
    int32_t rank, size;
    tsr__bootstrap_gather_fn gather;
    void *user;
} tsr__bootstrap_params;

typedef struct tsr__bootstrap_info {
    tsr__bootstrap_kind kind; /* never AUTO */
    int32_t rank, size;
    int32_t local_rank, local_size; /* on this node: the launcher's word, else by `node_of` */
    int32_t node_count;
    const int32_t
        *node_of; /* of each rank: 0 … node_count − 1, in the order of their first ranks */
    /* Equal for ranks that can share memory: one kernel, one /dev/shm, and the same IPC, PID and
     * network namespaces. TESSERA_NODE=name replaces all of that. */
    uint8_t node[TSR__BOOTSTRAP_NODE_SIZE];
} tsr__bootstrap_info;

/* What all ranks brought to an exchange: rank r's is bytes[starts[r]] … bytes[starts[r + 1] − 1].
 * Each is aligned to 8 bytes at least when all sizes are multiples of 8. */
typedef struct tsr__bootstrap_gathered {
    uint8_t *bytes;
    uint64_t *starts; /* size + 1 of them */
} tsr__bootstrap_gathered;

/* Until when to wait; and how long that was when it was asked for, which is what errors name: some
 * of it may have gone into what came before. */
typedef struct tsr__bootstrap_limit {
    uint64_t timeout_ns, deadline_ns;
} tsr__bootstrap_limit;

static inline tsr__bootstrap_limit tsr__bootstrap_limit_from_now(uint64_t timeout_ns)
{
    return (tsr__bootstrap_limit){.timeout_ns = timeout_ns,
                                  .deadline_ns = tsr__deadline_ns(timeout_ns)};
}

/* Meets all other ranks, collectively; NULL `params` is AUTO. Errors: a variable missing or out of
 * range (INVALID), a kind that this build or this environment does not have, or more ranks than
 * TSR__BOOTSTRAP_MAX_RANKS (UNSUPPORTED), ranks that did not come, named (TIMEOUT), no way to reach
 * rank 0 (IO, TIMEOUT), a rank that came and went away (PEER_LOST). */
tsr_status tsr__bootstrap_open(const tsr__bootstrap_params *params,
                               tsr__bootstrap **out) TSR_NODISCARD;

/* Owned by the boot. */
const tsr__bootstrap_info *tsr__bootstrap_get_info(const tsr__bootstrap *bootstrap);

/* Every rank brings one block of up to TSR__BOOTSTRAP_MAX_BYTES bytes, 0 included; sizes may
 * differ. Collective and a barrier: no rank gets an answer before all have called. `limit` NULL:
 * open's timeout, from now. Errors: TIMEOUT naming the ranks that did not call, PEER_LOST naming
 * one that is gone. After an error only `close` is of use. */
tsr_status tsr__bootstrap_exchange(tsr__bootstrap *bootstrap, const void *mine, uint64_t size_bytes,
                                   const tsr__bootstrap_limit *limit,
                                   tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__bootstrap_gathered_finish(tsr__bootstrap_gathered *blocks);

/* Not collective. NULL is fine; sets NULL. */
void tsr__bootstrap_close(tsr__bootstrap **bootstrap);

#endif
