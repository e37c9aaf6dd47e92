#include "base/error.h"
#include "quant/block_format.h"

static void dequantize_block(const tsr__quant_format *format, const uint8_t *block, float *values)
{
    uint8_t levels[TSR__QUANT_MAX_COUNT];
    tsr__quant_groups groups;
    tsr__quant_unpack(format, block, levels);
    tsr__quant_read_groups(format, block, &groups);

    for (int i = 0; i < format->format.block_count; i += format->sub) {
        const float scale = groups.scale[i / format->sub], min = groups.min[i / format->sub];
        const uint8_t *level = levels + i;
        float *value = values + i;
        switch ((tsr__quant_code)format->code) {
        case TSR__QUANT_LINEAR:
            if (format->bias == 0) /* only formats without a bias have a minimum */
                for (int j = 0; j < format->sub; j++)
                    value[j] = scale * (float)level[j] + min;
            else
                for (int j = 0; j < format->sub; j++)
                    value[j] = scale * (float)(level[j] - format->bias);
            break;
        case TSR__QUANT_SIGNED:
        case TSR__QUANT_IQ2_XXS:
        case TSR__QUANT_IQ2_XS:
        case TSR__QUANT_IQ2_S:
        case TSR__QUANT_IQ3_XXS:
        case TSR__QUANT_IQ3_S:
        case TSR__QUANT_TERNARY:
            for (int j = 0; j < format->sub; j++)
                value[j] = scale * (float)(int8_t)level[j];
            break;
        case TSR__QUANT_NL:
        case TSR__QUANT_E2M1:
            for (int j = 0; j < format->sub; j++)
                value[j] =
                    scale * (float)tsr__quant_code_book((tsr__quant_code)format->code)[level[j]];
            break;
        }
    }
}

tsr_status tsr_dequantize(tsr_dtype dtype, const void *blocks, uint64_t size_bytes, float *values,
                          int64_t count)
{
    const tsr__quant_format *format = NULL;
    TSR__TRY(tsr__quant_check("dequantize", dtype, count, size_bytes, &format));
    TSR__REQUIRE(count == 0 || (blocks != NULL && values != NULL), "dequantize: %s is NULL",
                 blocks != NULL ? "values" : "blocks");
    const uint8_t *block = blocks;
    for (int64_t i = 0; i < count; i += format->format.block_count) {
        dequantize_block(format, block, values + i);
        block += format->format.block_bytes;
    }
    return TSR_OK;
}
