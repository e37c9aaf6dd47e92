// y[m,n] = a[m,k] · b[n,k]ᵀ for a few rows, on lavapipe; b is f16 or bf16. Works like matmul_quant_bytes.comp, with steps of 32 elements
// instead of blocks: a subgroup reads one column of b after the other, so that b is one sequential stream.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "cpu_drivers/lavapipe_extensions.glsl"
#include "cpu_drivers/quant_rows.glsl"

const uint STEP = TSR_FLOAT_ROWS_STEP;
const uint VECTORS = STEP / LANES; // of a step
const uint AHEAD = STEPS / 2, LINES = 4;
const uint B_DTYPE = FORMAT == TSR_QUANT_ROWS_F16 ? TSR_DT_F16 : TSR_DT_BF16;

void main()
{
    const uint m = (p.m_n >> 28) + 1, n = p.m_n & 0xfffffffu;
    bool own;
    uint col0 = lavapipe_tile(gl_WorkGroupID.x, TILES, (n + TN - 1) / TN, own) * TN;
    uint part = PARTS > 1 ? uniform_index(gl_SubgroupID) : 0;
    uint64_t b_line[TN], a_line[ROWS];
    [[unroll]] for (uint j = 0; j < TN; j++)
        b_line[j] = p.b + uint64_t(min(col0 + j, n - 1)) * p.b_stride + part * (STEPS * STEP * 2);
    [[unroll]] for (uint i = 0; i < ROWS; i++)
        a_line[i] = p.a + (uint64_t(min(i, m - 1)) * p.a_row + part * (STEPS * STEP)) * A_BYTES;
    [[unroll]] for (uint e = 0; e < SUMS; e++)
        c[e] = 0.0;

    // The processor prefetches only within a page, and a column is often one. Reading the first lines of
    // the next column early lets it begin there in time.
    uint64_t next = p.b + uint64_t(min(col0 + TN, n - 1)) * p.b_stride + part * (STEPS * STEP * 2);
    uint touched = 0;

    [[unroll]] for (uint j = 0; j < TN; j++) {
        uint64_t at = 0, b_at = 0;
        [[unroll]] for (uint step = 0; step < STEPS; step++) {
            float numbers[VECTORS];
            [[unroll]] for (uint v = 0; v < VECTORS; v++)
                numbers[v] = load_lanes(b_line[j] + b_at, v * LANES * 2, B_DTYPE, LANES);
            [[unroll]] for (uint i = 0; i < ROWS; i++) {
                float sum = load_lanes(a_line[i] + at, 0, A_DTYPE, LANES) * numbers[0];
                [[unroll]] for (uint v = 1; v < VECTORS; v++)
                    sum += load_lanes(a_line[i] + at, v * LANES * A_BYTES, A_DTYPE, LANES) * numbers[v];
                c[i * TN + j] += sum;
            }
            if (j == TN - 1 && step >= AHEAD && step - AHEAD < LINES)
                touched |= touch(next + (step - AHEAD) * 64, 64);
            at += STEP * A_BYTES;
            b_at += STEP * 2;
        }
    }

    c[0] = after(c[0], touched);
    finish(m, n, col0, own);
}
