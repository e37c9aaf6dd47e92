// Matrix product of 16-bit floats by the cooperative matrices of VK_NV_cooperative_matrix2, with
// sums in f32. The invocations of a workgroup share one matrix of BM × BN sums. Each step adds BK
// products to every sum. The driver moves a and b through shared memory and registers, and
// divides the matrices among the subgroups.
//
// The including file defines ELEMENT, the type of an element, and DTYPE. Rows of a and columns of b
// are called lines. Either the elements of a line are contiguous, or the elements of all lines at one
// k are. The matrices start at multiples of 16 bytes, and so does every line or, in the second case,
// every k.
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#include "params/matmul.h"

layout(constant_id = 7) const uint MODE = TSR_DT_F32 << TSR_MM_Y_DTYPE_SHIFT;
#define MM_MODE MODE
#include "include/matmul_common.glsl"
layout(constant_id = 9) const uint BAND = 8;
#include "include/matmul_tile.glsl"

layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint BM = 64;
layout(constant_id = 2) const uint BN = 64;
layout(constant_id = 3) const uint BK = 32;
layout(constant_id = 4) const uint STEPS = 1; // the number of steps that the main loop unrolls
layout(constant_id = 5) const uint A_LOAD = TSR_MM_LOAD_VEC8_K; // or TSR_MM_LOAD_VEC8_LINE
layout(constant_id = 6) const uint B_LOAD = TSR_MM_LOAD_VEC8_K;
// 1: the elements of a row of y are contiguous, and each row starts at a multiple of 16 bytes.
layout(constant_id = 8) const uint Y_ALIGNED = 0;

const bool Y_F32 = ((MODE >> TSR_MM_Y_DTYPE_SHIFT) & TSR_MM_FIELD_MASK) == TSR_DT_F32;
const bool A_BY_LINE = A_LOAD == TSR_MM_LOAD_VEC8_LINE;
const bool B_BY_LINE = B_LOAD == TSR_MM_LOAD_VEC8_LINE;

layout(buffer_reference, std430, buffer_reference_align = 16) buffer mm_elements {
    ELEMENT v[];
};

layout(buffer_reference, std430, buffer_reference_align = 16) buffer mm_sums {
    float v[];
};

#define MATRIX_A coopmat<ELEMENT, gl_ScopeWorkgroup, BM, BK, gl_MatrixUseA>
#define MATRIX_B coopmat<ELEMENT, gl_ScopeWorkgroup, BK, BN, gl_MatrixUseB>
#define SUMS coopmat<float, gl_ScopeWorkgroup, BM, BN, gl_MatrixUseAccumulator>
#define RESULTS coopmat<ELEMENT, gl_ScopeWorkgroup, BM, BN, gl_MatrixUseAccumulator>
#define CLAMPED gl_CooperativeMatrixClampModeConstantNV

// Adds the products of BK values of k, from `k` on. The layouts describe the operands for all
// values of k.
#define ADD_STEP(a_layout, b_layout, k)                                                            \
    {                                                                                              \
        MATRIX_A step_a;                                                                           \
        MATRIX_B step_b;                                                                           \
        if (A_BY_LINE)                                                                             \
            coopMatLoadTensorNV(step_a, a.v, 0, sliceTensorLayoutNV(a_layout, k, BK, 0, BM), swapped); \
        else                                                                                       \
            coopMatLoadTensorNV(step_a, a.v, 0, sliceTensorLayoutNV(a_layout, 0, BM, k, BK));      \
        if (B_BY_LINE)                                                                             \
            coopMatLoadTensorNV(step_b, b.v, 0, sliceTensorLayoutNV(b_layout, k, BK, 0, BN));      \
        else                                                                                       \
            coopMatLoadTensorNV(step_b, b.v, 0, sliceTensorLayoutNV(b_layout, 0, BN, k, BK), swapped); \
        sums = coopMatMulAdd(step_a, step_b, sums);                                                \
    }

// Returns the element of y whose sum of products is given. `y` and `bias` are addresses of the tile,
// from which `rows` rows and `cols` columns are left. The matrix of sums may be larger: its other
// elements have no place in y and bias.
float value_of(const in uint row, const in uint col, const in float sum, const in uint64_t y, const in uint64_t bias, const in uint rows, const in uint cols)
{
    if (row >= rows || col >= cols)
        return 0.0;
    mm_block block = mm_block(unpackUint2x32(y), unpackUint2x32(bias));
    return mm_value(block, row * p.y_row + col * p.y_col, row * p.bias_row + col * p.bias_col, sum);
}

// Stores an element of y, which may have any strides.
float store_one(const in uint row, const in uint col, const in float value, const in uint64_t y, const in uint rows, const in uint cols)
{
    if (row < rows && col < cols)
        tsr_store_float(unpackUint2x32(y), row * p.y_row + col * p.y_col, mm_y_dtype(), value);
    return value;
}

