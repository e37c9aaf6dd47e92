/* Tests distributed samplers: the shares of all ranks for every small n, number of ranks, tail and
 * split; examples of the specification, a C# sampler (see
 * tests/data/dotnet_distributed_sampler.json); and wrapped samplers. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sampler/info.h"
#include "sampler/order/names.h"
#include "sampler/read.h"
#include "tessera/sampler.h"

static const tsr_tail tails[] = {TSR_TAIL_PAD, TSR_TAIL_PAD_MASK, TSR_TAIL_UNEVEN, TSR_TAIL_DROP};
static const tsr_split splits[] = {TSR_SPLIT_INTERLEAVED, TSR_SPLIT_CONTIGUOUS};

static tsr_sampler *share(const tsr_sampler_distributed_params *params)
{
    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_distributed(params, &sampler));
    return sampler;
}

static uint64_t expected_length(const tsr_sampler_distributed_params *params)
{
    uint64_t n = params->n, ranks = (uint64_t)params->ranks, rank = (uint64_t)params->rank;
    switch (params->tail) {
    case TSR_TAIL_UNEVEN:
        return n / ranks + (rank < n % ranks ? 1 : 0);
    case TSR_TAIL_DROP:
        return n / ranks;
    default:
        return (n + ranks - 1) / ranks;
    }
}

/* Gets the complete order of the items, which is that of a single rank. */
static void complete_order(tsr_sampler_distributed_params params, int64_t *order)
{
    uint64_t count;
    params.ranks = 1;
    params.rank = 0;
    tsr_sampler *sampler = share(&params);
    ck_assert_ok(tsr_sampler_fill(sampler, params.n + 1, order, NULL, &count));
    ck_assert(count == params.n);
    tsr_sampler_destroy(&sampler);
}

/* Reads the shares of all ranks and compares them with the definition. No index occurs twice except
 * as padding, and all occur, unless the tail is dropped. Except with uneven tails, all shares have
 * the same length. With pad-mask, the masks add up to n. */
static void check_all_ranks(tsr_sampler_distributed_params params)
{
    enum { MAX = 4096 };
    int64_t order[MAX], indices[MAX];
    uint8_t mask[MAX], seen[MAX] = {0};
    uint64_t n = params.n, ranks = (uint64_t)params.ranks, marked = 0, total = 0, start = 0;
    complete_order(params, order);
    for (uint64_t rank = 0; rank < ranks; rank++) {
        uint64_t count, length;
        params.rank = (int64_t)rank;
        tsr_sampler *sampler = share(&params);
        length = tsr_sampler_length(sampler);
        ck_assert(length == expected_length(&params));
        ck_assert_ok(tsr_sampler_fill(sampler, MAX, indices, mask, &count));
        ck_assert(count == length && tsr_sampler_position(sampler) == length);
        for (uint64_t i = 0; i < count; i++) {
            uint64_t at = params.split == TSR_SPLIT_INTERLEAVED ? rank + i * ranks : start + i;
            if (indices[i] != order[at % n])
                ck_abort_msg("n %" PRIu64 ", rank %" PRIu64 " of %" PRIu64 ", %s, %s: item %" PRIu64
                             " is %" PRId64 ", not %" PRId64,
                             n, rank, ranks, tsr__tail_name(params.tail),
                             tsr__split_name(params.split), i, indices[i], order[at % n]);
            bool is_padding = at >= n && params.tail == TSR_TAIL_PAD_MASK;
            ck_assert(mask[i] == (is_padding ? 0 : 1));
            marked += mask[i];
            ck_assert(at >= n || !seen[indices[i]]);
            seen[indices[i]] = 1;
        }
        start += length;
        total += count;
        tsr_sampler_destroy(&sampler);
    }
    uint64_t covered = 0;
    for (uint64_t i = 0; i < n; i++)
        covered += seen[i];
    bool drops = params.tail == TSR_TAIL_DROP;
    ck_assert(covered == (drops ? n / ranks * ranks : n));
    ck_assert(params.tail == TSR_TAIL_UNEVEN ? total == n : total % ranks == 0);
    if (params.tail == TSR_TAIL_PAD_MASK)
        ck_assert(marked == n);
}

