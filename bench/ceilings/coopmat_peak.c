/* The ceiling of 16-bit products on devices with cooperative matrices: products of such matrices in
 * registers. */
#include <stdlib.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"
#include "tsr_config.h"

static const uint32_t code[] =
#include "bench/coopmat_peak.inc"
    ;

#define NAME "coopmat_peak"
/* The subgroups in a workgroup: most GPUs have four matrix units per core. */
#define SUBGROUPS 4
#define STEPS_IN_ROUND 8
/* Limits sums to less than 2^24, below which f32 represents integers exactly. */
#define MAX_ROUNDS (1u << 13)
#define MAX_CHAINS 8

typedef struct peak {
    bench_context *context;
    tsr_kernel *kernel;
    tsr_tensor *operands, *result;
    float *a, *b; /* the operands on the host */
    uint32_t m, n, k;
    uint32_t chains, groups, rounds;
} peak;

static tsr_status run_peak(tsr_stream *stream, void *user)
{
    peak *test = user;
    return tsr_kernel_run(
        stream, test->kernel,
        (tsr_kernel_argument[]){tsr_kernel_argument(.tensor = test->operands),
                                tsr_kernel_argument(.tensor = test->result, .written = true)},
        &test->rounds, (uint32_t[]){test->groups, 1, 1});
}

static uint64_t result_count(const peak *test)
{
    return (uint64_t)test->groups * SUBGROUPS * test->m * test->n;
}

/* Fills the operands with integers from -1 to 1, whose sums are exact in any order. */
static bool create_operands(peak *test)
{
    uint64_t a_count = (uint64_t)test->m * test->k, b_count = (uint64_t)test->k * test->n;
    uint64_t count = a_count + b_count, bytes = count * tsr_dtype_size(TSR_F16);
    BENCH_TRY(test->context, tsr_tensor_create(test->context->device, TSR_F16, 1,
                                               (int64_t[]){(int64_t)count}, &test->operands));
    test->a = cli_alloc(count, sizeof *test->a);
    test->b = test->a + a_count;
    for (uint64_t i = 0; i < count; i++)
        test->a[i] = (float)(bench_random(7, i) % 3) - 1;
    void *halves = cli_alloc(bytes, 1);
    bench_encode(TSR_F16, test->a, count, halves);
    tsr_status status = tsr_tensor_upload(test->context->stream, test->operands, halves, bytes);
    free(halves);
    BENCH_TRY(test->context, status);
    return true;
}

static bool create(peak *test)
{
    bench_context *context = test->context;
    const tsr_device_info *info = context->info;
    const tsr_coopmat_shape *shape = tsr_device_coopmat_shape(info, info->coopmat_used);
    test->m = shape->m;
    test->n = shape->n;
    test->k = shape->k;
    test->groups = info->type == TSR_DEVICE_CPU ? 16 : 4096;
    test->rounds = 16;
    const uint32_t constants[] = {SUBGROUPS * info->coopmat_subgroup_size, shape->m, shape->n,
                                  shape->k, test->chains};
    BENCH_TRY(context,
              tsr_kernel_create(
                  context->device,
                  tsr_kernel_params(.spirv = code, .spirv_words = sizeof code / sizeof *code,
                                    .name = NAME, .tensor_count = 2,
                                    .scalar_bytes = sizeof test->rounds, .constants = constants,
                                    .constant_count = sizeof constants / sizeof *constants,
                                    .subgroup_size = info->coopmat_subgroup_size),
                  &test->kernel));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 1,
                                         (int64_t[]){(int64_t)result_count(test)}, &test->result));
    return create_operands(test);
}

/* Returns the expected sum of the chains. Chain c starts with the value c. */
static double expected(const peak *test, uint32_t row, uint32_t col)
{
    double product = 0;
    for (uint32_t k = 0; k < test->k; k++)
        product += (double)test->a[row * test->k + k] * (double)test->b[k * test->n + col];
    double steps = (double)test->rounds * STEPS_IN_ROUND, chains = test->chains;
    return chains * steps * product + chains * (chains - 1) / 2;
}

static void check_peak(bench_check *check, const peak *test, const float *result)
{
    bench_check_begin(check, "every subgroup's sums against integers, exactly");
    for (uint32_t row = 0; row < test->m; row++)
        for (uint32_t col = 0; col < test->n; col++) {
            double want = expected(test, row, col);
            for (uint32_t subgroup = 0; subgroup < test->groups * SUBGROUPS; subgroup++) {
                uint64_t at = ((uint64_t)subgroup * test->m + row) * test->n + col;
                bench_check_value(check, subgroup, row * test->n + col, (double)result[at], want,
                                  0);
            }
        }
}

static bool verify(peak *test, bench_check *check)
{
    bench_context *context = test->context;
    uint64_t count = result_count(test);
    BENCH_TRY(context, run_peak(context->stream, test));
    float *result = cli_alloc(count, sizeof *result);
    tsr_status status =
        tsr_tensor_download(context->stream, test->result, result, count * sizeof *result);
    if (status == TSR_OK)
        check_peak(check, test, result);
    free(result);
    BENCH_TRY(context, status);
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
    tsr_tensor_destroy(&test->operands);
    tsr_tensor_destroy(&test->result);
    free(test->a);
}

static bool measure_again(bench_context *context, bench_row *row);

/* Measures the ceiling and stores it in `row`, or in a new row of the results if `row` is NULL.
 * Returns the row, or NULL on failure. */
static bench_row *measure_coopmat(peak *test, bench_row *row)
{
    bench_context *context = test->context;
    if (!create(test) || (row == NULL && !lengthen(test)))
        return NULL;
    double product = 2.0 * test->m * test->n * test->k;
    double round_work = product * STEPS_IN_ROUND * test->chains * SUBGROUPS * (double)test->groups;
    if (row == NULL) {
        row = bench_add(context, NAME, BENCH_GFLOPS, round_work * test->rounds);
        row->is_ceiling = true;
        row->again = measure_again;
        bench_text(row, "dtype", "%s", tsr_dtype_name(TSR_F16));
        bench_text(row, "shape", "%ux%ux%u", (unsigned)test->m, (unsigned)test->n,
                   (unsigned)test->k);
        bench_integer(row, "chains", test->chains);
    }
    test->rounds = (uint32_t)(row->work / round_work);
    if (!verify(test, &row->check) ||
        !bench_measure(context, row, &(bench_task){.run = run_peak, .user = test}))
        return NULL;
    return row;
}

static bool measure_again(bench_context *context, bench_row *row)
{
    peak test = {.context = context, .chains = (uint32_t)atoi(row->params[2].text)};
    bool done = measure_coopmat(&test, row) != NULL;
    finish(&test);
    return done;
}

/* Returns false for CPU drivers. They multiply cooperative matrices with ordinary arithmetic, which
 * their compilers move out of the measured loop. */
bool bench_has_coopmat(const tsr_device_info *info)
{
    return info->coopmat_used >= 0 && info->type != TSR_DEVICE_CPU;
}

const bench_row *bench_coopmat_peak(bench_context *context)
{
    if (context->coopmat_peak != NULL)
        return context->coopmat_peak;
    const bench_row *best = NULL;
    for (uint32_t chains = 1; chains <= MAX_CHAINS; chains *= 2) {
        peak test = {.context = context, .chains = chains};
        const bench_row *row = measure_coopmat(&test, NULL);
        finish(&test);
        if (row == NULL)
            return NULL;
        if (best == NULL || bench_median(row) > bench_median(best))
            best = row;
    }
    context->coopmat_peak = best;
    return best;
}
