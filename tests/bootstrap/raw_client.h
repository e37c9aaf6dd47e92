/* A client of rank 0 that can send any bytes. Every function fails the test if a network call fails
 * or times out. */
#ifndef TESTS_BOOTSTRAP_RAW_CLIENT_H
#define TESTS_BOOTSTRAP_RAW_CLIENT_H

#include <stdbool.h>

#include "comm/bootstrap/rendezvous.h"
#include "comm/bootstrap/wire_protocol.h"

/* Connects to a port of 127.0.0.1; waits until rank 0 listens. */
int client_connect(uint16_t port);
void client_send(int fd, const void *bytes, size_t size);

/* Receives exactly `size` bytes, within 10 s. */
void client_receive(int fd, void *bytes, size_t size);

/* Receives until rank 0 closes the connection, which must happen within `limit_ms`. Returns how
 * many bytes rank 0 has sent. */
size_t client_receive_until_closed(int fd, void *bytes, size_t size, int limit_ms);

/* Encodes a message with its header; at most 400 bytes. Returns its size. */
size_t client_message(uint8_t *out, tsr__wire_type type, const void *body, size_t size);

/* Sends HELLO and receives the answer. Returns the answer's type and writes its body (64 bytes). */
tsr__wire_type client_hello(int fd, tsr__wire_handshake *handshake, uint8_t *body);

/* Encodes a PROOF message. `purpose` is "rank" in an honest one. `identity` has the text of each
 * part of the job's identity; NULL stands for that of job_params(), which has none. */
size_t client_proof(const char *purpose, const char *token, const char *const *identity,
                    const tsr__wire_handshake *handshake, uint8_t *out);

/* Makes the complete handshake and returns the type of the last answer. `spoken` gets everything
 * that was sent to rank 0, 400 bytes at most, so that the test can send it again. */
tsr__wire_type client_join(int fd, tsr__wire_handshake *handshake, const char *token,
                           const char *const *identity, uint8_t *body, uint8_t *spoken,
                           size_t *spoken_size);

#endif
