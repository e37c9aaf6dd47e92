#include "gpu/matmul/run.h"

#include "base/checked.h"
#include "shaders/params/matmul.h"

/* The most workgroups every device takes in z. */
#define Z_LIMIT 65535

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

/* One of the two batch dimensions of a dispatch: its size, and how much of it one dispatch takes.
 */
typedef struct batch_dim {
    int dim; /* of the problem, or -1: size 1 */
    int64_t size, piece;
} batch_dim;

static batch_dim batch_dim_of(const tsr__matmul_problem *p, int dim, int64_t at_most)
{
    const tsr__matmul_side *sides[] = {&p->a, &p->b, &p->y, &p->bias};
    batch_dim out = {.dim = dim, .size = 1, .piece = 1};

    if (dim < 0)
        return out;
    out.size = p->batch[dim];
    out.piece = out.size < at_most ? out.size : at_most;
    for (int s = 0; s < 4; s++)
        if (sides[s]->batch[dim] > (int64_t)UINT32_MAX)
            out.piece = 1;
    return out;
}

static uint32_t batch_stride(const tsr__matmul_side *side, batch_dim dim)
{
    return dim.dim < 0 || dim.piece == 1 ? 0 : (uint32_t)side->batch[dim.dim];
}

/* A call cut into dispatches. */
typedef struct tiles_run {
    const tsr__matmul_call *call;
    const tsr__matmul_plan *plan;
    batch_dim outer, inner;
    tsr__buffer *partial; /* where splits put their sums */
    struct tsr_matmul_push push;
    tsr__dispatch product, sum; /* `sum` is used where there are splits */
} tiles_run;

/* Everything of the push constants that the pieces of the batch share. */
static void fill_push(tiles_run *run)
{
    const tsr__matmul_problem *p = run->call->problem;
    struct tsr_matmul_push *push = &run->push;

    *push = (struct tsr_matmul_push){
        .m = (uint32_t)p->m,
        .n = (uint32_t)p->n,
        .k = (uint32_t)p->k,
        .k_chunk = run->plan->k_chunk,
        .a_row = (uint32_t)p->a.row,
        .a_k = (uint32_t)p->a.col,
        .b_k = (uint32_t)p->b.row,
        .b_col = (uint32_t)p->b.col,
        .y_row = (uint32_t)p->y.row,
        .y_col = (uint32_t)p->y.col,
        .bias_row = (uint32_t)p->bias.row,
        .bias_col = (uint32_t)p->bias.col,
        .a_outer = batch_stride(&p->a, run->outer),
        .a_inner = batch_stride(&p->a, run->inner),
        .b_outer = batch_stride(&p->b, run->outer),
        .b_inner = batch_stride(&p->b, run->inner),
        .y_outer = batch_stride(&p->y, run->outer),
        .y_inner = batch_stride(&p->y, run->inner),
        .bias_outer = batch_stride(&p->bias, run->outer),
        .bias_inner = batch_stride(&p->bias, run->inner),
        .alpha = p->alpha,
        .mode = tsr__matmul_mode(p),
    };
    if (p->a.row > 0 && (p->a.col == 0 || p->a.row < p->a.col))
        push->mode |= TSR_MM_A_LANES_ROW;
    if (p->b.col > 0 && (p->b.row == 0 || p->b.col < p->b.row))
        push->mode |= TSR_MM_B_LANES_COL;
}

static void add_access(tsr__dispatch *dispatch, tsr__access access)
{
    dispatch->access[dispatch->access_count++] = access;
}

static void fill_dispatches(tiles_run *run)
{
    const tsr__matmul_call *call = run->call;
    const tsr__matmul_plan *plan = run->plan;
    const tsr__matmul_problem *p = call->problem;
    uint64_t tiles = tsr__div_up_u64((uint64_t)p->m, plan->config->bm) *
                     tsr__div_up_u64((uint64_t)p->n, plan->config->bn);
    const uint32_t sum_threads = 64;

    run->product.spec_count =
        tsr__matmul_pipeline(plan->config, &plan->variant, &run->product.shader, run->product.spec);
    run->product.push_bytes = run->sum.push_bytes = sizeof run->push;
    tsr__groups_for(tiles, 1, run->product.groups);
    add_access(&run->product, tsr__read_of(call->a));
    add_access(&run->product, tsr__read_of(call->b));

    tsr__dispatch *last = &run->product;
    if (run->partial) {
        last = &run->sum;
        last->shader = TSR__SHADER_MATMUL_SUM;
        last->spec_count = 1;
        last->spec[0] = sum_threads;
        tsr__groups_for((uint64_t)p->m * (uint64_t)p->n, sum_threads, last->groups);
        add_access(&run->product, tsr__write_buffer(run->partial));
        add_access(last, tsr__read_buffer(run->partial));
    }
    add_access(last, tsr__write_of(call->y));
    if (call->bias)
        add_access(last, tsr__read_of(call->bias));
}

