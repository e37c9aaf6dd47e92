/* Parameters that a loader accepts, and parameters that exclude each other. */
#include <stddef.h>

#include "fixture.h"
#include "support/refused.h"

static source data;
RESET_DATA

static void check_refused(const tsr_loader_params *params, const char *text)
{
    tsr_loader *loader = NULL;
    ck_assert_error(tsr_loader_create(params, &loader), TSR_ERR_INVALID, text);
    ck_assert_ptr_null(loader);
}

static tsr_sampler *make_single(void)
{
    tsr_sampler *out = NULL;
    ck_assert_ok(tsr_sampler_create_sequential(10, &out));
    return out;
}

static tsr_sampler *make_batches(void)
{
    tsr_sampler *base = make_single(), *out = NULL;
    ck_assert_ok(
        tsr_sampler_create_batch(tsr_sampler_batch_params(.base = base, .batch_size = 4), &out));
    tsr_sampler_destroy(&base);
    return out;
}

START_TEST(sampler_excludes)
{
    tsr_sampler *single = make_single(), *batches = make_batches();
    check_refused(PARAMS(.sampler = single, .shuffle = true), "loader: sampler excludes shuffle");
    check_refused(PARAMS(.sampler = batches),
                  "loader: a batch sampler gives batches: pass it as batch_sampler");
    tsr_sampler_destroy(&single);
    tsr_sampler_destroy(&batches);
}
END_TEST

START_TEST(batch_sampler_excludes)
{
    tsr_sampler *single = make_single(), *batches = make_batches();
    check_refused(PARAMS(.batch_sampler = batches, .batch_size = 1),
                  "loader: batch_sampler excludes batch_size, which is 1");
    check_refused(PARAMS(.batch_sampler = batches, .shuffle = true),
                  "loader: batch_sampler excludes shuffle");
    check_refused(PARAMS(.batch_sampler = batches, .sampler = single),
                  "loader: batch_sampler excludes sampler");
    check_refused(PARAMS(.batch_sampler = batches, .drop_last = true),
                  "loader: batch_sampler excludes drop_last");
    check_refused(PARAMS(.batch_sampler = single),
                  "loader: a sequential sampler gives single indices: pass it as sampler");
    tsr_sampler_destroy(&single);
    tsr_sampler_destroy(&batches);
}
END_TEST

START_TEST(without_workers_there_is_no_prefetch)
{
    check_refused(PARAMS(.n = 1, .prefetch = 2),
                  "loader: prefetch 2 needs workers, of which there are 0");
    check_refused(PARAMS(.n = 1, .timeout_ns = 5),
                  "loader: timeout_ns 5 needs workers, of which there are 0");
}
END_TEST

START_TEST(numbers_out_of_range)
{
    check_refused(NULL, "loader: params is NULL");
    check_refused(PARAMS(.batch_size = 4),
                  "loader: there is nothing to read: n is 0, and there is no sampler");
    check_refused(PARAMS(.n = 1, .batch_size = -1), "loader: batch size -1 is negative");
    check_refused(PARAMS(.n = 1, .workers = -1), "loader: -1 workers are outside 0 to 1024");
    check_refused(PARAMS(.n = 1, .workers = 1025), "loader: 1025 workers are outside 0 to 1024");
    check_refused(PARAMS(.n = 1, .workers = 1, .prefetch = -2),
                  "loader: prefetch -2 is outside 0 to 65536");
    check_refused(PARAMS(.n = 1, .workers = 1, .prefetch = 65537),
                  "loader: prefetch 65537 is outside 0 to 65536");
    check_refused(PARAMS(.n = 1, .order = TSR_ORDER_TORCH), "loader: order 'torch' needs shuffle");
    check_refused(PARAMS(.n = 1, .seed_strategy = (tsr_seed_strategy)2),
                  "loader: 2 is no seed strategy");
    check_refused(PARAMS(.n = 1, .batch_bytes = 8),
                  "loader: load_item excludes batch_bytes, which is 8");
    check_refused(tsr_loader_params(.n = 1), "loader: there is neither load_item nor load_batch");
    check_refused(PARAMS(.n = 1, .load_batch = fixture_batch),
                  "loader: load_item excludes load_batch");
    check_refused(PARAMS(.n = 1, .shuffle = true, .order = (tsr_order)7), "random: 7 is no order");
    check_refused(
        PARAMS(.n = 1, .shuffle = true, .order = TSR_ORDER_DOTNET, .seed = INT64_C(1) << 40),
        "random: the seed 1099511627776 is not one of System.Random's, an int32");
}
END_TEST

