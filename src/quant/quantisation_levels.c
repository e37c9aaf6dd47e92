/* Reads and writes the planes of bits that hold the levels of a block. */
#include <string.h>

#include "quant/block_format.h"

static void take_bits(const tsr__quant_plane *plane, unsigned count, unsigned up,
                      const uint8_t *block, uint8_t *levels)
{
    const unsigned mask = (1u << plane->bits) - 1;
    const uint8_t *byte = block + plane->offset;
    for (unsigned i = 0; i < count; byte += plane->run)
        for (unsigned shift = 0; shift < 8; shift += plane->bits, i += plane->run)
            for (unsigned j = 0; j < plane->run; j++)
                levels[i + j] =
                    (uint8_t)(levels[i + j] | (((unsigned)byte[j] >> shift) & mask) << up);
}

static void put_bits(const tsr__quant_plane *plane, unsigned count, unsigned down,
                     const uint8_t *levels, uint8_t *block)
{
    const unsigned mask = (1u << plane->bits) - 1;
    uint8_t *byte = block + plane->offset;
    for (unsigned i = 0; i < count; byte += plane->run)
        for (unsigned shift = 0; shift < 8; shift += plane->bits, i += plane->run)
            for (unsigned j = 0; j < plane->run; j++) {
                const unsigned kept = shift == 0 ? 0 : byte[j];
                byte[j] = (uint8_t)(kept | (((unsigned)levels[i + j] >> down) & mask) << shift);
            }
}

void tsr__quant_unpack(const tsr__quant_format *format, const uint8_t *block, uint8_t *levels)
{
    const unsigned count = (unsigned)format->format.block_count;
    if (tsr__quant_has_vectors(format)) {
        tsr__quant_unpack_vectors(format, block, levels);
        return;
    }
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
