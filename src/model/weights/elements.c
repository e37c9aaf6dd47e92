#include "model/weights/elements.h"

#include <string.h>

#include "base/error.h"
#include "tensor/dtype.h"
#include "tensor/float_conversion.h"

tsr_dtype tsr__elements_dtype(const tsr_shard_param *param)
{
    tsr_dtype dtype;
    const bool known = tsr_dtype_parse(param->dtype, &dtype) == TSR_OK;
    return known && (tsr__dtype_is_float(dtype) || tsr__dtype_is_block(dtype)) ? dtype
                                                                               : (tsr_dtype)0;
}

tsr_status tsr__elements_check(const tsr_shard_param *param)
{
    if (tsr__elements_dtype(param) != 0)
        return TSR_OK;
    return tsr__fail(TSR_ERR_UNSUPPORTED, "model: tensor %s is %s, which cannot be read as floats",
                     param->name, param->dtype);
}

static void convert(tsr_dtype to, tsr_dtype from, void *out, const void *values, int64_t count)
{
    if (to == from)
        memcpy(out, values, (size_t)count * tsr_dtype_size(from));
    else
        tsr__converter(to, from)(out, values, (size_t)count);
}

tsr_status tsr__elements_convert(const tsr_shard_param *param, const void *from, int64_t skip,
                                 int64_t count, tsr_dtype to, void *out, float *scratch)
{
    const tsr_dtype dtype = tsr__elements_dtype(param);
    const tsr_quant_format *format = tsr_quant_format_of(dtype);
    if (!format) {
        convert(to, dtype, out, (const char *)from + (uint64_t)skip * tsr_dtype_size(dtype), count);
        return TSR_OK;
    }
    const int64_t block = format->block_count, blocks = (skip + count + block - 1) / block;
    TSR__TRY(tsr_dequantize(format->dtype, from, (uint64_t)blocks * (uint64_t)format->block_bytes,
                            scratch, blocks * block));
    convert(to, TSR_F32, out, scratch + skip, count);
    return TSR_OK;
}
