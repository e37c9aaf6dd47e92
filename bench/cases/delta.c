/* tessera bench delta: the gated delta rule of a prompt beside dense products with the same
 * operations, and of a token beside a copy of its states. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/ceilings/ceilings.h"
#include "bench/harness/bench.h"
#include "bench/harness/data.h"
#include "cli/lib/memory.h"
#include "tessera/matmul.h"
#include "tessera/ops.h"
#include "tessera/recurrent.h"

/* The tokens of a chunk. */
#define CHUNK INT64_C(64)
/* A token of another text in each repetition, so that states are in no cache. */
#define TEXTS 64

typedef struct sizes {
    int64_t tokens, key_heads, heads, dim; /* keys and values have `dim` features */
} sizes;

/* Those of Qwen3-Next, and smaller ones for CPU drivers. */
static const sizes usual = {2048, 16, 32, 128}, small = {256, 2, 4, 128};

typedef struct delta {
    bench_context *context;
    sizes of;
    bool is_prompt;
    float *q, *k, *v, *beta, *g, *state, *y;
    tsr_tensor *device_q, *device_k, *device_v, *device_beta, *device_g, *device_y;
    tsr_tensor *states[TEXTS], *copy; /* the states of a token's text; a prompt has none */
    int text;
    tsr_tensor *dense_x, *dense_w, *dense_y;
} delta;

static int64_t tokens_of(const delta *d)
{
    return d->is_prompt ? d->of.tokens : 1;
}

static int texts_of(const delta *d)
{
    return d->is_prompt ? 0 : TEXTS;
}

static int64_t state_floats(const delta *d)
{
    return d->of.heads * d->of.dim * d->of.dim;
}

/* The operations of a chunk of a head, in units of 2 · CHUNK · dim: products of keys and of queries
 * with keys, both with results [chunk, chunk]; the system of equations that these give, solved for
 * values and keys; the products of its solutions with the state, of queries with the state, of
 * scores with the changes; and the change of the state. */
static int64_t dense_columns(const delta *d)
{
    return 5 * CHUNK + 3 * d->of.dim;
}

static int64_t chunks_of(const delta *d)
{
    return d->of.heads * d->of.tokens / CHUNK;
}

/* Running -------------------------------------------------------------------------------------- */

static tsr_status run_rule(tsr_stream *stream, void *user)
{
    delta *d = user;
    tsr_tensor *state = d->is_prompt ? NULL : d->states[d->text];
    d->text = (d->text + 1) % TEXTS;
    return tsr_delta_rule(stream, d->device_y, state, d->device_q, d->device_k, d->device_v,
                          d->device_beta, d->device_g,
                          tsr_delta_rule_params(.state = state, .norm_epsilon = 1e-6f,
                                                .precision = TSR_PRECISION_HIGH));
}

static tsr_status run_dense(tsr_stream *stream, void *user)
{
    delta *d = user;
    return tsr_matmul(stream, d->dense_y, d->dense_x, d->dense_w,
                      tsr_matmul_params(.transpose_b = true, .precision = TSR_PRECISION_HIGH));
}

static tsr_status run_copy(tsr_stream *stream, void *user)
{
    delta *d = user;
    d->text = (d->text + 1) % TEXTS;
    return tsr_copy(stream, d->copy, d->states[d->text]);
}

/* Operands ------------------------------------------------------------------------------------- */

/* Creates a tensor of random numbers scale · [−1, 1) + offset. */
static bool create_floats(delta *d, int ndim, const int64_t *shape, uint64_t seed, float scale,
                          float offset, float **values, tsr_tensor **tensor)
{
    uint64_t count = 1;
    for (int i = 0; i < ndim; i++)
        count *= (uint64_t)shape[i];
    *values = cli_alloc(count, sizeof **values);
    bench_random_values(*values, count, TSR_F32, seed);
    for (uint64_t i = 0; i < count; i++)
        (*values)[i] = scale * (*values)[i] + offset;
    BENCH_TRY(d->context, tsr_tensor_create(d->context->device, TSR_F32, ndim, shape, tensor));
    BENCH_TRY(d->context,
              tsr_tensor_upload(d->context->stream, *tensor, *values, count * sizeof **values));
    return true;
}

/* All texts begin with equal states. */
static bool create_states(delta *d)
{
    const int64_t shape[] = {1, d->of.heads, d->of.dim, d->of.dim};
    if (!create_floats(d, 4, shape, 26, 0.1f, 0, &d->state, &d->states[0]))
        return false;
    for (int i = 1; i < TEXTS; i++) {
        BENCH_TRY(d->context,
                  tsr_tensor_create(d->context->device, TSR_F32, 4, shape, &d->states[i]));
        BENCH_TRY(d->context, tsr_copy(d->context->stream, d->states[i], d->states[0]));
    }
    BENCH_TRY(d->context, tsr_tensor_create(d->context->device, TSR_F32, 4, shape, &d->copy));
    return true;
}

