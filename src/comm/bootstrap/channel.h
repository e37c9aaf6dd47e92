/* One connection of a rendezvous: messages in and out of a non-blocking socket, a piece at a time.
 */
#ifndef TSR_COMM_BOOTSTRAP_CHANNEL_H
#define TSR_COMM_BOOTSTRAP_CHANNEL_H

#include <stdbool.h>

#include "comm/bootstrap/wire.h"

/* "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535" and more */
#define TSR__ADDRESS_TEXT_SIZE 80

typedef struct tsr__channel {
    int fd;
    char peer[TSR__ADDRESS_TEXT_SIZE]; /* the other side's address, for messages */
    const char *in, *out;              /* who speaks in each direction, as tsr__wire_seal has it */
    bool sealed;
    uint8_t key[TSR__WIRE_MAC];
    uint64_t number_in, number_out; /* of the next sealed message */

    /* Coming in. Only types in the set `wanted` are, and their sizes are checked before anything is
     * allocated for them. */
    unsigned wanted;     /* 1u << type | … */
    uint64_t blocks_max; /* bytes that BLOCKS may have */
    uint8_t header[TSR__WIRE_HEADER];
    tsr__wire_type type;
    uint64_t size;
    uint8_t *body;
    uint64_t got; /* bytes of header and body */
    bool complete;

    /* Going out: header (and number), payload, MAC. */
    uint8_t head[TSR__WIRE_HEADER + 8], small[TSR__WIRE_PROOF_SIZE], tail[TSR__WIRE_MAC];
    const uint8_t *payload;
    size_t head_size, payload_size, tail_size;
    uint64_t sent;
    bool sending;
} tsr__channel;

typedef enum tsr__channel_event {
    TSR__CHANNEL_MORE,     /* nothing further for now */
    TSR__CHANNEL_DONE,     /* a message is there, or has been sent */
    TSR__CHANNEL_CLOSED,   /* by the other side */
    TSR__CHANNEL_BAD,      /* the other side breaks the rules */
    TSR__CHANNEL_NO_MEMORY /* recorded */
} tsr__channel_event;

/* Takes the socket over. `listening`: this is rank 0's end. */
void tsr__channel_init(tsr__channel *channel, int fd, const char *peer, bool listening);
void tsr__channel_finish(tsr__channel *channel);

/* From now on messages are sealed with the handshake's key. */
void tsr__channel_start_sealing(tsr__channel *channel, const void *token, size_t token_size,
                                const tsr__wire_handshake *handshake);

/* Reads what there is. DONE: one message is complete and stays until it is taken; anything that
 * comes before that is BAD. `why` is written for CLOSED and BAD. */
tsr__channel_event tsr__channel_read(tsr__channel *channel, const char **why);

/* The complete message without what surrounds it. Valid until it is taken. */
const uint8_t *tsr__channel_payload(const tsr__channel *channel, uint64_t *size);
void tsr__channel_take(tsr__channel *channel, unsigned wanted_next);

/* Puts one message in front of the socket, the former one having been sent. A sealed payload stays
 * the caller's and must live until then; others are at most TSR__WIRE_PROOF_SIZE bytes and copied.
 */
void tsr__channel_put(tsr__channel *channel, tsr__wire_type type, const void *payload, size_t size);

/* Writes what the socket takes. */
tsr__channel_event tsr__channel_write(tsr__channel *channel);

#endif
