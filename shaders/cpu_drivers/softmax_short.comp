// Softmax of short rows on Mesa's CPU driver in one kernel. A subgroup processes one row in UNITS
// units; a unit is one vector per lane. The second half of the units may overlap the first, so that
// a few values of UNITS suffice for rows of any length. Elements that are in both halves count
// once. All loads precede all stores, so that y may be a or b. It is compiled with -O0, which
// leaves its loops for the driver to unroll (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/vectors.h"
#include "params/softmax_chunks.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_softmax_short_push p;
};

#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint UNITS = 8;
layout(constant_id = 3) const uint FUNCTION = TSR_SOFTMAX;
layout(constant_id = 4) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint B_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint Y_FORM = 8; // the alignment of the vectors of an operand, in bytes
layout(constant_id = 8) const uint A_FORM = 8;
layout(constant_id = 9) const uint B_FORM = 8;

const uint GROUP = TSR_VECTOR_BYTES / (Y_DTYPE == TSR_DT_F32 ? 4 : 2); // elements of a vector
const uint UNIT = LANES * GROUP;
const uint HALF = UNITS / 2;
const bool EXACT = false;

#include "cpu_drivers/vector_floats.glsl"
#include "cpu_drivers/softmax_result.glsl"

// Whether an earlier unit also has element k of this lane's vector in unit i.
bool repeated(uint i, uint k, uint overlap)
{
    return mix(false, (i - HALF) * UNIT + gl_SubgroupInvocationID * GROUP + k < overlap, i >= HALF);
}

void main()
{
    uint number = uniform_index(gl_WorkGroupID.x) * (WORKGROUP / LANES) + p.identity[p.identity[gl_SubgroupID]];
    uint row = min(number, p.rows - 1), overlap = p.overlap;
    uint64_t a_at = p.a + uint64_t(row) * p.a_row, b_at = p.b + uint64_t(row) * p.b_row;

    // The bounds of all loops are constants, because the driver unrolls no others. There are few loops,
    // because the driver passes over the whole shader once for each one that it unrolls.
    vec4 a[UNITS], b[UNITS];
    float largest = uintBitsToFloat(0xff800000u);
    precise float sum = 0.0;
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        uint start = i * UNIT - mix(0, overlap, i >= HALF);
        a[i] = LOAD_OPERAND(a_at + start * BYTES_OF(A_DTYPE), A_DTYPE, A_FORM);
        b[i] = vec4(0.0);
        if (GRADIENT)
            b[i] = LOAD_OPERAND(b_at + start * BYTES_OF(B_DTYPE), B_DTYPE, B_FORM);
        [[unroll]] for (uint k = 0; k < GROUP; k++) {
            if (!GRADIENT)
                largest = max(largest, a[i][k]);
            else
                sum += mix(FUNCTION == TSR_SOFTMAX_GRAD ? a[i][k] * b[i][k] : b[i][k], 0.0, repeated(i, k, overlap));
        }
    }
    if (!GRADIENT) {
        [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)
            largest = max(largest, subgroupShuffleXor(largest, distance));
        [[unroll]] for (uint i = 0; i < UNITS; i++)
            [[unroll]] for (uint k = 0; k < GROUP; k++) {
                precise float value = a[i][k] - largest;
                float exponential = tsr_exp_down(value);
                a[i][k] = FUNCTION == TSR_SOFTMAX ? exponential : value;
                sum += mix(exponential, 0.0, repeated(i, k, overlap));
            }
    }
    [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2)
        sum += subgroupShuffleXor(sum, distance);
    float scale = FUNCTION == TSR_SOFTMAX ? 1.0 / sum : FUNCTION == TSR_SOFTMAX_LOG ? tsr_log(sum) : sum;

    uvec2 y[UNITS], pinned = uvec2(0);
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        vec4 values = vec4(0.0);
        [[unroll]] for (uint k = 0; k < GROUP; k++)
            values[k] = softmax_scaled(a[i][k], b[i][k], scale);
        y[i] = ENCODE(values, Y_DTYPE);
        pinned ^= y[i];
    }
    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0)
        Word2(p.y).v = pinned;

    uint64_t y_at = p.y + uint64_t(row) * p.y_row + gl_SubgroupInvocationID * TSR_VECTOR_BYTES;
    // Values that are computed from push constants must precede the first branch; see
    // lavapipe.glsl.
    uint lowest = mix(LANES, 0, number < p.rows);
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        if (gl_SubgroupInvocationID >= lowest)
            STORE_LANE_VECTORS(y_at + (i * UNIT - mix(0, overlap, i >= HALF)) * BYTES_OF(Y_DTYPE), Y_FORM, y[i]);
}
