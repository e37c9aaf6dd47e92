/* tsr_matmul: every kernel on shapes that meet its edges, everything the epilogue does, and every
 * refusal. */
#include <stdio.h>

#include "base/fault.h"
#include "gpu/pipeline.h"
#include "gpu/stream_state.h"
#include "matmul_case.h"

static tsr__matmul_override override;

/* All calls from here on take the kernel called `name`. */
static void force(const char *name)
{
    override = (tsr__matmul_override){.config = name};
    tsr__matmul_force(&override);
}

static void force_splits(uint32_t splits)
{
    override = (tsr__matmul_override){.splits = splits};
    tsr__matmul_force(&override);
}

/* Kernels -------------------------------------------------------------------------------------- */

/* Runs a case with the kernel at this place of the table; false where that cannot do it here. */
static bool run_with(gpu_random *random, const matmul_case *c, int config)
{
    force(tsr__matmul_config_at(config)->name);
    tsr_status status = try_case(random, c);
    if (status != TSR_OK && status != TSR_ERR_UNSUPPORTED)
        ck_abort_msg("%s: %s: %s", override.config, case_text(c), tsr_last_error());
    tsr__matmul_force(NULL);
    return status == TSR_OK;
}

/* With every kernel that can do it here; how many did. */
static int run_with_all(gpu_random *random, const matmul_case *c)
{
    int ran = 0;

    for (int i = 0; tsr__matmul_config_at(i); i++)
        ran += run_with(random, c, i);
    return ran;
}

static const int64_t shapes[][3] = {
    /* m, k, n: one element; odd; a tile and one more; multiples of everything; few rows; few
       columns; k within a vector */
    {1, 1, 1},   {3, 5, 7},     {33, 65, 34}, {64, 64, 64}, {1, 96, 70},
    {5, 130, 9}, {129, 20, 66}, {40, 260, 2}, {16, 3, 16},  {1, 7, 1},
};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

/* The loop variable is which of a and b are transposed. Each shape meets two of the four; the fuzz
 * has them all. The larger tiles are the small one's code, and slow to compile here: half of them
 * take a as it is, the others transposed. */
START_TEST(every_kernel_on_every_transposition)
{
    gpu_random random = {(uint64_t)_i + 7};
    int ran = 0;

    for (int i = (_i ^ _i >> 1) & 1; i < SHAPES; i += 2) {
        matmul_case c = plain_case(shapes[i][0], shapes[i][1], shapes[i][2]);
        c.transpose_a = _i & 1;
        c.transpose_b = _i & 2;
        for (int j = 0; tsr__matmul_config_at(j); j++) {
            bool larger = tsr__matmul_config_at(j)->bm > 32;
            if (!larger || c.transpose_a == (j % 2 == 0))
                ran += run_with(&random, &c, j);
        }
    }
    /* At the least the small tile and one of the larger where they fit, the wide one, and one of
     * the driver's own. */
    ck_assert_int_ge(ran, 4 * (SHAPES / 2));
}
END_TEST

START_TEST(every_kernel_with_an_epilogue)
{
    gpu_random random = {11};
    matmul_case c = plain_case(21, 70, 38);

    c.y = TSR_F16;
    c.bias = TSR_BF16;
    c.bias_shape = (batch_shape){1, {38}};
    c.alpha = -0.5f;
    c.accumulate = true;
    c.activation = TSR_ACT_GELU_TANH;
    c.transpose_b = true;
    ck_assert_int_ge(run_with_all(&random, &c), 4);
    c.m = 2; /* the kernels for few rows */
    ck_assert_int_ge(run_with_all(&random, &c), 4);
}
END_TEST

START_TEST(every_kernel_on_views_and_batches)
{
    gpu_random random = {13};
    matmul_case c = plain_case(9, 40, 35);

    c.views = true;
    c.batch = (batch_shape){3, {2, 3, 2}};
    c.a_batch = (batch_shape){2, {3, 1}};
    c.b_batch = (batch_shape){3, {2, 1, 2}};
    for (int i = 0; i < 4; i++)
        ck_assert_int_ge(run_with_all(&random, &c), 3);
    c.m = 3;
    ck_assert_int_ge(run_with_all(&random, &c), 3);
}
END_TEST

/* The loop variable is the mixture of a and b; y is each in turn. */
START_TEST(mixtures_of_dtypes)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {17};
    matmul_case c = plain_case(33, 44, 27);

    c.a = dtypes[_i / 3];
    c.b = dtypes[_i % 3];
    for (int i = 0; i < 3; i++) {
        c.y = dtypes[i];
        c.transpose_b = i & 1;
        run_case(&random, &c);
    }
}
END_TEST

START_TEST(the_large_kernels_choice_on_mixtures)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {19};
    matmul_case c = plain_case(130, 140, 90); /* enough work for the drivers' own kernels */

    for (int i = 0; i < 9; i++) {
        c.a = dtypes[i / 3];
        c.b = dtypes[i % 3];
        c.transpose_b = i & 1;
        c.transpose_a = i & 2;
        run_case(&random, &c);
    }
}
END_TEST

