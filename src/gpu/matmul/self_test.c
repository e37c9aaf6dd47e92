/* The self-test of the kernels for products: which products are computed, and with which
 * configurations (common/kernel.h). */
#include "gpu/matmul/self_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/float16.h"
#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/common/call.h"
#include "gpu/matmul/narrowed.h"

/* One of two products whose result the host knows: y[m,n] = a[m,k] · b[n,k]ᵀ in f32, or y = a[k,m]ᵀ
 * · b[k,n] + bias[n] in the dtype of the operands. The operands are multiples of 1/8 from -2 to 2,
 * which f16 and bf16 represent. All sums of products are then exact in f32, in every order of
 * addition, so that the results must be equal bit by bit. */

static float value_at(uint32_t seed, uint32_t index)
{
    uint32_t bits = (index + seed) * 2654435761U;

    return (float)((int)((bits >> 16) % 33) - 16) / 8;
}

static uint16_t narrow(float value, tsr_dtype dtype)
{
    return dtype == TSR_F16 ? tsr__f16_of_f32(value) : tsr__bf16_of_f32(value);
}

typedef struct check {
    tsr_device *gpu;
    const tsr__matmul_config *config;
    tsr_dtype dtype;
    int64_t m, n, k;
    uint32_t splits; /* the number of ranges of k; 0: the chooser's number */
    bool transposed; /* the product is aᵀ·b + bias, otherwise a·bᵀ */
    /* a is f32 and narrowed to terms of `dtype`. Its elements have 15 bits, too many for one term,
     * and those of b are powers of two, so that sums are exact here, too. */
    bool narrowed;
    tsr_stream *stream;
    tsr_tensor *y, *a, *b, *bias;
    float *host; /* m · n elements for y, and behind them room for the operand being uploaded */
} check;

enum { SEED_A = 1, SEED_B = 7, SEED_BIAS = 3 };

static float a_at(const check *c, uint32_t index)
{
    const float value = value_at(SEED_A, index);
    return c->narrowed ? value + value_at(SEED_BIAS, index) / 1024 : value;
}

static float b_at(const check *c, uint32_t index)
{
    const float value = value_at(SEED_B, index);
    return c->narrowed ? value < 0 ? -1.0F : value < 1 ? 0.5F : 2.0F : value;
}

static tsr_dtype a_dtype(const check *c)
{
    return c->narrowed ? TSR_F32 : c->dtype;
}

static tsr_dtype y_dtype(const check *c)
{
    return c->transposed ? c->dtype : TSR_F32;
}

static tsr_matmul_params params_of(const check *c)
{
    return (tsr_matmul_params){.struct_size = sizeof(tsr_matmul_params),
                               .transpose_a = c->transposed,
                               .transpose_b = !c->transposed,
                               .bias = c->bias,
                               .precision =
                                   c->narrowed ? TSR_PRECISION_HIGH : TSR_PRECISION_DEFAULT};
}

static tsr_status upload(const check *c, tsr_tensor *tensor, void *elements)
{
    const size_t count = (size_t)tsr_layout_count(tsr_tensor_layout(tensor));
    const tsr_dtype dtype = tsr_tensor_layout(tensor)->dtype;

    for (size_t i = 0; i < count; i++) {
        float value = tensor == c->a   ? a_at(c, (uint32_t)i)
                      : tensor == c->b ? b_at(c, (uint32_t)i)
                                       : value_at(SEED_BIAS, (uint32_t)i);
        if (dtype == TSR_F32)
            ((float *)elements)[i] = value;
        else
            ((uint16_t *)elements)[i] = narrow(value, dtype);
    }
    return tsr_tensor_upload(c->stream, tensor, elements, count * tsr_dtype_size(dtype));
}

/* Fills y with NaN, so that the comparison finds elements that the kernel does not write. */
static tsr_status poison(const check *c)
{
    const size_t bytes = (size_t)(c->m * c->n) * tsr_dtype_size(y_dtype(c));

    memset(c->host, 0xff, bytes);
    return tsr_tensor_upload(c->stream, c->y, c->host, bytes);
}

