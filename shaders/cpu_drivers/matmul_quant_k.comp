// y[m,n] = a[m,k] · b[n,k]ᵀ for a few rows, on lavapipe with eight or sixteen lanes; b is in blocks of q4_k, q5_k or q6_k, which are read
// once, as they are. The kernel is built like matmul_quant_rows.comp, but a step multiplies one block of 256 elements.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "cpu_drivers/quant_rows.glsl"
#include "cpu_drivers/quant_k.glsl"

void main()
{
    const uint m = (p.m_n >> 28) + 1, n = p.m_n & 0xfffffffu;
    uint col0 = uniform_index(gl_WorkGroupID.x) * TN;
    uint split = SPLITS > 1 ? uniform_index(gl_SubgroupID) : 0;
    uint lane = gl_SubgroupInvocationID;
    uint64_t b = find_matrix(), b_line[TN], a_line[ROWS];
    [[unroll]] for (uint j = 0; j < TN; j++)
        b_line[j] = b + uint64_t(min(col0 + j, n - 1)) * p.b_stride + split * (STEPS * BLOCK_BYTES);
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        a_line[i] = p.a + (uint64_t(tile * ROWS + min(i, m - 1)) * p.a_row + split * (STEPS * GROUPS * 32)) * A_BYTES;
    [[unroll]] for (uint e = 0; e < SUMS; e++)
        c[e] = 0.0;

    uint64_t a_at = 0, b_at = 0;
    [[unroll]] for (uint step = 0; step < STEPS; step++) {
        vec4 a[ROWS * TURNS];
        // For each turn (quant_k.glsl), the sum of this lane's elements of a, and then the levels of a tree that adds up these sums over
        // lanes. At its end, each lane has the sum for the group whose minimum load_scales() gives it. With sixteen lanes, two lanes share
        // a group, and each has the sum of some of its elements.
        float total[ROWS * 2 * TURNS];
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            [[unroll]] for (uint t = 0; t < TURNS; t++) {
                vec4 four = load_lanes4(a_line[i] + a_at + t * (TURN_ELEMENTS * A_BYTES), A_DTYPE, LANES);
                total[i * 2 * TURNS + t] = (four.x + four.y) + (four.z + four.w);
                a[i * TURNS + t] = four * K_FACTORS(t);
            }
            if (!Q6) {
                [[unroll]] for (uint e = 0; e < TURNS - 1; e++) {
                    uint distance = e < TURNS / 2 ? 1 : e < TURNS / 4 * 3 ? 2 : 4, from = i * 2 * TURNS + 2 * e;
                    bool odd = (lane & distance) != 0;
                    total[i * 2 * TURNS + TURNS + e] = mix(total[from], total[from + 1], odd) +
                                                       subgroupShuffle(mix(total[from + 1], total[from], odd), lane ^ distance);
                }
            }
        }
        [[unroll]] for (uint j = 0; j < TN; j++) {
            uint64_t block = b_line[j] + b_at;
            uint low[LOW_WORDS], high[HIGH_WORDS];
            [[unroll]] for (uint w = 0; w < LOW_WORDS; w++)
                low[w] = LOAD_LOW(block, w);
            [[unroll]] for (uint w = 0; w < HIGH_WORDS; w++)
                high[w] = LOAD_HIGH(block, w);
            float factor = 0.0;
            vec2 scales = vec2(0.0);
            if (Q6)
                factor = unpackHalf2x16(uint(Word16(block + 208).v)).x;
            else
                scales = load_scales(block);
            [[unroll]] for (uint t = 0; t < TURNS; t++) {
                vec4 x = NUMBERS(low[LOW_OF(t)], high[HIGH_OF(t)], t);
                float scale = Q6 ? factor * SCALE_OF_LANE(floatBitsToUint(Float(block + SCALES_AT(t)).v), t)
                                 : OF_TURN(scales.x, t);
                [[unroll]] for (uint i = 0; i < ROWS; i++) {
                    vec4 four = a[i * TURNS + t];
                    float sum = (Q6 ? -32.0 * total[i * 2 * TURNS + t] : 0.0) + four.x * x.x;
                    sum += four.y * x.y;
                    sum += four.z * x.z;
                    sum += four.w * x.w;
                    c[i * TN + j] += sum * scale;
                }
            }
            if (!Q6) {
                [[unroll]] for (uint i = 0; i < ROWS; i++)
                    c[i * TN + j] -= total[i * 2 * TURNS + 2 * TURNS - 2] * scales.y;
            }
        }
        a_at += GROUPS * 32 * A_BYTES;
        b_at += BLOCK_BYTES;
    }

    finish(m, n, col0, true);
}
