// Grouped product: y[pair] = x[row of pair] · w[expert]ᵀ + bias[expert], for pairs that are sorted
// by expert. A workgroup computes BM rows and BN columns of one expert from tiles in shared memory,
// BK products at a time; an invocation keeps TM × TN sums in registers, and loads its part of the
// next tiles while it multiplies. With GATED, half of the columns of a tile are those of w and half
// are the same ones of `up`, and the result is act(x · wᵀ + bias) · (x · upᵀ + up_bias). The tiles of rows of expert e are numbered from
// offsets[e] / BM + e on, so that a workgroup finds its expert by a binary search, and the host
// need not know how many rows an expert has. Experts without rows are not read.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "include/gated.glsl"
#include "include/grouped.glsl"

layout(constant_id = 5) const uint THREADS = 64;
layout(local_size_x_id = 5) in;
layout(constant_id = 6) const uint BM = 32;
layout(constant_id = 7) const uint BN = 64;
layout(constant_id = 8) const uint BK = 16;
layout(constant_id = 9) const uint TM = 4;
layout(constant_id = 10) const uint TN = 8;
layout(constant_id = 11) const uint X_DTYPE = TSR_DT_F32;
layout(constant_id = 12) const uint W_DTYPE = TSR_DT_F32;
layout(constant_id = 13) const uint Y_DTYPE = TSR_DT_F32;
layout(constant_id = 14) const uint BIAS_DTYPE = TSR_DT_F32;
layout(constant_id = 15) const uint X_LOAD = TSR_GROUPED_SCALAR;
layout(constant_id = 16) const uint W_LOAD = TSR_GROUPED_SCALAR;
layout(constant_id = 17) const uint ACCUMULATE = 0;
layout(constant_id = 18) const uint GATED = 0; // TN is then 8
layout(constant_id = 19) const uint ACTIVATION = TSR_EXPERT_ACT_SILU;

layout(push_constant, std430) uniform tsr_push
{
    tsr_grouped_push p;
};

const uint PAD = 4;
const uint OWN = GATED != 0 ? BN / 2 : BN; // columns of y in a tile
const uint X_LOADS = BM * BK / 4 / THREADS;
const uint W_LOADS = BN * BK / 4 / THREADS;
shared float x_tile[BK * (BM + PAD)];
shared float w_tile[BK * (BN + PAD)];
shared uint pairs[BM];

uvec2 x_at[X_LOADS], w_at[W_LOADS];
vec4 x_held[X_LOADS], w_held[W_LOADS];
float sums[TM * TN];

// The arrangement of rows and columns over invocations; see matmul_tiled.glsl.
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

uint offset_of(uint expert)
{
    return tsr_words(p.offsets).v[expert];
}

// The line and the k of the first of the four elements that an invocation loads together.
uvec2 x_place(uint i)
{
    uint e = i * THREADS + gl_LocalInvocationIndex;
    return uvec2(e / (BK / 4), e % (BK / 4) * 4);
}

uvec2 w_place(uint i)
{
    uint e = i * THREADS + gl_LocalInvocationIndex;
    return W_LOAD == TSR_GROUPED_VEC_LINE ? uvec2(e % (BN / 4) * 4, e / (BN / 4))
                                          : uvec2(e / (BK / 4), e % (BK / 4) * 4);
}

void load(uint k)
{
    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        x_held[i] = grouped_row4(x_at[i], k + x_place(i).y, p.k, X_DTYPE, X_LOAD == TSR_GROUPED_VEC_K);
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        uint at = k + w_place(i).y;
        if (W_LOAD == TSR_GROUPED_BLOCKS) {
            w_held[i] = grouped_blocks4(w_at[i], at, p.k);
        } else if (W_LOAD == TSR_GROUPED_VEC_K) {
            w_held[i] = grouped_row4(w_at[i], at, p.k, W_DTYPE, true);
        } else if (W_LOAD == TSR_GROUPED_VEC_LINE) {
            vec4 value = tsr_load_aligned4(tsr_at_stride(w_at[i], min(at, p.k - 1), p.w_k), W_DTYPE);
            w_held[i] = mix(vec4(0.0), value, bvec4(at < p.k));
        } else {
            [[unroll]] for (uint c = 0; c < 4; c++) {
                uvec2 from = tsr_at_stride(w_at[i], min(at + c, p.k - 1), p.w_k);
                w_held[i][c] = mix(0.0, tsr_load_float(from, 0, W_DTYPE), at + c < p.k);
            }
        }
    }
}

void keep()
{
    [[unroll]] for (uint i = 0; i < X_LOADS; i++) {
        uvec2 place = x_place(i);
        [[unroll]] for (uint c = 0; c < 4; c++)
            x_tile[(place.y + c) * (BM + PAD) + place.x] = x_held[i][c];
    }
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        uvec2 place = w_place(i);
        [[unroll]] for (uint c = 0; c < 4; c++) {
            uint line = W_LOAD == TSR_GROUPED_VEC_LINE ? place.x + c : place.x;
            uint k = W_LOAD == TSR_GROUPED_VEC_LINE ? place.y : place.y + c;
            w_tile[k * (BN + PAD) + line] = w_held[i][c];
        }
    }
}

