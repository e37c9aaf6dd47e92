/* Checks a call of tsr_matmul and normalises it as problem.h describes. A side is one operand. */
#include "gpu/matmul/common/problem.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/given.h"
#include "shaders/params/matmul.h"
#include "tensor/check.h"

#define BATCH TSR__MATMUL_BATCH
#define SHAPE(layout) TSR__SHAPE((layout)->ndim, (layout)->shape)

static const char *transposed(bool yes)
{
    return yes ? " transposed" : "";
}

/* Describes op(x), broadcast to the batch dimensions of y. */
static tsr_status op_layout(const char *name, const tsr_layout *x, bool transpose,
                            const tsr_layout *y, tsr_layout *out)
{
    tsr_layout op = *x;
    int64_t shape[TSR_MAX_DIMS];

    if (transpose)
        TSR__TRY(tsr_layout_transpose(x, -2, -1, &op));
    for (int i = 0; i < y->ndim - 2; i++)
        shape[i] = y->shape[i];
    shape[y->ndim - 2] = op.shape[op.ndim - 2];
    shape[y->ndim - 1] = op.shape[op.ndim - 1];
    if (op.ndim > y->ndim || tsr_layout_broadcast(&op, y->ndim, shape, out) != TSR_OK)
        return tsr__fail(TSR_ERR_INVALID,
                         "matmul: the batch dimensions of %s %s do not broadcast to those of y %s",
                         name, SHAPE(x), SHAPE(y));
    return TSR_OK;
}

static void side_init(tsr__matmul_side *side, const tsr_layout *layout)
{
    int batch_dims = layout->ndim - 2;

    *side = (tsr__matmul_side){.dtype = layout->dtype,
                               .offset = layout->offset,
                               .row = layout->strides[batch_dims],
                               .col = layout->strides[batch_dims + 1]};
    for (int i = 0; i < batch_dims; i++)
        side->batch[i] = layout->strides[i];
}

static void remove_batch(tsr__matmul_problem *p, int dim)
{
    tsr__matmul_side *sides[] = {&p->a, &p->b, &p->y, &p->bias};

    p->batch_dims--;
    for (int i = dim; i < p->batch_dims; i++)
        p->batch[i] = p->batch[i + 1];
    for (int s = 0; s < 4; s++) {
        for (int i = dim; i < p->batch_dims; i++)
            sides[s]->batch[i] = sides[s]->batch[i + 1];
        sides[s]->batch[p->batch_dims] = 0;
    }
    p->batch[p->batch_dims] = 0;
}

/* True if batch dimensions i and i + 1 can be one dimension in every operand. */
static bool batch_merges(const tsr__matmul_problem *p, int i)
{
    const tsr__matmul_side *sides[] = {&p->a, &p->b, &p->y, &p->bias};

    for (int s = 0; s < 4; s++) {
        uint64_t span;
        if (!tsr__mul_u64((uint64_t)sides[s]->batch[i + 1], (uint64_t)p->batch[i + 1], &span) ||
            (uint64_t)sides[s]->batch[i] != span)
            return false;
    }
    return true;
}

static void merge_batches(tsr__matmul_problem *p)
{
    for (int i = p->batch_dims - 1; i >= 0; i--)
        if (p->batch[i] == 1)
            remove_batch(p, i);
    for (int i = p->batch_dims - 2; i >= 0; i--)
        if (batch_merges(p, i)) {
            p->batch[i + 1] *= p->batch[i];
            remove_batch(p, i);
        }
}

/* True if the distance from the last row of a matrix to the first row of the next one along
 * batch dimension i is that between rows of a matrix. */
static bool rows_continue(const tsr__matmul_side *side, int i, int64_t m)
{
    uint64_t span;

    return m == 1 || (tsr__mul_u64((uint64_t)side->row, (uint64_t)m, &span) &&
                      span == (uint64_t)side->batch[i]);
}

/* If b is the same along a batch dimension, turns that dimension into more rows of the other
 * operands. */
static void merge_batch_into_rows(tsr__matmul_problem *p)
{
    tsr__matmul_side *tall[] = {&p->a, &p->y, &p->bias};

    for (int i = p->batch_dims - 1; i >= 0; i--) {
        bool merges = p->b.batch[i] == 0 && p->batch[i] <= TSR__MATMUL_MAX_SIZE / p->m;
        for (int s = 0; s < 3; s++)
            merges = merges && rows_continue(tall[s], i, p->m);
        if (!merges)
            continue;
        if (p->m == 1)
            for (int s = 0; s < 3; s++)
                tall[s]->row = tall[s]->batch[i];
        p->m *= p->batch[i];
        remove_batch(p, i);
    }
}

static void swap_strides(tsr__matmul_side *side)
{
    int64_t row = side->row;
    side->row = side->col;
    side->col = row;
}

static void swap_roles(tsr__matmul_problem *p)
{
    tsr__matmul_side a = p->a;
    int64_t m = p->m;

    p->a = p->b;
    p->b = a;
    p->m = p->n;
    p->n = m;
    swap_strides(&p->a);
    swap_strides(&p->b);
    swap_strides(&p->y);
    swap_strides(&p->bias);
    p->swapped = !p->swapped;
}

