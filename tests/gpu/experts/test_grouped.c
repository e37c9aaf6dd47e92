/* Products with the matrices of experts, compared with double precision. Matrices of experts that
 * no token chose are NaN, so that a read of them would show. */
#include <string.h>

#include "gpu/device/coopmat.h"
#include "gpu/device/device.h"
#include "gpu/device/vendors.h"
#include "gpu/experts/experts_case.h"
#include "gpu/internal.h"
#include "gpu/stream/profile.h"
#include "tessera/quant.h"

typedef struct grouped_case {
    int64_t tokens, chosen, experts, k, n;
    tsr_dtype x, w, y;
    bool per_pair; /* x has a row for each pair */
    bool transposed, bias, weights, accumulate, foreign, sorted;
    bool fused; /* w and up are halves of one tensor; otherwise, if `apart`, only w is a half */
    bool apart;
    bool added;    /* rows are added to the weighted sum */
    bool in_parts; /* the device's work limit allows few tiles in a dispatch */
    bool nobody;   /* no pair is left */
    int gated;     /* 0, or 1 + a tsr_expert_activation */
} grouped_case;

/* Few tokens, then many; every dtype and each option at least once in both kernels. */
static const grouped_case cases[] = {
    {1, 2, 8, 64, 96, TSR_F32, TSR_F32, TSR_F32, .per_pair = false},
    {1, 2, 8, 64, 96, TSR_F32, TSR_F32, TSR_F32, .gated = 1, .fused = true},
    {3, 4, 6, 33, 7, TSR_F32, TSR_F16, TSR_F32, .bias = true, .gated = 3},
    {8, 2, 5, 36, 10, TSR_F16, TSR_BF16, TSR_F16, .gated = 2, .bias = true},
    {1, 3, 4, 96, 33, TSR_F32, TSR_F32, TSR_F32, .per_pair = true, .weights = true, .bias = true,
     .added = true},
    {5, 3, 4, 31, 9, TSR_BF16, TSR_F16, TSR_F32, .per_pair = true, .weights = true,
     .accumulate = true, .foreign = true},
    {2, 2, 4, 64, 40, TSR_F32, TSR_Q4_0, TSR_F32, .gated = 1, .bias = true},
    {2, 2, 4, 64, 40, TSR_F16, TSR_Q8_0, TSR_F32, .per_pair = true, .weights = true},
    {1, 4, 8, 256, 20, TSR_F32, TSR_Q4_K, TSR_F32, .per_pair = false},
    {1, 4, 8, 32, 20, TSR_F32, TSR_MXFP4, TSR_F32, .gated = 3, .bias = true},
    /* more steps along k than lavapipe's loops have, if a workgroup has few invocations */
    {1, 16, 3, 140000, 2, TSR_F32, TSR_F32, TSR_F32, .weights = true},
    /* more columns than lavapipe's product has in one band, and several ranges of k */
    {3, 1, 1, 1100, 16384, TSR_F32, TSR_F16, TSR_F32, .per_pair = false},
    {40, 2, 8, 64, 96, TSR_F32, TSR_F32, TSR_F32, .sorted = true},
    {70, 3, 5, 45, 70, TSR_F32, TSR_F16, TSR_F16, .bias = true, .foreign = true},
    {33, 2, 4, 40, 68, TSR_F16, TSR_F32, TSR_F32, .gated = 1, .bias = true, .fused = true,
     .in_parts = true},
    {33, 2, 4, 40, 68, TSR_F32, TSR_F32, TSR_F32, .gated = 1, .bias = true, .apart = true},
    {33, 2, 4, 40, 30, TSR_F32, TSR_BF16, TSR_F32, .gated = 3, .sorted = true, .foreign = true},
    {50, 4, 16, 48, 65, TSR_F32, TSR_F32, TSR_F32, .per_pair = true, .weights = true, .bias = true,
     .foreign = true, .added = true, .in_parts = true},
    {20, 2, 3, 37, 20, TSR_F32, TSR_F32, TSR_F16, .per_pair = true, .weights = true,
     .accumulate = true},
    {300, 2, 3, 32, 33, TSR_F32, TSR_F32, TSR_F32, .accumulate = true, .sorted = true},
    {30, 2, 4, 36, 64, TSR_F32, TSR_F32, TSR_F32, .transposed = true, .per_pair = true},
    {2, 2, 4, 35, 30, TSR_F32, TSR_F16, TSR_F32, .transposed = true, .per_pair = true,
     .accumulate = true},
    {30, 2, 4, 64, 40, TSR_F32, TSR_Q4_0, TSR_F32, .gated = 1},
    {30, 2, 6, 64, 40, TSR_F32, TSR_Q8_0, TSR_F32, .per_pair = true, .weights = true},
    {12, 2, 6, 256, 33, TSR_F32, TSR_Q4_K, TSR_F32, .bias = true},
    {12, 2, 6, 256, 33, TSR_F32, TSR_Q6_K, TSR_F32, .per_pair = false},
    {12, 2, 6, 96, 33, TSR_F32, TSR_MXFP4, TSR_F32, .per_pair = false},
    {9, 2, 0, 16, 8, TSR_F32, TSR_F32, TSR_F32, .per_pair = true, .weights = true},
    {3, 2, 0, 16, 8, TSR_F32, TSR_F32, TSR_F32, .per_pair = true, .weights = true},
    {9, 2, 4, 0, 8, TSR_F32, TSR_F32, TSR_F32, .per_pair = true, .weights = true},
    /* enough products for the kernels for CPU drivers: few pairs; ranges of k of the same length
     * and not; many pairs; one expert; less than a vector of k; no pair */
    {1, 4, 8, 2048, 40, TSR_F32, TSR_F16, TSR_F32, .gated = 1, .bias = true},
    {3, 4, 16, 1100, 33, TSR_F16, TSR_BF16, TSR_F16, .gated = 3, .foreign = true},
    {8, 2, 9, 2056, 20, TSR_F32, TSR_F32, TSR_F32, .per_pair = true, .weights = true, .bias = true,
     .added = true, .foreign = true},
    {2, 4, 8, 1024, 30, TSR_F32, TSR_Q4_K, TSR_F32, .per_pair = true, .weights = true,
     .foreign = true},
    {2, 4, 8, 512, 40, TSR_F32, TSR_Q4_0, TSR_F32, .gated = 1},
    {100, 2, 3, 1032, 36, TSR_BF16, TSR_F16, TSR_BF16, .bias = true, .foreign = true},
    {40, 1, 1, 64, 64, TSR_F32, TSR_F32, TSR_F32, .accumulate = true},
    {300, 2, 3, 5, 30, TSR_F32, TSR_F16, TSR_F32, .foreign = true},
    {20, 2, 4, 64, 64, TSR_F32, TSR_F32, TSR_F32, .per_pair = true, .weights = true,
     .accumulate = true, .nobody = true},
    {2, 2, 4, 512, 64, TSR_F32, TSR_F32, TSR_F32, .gated = 1, .nobody = true},
    /* few tokens, of whose rows invocations of GPUs take four words at a time, or two */
    {1, 2, 4, 2048, 9, TSR_F32, TSR_Q4_K, TSR_F32, .gated = 1},
    {1, 2, 4, 2048, 9, TSR_F32, TSR_Q5_K, TSR_F32, .per_pair = true, .weights = true},
    {1, 2, 4, 2048, 9, TSR_F16, TSR_Q6_K, TSR_F32, .per_pair = false},
    {1, 2, 4, 4096, 6, TSR_F32, TSR_Q2_K, TSR_F32, .per_pair = false},
    {1, 2, 4, 4096, 6, TSR_F32, TSR_Q3_K, TSR_F32, .per_pair = false},
    {2, 2, 4, 2048, 9, TSR_F32, TSR_Q4_0, TSR_F32, .gated = 3},
    {1, 2, 4, 2080, 6, TSR_F32, TSR_Q5_1, TSR_F32, .per_pair = false},
    {1, 2, 4, 2048, 6, TSR_F32, TSR_Q8_0, TSR_F32, .per_pair = false},
    {1, 2, 4, 2080, 6, TSR_F32, TSR_MXFP4, TSR_F32, .per_pair = false},
    {1, 2, 4, 768, 9, TSR_F32, TSR_Q4_K, TSR_F32, .per_pair = true, .weights = true},
    {1, 2, 4, 768, 9, TSR_F32, TSR_Q4_1, TSR_F32, .gated = 1},
};

