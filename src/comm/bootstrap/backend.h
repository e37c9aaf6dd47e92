/* What boot.c and the ways to boot share. */
#ifndef TSR_COMM_BOOTSTRAP_BACKEND_H
#define TSR_COMM_BOOTSTRAP_BACKEND_H

#include "comm/bootstrap/bootstrap.h"

/* A way to boot: what stands behind a tsr__bootstrap. */
typedef struct tsr__bootstrap_backend {
    const char *name;
    tsr_status (*exchange)(void *state, const void *mine, uint64_t size_bytes,
                           const tsr__bootstrap_limit *limit, tsr__bootstrap_gathered *out);
    void (*close)(void *state);
} tsr__bootstrap_backend;

/* What a way finds out by itself. −1 where it does not know. */
typedef struct tsr__bootstrap_place {
    int32_t rank, size, local_rank, local_size;
} tsr__bootstrap_place;

/* Before anybody is waited for: there are not too many ranks. */
tsr_status tsr__bootstrap_check_size(int64_t size) TSR_NODISCARD;

/* Opens a backend. params->timeout_ns is not 0. */
typedef tsr_status tsr__bootstrap_open_fn(const tsr__bootstrap_params *params,
                                          tsr__bootstrap_place *place,
                                          const tsr__bootstrap_backend **backend, void **state);
tsr__bootstrap_open_fn tsr__bootstrap_open_pmix, tsr__bootstrap_open_env,
    tsr__bootstrap_open_callback, tsr__bootstrap_open_single;

/* Blocks for `count` ranks of these sizes, their bytes not yet filled in. Fails, changing nothing,
 * when a size is beyond TSR__BOOTSTRAP_MAX_BYTES, naming the rank. */
tsr_status tsr__bootstrap_gathered_init(int32_t count, const uint64_t *sizes,
                                        tsr__bootstrap_gathered *out) TSR_NODISCARD;

#endif
