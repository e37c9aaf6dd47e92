/* Reads and writes the scales and minimums of a block. */
#include <math.h>

#include "base/bytes.h"
#include "base/float16.h"
#include "quant/block_format.h"

static unsigned groups_of(const tsr__quant_format *format)
{
    return (unsigned)format->format.block_count / format->sub;
}

static float read_f16(const uint8_t *bytes)
{
    return tsr__f32_of_f16(tsr__get_u16(bytes));
}

static void write_f16(uint8_t *bytes, float value)
{
    tsr__put_u16(bytes, tsr__f16_of_f32(value));
}

int tsr__quant_nearest(float x)
{
    /* The float format has no bits for fractions of values near 1.5·2^23, so the addition rounds to
     * an integer, which is in the low bits of the sum. */
    return (int)(tsr__bits_of_f32(x + 12582912.0f) & 0x7fffff) - 0x400000;
}

/* 6-bit scales and minimums of 8 groups in 12 bytes. The first 8 bytes hold scales 0..3 and
 * minimums 0..3, with the upper 2 bits of scales 4..7 and minimums 4..7 above them. The last 4
 * bytes hold the lower 4 bits of scales and minimums 4..7. */
static void read_6_6(const uint8_t *from, unsigned group, unsigned *scale, unsigned *min)
{
    if (group < 4) {
        *scale = from[group] & 63u;
        *min = from[group + 4] & 63u;
    } else {
        *scale = (from[group + 4] & 15u) | (unsigned)(from[group - 4] >> 6) << 4;
        *min = (unsigned)(from[group + 4] >> 4) | (unsigned)(from[group] >> 6) << 4;
    }
}

static void write_6_6(uint8_t *to, unsigned group, unsigned scale, unsigned min)
{
    if (group < 4) {
        to[group] = (uint8_t)(to[group] | scale);
        to[group + 4] = (uint8_t)(to[group + 4] | min);
    } else {
        to[group + 4] = (uint8_t)((scale & 15) | (min & 15) << 4);
        to[group - 4] = (uint8_t)(to[group - 4] | scale >> 4 << 6);
        to[group] = (uint8_t)(to[group] | min >> 4 << 6);
    }
}

/* The 6-bit scales of 16 groups in 12 bytes. The first 8 bytes hold the lower 4 bits: byte i those
 * of groups i and i + 8. The last 4 bytes hold the upper 2 bits: byte i those of groups i, i + 4, i
 * + 8 and i + 12. */
static unsigned read_6(const uint8_t *from, unsigned group)
{
    const unsigned low = (unsigned)from[group % 8] >> (group / 8 * 4) & 15;
    return low | ((unsigned)from[8 + group % 4] >> (group / 4 * 2) & 3) << 4;
}

static void write_6(uint8_t *to, unsigned group, unsigned scale)
{
    uint8_t *low = &to[group % 8], *high = &to[8 + group % 4];
    *low = (uint8_t)(*low | (scale & 15) << (group / 8 * 4));
    *high = (uint8_t)(*high | scale >> 4 << (group / 4 * 2));
}

/* The 6-bit scales of 8 groups: 16 bits with the upper 2 bits of each, then 4 bytes with the lower
 * 4 bits. */
static unsigned read_6_split(const uint8_t *from, unsigned group)
{
    const unsigned low = (unsigned)from[2 + group / 2] >> (group % 2 * 4) & 15;
    return low | ((unsigned)tsr__get_u16(from) >> (2 * group) & 3) << 4;
}

/* Returns half of 2^(exponent - 127): the code book of such formats holds twice the values. The
 * result is subnormal for exponents 0 and 1. */
static float half_power(unsigned exponent)
{
    return tsr__f32_of_bits(exponent < 2 ? 0x200000u << exponent : (exponent - 1) << 23);
}

/* Returns half of an unsigned float with 4 bits of exponent and 3 of mantissa, which are the low 7
 * bits of the code. The bits 127 are NaN in the definition of this float, but ggml reads them as
 * 0. */
static float half_ue4m3(unsigned code)
{
    const unsigned exponent = code >> 3 & 15, mantissa = code & 7;
    if (code == 127 || code == 255)
        return 0;
    return exponent == 0 ? ldexpf((float)mantissa, -10)
                         : ldexpf((float)(8 + mantissa), (int)exponent - 11);
}

/* The odd integers 1 to 31 as multiples of 1/8, 1/4 or 1. */
static float read_odd(const tsr__quant_format *format, const uint8_t *from, unsigned group)
{
    const size_t apart = format->code == TSR__QUANT_IQ2_XXS ? 8 : 4;
    const unsigned s = format->scales == TSR__QUANT_ODD ? from[group / 2] >> (group % 2 * 4) & 15u
                                                        : from[group * apart] >> 4;
    const float unit = format->code == TSR__QUANT_IQ3_S     ? 1
                       : format->code == TSR__QUANT_IQ3_XXS ? 0.25f
                                                            : 0.125f;
    return (float)(2 * s + 1) * unit;
}

