/* tessera bench first: the first calls of a process, each of which can be measured only once. */
#include <stdlib.h>

#include "bench/harness/bench.h"
#include "bench/harness/clock.h"
#include "bench/harness/data.h"
#include "bench/harness/reference.h"
#include "cli/lib/memory.h"

typedef struct first {
    bench_context *context;
    bench_shape shape;
    float *x, *w, *y;
    tsr_tensor *device_x, *device_w, *device_y;
} first;

static uint64_t bytes_of(int64_t rows, int64_t columns)
{
    return (uint64_t)rows * (uint64_t)columns * sizeof(float);
}

static bool open_device(first *test)
{
    bench_context *context = test->context;
    BENCH_TRY(context, tsr_device_open(tsr_device_params(.device = context->options->device),
                                       &context->device));
    return true;
}

static bool upload(first *test)
{
    bench_context *context = test->context;
    bench_shape s = test->shape;
    BENCH_TRY(context, tsr_stream_create(context->device, &context->stream));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 2, (int64_t[]){s.m, s.k},
                                         &test->device_x));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 2, (int64_t[]){s.n, s.k},
                                         &test->device_w));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 2, (int64_t[]){s.m, s.n},
                                         &test->device_y));
    BENCH_TRY(context,
              tsr_tensor_upload(context->stream, test->device_x, test->x, bytes_of(s.m, s.k)));
    BENCH_TRY(context,
              tsr_tensor_upload(context->stream, test->device_w, test->w, bytes_of(s.n, s.k)));
    BENCH_TRY(context, tsr_stream_wait(context->stream));
    return true;
}

static bool multiply(first *test)
{
    bench_context *context = test->context;
    BENCH_TRY(context, tsr_matmul(context->stream, test->device_y, test->device_x, test->device_w,
                                  tsr_matmul_params(.transpose_b = true)));
    BENCH_TRY(context, tsr_stream_wait(context->stream));
    return true;
}

static bool verify(first *test, bench_check *check)
{
    bench_context *context = test->context;
    BENCH_TRY(context, tsr_tensor_download(context->stream, test->device_y, test->y,
                                           bytes_of(test->shape.m, test->shape.n)));
    bench_check_matmul(check, &test->shape, test->x, test->w, test->y, TSR_F32, NULL);
    return true;
}

static bool run_steps(first *test)
{
    static const struct {
        const char *name;
        bool (*run)(first *test);
    } steps[] = {
        {"load Vulkan, open the device", open_device},
        {"stream, tensors, upload", upload},
        {"first matmul", multiply},
        {"second matmul", multiply},
    };
    enum { STEPS = sizeof steps / sizeof steps[0] };
    double took[STEPS];
    for (int i = 0; i < STEPS; i++) {
        double start = bench_now_ns();
        if (!steps[i].run(test))
            return false;
        took[i] = bench_now_ns() - start;
    }
    /* The result is verified after the timing, because verifying first would warm up caches. One
     * check of the last step's result covers all steps, because each step uses the results of those
     * before it. */
    bench_use_device(test->context);
    bench_check check;
    if (!verify(test, &check))
        return false;
    for (int i = 0; i < STEPS; i++) {
        bench_row *row = bench_add(test->context, "first", BENCH_TIME, 1);
        bench_text(row, "what", "%s", steps[i].name);
        row->check = check;
        if (!bench_verified(test->context, row))
            return false;
        bench_sample(row, took[i]);
    }
    return true;
}

static bool run_first_use(bench_context *context)
{
    first test = {.context = context, .shape = {256, 256, 256}};
    if (context->options->shape_count == 1)
        test.shape = context->options->shapes[0];
    uint64_t x_count = (uint64_t)(test.shape.m * test.shape.k);
    uint64_t w_count = (uint64_t)(test.shape.n * test.shape.k);
    test.x = cli_alloc(x_count, sizeof *test.x);
    test.w = cli_alloc(w_count, sizeof *test.w);
    test.y = cli_alloc((size_t)(test.shape.m * test.shape.n), sizeof *test.y);
    bench_random_values(test.x, x_count, TSR_F32, 1);
    bench_random_values(test.w, w_count, TSR_F32, 2);
    bool done = run_steps(&test);
    tsr_tensor_destroy(&test.device_x);
    tsr_tensor_destroy(&test.device_w);
    tsr_tensor_destroy(&test.device_y);
    free(test.x);
    free(test.w);
    free(test.y);
    return done;
}

const bench bench_first = {
    .name = "first",
    .summary = "opening the device and the first matmul, in this process",
    .help = "What a process waits for before its first result, once each: opening the device, with "
            "everything that is loaded for it; an upload; the first matmul (f32, 256x256x256 or "
            "--shape), whose kernels are built or read from caches; and the same matmul again. "
            "'launch' runs this in fresh processes.\n",
    .takes = BENCH_SHAPES | BENCH_ONE_SHAPE,
    .opens_device = true,
    .alone = true,
    .run = run_first_use,
};
