/* The ceiling of matmul: multiply-adds in registers. */
#include <math.h>
#include <stdlib.h>

#include "bench/bench.h"
#include "bench/clock.h"
#include "bench/data.h"
#include "cli/memory.h"

static const uint32_t code[] =
#include "bench/fma_peak.inc"
    ;

#define NAME "fma_peak"
#define LANES 128 /* the shader's workgroup; all workgroups compute the same */
#define CONSTANTS ((size_t)3 * LANES)
#define STEPS_IN_ROUND 16
#define MOST_ROUNDS (1u << 14)
#define LONG_ENOUGH_NS 5e6
#define MOST_VECTORS 4
/* Longer chains round more often; and a loop that ran some per cent short must still show. */
#define TOLERANCE 2e-3

typedef struct peak {
    bench_context *context;
    tsr_kernel *kernel;
    tsr_tensor *constants, *result;
    uint32_t vectors, groups, rounds;
} peak;

static tsr_status run_peak(tsr_stream *stream, void *user)
{
    peak *test = user;
    return tsr_kernel_run(stream, test->kernel,
                          (tsr_kernel_argument[]){{test->constants, false}, {test->result, true}},
                          &test->rounds, (uint32_t[]){test->groups, 1, 1});
}

/* With N steps ahead, a = 1 − c/N and b ~ 1/N: the chains keep moving until the last step instead
 * of settling early, so that their end depends on every step having been done. */
static void choose_constants(float constants[CONSTANTS], double steps)
{
    float random[CONSTANTS];
    bench_random_values(random, CONSTANTS, TSR_F32, 5);
    for (int i = 0; i < LANES; i++) {
        constants[i] = (float)(1 - (1.5 + (double)random[i] / 2) / steps);
        constants[LANES + i] = (float)((1.5 + (double)random[LANES + i] / 2) / steps);
        constants[2 * LANES + i] = 2 + random[2 * LANES + i] / 2;
    }
}

/* The chain's end in closed form: a^N·c + b·(1 − a^N)/(1 − a). */
static double chain_end(double a, double b, double start, double steps)
{
    double power = exp(steps * log(a));
    return power * start + b * (1 - power) / (1 - a);
}

static void check_peak(bench_check *check, const peak *test, const float *constants,
                       const float *result)
{
    double steps = (double)test->rounds * STEPS_IN_ROUND;
    bench_check_begin(check, "every invocation's sum against the recurrence's closed form");
    double want[LANES] = {0};
    for (int lane = 0; lane < LANES; lane++)
        for (uint32_t chain = 0; chain < 4 * test->vectors; chain++) {
            double start = (double)constants[2 * LANES + lane] + 0.0625 * chain;
            want[lane] +=
                chain_end((double)constants[lane], (double)constants[LANES + lane], start, steps);
        }
    for (uint32_t group = 0; group < test->groups; group++)
        for (int lane = 0; lane < LANES; lane++)
            bench_check_value(check, group, lane, (double)result[group * LANES + (uint32_t)lane],
                              want[lane], want[lane] * TOLERANCE);
}

static bool verify(peak *test, bench_check *check)
{
    bench_context *context = test->context;
    float constants[CONSTANTS];
    uint64_t count = (uint64_t)test->groups * LANES, size = count * sizeof(float);
    choose_constants(constants, (double)test->rounds * STEPS_IN_ROUND);
    BENCH_TRY(context,
              tsr_tensor_upload(context->stream, test->constants, constants, sizeof constants));
    BENCH_TRY(context, run_peak(context->stream, test));
    float *result = cli_alloc(count, sizeof *result);
    tsr_status status = tsr_tensor_download(context->stream, test->result, result, size);
    if (status == TSR_OK)
        check_peak(check, test, constants, result);
    free(result);
    BENCH_TRY(context, status);
    return true;
}

static bool create(peak *test)
{
    bench_context *context = test->context;
    test->groups = context->info->type == TSR_DEVICE_CPU ? 64 : 4096;
    test->rounds = 16;
    BENCH_TRY(context,
              tsr_kernel_create(context->device,
                                tsr_kernel_params(.spirv = code,
                                                  .spirv_words = sizeof code / sizeof code[0],
                                                  .name = NAME, .tensor_count = 2,
                                                  .scalar_bytes = sizeof test->rounds,
                                                  .constants = &test->vectors, .constant_count = 1),
                                &test->kernel));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 1,
                                         (int64_t[]){(int64_t)CONSTANTS}, &test->constants));
    BENCH_TRY(context,
              tsr_tensor_create(context->device, TSR_F32, 1,
                                (int64_t[]){(int64_t)test->groups * LANES}, &test->result));
    return true;
}

/* Rounds enough that starting the dispatch costs nothing next to them. */
static bool lengthen(peak *test)
{
    bench_check ignored;
    if (!verify(test, &ignored)) /* also builds the pipeline */
        return false;
    for (;;) {
        double start = bench_now_ns();
        BENCH_TRY(test->context, run_peak(test->context->stream, test));
        BENCH_TRY(test->context, tsr_stream_wait(test->context->stream));
        if (bench_now_ns() - start >= LONG_ENOUGH_NS || test->rounds >= MOST_ROUNDS)
            return true;
        test->rounds *= 2;
    }
}

static const bench_row *measure(peak *test)
{
    bench_context *context = test->context;
    if (!create(test) || !lengthen(test))
        return NULL;
    double chains = 4.0 * test->vectors, steps = (double)test->rounds * STEPS_IN_ROUND;
    bench_row *row =
        bench_add(context, NAME, BENCH_GFLOPS, 2.0 * chains * steps * LANES * (double)test->groups);
    row->is_ceiling = true;
    bench_text(row, "dtype", "f32");
    bench_integer(row, "chains", (int64_t)chains);
    if (!verify(test, &row->check) ||
        !bench_measure(context, row, &(bench_task){.run = run_peak, .user = test}))
        return NULL;
    return row;
}

static void finish(peak *test)
{
    tsr_kernel_destroy(&test->kernel);
    tsr_tensor_destroy(&test->constants);
    tsr_tensor_destroy(&test->result);
}

const bench_row *bench_fma_peak(bench_context *context)
{
    if (context->fma_peak != NULL)
        return context->fma_peak;
    const bench_row *best = NULL;
    for (uint32_t vectors = 2; vectors <= MOST_VECTORS; vectors++) {
        peak test = {.context = context, .vectors = vectors};
        const bench_row *row = measure(&test);
        finish(&test);
        if (row == NULL)
            return NULL;
        if (best == NULL || bench_median(row) > bench_median(best))
            best = row;
    }
    context->fma_peak = best;
    return best;
}
