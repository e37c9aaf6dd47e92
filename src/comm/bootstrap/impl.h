/* What boot.c and the ways to boot share. */
#ifndef TSR_COMM_BOOTSTRAP_IMPL_H
#define TSR_COMM_BOOTSTRAP_IMPL_H

#include "comm/bootstrap/bootstrap.h"

/* A way to boot: what stands behind a tsr__boot. */
typedef struct tsr__boot_way {
    const char *name;
    tsr_status (*exchange)(void *state, const void *mine, uint64_t size_bytes,
                           const tsr__boot_limit *limit, tsr__boot_blocks *out);
    void (*close)(void *state);
} tsr__boot_way;

/* What a way finds out by itself. −1 where it does not know. */
typedef struct tsr__boot_place {
    int32_t rank, size, local_rank, local_size;
} tsr__boot_place;

/* Before anybody is waited for: there are not too many ranks. */
tsr_status tsr__boot_check_size(int64_t size) TSR_NODISCARD;

/* Each opens one way; params->timeout_ns is not 0 any more. */
tsr_status tsr__boot_open_pmix(const tsr__boot_params *params, tsr__boot_place *place,
                               const tsr__boot_way **way, void **state) TSR_NODISCARD;
tsr_status tsr__boot_open_env(const tsr__boot_params *params, tsr__boot_place *place,
                              const tsr__boot_way **way, void **state) TSR_NODISCARD;
tsr_status tsr__boot_open_callback(const tsr__boot_params *params, tsr__boot_place *place,
                                   const tsr__boot_way **way, void **state) TSR_NODISCARD;
tsr_status tsr__boot_open_single(const tsr__boot_params *params, tsr__boot_place *place,
                                 const tsr__boot_way **way, void **state) TSR_NODISCARD;

/* Blocks for `count` ranks of these sizes, their bytes not yet filled in. Fails, changing nothing,
 * when a size is beyond TSR__BOOT_MAX_BLOCK, naming the rank. */
tsr_status tsr__boot_blocks_init(int32_t count, const uint64_t *sizes,
                                 tsr__boot_blocks *out) TSR_NODISCARD;

#endif
