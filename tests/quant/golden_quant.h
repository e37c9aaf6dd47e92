/* Functions for the tests of the golden files of block formats. */
#ifndef TESTS_QUANT_GOLDEN_QUANT_H
#define TESTS_QUANT_GOLDEN_QUANT_H

#include <strings.h>

#include "support/golden.h"
#include "support/random.h"
#include "tessera/quant.h"

/* Decodes base64 and returns the number of bytes. */
static inline size_t golden_decode(const char *text, void *out, size_t size)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t *bytes = out;
    size_t count = 0;
    uint32_t bits = 0;
    for (int i = 0; text[i] != '\0' && text[i] != '='; i++) {
        const char *digit = strchr(digits, text[i]);
        ck_assert_ptr_nonnull(digit);
        bits = bits << 6 | (uint32_t)(digit - digits);
        if (i % 4 != 0) {
            ck_assert_uint_lt(count, size);
            bytes[count++] = (uint8_t)(bits >> (6 - i % 4 * 2));
        }
    }
    return count;
}

/* Returns the format that a golden file names, in capitals unlike the library. */
static inline const tsr_quant_format *golden_format(const char *name)
{
    const tsr_quant_format *format;
    for (int i = 0; (format = tsr_quant_format_at(i)) != NULL; i++)
        if (strcasecmp(format->name, name) == 0)
            return format;
    ck_abort_msg("there is no format %s", name);
}

static inline uint64_t golden_fnv1a(const void *data, size_t size)
{
    const uint8_t *bytes = data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

/* Fills an array as the golden file quant_matvec.json defines: sums of four 16-bit numbers from
 * splitmix64, times a power of two. */
static inline void golden_splitmix(uint64_t seed, float scale, float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint64_t z = random_next(&seed);
        const int sum =
            (int)(z & 0xffff) + (int)(z >> 16 & 0xffff) + (int)(z >> 32 & 0xffff) + (int)(z >> 48);
        values[i] = (float)(sum - 131070) * 0x1p-17f * scale;
    }
}

#endif
