/* Compares gated products, act(a · gate) ⊙ (a · up), with double precision, and in f32 with the
 * bits of tsr_matmul followed by tsr_activate. Also compares products that normalise a, gated
 * or not, with double precision. */
#include "gpu/internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/device.h"
#include "gpu/stream/state.h"
#include "support/check_main.h"
#include "support/gpu.h"
#include "tensor/dtype.h"
#include "tessera/quant.h"

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};
static const tsr_dtype blocks[] = {TSR_Q8_0, TSR_Q4_0, TSR_Q4_K, TSR_Q6_K};

typedef struct gated_case {
    int64_t m, n, k;
    tsr_dtype a, b, y;
    bool bias;
    int64_t padding; /* unused elements after the rows of a and y */
    tsr_activation activation;
    bool allow_int8;
    tsr_dtype norm; /* the dtype of the weight of an RMS norm of a; 0: none */
    bool plain;     /* with a norm: the product is not gated, and only n rows of b are used */
} gated_case;

#define EPSILON 1e-3

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

static double activated(double x, tsr_activation activation)
{
    static const double pi = 3.14159265358979323846;
    switch (activation) {
    case TSR_ACT_NONE:
        break;
    case TSR_ACT_RELU:
        return x > 0 ? x : 0;
    case TSR_ACT_GELU_TANH:
        return x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)));
    case TSR_ACT_GELU_ERF:
        return x / 2 * erfc(-x / sqrt(2));
    case TSR_ACT_SILU:
        return x / (1 + exp(-x));
    }
    return x;
}

/* Makes a tensor [rows,columns] with `padding` unused elements after each row. */
static tsr_tensor *padded(tsr_dtype dtype, int64_t rows, int64_t columns, int64_t padding,
                          tsr_tensor **whole)
{
    tsr_tensor *view;
    *whole = gpu_new(dtype, 2, (int64_t[]){rows, columns + padding});
    GPU_OK(tsr_tensor_slice(*whole, 1, 0, columns, 1, &view));
    return view;
}

/* Fills b, and writes its values to `values`. */
static void fill_weights(const gated_case *c, gpu_random *random, tsr_tensor *b, double *values)
{
    const int64_t count = 2 * c->n * c->k;
    if (!tsr__dtype_is_block(c->b)) {
        for (int64_t i = 0; i < count; i++)
            values[i] = gpu_rounded(gpu_random_unit(random), c->b);
        gpu_put(b, values);
        return;
    }
    float *source = allocate((size_t)count, sizeof *source);
    uint64_t size = 0;
    ck_assert_ok(tsr_quant_bytes(c->b, count, &size));
    uint8_t *bytes = allocate(size, 1);
    for (int64_t i = 0; i < count; i++)
        source[i] = (float)gpu_random_unit(random);
    ck_assert_ok(tsr_quantize(c->b, source, count, bytes, size));
    ck_assert_ok(tsr_dequantize(c->b, bytes, size, source, count));
    GPU_OK(tsr_tensor_upload(queue, b, bytes, size));
    for (int64_t i = 0; i < count; i++)
        values[i] = source[i];
    free(bytes);
    free(source);
}

