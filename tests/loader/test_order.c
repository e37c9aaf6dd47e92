/* Batches must have the same bytes in the same order for any number of workers. */
#include "base/philox.h"
#include "one_loader.h"
#include "support/golden.h"

static const int worker_counts[] = {0, 1, 2, 3, 8};

enum { WORKER_COUNTS = sizeof worker_counts / sizeof *worker_counts };

/* Destroys the loader after its last batch was read, and checks that no worker was loading a
 * batch. */
static void destroy_idle(void)
{
    destroy();
    ck_assert_int_eq(atomic_load(&data.running), 0);
}

static uint64_t three_epochs(void)
{
    uint64_t hash = FIXTURE_HASH;
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        ck_assert_ok(tsr_loader_set_epoch(loader, epoch));
        hash = fixture_read(loader, hash);
        ck_assert_uint_eq(fixture_read(loader, hash), hash); /* the loader stays at the end */
    }
    return hash;
}

/* Computes the expected hash without a loader, from the sampler's batches and the data of each
 * batch. */
static uint64_t expected_epochs(tsr_sampler *batches)
{
    uint64_t hash = FIXTURE_HASH, count;
    int64_t key, indices[16];
    uint8_t mask[16];
    record records[16];
    ck_assert_ok(tsr_seed_derive(TSR_SEED_STRATEGY_HASHED,
                                 &(tsr_seed_point){.base = 42, .kind = TSR_SEED_WORKER, .op = 1},
                                 &key));
    for (int64_t epoch = 0; epoch < 3; epoch++) {
        ck_assert_ok(tsr_sampler_set_epoch(batches, epoch));
        for (uint64_t b = 0;; b++) {
            const uint32_t counter[] = {(uint32_t)b, 0, (uint32_t)epoch, 0};
            const uint32_t words[] = {(uint32_t)key, (uint32_t)((uint64_t)key >> 32)};
            uint32_t seed[4];
            tsr__philox4x32(counter, words, seed);
            ck_assert_ok(tsr_sampler_next(batches, 16, indices, mask, &count));
            if (count == 0)
                break;
            for (uint64_t i = 0; i < count; i++) {
                tsr_philox noise;
                tsr__philox_init((uint64_t)seed[1] << 32 | seed[0], i, &noise);
                records[i] = (record){indices[i], epoch, b, tsr__philox_next_u64(&noise)};
            }
            hash = fixture_hash(hash, &(tsr_loader_batch){.batch = b,
                                                          .epoch = epoch,
                                                          .indices = indices,
                                                          .mask = mask,
                                                          .count = count,
                                                          .data = records,
                                                          .size_bytes = count * sizeof *records});
        }
    }
    return hash;
}

static tsr_sampler *in_batches(tsr_sampler *base, int64_t batch_size)
{
    tsr_sampler *out = NULL;
    ck_assert_ok(tsr_sampler_create_batch(
        tsr_sampler_batch_params(.base = base, .batch_size = batch_size), &out));
    tsr_sampler_destroy(&base);
    return out;
}

START_TEST(the_same_bytes_for_any_number_of_workers)
{
    tsr_sampler *base = NULL;
    ck_assert_ok(tsr_sampler_create_random(tsr_sampler_random_params(.n = 203, .seed = 42), &base));
    tsr_sampler *batches = in_batches(base, 10);
    uint64_t expected = expected_epochs(batches);
    tsr_sampler_destroy(&batches);
    data.jitter_us = 300;
    for (int i = 0; i < WORKER_COUNTS; i++)
        for (int prefetch = 0; prefetch < (worker_counts[i] > 0 ? 4 : 1); prefetch++) {
            create(PARAMS(.n = 203, .batch_size = 10, .shuffle = true, .seed = 42,
                          .workers = worker_counts[i], .prefetch = prefetch));
            ck_assert_uint_eq(loader_info(loader).length, 21);
            ck_assert_uint_eq(three_epochs(), expected);
        }
    ck_assert_int_gt(atomic_load(&data.max_running), 1);
}
END_TEST

START_TEST(the_same_sizes_for_any_number_of_workers)
{
    uint64_t expected = 0;
    data.jitter_us = 300;
    for (int i = 0; i < WORKER_COUNTS; i++) {
        create(tsr_loader_params(.user = &data, .load_batch = fixture_batch,
                                 .item_bytes = sizeof(record), .n = 100, .batch_size = 7,
                                 .drop_last = true, .workers = worker_counts[i]));
        ck_assert_uint_eq(loader_info(loader).length, 14);
        uint64_t hash = three_epochs();
        expected = i == 0 ? hash : expected;
        ck_assert_uint_eq(hash, expected);
    }
}
END_TEST

