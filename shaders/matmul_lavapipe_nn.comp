// y[m,n] (+)= op(a) · b[k,n] over one stretch of k, for Mesa's CPU driver; n is contiguous in b and y. The lanes lie along n, so that
// nothing needs adding up. a is read one element at a time and may be [m,k] or, A_TRANSPOSED, [k,m]. A workgroup is one subgroup and
// makes a tile of TM rows and TN vectors of LANES columns. Compiled with -O0, as matmul_lavapipe_nt.comp.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "matmul_lavapipe.glsl"

layout(constant_id = 0) const int LANES = 8;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const int TM = 8;
layout(constant_id = 2) const int TN = 4;    // a multiple of 4
layout(constant_id = 3) const int STEPS = 8; // of one product each
layout(constant_id = 4) const uint CAREFUL = 0; // 1: k may end anywhere in the stretch, and n anywhere in the tile
layout(constant_id = 5) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 6) const uint B_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint A_TRANSPOSED = 0;
layout(constant_id = 8) const uint BATCHED = 0;

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
    uint row0 = uniform_index(gl_WorkGroupID.x) * TM;
    uint col0 = uniform_index(gl_WorkGroupID.y) * TN * LANES;
    uint lane = gl_SubgroupInvocationID;
    uint a_bytes = bytes_of(A_DTYPE), b_bytes = bytes_of(B_DTYPE);
    uint64_t batch = batch_index(BATCHED);

    // Rows past the edge repeat the last one, as in matmul_lavapipe_nt.comp. The sums so far are read here, before any store.
    uint64_t a_row[TM], y_row[TM];
    float c[TM * TN];
    [[unroll]] for (int i = 0; i < TM; i++) {
        uint64_t row = min(row0 + i, p.m - 1);
        a_row[i] = p.a + (batch * p.a_batch + row * (A_TRANSPOSED != 0 ? 1 : p.a_stride)) * a_bytes;
        y_row[i] = p.y + 4 * (batch * p.y_batch + row * p.y_stride + col0);
        [[unroll]] for (int j = 0; j < TN; j++) {
            float sum;
            if (CAREFUL != 0)
                sum = Float(y_row[i] + 4 * (min(col0 + j * LANES + lane, p.n - 1) - col0)).v;
            else
                sum = load_lanes(y_row[i] + 4 * j * LANES, TSR_DT_F32, LANES);
            c[i * TN + j] = mix(0.0, sum, p.accumulate != 0);
        }
    }

    [[unroll]] for (int step = 0; step < STEPS; step++) {
        bool inside = CAREFUL == 0 || step < p.k;
        // Each address straight from the base: over a chain of additions LLVM 19 takes minutes.
        uint64_t line = CAREFUL != 0 ? min(step, p.k - 1) : step;
        uint64_t b_line = p.b + (batch * p.b_batch + line * p.b_stride) * b_bytes;
        uint64_t a_step = line * (A_TRANSPOSED != 0 ? p.a_stride : 1) * a_bytes;
        float b[TN];
        [[unroll]] for (int j = 0; j < TN; j++) {
            uint col = col0 + j * LANES;
            if (CAREFUL != 0)
                b[j] = mix(0.0, load_lanes_careful(b_line, B_DTYPE, col, p.n, LANES), inside);
            else
                b[j] = load_lanes(b_line + uint64_t(col) * b_bytes, B_DTYPE, LANES);
        }
        [[unroll]] for (int i = 0; i < TM; i++) {
            float a = load_one(a_row[i] + a_step, A_DTYPE);
            if (CAREFUL != 0)
                a = mix(0.0, a, inside);
            [[unroll]] for (int j = 0; j < TN; j++)
                c[i * TN + j] += a * b[j];
        }
    }
    PIN(c, TM * TN)

    // A store costs much the same for one number per lane as for four, so four vectors of a row are transposed first: columns
    // LANES apart become neighbours.
    [[unroll]] for (int i = 0; i < TM; i++) {
        [[unroll]] for (int j = 0; j < TN; j += 4) {
            float v0 = c[i * TN + j], v1 = c[i * TN + j + 1];
            float v2 = c[i * TN + j + 2], v3 = c[i * TN + j + 3];
            if (CAREFUL != 0) {
                uint last = p.n - 1 - col0, col = j * LANES + lane;
                Float(y_row[i] + 4 * min(col, last)).v = v0;
                Float(y_row[i] + 4 * min(col + LANES, last)).v = v1;
                Float(y_row[i] + 4 * min(col + 2 * LANES, last)).v = v2;
                Float(y_row[i] + 4 * min(col + 3 * LANES, last)).v = v3;
            } else {
                exchange(v0, v1, 1);
                exchange(v2, v3, 1);
                exchange(v0, v2, 2);
                exchange(v1, v3, 2);
                Float4(y_row[i] + 4 * (j * LANES + LANES * (lane & 3) + (lane & ~3u))).v =
                    vec4(v0, v1, v2, v3);
            }
        }
    }
}