void main()
{
    uint group = tsr_flat_group();
    if (group >= mm_tiles(BM, BN))
        return;
    uvec2 corner = mm_tile_at(group, BM, BN);
    uvec2 size = uvec2(p.m, p.n) - corner; // the number of rows and columns from the tile's first element to the end of y
    uint k_begin = mm_split() * p.k_chunk;
    uint k_count = min(p.k_chunk, p.k - k_begin);
    mm_elements a = mm_elements(mm_at(mm_at(mm_a_matrix(DTYPE), corner.x, p.a_row, DTYPE), k_begin, p.a_k, DTYPE));
    mm_elements b = mm_elements(mm_at(mm_at(mm_b_matrix(DTYPE), corner.y, p.b_col, DTYPE), k_begin, p.b_k, DTYPE));

    // Strides are multiples of 8. The masks tell this to the compiler.
    uint a_stride = (A_BY_LINE ? p.a_k : p.a_row) & ~7u, b_stride = (B_BY_LINE ? p.b_k : p.b_col) & ~7u;
    uvec2 a_size = A_BY_LINE ? uvec2(k_count, size.x) : uvec2(size.x, k_count);
    uvec2 b_size = B_BY_LINE ? uvec2(k_count, size.y) : uvec2(size.y, k_count);
    tensorViewNV<2, false, 1, 0> swapped = createTensorViewNV(2, false, 1, 0);
    SUMS sums = SUMS(0.0);
    uint k = 0;

    // Does all steps that are within the matrices, without checks of bounds.
    if (size.x >= BM && size.y >= BN) {
        tensorLayoutNV<2> a_layout = createTensorLayoutNV(2);
        tensorLayoutNV<2> b_layout = createTensorLayoutNV(2);
        a_layout = setTensorLayoutDimensionNV(a_layout, a_size.x, a_size.y);
        a_layout = setTensorLayoutStrideNV(a_layout, a_stride, 1);
        b_layout = setTensorLayoutDimensionNV(b_layout, b_size.x, b_size.y);
        b_layout = setTensorLayoutStrideNV(b_layout, b_stride, 1);
        uint rounds = k_count / (BK * STEPS), rest = k_count / BK % STEPS;
        for (uint i = 0; i < rounds; i++)
            [[unroll]] for (uint s = 0; s < STEPS; s++) {
                ADD_STEP(a_layout, b_layout, k)
                k += BK;
            }
        [[dont_unroll]] for (uint i = 0; i < rest; i++) {
            ADD_STEP(a_layout, b_layout, k)
            k += BK;
        }
    }
    // In the remaining steps, elements beyond the edges count as 0.
    if (k < k_count) {
        tensorLayoutNV<2, CLAMPED> a_layout = createTensorLayoutNV(2, CLAMPED);
        tensorLayoutNV<2, CLAMPED> b_layout = createTensorLayoutNV(2, CLAMPED);
        a_layout = setTensorLayoutDimensionNV(a_layout, a_size.x, a_size.y);
        a_layout = setTensorLayoutStrideNV(a_layout, a_stride, 1);
        b_layout = setTensorLayoutDimensionNV(b_layout, b_size.x, b_size.y);
        b_layout = setTensorLayoutStrideNV(b_layout, b_stride, 1);
        [[dont_unroll]] for (; k < k_count; k += BK)
            ADD_STEP(a_layout, b_layout, k)
    }

    mm_block block = mm_block_at(corner.x, corner.y);
    if ((MODE & (TSR_MM_ACCUMULATE | TSR_MM_BIAS | TSR_MM_FIELD_MASK << TSR_MM_ACTIVATION_SHIFT)) == 0)
        sums = sums * p.alpha;
    else
        coopMatPerElementNV(sums, sums, value_of, packUint2x32(block.y), packUint2x32(block.bias), size.x, size.y);
    if (Y_ALIGNED == 0) {
        coopMatPerElementNV(sums, sums, store_one, packUint2x32(block.y), size.x, size.y);
        return;
    }
    tensorLayoutNV<2, CLAMPED> y_layout = createTensorLayoutNV(2, CLAMPED);
    y_layout = setTensorLayoutDimensionNV(y_layout, size.x, size.y);
    y_layout = setTensorLayoutStrideNV(y_layout, p.y_row & ~3u, 1);
    y_layout = sliceTensorLayoutNV(y_layout, 0, BM, 0, BN);
    if (Y_F32)
        coopMatStoreTensorNV(sums, mm_sums(block.y).v, 0, y_layout);
    else
        coopMatStoreTensorNV(RESULTS(sums), mm_elements(block.y).v, 0, y_layout);
}