/* Products with cooperative matrices: every pair of dtypes and kind of block format, tiles of 32
 * and of 64 rows, sizes that are no multiples of a tile. In tiles of 64 rows, subgroups multiply
 * all, half or none of their rows. */
static const grouped_case matrix_cases[] = {
    {40, 2, 8, 64, 96, TSR_F16, TSR_F16, TSR_F32, .sorted = true},
    {200, 2, 4, 72, 70, TSR_F16, TSR_F16, TSR_F16, .bias = true, .foreign = true},
    {33, 2, 4, 40, 68, TSR_F16, TSR_F16, TSR_F32, .gated = 1, .bias = true, .fused = true},
    {33, 2, 4, 40, 68, TSR_F32, TSR_F16, TSR_F32, .gated = 3, .bias = true, .apart = true},
    {20, 3, 5, 104, 33, TSR_F32, TSR_F16, TSR_F32, .per_pair = true, .weights = true, .bias = true,
     .added = true, .in_parts = true},
    {200, 2, 3, 64, 33, TSR_F32, TSR_F16, TSR_F32, .accumulate = true},
    {30, 2, 4, 64, 40, TSR_F32, TSR_Q4_0, TSR_F32, .gated = 1},
    {150, 2, 3, 96, 70, TSR_F16, TSR_Q4_0, TSR_F16, .foreign = true},
    {30, 2, 6, 64, 40, TSR_F32, TSR_Q8_0, TSR_F32, .per_pair = true, .weights = true},
    {12, 2, 6, 256, 33, TSR_F32, TSR_Q4_K, TSR_F32, .bias = true},
    {70, 2, 5, 256, 33, TSR_F32, TSR_Q4_K, TSR_F32, .per_pair = false},
    {12, 2, 6, 512, 33, TSR_F32, TSR_Q6_K, TSR_F32, .per_pair = false},
    {12, 2, 6, 96, 33, TSR_F32, TSR_MXFP4, TSR_F32, .gated = 3},
    {40, 2, 4, 64, 96, TSR_BF16, TSR_BF16, TSR_F32, .gated = 1},
    {40, 2, 4, 64, 40, TSR_F32, TSR_BF16, TSR_F32, .bias = true},
    {40, 2, 4, 64, 40, TSR_BF16, TSR_Q4_0, TSR_BF16, .bias = true},
};

