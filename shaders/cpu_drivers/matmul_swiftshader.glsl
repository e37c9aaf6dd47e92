// y[m,n] = op(a) · op(b) for SwiftShader: subgroups of 4, no 64-bit integers, 16 SIMD registers.
//
// On SwiftShader, a load by address costs one branch and one scalar load per lane, with any pattern
// of addresses. A product whose sum is on the stack costs four instructions. Each iteration of a
// loop costs twelve for every live sum, which is merged with its old value under the mask of lanes.
// Therefore the lanes have different rows of a and different columns of b, and an iteration covers
// four k. The tile is so small that an iteration's code stays in the first-level cache; otherwise
// half the speed is lost. A workgroup is one subgroup.
//
// Lane t multiplies its columns with its own rows and with those of lanes t^1, t^2 and t^3, because
// a swap within a subgroup of four costs one instruction, and a broadcast costs twenty. The vector
// of b is the first factor of a product: SwiftShader copies the first factor, which is then in a
// register.
//
// SwiftShader does not unroll loops and keeps indexed arrays in memory. spirv-opt must therefore
// unroll (-O), and the tile's size cannot be a specialization constant: the including file defines
// TM, its rows, and TN, its vectors of columns.
#include "include/matmul_common.glsl"

#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_quad : require

const int LANES = 4;
const int AV = TM / LANES;
layout(local_size_x = 4) in;
layout(constant_id = 0) const uint A_DTYPE = TSR_DT_F32;
layout(constant_id = 1) const uint B_DTYPE = TSR_DT_F32;
layout(constant_id = 2) const uint A_LOAD = TSR_MM_LOAD_SCALAR;
layout(constant_id = 3) const uint B_LOAD = TSR_MM_LOAD_SCALAR;
// 1: p.bias is the address of a table, from which each matrix of a gets the number of its matrix of b.
layout(constant_id = 4) const uint GROUPED = 0;

// The step of the loop counter for four k: 1 if both operands are loaded as vectors of four k,
// which saves divisions, because SwiftShader divides lane by lane; otherwise 4.
const uint FOUR_COUNTS = A_LOAD == TSR_MM_LOAD_VEC_K && B_LOAD == TSR_MM_LOAD_VEC_K ? 1 : 4;

#include "cpu_drivers/swiftshader_float16.glsl"

#define LINES(x) a_##x
#define VECTORS AV
#define DTYPE A_DTYPE
#define LOAD A_LOAD
#define LINE_STRIDE p.a_row
#define K_STRIDE p.a_k
#include "cpu_drivers/matmul_swiftshader_lines.glsl"
#undef LINES
#undef VECTORS
#undef DTYPE
#undef LOAD
#undef LINE_STRIDE
#undef K_STRIDE

#define LINES(x) b_##x
#define VECTORS TN
#define DTYPE B_DTYPE
#define LOAD B_LOAD
#define LINE_STRIDE p.b_col
#define K_STRIDE p.b_k
#include "cpu_drivers/matmul_swiftshader_lines.glsl"

// c += a[:,k] · b[k,:]. Element (i · LANES + swap) · TN + j of c is the sum for vector i of a and
// vector j of b, where the rows of a are those of lane t ^ swap.
void add_products(inout float c[TM * TN], float a[AV], float b[TN])
{
    [[unroll]] for (int i = 0; i < AV; i++) {
        float swapped[LANES] = float[LANES](a[i], subgroupQuadSwapHorizontal(a[i]),
                                           subgroupQuadSwapVertical(a[i]), subgroupQuadSwapDiagonal(a[i]));
        [[unroll]] for (int swap = 0; swap < LANES; swap++)
            [[unroll]] for (int j = 0; j < TN; j++)
                c[(i * LANES + swap) * TN + j] += b[j] * swapped[swap];
    }
}

void add_step(inout float c[TM * TN], a_t a, b_t b, uint k)
{
    add_products(c, a_step(a, k), b_step(b, k));
}

void add_steps(inout float c[TM * TN], a_t a, b_t b, uint count)
{
    float b_four[4 * TN] = b_steps(b, count);
    float a_four[4 * AV] = a_steps(a, count);
    [[unroll]] for (int u = 0; u < 4; u++) {
        float a_one[AV], b_one[TN];
        [[unroll]] for (int i = 0; i < AV; i++)
            a_one[i] = a_four[u * AV + i];
        [[unroll]] for (int j = 0; j < TN; j++)
            b_one[j] = b_four[u * TN + j];
        add_products(c, a_one, b_one);
    }
}

void main()
{
    uint across = (p.n + TN * LANES - 1) / (TN * LANES);
    uint down = (p.m + TM - 1) / TM;
    // The grid may have a few workgroups too many. They compute the last tile again, with the same
    // bits. An early return would make SwiftShader compute everything after it under a mask.
    uint group = min(tsr_flat_group(), across * down - 1);
    uint lane = gl_SubgroupInvocationID;
    uint row0 = group % down * TM, col0 = group / down * (TN * LANES);
    uint k_begin = mm_split() * p.k_chunk;
    uint k_count = min(p.k_chunk, p.k - k_begin);
    a_t a = a_from(mm_at(mm_a_matrix(A_DTYPE), k_begin, p.a_k, A_DTYPE), row0, p.m);
    uvec2 b_matrix = mm_b_matrix(B_DTYPE);
    if (GROUPED != 0)
        b_matrix = mm_at(p.b, tsr_words(p.bias).v[mm_inner()], p.b_inner, B_DTYPE);
    b_t b = b_from(mm_at(b_matrix, k_begin, p.b_k, B_DTYPE), col0, p.n);

    float c[TM * TN];
    [[unroll]] for (int e = 0; e < TM * TN; e++)
        c[e] = 0.0;
    uint k = 0;
    if (A_LOAD != TSR_MM_LOAD_SCALAR || B_LOAD != TSR_MM_LOAD_SCALAR) {
        uint counts = FOUR_COUNTS == 1 ? k_count / 4 : k_count;
        for (; k + FOUR_COUNTS <= counts; k += FOUR_COUNTS)
            add_steps(c, a, b, k);
    } else {
        for (; k + 2 <= k_count; k += 2)
            [[unroll]] for (uint u = 0; u < 2; u++)
                add_step(c, a, b, k + u);
    }
    // If one of the operands is loaded as vectors of four k, k_count is a multiple of 4, and no k
    // is left.
    if (A_LOAD != TSR_MM_LOAD_VEC_K && B_LOAD != TSR_MM_LOAD_VEC_K)
        for (; k < k_count; k++)
            add_step(c, a, b, k);

    // The sums are stored as f32, and matmul_sum.comp applies the epilogue. An epilogue here would
    // be compiled once for every sum.
    mm_block block = mm_block_at(row0, col0);
    tsr_floats y = tsr_floats(block.y);
    // This loop is not unrolled, which halves the time to compile. The indexed array is a copy
    // because SwiftShader keeps indexed arrays in memory.
    float sums[TM * TN] = c;
    for (uint i = 0; i < TM; i++)
        [[unroll]] for (uint j = 0; j < TN; j++) {
            uint row = a_line(i / LANES, lane ^ (i % LANES)), col = b_line(j, lane);
            if (row0 + row < p.m && col0 + col < p.n)
                y.v[row * p.y_row + col * p.y_col] = sums[i * TN + j];
        }
}
