/* Records products: what all kernels share, and the kernels that take struct tsr_matmul_push. One
 * dispatch of these computes a region of y: a band of rows of the matrices of up to two batch
 * dimensions. It computes all ranges into which k is split. */
#include <string.h>

#include "base/checked.h"
#include "gpu/matmul/common/call.h"
#include "shaders/params/matmul.h"

/* What all kernels share --------------------------------------------------------------------- */

double tsr__matmul_row_work(const tsr__matmul_problem *problem)
{
    const uint32_t a_terms = problem->a_terms > 0 ? problem->a_terms : 1;
    const uint32_t b_terms = problem->b_terms > 0 ? problem->b_terms : 1;
    const double passes = a_terms + b_terms - 1;

    return passes * (double)problem->n * (double)(problem->k > 0 ? problem->k : 1);
}

int64_t tsr__matmul_rows_within_work(const tsr__matmul_call *call)
{
    double limit = tsr_stream_device(call->stream)->work_limit;
    double rows = limit / tsr__matmul_row_work(call->problem);

    return rows < 0x1p62 ? (int64_t)rows : INT64_C(1) << 62;
}

uint64_t tsr__matmul_address(const tsr_tensor *tensor, const tsr__matmul_side *side,
                             int64_t elements)
{
    return tensor->buffer->address +
           (uint64_t)(side->offset + elements) * tsr_dtype_size(side->dtype);
}

uint32_t tsr__matmul_mode(const tsr__matmul_problem *p)
{
    uint32_t bias_dtype = p->has_bias ? (uint32_t)p->bias.dtype : TSR_DT_F32;

    return (p->accumulate ? TSR_MM_ACCUMULATE : 0) | (p->has_bias ? TSR_MM_BIAS : 0) |
           (uint32_t)p->y.dtype << TSR_MM_Y_DTYPE_SHIFT | bias_dtype << TSR_MM_BIAS_DTYPE_SHIFT |
           (uint32_t)p->activation << TSR_MM_ACTIVATION_SHIFT;
}

/* The mode of the call, whose epilogue may have a factor or another matrix. */
static uint32_t call_mode(const tsr__matmul_call *call)
{
    return tsr__matmul_mode(call->problem) | (call->times ? TSR_MM_TIMES : 0) |
           (call->slope ? TSR_MM_SLOPE : 0) | (call->added ? TSR_MM_ADDED : 0) |
           (call->sums ? TSR_MM_ROW_SUMS : 0);
}

/* The other matrix besides y, or NULL. */
static const tsr_tensor *other_of(const tsr__matmul_call *call)
{
    return call->slope ? call->slope : call->added;
}

bool tsr__matmul_tiles_fuse(const tsr__matmul_call *call)
{
    const tsr__matmul_problem *p = call->problem;

    return !tsr_stream_device(call->stream)->traits.slow_pipelines && p->batch_dims == 0 &&
           p->k > 0 && !p->accumulate && (!call->times || p->has_bias);
}

bool tsr__matmul_tiles_sum_rows(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    const tsr__matmul_problem *p = call->problem;
    const tsr__matmul_family *family = plan->config->family;

    return p->batch_dims == 0 && p->k > 0 && p->alpha == 1 && !call->bias && family->sums_rows &&
           family->sums_rows(plan);
}

bool tsr__matmul_next_batch(const tsr__matmul_problem *problem, int dims,
                            int64_t index[TSR__MATMUL_BATCH])
{
    for (int i = dims - 1; i >= 0; i--) {
        if (++index[i] < problem->batch[i])
            return true;
        index[i] = 0;
    }
    return false;
}

int64_t tsr__matmul_batch_offset(const tsr__matmul_side *side, int dims,
                                 const int64_t index[TSR__MATMUL_BATCH])
{
    int64_t offset = 0;

    for (int i = 0; i < dims; i++)
        offset += index[i] * side->batch[i];
    return offset;
}

bool tsr__matmul_plain(const tsr__matmul_problem *p)
{
    return p->y.dtype == TSR_F32 && p->alpha == 1 && !p->has_bias && p->activation == TSR_ACT_NONE;
}