static double dot(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void compare(const gated_case *c, const double *a, const double *b, const double *bias,
                    const double *got)
{
    const double unit = c->y == TSR_F32 ? 0x1p-20 : c->y == TSR_F16 ? 0x1p-10 : 0x1p-7;
    for (int64_t i = 0; i < c->m; i++)
        for (int64_t j = 0; j < c->n; j++) {
            const double gate = dot(a + i * c->k, b + j * c->k, c->k) + bias[j],
                         up = c->plain
                                  ? 1
                                  : dot(a + i * c->k, b + (c->n + j) * c->k, c->k) + bias[c->n + j],
                         want = activated(gate, c->activation) * up, is = got[i * c->n + j];
            /* The error of a sum of k products below 1 is a few units in the last place of such a
             * sum. Products with normalised elements are below 3. Rounding the elements of a row to
             * 8 bits changes each by up to a 254th of the largest. */
            const double error = c->allow_int8 ? 0x1p-6 : c->norm ? 0x1p-17 : 0x1p-19;
            const double slack = error * sqrt((double)c->k) * (fabs(gate) + fabs(up) + 1);
            if (!(fabs(is - want) <= unit * fabs(want) + slack))
                ck_abort_msg("[%lld,%lld,%lld] b %s, element %lld,%lld: %.9g, not %.9g",
                             (long long)c->m, (long long)c->n, (long long)c->k,
                             tsr_dtype_name(c->b), (long long)i, (long long)j, is, want);
        }
}

/* Computes the same result with tsr_matmul and tsr_activate, and compares the bits with
 * `got`. */
static void compare_steps(const gated_case *c, const tsr_tensor *a, const tsr_tensor *b,
                          const tsr_tensor *bias, const double *got)
{
    tsr_tensor *both = gpu_new(TSR_F32, 2, (int64_t[]){c->m, 2 * c->n}), *gate, *up,
               *y = gpu_new(TSR_F32, 2, (int64_t[]){c->m, c->n});
    double *steps = allocate((size_t)(c->m * c->n), sizeof *steps);
    GPU_OK(tsr_matmul(
        queue, both, a, b,
        tsr_matmul_params(.transpose_b = true, .bias = bias, .allow_int8 = c->allow_int8)));
    GPU_OK(tsr_tensor_slice(both, 1, 0, c->n, 1, &gate));
    GPU_OK(tsr_tensor_slice(both, 1, c->n, 2 * c->n, 1, &up));
    GPU_OK(tsr_activate(queue, y, gate, up, c->activation));
    gpu_get(y, steps);
    for (int64_t i = 0; i < c->m * c->n; i++)
        ck_assert_msg(steps[i] == got[i], "[%lld,%lld,%lld], element %lld: %.9g in steps, now %.9g",
                      (long long)c->m, (long long)c->n, (long long)c->k, (long long)i, steps[i],
                      got[i]);
    tsr_tensor *all[] = {gate, up, both, y};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
    free(steps);
}

/* Fills the norm's weight, and replaces the rows of a by the normalised ones. */
static void normalise(const gated_case *c, gpu_random *random, tsr_tensor *weight, double *a)
{
    double *w = allocate((size_t)c->k, sizeof *w);
    for (int64_t i = 0; i < c->k; i++)
        w[i] = gpu_rounded(1 + gpu_random_unit(random) / 2, c->norm);
    gpu_put(weight, w);
    for (int64_t row = 0; row < c->m; row++) {
        double *x = a + row * c->k;
        const double factor = 1 / sqrt(dot(x, x, c->k) / (double)c->k + EPSILON);
        for (int64_t i = 0; i < c->k; i++)
            x[i] *= factor * w[i];
    }
    free(w);
}

static void multiply_normed(const gated_case *c, tsr_tensor *y, const tsr_tensor *a,
                            const tsr_tensor *b, const tsr_tensor *bias, const tsr_tensor *weight,
                            bool *recorded)
{
    const tsr__matmul_norm norm = {.weight = weight, .epsilon = (float)EPSILON};
    tsr__matmul_fusion fusion = {.norm = &norm,
                                 .gated = !c->plain,
                                 .bias = bias,
                                 .activation = c->activation,
                                 .allow_int8 = c->allow_int8,
                                 .only_ask = true};
    bool asked;
    tsr_tensor *rows = NULL, *own_bias = NULL;
    GPU_OK(tsr_tensor_slice(b, 0, 0, c->plain ? c->n : 2 * c->n, 1, &rows));
    if (bias && c->plain) {
        GPU_OK(tsr_tensor_slice(bias, 0, 0, c->n, 1, &own_bias));
        fusion.bias = own_bias;
    }
    const uint64_t before = queue->serial;
    GPU_OK(tsr__matmul_fused(queue, y, a, rows, &fusion, &asked));
    ck_assert_uint_eq(queue->serial, before); /* asking records nothing */
    fusion.only_ask = false;
    GPU_OK(tsr__matmul_fused(queue, y, a, rows, &fusion, recorded));
    ck_assert_int_eq(asked, *recorded);
    /* one dispatch, whose preflight may count, too */
    ck_assert(*recorded ? queue->serial - before <= 2 : queue->serial == before);
    tsr_tensor_destroy(&rows);
    tsr_tensor_destroy(&own_bias);
}

/* Runs a case. Returns whether there was a kernel for the product. */
static bool run(const gated_case *c, gpu_random *random)
{
    tsr_tensor *whole_a, *whole_y, *a = padded(c->a, c->m, c->k, c->padding, &whole_a),
                                   *y = padded(c->y, c->m, c->n, c->padding, &whole_y),
                                   *b = gpu_new(c->b, 2, (int64_t[]){2 * c->n, c->k}),
                                   *bias = gpu_new(TSR_F32, 1, (int64_t[]){2 * c->n});
    double *in = allocate((size_t)(c->m * c->k), sizeof *in),
           *weights = allocate((size_t)(2 * c->n * c->k), sizeof *weights),
           *biases = allocate((size_t)(2 * c->n), sizeof *biases),
           *got = allocate((size_t)(c->m * c->n), sizeof *got);
    bool recorded = true;
    for (int64_t i = 0; i < c->m * c->k; i++)
        in[i] = gpu_rounded(gpu_random_unit(random) / 2, c->a);
    for (int64_t i = 0; c->bias && i < 2 * c->n; i++)
        biases[i] = gpu_rounded(gpu_random_unit(random), TSR_F32);
    gpu_put(a, in);
    gpu_put(bias, biases);
    fill_weights(c, random, b, weights);
    gpu_poison(y);
    if (c->norm) {
        tsr_tensor *weight = gpu_new(c->norm, 1, (int64_t[]){c->k});
        normalise(c, random, weight, in);
        multiply_normed(c, y, a, b, c->bias ? bias : NULL, weight, &recorded);
        tsr_tensor_destroy(&weight);
    } else {
        GPU_OK(tsr__matmul_gated(queue, y, a, b, c->bias ? bias : NULL, c->activation,
                                 c->allow_int8, &recorded));
    }
    if (recorded) {
        gpu_get(y, got);
        if (!c->allow_int8 || c->norm)
            compare(c, in, weights, biases, got);
        if (c->y == TSR_F32 && !c->norm)
            compare_steps(c, a, b, c->bias ? bias : NULL, got);
    }
    tsr_tensor *all[] = {a, whole_a, y, whole_y, b, bias};
    for (int i = 0; i < 6; i++)
        tsr_tensor_destroy(&all[i]);
    free(got);
    free(biases);
    free(weights);
    free(in);
    return recorded;
}

START_TEST(matches_double_precision)
{
    gpu_random random = {11};
    const bool is_gpu = gpu->traits.device_class == TSR__CLASS_GPU;
    /* GPUs have a kernel for long rows of blocks. SwiftShader takes long to compile it. */
    const bool long_rows = !gpu_is_swiftshader();
    for (int n = 0; n < 24; n++) { /* any two of the dtypes meet */
        const bool quantised = n % 2;
        const gated_case c = {
            .m = n % 10 == 9 ? 4 : gpu_random_between(&random, 1, 2),
            .n = gpu_random_between(&random, n % 5, 70),
            /* rows of q8_0 and q4_0 with 1280 elements are multiples of 16 bytes, but not with
             * 1312; rows of q6_k are with 2048, but not with 1280 */
            .k = long_rows && (n % 8 == 1 || n % 8 == 3) ? 1280 + n / 8 % 2 * 32
                 : long_rows && n % 16 == 7              ? 1280 + n / 16 % 2 * 768
                 : long_rows && n == 13                  ? 1280
                 : quantised                             ? 256 * gpu_random_between(&random, 1, 3)
                 : n % 4                                 ? gpu_random_between(&random, 1, 127)
                                                         : 8 * gpu_random_between(&random, 1, 150),
            .a = floats[n % 3],
            .b = quantised ? blocks[n / 2 % 4] : floats[n / 3 % 3],
            .y = floats[n / 5 % 3],
            .bias = n % 4 > 1,
            .padding = n % 7 == 6 ? 3 : 0,
            .activation = (tsr_activation)(n % 5),
        };
        const bool recorded = run(&c, &random);
        ck_assert_msg(recorded || !is_gpu || c.n <= c.m, "[%lld,%lld,%lld]: a kernel was expected",
                      (long long)c.m, (long long)c.n, (long long)c.k);
    }
}
END_TEST

/* Tests products that multiply integers of 8 bits. test_matmul_quant.c examines their errors. */
START_TEST(matches_steps_by_integers)
{
    static const tsr_dtype formats[] = {TSR_Q4_0, TSR_Q5_0, TSR_Q8_0};
    gpu_random random = {13};
    if (gpu_is_swiftshader())
        SKIP_UNLESS_HUGE("a long compilation on SwiftShader");
    for (int i = 0; i < 3; i++)
        ck_assert(run(&(gated_case){.m = 1 + i % 2,
                                    .n = 37,
                                    .k = 1280,
                                    .a = TSR_F32,
                                    .b = formats[i],
                                    .y = TSR_F32,
                                    .bias = i == 0,
                                    .activation = TSR_ACT_SILU,
                                    .allow_int8 = true},
                      &random) ||
                  gpu->traits.device_class != TSR__CLASS_GPU);
}
END_TEST

/* For many rows there is no gated kernel, so the function must say that the caller has to
 * compute two steps. */
START_TEST(many_rows_have_no_kernel)
{
    gpu_random random = {12};
    for (int i = 0; i < 2; i++)
        ck_assert(!run(
            &(gated_case){
                .m = 40, .n = 48, .k = 64, .a = TSR_F32, .b = i ? TSR_Q8_0 : TSR_F32, .y = TSR_F32},
            &random));
}
END_TEST

START_TEST(normalises_rows)
{
    gpu_random random = {14};
    if (gpu_is_swiftshader())
        SKIP_UNLESS_HUGE("long compilations on SwiftShader");
    const bool is_gpu = gpu->traits.device_class == TSR__CLASS_GPU;
    for (int n = 0; n < 24; n++) {
        const bool quantised = n % 2;
        const gated_case c = {
            .m = 1 + n / 2 % 4,
            .n = gpu_random_between(&random, 5, 70),
            .k = n % 8 == 1  ? 1280
                 : quantised ? 256 * gpu_random_between(&random, 1, 3)
                             : 4 * gpu_random_between(&random, 1, 300),
            .a = floats[n / 6 % 3],
            .b = quantised ? blocks[n / 2 % 4] : floats[n / 2 % 3],
            .y = floats[n / 8 % 3],
            .bias = n % 4 > 1,
            .padding = n % 7 == 6 ? 4 : 0,
            .activation = (tsr_activation)(n % 5),
            .norm = floats[n % 3],
            .plain = n / 4 % 2,
        };
        const bool recorded = run(&c, &random);
        ck_assert_msg(recorded == is_gpu, "[%lld,%lld,%lld] %s: %s", (long long)c.m, (long long)c.n,
                      (long long)c.k, tsr_dtype_name(c.b),
                      recorded ? "a CPU driver has no kernel" : "a kernel was expected");
    }
    /* by integers */
    if (gpu_is_swiftshader())
        return;
    for (int n = 0; n < 2; n++)
        ck_assert(run(&(gated_case){.m = 1 + n,
                                    .n = 37,
                                    .k = 1280,
                                    .a = TSR_F32,
                                    .b = n ? TSR_Q4_0 : TSR_Q8_0,
                                    .y = TSR_F32,
                                    .norm = TSR_F32,
                                    .plain = n == 0,
                                    .activation = TSR_ACT_SILU,
                                    .allow_int8 = true},
                      &random) == is_gpu);
}
END_TEST

/* Devices whose subgroups cannot add up values use a tree in shared memory. */
START_TEST(sums_without_subgroups)
{
    gpu_random random = {16};
    if (gpu_is_swiftshader())
        SKIP_UNLESS_HUGE("long compilations on SwiftShader");
    static const tsr_dtype weights[] = {TSR_F16, TSR_Q8_0, TSR_Q4_K};
    const bool sums = gpu->subgroup_sums;
    gpu->subgroup_sums = false;
    for (int i = 0; i < 3; i++)
        ck_assert(run(&(gated_case){.m = 1 + i % 2,
                                    .n = 37,
                                    .k = 1280,
                                    .a = TSR_F32,
                                    .b = weights[i],
                                    .y = TSR_F32,
                                    .norm = TSR_F32,
                                    .activation = TSR_ACT_SILU},
                      &random));
    gpu->subgroup_sums = sums;
}
END_TEST

/* Products that no kernel normalises: too many rows, rows that no vector loads fit, and a weight
 * that does not start at a multiple of four elements. */
START_TEST(other_rows_are_not_normalised)
{
    gpu_random random = {15};
    gated_case c = {.m = 5, .n = 48, .k = 64, .a = TSR_F32, .b = TSR_F32, .y = TSR_F32};
    c.norm = TSR_F32;
    ck_assert(!run(&c, &random));
    c.m = 1;
    c.k = 63;
    ck_assert(!run(&c, &random));
    c.k = 64;
    ck_assert(run(&c, &random) == (gpu->traits.device_class == TSR__CLASS_GPU));
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){1, 48}),
               *a = gpu_new(TSR_F32, 2, (int64_t[]){1, 64}),
               *b = gpu_new(TSR_F32, 2, (int64_t[]){48, 64}),
               *weights = gpu_new(TSR_F32, 1, (int64_t[]){65}), *odd;
    bool recorded = true;
    GPU_OK(tsr_tensor_slice(weights, 0, 1, 65, 1, &odd));
    c.plain = true;
    multiply_normed(&c, y, a, b, NULL, odd, &recorded);
    ck_assert(!recorded);
    tsr_tensor *all[] = {odd, weights, b, a, y};
    for (int i = 0; i < 5; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

START_TEST(refuses)
{
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){1, 3}),
               *a = gpu_new(TSR_F32, 2, (int64_t[]){1, 8}),
               *b = gpu_new(TSR_F32, 2, (int64_t[]){6, 8}),
               *odd = gpu_new(TSR_F32, 2, (int64_t[]){5, 8}), *inside;
    bool recorded = true;
    GPU_OK(tsr_tensor_slice(b, 0, 4, 5, 1, &inside));
    tsr_tensor *row;
    GPU_OK(tsr_tensor_slice(inside, 1, 0, 3, 1, &row));
    GPU_FAILS(tsr__matmul_gated(queue, y, a, odd, NULL, TSR_ACT_SILU, false, &recorded),
              TSR_ERR_INVALID, "matmul: b is [5,8]; a gated product needs an even number of rows");
    ck_assert(!recorded);
    GPU_FAILS(tsr__matmul_gated(queue, y, a, NULL, NULL, TSR_ACT_SILU, false, &recorded),
              TSR_ERR_INVALID, "matmul: b is NULL");
    GPU_FAILS(tsr__matmul_gated(queue, y, b, b, NULL, TSR_ACT_SILU, false, &recorded),
              TSR_ERR_INVALID, "matmul: ");
    GPU_FAILS(tsr__matmul_gated(queue, row, a, b, NULL, TSR_ACT_SILU, false, &recorded),
              TSR_ERR_INVALID, "overlaps b [6,8]");
    tsr_tensor *all[] = {row, inside, y, a, b, odd};
    for (int i = 0; i < 6; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

TESTS(gated)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, matches_double_precision);
    tcase_add_test(tests, matches_steps_by_integers);
    tcase_add_test(tests, many_rows_have_no_kernel);
    tcase_add_test(tests, normalises_rows);
    tcase_add_test(tests, other_rows_are_not_normalised);
    tcase_add_test(tests, refuses);
}

TESTS(gated_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_test(tests, sums_without_subgroups);
    tcase_add_test(tests, matches_double_precision);
    tcase_add_test(tests, other_rows_are_not_normalised);
}

TESTS(gated_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu_packed, gpu_teardown);
    tcase_add_test(tests, matches_double_precision);
    tcase_add_test(tests, matches_steps_by_integers);
    tcase_add_test(tests, normalises_rows);
}
