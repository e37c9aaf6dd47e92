/* tsr_matmul on Mesa's CPU driver, where the host's CPUs may pack operands in panels (panels.h),
 * the order in which kernels read them. The result must have the same bits as if kernels pack
 * them. */
#include "gpu/matmul/matmul_case.h"
#include "gpu/pipeline/pipeline.h"

/* Returns the bits of a · b in f32, which the caller frees. */
static uint32_t *product_bits(const tsr_tensor *a, const tsr_tensor *b, int64_t m, int64_t n)
{
    const size_t size = (size_t)(m * n) * sizeof(uint32_t);
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){m, n});
    uint32_t *bits = malloc(size);

    ck_assert_ptr_nonnull(bits);
    GPU_OK(tsr_matmul(queue, y, a, b, NULL));
    GPU_OK(tsr_tensor_download(queue, y, bits, size));
    tsr_tensor_destroy(&y);
    return bits;
}

/* If no recorded work uses the operands, the host's CPUs pack them in panels. If recorded work
 * uses them, kernels pack and widen them, or widen them during the multiplication. Which of
 * these happens depends on timing, so the result must not depend on it. */
START_TEST(the_same_bits_whoever_packs)
{
    enum { K = 1100, N = 520 };
    static const tsr_dtype pairs[][2] = {{TSR_F16, TSR_F16},  {TSR_F32, TSR_F16},
                                         {TSR_F32, TSR_BF16}, {TSR_BF16, TSR_BF16},
                                         {TSR_F32, TSR_F32},  {TSR_BF16, TSR_F32}};
    /* The last rounds use the longest stretches (ranges of k for one dispatch), with tiles of
     * six rows if b is read in place, and of four rows if b is in panels. If vectors do not have
     * 8 lanes, stretches have their usual length. */
    const bool long_code = _i >= 18,
               in_order = long_code && _i % 3 == 0 && gpu->info.subgroup_size == 8;
    const tsr_dtype *const dtypes = pairs[long_code ? 1 : _i / 3];
    const bool row_major = _i % 3 > 0, host_copies = gpu->host_copies;
    const int64_t rows = _i % 3 == 2 ? 60 : 258; /* with few rows, b is packed only if necessary */
    uint64_t pipelines[3];
    gpu_random random = {61};
    double *values = malloc((size_t)N * K * sizeof *values);
    tsr_tensor *a = gpu_new(dtypes[0], 2, (int64_t[]){rows, K}), *b, *view;
    uint32_t *bits[2];

    gpu->long_code = long_code;
    for (int i = 0; i < N * K; i++)
        values[i] = gpu_random_unit(&random);
    b = gpu_new(dtypes[1], 2, row_major ? (int64_t[]){K, N} : (int64_t[]){N, K});
    gpu_put(a, values);
    gpu_put(b, values);
    if (row_major)
        GPU_OK(tsr_tensor_slice(b, 0, 0, TSR_END, 1, &view));
    else
        GPU_OK(tsr_tensor_transpose(b, 0, 1, &view));
    for (int by_host = 0; by_host < 2; by_host++) {
        pipelines[by_host] = tsr__pipelines_built(gpu);
        gpu->host_copies = host_copies && by_host;
        bits[by_host] = product_bits(a, view, rows, N);
    }
    /* Kernels that read panels are other pipelines than those of the product before, so new
     * pipelines show that the host has packed. With the longest stretches of k and a b that is
     * read in place (in_order), nothing is packed. */
    pipelines[2] = tsr__pipelines_built(gpu);
    ck_assert((pipelines[2] > pipelines[1]) == !in_order);
    ck_assert_mem_eq(bits[0], bits[1], (size_t)rows * N * sizeof *bits[0]);
    for (int i = 0; i < 2; i++)
        free(bits[i]);
    free(values);
    tsr_tensor_destroy(&view);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&a);
}
END_TEST

/* On processors with a large instruction cache, dispatches cover longer stretches of k, with
 * operands in panels or not, in tiles of six rows or of four. Other tests compute such products
 * only if the processor has this cache. */
START_TEST(long_stretches)
{
    gpu_random random = {66};
    /* k is covered by 5 long stretches, one of half the length, and a remainder */
    matmul_case c = plain_case(100, 5652, 250);

    c.transpose_b = true;
    c.b = TSR_F16;
    gpu->long_code = true;
    run_case(&random, &c);
    /* k is two long stretches; the second one applies the epilogue */
    c = plain_case(100, 2048, 700);
    c.transpose_b = true;
    c.b = c.y = TSR_F16;
    c.bias = TSR_F32;
    c.bias_shape = (batch_shape){1, {700}};
    c.activation = TSR_ACT_SILU;
    run_case(&random, &c);
    /* tiles of four rows; columns that do not fill a tile; k with a remainder */
    c = plain_case(28, 4100, 1201);
    c.transpose_b = c.views = c.accumulate = true;
    c.a = c.b = TSR_BF16;
    c.alpha = 0.5f;
    run_case(&random, &c);
}
END_TEST

