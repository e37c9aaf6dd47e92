// y[m,n] = op(a) · b[k,n] over one range of k, or y += …, on lavapipe; n is contiguous in b and y.
// The lanes are placed along n, so that no sums of lanes have to be added up. a is read one element
// at a time; it is [m,k] or, with A_TRANSPOSED, [k,m]. A subgroup computes a tile of TM rows and TN
// vectors of LANES columns, where TN is a multiple of 4. A step adds one product to each element.
// It is compiled with -O0, so that the driver unrolls its loops; see matmul_lavapipe_nt.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/matmul_lavapipe.glsl"

layout(constant_id = 11) const uint A_TRANSPOSED = 0;

// Exchanges the lower lane's `high` and the upper lane's `low`, for lanes that are `distance`
// apart.
void exchange(inout float low, inout float high, uint distance)
{
    bool upper = (gl_SubgroupInvocationID & distance) != 0;
    float other = subgroupShuffleXor(mix(high, low, upper), distance);
    low = mix(low, other, upper);
    high = mix(other, high, upper);
}

float load_b(uint64_t line, uint64_t at0, uint64_t at4, uint64_t at8, uint64_t at12)
{
    LOAD_LANES(B_DTYPE, LANES)
}

float load_sums(uint64_t line, uint64_t at0, uint64_t at4, uint64_t at8, uint64_t at12)
{
    LOAD_LANES(TSR_DT_F32, LANES)
}

void main()
{
    // With PARTS, the workgroup's index in x counts the tiles, so that consecutive workgroups read
    // the lines of b sequentially. The range of k of a workgroup has few lines, because processors
    // prefetch only a few streams at a time.
    uint row0 = PARTS != 0 ? 0 : uniform_index(gl_WorkGroupID.x) * TM;
    uint part = PARTS != 0 ? uniform_index(gl_WorkGroupID.y) : 0;
    bool own;
    uint group = PARTS != 0 ? gl_WorkGroupID.x : gl_WorkGroupID.y;
    uint col0 = lavapipe_tile(group, SUBGROUPS, (p.n + TN * LANES - 1) / (TN * LANES), own) * TN * LANES;
    uint lane = gl_SubgroupInvocationID;
    uint64_t batch = BATCHED != 0 ? uniform_index(gl_WorkGroupID.z) : 0, k0 = part * STEPS;

    // Rows past the edge repeat the last row, as in matmul_lavapipe_nt.glsl. The old contents of
    // the sums are read here, before any store.
    uint64_t a_row[TM], y_row[TM];
    float c[TM * TN];
    [[unroll]] for (int i = 0; i < TM; i++) {
        uint64_t row = min(row0 + i, p.m - 1);
        a_row[i] = p.a + (batch * p.a_batch + (A_TRANSPOSED != 0 ? row + k0 * p.a_stride : row * p.a_stride + k0)) * A_BYTES;
        y_row[i] = p.sums + 4 * (batch * p.sums_batch + uint64_t(part) * p.sums_stride + row * p.sums_stride + col0);
        [[unroll]] for (int j = 0; j < TN; j++) {
            float sum;
            if (CAREFUL != 0)
                sum = Float(y_row[i] + 4 * (min(col0 + j * LANES + lane, p.n - 1) - col0)).v;
            else
                sum = load_sums(y_row[i] + 4 * j * LANES, 0, 16, 32, 48);
            c[i * TN + j] = mix(0.0, sum, p.accumulate != 0);
        }
    }

    // `b_before` is the address one line before the first one, so that every step adds at least one
    // line: the driver would need one more pass to remove an addition of 0. With CAREFUL, it does
    // not include the column, because load_lanes_careful() adds the column.
    uint64_t b_before = p.b + (batch * p.b_batch + (k0 - 1) * p.b_stride + (CAREFUL != 0 ? 0 : col0)) * B_BYTES;
    [[unroll]] for (int first = 0; first < STEPS; first += GROUP) {
        [[unroll]] for (int g = 0; g < GROUP; g++) {
            int step = first + g;
            bool counts = SKIPS == 0 || step >= p.skip;
            // Each address is computed from the base: LLVM 19 takes minutes to compile a chain of
            // additions.
            uint64_t b_line = b_before + uint64_t((step + 1) * B_BYTES) * p.b_stride;
            uint64_t a_step = uint64_t(step) * (A_TRANSPOSED != 0 ? p.a_stride : 1) * A_BYTES;
            float b[TN];
            [[unroll]] for (int j = 0; j < TN; j++) {
                if (CAREFUL != 0)
                    b[j] = load_lanes_careful(b_line, B_DTYPE, col0 + j * LANES, p.n, LANES);
                else
                    b[j] = load_b(b_line + j * LANES * B_BYTES, 0, 4 * B_BYTES, 8 * B_BYTES, 12 * B_BYTES);
                if (SKIPS != 0) // both operands become 0, because infinity times 0 is NaN
                    b[j] = mix(0.0, b[j], counts);
            }
            [[unroll]] for (int i = 0; i < TM; i++) {
                float a = LOAD_ONE(a_row[i] + a_step, A_DTYPE);
                if (SKIPS != 0)
                    a = mix(0.0, a, counts);
                [[unroll]] for (int j = 0; j < TN; j++)
                    c[i * TN + j] += a * b[j];
            }
        }
    }

    PIN(c, 0, TM * TN)

    // Storing four numbers per lane costs little more than storing one. Therefore four vectors of a
    // row are transposed first: columns that are LANES apart become neighbours.
    if (CAREFUL == 0) {
        [[unroll]] for (int q = 0; q < TM * TN / 4; q++) {
            exchange(c[4 * q], c[4 * q + 1], 1);
            exchange(c[4 * q + 2], c[4 * q + 3], 1);
            exchange(c[4 * q], c[4 * q + 2], 2);
            exchange(c[4 * q + 1], c[4 * q + 3], 2);
        }
    }
    if (own) {
        if (CAREFUL != 0) {
            [[unroll]] for (int e = 0; e < TM * TN; e++)
                Float(target(y_row[e / TN] + 4 * min(e % TN * LANES + lane, p.n - 1 - col0))).v = c[e];
        } else {
            [[unroll]] for (int q = 0; q < TM * TN / 4; q++) {
                uint64_t at = y_row[4 * q / TN] + 4 * (4 * q % TN * LANES + LANES * (lane & 3) + (lane & ~3u));
                vec4 values = vec4(c[4 * q], c[4 * q + 1], c[4 * q + 2], c[4 * q + 3]);
                if (PAIRS != 0)
                    store_pairs(at, values);
                else
                    store_floats(at, values);
            }
        }
    }
}