/* Enough of both for Mesa's CPU driver to widen a to the order in which it reads b: whole pairs of
 * steps, in stretches that end with k and in stretches that start earlier. The loop variable is
 * whether b is transposed. */
START_TEST(bf16_in_pairs_of_steps)
{
    static const int64_t depths[] = {16, 80, 544, 1056};
    gpu_random random = {29};

    for (size_t i = 0; i < sizeof depths / sizeof *depths; i++) {
        matmul_case c = plain_case(i % 2 ? 128 : 137, depths[i], i % 3 ? 130 : 128);
        c.a = c.b = TSR_BF16;
        c.y = i % 2 ? TSR_BF16 : TSR_F32;
        c.transpose_b = _i;
        c.views = i > 1;
        run_case(&random, &c);
    }
}
END_TEST

/* Enough rows for Mesa's CPU driver to take them in blocks, the last of which is not full, with two
 * stretches of k, of which the second adds to what the first has stored. */
START_TEST(many_rows)
{
    gpu_random random = {31};
    matmul_case c = plain_case(1000, 300, 260);

    c.transpose_b = true;
    c.accumulate = true;
    run_case(&random, &c);
    c.a = c.b = c.y = TSR_F16;
    run_case(&random, &c);
    c.n = 52; /* no team */
    run_case(&random, &c);
}
END_TEST

START_TEST(splits_of_k)
{
    gpu_random random = {23};
    matmul_case c = plain_case(10, 1000, 18);

    for (uint32_t splits = 2; splits <= 7; splits++) {
        for (int i = 0; tsr__matmul_config_at(i); i++) {
            override = (tsr__matmul_override){tsr__matmul_config_at(i)->name, splits};
            tsr__matmul_force(&override);
            tsr_status status = tsr__matmul_config_at(i)->bm <= 32 ? try_case(&random, &c) : TSR_OK;
            if (status != TSR_OK && status != TSR_ERR_UNSUPPORTED)
                ck_abort_msg("%s", tsr_last_error());
        }
        c.transpose_b = !c.transpose_b;
        c.bias = splits % 2 ? TSR_F32 : 0;
        c.bias_shape = (batch_shape){2, {10, 1}};
        c.activation = splits % 2 ? TSR_ACT_SILU : TSR_ACT_NONE;
        c.batch = splits % 3 ? (batch_shape){0} : (batch_shape){2, {2, 3}};
        c.a_batch = c.b_batch = c.batch;
    }
    tsr__matmul_force(NULL);
}
END_TEST

/* What is in memory after the product of an m×k and a k×n, again and again. */
static void expect_same_bits(int64_t m, int64_t k, int64_t n)
{
    gpu_random random = {29};
    size_t x_size = (size_t)(m * k), w_size = (size_t)(k * n), y_size = (size_t)(m * n);
    size_t most = x_size > w_size ? x_size : w_size;
    float *x = malloc(most * sizeof *x), *first = malloc(y_size * sizeof *first),
          *again = malloc(y_size * sizeof *again);
    tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){m, k});
    tsr_tensor *b = gpu_new(TSR_F32, 2, (int64_t[]){k, n});
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){m, n});

    for (size_t i = 0; i < most; i++)
        x[i] = (float)gpu_random_unit(&random);
    GPU_OK(tsr_tensor_upload(queue, a, x, sizeof *x * x_size));
    GPU_OK(tsr_tensor_upload(queue, b, x, sizeof *x * w_size));
    for (uint32_t splits = 0; splits <= 3; splits += 3) {
        force_splits(splits);
        GPU_OK(tsr_matmul(queue, y, a, b, NULL));
        GPU_OK(tsr_tensor_download(queue, y, first, sizeof *first * y_size));
        for (int i = 0; i < 5; i++) {
            gpu_poison(y);
            GPU_OK(tsr_matmul(queue, y, a, b, NULL));
            GPU_OK(tsr_tensor_download(queue, y, again, sizeof *again * y_size));
            ck_assert_mem_eq(first, again, sizeof *first * y_size);
        }
    }
    tsr__matmul_force(NULL);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&y);
    free(x);
    free(first);
    free(again);
}

START_TEST(the_same_bits_every_time)
{
    expect_same_bits(60, 1500, 40);
    expect_same_bits(1, 1541, 700);
}
END_TEST

/* Small problems of many shapes come out of a handful of pipelines. */
START_TEST(shapes_do_not_each_make_a_pipeline)
{
    gpu_random random = {31};
    uint64_t before = tsr__pipelines_built(gpu);

    for (int i = 0; i < 60; i++) {
        matmul_case c =
            plain_case(gpu_random_between(&random, 1, 90), gpu_random_between(&random, 1, 90),
                       gpu_random_between(&random, 1, 90));
        run_case(&random, &c);
    }
    ck_assert_uint_le(tsr__pipelines_built(gpu) - before, 18);
}
END_TEST

