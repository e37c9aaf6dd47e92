// Reduction of contiguous rows on Mesa's CPU driver. A subgroup reduces ROWS rows. Its SIMD lanes
// read neighbouring elements, and each has some of the lanes of the tree in reduce.glsl. The
// results have the same bits as those of reduce_rows.comp. It is compiled with -O0, which leaves
// its loops for the driver to unroll (see matmul_lavapipe_nt.glsl).
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/reduction.glsl"

layout(constant_id = 0) const uint WORKGROUP = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8;
layout(constant_id = 2) const uint ROWS = 1;    // a power of two, at most LANES
layout(constant_id = 3) const uint STEPS = 32;  // a step is TREE elements
layout(constant_id = 4) const uint CAREFUL = 0; // 1: a row ends within its last step
layout(constant_id = 5) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint Y_DTYPE = TSR_DT_F32;

const uint OWN = TREE / LANES; // lanes of the tree that one SIMD lane computes

float load(uint64_t line, uint step, uint q)
{
    uint first = step * TREE + q * LANES;
    if (CAREFUL != 0 && step + 1 == STEPS) {
        float value = load_lanes_careful(line, X_DTYPE, first, p.count, LANES);
        return mix(identity(), value, first + gl_SubgroupInvocationID < p.count);
    }
    return load_lanes(line, first * BYTES_OF(X_DTYPE), X_DTYPE, LANES);
}

float load_y(uint64_t at)
{
#if TSR_STORAGE16
    if (Y_DTYPE == TSR_DT_F16)
        return tsr_f32_from_f16(uint(Word16(at).v));
    if (Y_DTYPE == TSR_DT_BF16)
        return tsr_f32_from_bf16(uint(Word16(at).v));
#endif
    return Float(at).v;
}

void store_y(uint64_t at, float value)
{
#if TSR_STORAGE16
    if (Y_DTYPE != TSR_DT_F32) {
        Word16(at).v = uint16_t(Y_DTYPE == TSR_DT_F16 ? tsr_f16_from_f32(value) : tsr_bf16_from_f32(value));
        return;
    }
#endif
    Float(at).v = value;
}

// Combines a value with that of the partner lane. Both lanes take the values in the order of the
// lanes, so that they get the same result.
float combine_pair(float own, float other, bool high)
{
    if (KIND == TSR_REDUCE_KIND_SUM)
        return combine(own, other);
    return combine(mix(own, other, high), mix(other, own, high));
}

// Element q·ROWS + r is for row r. It is the q-th of the lanes of the tree that this SIMD lane has.
float partial[ROWS * OWN];

// Reduces the number of the tree's lanes in this SIMD lane to `count`, if there are more.
void halve(uint count)
{
    if (OWN > count)
        [[unroll]] for (uint e = 0; e < count * ROWS; e++)
            partial[e] = combine(partial[e], partial[e + count * ROWS]);
}

// Combines the partial results with those of the SIMD lane that is `distance` away. While a lane
// has several rows, it keeps half of them and gives the other half to its partner.
void exchange(uint distance)
{
    bool high = (gl_SubgroupInvocationID & distance) != 0;
    uint before = LANES / 2 / distance; // 2 to the power of the number of exchanges so far
    if (before == 0)
        return;
    if (ROWS > before) {
        uint count = ROWS / before / 2;
        [[unroll]] for (uint e = 0; e < count; e++)
            partial[e] = combine_pair(mix(partial[e], partial[e + count], high),
                                     subgroupShuffleXor(mix(partial[e + count], partial[e], high), distance), high);
    } else {
        partial[0] = combine_pair(partial[0], subgroupShuffleXor(partial[0], distance), high);
    }
}

void main()
{
    place at = find_block(WORKGROUP / LANES);
    uint first = at.block * ROWS, lane = gl_SubgroupInvocationID;

    [[unroll]] for (uint r = 0; r < ROWS; r++) {
        uint64_t line = p.x + uint64_t(at.plane) * p.x_plane + uint64_t(min(first + r, p.rows - 1)) * p.x_row;
        [[unroll]] for (uint q = 0; q < OWN; q++)
            partial[q * ROWS + r] = identity();
        [[unroll]] for (uint step = 0; step < STEPS; step++)
            [[unroll]] for (uint q = 0; q < OWN; q++)
                partial[q * ROWS + r] = combine(partial[q * ROWS + r], load(line, step, q));
    }
    PIN(partial, ROWS * OWN)

    // There is no loop over the distances, because the driver's compiler does not unroll a loop
    // that contains another one.
    halve(4);
    halve(2);
    halve(1);
    exchange(8);
    exchange(4);
    exchange(2);
    exchange(1);

    const uint SHARE = LANES / ROWS; // SIMD lanes that have the same result
    uint row = first + lane / SHARE;
    uint64_t y = p.y + uint64_t(at.plane) * p.y_plane + uint64_t(row) * p.y_row;
    precise float value = partial[0] * p.scale;
    if (at.number < p.blocks && row < p.rows && lane % SHARE == 0) {
        if (p.accumulate != 0)
            value += load_y(y);
        store_y(y, value);
    }
}