void tsr__quant_read_groups(const tsr__quant_format *format, const uint8_t *block,
                            tsr__quant_groups *groups)
{
    const uint8_t *scales = block + format->scales_offset;
    const float factor = read_f16(block + format->factor_offset);
    const float min_factor = read_f16(block + format->min_offset);

    for (unsigned g = 0; g < groups_of(format); g++) {
        float *scale = &groups->scale[g], *min = &groups->min[g];
        unsigned s, m;
        *min = 0;
        switch ((tsr__quant_scales)format->scales) {
        case TSR__QUANT_F16:
            *scale = factor;
            break;
        case TSR__QUANT_F16_MIN:
            *scale = factor;
            *min = min_factor;
            break;
        case TSR__QUANT_E8M0:
            *scale = half_power(scales[0]);
            break;
        case TSR__QUANT_UE4M3:
            *scale = half_ue4m3(scales[g]);
            break;
        case TSR__QUANT_4_4:
            *scale = factor * (float)(scales[g] & 15);
            *min = -(min_factor * (float)(scales[g] >> 4));
            break;
        case TSR__QUANT_6_6:
            read_6_6(scales, g, &s, &m);
            *scale = factor * (float)s;
            *min = -(min_factor * (float)m);
            break;
        case TSR__QUANT_S6:
            *scale = factor * (float)((int)read_6(scales, g) - 32);
            break;
        case TSR__QUANT_S6_SPLIT:
            *scale = factor * (float)((int)read_6_split(scales, g) - 32);
            break;
        case TSR__QUANT_S8:
            *scale = factor * (float)(int8_t)scales[g];
            break;
        case TSR__QUANT_ODD:
        case TSR__QUANT_ODD_HIGH:
            *scale = factor * read_odd(format, scales, g);
            break;
        }
    }
}

/* Writing ------------------------------------------------------------------------------------ */

static float largest(const float *values, unsigned count)
{
    float max = 0;
    for (unsigned i = 0; i < count; i++)
        max = values[i] > max ? values[i] : max;
    return max;
}

/* Returns the value with the largest magnitude, or the first of several. Keeps its sign. */
static float farthest(const float *values, unsigned count)
{
    float max = 0;
    for (unsigned i = 0; i < count; i++)
        max = fabsf(values[i]) > fabsf(max) ? values[i] : max;
    return max;
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

/* Writes scales and minimums without sign, as integers from 0 to `top` that count multiples of the
 * largest one divided by `top`. A negative scale would wrap to a large integer. If `top` is 63,
 * such an integer is limited to `top`. If `top` is 15, it would change the bits of the minimum in
 * the same byte, as in llama.cpp. But the search for Q2_K does not seem to give negative scales: in
 * 10 million groups made to have fits with a negative scale, the error of such a fit was at least
 * twice that of the best one. */
static void write_unsigned(const tsr__quant_format *format, const tsr__quant_groups *groups,
                           unsigned top, uint8_t *block)
{
    const unsigned count = groups_of(format);
    uint8_t *scales = block + format->scales_offset;
    const float scale = largest(groups->scale, count), min = largest(groups->min, count);
    const float inverse = scale > 0 ? (float)top / scale : 0;
    const float min_inverse = min > 0 ? (float)top / min : 0;

    for (unsigned g = 0; g < count; g++) {
        const uint8_t s = (uint8_t)tsr__quant_nearest(inverse * groups->scale[g]);
        const uint8_t m = (uint8_t)tsr__quant_nearest(min_inverse * groups->min[g]);
        if (top == 15)
            scales[g] = (uint8_t)(s | m << 4);
        else
            write_6_6(scales, g, s < top ? s : top, m < top ? m : top);
    }
    write_f16(block + format->factor_offset, scale / (float)top);
    write_f16(block + format->min_offset, min / (float)top);
}

/* Writes scales with a sign, as multiples of a factor. The scale that is farthest from 0 becomes
 * `low`, the lowest integer. */
static void write_signed(const tsr__quant_format *format, const tsr__quant_groups *groups, int low,
                         uint8_t *block)
{
    const unsigned count = groups_of(format);
    uint8_t *scales = block + format->scales_offset;
    const float farthest_scale = farthest(groups->scale, count);
    if (farthest_scale == 0)
        return;
    const float inverse = (float)low / farthest_scale;

    for (unsigned g = 0; g < count; g++) {
        const int s = clamp(tsr__quant_nearest(inverse * groups->scale[g]), low, -low - 1);
        if (low == -32)
            write_6(scales, g, (unsigned)(s + 32));
        else
            scales[g] = (uint8_t)s;
    }
    write_f16(block + format->factor_offset, 1 / inverse);
}

void tsr__quant_write_groups(const tsr__quant_format *format, const tsr__quant_groups *groups,
                             uint8_t *block)
{
    switch ((tsr__quant_scales)format->scales) {
    case TSR__QUANT_F16_MIN:
        write_f16(block + format->min_offset, groups->min[0]);
        write_f16(block + format->factor_offset, groups->scale[0]);
        break;
    case TSR__QUANT_F16:
        write_f16(block + format->factor_offset, groups->scale[0]);
        break;
    case TSR__QUANT_4_4:
        write_unsigned(format, groups, 15, block);
        break;
    case TSR__QUANT_6_6:
        write_unsigned(format, groups, 63, block);
        break;
    case TSR__QUANT_S6:
        write_signed(format, groups, -32, block);
        break;
    case TSR__QUANT_S8:
        write_signed(format, groups, -128, block);
        break;
    case TSR__QUANT_E8M0:
    case TSR__QUANT_UE4M3:
    case TSR__QUANT_S6_SPLIT:
    case TSR__QUANT_ODD:
    case TSR__QUANT_ODD_HIGH:
        break; /* another function writes E8M0; formats with the other kinds of scales can only be
                  read */
    }
}
