/* tsr__clip_scale: the device computes the factor by which an optimizer's step multiplies the
 * gradients, so that their norm is limited. */
#include <math.h>

#include "gpu/ops/optimizer/optimizer.h"
#include "gpu/ops/optimizer/step_params.h"
#include "shaders/params/clip_scale.h"
#include "tensor/check.h"

_Static_assert(TSR__SCALE_FLOATS == TSR_SCALE_FLOATS, "scales have two floats");

enum {
    WORKGROUP = 32,
};

tsr_status tsr__clip_scale(tsr_stream *stream, tsr_tensor *scale, const tsr_tensor *sum,
                           float max_norm, float loss_scale)
{
    const char *op = "clip_scale";
    TSR__TRY(tsr__require_float(op, "scale", stream, scale));
    TSR__TRY(tsr__require_float(op, "sum", stream, sum));
    TSR__REQUIRE(scale->layout.dtype == TSR_F32 && scale->layout.ndim == 1 &&
                     scale->layout.shape[0] == TSR_SCALE_FLOATS && scale->layout.strides[0] == 1,
                 "%s: scale is %s %s; f32 [%d] is needed", op, tsr_dtype_name(scale->layout.dtype),
                 TSR__SHAPE(scale->layout.ndim, scale->layout.shape), TSR_SCALE_FLOATS);
    TSR__REQUIRE(sum->layout.dtype == TSR_F32 && tsr_layout_count(&sum->layout) == 1,
                 "%s: sum is %s %s; one element of f32 is needed", op,
                 tsr_dtype_name(sum->layout.dtype),
                 TSR__SHAPE(sum->layout.ndim, sum->layout.shape));
    TSR__REQUIRE(max_norm >= 0, "%s: max_norm is %g; it must be at least 0", op, (double)max_norm);
    TSR__REQUIRE(isfinite(loss_scale) && loss_scale > 0,
                 "%s: loss_scale is %g; it must be finite and more than 0", op, (double)loss_scale);
    const struct tsr_clip_scale_params push = {
        .sum = tsr__tensor_address(sum),
        .scale = tsr__tensor_address(scale),
        .max_norm = max_norm,
        .inverse = (float)(1 / (double)loss_scale),
    };
    const tsr__dispatch dispatch = {
        .shader = TSR__SHADER_CLIP_SCALE,
        .spec_count = 1,
        .spec = {WORKGROUP},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {1, 1, 1},
        .access_count = 2,
        .access = {tsr__read_of(sum), tsr__write_of(scale)},
    };
    return tsr__stream_dispatch(stream, &dispatch);
}
