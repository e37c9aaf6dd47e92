/* Ranks of different speeds: measured rates, and the efficiency of divisions by them. */
#include "parallel/spmd.h"

#include "shard/strategy/strategy.h"
#include "support/random.h"

CASE(rates, "calibrate: every rank gets the rates of all ranks, with the same bits")
{
    double *rates = doubles(ranks), *first = doubles(ranks);
    OK(tsr_calibrate(
        group, tsr_calibrate_params(.rows = 8, .inner = 32, .columns = 48, .duration_ns = 1000000),
        rates));
    memcpy(first, rates, (size_t)ranks * sizeof *first);
    if (world)
        OK(tsr_comm_broadcast(world, first, (uint64_t)ranks, TSR_F64, 0, NULL));
    for (int r = 0; r < ranks; r++) {
        CHECK(rates[r] > 0 && isfinite(rates[r]), "rank %d has rate %g", r, rates[r]);
        CHECK(rates[r] == first[r], "rank %d has %g here, and %g on rank 0", r, rates[r], first[r]);
    }
    /* Partitions and layers accept the rates. */
    tsr_shard_range *ranges = calloc((size_t)ranks, sizeof *ranges);
    CHECK(ranges, "no memory");
    OK(tsr_partition(4096, ranks,
                     tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates), ranges));
    OK(tsr__partition_check(4096, ranks, ranges));
    tsr_layer *mlp = NULL;
    OK(tsr_mlp_create(
        tsr_mlp_params(.group = group, .input_size = 8, .hidden_size = 64, .output_size = 4,
                       .partition =
                           tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = rates),
                       .bias = true),
        &mlp));
    tsr_layer_destroy(&mlp);
    free(ranges);
    free(first);
    free(rates);
}

CASE(rate_mistakes, "calibrate: mistakes are refused")
{
    double rates[64];
    FAILS(tsr_calibrate(NULL, NULL, rates), TSR_ERR_INVALID, "calibrate: group is NULL");
    FAILS(tsr_calibrate(group, NULL, NULL), TSR_ERR_INVALID, "calibrate: rates is NULL");
    FAILS(tsr_calibrate(group, tsr_calibrate_params(.rows = -1), rates), TSR_ERR_INVALID,
          "calibrate: the product is -1 × 1024 × 1024; all sizes must be positive");
    FAILS(tsr_calibrate(group, tsr_calibrate_params(.dtype = TSR_I32), rates), TSR_ERR_INVALID,
          "calibrate: dtype is i32; f32, f16 or bf16 is needed");
}

/* Divides `length` by these rates or evenly, in multiples of `align`, and returns the efficiency:
 * the speed of all ranks together as a fraction of the sum of their rates. Simulates the work of
 * the ranks, to check the library's formula. */
static double simulated(uint64_t length, int count, const double *rates, bool weighted,
                        uint64_t align)
{
    tsr_shard_range ranges[64];
    const tsr_partition_params params = {.struct_size = sizeof params,
                                         .kind = weighted ? TSR_PARTITION_WEIGHTED
                                                          : TSR_PARTITION_UNEVEN,
                                         .rates = weighted ? rates : NULL,
                                         .align = align};
    OK(tsr_partition(length, count, &params, ranges));
    double left[64], seconds = 0, all = 0;
    for (int r = 0; r < count; r++) {
        left[r] = (double)ranges[r].count;
        all += rates[r];
    }
    for (;;) { /* each pass ends when the next rank is done */
        double next = INFINITY;
        for (int r = 0; r < count; r++)
            if (left[r] > 0 && left[r] / rates[r] < next)
                next = left[r] / rates[r];
        if (next == INFINITY)
            break;
        seconds += next;
        for (int r = 0; r < count; r++)
            left[r] = left[r] / rates[r] <= next ? 0 : left[r] - next * rates[r];
    }
    const double want = (double)length / seconds / all;
    const double got = tsr_partition_efficiency(count, ranges, rates);
    CHECK(fabs(got - want) <= 1e-9, "%.12g, and %.12g walked through", got, want);
    return got;
}

