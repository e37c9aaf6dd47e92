/* Tests tsr_matmul with sizes and strides that are 0, very large or odd, and with batches. */
#include "gpu/matmul/matmul_case.h"
#include "gpu/matmul/matmul_force.h"

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
    for (int i = 0; tsr__matmul_config_at(i); i++) { /* k = 0 in all kernels that accept it */
        matmul_case c = plain_case(5, 0, 7);
        force(tsr__matmul_config_at(i)->name);
        tsr_status status = try_case(&random, &c);
        ck_assert(status == TSR_OK || status == TSR_ERR_UNSUPPORTED);
    }
    forced = NULL;
}
END_TEST

/* CPU drivers compute many small matrices in each dispatch and keep the f32 sums in scratch
 * memory. */
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
    forced = NULL;
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

/* k is so long that CPU drivers divide it into ranges with separate sums: first two ranges of
 * two dispatches each and a remainder, then sixteen ranges of two dispatches each. */
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
    c = plain_case(130, 9223, 3); /* so many rows that a and b change roles */
    run_case(&random, &c);
}
END_TEST

/* y has few elements, and k is so long that CPU drivers compute ranges of it in parallel: four
 * ranges of two dispatches each, and a remainder. Some cases fill tiles with rows and some do
 * not; workgroups have several tiles along n or one. */
START_TEST(few_elements_with_a_long_k)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const int64_t depths[] = {2048, 2560, 3001, 16383, 16901};
    static const int64_t sides[][2] = {{64, 64}, {33, 31}, {500, 16}, {5, 32}, {1, 40}};
    gpu_random random = {49};

    for (int i = 0; i < 25;
         i += 3) { /* a third of the combinations, because compiling takes long */
        matmul_case c = plain_case(sides[i % 5][0], depths[i / 5], sides[i % 5][1]);
        c.transpose_b = i / 3 % 3 != 2;
        c.a = dtypes[i / 3 % 3];
        c.b = dtypes[i / 6 % 3];
        c.y = dtypes[i / 9 % 3];
        c.accumulate = i % 8 == 1;
        run_case(&random, &c);
    }
    matmul_case c = plain_case(20, 4096, 24);
    c.transpose_b = c.accumulate = c.views = true;
    c.bias = TSR_F16;
    c.bias_shape = (batch_shape){1, {24}};
    c.activation = TSR_ACT_SILU;
    c.alpha = 0.125f;
    run_case(&random, &c);
    c.batch = c.b_batch = (batch_shape){1, {2}}; /* k is not divided if there is a batch */
    run_case(&random, &c);
}
END_TEST

/* Tests the kernels of GPUs for few rows. In each pass of its loop over k, every invocation of
 * vector-k loads vectors of four elements, or of eight if b has 16 bits and k is a multiple of 8:
 * first several vectors per invocation, then one, and in the last pass only some invocations still
 * have one. With 5 rows, all passes load one vector each. */
START_TEST(few_long_rows_on_gpus)
{
    static const int64_t rows[] = {1, 2, 5};
    gpu_random random = {47};

    force("vector-k");
    for (int i = 0; i < 12; i++) {
        matmul_case c = plain_case(rows[i % 3], i < 6 ? 1300 : 1304, 21);
        c.transpose_b = true;
        c.a = i < 3 || i > 8 ? TSR_F32 : TSR_F16;
        c.b = i < 3 ? TSR_F32 : i > 8 ? TSR_BF16 : TSR_F16;
        if (try_case(&random, &c) != TSR_OK)
            ck_abort_msg("%s: %s", case_text(&c), tsr_last_error());
    }
    force("vector-col16");
    for (int i = 0; i < 4; i++) {
        matmul_case c = plain_case(i % 2 ? 4 : 1, 1300, i < 2 ? 44 : 43);
        c.a = TSR_F32;
        c.b = i % 2 ? TSR_F16 : TSR_F32;
        if (try_case(&random, &c) != TSR_OK)
            ck_abort_msg("%s: %s", case_text(&c), tsr_last_error());
    }
    forced = NULL;
}
END_TEST

/* One row and a row-major b: Mesa's CPU driver divides k into ranges that it sums in parallel,
 * up to 32 in each dispatch. Tests two dispatches with 32 ranges and a remainder of k, where the
 * last columns do not fill a tile and have their own dispatches; fewer ranges; the longer ranges
 * for many short rows of b; and the shorter ranges for a large b. */
START_TEST(one_long_row)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {46};
    matmul_case c = plain_case(1, 1541, 700);

    for (int i = 0; i < 3; i++) {
        c.a = c.b = dtypes[i];
        run_case(&random, &c);
    }
    c = plain_case(1, 1541, 701); /* partial sums start at odd columns */
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

