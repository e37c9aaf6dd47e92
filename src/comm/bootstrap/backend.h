/* Private to this folder: the interface of the backends, and functions that bootstrap.c and the
 * backends share. */
#ifndef TSR_COMM_BOOTSTRAP_BACKEND_H
#define TSR_COMM_BOOTSTRAP_BACKEND_H

#include "comm/bootstrap/bootstrap.h"

/* How an open bootstrap exchanges contributions. */
typedef struct tsr__bootstrap_backend {
    const char *name; /* for the log: "through PMIx" */
    tsr_status (*exchange)(void *state, const void *mine, uint64_t size_bytes,
                           const tsr__bootstrap_limit *limit, tsr__bootstrap_gathered *out);
    void (*close)(void *state);
} tsr__bootstrap_backend;

/* A process's place in its job. The local numbers are −1 if the backend does not know them. */
typedef struct tsr__bootstrap_place {
    int32_t rank, size, local_rank, local_size;
} tsr__bootstrap_place;

/* Opens a backend, without waiting for the other ranks if the backend allows that.
 * params->timeout_ns is not 0. */
typedef tsr_status tsr__bootstrap_open_fn(const tsr__bootstrap_params *params,
                                          tsr__bootstrap_place *place,
                                          const tsr__bootstrap_backend **backend, void **state);
tsr__bootstrap_open_fn tsr__bootstrap_open_pmix, tsr__bootstrap_open_env,
    tsr__bootstrap_open_callback, tsr__bootstrap_open_single;

/* Fails with TSR_ERR_UNSUPPORTED for more than TSR__BOOTSTRAP_MAX_RANKS. */
tsr_status tsr__bootstrap_check_size(int64_t size) TSR_NODISCARD;

/* Allocates room for the contributions of `count` ranks of these sizes; the bytes are zero. Fails
 * if a size is above TSR__BOOTSTRAP_MAX_BYTES, naming the rank. */
tsr_status tsr__bootstrap_gathered_init(int32_t count, const uint64_t *sizes,
                                        tsr__bootstrap_gathered *out) TSR_NODISCARD;

/* choose.c: resolves AUTO from the environment. `why`, for the log, is in static storage. Fails for
 * an invalid TESSERA_BOOT, and if a launcher has started several processes that cannot find one
 * another: N processes that each consider themselves the only one would be worse. */
tsr_status tsr__bootstrap_choose(tsr__bootstrap_kind *kind, const char **why) TSR_NODISCARD;

/* node.c: identifies the node of this process, as described at tsr__bootstrap_info.node. */
void tsr__bootstrap_node(uint8_t node[TSR__BOOTSTRAP_NODE_SIZE]);

#endif