/* The epilogue --------------------------------------------------------------------------------- */

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

/* Drivers whose products and epilogues are kernels of their own make neighbours of a row together:
 * rows of fours, of others, columns that are no neighbours; views start anywhere. */
START_TEST(the_epilogue_on_rows_of_any_length)
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

START_TEST(activations_with_everything)
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

/* y of 2 elements = act(y + alpha·[a0 a1]·I + bias) with given a, y and no bias. */
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
    GPU_OK(tsr_matmul(queue, y, x, b, params));
    gpu_get(y, out);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&y);
}

START_TEST(alpha_zero)
{
    const double a[4] = {1, NAN, INFINITY, 2}, y[4] = {5, 6, 7, 8};
    double out[4];

    /* A forgotten alpha is 1: row 0 is [1 + NaN·0, NaN]. */
    tiny(a, y, NULL, out);
    ck_assert(isnan(out[0]) && isnan(out[1]));
    /* A true 0 does not look at the product, and y's old contents are not read either. */
    tiny(a, y, tsr_matmul_params(.alpha_is_zero = true), out);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq(out[i], 0);
    tiny(a, y, tsr_matmul_params(.alpha_is_zero = true, .accumulate = true), out);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq(out[i], y[i]);
}
END_TEST

START_TEST(y_is_not_read_unless_it_accumulates)
{
    const double a[4] = {1, 2, 3, 4}, y[4] = {NAN, INFINITY, NAN, NAN};
    double out[4];

    tiny(a, y, tsr_matmul_params(.activation = TSR_ACT_RELU), out);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq(out[i], a[i]);
}
END_TEST

/* Infinities and NaN in one row or column do not leak into others through tiles' edges. */
START_TEST(specials_stay_where_they_are)
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
        tsr_status status = tsr_matmul(queue, out, a, b, NULL);
        tsr__matmul_force(NULL);
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

/* Every f16 there is times one, beside zeros. The loop variable is where the f16s are: in rows of
 * a, in columns of b along k, along the columns; 3 and 4 are the first two with a k that no vector
 * fits. */
START_TEST(every_half_is_what_it_is)
{
    enum { ALL = 65536, OTHER = 12 };
    int k_count = _i < 3 ? 4 : 3;
    size_t bytes = (size_t)(ALL * k_count) * sizeof(uint16_t);
    uint16_t *halves = malloc(bytes);
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
        memset(halves, 0, bytes);
        for (int i = 0; i < ALL; i++) {
            int k = (i + shift) % k_count;
            halves[along_k ? i * k_count + k : k * ALL + i] = (uint16_t)i;
        }
        GPU_OK(tsr_tensor_upload(queue, x, halves, bytes));
        GPU_OK(tsr_matmul(queue, y, in_a ? x : one, in_a ? one : x,
                          tsr_matmul_params(.transpose_b = along_k)));
        gpu_get(y, got);
        for (int i = 0; i < ALL * OTHER; i++) {
            int bits = in_a ? i / OTHER : i % ALL;
            double want = gpu_value((uint64_t)bits, TSR_F16);
            if (!(got[i] == want || (isnan(got[i]) && isnan(want))))
                ck_abort_msg("f16 %#x times one is %g, not %g", (unsigned)bits, got[i], want);
        }
    }
    free(halves);
    free(got);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&one);
    tsr_tensor_destroy(&y);
}
END_TEST

/* Shapes --------------------------------------------------------------------------------------- */

START_TEST(sizes_of_zero)
{
    gpu_random random = {43};

    for (int i = 0; i < 8; i++) {
        matmul_case c = plain_case(i & 1 ? 0 : 5, i & 2 ? 0 : 6, i & 4 ? 0 : 7);
        c.activation = TSR_ACT_GELU_ERF;
        c.bias = TSR_F32;
        c.bias_shape = (batch_shape){1, {1}};
        run_case(&random, &c);
        c.accumulate = true;
        run_case(&random, &c);
        c.batch = c.b_batch = (batch_shape){1, {i & 1 ? 2 : 0}};
        run_case(&random, &c);
    }
    for (int i = 0; tsr__matmul_config_at(i); i++) { /* k = 0 in every kernel that takes it */
        matmul_case c = plain_case(5, 0, 7);
        force(tsr__matmul_config_at(i)->name);
        tsr_status status = try_case(&random, &c);
        ck_assert(status == TSR_OK || status == TSR_ERR_UNSUPPORTED);
    }
    tsr__matmul_force(NULL);
}
END_TEST

