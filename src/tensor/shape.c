/* Formats, checks and broadcasts shapes. */
#include <inttypes.h>
#include <stdio.h>

#include "base/error.h"
#include "tensor/check.h"

char *tsr__shape_format(int ndim, const int64_t *shape, char *text, size_t size)
{
    if (size == 0)
        return text;
    size_t used = 0;
    for (int i = -1; i <= ndim; i++) {
        int length;
        if (i < 0)
            length = snprintf(text, size, "[");
        else if (i == ndim)
            length = snprintf(text + used, size - used, "]");
        else
            length = snprintf(text + used, size - used, "%s%" PRId64, i ? "," : "", shape[i]);
        if (length < 0 || (size_t)length >= size - used)
            break; /* no room for the rest of the text; snprintf has terminated it */
        used += (size_t)length;
    }
    return text;
}

tsr_status tsr__shape_check(const char *who, int ndim, const int64_t *shape)
{
    TSR__REQUIRE(ndim >= 0 && ndim <= TSR_MAX_DIMS, "%s: %d dimensions are outside 0..%d", who,
                 ndim, TSR_MAX_DIMS);
    TSR__REQUIRE(shape || ndim == 0, "%s: shape is NULL", who);
    for (int i = 0; i < ndim; i++)
        TSR__REQUIRE(shape[i] >= 0, "%s: size %" PRId64 " in shape %s is negative", who, shape[i],
                     TSR__SHAPE(ndim, shape));
    return TSR_OK;
}

tsr_status tsr__shape_broadcast(int a_ndim, const int64_t *a, int b_ndim, const int64_t *b,
                                int *out_ndim, int64_t *out_shape)
{
    TSR__TRY(tsr__shape_check("shape_broadcast", a_ndim, a));
    TSR__TRY(tsr__shape_check("shape_broadcast", b_ndim, b));
    TSR__REQUIRE(out_ndim && out_shape, "shape_broadcast: %s is NULL",
                 out_ndim ? "out_shape" : "out_ndim");

    int ndim = a_ndim > b_ndim ? a_ndim : b_ndim;
    int64_t shape[TSR_MAX_DIMS] = {0};
    for (int i = 1; i <= ndim; i++) { /* from the last dimension to the first */
        int64_t a_size = i <= a_ndim ? a[a_ndim - i] : 1;
        int64_t b_size = i <= b_ndim ? b[b_ndim - i] : 1;
        TSR__REQUIRE(a_size == b_size || a_size == 1 || b_size == 1,
                     "shape_broadcast: %s and %s do not broadcast: size %" PRId64
                     " does not match size %" PRId64,
                     TSR__SHAPE(a_ndim, a), TSR__SHAPE(b_ndim, b), a_size, b_size);
        shape[ndim - i] = a_size == 1 ? b_size : a_size;
    }
    for (int i = 0; i < ndim; i++)
        out_shape[i] = shape[i];
    *out_ndim = ndim;
    return TSR_OK;
}
