// y[m,n] (+)= a[m,k] · b[n,k]ᵀ over one stretch of k, for Mesa's CPU driver; k is contiguous in both operands. The lanes lie along k
// and are added up at the end. A workgroup is one subgroup and makes one tile of TM × TN. Compiled with -O0: the driver has to
// unroll, after specialization; spirv-opt would need gigabytes for it.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "matmul_lavapipe.glsl"

layout(constant_id = 0) const int LANES = 8; // the subgroup size, a power of two
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const int TM = 8;
layout(constant_id = 2) const int TN = 4;    // TM · TN is a multiple of LANES
layout(constant_id = 3) const int STEPS = 8; // of LANES products each
layout(constant_id = 4) const uint CAREFUL = 0; // 1: k may end anywhere in the stretch
layout(constant_id = 5) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint B_DTYPE = TSR_DT_F32;

// 1: a is not longer than one tile, and the workgroups in x take one stretch of k after another, each with sums of its own. Those
// that follow one another in time then read the lines of b on and on, as the processor's prefetching wants it.
layout(constant_id = 7) const uint PARTS = 0;
layout(constant_id = 8) const uint BATCHED = 0;

const int SUMS = TM * TN;

float load(uint64_t line, uint dtype, int step)
{
    if (CAREFUL != 0) { // both operands are 0 past k: an infinity there times 0 would be NaN
        float value = load_lanes_careful(line, dtype, step * LANES, p.k, LANES);
        return mix(0.0, value, step * LANES + gl_SubgroupInvocationID < p.k);
    }
    return load_lanes(line + step * LANES * bytes_of(dtype), dtype, LANES);
}

// Two bf16 operands are read as words of two neighbours, of which the upper one is a float but for the mask: one operation, where
// widening takes two. The even elements are the upper ones of words that start two bytes earlier. The order of the products
// changes, for both operands alike.
const bool WORDS = CAREFUL == 0 && A_DTYPE == TSR_DT_BF16 && B_DTYPE == TSR_DT_BF16;

float load_words(uint64_t line, int step)
{
    if (step == 0) // before the line may be before all memory
        return uintBitsToFloat(floatBitsToUint(load_lanes(line, TSR_DT_F32, LANES)) << 16);
    uint64_t at = line + step / 2 * LANES * 4 + (step % 2 == 0 ? -2 : 0);
    return uintBitsToFloat(floatBitsToUint(load_lanes(at, TSR_DT_F32, LANES)) & 0xffff0000u);
}

void main()
{
    uint x = uniform_index(gl_WorkGroupID.x);
    uint row0 = PARTS != 0 ? 0 : x * TM;
    uint part = PARTS != 0 ? x : 0;
    uint64_t batch = batch_index(BATCHED);
    uint col0 = uniform_index(gl_WorkGroupID.y) * TN;

    // Lines past an edge repeat the last one: they compute and store the same bits again, so that no tile needs a branch.
    uint64_t a_line[TM], b_line[TN];
    [[unroll]] for (int i = 0; i < TM; i++)
        a_line[i] = p.a + (batch * p.a_batch + uint64_t(min(row0 + i, p.m - 1)) * p.a_stride + part * (STEPS * LANES)) * bytes_of(A_DTYPE);
    [[unroll]] for (int j = 0; j < TN; j++)
        b_line[j] = p.b + (batch * p.b_batch + uint64_t(min(col0 + j, p.n - 1)) * p.b_stride + part * (STEPS * LANES)) * bytes_of(B_DTYPE);

    float c[SUMS];
    [[unroll]] for (int e = 0; e < SUMS; e++)
        c[e] = 0.0;
    [[unroll]] for (int step = 0; step < STEPS; step++) {
        float a[TM];
        [[unroll]] for (int i = 0; i < TM; i++)
            a[i] = WORDS ? load_words(a_line[i], step) : load(a_line[i], A_DTYPE, step);
        [[unroll]] for (int j = 0; j < TN; j++) {
            float b = WORDS ? load_words(b_line[j], step) : load(b_line[j], B_DTYPE, step);
            [[unroll]] for (int i = 0; i < TM; i++)
                c[i * TN + j] += a[i] * b;
        }
    }
    PIN(c, SUMS)

    // Adds the lanes of all sums in one fixed tree. Each round halves the number of vectors: a lane keeps one sum of a pair
    // and gives the other to its partner. In the end lane l of c[q] holds sum q · LANES + l.
    uint lane = gl_SubgroupInvocationID;
    int count = SUMS;
    [[unroll]] for (int distance = 1; distance < LANES; distance *= 2) {
        count /= 2;
        bool high = (lane & distance) != 0;
        [[unroll]] for (int e = 0; e < count; e++)
            c[e] = mix(c[2 * e], c[2 * e + 1], high) +
                   subgroupShuffleXor(mix(c[2 * e + 1], c[2 * e], high), distance);
    }

    // All loads of y before all stores, because repeated lines share their addresses.
    const int STORES = SUMS / LANES;
    uint64_t at[STORES];
    [[unroll]] for (int q = 0; q < STORES; q++) {
        uint e = q * LANES + lane;
        at[q] = p.y + 4 * (batch * p.y_batch + uint64_t(part) * p.y_part +
                           uint64_t(min(row0 + e / TN, p.m - 1)) * p.y_stride + min(col0 + e % TN, p.n - 1));
    }
    if (p.accumulate != 0)
        [[unroll]] for (int q = 0; q < STORES; q++)
            c[q] += Float(at[q]).v;
    [[unroll]] for (int q = 0; q < STORES; q++)
        Float(at[q]).v = c[q];
}
