#include <math.h>

#include "gpu/ops/random/random.h"

tsr_status tsr_dropout(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, float p,
                       const tsr_random_params *params)
{
    static const char op[] = "dropout";
    tsr_layout index;
    TSR__TRY(tsr__require_float(op, "y", stream, y));
    TSR__TRY(tsr__require_float(op, "x", stream, x));
    TSR__TRY(tsr__require_same_shape(op, "y", y, "x", x));
    TSR__TRY(tsr__require_disjoint(op, "y", y, "x", x, true));
    TSR__TRY(tsr__random_check(op, stream, y, params, &index));
    TSR__REQUIRE(p >= 0 && p < 1, "%s: p is %g; 0 <= p < 1 is needed", op, (double)p);

    /* p < 1 is at most 1 − 2^-24, so the threshold is below 2^32; both are exact to the last
     * rounding. */
    struct tsr_random_fill_params push = {
        .threshold = (uint32_t)floor((double)p * 0x1p32 + 0.5),
        .scale = (float)(1 / (1 - (double)p)),
    };
    const uint32_t spec[] = {(uint32_t)y->layout.dtype, (uint32_t)x->layout.dtype};
    return tsr__random_record(stream, TSR__SHADER_DROPOUT, spec, 2, y, x, params, &index, push);
}
