/* Products whose b is in a block format: recorded products of golden files, and random ones
 * compared with double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/device.h"
#include "parallel/group/group.h"
#include "quant/block_format.h"
#include "quant/golden_quant.h"
#include "support/gpu.h"
#include "tessera/layer.h"

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};

static void *allocate(uint64_t size)
{
    void *memory = calloc(1, size + 1);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

static double largest_error(tsr_dtype dtype)
{
    return dtype == TSR_F32 ? 0x1p-22 : dtype == TSR_F16 ? 0x1p-10 : 0x1p-7;
}

/* A matrix [n,k] in a block format, and its values as floats. */
typedef struct weights {
    tsr_tensor *tensor;
    float *values;
} weights;

static weights weights_of(const tsr_quant_format *format, int64_t n, int64_t k, float *source)
{
    weights w = {gpu_new(format->dtype, 2, (int64_t[]){n, k}),
                 allocate((uint64_t)(n * k) * sizeof(float))};
    uint64_t size = 0;
    ck_assert_ok(tsr_quant_bytes(format->dtype, n * k, &size));
    uint8_t *blocks = allocate(size);
    if (format->quantizes) {
        ck_assert_ok(tsr_quantize(format->dtype, source, n * k, blocks, size));
    } else { /* bytes of scales from 2^-8 to 2^-6 */
        const uint64_t scale = tsr__quant_format_of(format->dtype)->factor_offset + 1u;
        for (uint64_t i = 0; i < size; i++)
            blocks[i] = (uint8_t)(i % (uint64_t)format->block_bytes == scale ? 0x1c + i % 7
                                                                             : (i * 37) & 0x3f);
    }
    ck_assert_ok(tsr_dequantize(format->dtype, blocks, size, w.values, n * k));
    GPU_OK(tsr_tensor_upload(queue, w.tensor, blocks, size));
    free(blocks);
    return w;
}

static void forget(weights *w)
{
    tsr_tensor_destroy(&w->tensor);
    free(w->values);
}

/* Tests the smaller golden case, which has one row, in each format that can be quantised. */
START_TEST(golden)
{
    json_t *file = golden_load("quant_matvec"), *type;
    const json_t *item = json_array_get(golden_list(file, "cases"), 0);
    const int64_t n = golden_integer(item, "rows"), k = golden_integer(item, "cols");
    float *source = allocate((uint64_t)(n * k) * sizeof *source);
    float *row = allocate((uint64_t)k * sizeof *row);
    double *expected = allocate((uint64_t)n * sizeof *expected);
    double *got = allocate((uint64_t)n * sizeof *got);
    golden_splitmix((uint64_t)golden_integer(item, "w_seed"),
                    (float)json_number_value(golden_member(item, "w_scale")), source,
                    (size_t)(n * k));
    golden_splitmix((uint64_t)golden_integer(item, "x_seed"),
                    (float)json_number_value(golden_member(item, "x_scale")), row, (size_t)k);
    const double tolerance = json_number_value(golden_member(item, "abs_scale")) * 3e-7;
    const char *name;
    json_object_foreach(golden_member(item, "types"), name, type)
    {
        const tsr_quant_format *format = golden_format(name);
        if (!format->quantizes)
            continue;
        golden_decode(golden_text(golden_member(type, "y"), "b64"), expected,
                      (size_t)n * sizeof *expected);
        weights w = weights_of(format, n, k, source);
        tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){1, k}),
                   *y = gpu_new(TSR_F32, 2, (int64_t[]){1, n});
        GPU_OK(tsr_tensor_upload(queue, a, row, (uint64_t)k * sizeof *row));
        gpu_poison(y);
        GPU_OK(tsr_matmul(queue, y, a, w.tensor, tsr_matmul_params(.transpose_b = true)));
        gpu_get(y, got);
        for (int64_t j = 0; j < n; j++)
            ck_assert_msg(fabs(got[j] - expected[j]) <= tolerance,
                          "%s: element %d is %.9g, not %.9g", name, (int)j, got[j], expected[j]);
        tsr_tensor_destroy(&a);
        tsr_tensor_destroy(&y);
        forget(&w);
    }
    free(source);
    free(row);
    free(expected);
    free(got);
    json_decref(file);
}
END_TEST

/* A product y [batch,m,n] = a [batch,m,k] · b, where b is a part of a larger tensor. */
typedef struct product {
    int64_t batch, m, n, k;
    tsr_dtype a_dtype, y_dtype;
    tsr_matmul_params params;
    bool bias_rows; /* the bias has a row for each row of y */
} product;

