// y = act(alpha · sum + y + bias) on lavapipe, where the sum of an element is that of its partial
// sums over SPLITS ranges of k. A subgroup computes ROWS rows of 4 · LANES columns. Each lane has
// four neighbouring columns, because storing four numbers costs little more than storing one. It is
// compiled with -O0, which leaves its loops for the driver to unroll (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "include/activation.glsl"
#include "params/matmul.h"
#include "params/matmul_cpu.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_matmul_cpu_finish_push p;
};

#include "include/float16.glsl"
#define TSR_IDENTITY_BITS 3
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const int WORKGROUP = 8; // LANES · SUBGROUPS
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const int LANES = 8;
layout(constant_id = 2) const int ROWS = 8;
layout(constant_id = 3) const uint CAREFUL = 0; // 1: any n and any strides
layout(constant_id = 4) const uint MODE = 0;    // TSR_MM_…
layout(constant_id = 5) const int SPLITS = 1; // the number of ranges of k, whose partial sums are added in order
layout(constant_id = 6) const uint BATCHED = 0; // 1: each workgroup in z computes another matrix
// 1: each lane's first element of y starts at a multiple of 8 bytes.
layout(constant_id = 7) const uint PACKED = 0;

#include "cpu_drivers/lavapipe_float16.glsl"
#include "cpu_drivers/vectors.glsl"

const uint Y_DTYPE = MODE >> TSR_MM_Y_DTYPE_SHIFT & TSR_MM_FIELD_MASK;
const uint BIAS_DTYPE = MODE >> TSR_MM_BIAS_DTYPE_SHIFT & TSR_MM_FIELD_MASK;
const uint ACTIVATION = MODE >> TSR_MM_ACTIVATION_SHIFT & TSR_MM_FIELD_MASK;

// Returns column i of this lane. Columns past the edge repeat the last column: they compute and
// store the same bits again.
uint64_t column(uint first, int i)
{
    return min(first + gl_SubgroupInvocationID * 4 + i, p.n - 1);
}

// Loads four elements, `stride` elements apart, of the row that starts at `row`.
vec4 load4(uint64_t row, uint first, uint stride, uint dtype)
{
    if (CAREFUL == 0)
        return load_lanes4(row + uint64_t(first) * BYTES_OF(dtype), dtype, LANES);
    vec4 value;
    [[unroll]] for (int i = 0; i < 4; i++)
        value[i] = LOAD_ONE(row + column(first, i) * stride * BYTES_OF(dtype), dtype);
    return value;
}

void store4(uint64_t row, uint first, vec4 value)
{
    uint64_t at = row + uint64_t(first + gl_SubgroupInvocationID * 4) * BYTES_OF(Y_DTYPE);
#if TSR_STORAGE16
    if (Y_DTYPE != TSR_DT_F32) {
        uvec2 float16s = ENCODE_FLOAT16S(value, Y_DTYPE);
        if (CAREFUL == 0 && PACKED != 0)
            store_vector(at, float16s);
        else if (CAREFUL == 0)
            store_words16(at, float16s);
        else
            [[unroll]] for (int i = 0; i < 4; i++)
                Word16(target(row + column(first, i) * p.y_col * 2)).v = uint16_t(float16s[i / 2] >> i % 2 * 16);
        return;
    }
#endif
    if (CAREFUL == 0 && PACKED != 0)
        store_pairs(at, value);
    else if (CAREFUL == 0)
        store_floats(at, value);
    else
        [[unroll]] for (int i = 0; i < 4; i++)
            Float(target(row + column(first, i) * p.y_col * 4)).v = value[i];
}

void main()
{
    uint row0 = uniform_index(gl_WorkGroupID.x) * ROWS;
    bool own;
    uint tile = lavapipe_tile(gl_WorkGroupID.y, WORKGROUP / LANES, (p.n + 4 * LANES - 1) / (4 * LANES), own);
    uint col0 = tile * LANES * 4;
    uint64_t batch = BATCHED != 0 ? uniform_index(gl_WorkGroupID.z) : 0;

    // All loads come before all stores, because rows past the edge repeat the last one.
    uint64_t y_row[ROWS];
    vec4 sums[ROWS], old[ROWS], bias[ROWS];
    [[unroll]] for (int i = 0; i < ROWS; i++) {
        uint64_t row = min(row0 + i, p.m - 1);
        y_row[i] = p.y + (batch * p.y_batch + row * p.y_row) * BYTES_OF(Y_DTYPE);
        uint64_t sums_row = p.sums + (batch * p.sums_batch + row * p.sums_row) * 4;
        sums[i] = load4(sums_row, col0, 1, TSR_DT_F32);
        [[unroll]] for (int split = 1; split < SPLITS; split++)
            sums[i] += load4(sums_row + uint64_t(split) * p.sums_split * 4, col0, 1, TSR_DT_F32);
        old[i] = vec4(0.0);
        bias[i] = vec4(0.0);
        if ((MODE & TSR_MM_ACCUMULATE) != 0)
            old[i] = load4(y_row[i], col0, p.y_col, Y_DTYPE);
        if ((MODE & TSR_MM_BIAS) != 0)
            bias[i] = load4(p.bias + (batch * p.bias_batch + row * p.bias_row) * BYTES_OF(BIAS_DTYPE), col0, p.bias_col, BIAS_DTYPE);
    }
    [[unroll]] for (int i = 0; i < ROWS; i++) {
        vec4 value = p.alpha * sums[i];
        if ((MODE & TSR_MM_ACCUMULATE) != 0)
            value += old[i];
        if ((MODE & TSR_MM_BIAS) != 0)
            value += bias[i];
        if (ACTIVATION != TSR_ACTIVATION_NONE)
            [[unroll]] for (int c = 0; c < 4; c++)
                value[c] = tsr_activate(value[c], ACTIVATION);
        if (own)
            store4(y_row[i], col0, value);
    }
}
