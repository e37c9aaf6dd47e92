#include "bench/tune/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/clock.h"
#include "bench/harness/data.h"
#include "bench/harness/reference.h"
#include "cli/lib/memory.h"

static int64_t batch_of(const tune_product *product)
{
    return product->batch > 0 ? product->batch : 1;
}

static uint64_t y_count(const tune_product *product)
{
    return (uint64_t)batch_of(product) * (uint64_t)product->shape.m * (uint64_t)product->shape.n;
}

void tune_product_text(const tune_product *product, char *text, size_t size)
{
    char batch[32] = "";
    if (product->batch > 0)
        snprintf(batch, sizeof batch, "%lld of ", (long long)product->batch);
    snprintf(text, size, "%s %s%lldx%lldx%lld %s", tsr_dtype_name(product->dtype), batch,
             (long long)product->shape.m, (long long)product->shape.k, (long long)product->shape.n,
             product->transposed ? "x·wᵀ" : "x·w");
}

/* Operands ------------------------------------------------------------------------------------- */

/* Values in host memory, which only the verification of the built-in kernel needs. */
typedef struct host_values {
    float *x, *w;
    float *in_f32; /* NULL if the product itself is in f32 */
} host_values;

static bool create_tensor(tune_case *test, int64_t rows, int64_t columns, tsr_tensor **out)
{
    int64_t shape[] = {test->product.batch, rows, columns};
    bool batched = test->product.batch > 0;
    tsr_status status = tsr_tensor_create(test->context->device, test->product.dtype,
                                          batched ? 3 : 2, batched ? shape : shape + 1, out);
    test->no_room = status == TSR_ERR_DEVICE_MEMORY;
    BENCH_TRY(test->context, status);
    return true;
}

static bool upload(tune_case *test, const float *values, uint64_t count, tsr_tensor *tensor)
{
    uint64_t size = count * tsr_dtype_size(test->product.dtype);
    void *bytes = cli_alloc(count, tsr_dtype_size(test->product.dtype));
    bench_encode(test->product.dtype, values, count, bytes);
    tsr_status status = tsr_tensor_upload(test->context->stream, tensor, bytes, size);
    free(bytes);
    BENCH_TRY(test->context, status);
    return true;
}

static float *random_values(const tune_case *test, uint64_t count, uint64_t seed)
{
    float *values = cli_alloc(count, sizeof *values);
    bench_random_values(values, count, test->product.dtype, seed);
    return values;
}

/* Uploads w. On the host it is [n,k]; if the product is not transposed, the device needs it as
 * [k,n]. */
static bool upload_w(tune_case *test, const float *w)
{
    const bench_shape *s = &test->product.shape;
    uint64_t count = (uint64_t)batch_of(&test->product) * (uint64_t)s->k * (uint64_t)s->n;
    if (test->product.transposed)
        return upload(test, w, count, test->w);
    float *turned = cli_alloc(count, sizeof *turned);
    for (int64_t b = 0; b < batch_of(&test->product); b++)
        for (int64_t i = 0; i < s->n; i++)
            for (int64_t j = 0; j < s->k; j++)
                turned[(b * s->k + j) * s->n + i] = w[(b * s->n + i) * s->k + j];
    bool done = upload(test, turned, count, test->w);
    free(turned);
    return done;
}

/* Allocates device memory first: if there is not enough, that fails with an error, whereas the
 * host's allocations might continue until the process is killed. */
static bool create_operands(tune_case *test, host_values *host)
{
    const bench_shape *s = &test->product.shape;
    uint64_t batch = (uint64_t)batch_of(&test->product);
    int64_t rows = test->product.transposed ? s->n : s->k;
    int64_t columns = test->product.transposed ? s->k : s->n;
    if (!create_tensor(test, s->m, s->k, &test->x) ||
        !create_tensor(test, rows, columns, &test->w) || !create_tensor(test, s->m, s->n, &test->y))
        return false;
    BENCH_TRY(test->context,
              tsr_tensor_create(test->context->device, TSR_F32, 1, &s->n, &test->bias));

    uint64_t x_count = batch * (uint64_t)s->m * (uint64_t)s->k;
    host->x = random_values(test, x_count, 1);
    host->w = random_values(test, batch * (uint64_t)s->k * (uint64_t)s->n, 2);
    test->bias_values = random_values(test, (uint64_t)s->n, 3);
    test->plain = cli_alloc(y_count(&test->product), sizeof *test->plain);
    test->bytes = cli_alloc(y_count(&test->product), tsr_dtype_size(test->product.dtype));
    if (!upload(test, host->x, x_count, test->x) || !upload_w(test, host->w))
        return false;
    BENCH_TRY(test->context, tsr_tensor_upload(test->context->stream, test->bias, test->bias_values,
                                               (uint64_t)s->n * sizeof(float)));
    return true;
}

void tune_case_finish(tune_case *test)
{
    tsr_tensor_destroy(&test->x);
    tsr_tensor_destroy(&test->w);
    tsr_tensor_destroy(&test->y);
    tsr_tensor_destroy(&test->bias);
    free(test->plain);
    free(test->bias_values);
    free(test->bytes);
    *test = (tune_case){0};
}

/* Computing ------------------------------------------------------------------------------------ */

tsr_matmul_params tune_case_params(const tune_case *test, bool bias)
{
    return (tsr_matmul_params){.struct_size = sizeof(tsr_matmul_params),
                               .transpose_b = test->product.transposed,
                               .bias = bias ? test->bias : NULL};
}