void tsr__matmul_epilogue(const tsr__matmul_problem *p, struct tsr_matmul_push *push)
{
    push->m = (uint32_t)p->m;
    push->n = (uint32_t)p->n;
    push->y_row = (uint32_t)p->y.row;
    push->y_col = (uint32_t)p->y.col;
    push->bias_row = (uint32_t)p->bias.row;
    push->bias_col = (uint32_t)p->bias.col;
    push->batch_inner = 1;
    push->splits = 1;
    push->alpha = p->alpha;
    push->mode = tsr__matmul_mode(p);
}

void tsr__matmul_push_norm(const tsr__matmul_call *call, struct tsr_matmul_push *push)
{
    const uint64_t address = tsr__tensor_address(call->norm->weight);
    push->TSR_MM_NORM_LOW = (uint32_t)address;
    push->TSR_MM_NORM_HIGH = (uint32_t)(address >> 32);
    memcpy(&push->TSR_MM_NORM_EPSILON, &call->norm->epsilon, sizeof(float));
}

/* Declares the access to the other matrix, if there is one. */
static void add_other(const tsr__matmul_call *call, tsr__dispatch *dispatch)
{
    if (other_of(call))
        dispatch->access[dispatch->access_count++] =
            call->slope ? tsr__write_of(call->slope) : tsr__read_of(call->added);
}

tsr_status tsr__matmul_finish(const tsr__matmul_call *call, tsr__buffer *partial, uint32_t ranges,
                              uint32_t matrices, const struct tsr_matmul_push *push)
{
    const uint32_t threads = 64;
    struct tsr_matmul_push sum = *push;
    tsr__dispatch dispatch = {.shader = TSR__SHADER_MATMUL_SUM,
                              .spec_count = 2,
                              .spec = {threads, call_mode(call)},
                              .push = &sum,
                              .push_bytes = sizeof sum,
                              .access_count = call->bias ? 3 : 2};

    sum.a = partial->address;
    sum.k = ranges;
    sum.splits = 1;
    tsr__groups_for((uint64_t)sum.m * sum.n + (call->sums ? sum.m : 0), threads, dispatch.groups);
    dispatch.groups[2] = matrices;
    dispatch.access[0] = tsr__read_buffer(partial);
    dispatch.access[1] = tsr__write_of(call->y);
    dispatch.read_bytes = 4.0 * sum.m * sum.n * ranges * matrices;
    if (call->bias)
        dispatch.access[2] = tsr__read_of(call->bias);
    add_other(call, &dispatch);
    if (call->sums)
        dispatch.access[dispatch.access_count++] = tsr__write_of(call->sums);
    return tsr__stream_dispatch(call->stream, &dispatch);
}

/* Tiles -------------------------------------------------------------------------------------- */

/* The number of workgroups in z that every device supports. */
#define Z_LIMIT 65535

/* The size in bytes to which the scratch memory for partial sums is limited approximately. */
#define PARTIAL_BYTES (INT64_C(64) << 20)

/* A dimension that is divided: one dispatch computes `at_once` of its `size` elements. */
typedef struct dim {
    int batch; /* the number of the batch dimension; -1: there is none, and the size is 1 */
    int64_t size, at_once;
} dim;

static dim batch_dim(const tsr__matmul_problem *p, int batch, int64_t at_most)
{
    const tsr__matmul_side *sides[] = {&p->a, &p->b, &p->y, &p->bias};
    dim out = {.batch = batch, .size = 1, .at_once = 1};

    if (batch < 0)
        return out;
    out.size = p->batch[batch];
    out.at_once = tsr__matmul_min(out.size, at_most);
    for (int s = 0; s < 4; s++)
        if (sides[s]->batch[batch] > (int64_t)UINT32_MAX)
            out.at_once = 1;
    return out;
}

/* A call that is divided into dispatches. */
typedef struct run {
    const tsr__matmul_call *call;
    const tsr__matmul_plan *plan;
    dim outer, inner, rows;
    /* partial sums for matmul_sum.comp; NULL if the kernel stores the result itself */
    tsr__buffer *partial;
    struct tsr_matmul_push push;
    tsr__dispatch dispatch;
} run;

