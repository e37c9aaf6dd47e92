// The third of three kernels for layer and RMS normalisation of long rows on Mesa's CPU driver.
// From the statistics of the rows, it computes the result, the gradient with respect to x, or the
// products whose sums are the gradient of the weight. A subgroup computes a block of UNITS vectors
// per lane. The last block of a row is shifted back to end with the row, and stores only the
// vectors that no other block has. All loads precede all stores: a store is in a branch, and after
// a branch the driver loads lane by lane (lavapipe.glsl). It is compiled with -O0, which leaves its
// loops for the driver to unroll (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/norm_chunks.h"
#include "params/vectors.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_norm_spans_push p;
};

#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"
#include "cpu_drivers/row_spans.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint UNITS = 8;
layout(constant_id = 3) const uint OUTPUT = TSR_NORM_RESULT;
layout(constant_id = 4) const uint Y_DTYPE = TSR_DT_F32; // the dtype of the output
layout(constant_id = 5) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint WEIGHT_DTYPE = TSR_DT_F32; // 0: none
layout(constant_id = 8) const uint BIAS_DTYPE = TSR_DT_F32;
layout(constant_id = 9) const uint Y_FORM = 8; // the alignment of y's vectors in bytes; below, that of the other operands
layout(constant_id = 10) const uint X_FORM = 8;
layout(constant_id = 11) const uint DY_FORM = 8;
layout(constant_id = 12) const uint WEIGHT_FORM = 8;
layout(constant_id = 13) const uint BIAS_FORM = 8;

const uint GROUP = TSR_VECTOR_BYTES / (Y_DTYPE == TSR_DT_F32 ? 4 : 2); // elements of a vector
const uint UNIT = LANES * GROUP;
const bool EXACT = false;

#include "cpu_drivers/vector_floats.glsl"

vec4 load_vector(uint64_t at, uint i, uint dtype, uint form, float nothing)
{
    if (dtype == 0)
        return vec4(nothing);
    return LOAD_OPERAND(at + i * UNIT * BYTES_OF(dtype), dtype, form);
}

void main()
{
    span at = find_span(span_number(WORKGROUP / LANES), UNITS * LANES);
    uint first = at.first * GROUP;
    vec4 row = Float4(p.stats + at.row * TSR_NORM_STATS_BYTES).v;
    float incoming = 0.0, slope = 0.0;
    if (OUTPUT == TSR_NORM_GRADIENT) {
        incoming = Float(p.slopes + at.row * TSR_NORM_SLOPES_BYTES).v;
        slope = Float(p.slopes + at.row * TSR_NORM_SLOPES_BYTES + 4).v;
    }
    uint64_t x_at = p.x + uint64_t(at.row) * p.x_row + first * BYTES_OF(X_DTYPE);
    uint64_t dy_at = p.dy + uint64_t(at.row) * p.dy_row + first * BYTES_OF(DY_DTYPE);
    uint64_t weight_at = p.weight + first * BYTES_OF(WEIGHT_DTYPE), bias_at = p.bias + first * BYTES_OF(BIAS_DTYPE);

    uvec2 y[UNITS], pinned = uvec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        precise vec4 x = LOAD_OPERAND(x_at + i * UNIT * BYTES_OF(X_DTYPE), X_DTYPE, X_FORM) - row.y;
        x = (x - row.z) * row.x;
        vec4 values = x;
        if (OUTPUT != TSR_NORM_RESULT)
            values = LOAD_OPERAND(dy_at + i * UNIT * BYTES_OF(DY_DTYPE), DY_DTYPE, DY_FORM);
        if (OUTPUT == TSR_NORM_PRODUCTS)
            values *= x;
        else
            values *= load_vector(weight_at, i, WEIGHT_DTYPE, WEIGHT_FORM, 1.0);
        if (OUTPUT == TSR_NORM_RESULT)
            values += load_vector(bias_at, i, BIAS_DTYPE, BIAS_FORM, 0.0);
        if (OUTPUT == TSR_NORM_GRADIENT)
            values = (values - incoming - x * slope) * row.x;
        y[i] = ENCODE(values, Y_DTYPE);
        pinned ^= y[i];
    }
    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Word2(p.y).v = pinned;

    uint64_t y_at = p.y + uint64_t(at.row) * p.y_row + (at.first + gl_SubgroupInvocationID) * TSR_VECTOR_BYTES;
    uint lowest = mix(0xffffffffu, at.before, at.own);
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        if (i * LANES + gl_SubgroupInvocationID >= lowest)
            STORE_LANE_VECTORS(y_at + i * LANES * TSR_VECTOR_BYTES, Y_FORM, y[i]);
}
