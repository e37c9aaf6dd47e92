// The gradients of layer or RMS normalisation with respect to weight and bias, summed over chunks
// of rows. An invocation sums four columns of a chunk, from its first row to its last.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/norm.glsl"

layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 3) const uint FORM = TSR_ROW_WIDE; // the form (TSR_ROW_…) of the rows of both x and dy
// 1: four rows are loaded at once, which is slower on CPU drivers
layout(constant_id = 4) const uint AHEAD = 0;

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

// The term of row `row` in dweight.
vec4 weighted(vec4 dy, vec4 x, uint row)
{
    vec4 stats = tsr_floats4(tsr_at_mul(p.stats, row, TSR_NORM_STATS_BYTES)).v[0];
    precise vec4 term = dy * (norm_centred(x, stats) * stats.x);
    return term;
}

vec4 sum_of(vec4 sum, vec4 term)
{
    precise vec4 next = sum + term;
    return next;
}

vec4 load_x(uint row, uint j)
{
    return tsr_load_row4(norm_row(p.x, row, p.inner, X_DTYPE), p.x.step, j, p.count, X_DTYPE, FORM, 0.0);
}

vec4 load_dy(uint row, uint j)
{
    return tsr_load_row4(norm_row(p.dy, row, p.inner, DY_DTYPE), p.dy.step, j, p.count, DY_DTYPE, FORM, 0.0);
}

void main()
{
    uint across = (p.count + 3u) / 4u;
    uint chunk = tsr_flat_invocation() / across, j = 4u * (tsr_flat_invocation() - chunk * across);
    uint row = chunk * TSR_NORM_CHUNK;
    if (row >= p.rows)
        return;
    uint end = min(row + TSR_NORM_CHUNK, p.rows);
    vec4 dweight = vec4(0.0), dbias = vec4(0.0);
    for (; AHEAD != 0u && row + 3u < end; row += 4u) {
        vec4 x[4], dy[4]; // loads in flight
        [[unroll]] for (uint i = 0u; i < 4u; i++) {
            x[i] = load_x(row + i, j);
            dy[i] = load_dy(row + i, j);
        }
        // There is no loop, because glslc's optimizer drops `precise` when it unrolls a loop.
        dweight = sum_of(dweight, weighted(dy[0], x[0], row));
        dweight = sum_of(dweight, weighted(dy[1], x[1], row + 1u));
        dweight = sum_of(dweight, weighted(dy[2], x[2], row + 2u));
        dweight = sum_of(dweight, weighted(dy[3], x[3], row + 3u));
        dbias = sum_of(sum_of(sum_of(sum_of(dbias, dy[0]), dy[1]), dy[2]), dy[3]);
    }
    for (; row < end; row++) {
        vec4 dy = load_dy(row, j);
        dweight = sum_of(dweight, weighted(dy, load_x(row, j), row));
        dbias = sum_of(dbias, dy);
    }
    if (p.dweight != uvec2(0u))
        store(p.dweight, chunk, j, dweight);
    if (p.dbias != uvec2(0u))
        store(p.dbias, chunk, j, dbias);
}