static bool create_dense(delta *d)
{
    const int64_t x[] = {chunks_of(d), CHUNK, d->of.dim},
                  w[] = {chunks_of(d), dense_columns(d), d->of.dim},
                  y[] = {chunks_of(d), CHUNK, dense_columns(d)};
    float *ignored_x = NULL, *ignored_w = NULL;
    const bool done = create_floats(d, 3, x, 27, 1, 0, &ignored_x, &d->dense_x) &&
                      create_floats(d, 3, w, 28, 1, 0, &ignored_w, &d->dense_w);
    free(ignored_x);
    free(ignored_w);
    if (done)
        BENCH_TRY(d->context, tsr_tensor_create(d->context->device, TSR_F32, 3, y, &d->dense_y));
    return done;
}

/* Decays are e^−1 to 1 and betas 0 to 1, as in models. */
static bool create(delta *d)
{
    const sizes *s = &d->of;
    const int64_t keys[] = {1, tokens_of(d), s->key_heads, s->dim},
                  values[] = {1, tokens_of(d), s->heads, s->dim},
                  factors[] = {1, tokens_of(d), s->heads};
    d->y = cli_alloc((size_t)(tokens_of(d) * s->heads * s->dim), sizeof *d->y);
    return create_floats(d, 4, keys, 21, 1, 0, &d->q, &d->device_q) &&
           create_floats(d, 4, keys, 22, 1, 0, &d->k, &d->device_k) &&
           create_floats(d, 4, values, 23, 1, 0, &d->v, &d->device_v) &&
           create_floats(d, 3, factors, 24, 0.5f, 0.5f, &d->beta, &d->device_beta) &&
           create_floats(d, 3, factors, 25, 0.5f, -0.5f, &d->g, &d->device_g) &&
           bench_passed(d->context,
                        tsr_tensor_create(d->context->device, TSR_F32, 4, values, &d->device_y),
                        "tsr_tensor_create") &&
           (d->is_prompt ? create_dense(d) : create_states(d));
}

static void finish(delta *d)
{
    tsr_tensor **const tensors[] = {&d->device_q, &d->device_k, &d->device_v, &d->device_beta,
                                    &d->device_g, &d->device_y, &d->copy,     &d->dense_x,
                                    &d->dense_w,  &d->dense_y};
    float *const values[] = {d->q, d->k, d->v, d->beta, d->g, d->state, d->y};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tsr_tensor_destroy(tensors[i]);
    for (int i = 0; i < TEXTS; i++)
        tsr_tensor_destroy(&d->states[i]);
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        free(values[i]);
}

/* Checking ------------------------------------------------------------------------------------- */

/* Writes x[dim] / √(Σ x² + epsilon), as the rule divides queries and keys. */
static void normalise(const float *x, int64_t dim, double *out)
{
    double sum = 1e-6;
    for (int64_t i = 0; i < dim; i++)
        sum += (double)x[i] * (double)x[i];
    for (int64_t i = 0; i < dim; i++)
        out[i] = (double)x[i] / sqrt(sum);
}

/* Makes a head's step at a token: S ← e^g S; S ← S + k ⊗ beta (v − Sᵀk); y = Sᵀq / √dim. */
static void step(const delta *d, int64_t t, int64_t h, double *s, double *q, double *k, double *y)
{
    const int64_t dim = d->of.dim, heads = d->of.heads, key_heads = d->of.key_heads,
                  key_row = (t * key_heads + h * key_heads / heads) * dim;
    const double decay = exp((double)d->g[t * heads + h]), beta = (double)d->beta[t * heads + h];
    normalise(d->q + key_row, dim, q);
    normalise(d->k + key_row, dim, k);
    for (int64_t j = 0; j < dim; j++) {
        double of_key = 0, sum = 0;
        for (int64_t i = 0; i < dim; i++)
            of_key += decay * s[i * dim + j] * k[i];
        const double change = beta * ((double)d->v[(t * heads + h) * dim + j] - of_key);
        for (int64_t i = 0; i < dim; i++) {
            s[i * dim + j] = decay * s[i * dim + j] + k[i] * change;
            sum += s[i * dim + j] * q[i];
        }
        y[j] = sum / sqrt((double)dim);
    }
}

