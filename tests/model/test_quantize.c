/* Several threads quantise rows. The blocks and errors must be those of one thread. */
#include <math.h>
#include <string.h>

#include "model/weights/quantize.h"
#include "support/check_main.h"
#include "support/random.h"

enum { ROWS = 700, COLUMNS = 512 };

static void fill(float *values)
{
    uint64_t random = 7;
    for (int i = 0; i < ROWS * COLUMNS; i++)
        values[i] = (float)random_between(&random, -1000, 1000) * 0.01f;
}

START_TEST(rows_of_several_threads)
{
    static float values[ROWS * COLUMNS];
    static uint8_t blocks[ROWS * COLUMNS * 2], expected[sizeof blocks];
    static const tsr_dtype dtypes[] = {TSR_Q4_0, TSR_Q8_0};
    const uint64_t bytes = (uint64_t)ROWS * COLUMNS / 32 * (_i == 0 ? 18 : 34);
    fill(values);
    ck_assert_ok(tsr_quantize(dtypes[_i], values, ROWS * COLUMNS, expected, bytes));
    ck_assert_ok(tsr__quantize_rows(dtypes[_i], values, ROWS, COLUMNS, blocks, bytes));
    ck_assert(memcmp(blocks, expected, bytes) == 0);

    values[ROWS * COLUMNS - 5] = NAN; /* one of the last thread's rows */
    ck_assert_error(tsr_quantize(dtypes[_i], values, ROWS * COLUMNS, expected, bytes),
                    TSR_ERR_INVALID, "quantize: element 358395 is NaN");
    ck_assert_error(tsr__quantize_rows(dtypes[_i], values, ROWS, COLUMNS, blocks, bytes),
                    TSR_ERR_INVALID, "quantize: element 358395 is NaN");
}
END_TEST

TESTS(quantize_rows)
{
    tcase_add_loop_test(tests, rows_of_several_threads, 0, 2);
}
