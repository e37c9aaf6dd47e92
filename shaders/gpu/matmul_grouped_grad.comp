// The gradient of the matrices of experts: dw[e] = Σ over the pairs of e of dy[pair]ᵀ · x[pair]. A
// workgroup computes BM rows and BN columns of one expert's matrix. Pairs are added in their order;
// an expert without pairs gets 0.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/rows.glsl"
#include "params/grouped.h"

layout(constant_id = 0) const uint THREADS = 64;
layout(local_size_x_id = 0) in;
layout(constant_id = 1) const uint BM = 32;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 16;
layout(constant_id = 4) const uint TM = 4;
layout(constant_id = 5) const uint TN = 8;
layout(constant_id = 6) const uint DY_DTYPE = TSR_DT_F32;
layout(constant_id = 7) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 8) const uint DW_DTYPE = TSR_DT_F32;

layout(push_constant, std430) uniform tsr_push
{
    tsr_grouped_grad_push p;
};

const uint PAD = 4;
shared float dy_tile[BK * (BM + PAD)];
shared float x_tile[BK * (BN + PAD)];
shared uint pairs[BK];
float sums[TM * TN];

const uint ACROSS = BN / TN;
const uint DOWN = BM / TM;
const uint RUN_M = TM < 4 ? TM : 4;
const uint RUN_N = TN < 4 ? TN : 4;

uint row_of(uint i, uint y)
{
    return i / RUN_M * (DOWN * RUN_M) + y * RUN_M + i % RUN_M;
}

uint col_of(uint j, uint x)
{
    return j / RUN_N * (ACROSS * RUN_N) + x * RUN_N + j % RUN_N;
}

void multiply_one(uint x, uint y, uint k)
{
    float a[TM], b[TN];
    [[unroll]] for (uint i = 0; i < TM; i++)
        a[i] = dy_tile[k * (BM + PAD) + row_of(i, y)];
    [[unroll]] for (uint j = 0; j < TN; j++)
        b[j] = x_tile[k * (BN + PAD) + col_of(j, x)];
    [[unroll]] for (uint i = 0; i < TM; i++)
        [[unroll]] for (uint j = 0; j < TN; j++)
            sums[i * TN + j] = fma(a[i], b[j], sums[i * TN + j]);
}

void main()
{
    uint across = (p.columns + BN - 1) / BN;
    uint group = tsr_flat_group();
    uint tile = p.first_tile + group / across / p.experts, expert = group / across % p.experts;
    if (tile >= p.last_tile)
        return;
    uint row0 = tile * BM, col0 = group % across * BN;
    uint begin = tsr_words(p.offsets).v[expert], end = tsr_words(p.offsets).v[expert + 1];
    uint x = gl_LocalInvocationIndex % ACROSS, y = gl_LocalInvocationIndex / ACROSS;
    [[unroll]] for (uint i = 0; i < TM * TN; i++)
        sums[i] = 0.0;
    for (uint at = begin; at < end; at += BK) {
        for (uint i = gl_LocalInvocationIndex; i < BK; i += THREADS)
            pairs[i] = tsr_words(p.order).v[min(at + i, end - 1)];
        barrier();
        [[unroll]] for (uint i = 0; i < BM * BK / THREADS; i++) {
            uint e = i * THREADS + gl_LocalInvocationIndex, line = e % BM, k = e / BM;
            uvec2 from = tsr_at_mul(p.dy, pairs[k] / p.dy_divide, p.dy_stride * tsr_dtype_bytes(DY_DTYPE));
            float value = tsr_load_float(from, min(row0 + line, p.rows - 1), DY_DTYPE);
            dy_tile[k * (BM + PAD) + line] = mix(0.0, value, at + k < end);
        }
        [[unroll]] for (uint i = 0; i < BN * BK / THREADS; i++) {
            uint e = i * THREADS + gl_LocalInvocationIndex, line = e % BN, k = e / BN;
            uvec2 from = tsr_at_mul(p.x, pairs[k] / p.x_divide, p.x_stride * tsr_dtype_bytes(X_DTYPE));
            float value = tsr_load_float(from, min(col0 + line, p.columns - 1), X_DTYPE);
            x_tile[k * (BN + PAD) + line] = mix(0.0, value, at + k < end);
        }
        barrier();
        for (uint k4 = 0; k4 < BK; k4 += 4)
            [[unroll]] for (uint k1 = 0; k1 < 4; k1++)
                multiply_one(x, y, k4 + k1);
    }
    uvec2 dw = tsr_at_stride(p.dw, expert, p.dw_expert);
    [[unroll]] for (uint i = 0; i < TM; i++) {
        uint row = row0 + row_of(i, y);
        if (row >= p.rows)
            continue;
        uvec2 to = tsr_at_stride(dw, row, p.dw_row);
        [[unroll]] for (uint j = 0; j < TN; j++) {
            uint col = col0 + col_of(j, x);
            if (col < p.columns) {
                float value = sums[i * TN + j];
                if ((p.flags & TSR_GROUPED_ACCUMULATE) != 0)
                    value += tsr_load_float(to, col, DW_DTYPE);
                tsr_store_float(to, col, DW_DTYPE, value);
            }
        }
    }
}
