// The third of three kernels for softmax on Mesa's CPU driver. It computes y from the statistics of
// the rows. A subgroup computes a block of UNITS vectors per lane. The last block of a row is
// shifted back to end with the row, and stores only the vectors that no other block has. All loads
// precede all stores: a store is in a branch, and after a branch the driver loads lane by lane
// (lavapipe.glsl). It is compiled with -O0, which leaves its loops for the driver to unroll (see
// matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/vectors.h"
#include "params/softmax_chunks.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_softmax_spans_push p;
};

#define TSR_IDENTITY_BITS 3
#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"
#include "cpu_drivers/row_spans.glsl"

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
const bool EXACT = false;

#include "cpu_drivers/vector_floats.glsl"
#include "cpu_drivers/softmax_result.glsl"

void main()
{
    span at = find_span(span_number(WORKGROUP / LANES), UNITS * LANES);
    vec4 row = Float4(p.stats + at.row * TSR_SOFTMAX_ROW_BYTES).v;
    uint64_t a_at = p.a + uint64_t(at.row) * p.a_row + at.first * GROUP * BYTES_OF(A_DTYPE);
    uint64_t b_at = p.b + uint64_t(at.row) * p.b_row + at.first * GROUP * BYTES_OF(B_DTYPE);

    vec4 a[UNITS], b[UNITS];
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        a[i] = LOAD_OPERAND(a_at + i * LANES * GROUP * BYTES_OF(A_DTYPE), A_DTYPE, A_FORM);
        b[i] = vec4(0.0);
        if (GRADIENT)
            b[i] = LOAD_OPERAND(b_at + i * LANES * GROUP * BYTES_OF(B_DTYPE), B_DTYPE, B_FORM);
    }
    uint beyond = floatBitsToUint(row.w) - (at.first + gl_SubgroupInvocationID) * GROUP;
    uvec2 y[UNITS];
    [[unroll]] for (uint i = 0; i < UNITS; i++) {
        vec4 values = vec4(0.0);
        [[unroll]] for (uint k = 0; k < GROUP; k++)
            values[k] = softmax_result(a[i][k], b[i][k], row, beyond - (i * LANES * GROUP + k));
        y[i] = ENCODE(values, Y_DTYPE);
    }

    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0) {
        uvec2 pinned = uvec2(0);
        [[unroll]] for (uint i = 0; i < UNITS; i++)
            pinned ^= y[i];
        Word2(p.y).v = pinned;
    }

    uint64_t y_at = p.y + uint64_t(at.row) * p.y_row + (at.first + gl_SubgroupInvocationID) * TSR_VECTOR_BYTES;
    uint lowest = mix(0xffffffffu, at.before, at.own);
    [[unroll]] for (uint i = 0; i < UNITS; i++)
        if (i * LANES + gl_SubgroupInvocationID >= lowest)
            STORE_LANE_VECTORS(y_at + i * LANES * TSR_VECTOR_BYTES, Y_FORM, y[i]);
}
