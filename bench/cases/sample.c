/* tessera bench sample: the time for the next index of a sampler. */
#include <math.h>
#include <stdlib.h>

#include "bench/cases/sample_memory.h"
#include "bench/harness/bench.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

#define CHUNK 4096

typedef struct reader {
    tsr_sampler *sampler;
    int64_t epoch;
    int64_t indices[CHUNK];
} reader;

#define RANKS SAMPLE_RANKS
#define RANK SAMPLE_RANK

static tsr_status read_chunk(tsr_stream *stream, void *user)
{
    (void)stream;
    reader *self = user;
    uint64_t count;
    tsr_status status = tsr_sampler_fill(self->sampler, CHUNK, self->indices, NULL, &count);
    /* An epoch has more indices than one repetition reads, but ends after many repetitions; go on
     * with the next epoch then. */
    if (status == TSR_OK && count < CHUNK)
        status = tsr_sampler_set_epoch(self->sampler, ++self->epoch);
    return status;
}

static bool read_chunks(bench_context *context, bench_row *row, reader *self)
{
    return bench_measure(context, row,
                         &(bench_task){.run = read_chunk, .user = self, .host_only = true});
}

/* Feistel ------------------------------------------------------------------------------------- */

#define ITEMS UINT64_C(1000000000000)
#define FAR UINT64_C(100000000000)
#define SEEKS 1000

static tsr_status read_singly(tsr_stream *stream, void *user)
{
    (void)stream;
    reader *self = user;
    uint64_t got;
    for (int i = 0; i < CHUNK; i++) {
        tsr_status status = tsr_sampler_next(self->sampler, 1, &self->indices[i], NULL, &got);
        if (status != TSR_OK)
            return status;
    }
    return TSR_OK;
}

/* Jumps to a position far away and reads the index there. */
static tsr_status read_far(tsr_stream *stream, void *user)
{
    (void)stream;
    reader *self = user;
    uint64_t got;
    for (uint64_t i = 0; i < SEEKS; i++) {
        tsr_status status = tsr_sampler_seek(self->sampler, FAR + i * 1234567);
        if (status == TSR_OK)
            status = tsr_sampler_next(self->sampler, 1, &self->indices[i], NULL, &got);
        if (status != TSR_OK)
            return status;
    }
    return TSR_OK;
}

/* Checks with the inverse of the permutation: it must map each index to the position from which the
 * index was read. */
static void check_feistel(bench_row *row, const reader *self, const tsr_feistel *order,
                          uint64_t count, uint64_t first, uint64_t step)
{
    bench_check_begin(&row->check, "the permutation's inverse gives back each position");
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = (uint64_t)self->indices[i];
        bench_check_value(&row->check, 0, (int64_t)i, index < ITEMS, 1, 0);
        if (index < ITEMS)
            bench_check_value(&row->check, 1, (int64_t)i, (double)tsr_feistel_find(order, index),
                              (double)(first + i * step), 0);
    }
}

static bool measure_feistel(bench_context *context, reader *self, const char *what, uint64_t count,
                            uint64_t first, uint64_t step,
                            tsr_status (*read)(tsr_stream *stream, void *user))
{
    bench_row *row = bench_add(context, "sample", BENCH_TIME, (double)count);
    bench_text(row, "what", "%s", what);
    bench_integer(row, "items", (int64_t)ITEMS);
    tsr_feistel order;
    BENCH_TRY(context, tsr_feistel_init(ITEMS, 7, 0, 0, &order));
    BENCH_TRY(context, tsr_sampler_set_epoch(self->sampler, 0));
    BENCH_TRY(context, read(NULL, self));
    check_feistel(row, self, &order, count, first, step);
    return bench_measure(context, row, &(bench_task){.run = read, .user = self, .host_only = true});
}

static bool run_feistel(bench_context *context)
{
    reader self = {0};
    BENCH_TRY(context, tsr_sampler_create_distributed(
                           tsr_sampler_distributed_params(.n = ITEMS, .ranks = RANKS, .rank = RANK,
                                                          .seed = 7),
                           &self.sampler));
    bool done = measure_feistel(context, &self, "feistel: an index, rank 3 of 8", CHUNK, RANK,
                                RANKS, read_chunk) &&
                measure_feistel(context, &self, "feistel: one call for each index", CHUNK, RANK,
                                RANKS, read_singly);
    tsr_sampler_destroy(&self.sampler);
    if (!done)
        return false;
    BENCH_TRY(context, tsr_sampler_create_distributed(
                           tsr_sampler_distributed_params(.n = ITEMS, .ranks = 1, .seed = 7),
                           &self.sampler));
    done =
        measure_feistel(context, &self, "feistel: an index, one rank", CHUNK, 0, 1, read_chunk) &&
        measure_feistel(context, &self, "feistel: seek beyond 10^11, an index", SEEKS, FAR, 1234567,
                        read_far);
    tsr_sampler_destroy(&self.sampler);
    return done;
}

