/* The scale of losses: it is halved on overflow, grows after a while, and stays within its
 * bounds. */
#include <math.h>

#include "support/check_main.h"
#include "tessera/training.h"

START_TEST(follows_overflows)
{
    tsr_loss_scaler s;
    ck_assert(tsr_loss_scaler_init(&s, NULL) == TSR_OK);
    ck_assert_float_eq(s.scale, 65536);
    ck_assert_int_eq(s.interval, 2000);
    ck_assert(!tsr_loss_scaler_update(&s, INFINITY));
    ck_assert_float_eq(s.scale, 32768);
    ck_assert(!tsr_loss_scaler_update(&s, NAN));
    ck_assert_float_eq(s.scale, 16384);
    for (int i = 0; i < 1999; i++)
        ck_assert(tsr_loss_scaler_update(&s, 3));
    ck_assert_float_eq(s.scale, 16384);
    ck_assert(tsr_loss_scaler_update(&s, 0));
    ck_assert_float_eq(s.scale, 32768);
    ck_assert_int_eq(s.good_steps, 0);
}
END_TEST

START_TEST(stays_within_bounds)
{
    tsr_loss_scaler s;
    ck_assert(tsr_loss_scaler_init(&s, tsr_loss_scaler_params(.scale = 8, .growth = 4,
                                                              .backoff = 0.25f, .interval = 2,
                                                              .smallest = 2, .largest = 100)) ==
              TSR_OK);
    for (int i = 0; i < 3; i++)
        ck_assert(!tsr_loss_scaler_update(&s, INFINITY));
    ck_assert_float_eq(s.scale, 2);
    for (int i = 0; i < 3; i++)
        ck_assert(tsr_loss_scaler_update(&s, 1));
    ck_assert_float_eq(s.scale, 8);
    ck_assert(!tsr_loss_scaler_update(&s, INFINITY)); /* starts counting again */
    for (int i = 0; i < 20; i++)
        ck_assert(tsr_loss_scaler_update(&s, 1));
    ck_assert_float_eq(s.scale, 100);
}
END_TEST

START_TEST(refuses)
{
    tsr_loss_scaler s = {.scale = 7};
    ck_assert_error(tsr_loss_scaler_init(NULL, NULL), TSR_ERR_INVALID,
                    "loss_scaler: scaler is NULL");
    ck_assert_error(tsr_loss_scaler_init(&s, tsr_loss_scaler_params(.scale = 0.5f)),
                    TSR_ERR_INVALID,
                    "loss_scaler: the scale is 0.5, between 1 and 1.67772e+07; it must be finite "
                    "and in between");
    ck_assert_error(tsr_loss_scaler_init(&s, tsr_loss_scaler_params(.growth = 1)), TSR_ERR_INVALID,
                    "loss_scaler: growth is 1; it must be more than 1");
    ck_assert_error(tsr_loss_scaler_init(&s, tsr_loss_scaler_params(.backoff = 1)), TSR_ERR_INVALID,
                    "loss_scaler: backoff is 1; it must be between 0 and 1");
    ck_assert_error(tsr_loss_scaler_init(&s, tsr_loss_scaler_params(.interval = -1)),
                    TSR_ERR_INVALID, "loss_scaler: an interval of -1 steps");
    ck_assert_float_eq(s.scale, 7);
}
END_TEST

TESTS(loss_scaler)
{
    tcase_add_test(tests, follows_overflows);
    tcase_add_test(tests, stays_within_bounds);
    tcase_add_test(tests, refuses);
}
