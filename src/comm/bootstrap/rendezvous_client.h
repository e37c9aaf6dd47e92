/* The client of a rendezvous, for all ranks except 0. It connects to rank 0 and sends this rank's
 * contributions to it. */
#ifndef TSR_COMM_BOOTSTRAP_RENDEZVOUS_CLIENT_H
#define TSR_COMM_BOOTSTRAP_RENDEZVOUS_CLIENT_H

#include "comm/bootstrap/address.h"
#include "comm/bootstrap/rendezvous.h"

typedef struct tsr__client {
    int32_t rank, size;
    tsr__channel channel;
} tsr__client;

/* A process that joins a running job does not know the number of ranks at first. Its first exchange
 * has this many contributions: only that of rank 0, which tsr__server_introduce sends. */
#define TSR__CLIENT_INTRODUCTION_SIZE 1

/* Connects to rank 0, and tries again until rank 0 accepts this rank. Fails when the deadline has
 * passed. If rank 0 has refused this process as one of another job, fails a few seconds later. */
tsr_status tsr__client_open(const tsr__rendezvous_params *params, tsr__client **out) TSR_NODISCARD;
/* Makes a client from an authenticated connection to rank 0. The client then owns the
 * connection. */
tsr_status tsr__client_adopt(int32_t rank, int32_t size, const tsr__channel *channel,
                             tsr__client **out) TSR_NODISCARD;
/* Sets the number of ranks that take part in later exchanges, once a process that joins a running
 * job has learnt it. */
void tsr__client_set_size(tsr__client *client, int32_t size);
tsr_status tsr__client_exchange(tsr__client *client, const void *mine, uint64_t size_bytes,
                                const tsr__bootstrap_limit *limit,
                                tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__client_close(tsr__client **client);

#endif