static void check_all(uint64_t max_n, tsr_order order)
{
    for (uint64_t n = 0; n <= max_n; n++)
        for (int64_t ranks = 1; ranks <= 16; ranks++)
            for (int t = 0; t < 4; t++)
                for (int s = 0; s < 2; s++)
                    check_all_ranks((tsr_sampler_distributed_params){
                        .struct_size = sizeof(tsr_sampler_distributed_params),
                        .n = n,
                        .ranks = ranks,
                        .order = order,
                        .tail = tails[t],
                        .split = splits[s],
                        .seed = (int64_t)n});
}

START_TEST(all_shares_of_all_small_datasets)
{
    check_all(150, TSR_ORDER_FEISTEL);
    check_all(60, TSR_ORDER_NONE);
}
END_TEST

START_TEST(all_shares_in_reference_orders)
{
    for (uint64_t n = 0; n <= 40; n++)
        for (int64_t ranks = 1; ranks <= 16; ranks += 5)
            for (int t = 0; t < 4; t++)
                for (int s = 0; s < 2; s++) {
                    tsr_sampler_distributed_params params = {.struct_size = sizeof params,
                                                             .n = n,
                                                             .ranks = ranks,
                                                             .order = TSR_ORDER_TORCH,
                                                             .tail = tails[t],
                                                             .split = splits[s],
                                                             .seed = (int64_t)n};
                    check_all_ranks(params);
                    params.order = TSR_ORDER_MLX;
                    check_all_ranks(params);
                    params.order = TSR_ORDER_DOTNET;
                    /* With the tail drop, the order dotnet leaves out other items than the
                     * definition here says; test_golden.c tests it. */
                    if (params.tail != TSR_TAIL_DROP)
                        check_all_ranks(params);
                }
}
END_TEST

/* With more ranks than items, padding repeats the order several times. */
START_TEST(padding_wraps_as_often_as_needed)
{
    for (int64_t rank = 0; rank < 100; rank++) {
        int64_t indices[2];
        uint64_t count;
        tsr_sampler *sampler =
            share(tsr_sampler_distributed_params(.n = 3, .ranks = 100, .rank = rank,
                                                 .order = TSR_ORDER_NONE));
        ck_assert_ok(tsr_sampler_fill(sampler, 2, indices, NULL, &count));
        ck_assert_uint_eq(count, 1);
        ck_assert_int_eq(indices[0], rank % 3);
        tsr_sampler_destroy(&sampler);
    }
}
END_TEST

/* Tests the example "For 10 samples across 3 processes" of the specification. */
START_TEST(partitions_of_the_specification)
{
    const int64_t padded[3][4] = {{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}};
    for (int64_t rank = 0; rank < 3; rank++) {
        int64_t indices[5];
        uint64_t count;
        tsr_sampler *sampler =
            share(tsr_sampler_distributed_params(.n = 10, .ranks = 3, .rank = rank,
                                                 .order = TSR_ORDER_NONE));
        ck_assert_ok(tsr_sampler_fill(sampler, 5, indices, NULL, &count));
        ck_assert_uint_eq(count, 4);
        ck_assert_mem_eq(indices, padded[rank], sizeof padded[rank]);
        tsr_sampler_destroy(&sampler);
        sampler =
            share(tsr_sampler_distributed_params(.n = 10, .ranks = 3, .rank = rank,
                                                 .order = TSR_ORDER_NONE, .tail = TSR_TAIL_DROP));
        ck_assert_ok(tsr_sampler_fill(sampler, 5, indices, NULL, &count));
        ck_assert_uint_eq(count, 3);
        ck_assert_mem_eq(indices, padded[rank], 3 * sizeof *indices);
        tsr_sampler_destroy(&sampler);
    }
}
END_TEST