static double activated(double x, tsr_activation activation)
{
    return activation == TSR_ACT_RELU ? fmax(x, 0) : x;
}

/* Returns the largest error of element c of a row [k] that is rounded to 8 bits in blocks of 32. */
static double int8_error(const double *row, int64_t c)
{
    double largest = 0;
    for (int64_t i = c / 32 * 32; i < c / 32 * 32 + 32; i++)
        largest = fmax(largest, fabs(row[i]));
    return largest * (1.0 / 254 + 0x1p-20);
}

static void check(gpu_random *random, const tsr_quant_format *format, const product *p)
{
    const int64_t block = format->block_count, more = gpu_random_between(random, 0, 2);
    const int64_t all_n = p->n + more, all_k = p->k + block * gpu_random_between(random, 0, 1);
    const int64_t first_n = gpu_random_between(random, 0, more), first_k = all_k - p->k;
    float *source = allocate((uint64_t)(all_n * all_k) * sizeof *source);
    for (int64_t i = 0; i < all_n * all_k; i++)
        source[i] = (float)gpu_random_unit(random);
    weights w = weights_of(format, all_n, all_k, source);
    tsr_tensor *rows, *b;
    GPU_OK(tsr_tensor_slice(w.tensor, 0, first_n, first_n + p->n, 1, &rows));
    GPU_OK(tsr_tensor_slice(rows, 1, first_k, all_k, 1, &b));

    const int64_t a_shape[] = {p->batch, p->m, p->k}, y_shape[] = {p->batch, p->m, p->n};
    const int64_t bias_shape[] = {p->m, p->n};
    const int64_t lines = p->batch * p->m;
    const int skip = p->batch == 1 ? 1 : 0;
    tsr_tensor *a_parent, *y_parent, *bias_parent;
    tsr_tensor *a = gpu_random_view(random, p->a_dtype, 3 - skip, a_shape + skip, &a_parent);
    tsr_tensor *y = gpu_random_view(random, p->y_dtype, 3 - skip, y_shape + skip, &y_parent);
    tsr_tensor *bias = gpu_random_view(random, TSR_F32, p->bias_rows ? 2 : 1,
                                       p->bias_rows ? bias_shape : bias_shape + 1, &bias_parent);
    double *a_values = allocate((uint64_t)(lines * p->k) * sizeof *a_values);
    double *old = allocate((uint64_t)(lines * p->n) * sizeof *old);
    double *got = allocate((uint64_t)(lines * p->n) * sizeof *got);
    double *bias_values = allocate((uint64_t)(p->m * p->n) * sizeof *bias_values);
    for (int64_t i = 0; i < lines * p->k; i++)
        a_values[i] = gpu_rounded(gpu_random_unit(random), p->a_dtype);
    for (int64_t i = 0; i < lines * p->n; i++)
        old[i] = gpu_rounded(gpu_random_unit(random), p->y_dtype);
    for (int64_t i = 0; i < p->m * p->n; i++)
        bias_values[i] = gpu_rounded(gpu_random_unit(random), TSR_F32);
    gpu_put(a, a_values);
    if (p->params.accumulate)
        gpu_put(y, old);
    gpu_put(bias, bias_values);

    tsr_matmul_params params = p->params;
    params.struct_size = sizeof params;
    params.transpose_b = true;
    const bool has_bias = gpu_random_between(random, 0, 1) == 0;
    params.bias = has_bias ? bias : NULL;
    GPU_OK(tsr_matmul(queue, y, a, b, &params));
    gpu_get(y, got);
    const double alpha = params.alpha != 0 ? (double)params.alpha : signbit(params.alpha) ? 0 : 1;
    for (int64_t i = 0; i < lines; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0, size = 1, rounding = 0;
            for (int64_t c = 0; c < p->k; c++) {
                const double weight = (double)w.values[(first_n + j) * all_k + first_k + c];
                const double term = a_values[i * p->k + c] * weight;
                sum += term;
                size += fabs(term);
                if (params.allow_int8)
                    rounding += fabs(weight) * int8_error(a_values + i * p->k, c);
            }
            const int64_t bias_at = p->bias_rows ? i % p->m * p->n + j : j;
            double value = alpha * sum + (params.accumulate ? old[i * p->n + j] : 0) +
                           (has_bias ? bias_values[bias_at] : 0);
            value = activated(value, params.activation);
            /* If a is f16, b is rounded to f16. */
            const double error = fabs(alpha) * size * (p->a_dtype == TSR_F16 ? 0x1p-11 : 0x1p-21) +
                                 fabs(value) * largest_error(p->y_dtype) + fabs(alpha) * rounding +
                                 0x1p-22;
            ck_assert_msg(fabs(got[i * p->n + j] - value) <= error,
                          "%s [%d,%d,%d], a %s, y %s: element %d,%d is %.9g, not %.9g",
                          format->name, (int)lines, (int)p->k, (int)p->n,
                          tsr_dtype_name(p->a_dtype), tsr_dtype_name(p->y_dtype), (int)i, (int)j,
                          got[i * p->n + j], value);
        }
    tsr_tensor *all[] = {a, a_parent, y, y_parent, bias, bias_parent, b, rows};
    for (int i = 0; i < 8; i++)
        tsr_tensor_destroy(&all[i]);
    forget(&w);
    free(source);
    free(a_values);
    free(old);
    free(got);
    free(bias_values);
}

