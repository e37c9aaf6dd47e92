/* tessera bench random: random numbers on the device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/bench.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

#define COUNT ((uint64_t)1 << 22)
#define SEED 42

static const tsr_random_params source = {.struct_size = sizeof source, .seed = SEED};

typedef struct numbers {
    bench_context *context;
    const struct kind *kind;
    float *x, *y;
    tsr_tensor *device_x, *device_y;
} numbers;

/* A distribution, and the function that checks a number against the random word from which it was
 * made. */
typedef struct kind {
    const char *name;
    double accesses; /* number of elements that are read and written per random number */
    tsr_status (*run)(tsr_stream *stream, void *user);
    double (*got)(float y, uint32_t word, float x), (*want)(uint32_t word, float x);
    double tolerance;
} kind;

static tsr_status normal(tsr_stream *stream, void *user)
{
    return tsr_random_normal(stream, ((numbers *)user)->device_y, 0, 1, &source);
}

/* For the normal distribution. Half of all random words give numbers below 0, the other half above.
 * tail_of_number gives the logarithm of the probability of a value that is further from 0 than the
 * number, on the same side; the next function computes this logarithm from the random word. */
static double tail_of_number(float y, uint32_t word, float x)
{
    (void)x;
    double z = word >> 31 != 0 ? (double)y : -(double)y;
    return log(0.5 * erfc(z / sqrt(2)));
}

static double tail_of_word(uint32_t word, float x)
{
    (void)x;
    return log(((double)(word >> 31 != 0 ? ~word : word) + 0.5) * 0x1p-32);
}

static tsr_status uniform(tsr_stream *stream, void *user)
{
    return tsr_random_uniform(stream, ((numbers *)user)->device_y, 0, 1, &source);
}

static double number_itself(float y, uint32_t word, float x)
{
    (void)word;
    (void)x;
    return (double)y;
}

static double want_uniform(uint32_t word, float x)
{
    (void)x;
    return (double)(word >> 8) * 0x1p-24;
}

static tsr_status dropout(tsr_stream *stream, void *user)
{
    numbers *test = user;
    return tsr_dropout(stream, test->device_y, test->device_x, 0.25f, &source);
}

static double want_dropout(uint32_t word, float x)
{
    return word >= 0x40000000u ? (double)x / 0.75 : 0;
}

static const kind kinds[] = {
    {"normal", 1, normal, tail_of_number, tail_of_word, 1e-5},
    {"uniform", 1, uniform, number_itself, want_uniform, 0},
    {"dropout, p = 0.25", 2, dropout, number_itself, want_dropout, 0x1p-22},
};

static bool create(numbers *test)
{
    bench_context *context = test->context;
    const int64_t shape[] = {COUNT};
    test->x = cli_alloc(COUNT, sizeof(float));
    test->y = cli_alloc(COUNT, sizeof(float));
    bench_random_values(test->x, COUNT, TSR_F32, 81);
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 1, shape, &test->device_x));
    BENCH_TRY(context, tsr_tensor_create(context->device, TSR_F32, 1, shape, &test->device_y));
    BENCH_TRY(context,
              tsr_tensor_upload(context->stream, test->device_x, test->x, COUNT * sizeof(float)));
    return true;
}

static void finish(numbers *test)
{
    tsr_tensor_destroy(&test->device_x);
    tsr_tensor_destroy(&test->device_y);
    free(test->x);
    free(test->y);
}

/* Checks the device's random numbers: the host computes the random word of each number and the
 * distribution's function checks the number. Must be called after one or more runs. */
static bool verify(numbers *test, bench_row *row)
{
    bench_context *context = test->context;
    const kind *which = test->kind;
    tsr_rng words;
    BENCH_TRY(context,
              tsr_tensor_download(context->stream, test->device_y, test->y, COUNT * sizeof(float)));
    BENCH_TRY(context, tsr_rng_init(TSR_RNG_PHILOX, SEED, 0, &words));
    bench_check_begin(&row->check, "every number against the host's generator");
    for (uint64_t i = 0; i < COUNT; i++) {
        uint32_t word = tsr_rng_next_u32(&words);
        bench_check_value(&row->check, 0, (int64_t)i, which->got(test->y[i], word, test->x[i]),
                          which->want(word, test->x[i]), which->tolerance);
    }
    return bench_verified(context, row);
}

static bool measure_random_numbers(numbers *test, const kind *which)
{
    bench_context *context = test->context;
    test->kind = which;
    bench_row *row = bench_add(context, "random", BENCH_GBYTES,
                               which->accesses * (double)(COUNT * sizeof(float)));
    bench_text(row, "what", "%s", which->name);
    bench_text(row, "dtype", "%s", tsr_dtype_name(TSR_F32));
    bench_integer(row, "numbers", COUNT);
    row->memory = bench_memory_peak(context);
    if (row->memory == NULL)
        return false;
    BENCH_TRY(context, which->run(context->stream, test));
    return verify(test, row) &&
           bench_measure(context, row, &(bench_task){.run = which->run, .user = test}) &&
           verify(test, row);
}

static bool run_random_numbers(bench_context *context)
{
    numbers test = {.context = context};
    bool done = create(&test);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && done; i++)
        done = measure_random_numbers(&test, &kinds[i]);
    finish(&test);
    return done;
}

const bench bench_random_fill = {
    .name = "random",
    .summary = "random numbers and dropout on the device; GB/s",
    .help = "4.2 million f32 from Philox4x32-10; caches may hold them. GB/s count what is written, "
            "and for dropout also what is read.\n",
    .run = run_random_numbers,
};
