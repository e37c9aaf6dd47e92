/* Writes and reads the little-endian integers in saved states. Each put function returns the
 * address after the integer that it wrote. */
#ifndef TSR_BASE_BYTES_H
#define TSR_BASE_BYTES_H

#include <stdint.h>

static inline uint8_t *tsr__put_u16(uint8_t *bytes, uint16_t value)
{
    bytes[0] = (uint8_t)value;
    bytes[1] = (uint8_t)(value >> 8);
    return bytes + 2;
}

static inline uint8_t *tsr__put_u32(uint8_t *bytes, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return bytes + 4;
}

static inline uint8_t *tsr__put_u64(uint8_t *bytes, uint64_t value)
{
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    return bytes + 8;
}

static inline uint16_t tsr__get_u16(const uint8_t *bytes)
{
    return (uint16_t)(bytes[0] | bytes[1] << 8);
}

static inline uint32_t tsr__get_u32(const uint8_t *bytes)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++)
        value |= (uint32_t)bytes[i] << (8 * i);
    return value;
}

static inline uint64_t tsr__get_u64(const uint8_t *bytes)
{
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

/* Returns the int32 with these bits. It does not use C's conversion, which is
 * implementation-defined for values above INT32_MAX. */
static inline int32_t tsr__as_i32(uint32_t bits)
{
    return (bits >> 31) != 0 ? -1 - (int32_t)~bits : (int32_t)bits;
}

/* Returns the int64 with these bits, computed as in tsr__as_i32. */
static inline int64_t tsr__as_i64(uint64_t bits)
{
    return (bits >> 63) != 0 ? -1 - (int64_t)~bits : (int64_t)bits;
}

#endif
