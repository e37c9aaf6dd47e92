// y[m,n] = op(a) · op(b) for SwiftShader: subgroups of 4, no 64-bit integers, 16 SIMD registers.
//
// There a load by address costs one branch and one scalar load per lane, whatever the pattern, and a broadcast almost as much; a
// product with its operands on the stack costs four instructions. So the tile is large, the lanes hold different rows of a or columns
// of b, any strides are equally good, and edges are clamped lane by lane. A workgroup is one subgroup.
//
// SwiftShader unrolls nothing and keeps indexed arrays in memory, so this has to be unrolled by spirv-opt (-O), and the tile's
// height TM cannot be a specialization constant: it is defined by who includes this.
#include "matmul_common.glsl"

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_ballot : require

const int LANES = 4;
const int TN = 8; // vectors of LANES columns
const int AV = TM / LANES;
const uint UNROLL = 2; // each trip round the loop copies all sums once more; four overflow the code cache
layout(local_size_x = 4) in;
layout(constant_id = 0) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 1) const uint B_DTYPE = TSR_DT_F32;

// One product: c += a[:,k] · b[k,:]. References stay as they are and only the index moves: making one takes 70 instructions.
void accumulate_k(inout float c[TM * TN], uvec2 a[AV], tsr_floats a_line[AV], uvec2 b[TN],
                  tsr_floats b_line[TN], uint a_index, uint b_index)
{
    float vb[TN];
    [[unroll]] for (int j = 0; j < TN; j++)
        if (B_DTYPE == TSR_DT_F32)
            vb[j] = b_line[j].v[b_index];
        else
            vb[j] = tsr_load_float(b[j], b_index, B_DTYPE);
    [[unroll]] for (int i = 0; i < AV; i++) {
        float va;
        if (A_DTYPE == TSR_DT_F32)
            va = a_line[i].v[a_index];
        else
            va = tsr_load_float(a[i], a_index, A_DTYPE);
        [[unroll]] for (int l = 0; l < LANES; l++) {
            float w = subgroupBroadcast(va, l);
            [[unroll]] for (int j = 0; j < TN; j++)
                c[(i * LANES + l) * TN + j] += w * vb[j];
        }
    }
}

void main()
{
    uint across = (p.n + TN * LANES - 1) / (TN * LANES);
    uint down = (p.m + TM - 1) / TM;
    // The grid may have a few workgroups too many. They repeat the last tile, bit for bit: an early return here would have
    // everything after it computed under a mask.
    uint group = min(tsr_flat_group(), across * down - 1);
    uint lane = gl_SubgroupInvocationID;
    uint row0 = group % down * TM, col0 = group / down * (TN * LANES);
    uint k_begin = mm_split() * p.k_chunk;
    uint k_count = min(p.k_chunk, p.k - k_begin);

    uvec2 a_base = mm_at(mm_a_matrix(A_DTYPE), k_begin, p.a_k, A_DTYPE);
    uvec2 b_base = mm_at(mm_b_matrix(B_DTYPE), k_begin, p.b_k, B_DTYPE);
    uvec2 a[AV], b[TN];
    tsr_floats a_line[AV], b_line[TN];
    [[unroll]] for (int i = 0; i < AV; i++) {
        a[i] = mm_at(a_base, min(row0 + i * LANES + lane, p.m - 1), p.a_row, A_DTYPE);
        a_line[i] = tsr_floats(a[i]);
    }
    [[unroll]] for (int j = 0; j < TN; j++) {
        b[j] = mm_at(b_base, min(col0 + j * LANES + lane, p.n - 1), p.b_col, B_DTYPE);
        b_line[j] = tsr_floats(b[j]);
    }

    float c[TM * TN];
    [[unroll]] for (int e = 0; e < TM * TN; e++)
        c[e] = 0.0;
    uint k = 0;
    for (; k + UNROLL <= k_count; k += UNROLL)
        [[unroll]] for (uint u = 0; u < UNROLL; u++)
            accumulate_k(c, a, a_line, b, b_line, (k + u) * p.a_k, (k + u) * p.b_k);
    for (; k < k_count; k++)
        accumulate_k(c, a, a_line, b, b_line, k * p.a_k, k * p.b_k);

    // Only plain f32: an epilogue here would be instantiated for every sum. The host has matmul_sum.comp do it.
    mm_block block = mm_block_at(row0, col0);
    tsr_floats y = tsr_floats(block.y);
    [[unroll]] for (int i = 0; i < TM; i++)
        [[unroll]] for (int j = 0; j < TN; j++)
            if (row0 + i < p.m && col0 + j * LANES + lane < p.n)
                y.v[i * p.y_row + (j * LANES + lane) * p.y_col] = c[i * TN + j];
}
