/* The rendezvous protocol, version 2, byte by byte. A number after a field's name is the field's
 * size in bytes. All integers are little-endian.
 *
 *     header     "TSRB", version 1, type 1, zero 2, size 8 (the bytes that follow the header)
 *
 *     rank → 0   HELLO         rank 4, size 4, nonce 32. Both numbers are 0 if the process joins
 *                              a running job, which gives it a rank
 *     0 → rank   CHALLENGE     nonce 32
 *     rank → 0   PROOF         MAC 32 of "rank"; then, for each field of a job's identity, MAC 32
 *     0 → rank   WELCOME       MAC 32 of "zero"
 *     0 → rank   REFUSED       reason 1. Rank 0 may send it instead of each message above. It is
 *                              not authenticated, so a rank treats it as a hint
 *
 *     rank → 0   CONTRIBUTION  sealed: the bytes
 *     0 → rank   GATHERED      sealed: 4 bytes for the size of each rank's contribution, then the
 *                              contributions
 *     0 → rank   ABORT         sealed: status 4, text
 *
 * Ranks that recover from a failure (recovery/recovery_link.h) use the same messages, with these
 * differences. The connector is the process that has started the connection:
 *
 *     connector  HELLO         uid of the connector 8 (recovery/recovery.h), nonce 32
 *     connector  MEMBER        MAC 32 of "rank". It replaces PROOF
 *     either     NOTE          sealed: what recovery/member_links.h defines
 *     connector  LEFT_OUT      lineage 8, generation 4, uid of the receiver 8, MAC 32. It needs no
 *                              handshake, so that a stopped process can read it later; it is never
 *                              sealed, and may be sent at any time
 *
 * MAC is HMAC-SHA256. Until the handshake is complete, its key is the token (the empty string if
 * there is none), and every MAC covers the data of the handshake: rank 4, size 4, the rank's nonce
 * and rank 0's nonce. A proof is therefore valid for one connection only. The MACs of an identity
 * reveal nothing about the identity to anybody who does not have both the token and the identity.
 *
 * A sealed message consists of: sequence number 8, payload, MAC 32. Its MAC covers the direction,
 * the header, the sequence number and the payload. The key of this MAC is the handshake's MAC of
 * "key". */
#ifndef TSR_COMM_BOOTSTRAP_WIRE_PROTOCOL_H
#define TSR_COMM_BOOTSTRAP_WIRE_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

/* The fields of a job's identity. Two processes belong to the same job only if all fields are
 * equal. job_identity.h describes each field. */
typedef enum tsr__identity_field {
    TSR__IDENTITY_JOB_ID,
    TSR__IDENTITY_USER,
    TSR__IDENTITY_EXECUTABLE,
    TSR__IDENTITY_TORCHRUN,
    TSR__IDENTITY_SLURM,
    TSR__IDENTITY_FIELDS /* the number of fields */
} tsr__identity_field;

enum {
    TSR__WIRE_VERSION = 2,
    TSR__WIRE_HEADER = 16,
    TSR__WIRE_NONCE = 32,
    TSR__WIRE_MAC = 32,
    TSR__WIRE_HELLO_SIZE = 4 + 4 + TSR__WIRE_NONCE,
    TSR__WIRE_PROOF_SIZE = (1 + TSR__IDENTITY_FIELDS) * TSR__WIRE_MAC,
    TSR__WIRE_SEAL = 8 + TSR__WIRE_MAC,
    TSR__WIRE_LEFT_OUT_SIZE = 8 + 4 + 8 + TSR__WIRE_MAC,
    TSR__WIRE_MAX_NOTE = 65536,
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
    TSR__WIRE_ABORT,
    TSR__WIRE_MEMBER,
    TSR__WIRE_NOTE,
    TSR__WIRE_LEFT_OUT
} tsr__wire_type;

/* Why rank 0 refuses a process. OTHER_JOB + p means that the identities differ in field p. */
typedef enum tsr__wire_reason {
    TSR__WIRE_BAD_TOKEN = 1,
    TSR__WIRE_BAD_RANK,
    TSR__WIRE_BAD_SIZE,
    TSR__WIRE_DUPLICATE,
    TSR__WIRE_FULL,
    TSR__WIRE_OTHER_JOB = 16
} tsr__wire_reason;

typedef struct tsr__wire_handshake {
    uint32_t rank, size;
    uint8_t rank_nonce[TSR__WIRE_NONCE], zero_nonce[TSR__WIRE_NONCE];
} tsr__wire_handshake;

/* Writes the header of a message to `out`. */
void tsr__wire_header(tsr__wire_type type, uint64_t size, uint8_t out[TSR__WIRE_HEADER]);
/* Reads a header. Returns NULL, or a text that says what is wrong with the header. */
const char *tsr__wire_read_header(const uint8_t bytes[TSR__WIRE_HEADER], tsr__wire_type *type,
                                  uint64_t *size);

void tsr__wire_put_u32(uint8_t *out, uint32_t value);
void tsr__wire_put_u64(uint8_t *out, uint64_t value);
uint32_t tsr__wire_get_u32(const uint8_t *bytes);
uint64_t tsr__wire_get_u64(const uint8_t *bytes);

/* Computes the MAC of a handshake. `purpose` is "rank", "zero" or "key". */
void tsr__wire_prove(const char *purpose, const void *token, size_t token_size,
                     const tsr__wire_handshake *handshake, uint8_t out[TSR__WIRE_MAC]);

/* Computes the MAC of one field of a job's identity. `text` is NULL if the process does not have
 * this field. The MAC then differs from that of every text. */
void tsr__wire_prove_identity(tsr__identity_field field, const char *text, const void *token,
                              size_t token_size, const tsr__wire_handshake *handshake,
                              uint8_t out[TSR__WIRE_MAC]);

/* Computes the MAC of a sealed message. `direction` names the sender: "rank" or "zero". */
void tsr__wire_seal(const char *direction, const uint8_t key[TSR__WIRE_MAC],
                    const uint8_t header[TSR__WIRE_HEADER], uint64_t number, const void *payload,
                    size_t size, uint8_t out[TSR__WIRE_MAC]);

/* Computes the MAC of LEFT_OUT, which covers the other fields of the message. */
void tsr__wire_seal_left_out(const uint8_t key[TSR__WIRE_MAC], const uint8_t *fields,
                             uint8_t out[TSR__WIRE_MAC]);

/* Returns a text that explains a reason to the refused rank. For reasons from OTHER_JOB on,
 * tsr__identity_difference gives the text. */
const char *tsr__wire_reason_text(uint8_t reason);

#endif