/* The same where drivers take many matrices a dispatch, and keep their sums in scratch. */
START_TEST(a_batch_of_small_matrices)
{
    gpu_random random = {49};
    matmul_case c = plain_case(2, 8, 8);

    c.y = TSR_F16;
    c.bias = TSR_F32;
    c.bias_shape = (batch_shape){3, {66000, 1, 8}};
    c.transpose_b = true;
    c.batch = c.a_batch = c.b_batch = (batch_shape){1, {66000}};
    force("lavapipe");
    tsr_status status = try_case(&random, &c);
    ck_assert(status == TSR_OK || status == TSR_ERR_UNSUPPORTED);
    tsr__matmul_force(NULL);
    c.batch.size[0] = c.a_batch.size[0] = c.b_batch.size[0] = c.bias_shape.size[0] = 66;
    c.views = c.accumulate = true;
    c.m = 36;
    run_case(&random, &c);
    c.transpose_b = false;
    c.transpose_a = true;
    c.a = TSR_BF16;
    run_case(&random, &c);
}
END_TEST

/* Long enough that drivers cut k into parts with sums of their own: two, in two rounds and a rest;
 * sixteen, in two. */
START_TEST(few_long_rows)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {45};
    matmul_case c = plain_case(0, 1541, 700);

    c.transpose_b = true;
    for (int i = 0; i < 3; i++) {
        c.m = 1 + 3 * i;
        c.a = c.b = dtypes[i];
        run_case(&random, &c);
    }
    c.m = 9; /* one more than a tile */
    run_case(&random, &c);
    c = plain_case(3, 9223, 130);
    c.transpose_b = c.accumulate = c.views = true;
    c.y = TSR_BF16;
    c.bias = TSR_F16;
    c.bias_shape = (batch_shape){1, {130}};
    c.activation = TSR_ACT_SILU;
    c.alpha = 0.125f;
    c.batch = c.b_batch = (batch_shape){1, {2}};
    run_case(&random, &c);
    c = plain_case(130, 9223, 3); /* tall rather than wide: roles swapped */
    run_case(&random, &c);
}
END_TEST

/* By the kernel that GPUs have for them: fours of k in one round of several, one of one, and a part
 * of one. */
START_TEST(few_long_rows_on_gpus)
{
    static const int64_t rows[] = {1, 2, 5};
    gpu_random random = {47};

    force("vector-k");
    for (int i = 0; i < 6; i++) {
        matmul_case c = plain_case(rows[i % 3], 1300, 21);
        c.transpose_b = true;
        c.a = c.b = i < 3 ? TSR_F32 : TSR_F16;
        if (try_case(&random, &c) != TSR_OK)
            ck_abort_msg("%s: %s", case_text(&c), tsr_last_error());
    }
    tsr__matmul_force(NULL);
}
END_TEST

/* The same for one row of a row-major product: 32 parts in two rounds and a rest, where the last
 * columns are no whole tile and have rounds of their own; fewer parts than a round; the longer
 * parts of many short lines and the shorter ones of a large b. */
START_TEST(one_long_row)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {46};
    matmul_case c = plain_case(1, 1541, 700);

    for (int i = 0; i < 3; i++) {
        c.a = c.b = dtypes[i];
        run_case(&random, &c);
    }
    c = plain_case(1, 1541, 701); /* parts that start at odd columns */
    c.accumulate = true;
    run_case(&random, &c);
    c = plain_case(1, 300, 512);
    c.transpose_a = c.views = true;
    run_case(&random, &c);
    c = plain_case(1, 9223, 130);
    c.accumulate = c.views = true;
    c.y = TSR_BF16;
    c.bias = TSR_F16;
    c.bias_shape = (batch_shape){1, {130}};
    c.activation = TSR_ACT_SILU;
    c.alpha = 0.125f;
    c.batch = c.b_batch = (batch_shape){1, {2}};
    run_case(&random, &c);
    c = plain_case(1, 32300, 520);
    c.b = TSR_BF16;
    run_case(&random, &c);
}
END_TEST

START_TEST(batches_of_every_rank)
{
    gpu_random random = {47};

    for (int ndim = 1; ndim <= 6; ndim++)
        for (int views = 0; views < 2; views++) {
            matmul_case c = plain_case(4, 6, 5);
            c.views = views;
            c.batch.ndim = ndim;
            for (int i = 0; i < ndim; i++)
                c.batch.size[i] = 1 + (i + ndim) % 3;
            c.a_batch = c.b_batch = c.batch;
            run_case(&random, &c);
            for (int i = 0; i < ndim; i += 2)
                c.a_batch.size[i] = 1;
            for (int i = 1; i < ndim; i += 2)
                c.b_batch.size[i] = 1;
            run_case(&random, &c);
        }
}
END_TEST