/* A matrix [experts,n,k] on the device, and its values. */
typedef struct matrices {
    tsr_tensor *parent, *tensor;
    double *values;
} matrices;

static void make_blocks(matrices *m, tsr_dtype dtype, int64_t count, const bool *is_read,
                        int64_t size)
{
    uint64_t bytes = 0;
    float *source = calloc((size_t)count + 1, sizeof *source);
    ck_assert_ptr_nonnull(source);
    for (int64_t i = 0; i < count; i++)
        source[i] = (float)m->values[i];
    ck_assert_ok(tsr_quant_bytes(dtype, count, &bytes));
    uint8_t *blocks = calloc(1, bytes + 1);
    ck_assert_ptr_nonnull(blocks);
    ck_assert_ok(tsr_quantize(dtype, source, count, blocks, bytes));
    ck_assert_ok(tsr_dequantize(dtype, blocks, bytes, source, count));
    for (int64_t i = 0; i < count; i++)
        m->values[i] = (double)source[i];
    for (int64_t e = 0; e < count / size; e++) /* scales that are NaN */
        if (!is_read[e])
            memset(blocks + (uint64_t)e * bytes / (uint64_t)(count / size), 0xff,
                   bytes / (uint64_t)(count / size));
    GPU_OK(tsr_tensor_upload(queue, m->tensor, blocks, bytes));
    free(blocks);
    free(source);
}

/* Makes random matrices; those that are not read become NaN on the device. If `half` is not NULL,
 * the matrices are rows of one tensor [experts,2n,k], whose second half is *half. */
static matrices make(gpu_random *random, const grouped_case *c, const bool *is_read, matrices *half)
{
    const int64_t shape[] = {c->experts, c->transposed ? c->k : c->n, c->transposed ? c->n : c->k};
    const int64_t size = c->n * c->k, count = size * c->experts;
    matrices m = {.values = drawn(random, count, 1)};
    if (tsr_quant_format_of(c->w)) {
        m.tensor = gpu_new(c->w, 3, shape);
        make_blocks(&m, c->w, count, is_read, size);
        return m;
    }
    for (int64_t i = 0; i < count; i++)
        m.values[i] = gpu_rounded(m.values[i], c->w);
    if (half) {
        m.parent = gpu_new(c->w, 3, (int64_t[]){c->experts, 2 * c->n, c->k});
        gpu_poison(m.parent);
        GPU_OK(tsr_tensor_slice(m.parent, 1, 0, c->n, 1, &m.tensor));
        half->values = drawn(random, count, 1);
        for (int64_t i = 0; i < count; i++)
            half->values[i] = gpu_rounded(half->values[i], c->w);
        GPU_OK(tsr_tensor_slice(m.parent, 1, c->n, 2 * c->n, 1, &half->tensor));
    } else {
        m.tensor = gpu_new(c->w, 3, shape);
    }
    for (matrices *one = &m; one; one = one == &m ? half : NULL) {
        double *device = doubles(count);
        for (int64_t i = 0; i < count; i++)
            device[i] = is_read[i / size] ? one->values[i] : (double)NAN;
        gpu_put(one->tensor, device);
        free(device);
    }
    return m;
}

