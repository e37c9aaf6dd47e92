// Sums of rows of neighbours, for Mesa's CPU driver: a subgroup takes ROWS of them, its lanes side by side along each, which are lanes
// of reduce.glsl's tree too. The same bits as reduce_rows.comp. Compiled with -O0, as matmul_lavapipe_nt.comp.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "sums.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint ROWS = 1;    // a power of two, at most LANES
layout(constant_id = 3) const uint STEPS = 32;  // of TREE elements each
layout(constant_id = 4) const uint CAREFUL = 0; // 1: a row ends within its last step
layout(constant_id = 5) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint Y_DTYPE = TSR_DT_F32;

const uint OWN = TREE / LANES; // lanes of the tree that a lane holds

float load(uint64_t line, uint step, uint q)
{
    uint first = step * TREE + q * LANES;
    if (CAREFUL != 0 && step + 1 == STEPS) {
        float value = load_lanes_careful(line, X_DTYPE, first, p.count, LANES);
        return mix(0.0, value, first + gl_SubgroupInvocationID < p.count);
    }
    return load_lanes(line + first * bytes_of(X_DTYPE), X_DTYPE, LANES);
}

float load_y(uint64_t at)
{
#if TSR_STORAGE16
    if (Y_DTYPE == TSR_DT_F16)
        return tsr_f32_from_f16(uint(Half(at).v));
    if (Y_DTYPE == TSR_DT_BF16)
        return tsr_f32_from_bf16(uint(Half(at).v));
#endif
    return Float(at).v;
}

void store_y(uint64_t at, float value)
{
#if TSR_STORAGE16
    if (Y_DTYPE != TSR_DT_F32) {
        Half(at).v = uint16_t(Y_DTYPE == TSR_DT_F16 ? tsr_f16_from_f32(value) : tsr_bf16_from_f32(value));
        return;
    }
#endif
    Float(at).v = value;
}

void main()
{
    place at = find_block(WORKGROUP / LANES);
    uint first = at.block * ROWS, lane = gl_SubgroupInvocationID;

    precise float sums[ROWS * OWN];
    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint64_t line = p.x + uint64_t(at.plane) * p.x_plane + uint64_t(min(first + r, p.rows - 1)) * p.x_row;
        [[unroll]] for (uint q = 0; q < OWN; q++)
            sums[q * ROWS + r] = empty_sum();
        [[unroll]] for (uint step = 0; step < STEPS; step++)
            [[unroll]] for (uint q = 0; q < OWN; q++)
                sums[q * ROWS + r] += load(line, step, q);
    }
    PIN(sums, ROWS * OWN)

    [[unroll]] for (uint other = OWN / 2; other > 0; other /= 2)
        [[unroll]] for (uint e = 0; e < other * ROWS; e++)
            sums[e] += sums[e + other * ROWS];
    // As long as there are several rows, a lane keeps one of a pair and gives the other to its partner.
    uint count = ROWS;
    [[unroll]] for (uint distance = LANES / 2; distance > 0; distance /= 2) {
        bool high = (lane & distance) != 0;
        if (count > 1) {
            count /= 2;
            [[unroll]] for (uint e = 0; e < count; e++)
                sums[e] = mix(sums[e], sums[e + count], high) +
                          subgroupShuffleXor(mix(sums[e + count], sums[e], high), distance);
        } else {
            sums[0] += subgroupShuffleXor(sums[0], distance);
        }
    }

    const uint SHARE = LANES / ROWS; // lanes that hold the same sum
    uint row = first + lane / SHARE;
    uint64_t y = p.y + uint64_t(at.plane) * p.y_plane + uint64_t(row) * p.y_row;
    precise float value = sums[0] * p.scale;
    if (at.number < p.blocks && row < p.rows && lane % SHARE == 0) {
        if (p.accumulate != 0)
            value += load_y(y);
        store_y(y, value);
    }
}
