/* CRC-32C (Castagnoli), as in iSCSI (RFC 3720) and ext4. It detects every change within 32
 * consecutive bits, and all but one in 2^32 of other changes. It protects against accidents, not
 * against an adversary. */
#ifndef TSR_BASE_CRC32C_H
#define TSR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC-32C of `data`. */
uint32_t tsr__crc32c(const void *data, size_t size);

/* The functions below compute the CRC-32C of data in parts, which different ranks may hold.
 *
 * Returns the state after `data`. Pass 0 as the state to start a part, and the last result to
 * continue with the bytes that follow directly. The states of consecutive parts A and B combine to
 * the state of AB, where + is exclusive or: state(AB) = shift(state(A), bytes of B) + state(B). */
uint32_t tsr__crc32c_state(uint32_t state, const void *data, size_t size);
/* Does the same without the processor's instruction. */
uint32_t tsr__crc32c_state_by_tables(uint32_t state, const void *data, size_t size);
/* Returns the state after `zero_bytes` more bytes of 0. */
uint32_t tsr__crc32c_shift(uint32_t state, uint64_t zero_bytes);
/* Returns the CRC-32C of `size_bytes` bytes whose state, started from 0, is `state`. */
uint32_t tsr__crc32c_of_state(uint32_t state, uint64_t size_bytes);

#endif