static void forget(matrices *m)
{
    tsr_tensor_destroy(&m->tensor);
    tsr_tensor_destroy(&m->parent);
    free(m->values);
}

static double product(const grouped_case *c, const double *x, const double *w, const double *bias,
                      int64_t row, int64_t expert, int64_t column)
{
    double sum = bias ? bias[expert * c->n + column] : 0;
    for (int64_t i = 0; i < c->k; i++)
        sum += x[row * c->k + i] *
               w[expert * c->n * c->k + (c->transposed ? i * c->n + column : column * c->k + i)];
    return sum;
}

static void check_grouped(gpu_random *random, const grouped_case *c)
{
    const int64_t pairs = c->tokens * c->chosen, rows = c->per_pair ? pairs : c->tokens;
    double *in = doubles(pairs);
    bool is_read[64] = {false};
    for (int64_t i = 0; i < pairs; i++) {
        /* The last two experts get no token. Some pairs are left out. */
        const int64_t last = c->experts > 3 ? c->experts - 3 : c->experts - 1;
        int64_t id = gpu_random_between(random, 0, last > 0 ? last : 0);
        if (c->experts == 0 || c->nobody || (c->foreign && gpu_random_between(random, 0, 3) == 0))
            id = gpu_random_between(random, 0, 1) ? -1 : c->experts + 2;
        in[i] = (double)id;
        if (id >= 0 && id < c->experts)
            is_read[id] = true;
    }
    const int64_t x_shape[] = {c->tokens, c->chosen, c->k},
                  y_shape[] = {c->tokens, c->chosen, c->n}, flat_x[] = {c->tokens, c->k},
                  flat_y[] = {c->tokens, c->n}, of_pairs[] = {c->tokens, c->chosen},
                  bias_shape[] = {c->experts, c->n};
    double *x = drawn(random, rows * c->k, 1), *bias = drawn(random, c->experts * c->n, 3),
           *up_bias = drawn(random, c->experts * c->n, 3), *weights = drawn(random, pairs, 1),
           *before = drawn(random, pairs * c->n, 1), *got = doubles(pairs * c->n);
    tsr_tensor *of_x = filled(c->x, x, c->per_pair ? 3 : 2, c->per_pair ? x_shape : flat_x),
               *ids = filled(TSR_I32, in, 2, of_pairs),
               *of_bias = filled(TSR_F32, bias, 2, bias_shape),
               *of_up_bias = filled(TSR_F32, up_bias, 2, bias_shape),
               *of_weights = filled(TSR_F32, weights, 2, of_pairs),
               *y = filled(c->y, before, c->weights ? 2 : 3, c->weights ? flat_y : y_shape),
               *order = gpu_new(TSR_I32, 1, &pairs),
               *offsets = gpu_new(TSR_I32, 1, (int64_t[]){c->experts + 1});
    double *added = drawn(random, c->tokens * c->n, 1);
    tsr_tensor *of_added = filled(c->y, added, 2, flat_y);
    matrices up = {0}, unused = {0},
             w = make(random, c, is_read,
                      c->fused   ? &up
                      : c->apart ? &unused
                                 : NULL);
    if (c->gated && !c->fused)
        up = make(random, c, is_read, NULL);
    const double work_limit = gpu->work_limit;
    if (c->in_parts)
        gpu->work_limit = 64.0 * 64 * (double)c->k;
    if (c->sorted)
        GPU_OK(tsr_route_sort(queue, order, offsets, ids));
    GPU_OK(tsr__matmul_grouped_added(
        queue, y, of_x, w.tensor, ids,
        tsr_matmul_grouped_params(
                .order = c->sorted ? order : NULL, .offsets = c->sorted ? offsets : NULL,
                .transpose_w = c->transposed, .bias = c->bias ? of_bias : NULL,
                .weights = c->weights ? of_weights : NULL, .up = c->gated ? up.tensor : NULL,
                .up_bias = c->gated && c->bias ? of_up_bias : NULL,
                .activation = c->gated ? (tsr_expert_activation)(c->gated - 1) : 0, .limit = 2,
                .accumulate = c->accumulate),
        c->added ? of_added : NULL));
    gpu->work_limit = work_limit;
    gpu_get(y, got);

    const double error = 4e-6 * (double)(c->k + 4);
    for (int64_t t = 0; t < c->tokens; t++)
        for (int64_t j = 0; j < c->n; j++) {
            double sum = c->accumulate ? before[t * c->n + j] : 0;
            if (c->added)
                sum += added[t * c->n + j];
            for (int64_t r = 0; r < c->chosen; r++) {
                const int64_t pair = t * c->chosen + r, id = (int64_t)in[pair];
                const bool is_here = id >= 0 && id < c->experts;
                const int64_t row = c->per_pair ? pair : t;
                double value =
                    is_here ? product(c, x, w.values, c->bias ? bias : NULL, row, id, j) : 0;
                if (c->weights) {
                    sum += weights[pair] * value;
                    continue;
                }
                if (is_here && c->gated)
                    value = reference_gated(
                        value, product(c, x, up.values, c->bias ? up_bias : NULL, row, id, j),
                        (tsr_expert_activation)(c->gated - 1), 2);
                if (!is_here)
                    value = before[pair * c->n + j];
                else if (c->accumulate)
                    value += before[pair * c->n + j];
                assert_close(got[pair * c->n + j], value,
                             error * (1 + fabs(value)) + storage_error(value, c->y) * 1.01, "y",
                             pair * c->n + j);
            }
            if (c->weights)
                assert_close(got[t * c->n + j], sum, error + storage_error(sum, c->y) * 1.01,
                             "weighted sum", t * c->n + j);
        }
    forget(&w);
    tsr_tensor *all[] = {up.tensor,  unused.tensor, of_added, of_x,  ids,    of_bias,
                         of_up_bias, of_weights,    y,        order, offsets};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tsr_tensor_destroy(&all[i]);
    double *memory[] = {up.values, unused.values, added,   in,     x,
                        bias,      up_bias,       weights, before, got};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        free(memory[i]);
}

