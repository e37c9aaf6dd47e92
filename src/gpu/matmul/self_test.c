#include "gpu/matmul/self_test.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "base/float16.h"
#include "gpu/matmul/matmul.h"

/* One product y[m,n] = a[m,k] · b[n,k]ᵀ, whose result the host knows. The operands are multiples of
 * 1/8 from -2 to 2, which f16 and bf16 represent. All sums of products are then exact in f32, in
 * every order of addition, so that the results must be equal bit by bit. */

static float value_at(uint32_t seed, uint32_t index)
{
    uint32_t bits = (index + seed) * 2654435761U;

    return (float)((int)((bits >> 16) % 33) - 16) / 8;
}

static uint16_t narrow(float value, tsr_dtype dtype)
{
    uint32_t bits;

    if (dtype == TSR_F16)
        return tsr__f16_of_f32(value);
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)(bits >> 16); /* exact: bf16 has these values */
}

typedef struct check {
    tsr_device *gpu;
    const tsr__matmul_config *config;
    tsr_dtype dtype;
    int64_t m, n, k;
    uint32_t splits; /* of k; 0: as the chooser does it */
    tsr_stream *stream;
    tsr_tensor *y, *a, *b;
    float *host; /* y, then the operands as they are uploaded */
} check;

static tsr_status upload(const check *c, tsr_tensor *tensor, uint32_t seed, void *elements)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    const size_t count = (size_t)(layout->shape[0] * layout->shape[1]);

    for (size_t i = 0; i < count; i++) {
        float value = value_at(seed, (uint32_t)i);
        if (c->dtype == TSR_F32)
            ((float *)elements)[i] = value;
        else
            ((uint16_t *)elements)[i] = narrow(value, c->dtype);
    }
    return tsr_tensor_upload(c->stream, tensor, elements, count * tsr_dtype_size(c->dtype));
}

/* Elements that the kernel does not write stay NaN. */
static tsr_status poison(const check *c)
{
    const size_t count = (size_t)(c->m * c->n);

    for (size_t i = 0; i < count; i++)
        c->host[i] = NAN;
    return tsr_tensor_upload(c->stream, c->y, c->host, count * sizeof *c->host);
}

static bool is_right(const check *c)
{
    for (int64_t row = 0; row < c->m; row++)
        for (int64_t column = 0; column < c->n; column++) {
            double sum = 0;
            for (int64_t i = 0; i < c->k; i++)
                sum += (double)value_at(1, (uint32_t)(row * c->k + i)) *
                       (double)value_at(7, (uint32_t)(column * c->k + i));
            if ((double)c->host[row * c->n + column] != sum)
                return false;
        }
    return true;
}

static tsr_status multiply(check *c, bool *out)
{
    const size_t bytes = (size_t)(c->m * c->n) * sizeof(float);
    const tsr__matmul_override forced = {.config = c->config->name, .splits = c->splits};

    TSR__TRY(tsr_stream_create(c->gpu, &c->stream));
    TSR__TRY(tsr_tensor_create(c->gpu, TSR_F32, 2, (int64_t[]){c->m, c->n}, &c->y));
    TSR__TRY(tsr_tensor_create(c->gpu, c->dtype, 2, (int64_t[]){c->m, c->k}, &c->a));
    TSR__TRY(tsr_tensor_create(c->gpu, c->dtype, 2, (int64_t[]){c->n, c->k}, &c->b));
    TSR__TRY(poison(c));
    TSR__TRY(upload(c, c->a, 1, c->host + c->m * c->n));
    TSR__TRY(upload(c, c->b, 7, c->host + c->m * c->n));
    TSR__TRY(tsr__matmul_run(c->stream, c->y, c->a, c->b, tsr_matmul_params(.transpose_b = true),
                             &forced));
    TSR__TRY(tsr_tensor_download(c->stream, c->y, c->host, bytes));
    *out = is_right(c);
    return TSR_OK;
}

/* Chooses a size with several workgroups, incomplete tiles at all edges and loads of vectors.
 * Kernels for few rows compute no more rows than their tile has. */
static void choose_size(check *c, bool few_rows)
{
    const int64_t bm = c->config->bm, bn = c->config->bn, bk = c->config->bk;

    c->m = few_rows ? bm : bm + 5;
    c->n = bn + 8;
    c->k = 2 * bk + 8;
}

