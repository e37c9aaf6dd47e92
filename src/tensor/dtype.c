#include <string.h>

#include "base/error.h"
#include "tensor/dtype.h"

/* The properties of each tsr_dtype. The dtype is the index. Entry 0 is for values that are not a
 * dtype. */
static const struct {
    const char *name;
    uint64_t size_bytes;
} dtypes[] = {
    {"?", 0},
    [TSR_F32] = {"f32", 4},
    [TSR_F16] = {"f16", 2},
    [TSR_BF16] = {"bf16", 2},
    [TSR_I32] = {"i32", 4},
    [TSR_U32] = {"u32", 4},
    [TSR_I64] = {"i64", 8},
    [TSR_U8] = {"u8", 1},
};

#define DTYPES (sizeof dtypes / sizeof dtypes[0])

/* Returns the dtype's index in the table. A caller may pass any integer as the enum; for values out
 * of range, the function returns 0. */
static size_t row_of(tsr_dtype dtype)
{
    size_t row = (size_t)dtype;
    return row < DTYPES ? row : 0;
}

uint64_t tsr_dtype_size(tsr_dtype dtype)
{
    return dtypes[row_of(dtype)].size_bytes;
}

const char *tsr_dtype_name(tsr_dtype dtype)
{
    const tsr_quant_format *format = tsr_quant_format_of(dtype);
    return format != NULL ? format->name : dtypes[row_of(dtype)].name;
}

tsr_status tsr_dtype_parse(const char *name, tsr_dtype *out)
{
    TSR__REQUIRE(name && out, "dtype_parse: %s is NULL", name ? "out" : "name");
    for (size_t i = 1; i < DTYPES; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *out = (tsr_dtype)i;
            return TSR_OK;
        }
    }
    const tsr_quant_format *format;
    for (int i = 0; (format = tsr_quant_format_at(i)) != NULL; i++) {
        if (strcmp(name, format->name) == 0) {
            *out = format->dtype;
            return TSR_OK;
        }
    }
    return tsr__fail(TSR_ERR_NOT_FOUND, "dtype_parse: there is no dtype '%s'", name);
}

tsr_layout tsr__layout_of_bytes(const tsr_layout *layout)
{
    const int64_t count = (int64_t)tsr__dtype_block(layout->dtype);
    const int64_t bytes = (int64_t)tsr__dtype_block_bytes(layout->dtype);
    tsr_layout result = {
        .dtype = TSR_U8, .ndim = layout->ndim, .offset = layout->offset / count * bytes};
    for (int i = 0; i < layout->ndim; i++) {
        const bool last = i == layout->ndim - 1;
        result.shape[i] = last ? layout->shape[i] / count * bytes : layout->shape[i];
        result.strides[i] = last ? 1 : layout->strides[i] / count * bytes;
    }
    return result;
}