START_TEST(invalid_seeds)
{
    tsr_loader *loader = NULL;
    ck_assert_int_eq(tsr_loader_create(PARAMS(.n = 1, .workers = 2, .seed = INT64_MAX), &loader),
                     TSR_ERR_OVERFLOW);
    ck_assert_int_eq(tsr_loader_create(PARAMS(.n = 1, .node = 1), &loader), TSR_ERR_INVALID);
    ck_assert_int_eq(
        tsr_loader_create(PARAMS(.n = 1, .node = 16384, .seed_strategy = TSR_SEED_STRATEGY_HASHED),
                          &loader),
        TSR_ERR_INVALID);
    ck_assert_ptr_null(loader);
}
END_TEST

START_TEST(batches_that_do_not_fit_memory)
{
    tsr_loader *loader = NULL;
    ck_assert_error(
        tsr_loader_create(tsr_loader_params(.load_item = fixture_item, .n = UINT64_C(1) << 50,
                                            .batch_size = INT64_C(1) << 40,
                                            .item_bytes = UINT64_C(1) << 30),
                          &loader),
        TSR_ERR_OVERFLOW,
        "loader: batches of 1099511627776 indices are too large: item_bytes is 1073741824, "
        "batch_bytes is 0");
    ck_assert_int_eq(
        tsr_loader_create(tsr_loader_params(.n = 1, .load_batch = fixture_batch, .item_bytes = 1,
                                            .batch_bytes = UINT64_MAX),
                          &loader),
        TSR_ERR_OVERFLOW);
    ck_assert_int_eq(tsr_loader_create(tsr_loader_params(.load_item = fixture_item, .n = INT64_MAX,
                                                         .batch_size = INT64_MAX),
                                       &loader),
                     TSR_ERR_NO_MEMORY);
    ck_assert_ptr_null(loader);
}
END_TEST

START_TEST(loaders_keep_their_samplers)
{
    tsr_sampler *single = make_single(), *batches = make_batches();
    tsr_loader *loader = NULL;
    ck_assert_ok(tsr_loader_create(PARAMS(.sampler = single, .batch_size = 3), &loader));
    tsr_sampler_destroy(&single);
    ck_assert_uint_eq(loader_info(loader).length, 4);
    tsr_loader_destroy(&loader);
    ck_assert_ptr_null(loader);
    tsr_loader_destroy(&loader);
    tsr_loader_destroy(NULL);
    ck_assert_ok(tsr_loader_create(PARAMS(.batch_sampler = batches, .workers = 2), &loader));
    tsr_sampler_destroy(&batches);
    ck_assert_uint_eq(loader_info(loader).length, 3);
    tsr_loader_destroy(&loader);
    ck_assert_int_eq(atomic_load(&data.begun), 0);
}
END_TEST

