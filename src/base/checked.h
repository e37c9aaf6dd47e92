/* Arithmetic on sizes. Functions that return bool check for overflow: they return true and write
 * the result if it fits, and otherwise return false and write nothing. */
#ifndef TSR_BASE_CHECKED_H
#define TSR_BASE_CHECKED_H

#include <stdbool.h>
#include <stdint.h>

static inline bool tsr__mul_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (b != 0 && a > UINT64_MAX / b)
        return false;
    *out = a * b;
    return true;
}

static inline bool tsr__add_u64(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a > UINT64_MAX - b)
        return false;
    *out = a + b;
    return true;
}

static inline uint64_t tsr__min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t tsr__max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t tsr__div_up_u64(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

static inline uint32_t tsr__max_u32(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static inline uint32_t tsr__min_u32(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static inline uint32_t tsr__div_up_u32(uint32_t a, uint32_t b)
{
    return a / b + (a % b != 0);
}

/* The smallest power of two that is at least `value`, which must be at most 2^31. */
static inline uint32_t tsr__pow2_above(uint32_t value)
{
    uint32_t power = 1;

    while (power < value)
        power *= 2;
    return power;
}

/* Rounds `value` up to a multiple of `alignment`, which must be a power of two; value + alignment
 * must fit 64 bits. */
static inline uint64_t tsr__align_up_u64(uint64_t value, uint64_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

#endif