/* Records the product with the kernel that `choice` names; NULL: the built-in kernel, which
 * tsr_matmul would use without a tuning. */
static tsr_status record(tune_case *test, bool bias, const tsr__tuning_choice *choice)
{
    tsr_matmul_params params = tune_case_params(test, bias);
    return tsr__tuning_matmul(test->context->stream, test->y, test->x, test->w, &params, choice);
}

bool tune_case_time(tune_case *test, bool bias, const tsr__tuning_choice *choice,
                    uint64_t repetitions, double *ns)
{
    double start = bench_now_ns();
    for (uint64_t i = 0; i < repetitions; i++)
        BENCH_TRY(test->context, record(test, bias, choice));
    BENCH_TRY(test->context, tsr_stream_wait(test->context->stream));
    *ns = (bench_now_ns() - start) / (double)repetitions;
    return true;
}

static bool download(tune_case *test, float *values)
{
    uint64_t count = y_count(&test->product);
    BENCH_TRY(test->context, tsr_tensor_download(test->context->stream, test->y, test->bytes,
                                                 count * tsr_dtype_size(test->product.dtype)));
    bench_decode(test->product.dtype, test->bytes, count, values);
    return true;
}

static bool wrong(tune_case *test, const char *kernel, const bench_check *check)
{
    char reason[512], product[128];
    if (bench_check_passed(check, reason, sizeof reason))
        return true;
    tune_product_text(&test->product, product, sizeof product);
    return bench_fail(test->context, "tune: %s by %s: %s", product, kernel, reason);
}

/* Verifies the built-in choice against double precision. */
static bool verify_usual(tune_case *test, host_values *host)
{
    const bench_shape *s = &test->product.shape;
    bench_check check;
    BENCH_TRY(test->context, record(test, false, NULL));
    if (!download(test, test->plain))
        return false;
    tsr_matmul_params params = tune_case_params(test, false);
    tsr_status status =
        bench_product_in_f32(test->context, test->y, test->x, test->w, &params, &host->in_f32);
    test->no_room = status == TSR_ERR_DEVICE_MEMORY;
    BENCH_TRY(test->context, status);
    for (int64_t b = 0; b < batch_of(&test->product); b++) {
        bench_check_matmul(&check, s, host->x + b * s->m * s->k, host->w + b * s->n * s->k,
                           test->plain + b * s->m * s->n, test->product.dtype,
                           host->in_f32 != NULL ? host->in_f32 + b * s->m * s->n : NULL);
        if (!wrong(test, test->info.usual.kernel, &check))
            return false;
    }
    return tune_case_time(test, false, NULL, 1, &test->usual_ns);
}

bool tune_case_create(bench_context *context, const tune_product *product, tune_case *out)
{
    host_values host = {0};
    *out = (tune_case){.context = context, .product = *product};
    bool done = create_operands(out, &host);
    if (done) {
        tsr_matmul_params params = tune_case_params(out, false);
        done = bench_passed(
            context,
            tsr__tuning_inspect(context->stream, out->y, out->x, out->w, &params, &out->info),
            "tsr__tuning_inspect");
    }
    done = done && verify_usual(out, &host);
    free(host.x);
    free(host.w);
    free(host.in_f32);
    return done;
}

/* Compares `got` with the verified result. Either result may have errors from the order of
 * summation, as large as bench_check_matmul tolerates, and from rounding to the dtype. The
 * tolerance is the sum of these errors. */
static void compare_product(const tune_case *test, bool bias, const float *got, bench_check *check)
{
    const bench_shape *s = &test->product.shape;
    double k = (double)s->k, f32 = bench_rounding(TSR_F32);
    double rounding = bench_rounding(test->product.dtype);
    double summing = 2 * bench_matmul_tolerance(s->k) + 4 * f32 * (sqrt(k) + 1);
    bench_check_begin(check, "every element against the built-in kernel's verified result");
    for (uint64_t i = 0; i < y_count(&test->product); i++) {
        double plain = (double)test->plain[i];
        double want = plain + (bias ? (double)test->bias_values[i % (uint64_t)s->n] : 0);
        bench_check_value(check, (int64_t)(i / (uint64_t)s->n), (int64_t)(i % (uint64_t)s->n),
                          (double)got[i], want,
                          summing + 1.01 * rounding * (fabs(plain) + fabs(want)));
    }
}

bool tune_case_again(tune_case *test, const tsr__tuning_choice *choice, double *ns)
{
    double next;
    if (!tune_case_time(test, false, choice, 1, &next))
        return false;
    *ns = next < *ns ? next : *ns;
    return true;
}

bool tune_case_verify(tune_case *test, bool bias, const tsr__tuning_choice *choice, bool *able)
{
    bench_check check;
    /* Overwrites y, so that the built-in kernel's result cannot be taken for the candidate's. */
    BENCH_TRY(test->context, tsr_fill(test->context->stream, test->y, NAN));
    tsr_status status = record(test, bias, choice);
    *able = status == TSR_OK;
    if (status == TSR_ERR_UNSUPPORTED || status == TSR_ERR_DEVICE_MEMORY)
        return true;
    BENCH_TRY(test->context, status);
    float *got = cli_alloc(y_count(&test->product), sizeof *got);
    bool done = download(test, got);
    if (done) {
        compare_product(test, bias, got, &check);
        done = wrong(test, choice != NULL ? choice->kernel : test->info.usual.kernel, &check);
    }
    free(got);
    return done;
}
