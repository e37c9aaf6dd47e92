/* The epilogue of tsr_matmul: bias, activation, alpha and accumulation; and NaN and infinities. */
#include "gpu/matmul/matmul_case.h"
#include "gpu/matmul/matmul_force.h"

START_TEST(bias_in_every_form)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const batch_shape forms[] = {
        {0, {0}},     {1, {1}},        {1, {14}},       {2, {9, 1}},       {2, {1, 14}},
        {2, {9, 14}}, {3, {1, 9, 14}}, {3, {3, 1, 14}}, {4, {2, 1, 1, 1}}, {4, {2, 3, 9, 14}},
    };
    gpu_random random = {37};
    matmul_case c = plain_case(9, 12, 14);

    c.batch = c.a_batch = (batch_shape){2, {2, 3}};
    for (int i = 0; i < (int)(sizeof forms / sizeof *forms); i++) {
        c.bias = dtypes[i % 3];
        c.bias_shape = forms[i];
        c.views = i & 1;
        c.transpose_b = i & 2;
        run_case(&random, &c);
    }
}
END_TEST

/* The kernels for CPU drivers compute neighbouring elements of a row together. Tests rows whose
 * lengths are and are not multiples of four, columns that are not adjacent, and views that start
 * at any element. */
START_TEST(epilogue_on_rows_of_any_length)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const int64_t columns[] = {36, 38, 13};
    gpu_random random = {43};
    matmul_case c = plain_case(11, 16, 0);

    for (int i = 0; i < 9; i++) {
        c.n = columns[i / 3];
        c.y = dtypes[i % 3];
        c.accumulate = i & 1;
        c.bias = dtypes[i / 3];
        c.bias_shape = (batch_shape){1, {c.n}};
        c.activation = TSR_ACT_RELU;
        for (int views = 0; views < 2; views++) {
            c.views = views;
            c.batch = c.a_batch = (batch_shape){1, {1 + views}};
            run_case(&random, &c);
        }
    }
}
END_TEST

/* On Mesa's CPU driver each dispatch covers a stretch (a range) of k, and the dispatch for the
 * last one applies the epilogue. Tests a single stretch, two, and a last one that overlaps the
 * one before. With a long k, a separate kernel applies the epilogue. The numbers of columns are
 * multiples of four, of two, and odd. */
static const struct {
    int64_t n, k;
    tsr_dtype y, bias; /* 0: no bias */
    tsr_activation activation;
    int64_t matrices;
    bool views;
} last_stretches[] = {
    {36, 64, TSR_F16, 0, TSR_ACT_NONE, 0, false},
    {36, 256, TSR_BF16, TSR_F32, TSR_ACT_SILU, 3, true},
    {40, 520, TSR_F16, TSR_F16, TSR_ACT_GELU_ERF, 0, true},
    {40, 300, TSR_F32, TSR_BF16, TSR_ACT_NONE, 3, false},
    {36, 264, TSR_BF16, 0, TSR_ACT_RELU, 3, false},
    {38, 256, TSR_F16, TSR_F32, TSR_ACT_NONE, 0, false},
    {38, 280, TSR_F32, TSR_F32, TSR_ACT_GELU_TANH, 3, true},
    {13, 250, TSR_BF16, TSR_F16, TSR_ACT_NONE, 3, false},
    {13, 6, TSR_F16, TSR_BF16, TSR_ACT_GELU_TANH, 0, true},
    {20, 2304, TSR_F16, TSR_F32, TSR_ACT_RELU, 0, false},
};

START_TEST(epilogue_in_the_last_stretch)
{
    gpu_random random = {47};

    for (int i = 0; i < (int)(sizeof last_stretches / sizeof *last_stretches); i++) {
        matmul_case c = plain_case(21, last_stretches[i].k, last_stretches[i].n);
        c.transpose_b = true;
        c.y = last_stretches[i].y;
        c.bias = last_stretches[i].bias;
        c.bias_shape = (batch_shape){1, {c.n}};
        c.activation = last_stretches[i].activation;
        c.views = last_stretches[i].views;
        if (last_stretches[i].matrices > 0)
            c.batch = c.a_batch = c.b_batch = (batch_shape){1, {last_stretches[i].matrices}};
        run_case(&random, &c);
    }
}
END_TEST

START_TEST(activations_with_other_epilogues)
{
    gpu_random random = {41};

    for (int act = TSR_ACT_NONE; act <= TSR_ACT_SILU; act++)
        for (int i = 0; i < 4; i++) {
            matmul_case c = plain_case(19, 30, 23);
            c.activation = (tsr_activation)act;
            c.alpha = i & 1 ? 3.5f : 0;
            c.accumulate = i & 2;
            c.bias = TSR_F32;
            c.bias_shape = (batch_shape){1, {23}};
            run_case(&random, &c);
        }
}
END_TEST

/* Computes y = act(y + alpha·a·I) for small matrices with the given a and y. */
static void tiny(const double a[4], const double y_before[4], const tsr_matmul_params *params,
                 double out[4])
{
    static const double identity[4] = {1, 0, 0, 1};
    const int64_t shape[2] = {2, 2};
    tsr_tensor *x = gpu_new(TSR_F32, 2, shape), *b = gpu_new(TSR_F32, 2, shape);
    tsr_tensor *y = gpu_new(TSR_F32, 2, shape);

    gpu_put(x, a);
    gpu_put(b, identity);
    gpu_put(y, y_before);
    GPU_OK(forced_matmul(queue, y, x, b, params));
    gpu_get(y, out);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&y);
}

