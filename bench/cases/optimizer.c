/* tessera bench optimizer: one step of AdamW or SGD. */
#include <math.h>
#include <stdlib.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/bench.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

#define COUNT ((uint64_t)1 << 23) /* elements of each tensor: more than caches hold */

static const tsr_adamw_params adamw = {.struct_size = sizeof adamw,
                                       .learning_rate = 0.01f,
                                       .beta1 = 0.9f,
                                       .beta2 = 0.99f,
                                       .weight_decay = 0.1f,
                                       .step = 3};
static const tsr_sgd_params sgd = {.struct_size = sizeof sgd,
                                   .learning_rate = 0.01f,
                                   .momentum = 0.9f,
                                   .weight_decay = 0.1f,
                                   .nesterov = true};

typedef enum state { PARAMETER, GRADIENT, FIRST, SECOND, MASTER, STATES } state;

typedef struct method {
    const char *name;
    /* The dtype of the parameter and its gradient. If it is not f32, there is a master copy. */
    tsr_dtype dtype;
    bool second; /* the optimizer has a second moment (AdamW) */
    void (*step)(double x[STATES]);
} method;

typedef struct optimizer {
    bench_context *context;
    const method *how;
    float *values[STATES], *results[STATES];
    void *bytes;
    tsr_tensor *device[STATES];
} optimizer;

/* The following functions compute the expected results: one step as torch.optim.AdamW and
 * torch.optim.SGD define it. */
static void adamw_step(double x[STATES])
{
    const double rate = (double)adamw.learning_rate, beta1 = (double)adamw.beta1,
                 beta2 = (double)adamw.beta2;
    x[PARAMETER] -= rate * (double)adamw.weight_decay * x[PARAMETER];
    x[FIRST] = beta1 * x[FIRST] + (1 - beta1) * x[GRADIENT];
    x[SECOND] = beta2 * x[SECOND] + (1 - beta2) * x[GRADIENT] * x[GRADIENT];
    /* The bias correction of the third step, without calling pow() for each element. */
    double mean = x[FIRST] / (1 - beta1 * beta1 * beta1);
    double square = x[SECOND] / (1 - beta2 * beta2 * beta2);
    x[PARAMETER] -= rate * mean / (sqrt(square) + 1e-8);
}

static void sgd_step(double x[STATES])
{
    double gradient = x[GRADIENT] + (double)sgd.weight_decay * x[PARAMETER];
    x[FIRST] = (double)sgd.momentum * x[FIRST] + gradient;
    x[PARAMETER] -= (double)sgd.learning_rate * (gradient + (double)sgd.momentum * x[FIRST]);
}

static const method methods[] = {
    {"AdamW", TSR_F32, true, adamw_step},
    {"AdamW", TSR_BF16, true, adamw_step},
    {"SGD, Nesterov momentum", TSR_F32, false, sgd_step},
};

static bool has(const method *how, state which)
{
    return which == SECOND ? how->second : which == MASTER ? how->dtype != TSR_F32 : true;
}

static tsr_dtype dtype_of(const method *how, state which)
{
    return which == PARAMETER || which == GRADIENT ? how->dtype : TSR_F32;
}

static tsr_status step(tsr_stream *stream, void *user)
{
    optimizer *test = user;
    tsr_tensor **on = test->device;
    return test->how->second
               ? tsr_adamw_step(stream, on[PARAMETER], on[GRADIENT], on[FIRST], on[SECOND],
                                on[MASTER], &adamw)
               : tsr_sgd_step(stream, on[PARAMETER], on[GRADIENT], on[FIRST], on[MASTER], &sgd);
}

static bool create(optimizer *test)
{
    bench_context *context = test->context;
    const int64_t shape[] = {COUNT};
    test->bytes = cli_alloc(COUNT, sizeof(float));
    for (state i = 0; i < STATES; i++) {
        if (!has(test->how, i))
            continue;
        test->values[i] = cli_alloc(COUNT, sizeof(float));
        test->results[i] = cli_alloc(COUNT, sizeof(float));
        bench_random_values(test->values[i], COUNT, dtype_of(test->how, i), 71 + i);
        BENCH_TRY(context, tsr_tensor_create(context->device, dtype_of(test->how, i), 1, shape,
                                             &test->device[i]));
    }
    /* A second moment is a mean of squares, so it must be positive. */
    for (uint64_t i = 0; i < COUNT && test->how->second; i++)
        test->values[SECOND][i] = 0.01f + fabsf(test->values[SECOND][i]);
    return true;
}

