/* A rendezvous as ranks other than 0 see it. */
#ifndef TSR_COMM_BOOTSTRAP_RANK_OTHER_H
#define TSR_COMM_BOOTSTRAP_RANK_OTHER_H

#include "comm/bootstrap/address.h"
#include "comm/bootstrap/rendezvous.h"

typedef struct tsr__joined {
    int32_t rank, size;
    tsr__channel channel;
} tsr__joined;

/* Tries until rank 0 is there and lets it in. */
tsr_status tsr__rank_other_open(const tsr__rendezvous_params *params,
                                tsr__joined **out) TSR_NODISCARD;
tsr_status tsr__rank_other_exchange(tsr__joined *joined, const void *mine, uint64_t size_bytes,
                                    const tsr__boot_limit *limit,
                                    tsr__boot_blocks *out) TSR_NODISCARD;
void tsr__rank_other_close(tsr__joined **joined);

#endif