static double element_of(const check *c, int64_t row, int64_t column)
{
    double sum = c->transposed ? (double)value_at(SEED_BIAS, (uint32_t)column) : 0;

    for (int64_t i = 0; i < c->k; i++) {
        int64_t a = c->transposed ? i * c->m + row : row * c->k + i;
        int64_t b = c->transposed ? i * c->n + column : column * c->k + i;
        sum += (double)a_at(c, (uint32_t)a) * (double)b_at(c, (uint32_t)b);
    }
    return sum;
}

static bool is_right(const check *c)
{
    for (int64_t row = 0; row < c->m; row++)
        for (int64_t column = 0; column < c->n; column++) {
            double element = element_of(c, row, column);
            int64_t at = row * c->n + column;
            bool same = c->transposed
                            ? ((const uint16_t *)c->host)[at] == narrow((float)element, c->dtype)
                            : (double)c->host[at] == element;
            if (!same)
                return false;
        }
    return true;
}

/* Records the product with the tested kernel. */
static tsr_status record(const check *c)
{
    const tsr__matmul_override forced = {.config = c->config, .splits = c->splits};
    const tsr__matmul_device device = tsr__matmul_device_of(c->gpu);
    const tsr_matmul_params params = params_of(c);
    tsr__matmul_problem problem, narrowed;
    tsr__matmul_plan plan, terms = {.method = TSR__MATMUL_NOTHING};

    TSR__TRY(tsr__matmul_problem_init(&c->y->layout, &c->a->layout, &c->b->layout,
                                      c->bias ? &c->bias->layout : NULL, &params, &problem));
    if (c->narrowed && !tsr__matmul_narrow(&problem, TSR_F32, c->dtype, &narrowed, &terms))
        return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: the tested product is not narrowed");
    TSR__TRY(tsr__matmul_choose(&device, NULL, c->narrowed ? &narrowed : &problem, &forced, &plan));
    plan.narrowed = terms.narrowed;
    const tsr__matmul_call call = {.stream = c->stream,
                                   .problem = &problem,
                                   .y = c->y,
                                   .a = problem.swapped ? c->b : c->a,
                                   .b = problem.swapped ? c->a : c->b,
                                   .bias = c->bias};
    return c->narrowed ? tsr__matmul_record_narrowed(&call, &plan)
                       : plan.config->family->run(&call, &plan);
}

static tsr_status multiply(check *c, bool *out)
{
    const size_t bytes = (size_t)(c->m * c->n) * tsr_dtype_size(y_dtype(c));
    const int64_t a_shape[2] = {c->transposed ? c->k : c->m, c->transposed ? c->m : c->k};
    const int64_t b_shape[2] = {c->transposed ? c->k : c->n, c->transposed ? c->n : c->k};

    TSR__TRY(tsr_stream_create(c->gpu, &c->stream));
    TSR__TRY(tsr_tensor_create(c->gpu, y_dtype(c), 2, (int64_t[]){c->m, c->n}, &c->y));
    TSR__TRY(tsr_tensor_create(c->gpu, a_dtype(c), 2, a_shape, &c->a));
    TSR__TRY(tsr_tensor_create(c->gpu, c->dtype, 2, b_shape, &c->b));
    TSR__TRY(poison(c));
    TSR__TRY(upload(c, c->a, c->host + c->m * c->n));
    TSR__TRY(upload(c, c->b, c->host + c->m * c->n));
    if (c->transposed) {
        TSR__TRY(tsr_tensor_create(c->gpu, c->dtype, 1, &c->n, &c->bias));
        TSR__TRY(upload(c, c->bias, c->host + c->m * c->n));
    }
    TSR__TRY(record(c));
    TSR__TRY(tsr_tensor_download(c->stream, c->y, c->host, bytes));
    *out = is_right(c);
    return TSR_OK;
}

/* Chooses a size with several workgroups, with incomplete tiles at all edges, and for which
 * kernels can load vectors. Kernels for few rows compute no more rows than their tile has. */
static void choose_size(check *c, bool few_rows)
{
    const int64_t bm = c->config->bm, bn = c->config->bn, bk = c->config->bk;
    const int64_t steps = c->config->steps > 0 ? c->config->steps : 1;

    c->m = few_rows ? bm : bm + (c->transposed ? 8 : 5);
    c->n = bn + 8;
    c->k = (steps + 1) * bk + 8;
}

