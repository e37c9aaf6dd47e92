/* Levels of the formats that store several elements together: vectors of magnitudes from a code
 * book, with a sign bit for each element, and digits to base 3. */
#include "base/bytes.h"
#include "quant/block_format.h"
#include "shaders/include/quant_code_books.h"

static const uint32_t iq2_xxs[] = {TSR_QUANT_BOOK_IQ2_XXS}, iq2_xs[] = {TSR_QUANT_BOOK_IQ2_XS},
                      iq2_s[] = {TSR_QUANT_BOOK_IQ2_S}, iq3_xxs[] = {TSR_QUANT_BOOK_IQ3_XXS},
                      iq3_s[] = {TSR_QUANT_BOOK_IQ3_S};

static const uint32_t *const books[] = {[TSR__QUANT_IQ2_XXS] = iq2_xxs,
                                        [TSR__QUANT_IQ2_XS] = iq2_xs,
                                        [TSR__QUANT_IQ2_S] = iq2_s,
                                        [TSR__QUANT_IQ3_XXS] = iq3_xxs,
                                        [TSR__QUANT_IQ3_S] = iq3_s};

static unsigned entry_of(tsr__quant_code code, unsigned number)
{
    return books[code][number / 2] >> (number % 2 * 16) & 0xffff;
}

static unsigned magnitude(tsr__quant_code code, unsigned number)
{
    static const uint8_t twos[4] = {8, 25, 43}, threes[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    return code == TSR__QUANT_IQ3_S ? 2 * number + 1
                                    : (code == TSR__QUANT_IQ3_XXS ? threes : twos)[number];
}

/* Seven of the eight signs are stored. The eighth one makes the number of negative elements even.
 */
static unsigned eight_signs(unsigned seven)
{
    unsigned odd = seven ^ seven >> 4;
    odd ^= odd >> 2;
    odd ^= odd >> 1;
    return seven | (odd & 1) << 7;
}

/* What the block stores about the eight elements 8·octet … 8·octet + 7: the numbers of one or two
 * entries of the code book, which have eight or four elements, and the eight sign bits. */
typedef struct stored {
    unsigned entries[2], signs;
} stored;

static stored read_stored(tsr__quant_code code, const uint8_t *block, size_t octet)
{
    const uint8_t *group; /* of 32 elements */
    unsigned word;
    switch (code) {
    case TSR__QUANT_IQ2_XXS: /* per group 4 bytes of numbers, then a word of 4 times 7 signs */
        group = block + 2 + octet / 4 * 8;
        return (stored){{group[octet % 4]},
                        eight_signs(tsr__get_u32(group + 4) >> (octet % 4 * 7) & 127)};
    case TSR__QUANT_IQ2_XS: /* 9 bits of the number and 7 signs */
        word = tsr__get_u16(block + 2 + 2 * octet);
        return (stored){{word & 511}, eight_signs(word >> 9)};
    case TSR__QUANT_IQ2_S: /* 32 low bytes of numbers, 32 bytes of signs, 8 bytes of 2 high bits */
        word = block[2 + octet] | (block[66 + octet / 4] >> (octet % 4 * 2) & 3u) << 8;
        return (stored){{word}, block[34 + octet]};
    case TSR__QUANT_IQ3_XXS: /* 64 numbers, then a word of 4 times 7 signs per group */
        word = tsr__get_u32(block + 66 + octet / 4 * 4) >> (octet % 4 * 7) & 127;
        return (stored){{block[2 + 2 * octet], block[3 + 2 * octet]}, eight_signs(word)};
    default: /* iq3_s: 64 low bytes of numbers, 8 bytes of high bits, 32 bytes of signs */
        word = (unsigned)block[66 + octet / 4] >> (octet % 4 * 2);
        return (stored){
            {(block[2 + 2 * octet] | (word & 1) << 8), (block[3 + 2 * octet] | (word & 2) << 7)},
            block[74 + octet]};
    }
}

static void unpack_books(const tsr__quant_format *format, const uint8_t *block, uint8_t *levels)
{
    const tsr__quant_code code = (tsr__quant_code)format->code;
    const bool fours = code == TSR__QUANT_IQ3_XXS || code == TSR__QUANT_IQ3_S;
    for (size_t octet = 0; octet < (size_t)format->format.block_count / 8; octet++) {
        const stored s = read_stored(code, block, octet);
        for (unsigned i = 0; i < 8; i++) {
            const unsigned number = fours ? entry_of(code, s.entries[i / 4]) >> (i % 4 * 3) & 7
                                          : entry_of(code, s.entries[0]) >> (i * 2) & 3;
            const int value = (int)magnitude(code, number);
            levels[8 * octet + i] = (uint8_t)(s.signs >> i & 1 ? -value : value);
        }
    }
}

/* A byte has five digits, as a fraction of 256: multiplied by 3, the integer part is the first
 * digit, and so on. The five digits of `bytes` neighbouring bytes are for as many elements each,
 * first digit first. */
static uint8_t *unpack_digits(const uint8_t *from, unsigned bytes, unsigned digits, uint8_t *levels)
{
    unsigned power = 1;
    for (unsigned digit = 0; digit < digits; digit++, power *= 3)
        for (unsigned i = 0; i < bytes; i++)
            *levels++ = (uint8_t)(((from[i] * power & 255) * 3 >> 8) - 1);
    return levels;
}

bool tsr__quant_has_vectors(const tsr__quant_format *format)
{
    return format->code >= TSR__QUANT_IQ2_XXS;
}

void tsr__quant_unpack_vectors(const tsr__quant_format *format, const uint8_t *block,
                               uint8_t *levels)
{
    if (format->code != TSR__QUANT_TERNARY) {
        unpack_books(format, block, levels);
        return;
    }
    levels = unpack_digits(block, 32, 5, levels);
    levels = unpack_digits(block + 32, 16, 5, levels);
    unpack_digits(block + 48, 4, 4, levels);
}
