/* The limit on the work of a dispatch. With the smallest limit, every operation is divided into
 * as many dispatches as possible, and its results must have the same bits. */
#include <stdlib.h>
#include <string.h>

#include "gpu/device/device.h"
#include "gpu/matmul/matmul.h"
#include "support/check_main.h"
#include "support/gpu.h"

enum { TENSORS = 10 };

/* The tensors of an operation. */
typedef struct operands {
    tsr_tensor *t[TENSORS];
    int count;
} operands;

static tsr_tensor *add(operands *o, tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsr_tensor *tensor = gpu_new(dtype, ndim, shape);
    gpu_random random = {.state = 77 + (uint64_t)o->count};
    const size_t count = (size_t)tsr_layout_count(tsr_tensor_layout(tensor));
    double *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < count; i++)
        values[i] = gpu_random_unit(&random);
    gpu_put(tensor, values);
    free(values);
    o->t[o->count++] = tensor;
    return tensor;
}

static tsr_tensor *add_indices(operands *o, int64_t count, int64_t below)
{
    tsr_tensor *tensor = gpu_new(TSR_I32, 1, &count);
    double values[64];
    for (int64_t i = 0; i < count; i++)
        values[i] = (double)(i * 7 % below);
    gpu_put(tensor, values);
    o->t[o->count++] = tensor;
    return tensor;
}

#define SHAPE(...)                                                                                 \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[])                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Records an operation. It writes its results to t[0] and, if there are several, to the tensors
 * after it. Returns the number of results. */
typedef int operation(operands *o);

static int multiply(operands *o, const char *config, int64_t m, int64_t n, int64_t batch)
{
    const int64_t k = 40;
    tsr__matmul_override forced = {.config = tsr__matmul_config_named(config)};
    tsr_tensor *y = add(o, TSR_F32, SHAPE(batch, m, n)), *a = add(o, TSR_F32, SHAPE(batch, m, k)),
               *b = add(o, TSR_F32, SHAPE(batch, n, k)), *bias = add(o, TSR_F32, SHAPE(n));
    GPU_OK(tsr__matmul_run(queue, y, a, b, tsr_matmul_params(.transpose_b = true, .bias = bias),
                           &forced));
    return 1;
}

static int matmul_tiled(operands *o)
{
    return multiply(o, "tiled-s", 70, 40, 2);
}

static int matmul_vector(operands *o)
{
    return multiply(o, "vector-k", 5, 21, 3);
}

static int matmul_wide(operands *o)
{
    return multiply(o, "wide", 9, 33, 2);
}

static int matmul_split(operands *o)
{
    tsr__matmul_override forced = {.config = tsr__matmul_config_at(TSR__MATMUL_TILED_S),
                                   .splits = 3};
    tsr_tensor *y = add(o, TSR_F32, SHAPE(40, 24)), *a = add(o, TSR_F32, SHAPE(40, 384)),
               *b = add(o, TSR_F32, SHAPE(384, 24));
    GPU_OK(tsr__matmul_run(queue, y, a, b, NULL, &forced));
    return 1;
}

static int multiply_quant(operands *o, int64_t m)
{
    enum { N = 13, K = 64 };
    static float weights[N * K];
    uint8_t blocks[N * K / 32 * 34];
    tsr_tensor *y = add(o, TSR_F32, SHAPE(m, N)), *a = add(o, TSR_F32, SHAPE(m, K));
    tsr_tensor *b = gpu_new(TSR_Q8_0, 2, (int64_t[]){N, K});
    for (int i = 0; i < N * K; i++)
        weights[i] = (float)(i * 31 % 101 - 50) / 32;
    GPU_OK(tsr_quantize(TSR_Q8_0, weights, N * K, blocks, sizeof blocks));
    GPU_OK(tsr_tensor_upload(queue, b, blocks, sizeof blocks));
    o->t[o->count++] = b;
    tsr_tensor *bias = add(o, TSR_F32, SHAPE(N));
    GPU_OK(tsr_matmul(queue, y, a, b, tsr_matmul_params(.transpose_b = true, .bias = bias)));
    return 1;
}

static int quant_few(operands *o)
{
    return multiply_quant(o, 3);
}

static int quant_many(operands *o)
{
    return multiply_quant(o, 12);
}

static int attend(operands *o, int64_t queries, bool gradient)
{
    const int64_t keys = 300, width = 8;
    tsr_tensor *y = add(o, TSR_F32, SHAPE(2, 2, queries, width)),
               *lse = add(o, TSR_F32, SHAPE(2, 2, queries)),
               *dq = add(o, TSR_F32, SHAPE(2, 2, queries, width)),
               *dk = add(o, TSR_F32, SHAPE(2, 1, keys, width)),
               *dv = add(o, TSR_F32, SHAPE(2, 1, keys, width)),
               *q = add(o, TSR_F32, SHAPE(2, 2, queries, width)),
               *k = add(o, TSR_F32, SHAPE(2, 1, keys, width)),
               *v = add(o, TSR_F32, SHAPE(2, 1, keys, width)),
               *dy = add(o, TSR_F32, SHAPE(2, 2, queries, width));
    GPU_OK(tsr_attention(queue, y, lse, q, k, v, NULL));
    if (!gradient)
        return 2;
    GPU_OK(tsr_attention_grad(queue, dq, dk, dv, dy, y, lse, q, k, v, NULL));
    return 5;
}

