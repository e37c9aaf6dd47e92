/* Compares exact sums with those of another method: expansions, that is, sums of doubles whose
 * bits do not overlap (J. R. Shewchuk, 1997), which are rounded by integer arithmetic. */
#include <stdlib.h>

#include "comm/reduce/exact_combine.h"
#include "comm/reduce/numbers.h"

#define MAX 40

/* The exact sum of numbers, as a list of doubles whose bits do not overlap, the smallest first. */
typedef struct expansion {
    double parts[MAX + 1];
    int count;
} expansion;

static void expand(expansion *sum, double x)
{
    int kept = 0;
    for (int i = 0; i < sum->count; i++) {
        double y = sum->parts[i];
        if (fabs(x) < fabs(y)) {
            const double swapped = x;
            x = y;
            y = swapped;
        }
        const volatile double high = x + y, rest = high - x;
        const double low = y - rest;
        if (low != 0)
            sum->parts[kept++] = low;
        x = high;
    }
    sum->parts[kept++] = x;
    sum->count = kept;
}

/* Adds the doubles of an expansion from the largest on until a sum is not exact, and returns
 * that sum. `rest` is its error, and `third` the next double, which decides if `rest` is a tie. */
static double top_of(const expansion *sum, double *rest, double *third)
{
    int n = sum->count - 1;
    double high = sum->parts[n];
    *rest = *third = 0;
    while (n > 0 && *rest == 0) {
        const double x = high, y = sum->parts[--n];
        const volatile double both = x + y, taken = both - x;
        high = both;
        *rest = y - taken;
    }
    if (n > 0)
        *third = sum->parts[n - 1];
    return high;
}

/* Rounds an expansion to odd: if the sum is not exact, returns the neighbouring double whose
 * last bit is 1. Rounding that to fewer bits is then right. */
static double odd_of(const expansion *sum)
{
    double rest, third, high = top_of(sum, &rest, &third);
    uint64_t bits;
    memcpy(&bits, &high, sizeof bits);
    if (rest != 0 && bits % 2 == 0)
        bits = (rest > 0) == (high > 0) ? bits + 1 : bits - 1;
    memcpy(&high, &bits, sizeof bits);
    return high;
}

/* Rounds an expansion to the nearest double, ties to even. */
static double nearest_of(const expansion *sum)
{
    double rest, third, high = top_of(sum, &rest, &third);
    if (rest != 0 && third != 0 && (rest < 0) == (third < 0)) {
        const volatile double twice = 2 * rest, other = high + twice;
        if (other - high == twice)
            high = other;
    }
    return high;
}

static uint64_t expected_sum(const uint64_t *values, int n, tsr_dtype dtype)
{
    expansion sum = {.count = 0};
    bool plus = false, minus = false, nan = false, minus_zeros = true;
    for (int i = 0; i < n; i++) {
        const double x = float_of(values[i], dtype);
        nan = nan || isnan(x);
        plus = plus || (isinf(x) && x > 0);
        minus = minus || (isinf(x) && x < 0);
        minus_zeros = minus_zeros && x == 0 && signbit(x);
        if (isfinite(x) && x != 0)
            expand(&sum, x);
    }
    if (nan || (plus && minus))
        return bits_of_float((double)NAN, dtype);
    if (plus || minus)
        return bits_of_float(plus ? (double)INFINITY : -(double)INFINITY, dtype);
    while (sum.count > 0 && sum.parts[sum.count - 1] == 0)
        sum.count--;
    if (sum.count == 0)
        return bits_of_float(minus_zeros ? -0.0 : 0.0, dtype);
    return bits_of_float(dtype == TSR_F64 ? nearest_of(&sum) : odd_of(&sum), dtype);
}

static uint64_t random_value(uint64_t *random, tsr_dtype dtype, int kind)
{
    const double unit = (double)(int64_t)(random_next(random) >> 11) * 0x1p-52 - 1;
    const int range = dtype == TSR_F16 ? 14 : dtype == TSR_F64 ? 900 : 120;
    switch (kind) {
    case 0: /* numbers of similar size */
        return bits_of_float(unit, dtype);
    case 1: /* numbers of any size */
        return bits_of_float(unit * ldexp(1, (int)random_between(random, -range, range)), dtype);
    case 2: /* ties, and small values that break them */
        return bits_of_float(
            ldexp((double)random_between(random, -3, 3), (int)random_between(random, -2, 2) * 12),
            dtype);
    default: /* special values */
        return random_element(random, dtype);
    }
}

static const tsr_dtype float_dtypes[] = {TSR_F32, TSR_F64, TSR_F16, TSR_BF16};

