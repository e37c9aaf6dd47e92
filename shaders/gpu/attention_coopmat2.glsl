// Gradients of attention for 16-bit floats by the cooperative matrices of VK_NV_cooperative_matrix2,
// with sums in f32. The kinds of computation are those of attention.comp. A workgroup owns BX rows,
// keys or queries, whose operands and results are matrices that all its invocations share, and loops
// over the rows of the other kind, BY at a time. The driver moves the matrices through shared memory
// and registers, and divides them among the subgroups.
//
// Scores have no mask, no cap and no temperature; then a query sees a range of the keys. The columns
// of every operand and result are contiguous, and rows start at multiples of 16 bytes.
//
// The including file defines ELEMENT, the type of an element, and DTYPE. With ONE_SUBGROUP, each
// subgroup computes all results of its workgroup by matrices of its own, and loads and stores them
// element by element: a test uses this on drivers that have these matrices for subgroups only.
#extension GL_KHR_cooperative_matrix : require
#extension GL_NV_cooperative_matrix2 : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#include "include/attention.glsl"

layout(constant_id = 0) const uint THREADS = 128;
layout(local_size_x = 128, local_size_x_id = 0) in;
layout(constant_id = 1) const uint BX = 64;
layout(constant_id = 2) const uint BY = 64;
layout(constant_id = 3) const uint KIND = TSR_ATTENTION_DKV;
layout(constant_id = 4) const uint WIDTH = 64; // head_dim, rounded up to what the driver can multiply
layout(constant_id = 5) const uint FORM = 0; // 0 or TSR_ATTENTION_STARTS

#include "include/attention_matrices.glsl"

const uint LOAD = TSR_ATTENTION_LOAD_SCALAR, PAGED = 0, MASK_DTYPE = 0;
// Each row has two operands, as in attention_coopmat.glsl: the first is its row of q or k, the second
// that of dy or v. SUMS_FIRST: the sum of ds times the other rows' first operands. SUMS_SECOND: the
// sum of p times their second operands.
const bool SUMS_FIRST = KIND != TSR_ATTENTION_DV;
const bool SUMS_SECOND = KIND == TSR_ATTENTION_DV || KIND == TSR_ATTENTION_DKV;

uint batch;
attention_sequence sequence;
#include "include/attention_rows.glsl"

// What the scores of a query depend on: its lse divided by ln 2, its delta, the first key that it
// sees, and the last one plus 1.
shared uvec4 queries[OWNS_KEYS ? BY : BX];

#ifdef ONE_SUBGROUP
#define SCOPE gl_ScopeSubgroup
#else
#define SCOPE gl_ScopeWorkgroup
#endif
#define CLAMPED gl_CooperativeMatrixClampModeConstantNV
#define OWN coopmat<ELEMENT, SCOPE, BX, WIDTH, gl_MatrixUseA>
#define OTHERS coopmat<ELEMENT, SCOPE, BY, WIDTH, gl_MatrixUseB>
#define OTHERS_TRANSPOSED coopmat<ELEMENT, SCOPE, WIDTH, BY, gl_MatrixUseB>
#define SCORES coopmat<float, SCOPE, BX, BY, gl_MatrixUseAccumulator>
#define FACTORS coopmat<ELEMENT, SCOPE, BX, BY, gl_MatrixUseA>
#define RESULT coopmat<float, SCOPE, BX, WIDTH, gl_MatrixUseAccumulator>
#define ROUNDED coopmat<ELEMENT, SCOPE, BX, WIDTH, gl_MatrixUseAccumulator>

layout(buffer_reference, std430, buffer_reference_align = 16) buffer attention_elements {
    ELEMENT v[];
};

// The elements from one row to the next, a multiple of 8. The mask tells this to the compiler.
uint row_stride(rows_of x)
{
    return x.row.x / 2 & ~7u;
}

// LOAD_ROWS sets a matrix of `count` rows to the rows of `x` from `first` on; rows from `end` on and
// columns from head_dim on are 0. LOAD_TRANSPOSED makes BY such rows the columns of the matrix.
// STORE_ROWS stores a result's rows before `end`. `first` is less than `end`.
#ifdef ONE_SUBGROUP
ELEMENT load_of_row(const in uint row, const in uint column, const in ELEMENT old, const in uint64_t at, const in uint stride, const in int rows)
{
    bool exists = int(row) < rows && column < CALL.head_dim;
    return exists ? attention_elements(unpackUint2x32(at)).v[row * stride + column] : ELEMENT(0.0);
}