static bool better_swapped(const tsr__matmul_problem *p)
{
    const int64_t few = 8;

    if (p->m <= few || p->n <= few)
        return p->n < p->m;
    return p->y.col != 1 && p->y.row == 1;
}

/* Moves the largest of the first `count` batch dimensions to the end of these. */
static void largest_last(tsr__matmul_problem *p, int count)
{
    tsr__matmul_side *sides[] = {&p->a, &p->b, &p->y, &p->bias};
    int largest = 0;

    for (int i = 1; i < count; i++)
        if (p->batch[i] >= p->batch[largest])
            largest = i;
    if (count < 2 || largest == count - 1)
        return;
    int64_t size = p->batch[largest];
    p->batch[largest] = p->batch[count - 1];
    p->batch[count - 1] = size;
    for (int s = 0; s < 4; s++) {
        int64_t stride = sides[s]->batch[largest];
        sides[s]->batch[largest] = sides[s]->batch[count - 1];
        sides[s]->batch[count - 1] = stride;
    }
}

/* Sets the strides of dimensions with one element to 0. Such strides are never used, and they must
 * not count as misaligned. */
static void drop_unused_strides(tsr__matmul_problem *p)
{
    if (p->m == 1)
        p->a.row = p->y.row = p->bias.row = 0;
    if (p->n == 1)
        p->b.col = p->y.col = p->bias.col = 0;
    if (p->k <= 1)
        p->a.col = p->b.row = 0;
}

static tsr_status read_params(const tsr_matmul_params *params, tsr__matmul_problem *out)
{
    out->alpha = 1;
    out->precision = TSR_PRECISION_HIGHEST;
    if (!params)
        return TSR_OK;
    TSR__REQUIRE(params->precision >= TSR_PRECISION_DEFAULT &&
                     params->precision <= TSR_PRECISION_MEDIUM,
                 "matmul: unknown precision %d", (int)params->precision);
    TSR__REQUIRE(params->activation >= TSR_ACT_NONE && params->activation <= TSR_ACT_SILU,
                 "matmul: unknown activation %d", (int)params->activation);
    out->alpha = tsr__given_float(params->alpha, 1);
    out->activation = params->activation;
    out->accumulate = params->accumulate;
    out->allow_int8 = params->allow_int8;
    if (params->precision != TSR_PRECISION_DEFAULT)
        out->precision = params->precision;
    return TSR_OK;
}

static tsr_status check_size(const char *name, int64_t size)
{
    TSR__REQUIRE(size <= TSR__MATMUL_MAX_SIZE, "matmul: %s is %lld, more than %lld", name,
                 (long long)size, (long long)TSR__MATMUL_MAX_SIZE);
    return TSR_OK;
}

static tsr_status check_shapes(const tsr_layout *y, const tsr_layout *a, const tsr_layout *b,
                               bool transpose_a, bool transpose_b, tsr__matmul_problem *out)
{
    TSR__REQUIRE(a->ndim >= 2 && b->ndim >= 2 && y->ndim >= 2,
                 "matmul: a, b and y need 2 dimensions or more: a is %s, b is %s, y is %s",
                 SHAPE(a), SHAPE(b), SHAPE(y));
    int64_t a_rows = a->shape[a->ndim - (transpose_a ? 1 : 2)];
    int64_t a_cols = a->shape[a->ndim - (transpose_a ? 2 : 1)];
    int64_t b_rows = b->shape[b->ndim - (transpose_b ? 1 : 2)];
    int64_t b_cols = b->shape[b->ndim - (transpose_b ? 2 : 1)];
    TSR__REQUIRE(a_cols == b_rows, "matmul: inner dimensions differ: a is %s%s, b is %s%s",
                 SHAPE(a), transposed(transpose_a), SHAPE(b), transposed(transpose_b));
    TSR__REQUIRE(y->shape[y->ndim - 2] == a_rows && y->shape[y->ndim - 1] == b_cols,
                 "matmul: y is %s, but a %s%s times b %s%s is [%lld,%lld]", SHAPE(y), SHAPE(a),
                 transposed(transpose_a), SHAPE(b), transposed(transpose_b), (long long)a_rows,
                 (long long)b_cols);
    TSR__TRY(check_size("m", a_rows));
    TSR__TRY(check_size("n", b_cols));
    TSR__TRY(check_size("k", a_cols));
    out->m = a_rows;
    out->n = b_cols;
    out->k = a_cols;
    return TSR_OK;
}

