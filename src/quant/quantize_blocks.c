#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "quant/block_format.h"
#include "quant/scale_search.h"

/* With an element of larger magnitude, the scale of a block does not fit f16, in any format that
 * stores scales in f16. Without such elements, no sum in the search for a scale overflows. */
#define LARGEST 5e8f

/* Converts to an integer, cutting off the fraction. Returns 0 for a value that does not fit. */
static int to_int(float value)
{
    return fabsf(value) < 1e9f ? (int)value : 0;
}

static float inverse_of(float scale)
{
    return scale != 0 ? 1 / scale : 0;
}

/* One scale per block, from the range of its elements ------------------------------------------ */

static void quantize_simple(const tsr__quant_format *format, const float *x, uint8_t *levels,
                            uint8_t *block)
{
    const int count = format->format.block_count,
              top = (1 << (format->low.bits + format->high.bits)) - 1;
    float low = x[0], high = x[0], largest = 0;
    for (int i = 0; i < count; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
        largest = fabsf(x[i]) > fabsf(largest) ? x[i] : largest;
    }

    tsr__quant_groups groups = {{0}, {0}};
    float scale, bias = (float)format->bias;
    if (format->scales == TSR__QUANT_F16_MIN) {
        scale = (high - low) / (float)top;
        groups.min[0] = low;
    } else if (format->code == TSR__QUANT_SIGNED) {
        scale = fabsf(largest) / 127;
    } else {
        scale = largest / -bias;
    }
    groups.scale[0] = scale;
    tsr__quant_write_groups(format, &groups, block);

    const float inverse = inverse_of(scale);
    for (int i = 0; i < count; i++) {
        const float value = (x[i] - groups.min[0]) * inverse;
        if (format->code == TSR__QUANT_SIGNED) {
            levels[i] = (uint8_t)to_int(roundf(value));
        } else {
            const int level = to_int(value + (bias + 0.5f));
            levels[i] = (uint8_t)(level < top ? level : top);
        }
    }
}

static uint8_t nearest_code(const int8_t *book, float x, float scale)
{
    unsigned best = 0;
    float best_error = fabsf((float)book[0] * scale - x);
    for (unsigned code = 1; code < 16; code++) {
        const float error = fabsf((float)book[code] * scale - x);
        if (error < best_error) {
            best = code;
            best_error = error;
        }
    }
    return (uint8_t)best;
}