/* True if the device has cooperative matrices for the 16-bit dtype of a case. */
static bool has_matrices(const grouped_case *c)
{
    const tsr_dtype dtype = c->w == TSR_BF16 || c->x == TSR_BF16 ? TSR_BF16 : TSR_F16;
    return tsr__coopmat_used(gpu, dtype) != NULL;
}

START_TEST(matrix_products)
{
    static tsr__profile profile;
    gpu_random random = {(uint64_t)_i + 400};
    const grouped_case *c = &matrix_cases[_i];
    const tsr__device_class device_class = gpu->traits.device_class;
    if (gpu_is_swiftshader())
        SKIP("the cases with its kernels are above");
    if (!has_matrices(c))
        SKIP("no cooperative matrices");
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    GPU_OK(tsr__stream_profile_begin(queue));
    check_grouped(&random, c);
    GPU_OK(tsr__stream_profile_end(queue, &profile));
    tsr__device_treat_as(gpu, device_class);
    int with_matrices = 0;
    for (int i = 0; i < profile.kernel_count; i++)
        with_matrices += profile.kernels[i].matrix_units;
    ck_assert_int_eq(with_matrices, 1);
}
END_TEST

START_TEST(products)
{
    gpu_random random = {(uint64_t)_i + 100};
    check_grouped(&random, &cases[_i]);
}
END_TEST

typedef struct gradient_case {
    int64_t tokens, chosen, experts, rows, columns;
    tsr_dtype dy, x, dw;
    bool dy_per_pair, x_per_pair, accumulate;
} gradient_case;

static const gradient_case gradient_cases[] = {
    {40, 2, 8, 33, 70, TSR_F32, TSR_F32, TSR_F32, true, false, false},
    {5, 3, 4, 64, 20, TSR_F16, TSR_F32, TSR_F32, false, true, true},
    {100, 2, 3, 10, 1, TSR_F32, TSR_BF16, TSR_F16, true, true, false},
};

