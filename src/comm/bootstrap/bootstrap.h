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

#define TSR__BOOT_MAX_RANKS TSR_MAX_COMM_SIZE
#define TSR__BOOT_MAX_BLOCK 65536 /* bytes that a rank may bring to one exchange */
#define TSR__BOOT_NODE_SIZE 16

typedef struct tsr__boot tsr__boot;

typedef enum tsr__boot_kind {
    TSR__BOOT_AUTO, /* by what the environment holds, or as TESSERA_BOOT says; never CALLBACK */
    TSR__BOOT_PMIX,
    TSR__BOOT_ENV,
    TSR__BOOT_CALLBACK,
    TSR__BOOT_SINGLE
} tsr__boot_kind;

/* The caller's all-gather: every rank brings `size_bytes` bytes, the same number everywhere, and
 * gets those of all ranks, in the order of ranks. 0 when it worked. Deadlines are its own. */
typedef int (*tsr__boot_gather_fn)(void *user, const void *mine, uint64_t size_bytes, void *all);

typedef struct tsr__boot_params {
    tsr__boot_kind kind;
    uint64_t timeout_ns; /* until all ranks have met; 0: 60 s */

    /* CALLBACK only */
    int32_t rank, size;
    tsr__boot_gather_fn gather;
    void *user;
} tsr__boot_params;

typedef struct tsr__boot_info {
    tsr__boot_kind kind; /* never AUTO */
    int32_t rank, size;
    int32_t local_rank, local_size; /* on this node: the launcher's word, else by `node_of` */
    int32_t node_count;
    const int32_t
        *node_of; /* of each rank: 0 … node_count − 1, in the order of their first ranks */
    /* Equal for ranks that can share memory: one kernel, one /dev/shm, and the same IPC, PID and
     * network namespaces. TESSERA_NODE=name replaces all of that. */
    uint8_t node[TSR__BOOT_NODE_SIZE];
} tsr__boot_info;

/* What all ranks brought to an exchange: rank r's is bytes[starts[r]] … bytes[starts[r + 1] − 1].
 * Each is aligned to 8 bytes at least when all sizes are multiples of 8. */
typedef struct tsr__boot_blocks {
    uint8_t *bytes;
    uint64_t *starts; /* size + 1 of them */
} tsr__boot_blocks;

/* Until when to wait; and how long that was when it was asked for, which is what errors name: some
 * of it may have gone into what came before. */
typedef struct tsr__boot_limit {
    uint64_t asked_ns, deadline_ns;
} tsr__boot_limit;

static inline tsr__boot_limit tsr__boot_limit_from_now(uint64_t timeout_ns)
{
    return (tsr__boot_limit){.asked_ns = timeout_ns, .deadline_ns = tsr__deadline_ns(timeout_ns)};
}

/* Meets all other ranks, collectively; NULL `params` is AUTO. Errors: a variable missing or out of
 * range (INVALID), a kind that this build or this environment does not have, or more ranks than
 * TSR__BOOT_MAX_RANKS (UNSUPPORTED), ranks that did not come, named (TIMEOUT), no way to reach rank
 * 0 (IO, TIMEOUT), a rank that came and went away (PEER_LOST). */
tsr_status tsr__boot_open(const tsr__boot_params *params, tsr__boot **out) TSR_NODISCARD;

/* Owned by the boot. */
const tsr__boot_info *tsr__boot_get_info(const tsr__boot *boot);

/* Every rank brings one block of up to TSR__BOOT_MAX_BLOCK bytes, 0 included; sizes may differ.
 * Collective and a barrier: no rank gets an answer before all have called. `limit` NULL: open's
 * timeout, from now. Errors: TIMEOUT naming the ranks that did not call, PEER_LOST naming one that
 * is gone. After an error only `close` is of use. */
tsr_status tsr__boot_exchange(tsr__boot *boot, const void *mine, uint64_t size_bytes,
                              const tsr__boot_limit *limit, tsr__boot_blocks *out) TSR_NODISCARD;
void tsr__boot_blocks_finish(tsr__boot_blocks *blocks);

/* Not collective. NULL is fine; sets NULL. */
void tsr__boot_close(tsr__boot **boot);

#endif