/* Tests each format with many rows, and the formats that the golden test leaves out with one
 * row. */
START_TEST(formats)
{
    /* of the formats after the 14 with planes, one with a code book and one to base 3 */
    const tsr_quant_format *format =
        _i < 14 ? tsr_quant_format_at(_i) : tsr_quant_format_of(_i < 15 ? TSR_IQ3_XXS : TSR_TQ1_0);
    gpu_random random = {.state = 100 + (uint64_t)_i};
    const int64_t k = 512;
    if (!format->quantizes)
        check(&random, format, &(product){1, 1, 33, k, TSR_F32, TSR_F32, {0}, false});
    check(&random, format, &(product){1, 19, 21, k, TSR_F32, TSR_F32, {0}, false});
}
END_TEST

/* Tests random sizes, dtypes, views and epilogues. */
START_TEST(random_products)
{
    static const int64_t few[] = {1, 2, 3, 5, 8};
    gpu_random random = {.state = 7 + (uint64_t)_i};
    const tsr_quant_format *format = tsr_quant_format_at((int)gpu_random_between(&random, 0, 13));
    for (int round = 0; round < 3; round++) {
        product p = {
            .batch = gpu_random_between(&random, 0, 3) == 0 ? 2 : 1,
            .m = round < 2 ? few[gpu_random_between(&random, 0, 4)]
                           : gpu_random_between(&random, 9, 40),
            .n = gpu_random_between(&random, 1, 70),
            .k = format->block_count * gpu_random_between(&random, 1, 3),
            .a_dtype = floats[gpu_random_between(&random, 0, 2)],
            .y_dtype = floats[gpu_random_between(&random, 0, 2)],
            .bias_rows = gpu_random_between(&random, 0, 3) == 0,
        };
        p.params.alpha = gpu_random_between(&random, 0, 2) == 0 ? 0.5f : 0;
        p.params.accumulate = gpu_random_between(&random, 0, 2) == 0;
        p.params.activation = gpu_random_between(&random, 0, 1) == 0 ? TSR_ACT_RELU : TSR_ACT_NONE;
        check(&random, format, &p);
    }
}
END_TEST

/* Tests the formats that have kernels of their own on lavapipe: each number of rows, k in one
 * range and divided into several, and a k that does not fill vectors. A kernel takes longer to
 * compile for more rows and for a longer k, so k is longest with few rows. */
START_TEST(few_rows)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 8},
                         sizes[] = {17 * 64, 70 * 64, 96, 64, 3 * 64, 64};
    static const tsr_dtype dtypes[] = {TSR_Q8_0, TSR_Q4_0, TSR_MXFP4, TSR_Q4_K, TSR_Q5_K, TSR_Q6_K};
    const tsr_quant_format *format = tsr_quant_format_of(dtypes[_i]);
    const bool large = format->block_count > 64; /* only two cases, with sizes in blocks */
    gpu_random random = {.state = 21 + (uint64_t)_i};
    for (int i = 0; i < 6; i += large ? 4 : 1) {
        product p = {1,
                     rows[i],
                     gpu_random_between(&random, 1, 40),
                     large ? 256 * (8 - i * 3 / 4) : sizes[i],
                     floats[i % 3],
                     floats[(i + 1) % 3],
                     {0},
                     i == 3};
        p.params.accumulate = i == 2;
        p.params.alpha = i == 4 ? -2 : 0;
        p.params.activation = i == 1 ? TSR_ACT_RELU : TSR_ACT_NONE;
        check(&random, format, &p);
    }
}
END_TEST

