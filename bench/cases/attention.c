/* tessera bench attention: prefill, decoding and training. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/bench.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"

/* The shapes to measure. Small ones come first: their rates predict how long larger ones take, so
 * that those that take too long can be left out. */
static const struct size {
    int64_t batch, heads, q_len, kv_len, head_dim;
} sizes[] = {
    {12, 4, 64, 64, 32},
    {1, 8, 512, 512, 64},
    {1, 32, 1, 4096, 128},
    {1, 32, 2048, 2048, 128},
};

enum { Q, K, V, DY, Y, DQ, DK, DV, OPERANDS, RESULTS = Y };

/* How many rows of each result are compared with double precision. */
#define CHECKED_ROWS 48

typedef struct attention {
    bench_context *context;
    const struct size *size;
    tsr_dtype dtype;
    bool backward;
    float *values[OPERANDS]; /* the operands' elements on the host */
    float *lse;
    tsr_tensor *tensor[OPERANDS], *device_lse;
} attention;

static bool of_keys(int operand)
{
    return operand == K || operand == V || operand == DK || operand == DV;
}

static int64_t rows_of(const attention *test, int operand)
{
    const struct size *s = test->size;
    return s->batch * s->heads * (of_keys(operand) ? s->kv_len : s->q_len);
}

static uint64_t count_of(const attention *test, int operand)
{
    return (uint64_t)(rows_of(test, operand) * test->size->head_dim);
}

static tsr_status forward(tsr_stream *stream, void *user)
{
    attention *test = user;
    return tsr_attention(stream, test->tensor[Y], test->device_lse, test->tensor[Q],
                         test->tensor[K], test->tensor[V], tsr_attention_params(.causal = true));
}

static tsr_status backward(tsr_stream *stream, void *user)
{
    attention *test = user;
    tsr_tensor **t = test->tensor;
    return tsr_attention_grad(stream, t[DQ], t[DK], t[DV], t[DY], t[Y], test->device_lse, t[Q],
                              t[K], t[V], tsr_attention_params(.causal = true));
}

static bool create(attention *test)
{
    const struct size *s = test->size;
    bench_context *context = test->context;
    const int64_t lse_shape[] = {s->batch, s->heads, s->q_len};
    for (int i = 0; i < OPERANDS; i++) {
        const int64_t shape[] = {s->batch, s->heads, of_keys(i) ? s->kv_len : s->q_len,
                                 s->head_dim};
        BENCH_TRY(context,
                  tsr_tensor_create(context->device, test->dtype, 4, shape, &test->tensor[i]));
        test->values[i] = cli_alloc(count_of(test, i), sizeof(float));
        if (i >= RESULTS)
            continue;
        const uint64_t bytes = count_of(test, i) * tsr_dtype_size(test->dtype);
        void *encoded = cli_alloc(bytes, 1);
        bench_random_values(test->values[i], count_of(test, i), test->dtype, 71 + (uint64_t)i);
        bench_encode(test->dtype, test->values[i], count_of(test, i), encoded);
        const tsr_status status =
            tsr_tensor_upload(context->stream, test->tensor[i], encoded, bytes);
        free(encoded);
        BENCH_TRY(context, status);
    }
    test->lse = cli_alloc((size_t)rows_of(test, Q), sizeof(float));
    BENCH_TRY(context,
              tsr_tensor_create(context->device, TSR_F32, 3, lse_shape, &test->device_lse));
    return true;
}

static void finish(attention *test)
{
    for (int i = 0; i < OPERANDS; i++) {
        tsr_tensor_destroy(&test->tensor[i]);
        free(test->values[i]);
    }
    tsr_tensor_destroy(&test->device_lse);
    free(test->lse);
}

/* Verification --------------------------------------------------------------------------------- */

/* Returns whether cooperative matrices may compute the case. */
static bool uses_matrices(const attention *test)
{
    const tsr_device_info *info = test->context->info;
    const int used = test->dtype == TSR_F16    ? info->coopmat_used
                     : test->dtype == TSR_BF16 ? info->coopmat_bf16_used
                                               : -1;
    return used >= 0 && test->size->q_len > 1;
}

