/* The server of a rendezvous, for rank 0. It listens, waits until all ranks have joined, and
 * performs their exchanges. */
#ifndef TSR_COMM_BOOTSTRAP_SERVER_H
#define TSR_COMM_BOOTSTRAP_SERVER_H

#include "comm/bootstrap/connections.h"

tsr_status tsr__server_open(const tsr__rendezvous_params *params, tsr__server **out) TSR_NODISCARD;
/* Makes a server without a listener from the authenticated connections of the other ranks, which it
 * then owns: channels[r] is that of rank r, for 1 <= r < `size`. */
tsr_status tsr__server_adopt(int32_t size, const tsr__channel *channels,
                             tsr__server **out) TSR_NODISCARD;
tsr_status tsr__server_exchange(tsr__server *server, const void *mine, uint64_t size_bytes,
                                const tsr__bootstrap_limit *limit,
                                tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__server_close(tsr__server **server);

#endif