START_TEST(every_item_once_in_each_epoch)
{
    create(PARAMS(.n = 50, .batch_size = 8, .shuffle = true, .workers = 2));
    for (int64_t epoch = 0; epoch < 4; epoch++) {
        int seen[50] = {0};
        tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
        bool got;
        ck_assert_ok(tsr_loader_set_epoch(loader, epoch));
        for (uint64_t b = 0; b < 7; b++) {
            ck_assert_ok(tsr_loader_next(loader, &batch, &got));
            ck_assert(got);
            ck_assert_uint_eq(batch.count, b < 6 ? 8 : 2);
            ck_assert_uint_eq(batch.size_bytes, batch.count * sizeof(record));
            for (uint64_t i = 0; i < batch.count; i++) {
                record one;
                memcpy(&one, (const record *)batch.data + i, sizeof one);
                ck_assert_int_eq(one.index, batch.indices[i]);
                ck_assert_int_eq(one.epoch, epoch);
                ck_assert_uint_eq(one.batch, b);
                ck_assert_uint_eq(batch.mask[i], 1);
                seen[one.index]++;
            }
        }
        ck_assert_ok(tsr_loader_next(loader, &batch, &got));
        ck_assert(!got);
        for (int i = 0; i < 50; i++)
            ck_assert_int_eq(seen[i], 1);
    }
}
END_TEST

/* Compares the batches with those of PyTorch's DataLoader. */
START_TEST(batches_equal_those_of_torch)
{
    json_t *document = golden_load("torch_batch_sampler"), *one;
    static int64_t values[100000];
    size_t i, e;
    int compared = 0;
    json_array_foreach(golden_list(document, "cases"), i, one)
    {
        const json_t *in = golden_member(one, "in"), *base = golden_member(in, "base");
        const char *kind = golden_text(base, "kind");
        if (strncmp(kind, "dataloader_", 11) != 0)
            continue;
        create(
            PARAMS(.n = (uint64_t)golden_integer(base, "n"),
                   .batch_size = golden_integer(in, "batch_size"),
                   .drop_last = json_is_true(golden_member(in, "drop_last")), .shuffle = true,
                   .order = TSR_ORDER_TORCH, .seed = (int64_t)golden_u64(base, "seed"),
                   .torch = tsr_torch_options(.global_generator = strstr(kind, "global") != NULL),
                   .workers = (int)(i % 3), .seed_strategy = TSR_SEED_STRATEGY_HASHED));
        json_t *epoch;
        json_array_foreach(golden_list(golden_member(one, "out"), "epochs"), e, epoch)
        {
            tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
            bool got = true;
            uint64_t count = 0;
            ck_assert_ok(tsr_loader_set_epoch(loader, (int64_t)e));
            ck_assert_uint_eq(loader_info(loader).length,
                              (uint64_t)golden_integer(epoch, "num_batches"));
            while (got) {
                ck_assert_ok(tsr_loader_next(loader, &batch, &got));
                for (uint64_t k = 0; got && k < batch.count; k++)
                    values[count++] = batch.indices[k];
            }
            const json_t *flat = golden_member(epoch, "flat");
            ck_assert_uint_eq(count, (uint64_t)golden_integer(flat, "count"));
            ck_assert_uint_eq(golden_hash(values, count),
                              golden_hex(golden_member(flat, "fnv1a64")));
            compared++;
        }
    }
    json_decref(document);
    ck_assert_int_ge(compared, 12);
}
END_TEST

