/* A random attention problem with all its options, and its results in double precision. */
#ifndef TESTS_GPU_ATTENTION_CASE_H
#define TESTS_GPU_ATTENTION_CASE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"
#include "support/gpu.h"

typedef struct attention_case {
    int64_t batch, heads, kv_heads, q_len, kv_len, head_dim;
    int64_t value_dim;     /* the head_dim of v; 0: head_dim */
    double scale, softcap; /* 0: the library's default */
    double temperature;    /* 0: none */
    int64_t temperature_length;
    bool causal;
    int64_t window;
    double *mask; /* [batch, heads, q_len, kv_len], or NULL: no mask */
    /* [batch], or NULL: all sequences have q_len queries and kv_len keys */
    double *q_length, *kv_length;
    /* [heads]: the key head of each query head, or NULL: the usual groups */
    int32_t *kv_head;
    double *sinks;          /* [heads], or NULL: none */
    double *starts;         /* [batch, q_len]: the first key of each query, or NULL: 0 */
    double *q, *k, *v, *dy; /* dy may be NULL */
    double *y, *lse, *dq, *dk, *dv, *dsinks;
    /* The terms of dq and dk may cancel. Then the results are small, and their rounding errors
     * are relative to these magnitudes of the terms. */
    double natural_q, natural_k;
} attention_case;

