#include "base/variate.h"

#include <math.h>
#include <stdlib.h>

#include "base/philox.h"
#include "support/check_main.h"

/* Computes the inverse of the normal distribution in double precision, by Newton's method on the
 * tail probability p ≤ 1/2. */
static double tail_inverse(double p)
{
    const double root_two_pi = 2.5066282746310005024;
    double z = p > 0.1 ? (0.5 - p) * root_two_pi : sqrt(-2 * log(p)) - 1;
    for (int i = 0; i < 50; i++) {
        double density = exp(-z * z / 2) / root_two_pi;
        double tail = erfc(z * sqrt(0.5)) / 2;
        double step = p > 0.1 ? (erf(z * sqrt(0.5)) / 2 - (0.5 - p)) / density
                              : -log(tail / p) * tail / density;
        z -= step;
        if (fabs(step) < 1e-15 * z)
            break;
    }
    return z;
}

static void check_accuracy(uint32_t word)
{
    uint32_t below = word >> 31 ? ~word : word;
    double exact = tail_inverse(((double)below + 0.5) * 0x1p-32);
    double z = (double)tsr__normal_from_word(word);
    ck_assert_msg(signbit(z) == !(word >> 31), "sign of z(%08x) = %.9g", word, z);
    ck_assert_msg(fabs(fabs(z) - exact) <= 6e-7 && fabs(fabs(z) - exact) <= 6e-7 * exact,
                  "z(%08x) = %.9g, exactly %.12g", word, z, exact);
}

/* Tests random words at both ends of the range, on both sides of the edges of each octave in the
 * table, and samples of all words. */
START_TEST(normal_is_accurate)
{
    for (uint32_t i = 0; i < 20000; i++) {
        check_accuracy(i);
        check_accuracy(UINT32_MAX - i);
        check_accuracy(UINT32_C(0x7fffffff) - i);
        check_accuracy(UINT32_C(0x80000000) + i);
    }
    for (int octave = 0; octave < 31; octave++)
        for (uint32_t i = 0; i < 64; i++)
            check_accuracy((UINT32_C(1) << octave) - 32 + i);
    for (uint64_t word = 12345; word <= UINT32_MAX; word += 9973)
        check_accuracy((uint32_t)word);
}
END_TEST

START_TEST(normal_reaches_6_3_and_is_odd)
{
    ck_assert_float_lt(tsr__normal_from_word(0), -6.33f);
    ck_assert_float_gt(tsr__normal_from_word(UINT32_MAX), 6.33f);
    for (uint64_t word = 0; word <= UINT32_MAX; word += 99991)
        ck_assert_equal(tsr__normal_from_word((uint32_t)word),
                        -tsr__normal_from_word(~(uint32_t)word));
}
END_TEST

#define SAMPLES 1000000