/* Tests a sampler of the caller's without a length, a mask, and batches that a sampler has made. */
START_TEST(any_kind_of_sampler)
{
    for (int i = 0; i < WORKER_COUNTS; i++) {
        squares numbers = {.count = 23};
        tsr_sampler *sampler = in_batches(squares_create(&numbers, false), 5);
        uint64_t expected = expected_epochs(sampler);
        tsr_sampler_destroy(&sampler);
        sampler = squares_create(&numbers, false);
        create(
            PARAMS(.sampler = sampler, .batch_size = 5, .workers = worker_counts[i], .seed = 42));
        tsr_sampler_destroy(&sampler);
        ck_assert_uint_eq(loader_info(loader).length, TSR_LENGTH_UNKNOWN);
        ck_assert_uint_eq(three_epochs(), expected);

        ck_assert_ok(tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.n = 7, .ranks = 4, .rank = 3, .order = TSR_ORDER_NONE,
                                           .tail = TSR_TAIL_PAD_MASK),
            &sampler));
        create(PARAMS(.sampler = sampler, .batch_size = 2, .workers = worker_counts[i]));
        tsr_sampler_destroy(&sampler);
        tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
        bool got;
        ck_assert_ok(tsr_loader_next(loader, &batch, &got));
        ck_assert(got && batch.count == 2);
        ck_assert(batch.indices[0] == 3 && batch.mask[0] == 1);
        ck_assert(batch.indices[1] == 0 && batch.mask[1] == 0);

        const int64_t lengths[] = {9, 1, 5, 3, 7};
        ck_assert_ok(tsr_sampler_create_length_sorted(
            tsr_sampler_length_sorted_params(.lengths = lengths, .count = 5, .batch_size = 2,
                                             .order = TSR_ORDER_NONE),
            &sampler));
        create(PARAMS(.batch_sampler = sampler, .n = 5, .workers = worker_counts[i]));
        tsr_sampler_destroy(&sampler);
        ck_assert_ok(tsr_loader_next(loader, &batch, &got));
        ck_assert(got && batch.count == 2 && batch.indices[0] == 1 && batch.indices[1] == 3);
        (void)fixture_read(loader, FIXTURE_HASH);
    }
}
END_TEST

/* The loader gets a sampler that has already given some items, and must continue after them. */
START_TEST(a_sampler_that_has_been_read_before)
{
    tsr_sampler *base = NULL, *batches = NULL;
    ck_assert_ok(tsr_sampler_create_sequential(10, &base));
    ck_assert_ok(tsr_sampler_create_batch(tsr_sampler_batch_params(.base = base, .batch_size = 2),
                                          &batches));
    tsr_sampler_destroy(&base);
    ck_assert_ok(tsr_sampler_seek(batches, 3));
    create(PARAMS(.batch_sampler = batches, .workers = 1));
    tsr_sampler_destroy(&batches);
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    bool got;
    ck_assert_ok(tsr_loader_next(loader, &batch, &got));
    ck_assert(got && batch.batch == 3 && batch.indices[0] == 6);
    (void)fixture_read(loader, FIXTURE_HASH);
}
END_TEST

/* A batch may be as large as the caller likes; the loader must allocate memory only for the
 * items that exist. */
START_TEST(batches_larger_than_the_dataset)
{
    tsr_sampler *all = NULL, *base = NULL;
    ck_assert_ok(tsr_sampler_create_sequential(10, &all));
    create(PARAMS(.n = 10, .batch_size = 10));
    const uint64_t expected = fixture_read(loader, FIXTURE_HASH);
    create(PARAMS(.n = 10, .batch_size = INT64_MAX, .workers = 2));
    ck_assert_uint_eq(fixture_read(loader, FIXTURE_HASH), expected);
    create(PARAMS(.sampler = all, .batch_size = INT64_MAX));
    tsr_sampler_destroy(&all);
    ck_assert_uint_eq(fixture_read(loader, FIXTURE_HASH), expected);
    create(PARAMS(.n = 10, .shuffle = true, .batch_size = INT64_C(1) << 40, .drop_last = true));
    ck_assert_uint_eq(loader_info(loader).length, 0);
    ck_assert_uint_eq(fixture_read(loader, FIXTURE_HASH), FIXTURE_HASH);
    ck_assert_ok(tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = 10, .ranks = 20, .rank = 19, .tail = TSR_TAIL_UNEVEN),
        &base));
    create(PARAMS(.sampler = base, .batch_size = INT64_C(1) << 40, .workers = 1));
    tsr_sampler_destroy(&base);
    ck_assert_uint_eq(fixture_read(loader, FIXTURE_HASH), FIXTURE_HASH);
}
END_TEST

TESTS(loader_order)
{
    tcase_add_checked_fixture(tests, reset_data, destroy_idle);
    tcase_add_test(tests, the_same_bytes_for_any_number_of_workers);
    tcase_add_test(tests, the_same_sizes_for_any_number_of_workers);
    tcase_add_test(tests, every_item_once_in_each_epoch);
    tcase_add_test(tests, batches_equal_those_of_torch);
    tcase_add_test(tests, any_kind_of_sampler);
    tcase_add_test(tests, a_sampler_that_has_been_read_before);
    tcase_add_test(tests, batches_larger_than_the_dataset);
}
