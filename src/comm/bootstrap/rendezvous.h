/* A rendezvous over TCP. Rank 0 listens on one address, and the other ranks connect to it. Both
 * processes of each connection prove that they have the same token and belong to the same job.
 * After that, every exchange goes through rank 0.
 *
 * Any process can connect, so rank 0 does not trust a connection before its handshake is complete.
 * Rank 0 drops and logs a connection that sends unexpected data or is too slow; such a connection
 * never ends the job. Messages after the handshake are authenticated but not encrypted.
 * wire_protocol.h describes the protocol, and docs/launching.md describes the guarantees. */
#ifndef TSR_COMM_BOOTSTRAP_RENDEZVOUS_H
#define TSR_COMM_BOOTSTRAP_RENDEZVOUS_H

#include <sys/socket.h>

#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/channel.h"
#include "comm/bootstrap/job_identity.h"

typedef struct tsr__rendezvous tsr__rendezvous;

typedef struct tsr__rendezvous_params {
    int32_t rank, size; /* size ≥ 2; if both are 0, this process joins a running job */
    bool grows; /* rank 0 gives the numbers 1, 2, … to processes that join a running job */
    /* the name or numeric address of rank 0, which listens on this address only */
    const char *address;
    uint16_t port;
    const void *token; /* NULL is allowed only if the address is on loopback */
    size_t token_size;
    tsr__identity identity;
    uint64_t timeout_ns;   /* the time in which all ranks must join */
    uint64_t handshake_ns; /* the time limit of each connection's handshake; 0: 5 s */
} tsr__rendezvous_params;

/* Sets the address, port, token and identity from the environment. The texts stay in the
 * environment's memory. */
tsr_status tsr__rendezvous_from_environment(tsr__rendezvous_params *params) TSR_NODISCARD;

/* Opens a rendezvous. On rank 0, blocks until all ranks have joined. On the other ranks, blocks
 * until rank 0 has accepted this rank; only the first exchange shows whether all ranks have
 * joined. */
tsr_status tsr__rendezvous_open(const tsr__rendezvous_params *params,
                                tsr__rendezvous **out) TSR_NODISCARD;
tsr_status tsr__rendezvous_exchange(tsr__rendezvous *rendezvous, const void *mine,
                                    uint64_t size_bytes, const tsr__bootstrap_limit *limit,
                                    tsr__bootstrap_gathered *out) TSR_NODISCARD;
/* These two functions make a rendezvous from connections that recovery/ has authenticated. On
 * success the rendezvous owns the connections. On rank 0, tsr__rendezvous_adopt_server gets one to
 * each other rank: channels[r] leads to rank r, for 1 <= r < `size`. On the other ranks,
 * tsr__rendezvous_adopt_client gets the one to rank 0. */
tsr_status tsr__rendezvous_adopt_server(int32_t size, const tsr__channel *channels,
                                        tsr__rendezvous **out) TSR_NODISCARD;
tsr_status tsr__rendezvous_adopt_client(int32_t rank, int32_t size, const tsr__channel *channel,
                                        tsr__rendezvous **out) TSR_NODISCARD;
/* The address of this process on the network of the rendezvous. Returns false if it is unknown. */
bool tsr__rendezvous_own_address(const tsr__rendezvous *rendezvous, struct sockaddr_storage *out);
void tsr__rendezvous_close(tsr__rendezvous **rendezvous);

#endif
