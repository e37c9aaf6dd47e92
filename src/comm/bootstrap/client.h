/* A rendezvous as ranks other than 0 see it. */
#ifndef TSR_COMM_BOOTSTRAP_CLIENT_H
#define TSR_COMM_BOOTSTRAP_CLIENT_H

#include "comm/bootstrap/address.h"
#include "comm/bootstrap/rendezvous.h"

typedef struct tsr__client {
    int32_t rank, size;
    tsr__channel channel;
} tsr__client;

/* Tries until rank 0 is there and lets it in. */
tsr_status tsr__client_open(const tsr__rendezvous_params *params, tsr__client **out) TSR_NODISCARD;
tsr_status tsr__client_exchange(tsr__client *client, const void *mine, uint64_t size_bytes,
                                const tsr__bootstrap_limit *limit,
                                tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__client_close(tsr__client **client);

#endif
