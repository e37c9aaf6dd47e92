/* The ceiling of arithmetic: multiply-adds in registers. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

static const uint32_t code_f32[] =
#include "bench/fma_peak.inc"
    ;
static const uint32_t code_f16[] =
#include "bench/fma_peak_f16.inc"
    ;

#define NAME "fma_peak"
#define LANES 128 /* invocations in a workgroup of the shader; all workgroups compute the same */
#define CONSTANTS ((size_t)3 * LANES)
#define MAX_ROUNDS (1u << 14)
#define MAX_VECTORS 4

/* What differs between the measurements for f32 and f16. */
typedef struct variant {
    tsr_dtype dtype;
    const uint32_t *code;
    uint64_t code_bytes;
    uint32_t steps_in_round;
    const char *method;
    double tolerance; /* the largest relative error of the sum that is accepted */
    void (*choose)(float constants[CONSTANTS], double rounds);
    /* Computes the sum that each invocation of the shader must write. */
    double (*sum)(double a, double b, double start, uint32_t chains, uint32_t rounds);
} variant;

typedef struct peak {
    bench_context *context;
    const variant *kind;
    tsr_kernel *kernel;
    tsr_tensor *constants, *result;
    uint32_t vectors, groups, rounds;
} peak;

static tsr_status run_peak(tsr_stream *stream, void *user)
{
    peak *test = user;
    return tsr_kernel_run(
        stream, test->kernel,
        (tsr_kernel_argument[]){tsr_kernel_argument(.tensor = test->constants),
                                tsr_kernel_argument(.tensor = test->result, .written = true)},
        &test->rounds, (uint32_t[]){test->groups, 1, 1});
}

/* f32: a chain of N steps uses a = 1 − c/N, where c is a constant, and b of about 1/N. With these
 * values the chain is still changing at its last step, so that the result shows whether any step
 * was left out. */
#define STEPS_F32 16

static void choose_f32(float constants[CONSTANTS], double rounds)
{
    float random[CONSTANTS];
    double steps = rounds * STEPS_F32;
    bench_random_values(random, CONSTANTS, TSR_F32, 5);
    for (int i = 0; i < LANES; i++) {
        constants[i] = (float)(1 - (1.5 + (double)random[i] / 2) / steps);
        constants[LANES + i] = (float)((1.5 + (double)random[LANES + i] / 2) / steps);
        constants[2 * LANES + i] = 2 + random[2 * LANES + i] / 2;
    }
}

/* Returns the sum that an f32 invocation must write: the final values of all chains, from the
 * formula a^N·c + b·(1 − a^N)/(1 − a) for a chain that starts at c. */
static double sum_f32(double a, double b, double start, uint32_t chains, uint32_t rounds)
{
    double power = exp((double)rounds * STEPS_F32 * log(a)), sum = 0;
    for (uint32_t chain = 0; chain < chains; chain++)
        sum += power * (start + 0.0625 * chain) + b * (1 - power) / (1 - a);
    return sum;
}

/* f16: a is 1, and all values are multiples of 1/16 below 64, which f16 represents exactly. The
 * values of the chains increase in one round and decrease in the next. */
#define STEPS_F16 64

static void choose_f16(float constants[CONSTANTS], double rounds)
{
    (void)rounds;
    for (size_t i = 0; i < LANES; i++) {
        constants[i] = 1;
        constants[LANES + i] = (float)(1 + bench_random(5, i) % 14) / 16;
        constants[(size_t)2 * LANES + i] = (float)(bench_random(6, i) % 32) / 16;
    }
}

/* Returns the sum that an f16 invocation must write: the first chain's values after every round,
 * plus the final values of all chains. */
static double sum_f16(double a, double b, double start, uint32_t chains, uint32_t rounds)
{
    (void)a;
    uint32_t down = rounds / 2, up = rounds - down;
    double top = start + b * STEPS_F16, sum = 0;
    for (uint32_t chain = 0; chain < chains; chain++)
        sum += (up > down ? top : start) + 0.0625 * chain;
    return sum + top * up + start * down;
}

static const variant f32 = {
    .dtype = TSR_F32,
    .code = code_f32,
    .code_bytes = sizeof code_f32,
    .steps_in_round = STEPS_F32,
    .method = "every invocation's sum against the recurrence's closed form",
    /* The tolerance is larger than the rounding errors of the longest chains, and small enough to
     * detect a loop that had a few per cent too few steps. */
    .tolerance = 2e-3,
    .choose = choose_f32,
    .sum = sum_f32,
};