START_TEST(gradients)
{
    const gradient_case *c = &gradient_cases[_i];
    gpu_random random = {(uint64_t)_i + 200};
    const int64_t pairs = c->tokens * c->chosen, size = c->rows * c->columns;
    double *in = doubles(pairs), *dy = drawn(&random, pairs * c->rows, 1),
           *x = drawn(&random, pairs * c->columns, 1),
           *before = drawn(&random, c->experts * size, 1), *got = doubles(c->experts * size);
    for (int64_t i = 0; i < pairs; i++) /* the last expert gets no token */
        in[i] = (double)gpu_random_between(&random, -1, c->experts - 2);
    tsr_tensor *ids = filled(TSR_I32, in, 2, (int64_t[]){c->tokens, c->chosen}),
               *order = gpu_new(TSR_I32, 1, &pairs),
               *offsets = gpu_new(TSR_I32, 1, (int64_t[]){c->experts + 1}), *of_dy, *of_x,
               *dw = filled(c->dw, before, 3, (int64_t[]){c->experts, c->rows, c->columns});
    of_dy = c->dy_per_pair ? filled(c->dy, dy, 3, (int64_t[]){c->tokens, c->chosen, c->rows})
                           : filled(c->dy, dy, 2, (int64_t[]){c->tokens, c->rows});
    of_x = c->x_per_pair ? filled(c->x, x, 3, (int64_t[]){c->tokens, c->chosen, c->columns})
                         : filled(c->x, x, 2, (int64_t[]){c->tokens, c->columns});
    GPU_OK(tsr_route_sort(queue, order, offsets, ids));
    const double work_limit = gpu->work_limit;
    if (_i == 1)
        gpu->work_limit = 1; /* a dispatch for each row of tiles */
    GPU_OK(
        tsr_matmul_grouped_grad(queue, dw, of_dy, of_x, order, offsets, c->chosen, c->accumulate));
    gpu->work_limit = work_limit;
    gpu_get(dw, got);
    for (int64_t i = 0; i < c->experts * size; i++) {
        double sum = c->accumulate ? before[i] : 0;
        for (int64_t p = 0; p < pairs; p++)
            if (in[p] == (double)(i / size))
                sum += dy[(c->dy_per_pair ? p : p / c->chosen) * c->rows + i % size / c->columns] *
                       x[(c->x_per_pair ? p : p / c->chosen) * c->columns + i % c->columns];
        assert_close(got[i], sum, 1e-5 + storage_error(sum, c->dw) * 1.01, "dw", i);
    }
    tsr_tensor *all[] = {ids, order, offsets, of_dy, of_x, dw};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tsr_tensor_destroy(&all[i]);
    double *memory[] = {in, dy, x, before, got};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        free(memory[i]);
}
END_TEST

/* The gradients of the activation and of the weights, by central differences. */
START_TEST(activation_gradients)
{
    enum { TOKENS = 3, CHOSEN = 2, N = 70, PAIRS = TOKENS * CHOSEN };
    gpu_random random = {300};
    double in[PAIRS] = {0, 1, 3, 2, 1, 0}, *hidden = drawn(&random, PAIRS * 2 * N, 4),
           *dy = drawn(&random, PAIRS * N, 1), *weights = drawn(&random, PAIRS, 1),
           *y = doubles(PAIRS * N), *dhidden = doubles(PAIRS * 2 * N), *dweights = doubles(PAIRS);
    const int64_t pair_shape[] = {TOKENS, CHOSEN}, wide[] = {TOKENS, CHOSEN, 2 * N},
                  narrow[] = {TOKENS, CHOSEN, N};
    tsr_tensor *ids = filled(TSR_I32, in, 2, pair_shape),
               *of_hidden = filled(TSR_F32, hidden, 3, wide),
               *of_dy = filled(TSR_F32, dy, 3, narrow),
               *of_weights = filled(TSR_F32, weights, 2, pair_shape),
               *of_y = gpu_new(TSR_F32, 3, narrow), *of_dhidden = gpu_new(TSR_F32, 3, wide),
               *of_dweights = gpu_new(TSR_F32, 2, pair_shape);
    const tsr_expert_activation activation = (tsr_expert_activation)_i;
    GPU_OK(tsr__pair_activate(queue, &(tsr__pair_activation){.ids = ids,
                                                             .hidden = of_hidden,
                                                             .y = of_y,
                                                             .dy = of_dy,
                                                             .weights = of_weights,
                                                             .dhidden = of_dhidden,
                                                             .dweights = of_dweights,
                                                             .experts = 3,
                                                             .activation = activation,
                                                             .limit = 2.5F}));
    gpu_get(of_y, y);
    gpu_get(of_dhidden, dhidden);
    gpu_get(of_dweights, dweights);
    for (int p = 0; p < PAIRS; p++) {
        double sum = 0;
        for (int f = 0; f < N && in[p] < 3; f++) {
            double *gate = hidden + p * 2 * N + f, *up = gate + N;
            const double value = reference_gated(*gate, *up, activation, 2.5), step = 1e-6,
                         d = dy[p * N + f] * weights[p];
            sum += value * dy[p * N + f];
            assert_close(y[p * N + f], value * weights[p], 1e-5, "weighted y", p * N + f);
            const double by_gate = (reference_gated(*gate + step, *up, activation, 2.5) -
                                    reference_gated(*gate - step, *up, activation, 2.5)) /
                                   (2 * step),
                         by_up = (reference_gated(*gate, *up + step, activation, 2.5) -
                                  reference_gated(*gate, *up - step, activation, 2.5)) /
                                 (2 * step);
            assert_close(dhidden[p * 2 * N + f], by_gate * d, 1e-5, "dgate", f);
            assert_close(dhidden[p * 2 * N + N + f], by_up * d, 1e-5, "dup", f);
        }
        assert_close(dweights[p], sum, 1e-4, "dweights", p);
    }
    tsr_tensor *all[] = {ids, of_hidden, of_dy, of_weights, of_y, of_dhidden, of_dweights};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tsr_tensor_destroy(&all[i]);
    double *memory[] = {hidden, dy, weights, y, dhidden, dweights};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        free(memory[i]);
}
END_TEST

