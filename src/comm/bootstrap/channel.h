/* One connection of a rendezvous: reads and writes messages through a non-blocking socket. */
#ifndef TSR_COMM_BOOTSTRAP_CHANNEL_H
#define TSR_COMM_BOOTSTRAP_CHANNEL_H

#include <stdbool.h>

#include "comm/bootstrap/wire_protocol.h"

/* Room for more than the longest address,
 * "[ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255]:65535". */
#define TSR__ADDRESS_TEXT_SIZE 80

typedef struct tsr__channel {
    int fd;
    char peer[TSR__ADDRESS_TEXT_SIZE]; /* the peer's address, for errors and logs */
    /* who sends the messages that are received (`in`) and those that are sent (`out`): "zero" for
     * rank 0, "rank" for the other side; see tsr__wire_seal */
    const char *in, *out;
    bool sealed;
    uint8_t key[TSR__WIRE_MAC];
    uint64_t number_in, number_out; /* the numbers of the next sealed message in each direction */

    /* The message that is being received. Its type must be in the set `wanted`. Its size is checked
     * before memory is allocated for it. */
    unsigned wanted;       /* a bit mask of the types that are allowed: 1u << type for each */
    uint64_t max_gathered; /* the size in bytes of the largest possible GATHERED */
    uint8_t header[TSR__WIRE_HEADER];
    tsr__wire_type type;
    uint64_t size;
    uint8_t *body;
    uint64_t got; /* number of bytes of header and body received so far */
    bool complete;

    /* The message that is being sent. `head` is the header, with the sequence number of a sealed
     * message behind it; `tail` is the MAC; the payload is between them. */
    uint8_t head[TSR__WIRE_HEADER + 8], small[TSR__WIRE_PROOF_SIZE], tail[TSR__WIRE_MAC];
    const uint8_t *payload;
    size_t head_size, payload_size, tail_size;
    uint64_t sent;
    bool sending;
} tsr__channel;

typedef enum tsr__channel_event {
    TSR__CHANNEL_MORE, /* the socket would block */
    /* a complete message has been received, or the message has been sent completely */
    TSR__CHANNEL_DONE,
    TSR__CHANNEL_CLOSED,   /* the peer has closed the connection */
    TSR__CHANNEL_BAD,      /* the peer has violated the protocol */
    TSR__CHANNEL_NO_MEMORY /* memory is exhausted, and the error is recorded */
} tsr__channel_event;

/* Initialises a channel, which owns the socket from now on. `listening` is true if this process is
 * rank 0. */
void tsr__channel_init(tsr__channel *channel, int fd, const char *peer, bool listening);
void tsr__channel_finish(tsr__channel *channel);

/* From now on, seals all messages that are sent and verifies all that are received, with a key from
 * the handshake. */
void tsr__channel_start_sealing(tsr__channel *channel, const void *token, size_t token_size,
                                const tsr__wire_handshake *handshake);

/* Reads the data that has arrived. When it returns DONE, a complete message is in the channel and
 * stays there until tsr__channel_take(). Data that arrives before that call is treated as BAD. Sets
 * *why for CLOSED and BAD. */
tsr__channel_event tsr__channel_read(tsr__channel *channel, const char **why);

/* The payload of the complete message. Valid until tsr__channel_take(). */
const uint8_t *tsr__channel_payload(const tsr__channel *channel, uint64_t *size);
/* Removes the complete message, and sets the types that the next message may have. */
void tsr__channel_take(tsr__channel *channel, unsigned wanted_next);

/* Starts to send a message. The previous message must have been sent. The payload of a sealed
 * message (one with a MAC, see wire_protocol.h) is not copied, so it must stay valid until it has
 * been sent. Other payloads, of at most TSR__WIRE_PROOF_SIZE bytes, are copied. */
void tsr__channel_put(tsr__channel *channel, tsr__wire_type type, const void *payload, size_t size);

/* Writes as many bytes as the socket accepts without blocking. */
tsr__channel_event tsr__channel_write(tsr__channel *channel);

#endif