/* The number of columns of y per workgroup. */
static uint32_t columns_of(const tsr__matmul_plan *plan)
{
    return plan->gated ? plan->config->bn / 2 : plan->config->bn;
}

/* Chooses how many rows and matrices a dispatch computes. Its partial sums stay small, and its
 * dispatch stays within the limits on workgroups and on work. */
static void choose_extents(run *r, bool partial)
{
    const tsr__matmul_problem *p = r->call->problem;
    int64_t bm = r->plan->config->bm, splits = r->plan->splits;
    int64_t z = Z_LIMIT / splits,
            tiles_across = (p->n + columns_of(r->plan) - 1) / columns_of(r->plan);
    int64_t rows = INT64_C(1) << 31; /* in tiles: x and y have at most 2^31 workgroups together */
    int64_t work_rows = tsr__matmul_rows_within_work(r->call);

    rows /= tiles_across;
    rows = tsr__matmul_min(rows, work_rows / bm);
    z = tsr__matmul_min(z, work_rows / p->m);
    if (partial) {
        int64_t matrix_rows = PARTIAL_BYTES / (p->n * splits * (int64_t)sizeof(float));
        rows = tsr__matmul_min(rows, matrix_rows / bm);
        z = tsr__matmul_min(z, matrix_rows / p->m);
    }
    z = z > 0 ? z : 1;
    rows = rows > 0 ? rows : 1;
    r->rows = (dim){.batch = -1, .size = p->m, .at_once = tsr__matmul_min(rows * bm, p->m)};
    r->inner = batch_dim(p, p->batch_dims - 1, z);
    r->outer = batch_dim(p, p->batch_dims - 2,
                         r->inner.at_once < r->inner.size ? 1 : z / r->inner.at_once);
}

static uint32_t batch_stride(const tsr__matmul_side *side, dim d)
{
    return d.batch < 0 || d.at_once == 1 ? 0 : (uint32_t)side->batch[d.batch];
}

/* Sets the push constants that are the same for all dispatches. */
static void fill_push(run *r)
{
    const tsr__matmul_problem *p = r->call->problem;
    struct tsr_matmul_push *push = &r->push;

    tsr__matmul_epilogue(p, push);
    push->k = (uint32_t)p->k;
    push->k_chunk = r->plan->k_chunk;
    push->a_row = (uint32_t)p->a.row;
    push->a_k = (uint32_t)p->a.col;
    push->b_k = (uint32_t)p->b.row;
    push->b_col = (uint32_t)p->b.col;
    push->a_outer = batch_stride(&p->a, r->outer);
    push->a_inner = batch_stride(&p->a, r->inner);
    push->b_outer = batch_stride(&p->b, r->outer);
    push->b_inner = batch_stride(&p->b, r->inner);
    push->y_outer = batch_stride(&p->y, r->outer);
    push->y_inner = batch_stride(&p->y, r->inner);
    push->bias_outer = batch_stride(&p->bias, r->outer);
    push->bias_inner = batch_stride(&p->bias, r->inner);
    push->splits = r->plan->splits;
    if (p->a.row > 0 && (p->a.col == 0 || p->a.row < p->a.col))
        push->mode |= TSR_MM_A_LANES_ROW;
    if (p->b.col > 0 && (p->b.row == 0 || p->b.col < p->b.row))
        push->mode |= TSR_MM_B_LANES_COL;
    push->mode |= call_mode(r->call);
    if (r->call->norm)
        tsr__matmul_push_norm(r->call, push);
}

/* The mode with which a kernel stores partial sums. */
static const uint32_t partial_mode =
    TSR_DT_F32 << TSR_MM_Y_DTYPE_SHIFT | TSR_DT_F32 << TSR_MM_BIAS_DTYPE_SHIFT;

/* The mode for which a kernel is specialised. */
static uint32_t own_mode(const run *r)
{
    const tsr__matmul_problem *p = r->call->problem;
    bool vectors =
        p->n % 4 == 0 &&
        (r->partial || (p->y.col == 1 && tsr__matmul_side_vectors(p, &p->y, p->y.row, 4) &&
                        (!other_of(r->call) || other_of(r->call)->layout.offset % 4 == 0)));

    return (r->partial ? partial_mode | (r->call->sums ? TSR_MM_ROW_SUMS : 0)
                       : call_mode(r->call)) |
           (vectors ? TSR_MM_Y_VECTORS : 0) | (p->a_terms > 0 ? TSR_MM_A_SCALES : 0) |
           (p->b_terms > 0 ? TSR_MM_B_SCALES : 0);
}

