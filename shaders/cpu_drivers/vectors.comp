// y = f(a, b, c) along contiguous rows, on Mesa's CPU driver: element-wise functions, activations,
// conversions and copies. A subgroup computes a block of ROWS rows with UNITS vectors per lane. A
// block that would exceed its row is shifted back, and stores only the vectors that no other block
// has. All loads precede all stores: a store is in a branch, and after a branch the driver loads
// lane by lane (lavapipe.glsl). It is compiled with -O0, which leaves its loops for the driver to
// unroll (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "params/activation.h"
#include "params/elementwise.h"
#include "params/vectors.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_vectors_push p;
};

#include "include/float16.glsl"
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const uint WORKGROUP = 128;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint ROWS = 1;
layout(constant_id = 3) const uint UNITS = 8;
layout(constant_id = 4) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 5) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint B_DTYPE = 0; // 0: there is no b
layout(constant_id = 7) const uint C_DTYPE = 0;
layout(constant_id = 8) const uint Y_FORM = 8;
layout(constant_id = 9) const uint A_FORM = 8;
layout(constant_id = 10) const uint B_FORM = 8;
layout(constant_id = 11) const uint C_FORM = 8;
layout(constant_id = 12) const uint FUNCTION = TSR_EW_ADD;
layout(constant_id = 13) const uint ACTIVATION = TSR_ACTIVATION_NONE;

const uint GROUP = TSR_VECTOR_BYTES / (Y_DTYPE == TSR_DT_F32 ? 4 : 2); // elements of a vector
const bool EXACT = FUNCTION == TSR_VECTORS_CONVERT;

#include "cpu_drivers/vector_floats.glsl"
#include "include/functions.glsl"

const uint BLOCK = UNITS * LANES; // vectors in a row of a block
const uint NONE = 0xffffffffu;

float apply(float a, float b, float c)
{
    if (FUNCTION == TSR_VECTORS_ACTIVATE)
        return tsr_activate(a, ACTIVATION);
    if (FUNCTION == TSR_VECTORS_ACTIVATE_GRAD)
        return tsr_activate_grad(a, ACTIVATION) * b;
    if (FUNCTION == TSR_VECTORS_ACTIVATE_MUL)
        return tsr_activate(a, ACTIVATION) * b;
    if (FUNCTION == TSR_VECTORS_CONVERT)
        return a;
    vec2 numbers = uintBitsToFloat(words_of(p.c));
    // the last argument, `zero` (rounded.glsl), may be a constant, because CPU drivers fuse nothing
    return tsr_function(a, b, c, numbers.x, numbers.y, 0u);
}

// The bytes of an operand that correspond to a vector of y.
uint step_of(uint dtype, uint form)
{
    return form == TSR_VECTORS_ONE ? 0 : FUNCTION == TSR_VECTORS_MOVE ? 8 : GROUP * BYTES_OF(dtype);
}

void main()
{
    uint number = uniform_index(gl_WorkGroupID.x) * (WORKGROUP / LANES) + p.identity[p.identity[gl_SubgroupID]];
    uint across = (p.vectors + BLOCK - 1) / BLOCK;
    uint blocks = across * ((p.rows + ROWS - 1) / ROWS);
    uint block = min(number, blocks - 1);
    uint high, low;
    umulExtended(block, p.magic, high, low);
    uint band = high + block >> p.shift;
    uint start = (block - band * across) * BLOCK;
    uint first = min(start, p.vectors - BLOCK);
    uint own = start - first; // the first `own` vectors are also in the block before this one, which stores them

    uint64_t a_at = p.a + uint64_t(first) * step_of(A_DTYPE, A_FORM), b_at = p.b, c_at = p.c, y_at = p.y;
    if (B_DTYPE != 0)
        b_at += uint64_t(first) * step_of(B_DTYPE, B_FORM);
    if (C_DTYPE != 0)
        c_at += uint64_t(first) * step_of(C_DTYPE, C_FORM);
    y_at += uint64_t(first) * TSR_VECTOR_BYTES;

    uvec2 y[ROWS * UNITS];
    vec4 a[ROWS * UNITS], b[ROWS * UNITS], c[ROWS * UNITS];
    [[unroll]] for (uint i = 0; i < ROWS * UNITS; i++) {
        uint row = min(band * ROWS + i / UNITS, p.rows - 1), before = i % UNITS * LANES;
        uint64_t at = a_at + uint64_t(row) * p.a_row + before * step_of(A_DTYPE, A_FORM);
        if (FUNCTION == TSR_VECTORS_MOVE)
            y[i] = words_of(LOAD_LANE_VECTORS(at, 8, A_FORM));
        else
            a[i] = LOAD_OPERAND(at, A_DTYPE, A_FORM);
        b[i] = vec4(0.0);
        if (B_DTYPE != 0)
            b[i] = LOAD_OPERAND(b_at + uint64_t(row) * p.b_row + before * step_of(B_DTYPE, B_FORM), B_DTYPE, B_FORM);
        c[i] = vec4(0.0);
        if (C_DTYPE != 0)
            c[i] = LOAD_OPERAND(c_at + uint64_t(row) * p.c_row + before * step_of(C_DTYPE, C_FORM), C_DTYPE, C_FORM);
    }
    if (FUNCTION != TSR_VECTORS_MOVE)
        [[unroll]] for (uint i = 0; i < ROWS * UNITS; i++) {
            vec4 values = vec4(0.0);
            [[unroll]] for (uint k = 0; k < GROUP; k++)
                values[k] = apply(a[i][k], b[i][k], c[i][k]);
            y[i] = ENCODE(values, Y_DTYPE);
        }

    // This is a second use of all values, which is never executed. It keeps LLVM from moving the
    // arithmetic into each lane's store; see PIN() in matmul_lavapipe.glsl.
    if (p.identity[0] != 0) {
        uvec2 pinned = uvec2(0);
        [[unroll]] for (uint i = 0; i < ROWS * UNITS; i++)
            pinned ^= y[i];
        Word2(p.y).v = pinned;
    }

    // Values that are computed from push constants must precede the first branch; see
    // lavapipe.glsl.
    uint64_t y_row[ROWS];
    uint lowest[ROWS];
    [[unroll]] for (uint i = 0; i < ROWS; i++) {
        uint row = band * ROWS + i;
        y_row[i] = y_at + uint64_t(row) * p.y_row + gl_SubgroupInvocationID * TSR_VECTOR_BYTES;
        lowest[i] = mix(own, NONE, number >= blocks || row >= p.rows);
    }
    [[unroll]] for (uint i = 0; i < ROWS * UNITS; i++) {
        uint before = i % UNITS * LANES;
        if (before + gl_SubgroupInvocationID >= lowest[i / UNITS])
            STORE_LANE_VECTORS(y_row[i / UNITS] + before * TSR_VECTOR_BYTES, Y_FORM, y[i]);
    }
}