/* On GPUs, blocks of few rows go through shared memory in tiles of 32 blocks, or of 8 large ones.
 * Blocks of mxfp4 start at any byte. */
START_TEST(several_tiles)
{
    gpu_random random = {.state = 900};
    check(&random, tsr_quant_format_of(TSR_MXFP4),
          &(product){1, 3, 9, 32 * 70, TSR_F32, TSR_F32, {0}, false});
    check(&random, tsr_quant_format_of(TSR_Q3_K),
          &(product){1, 4, 6, 256 * 19, TSR_F32, TSR_F32, {0}, false});
}
END_TEST

/* Products of one and two rows, for which GPUs have other kernels. The lengths need one pass
 * over k or several. Blocks start at all multiples of 2 bytes. The kernels multiply floats or
 * integers; integers only if blocks have 32 elements. */
START_TEST(long_rows)
{
    static const tsr_dtype dtypes[] = {TSR_Q4_0, TSR_Q5_0, TSR_Q8_0, TSR_Q4_0, TSR_Q5_0,
                                       TSR_Q8_0, TSR_Q4_K, TSR_Q5_K, TSR_Q6_K};
    static const int64_t small[] = {33, 64, 200, 401}, large[] = {5, 8, 13, 50};
    const tsr_quant_format *format = tsr_quant_format_of(dtypes[_i]);
    const int64_t *blocks = format->block_count == 32 ? small : large;
    gpu_random random = {.state = 57 + (uint64_t)_i};
    if (gpu_is_swiftshader())
        SKIP_UNLESS_HUGE("a long compilation on SwiftShader");
    for (int i = 0; i < 4; i++) {
        product p = {1,
                     1 + (i + _i) % 2,
                     gpu_random_between(&random, 1, 21),
                     format->block_count * blocks[i],
                     floats[(i + _i) % 3],
                     floats[i % 3],
                     {0},
                     i == 3};
        p.params.accumulate = i == 2;
        p.params.allow_int8 = _i >= 3 && _i < 6;
        check(&random, format, &p);
    }
}
END_TEST

/* Multiplies a row [1,1024] by four columns. The kernel may multiply 8-bit integers if
 * `allow_int8`. */
static void multiply_row(const double *values, const tsr_tensor *b, bool allow_int8, double *y)
{
    tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){1, 1024}),
               *result = gpu_new(TSR_F32, 2, (int64_t[]){1, 4});
    gpu_put(a, values);
    GPU_OK(tsr_matmul(queue, result, a, b,
                      tsr_matmul_params(.transpose_b = true, .allow_int8 = allow_int8)));
    gpu_get(result, y);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&result);
}

/* Where integers are allowed, they are used: the row is rounded to 8 bits, so results differ
 * from those of floats. A row that 8 bits can represent gives the same result. NaN and infinity
 * must show in the result, and blocks of tiny elements become 0. */
START_TEST(int8_products)
{
    enum { DEPTH = 1024 };
    if (gpu_is_swiftshader())
        SKIP_UNLESS_HUGE("a long compilation on SwiftShader");
    if (!gpu->int8_dot)
        SKIP("the driver has no integer dot products");
    gpu_random random = {.state = 91};
    float source[4 * DEPTH];
    double row[DEPTH], exact[4], rounded[4];
    for (int i = 0; i < 4 * DEPTH; i++)
        source[i] = (float)gpu_random_unit(&random);
    weights w = weights_of(tsr_quant_format_of(TSR_Q8_0), 4, DEPTH, source);
    for (int i = 0; i < DEPTH; i++)
        row[i] = gpu_rounded(gpu_random_unit(&random), TSR_F32);
    multiply_row(row, w.tensor, false, exact);
    multiply_row(row, w.tensor, true, rounded);
    for (int j = 0; j < 4; j++)
        ck_assert_double_gt(fabs(exact[j] - rounded[j]), 1e-4);
    for (int i = 0; i < DEPTH; i++)
        row[i] = (i % 32 == 5 ? -127 : (i * 37) % 255 - 127) / 64.0;
    multiply_row(row, w.tensor, false, exact);
    multiply_row(row, w.tensor, true, rounded);
    for (int j = 0; j < 4; j++)
        ck_assert_double_le(fabs(exact[j] - rounded[j]), 1e-4);
    static const double special[] = {NAN, INFINITY, -INFINITY};
    for (int s = 0; s < 3; s++) {
        row[700] = special[s];
        multiply_row(row, w.tensor, true, rounded);
        for (int j = 0; j < 4; j++)
            ck_assert(!isfinite(rounded[j]));
    }
    for (int i = 0; i < DEPTH; i++)
        row[i] = i < 32 ? 1 : i < 64 ? 0x1p-121 : 0x1p-149;
    multiply_row(row, w.tensor, true, rounded);
    for (int j = 0; j < 4; j++) {
        double sum = 0;
        for (int i = 0; i < 32; i++)
            sum += (double)w.values[j * DEPTH + i];
        ck_assert_double_le(fabs(rounded[j] - sum), 1e-5);
    }
    forget(&w);
}
END_TEST

