// Layer and RMS normalisation of short rows on Mesa's CPU driver in one kernel. A subgroup
// processes one row in UNITS units; a unit is one vector per lane. As in softmax_short.comp, the
// second half of the units may overlap the first, and elements that are in both halves count once.
// The kernel computes the result, the statistics of the rows, the gradient with respect to x, or
// the products whose sums are the gradient of the weight. All loads precede all stores, so that y
// may be x or dy. It is compiled with -O0, which leaves its loops for the driver to unroll (see
// matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/norm_short.h"
#include "params/vectors.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_norm_short_push p;
};

#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint UNITS = 8;
layout(constant_id = 3) const uint CENTRED = 1; // 0: RMS
layout(constant_id = 4) const uint OUTPUT = TSR_NORM_RESULT;
layout(constant_id = 5) const uint Y_DTYPE = TSR_DT_F32; // the dtype of the result or of dx
layout(constant_id = 6) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 8) const uint WEIGHT_DTYPE = TSR_DT_F32; // 0: none
layout(constant_id = 9) const uint BIAS_DTYPE = TSR_DT_F32;
layout(constant_id = 10) const uint Y_FORM = 8; // the alignment of y's vectors in bytes; below, that of the other operands
layout(constant_id = 11) const uint X_FORM = 8;
layout(constant_id = 12) const uint DY_FORM = 8;
layout(constant_id = 13) const uint WEIGHT_FORM = 8;
layout(constant_id = 14) const uint BIAS_FORM = 8;

const uint GROUP = TSR_VECTOR_BYTES / (Y_DTYPE == TSR_DT_F32 ? 4 : 2); // elements of a vector

#include "cpu_drivers/norm_short.glsl"

void main()
{
    uint number = uniform_index(gl_WorkGroupID.x) * (WORKGROUP / LANES) + p.identity[p.identity[gl_SubgroupID]];
    uint row = min(number, p.rows - 1);
    uint64_t x_at = p.x + uint64_t(row) * p.x_row, dy_at = p.dy + uint64_t(row) * p.dy_row;
    float each = 1.0 / float(UNITS * UNIT - p.overlap);

    // As in norm.comp, the first sum is over differences from the first element, and the others
    // over differences from the mean, whose rounding error is computed too.
    vec4 x[UNITS], g[UNITS];
    float shift = 0.0;
    if (CENTRED != 0)
        shift = load_element(x_at, X_DTYPE);
    precise float sum = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        x[i] = LOAD_OPERAND(x_at + start_of(i) * BYTES_OF(X_DTYPE), X_DTYPE, X_FORM);
        g[i] = vec4(0.0);
        if (OUTPUT == TSR_NORM_GRADIENT || OUTPUT == TSR_NORM_PRODUCTS)
            g[i] = LOAD_OPERAND(dy_at + start_of(i) * BYTES_OF(DY_DTYPE), DY_DTYPE, DY_FORM) *
                   load_weight(p.weight, i, WEIGHT_DTYPE, WEIGHT_FORM, 1.0);
        [[unroll]] for (uint k = 0; k < GROUP; k++)
            if (CENTRED != 0)
                sum += once(x[i][k] - shift, i, k);
    }
    precise float mean = shift;
    if (CENTRED != 0)
        mean += subgroup_sum(sum) * each;
    precise float rest = 0.0, squares = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        [[unroll]] for (uint k = 0; k < GROUP; k++) {
            precise float value = x[i][k] - mean;
            x[i][k] = value;
            value = once(value, i, k);
            rest += value;
            squares += value * value;
        }
    precise float lost = 0.0;
    if (CENTRED != 0)
        lost = subgroup_sum(rest) * each;
    precise float variance = subgroup_sum(squares) * each - lost * lost;
    float factor = 1.0 / sqrt(mix(variance, 0.0, variance < 0.0) + p.epsilon);

    precise float incoming = 0.0, products = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        [[unroll]] for (uint k = 0; k < GROUP; k++) {
            x[i][k] = (x[i][k] - lost) * factor;
            if (OUTPUT == TSR_NORM_GRADIENT) {
                incoming += once(g[i][k], i, k);
                products += once(g[i][k] * x[i][k], i, k);
            }
        }
    if (OUTPUT == TSR_NORM_GRADIENT) {
        incoming = CENTRED != 0 ? subgroup_sum(incoming) * each : 0.0;
        products = subgroup_sum(products) * each;
    }

    uvec2 y[UNITS], pinned = uvec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        vec4 values = x[i];
        if (OUTPUT == TSR_NORM_GRADIENT)
            values = (g[i] - incoming - x[i] * products) * factor;
        if (OUTPUT == TSR_NORM_PRODUCTS)
            values = g[i] * x[i];
        if (OUTPUT == TSR_NORM_RESULT)
            values = x[i] * load_weight(p.weight, i, WEIGHT_DTYPE, WEIGHT_FORM, 1.0) +
                     load_weight(p.bias, i, BIAS_DTYPE, BIAS_FORM, 0.0);
        y[i] = ENCODE(values, Y_DTYPE);
        pinned ^= y[i];
    }
    if (OUTPUT == TSR_NORM_STATS)
        pinned = floatBitsToUint(vec2(factor + lost, mean));
    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Word2(p.y).v = pinned;

    // Values that are computed from push constants must precede the first branch; see
    // lavapipe.glsl.
    uint lowest = mix(LANES, 0, number < p.rows);
    if (OUTPUT == TSR_NORM_STATS) {
        uint64_t stats = p.y + uint64_t(row) * TSR_NORM_STATS_BYTES;
        if (gl_SubgroupInvocationID == lowest)
            store_floats(stats, vec4(factor, mean, lost, 0.0));
        return;
    }
    uint64_t y_at = p.y + uint64_t(row) * p.y_row + gl_SubgroupInvocationID * TSR_VECTOR_BYTES;
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        if (gl_SubgroupInvocationID >= lowest)
            STORE_LANE_VECTORS(y_at + start_of(i) * BYTES_OF(Y_DTYPE), Y_FORM, y[i]);
}