START_TEST(alpha_zero)
{
    const double a[4] = {1, NAN, INFINITY, 2}, y[4] = {5, 6, 7, 8};
    double out[4];

    /* If alpha is not set, it is 1. Row 0 of the result is then [1 + NaN·0, NaN]. */
    tiny(a, y, NULL, out);
    ck_assert(isnan(out[0]) && isnan(out[1]));
    /* With a factor of 0 the product is not used, even if it is NaN. */
    tiny(a, y, tsr_matmul_params(.alpha = TSR_ZERO), out);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq(out[i], 0);
    tiny(a, y, tsr_matmul_params(.alpha = TSR_ZERO, .accumulate = true), out);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq(out[i], y[i]);
}
END_TEST

START_TEST(y_is_read_only_to_accumulate)
{
    const double a[4] = {1, 2, 3, 4}, y[4] = {NAN, INFINITY, NAN, NAN};
    double out[4];

    tiny(a, y, tsr_matmul_params(.activation = TSR_ACT_RELU), out);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq(out[i], a[i]);
}
END_TEST

/* Infinities and NaN in one row or column must not change other rows or columns, not even those
 * that share an incomplete tile with them. */
START_TEST(special_values_do_not_spread)
{
    enum { SIZE = 37 };
    const int64_t shape[2] = {SIZE, SIZE};
    double *x = calloc(SIZE * SIZE, sizeof *x), *y = calloc(SIZE * SIZE, sizeof *y);
    double *one = calloc(SIZE * SIZE, sizeof *one);

    for (int i = 0; i < SIZE * SIZE; i++)
        x[i] = 1, one[i] = 1;
    x[(SIZE - 1) * SIZE + SIZE - 1] = INFINITY;
    x[SIZE + 3] = NAN;
    for (int i = 0; tsr__matmul_config_at(i); i++) {
        tsr_tensor *a = gpu_new(TSR_F32, 2, shape), *b = gpu_new(TSR_F32, 2, shape);
        tsr_tensor *out = gpu_new(TSR_F32, 2, shape);
        gpu_put(a, x);
        gpu_put(b, one);
        force(tsr__matmul_config_at(i)->name);
        tsr_status status = forced_matmul(queue, out, a, b, NULL);
        forced = NULL;
        if (status == TSR_OK) {
            gpu_get(out, y);
            for (int row = 0; row < SIZE; row++)
                for (int col = 0; col < SIZE; col++) {
                    double value = y[row * SIZE + col];
                    ck_assert_msg(row == 1          ? isnan(value)
                                  : row == SIZE - 1 ? isinf(value)
                                                    : value == SIZE,
                                  "%s: y[%d,%d] is %g", tsr__matmul_config_at(i)->name, row, col,
                                  value);
                }
        }
        tsr_tensor_destroy(&a);
        tsr_tensor_destroy(&b);
        tsr_tensor_destroy(&out);
    }
    free(x);
    free(y);
    free(one);
}
END_TEST

/* Multiplies every f16 value by one and adds products of zeros. The loop variable says where
 * these values are: in rows of a, in columns of b along k, or in b along the columns. Rounds 3
 * and 4 repeat 0 and 1 with a k that is no multiple of a vector. */
START_TEST(all_f16_values)
{
    enum { ALL = 65536, OTHER = 12 };
    int k_count = _i < 3 ? 4 : 3;
    size_t bytes = (size_t)(ALL * k_count) * sizeof(uint16_t);
    uint16_t *float16s = malloc(bytes);
    double ones[OTHER * 4], *got = malloc(ALL * OTHER * sizeof *got);
    bool in_a = _i % 3 == 0, along_k = _i != 2;
    const int64_t of_lines[2] = {ALL, k_count}, of_columns[2] = {k_count, ALL},
                  of_ones[2] = {OTHER, k_count}, of_y[2] = {in_a ? ALL : OTHER, in_a ? OTHER : ALL};
    tsr_tensor *x = gpu_new(TSR_F16, 2, along_k ? of_lines : of_columns);
    tsr_tensor *one = gpu_new(TSR_F16, 2, of_ones), *y = gpu_new(TSR_F32, 2, of_y);

    for (int i = 0; i < OTHER * k_count; i++)
        ones[i] = 1;
    gpu_put(one, ones);
    for (int shift = 0; shift < k_count; shift++) {
        memset(float16s, 0, bytes);
        for (int i = 0; i < ALL; i++) {
            int k = (i + shift) % k_count;
            float16s[along_k ? i * k_count + k : k * ALL + i] = (uint16_t)i;
        }
        GPU_OK(tsr_tensor_upload(queue, x, float16s, bytes));
        GPU_OK(forced_matmul(queue, y, in_a ? x : one, in_a ? one : x,
                             tsr_matmul_params(.transpose_b = along_k)));
        gpu_get(y, got);
        for (int i = 0; i < ALL * OTHER; i++) {
            int bits = in_a ? i / OTHER : i % ALL;
            double want = gpu_value((uint64_t)bits, TSR_F16);
            if (!(got[i] == want || (isnan(got[i]) && isnan(want))))
                ck_abort_msg("f16 %#x times one is %g, not %g", (unsigned)bits, got[i], want);
        }
    }
    free(float16s);
    free(got);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&one);
    tsr_tensor_destroy(&y);
}
END_TEST

TESTS(matmul_epilogue)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, bias_in_every_form);
    tcase_add_test(tests, activations_with_other_epilogues);
    tcase_add_test(tests, alpha_zero);
    tcase_add_test(tests, y_is_read_only_to_accumulate);
    tcase_add_test(tests, special_values_do_not_spread);
    tcase_add_loop_test(tests, all_f16_values, 0, 5);
}

TESTS(matmul_epilogue_slow)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, epilogue_on_rows_of_any_length);
    tcase_add_test(tests, epilogue_in_the_last_stretch);
}
