/* Products with one element per invocation and 64-bit addresses (matmul_wide.comp). This kernel can
 * compute every problem. It is used for strides that no other kernel can address. */
#include "base/checked.h"
#include "gpu/matmul/common/call.h"
#include "gpu/matmul/kernels/kernels.h"
#include "shaders/params/matmul.h"

static uint64_t bytes(const tsr__matmul_side *side, int64_t stride)
{
    return (uint64_t)stride * tsr_dtype_size(side->dtype);
}

static void add_access(tsr__dispatch *dispatch, tsr__access access)
{
    dispatch->access[dispatch->access_count++] = access;
}

/* A call that is being recorded. `push` and the groups are set for each of its dispatches. */
typedef struct wide_run {
    const tsr__matmul_call *call;
    int64_t bn; /* the number of columns per workgroup */
    struct tsr_matmul_wide_push push;
    tsr__dispatch dispatch;
} wide_run;

/* Records a dispatch for rows of one matrix, from `row` on. The dispatch's groups determine the
 * number of rows. */
static tsr_status record_rows(wide_run *r, const int64_t index[TSR__MATMUL_BATCH], int64_t row)
{
    const tsr__matmul_call *call = r->call;
    const tsr__matmul_problem *p = call->problem;
    int64_t a = tsr__matmul_batch_offset(&p->a, p->batch_dims, index);
    int64_t b = tsr__matmul_batch_offset(&p->b, p->batch_dims, index);
    int64_t y = tsr__matmul_batch_offset(&p->y, p->batch_dims, index);
    int64_t bias = tsr__matmul_batch_offset(&p->bias, p->batch_dims, index);

    r->push.a = tsr__matmul_address(call->a, &p->a, a + row * p->a.row);
    r->push.b = tsr__matmul_address(call->b, &p->b, b);
    r->push.y = tsr__matmul_address(call->y, &p->y, y + row * p->y.row);
    if (call->bias)
        r->push.bias = tsr__matmul_address(call->bias, &p->bias, bias + row * p->bias.row);
    return tsr__stream_dispatch(call->stream, &r->dispatch);
}

/* The largest number of rows of a dispatch, within the limit on work. The number of workgroups must
 * fit 32 bits. */
static int64_t most_rows(const wide_run *r, int64_t across)
{
    int64_t rows = tsr__matmul_rows_within_work(r->call);

    rows = tsr__matmul_min(rows, (INT64_C(1) << 31) / across);
    return rows > 0 ? rows : 1;
}

static tsr_status record_all(tsr_stream *stream, void *work)
{
    wide_run *r = work;
    const tsr__matmul_problem *p = r->call->problem;
    int64_t across = (p->n + r->bn - 1) / r->bn;
    int64_t rows = most_rows(r, across);
    int64_t index[TSR__MATMUL_BATCH] = {0};

    do {
        for (int64_t row = 0; row < p->m; row += rows) {
            int64_t count = rows < p->m - row ? rows : p->m - row;
            r->push.m = (uint32_t)count;
            r->dispatch.work = r->dispatch.multiply_adds = tsr__matmul_row_work(p) * (double)count;
            tsr__groups_for((uint64_t)(count * across), 1, r->dispatch.groups);
            TSR__TRY(record_rows(r, index, row));
        }
    } while (!tsr__stream_in_preflight(stream) && tsr__matmul_next_batch(p, p->batch_dims, index));
    return TSR_OK;
}

static bool runs(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    (void)config;
    (void)device;
    return true;
}

static bool fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                 const tsr__matmul_problem *p)
{
    (void)config;
    (void)device;
    (void)p;
    return true;
}

static int pipeline(const tsr__matmul_config *config, const tsr__matmul_variant *variant,
                    tsr__shader *shader, uint32_t spec[TSR__MATMUL_SPEC_MAX])
{
    int count = 0;

    *shader = TSR__SHADER_MATMUL_WIDE;
    spec[count++] = config->threads;
    spec[count++] = variant->a_dtype;
    spec[count++] = variant->b_dtype;
    return count;
}

static tsr_status run(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    const tsr__matmul_problem *p = call->problem;
    wide_run r = {.call = call, .bn = plan->config->bn};

    r.push = (struct tsr_matmul_wide_push){
        .a_row = bytes(&p->a, p->a.row),
        .a_k = bytes(&p->a, p->a.col),
        .b_k = bytes(&p->b, p->b.row),
        .b_col = bytes(&p->b, p->b.col),
        .y_row = bytes(&p->y, p->y.row),
        .y_col = bytes(&p->y, p->y.col),
        .bias_row = bytes(&p->bias, p->bias.row),
        .bias_col = bytes(&p->bias, p->bias.col),
        .n = (uint32_t)p->n,
        .k = (uint32_t)p->k,
        .alpha = p->alpha,
        .mode = tsr__matmul_mode(p),
    };
    r.dispatch =
        (tsr__dispatch){.push = &r.push,
                        .push_bytes = sizeof r.push,
                        .independent_group = tsr__stream_new_independent_group(call->stream)};
    r.dispatch.spec_count =
        pipeline(plan->config, &plan->variant, &r.dispatch.shader, r.dispatch.spec);
    add_access(&r.dispatch, tsr__read_of(call->a));
    add_access(&r.dispatch, tsr__read_of(call->b));
    add_access(&r.dispatch, tsr__write_of(call->y));
    if (call->bias)
        add_access(&r.dispatch, tsr__read_of(call->bias));
    return tsr__stream_atomic(call->stream, record_all, &r);
}

const tsr__matmul_family tsr__matmul_wide = {
    .runs = runs, .fits = fits, .pipeline = pipeline, .run = run};