static inline double *attention_doubles(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

static inline int64_t attention_queries_count(const attention_case *c)
{
    return c->batch * c->heads * c->q_len;
}

static inline int64_t attention_keys_count(const attention_case *c)
{
    return c->batch * c->kv_heads * c->kv_len;
}

static inline int64_t attention_value_dim(const attention_case *c)
{
    return c->value_dim > 0 ? c->value_dim : c->head_dim;
}

static inline double attention_most(const double *values, int64_t count)
{
    double most = 0;
    for (int64_t i = 0; i < count; i++)
        if (isfinite(values[i]))
            most = fmax(most, fabs(values[i]));
    return most;
}

static inline double attention_scale(const attention_case *c)
{
    return c->scale != 0 ? c->scale : 1 / sqrt((double)c->head_dim);
}

static inline int64_t attention_clamped(const double *lengths, int64_t b, int64_t most)
{
    const double length = lengths ? lengths[b] : (double)most;
    return length < 0 ? 0 : length > (double)most ? most : (int64_t)length;
}

static inline double *attention_random_values(gpu_random *random, int64_t count, double size,
                                              tsr_dtype dtype)
{
    double *values = attention_doubles(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = gpu_rounded(size * gpu_random_unit(random), dtype);
    return values;
}

static inline double *attention_random_lengths(gpu_random *random, int64_t batch, int64_t most)
{
    double *lengths = attention_doubles(batch);
    for (int64_t b = 0; b < batch; b++)
        lengths[b] = (double)gpu_random_between(random, -1, most + 1);
    return lengths;
}

/* Makes a mask. One in five of its elements forbids the key. */
static inline double *attention_random_mask(gpu_random *random, int64_t count, tsr_dtype dtype)
{
    double *mask = attention_random_values(random, count, 2, dtype);
    for (int64_t n = 0; n < count; n++)
        if (gpu_random_between(random, 0, 4) == 0)
            mask[n] = -INFINITY;
    return mask;
}

/* Divides the keys of each sequence into documents of 1 to `longest` tokens, and gives each query
 * the start of the document that its position is in. */
static inline double *attention_random_starts(gpu_random *random, const attention_case *c,
                                              int64_t longest)
{
    double *starts = attention_doubles(c->batch * c->q_len);
    for (int64_t b = 0; b < c->batch; b++) {
        int64_t start = 0, next = gpu_random_between(random, 1, longest);
        for (int64_t i = 0; i < c->q_len; i++) {
            while (i + c->kv_len - c->q_len >= next) {
                start = next;
                next += gpu_random_between(random, 1, longest);
            }
            starts[b * c->q_len + i] = (double)start;
        }
    }
    return starts;
}

/* Sets the keys past the length of each sequence to NaN, because attention must not read them. */
static inline void attention_spoil_keys(const attention_case *c, double *values, int64_t dim)
{
    for (int64_t n = 0; n < attention_keys_count(c); n++) {
        const int64_t b = n / c->kv_len / c->kv_heads;
        if (n % c->kv_len < attention_clamped(c->kv_length, b, c->kv_len))
            continue;
        for (int64_t d = 0; d < dim; d++)
            values[n * dim + d] = NAN;
    }
}

/* Returns the score of a query and a key, or -inf if the query does not see the key. *slope is
 * the derivative of the score by scale · q·k. */
static inline double attention_score(const attention_case *c, int64_t b, int64_t h, int64_t i,
                                     int64_t j, const double *q, const double *k, double *slope)
{
    const int64_t q_length = attention_clamped(c->q_length, b, c->q_len),
                  kv_length = attention_clamped(c->kv_length, b, c->kv_len),
                  position = kv_length - q_length + i,
                  start = c->starts ? (int64_t)c->starts[b * c->q_len + i] : 0;
    if (i >= q_length || j >= kv_length || j < start || (c->causal && j > position) ||
        (c->window > 0 && j <= position - c->window))
        return -INFINITY;
    double score = 0;
    for (int64_t d = 0; d < c->head_dim; d++)
        score += q[d] * k[d];
    score *= attention_scale(c);
    *slope = 1;
    if (c->temperature != 0) {
        const int64_t lengths = position < start ? 0 : (position - start) / c->temperature_length;
        *slope = 1 + c->temperature * log(1 + (double)lengths);
        score *= *slope;
    }
    if (c->softcap > 0) {
        const double t = tanh(score / c->softcap);
        score = c->softcap * t;
        *slope *= 1 - t * t;
    }
    if (c->mask)
        score += c->mask[((b * c->heads + h) * c->q_len + i) * c->kv_len + j];
    return score;
}

/* Computes y, lse and, if there is dy, the gradients. */
static inline void attention_solve(attention_case *c)
{
    const int64_t rows = attention_queries_count(c), keys = attention_keys_count(c),
                  dim = c->head_dim, v_dim = attention_value_dim(c);
    double *p = attention_doubles(c->kv_len), *slope = attention_doubles(c->kv_len);
    c->y = attention_doubles(rows * v_dim);
    c->lse = attention_doubles(rows);
    c->dq = attention_doubles(rows * dim);
    c->dk = attention_doubles(keys * dim);
    c->dv = attention_doubles(keys * v_dim);
    c->dsinks = attention_doubles(c->heads);
    for (int64_t row = 0; row < rows; row++) {
        const int64_t i = row % c->q_len, h = row / c->q_len % c->heads,
                      b = row / c->q_len / c->heads,
                      g = c->kv_head ? c->kv_head[h] : h * c->kv_heads / c->heads,
                      first = (b * c->kv_heads + g) * c->kv_len;
        const double *q = c->q + row * dim, *dy = c->dy ? c->dy + row * v_dim : NULL;
        const double sink = c->sinks ? c->sinks[h] : -INFINITY;
        double *y = c->y + row * v_dim, most = sink, sum = 0, delta = 0;
        for (int64_t j = 0; j < c->kv_len; j++) {
            p[j] = attention_score(c, b, h, i, j, q, c->k + (first + j) * dim, &slope[j]);
            most = fmax(most, p[j]);
        }
        if (sink != -INFINITY)
            sum = exp(sink - most);
        for (int64_t j = 0; j < c->kv_len; j++)
            sum += p[j] = most == -INFINITY ? 0 : exp(p[j] - most);
        c->lse[row] = most == -INFINITY ? most : most + log(sum);
        for (int64_t j = 0; j < c->kv_len && sum > 0; j++) {
            p[j] /= sum;
            for (int64_t d = 0; d < v_dim && p[j] > 0; d++)
                y[d] += p[j] * c->v[(first + j) * v_dim + d];
        }
        for (int64_t d = 0; d < v_dim && dy; d++)
            delta += dy[d] * y[d];
        if (sink != -INFINITY)
            c->dsinks[h] -= exp(sink - c->lse[row]) * delta;
        for (int64_t j = 0; j < c->kv_len && dy; j++) {
            if (p[j] == 0)
                continue;
            const double *k = c->k + (first + j) * dim, *v = c->v + (first + j) * v_dim;
            double dp = 0;
            for (int64_t d = 0; d < v_dim; d++)
                dp += dy[d] * v[d];
            const double ds = p[j] * (dp - delta) * slope[j] * attention_scale(c);
            for (int64_t d = 0; d < dim; d++) {
                c->dq[row * dim + d] += ds * k[d];
                c->dk[(first + j) * dim + d] += ds * q[d];
            }
            for (int64_t d = 0; d < v_dim; d++)
                c->dv[(first + j) * v_dim + d] += p[j] * dy[d];
        }
    }
    free(slope);
    free(p);
}

static inline void attention_free(attention_case *c)
{
    double *numbers[] = {c->mask, c->q_length, c->kv_length, c->q,      c->k,
                         c->v,    c->dy,       c->y,         c->lse,    c->dq,
                         c->dk,   c->dv,       c->sinks,     c->dsinks, c->starts};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        free(numbers[i]);
    free(c->kv_head);
    *c = (attention_case){0};
}

/* Returns half a unit in the last place, as a fraction of the value. */
static inline double attention_half_unit(tsr_dtype dtype)
{
    return dtype == TSR_F32 ? 0x1p-24 : dtype == TSR_F16 ? 0x1p-11 : 0x1p-8;
}

/* Checks that |got − want| ≤ relative · scale. For 16-bit dtypes half a unit of want's rounding is
 * added. */
static inline void attention_compare(const char *name, const char *what, int64_t count,
                                     const double *got, const double *want, double scale,
                                     double relative, tsr_dtype dtype)
{
    for (int64_t n = 0; n < count; n++) {
        if (got[n] == want[n])
            continue;
        double most = relative * scale;
        if (dtype != TSR_F32)
            most += 1.001 * attention_half_unit(dtype) * fabs(want[n]) +
                    (dtype == TSR_F16 ? 0x1p-25 : 0);
        if (!(fabs(got[n] - want[n]) <= most))
            ck_abort_msg("%s: %s[%lld] of %lld is %.9g, not %.9g; the error is %.3g of %.3g", name,
                         what, (long long)n, (long long)count, got[n], want[n],
                         fabs(got[n] - want[n]) / scale, scale);
    }
}

#endif