/* Tests GetBatch, GetNumBatches, GetIndices and NumSamples of the specification. */
START_TEST(methods_of_the_specification)
{
    int64_t all[20], batch[8];
    uint64_t count, batches;
    tsr_sampler *sampler =
        share(tsr_sampler_distributed_params(.n = 100, .ranks = 6, .rank = 5,
                                             .tail = TSR_TAIL_UNEVEN, .seed = 42));
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 3));
    ck_assert_uint_eq(tsr_sampler_length(sampler), 16);
    ck_assert_ok(tsr_sampler_fill(sampler, 20, all, NULL, &count));
    ck_assert_uint_eq(count, 16);
    ck_assert_ok(tsr_sampler_batch_count(sampler, 7, false, &batches));
    ck_assert_uint_eq(batches, 3);
    ck_assert_ok(tsr_sampler_batch_count(sampler, 7, true, &batches));
    ck_assert_uint_eq(batches, 2);
    ck_assert_ok(tsr_sampler_batch_count(sampler, 8, true, &batches));
    ck_assert_uint_eq(batches, 2);
    ck_assert_ok(tsr_sampler_seek(sampler, 5));
    for (uint64_t b = 3; b-- > 0;) {
        ck_assert_ok(tsr_sampler_get_batch(sampler, b, 7, 8, batch, NULL, &count));
        ck_assert_uint_eq(count, b == 2 ? 2 : 7);
        ck_assert_mem_eq(batch, all + 7 * b, count * sizeof *batch);
        ck_assert_uint_eq(tsr_sampler_position(sampler), 5);
    }
    bool got;
    int64_t index;
    ck_assert_ok(next_index(sampler, &index, &got));
    ck_assert_int_eq(index, all[5]);
    ck_assert_error(tsr_sampler_get_batch(sampler, 3, 7, 8, batch, NULL, &count), TSR_ERR_INVALID,
                    "sampler get batch: batch 3 of 7 is beyond the end: there are 16 items");
    ck_assert_error(tsr_sampler_get_batch(sampler, 0, 0, 8, batch, NULL, &count), TSR_ERR_INVALID,
                    "sampler get batch: batch size 0 is not positive");
    ck_assert_error(tsr_sampler_get_batch(sampler, 0, 9, 8, batch, NULL, &count), TSR_ERR_INVALID,
                    "sampler get batch: a batch may have 9 indices, there is room for 8");
    ck_assert_error(tsr_sampler_get_batch(sampler, UINT64_MAX, 7, 8, batch, NULL, &count),
                    TSR_ERR_INVALID,
                    "sampler get batch: batch 18446744073709551615 of 7 is beyond the end: there "
                    "are 16 items");
    ck_assert_error(tsr_sampler_batch_count(sampler, -1, false, &batches), TSR_ERR_INVALID,
                    "sampler batches: batch size -1 is not positive");
    tsr_sampler_destroy(&sampler);
}
END_TEST

START_TEST(epochs_differ_and_repeat)
{
    int64_t first[50], other[50];
    uint64_t count;
    for (tsr_order order = TSR_ORDER_FEISTEL; order <= TSR_ORDER_DOTNET; order++) {
        tsr_sampler *sampler = share(tsr_sampler_distributed_params(.n = 100, .ranks = 2, .rank = 1,
                                                                    .seed = 9, .order = order));
        ck_assert_ok(tsr_sampler_fill(sampler, 50, first, NULL, &count));
        ck_assert_ok(tsr_sampler_set_epoch(sampler, 1));
        ck_assert_ok(tsr_sampler_fill(sampler, 50, other, NULL, &count));
        ck_assert_mem_ne(first, other, sizeof first);
        ck_assert_ok(tsr_sampler_set_epoch(sampler, -1));
        ck_assert_int_eq(tsr_sampler_epoch(sampler), -1);
        ck_assert_ok(tsr_sampler_fill(sampler, 50, other, NULL, &count));
        ck_assert_mem_ne(first, other, sizeof first);
        ck_assert_ok(tsr_sampler_set_epoch(sampler, 0));
        ck_assert_ok(tsr_sampler_fill(sampler, 50, other, NULL, &count));
        ck_assert_mem_eq(first, other, sizeof first);
        tsr_sampler_destroy(&sampler);
    }
}
END_TEST

/* The order feistel uses seed and epoch as a pair: (0, 1) differs from (1, 0). The orders torch,
 * dotnet and mlx use the sum of the two. */
