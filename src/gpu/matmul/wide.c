#include "gpu/matmul/run.h"

#include "base/checked.h"
#include "shaders/params/matmul.h"

static uint64_t bytes(const tsr__matmul_side *side, int64_t stride)
{
    return (uint64_t)stride * tsr_dtype_size(side->dtype);
}

static void add_access(tsr__dispatch *dispatch, tsr__access access)
{
    dispatch->access[dispatch->access_count++] = access;
}

tsr_status tsr__matmul_run_wide(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    const tsr__matmul_problem *p = call->problem;
    struct tsr_matmul_wide_push push = {
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
    tsr__dispatch dispatch = {.push = &push, .push_bytes = sizeof push};

    dispatch.spec_count =
        tsr__matmul_pipeline(plan->config, &plan->variant, &dispatch.shader, dispatch.spec);
    add_access(&dispatch, tsr__read_of(call->a));
    add_access(&dispatch, tsr__read_of(call->b));
    add_access(&dispatch, tsr__write_of(call->y));
    if (call->bias)
        add_access(&dispatch, tsr__read_of(call->bias));
    TSR__TRY(tsr__stream_prepare(call->stream, &dispatch, 1));

    /* Workgroups are numbered in 32 bits. */
    int64_t across = (p->n + plan->config->bn - 1) / plan->config->bn;
    int64_t rows = (INT64_C(1) << 31) / across;
    int64_t index[TSR__MATMUL_BATCH] = {0};
    do {
        for (int64_t row = 0; row < p->m; row += rows) {
            int64_t count = rows < p->m - row ? rows : p->m - row;
            push.m = (uint32_t)count;
            push.a = tsr__matmul_address(call->a, &p->a,
                                         tsr__matmul_batch_offset(&p->a, p->batch_dims, index) +
                                             row * p->a.row);
            push.b = tsr__matmul_address(call->b, &p->b,
                                         tsr__matmul_batch_offset(&p->b, p->batch_dims, index));
            push.y = tsr__matmul_address(call->y, &p->y,
                                         tsr__matmul_batch_offset(&p->y, p->batch_dims, index) +
                                             row * p->y.row);
            if (call->bias)
                push.bias = tsr__matmul_address(
                    call->bias, &p->bias,
                    tsr__matmul_batch_offset(&p->bias, p->batch_dims, index) + row * p->bias.row);
            tsr__groups_for((uint64_t)(count * across), 1, dispatch.groups);
            TSR__TRY(tsr__stream_dispatch(call->stream, &dispatch));
        }
    } while (tsr__matmul_next_batch(p, p->batch_dims, index));
    return TSR_OK;
}
