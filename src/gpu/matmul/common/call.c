#include "gpu/matmul/common/call.h"

#include "base/checked.h"
#include "shaders/params/matmul.h"

double tsr__matmul_row_work(const tsr__matmul_problem *problem)
{
    return (double)problem->n * (double)(problem->k > 0 ? problem->k : 1);
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

tsr_status tsr__matmul_finish(const tsr__matmul_call *call, tsr__buffer *partial, uint32_t ranges,
                              uint32_t matrices, const struct tsr_matmul_push *push)
{
    const uint32_t threads = 64;
    struct tsr_matmul_push sum = *push;
    tsr__dispatch dispatch = {.shader = TSR__SHADER_MATMUL_SUM,
                              .spec_count = 2,
                              .spec = {threads, tsr__matmul_mode(call->problem)},
                              .push = &sum,
                              .push_bytes = sizeof sum,
                              .access_count = call->bias ? 3 : 2};

    sum.a = partial->address;
    sum.k = ranges;
    sum.splits = 1;
    tsr__groups_for((uint64_t)sum.m * sum.n, threads, dispatch.groups);
    dispatch.groups[2] = matrices;
    dispatch.access[0] = tsr__read_buffer(partial);
    dispatch.access[1] = tsr__write_of(call->y);
    if (call->bias)
        dispatch.access[2] = tsr__read_of(call->bias);
    return tsr__stream_dispatch(call->stream, &dispatch);
}