static void quantize_e8m0(const tsr__quant_format *format, const float *x, uint8_t *levels,
                          uint8_t *block)
{
    const int count = format->format.block_count;
    tsr__quant_groups groups;
    float largest = 0;
    for (int i = 0; i < count; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    /* The largest value of the code book stands for 6 = 1.5·2^2, hence the 2. If all magnitudes are
     * below 2^-125, the exponent would be negative and wraps around to a large one, so that all
     * levels become 0. */
    const int exponent = largest > 0 ? (int)floorf(log2f(largest)) - 2 + 127 : 0;
    block[format->scales_offset] = (uint8_t)exponent;
    tsr__quant_read_groups(format, block, &groups);
    for (int i = 0; i < count; i++)
        levels[i] = nearest_code(tsr__quant_code_book((tsr__quant_code)format->code), x[i],
                                 groups.scale[0]);
}

/* Scales of groups ----------------------------------------------------------------------------- */

static void search_groups(const tsr__quant_format *format, const float *x, uint8_t *levels,
                          tsr__quant_groups *groups)
{
    static const tsr__quant_min_search q2_k = {16, 3, -0.5f, 15, true},
                                       q4_k = {32, 15, -1, 20, false},
                                       q5_k = {32, 31, -0.5f, 15, false};
    for (int i = 0, g = 0; i < format->format.block_count; i += format->sub, g++) {
        float *scale = &groups->scale[g], *min = &groups->min[g];
        *min = 0;
        switch (format->format.dtype) {
        case TSR_Q2_K:
            *scale = tsr__quant_search_min(&q2_k, x + i, levels + i, min);
            break;
        case TSR_Q4_K:
            *scale = tsr__quant_search_min(&q4_k, x + i, levels + i, min);
            break;
        case TSR_Q5_K:
            *scale = tsr__quant_search_min(&q5_k, x + i, levels + i, min);
            break;
        case TSR_Q3_K:
            *scale = tsr__quant_search_levels(format->sub, format->bias, x + i, levels + i);
            break;
        default:
            *scale = tsr__quant_search_scales(format->sub, format->bias, x + i, levels + i);
            break;
        }
    }
}

/* Chooses the levels again, for the rounded scales that the block stores. Groups with a scale of 0
 * keep the levels of the search. */
static void choose_levels(const tsr__quant_format *format, const float *x, const uint8_t *block,
                          uint8_t *levels)
{
    const int top = (1 << (format->low.bits + format->high.bits)) - 1;
    tsr__quant_groups stored;
    tsr__quant_read_groups(format, block, &stored);
    for (int i = 0; i < format->format.block_count; i++) {
        const float scale = stored.scale[i / format->sub], min = stored.min[i / format->sub];
        if (scale == 0)
            continue;
        const int level = tsr__quant_nearest((x[i] - min) / scale) + format->bias;
        levels[i] = (uint8_t)(level < 0 ? 0 : level > top ? top : level);
    }
}

static void quantize_groups(const tsr__quant_format *format, const float *x, uint8_t *levels,
                            uint8_t *block)
{
    tsr__quant_groups groups;
    bool zero = true;
    search_groups(format, x, levels, &groups);
    for (int g = 0; g < format->format.block_count / format->sub; g++)
        zero = zero && fabsf(groups.scale[g]) < 1e-15f;
    if (zero && format->scales == TSR__QUANT_S8) {
        memset(levels, 0, (size_t)format->format.block_count);
        return;
    }
    tsr__quant_write_groups(format, &groups, block);
    choose_levels(format, x, block, levels);
}

/* Blocks --------------------------------------------------------------------------------------- */

static bool f16_is_finite(const uint8_t *bytes)
{
    return (tsr__get_u16(bytes) & 0x7c00) != 0x7c00;
}

/* Quantises one block of finite elements. Returns false if its scale does not fit f16. */
static bool quantize_block(const tsr__quant_format *format, const float *x, float magnitude,
                           uint8_t *block)
{
    uint8_t levels[TSR__QUANT_MAX_COUNT];
    memset(block, 0, (size_t)format->format.block_bytes);
    if (format->scales == TSR__QUANT_E8M0) {
        quantize_e8m0(format, x, levels, block);
        tsr__quant_pack(format, levels, block);
        return true;
    }
    if (magnitude > LARGEST)
        return false;
    if (format->format.block_count == format->sub)
        quantize_simple(format, x, levels, block);
    else
        quantize_groups(format, x, levels, block);
    tsr__quant_pack(format, levels, block);
    return f16_is_finite(block + format->factor_offset) &&
           (format->min_offset == 0 || f16_is_finite(block + format->min_offset));
}

tsr_status tsr_quantize(tsr_dtype dtype, const float *values, int64_t count, void *blocks,
                        uint64_t size_bytes)
{
    const tsr__quant_format *format = NULL;
    TSR__TRY(tsr__quant_check("quantize", dtype, count, size_bytes, &format));
    if (!format->format.quantizes)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "quantize: %s can be read but not written",
                         format->format.name);
    TSR__REQUIRE(count == 0 || (blocks != NULL && values != NULL), "quantize: %s is NULL",
                 values != NULL ? "blocks" : "values");
    const int step = format->format.block_count;
    uint8_t *block = blocks;
    for (int64_t i = 0; i < count; i += step) {
        const float *x = values + i;
        float magnitude = 0;
        for (int j = 0; j < step; j++) {
            TSR__REQUIRE(isfinite(x[j]), "quantize: element %" PRId64 " is %s", i + j,
                         isnan(x[j]) ? "NaN"
                         : x[j] > 0  ? "infinite"
                                     : "-infinite");
            magnitude = fabsf(x[j]) > magnitude ? fabsf(x[j]) : magnitude;
        }
        TSR__REQUIRE(quantize_block(format, x, magnitude, block),
                     "quantize: elements %" PRId64 "..%" PRId64
                     ", of magnitudes up to %g, need a scale beyond the f16 range of %s",
                     i, i + step - 1, (double)magnitude, format->format.name);
        block += format->format.block_bytes;
    }
    return TSR_OK;
}
