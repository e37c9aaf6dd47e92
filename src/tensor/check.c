#include "tensor/check.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"
#include "tensor/dtype.h"

static tsr_status check_dtype(const char *who, tsr_dtype dtype)
{
    TSR__REQUIRE(dtype != TSR_F64, "%s: tensors cannot be f64; only communicators support it", who);
    TSR__REQUIRE(tsr__dtype_block_bytes(dtype) != 0, "%s: %d is no dtype", who, (int)dtype);
    return TSR_OK;
}

/* Returns the bytes of an element, rounded up for elements in blocks (2 for q8_0). */
static uint64_t bytes_per_element(tsr_dtype dtype)
{
    return tsr__div_up_u64(tsr__dtype_block_bytes(dtype), tsr__dtype_block(dtype));
}

tsr_status tsr__shape_check_bytes(const char *who, tsr_dtype dtype, int ndim, const int64_t *shape)
{
    TSR__TRY(check_dtype(who, dtype));
    TSR__TRY(tsr__shape_check(who, ndim, shape));
    const int64_t block = (int64_t)tsr__dtype_block(dtype);
    TSR__REQUIRE(block == 1 || (ndim > 0 && shape[ndim - 1] % block == 0),
                 "%s: %s has blocks of %lld elements along the last dimension, and shape %s does "
                 "not consist of whole ones",
                 who, tsr_dtype_name(dtype), (long long)block, TSR__SHAPE(ndim, shape));
    uint64_t bytes = bytes_per_element(dtype);
    bool fits = true;
    for (int i = 0; i < ndim && fits; i++)
        fits = tsr__mul_u64(bytes, tsr__max_u64((uint64_t)shape[i], 1), &bytes);
    if (!fits || bytes > INT64_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: the bytes of %s %s do not fit 63 bits", who,
                         tsr_dtype_name(dtype), TSR__SHAPE(ndim, shape));
    return TSR_OK;
}

static bool has_elements(const tsr_layout *layout)
{
    for (int i = 0; i < layout->ndim; i++)
        if (layout->shape[i] == 0)
            return false;
    return true;
}

tsr_status tsr__layout_check_blocks(const char *who, const tsr_layout *layout)
{
    const int64_t block = (int64_t)tsr__dtype_block(layout->dtype);
    if (block == 1)
        return TSR_OK;
    const int last = layout->ndim - 1;
    bool whole = last >= 0 && layout->shape[last] % block == 0 && layout->strides[last] == 1 &&
                 layout->offset % block == 0;
    for (int i = 0; i < last && has_elements(layout); i++)
        whole = whole && (layout->shape[i] == 1 || layout->strides[i] % block == 0);
    TSR__REQUIRE(whole,
                 "%s: %s has blocks of %lld elements along the last dimension, and shape %s with "
                 "strides %s and offset %lld does not consist of whole ones",
                 who, tsr_dtype_name(layout->dtype), (long long)block,
                 TSR__SHAPE(layout->ndim, layout->shape), TSR__SHAPE(layout->ndim, layout->strides),
                 (long long)layout->offset);
    return TSR_OK;
}

tsr_status tsr__layout_check(const char *who, const tsr_layout *layout)
{
    TSR__REQUIRE(layout, "%s: layout is NULL", who);
    TSR__TRY(tsr__shape_check_bytes(who, layout->dtype, layout->ndim, layout->shape));
    TSR__REQUIRE(layout->offset >= 0, "%s: offset %" PRId64 " is negative", who, layout->offset);

    uint64_t end = (uint64_t)layout->offset;
    bool fits = tsr__add_u64(end, 1, &end);
    for (int i = 0; i < layout->ndim; i++) {
        int64_t stride = layout->strides[i];
        TSR__REQUIRE(stride >= 0, "%s: stride %" PRId64 " in strides %s is negative", who, stride,
                     TSR__SHAPE(layout->ndim, layout->strides));
        uint64_t reach = 0;
        if (layout->shape[i] > 1)
            fits = fits &&
                   tsr__mul_u64((uint64_t)(layout->shape[i] - 1), (uint64_t)stride, &reach) &&
                   tsr__add_u64(end, reach, &end);
    }
    fits = fits && tsr__mul_u64(end, bytes_per_element(layout->dtype), &end) && end <= INT64_MAX;
    if (!fits)
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "%s: the last byte of shape %s, strides %s, offset %" PRId64
                         " does not fit 63 bits",
                         who, TSR__SHAPE(layout->ndim, layout->shape),
                         TSR__SHAPE(layout->ndim, layout->strides), layout->offset);
    return tsr__layout_check_blocks(who, layout);
}
