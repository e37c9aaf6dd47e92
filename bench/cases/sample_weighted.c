/* Draws in proportion to weights: setting up the alias tables, and each draw. */
#include <math.h>
#include <stdlib.h>

#include "bench/cases/sample.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

#define GROUPS 256
#define SAMPLES ((int64_t)1 << 40) /* in an epoch: more than are drawn */

typedef struct weighted {
    bench_reader reader;
    uint64_t count;
    float *weights;
} weighted;

static tsr_status create(weighted *own, tsr_sampler **out)
{
    return tsr_sampler_create_weighted(
        tsr_sampler_weighted_params(.weights_f32 = own->weights, .count = own->count,
                                    .num_samples = SAMPLES, .seed = 7),
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

/* 1 to 1000, and 0 for one in sixteen. */
static void make_weights(weighted *own)
{
    for (uint64_t i = 0; i < own->count; i++) {
        uint64_t bits = bench_random(3, i);
        own->weights[i] = (bits & 15) == 0 ? 0 : 1 + (float)((bits >> 4) % 1000);
    }
}

/* No index of weight 0, and the numbers of draws in 256 equal groups of indices: by chance alone
 * chi-square is above the limit once in 1000 times. */
static bool check(bench_context *context, weighted *own, bench_row *row)
{
    double expected[GROUPS] = {0}, drawn[GROUPS] = {0}, total = 0, chi_square = 0;
    uint64_t group_size = own->count / GROUPS, draws = 4 * own->count, count;
    if (draws > (uint64_t)1 << 24)
        draws = (uint64_t)1 << 24;
    for (uint64_t i = 0; i < own->count; i++) {
        expected[i / group_size] += (double)own->weights[i];
        total += (double)own->weights[i];
    }
    bench_check_begin(&row->check, "no draw of weight 0, and chi-square of 256 groups");
    for (uint64_t done = 0; done < draws; done += count) {
        BENCH_TRY(context, tsr_sampler_fill(own->reader.sampler, BENCH_CHUNK, own->reader.indices,
                                            NULL, &count));
        for (uint64_t i = 0; i < count; i++) {
            uint64_t index = (uint64_t)own->reader.indices[i];
            bool possible = index < own->count && own->weights[index] > 0;
            bench_check_value(&row->check, 0, (int64_t)(done + i), possible, 1, 0);
            if (index < own->count)
                drawn[index / group_size]++;
        }
    }
    for (int i = 0; i < GROUPS; i++) {
        double mean = expected[i] / total * (double)draws;
        chi_square += (drawn[i] - mean) * (drawn[i] - mean) / mean;
    }
    /* Of 255 degrees of freedom: p = 0.001 on either side. */
    bench_check_value(&row->check, 1, 0, chi_square, 260.7, 69.9);
    return true;
}

static bool measure(bench_context *context, weighted *own)
{
    bench_row *row = bench_add(context, "sample", BENCH_TIME, 1);
    bench_text(row, "what", "weighted: set-up");
    bench_integer(row, "items", (int64_t)own->count);
    bench_row *draws = bench_add(context, "sample", BENCH_TIME, BENCH_CHUNK);
    bench_text(draws, "what", "weighted: a draw");
    bench_integer(draws, "items", (int64_t)own->count);

    BENCH_TRY(context, create(own, &own->reader.sampler));
    if (!check(context, own, draws))
        return false;
    row->check = draws->check;
    if (!bench_read_chunks(context, draws, &own->reader))
        return false;
    tsr_sampler_destroy(&own->reader.sampler);
    return bench_measure(context, row,
                         &(bench_task){.run = set_up, .user = own, .host_only = true});
}

bool bench_weighted(bench_context *context, uint64_t count)
{
    weighted own = {.count = count};
    own.weights = cli_alloc(count, sizeof *own.weights);
    make_weights(&own);
    bool done = measure(context, &own);
    tsr_sampler_destroy(&own.reader.sampler);
    free(own.weights);
    return done;
}