ELEMENT load_of_column(const in uint row, const in uint column, const in ELEMENT old, const in uint64_t at, const in uint stride, const in int rows)
{
    return load_of_row(column, row, old, at, stride, rows);
}

ELEMENT store_of_row(const in uint row, const in uint column, const in ELEMENT value, const in uint64_t at, const in uint stride, const in int rows)
{
    if (int(row) < rows && column < CALL.head_dim)
        attention_elements(unpackUint2x32(at)).v[row * stride + column] = value;
    return value;
}

#define ROWS_OF(x, first, end) packUint2x32(row_address(x, uint(first))), row_stride(x), (end) - (first)
#define LOAD_ROWS(matrix, count, x, first, end) coopMatPerElementNV(matrix, matrix, load_of_row, ROWS_OF(x, first, end));
#define LOAD_TRANSPOSED(matrix, x, first, end) coopMatPerElementNV(matrix, matrix, load_of_column, ROWS_OF(x, first, end));
#define STORE_ROWS(matrix, x, first, end) coopMatPerElementNV(matrix, matrix, store_of_row, ROWS_OF(x, first, end));
#else
#define DECLARE_LAYOUT(count, x, first, end)                                                       \
    tensorLayoutNV<2, CLAMPED> layout_of_rows = createTensorLayoutNV(2, CLAMPED);                  \
    layout_of_rows = setTensorLayoutDimensionNV(layout_of_rows, uint((end) - (first)), CALL.head_dim); \
    layout_of_rows = setTensorLayoutStrideNV(layout_of_rows, row_stride(x), 1);                    \
    layout_of_rows = sliceTensorLayoutNV(layout_of_rows, 0, count, 0, WIDTH);
#define FROM(x, first) attention_elements(row_address(x, uint(first))).v, 0
#define LOAD_ROWS(matrix, count, x, first, end)                                                    \
    {                                                                                              \
        DECLARE_LAYOUT(count, x, first, end)                                                       \
        coopMatLoadTensorNV(matrix, FROM(x, first), layout_of_rows);                               \
    }
#define LOAD_TRANSPOSED(matrix, x, first, end)                                                     \
    {                                                                                              \
        DECLARE_LAYOUT(BY, x, first, end)                                                          \
        tensorViewNV<2, false, 1, 0> swapped = createTensorViewNV(2, false, 1, 0);                 \
        coopMatLoadTensorNV(matrix, FROM(x, first), layout_of_rows, swapped);                      \
    }
#define STORE_ROWS(matrix, x, first, end)                                                          \
    {                                                                                              \
        DECLARE_LAYOUT(BX, x, first, end)                                                          \
        coopMatStoreTensorNV(matrix, FROM(x, first), layout_of_rows);                              \
    }
#endif

// Fills `queries` for `count` queries of a head, from `first` on.
void keep_queries(uint head, int first, uint count)
{
    for (uint n = gl_LocalInvocationIndex; n < count; n += THREADS) {
        int query = first + int(n);
        uint row = uint(min(query, int(CALL.q_len) - 1));
        int first_key, end_key;
        keys_seen(query, query, first_key, end_key);
        float lse = tsr_floats(tsr_at_stride(attention_head(CALL.lse, batch, head), row, CALL.lse.row)).v[0];
        float delta = 0.0;
        if (SUMS_FIRST)
            delta = tsr_floats(tsr_at_stride(attention_head(CALL.delta, batch, head), row, CALL.delta.row)).v[0];
        queries[n] = uvec4(floatBitsToUint(binary_lse(lse)), floatBitsToUint(delta), uint(first_key), uint(end_key));
    }
}

// The functions of an element of the scores. `key` is the first key of the scores' rows or columns.
bool sees(uint row, uint column, int key)
{
    uvec4 query = queries[OWNS_KEYS ? column : row];
    key += int(OWNS_KEYS ? row : column);
    return key >= int(query.z) && key < int(query.w);
}

// Returns p, where `unit` times a product of q and k is their score divided by ln 2.
float probability(const in uint row, const in uint column, const in float product, const in int key, const in float unit)
{
    float lse = uintBitsToFloat(queries[OWNS_KEYS ? column : row].x);
    return sees(row, column, key) ? exp2(product * unit - lse) : 0.0;
}