/* PyTorch's order ----------------------------------------------------------------------------- */

#define TORCH_ITEMS SAMPLE_ITEMS
#define TORCH_SEED 42

static tsr_status create_torch(tsr_sampler **out)
{
    return tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = TORCH_ITEMS, .ranks = RANKS, .rank = RANK,
                                       .order = TSR_ORDER_TORCH, .seed = TORCH_SEED),
        out);
}

/* Moves the sampler to the next epoch and reads all of it. */
static tsr_status read_epoch(tsr_stream *stream, void *user)
{
    (void)stream;
    reader *self = user;
    uint64_t count;
    tsr_status status = tsr_sampler_set_epoch(self->sampler, self->epoch++);
    do {
        if (status == TSR_OK)
            status = tsr_sampler_fill(self->sampler, CHUNK, self->indices, NULL, &count);
    } while (status == TSR_OK && count > 0);
    return status;
}

/* Compares the epoch with a second implementation of PyTorch's randperm. */
static bool check_torch(bench_context *context, bench_row *row, reader *self)
{
    tsr_rng rng;
    BENCH_TRY(context, tsr_rng_init(TSR_RNG_MT19937, TORCH_SEED, 0, &rng));
    uint32_t *order = cli_alloc(TORCH_ITEMS, sizeof *order);
    for (uint32_t i = 0; i < TORCH_ITEMS; i++)
        order[i] = i;
    for (uint32_t i = 0; i + 1 < TORCH_ITEMS; i++) {
        uint32_t other = i + tsr_rng_next_u32(&rng) % (TORCH_ITEMS - i), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    bench_check_begin(
        &row->check,
        "every index of the rank's epoch against a second implementation of the shuffle");
    uint64_t count = 1;
    for (uint64_t done = 0; count > 0; done += count) {
        if (tsr_sampler_fill(self->sampler, CHUNK, self->indices, NULL, &count) != TSR_OK)
            count = 0;
        for (uint64_t i = 0; i < count; i++)
            bench_check_value(&row->check, 0, (int64_t)(done + i), (double)self->indices[i],
                              order[(done + i) * RANKS + RANK], 0);
        if (count == 0)
            bench_check_value(&row->check, 1, 0, (double)(done * RANKS), TORCH_ITEMS, 0);
    }
    free(order);
    return true;
}

static bool run_torch(bench_context *context)
{
    reader self = {0};
    bench_row *row = bench_add(context, "sample", BENCH_TIME, 1);
    bench_text(row, "what", "torch: an epoch, rank 3 of 8");
    bench_integer(row, "items", TORCH_ITEMS);
    row->elsewhere = "PyTorch 0.6 – 1.5 s, 690 MiB";
    if (!bench_sample_memory(context, &row->peak_bytes))
        return false;
    BENCH_TRY(context, create_torch(&self.sampler));
    bool done = check_torch(context, row, &self) &&
                bench_measure(context, row,
                              &(bench_task){.run = read_epoch, .user = &self, .host_only = true});
    tsr_sampler_destroy(&self.sampler);
    return done;
}

/* Weights -------------------------------------------------------------------------------------- */

#define GROUPS 256
#define SAMPLES ((int64_t)1 << 40) /* samples in an epoch; more than the benchmark draws */

typedef struct weighted {
    reader reader;
    uint64_t count;
    float *weights;
} weighted;

static tsr_status create(weighted *self, tsr_sampler **out)
{
    return tsr_sampler_create_weighted(
        tsr_sampler_weighted_params(.weights_f32 = self->weights, .count = self->count,
                                    .num_samples = SAMPLES, .seed = 7, .replacement = true),
        out);
}

static tsr_status set_up(tsr_stream *stream, void *user)
{
    (void)stream;
    tsr_sampler *sampler = NULL;
    tsr_status status = create(user, &sampler);
    tsr_sampler_destroy(&sampler);
    return status;
}

/* Weights from 1 to 1000; one in sixteen is 0. */
static void make_weights(weighted *self)
{
    for (uint64_t i = 0; i < self->count; i++) {
        uint64_t bits = bench_random(3, i);
        self->weights[i] = (bits & 15) == 0 ? 0 : 1 + (float)((bits >> 4) % 1000);
    }
}

/* Checks that no index of weight 0 is drawn, and applies a chi-square test to the numbers of draws
 * in 256 groups of consecutive indices, each with the same number of indices. With a correct
 * sampler, the result is too large for one seed in 1000, and too small for one in 1000. */
static bool check_sampling(bench_context *context, weighted *self, bench_row *row)
{
    double expected[GROUPS] = {0}, drawn[GROUPS] = {0}, total = 0, chi_square = 0;
    uint64_t group_size = self->count / GROUPS, draws = 4 * self->count, count;
    if (draws > (uint64_t)1 << 24)
        draws = (uint64_t)1 << 24;
    for (uint64_t i = 0; i < self->count; i++) {
        expected[i / group_size] += (double)self->weights[i];
        total += (double)self->weights[i];
    }
    bench_check_begin(&row->check, "no draw of weight 0, and chi-square of 256 groups");
    for (uint64_t done = 0; done < draws; done += count) {
        BENCH_TRY(context, tsr_sampler_fill(self->reader.sampler, CHUNK, self->reader.indices, NULL,
                                            &count));
        for (uint64_t i = 0; i < count; i++) {
            uint64_t index = (uint64_t)self->reader.indices[i];
            bool possible = index < self->count && self->weights[index] > 0;
            bench_check_value(&row->check, 0, (int64_t)(done + i), possible, 1, 0);
            if (index < self->count)
                drawn[index / group_size]++;
        }
    }
    for (int i = 0; i < GROUPS; i++) {
        double mean = expected[i] / total * (double)draws;
        chi_square += (drawn[i] - mean) * (drawn[i] - mean) / mean;
    }
    /* The limits 260.7 ± 69.9 are for 255 degrees of freedom. The probability of a value below the
     * lower limit is 0.001, and so is that of a value above the upper one. */
    bench_check_value(&row->check, 1, 0, chi_square, 260.7, 69.9);
    return true;
}

static bool measure_sampling(bench_context *context, weighted *self)
{
    bench_row *row = bench_add(context, "sample", BENCH_TIME, 1);
    bench_text(row, "what", "weighted: set-up");
    bench_integer(row, "items", (int64_t)self->count);
    bench_row *draws = bench_add(context, "sample", BENCH_TIME, CHUNK);
    bench_text(draws, "what", "weighted: a draw");
    bench_integer(draws, "items", (int64_t)self->count);

    BENCH_TRY(context, create(self, &self->reader.sampler));
    if (!check_sampling(context, self, draws))
        return false;
    row->check = draws->check;
    if (!read_chunks(context, draws, &self->reader))
        return false;
    tsr_sampler_destroy(&self->reader.sampler);
    return bench_measure(context, row,
                         &(bench_task){.run = set_up, .user = self, .host_only = true});
}

static bool run_weighted(bench_context *context, uint64_t count)
{
    weighted self = {.count = count};
    self.weights = cli_alloc(count, sizeof *self.weights);
    make_weights(&self);
    bool done = measure_sampling(context, &self);
    tsr_sampler_destroy(&self.reader.sampler);
    free(self.weights);
    return done;
}

static bool run_sampling(bench_context *context)
{
    return run_torch(context) && run_feistel(context) && run_weighted(context, (uint64_t)1 << 20) &&
           (!context->options->large || run_weighted(context, (uint64_t)1 << 27));
}

const bench bench_samplers = {
    .name = "sample",
    .summary = "time per index of each kind of sampler",
    .help =
        "A distributed sampler of 10^12 items in the feistel order: 4096 indices at a time, one by "
        "one, and after a seek, verified by the inverse permutation. A whole epoch of one rank of "
        "8 in PyTorch's order of 10^7 items, with the peak memory of 'tessera sample'. Draws in "
        "proportion to 2^20 weights, with --large also 2^27, which take 2 GiB, verified by a "
        "chi-square test and by the absence of items of weight 0. All on one CPU.\n",
    .takes = BENCH_LARGE,
    .host_only = true,
    .run = run_sampling,
};