/* Tests a small row-major b. On Mesa's CPU driver it is multiplied with lanes along n if k is
 * short; if k is long, it is packed for lanes along k. */
START_TEST(small_row_major_b)
{
    static const int64_t rows[] = {1, 3, 37}, columns[] = {9, 40, 300};
    static const int64_t depths[] = {64, 100, 128, 129, 530};
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {48};

    for (int i = 0; i < 15; i++) { /* any two of the values occur together */
        int row = i % 3, depth = i / 3;
        matmul_case c = plain_case(rows[row], depths[depth], columns[(row + depth) % 3]);
        c.a = c.b = dtypes[(2 * row + depth) % 3];
        c.transpose_a = i % 4 == 1;
        c.accumulate = i % 5 == 1;
        run_case(&random, &c);
    }
}
END_TEST

/* Large products, for which the host packs the operands in panels on Mesa's CPU driver. In each
 * operand one of the two strides is 1. k fills the ranges that a dispatch covers, or not; sizes
 * fill tiles or do not; all dtypes are tested. */
START_TEST(large_operands)
{
    static const int64_t sizes[][3] = {
        {130, 1030, 133}, {129, 512, 260}, {256, 1024, 128}, {131, 784, 170}};
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {63};

    for (int i = 0; i < 9; i++) { /* any two of the three dtypes, in all combinations */
        matmul_case c = plain_case(sizes[i % 4][0], sizes[i % 4][1], sizes[i % 4][2]);
        c.a = dtypes[i % 3];
        c.b = dtypes[i / 3];
        c.y = dtypes[(i % 3 + i / 3) % 3];
        c.transpose_a = i / 2 % 2;
        c.transpose_b = i % 3 != 1;
        c.views = i % 2;
        c.accumulate = i % 5 == 3;
        run_case(&random, &c);
    }
    matmul_case c = plain_case(130, 1030, 133);
    c.a = c.b = TSR_BF16;
    c.y = TSR_F16; /* the sums are in scratch memory */
    c.accumulate = c.views = c.transpose_b = true;
    c.bias = TSR_F32;
    c.bias_shape = (batch_shape){2, {3, 1}};
    c.activation = TSR_ACT_SILU;
    c.alpha = 0.125f;
    c.batch = c.a_batch = (batch_shape){2, {2, 3}};
    c.b_batch = (batch_shape){2, {2, 1}};
    c.bias_shape = (batch_shape){1, {133}};
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

/* There are more matrices than the z dimension of a dispatch can have, so the batch is divided. */
START_TEST(seventy_thousand_matrices)
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
    /* Computes the transposed product. y is viewed as [batch, n, m], so that its rows are not
     * evenly spaced over all matrices, which could otherwise be computed as one. */
    GPU_OK(tsr_tensor_transpose(y, 1, 2, &yt));
    GPU_OK(tsr_tensor_transpose(b, 0, 1, &bt));
    GPU_OK(forced_matmul(queue, yt, bt, a, tsr_matmul_params(.transpose_b = true)));
    double *got = malloc(BATCH * 4 * sizeof *got);
    gpu_get(y, got);
    for (int i = 0; i < BATCH; i++)
        for (int row = 0; row < 2; row++) {
            ck_assert_equal(got[i * 4 + row * 2], 2 * x[i * 4 + row * 2 + 1]);
            ck_assert_equal(got[i * 4 + row * 2 + 1], x[i * 4 + row * 2]);
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

/* Rows and columns are tens of MiB apart. */
START_TEST(strides_of_many_mebibytes)
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
        tsr_status status = forced_matmul(queue, y, a, b, NULL);
        forced = NULL;
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

/* Creates `count` matrices with one element between them, so that every second one starts at an odd
 * element. */
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

/* 16-bit elements are loaded and stored two or four at a time if their addresses allow it, which
 * differs between these matrices. The loop variable says which tensors have 16-bit elements: y, a,
 * b, or all. */
START_TEST(float16_that_starts_at_odd_elements)
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
    GPU_OK(forced_matmul(queue, y, a, bt, NULL));
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

/* Products of one dispatch. Tests all dtypes, and epilogues of every form. CPU drivers then
 * place lanes along n, and compute some of the last columns twice. */
START_TEST(short_k)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const int64_t columns[] = {32, 37, 64, 66, 99, 132}, rows[] = {9, 48, 49, 64, 71};
    gpu_random random = {52};

    for (int n = 0; n < 15; n++) { /* half of the combinations of rows and columns */
        const int i = n * 11 % 30;
        matmul_case c = plain_case(rows[i % 5], 32 * (1 + i * 3 % 5), columns[i % 6]);
        c.a = dtypes[i / 2 % 3];
        c.b = dtypes[i / 3 % 3];
        c.y = dtypes[i / 5 % 3];
        c.transpose_a = i & 1;
        c.transpose_b = i / 2 & 1;
        c.views = i % 7 < 3;
        c.accumulate = i % 5 == 3;
        c.bias = i % 3 == 1 ? dtypes[i / 4 % 3] : 0;
        c.bias_shape = (batch_shape){1, {columns[i % 6]}};
        c.activation = i % 4 == 2 ? TSR_ACT_GELU_TANH : TSR_ACT_NONE;
        if (i % 6 > 3)
            c.batch = c.a_batch = c.b_batch = (batch_shape){2, {2, 3}};
        if (i % 12 > 9)
            c.b_batch.size[1] = 1;
        run_case(&random, &c);
    }
}
END_TEST

/* Both operands are contiguous along their rows and columns and not along k, as for the
 * gradients of a layer's weights. CPU drivers sum ranges of k (of 128, 96 or 64 elements) in one
 * dispatch, or in two dispatches if there are more than 16 ranges. Other sizes are near the
 * limits of these kernels. */
START_TEST(weight_gradients)
{
    static const int64_t sizes[][3] = {
        {128, 768, 128}, {136, 576, 128}, {101, 960, 96}, {64, 2176, 64},
        {130, 832, 96},  {512, 256, 96},  {96, 1000, 96}, {128, 768, 120},
    };
    gpu_random random = {53};

    for (int i = 0; i < 16; i++) {
        const int64_t *size = sizes[i / 2];
        matmul_case c = plain_case(size[0], size[1], size[2]);
        c.transpose_a = true;
        c.views = i % 2;
        c.accumulate = i % 4 > 1;
        c.alpha = i % 3 == 1 ? -0.5F : 0;
        c.activation = i % 5 == 2 ? TSR_ACT_RELU : TSR_ACT_NONE;
        c.bias = i % 4 == 1 ? TSR_F32 : 0;
        c.bias_shape = (batch_shape){2, {i % 8 == 1 ? size[0] : 1, size[2]}};
        c.y = i == 6 ? TSR_BF16 : TSR_F32;
        c.b = i == 15 ? TSR_F16 : TSR_F32;
        run_case(&random, &c);
    }
}
END_TEST

/* A bias with the shape of y, as for a residual branch, or one column that all columns share.
 * The kernels have lanes along n, or along k with one dispatch or several. The row stride may be
 * any. */
START_TEST(bias_matrices)
{
    static const int64_t sizes[][3] = {
        {49, 128, 68}, {70, 64, 99},  {64, 768, 131}, {40, 384, 64},
        {9, 700, 35},  {37, 96, 130}, {5, 300, 70},   {130, 1000, 20},
    };
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_BF16, TSR_F16};
    gpu_random random = {54};

    for (int i = 0; i < 16; i++) {
        const int64_t *size = sizes[i % 8];
        matmul_case c = plain_case(size[0], size[1], size[2]);
        c.transpose_b = i % 3 != 1;
        c.views = i % 5 < 3;
        c.bias = dtypes[i % 4 % 3];
        c.bias_shape = (batch_shape){2, {size[0], i == 9 ? 1 : size[2]}};
        c.y = dtypes[i / 4 % 3];
        c.activation = i % 4 == 2 ? TSR_ACT_SILU : TSR_ACT_NONE;
        c.accumulate = i == 7;
        if (i == 12) {
            c.batch = c.a_batch = c.b_batch = (batch_shape){1, {3}};
            c.bias_shape = with_matrix(c.batch, size[0], size[2]);
        }
        run_case(&random, &c);
    }
}
END_TEST

TESTS(matmul_shapes)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, sizes_of_zero);
    tcase_add_test(tests, few_long_rows_on_gpus);
    tcase_add_test(tests, batches_of_every_rank);
    tcase_add_test(tests, seventy_thousand_matrices);
    tcase_add_test(tests, strides_of_many_mebibytes);
    tcase_add_loop_test(tests, float16_that_starts_at_odd_elements, 0, 4);
}

/* Shapes that CPU drivers divide in other ways. On GPUs they run the kernels of the other tests, so
 * the lane `adversary`, in which a driver looks like a GPU, leaves them out. */
TESTS(matmul_shapes_long)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, few_long_rows);
    tcase_add_test(tests, short_k);
    tcase_add_test(tests, bias_matrices);
    tcase_add_test(tests, small_row_major_b);
    tcase_add_test(tests, a_batch_of_small_matrices);
    tcase_add_test(tests, weight_gradients);
    tcase_add_test(tests, few_elements_with_a_long_k);
    tcase_add_test(tests, one_long_row);
    tcase_add_test(tests, large_operands);
}