static const variant f16 = {
    .dtype = TSR_F16,
    .code = code_f16,
    .code_bytes = sizeof code_f16,
    .steps_in_round = STEPS_F16,
    .method = "every invocation's sum of what each round reached",
    .tolerance = 1e-6, /* less than what one round adds to the sum of MAX_ROUNDS rounds */
    .choose = choose_f16,
    .sum = sum_f16,
};

static void check_peak(bench_check *check, const peak *test, const float *constants,
                       const float *result)
{
    const variant *kind = test->kind;
    bench_check_begin(check, kind->method);
    for (int lane = 0; lane < LANES; lane++) {
        double want =
            kind->sum((double)constants[lane], (double)constants[LANES + lane],
                      (double)constants[2 * LANES + lane], 4 * test->vectors, test->rounds);
        for (uint32_t group = 0; group < test->groups; group++)
            bench_check_value(check, group, lane, (double)result[group * LANES + (uint32_t)lane],
                              want, want * kind->tolerance);
    }
}

static bool verify(peak *test, bench_check *check)
{
    bench_context *context = test->context;
    float constants[CONSTANTS];
    uint64_t count = (uint64_t)test->groups * LANES, size = count * sizeof(float);
    test->kind->choose(constants, test->rounds);
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
    BENCH_TRY(
        context,
        tsr_kernel_create(context->device,
                          tsr_kernel_params(.spirv = test->kind->code,
                                            .spirv_words = test->kind->code_bytes / 4, .name = NAME,
                                            .tensor_count = 2, .scalar_bytes = sizeof test->rounds,
                                            .constants = &test->vectors, .constant_count = 1),
                          &test->kernel));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 1,
                                         (int64_t[]){(int64_t)CONSTANTS}, &test->constants));
    BENCH_TRY(context,
              tsr_tensor_create(context->device, TSR_F32, 1,
                                (int64_t[]){(int64_t)test->groups * LANES}, &test->result));
    return true;
}

static bool lengthen(peak *test)
{
    bench_check ignored;
    return verify(test, &ignored) && /* the run that is verified also builds the pipeline */
           bench_lengthen(test->context, &(bench_task){.run = run_peak, .user = test},
                          &test->rounds, MAX_ROUNDS);
}

static void finish(peak *test)
{
    tsr_kernel_destroy(&test->kernel);
    tsr_tensor_destroy(&test->constants);
    tsr_tensor_destroy(&test->result);
}

static bool measure_again(bench_context *context, bench_row *row);

/* Measures the ceiling and stores it in `row`, or in a new row of the results if `row` is NULL.
 * Returns the row, or NULL on failure. */
static bench_row *measure_fma(peak *test, bench_row *row)
{
    bench_context *context = test->context;
    double chains = 4.0 * test->vectors;
    if (!create(test) || (row == NULL && !lengthen(test)))
        return NULL;
    double round_work =
        2.0 * chains * (double)test->kind->steps_in_round * LANES * (double)test->groups;
    if (row == NULL) {
        row = bench_add(context, NAME, BENCH_GFLOPS, round_work * test->rounds);
        row->is_ceiling = true;
        row->again = measure_again;
        bench_text(row, "dtype", "%s", tsr_dtype_name(test->kind->dtype));
        bench_integer(row, "chains", (int64_t)chains);
    }
    test->rounds = (uint32_t)(row->work / round_work);
    if (!verify(test, &row->check) ||
        !bench_measure(context, row, &(bench_task){.run = run_peak, .user = test}))
        return NULL;
    return row;
}

static bool measure_again(bench_context *context, bench_row *row)
{
    bool is_f16 = strcmp(row->params[0].text, tsr_dtype_name(TSR_F16)) == 0;
    peak test = {.context = context,
                 .kind = is_f16 ? &f16 : &f32,
                 .vectors = (uint32_t)atoi(row->params[1].text) / 4};
    bool done = measure_fma(&test, row) != NULL;
    finish(&test);
    return done;
}

static const bench_row *measure_best(bench_context *context, const variant *kind)
{
    const bench_row *best = NULL;
    for (uint32_t vectors = 1; vectors <= MAX_VECTORS; vectors++) {
        peak test = {.context = context, .kind = kind, .vectors = vectors};
        const bench_row *row = measure_fma(&test, NULL);
        finish(&test);
        if (row == NULL)
            return NULL;
        if (best == NULL || bench_median(row) > bench_median(best))
            best = row;
    }
    return best;
}

const bench_row *bench_fma_peak(bench_context *context)
{
    if (context->fma_peak == NULL)
        context->fma_peak = measure_best(context, &f32);
    return context->fma_peak;
}

const bench_row *bench_fma_peak_f16(bench_context *context)
{
    if (context->fma_peak_f16 == NULL)
        context->fma_peak_f16 = measure_best(context, &f16);
    return context->fma_peak_f16;
}