/* If a group allows integers, its layers use them, too: their results are those of tsr_matmul
 * with that permission. */
START_TEST(layers_allow_int8)
{
    enum { DEPTH = 1024, COLUMNS = 4 };
    if (gpu_is_swiftshader())
        SKIP_UNLESS_HUGE("a long compilation on SwiftShader");
    gpu_random random = {.state = 92};
    float source[COLUMNS * DEPTH];
    double row[DEPTH], wanted[COLUMNS], got[COLUMNS];
    for (int i = 0; i < COLUMNS * DEPTH; i++)
        source[i] = (float)gpu_random_unit(&random);
    for (int i = 0; i < DEPTH; i++)
        row[i] = gpu_rounded(gpu_random_unit(&random), TSR_F32);
    weights w = weights_of(tsr_quant_format_of(TSR_Q4_0), COLUMNS, DEPTH, source);
    ck_assert(!tsr__group_allows_int8(NULL));
    for (int i = 0; i < 4; i++) {
        const bool allowed = i % 2, columns = i < 2;
        tsr_group *group = NULL;
        tsr_layer *layer = NULL;
        tsr_tensor *y = NULL, *x = gpu_new(TSR_F32, 2, (int64_t[]){1, DEPTH});
        GPU_OK(tsr_group_create(NULL, queue, tsr_group_params(.allow_int8 = allowed), &group));
        ck_assert_int_eq(tsr__group_allows_int8(group), allowed);
        const tsr_linear_params params = {.struct_size = sizeof params,
                                          .group = group,
                                          .input_size = DEPTH,
                                          .output_size = COLUMNS,
                                          .deferred = true};
        GPU_OK(columns ? tsr_column_linear_create(&params, &layer)
                       : tsr_row_linear_create(&params, &layer));
        GPU_OK(tsr_layer_set_parameter(layer, 0, w.tensor, NULL, false));
        gpu_put(x, row);
        GPU_OK(tsr_layer_forward(layer, x, NULL, &y));
        gpu_get(y, got);
        multiply_row(row, w.tensor, allowed, wanted);
        for (int j = 0; j < COLUMNS; j++)
            ck_assert_double_eq(got[j], wanted[j]);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&y);
        tsr_layer_destroy(&layer);
        tsr_group_destroy(&group);
    }
    forget(&w);
}
END_TEST

/* Products for which the rows of b are unpacked in panels before the multiplication. In the case
 * of 1100 × 2048, b has more rows than fit into one panel of 8 MiB. */
START_TEST(panels)
{
    gpu_random random = {.state = 5};
    check(&random, tsr_quant_format_of(TSR_Q4_0),
          &(product){1, 40, 300, 448, TSR_F32, TSR_F32, {0}, false});
    check(&random, tsr_quant_format_of(TSR_Q8_0),
          &(product){1, 40, 300, 32 * 13, TSR_F32, TSR_F16, {0}, false});
    check(&random, tsr_quant_format_of(TSR_MXFP4),
          &(product){1, 18, 7, 64 * 3, TSR_F32, TSR_F32, {0}, false});
    check(&random, tsr_quant_format_of(TSR_Q4_1),
          &(product){1, 9, 1100, 2048, TSR_F32, TSR_F32, {0}, false});
    static const tsr_dtype large[] = {TSR_Q4_K, TSR_Q5_K, TSR_Q6_K};
    for (int i = 0; i < 3; i++)
        check(&random, tsr_quant_format_of(large[i]),
              &(product){1, 17 + i, 9, 256 * (1 + i), TSR_F32, TSR_F32, {0}, false});
}
END_TEST