static bool can_multiply(const check *c)
{
    tsr_layout y, a, b;
    tsr__matmul_problem problem;
    tsr__matmul_device device = tsr__matmul_device_of(c->gpu);

    /* aᵀ·b + bias needs the same properties of the device as a·bᵀ. */
    return tsr_layout_init(TSR_F32, 2, (int64_t[]){c->m, c->n}, &y) == TSR_OK &&
           tsr_layout_init(c->dtype, 2, (int64_t[]){c->m, c->k}, &a) == TSR_OK &&
           tsr_layout_init(c->dtype, 2, (int64_t[]){c->n, c->k}, &b) == TSR_OK &&
           tsr__matmul_problem_init(&y, &a, &b, NULL, tsr_matmul_params(.transpose_b = true),
                                    &problem) == TSR_OK &&
           !problem.swapped && tsr__matmul_config_fits(c->config, &device, &problem);
}

static tsr_status run_check(check *c, bool *out)
{
    c->host = tsr__calloc((size_t)(c->m * c->n + (c->m + c->n) * c->k), sizeof *c->host);
    if (!c->host)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = multiply(c, out);
    tsr_tensor_destroy(&c->bias);
    tsr_tensor_destroy(&c->b);
    tsr_tensor_destroy(&c->a);
    tsr_tensor_destroy(&c->y);
    tsr_stream_destroy(&c->stream);
    tsr__free(c->host);
    return status;
}

tsr_status tsr__matmul_test_config(tsr_device *gpu, const char *name, tsr_dtype dtype, bool *out)
{
    check c = {.gpu = gpu, .dtype = dtype};

    for (int i = 0; (c.config = tsr__matmul_config_at(i)) != NULL && c.config->name != name; i++)
        continue;
    choose_size(&c, false);
    if (!can_multiply(&c))
        choose_size(&c, true);
    if (!can_multiply(&c))
        return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: %s is not tested for %s", name,
                         tsr_dtype_name(dtype));
    TSR__TRY(run_check(&c, out));
    if (!*out || !c.config->family->tests_forms)
        return TSR_OK;
    c.transposed = true;
    choose_size(&c, false);
    return run_check(&c, out);
}

const char tsr__matmul_sum_name[] = "matmul_sum";

/* Checks the kernel that adds up the sums of all ranges of k, with any kernel that splits k. */
tsr_status tsr__matmul_test_sum(tsr_device *gpu, const char *name, tsr_dtype dtype, bool *out)
{
    check c = {.gpu = gpu, .dtype = dtype, .m = 13, .n = 41, .k = 190, .splits = 3};

    for (int i = 0; (c.config = tsr__matmul_config_at(i)) != NULL; i++)
        if (c.config->family->splits_k && can_multiply(&c))
            return run_check(&c, out);
    return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: %s is not tested", name);
}

const char tsr__matmul_narrow_name[] = "matmul_narrow";

/* Checks products of a narrowed operand, with the first configuration that computes them. */
tsr_status tsr__matmul_test_narrow(tsr_device *gpu, const char *name, tsr_dtype dtype, bool *out)
{
    check c = {.gpu = gpu, .dtype = dtype, .narrowed = true};

    for (int i = 0; (c.config = tsr__matmul_config_at(i)) != NULL; i++) {
        if (!c.config->family->narrows)
            continue;
        choose_size(&c, false);
        if (can_multiply(&c))
            return run_check(&c, out);
    }
    return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: %s is not tested for %s", name,
                     tsr_dtype_name(dtype));
}

/* Fused products ------------------------------------------------------------------------------- */

typedef enum form {
    WITH_SLOPE, /* ReLU, and its derivative as a second result */
    TIMES,      /* multiplied by a factor */
    ADDED,      /* plus another matrix */
    ROW_SUMS,   /* of aᵀ, with the sums of its rows, in f32, as a second result */
    FORMS
} form;

static bool same_float(const check *c, const void *elements, int64_t index, double want)
{
    return c->dtype == TSR_F32
               ? (double)((const float *)elements)[index] == want
               : ((const uint16_t *)elements)[index] == narrow((float)want, c->dtype);
}

