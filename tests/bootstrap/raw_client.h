/* Someone who connects to rank 0 and says what he likes. Every function fails the test when the
 * network does not do its part. */
#ifndef TESTS_BOOTSTRAP_RAW_CLIENT_H
#define TESTS_BOOTSTRAP_RAW_CLIENT_H

#include <stdbool.h>

#include "comm/bootstrap/rendezvous.h"
#include "comm/bootstrap/wire.h"

/* Connects to 127.0.0.1; rank 0 need not be listening yet. */
int client_connect(uint16_t port);
void client_send(int fd, const void *bytes, size_t size);

/* Reads exactly so much, for 10 s at most. */
void client_hear(int fd, void *bytes, size_t size);

/* Everything up to the end of the connection, which must come within `limit_ms`. How much. */
size_t client_hear_out(int fd, void *bytes, size_t size, int limit_ms);

/* A message with its header, at most 200 bytes. */
size_t client_message(uint8_t *out, tsr__wire_type type, const void *body, size_t size);

/* HELLO as a rank of a job, and the answer: the header of a message whose type is returned, and its
 * body in `body` (64 bytes). */
tsr__wire_type client_hello(int fd, tsr__wire_handshake *handshake, uint8_t *body);

/* The whole handshake by this token: the type of the last answer. `spoken` gets all that was said
 * to rank 0, 200 bytes at most, for a replay. */
tsr__wire_type client_join(int fd, tsr__wire_handshake *handshake, const char *token, uint8_t *body,
                           uint8_t *spoken, size_t *spoken_size);

#endif
