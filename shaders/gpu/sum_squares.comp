// Sums the squares (scale · x)² of each chunk of several contiguous tensors, in f32 and in a fixed
// order. Eight invocations add up a chunk. Each takes four of every 32 elements.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "params/sum_squares.h"

layout(local_size_x_id = 0) in;
layout(constant_id = 0) const uint WORKGROUP = 64;
layout(constant_id = 1) const uint X_DTYPE = TSR_DT_F32;
// TSR_ROW_STRIDED, or TSR_ROW_DENSE4 if all tensors start at multiples of 4 bytes.
layout(constant_id = 2) const uint FORM = TSR_ROW_STRIDED;
const uint THREADS = 8;

layout(push_constant, std430) uniform tsr_push
{
    tsr_sum_squares_params p;
};

#include "include/thread_group.glsl"

void main()
{
    uint chunk = group_row();
    uvec2 x = p.x[0];
    uint count = p.count[0], first = 0u, partial = p.partial[0];
    [[unroll]] for (uint i = 1u; i < TSR_SUM_SQUARES_TENSORS; i++) {
        bool here = chunk >= p.first[i];
        x = mix(x, p.x[i], bvec2(here));
        count = here ? p.count[i] : count;
        first = here ? p.first[i] : first;
        partial = here ? p.partial[i] : partial;
    }
    uint base = (chunk - first) * TSR_SUM_SQUARES_CHUNK;
    // Chunks past the end have no elements.
    uint end = chunk < p.chunks ? min(count, base + TSR_SUM_SQUARES_CHUNK) : 0u;
    uvec2 step = uvec2(tsr_dtype_bytes(X_DTYPE), 0u);
    precise vec4 sum = vec4(0.0);
    for (uint j = base + 4u * group_thread(); j < end; j += 4u * THREADS) {
        vec4 value = j + 4u <= end ? tsr_load_row4(x, step, j, count, X_DTYPE, FORM, 0.0)
                                   : tsr_load_row4(x, step, j, count, X_DTYPE, TSR_ROW_STRIDED, 0.0);
        precise vec4 scaled = value * p.scale;
        precise vec4 squares = scaled * scaled;
        sum += squares;
    }
    float whole = group_sum(sum);
    if (group_thread() == 0u && chunk < p.chunks)
        tsr_floats(p.partials).v[partial + chunk - first] = whole;
}