tsr_status tsr__matmul_problem_init(const tsr_layout *y, const tsr_layout *a, const tsr_layout *b,
                                    const tsr_layout *bias, const tsr_matmul_params *params,
                                    tsr__matmul_problem *out)
{
    tsr__matmul_problem p = {.batch_count = 1};
    bool transpose_a = params && params->transpose_a, transpose_b = params && params->transpose_b;
    tsr_layout op_a, op_b, wide_bias = {0};

    TSR__TRY(read_params(params, &p));
    TSR__TRY(check_shapes(y, a, b, transpose_a, transpose_b, &p));
    TSR__TRY(op_layout("a", a, transpose_a, y, &op_a));
    TSR__TRY(op_layout("b", b, transpose_b, y, &op_b));
    if (bias && tsr_layout_broadcast(bias, y->ndim, y->shape, &wide_bias) != TSR_OK)
        return tsr__fail(TSR_ERR_INVALID, "matmul: bias %s does not broadcast to y %s", SHAPE(bias),
                         SHAPE(y));

    side_init(&p.a, &op_a);
    side_init(&p.b, &op_b);
    side_init(&p.y, y);
    if (bias) {
        side_init(&p.bias, &wide_bias);
        p.has_bias = true;
    }
    p.batch_dims = y->ndim - 2;
    for (int i = 0; i < p.batch_dims; i++) {
        p.batch[i] = y->shape[i];
        p.batch_count *=
            y->shape[i]; /* no overflow if m and n are not 0, because y's elements are distinct */
    }
    if (p.m > 0 && p.n > 0 && p.batch_count > 0) {
        if (p.alpha == 0)
            p.k = 0;
        merge_batches(&p);
        merge_batch_into_rows(&p);
        swap_roles(&p);
        merge_batch_into_rows(&p);
        if (better_swapped(&p))
            swap_roles(&p);
        merge_batches(&p);
        p.batch_count = 1;
        for (int i = 0; i < p.batch_dims; i++)
            p.batch_count *= p.batch[i];
        largest_last(&p, p.batch_dims);
        largest_last(&p, p.batch_dims - 1);
        drop_unused_strides(&p);
    }
    *out = p;
    return TSR_OK;
}

bool tsr__matmul_side_vectors(const tsr__matmul_problem *problem, const tsr__matmul_side *side,
                              int64_t other, int64_t width)
{
    bool even = side->offset % width == 0 && other % width == 0;

    for (int i = 0; i < problem->batch_dims; i++)
        even = even && side->batch[i] % width == 0;
    return even;
}

bool tsr__matmul_side_within(const tsr__matmul_side *side, int64_t rows, int64_t cols)
{
    uint64_t down, across, bytes, size = tsr_dtype_size(side->dtype);

    return rows < 1 || cols < 1 ||
           (tsr__mul_u64((uint64_t)(rows - 1), (uint64_t)side->row, &down) &&
            tsr__mul_u64((uint64_t)(cols - 1), (uint64_t)side->col, &across) &&
            tsr__add_u64(down, across, &bytes) && tsr__mul_u64(bytes, size, &bytes) &&
            bytes < (uint64_t)1 << 31);
}

/* Loads and strides of kernels ------------------------------------------------------------- */

/* Returns the kind of load for one operand. `line` is the stride along a's rows or b's columns, and
 * `k` is the stride along the other dimension. If `ends` is true, the last vector may reach beyond
 * the matrix. */
static uint32_t load_of(const tsr__matmul_problem *p, const tsr__matmul_side *side, int64_t line,
                        int64_t lines, int64_t k, int64_t width, bool ends)
{
    if (k == 1 && (ends || p->k % width == 0) && tsr__matmul_side_vectors(p, side, line, width))
        return width == 8 ? TSR_MM_LOAD_VEC8_K : TSR_MM_LOAD_VEC_K;
    if (line == 1 && (ends || lines % width == 0) && tsr__matmul_side_vectors(p, side, k, width))
        return width == 8 ? TSR_MM_LOAD_VEC8_LINE : TSR_MM_LOAD_VEC_LINE;
    return width == 8 ? load_of(p, side, line, lines, k, 4, ends) : TSR_MM_LOAD_SCALAR;
}

uint32_t tsr__matmul_a_load(const tsr__matmul_problem *p, int64_t max_width)
{
    return load_of(p, &p->a, p->a.row, p->m, p->a.col, max_width, false);
}

uint32_t tsr__matmul_b_load(const tsr__matmul_problem *p, int64_t max_width)
{
    return load_of(p, &p->b, p->b.col, p->n, p->b.row, max_width, false);
}

uint32_t tsr__matmul_a_tile_load(const tsr__matmul_problem *p, int64_t max_width)
{
    return load_of(p, &p->a, p->a.row, p->m, p->a.col, max_width, true);
}

uint32_t tsr__matmul_b_tile_load(const tsr__matmul_problem *p, int64_t max_width)
{
    return load_of(p, &p->b, p->b.col, p->n, p->b.row, max_width, true);
}

bool tsr__matmul_side_narrow(const tsr__matmul_side *side, int64_t rows, int64_t cols)
{
    return side->row <= (int64_t)UINT32_MAX && side->col <= (int64_t)UINT32_MAX &&
           tsr__matmul_side_within(side, rows, cols);
}

bool tsr__matmul_y_narrow(const tsr__matmul_problem *p, int64_t bm, int64_t bn)
{
    int64_t m = bm < p->m ? bm : p->m, n = bn < p->n ? bn : p->n;

    return tsr__matmul_side_narrow(&p->y, m, n) && tsr__matmul_side_narrow(&p->bias, m, n);
}
