/* A rendezvous as rank 0 sees it. */
#ifndef TSR_COMM_BOOTSTRAP_RANK_ZERO_H
#define TSR_COMM_BOOTSTRAP_RANK_ZERO_H

#include "comm/bootstrap/peers.h"

tsr_status tsr__rank_zero_open(const tsr__rendezvous_params *params,
                               tsr__peers **out) TSR_NODISCARD;
tsr_status tsr__rank_zero_exchange(tsr__peers *peers, const void *mine, uint64_t size_bytes,
                                   const tsr__boot_limit *limit,
                                   tsr__boot_blocks *out) TSR_NODISCARD;
void tsr__rank_zero_close(tsr__peers **peers);

#endif
