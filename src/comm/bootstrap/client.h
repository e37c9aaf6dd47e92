/* Ranks other than 0 of a rendezvous: connect to rank 0 and send it their contributions. */
#ifndef TSR_COMM_BOOTSTRAP_CLIENT_H
#define TSR_COMM_BOOTSTRAP_CLIENT_H

#include "comm/bootstrap/address.h"
#include "comm/bootstrap/rendezvous.h"

typedef struct tsr__client {
    int32_t rank, size;
    tsr__channel channel;
} tsr__client;

/* Tries until rank 0 listens and accepts this rank. Fails at the deadline, and a few seconds after
 * rank 0 has refused this process as one of another job. */
tsr_status tsr__client_open(const tsr__rendezvous_params *params, tsr__client **out) TSR_NODISCARD;
tsr_status tsr__client_exchange(tsr__client *client, const void *mine, uint64_t size_bytes,
                                const tsr__bootstrap_limit *limit,
                                tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__client_close(tsr__client **client);

#endif