START_TEST(seed_and_epoch_are_not_added)
{
    int64_t a[64], b[64];
    uint64_t count;
    tsr_sampler *sampler = share(tsr_sampler_distributed_params(.n = 64, .ranks = 1, .seed = 0));
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 1));
    ck_assert_ok(tsr_sampler_fill(sampler, 64, a, NULL, &count));
    tsr_sampler_destroy(&sampler);
    sampler = share(tsr_sampler_distributed_params(.n = 64, .ranks = 1, .seed = 1));
    ck_assert_ok(tsr_sampler_fill(sampler, 64, b, NULL, &count));
    ck_assert_mem_ne(a, b, sizeof a);
    tsr_sampler_destroy(&sampler);
}
END_TEST

/* Checks that a wrapped sampler of n items is partitioned like a dataset of n items in its
 * order. */
static void check_wrapped(uint64_t n, int64_t ranks, tsr_tail tail, tsr_split split)
{
    for (int64_t rank = 0; rank < ranks; rank++) {
        uint64_t count, expected;
        uint8_t *mask, *expected_mask;
        tsr_sampler *base = NULL;
        ck_assert_ok(tsr_sampler_create_random(
            tsr_sampler_random_params(.n = 1000, .num_samples = (int64_t)n, .seed = 4), &base));
        int64_t *order = read_all(base, &count);
        ck_assert(count == n);
        /* `base` has been read to its end, which must make no difference. */
        tsr_sampler *sampler =
            share(tsr_sampler_distributed_params(.base = base, .ranks = ranks, .rank = rank,
                                                 .tail = tail, .split = split));
        tsr_sampler_destroy(&base);
        int64_t *indices = read_masked(sampler, &count, &mask);
        tsr_sampler_destroy(&sampler);
        sampler =
            share(tsr_sampler_distributed_params(.n = n, .ranks = ranks, .rank = rank, .tail = tail,
                                                 .split = split, .order = TSR_ORDER_NONE));
        int64_t *places = read_masked(sampler, &expected, &expected_mask);
        tsr_sampler_destroy(&sampler);
        ck_assert_uint_eq(count, expected);
        for (uint64_t i = 0; i < count; i++)
            ck_assert(indices[i] == order[places[i]] && mask[i] == expected_mask[i]);
        free(indices);
        free(places);
        free(order);
        free(mask);
        free(expected_mask);
    }
}

START_TEST(wrapped_samplers_are_partitioned_like_datasets)
{
    for (uint64_t n = 1; n < 40; n += 3)
        for (int64_t ranks = 1; ranks < 7; ranks++)
            for (int t = 0; t < 4; t++)
                for (int s = 0; s < 2; s++)
                    check_wrapped(n, ranks, tails[t], splits[s]);
}
END_TEST

/* A batch must go to one rank completely, and padding batches must be masked completely. */
START_TEST(batches_are_partitioned)
{
    int64_t batch[3];
    uint8_t mask[3];
    uint64_t count;
    for (int64_t rank = 0; rank < 3; rank++) {
        tsr_sampler *base = NULL, *batches = NULL;
        ck_assert_ok(tsr_sampler_create_sequential(10, &base));
        ck_assert_ok(tsr_sampler_create_batch(
            tsr_sampler_batch_params(.base = base, .batch_size = 3), &batches));
        tsr_sampler_destroy(&base);
        tsr_sampler *sampler =
            share(tsr_sampler_distributed_params(.base = batches, .ranks = 3, .rank = rank,
                                                 .tail = TSR_TAIL_PAD_MASK));
        tsr_sampler_destroy(&batches);
        ck_assert_uint_eq(info_of(sampler).batch_max, 3);
        ck_assert_uint_eq(tsr_sampler_length(sampler), 2);
        ck_assert_ok(tsr_sampler_next(sampler, 3, batch, mask, &count));
        ck_assert_uint_eq(count, 3);
        ck_assert_int_eq(batch[0], 3 * rank);
        ck_assert_int_eq(mask[0] + mask[1] + mask[2], 3);
        ck_assert_ok(tsr_sampler_next(sampler, 3, batch, mask, &count));
        ck_assert_uint_eq(count, rank == 0 ? 1 : 3);
        ck_assert_int_eq(batch[0], rank == 0 ? 9 : 3 * (rank - 1));
        ck_assert_uint_eq(mask[0], rank == 0);
        ck_assert_ok(tsr_sampler_next(sampler, 3, batch, mask, &count));
        ck_assert_uint_eq(count, 0);
        tsr_sampler_destroy(&sampler);
    }
}
END_TEST

