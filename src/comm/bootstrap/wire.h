/* What is said at a rendezvous, byte by byte. All integers are little-endian.
 *
 *     header     "TSRB", version 1, type 1, zero 2, size 8: bytes that follow
 *
 *     rank → 0   HELLO      rank 4, size 4, nonce 32
 *     0 → rank   CHALLENGE  nonce 32
 *     rank → 0   PROOF      MAC 32 under the token, of "rank" and the handshake
 *     0 → rank   WELCOME    MAC 32 under the token, of "zero" and the handshake
 *     0 → rank   REFUSED    reason 1, instead of any of these: a hint only, anyone could have sent
 * it
 *
 *     rank → 0   BLOCK      sealed: the bytes
 *     0 → rank   BLOCKS     sealed: size 4 of each rank's, then their bytes
 *     0 → rank   ABORT      sealed: status 4, text
 *
 * A handshake is rank 4, size 4, the rank's nonce and rank 0's: a proof holds for this connection
 * only. Sealed is sequence number 8, the payload, MAC 32 of header, number, payload and direction
 * under a key that is the MAC of "key" and the handshake. MAC is HMAC-SHA256. */
#ifndef TSR_COMM_BOOTSTRAP_WIRE_H
#define TSR_COMM_BOOTSTRAP_WIRE_H

#include <stddef.h>
#include <stdint.h>

enum {
    TSR__WIRE_VERSION = 1,
    TSR__WIRE_HEADER = 16,
    TSR__WIRE_NONCE = 32,
    TSR__WIRE_MAC = 32,
    TSR__WIRE_HELLO_SIZE = 4 + 4 + TSR__WIRE_NONCE,
    TSR__WIRE_SEAL = 8 + TSR__WIRE_MAC,
    TSR__WIRE_MAX_TEXT = 1024
};

typedef enum tsr__wire_type {
    TSR__WIRE_HELLO = 1,
    TSR__WIRE_CHALLENGE,
    TSR__WIRE_PROOF,
    TSR__WIRE_WELCOME,
    TSR__WIRE_REFUSED,
    TSR__WIRE_CONTRIBUTION,
    TSR__WIRE_GATHERED,
    TSR__WIRE_ABORT
} tsr__wire_type;

typedef enum tsr__wire_reason {
    TSR__WIRE_BAD_TOKEN = 1,
    TSR__WIRE_BAD_RANK,
    TSR__WIRE_BAD_SIZE,
    TSR__WIRE_DUPLICATE
} tsr__wire_reason;

typedef struct tsr__wire_handshake {
    uint32_t rank, size;
    uint8_t rank_nonce[TSR__WIRE_NONCE], zero_nonce[TSR__WIRE_NONCE];
} tsr__wire_handshake;

/* A header's bytes; reading one tells what is wrong with it, NULL when nothing is. */
void tsr__wire_header(tsr__wire_type type, uint64_t size, uint8_t out[TSR__WIRE_HEADER]);
const char *tsr__wire_read_header(const uint8_t bytes[TSR__WIRE_HEADER], tsr__wire_type *type,
                                  uint64_t *size);

void tsr__wire_put_u32(uint8_t *out, uint32_t value);
void tsr__wire_put_u64(uint8_t *out, uint64_t value);
uint32_t tsr__wire_get_u32(const uint8_t *bytes);
uint64_t tsr__wire_get_u64(const uint8_t *bytes);

/* `purpose` is "rank", "zero" or "key". */
void tsr__wire_prove(const char *purpose, const void *token, size_t token_size,
                     const tsr__wire_handshake *handshake, uint8_t out[TSR__WIRE_MAC]);

/* `direction` is "rank" or "zero": who speaks. */
void tsr__wire_seal(const char *direction, const uint8_t key[TSR__WIRE_MAC],
                    const uint8_t header[TSR__WIRE_HEADER], uint64_t number, const void *payload,
                    size_t size, uint8_t out[TSR__WIRE_MAC]);

/* What a reason stands for, in words. */
const char *tsr__wire_reason_text(uint8_t reason);

#endif
