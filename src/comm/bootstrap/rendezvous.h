/* A rendezvous over TCP: rank 0 listens on one address, the other ranks connect, both sides prove
 * that they know the token and belong to the same job, and then every exchange goes through rank 0.
 *
 * Any process can connect, so rank 0 trusts no connection before its handshake is over. It drops
 * and logs one that sends anything unexpected or is too slow; such a connection never ends the job.
 * Messages after the handshake are authenticated, but not encrypted. wire.h describes the protocol,
 * docs/launching.md the guarantees. */
#ifndef TSR_COMM_BOOTSTRAP_RENDEZVOUS_H
#define TSR_COMM_BOOTSTRAP_RENDEZVOUS_H

#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/identity.h"

typedef struct tsr__rendezvous tsr__rendezvous;

typedef struct tsr__rendezvous_params {
    int32_t rank, size;  /* size ≥ 2 */
    const char *address; /* of rank 0: a name or a number; the only one on which it listens */
    uint16_t port;
    const void *token; /* NULL is allowed on loopback only */
    size_t token_size;
    tsr__identity identity;
    uint64_t timeout_ns;   /* until all ranks have joined */
    uint64_t handshake_ns; /* for each connection's handshake; 0: 5 s */
} tsr__rendezvous_params;

/* Returns on rank 0 when all ranks have joined, on the others when rank 0 has accepted them. The
 * others find out at the first exchange whether all have joined. */
tsr_status tsr__rendezvous_open(const tsr__rendezvous_params *params,
                                tsr__rendezvous **out) TSR_NODISCARD;
tsr_status tsr__rendezvous_exchange(tsr__rendezvous *rendezvous, const void *mine,
                                    uint64_t size_bytes, const tsr__bootstrap_limit *limit,
                                    tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__rendezvous_close(tsr__rendezvous **rendezvous);

#endif