static void product(tsr_tensor *y, const tsr_tensor *a, const tsr_tensor *b)
{
    GPU_OK(tsr_matmul(queue, y, a, b, tsr_matmul_params(.transpose_b = true)));
}

/* The host may pack operands that no recorded work uses, even if other work is recorded. It must
 * not pack operands that recorded work will still write or read. */
START_TEST(panels_behind_other_work)
{
    enum { M = 130, K = 1030, N = 140 };
    tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){M, K}),
               *b = gpu_new(TSR_F32, 2, (int64_t[]){N, K});
    tsr_tensor *other = gpu_new(TSR_F32, 1, (int64_t[]){1000}), *y[4];
    uint32_t *bits[4];
    const uint64_t before = tsr__pipelines_built(gpu);
    uint64_t built;

    for (int i = 0; i < 4; i++)
        y[i] = gpu_new(TSR_F32, 2, (int64_t[]){M, N});
    GPU_OK(tsr_random_uniform(queue, a, -1, 1, tsr_random_params(.seed = 1)));
    GPU_OK(tsr_random_uniform(queue, b, -1, 1, tsr_random_params(.seed = 2)));
    GPU_OK(tsr_stream_wait(queue));
    GPU_OK(tsr_fill(queue, other, 1));
    product(y[0], a, b);
    built = tsr__pipelines_built(gpu);
    product(y[1], a, b); /* kernels must pack a and b, which the first product still has to read */
    ck_assert_uint_gt(tsr__pipelines_built(gpu), built);
    ck_assert_uint_gt(built, before);
    GPU_OK(tsr_random_uniform(queue, a, -1, 1, tsr_random_params(.seed = 3)));
    product(y[2], a, b); /* an operand that recorded work has not computed yet */
    GPU_OK(tsr_stream_wait(queue));
    product(y[3], a, b);
    for (int i = 0; i < 4; i++) {
        bits[i] = malloc(M * N * sizeof *bits[i]);
        ck_assert_ptr_nonnull(bits[i]);
        GPU_OK(tsr_tensor_download(queue, y[i], bits[i], M * N * sizeof *bits[i]));
        tsr_tensor_destroy(&y[i]);
    }
    ck_assert_mem_eq(bits[0], bits[1], M * N * sizeof *bits[0]);
    ck_assert_mem_ne(bits[1], bits[2], M * N * sizeof *bits[0]);
    ck_assert_mem_eq(bits[2], bits[3], M * N * sizeof *bits[0]);
    for (int i = 0; i < 4; i++)
        free(bits[i]);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&other);
}
END_TEST

/* Memory runs out after the operands: there is none for their panels, and the product must be
 * computed without them. */
START_TEST(memory_without_room_for_panels)
{
    enum { SIDE = 300, K = 1030 };
    const size_t bytes = (size_t)SIDE * K * sizeof(float);
    float *values = malloc(bytes);
    uint32_t *bits[2];
    tsr_device *device;
    tsr_stream *stream;
    gpu_random random = {65};

    ck_assert_ptr_nonnull(values);
    for (int i = 0; i < SIDE * K; i++)
        values[i] = (float)gpu_random_unit(&random);
    GPU_OK(tsr_device_open(tsr_device_params(.memory_limit_bytes = 4 << 20), &device));
    GPU_OK(tsr_stream_create(device, &stream));
    for (int limited = 0; limited < 2; limited++) {
        tsr_device *where = limited ? device : gpu;
        tsr_stream *queue_there = limited ? stream : queue;
        tsr_tensor *operands[2], *y;
        for (int i = 0; i < 2; i++) {
            GPU_OK(tsr_tensor_create(where, TSR_F32, 2, (int64_t[]){SIDE, K}, &operands[i]));
            GPU_OK(tsr_tensor_upload(queue_there, operands[i], values, bytes));
        }
        GPU_OK(tsr_tensor_create(where, TSR_F32, 2, (int64_t[]){SIDE, SIDE}, &y));
        GPU_OK(tsr_stream_wait(queue_there));
        GPU_OK(tsr_matmul(queue_there, y, operands[0], operands[1],
                          tsr_matmul_params(.transpose_b = true)));
        bits[limited] = malloc(SIDE * SIDE * sizeof(float));
        ck_assert_ptr_nonnull(bits[limited]);
        GPU_OK(tsr_tensor_download(queue_there, y, bits[limited], SIDE * SIDE * sizeof(float)));
        for (int i = 0; i < 2; i++)
            tsr_tensor_destroy(&operands[i]);
        tsr_tensor_destroy(&y);
    }
    ck_assert_mem_eq(bits[0], bits[1], SIDE * SIDE * sizeof(float));
    for (int i = 0; i < 2; i++)
        free(bits[i]);
    free(values);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
}
END_TEST