START_TEST(sums)
{
    const tsr_dtype dtype = float_dtypes[_i / 4];
    const uint64_t element = tsr__element_size(dtype);
    uint64_t random = (uint64_t)_i + 1;
    enum { COUNT = 600 };
    static uint8_t memory[MAX][COUNT * 8], out[COUNT * 8];
    const void *inputs[MAX];
    for (int round = 0; round < 12; round++) {
        const int n = (int)random_between(&random, 1, round < 6 ? 8 : MAX);
        for (int i = 0; i < n; i++) {
            inputs[i] = memory[i];
            for (uint64_t j = 0; j < COUNT; j++)
                store(memory[i], j, dtype, random_value(&random, dtype, _i % 4));
        }
        /* Makes some contributions cancel each other. */
        for (uint64_t j = 0; n > 2 && j < COUNT; j += 3)
            store(memory[1], j, dtype,
                  load(memory[0], j, dtype) ^ UINT64_C(1) << (8 * element - 1));
        tsr__exact_combine(dtype, TSR_OP_SUM, out, inputs, n, COUNT);
        for (uint64_t j = 0; j < COUNT; j++) {
            uint64_t values[MAX];
            for (int i = 0; i < n; i++)
                values[i] = load(memory[i], j, dtype);
            ck_assert_uint_eq(load(out, j, dtype), expected_sum(values, n, dtype));
        }
        /* The result is the same in any order, and if the output is one of the inputs. */
        for (int i = 0; i < n; i++) {
            const int other = (int)random_between(&random, 0, n - 1);
            const void *kept = inputs[i];
            inputs[i] = inputs[other];
            inputs[other] = kept;
        }
        tsr__exact_combine(dtype, TSR_OP_SUM, memory[0], inputs, n, COUNT);
        ck_assert_int_eq(memcmp(memory[0], out, COUNT * element), 0);
    }
}
END_TEST

/* Sums whose intermediate results overflow a double, and sums in which a very small part decides
 * the rounding. */
START_TEST(hard_sums)
{
    static const struct {
        double values[5], sum;
    } cases[] = {
        {{0x1.fffffffffffffp+1023, 0x1.fffffffffffffp+1023, -0x1.fffffffffffffp+1023, 0, 0},
         0x1.fffffffffffffp+1023},
        {{0x1p+1023, 0x1p+1023, -0x1p+1023, -0x1p+1023, 0x1p-1074}, 0x1p-1074},
        {{1, 0x1p-53, 0x1p-1074, 0, 0}, 0x1.0000000000001p+0},
        {{1, 0x1p-53, -0x1p-1074, 0, 0}, 1},
        {{1, 0x1p-53, 0, 0, 0}, 1},
        {{0x1.0000000000001p+0, 0x1p-53, 0, 0, 0}, 0x1.0000000000002p+0},
        {{0x1.fffffffffffffp+1023, 0x1p+969, 0, 0, 0}, 0x1.fffffffffffffp+1023},
        {{0x1.fffffffffffffp+1023, 0x1p+970, 0, 0, 0}, (double)INFINITY},
        {{0x1.fffffffffffffp+1023, 0x1p+970, -0x1p-1074, 0, 0}, 0x1.fffffffffffffp+1023},
        {{0x1p-1022, -0x1p-1074, 0, 0, 0}, 0x0.fffffffffffffp-1022},
        {{-1, 1, -0.0, 0, 0}, 0},
        {{-0.0, -0.0, -0.0, -0.0, -0.0}, -0.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const void *inputs[5];
        double sum;
        for (int j = 0; j < 5; j++)
            inputs[j] = &cases[i].values[j];
        tsr__exact_combine(TSR_F64, TSR_OP_SUM, &sum, inputs, 5, 1);
        ck_assert_msg(memcmp(&sum, &cases[i].sum, sizeof sum) == 0, "case %d: %a instead of %a",
                      (int)i, sum, cases[i].sum);
    }
}
END_TEST

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y ? 1 : signbit(y) != 0 ? 1 : signbit(x) != 0 ? -1 : 0;
}

START_TEST(products)
{
    const tsr_dtype dtype = float_dtypes[_i];
    uint64_t random = (uint64_t)_i + 100;
    for (int round = 0; round < 3000; round++) {
        const int n = (int)random_between(&random, 1, 16);
        uint64_t values[16], out = 0;
        double sorted[16];
        const void *inputs[16];
        bool nan = false;
        for (int i = 0; i < n; i++) {
            values[i] = random_value(&random, dtype, round % 4);
            sorted[i] = float_of(values[i], dtype);
            inputs[i] = &values[i];
            nan = nan || isnan(sorted[i]);
        }
        tsr__exact_combine(dtype, TSR_OP_PROD, &out, inputs, n, 1);
        if (!nan)
            qsort(sorted, (size_t)n, sizeof *sorted, by_value);
        double product = sorted[0];
        for (int i = 1; i < n; i++)
            product *= sorted[i];
        ck_assert_uint_eq(out, bits_of_float(nan ? (double)NAN : product, dtype));
    }
}
END_TEST

TESTS(exact)
{
    tcase_add_loop_test(tests, sums, 0, 16);
    tcase_add_test(tests, hard_sums);
    tcase_add_loop_test(tests, products, 0, 4);
}