START_TEST(refusals)
{
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){4, 32}),
               *w = gpu_new(TSR_F32, 3, (int64_t[]){8, 16, 32}),
               *blocks = gpu_new(TSR_Q4_0, 3, (int64_t[]){8, 16, 32}),
               *flat = gpu_new(TSR_F32, 2, (int64_t[]){8, 32}),
               *ids = gpu_new(TSR_I32, 2, (int64_t[]){4, 2}),
               *y = gpu_new(TSR_F32, 3, (int64_t[]){4, 2, 16}),
               *sum = gpu_new(TSR_F32, 2, (int64_t[]){4, 16}),
               *bias = gpu_new(TSR_F32, 2, (int64_t[]){8, 15}),
               *weights = gpu_new(TSR_F32, 2, (int64_t[]){4, 2}),
               *order = gpu_new(TSR_I32, 1, (int64_t[]){8}),
               *offsets = gpu_new(TSR_I32, 1, (int64_t[]){8});
#define REFUSED(words, y, x, w, ...)                                                               \
    GPU_FAILS(tsr_matmul_grouped(queue, y, x, w, ids, tsr_matmul_grouped_params(__VA_ARGS__)),     \
              TSR_ERR_INVALID, words)
    REFUSED("w is [8,32]; [experts,n,k] is needed", y, x, flat, .accumulate = false);
    REFUSED("inner sizes differ", y, x, w, .transpose_w = true);
    REFUSED("block format q4_0, with transpose_w", y, x, blocks, .transpose_w = true);
    REFUSED("y is [4,16]; it has a row for each pair", sum, x, w, .accumulate = true);
    REFUSED("y is [4,2,16]; it has a row for each token", y, x, w, .weights = weights);
    REFUSED("bias is [8,15]; [8,16] is needed", y, x, w, .bias = bias);
    REFUSED("up is q4_0 [8,16,32], and w is f32 [8,16,32]", y, x, w, .up = blocks);
    REFUSED("up is given with accumulate", y, x, w, .up = w, .accumulate = true);
    REFUSED("activation 9", y, x, w, .up = w, .activation = (tsr_expert_activation)9);
    REFUSED("limit is -1", y, x, w, .up = w, .limit = -1);
    REFUSED("up_bias is given without up", y, x, w, .up_bias = bias);
    REFUSED("all_experts is 7; 0, or at least the 8 of w", y, x, w, .all_experts = 7);
    REFUSED("all_experts is 2147483648", y, x, w, .all_experts = INT64_C(1) << 31);
    GPU_FAILS(tsr__matmul_grouped_added(queue, sum, x, w, ids,
                                        tsr_matmul_grouped_params(.weights = weights), x),
              TSR_ERR_INVALID, "added is f32 [4,32], and y is f32 [4,16]");
    REFUSED("one of order and offsets", y, x, w, .order = order);
    REFUSED("offsets are those of 7 experts, and w has 8", y, x, w, .order = order,
            .offsets = offsets);
    GPU_FAILS(tsr_matmul_grouped(queue, y, x, w, weights, NULL), TSR_ERR_INVALID, "ids are f32");
    GPU_FAILS(tsr_matmul_grouped(queue, y, y, w, ids, NULL), TSR_ERR_INVALID, "inner sizes differ");
    GPU_FAILS(tsr_matmul_grouped_grad(queue, w, y, x, order, offsets, 2, false), TSR_ERR_INVALID,
              "dw is [8,16,32]; [7,16,32] is needed");
    GPU_FAILS(tsr_matmul_grouped_grad(queue, w, y, x, order, offsets, 3, false), TSR_ERR_INVALID,
              "order has 8 pairs, and each token has 3");
    tsr_tensor *all[] = {x, w, blocks, flat, ids, y, sum, bias, weights, order, offsets};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