START_TEST(nothing_to_add)
{
    gpu_random random = {.state = 3};
    const tsr_quant_format *format = tsr_quant_format_of(TSR_Q8_0);
    product p = {1, 3, 5, 64, TSR_F32, TSR_F32, {.alpha = TSR_ZERO}, false};
    for (int i = 0; i < 3; i++) {
        p.params.accumulate = i == 1;
        check(&random, format, &p);
    }
    const int64_t sizes[][3] = {{3, 5, 0}, {0, 5, 32}, {3, 0, 32}};
    for (int i = 0; i < 3; i++) {
        const int64_t m = sizes[i][0], n = sizes[i][1], k = sizes[i][2];
        tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){m, k}),
                   *b = gpu_new(TSR_Q8_0, 2, (int64_t[]){n, k}),
                   *y = gpu_new(TSR_F32, 2, (int64_t[]){m, n});
        double got[15] = {1};
        gpu_poison(y);
        GPU_OK(tsr_matmul(queue, y, a, b, tsr_matmul_params(.transpose_b = true)));
        if (m * n > 0) {
            gpu_get(y, got);
            for (int j = 0; j < 15; j++)
                ck_assert_double_eq(got[j], 0);
        }
        tsr_tensor_destroy(&a);
        tsr_tensor_destroy(&b);
        tsr_tensor_destroy(&y);
    }
}
END_TEST

START_TEST(refusals)
{
    tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){3, 64}),
               *b = gpu_new(TSR_Q8_0, 2, (int64_t[]){5, 64}),
               *y = gpu_new(TSR_F32, 2, (int64_t[]){3, 5}),
               *q = gpu_new(TSR_Q8_0, 2, (int64_t[]){64, 32}),
               *three = gpu_new(TSR_Q8_0, 3, (int64_t[]){1, 5, 64}),
               *i = gpu_new(TSR_I32, 2, (int64_t[]){5, 64});
    const tsr_matmul_params *transposed = tsr_matmul_params(.transpose_b = true);
    GPU_FAILS(tsr_matmul(queue, y, a, q, NULL), TSR_ERR_INVALID,
              "matmul: b is q8_0 [64,32]; in a block format, b must be [n,k] with transpose_b");
    GPU_FAILS(tsr_matmul(queue, y, a, three, transposed), TSR_ERR_INVALID,
              "matmul: b is q8_0 [1,5,64]; in a block format, b must be [n,k] with transpose_b");
    GPU_FAILS(tsr_matmul(queue, y, b, a, transposed), TSR_ERR_INVALID,
              "matmul: a is q8_0; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_matmul(queue, b, a, b, transposed), TSR_ERR_INVALID,
              "matmul: y is q8_0; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_matmul(queue, y, a, i, transposed), TSR_ERR_INVALID,
              "matmul: b is i32; f32, f16, bf16 or a block format is needed");
    GPU_FAILS(tsr_matmul(queue, y, a, q, transposed), TSR_ERR_INVALID, "matmul: ");
    GPU_FAILS(tsr_matmul(queue, y, a, b, tsr_matmul_params(.transpose_b = true, .bias = b)),
              TSR_ERR_INVALID, "matmul: bias is q8_0; f32, f16 or bf16 is needed");
    tsr_tensor *all[] = {a, b, y, q, three, i};
    for (int t = 0; t < 6; t++)
        tsr_tensor_destroy(&all[t]);
}
END_TEST

TESTS(matmul_quant)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, golden);
    tcase_add_loop_test(tests, formats, 0, 16);
    tcase_add_loop_test(tests, random_products, 0, 2);
    tcase_add_loop_test(tests, few_rows, 0, 6);
    tcase_add_test(tests, panels);
    tcase_add_test(tests, nothing_to_add);
    tcase_add_test(tests, refusals);
}

TESTS(matmul_quant_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, random_products, 8, 10);
    tcase_add_loop_test(tests, long_rows, 0, 9);
    tcase_add_test(tests, several_tiles);
    tcase_add_test(tests, int8_products);
    tcase_add_test(tests, layers_allow_int8);
}

TESTS(matmul_quant_as_gpu_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu_packed, gpu_teardown);
    tcase_add_loop_test(tests, random_products, 12, 13);
    tcase_add_loop_test(tests, long_rows, 1, 2);
    tcase_add_loop_test(tests, long_rows, 3, 4);
    tcase_add_loop_test(tests, long_rows, 8, 9);
}
