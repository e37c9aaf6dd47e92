/* Learning rates by step: compares nanoGPT's cosine with a golden file, and the other schedules
 * with values computed by hand. */
#include <math.h>

#include "support/check_main.h"
#include "support/golden.h"
#include "tessera/training.h"

static double decimal(const json_t *object, const char *name)
{
    char *end;
    const char *text = golden_text(object, name);
    const double value = strtod(text, &end);
    if (end == text || *end != '\0')
        ck_abort_msg("\"%s\": '%s' is no number", name, text);
    return value;
}

START_TEST(cosine_is_that_of_nanogpt)
{
    json_t *document = golden_load("cosine_schedule"), *one;
    size_t c, i, compared = 0;
    json_array_foreach(golden_list(document, "cases"), c, one)
    {
        const tsr_schedule schedule = {.struct_size = sizeof schedule,
                                       .kind = TSR_SCHEDULE_COSINE,
                                       .learning_rate = decimal(one, "learning_rate"),
                                       .final_rate = decimal(one, "min_lr"),
                                       .warmup_steps = golden_integer(one, "warmup_iters"),
                                       .steps = golden_integer(one, "lr_decay_iters")};
        const json_t *its = golden_list(one, "it"), *rates = golden_list(one, "lr");
        ck_assert(tsr_schedule_check(&schedule) == TSR_OK);
        ck_assert_uint_eq(json_array_size(its), json_array_size(rates));
        for (i = 0; i < json_array_size(its); i++, compared++) {
            const json_int_t it = json_integer_value(json_array_get(its, i));
            const double want = json_number_value(json_array_get(rates, i));
            const double got = tsr_schedule_rate(&schedule, it);
            if (!(fabs(got - want) <= 1e-14 * schedule.learning_rate))
                ck_abort_msg("case %zu, step %lld: %.17g instead of %.17g", c, (long long)it, got,
                             want);
        }
    }
    ck_assert_uint_gt(compared, 100);
    json_decref(document);
}
END_TEST

START_TEST(linear_and_constant)
{
    tsr_schedule s = {.struct_size = sizeof s,
                      .kind = TSR_SCHEDULE_LINEAR,
                      .learning_rate = 1,
                      .final_rate = 0.5,
                      .warmup_steps = 3,
                      .steps = 13};
    const double linear[] = {0.25, 0.5, 0.75, 1, 0.95, 0.9};
    for (int64_t i = 0; i < 6; i++)
        ck_assert_double_eq_tol(tsr_schedule_rate(&s, i), linear[i], 1e-15);
    ck_assert_double_eq(tsr_schedule_rate(&s, 13), 0.5);
    ck_assert_double_eq(tsr_schedule_rate(&s, 1000), 0.5);
    s.kind = TSR_SCHEDULE_CONSTANT;
    s.steps = 0;
    ck_assert_double_eq(tsr_schedule_rate(&s, 2), 0.75);
    ck_assert_double_eq(tsr_schedule_rate(&s, 3), 1);
    ck_assert_double_eq(tsr_schedule_rate(&s, INT64_MAX), 1);
    s.warmup_steps = 0;
    ck_assert_double_eq(tsr_schedule_rate(&s, 0), 1);
    s.warmup_steps = INT64_MAX;
    ck_assert_double_eq_tol(tsr_schedule_rate(&s, INT64_MAX - 1), 1, 1e-15);
}
END_TEST

START_TEST(refuses)
{
    const tsr_schedule good = {
        .struct_size = sizeof good, .kind = TSR_SCHEDULE_COSINE, .learning_rate = 1, .steps = 10};
    tsr_schedule s = good;
    ck_assert(tsr_schedule_check(&s) == TSR_OK);
    ck_assert_error(tsr_schedule_check(NULL), TSR_ERR_INVALID, "schedule: schedule is NULL");
    s.kind = (tsr_schedule_kind)3;
    ck_assert_error(tsr_schedule_check(&s), TSR_ERR_INVALID,
                    "schedule: kind 3 is none of tsr_schedule_kind");
    ck_assert(isnan(tsr_schedule_rate(&s, 1)));
    s = good;
    s.learning_rate = -1;
    ck_assert_error(tsr_schedule_check(&s), TSR_ERR_INVALID,
                    "schedule: the rates are -1 and 0; they must be finite and at least 0");
    ck_assert(isnan(tsr_schedule_rate(&s, 1)));
    s = good;
    s.final_rate = INFINITY;
    ck_assert_error(tsr_schedule_check(&s), TSR_ERR_INVALID,
                    "schedule: the rates are 1 and inf; they must be finite and at least 0");
    s = good;
    s.warmup_steps = -1;
    ck_assert_error(tsr_schedule_check(&s), TSR_ERR_INVALID, "schedule: -1 steps of warm-up");
    s.warmup_steps = 10;
    ck_assert_error(tsr_schedule_check(&s), TSR_ERR_INVALID,
                    "schedule: 10 steps, of which 10 are the warm-up; there must be more");
    ck_assert(isnan(tsr_schedule_rate(&s, 1)));
    ck_assert(isnan(tsr_schedule_rate(&good, -1)));
    ck_assert(isnan(tsr_schedule_rate(NULL, 1)));
    s = good;
    s.struct_size = 0;
    ck_assert_error(tsr_schedule_check(&s), TSR_ERR_INVALID,
                    "tsr_schedule: struct_size is 0; use TSR_INIT(tsr_schedule)");
    ck_assert(isnan(tsr_schedule_rate(&s, 1)));
}
END_TEST

TESTS(schedule)
{
    tcase_add_test(tests, cosine_is_that_of_nanogpt);
    tcase_add_test(tests, linear_and_constant);
    tcase_add_test(tests, refuses);
}
