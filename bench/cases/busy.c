#include "bench/cases/busy.h"

#include <math.h>

#include "bench/harness/clock.h"

/* The numbers of rows and columns of the matrices. On a GPU of 20 TFLOP/s a product takes about a
 * millisecond. */
#define GPU_SIDE 2048
#define CPU_SIDE 384

bool bench_busy_init(bench_context *context, bench_busy *busy)
{
    const int64_t side = context->info->type == TSR_DEVICE_CPU ? CPU_SIDE : GPU_SIDE;
    const int64_t shape[] = {side, side};
    *busy = (bench_busy){.pending = 1};
    BENCH_TRY(context, tsr_stream_create(context->device, &busy->stream));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 2, shape, &busy->x));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 2, shape, &busy->y));
    BENCH_TRY(context, tsr_fill(busy->stream, busy->x, 1));
    /* The first product builds pipelines, the second one is timed. */
    for (int i = 0; i < 2; i++) {
        const double start = bench_now_ns();
        BENCH_TRY(context, bench_busy_fill(busy));
        BENCH_TRY(context, tsr_stream_wait(busy->stream));
        busy->product_ns = bench_now_ns() - start;
    }
    return true;
}

void bench_busy_finish(bench_busy *busy)
{
    tsr_stream_destroy(&busy->stream);
    tsr_tensor_destroy(&busy->x);
    tsr_tensor_destroy(&busy->y);
}

void bench_busy_for(bench_busy *busy, double ns)
{
    const double wanted = ceil(ns / busy->product_ns);
    busy->pending = wanted < BENCH_BUSY_MOST ? (int)wanted : BENCH_BUSY_MOST;
}

tsr_status bench_busy_fill(bench_busy *busy)
{
    tsr_status status = TSR_OK;
    while (status == TSR_OK) {
        /* Products end in order: if the oldest of the last `pending` ones
         * has not ended, none has. */
        const uint64_t wanted = (uint64_t)busy->pending;
        bool reached = busy->count < wanted;
        if (!reached)
            status = tsr_stream_reached(
                busy->stream, busy->points[(busy->count - wanted) % BENCH_BUSY_MOST], &reached);
        if (status != TSR_OK || !reached)
            break;
        status = tsr_matmul(busy->stream, busy->y, busy->x, busy->x, NULL);
        if (status == TSR_OK)
            status = tsr_stream_mark(busy->stream, &busy->points[busy->count++ % BENCH_BUSY_MOST]);
        if (status == TSR_OK)
            status = tsr_stream_submit(busy->stream);
    }
    return status;
}
