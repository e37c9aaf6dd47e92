// y[m,n] (+)= op(a) · b[k,n] over one stretch of k, for Mesa's CPU driver; n is contiguous in b and y. The lanes lie along n, so that
// nothing needs adding up. a is read one element at a time and may be [m,k] or, A_TRANSPOSED, [k,m]. A subgroup makes a tile of TM rows
// and TN vectors of LANES columns, TN being a multiple of 4; a step is one product. Compiled with -O0, as matmul_lavapipe_nt.glsl.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "matmul_lavapipe.glsl"

layout(constant_id = 11) const uint A_TRANSPOSED = 0;

// Between lanes `distance` apart: the lower one gives its high value for the higher one's low value.
void exchange(inout float low, inout float high, uint distance)
{
    bool upper = (gl_SubgroupInvocationID & distance) != 0;
    float other = subgroupShuffleXor(mix(high, low, upper), distance);
    low = mix(low, other, upper);
    high = mix(other, high, upper);
}

void main()
{
    // With PARTS the tiles are in x: workgroups that follow one another in time then read the lines of b on and on. A stretch has few
    // of these, since processors prefetch few at a time.
    uint row0 = PARTS != 0 ? 0 : uniform_index(gl_WorkGroupID.x) * TM;
    uint part = PARTS != 0 ? uniform_index(gl_WorkGroupID.y) : 0;
    bool own;
    uint group = PARTS != 0 ? gl_WorkGroupID.x : gl_WorkGroupID.y;
    uint col0 = lavapipe_tile(group, TEAM, (p.n + TN * LANES - 1) / (TN * LANES), own) * TN * LANES;
    uint lane = gl_SubgroupInvocationID;
    uint a_bytes = bytes_of(A_DTYPE), b_bytes = bytes_of(B_DTYPE);
    uint64_t batch = batch_index(), k0 = part * STEPS;

    // Rows past the edge repeat the last one, as in matmul_lavapipe_nt.glsl. The sums so far are read here, before any store.
    uint64_t a_row[TM], y_row[TM];
    float c[TM * TN];
    [[unroll]] for (int i = 0; i < TM; i++) {
        uint64_t row = min(row0 + i, p.m - 1);
        a_row[i] = p.a + (batch * p.a_batch + (A_TRANSPOSED != 0 ? row + k0 * p.a_stride : row * p.a_stride + k0)) * a_bytes;
        y_row[i] = p.sums + 4 * (batch * p.sums_batch + uint64_t(part) * p.sums_stride + row * p.sums_stride + col0);
        [[unroll]] for (int j = 0; j < TN; j++) {
            float sum;
            if (CAREFUL != 0)
                sum = Float(y_row[i] + 4 * (min(col0 + j * LANES + lane, p.n - 1) - col0)).v;
            else
                sum = load_lanes(y_row[i], 4 * j * LANES, TSR_DT_F32, LANES);
            c[i * TN + j] = mix(0.0, sum, p.accumulate != 0);
        }
    }

    // load_lanes_careful() adds the column itself. One line early, since what adds 0 takes the driver a pass more than what adds more.
    uint64_t b_before = p.b + (batch * p.b_batch + (k0 - 1) * p.b_stride + (CAREFUL != 0 ? 0 : col0)) * b_bytes;
    [[unroll]] for (int step = 0; step < STEPS; step++) {
        bool counts = SKIPS == 0 || step >= p.skip;
        // Each address straight from the base: over a chain of additions LLVM 19 takes minutes.
        uint64_t b_line = b_before + uint64_t((step + 1) * b_bytes) * p.b_stride;
        uint64_t a_step = uint64_t(step) * (A_TRANSPOSED != 0 ? p.a_stride : 1) * a_bytes;
        float b[TN];
        [[unroll]] for (int j = 0; j < TN; j++) {
            if (CAREFUL != 0)
                b[j] = load_lanes_careful(b_line, B_DTYPE, col0 + j * LANES, p.n, LANES);
            else
                b[j] = load_lanes(b_line, j * LANES * b_bytes, B_DTYPE, LANES);
            if (SKIPS != 0) // both operands: an infinity times 0 would be NaN
                b[j] = mix(0.0, b[j], counts);
        }
        [[unroll]] for (int i = 0; i < TM; i++) {
            float a = load_one(a_row[i] + a_step, A_DTYPE);
            if (SKIPS != 0)
                a = mix(0.0, a, counts);
            [[unroll]] for (int j = 0; j < TN; j++)
                c[i * TN + j] += a * b[j];
        }
    }

    PIN(c, 0, TM * TN)

    // A store costs much the same for one number per lane as for four, so four vectors of a row are transposed first: columns
    // LANES apart become neighbours.
    if (CAREFUL == 0) {
        [[unroll]] for (int q = 0; q < TM * TN / 4; q++) {
            exchange(c[4 * q], c[4 * q + 1], 1);
            exchange(c[4 * q + 2], c[4 * q + 3], 1);
            exchange(c[4 * q], c[4 * q + 2], 2);
            exchange(c[4 * q + 1], c[4 * q + 3], 2);
        }
    }
    if (own) {
        [[unroll]] for (int i = 0; i < TM; i++) {
            [[unroll]] for (int j = 0; j < TN; j++) {
                int e = i * TN + j;
                if (CAREFUL != 0)
                    Float(target(y_row[i] + 4 * min(j * LANES + lane, p.n - 1 - col0))).v = c[e];
                else if (j % 4 == 0)
                    store_four(y_row[i] + 4 * (j * LANES + LANES * (lane & 3) + (lane & ~3u)),
                               vec4(c[e], c[e + 1], c[e + 2], c[e + 3]), PAIRS != 0);
            }
        }
    }
}