static int attention_few(operands *o)
{
    return attend(o, 1, false);
}

static int attention_tiled(operands *o)
{
    return attend(o, 70, true);
}

static int index_add(operands *o)
{
    tsr_tensor *dx = add(o, TSR_F16, SHAPE(3, 11, 5)), *dy = add(o, TSR_F32, SHAPE(3, 23, 5));
    GPU_OK(tsr_index_select_grad(queue, dx, dy, 1, add_indices(o, 23, 11), true));
    return 1;
}

static int embedding_grad(operands *o)
{
    tsr_tensor *dx = add(o, TSR_F16, SHAPE(11, 37)), *dy = add(o, TSR_F32, SHAPE(23, 37));
    GPU_OK(tsr_index_select_grad(queue, dx, dy, 0, add_indices(o, 23, 11), true));
    return 1;
}

static int topk(operands *o)
{
    tsr_tensor *values = add(o, TSR_F32, SHAPE(5, 9)), *indices = gpu_new(TSR_I32, SHAPE(5, 9));
    o->t[o->count++] = indices;
    GPU_OK(tsr_topk(queue, values, indices, add(o, TSR_F32, SHAPE(5, 200)), 1));
    return 2;
}

/* Operations whose work is proportional to the bytes of their tensors are not divided. */
static int by_bytes(operands *o)
{
    tsr_tensor *y = add(o, TSR_F32, SHAPE(7, 90)), *sum = add(o, TSR_F32, SHAPE(7)),
               *dx = add(o, TSR_F32, SHAPE(7, 90)), *dw = add(o, TSR_F32, SHAPE(90)),
               *x = add(o, TSR_F32, SHAPE(7, 90)), *w = add(o, TSR_F32, SHAPE(90));
    GPU_OK(tsr_softmax(queue, y, x, false));
    GPU_OK(tsr_axpy(queue, y, 2, x));
    GPU_OK(tsr_norm_grad(queue, dx, dw, NULL, x, y, w, TSR_NORM_RMS, 1e-5F, true));
    GPU_OK(tsr_reduce(queue, sum, y, 1, TSR_REDUCE_SUM, false));
    return 4;
}

/* The last operations are those whose kernels take CPU drivers seconds to compile. */
static const struct operation_case {
    const char *name;
    operation *run;
    uint64_t batches; /* the least number of batches with the smallest limit */
} operations[] = {
    {"tiled products", matmul_tiled, 6},
    {"products of few rows", matmul_vector, 3},
    {"products with any strides", matmul_wide, 18},
    {"products in parts", matmul_split, 4},
    {"gradient of a selection", index_add, 23},
    {"gradient of an embedding", embedding_grad, 23},
    {"the largest elements", topk, 9},
    {"work by bytes", by_bytes, 4},
    {"products of weights, few rows", quant_few, 4},
    {"products of weights", quant_many, 3},
    {"attention of few queries", attention_few, 6},
    {"attention and gradients", attention_tiled, 12},
};
enum { OPERATIONS = sizeof operations / sizeof *operations, QUICK = OPERATIONS - 4 };

/* Computes an operation on the same inputs in each call. Returns the size of its results, and
 * counts batches. */
static size_t compute(operation *run, uint8_t *out, size_t size, uint64_t *batches)
{
    operands o = {.count = 0};
    uint64_t before, after;
    size_t used = 0;
    GPU_OK(tsr_stream_wait(queue));
    GPU_OK(tsr_stream_mark(queue, &before));
    int results = run(&o);
    GPU_OK(tsr_stream_mark(queue, &after));
    *batches = after - before;
    for (int i = 0; i < results; i++) {
        const tsr_layout *layout = tsr_tensor_layout(o.t[i]);
        const size_t bytes = (size_t)tsr_layout_count(layout) * tsr_dtype_size(layout->dtype);
        ck_assert_uint_le(used + bytes, size);
        GPU_OK(tsr_tensor_download(queue, o.t[i], out + used, bytes));
        used += bytes;
    }
    for (int i = 0; i < o.count; i++)
        tsr_tensor_destroy(&o.t[i]);
    return used;
}

START_TEST(the_smallest_limit_keeps_the_bits)
{
    static uint8_t usual[1 << 16], divided[1 << 16];
    const struct operation_case *how = &operations[_i];
    uint64_t few, many;
    gpu->work_limit = TSR__GPU_WORK_LIMIT;
    size_t bytes = compute(how->run, usual, sizeof usual, &few);
    gpu->work_limit = 1;
    ck_assert_uint_eq(compute(how->run, divided, sizeof divided, &many), bytes);
    ck_assert_msg(memcmp(usual, divided, bytes) == 0, "%s: other bits", how->name);
    ck_assert_msg(many >= how->batches && many > few, "%s: %llu batches, usually %llu", how->name,
                  (unsigned long long)many, (unsigned long long)few);
}
END_TEST

TESTS(work_limit)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, the_smallest_limit_keeps_the_bits, 0, QUICK);
}

TESTS(work_limit_slow)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, the_smallest_limit_keeps_the_bits, QUICK, OPERATIONS);
}