/* Counts the bytes of weights that products read and, with the kernels for GPUs, their dispatches.
 * Of 64 experts, two tokens choose four, and forty tokens three. */
START_TEST(reads_chosen_experts_only)
{
    enum { EXPERTS = 64, K = 256, N = 128 };
    const int64_t tokens = _i == 0 ? 2 : 40, pairs = tokens * 2;
    double *in = doubles(pairs);
    for (int64_t i = 0; i < pairs; i++)
        in[i] = _i == 0 ? (double)(i * 7) : (double)(i % 3 * 20);
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){tokens, K}),
               *w = gpu_new(TSR_Q8_0, 3, (int64_t[]){EXPERTS, N, K}),
               *up = gpu_new(TSR_Q8_0, 3, (int64_t[]){EXPERTS, N, K}),
               *y = gpu_new(TSR_F32, 3, (int64_t[]){tokens, 2, N}),
               *ids = filled(TSR_I32, in, 2, (int64_t[]){tokens, 2});
    static tsr__profile profile;
    GPU_OK(tsr__stream_profile_begin(queue));
    GPU_OK(tsr_matmul_grouped(queue, y, x, w, ids, tsr_matmul_grouped_params(.up = up)));
    GPU_OK(tsr__stream_profile_end(queue, &profile));
    double bytes = 0, operations = 0;
    uint64_t commands = 0, multiplied = 0;
    for (int i = 0; i < profile.kernel_count; i++) {
        commands += profile.kernels[i].commands;
        if (strstr(profile.kernels[i].name, "matmul_")) {
            multiplied += profile.kernels[i].commands;
            bytes += profile.kernels[i].read_bytes;
            operations += profile.kernels[i].operations;
        }
    }
    const double matrix = K * N / 32.0 * 34, most = fmin((double)pairs, EXPERTS);
    if (gpu->traits.device_class == TSR__CLASS_GPU) {
        ck_assert_uint_eq(multiplied, 1);
        ck_assert_uint_eq(commands, _i == 0 ? 1 : 2); /* the sort */
    }
    ck_assert_msg(bytes > 0 && bytes <= 2 * most * matrix, "%g bytes", bytes);
    ck_assert_equal(operations, 2.0 * 2 * K * N * (double)pairs);
    tsr_tensor *all[] = {x, w, up, y, ids};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tsr_tensor_destroy(&all[i]);
    free(in);
}
END_TEST

static void add_all(TCase *tests)
{
    tcase_add_loop_test(tests, products, 0, (int)(sizeof cases / sizeof cases[0]));
    tcase_add_loop_test(tests, gradients, 0,
                        (int)(sizeof gradient_cases / sizeof gradient_cases[0]));
    tcase_add_loop_test(tests, activation_gradients, 0, 3);
}

TESTS(grouped)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    add_all(tests);
    tcase_add_loop_test(tests, reads_chosen_experts_only, 0, 2);
    tcase_add_test(tests, refusals);
}

/* The kernels for GPUs, on any device. */
TESTS(grouped_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, products, 0, (int)(sizeof cases / sizeof cases[0]));
    tcase_add_loop_test(tests, reads_chosen_experts_only, 0, 2);
}

/* Intel's GPUs have smaller tiles. */
static void setup_as_intel(void)
{
    gpu_setup();
    gpu->info.vendor_id = TSR__VENDOR_INTEL;
}

TESTS(grouped_matrices_on_intel)
{
    tcase_add_checked_fixture(tests, setup_as_intel, gpu_teardown);
    tcase_add_loop_test(tests, matrix_products, 0,
                        (int)(sizeof matrix_cases / sizeof matrix_cases[0]));
}

TESTS(grouped_matrices)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, matrix_products, 0,
                        (int)(sizeof matrix_cases / sizeof matrix_cases[0]));
}
