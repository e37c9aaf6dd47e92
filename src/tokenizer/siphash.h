/* SipHash-1-3: a hash with a secret key, for tables whose keys an adversary may choose. Source:
 * Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012. */
#ifndef TSR_TOKENIZER_SIPHASH_H
#define TSR_TOKENIZER_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

static inline uint64_t tsr__rotate_left(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static inline void tsr__siphash_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = tsr__rotate_left(v[1], 13) ^ v[0];
    v[3] = tsr__rotate_left(v[3], 16) ^ v[2];
    v[0] = tsr__rotate_left(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = tsr__rotate_left(v[1], 17) ^ v[2];
    v[3] = tsr__rotate_left(v[3], 21) ^ v[0];
    v[2] = tsr__rotate_left(v[2], 32);
}

static inline uint64_t tsr__siphash(const uint64_t key[2], const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    size_t at = 0;
    for (; size - at >= 8; at += 8) {
        uint64_t word = tsr__get_u64(bytes + at);
        v[3] ^= word;
        tsr__siphash_round(v);
        v[0] ^= word;
    }
    uint64_t last = (uint64_t)size << 56;
    for (int shift = 0; at < size; at++, shift += 8)
        last |= (uint64_t)bytes[at] << shift;
    v[3] ^= last;
    tsr__siphash_round(v);
    v[0] ^= last;
    v[2] ^= 0xff;
    for (int i = 0; i < 3; i++)
        tsr__siphash_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

#endif