/* Compares both results, y in c->host and the other tensor's elements, with what the host computes.
 */
static bool fused_is_right(const check *c, form what, const void *other)
{
    const bool sums = what == ROW_SUMS;
    for (int64_t i = 0; i < c->m * c->n; i++) {
        const double factor = (double)value_at(SEED_BIAS, (uint32_t)i);
        double sum = 0;
        for (int64_t k = 0; k < c->k; k++)
            sum += (double)value_at(SEED_A,
                                    (uint32_t)(sums ? k * c->m + i / c->n : i / c->n * c->k + k)) *
                   (double)value_at(SEED_B,
                                    (uint32_t)(sums ? k * c->n + i % c->n : i % c->n * c->k + k));
        const double y = what == TIMES        ? sum * factor
                         : what == ADDED      ? sum + factor
                         : what == WITH_SLOPE ? fmax(sum, 0)
                                              : sum;
        if (!same_float(c, c->host, i, y) ||
            (what == WITH_SLOPE && sum != 0 && !same_float(c, other, i, sum > 0)))
            return false;
    }
    for (int64_t row = 0; sums && row < c->m; row++) {
        double sum = 0;
        for (int64_t k = 0; k < c->k; k++)
            sum += (double)value_at(SEED_A, (uint32_t)(k * c->m + row));
        if ((double)((const float *)other)[row] != sum)
            return false;
    }
    return true;
}

static tsr_status record_fused(const check *c, form what, const tsr_tensor *other)
{
    const tsr__matmul_override forced = {.config = c->config, .splits = c->splits};
    const tsr__matmul_device device = tsr__matmul_device_of(c->gpu);
    const tsr_matmul_params params = {
        .struct_size = sizeof params,
        .transpose_a = what == ROW_SUMS,
        .transpose_b = what != ROW_SUMS,
        .bias = what == TIMES ? other : NULL,
        .activation = what == WITH_SLOPE ? TSR_ACT_RELU : TSR_ACT_NONE,
    };
    tsr__matmul_problem problem;
    tsr__matmul_plan plan;

    TSR__TRY(tsr__matmul_problem_init(&c->y->layout, &c->a->layout, &c->b->layout,
                                      params.bias ? &params.bias->layout : NULL, &params,
                                      &problem));
    TSR__TRY(tsr__matmul_choose(&device, NULL, &problem, &forced, &plan));
    const tsr__matmul_call call = {.stream = c->stream,
                                   .problem = &problem,
                                   .y = c->y,
                                   .a = c->a,
                                   .b = c->b,
                                   .bias = params.bias,
                                   .times = what == TIMES,
                                   .slope = what == WITH_SLOPE ? other : NULL,
                                   .added = what == ADDED ? other : NULL,
                                   .sums = what == ROW_SUMS ? other : NULL};
    if (problem.swapped || !(what == ROW_SUMS ? tsr__matmul_tiles_sum_rows(&call, &plan)
                                              : tsr__matmul_tiles_fuse(&call)))
        return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: %s fuses no such products", c->config->name);
    return plan.config->family->run(&call, &plan);
}

/* Computes a fused product. c->host has room for both results. */
static tsr_status multiply_fused(check *c, form what, tsr_tensor **other, bool *out)
{
    const bool sums = what == ROW_SUMS, reads = what == TIMES || what == ADDED;
    const int64_t a_shape[2] = {sums ? c->k : c->m, sums ? c->m : c->k};
    const int64_t b_shape[2] = {sums ? c->k : c->n, sums ? c->n : c->k};
    const int64_t y_shape[2] = {c->m, c->n};
    const uint64_t bytes = (uint64_t)(c->m * c->n) * tsr_dtype_size(c->dtype);
    float *second = c->host + c->m * c->n;

    TSR__TRY(tsr_stream_create(c->gpu, &c->stream));
    TSR__TRY(tsr_tensor_create(c->gpu, c->dtype, 2, y_shape, &c->y));
    TSR__TRY(tsr_tensor_create(c->gpu, c->dtype, 2, a_shape, &c->a));
    TSR__TRY(tsr_tensor_create(c->gpu, c->dtype, 2, b_shape, &c->b));
    TSR__TRY(tsr_tensor_create(c->gpu, sums ? TSR_F32 : c->dtype, sums ? 1 : 2, y_shape, other));
    const uint64_t other_bytes = sums ? (uint64_t)c->m * sizeof(float) : bytes;
    TSR__TRY(upload(c, c->a, second));
    TSR__TRY(upload(c, c->b, second));
    memset(c->host, 0xff, bytes);
    TSR__TRY(tsr_tensor_upload(c->stream, c->y, c->host, bytes));
    TSR__TRY(reads ? upload(c, *other, second)
                   : tsr_tensor_upload(c->stream, *other, c->host, other_bytes));
    TSR__TRY(record_fused(c, what, *other));
    TSR__TRY(tsr_tensor_download(c->stream, c->y, c->host, bytes));
    TSR__TRY(tsr_tensor_download(c->stream, *other, second, other_bytes));
    *out = fused_is_right(c, what, second);
    return TSR_OK;
}

