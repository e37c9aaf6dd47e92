/* CRC-32C, the checksum with Castagnoli's polynomial, as in iSCSI (RFC 3720) and ext4. It detects
 * every change within 32 consecutive bits. Of the other changes, it misses about one in 2^32. It
 * protects against accidental changes, not against an adversary. */
#ifndef TSR_BASE_CRC32C_H
#define TSR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Returns the CRC-32C of `data`. */
uint32_t tsr__crc32c(const void *data, size_t size);

/* The functions below compute the CRC-32C of data in segments, so that different ranks may hold the
 * segments.
 *
 * tsr__crc32c_state returns the state after `data`. Pass 0 as the state at the start of a segment.
 * If more bytes of the same segment follow, pass the last result as their state. The states of
 * consecutive segments A and B combine to the state of AB, where + is exclusive or: state(AB) =
 * shift(state(A), number of bytes of B) + state(B). */
uint32_t tsr__crc32c_state(uint32_t state, const void *data, size_t size);
/* Does the same as tsr__crc32c_state, but never uses the processor's CRC instruction. */
uint32_t tsr__crc32c_state_by_tables(uint32_t state, const void *data, size_t size);
/* Returns the state after `zero_bytes` more bytes of 0. */
uint32_t tsr__crc32c_shift(uint32_t state, uint64_t zero_bytes);
/* Converts a state to a CRC-32C: `state` is the state of `size_bytes` bytes, computed with 0 as the
 * state before the first byte. */
uint32_t tsr__crc32c_of_state(uint32_t state, uint64_t size_bytes);

#endif