/* Compares the results of the first and the last head with double precision. */
static void check_heads(const delta *d, bench_check *check)
{
    const int64_t dim = d->of.dim;
    double *s = cli_alloc((size_t)(dim * dim), sizeof *s), *q = cli_alloc((size_t)dim, sizeof *q),
           *k = cli_alloc((size_t)dim, sizeof *k), *y = cli_alloc((size_t)dim, sizeof *y);
    for (int c = 0; c < 2; c++) {
        const int64_t h = c * (d->of.heads - 1);
        for (int64_t i = 0; i < dim * dim; i++)
            s[i] = d->state ? (double)d->state[h * dim * dim + i] : 0;
        for (int64_t t = 0; t < tokens_of(d); t++) {
            step(d, t, h, s, q, k, y);
            for (int64_t j = 0; j < dim; j++)
                bench_check_value(check, t, h * dim + j,
                                  (double)d->y[(t * d->of.heads + h) * dim + j], y[j], 1e-4);
        }
    }
    free(s);
    free(q);
    free(k);
    free(y);
}

/* Checks the rule, for a token with the states of the first and of the last text, which it has not
 * changed before. */
static bool verify(delta *d, bench_row *row)
{
    const uint64_t bytes = (uint64_t)(tokens_of(d) * d->of.heads * d->of.dim) * sizeof *d->y;
    bench_check_begin(&row->check, "two heads against the recurrence in double precision");
    for (int i = 0; i < (d->is_prompt ? 1 : 2); i++) {
        d->text = i * (TEXTS - 1);
        BENCH_TRY(d->context, run_rule(d->context->stream, d));
        BENCH_TRY(d->context, tsr_tensor_download(d->context->stream, d->device_y, d->y, bytes));
        check_heads(d, &row->check);
    }
    d->text = 0;
    return bench_verified(d->context, row);
}

/* Gives all texts their first states again. */
static bool restore_states(delta *d)
{
    for (int i = 0; i < texts_of(d); i++)
        BENCH_TRY(d->context, tsr_tensor_upload(d->context->stream, d->states[i], d->state,
                                                (uint64_t)state_floats(d) * sizeof *d->state));
    return true;
}

/* Measuring ------------------------------------------------------------------------------------ */

static bool measure(delta *d)
{
    const sizes *s = &d->of;
    bench_context *context = d->context;
    const char *peer =
        d->is_prompt ? "dense products with the same operations" : "a copy of the token's states";
    const bench_row *memory = bench_memory_peak(context), *arithmetic = bench_fma_peak(context);
    if (memory == NULL || arithmetic == NULL || !create(d))
        return false;
    const double operations = 2.0 * (double)(chunks_of(d) * CHUNK * s->dim * dense_columns(d)),
                 bytes = 2.0 * (double)state_floats(d) * (double)sizeof *d->state;
    bench_row *row = bench_add(context, "delta", d->is_prompt ? BENCH_GFLOPS : BENCH_GBYTES,
                               d->is_prompt ? operations : bytes);
    bench_integer(row, "tokens", tokens_of(d));
    bench_integer(row, "key_heads", s->key_heads);
    bench_integer(row, "heads", s->heads);
    bench_integer(row, "dim", s->dim);
    if (d->is_prompt)
        row->arithmetic = arithmetic;
    else
        row->memory = memory;
    const bench_task rule = {.run = run_rule, .user = d},
                     other = {.run = d->is_prompt ? run_dense : run_copy, .user = d};
    return verify(d, row) && bench_measure(context, row, &rule) &&
           bench_measure_peer(context, row, peer, &other) && restore_states(d) && verify(d, row);
}

static bool run_delta(bench_context *context)
{
    const bool is_small = context->info->type == TSR_DEVICE_CPU && !context->options->large;
    for (int i = 0; i < 2; i++) {
        delta d = {.context = context, .of = is_small ? small : usual, .is_prompt = i == 0};
        const bool done = measure(&d);
        finish(&d);
        if (!done)
            return false;
    }
    return true;
}

const bench bench_delta = {
    .name = "delta",
    .summary = "the gated delta rule beside dense products and copies; GFLOP/s, GB/s",
    .help = "The gated delta rule of a prompt, in chunks of 64 tokens, in GFLOP/s: the operations "
            "are those of the chunks' products. And that of one token, of another text in each "
            "repetition, in GB/s of states that are read and written. The peer is a dense product "
            "of the library with as many operations, over the same features, or a copy of as many "
            "bytes; 'of peer' is the ratio. Sizes are those of Qwen3-Next: 16 key heads, 32 heads, "
            "keys and values of 128 features, 2048 tokens; on CPU drivers 2 key heads, 4 heads and "
            "256 tokens, unless --large is given. Products have f32's accuracy or, with matrix "
            "units, that of sums of f16 numbers.\n",
    .takes = BENCH_LARGE,
    .alone = true,
    .run = run_delta,
};
