/* CRC-32C (Castagnoli), as in iSCSI (RFC 3720) and ext4: it finds every change of up to 32 bits in
 * a row, and of other changes all but one in 2^32. It protects against accidents, not against an
 * adversary. */
#ifndef TSR_BASE_CRC32C_H
#define TSR_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The CRC-32C of `data`. */
uint32_t tsr__crc32c(const void *data, size_t size);

/* The parts of it, for data of which each part is known to someone else. The state starts at 0 for
 * a part of its own, and goes on over the parts that follow it directly. With parts A and B of data
 * AB, and + for exclusive or: state(AB) = shift(state(A), bytes of B) + state(B). */
uint32_t tsr__crc32c_state(uint32_t state, const void *data, size_t size);
/* The same without the processor's instruction. */
uint32_t tsr__crc32c_state_by_tables(uint32_t state, const void *data, size_t size);
/* The state behind `zero_bytes` more bytes of 0. */
uint32_t tsr__crc32c_shift(uint32_t state, uint64_t zero_bytes);
/* The CRC-32C of `size_bytes` bytes that have this state. */
uint32_t tsr__crc32c_of_state(uint32_t state, uint64_t size_bytes);

#endif