/* More matrices than a dispatch takes in z, so the batch is cut. */
START_TEST(a_batch_of_seventy_thousand)
{
    enum { BATCH = 70000 };
    const int64_t shape[3] = {BATCH, 2, 2}, small[2] = {2, 2};
    static const double twist[4] = {0, 1, 2, 0};
    tsr_tensor *a = gpu_new(TSR_F32, 3, shape), *b = gpu_new(TSR_F32, 2, small), *bt;
    tsr_tensor *y = gpu_new(TSR_F32, 3, shape), *yt;
    double *x = malloc(BATCH * 4 * sizeof *x);

    for (int i = 0; i < BATCH * 4; i++)
        x[i] = i % 1009;
    gpu_put(a, x);
    gpu_put(b, twist);
    gpu_poison(y);
    /* y viewed [batch, n, m], so that rows do not follow each other from matrix to matrix and fold
     * into one */
    GPU_OK(tsr_tensor_transpose(y, 1, 2, &yt));
    GPU_OK(tsr_tensor_transpose(b, 0, 1, &bt));
    GPU_OK(tsr_matmul(queue, yt, bt, a, tsr_matmul_params(.transpose_b = true)));
    double *got = malloc(BATCH * 4 * sizeof *got);
    gpu_get(y, got);
    for (int i = 0; i < BATCH; i++)
        for (int row = 0; row < 2; row++) {
            ck_check_equal(got[i * 4 + row * 2], 2 * x[i * 4 + row * 2 + 1]);
            ck_check_equal(got[i * 4 + row * 2 + 1], x[i * 4 + row * 2]);
        }
    free(x);
    free(got);
    tsr_tensor_destroy(&bt);
    tsr_tensor_destroy(&yt);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&y);
}
END_TEST

/* Rows and columns tens of MiB apart. */
START_TEST(strides_of_millions)
{
    enum { ROWS = 6, STRIDE = 5000003 };
    const int64_t shape[2] = {ROWS, STRIDE};
    tsr_tensor *wide = gpu_new(TSR_F32, 2, shape), *a, *b,
               *y = gpu_new(TSR_F32, 2, (int64_t[]){ROWS, ROWS});
    double x[ROWS * 10], got[ROWS * ROWS];
    gpu_random random = {53};

    GPU_OK(tsr_tensor_slice(wide, 1, 4000000, 4000010, 1, &a));
    for (int i = 0; i < ROWS * 10; i++)
        x[i] = (double)gpu_random_between(&random, -9, 9);
    gpu_put(a, x);
    GPU_OK(tsr_tensor_transpose(a, 0, 1, &b));
    for (int i = 0; tsr__matmul_config_at(i); i++) {
        force(tsr__matmul_config_at(i)->name);
        gpu_poison(y);
        tsr_status status = tsr_matmul(queue, y, a, b, NULL);
        tsr__matmul_force(NULL);
        if (status != TSR_OK)
            continue;
        gpu_get(y, got);
        for (int row = 0; row < ROWS; row++)
            for (int col = 0; col < ROWS; col++) {
                double sum = 0;
                for (int k = 0; k < 10; k++)
                    sum += x[row * 10 + k] * x[col * 10 + k];
                ck_assert_double_eq(got[row * ROWS + col], sum);
            }
    }
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&wide);
}
END_TEST

/* `count` matrices with an element between them, so that every other one starts at an odd element.
 */
static tsr_tensor *matrices_apart(tsr_dtype dtype, int64_t count, int64_t rows, int64_t cols,
                                  tsr_tensor **parent)
{
    tsr_tensor *flat, *out;

    *parent = gpu_new(dtype, 2, (int64_t[]){count, rows * cols + 1});
    gpu_poison(*parent);
    GPU_OK(tsr_tensor_slice(*parent, 1, 0, rows * cols, 1, &flat));
    GPU_OK(tsr_tensor_reshape(flat, 3, (int64_t[]){count, rows, cols}, &out));
    tsr_tensor_destroy(&flat);
    return out;
}

/* Halves are packed two or four to a word where addresses allow: here not in all matrices alike.
 * The loop variable is what has halves: y, a, b, all. */
START_TEST(halves_that_start_at_odd_elements)
{
    enum { COUNT = 3, M = 16, K = 24, N = 160 };
    tsr_tensor *parents[3], *a, *b, *bt, *y;
    double x[COUNT * M * K], w[COUNT * N * K], *got = malloc(COUNT * (M * N + 1) * sizeof *got);
    gpu_random random = {59};

    y = matrices_apart(_i == 0 || _i == 3 ? TSR_F16 : TSR_F32, COUNT, M, N, &parents[0]);
    a = matrices_apart(_i == 1 || _i == 3 ? TSR_F16 : TSR_F32, COUNT, M, K, &parents[1]);
    b = matrices_apart(_i == 2 || _i == 3 ? TSR_F16 : TSR_F32, COUNT, N, K, &parents[2]);
    GPU_OK(tsr_tensor_transpose(b, 1, 2, &bt));
    for (int i = 0; i < COUNT * M * K; i++)
        x[i] = (double)gpu_random_between(&random, -4, 4);
    for (int i = 0; i < COUNT * N * K; i++)
        w[i] = (double)gpu_random_between(&random, -4, 4);
    gpu_put(a, x);
    gpu_put(b, w);
    GPU_OK(tsr_matmul(queue, y, a, bt, NULL));
    gpu_get(parents[0], got);
    for (int i = 0; i < COUNT; i++) {
        for (int at = 0; at < M * N; at++) {
            double sum = 0;
            for (int k = 0; k < K; k++)
                sum += x[(i * M + at / N) * K + k] * w[(i * N + at % N) * K + k];
            ck_assert_double_eq(got[i * (M * N + 1) + at], sum);
        }
        ck_assert(isnan(got[i * (M * N + 1) + M * N]));
    }
    free(got);
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&parents[i]);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&bt);
    tsr_tensor_destroy(&y);
}
END_TEST

