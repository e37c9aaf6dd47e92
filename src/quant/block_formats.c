/* The table of block formats. The layouts and the numbers of the types are those of GGUF's
 * specification and of ggml. */
#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"
#include "quant/block_format.h"

#define FORMAT(id, text, count, bytes, type, writes)                                               \
    .format = {.dtype = (id),                                                                      \
               .name = (text),                                                                     \
               .block_count = (count),                                                             \
               .block_bytes = (bytes),                                                             \
               .gguf_type = (type),                                                                \
               .quantizes = (writes)}

#define AT(id) [(id)-FIRST]
enum { FIRST = TSR_Q4_0 };

/* Ordered by dtype, without gaps, so that finding a format is one array access: every use of a
 * tensor's address finds one. Planes are {offset, bits, run}. */
static const tsr__quant_format formats[] = {
    AT(TSR_Q4_0) = {FORMAT(TSR_Q4_0, "q4_0", 32, 18, 2, true), .low = {2, 4, 16}, .sub = 32,
                    .bias = 8, .scales = TSR__QUANT_F16},
    AT(TSR_Q4_1) = {FORMAT(TSR_Q4_1, "q4_1", 32, 20, 3, true), .low = {4, 4, 16}, .sub = 32,
                    .scales = TSR__QUANT_F16_MIN, .min_offset = 2},
    AT(TSR_Q5_0) = {FORMAT(TSR_Q5_0, "q5_0", 32, 22, 6, true), .low = {6, 4, 16}, .high = {2, 1, 1},
                    .sub = 32, .bias = 16, .scales = TSR__QUANT_F16},
    AT(TSR_Q5_1) = {FORMAT(TSR_Q5_1, "q5_1", 32, 24, 7, true), .low = {8, 4, 16}, .high = {4, 1, 1},
                    .sub = 32, .scales = TSR__QUANT_F16_MIN, .min_offset = 2},
    AT(TSR_Q8_0) = {FORMAT(TSR_Q8_0, "q8_0", 32, 34, 8, true), .low = {2, 8, 32}, .sub = 32,
                    .code = TSR__QUANT_SIGNED, .scales = TSR__QUANT_F16},
    AT(TSR_Q2_K) = {FORMAT(TSR_Q2_K, "q2_k", 256, 84, 10, true), .low = {16, 2, 32}, .sub = 16,
                    .scales = TSR__QUANT_4_4, .factor_offset = 80, .min_offset = 82,
                    .scales_offset = 0},
    AT(TSR_Q3_K) = {FORMAT(TSR_Q3_K, "q3_k", 256, 110, 11, true), .low = {32, 2, 32},
                    .high = {0, 1, 32}, .sub = 16, .bias = 4, .scales = TSR__QUANT_S6,
                    .factor_offset = 108, .scales_offset = 96},
    AT(TSR_Q4_K) = {FORMAT(TSR_Q4_K, "q4_k", 256, 144, 12, true), .low = {16, 4, 32}, .sub = 32,
                    .scales = TSR__QUANT_6_6, .min_offset = 2, .scales_offset = 4},
    AT(TSR_Q5_K) = {FORMAT(TSR_Q5_K, "q5_k", 256, 176, 13, true), .low = {48, 4, 32},
                    .high = {16, 1, 32}, .sub = 32, .scales = TSR__QUANT_6_6, .min_offset = 2,
                    .scales_offset = 4},
    AT(TSR_Q6_K) = {FORMAT(TSR_Q6_K, "q6_k", 256, 210, 14, true), .low = {0, 4, 64},
                    .high = {128, 2, 32}, .sub = 16, .bias = 32, .scales = TSR__QUANT_S8,
                    .factor_offset = 208, .scales_offset = 192},
    AT(TSR_IQ4_NL) = {FORMAT(TSR_IQ4_NL, "iq4_nl", 32, 18, 20, false), .low = {2, 4, 16}, .sub = 32,
                      .code = TSR__QUANT_NL, .scales = TSR__QUANT_F16},
    AT(TSR_IQ4_XS) = {FORMAT(TSR_IQ4_XS, "iq4_xs", 256, 136, 23, false), .low = {8, 4, 16},
                      .sub = 32, .code = TSR__QUANT_NL, .scales = TSR__QUANT_S6_SPLIT,
                      .scales_offset = 2},
    AT(TSR_MXFP4) = {FORMAT(TSR_MXFP4, "mxfp4", 32, 17, 39, true), .low = {1, 4, 16}, .sub = 32,
                     .code = TSR__QUANT_E2M1, .scales = TSR__QUANT_E8M0},
    AT(TSR_NVFP4) = {FORMAT(TSR_NVFP4, "nvfp4", 64, 36, 40, false), .low = {4, 4, 8}, .sub = 16,
                     .code = TSR__QUANT_E2M1, .scales = TSR__QUANT_UE4M3},
    AT(TSR_IQ2_XXS) = {FORMAT(TSR_IQ2_XXS, "iq2_xxs", 256, 66, 16, false), .low = {0, 8, 4},
                       .sub = 32, .code = TSR__QUANT_IQ2_XXS, .scales = TSR__QUANT_ODD_HIGH,
                       .scales_offset = 9},
    AT(TSR_IQ2_XS) = {FORMAT(TSR_IQ2_XS, "iq2_xs", 256, 74, 17, false), .low = {0, 8, 4}, .sub = 16,
                      .code = TSR__QUANT_IQ2_XS, .scales = TSR__QUANT_ODD, .scales_offset = 66},
    AT(TSR_IQ2_S) = {FORMAT(TSR_IQ2_S, "iq2_s", 256, 82, 22, false), .low = {0, 8, 4}, .sub = 16,
                     .code = TSR__QUANT_IQ2_S, .scales = TSR__QUANT_ODD, .scales_offset = 74},
    AT(TSR_IQ3_XXS) = {FORMAT(TSR_IQ3_XXS, "iq3_xxs", 256, 98, 18, false), .low = {0, 8, 4},
                       .sub = 32, .code = TSR__QUANT_IQ3_XXS, .scales = TSR__QUANT_ODD_HIGH,
                       .scales_offset = 69},
    AT(TSR_IQ3_S) = {FORMAT(TSR_IQ3_S, "iq3_s", 256, 110, 21, false), .low = {0, 8, 4}, .sub = 32,
                     .code = TSR__QUANT_IQ3_S, .scales = TSR__QUANT_ODD, .scales_offset = 106},
    AT(TSR_TQ1_0) = {FORMAT(TSR_TQ1_0, "tq1_0", 256, 54, 34, false), .low = {0, 8, 4}, .sub = 128,
                     .code = TSR__QUANT_TERNARY, .scales = TSR__QUANT_F16, .factor_offset = 52},
    AT(TSR_TQ2_0) = {FORMAT(TSR_TQ2_0, "tq2_0", 256, 66, 35, false), .low = {0, 2, 32}, .sub = 128,
                     .bias = 1, .scales = TSR__QUANT_F16, .factor_offset = 64},
};

