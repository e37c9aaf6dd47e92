/* tsr_matmul: all kernels on shapes at their limits, with all ways of dividing k, and of
 * dividing products into dispatches. */
#include "gpu/matmul/matmul_case.h"
#include "gpu/matmul/matmul_force.h"
#include "gpu/pipeline/pipeline.h"
#include "gpu/stream/state.h"

/* Runs a case with kernel number `config` of the table. Returns false if the kernel cannot compute
 * it on this device. */
static bool run_with(gpu_random *random, const matmul_case *c, int config)
{
    force(tsr__matmul_config_at(config)->name);
    tsr_status status = try_case(random, c);
    if (status != TSR_OK && status != TSR_ERR_UNSUPPORTED)
        ck_abort_msg("%s: %s: %s", override.config->name, case_text(c), tsr_last_error());
    forced = NULL;
    return status == TSR_OK;
}

/* Runs a case with every kernel that can compute it on this device, with or without the larger
 * tiles. Returns the number of these kernels. */
static int run_with_all(gpu_random *random, const matmul_case *c, bool larger)
{
    int ran = 0;

    for (int i = 0; tsr__matmul_config_at(i); i++)
        if (larger || tsr__matmul_config_at(i)->bm <= 32)
            ran += run_with(random, c, i);
    return ran;
}

static const int64_t shapes[][3] = {
    /* m, k, n: one element; odd sizes; a tile and one more element; multiples of all tiles; few
     * rows; few columns; k shorter than a vector */
    {1, 1, 1},   {3, 5, 7},     {33, 65, 34}, {64, 64, 64}, {1, 96, 70},
    {5, 130, 9}, {129, 20, 66}, {40, 260, 2}, {16, 3, 16},  {1, 7, 1},
};
#define SHAPES ((int)(sizeof shapes / sizeof *shapes))

/* The loop variable says which of a and b are transposed. Each shape is tested with two of the
 * four combinations; the fuzz tests use all of them. The kernels with larger tiles have the same
 * code as that with the small one and are slow to compile on CPU drivers, so each of them is
 * tested with one combination. */
START_TEST(all_kernels_with_all_transpositions)
{
    gpu_random random = {(uint64_t)_i + 7};
    int ran = 0;

    for (int i = (_i ^ _i >> 1) & 1; i < SHAPES; i += 2) {
        matmul_case c = plain_case(shapes[i][0], shapes[i][1], shapes[i][2]);
        c.transpose_a = _i & 1;
        c.transpose_b = _i & 2;
        c.pitched = i == 2 || i == 5; /* odd sizes, which are loaded as vectors */
        for (int j = 0, larger = 0; tsr__matmul_config_at(j); j++)
            if (tsr__matmul_config_at(j)->bm <= 32 || larger++ % 4 == _i)
                ran += run_with(&random, &c, j);
    }
    /* At least four kernels run for each shape: the one with the small tile, one with a larger
     * tile if it fits, the one for wide strides, and one of the driver's own. */
    ck_assert_int_ge(ran, 4 * (SHAPES / 2));
}
END_TEST

START_TEST(all_kernels_with_an_epilogue)
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
    ck_assert_int_ge(run_with_all(&random, &c, true), 4);
    c.m = 2; /* two rows, for the kernels for few rows */
    ck_assert_int_ge(run_with_all(&random, &c, true), 4);
}
END_TEST

/* If the loop variable is 1, kernels with larger tiles run, too. They have the same code as
 * those with small ones. */
START_TEST(all_kernels_on_views_and_batches)
{
    gpu_random random = {13};
    matmul_case c = plain_case(9, 40, 35);

    c.views = true;
    c.batch = (batch_shape){3, {2, 3, 2}};
    c.a_batch = (batch_shape){2, {3, 1}};
    c.b_batch = (batch_shape){3, {2, 1, 2}};
    ck_assert_int_ge(run_with_all(&random, &c, _i), 3);
    c.m = 3;
    ck_assert_int_ge(run_with_all(&random, &c, _i), 3);
}
END_TEST

/* The loop variable is the combination of a's and b's dtypes. Over all nine, y has each dtype once
 * with each dtype of a and with each dtype of b. */