/* A batch or an info without its size is refused, and the position does not change. */
START_TEST(sizes_of_results)
{
    tsr_loader *loader = NULL;
    tsr_loader_batch batch = {0};
    tsr_loader_info info = {0};
    bool got = false;
    ck_assert_ok(tsr_loader_create(PARAMS(.n = 10), &loader));
    ck_assert_error(tsr_loader_next(loader, &batch, &got), TSR_ERR_INVALID,
                    "tsr_loader_batch: struct_size is 0; use TSR_INIT(tsr_loader_batch)");
    ck_assert_error(tsr_loader_get_info(loader, &info), TSR_ERR_INVALID,
                    "tsr_loader_info: struct_size is 0; use TSR_INIT(tsr_loader_info)");
    batch.struct_size = offsetof(tsr_loader_batch, size_bytes);
    ck_assert_ok(tsr_loader_next(loader, &batch, &got));
    ck_assert(got && batch.batch == 0 && batch.count > 0 && batch.size_bytes == 0);
    info.struct_size = offsetof(tsr_loader_info, failed_place);
    ck_assert_ok(tsr_loader_get_info(loader, &info));
    ck_assert_uint_eq(info.position, 1);
    tsr_loader_destroy(&loader);
}
END_TEST

/* Memory that a refused call must not write to. */
static struct {
    tsr_loader *made;
    tsr_loader_batch batch;
    tsr_loader_info info;
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    bool got;
} out;

/* Calls every function that returns a status, in the header's order; `_i` is the number of
 * workers. */
START_TEST(nulls)
{
    tsr_loader *loader = NULL;
    tsr_loader_batch batch = TSR_INIT(tsr_loader_batch);
    uint8_t state[TSR_SAMPLER_STATE_BYTES];
    size_t size;
    bool got;
    ck_assert_ok(tsr_loader_create(PARAMS(.n = 10, .workers = _i), &loader));
    ck_assert_ok(tsr_loader_next(loader, &batch, &got));
    ck_assert_ok(tsr_loader_save(loader, sizeof state, state, &size));
    ck_assert(!tsr_loader_stopping(NULL));

    REFUSED(tsr_loader_create(NULL, &out.made), "loader: params");
    REFUSED(tsr_loader_create(PARAMS(.n = 10), NULL), "loader: out");
    REFUSED(tsr_loader_next(NULL, &out.batch, &out.got), "loader next: loader");
    REFUSED(tsr_loader_next(loader, NULL, &out.got), "loader next: batch");
    REFUSED(tsr_loader_next(loader, &out.batch, NULL), "loader next: got");
    REFUSED(tsr_loader_get_info(NULL, &out.info), "loader info: loader");
    REFUSED(tsr_loader_get_info(loader, NULL), "loader info: info");
    REFUSED(tsr_loader_skip(NULL), "loader skip: loader");
    REFUSED(tsr_loader_set_epoch(NULL, 1), "loader set epoch: loader");
    REFUSED(tsr_loader_seek(NULL, 1), "loader seek: loader");
    REFUSED(tsr_loader_save(NULL, sizeof out.state, out.state, &out.size), "loader save: loader");
    REFUSED(tsr_loader_save(loader, sizeof out.state, NULL, &out.size), "loader save: data");
    REFUSED(tsr_loader_save(loader, sizeof out.state, out.state, NULL), "loader save: size_bytes");
    REFUSED(tsr_loader_resume(NULL, state, size), "loader resume: loader");
    REFUSED(tsr_loader_resume(loader, NULL, size), "loader resume: data");

    ck_assert_uint_eq(loader_info(loader).position, 1);
    ck_assert_ok(tsr_loader_next(loader, &batch, &got));
    ck_assert(got && batch.batch == 1);
    tsr_loader_destroy(&loader);
}
END_TEST

TESTS(loader_params)
{
    tcase_add_checked_fixture(tests, reset_data, NULL);
    tcase_add_test(tests, sampler_excludes);
    tcase_add_test(tests, batch_sampler_excludes);
    tcase_add_test(tests, without_workers_there_is_no_prefetch);
    tcase_add_test(tests, numbers_out_of_range);
    tcase_add_test(tests, sizes_of_results);
    tcase_add_loop_test(tests, nulls, 0, 3);
    tcase_add_test(tests, invalid_seeds);
    tcase_add_test(tests, batches_that_do_not_fit_memory);
    tcase_add_test(tests, loaders_keep_their_samplers);
}