static void fill_dispatch(run *r)
{
    const tsr__matmul_call *call = r->call;
    tsr__dispatch *dispatch = &r->dispatch;
    tsr__matmul_variant variant = r->plan->variant;

    variant.mode = own_mode(r);
    dispatch->spec_count = r->plan->config->family->pipeline(r->plan->config, &variant,
                                                             &dispatch->shader, dispatch->spec);
    if (r->plan->gated || call->norm)
        dispatch->spec[dispatch->spec_count++] = r->plan->gated;
    if (call->norm)
        dispatch->spec[dispatch->spec_count++] = (uint32_t)call->norm->weight->layout.dtype;
    dispatch->push_bytes = sizeof r->push;
    dispatch->access[0] = tsr__read_of(call->a);
    dispatch->access[1] = tsr__read_of(call->b);
    dispatch->access[2] = r->partial ? tsr__write_buffer(r->partial) : tsr__write_of(call->y);
    dispatch->access_count = 3;
    /* Dispatches with partial sums use the same scratch memory, one after the other. */
    dispatch->independent_group = r->partial ? 0 : tsr__stream_new_independent_group(call->stream);
    if (call->bias && !r->partial)
        dispatch->access[dispatch->access_count++] = tsr__read_of(call->bias);
    if (!r->partial)
        add_other(call, dispatch);
    if (call->sums && !r->partial)
        dispatch->access[dispatch->access_count++] = tsr__write_of(call->sums);
    if (call->norm)
        dispatch->access[dispatch->access_count++] = tsr__read_of(call->norm->weight);
}

/* Sets the address of the sums of a's rows. */
static void set_sums(uint64_t at, struct tsr_matmul_push *push)
{
    push->TSR_MM_ROW_SUMS_LOW = (uint32_t)at;
    push->TSR_MM_ROW_SUMS_HIGH = (uint32_t)(at >> 32);
}

/* Makes the kernel store its sums to scratch memory, as f32 [batch, split, m, n]. Those of a's rows
 * follow as f32 [split, m]. */
static void aim_at_partial(const run *r, struct tsr_matmul_push *push)
{
    uint32_t matrices = push->m * push->n * push->splits;

    push->y = r->partial->address;
    push->y_row = push->n;
    push->y_col = 1;
    push->y_inner = matrices;
    push->y_outer = matrices * push->batch_inner;
    push->alpha = 1;
    if (r->call->sums)
        set_sums(r->partial->address + (uint64_t)matrices * sizeof(float), push);
    push->mode &= TSR_MM_A_LANES_ROW | TSR_MM_B_LANES_COL;
    push->mode |= partial_mode;
}

/* Records the dispatches of one region of y. `push` has the addresses of the region. */
static tsr_status record_region(run *r, struct tsr_matmul_push push, uint32_t outer, uint32_t inner)
{
    const tsr__matmul_config *config = r->plan->config;
    struct tsr_matmul_push product;

    push.batch_inner = inner;
    r->dispatch.work = tsr__matmul_row_work(r->call->problem) * push.m * outer * inner;
    r->dispatch.multiply_adds = (r->plan->gated ? 2 : 1) * r->dispatch.work;
    r->dispatch.written_bytes =
        r->partial ? 4.0 * push.m * push.n * push.splits * outer * inner : 0;
    product = push;
    if (r->partial)
        aim_at_partial(r, &product);
    r->dispatch.push = &product;
    tsr__groups_for(tsr__div_up_u64(push.m, config->bm) *
                        tsr__div_up_u64(push.n, columns_of(r->plan)),
                    1, r->dispatch.groups);
    r->dispatch.groups[2] = outer * inner * push.splits;
    TSR__TRY(tsr__stream_dispatch(r->call->stream, &r->dispatch));
    if (!r->partial)
        return TSR_OK;
    return tsr__matmul_finish(r->call, r->partial, push.splits, outer * inner, &push);
}