/* Batches of a padded share keep the mask. */
START_TEST(masks_pass_through_batches)
{
    uint64_t sum = 0, count;
    for (int64_t rank = 0; rank < 4; rank++) {
        int64_t batch[4];
        uint8_t mask[4];
        tsr_sampler *base = share(tsr_sampler_distributed_params(.n = 21, .ranks = 4, .rank = rank,
                                                                 .tail = TSR_TAIL_PAD_MASK)),
                    *sampler = NULL;
        ck_assert_ok(tsr_sampler_create_batch(
            tsr_sampler_batch_params(.base = base, .batch_size = 4), &sampler));
        tsr_sampler_destroy(&base);
        do {
            ck_assert_ok(tsr_sampler_next(sampler, 4, batch, mask, &count));
            for (uint64_t i = 0; i < count; i++)
                sum += mask[i];
        } while (count > 0);
        tsr_sampler_destroy(&sampler);
    }
    ck_assert_uint_eq(sum, 21);
}
END_TEST

/* Shares of nodes, divided into shares of devices, together give every item once. */
START_TEST(shares_of_shares)
{
    uint8_t seen[100] = {0};
    for (int64_t node = 0; node < 3; node++)
        for (int64_t device = 0; device < 4; device++) {
            uint64_t count;
            tsr_sampler *base =
                share(tsr_sampler_distributed_params(.n = 100, .ranks = 3, .rank = node,
                                                     .tail = TSR_TAIL_UNEVEN));
            tsr_sampler *sampler =
                share(tsr_sampler_distributed_params(.base = base, .ranks = 4, .rank = device,
                                                     .tail = TSR_TAIL_UNEVEN,
                                                     .split = TSR_SPLIT_CONTIGUOUS));
            tsr_sampler_destroy(&base);
            int64_t *indices = read_all(sampler, &count);
            for (uint64_t i = 0; i < count; i++)
                seen[indices[i]]++;
            free(indices);
            tsr_sampler_destroy(&sampler);
        }
    for (int i = 0; i < 100; i++)
        ck_assert_uint_eq(seen[i], 1);
}
END_TEST

/* A dataset with the largest number of items needs no memory for them. */
START_TEST(the_largest_dataset)
{
    int64_t indices[64];
    uint64_t count;
    tsr_sampler_info info = TSR_INIT(tsr_sampler_info);
    for (int s = 0; s < 2; s++) {
        tsr_sampler *sampler = share(
            tsr_sampler_distributed_params(.n = UINT64_C(1) << 62, .ranks = INT32_MAX,
                                           .rank = INT32_MAX - 1, .split = splits[s], .seed = -1));
        ck_assert_ok(tsr_sampler_get_info(sampler, &info));
        ck_assert_uint_eq(tsr_sampler_length(sampler), ((UINT64_C(1) << 62) - 1) / INT32_MAX + 1);
        ck_assert_uint_eq(info.total, tsr_sampler_length(sampler) * INT32_MAX);
        ck_assert_uint_eq(info.n, UINT64_C(1) << 62);
        ck_assert_ok(tsr_sampler_seek(sampler, tsr_sampler_length(sampler) - 40));
        ck_assert_ok(tsr_sampler_fill(sampler, 64, indices, NULL, &count));
        ck_assert_uint_eq(count, 40);
        for (int i = 0; i < 40; i++)
            ck_assert(indices[i] >= 0 && indices[i] < INT64_C(1) << 62);
        tsr_sampler_destroy(&sampler);
    }
}
END_TEST

#define ERROR(status, text, ...)                                                                   \
    do {                                                                                           \
        tsr_sampler *sampler_ = NULL;                                                              \
        ck_assert_error(tsr_sampler_create_distributed(                                            \
                            tsr_sampler_distributed_params(__VA_ARGS__), &sampler_),               \
                        status, text);                                                             \
        ck_assert_ptr_null(sampler_);                                                              \
    } while (0)