CASE(one_slowed, "calibrate: with one rank slowed 3 times, at least 90 % of the summed rate; an "
                 "even division, 50 %")
{
    static const uint64_t lengths[] = {256, 4096, 11008};
    for (int count = 2; count <= 8; count++) {
        double rates[8] = {1, 1, 1, 1, 1, 1, 1, 1}, sum = count - 1 + 1.0 / 3;
        rates[count - 1] = 1.0 / 3;
        for (int i = 0; i < 3; i++) {
            const double even = simulated(lengths[i], count, rates, false, 1);
            const double weighted = simulated(lengths[i], count, rates, true, i > 0 ? 32 : 1);
            /* With an even division, all ranks wait for the slow one, which has 1/count of the
             * work. */
            CHECK(fabs(even - count / 3.0 / sum) < 0.02, "%d ranks, even: %g", count, even);
            CHECK(weighted >= 0.9, "%d ranks, %llu: %g", count, (unsigned long long)lengths[i],
                  weighted);
        }
    }
    const double two[2] = {1, 1.0 / 3};
    CHECK(simulated(4096, 2, two, false, 1) == 0.5, "evenly among two is half");
    /* If a measured rate is wrong by 5 %, the division must lose at most 5 %. */
    const double measured[2] = {1.05, 1.0 / 3};
    tsr_shard_range ranges[2];
    OK(tsr_partition(
        4096, 2, tsr_partition_params(.kind = TSR_PARTITION_WEIGHTED, .rates = measured), ranges));
    CHECK(tsr_partition_efficiency(2, ranges, two) >= 0.95, "measured badly");
}

CASE(efficiencies, "calibrate: efficiency at its limits")
{
    const tsr_shard_range ranges[2] = {{0, 3}, {3, 1}};
    CHECK(tsr_partition_efficiency(2, ranges, (double[]){3, 1}) == 1, "perfect");
    CHECK(tsr_partition_efficiency(2, ranges, (double[]){3, 0}) == 0, "work for nobody");
    CHECK(tsr_partition_efficiency(2, NULL, NULL) == 0, "no work");
    CHECK(tsr_partition_efficiency(1, ranges, (double[]){7}) == 1, "one rank");
    static const double units[] = {1e308 / 3, 1e-306, 1e-320, 0x1p-1074};
    for (int i = 0; i < 4; i++)
        CHECK(fabs(tsr_partition_efficiency(2, ranges, (double[]){3 * units[i], units[i]}) - 1) <
                  1e-12,
              "in units of %g", units[i]);
    CHECK(tsr_partition_efficiency(2, (tsr_shard_range[]){{0, 0}, {0, 0}}, (double[]){1, 1}) == 0,
          "no work");
    uint64_t state = 4;
    for (int i = 0; i < 200; i++) {
        double rates[16];
        int count = (int)random_between(&state, 1, 16);
        for (int r = 0; r < count; r++)
            rates[r] = (double)random_between(&state, 1, 100);
        const double worth = simulated(8192, count, rates, true, 1);
        CHECK(worth >= 0.9 && worth <= 1 + 1e-12, "%d ranks: %g", count, worth);
    }
}

CASE(slowed_stream,
     "calibrate: a slowed stream gives the same results, and is done when submit returns")
{
    tsr_stream *slow = NULL;
    tsr_tensor *tensor = NULL;
    CHECK(setenv("TESSERA_SLOWDOWN", "2", 1) == 0, "setenv");
    OK(tsr_stream_create(gpu, &slow));
    CHECK(unsetenv("TESSERA_SLOWDOWN") == 0, "unsetenv");
    OK(tsr_tensor_create(gpu, TSR_F32, 1, (int64_t[]){1000}, &tensor));
    OK(tsr_fill(slow, tensor, 4));
    uint64_t point;
    bool reached = false;
    OK(tsr_stream_mark(slow, &point));
    OK(tsr_stream_submit(slow));
    OK(tsr_stream_reached(slow, point, &reached));
    CHECK(reached, "still at work");
    float values[1000];
    OK(tsr_tensor_download(slow, tensor, values, sizeof values));
    for (int i = 0; i < 1000; i++)
        CHECK(values[i] == 4, "element %d is %g", i, (double)values[i]);
    tsr_tensor_destroy(&tensor);
    tsr_stream_destroy(&slow);
}
