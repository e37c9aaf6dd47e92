/* The server of a rendezvous, for rank 0. It listens, waits until all ranks have joined, and
 * performs their exchanges. */
#ifndef TSR_COMM_BOOTSTRAP_SERVER_H
#define TSR_COMM_BOOTSTRAP_SERVER_H

#include "comm/bootstrap/connections.h"

tsr_status tsr__server_open(const tsr__rendezvous_params *params, tsr__server **out) TSR_NODISCARD;
tsr_status tsr__server_exchange(tsr__server *server, const void *mine, uint64_t size_bytes,
                                const tsr__bootstrap_limit *limit,
                                tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__server_close(tsr__server **server);

#endif