START_TEST(errors)
{
    ERROR(TSR_ERR_INVALID, "distributed: the number of ranks -1 is not 1 to 2147483647", .n = 10,
          .ranks = -1);
    ERROR(TSR_ERR_INVALID, "distributed: the number of ranks 2147483648 is not 1 to 2147483647",
          .n = 10, .ranks = INT64_C(1) << 31);
    ERROR(TSR_ERR_INVALID, "distributed: rank 2 is not 0 to 1", .n = 10, .ranks = 2, .rank = 2);
    ERROR(TSR_ERR_INVALID, "distributed: rank -1 is not 0 to 1", .n = 10, .ranks = 2, .rank = -1);
    ERROR(TSR_ERR_INVALID, "distributed: rank 1 is given without ranks", .n = 10, .rank = 1);
    ERROR(TSR_ERR_INVALID, "distributed: 9 is no tail", .n = 1, .ranks = 1, .tail = (tsr_tail)9);
    ERROR(TSR_ERR_INVALID, "distributed: 2 is no split", .n = 1, .ranks = 1, .split = (tsr_split)2);
    ERROR(TSR_ERR_INVALID, "distributed: 5 is no order", .n = 1, .ranks = 1, .order = (tsr_order)5);
    ERROR(TSR_ERR_INVALID, "distributed: 4611686018427387905 items are more than 2^62",
          .n = (UINT64_C(1) << 62) + 1, .ranks = 1);
    ERROR(TSR_ERR_INVALID,
          "distributed: 2147483648 items are more than System.Random can shuffle, 2147483647",
          .n = UINT64_C(1) << 31, .ranks = 1, .order = TSR_ORDER_DOTNET);
    ERROR(TSR_ERR_INVALID,
          "distributed: the seed 2147483648 is not one of System.Random's, an int32", .n = 1,
          .ranks = 1, .order = TSR_ORDER_DOTNET, .seed = INT64_C(1) << 31);
    ERROR(TSR_ERR_INVALID, "distributed: seed_high 2 is not -1, 0 or 1", .n = 1, .ranks = 1,
          .torch = tsr_torch_options(.seed_high = 2));
    ERROR(TSR_ERR_INVALID, "distributed: unknown PyTorch version 5", .n = 1, .ranks = 1,
          .order = TSR_ORDER_TORCH, .torch = tsr_torch_options(.version = (tsr_torch_version)5));
    tsr_sampler *sampler = NULL;
    ck_assert_ok(tsr_sampler_create_sequential(5, &sampler));
    ERROR(TSR_ERR_INVALID, "distributed: there are both a sampler and a dataset of 3 items",
          .base = sampler, .n = 3, .ranks = 1);
    const tsr_sampler_info info = info_of(sampler);
    ck_assert(info.ranks == 1 && info.rank == 0 && info.n == 5 && info.total == 5);
    tsr_sampler_destroy(&sampler);
    ck_assert_error(tsr_sampler_create_distributed(NULL, &sampler), TSR_ERR_INVALID,
                    "distributed: params is NULL");
    ck_assert_ptr_null(sampler);
}
END_TEST

