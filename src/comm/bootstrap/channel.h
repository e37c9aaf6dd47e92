/* One connection of a rendezvous: reads and writes messages through a non-blocking socket. */
#ifndef TSR_COMM_BOOTSTRAP_CHANNEL_H
#define TSR_COMM_BOOTSTRAP_CHANNEL_H

#include <stdbool.h>

#include "comm/bootstrap/wire.h"

/* "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535" and more */
#define TSR__ADDRESS_TEXT_SIZE 80

typedef struct tsr__channel {
    int fd;
    char peer[TSR__ADDRESS_TEXT_SIZE]; /* the other side's address, for errors and logs */
    const char *in, *out;              /* the sender in each direction, as in tsr__wire_seal */
    bool sealed;
    uint8_t key[TSR__WIRE_MAC];
    uint64_t number_in, number_out; /* of the next sealed message */

    /* The message that is being received. Its type must be in the set `wanted`, and its size is
     * checked before memory is allocated. */
    unsigned wanted;       /* 1u << type | … */
    uint64_t max_gathered; /* the size in bytes of the largest possible GATHERED */
    uint8_t header[TSR__WIRE_HEADER];
    tsr__wire_type type;
    uint64_t size;
    uint8_t *body;
    uint64_t got; /* bytes of header and body so far */
    bool complete;

    /* The message that is being sent: header (and sequence number), payload, MAC. */
    uint8_t head[TSR__WIRE_HEADER + 8], small[TSR__WIRE_PROOF_SIZE], tail[TSR__WIRE_MAC];
    const uint8_t *payload;
    size_t head_size, payload_size, tail_size;
    uint64_t sent;
    bool sending;
} tsr__channel;

typedef enum tsr__channel_event {
    TSR__CHANNEL_MORE,     /* the socket would block */
    TSR__CHANNEL_DONE,     /* a message has been received, or all has been sent */
    TSR__CHANNEL_CLOSED,   /* by the other side */
    TSR__CHANNEL_BAD,      /* the other side violates the protocol */
    TSR__CHANNEL_NO_MEMORY /* the error is recorded */
} tsr__channel_event;

/* Takes ownership of the socket. `listening`: this process is rank 0. */
void tsr__channel_init(tsr__channel *channel, int fd, const char *peer, bool listening);
void tsr__channel_finish(tsr__channel *channel);

/* Seals and verifies all further messages with the handshake's key. */
void tsr__channel_start_sealing(tsr__channel *channel, const void *token, size_t token_size,
                                const tsr__wire_handshake *handshake);

/* Reads what has arrived. After DONE, one complete message stays in the channel until
 * tsr__channel_take(); until then further data is BAD. Sets `why` for CLOSED and BAD. */
tsr__channel_event tsr__channel_read(tsr__channel *channel, const char **why);

/* The payload of the complete message. Valid until tsr__channel_take(). */
const uint8_t *tsr__channel_payload(const tsr__channel *channel, uint64_t *size);
/* Removes the complete message and sets the types that may come next. */
void tsr__channel_take(tsr__channel *channel, unsigned wanted_next);

/* Starts to send a message; the former one must have been sent. A sealed payload is not copied and
 * must stay valid until it has been sent. Other payloads are copied; they have at most
 * TSR__WIRE_PROOF_SIZE bytes. */
void tsr__channel_put(tsr__channel *channel, tsr__wire_type type, const void *payload, size_t size);

/* Writes as much as the socket accepts. */
tsr__channel_event tsr__channel_write(tsr__channel *channel);

#endif