START_TEST(mixed_dtypes)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {17};
    matmul_case c = plain_case(33, 44, 27);

    c.a = dtypes[_i / 3];
    c.b = dtypes[_i % 3];
    c.y = dtypes[(_i / 3 + _i) % 3];
    c.transpose_b = _i & 1;
    run_case(&random, &c);
}
END_TEST

START_TEST(large_products_of_mixed_dtypes)
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

/* Mesa's CPU driver reads two bf16 elements as one word. If k is not a multiple of what two
 * steps of the kernel read, the last stretch (the range of k of a dispatch) starts earlier and
 * overlaps the previous one. */
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

/* Mesa's CPU driver loads the elements of a vector one by one if k is shorter than a vector.
 * Each length of k is tested with half of the sizes, because compiling takes long. */
START_TEST(short_k)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const int64_t sizes[][2] = {{33, 65}, {300, 9}, {9, 300}, {1, 2000}, {513, 520}};
    static const int64_t depths[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15};
    gpu_random random = {35};
    int i = 0;

    for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
        for (size_t s = d % 2; s < sizeof sizes / sizeof *sizes; s += 2, i++) {
            matmul_case c = plain_case(sizes[s][0], depths[d], sizes[s][1]);
            c.a = dtypes[i % 3];
            c.b = dtypes[i / 2 % 3];
            c.y = dtypes[i / 4 % 3];
            c.transpose_a = i & 1;
            c.transpose_b = i & 2;
            c.accumulate = i % 5 == 0;
            c.views = i % 3 == 0;
            if (i % 4 == 0)
                c.batch = c.a_batch = c.b_batch = (batch_shape){1, {3}};
            run_case(&random, &c);
        }
}
END_TEST

/* On Mesa's CPU driver each dispatch covers a stretch (a range) of k. Tests the longest
 * stretches: without a remainder, with a remainder that overlaps the stretch before, and with
 * one that does not. Each is tested with two of the three dtypes, because these kernels are slow
 * to compile. Tiles have eight, six and four rows, and the last tile is not full. */
START_TEST(long_stretches)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const int64_t depths[] = {1024, 1500, 1190};
    gpu_random random = {33};

    for (int i = 0; i < 6; i++) {
        matmul_case c = plain_case(i % 2 ? 61 : 11 + i, depths[i / 2], i % 2 ? 300 : 1500);
        c.transpose_b = true;
        c.a = c.b = dtypes[i % 3];
        c.accumulate = i % 4 == 1;
        run_case(&random, &c);
    }
}
END_TEST

/* There are enough columns that Mesa's CPU driver converts a to f32 before the product, and
 * enough rows that it converts b, too: if only one operand is bf16, and if both have 16 bits. */
START_TEST(float16_operands_are_widened)
{
    static const tsr_dtype a_dtypes[] = {TSR_BF16, TSR_F16, TSR_F32, TSR_F16, TSR_F32};
    static const tsr_dtype b_dtypes[] = {TSR_BF16, TSR_BF16, TSR_BF16, TSR_F16, TSR_F16};
    gpu_random random = {34};
    matmul_case c = plain_case(0, 130, 519);

    c.transpose_b = c.views = true;
    c.y = TSR_BF16;
    for (size_t i = 0; i < sizeof a_dtypes / sizeof *a_dtypes; i++) {
        c.a = a_dtypes[i];
        c.b = b_dtypes[i];
        for (c.m = 260; c.m <= 521; c.m += 261)
            run_case(&random, &c);
    }
    /* With too few columns, neither a nor b is converted first if a is f16. Two bf16 operands
     * are read as words of two elements. */
    c.n = 40;
    c.m = 521;
    for (size_t i = 0; i < sizeof a_dtypes / sizeof *a_dtypes; i++) {
        c.a = a_dtypes[i];
        c.b = b_dtypes[i];
        run_case(&random, &c);
    }
    c.a = TSR_F32;
    c.b = TSR_BF16;
    c.m = 260;
    c.batch = c.a_batch = (batch_shape){1, {3}}; /* the same b for each matrix of the batch */
    run_case(&random, &c);
    c.b_batch = c.batch;
    run_case(&random, &c);
}
END_TEST

/* There are so many rows that Mesa's CPU driver divides them into blocks, the last of which is
 * not full. Two dispatches cover k, and the second adds to the sums that the first has stored. */