/* Epochs whose sum with the seed is out of range are refused, and the epoch does not change. */
START_TEST(invalid_epochs)
{
    int64_t index;
    bool got;
    tsr_sampler *sampler = share(
        tsr_sampler_distributed_params(.n = 4, .ranks = 1, .order = TSR_ORDER_TORCH, .seed = -1,
                                       .torch = tsr_torch_options(.seed_high = 1)));
    ck_assert_error(tsr_sampler_set_epoch(sampler, 1), TSR_ERR_OVERFLOW,
                    "distributed: seed -1 + 2^64 + epoch 1 is not one of PyTorch's seeds, -2^63 to "
                    "2^64 - 1");
    ck_assert_int_eq(tsr_sampler_epoch(sampler), 0);
    ck_assert_ok(next_index(sampler, &index, &got));
    tsr_sampler_destroy(&sampler);
    sampler = share(tsr_sampler_distributed_params(.n = 4, .ranks = 1, .order = TSR_ORDER_TORCH,
                                                   .seed = INT64_MAX,
                                                   .torch = tsr_torch_options(.seed_high = -1)));
    ck_assert_error(next_index(sampler, &index, &got), TSR_ERR_OVERFLOW,
                    "distributed: seed 9223372036854775807 - 2^64 + epoch 0 is not one of "
                    "PyTorch's seeds, -2^63 to 2^64 - 1");
    ck_assert_ok(tsr_sampler_set_epoch(sampler, 1));
    ck_assert_ok(next_index(sampler, &index, &got));
    tsr_sampler_destroy(&sampler);
    sampler = share(tsr_sampler_distributed_params(.n = 4, .ranks = 1, .order = TSR_ORDER_DOTNET));
    ck_assert_error(tsr_sampler_set_epoch(sampler, INT64_C(1) << 31), TSR_ERR_INVALID,
                    "distributed: epoch 2147483648 is not an int32, as the order dotnet needs");
    tsr_sampler_destroy(&sampler);
}
END_TEST

START_TEST(names)
{
    const char *orders[] = {"feistel", "torch", "dotnet", "none", "mlx"};
    const char *tail_names[] = {"pad", "pad-mask", "uneven", "drop"};
    const char *split_names[] = {"interleaved", "contiguous"};
    for (int i = 0; i < 5; i++) {
        tsr_order order = (tsr_order)9;
        ck_assert_str_eq(tsr__order_name((tsr_order)i), orders[i]);
        ck_assert_ok(tsr__order_parse(orders[i], &order));
        ck_assert_int_eq(order, i);
    }
    for (int i = 0; i < 4; i++) {
        tsr_tail tail = (tsr_tail)9;
        ck_assert_str_eq(tsr__tail_name((tsr_tail)i), tail_names[i]);
        ck_assert_ok(tsr__tail_parse(tail_names[i], &tail));
        ck_assert_int_eq(tail, i);
    }
    for (int i = 0; i < 2; i++) {
        tsr_split split = (tsr_split)9;
        ck_assert_str_eq(tsr__split_name((tsr_split)i), split_names[i]);
        ck_assert_ok(tsr__split_parse(split_names[i], &split));
        ck_assert_int_eq(split, i);
    }
    tsr_order order = TSR_ORDER_DOTNET;
    tsr_tail tail;
    tsr_split split;
    ck_assert_str_eq(tsr__order_name((tsr_order)-1), "?");
    ck_assert_str_eq(tsr__order_name((tsr_order)5), "?");
    ck_assert_str_eq(tsr__tail_name((tsr_tail)4), "?");
    ck_assert_str_eq(tsr__split_name((tsr_split)2), "?");
    ck_assert_error(tsr__order_parse("Torch", &order), TSR_ERR_NOT_FOUND,
                    "sampler: there is no order 'Torch'");
    ck_assert_int_eq(order, TSR_ORDER_DOTNET);
    ck_assert_error(tsr__tail_parse("", &tail), TSR_ERR_NOT_FOUND, "sampler: there is no tail ''");
    ck_assert_error(tsr__split_parse("block", &split), TSR_ERR_NOT_FOUND,
                    "sampler: there is no split 'block'");
}
END_TEST

TESTS(distributed)
{
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, all_shares_of_all_small_datasets);
    tcase_add_test(tests, all_shares_in_reference_orders);
    tcase_add_test(tests, padding_wraps_as_often_as_needed);
    tcase_add_test(tests, partitions_of_the_specification);
    tcase_add_test(tests, methods_of_the_specification);
    tcase_add_test(tests, epochs_differ_and_repeat);
    tcase_add_test(tests, seed_and_epoch_are_not_added);
    tcase_add_test(tests, wrapped_samplers_are_partitioned_like_datasets);
    tcase_add_test(tests, batches_are_partitioned);
    tcase_add_test(tests, masks_pass_through_batches);
    tcase_add_test(tests, shares_of_shares);
    tcase_add_test(tests, the_largest_dataset);
    tcase_add_test(tests, errors);
    tcase_add_test(tests, invalid_epochs);
    tcase_add_test(tests, names);
}
