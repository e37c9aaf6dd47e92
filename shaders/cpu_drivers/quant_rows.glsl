// Code that the kernels that multiply a few rows by quantised columns on lavapipe share: their constants, and what follows after each
// subgroup has computed the sums over its range of k.
#ifndef TSR_QUANT_ROWS_GLSL
#define TSR_QUANT_ROWS_GLSL

#include "include/tessera.glsl"
#include "include/activation.glsl"
#include "params/matmul.h"
#include "params/matmul_quant_rows.h"

layout(push_constant, std430) uniform tsr_push
{
    tsr_matmul_quant_rows_push p;
};

#define TSR_MEMORY volatile
#include "cpu_drivers/lavapipe.glsl"

layout(constant_id = 0) const uint WORKGROUP = 8; // LANES · SPLITS · TILES
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint LANES = 8; // the subgroup size, 8 or 16
layout(constant_id = 2) const uint ROWS = 1;  // at least m
layout(constant_id = 3) const uint TN = 8;
layout(constant_id = 4) const uint STEPS = 8;
layout(constant_id = 5) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint FORMAT = TSR_QUANT_ROWS_Q8_0;
layout(constant_id = 7) const uint MODE = 0; // TSR_MM_…, the epilogue
layout(constant_id = 8) const uint TILES = 1; // the number of tiles of a workgroup, each computed by one subgroup

// 1: a workgroup's z is the number of a tile of ROWS rows of a grouped product (params/matmul_quant_rows.h).
layout(constant_id = 9) const uint GROUPED = 0;

const uint SPLITS = WORKGROUP / LANES / TILES; // the number of ranges of k, one per subgroup; 1 if a workgroup computes several tiles
// The last vector of sums is complete: sums past ROWS · TN are copies of other sums, and nothing
// stores them.
const uint SUMS = ROWS * TN < LANES ? LANES : ROWS * TN;
const uint A_BYTES = BYTES_OF(A_DTYPE);

// The sum of row i and column j is in c[i · TN + j], a part of it in each lane. The second half of c is for the levels of the tree that
// adds up the lanes.
float c[2 * SUMS];

shared float split_sums[SPLITS * SUMS];

uint tile; // 0, or with GROUPED the number of the tile

// Sets `tile`, and returns the address of the matrix.
uint64_t find_matrix()
{
    tile = 0;
    if (GROUPED == 0)
        return p.b;
    tile = uniform_index(gl_WorkGroupID.z);
    uint expert = uniform_index(floatBitsToUint(Float(p.bias + uint64_t(tile) * 4).v));
    return p.b + packUint2x32(uvec2(p.bias_row, p.bias_col)) * expert;
}

// Adds up the lanes of all sums, and then the sums of the workgroup's subgroups over their ranges of k. Applies the epilogue and stores y.
void finish(uint m, uint n, uint col0, bool own)
{
    [[unroll]] for (uint e = ROWS * TN; e < SUMS; e++)
        c[e] = c[e - ROWS * TN];

    // Adds up the lanes in a fixed tree. At the end, lane l of vector q holds sum q · LANES + l. See
    // matmul_lavapipe_nt.glsl.
    uint lane = gl_SubgroupInvocationID;
    const uint FIRST = 2 * SUMS - 2 * SUMS / LANES; // where the last level starts
    [[unroll]] for (uint e = 0; e < SUMS - SUMS / LANES; e++) {
        uint level = e < SUMS / 2 ? 0 : e < SUMS / 4 * 3 ? 1 : e < SUMS / 8 * 7 ? 2 : 3;
        uint distance = 1u << level;
        bool odd = (lane & distance) != 0;
        c[SUMS + e] = mix(c[2 * e], c[2 * e + 1], odd) + subgroupShuffle(mix(c[2 * e + 1], c[2 * e], odd), lane ^ distance);
    }
    // A second use of the sums, which is never executed; see PIN in matmul_lavapipe.glsl.
    if (p.identity[0] != 0) {
        float pinned = 0.0;
        [[unroll]] for (uint q = 0; q < SUMS / LANES; q++)
            pinned += c[FIRST + q];
        Float(p.y).v = pinned;
    }

    if (SPLITS > 1) {
        [[unroll]] for (uint q = 0; q < SUMS / LANES; q++)
            split_sums[gl_SubgroupID * SUMS + q * LANES + lane] = c[FIRST + q];
        barrier();
    }
    if (!own || (SPLITS > 1 && gl_SubgroupID != 0))
        return;
    const uint y_dtype = MODE >> TSR_MM_Y_DTYPE_SHIFT & TSR_MM_FIELD_MASK;
    const uint bias_dtype = MODE >> TSR_MM_BIAS_DTYPE_SHIFT & TSR_MM_FIELD_MASK;
    const uint activation = MODE >> TSR_MM_ACTIVATION_SHIFT & TSR_MM_FIELD_MASK;
    [[unroll]] for (uint q = 0; q < SUMS / LANES; q++) {
        uint row = (q * LANES + lane) / TN, col = col0 + (q * LANES + lane) % TN;
        if (row >= m || col >= n)
            continue;
        float sum = c[FIRST + q];
        if (SPLITS > 1) {
            sum = 0.0;
            for (uint e = 0; e < SPLITS; e++)
                sum += split_sums[e * SUMS + q * LANES + lane];
        }
        sum *= p.alpha;
        uvec2 y = unpackUint2x32(p.y + uint64_t(tile * ROWS) * (p.y_row * 4));
        uint at = row * p.y_row + col * p.y_col;
        if ((MODE & TSR_MM_ACCUMULATE) != 0)
            sum += tsr_load_float(y, at, y_dtype);
        if ((MODE & TSR_MM_BIAS) != 0)
            sum += tsr_load_float(unpackUint2x32(p.bias), row * p.bias_row + col * p.bias_col, bias_dtype);
        if (activation != 0)
            sum = tsr_activate(sum, activation);
        tsr_store_float(y, at, y_dtype, sum);
    }
}

#endif