/* Refusals ------------------------------------------------------------------------------------- */

static tsr_tensor *a34, *b45, *y35;

static void make_operands(void)
{
    gpu_setup();
    a34 = gpu_new(TSR_F32, 2, (int64_t[]){3, 4});
    b45 = gpu_new(TSR_F32, 2, (int64_t[]){4, 5});
    y35 = gpu_new(TSR_F32, 2, (int64_t[]){3, 5});
    gpu_poison(a34);
    gpu_poison(b45);
    gpu_poison(y35);
}

/* Whatever was refused has not touched y. */
static void drop_operands(void)
{
    double y[15];

    gpu_get(y35, y);
    for (int i = 0; i < 15; i++)
        ck_assert(isnan(y[i]));
    tsr_tensor_destroy(&a34);
    tsr_tensor_destroy(&b45);
    tsr_tensor_destroy(&y35);
    gpu_teardown();
}

START_TEST(refuses_missing_tensors)
{
    GPU_FAILS(tsr_matmul(NULL, y35, a34, b45, NULL), TSR_ERR_INVALID, "matmul: stream is NULL");
    GPU_FAILS(tsr_matmul(queue, NULL, a34, b45, NULL), TSR_ERR_INVALID, "matmul: y is NULL");
    GPU_FAILS(tsr_matmul(queue, y35, NULL, b45, NULL), TSR_ERR_INVALID, "matmul: a is NULL");
    GPU_FAILS(tsr_matmul(queue, y35, a34, NULL, NULL), TSR_ERR_INVALID, "matmul: b is NULL");
}
END_TEST

START_TEST(refuses_shapes_that_do_not_fit)
{
    tsr_tensor *row = gpu_new(TSR_F32, 1, (int64_t[]){4});
    tsr_tensor *a234 = gpu_new(TSR_F32, 3, (int64_t[]){2, 3, 4});
    tsr_tensor *y535 = gpu_new(TSR_F32, 3, (int64_t[]){5, 3, 5});

    GPU_FAILS(tsr_matmul(queue, y35, a34, y35, NULL), TSR_ERR_INVALID,
              "matmul: inner dimensions differ: a is [3,4], b is [3,5]");
    GPU_FAILS(tsr_matmul(queue, y35, a34, b45, tsr_matmul_params(.transpose_a = true)),
              TSR_ERR_INVALID,
              "matmul: inner dimensions differ: a is [3,4] transposed, b is [4,5]");
    GPU_FAILS(tsr_matmul(queue, b45, a34, b45, NULL), TSR_ERR_INVALID,
              "matmul: y is [4,5], but a [3,4] times b [4,5] is [3,5]");
    GPU_FAILS(tsr_matmul(queue, y35, row, b45, NULL), TSR_ERR_INVALID,
              "matmul: a, b and y need 2 dimensions or more: a is [4], b is [4,5], y is [3,5]");
    GPU_FAILS(tsr_matmul(queue, y535, a234, b45, NULL), TSR_ERR_INVALID,
              "matmul: the batch dimensions of a [2,3,4] do not broadcast to those of y [5,3,5]");
    GPU_FAILS(tsr_matmul(queue, y35, a234, b45, NULL), TSR_ERR_INVALID,
              "matmul: the batch dimensions of a [2,3,4] do not broadcast to those of y [3,5]");
    GPU_FAILS(tsr_matmul(queue, y35, a34, b45, tsr_matmul_params(.bias = row)), TSR_ERR_INVALID,
              "matmul: bias [4] does not broadcast to y [3,5]");
    tsr_tensor_destroy(&row);
    tsr_tensor_destroy(&a234);
    tsr_tensor_destroy(&y535);
}
END_TEST

START_TEST(refuses_sizes_beyond_31_bits)
{
    const int64_t huge = INT64_C(1) << 31;
    tsr_tensor *one = gpu_new(TSR_F32, 2, (int64_t[]){1, 1}), *a, *b;

    GPU_OK(tsr_tensor_broadcast(one, 2, (int64_t[]){1, huge}, &a));
    GPU_OK(tsr_tensor_broadcast(one, 2, (int64_t[]){huge, 1}, &b));
    GPU_FAILS(tsr_matmul(queue, one, a, b, NULL), TSR_ERR_INVALID,
              "matmul: k is 2147483648, more than 2147483647");
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&one);
}
END_TEST

