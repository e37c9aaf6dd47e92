// y[m,n] = a[m,k] · b[n,k]ᵀ for a few rows, on lavapipe; b is in blocks of q8_0 or q4_0, which are read once, as they are. A subgroup
// computes a tile of TN columns over one range of k. If k is divided into several ranges, the subgroups of a workgroup compute all ranges
// of the same tile, otherwise neighbouring tiles. docs/design/cpu_drivers.md explains the form of the code: it has no loops after
// specialization, and no branches before the sums are complete.
//
// A step multiplies a block. Each lane gets one byte of every LANES bytes, which the processor widens as it loads them, and a is read in
// its own order. The columns are computed one after the other, so that b is one sequential stream; their number is small, so that the code
// stays in the processor's cache.
#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_8bit_storage : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "cpu_drivers/quant_rows.glsl"

layout(buffer_reference, std430, buffer_reference_align = 1) volatile buffer Byte4 {
    i8vec4 v;
};

const bool NIBBLES = FORMAT == TSR_QUANT_ROWS_Q4_0;
const uint BLOCK_BYTES = NIBBLES ? 18 : 34;
const uint VECTORS = 32 / LANES;                          // vectors in a block of a
const uint BYTE_VECTORS = NIBBLES ? VECTORS / 2 : VECTORS; // vectors of bytes in a block of b

float load_a(uint64_t line, uint vector)
{
    const uint quarter = 4 * A_BYTES;
    line += vector * (LANES * A_BYTES);
    uint64_t at0 = 0, at4 = quarter, at8 = 2 * quarter, at12 = 3 * quarter;
    LOAD_LANES(A_DTYPE, LANES)
}

int load_bytes(uint64_t block, uint vector)
{
    uint64_t line = block + 2 + vector * LANES;
    uint64_t at0 = 0, at4 = 4, at8 = 8, at12 = 12;
    TAKE_LANES(int8_t, i8vec4, Byte4, LANES)
    return int(value);
}

void main()
{
    const uint m = (p.m_n >> 28) + 1, n = p.m_n & 0xfffffffu;
    bool own;
    uint col0 = lavapipe_tile(gl_WorkGroupID.x, TILES, (n + TN - 1) / TN, own) * TN;
    uint split = SPLITS > 1 ? uniform_index(gl_SubgroupID) : 0;
    uint64_t b = find_matrix(), b_line[TN], a_line[ROWS];
    [[unroll]] for (uint j = 0; j < TN; j++)
        b_line[j] = b + uint64_t(min(col0 + j, n - 1)) * p.b_stride + split * (STEPS * BLOCK_BYTES);
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        a_line[i] = p.a + (uint64_t(tile * ROWS + min(i, m - 1)) * p.a_row + split * (STEPS * 32)) * A_BYTES;
    [[unroll]] for (uint e = 0; e < SUMS; e++)
        c[e] = 0.0;

    [[unroll]] for (uint j = 0; j < TN; j++) {
        uint64_t at = 0, b_at = 0;
        [[unroll]] for (uint step = 0; step < STEPS; step++) {
            uint64_t block = b_line[j] + b_at;
            float numbers[VECTORS];
            [[unroll]] for (uint v = 0; v < BYTE_VECTORS; v++) {
                int bytes = load_bytes(block, v);
                if (NIBBLES) {
                    // Inverting the upper bit of a nibble subtracts 8 if it is then read as signed.
                    bytes ^= ~0x77;
                    numbers[v] = float(bytes << 28 >> 28);
                    numbers[BYTE_VECTORS + v] = float(bytes >> 4);
                } else {
                    numbers[v] = float(bytes);
                }
            }
            float scale = unpackHalf2x16(uint(Word16(block).v)).x;
            [[unroll]] for (uint i = 0; i < ROWS; i++) {
                float sum = load_a(a_line[i] + at, 0) * numbers[0];
                [[unroll]] for (uint v = 1; v < VECTORS; v++)
                    sum += load_a(a_line[i] + at, v) * numbers[v];
                c[i * TN + j] += sum * scale;
            }
            at += 32 * A_BYTES;
            b_at += BLOCK_BYTES;
        }
    }

    finish(m, n, col0, own);
}
