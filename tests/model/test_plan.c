/* Plans of what ranks will hold, and of what would fit. families.c checks that models keep the
 * planned bytes. */
#include "base/fault.h"
#include "support/check_main.h"
#include "tessera/model.h"

#define STORIES TEST_DATA "/model/stories260K-f32.gguf"

START_TEST(params_are_checked)
{
    tsr_model_rank_plan ranks[2];
    tsr_model_fit fit;
    ck_assert_error(tsr_model_plan(NULL, NULL, NULL, ranks, NULL), TSR_ERR_INVALID,
                    "model: path is NULL");
    ck_assert_error(tsr_model_plan(STORIES, NULL, NULL, NULL, NULL), TSR_ERR_INVALID,
                    "model: ranks is NULL");
    ck_assert_error(tsr_model_plan(STORIES, NULL, NULL, ranks, &fit), TSR_ERR_INVALID,
                    "model: memory_bytes and fit go together");
    ck_assert_error(
        tsr_model_plan(STORIES, tsr_model_plan_params(.ranks = 65537), NULL, ranks, NULL),
        TSR_ERR_INVALID, "model: ranks is 65537; 1 to 65536 is possible");
    ck_assert_error(
        tsr_model_plan(STORIES, tsr_model_plan_params(.context = -1), NULL, ranks, NULL),
        TSR_ERR_INVALID, "model: context is -1; 1 to 1073741824 is possible");
    ck_assert_error(
        tsr_model_plan(STORIES, tsr_model_plan_params(.sequences = -1), NULL, ranks, NULL),
        TSR_ERR_INVALID, "model: sequences is -1; 1 to 1000000 is possible");
    ck_assert_error(
        tsr_model_plan(STORIES, tsr_model_plan_params(.cache_dtype = TSR_I32), NULL, ranks, NULL),
        TSR_ERR_INVALID, "model: the cache cannot be i32; f32, f16 and bf16 are possible");
    ck_assert_int_eq(tsr_model_plan("/nonexistent", NULL, NULL, ranks, NULL), TSR_ERR_NOT_FOUND);
}
END_TEST

/* The sum over all ranks is the model, and only norms are on more than one rank. */
START_TEST(shares_add_up)
{
    tsr_model_rank_plan one, four[4];
    uint64_t weights = 0, norms = 0, cache = 0;
    ck_assert_ok(tsr_model_plan(STORIES, NULL, NULL, &one, NULL));
    ck_assert_ok(tsr_model_plan(STORIES, tsr_model_plan_params(.ranks = 4), NULL, four, NULL));
    for (int r = 0; r < 4; r++) {
        weights += four[r].weight_bytes - four[r].norm_bytes;
        norms += four[r].norm_bytes;
        cache += four[r].cache_bytes;
    }
    ck_assert_uint_eq(weights, one.weight_bytes - one.norm_bytes);
    ck_assert_uint_eq(norms, 4 * one.norm_bytes);
    ck_assert_uint_eq(cache, one.cache_bytes);
    ck_assert_uint_eq(one.token_bytes, one.weight_bytes);
}
END_TEST

/* Checks what would fit by planning it. */
START_TEST(what_would_fit_fits)
{
    tsr_model_rank_plan ranks[TSR_MODEL_PLAN_MAX_ADVICE];
    tsr_model_fit fit;
    uint64_t memory[TSR_MODEL_PLAN_MAX_ADVICE];
    for (int r = 0; r < TSR_MODEL_PLAN_MAX_ADVICE; r++)
        memory[r] = 500000;
    tsr_model_plan_params params = {.context = 64};
    ck_assert_ok(tsr_model_plan(STORIES, &params, memory, ranks, &fit));
    ck_assert_uint_eq(fit.missing_bytes, ranks[0].total_bytes - 500000);
    ck_assert_int_eq(fit.rank, 0);
    ck_assert(fit.ranks > 1 && fit.dtype != 0);
    params.ranks = fit.ranks - 1;
    ck_assert_ok(tsr_model_plan(STORIES, &params, memory, ranks, &fit));
    ck_assert_uint_gt(fit.missing_bytes, 0);
    params.ranks++;
    ck_assert_ok(tsr_model_plan(STORIES, &params, memory, ranks, &fit));
    ck_assert(fit.missing_bytes == 0 && fit.rank == -1 && fit.ranks == 0 && fit.dtype == 0);
    params = (tsr_model_plan_params){.context = 64, .dtype = TSR_F16};
    memory[0] = 610000;
    ck_assert_ok(tsr_model_plan(STORIES, &params, memory, ranks, &fit));
    ck_assert_uint_eq(fit.missing_bytes, 0);
    memory[0] = 10;
    ck_assert_ok(tsr_model_plan(STORIES, &params, memory, ranks, &fit));
    ck_assert(fit.missing_bytes > 0 && fit.ranks == 0 && fit.dtype == 0);
    memory[0] = 0;
    ck_assert_ok(tsr_model_plan(STORIES, &params, memory, ranks, &fit));
    ck_assert_uint_eq(fit.missing_bytes, 0);
}
END_TEST

START_TEST(memory_runs_out)
{
    tsr_model_rank_plan ranks[3];
    tsr_model_fit fit;
    const uint64_t memory[3] = {200000, 200000, 200000};
    uint64_t nth = 0;
    for (bool reached = true; reached; nth++) {
        tsr__fault_arm(TSR__FAULT_ALLOC, nth, 0);
        const tsr_status status =
            tsr_model_plan(STORIES, tsr_model_plan_params(.ranks = 3), memory, ranks, &fit);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(status, reached ? TSR_ERR_NO_MEMORY : TSR_OK);
    }
    ck_assert_uint_gt(nth, 20);
}
END_TEST

TESTS(model_plan)
{
    tcase_add_test(tests, params_are_checked);
    tcase_add_test(tests, shares_add_up);
    tcase_add_test(tests, what_would_fit_fits);
    tcase_add_test(tests, memory_runs_out);
}