START_TEST(refuses_dtypes_that_are_no_floats)
{
    tsr_tensor *whole = gpu_new(TSR_I32, 2, (int64_t[]){3, 4});
    tsr_tensor *y = gpu_new(TSR_U8, 2, (int64_t[]){3, 5});

    GPU_FAILS(tsr_matmul(queue, y35, whole, b45, NULL), TSR_ERR_INVALID,
              "matmul: a is i32; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_matmul(queue, y, a34, b45, NULL), TSR_ERR_INVALID,
              "matmul: y is u8; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_matmul(queue, y35, a34, b45, tsr_matmul_params(.bias = whole)), TSR_ERR_INVALID,
              "matmul: bias is i32; f32, f16 or bf16 is needed");
    tsr_tensor_destroy(&whole);
    tsr_tensor_destroy(&y);
}
END_TEST

START_TEST(refuses_params_that_make_no_sense)
{
    GPU_FAILS(tsr_matmul(queue, y35, a34, b45, tsr_matmul_params(.activation = (tsr_activation)9)),
              TSR_ERR_INVALID, "matmul: activation 9 is none of tsr_activation");
    GPU_FAILS(
        tsr_matmul(queue, y35, a34, b45, tsr_matmul_params(.alpha = 2, .alpha_is_zero = true)),
        TSR_ERR_INVALID, "matmul: alpha is 2, but alpha_is_zero is set");
}
END_TEST

START_TEST(refuses_y_that_overlaps_or_repeats)
{
    tsr_tensor *square = gpu_new(TSR_F32, 2, (int64_t[]){8, 8}), *left, *right, *shifted, *wide;

    GPU_OK(tsr_tensor_slice(square, 1, 0, 4, 1, &left));
    GPU_OK(tsr_tensor_slice(square, 1, 4, 8, 1, &right));
    GPU_OK(tsr_tensor_slice(square, 1, 3, 7, 1, &shifted));
    tsr_tensor *small = gpu_new(TSR_F32, 2, (int64_t[]){4, 4});
    GPU_OK(tsr_matmul(queue, right, left, small, NULL)); /* halves of one tensor are disjoint */
    GPU_FAILS(tsr_matmul(queue, shifted, left, small, NULL), TSR_ERR_INVALID,
              "matmul: y [8,4] overlaps a [8,4] in one buffer");
    GPU_FAILS(tsr_matmul(queue, left, left, small, NULL), TSR_ERR_INVALID,
              "(they are the same view)");
    GPU_FAILS(tsr_matmul(queue, square, square, square, NULL), TSR_ERR_INVALID,
              "matmul: y [8,8] overlaps a [8,8]");
    GPU_FAILS(tsr_matmul(queue, right, left, small, tsr_matmul_params(.bias = right)),
              TSR_ERR_INVALID, "matmul: y [8,4] overlaps bias [8,4]");
    GPU_FAILS(tsr_matmul(queue, small, small, small, NULL), TSR_ERR_INVALID,
              "matmul: y [4,4] overlaps a [4,4]");
    GPU_OK(tsr_tensor_broadcast(small, 3, (int64_t[]){2, 4, 4}, &wide));
    tsr_tensor *other = gpu_new(TSR_F32, 2, (int64_t[]){4, 4});
    GPU_FAILS(tsr_matmul(queue, wide, other, other, NULL), TSR_ERR_INVALID,
              "names an element more than once");
    tsr_tensor_destroy(&left);
    tsr_tensor_destroy(&right);
    tsr_tensor_destroy(&shifted);
    tsr_tensor_destroy(&wide);
    tsr_tensor_destroy(&small);
    tsr_tensor_destroy(&other);
    tsr_tensor_destroy(&square);
}
END_TEST

START_TEST(refuses_tensors_of_another_device)
{
    tsr_device *second = NULL;
    tsr_tensor *there = NULL;

    GPU_OK(tsr_device_open(NULL, &second));
    GPU_OK(tsr_tensor_create(second, TSR_F32, 2, (int64_t[]){3, 4}, &there));
    GPU_FAILS(tsr_matmul(queue, y35, there, b45, NULL), TSR_ERR_INVALID, "matmul: a is on device");
    tsr_tensor_destroy(&there);
    tsr_device_close(&second);
}
END_TEST

START_TEST(refuses_a_kernel_that_is_none)
{
    force("no-such-kernel");
    GPU_FAILS(tsr_matmul(queue, y35, a34, b45, NULL), TSR_ERR_UNSUPPORTED,
              "matmul: no kernel configuration is called \"no-such-kernel\"");
    tsr__matmul_force(NULL);
}
END_TEST

/* Rows, matrices of a batch and both together, with k in one and in several parts, where a dispatch
 * may do 64 rows' work; each is a batch for the queue. */
START_TEST(cut_where_it_would_take_long)
{
    static const struct {
        int64_t m;
        batch_shape batch;
        unsigned least;
    } cases[] = {{200, {0}, 4}, {20, {1, {10}}, 4}, {20, {2, {3, 5}}, 5}, {70, {2, {2, 2}}, 8}};
    gpu_random random = {17};
    double usual = gpu->work_limit;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t splits = 1; splits <= 3; splits += 2) {
            matmul_case c = plain_case(cases[i].m, 256, 40);
            c.batch = c.a_batch = cases[i].batch;
            c.accumulate = splits > 1;
            override = (tsr__matmul_override){"tiled-s", splits};
            tsr__matmul_force(&override);
            gpu->work_limit = 64.0 * 256 * 40;
            uint64_t before = queue->timeline->submitted;
            run_case(&random, &c);
            ck_assert_uint_ge(queue->timeline->submitted - before, cases[i].least);
        }
    tsr__matmul_force(NULL);
    gpu->work_limit = usual;
}
END_TEST

