/* Where ranks meet over TCP: rank 0 listens on one address, the others connect, both sides prove
 * that they know the token, and then every exchange goes through rank 0.
 *
 * Anybody may connect, so rank 0 treats every connection as hostile until it has proved itself: it
 * is dropped and logged when it sends anything unexpected or is too slow, and never ends the job.
 * What is said after the proof is authenticated too, but not encrypted. docs/launching.md has the
 * protocol. */
#ifndef TSR_COMM_BOOTSTRAP_RENDEZVOUS_H
#define TSR_COMM_BOOTSTRAP_RENDEZVOUS_H

#include "comm/bootstrap/bootstrap.h"

typedef struct tsr__rendezvous tsr__rendezvous;

typedef struct tsr__rendezvous_params {
    int32_t rank, size;  /* size ≥ 2 */
    const char *address; /* of rank 0: a name or a number; the only one it listens on */
    uint16_t port;
    const void *token; /* NULL is allowed on loopback only */
    size_t token_size;
    uint64_t timeout_ns;   /* until all have met */
    uint64_t handshake_ns; /* for each connection to prove itself; 0: 5 s */
} tsr__rendezvous_params;

/* Returns when all have met (rank 0) or when rank 0 has accepted this rank (others), which then
 * learn at the first exchange whether all have come. */
tsr_status tsr__rendezvous_open(const tsr__rendezvous_params *params,
                                tsr__rendezvous **out) TSR_NODISCARD;
tsr_status tsr__rendezvous_exchange(tsr__rendezvous *rendezvous, const void *mine,
                                    uint64_t size_bytes, const tsr__bootstrap_limit *limit,
                                    tsr__bootstrap_gathered *out) TSR_NODISCARD;
void tsr__rendezvous_close(tsr__rendezvous **rendezvous);

#endif
