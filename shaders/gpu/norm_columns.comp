// The gradients of layer or RMS normalisation with respect to weight and bias, summed over chunks
// of rows. An invocation sums four columns of a chunk, from its first row to its last.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/norm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint FORM = TSR_ROW_WIDE; // a form that x and dy both have

layout(push_constant) uniform Push {
    tsr_norm_columns_params p;
};

void store(uvec2 sums, uint chunk, uint j, vec4 value)
{
    uvec2 at = tsr_at_mul(tsr_at_stride(sums, chunk, uvec2(p.count << 2, p.count >> 30)), j, 4u);
    [[unroll]] for (uint k = 0u; k < 4u; k++)
        if (j + k < p.count)
            tsr_floats(at).v[k] = value[k];
}

void main()
{
    uint across = (p.count + 3u) / 4u;
    uint chunk = tsr_flat_invocation() / across, j = 4u * (tsr_flat_invocation() - chunk * across);
    uint first = chunk * TSR_NORM_CHUNK;
    if (first >= p.rows)
        return;
    precise vec4 dweight = vec4(0.0), dbias = vec4(0.0);
    for (uint row = first; row < min(first + TSR_NORM_CHUNK, p.rows); row++) {
        vec4 stats = tsr_floats4(tsr_at_mul(p.stats, row, TSR_NORM_STATS_BYTES)).v[0];
        vec4 x = tsr_load_row4(norm_row(p.x, row, p.inner, X_DTYPE), p.x.step, j, p.count, X_DTYPE, FORM, 0.0);
        vec4 dy = tsr_load_row4(norm_row(p.dy, row, p.inner, DY_DTYPE), p.dy.step, j, p.count, DY_DTYPE, FORM, 0.0);
        dweight += dy * (norm_centred(x, stats) * stats.x);
        dbias += dy;
    }
    if (p.dweight != uvec2(0u))
        store(p.dweight, chunk, j, dweight);
    if (p.dbias != uvec2(0u))
        store(p.dbias, chunk, j, dbias);
}