static int compare(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Moments must be within five standard errors, and Kolmogorov's distance below a limit that one
 * sample in 10^6 exceeds. The words are always the same, so the test always gives the same
 * result. */
START_TEST(normal_statistics)
{
    float *z = malloc(SAMPLES * sizeof *z);
    ck_assert_ptr_nonnull(z);
    double sum[5] = {0};
    for (uint64_t i = 0; i < SAMPLES; i++) {
        z[i] = tsr__normal_from_word(tsr__philox_word(2024, 7, i));
        double power = 1;
        for (int k = 1; k <= 4; k++)
            sum[k] += power *= (double)z[i];
    }
    const double error = 1 / sqrt(SAMPLES);
    ck_assert_double_lt(fabs(sum[1] / SAMPLES), 5 * error);
    ck_assert_double_lt(fabs(sum[2] / SAMPLES - 1), 5 * error * sqrt(2));
    ck_assert_double_lt(fabs(sum[3] / SAMPLES), 5 * error * sqrt(15));
    ck_assert_double_lt(fabs(sum[4] / SAMPLES - 3), 5 * error * sqrt(96));

    qsort(z, SAMPLES, sizeof *z, compare);
    double distance = 0;
    for (int i = 0; i < SAMPLES; i++) {
        double p = erfc(-(double)z[i] * sqrt(0.5)) / 2;
        distance = fmax(distance, fmax(p - (double)i / SAMPLES, (double)(i + 1) / SAMPLES - p));
    }
    ck_assert_double_lt(distance, 2.7 * error);
    free(z);
}
END_TEST

/* Tests the correlation of neighbouring words of a stream, and of streams that differ in one bit of
 * seed or subsequence. */
START_TEST(streams_are_uncorrelated)
{
    double correlation[3] = {0};
    for (uint64_t i = 0; i < SAMPLES; i++) {
        double z = (double)tsr__normal_from_word(tsr__philox_word(1, 0, i));
        correlation[0] += z * (double)tsr__normal_from_word(tsr__philox_word(1, 0, i + 1));
        correlation[1] += z * (double)tsr__normal_from_word(tsr__philox_word(0, 0, i));
        correlation[2] += z * (double)tsr__normal_from_word(tsr__philox_word(1, 1, i));
    }
    for (int i = 0; i < 3; i++)
        ck_assert_double_lt(fabs(correlation[i]) / SAMPLES, 5 / sqrt(SAMPLES));
}
END_TEST

START_TEST(uniform_statistics)
{
    double sum = 0, squares = 0;
    int bins[64] = {0};
    for (uint64_t i = 0; i < SAMPLES; i++) {
        float u = tsr__uniform_from_word(tsr__philox_word(99, 3, i), 0, 1);
        ck_assert(u >= 0 && u < 1);
        sum += (double)u;
        squares += (double)u * (double)u;
        bins[(int)(u * 64)]++;
    }
    ck_assert_double_lt(fabs(sum / SAMPLES - 0.5), 5 * sqrt(1.0 / 12 / SAMPLES));
    ck_assert_double_lt(fabs(squares / SAMPLES - 1.0 / 3), 5 * sqrt(4.0 / 45 / SAMPLES));
    double chi_squared = 0;
    for (int i = 0; i < 64; i++) {
        double expected = SAMPLES / 64.0;
        chi_squared += (bins[i] - expected) * (bins[i] - expected) / expected;
    }
    ck_assert_double_lt(chi_squared, 63 + 5 * sqrt(2 * 63));
    ck_assert_double_gt(chi_squared, 63 - 5 * sqrt(2 * 63));
}
END_TEST

START_TEST(uniform_rounds_as_documented)
{
    ck_assert_float_eq(tsr__uniform_from_word(0, -3, 5), -3);
    ck_assert_float_eq(tsr__uniform_from_word(0xff, -3, 5),
                       -3); /* the low eight bits of the word are ignored */
    ck_assert_float_eq(tsr__uniform_from_word(0x100, 0, 1), 0x1p-24f);
    ck_assert_float_eq(tsr__uniform_from_word(UINT32_MAX, 0, 1), 1 - 0x1p-24f);
    /* 1 + (1 − 2^-24)·1 rounds to 2, which is out of range, so the result is the float below it. */
    ck_assert_float_eq(tsr__uniform_from_word(UINT32_MAX, 1, 2), 2 - 0x1p-23f);
    ck_assert_float_eq(tsr__uniform_from_word(UINT32_MAX, -2, -1), -1 - 0x1p-23f);
    ck_assert_float_eq(tsr__uniform_from_word(UINT32_MAX, -1, 0), -0x1p-24f);
    ck_assert_float_lt(tsr__uniform_from_word(UINT32_MAX, -0x1p24f, 0), 0);
}
END_TEST

TESTS(variate)
{
    tcase_add_test(tests, normal_is_accurate);
    tcase_add_test(tests, normal_reaches_6_3_and_is_odd);
    tcase_add_test(tests, normal_statistics);
    tcase_add_test(tests, streams_are_uncorrelated);
    tcase_add_test(tests, uniform_statistics);
    tcase_add_test(tests, uniform_rounds_as_documented);
}