static tsr_status run_fused(const check *from, form what, bool *out)
{
    check c = *from;
    tsr_tensor *other = NULL;
    c.host = tsr__calloc((size_t)(2 * c.m * c.n + (c.m + c.n) * c.k), sizeof *c.host);
    if (!c.host)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = multiply_fused(&c, what, &other, out);
    tsr_tensor_destroy(&other);
    tsr_tensor_destroy(&c.b);
    tsr_tensor_destroy(&c.a);
    tsr_tensor_destroy(&c.y);
    tsr_stream_destroy(&c.stream);
    tsr__free(c.host);
    return status;
}

const char tsr__matmul_fused_name[] = "matmul_fused";

/* Checks the fused forms of products, with the first configuration of each family that has them. */
tsr_status tsr__matmul_test_fused(tsr_device *gpu, const char *name, tsr_dtype dtype, bool *out)
{
    const tsr__matmul_family *tested = NULL;
    check c = {.gpu = gpu, .dtype = dtype};
    bool right = true;

    for (int i = 0; right && (c.config = tsr__matmul_config_at(i)) != NULL; i++) {
        if (!c.config->family->fuses_tiles || c.config->family == tested)
            continue;
        choose_size(&c, false);
        if (!can_multiply(&c))
            continue;
        tested = c.config->family;
        for (int what = 0; right && what < FORMS; what++)
            if (what != ROW_SUMS)
                TSR__TRY(run_fused(&c, (form)what, &right));
        c.m = c.config->bm + 8; /* rows of aᵀ are loaded as vectors */
        for (c.splits = 1; right && c.splits <= 2 && tested->sums_rows; c.splits++) {
            c.k = c.splits == 1 ? c.k : 136; /* enough for two ranges */
            TSR__TRY(run_fused(&c, ROW_SUMS, &right));
        }
        c.splits = 0;
    }
    if (!tested)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: %s is not tested for %s", name,
                         tsr_dtype_name(dtype));
    *out = right;
    return TSR_OK;
}

void tsr__matmul_add_tests(tsr_device *gpu, tsr__kernel_tests *list)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    const tsr__matmul_device device = tsr__matmul_device_of(gpu);
    const tsr__matmul_config *config;

    for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            if (tsr__matmul_config_runs(config, &device) && tsr__matmul_can_choose(&device, config))
                tsr__kernel_tests_add(list, config->name, dtypes[d], tsr__matmul_test_config);
    tsr__kernel_tests_add(list, tsr__matmul_sum_name, TSR_F32, tsr__matmul_test_sum);
    for (size_t d = 0; !device.traits.slow_pipelines && d < sizeof dtypes / sizeof *dtypes; d++)
        tsr__kernel_tests_add(list, tsr__matmul_fused_name, dtypes[d], tsr__matmul_test_fused);
    if (device.traits.not_a_chip)
        return;
    if (device.coopmat.m > 0)
        tsr__kernel_tests_add(list, tsr__matmul_narrow_name, TSR_F16, tsr__matmul_test_narrow);
    if (device.coopmat_bf16.m > 0)
        tsr__kernel_tests_add(list, tsr__matmul_narrow_name, TSR_BF16, tsr__matmul_test_narrow);
}
