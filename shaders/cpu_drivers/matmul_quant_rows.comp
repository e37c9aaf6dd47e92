// y[m,n] = a[m,k] · b[n,k]ᵀ for a few rows, on lavapipe; b is in blocks of q8_0, q4_0 or mxfp4, which
// are read once, as they are. A subgroup computes TN columns over one part of k, and the subgroups of a
// workgroup compute all parts. docs/design/cpu_drivers.md explains the form of the code: it has no
// loops after specialization, and no branches before the sums are complete.
//
// A step multiplies a vector of one word per lane. A word has 4 elements of q8_0 or 8 of the others.
// Its numbers are not shifted to the lowest bits: masking takes one operation, and the power of two
// that this leaves is divided out of a, once for all columns.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "cpu_drivers/quant_rows.glsl"
#include "cpu_drivers/quant_words.glsl"

// Each lane gets the four elements of a that belong to the bytes of its word, or to their upper
// halves.
vec4 load_a(uint64_t line, uint upper)
{
    vec4 value = vec4(0.0);
    [[unroll]] for (uint e = 0; e < LANES; e++) {
        uint element = NIBBLES ? e / 4 * 32 + e % 4 * 4 + upper * 16 : e * 4;
        uint64_t at = line + element * A_BYTES;
        vec4 four;
        if (A_DTYPE == TSR_DT_F32) {
            four = Float4(at).v;
        } else {
            u16vec4 bits = Half4(at).v;
            four = vec4(DECODE(bits.x, A_DTYPE), DECODE(bits.y, A_DTYPE), DECODE(bits.z, A_DTYPE), DECODE(bits.w, A_DTYPE));
        }
        value = mix(value, four, bvec4(gl_SubgroupInvocationID == e));
    }
    return value;
}

void main()
{
    const uint m = (p.m_n >> 28) + 1, n = p.m_n & 0xfffffffu;
    uint col0 = uniform_index(gl_WorkGroupID.x) * TN;
    uint part = PARTS > 1 ? uniform_index(gl_SubgroupID) : 0;
    uint64_t b_line[TN], a_line[ROWS];
    [[unroll]] for (uint j = 0; j < TN; j++)
        b_line[j] = p.b + uint64_t(min(col0 + j, n - 1)) * p.b_stride + part * (STEPS * VECTOR_BYTES);
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        a_line[i] = p.a + (uint64_t(min(i, m - 1)) * p.a_row + part * (STEPS * VECTOR)) * A_BYTES;
    [[unroll]] for (uint e = 0; e < SUMS; e++)
        c[e] = 0.0;

    uint64_t a_at = 0, b_at = 0;
    [[unroll]] for (uint step = 0; step < STEPS; step++) {
        vec4 low[ROWS], high[ROWS];
        float bias[ROWS];
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            low[i] = load_a(a_line[i] + a_at, 0);
            if (MXFP4) {
                high[i] = load_a(a_line[i] + a_at, 1) * (1.0 / MXFP4_UNIT);
                low[i] *= 1.0 / MXFP4_UNIT;
                bias[i] = 0.0;
            } else if (NIBBLES) {
                high[i] = load_a(a_line[i] + a_at, 1);
                vec4 both = low[i] + high[i];
                bias[i] = -8.0 * ((both.x + both.y) + (both.z + both.w));
                low[i] *= vec4(1.0, 0.00390625, 1.52587890625e-5, 5.9604644775390625e-8);
                high[i] *= vec4(0.0625, 0.000244140625, 9.5367431640625e-7, 1.0);
            } else {
                low[i] *= 5.9604644775390625e-8;
            }
        }
        [[unroll]] for (uint j = 0; j < TN; j++) {
            uint words = load_words(b_line[j] + b_at);
            float scale = load_scales(b_line[j] + b_at);
            if (NIBBLES) {
                vec4 l, h;
                if (MXFP4) {
                    l = numbers_of_mxfp4(words);
                    h = numbers_of_mxfp4(words >> 4);
                } else {
                    l = vec4(number(words & 0xfu), number(words & 0xf00u), number(words & 0xf0000u), number(words & 0xf000000u));
                    h = vec4(number(words & 0xf0u), number(words & 0xf000u), number(words & 0xf00000u), number(words >> 28));
                }
                [[unroll]] for (uint i = 0; i < ROWS; i++) {
                    float sum = bias[i] + low[i].x * l.x;
                    sum += low[i].y * l.y;
                    sum += low[i].z * l.z;
                    sum += low[i].w * l.w;
                    sum += high[i].x * h.x;
                    sum += high[i].y * h.y;
                    sum += high[i].z * h.z;
                    sum += high[i].w * h.w;
                    c[i * TN + j] += sum * scale;
                }
            } else {
                const uint top = 0xff000000u;
                vec4 l = vec4(number(words << 24), number((words << 16) & top), number((words << 8) & top), number(words & top));
                [[unroll]] for (uint i = 0; i < ROWS; i++) {
                    float sum = low[i].x * l.x;
                    sum += low[i].y * l.y;
                    sum += low[i].z * l.z;
                    sum += low[i].w * l.w;
                    c[i * TN + j] += sum * scale;
                }
            }
        }
        a_at += VECTOR * A_BYTES;
        b_at += VECTOR_BYTES;
    }

    finish(m, n, col0);
}