static uint64_t address(const run *r, const tsr_tensor *tensor, const tsr__matmul_side *side,
                        int64_t base, int64_t outer, int64_t inner)
{
    if (!tensor)
        return 0;
    if (r->outer.batch >= 0)
        base += outer * side->batch[r->outer.batch];
    if (r->inner.batch >= 0)
        base += inner * side->batch[r->inner.batch];
    return tsr__matmul_address(tensor, side, base);
}

/* Sets the address of the other matrix from a row of y on, if there is one. */
static void set_other(const tsr__matmul_call *call, int64_t row, struct tsr_matmul_push *push)
{
    const tsr_tensor *other = other_of(call);

    if (!other)
        return;
    const uint64_t at = tsr__tensor_address(other) + (uint64_t)(row * call->problem->y.row) *
                                                         tsr_dtype_size(other->layout.dtype);
    push->TSR_MM_OTHER_LOW = (uint32_t)at;
    push->TSR_MM_OTHER_HIGH = (uint32_t)(at >> 32);
}

/* Records all regions for one index of the other batch dimensions, over which record_batches()
 * loops. */
static tsr_status record_batch(run *r, int dims, const int64_t index[TSR__MATMUL_BATCH])
{
    const tsr__matmul_call *call = r->call;
    const tsr__matmul_problem *p = call->problem;
    int64_t a = tsr__matmul_batch_offset(&p->a, dims, index);
    int64_t b = tsr__matmul_batch_offset(&p->b, dims, index);
    int64_t y = tsr__matmul_batch_offset(&p->y, dims, index);
    int64_t bias = tsr__matmul_batch_offset(&p->bias, dims, index);
    struct tsr_matmul_push push = r->push;

    for (int64_t o = 0; o < r->outer.size; o += r->outer.at_once)
        for (int64_t i = 0; i < r->inner.size; i += r->inner.at_once)
            for (int64_t row = 0; row < p->m; row += r->rows.at_once) {
                push.m = (uint32_t)tsr__matmul_min(r->rows.at_once, p->m - row);
                push.a = address(r, call->a, &p->a, a + row * p->a.row, o, i);
                push.b = address(r, call->b, &p->b, b, o, i);
                push.y = address(r, call->y, &p->y, y + row * p->y.row, o, i);
                push.bias = address(r, call->bias, &p->bias, bias + row * p->bias.row, o, i);
                set_other(call, row, &push);
                if (call->sums)
                    set_sums(tsr__tensor_address(call->sums) + (uint64_t)row * sizeof(float),
                             &push);
                TSR__TRY(record_region(
                    r, push, (uint32_t)tsr__matmul_min(r->outer.at_once, r->outer.size - o),
                    (uint32_t)tsr__matmul_min(r->inner.at_once, r->inner.size - i)));
            }
    return TSR_OK;
}

static tsr_status record_batches(tsr_stream *stream, void *work)
{
    run *r = work;
    const tsr__matmul_problem *p = r->call->problem;
    int looped = p->batch_dims > 2 ? p->batch_dims - 2 : 0;
    int64_t index[TSR__MATMUL_BATCH] = {0};

    do {
        TSR__TRY(record_batch(r, looped, index));
    } while (!tsr__stream_in_preflight(stream) && tsr__matmul_next_batch(p, looped, index));
    return TSR_OK;
}

tsr_status tsr__matmul_run_tiles(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    const tsr__matmul_problem *p = call->problem;
    bool plain = tsr__matmul_plain(p) && !p->accumulate;
    bool partial = plan->splits > 1 || (plan->config->stores_plain && !plain);
    run r = {.call = call, .plan = plan};

    choose_extents(&r, partial);
    fill_push(&r);
    if (partial) {
        int64_t matrices = r.outer.at_once * r.inner.at_once * plan->splits;
        TSR__TRY(tsr__stream_scratch(
            call->stream,
            (uint64_t)(matrices * r.rows.at_once * (p->n + (call->sums ? 1 : 0))) * sizeof(float),
            &r.partial));
    }
    fill_dispatch(&r);
    return tsr__stream_atomic(call->stream, record_batches, &r);
}
