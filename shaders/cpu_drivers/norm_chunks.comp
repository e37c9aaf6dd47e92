// The first of three kernels for layer and RMS normalisation of long rows on Mesa's CPU driver. A
// subgroup computes the statistics of a chunk of a row (params/norm_chunks.h). The last chunk of a
// row is shifted back to end with the row, and ignores the elements that the chunk before it has.
// It is compiled with -O0, which leaves its loops for the driver to unroll (see
// matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "include/float16.glsl"
#include "params/norm_chunks.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_norm_spans_push p;
};

#define TSR_IDENTITY_BITS 3
#include "cpu_drivers/lavapipe.glsl"
#include "cpu_drivers/row_spans.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint STEPS = 16; // a power of two
layout(constant_id = 3) const uint CENTRED = 1; // 0: RMS
// TSR_NORM_STATS, or TSR_NORM_GRADIENT to compute also the sums that the gradient needs.
layout(constant_id = 4) const uint OUTPUT = TSR_NORM_STATS;
layout(constant_id = 5) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint WEIGHT_DTYPE = TSR_DT_F32; // 0: none

const uint CHUNK = STEPS * LANES;

float subgroup_sum(float mine)
{
    precise float sum = mine;
    [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)
        sum += subgroupShuffleXor(sum, distance);
    return sum;
}

float load_incoming(uint64_t dy, uint64_t weight, uint before)
{
    float g = load_lanes(dy, before * BYTES_OF(DY_DTYPE), DY_DTYPE, LANES);
    if (WEIGHT_DTYPE != 0)
        g *= load_lanes(weight, before * BYTES_OF(WEIGHT_DTYPE), WEIGHT_DTYPE, LANES);
    return g;
}

void main()
{
    span at = find_span(span_number(WORKGROUP / LANES), CHUNK);
    uint lane = gl_SubgroupInvocationID;
    uint64_t x = p.x + uint64_t(at.row) * p.x_row + at.first * BYTES_OF(X_DTYPE);
    uint64_t dy = p.dy + uint64_t(at.row) * p.dy_row + at.first * BYTES_OF(DY_DTYPE);
    uint64_t weight = p.weight + at.first * BYTES_OF(WEIGHT_DTYPE);

    // The first sum is over differences from one element, and the others over differences from the
    // mean, as in norm.comp. The driver unrolls only loops with constant bounds.
    float values[STEPS];
    float shift = 0.0;
    if (CENTRED != 0)
        shift = LOAD_ONE(x, X_DTYPE);
    precise float sum = 0.0;
    [[unroll]] for (uint step = 0; step < STEPS; step++) {
        values[step] = load_lanes(x, step * LANES * BYTES_OF(X_DTYPE), X_DTYPE, LANES);
        if (CENTRED != 0)
            sum += mix(values[step] - shift, 0.0, step * LANES + lane < at.before);
    }
    precise float mean = shift;
    if (CENTRED != 0)
        mean += subgroup_sum(sum) / float(CHUNK - at.before);

    precise float rest = 0.0, squares = 0.0, incoming = 0.0, products = 0.0;
    [[unroll]] for (uint step = 0; step < STEPS; step++) {
        bool repeated = step * LANES + lane < at.before;
        precise float value = values[step] - mean;
        value = mix(value, 0.0, repeated);
        rest += value;
        squares += value * value;
        if (OUTPUT == TSR_NORM_GRADIENT) {
            float g = mix(load_incoming(dy, weight, step * LANES), 0.0, repeated);
            incoming += g;
            products += g * value;
        }
    }
    vec4 own = vec4(mean, CENTRED != 0 ? subgroup_sum(rest) : 0.0, subgroup_sum(squares), 0.0);
    vec4 gradient = vec4(0.0);
    if (OUTPUT == TSR_NORM_GRADIENT)
        gradient.xy = vec2(CENTRED != 0 ? subgroup_sum(incoming) : 0.0, subgroup_sum(products));

    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Float4(p.stats).v = own + gradient;
    uint64_t stats = p.stats + at.number * TSR_NORM_CHUNK_BYTES;
    if (at.own && lane == 0) {
        store_floats(stats, own);
        if (OUTPUT == TSR_NORM_GRADIENT)
            store_floats(stats + 16, gradient);
    }
}