/* y has a few more rows than one band. A band is the rows whose f32 sums fit into scratch
 * memory, from which they are rounded together. The last rows are also computed as a separate
 * product. */
START_TEST(the_same_bits_in_bands)
{
    enum { M = 530, K = 1030, N = 16500, LAST = 30 };
    const bool host_copies = gpu->host_copies;
    const size_t bytes = (size_t)M * N * sizeof(uint16_t);
    tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){M, K}),
               *b = gpu_new(TSR_BF16, 2, (int64_t[]){N, K}),
               *y = gpu_new(TSR_BF16, 2, (int64_t[]){M, N});
    tsr_tensor *last_a, *last_y = gpu_new(TSR_BF16, 2, (int64_t[]){LAST, N});
    uint16_t *bits[2];

    GPU_OK(tsr_tensor_slice(a, 0, M - LAST, M, 1, &last_a));
    GPU_OK(tsr_random_uniform(queue, a, -1, 1, tsr_random_params(.seed = 4)));
    GPU_OK(tsr_random_uniform(queue, b, -1, 1, tsr_random_params(.seed = 5)));
    for (int by_host = 0; by_host < 2; by_host++) {
        GPU_OK(tsr_fill(queue, y, by_host));
        GPU_OK(tsr_stream_wait(queue));
        gpu->host_copies = host_copies && by_host;
        product(y, a, b);
        bits[by_host] = malloc(bytes);
        ck_assert_ptr_nonnull(bits[by_host]);
        GPU_OK(tsr_tensor_download(queue, y, bits[by_host], bytes));
    }
    ck_assert(memcmp(bits[0], bits[1], bytes) == 0);
    product(last_y, last_a, b);
    GPU_OK(tsr_tensor_download(queue, last_y, bits[0], bytes * LAST / M));
    ck_assert(memcmp(bits[0], bits[1] + (size_t)(M - LAST) * N, bytes * LAST / M) == 0);
    tsr_tensor_destroy(&last_a);
    tsr_tensor_destroy(&last_y);
    for (int i = 0; i < 2; i++)
        free(bits[i]);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&y);
}
END_TEST

/* Rows whose distance is a multiple of 4 KiB share cache lines; they are packed before the
 * product. */
START_TEST(the_same_bits_for_rows_that_collide)
{
    enum { M = 17, K = 2048, N = 520, PADDED = K + 24 };
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    const tsr_dtype dtype = dtypes[_i];
    gpu_random random = {62};
    double *values = malloc((size_t)N * K * sizeof *values);
    tsr_tensor *a = gpu_new(dtype, 2, (int64_t[]){M, K}), *b = gpu_new(dtype, 2, (int64_t[]){N, K});
    tsr_tensor *padded = gpu_new(dtype, 2, (int64_t[]){M, PADDED}), *view, *transposed;
    uint32_t *bits[2];

    ck_assert_ptr_nonnull(values);
    for (int i = 0; i < N * K; i++)
        values[i] = gpu_random_unit(&random);
    gpu_put(a, values);
    gpu_put(b, values);
    GPU_OK(tsr_tensor_slice(padded, 1, 0, K, 1, &view));
    GPU_OK(tsr_copy(queue, view, a));
    GPU_OK(tsr_tensor_transpose(b, 0, 1, &transposed));
    bits[0] = product_bits(view, transposed, M, N);
    bits[1] = product_bits(a, transposed, M, N);
    ck_assert_mem_eq(bits[0], bits[1], M * N * sizeof *bits[0]);
    for (int i = 0; i < 2; i++)
        free(bits[i]);
    free(values);
    tsr_tensor_destroy(&transposed);
    tsr_tensor_destroy(&view);
    tsr_tensor_destroy(&padded);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&a);
}
END_TEST

TESTS(matmul_panels)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, the_same_bits_whoever_packs, 0, 20);
    tcase_add_test(tests, long_stretches);
    tcase_add_loop_test(tests, the_same_bits_for_rows_that_collide, 0, 3);
    tcase_add_test(tests, the_same_bits_in_bands);
    tcase_add_test(tests, panels_behind_other_work);
    tcase_add_test(tests, memory_without_room_for_panels);
}
