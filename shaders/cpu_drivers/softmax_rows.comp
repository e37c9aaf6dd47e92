// The second of three kernels for softmax on Mesa's CPU driver. An invocation computes the
// statistics of one row from those of its chunks, and the last columns of the result if they do not
// fill a vector.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "cpu_drivers/softmax_stats.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint FUNCTION = TSR_SOFTMAX;
layout(constant_id = 2) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 4) const uint B_DTYPE = TSR_DT_F32;

layout(push_constant) uniform Push {
    tsr_softmax_rows_push p;
};

#include "cpu_drivers/softmax_result.glsl"

void main()
{
    uint row = tsr_flat_invocation();
    if (row >= p.rows)
        return;
    uvec2 chunks = tsr_at_mul(p.chunks, row * p.across, TSR_SOFTMAX_CHUNK_BYTES);
    vec4 stats = vec4(0.0);
    if (GRADIENT) {
        stats.y = tsr_row_sum(chunks, p.across);
    } else {
        stats.xy = tsr_row_exponentials(chunks, p.across);
        stats.y = FUNCTION == TSR_SOFTMAX_LOG ? tsr_log(stats.y) : 1.0 / stats.y;
    }
    tsr_floats4(tsr_at_mul(p.stats, row, TSR_SOFTMAX_ROW_BYTES)).v[0] = stats;

    for (uint j = 0u; j < p.rest; j++) {
        float a = tsr_load_float(tsr_at_mul(p.a, row, p.a_row), j, A_DTYPE), b = 0.0;
        if (GRADIENT)
            b = tsr_load_float(tsr_at_mul(p.b, row, p.b_row), j, B_DTYPE);
        tsr_store_float(tsr_at_mul(p.y, row, p.y_row), j, Y_DTYPE, softmax_result(a, b, stats, 0u));
    }
}