/* Every failing allocation and Vulkan call on the way leaves y as it was, and the call works
 * afterwards. */
static void survive_faults(tsr__fault_kind kind, int code)
{
    double y[15];
    int failed = 0;

    force_splits(2); /* with scratch, and two pipelines */
    for (uint64_t nth = 0;; nth++) {
        tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){3, 512});
        tsr_tensor *b = gpu_new(TSR_F32, 2, (int64_t[]){512, 5});
        tsr__fault_arm(kind, nth, code);
        tsr_status status = tsr_matmul(queue, y35, a, b, NULL);
        bool reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        tsr_tensor_destroy(&a);
        tsr_tensor_destroy(&b);
        if (!reached)
            break;
        if (status != TSR_OK) {
            failed++;
            gpu_get(y35, y);
            for (int i = 0; i < 15; i++)
                ck_assert(isnan(y[i]));
        }
        ck_assert_uint_lt(nth, 1000);
    }
    tsr__matmul_force(NULL);
    ck_assert_int_gt(failed, 0);
    GPU_OK(tsr_stream_wait(queue));
    gpu_poison(y35);
}

START_TEST(survives_vulkan_failures)
{
    survive_faults(TSR__FAULT_VULKAN, -3 /* VK_ERROR_INITIALIZATION_FAILED */);
}
END_TEST

START_TEST(survives_host_memory_failures)
{
    survive_faults(TSR__FAULT_ALLOC, 0);
}
END_TEST

static void add_kernels(TCase *tests)
{
    tcase_add_loop_test(tests, every_kernel_on_every_transposition, 0, 4);
    tcase_add_test(tests, every_kernel_with_an_epilogue);
    tcase_add_test(tests, every_kernel_on_views_and_batches);
    tcase_add_loop_test(tests, mixtures_of_dtypes, 0, 9);
    tcase_add_test(tests, the_large_kernels_choice_on_mixtures);
    tcase_add_loop_test(tests, bf16_in_pairs_of_steps, 0, 2);
    tcase_add_test(tests, many_rows);
    tcase_add_test(tests, splits_of_k);
    tcase_add_test(tests, cut_where_it_would_take_long);
}

TESTS(matmul)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    add_kernels(tests);
    tcase_add_test(tests, the_same_bits_every_time);
    tcase_add_test(tests, shapes_do_not_each_make_a_pipeline);
    tcase_add_test(tests, bias_in_every_form);
    tcase_add_test(tests, the_epilogue_on_rows_of_any_length);
    tcase_add_test(tests, activations_with_everything);
    tcase_add_test(tests, alpha_zero);
    tcase_add_test(tests, y_is_not_read_unless_it_accumulates);
    tcase_add_test(tests, specials_stay_where_they_are);
    tcase_add_loop_test(tests, every_half_is_what_it_is, 0, 5);
    tcase_add_test(tests, sizes_of_zero);
    tcase_add_test(tests, few_long_rows);
    tcase_add_test(tests, few_long_rows_on_gpus);
    tcase_add_test(tests, one_long_row);
    tcase_add_test(tests, a_batch_of_small_matrices);
    tcase_add_test(tests, batches_of_every_rank);
    tcase_add_test(tests, a_batch_of_seventy_thousand);
    tcase_add_test(tests, strides_of_millions);
    tcase_add_loop_test(tests, halves_that_start_at_odd_elements, 0, 4);
}

TESTS(matmul_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_test(tests, every_kernel_with_an_epilogue);
    tcase_add_loop_test(tests, mixtures_of_dtypes, 0, 9);
    tcase_add_test(tests, the_large_kernels_choice_on_mixtures);
    tcase_add_loop_test(tests, bf16_in_pairs_of_steps, 0, 2);
}

TESTS(matmul_refusals)
{
    tcase_add_checked_fixture(tests, make_operands, drop_operands);
    tcase_add_test(tests, refuses_missing_tensors);
    tcase_add_test(tests, refuses_shapes_that_do_not_fit);
    tcase_add_test(tests, refuses_sizes_beyond_31_bits);
    tcase_add_test(tests, refuses_dtypes_that_are_no_floats);
    tcase_add_test(tests, refuses_params_that_make_no_sense);
    tcase_add_test(tests, refuses_y_that_overlaps_or_repeats);
    tcase_add_test(tests, refuses_tensors_of_another_device);
    tcase_add_test(tests, refuses_a_kernel_that_is_none);
    tcase_add_test(tests, survives_vulkan_failures);
    tcase_add_test(tests, survives_host_memory_failures);
}