static void finish(optimizer *test)
{
    for (state i = 0; i < STATES; i++) {
        tsr_tensor_destroy(&test->device[i]);
        free(test->values[i]);
        free(test->results[i]);
    }
    free(test->bytes);
}

static bool upload(optimizer *test)
{
    bench_context *context = test->context;
    for (state i = 0; i < STATES; i++) {
        tsr_dtype dtype = dtype_of(test->how, i);
        if (!has(test->how, i))
            continue;
        bench_encode(dtype, test->values[i], COUNT, test->bytes);
        BENCH_TRY(context, tsr_tensor_upload(context->stream, test->device[i], test->bytes,
                                             COUNT * tsr_dtype_size(dtype)));
    }
    return true;
}

static bool download(optimizer *test)
{
    bench_context *context = test->context;
    for (state i = 0; i < STATES; i++) {
        tsr_dtype dtype = dtype_of(test->how, i);
        if (!has(test->how, i))
            continue;
        BENCH_TRY(context, tsr_tensor_download(context->stream, test->device[i], test->bytes,
                                               COUNT * tsr_dtype_size(dtype)));
        bench_decode(dtype, test->bytes, COUNT, test->results[i]);
    }
    return true;
}

/* The step updates the master copy, and the parameter is its rounded value. */
static void check_element(const optimizer *test, bench_check *check, uint64_t element)
{
    double x[STATES] = {0};
    const bool has_master = has(test->how, MASTER);
    for (state i = 0; i < STATES; i++)
        x[i] = has(test->how, i) ? (double)test->values[i][element] : 0;
    if (has_master)
        x[PARAMETER] = x[MASTER];
    test->how->step(x);
    x[MASTER] = x[PARAMETER];
    for (state i = 0; i < STATES; i++) {
        tsr_dtype dtype = dtype_of(test->how, i);
        double rounding =
            8 * bench_rounding(TSR_F32) + (dtype == TSR_F32 ? 0 : bench_rounding(dtype));
        if (has(test->how, i))
            bench_check_value(check, (int64_t)i, (int64_t)element,
                              (double)test->results[i][element], x[i],
                              rounding * fmax(1, fabs(x[i])));
    }
}

/* Makes one step from the initial values, and checks it. */
static bool verify(optimizer *test, bench_row *row)
{
    bench_context *context = test->context;
    if (!upload(test))
        return false;
    BENCH_TRY(context, step(context->stream, test));
    if (!download(test))
        return false;
    bench_check_begin(&row->check, "every element after a step, in double precision");
    for (uint64_t i = 0; i < COUNT; i++)
        check_element(test, &row->check, i);
    return bench_verified(context, row);
}

/* Returns the number of bytes that a step reads and writes. The gradient is read. If there is a
 * master copy, the parameter is only written. All other tensors are read and written. */
static double bytes_of(const method *how)
{
    double bytes = 0;
    for (state i = 0; i < STATES; i++) {
        bool once = i == GRADIENT || (i == PARAMETER && has(how, MASTER));
        if (has(how, i))
            bytes += (double)(COUNT * tsr_dtype_size(dtype_of(how, i))) * (once ? 1 : 2);
    }
    return bytes;
}

static bool measure_optimizer(optimizer *test)
{
    bench_context *context = test->context;
    const bench_row *ceiling = bench_memory_peak(context);
    if (ceiling == NULL || !create(test))
        return false;
    bench_row *row = bench_add(context, "optimizer", BENCH_GBYTES, bytes_of(test->how));
    bench_text(row, "what", "%s", test->how->name);
    bench_text(row, "dtype", "%s", tsr_dtype_name(test->how->dtype));
    bench_integer(row, "parameters", COUNT);
    row->memory = ceiling;
    return verify(test, row) &&
           bench_measure(context, row, &(bench_task){.run = step, .user = test}) &&
           verify(test, row);
}

static bool run_optimizer(bench_context *context)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        optimizer test = {.context = context, .how = &methods[i]};
        bool done = measure_optimizer(&test);
        finish(&test);
        if (!done)
            return false;
    }
    return true;
}

const bench bench_optimizer = {
    .name = "optimizer",
    .summary = "steps of AdamW and SGD; GB/s",
    .help =
        "One step of 8.4 million parameters. With bf16, parameters and gradients are bf16, and the "
        "step updates an f32 copy. GB/s count everything that is read and written, once each.\n",
    .run = run_optimizer,
};