static bool download(attention *test, int operand)
{
    const uint64_t bytes = count_of(test, operand) * tsr_dtype_size(test->dtype);
    void *encoded = cli_alloc(bytes, 1);
    const tsr_status status =
        tsr_tensor_download(test->context->stream, test->tensor[operand], encoded, bytes);
    bench_decode(test->dtype, encoded, count_of(test, operand), test->values[operand]);
    free(encoded);
    BENCH_TRY(test->context, status);
    return true;
}

static double product(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

/* Returns row number `row` of a head in the host's copy of an operand (q, k, v, y or a
 * gradient). */
static const float *row_at(const attention *test, int operand, int64_t head, int64_t row)
{
    const struct size *s = test->size;
    return test->values[operand] +
           (head * (of_keys(operand) ? s->kv_len : s->q_len) + row) * s->head_dim;
}

static double score(const attention *test, int64_t head, int64_t query, int64_t key)
{
    return product(row_at(test, Q, head, query), row_at(test, K, head, key), test->size->head_dim) /
           sqrt((double)test->size->head_dim);
}

/* Returns how many keys a query sees. */
static int64_t seen(const attention *test, int64_t query)
{
    return test->size->kv_len - test->size->q_len + query + 1;
}

/* Computes the softmax of a query's scores over the keys that it sees, p[j], in double
 * precision. */
static void probabilities(const attention *test, int64_t head, int64_t query, double *p)
{
    double most = -INFINITY, sum = 0;
    for (int64_t j = 0; j < seen(test, query); j++) {
        p[j] = score(test, head, query, j);
        most = fmax(most, p[j]);
    }
    for (int64_t j = 0; j < seen(test, query); j++) {
        p[j] = exp(p[j] - most);
        sum += p[j];
    }
    for (int64_t j = 0; j < seen(test, query); j++)
        p[j] /= sum;
}

/* Compares a row of a result with the expected values, `want`. The tolerance is relative to
 * `magnitude`, the largest summand. It allows for the rounding of f32, or, with cooperative
 * matrices, for the rounding of probabilities to their
 * dtype. */
static void compare_attention(attention *test, bench_check *check, int operand, int64_t head,
                              int64_t row, const double *want, double magnitude)
{
    const float *got = row_at(test, operand, head, row);
    const int64_t rows = of_keys(operand) ? test->size->kv_len : test->size->q_len;
    const double summands = uses_matrices(test) ? bench_rounding(test->dtype) : 4e-6;
    for (int64_t d = 0; d < test->size->head_dim; d++)
        bench_check_value(check, head * rows + row, d, (double)got[d], want[d],
                          summands * magnitude +
                              1.01 * bench_rounding(test->dtype) * fabs(want[d]) +
                              (test->dtype == TSR_F32 ? 0 : 1e-7));
}

/* Returns which query or key is the n-th to be compared, and its head. Those to be compared are
 * spread over all heads. */
static int64_t sampled(const attention *test, int operand, int64_t n, int64_t *head)
{
    const int64_t rows = of_keys(operand) ? test->size->kv_len : test->size->q_len;
    const uint64_t number = n == 0 ? 0 : bench_random(99, (uint64_t)n);
    *head = (int64_t)(number % (uint64_t)(test->size->batch * test->size->heads));
    return (int64_t)(number / 4096 % (uint64_t)rows);
}

static bool verify_forward(attention *test, bench_row *row)
{
    const struct size *s = test->size;
    BENCH_TRY(test->context, forward(test->context->stream, test));
    if (!download(test, Y))
        return false;
    double *p = cli_alloc((size_t)s->kv_len, sizeof *p),
           *want = cli_alloc((size_t)s->head_dim, sizeof *want);
    bench_check_begin(&row->check, "48 rows against double precision");
    for (int64_t n = 0; n < CHECKED_ROWS; n++) {
        int64_t head;
        const int64_t query = sampled(test, Q, n, &head);
        probabilities(test, head, query, p);
        for (int64_t d = 0; d < s->head_dim; d++)
            want[d] = 0;
        for (int64_t j = 0; j < seen(test, query); j++)
            for (int64_t d = 0; d < s->head_dim; d++)
                want[d] += p[j] * (double)row_at(test, V, head, j)[d];
        compare_attention(test, &row->check, Y, head, query, want, 1);
    }
    free(want);
    free(p);
    return bench_verified(test->context, row);
}

/* Computes the expected row of dq for one query. */
static void expect_query(const attention *test, int64_t head, int64_t query, double *p,
                         double *want)
{
    const struct size *s = test->size;
    double delta = 0;
    probabilities(test, head, query, p);
    for (int64_t j = 0; j < seen(test, query); j++)
        delta +=
            p[j] * product(row_at(test, DY, head, query), row_at(test, V, head, j), s->head_dim);
    for (int64_t d = 0; d < s->head_dim; d++)
        want[d] = 0;
    for (int64_t j = 0; j < seen(test, query); j++) {
        const double dp =
            product(row_at(test, DY, head, query), row_at(test, V, head, j), s->head_dim);
        for (int64_t d = 0; d < s->head_dim; d++)
            want[d] += p[j] * (dp - delta) * (double)row_at(test, K, head, j)[d] /
                       sqrt((double)s->head_dim);
    }
}

/* Computes the expected rows of dk and dv for one key, from all queries that see it. */
static void expect_key(const attention *test, int64_t head, int64_t key, double *p, double *dk,
                       double *dv)
{
    const struct size *s = test->size;
    for (int64_t d = 0; d < s->head_dim; d++)
        dk[d] = dv[d] = 0;
    for (int64_t i = 0; i < s->q_len; i++) {
        if (key >= seen(test, i))
            continue;
        double delta = 0, dp = 0;
        probabilities(test, head, i, p);
        for (int64_t j = 0; j < seen(test, i); j++) {
            const double one =
                product(row_at(test, DY, head, i), row_at(test, V, head, j), s->head_dim);
            delta += p[j] * one;
            dp = j == key ? one : dp;
        }
        for (int64_t d = 0; d < s->head_dim; d++) {
            dv[d] += p[key] * (double)row_at(test, DY, head, i)[d];
            dk[d] += p[key] * (dp - delta) * (double)row_at(test, Q, head, i)[d] /
                     sqrt((double)s->head_dim);
        }
    }
}

static bool verify_backward(attention *test, bench_row *row)
{
    const struct size *s = test->size;
    BENCH_TRY(test->context, forward(test->context->stream, test));
    BENCH_TRY(test->context, backward(test->context->stream, test));
    if (!download(test, DQ) || !download(test, DK) || !download(test, DV))
        return false;
    double *p = cli_alloc((size_t)s->kv_len, sizeof *p),
           *want = cli_alloc((size_t)s->head_dim, sizeof *want),
           *more = cli_alloc((size_t)s->head_dim, sizeof *more);
    int64_t head;
    bench_check_begin(&row->check, "48 rows of dq and one of dk and dv against double precision");
    for (int64_t n = 0; n < CHECKED_ROWS; n++) {
        const int64_t query = sampled(test, Q, n, &head);
        expect_query(test, head, query, p, want);
        compare_attention(test, &row->check, DQ, head, query, want, 1);
    }
    const int64_t key = sampled(test, K, 1, &head);
    expect_key(test, head, key, p, want, more);
    compare_attention(test, &row->check, DK, head, key, want, 1);
    compare_attention(test, &row->check, DV, head, key, more, 1);
    free(more);
    free(want);
    free(p);
    return bench_verified(test->context, row);
}

/* Timing --------------------------------------------------------------------------------------- */

/* Returns the floating-point operations of a pass over the scores that the causal mask keeps: those
 * of two products forward, and of five products backward. */
static double work_of(const struct size *s, bool backward)
{
    const double keys = (double)s->kv_len - ((double)s->q_len - 1) / 2;
    return (backward ? 10.0 : 4.0) * (double)(s->batch * s->heads * s->q_len) * keys *
           (double)s->head_dim;
}

static double bytes_of(const attention *test)
{
    double bytes = 0;
    for (int i = 0; i < (test->backward ? OPERANDS : Y + 1); i++)
        if (test->backward || i != DY)
            bytes += (double)count_of(test, i) * (double)tsr_dtype_size(test->dtype);
    return bytes;
}

static bool measure_attention(attention *test, double *rate)
{
    bench_context *context = test->context;
    const struct size *s = test->size;
    const bench_row *arithmetic = uses_matrices(test) && bench_has_coopmat(context->info)
                                      ? bench_coopmat_peak(context)
                                      : bench_fma_peak(context),
                    *memory = bench_memory_peak(context);
    if (memory == NULL || arithmetic == NULL || !create(test))
        return false;
    bench_row *row = bench_add(context, "attention", BENCH_GFLOPS, work_of(s, test->backward));
    row->bytes = bytes_of(test);
    row->arithmetic = arithmetic;
    row->memory = memory;
    bench_text(row, "pass", "%s", test->backward ? "backward" : "forward");
    bench_text(row, "dtype", "%s", tsr_dtype_name(test->dtype));
    bench_text(row, "heads", "%lldx%lld", (long long)s->batch, (long long)s->heads);
    bench_integer(row, "queries", s->q_len);
    bench_integer(row, "keys", s->kv_len);
    bench_integer(row, "head_dim", s->head_dim);
    bool (*verify)(attention *, bench_row *) = test->backward ? verify_backward : verify_forward;
    if (!verify(test, row) ||
        !bench_measure(context, row,
                       &(bench_task){.run = test->backward ? backward : forward, .user = test}) ||
        !verify(test, row))
        return false;
    *rate = bench_median(row) > *rate ? bench_median(row) : *rate;
    return true;
}

static bool run_case(attention *test, double *rate)
{
    const struct size *s = test->size;
    const double ns = *rate > 0 ? work_of(s, test->backward) / *rate : 0;
    char name[128];
    snprintf(name, sizeof name, "%s %s %lldx%lldx%lldx%lldx%lld", tsr_dtype_name(test->dtype),
             test->backward ? "backward" : "forward", (long long)s->batch, (long long)s->heads,
             (long long)s->q_len, (long long)s->kv_len, (long long)s->head_dim);
    if (!bench_worthwhile(test->context, "attention", ns, "%s", name) ||
        !bench_bearable(test->context, "attention", ns, "%s", name))
        return true;
    const bool done = measure_attention(test, rate);
    finish(test);
    return done;
}

static bool run_attention(bench_context *context)
{
    static const tsr_dtype all[] = {TSR_F32, TSR_F16, TSR_BF16};
    const bench_options *options = context->options;
    const tsr_dtype *dtypes = options->dtype_count > 0 ? options->dtypes : all;
    const int dtype_count = options->dtype_count > 0 ? options->dtype_count
                            : options->complete      ? 3
                                                     : 1;
    for (int d = 0; d < dtype_count; d++)
        for (int back = 0; back < 2; back++) {
            double rate = 0;
            for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
                if ((!back || sizes[i].q_len > 1) && !run_case(&(attention){.context = context,
                                                                            .size = &sizes[i],
                                                                            .dtype = dtypes[d],
                                                                            .backward = back},
                                                               &rate))
                    return false;
        }
    return true;
}

const bench bench_attention = {
    .name = "attention",
    .summary = "attention of prefill, decoding and training, forward and backward; GFLOP/s",
    .help =
        "tsr_attention and tsr_attention_grad with a causal mask: a training batch of 12 x 4 "
        "heads of 64 queries, 8 heads of 512 queries, one query of 32 heads with 4096 keys, "
        "and 32 heads of 2048 queries. A query and a key that it sees count 4 operations per "
        "column forward and 10 backward; what a kernel computes beyond that does not count. Cases "
        "that take more than 20 s are left out. "
        "The ceilings are those of matmul.\n",
    .takes = BENCH_DTYPES,
    .run = run_attention,
};