START_TEST(many_rows)
{
    gpu_random random = {31};
    matmul_case c = plain_case(1000, 300, 260);

    c.transpose_b = true;
    c.accumulate = true;
    run_case(&random, &c);
    c.a = c.b = c.y = TSR_F16;
    run_case(&random, &c);
    c.n = 52; /* so few columns that a workgroup has only one subgroup */
    run_case(&random, &c);
}
END_TEST

START_TEST(split_k)
{
    gpu_random random = {23};
    matmul_case c = plain_case(10, 1000, 18);

    for (uint32_t splits = 2; splits <= 7; splits++) {
        for (int i = 0; tsr__matmul_config_at(i); i++) {
            force_both(tsr__matmul_config_at(i)->name, splits);
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
    forced = NULL;
}
END_TEST

/* Computes the product of an m×k and a k×n matrix several times and compares all bits of the
 * results. */
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
        GPU_OK(forced_matmul(queue, y, a, b, NULL));
        GPU_OK(tsr_tensor_download(queue, y, first, sizeof *first * y_size));
        for (int i = 0; i < 5; i++) {
            gpu_poison(y);
            GPU_OK(forced_matmul(queue, y, a, b, NULL));
            GPU_OK(tsr_tensor_download(queue, y, again, sizeof *again * y_size));
            ck_assert_mem_eq(first, again, sizeof *first * y_size);
        }
    }
    forced = NULL;
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&y);
    free(x);
    free(first);
    free(again);
}

START_TEST(runs_give_the_same_bits)
{
    expect_same_bits(60, 1500, 40);
    expect_same_bits(1, 1541, 700);
}
END_TEST

/* Small problems of many shapes share a few pipelines. */
START_TEST(shapes_share_pipelines)
{
    gpu_random random = {31};
    uint64_t before = tsr__pipelines_built(gpu);

    for (int i = 0; i < 60; i++) {
        matmul_case c =
            plain_case(gpu_random_between(&random, 1, 90), gpu_random_between(&random, 1, 90),
                       gpu_random_between(&random, 1, 90));
        run_case(&random, &c);
    }
    ck_assert_uint_le(tsr__pipelines_built(gpu) - before, 30);
}
END_TEST

/* A dispatch may do only the work of 64 rows. So rows, matrices of a batch, or both are divided
 * among dispatches, with k in one range or in several. Each dispatch is submitted as a batch of
 * its own. */
START_TEST(long_products_are_divided)
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
            force_both("tiled-s", splits);
            gpu->work_limit = 64.0 * 256 * 40;
            uint64_t before = queue->timeline->submitted;
            run_case(&random, &c);
            ck_assert_uint_ge(queue->timeline->submitted - before, cases[i].least);
        }
    /* The kernel for wide strides can be divided only by rows. */
    matmul_case c = plain_case(200, 256, 40);
    uint64_t before = queue->timeline->submitted;
    force_both("wide", 1);
    run_case(&random, &c);
    ck_assert_uint_ge(queue->timeline->submitted - before, 4);
    forced = NULL;
    gpu->work_limit = usual;
}
END_TEST

TESTS(matmul)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, all_kernels_with_all_transpositions, 2, 3);
    tcase_add_test(tests, all_kernels_with_an_epilogue);
    tcase_add_loop_test(tests, all_kernels_on_views_and_batches, 0, 1);
    tcase_add_loop_test(tests, mixed_dtypes, 0, 9);
    tcase_add_test(tests, large_products_of_mixed_dtypes);
    tcase_add_loop_test(tests, bf16_in_pairs_of_steps, 0, 2);
    tcase_add_test(tests, many_rows);
    tcase_add_test(tests, split_k);
    tcase_add_test(tests, long_products_are_divided);
    tcase_add_test(tests, runs_give_the_same_bits);
    tcase_add_test(tests, shapes_share_pipelines);
}

TESTS(matmul_slow)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, all_kernels_with_all_transpositions, 0, 2);
    tcase_add_loop_test(tests, all_kernels_with_all_transpositions, 3, 4);
    tcase_add_loop_test(tests, all_kernels_on_views_and_batches, 1, 2);
    tcase_add_test(tests, short_k);
    tcase_add_test(tests, long_stretches);
    tcase_add_test(tests, float16_operands_are_widened);
}
