// y[m,n] = a[m,k] · b[n,k]ᵀ for a few rows, on lavapipe; b is in blocks of mxfp4, which are read once, as they are. A subgroup computes TN
// columns over one range of k, and the subgroups of a workgroup compute all ranges. docs/design/cpu_drivers.md explains the form of the
// code: it has no loops after specialization, and no branches before the sums are complete.
//
// A step multiplies a vector of one word, with 8 elements, per lane.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "cpu_drivers/quant_rows.glsl"
#include "cpu_drivers/quant_words.glsl"

// Each lane gets the four elements of a that belong to the lower or upper halves of its word's bytes.
vec4 load_a(uint64_t line, uint upper)
{
    vec4 value = vec4(0.0);
    [[unroll]] for (uint e = 0; e < LANES; e++) {
        uint element = e / 4 * 32 + e % 4 * 4 + upper * 16;
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
    uint split = SPLITS > 1 ? uniform_index(gl_SubgroupID) : 0;
    uint64_t b = find_matrix(), b_line[TN], a_line[ROWS];
    [[unroll]] for (uint j = 0; j < TN; j++)
        b_line[j] = b + uint64_t(min(col0 + j, n - 1)) * p.b_stride + split * (STEPS * VECTOR_BYTES);
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        a_line[i] = p.a + (uint64_t(tile * ROWS + min(i, m - 1)) * p.a_row + split * (STEPS * VECTOR)) * A_BYTES;
    [[unroll]] for (uint e = 0; e < SUMS; e++)
        c[e] = 0.0;

    uint64_t a_at = 0, b_at = 0;
    [[unroll]] for (uint step = 0; step < STEPS; step++) {
        vec4 low[ROWS], high[ROWS];
        [[unroll]] for (uint i = 0; i < ROWS; i++) {
            low[i] = load_a(a_line[i] + a_at, 0) * (1.0 / MXFP4_UNIT);
            high[i] = load_a(a_line[i] + a_at, 1) * (1.0 / MXFP4_UNIT);
        }
        [[unroll]] for (uint j = 0; j < TN; j++) {
            uint words = load_words(b_line[j] + b_at);
            float scale = load_scales(b_line[j] + b_at);
            vec4 l = numbers_of_mxfp4(words), h = numbers_of_mxfp4(words >> 4);
            [[unroll]] for (uint i = 0; i < ROWS; i++) {
                float sum = low[i].x * l.x;
                sum += low[i].y * l.y;
                sum += low[i].z * l.z;
                sum += low[i].w * l.w;
                sum += high[i].x * h.x;
                sum += high[i].y * h.y;
                sum += high[i].z * h.z;
                sum += high[i].w * h.w;
                c[i * TN + j] += sum * scale;
            }
        }
        a_at += VECTOR * A_BYTES;
        b_at += VECTOR_BYTES;
    }

    finish(m, n, col0, true);
}