// Returns ds / (p · scale), where dp = dy·v.
float derivative(const in uint row, const in uint column, const in float dp, const in int key)
{
    float delta = uintBitsToFloat(queries[OWNS_KEYS ? column : row].y);
    return sees(row, column, key) ? dp - delta : 0.0;
}

void main()
{
    uint group = tsr_flat_group();
    if (group >= p.count)
        return;
    group += p.first;
    uint count = OWNS_KEYS ? CALL.kv_len : CALL.q_len, heads = OWNS_KEYS ? CALL.kv_heads : CALL.heads;
    uint blocks = (count + BX - 1) / BX;
    uint block = group % blocks;
    uint head = group / blocks % heads; // the head of the own rows
    batch = group / blocks / heads;
    sequence = attention_sequence_of(batch);
    float unit = CALL.scale * LOG2_E;

    // Blocks of queries are in descending order, because late queries may see more keys.
    int own = int((OWNS_KEYS ? block : blocks - 1 - block) * BX), rows = int(count);
    int own_end = min(rows, OWNS_KEYS ? sequence.kv_length : sequence.q_length);
    int last = min(own + int(BX), rows) - 1;
    int first, end;
    uint reader = 0, readers = 1;
    if (OWNS_KEYS) {
        queries_seen(own, last, first, end);
        reader = attention_first_reader(head);
        readers = attention_first_reader(head + 1) - reader;
    } else {
        keys_seen(own, last, first, end);
    }

    RESULT first_result = RESULT(0.0), second_result = RESULT(0.0);
    if (first < end && own < own_end && readers > 0) {
        rows_of own_rows = OWNS_KEYS ? rows_at(CALL.k, head, HEAD_DIM) : rows_at(CALL.q, head, HEAD_DIM);
        OWN own_first, own_second;
        LOAD_ROWS(own_first, BX, own_rows, own, own_end)
        if (SUMS_FIRST) {
            own_rows = OWNS_KEYS ? rows_at(CALL.v, head, HEAD_DIM) : rows_at(CALL.dy, head, HEAD_DIM);
            LOAD_ROWS(own_second, BX, own_rows, own, own_end)
        }
        if (!OWNS_KEYS) {
            keep_queries(head, own, BX);
            barrier();
        }
        for (uint n = 0; n < readers; n++) {
            uint other_head = OWNS_KEYS ? attention_reader(reader + n) : attention_kv_head(head);
            rows_of first_rows = OWNS_KEYS ? rows_at(CALL.q, other_head, HEAD_DIM) : rows_at(CALL.k, other_head, HEAD_DIM);
            rows_of second_rows = OWNS_KEYS ? rows_at(CALL.dy, other_head, HEAD_DIM) : rows_at(CALL.v, other_head, HEAD_DIM);
            for (int other = first; other < end; other += int(BY)) {
                if (OWNS_KEYS) {
                    barrier();
                    keep_queries(other_head, other, BY);
                    barrier();
                }
                int key = OWNS_KEYS ? own : other;
                OTHERS_TRANSPOSED columns;
                OTHERS lines;
                LOAD_TRANSPOSED(columns, first_rows, other, end)
                SCORES scores = coopMatMulAdd(own_first, columns, SCORES(0.0));
                coopMatPerElementNV(scores, scores, probability, key, unit);
                if (SUMS_SECOND) {
                    LOAD_ROWS(lines, BY, second_rows, other, end)
                    second_result = coopMatMulAdd(FACTORS(scores), lines, second_result);
                }
                if (SUMS_FIRST) {
                    LOAD_TRANSPOSED(columns, second_rows, other, end)
                    SCORES dp = coopMatMulAdd(own_second, columns, SCORES(0.0));
                    coopMatPerElementNV(dp, dp, derivative, key);
                    LOAD_ROWS(lines, BY, first_rows, other, end)
                    first_result = coopMatMulAdd(FACTORS(scores * dp), lines, first_result);
                }
            }
        }
    }

    if (SUMS_FIRST) {
        ROUNDED rounded = ROUNDED(first_result * CALL.scale);
        rows_of to = OWNS_KEYS ? rows_at(CALL.dk, head, HEAD_DIM) : rows_at(CALL.dq, head, HEAD_DIM);
        STORE_ROWS(rounded, to, own, rows)
    }
    if (SUMS_SECOND) {
        ROUNDED rounded = ROUNDED(second_result);
        rows_of to = rows_at(CALL.dv, head, HEAD_DIM);
        STORE_ROWS(rounded, to, own, rows)
    }
}