/* The product of the splits goes to scratch as [batch, split, m, n] f32, without an epilogue. */
static void aim_at_partial(const tiles_run *run, struct tsr_matmul_push *push)
{
    uint32_t matrices = push->m * push->n * push->splits;

    push->y = run->partial->address;
    push->y_row = push->n;
    push->y_col = 1;
    push->y_inner = matrices;
    push->y_outer = matrices * push->batch_inner;
    push->alpha = 1;
    push->mode &= TSR_MM_A_LANES_ROW | TSR_MM_B_LANES_COL;
    push->mode |= TSR_DT_F32 << TSR_MM_Y_DTYPE_SHIFT | TSR_DT_F32 << TSR_MM_BIAS_DTYPE_SHIFT;
}

static tsr_status record_piece(tiles_run *run, uint32_t outer, uint32_t inner)
{
    struct tsr_matmul_push push = run->push, sum = run->push;

    push.batch_inner = sum.batch_inner = inner;
    push.splits = run->plan->splits;
    sum.splits = 1;
    if (run->partial) {
        sum.k = run->plan->splits;
        sum.a = run->partial->address;
        aim_at_partial(run, &push);
    }
    run->product.push = &push;
    run->product.groups[2] = outer * inner * push.splits;
    TSR__TRY(tsr__stream_dispatch(run->call->stream, &run->product));
    if (!run->partial)
        return TSR_OK;
    run->sum.push = &sum;
    run->sum.groups[2] = outer * inner;
    return tsr__stream_dispatch(run->call->stream, &run->sum);
}

static int64_t min_size(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* All pieces of the two batch dimensions of a dispatch; `index` places the others. */
static tsr_status record_batch(tiles_run *run, int dims, const int64_t index[TSR__MATMUL_BATCH])
{
    const tsr__matmul_call *call = run->call;
    const tsr__matmul_problem *p = call->problem;
    const tsr__matmul_side *sides[] = {&p->a, &p->b, &p->y, &p->bias};
    const tsr_tensor *tensors[] = {call->a, call->b, call->y, call->bias};
    uint64_t *addresses[] = {&run->push.a, &run->push.b, &run->push.y, &run->push.bias};

    for (int64_t o = 0; o < run->outer.size; o += run->outer.piece)
        for (int64_t i = 0; i < run->inner.size; i += run->inner.piece) {
            for (int s = 0; s < 4; s++) {
                if (!tensors[s])
                    continue;
                int64_t offset = tsr__matmul_batch_offset(sides[s], dims, index);
                if (run->outer.dim >= 0)
                    offset += o * sides[s]->batch[run->outer.dim];
                if (run->inner.dim >= 0)
                    offset += i * sides[s]->batch[run->inner.dim];
                *addresses[s] = tsr__matmul_address(tensors[s], sides[s], offset);
            }
            TSR__TRY(record_piece(run, (uint32_t)min_size(run->outer.piece, run->outer.size - o),
                                  (uint32_t)min_size(run->inner.piece, run->inner.size - i)));
        }
    return TSR_OK;
}

tsr_status tsr__matmul_run_tiles(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    const tsr__matmul_problem *p = call->problem;
    int64_t z = Z_LIMIT / plan->splits;
    tiles_run run = {.call = call, .plan = plan};

    run.inner = batch_dim_of(p, p->batch_dims - 1, z);
    run.outer = batch_dim_of(p, p->batch_dims - 2,
                             run.inner.piece < run.inner.size ? 1 : z / run.inner.piece);
    if (plan->splits > 1) {
        uint64_t matrices = (uint64_t)(run.outer.piece * run.inner.piece) * plan->splits;
        TSR__TRY(tsr__stream_scratch(call->stream,
                                     matrices * (uint64_t)p->m * (uint64_t)p->n * sizeof(float),
                                     &run.partial));
    }
    fill_push(&run);
    fill_dispatches(&run);
    TSR__TRY(tsr__stream_prepare(call->stream, &run.product, 1));
    if (run.partial)
        TSR__TRY(tsr__stream_prepare(call->stream, &run.sum, 1));

    int looped = p->batch_dims > 2 ? p->batch_dims - 2 : 0;
    int64_t index[TSR__MATMUL_BATCH] = {0};
    do {
        TSR__TRY(record_batch(&run, looped, index));
    } while (tsr__matmul_next_batch(p, looped, index));
    return TSR_OK;
}
