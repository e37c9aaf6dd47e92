/* The planes of bits that hold the levels of a block. */
#include <string.h>

#include "quant/format.h"

/* Calls for each group of the plane and each position in its bytes; element `i` is the first of a
 * run, `byte` points to the run's first byte. */
#define EACH_RUN(plane, count, i, byte, shift)                                                     \
    for (unsigned i = 0, shift = 0, byte = (plane)->offset; i < (count); i += (plane)->run,        \
                  shift += (plane)->bits, byte += shift == 8 ? (plane)->run : 0u,                  \
                  shift = shift == 8 ? 0 : shift)

static void take_bits(const tsr__quant_plane *plane, unsigned count, unsigned up,
                      const uint8_t *block, uint8_t *levels)
{
    const unsigned mask = (1u << plane->bits) - 1;
    EACH_RUN(plane, count, i, byte, shift)
    for (unsigned j = 0; j < plane->run; j++)
        levels[i + j] =
            (uint8_t)(levels[i + j] | (((unsigned)block[byte + j] >> shift) & mask) << up);
}

static void put_bits(const tsr__quant_plane *plane, unsigned count, unsigned down,
                     const uint8_t *levels, uint8_t *block)
{
    const unsigned mask = (1u << plane->bits) - 1;
    EACH_RUN(plane, count, i, byte, shift)
    for (unsigned j = 0; j < plane->run; j++) {
        const unsigned kept = shift == 0 ? 0 : block[byte + j];
        block[byte + j] = (uint8_t)(kept | (((unsigned)levels[i + j] >> down) & mask) << shift);
    }
}

void tsr__quant_unpack(const tsr__quant_format *format, const uint8_t *block, uint8_t *levels)
{
    const unsigned count = (unsigned)format->format.block_count;
    memset(levels, 0, count);
    take_bits(&format->low, count, 0, block, levels);
    if (format->high.bits != 0)
        take_bits(&format->high, count, format->low.bits, block, levels);
}

void tsr__quant_pack(const tsr__quant_format *format, const uint8_t *levels, uint8_t *block)
{
    const unsigned count = (unsigned)format->format.block_count;
    put_bits(&format->low, count, 0, levels, block);
    if (format->high.bits != 0)
        put_bits(&format->high, count, format->low.bits, levels, block);
}