static bool can_multiply(const check *c)
{
    tsr_layout y, a, b;
    tsr__matmul_problem problem;
    tsr__matmul_device device = tsr__matmul_device_of(c->gpu);

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
    tsr_tensor_destroy(&c->b);
    tsr_tensor_destroy(&c->a);
    tsr_tensor_destroy(&c->y);
    tsr_stream_destroy(&c->stream);
    tsr__free(c->host);
    return status;
}

static tsr_status check_config(tsr_device *gpu, const char *name, tsr_dtype dtype, bool *out)
{
    check c = {.gpu = gpu, .config = tsr__matmul_config_named(name), .dtype = dtype};

    choose_size(&c, false);
    if (!can_multiply(&c))
        choose_size(&c, true);
    if (!can_multiply(&c))
        return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: %s is not tested for %s", name,
                         tsr_dtype_name(dtype));
    return run_check(&c, out);
}

static const char sum_name[] = "matmul_sum";

/* Checks the kernel that adds up the sums of the parts of k, with any kernel that splits k. */
static tsr_status check_sum(tsr_device *gpu, const char *name, tsr_dtype dtype, bool *out)
{
    check c = {.gpu = gpu, .dtype = dtype, .m = 13, .n = 41, .k = 190, .splits = 3};

    for (int i = 0; (c.config = tsr__matmul_config_at(i)) != NULL; i++)
        if (c.config->family->splits_k && can_multiply(&c))
            return run_check(&c, out);
    return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: %s is not tested", name);
}

static bool works(tsr_device *gpu, const tsr__matmul_config *config,
                  const tsr__matmul_problem *problem)
{
    return tsr__kernel_works(gpu, config->name, problem->a.dtype, check_config) &&
           (problem->b.dtype == problem->a.dtype ||
            tsr__kernel_works(gpu, config->name, problem->b.dtype, check_config));
}

/* Fails with the names of the kernels that are off. */
static tsr_status none_left(const tsr_device *gpu, const tsr__matmul_device *device)
{
    const tsr__matmul_config *config;
    char names[256] = "";
    size_t used = 0;

    for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL && used < sizeof names; i++)
        if (device->off >> i & 1)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s",
                                     used > 0 ? ", " : "", config->name);
    return tsr__fail(TSR_ERR_UNSUPPORTED,
                     "matmul: every kernel that could compute this product on %s has failed its "
                     "self-test: %s; TESSERA_SELF_TEST=off uses them nevertheless",
                     gpu->info.name, names);
}

tsr_status tsr__matmul_choose_tested(tsr_device *gpu, tsr__tuned *tuned,
                                     const tsr__matmul_problem *problem,
                                     const tsr__matmul_override *override, tsr__matmul_plan *out)
{
    tsr__matmul_device device = tsr__matmul_device_of(gpu);
    tsr__matmul_plan plan;

    while (true) {
        TSR__TRY(tsr__matmul_choose(&device, tuned, problem, override, &plan));
        if ((override && override->config) || works(gpu, plan.config, problem))
            break;
        uint64_t bit = UINT64_C(1) << tsr__matmul_config_index(plan.config);
        if (device.off & bit)
            return none_left(gpu, &device);
        device.off |= bit;
    }
    if (plan.splits > 1 && !override && !tsr__kernel_works(gpu, sum_name, TSR_F32, check_sum)) {
        const tsr__matmul_override unsplit = {.config = plan.config->name, .splits = 1};
        TSR__TRY(tsr__matmul_choose(&device, tuned, problem, &unsplit, &plan));
    }
    *out = plan;
    return TSR_OK;
}

void tsr__matmul_add_tests(tsr_device *gpu, tsr__kernel_tests *list)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    const tsr__matmul_device device = tsr__matmul_device_of(gpu);
    const tsr__matmul_config *config;

    for (int i = 0; (config = tsr__matmul_config_at(i)) != NULL; i++)
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
            if (tsr__matmul_config_runs(config, &device))
                tsr__kernel_tests_add(list, config->name, dtypes[d], check_config);
    tsr__kernel_tests_add(list, sum_name, TSR_F32, check_sum);
}
