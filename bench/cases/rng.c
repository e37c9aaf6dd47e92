/* tessera bench rng: the time for one number of each generator. */
#include <stdlib.h>

#include "bench/harness/bench.h"
#include "cli/lib/memory.h"

#define SEED 42
/* The number of random numbers that are verified. Their sum is exact in a double. */
#define WORDS ((uint64_t)1 << 20)
#define CHUNK 65536

typedef struct generator {
    tsr_rng rng;
    uint32_t *bits;
    /* the sum of the numbers drawn, so that the compiler cannot leave out the calls */
    uint64_t sum;
} generator;

static tsr_status draw_words(tsr_stream *stream, void *user)
{
    (void)stream;
    generator *drawn = user;
    for (int i = 0; i < CHUNK; i++)
        drawn->sum += tsr_rng_next_u32(&drawn->rng);
    return TSR_OK;
}

static tsr_status draw_dotnet(tsr_stream *stream, void *user)
{
    (void)stream;
    generator *drawn = user;
    for (int i = 0; i < CHUNK; i++)
        drawn->sum += (uint64_t)tsr_dotnet_next(&drawn->rng.as.dotnet);
    return TSR_OK;
}

static tsr_status draw_bits(tsr_stream *stream, void *user)
{
    (void)stream;
    generator *drawn = user;
    return tsr_threefry_bits(tsr_threefry_key_from_seed(SEED), 4, WORDS, drawn->bits);
}

/* The expected sums were computed by programs that share nothing with the library: CPython's
 * Mersenne Twister, and the definitions of the other generators in Python. */
static const struct {
    const char *name, *what;
    tsr_rng_kind kind;
    tsr_status (*draw)(tsr_stream *stream, void *user);
    uint64_t work;
    double sum;
} cases[] = {
    {"philox", "next_u32", TSR_RNG_PHILOX, draw_words, CHUNK, 2250829779802441},
    {"mt19937", "next_u32", TSR_RNG_MT19937, draw_words, CHUNK, 2252510386737721},
    {"dotnet", "Next()", TSR_RNG_DOTNET, draw_dotnet, CHUNK, 1125579144299285},
    {"threefry", "next_u32", TSR_RNG_THREEFRY, draw_words, CHUNK, 2254229260944640},
    {"threefry", "bits, 2^20 at once", TSR_RNG_THREEFRY, draw_bits, WORDS, 2252275512747516},
};

static bool measure_generators(bench_context *context, generator *drawn, size_t which)
{
    bench_row *row = bench_add(context, "rng", BENCH_TIME, (double)cases[which].work);
    bench_text(row, "generator", "%s", cases[which].name);
    bench_text(row, "what", "%s", cases[which].what);
    drawn->sum = 0;
    BENCH_TRY(context, tsr_rng_init(cases[which].kind, SEED, 0, &drawn->rng));
    for (uint64_t done = 0; done < WORDS; done += cases[which].work)
        BENCH_TRY(context, cases[which].draw(NULL, drawn));
    for (uint64_t i = 0; cases[which].draw == draw_bits && i < WORDS; i++)
        drawn->sum += drawn->bits[i];
    bench_check_begin(&row->check, "the sum of the first 2^20 numbers against other programs");
    bench_check_value(&row->check, 0, 0, (double)drawn->sum, cases[which].sum, 0);
    return bench_measure(context, row,
                         &(bench_task){.run = cases[which].draw, .user = drawn, .host_only = true});
}

static bool run_generators(bench_context *context)
{
    generator *drawn = cli_alloc(1, sizeof *drawn);
    drawn->bits = cli_alloc(WORDS, sizeof *drawn->bits);
    bool done = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && done; i++)
        done = measure_generators(context, drawn, i);
    free(drawn->bits);
    free(drawn);
    return done;
}

const bench bench_rng = {
    .name = "rng",
    .summary = "time per random number of each generator",
    .help =
        "32-bit words (for .NET, results of Next()), one call each, on one CPU; for threefry also "
        "in the layout of MLX's random.bits. Verified by sums that other programs computed.\n",
    .host_only = true,
    .run = run_generators,
};