void multiply_one(uint x, uint y, uint k)
{
    float a[TM], b[TN];
    [[unroll]] for (uint i = 0; i < TM; i++)
        a[i] = x_tile[k * (BM + PAD) + row_of(i, y)];
    [[unroll]] for (uint j = 0; j < TN; j++)
        b[j] = w_tile[k * (BN + PAD) + col_of(j, x)];
    [[unroll]] for (uint i = 0; i < TM; i++)
        [[unroll]] for (uint j = 0; j < TN; j++)
            sums[i * TN + j] = fma(a[i], b[j], sums[i * TN + j]);
}

void multiply(uint x, uint y)
{
    for (uint k4 = 0; k4 < BK; k4 += 4)
        [[unroll]] for (uint k1 = 0; k1 < 4; k1++)
            multiply_one(x, y, k4 + k1);
}

float bias_of(uvec2 bias, uint expert, uint col)
{
    if ((bias.x | bias.y) == 0)
        return 0.0;
    return tsr_load_float(tsr_at_mul(bias, expert * p.bias_stride, tsr_dtype_bytes(BIAS_DTYPE)), col, BIAS_DTYPE);
}

void store(uint rows, uint col0, uint expert, uint x, uint y)
{
    [[unroll]] for (uint i = 0; i < TM; i++) {
        uint row = row_of(i, y);
        if (row >= rows)
            continue;
        uvec2 to = tsr_at_mul(p.y, pairs[row], p.y_stride * tsr_dtype_bytes(Y_DTYPE));
        // An invocation has the columns of `up` in the second half of its own.
        [[unroll]] for (uint j = 0; j < (GATED != 0 ? TN / 2 : TN); j++) {
            uint col = col0 + col_of(j, x);
            if (col < p.n) {
                precise float value = sums[i * TN + j];
                if (ACCUMULATE != 0)
                    value += tsr_load_float(to, col, Y_DTYPE);
                value += bias_of(p.bias, expert, col);
                if (GATED != 0)
                    value = tsr_gated(value, sums[i * TN + j + TN / 2] + bias_of(p.up_bias, expert, col), p.limit, ACTIVATION);
                tsr_store_float(to, col, Y_DTYPE, value);
            }
        }
    }
}

void main()
{
    uint across = (p.n + OWN - 1) / OWN;
    uint slot = p.first_slot + tsr_flat_group() / across, col0 = tsr_flat_group() % across * OWN;
    if (slot >= p.slots)
        return;
    // The last expert whose tiles start at `slot` or before it.
    uint expert = 0, past = p.experts;
    while (past - expert > 1) {
        uint middle = (expert + past) / 2;
        if (offset_of(middle) / BM + middle <= slot)
            expert = middle;
        else
            past = middle;
    }
    uint begin = offset_of(expert), end = offset_of(expert + 1);
    uint first = begin + (slot - begin / BM - expert) * BM;
    if (first >= end)
        return;
    uint rows = min(end - first, BM);
    for (uint i = gl_LocalInvocationIndex; i < BM; i += THREADS)
        pairs[i] = tsr_words(p.order).v[first + min(i, rows - 1)];
    barrier();

    [[unroll]] for (uint i = 0; i < X_LOADS; i++)
        x_at[i] = tsr_at_mul(p.x, pairs[x_place(i).x] / p.x_divide, p.x_stride * tsr_dtype_bytes(X_DTYPE));
    uvec2 w = tsr_at_stride(p.w, expert, p.w_expert), up = tsr_at_stride(p.up, expert, p.w_expert);
    // Columns past the edge repeat the last ones, and their sums are not stored.
    [[unroll]] for (uint i = 0; i < W_LOADS; i++) {
        uint line = w_place(i).x;
        w_at[i] = tsr_at_stride(line < OWN ? w : up,
            min(col0 + line % OWN, p.n - (W_LOAD == TSR_GROUPED_VEC_LINE ? 4 : 1)), p.w_line);
    }

    uint x = gl_LocalInvocationIndex % ACROSS, y = gl_LocalInvocationIndex / ACROSS;
    [[unroll]] for (uint i = 0; i < TM * TN; i++)
        sums[i] = 0.0;
    if (p.k > 0)
        load(0);
    for (uint k = 0; k < p.k; k += BK) {
        barrier();
        keep();
        barrier();
        if (k + BK < p.k)
            load(k + BK);
        if (row_of(0, y) < rows) // otherwise none of the invocation's sums is stored
            multiply(x, y);
    }
    store(rows, col0, expert, x, y);
}