enum { FORMATS = sizeof formats / sizeof *formats };

const tsr__quant_format *tsr__quant_format_of(tsr_dtype dtype)
{
    const size_t row = (size_t)dtype - FIRST; /* lower dtypes wrap around to a large index */
    return row < FORMATS ? &formats[row] : NULL;
}

const tsr_quant_format *tsr_quant_format_of(tsr_dtype dtype)
{
    const tsr__quant_format *format = tsr__quant_format_of(dtype);
    return format != NULL ? &format->format : NULL;
}

const tsr_quant_format *tsr_quant_format_at(int index)
{
    return index >= 0 && index < FORMATS ? &formats[index].format : NULL;
}

const int8_t *tsr__quant_code_book(tsr__quant_code code)
{
    static const int8_t nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};
    static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    return code == TSR__QUANT_NL ? nl : e2m1;
}

static tsr_status bytes_of(const char *who, tsr_dtype dtype, int64_t count,
                           const tsr__quant_format **format, uint64_t *bytes)
{
    const tsr__quant_format *found = tsr__quant_format_of(dtype);
    TSR__REQUIRE(found != NULL, "%s: dtype %d is not a block format", who, (int)dtype);
    const tsr_quant_format *facts = &found->format;
    TSR__REQUIRE(count >= 0 && count % facts->block_count == 0,
                 "%s: %" PRId64 " elements are not whole blocks of %d, as %s needs", who, count,
                 facts->block_count, facts->name);
    uint64_t result;
    if (!tsr__mul_u64((uint64_t)(count / facts->block_count), (uint64_t)facts->block_bytes,
                      &result) ||
        result > INT64_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "%s: the bytes of %" PRId64 " elements of %s do not fit 63 bits", who,
                         count, facts->name);
    *format = found;
    *bytes = result;
    return TSR_OK;
}

tsr_status tsr_quant_bytes(tsr_dtype dtype, int64_t count, uint64_t *out)
{
    const tsr__quant_format *format;
    TSR__REQUIRE(out != NULL, "quant_bytes: out is NULL");
    return bytes_of("quant_bytes", dtype, count, &format, out);
}

tsr_status tsr__quant_check(const char *who, tsr_dtype dtype, int64_t count, uint64_t size_bytes,
                            const tsr__quant_format **out)
{
    const tsr__quant_format *format = NULL;
    uint64_t bytes = 0;
    TSR__TRY(bytes_of(who, dtype, count, &format, &bytes));
    TSR__REQUIRE(size_bytes == bytes,
                 "%s: %" PRIu64 " bytes of blocks; %" PRId64 " elements of %s have %" PRIu64, who,
                 size_bytes, count, format->format.name, bytes);
    *out = format;
    return TSR_OK;
}
