/* Compares the cache of keys and values with a record of every sequence's tokens, and attention
 * with the cache with double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "gpu/device/device.h"
#include "gpu/device/vendors.h"
#include "gpu/internal.h"
#include "gpu/kv_cache/kv_cache.h"
#include "gpu/ops/rope/rope.h"
#include "gpu/stream/profile.h"
#include "support/check_main.h"
#include "support/gpu.h"

enum { MOST = 7, LONGEST = 60, KV_HEADS = 2, HEADS = 4, MOST_DIM = 16, LAYERS = 2 };
enum { MOST_LAYERS = 3 };

/* What the cache should hold of a sequence: a number for each token, which determines the
 * token's keys and values. */
typedef struct record {
    bool used;
    int64_t length;
    int token[LONGEST + 1];
} record;

typedef struct model {
    tsr_kv_cache *cache;
    record sequence[MOST];
    int64_t page_tokens, pages;
    int64_t dim[MOST_LAYERS], value_dim[MOST_LAYERS], kv_heads[MOST_LAYERS];
    bool in_keys[MOST_LAYERS]; /* values are in keys */
    int next;                  /* the number for the next new token */
} model;

/* Returns component d of a token's key (what = 0) or value (what = 1), for a head and layer. It
 * is in [-1, 1] and exact in f16. */
static double component(int token, int layer, int what, int64_t head, int64_t d)
{
    const uint64_t mixed = ((uint64_t)token * 31 + (uint64_t)layer * 7 + (uint64_t)what * 3 +
                            (uint64_t)head * 11 + (uint64_t)d) *
                           UINT64_C(0x9e3779b97f4a7c15);
    return (double)(int)(mixed >> 57) / 64 - 1;
}

static double *doubles(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

/* One step of the model ---------------------------------------------------------------------- */

static void attend(const model *m, const record *r, int layer, const double *q, int64_t head,
                   int64_t position, double *out)
{
    const int64_t dim = m->dim[layer], value_dim = m->value_dim[layer],
                  kv = head * m->kv_heads[layer] / HEADS;
    double sum = 0, most = -INFINITY, score[LONGEST + 1];
    for (int64_t j = 0; j <= position; j++) {
        score[j] = 0;
        for (int64_t d = 0; d < dim; d++)
            score[j] += q[d] * component(r->token[j], layer, 0, kv, d) / sqrt((double)dim);
        most = fmax(most, score[j]);
    }
    for (int64_t d = 0; d < value_dim; d++)
        out[d] = 0;
    for (int64_t j = 0; j <= position; j++)
        sum += exp(score[j] - most);
    for (int64_t j = 0; j <= position; j++)
        for (int64_t d = 0; d < value_dim; d++)
            out[d] += exp(score[j] - most) / sum *
                      component(r->token[j], layer, !m->in_keys[layer], kv, d);
}

/* Appends keys and values to the cache and computes attention, for one layer. If `fused`, keys
 * and values are parts of one tensor. */
static void run_layer(model *m, int layer, int count, const int *sequences, const int64_t *tokens,
                      int64_t most, bool fused, gpu_random *random)
{
    const int64_t dim = m->dim[layer], value_dim = m->value_dim[layer],
                  kv_heads = m->kv_heads[layer];
    const int64_t all_shape[] = {count, most, HEADS + 2 * kv_heads, dim};
    const int64_t y_shape[] = {count, HEADS, most, value_dim};
    const int64_t total = count * most * (HEADS + 2 * kv_heads) * dim;
    double *in = doubles(total), *got = doubles(count * HEADS * most * value_dim);
    for (int64_t i = 0; i < total; i++)
        in[i] = gpu_rounded(gpu_random_unit(random), TSR_F32);
    for (int64_t i = 0; i < count; i++)
        for (int64_t t = 0; t < tokens[i]; t++) {
            const record *r = &m->sequence[sequences[i]];
            const int token = r->token[r->length - tokens[i] + t];
            double *row = in + (i * most + t) * (HEADS + 2 * kv_heads) * dim;
            for (int64_t h = 0; h < 2 * kv_heads; h++)
                for (int64_t d = 0; d < dim; d++)
                    row[(HEADS + h) * dim + d] =
                        component(token, layer, h >= kv_heads, h % kv_heads, d);
        }
    tsr_tensor *all = gpu_new(TSR_F32, 4, all_shape), *view, *q, *k, *heads, *v, *y, *copy = NULL;
    y = gpu_new(TSR_F32, 4, y_shape);
    gpu_put(all, in);
    gpu_poison(y);
    GPU_OK(tsr_tensor_transpose(all, 1, 2, &view));
    GPU_OK(tsr_tensor_slice(view, 1, 0, HEADS, 1, &q));
    GPU_OK(tsr_tensor_slice(view, 1, HEADS, HEADS + kv_heads, 1, &k));
    GPU_OK(tsr_tensor_slice(view, 1, HEADS + kv_heads, HEADS + 2 * kv_heads, 1, &heads));
    GPU_OK(tsr_tensor_slice(heads, 3, 0, value_dim, 1, &v));
    if (!fused) {
        copy = gpu_new(TSR_F16, 4, (int64_t[]){count, kv_heads, most, value_dim});
        GPU_OK(tsr_copy(queue, copy, v));
    }
    if (m->in_keys[layer])
        GPU_FAILS(tsr_kv_cache_append(m->cache, layer, k, v), TSR_ERR_INVALID,
                  "v is given, but the values of layer 1 are in its keys");
    GPU_OK(tsr_kv_cache_append(m->cache, layer, k, m->in_keys[layer] ? NULL : copy ? copy : v));
    GPU_OK(
        tsr_kv_cache_attention(m->cache, layer, y, NULL, q, tsr_attention_params(.causal = true)));
    gpu_get(y, got);
    for (int64_t i = 0; i < count; i++)
        for (int64_t h = 0; h < HEADS; h++)
            for (int64_t t = 0; t < most; t++) {
                const record *r = &m->sequence[sequences[i]];
                double want[MOST_DIM] = {0};
                if (t < tokens[i])
                    attend(m, r, layer, in + ((i * most + t) * (HEADS + 2 * kv_heads) + h) * dim, h,
                           r->length - tokens[i] + t, want);
                for (int64_t d = 0; d < value_dim; d++) {
                    const double is = got[((i * HEADS + h) * most + t) * value_dim + d];
                    if (!(fabs(is - want[d]) <= 2e-6))
                        ck_abort_msg("sequence %d, token %lld of %lld, head %lld: %.9g, not %.9g",
                                     sequences[i], (long long)t, (long long)tokens[i], (long long)h,
                                     is, want[d]);
                }
            }
    tsr_tensor *tensors[] = {q, k, v, heads, view, all, y, copy};
    for (int i = 0; i < 8; i++)
        tsr_tensor_destroy(&tensors[i]);
    free(in);
    free(got);
}

static int64_t pages_for(const model *m, int64_t tokens)
{
    return (tokens + m->page_tokens - 1) / m->page_tokens;
}

/* Makes a step: chooses some sequences, and for each the number of new tokens: long prompts, one
 * token each, or any number. */
static void step(model *m, gpu_random *random)
{
    int sequences[MOST], count = 0;
    int64_t tokens[MOST], most = 0, needed = 0;
    const int64_t limit = gpu_random_between(random, 0, 2) ? 1 : 12;
    for (int i = 0; i < MOST; i++) {
        const record *r = &m->sequence[i];
        if (!r->used || !gpu_random_between(random, 0, 2))
            continue;
        sequences[count] = i;
        tokens[count] = gpu_random_between(random, 0, limit);
        if (r->length + tokens[count] > LONGEST)
            tokens[count] = 0;
        needed += pages_for(m, r->length + tokens[count]) - pages_for(m, r->length) + 1;
        most = tokens[count] > most ? tokens[count] : most;
        count++;
    }
    if (count == 0 || needed > tsr_kv_cache_free_pages(m->cache))
        return;
    for (int i = count - 1; i > 0; i--) { /* sequences in any order */
        const int64_t k = gpu_random_between(random, 0, i), t = tokens[i];
        const int s = sequences[i];
        sequences[i] = sequences[k];
        tokens[i] = tokens[k];
        sequences[k] = s;
        tokens[k] = t;
    }
    tsr_tensor *positions = NULL;
    double position[MOST * LONGEST];
    GPU_OK(tsr_kv_cache_begin(m->cache, count, sequences, tokens, &positions));
    ck_assert_ptr_eq(positions, tsr__kv_cache_positions(m->cache));
    gpu_get(positions, position);
    for (int i = 0; i < count; i++) {
        record *r = &m->sequence[sequences[i]];
        for (int64_t t = 0; t < tokens[i]; t++) {
            ck_assert_double_eq(position[i * most + t], (double)r->length);
            r->token[r->length++] = m->next++;
        }
        ck_assert_int_eq(tsr_kv_cache_length(m->cache, sequences[i]), r->length);
    }
    for (int layer = LAYERS - 1; layer >= 0 && most > 0; layer--)
        run_layer(m, layer, count, sequences, tokens, most, gpu_random_between(random, 0, 1),
                  random);
}

static void change(model *m, gpu_random *random)
{
    const int i = (int)gpu_random_between(random, 0, MOST - 1);
    record *r = &m->sequence[i];
    int number = -1, used = 0;
    for (int k = 0; k < MOST; k++)
        used += m->sequence[k].used;
    if (!r->used) {
        GPU_FAILS(tsr_kv_cache_add(m->cache, i, &number), TSR_ERR_INVALID, "there is no sequence");
        GPU_OK(tsr_kv_cache_add(m->cache, -1, &number));
        ck_assert(!m->sequence[number].used);
        m->sequence[number] = (record){.used = true};
        ck_assert_int_eq(tsr_kv_cache_length(m->cache, number), 0);
        return;
    }
    switch (gpu_random_between(random, 0, 3)) {
    case 0:
        if (used == MOST) {
            GPU_FAILS(tsr_kv_cache_add(m->cache, i, &number), TSR_ERR_INVALID,
                      "kv_cache: there are 7 sequences already");
            break;
        }
        GPU_OK(tsr_kv_cache_add(m->cache, i, &number));
        ck_assert(!m->sequence[number].used);
        m->sequence[number] = *r;
        break;
    case 1:
        r->length = gpu_random_between(random, 0, r->length);
        GPU_OK(tsr_kv_cache_truncate(m->cache, i, r->length));
        break;
    case 2:
        if (gpu_random_between(random, 0, 2) == 0) {
            GPU_OK(tsr_kv_cache_remove(m->cache, i));
            r->used = false;
        }
        break;
    }
    ck_assert_int_eq(tsr_kv_cache_length(m->cache, i), r->used ? r->length : -1);
}

START_TEST(sequences_keep_their_tokens)
{
    gpu_random random = {(uint64_t)_i + 1};
    /* The third round has pages of 16 tokens with 16 features, for which CPU drivers have a
     * kernel of their own. In the last two, the layers have different sizes; in the last one, so
     * have the values of one layer, and those of the other are in its keys. */
    static const int64_t page_tokens[] = {4, 1, 16, 9, 3, 5}, dim[] = {5, 5, 16, 8, 7, 6};
    const bool differ = _i >= 4, values = _i == 5;
    model m = {.page_tokens = page_tokens[_i],
               .pages = 150 / page_tokens[_i] + 8,
               .dim = {dim[_i], differ ? 16 : dim[_i]},
               .value_dim = {values ? 4 : dim[_i], values   ? 13
                                                   : differ ? 16
                                                            : dim[_i]},
               .in_keys = {false, values},
               .kv_heads = {KV_HEADS, values   ? 1
                                      : differ ? HEADS
                                               : KV_HEADS}};
    GPU_OK(tsr_kv_cache_create(
        tsr_kv_cache_params(.stream = queue, .layers = LAYERS, .kv_heads = KV_HEADS,
                            .head_dim = m.dim[0], .layer_kv_heads = differ ? m.kv_heads : NULL,
                            .layer_head_dims = differ ? m.dim : NULL,
                            .layer_value_dims = values ? m.value_dim : NULL,
                            .layer_values_in_keys = values ? m.in_keys : NULL,
                            .page_tokens = m.page_tokens, .pages = m.pages, .sequences = MOST,
                            .dtype = _i % 2 ? TSR_F16 : TSR_F32),
        &m.cache));
    ck_assert_ptr_null(tsr__kv_cache_positions(m.cache));
    for (int n = 0; n < 60; n++) {
        change(&m, &random);
        step(&m, &random);
    }
    for (int i = 0; i < MOST; i++)
        if (m.sequence[i].used)
            GPU_OK(tsr_kv_cache_remove(m.cache, i));
    ck_assert_int_eq(tsr_kv_cache_free_pages(m.cache), m.pages);
    tsr_kv_cache_destroy(&m.cache);
    ck_assert_ptr_null(m.cache);
}
END_TEST

/* Rotation of queries and keys while they are stored ----------------------------------------- */

enum { ROTATED_HEADS = 3, ROTATED_PAGE = 4, ROTATED_PAGES = 12, BATCH = 3 };

typedef struct rotation {
    tsr_rope_params rope;
    int64_t dim;
    tsr_dtype dtype, cache_dtype;
    int64_t padding; /* elements between the rows of x */
    bool apart;      /* the values are in a tensor of their own */
    bool own_q;      /* rotated queries are stored in a tensor of the cache's dtype */
    int64_t before[BATCH], tokens[BATCH];
} rotation;

/* Rotates one row (a head of a token) in place. */
static void rotate_row(const rotation *r, double *row, int64_t position)
{
    double frequencies[MOST_DIM / 2];
    const int64_t pairs = r->rope.rotary_dim / 2;
    const bool adjacent = r->rope.pairing == TSR_ROPE_ADJACENT;
    tsr__rope_frequencies(&r->rope, frequencies);
    for (int64_t i = 0; i < pairs; i++) {
        double *a = row + (adjacent ? 2 * i : i), *b = adjacent ? a + 1 : a + pairs;
        const double angle = (double)position * frequencies[i], u = *a, w = *b;
        *a = r->rope.attention_factor * (u * cos(angle) - w * sin(angle));
        *b = r->rope.attention_factor * (u * sin(angle) + w * cos(angle));
    }
}

static void check_row(const rotation *r, tsr_dtype dtype, const char *what, const double *got,
                      const double *want)
{
    const double unit = dtype == TSR_F32 && r->dtype == TSR_F32     ? 1e-6
                        : dtype == TSR_BF16 || r->dtype == TSR_BF16 ? 1.0 / 64
                                                                    : 1.0 / 512;
    for (int64_t d = 0; d < r->dim; d++)
        if (want ? !(fabs(got[d] - want[d]) <= 2 * unit) : !isnan(got[d]))
            ck_abort_msg("%s, component %lld: %.9g, not %.9g", what, (long long)d, got[d],
                         want ? want[d] : NAN);
}

/* Checks the rotated queries, and all pages of the layer: rows that belong to no token must be
 * unchanged. */
static void check_rotation(const rotation *r, const tsr_kv_cache *cache, const int *sequences,
                           int64_t most, const double *in, const double *queries)
{
    const int64_t all_heads = ROTATED_HEADS + 2 * KV_HEADS, dim = r->dim;
    const int64_t page_rows = 2 * (int64_t)KV_HEADS * ROTATED_PAGE;
    const int64_t rows = ROTATED_PAGES * page_rows;
    double *memory = doubles(LAYERS * rows * dim), want[MOST_DIM];
    bool stored[ROTATED_PAGES * 2 * KV_HEADS * ROTATED_PAGE] = {0};
    gpu_get(tsr__kv_cache_memory(cache), memory);
    for (int64_t i = 0; i < BATCH; i++)
        for (int64_t t = 0; t < r->tokens[i]; t++)
            for (int64_t h = 0; h < all_heads; h++) {
                const int64_t position = r->before[i] + t, kv = h - ROTATED_HEADS;
                memcpy(want, in + ((i * most + t) * all_heads + h) * dim,
                       (size_t)dim * sizeof *want);
                if (kv < KV_HEADS)
                    rotate_row(r, want, position);
                if (kv < 0) {
                    check_row(r, r->own_q ? r->cache_dtype : r->dtype, "a query",
                              queries + ((i * ROTATED_HEADS + h) * most + t) * dim, want);
                    continue;
                }
                const int32_t page =
                    tsr__pages_find(&cache->table, sequences[i])->pages[position / ROTATED_PAGE];
                const int64_t row = page * page_rows + kv * ROTATED_PAGE + position % ROTATED_PAGE;
                stored[row] = true;
                check_row(r, r->cache_dtype, kv < KV_HEADS ? "a key" : "a value",
                          memory + (rows + row) * dim, want);
            }
    for (int64_t row = 0; row < LAYERS * rows; row++)
        if (row < rows || !stored[row - rows])
            check_row(r, r->cache_dtype, "a row of no token", memory + row * dim, NULL);
    free(memory);
}

static void run_rotation(const rotation *r, gpu_random *random)
{
    const int64_t all_heads = ROTATED_HEADS + 2 * KV_HEADS, dim = r->dim;
    tsr_kv_cache *cache = NULL;
    tsr_rope *rope = NULL;
    int sequences[BATCH];
    int64_t most = 0;
    GPU_OK(tsr_kv_cache_create(
        tsr_kv_cache_params(.stream = queue, .layers = LAYERS, .kv_heads = KV_HEADS,
                            .head_dim = dim, .page_tokens = ROTATED_PAGE, .pages = ROTATED_PAGES,
                            .sequences = BATCH, .dtype = r->cache_dtype),
        &cache));
    GPU_OK(tsr_rope_create(queue, &r->rope, &rope));
    for (int i = 0; i < BATCH; i++) {
        GPU_OK(tsr_kv_cache_add(cache, -1, &sequences[i]));
        most = r->tokens[i] > most ? r->tokens[i] : most;
    }
    GPU_OK(tsr_kv_cache_begin(cache, BATCH, sequences, r->before, NULL));
    GPU_OK(tsr_kv_cache_begin(cache, BATCH, sequences, r->tokens, NULL));
    gpu_poison(tsr__kv_cache_memory(cache));

    const int64_t total = BATCH * most * all_heads * dim;
    double *in = doubles(total), *queries = doubles(BATCH * ROTATED_HEADS * most * dim);
    for (int64_t i = 0; i < total; i++)
        in[i] = gpu_rounded(gpu_random_unit(random), r->dtype);
    tsr_tensor *padded, *all, *view, *q, *k, *v, *copy = NULL, *own_q = NULL;
    padded = gpu_new(r->dtype, 4, (int64_t[]){BATCH, most, all_heads, dim + r->padding});
    GPU_OK(tsr_tensor_slice(padded, 3, 0, dim, 1, &all));
    gpu_put(all, in);
    GPU_OK(tsr_tensor_transpose(all, 1, 2, &view));
    GPU_OK(tsr_tensor_slice(view, 1, 0, ROTATED_HEADS, 1, &q));
    GPU_OK(tsr_tensor_slice(view, 1, ROTATED_HEADS, ROTATED_HEADS + KV_HEADS, 1, &k));
    GPU_OK(tsr_tensor_slice(view, 1, ROTATED_HEADS + KV_HEADS, all_heads, 1, &v));
    if (r->apart) {
        copy = gpu_new(r->dtype, 4, tsr_tensor_layout(v)->shape);
        GPU_OK(tsr_copy(queue, copy, v));
    }
    if (r->own_q) {
        own_q = gpu_new(r->cache_dtype, 4, tsr_tensor_layout(q)->shape);
        gpu_poison(own_q);
    }
    GPU_OK(tsr__kv_cache_append_rotated(cache, 1, rope, q, k, copy ? copy : v, own_q));
    gpu_get(own_q ? own_q : q, queries);
    check_rotation(r, cache, sequences, most, in, queries);
    tsr_tensor *tensors[] = {q, k, v, view, all, padded, copy, own_q};
    for (int i = 0; i < 8; i++)
        tsr_tensor_destroy(&tensors[i]);
    tsr_rope_destroy(&rope);
    tsr_kv_cache_destroy(&cache);
    free(queries);
    free(in);
}

/* Usually one dispatch both rotates and stores. On CPU drivers there are several dispatches if
 * there are many tokens, if only a part of a row is rotated, or if the values are in a tensor of
 * their own. */
START_TEST(rotates_and_appends)
{
    static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};
    static const int64_t dims[] = {16, 8, 12, 6, 2};
    gpu_random random = {(uint64_t)_i + 40};
    for (int n = _i; n < 36; n += 3) {
        rotation r = {
            .dim = dims[n % 5],
            .dtype = floats[n % 3],
            .cache_dtype = floats[(n / 3) % 3],
            .padding = n % 4 == 3 ? 1 + n % 3 : 0,
            .apart = n % 11 == 10,
            .own_q = n / 9 % 2 == 1,
        };
        for (int i = 0; i < BATCH; i++) {
            r.before[i] = gpu_random_between(&random, 0, 9);
            r.tokens[i] = n % 6 == 5   ? gpu_random_between(&random, 3, 7)
                          : n % 6 == 4 ? 0
                                       : gpu_random_between(&random, i == 0, 1 + n % 3);
        }
        const tsr_rope_params params = {
            .struct_size = sizeof params,
            .rotary_dim = n % 7 == 6 && r.dim > 2 ? r.dim - 2 : r.dim,
            .pairing = n % 2 ? TSR_ROPE_ADJACENT : TSR_ROPE_HALVES,
            .theta = 100,
            .scaling = n % 5 == 4 ? TSR_ROPE_SCALING_YARN : TSR_ROPE_SCALING_NONE,
            .factor = n % 5 == 4 ? 4 : 0,
            .original_length = n % 5 == 4 ? 32 : 0,
        };
        GPU_OK(tsr__rope_params_complete(&params, &r.rope));
        run_rotation(&r, &random);
    }
}
END_TEST

/* Rotation, storing and attention together ------------------------------------------------------
 */

enum { JOINT_PAGE = 16, JOINT_PAGES = 64 };

/* A step of `tokens` tokens after `before` tokens, for each of BATCH sequences. */
typedef struct joint {
    tsr_rope_params rope; /* rotary_dim 0: no rotary embedding */
    int64_t heads, kv_heads, dim;
    tsr_dtype dtype, cache_dtype;
    int64_t window;
    int64_t before[BATCH], tokens[BATCH];
    int commands;  /* dispatches */
    bool narrow_y; /* y has the cache's dtype, if the operation is one */
    /* of y, if queries are rounded to the cache's dtype or rotated keys to blocks */
    double error;
} joint;

/* Makes a cache in which each sequence has `before` tokens, which have the given keys and values,
 * [BATCH, most, 2 · kv_heads, dim], and begins the step. */
static tsr_kv_cache *joint_cache(const joint *j, const tsr_tensor *rows)
{
    tsr_kv_cache *cache = NULL;
    tsr_tensor *view, *k, *v;
    int sequences[BATCH];
    GPU_OK(tsr_kv_cache_create(tsr_kv_cache_params(.stream = queue, .layers = 1,
                                                   .kv_heads = j->kv_heads, .head_dim = j->dim,
                                                   .page_tokens = JOINT_PAGE, .pages = JOINT_PAGES,
                                                   .sequences = BATCH, .dtype = j->cache_dtype),
                               &cache));
    gpu_poison(tsr__kv_cache_memory(cache));
    for (int i = 0; i < BATCH; i++)
        GPU_OK(tsr_kv_cache_add(cache, -1, &sequences[i]));
    GPU_OK(tsr_kv_cache_begin(cache, BATCH, sequences, j->before, NULL));
    GPU_OK(tsr_tensor_transpose(rows, 1, 2, &view));
    GPU_OK(tsr_tensor_slice(view, 1, 0, j->kv_heads, 1, &k));
    GPU_OK(tsr_tensor_slice(view, 1, j->kv_heads, 2 * j->kv_heads, 1, &v));
    GPU_OK(tsr_kv_cache_append(cache, 0, k, v));
    GPU_OK(tsr_kv_cache_begin(cache, BATCH, sequences, j->tokens, NULL));
    tsr_tensor_destroy(&view);
    tsr_tensor_destroy(&k);
    tsr_tensor_destroy(&v);
    return cache;
}

static int64_t most_of(const int64_t counts[BATCH])
{
    int64_t most = 0;
    for (int i = 0; i < BATCH; i++)
        most = counts[i] > most ? counts[i] : most;
    return most;
}

static tsr_tensor *random_tensor(tsr_dtype dtype, const int64_t shape[4], gpu_random *random)
{
    tsr_tensor *tensor = gpu_new(dtype, 4, shape);
    const int64_t count = shape[0] * shape[1] * shape[2] * shape[3];
    double *values = doubles(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = gpu_rounded(gpu_random_unit(random), dtype);
    gpu_put(tensor, values);
    free(values);
    return tensor;
}

/* Counts dispatches. Parameters that the host cannot write to device memory take an update, too. */
static int commands_of(const tsr__profile *profile)
{
    uint64_t commands = 0;
    for (int i = 0; i < profile->kernel_count; i++)
        if (strcmp(profile->kernels[i].name, "update") != 0)
            commands += profile->kernels[i].commands;
    return (int)commands;
}

/* Checks that both ways gave the same. Drivers may contract the products and sums of a rotation in
 * different ways in different kernels; all other bits must be the same. */
static void check_joint(const joint *j, const char *what, tsr_dtype dtype, double error,
                        const double *one, const double *two, int64_t count)
{
    const double unit = error > 0                                   ? error
                        : dtype == TSR_Q8_0                         ? 1.0 / 120 /* a level */
                        : dtype == TSR_Q4_0                         ? 1.0 / 7
                        : dtype == TSR_F32 && j->dtype == TSR_F32   ? 1e-6
                        : dtype == TSR_BF16 || j->dtype == TSR_BF16 ? 1.0 / 128
                                                                    : 1.0 / 1024;
    if (!j->rope.rotary_dim)
        ck_assert_mem_eq(one, two, (size_t)count * sizeof *one);
    for (int64_t i = 0; i < count; i++)
        if (!(fabs(one[i] - two[i]) <= unit) && !(isnan(one[i]) && isnan(two[i])))
            ck_abort_msg("%s, element %lld: %.9g in one operation, %.9g in two", what, (long long)i,
                         one[i], two[i]);
}

static void get_memory(const tsr_kv_cache *cache, double *values)
{
    tsr_tensor *memory = tsr__kv_cache_memory(cache);
    const tsr_layout *layout = tsr_tensor_layout(memory);
    if (!tsr_quant_format_of(layout->dtype)) {
        gpu_get(memory, values);
        return;
    }
    tsr_tensor *plain = gpu_new(TSR_F32, layout->ndim, layout->shape);
    GPU_OK(tsr_copy(queue, plain, memory));
    gpu_get(plain, values);
    tsr_tensor_destroy(&plain);
}

/* Computes the step once in one operation and once in two, and compares the results and the caches.
 */
static void run_joint(const joint *j, gpu_random *random)
{
    static tsr__profile profile;
    const int64_t most = most_of(j->tokens), all_heads = j->heads + 2 * j->kv_heads;
    const int64_t shape[] = {BATCH, most, all_heads, j->dim};
    const int64_t before[] = {BATCH, most_of(j->before), 2 * j->kv_heads, j->dim};
    const int64_t count = BATCH * most * j->heads * j->dim;
    const int64_t cached = JOINT_PAGES * 2 * j->kv_heads * JOINT_PAGE * j->dim;
    tsr_tensor *rows = random_tensor(TSR_F32, before, random);
    tsr_tensor *given = random_tensor(j->dtype, shape, random), *all, *view, *part[3];
    double *y[2], *memory[2];
    for (int way = 0; way < 2; way++) {
        const int64_t first[] = {0, j->heads, j->heads + j->kv_heads, all_heads};
        const tsr_attention_params *params =
            tsr_attention_params(.causal = true, .window = j->window);
        tsr_kv_cache *cache = joint_cache(j, rows);
        tsr_rope *rope = NULL;
        tsr_tensor *got = gpu_new(j->narrow_y && way == 0 ? j->cache_dtype : j->dtype, 4,
                                  (int64_t[]){BATCH, j->heads, most, j->dim});
        if (j->rope.rotary_dim)
            GPU_OK(tsr_rope_create(queue, &j->rope, &rope));
        all = gpu_new(j->dtype, 4, shape); /* may be rotated in place */
        GPU_OK(tsr_copy(queue, all, given));
        GPU_OK(tsr_tensor_transpose(all, 1, 2, &view));
        for (int i = 0; i < 3; i++)
            GPU_OK(tsr_tensor_slice(view, 1, first[i], first[i + 1], 1, &part[i]));
        if (way == 0) {
            if (j->error > 0 && !tsr_quant_format_of(j->cache_dtype))
                ck_assert_int_eq(tsr__kv_cache_result_dtype(cache, 0, part[0], params),
                                 j->cache_dtype);
            GPU_OK(tsr__stream_profile_begin(queue));
            GPU_OK(tsr__kv_cache_append_and_attend(cache, 0, rope, got, part[0], part[1], part[2],
                                                   params));
            GPU_OK(tsr__stream_profile_end(queue, &profile));
        } else {
            GPU_OK(
                rope ? tsr__kv_cache_append_rotated(cache, 0, rope, part[0], part[1], part[2], NULL)
                     : tsr_kv_cache_append(cache, 0, part[1], part[2]));
            GPU_OK(tsr_kv_cache_attention(cache, 0, got, NULL, part[0], params));
        }
        y[way] = doubles(count);
        memory[way] = doubles(cached);
        gpu_get(got, y[way]);
        get_memory(cache, memory[way]);
        tsr_tensor *tensors[] = {got, all, view, part[0], part[1], part[2]};
        for (int i = 0; i < 6; i++)
            tsr_tensor_destroy(&tensors[i]);
        tsr_rope_destroy(&rope);
        tsr_kv_cache_destroy(&cache);
    }
    ck_assert_int_eq(commands_of(&profile), j->commands);
    check_joint(j, "y", j->dtype, j->error, y[0], y[1], count);
    check_joint(j, "the cache", j->cache_dtype, 0, memory[0], memory[1], cached);
    for (int way = 0; way < 2; way++) {
        free(y[way]);
        free(memory[way]);
    }
    tsr_tensor_destroy(&given);
    tsr_tensor_destroy(&rows);
}

static const joint joints[] = {
    /* a token of each sequence; the last one has no tokens yet */
    {{.rotary_dim = 32}, 8, 1, 32, TSR_F32, TSR_F32, 0, {37, 16, 0}, {1, 1, 1}, 1, false, 0},
    /* several ranges of keys, which the last workgroup merges; pages that begin with new keys */
    {{.rotary_dim = 16, .pairing = TSR_ROPE_ADJACENT, .theta = 100},
     4,
     2,
     16,
     TSR_F32,
     TSR_F16,
     0,
     {299, 128, 127},
     {1, 1, 1},
     1,
     false,
     0},
    /* different numbers of tokens, over the end of a range; two blocks of queries; a window */
    {{.rotary_dim = 24}, 12, 3, 24, TSR_F16, TSR_BF16, 40, {126, 0, 130}, {4, 3, 0}, 1, false, 0},
    {{0}, 2, 2, 8, TSR_BF16, TSR_F32, 0, {5, 12, 20}, {1, 2, 2}, 1, false, 0},
    /* blocks, of which each workgroup packs those of the new keys and values that it needs */
    {{0}, 4, 2, 32, TSR_F32, TSR_Q4_0, 40, {299, 128, 127}, {2, 1, 2}, 1, false, 0},
    {{.rotary_dim = 32}, 2, 1, 32, TSR_F16, TSR_Q8_0, 0, {130, 0, 5}, {2, 1, 2}, 1, false, 0.01},
    /* only a part of a row is rotated, which takes a command for queries and keys, one for the
     * cache, and one for attention */
    {{.rotary_dim = 8}, 4, 2, 16, TSR_F32, TSR_F32, 0, {5, 6, 7}, {1, 1, 1}, 3, false, 0},
    /* more tokens than the kernel takes */
    {{.rotary_dim = 16}, 2, 2, 16, TSR_F32, TSR_F32, 0, {5, 6, 7}, {5, 1, 2}, 2, false, 0},
};

START_TEST(attends_in_one_dispatch)
{
    gpu_random random = {(uint64_t)_i + 70};
    joint j = joints[_i];
    if (gpu->traits.few_invocations) /* both ways are the same there */
        return;
    j.rope.struct_size = sizeof j.rope;
    run_joint(&j, &random);
}
END_TEST

/* Matrix units compute the attention of a prompt with a 16-bit cache, if the device has them. */
START_TEST(narrows_prompts)
{
    joint j = {.rope = {.struct_size = sizeof j.rope, .rotary_dim = 32},
               .heads = 4,
               .kv_heads = 2,
               .dim = 32,
               .dtype = TSR_F32,
               .cache_dtype = TSR_F16,
               .before = {20, 0, 3},
               .tokens = {50, 48, 1},
               .commands = 2};
    gpu_random random = {80};
    if (tsr__kv_cache_usual_dtype(gpu) == TSR_F16 && gpu->subgroup_votes) {
        j.commands = 3;
        j.error = 1.0 / 512;
        run_joint(&j, &random);
        j.narrow_y = true;
        j.commands = 2;
    }
    run_joint(&j, &random);
}
END_TEST

/* Copies the keys of sequences of 6 and 3 tokens, in pages of four, which two steps have stored.
 * The second one has one token of the first sequence and three of the other. */
START_TEST(reads_keys)
{
    enum { DIM = 4, PAGE = 4, STEP_KEYS = 8 };
    static const int64_t heads[] = {1, 2}, lengths[] = {6, 3};
    tsr_kv_cache *cache;
    int both[2];
    GPU_OK(tsr_kv_cache_create(
        tsr_kv_cache_params(.stream = queue, .layers = 2, .layer_kv_heads = heads, .head_dim = DIM,
                            .dtype = TSR_F16, .page_tokens = PAGE, .pages = 4, .sequences = 2),
        &cache));
    GPU_OK(tsr_kv_cache_add(cache, -1, &both[0]));
    GPU_OK(tsr_kv_cache_add(cache, -1, &both[1]));
    tsr_tensor *keys = gpu_new(TSR_F32, 3, (int64_t[]){2, STEP_KEYS, DIM}),
               *few = gpu_new(TSR_F32, 3, (int64_t[]){2, PAGE, DIM});
    GPU_FAILS(tsr__kv_cache_read_keys(cache, 0, keys), TSR_ERR_INVALID,
              "kv_cache_read_keys: no step has begun");
    const int64_t tokens[2][2] = {{5, 0}, {1, 3}};
    for (int n = 0; n < 2; n++) {
        const int64_t most = n == 0 ? 5 : 3, shape[] = {2 - (n == 0), 1, most, DIM};
        double in[2 * 5 * DIM] = {0};
        for (int64_t i = 0; i < shape[0]; i++)
            for (int64_t t = 0; t < tokens[n][i] * DIM; t++)
                in[i * most * DIM + t] =
                    (double)(i * 100 + (n == 1 && i == 0 ? 5 : 0) * DIM + t + 1);
        tsr_tensor *k = gpu_new(TSR_F32, 4, shape);
        gpu_put(k, in);
        GPU_OK(tsr_kv_cache_begin(cache, (int)shape[0], both, tokens[n], NULL));
        GPU_OK(tsr_kv_cache_append(cache, 0, k, k));
        tsr_tensor_destroy(&k);
    }
    tsr_attention_params params = TSR_INIT(tsr_attention_params);
    ck_assert_int_eq(tsr__kv_cache_step_keys(cache, &params), STEP_KEYS);
    ck_assert(params.q_lengths && params.kv_lengths);
    ck_assert_equal(tsr__kv_cache_step_pairs(cache), 6 + 1 + 2 + 3);
    GPU_FAILS(tsr__kv_cache_read_keys(cache, 1, keys), TSR_ERR_INVALID,
              "layer 1 has 2 kv heads; 1 is needed");
    GPU_FAILS(tsr__kv_cache_read_keys(cache, 0, few), TSR_ERR_INVALID,
              "y is [2,4,4]; [2,8,4] is needed");
    GPU_FAILS(tsr__kv_cache_read_keys(cache, 0, NULL), TSR_ERR_INVALID, "y is NULL");
    gpu_poison(keys);
    GPU_OK(tsr__kv_cache_read_keys(cache, 0, keys));
    double got[2 * STEP_KEYS * DIM];
    gpu_get(keys, got);
    for (int64_t i = 0; i < 2; i++)
        for (int64_t e = 0; e < lengths[i] * DIM; e++)
            ck_assert_equal(got[i * STEP_KEYS * DIM + e], (double)(i * 100 + e + 1));
    tsr_tensor_destroy(&keys);
    tsr_tensor_destroy(&few);
    tsr_kv_cache_destroy(&cache);
}
END_TEST

/* Refused calls ------------------------------------------------------------------------------ */

static tsr_kv_cache *small_cache(int64_t pages)
{
    tsr_kv_cache *cache = NULL;
    GPU_OK(tsr_kv_cache_create(tsr_kv_cache_params(.stream = queue, .layers = 2, .kv_heads = 1,
                                                   .head_dim = 4, .page_tokens = 4, .pages = pages,
                                                   .sequences = 3),
                               &cache));
    return cache;
}

START_TEST(refuses_params)
{
    const tsr_kv_cache_params good = {.struct_size = sizeof good,
                                      .stream = queue,
                                      .layers = 1,
                                      .kv_heads = 1,
                                      .head_dim = 4,
                                      .pages = 1,
                                      .sequences = 1};
    static const int64_t odd_heads[] = {-2}, odd_dims[] = {577}, odd_values[] = {577},
                         wide_values[] = {5};
    static const bool in_keys[] = {true};
    tsr_kv_cache_params wrong[13];
    static const char *const words[] = {
        "stream is NULL",
        "layers is 0, sequences 1; both must be at least 1",
        "kv_heads is -1, head_dim 4; 0 to 4096 and 1 to 576 are possible",
        "kv_heads is 1, head_dim 1025",
        "dtype is i32; f32, f16, bf16, q8_0 or q4_0 is needed",
        "page_tokens is 65537; 1 to 65536 are possible",
        "pages is 0; 1 to 2147483647 are possible",
        "layers is 1, sequences 0",
        "4096 kv heads, 65536 tokens and 256 features make pages of 2^31 bytes or more",
        "kv_heads is -2, head_dim 4; 0 to 4096 and 1 to 576 are possible",
        "kv_heads is 1, head_dim 577",
        "values of layer 0 have 577 features and keys 4; 1 to 576 are possible",
        "values of layer 0 have 5 features and keys 4",
    };
    for (int i = 0; i < 13; i++)
        wrong[i] = good;
    wrong[0].stream = NULL;
    wrong[1].layers = 0;
    wrong[2].kv_heads = -1;
    wrong[3].head_dim = 1025;
    wrong[4].dtype = TSR_I32;
    wrong[5].page_tokens = 65537;
    wrong[6].pages = 0;
    wrong[7].sequences = 0;
    wrong[8].kv_heads = 4096;
    wrong[9].layer_kv_heads = odd_heads;
    wrong[10].layer_head_dims = odd_dims;
    wrong[11].layer_value_dims = odd_values;
    wrong[12].layer_value_dims = wide_values;
    wrong[12].layer_values_in_keys = in_keys;
    wrong[8].page_tokens = 65536;
    wrong[8].head_dim = 256;
    tsr_kv_cache *cache = NULL;
    for (int i = 0; i < 13; i++)
        GPU_FAILS(tsr_kv_cache_create(&wrong[i], &cache), TSR_ERR_INVALID, words[i]);
    GPU_FAILS(tsr_kv_cache_create(NULL, &cache), TSR_ERR_INVALID, "params is NULL");
    GPU_FAILS(tsr_kv_cache_create(&good, NULL), TSR_ERR_INVALID, "out is NULL");
    ck_assert_ptr_null(cache);
    tsr_kv_cache_destroy(&cache);
    tsr_kv_cache_destroy(NULL);
    ck_assert_int_eq(tsr_kv_cache_length(NULL, 0), -1);
    ck_assert_int_eq(tsr_kv_cache_free_pages(NULL), 0);
}
END_TEST

START_TEST(refuses_steps)
{
    tsr_kv_cache *cache = small_cache(3);
    int a, b, twice[2], both[2];
    int64_t tokens[] = {5, 9};
    GPU_OK(tsr_kv_cache_add(cache, -1, &a));
    GPU_OK(tsr_kv_cache_add(cache, -1, &b));
    both[0] = a;
    both[1] = b;
    twice[0] = twice[1] = a;
    const int64_t shape[] = {2, 1, 5, 4}, other[] = {2, 1, 4, 4};
    tsr_tensor *k = gpu_new(TSR_F32, 4, shape), *short_k = gpu_new(TSR_F32, 4, other),
               *whole = gpu_new(TSR_I32, 4, shape);
    GPU_FAILS(tsr_kv_cache_append(cache, 0, k, k), TSR_ERR_INVALID,
              "kv_cache_append: no step has begun");
    GPU_FAILS(tsr_kv_cache_begin(NULL, 1, both, tokens, NULL), TSR_ERR_INVALID, "cache is NULL");
    GPU_FAILS(tsr_kv_cache_begin(cache, 1, NULL, tokens, NULL), TSR_ERR_INVALID,
              "sequences is NULL");
    GPU_FAILS(tsr_kv_cache_begin(cache, 1, both, NULL, NULL), TSR_ERR_INVALID, "tokens is NULL");
    GPU_FAILS(tsr_kv_cache_begin(cache, 0, both, tokens, NULL), TSR_ERR_INVALID,
              "0 sequences; 1 to 3 are possible");
    GPU_FAILS(tsr_kv_cache_begin(cache, 4, both, tokens, NULL), TSR_ERR_INVALID, "4 sequences");
    GPU_FAILS(tsr_kv_cache_begin(cache, 2, twice, tokens, NULL), TSR_ERR_INVALID,
              "sequence 0 is named twice, as 0 and 1 of a step");
    GPU_FAILS(tsr_kv_cache_begin(cache, 1, (int[]){2}, tokens, NULL), TSR_ERR_INVALID,
              "there is no sequence 2");
    GPU_FAILS(tsr_kv_cache_begin(cache, 1, (int[]){-1}, tokens, NULL), TSR_ERR_INVALID,
              "there is no sequence -1");
    GPU_FAILS(tsr_kv_cache_begin(cache, 1, both, (int64_t[]){-1}, NULL), TSR_ERR_INVALID,
              "-1 tokens");
    GPU_FAILS(tsr_kv_cache_begin(cache, 1, both, (int64_t[]){INT64_MAX}, NULL), TSR_ERR_INVALID,
              "at most 2147483647 are possible");
    GPU_FAILS(tsr_kv_cache_begin(cache, 2, both, tokens, NULL), TSR_ERR_DEVICE_MEMORY,
              "the step takes 5 pages of 4 tokens; 3 of 3 are free");
    ck_assert_int_eq(tsr_kv_cache_length(cache, a), 0);
    ck_assert_int_eq(tsr_kv_cache_free_pages(cache), 3);
    tokens[1] = 1;
    GPU_OK(tsr_kv_cache_begin(cache, 2, both, tokens, NULL));
    GPU_FAILS(tsr_kv_cache_append(cache, 2, k, k), TSR_ERR_INVALID, "layer 2 is outside 0 … 1");
    GPU_FAILS(tsr_kv_cache_append(cache, -1, k, k), TSR_ERR_INVALID, "layer -1");
    GPU_FAILS(tsr_kv_cache_append(cache, 0, NULL, k), TSR_ERR_INVALID, "k is NULL");
    GPU_FAILS(tsr_kv_cache_append(cache, 0, k, whole), TSR_ERR_INVALID, "v is i32");
    GPU_FAILS(tsr_kv_cache_append(cache, 0, k, short_k), TSR_ERR_INVALID,
              "v is [2,1,4,4]; this step's are [2,1,5,4]");
    GPU_FAILS(tsr_kv_cache_attention(cache, 0, k, NULL, short_k, NULL), TSR_ERR_INVALID,
              "q is [2,1,4,4]; this step has 2 sequences of up to 5 tokens");
    GPU_FAILS(tsr_kv_cache_attention(cache, 0, k, NULL, NULL, NULL), TSR_ERR_INVALID, "q is NULL");
    GPU_FAILS(tsr_kv_cache_attention(cache, 0, k, NULL, k, tsr_attention_params(.pages = whole)),
              TSR_ERR_INVALID, "pages is the cache's to set");
    GPU_FAILS(tsr_kv_cache_truncate(cache, a, 6), TSR_ERR_INVALID,
              "sequence 0 has 5 tokens; 6 cannot be left");
    GPU_FAILS(tsr_kv_cache_truncate(cache, 2, 0), TSR_ERR_INVALID, "there is no sequence 2");
    GPU_FAILS(tsr_kv_cache_remove(cache, 3), TSR_ERR_INVALID, "there is no sequence 3");
    GPU_FAILS(tsr_kv_cache_add(cache, -1, NULL), TSR_ERR_INVALID, "out is NULL");
    tsr_kv_cache_destroy(&cache);
    tsr_tensor *tensors[] = {k, short_k, whole};
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&tensors[i]);
}
END_TEST

/* States ------------------------------------------------------------------------------------- */

enum { CHANNELS = 4, TAPS = 4, CELLS = 4 };

/* A convolution whose result is the sum of the last TAPS tokens, and a delta rule that keeps, in
 * each of CELLS rows, the last token whose number gives this remainder, and reads the row of the
 * next number: both are exact, and are wrong for any other state. */
static void run_states(model *m, int layer, int count, const int *sequences, const int64_t *tokens,
                       int64_t most)
{
    const int64_t x_shape[] = {count, most, CHANNELS}, q_shape[] = {count, most, 1, CELLS},
                  one_shape[] = {count, most, 1}, weight_shape[] = {CHANNELS, TAPS};
    const int64_t rows = count * most;
    double *x = doubles(rows * CHANNELS), *k = doubles(rows * CELLS), *q = doubles(rows * CELLS),
           *got_y = doubles(rows * CHANNELS), *got_z = doubles(rows * CELLS);
    for (int i = 0; i < count; i++)
        for (int64_t t = 0; t < tokens[i]; t++) {
            const record *r = &m->sequence[sequences[i]];
            const int token = r->token[r->length - tokens[i] + t];
            const int64_t row = i * most + t;
            for (int c = 0; c < CHANNELS; c++)
                x[row * CHANNELS + c] = token;
            k[row * CELLS + token % CELLS] = 1;
            q[row * CELLS + (token + 1) % CELLS] = 1;
        }
    tsr_tensor *tensors[] = {gpu_new(TSR_F32, 3, x_shape),
                             gpu_new(TSR_F32, 3, x_shape),
                             gpu_new(TSR_F32, 4, q_shape),
                             gpu_new(TSR_F32, 4, q_shape),
                             gpu_new(TSR_F32, 4, q_shape),
                             gpu_new(TSR_F32, 4, q_shape),
                             gpu_new(TSR_F32, 3, one_shape),
                             gpu_new(TSR_F32, 3, one_shape),
                             gpu_new(TSR_F32, 2, weight_shape),
                             NULL,
                             NULL};
    gpu_put(tensors[0], x);
    gpu_put(tensors[2], q);
    gpu_put(tensors[3], k);
    gpu_put(tensors[4], x);
    GPU_OK(tsr_fill(queue, tensors[6], 1));
    GPU_OK(tsr_fill(queue, tensors[7], 0));
    GPU_OK(tsr_fill(queue, tensors[8], 1));
    tsr_tensor *conv, *state, *reads = NULL, *writes = NULL;
    GPU_OK(tsr__kv_cache_states(m->cache, layer, &conv, &state, &reads, &writes));
    const int64_t slots = tsr_tensor_layout(conv)->shape[0];
    GPU_OK(tsr_tensor_reshape(conv, 3, (int64_t[]){slots, CHANNELS, TAPS - 1}, &tensors[9]));
    GPU_OK(tsr_tensor_reshape(state, 4, (int64_t[]){slots, 1, CELLS, CELLS}, &tensors[10]));
    tsr_tensor *lengths = tsr__kv_cache_lengths(m->cache);
    GPU_OK(tsr_causal_conv(queue, tensors[1], tensors[9], tensors[0], tensors[8],
                           tsr_causal_conv_params(.state = tensors[9], .lengths = lengths,
                                                  .read_slots = reads, .write_slots = writes)));
    GPU_OK(tsr_delta_rule(
        queue, tensors[5], tensors[10], tensors[2], tensors[3], tensors[4], tensors[6], tensors[7],
        tsr_delta_rule_params(.state = tensors[10], .lengths = lengths, .scale = 1,
                              .read_slots = reads, .write_slots = writes)));
    gpu_get(tensors[1], got_y);
    gpu_get(tensors[5], got_z);
    for (int i = 0; i < count; i++)
        for (int64_t t = 0; t < tokens[i]; t++) {
            const record *r = &m->sequence[sequences[i]];
            const int64_t at = r->length - tokens[i] + t, row = i * most + t;
            double sum = 0, last = 0;
            for (int64_t j = 0; j <= at; j++) {
                sum += j > at - TAPS ? r->token[j] : 0;
                last = r->token[j] % CELLS == (r->token[at] + 1) % CELLS ? r->token[j] : last;
            }
            ck_assert_double_eq(got_y[row * CHANNELS], sum);
            ck_assert_double_eq(got_z[row * CELLS + 1], last);
        }
    for (int i = 0; i < 11; i++)
        tsr_tensor_destroy(&tensors[i]);
    free(x);
    free(k);
    free(q);
    free(got_y);
    free(got_z);
}

enum { STATE_PAGE = 4 };

/* A cache whose layers all have states, or, if `mixed`, whose first one has pages. */
static tsr_kv_cache *state_cache(tsr_kv_cache_params p, bool mixed)
{
    const int64_t conv[] = {CHANNELS * (TAPS - 1), CHANNELS * (TAPS - 1), mixed ? 0 : 12},
                  state[] = {CELLS * CELLS, CELLS * CELLS, mixed ? 0 : CELLS * CELLS};
    tsr_kv_cache *cache = NULL;
    p.struct_size = sizeof p;
    p.stream = queue;
    p.layers = 3;
    p.kv_heads = KV_HEADS;
    p.head_dim = 8;
    p.page_tokens = STATE_PAGE;
    p.layer_conv_floats = conv;
    p.layer_state_floats = state;
    GPU_OK(tsr_kv_cache_create(&p, &cache));
    GPU_OK(tsr_fill(queue, cache->states_memory, NAN)); /* what no token has written is not read */
    return cache;
}

/* Makes a step, and computes it if `layers` are states from number 0 on. */
static void states_step(model *m, int count, const int *sequences, const int64_t *tokens,
                        int layers, gpu_random *random)
{
    int64_t most = 0;
    GPU_OK(tsr_kv_cache_begin(m->cache, count, sequences, tokens, NULL));
    for (int i = 0; i < count; i++) {
        record *r = &m->sequence[sequences[i]];
        for (int64_t t = 0; t < tokens[i]; t++)
            r->token[r->length++] = m->next++ % 97;
        most = tokens[i] > most ? tokens[i] : most;
    }
    for (int layer = 0; layer < layers && most > 0; layer++)
        run_states(m, layer, count, sequences, tokens, most);
    if (layers == 2 && most > 0)
        run_layer(m, 2, count, sequences, tokens, most, true, random);
}

/* Truncates to a length that can be restored, or is refused. */
static void truncate_some(model *m, int sequence, gpu_random *random)
{
    record *r = &m->sequence[sequence];
    const int64_t length = gpu_random_between(random, 0, r->length),
                  restorable = tsr_kv_cache_restorable(m->cache, sequence, length);
    ck_assert(restorable >= 0 && restorable <= length);
    ck_assert(restorable == length || (length != 0 && length != r->length));
    ck_assert_int_eq(tsr_kv_cache_restorable(m->cache, sequence, restorable), restorable);
    if (restorable != length)
        GPU_FAILS(tsr_kv_cache_truncate(m->cache, sequence, length), TSR_ERR_INVALID,
                  "but no state for");
    ck_assert_int_eq(tsr_kv_cache_length(m->cache, sequence), r->length);
    GPU_OK(tsr_kv_cache_truncate(m->cache, sequence, restorable));
    r->length = restorable;
}

static void change_states(model *m, gpu_random *random)
{
    const int i = (int)gpu_random_between(random, 0, MOST - 1);
    record *r = &m->sequence[i];
    int number = -1, free_number = -1;
    for (int k = 0; k < MOST; k++)
        free_number = m->sequence[k].used ? free_number : k;
    if (!r->used) {
        GPU_OK(tsr_kv_cache_add(m->cache, -1, &number));
        m->sequence[number] = (record){.used = true};
        return;
    }
    switch (gpu_random_between(random, 0, 3)) {
    case 0:
        if (free_number < 0)
            break;
        GPU_OK(tsr_kv_cache_add(m->cache, i, &number));
        m->sequence[number] = *r;
        break;
    case 1:
    case 2:
        truncate_some(m, i, random);
        break;
    default:
        if (gpu_random_between(random, 0, 2) == 0) {
            GPU_OK(tsr_kv_cache_remove(m->cache, i));
            r->used = false;
        }
    }
}

static const tsr_kv_cache_params state_params[] = {
    {.kept_tokens = 0},
    {.kept_tokens = 3, .kept_sequences = 2, .snapshot_tokens = STATE_PAGE, .snapshots = 5},
    {.kept_tokens = 15, .snapshot_tokens = 2 * STATE_PAGE, .snapshots = 1},
};

/* Forks, truncated sequences and those that stay have the states of their own tokens. */
START_TEST(sequences_keep_their_states)
{
    gpu_random random = {(uint64_t)_i + 90};
    tsr_kv_cache_params p = state_params[_i];
    const int layers = _i == 1 ? 3 : 2;
    p.sequences = MOST;
    p.pages = MOST * (LONGEST / STATE_PAGE + 1);
    model m = {.page_tokens = STATE_PAGE, .pages = p.pages, .cache = state_cache(p, layers == 2)};
    m.dim[2] = m.value_dim[2] = 8;
    m.kv_heads[2] = KV_HEADS;
    for (int n = 0; n < 40; n++) {
        int sequences[MOST], count = 0;
        int64_t tokens[MOST];
        const int64_t limit = gpu_random_between(&random, 0, 3);
        change_states(&m, &random);
        change_states(&m, &random);
        for (int i = 0; i < MOST; i++) {
            if (!m.sequence[i].used || !gpu_random_between(&random, 0, 2))
                continue;
            sequences[count] = i;
            tokens[count] = gpu_random_between(&random, 0, limit == 0 ? 18 : limit == 1 ? 6 : 1);
            if (m.sequence[i].length + tokens[count] > LONGEST)
                tokens[count] = 0;
            count++;
        }
        if (count > 0)
            states_step(&m, count, sequences, tokens, layers, &random);
    }
    for (int i = 0; i < MOST; i++)
        if (m.sequence[i].used)
            GPU_OK(tsr_kv_cache_remove(m.cache, i));
    ck_assert_int_eq(tsr_kv_cache_free_pages(m.cache), m.pages);
    ck_assert_int_eq(m.cache->states.free_count, m.cache->states.slots);
    tsr_kv_cache_destroy(&m.cache);
}
END_TEST

/* Computes so many tokens of one sequence. */
static void add_tokens(model *m, int sequence, int64_t tokens)
{
    gpu_random random = {1};
    states_step(m, 1, &sequence, &tokens, 3, &random);
}

/* A step finds room by dropping the kept states of its sequences without tokens, too. */
START_TEST(steps_find_room)
{
    const tsr_kv_cache_params p = {
        .pages = 8, .sequences = 4, .kept_tokens = 4, .kept_sequences = 1};
    model m = {.cache = state_cache(p, false)};
    gpu_random random = {1};
    int all[4];
    for (int i = 0; i < 3; i++)
        GPU_OK(tsr_kv_cache_add(m.cache, -1, &all[i]));
    for (int i = 0; i < 11; i++)
        add_tokens(&m, all[i / 5], 1);
    ck_assert_int_eq(m.cache->states.free_count, 0);
    GPU_OK(tsr_kv_cache_add(m.cache, all[2], &all[3]));
    m.sequence[all[3]] = m.sequence[all[2]];
    states_step(&m, 4, all, (int64_t[]){0, 0, 1, 1}, 3, &random);
    add_tokens(&m, all[0], 1);
    tsr_kv_cache_destroy(&m.cache);
}
END_TEST

/* Snapshots can be gone back to, leave in the order of their last use, and give other sequences
 * their state. */
START_TEST(snapshots)
{
    const tsr_kv_cache_params p = {
        .pages = 40, .sequences = 4, .snapshot_tokens = 4, .snapshots = 2};
    model m = {.cache = state_cache(p, false)};
    tsr_kv_cache *cache = m.cache;
    int a = -1, b = -1, c = -1;
    GPU_OK(tsr_kv_cache_add(cache, -1, &a));
    for (int i = 0; i < 3; i++)
        add_tokens(&m, a, i == 2 ? 6 : 4); /* 4, 8, 14 */
    ck_assert_int_eq(tsr_kv_cache_restorable(cache, a, 13), 8);
    ck_assert_int_eq(tsr_kv_cache_restorable(cache, a, 7), 4);
    ck_assert_int_eq(tsr_kv_cache_restorable(cache, a, 3), 0);
    ck_assert_int_eq(tsr_kv_cache_restorable(cache, a, 15), -1);
    ck_assert_int_eq(tsr_kv_cache_restorable(cache, 3, 0), -1);
    ck_assert_int_eq(tsr_kv_cache_restorable(NULL, 0, 0), -1);
    GPU_FAILS(tsr_kv_cache_truncate(cache, a, 7), TSR_ERR_INVALID,
              "sequence 0 has 14 tokens, but no state for 7; it can go back to 4");
    GPU_OK(tsr_kv_cache_add(cache, a, &b)); /* a fork has the snapshots of its source */
    m.sequence[b] = m.sequence[a];
    GPU_OK(tsr_kv_cache_truncate(cache, b, 4)); /* the snapshot of 8 is the older one now */
    m.sequence[b].length = 4;
    add_tokens(&m, a, 2); /* 16: that of 8 leaves */
    ck_assert_int_eq(tsr_kv_cache_restorable(cache, a, 15), 4);
    add_tokens(&m, b, 1);
    const int64_t held = tsr__kv_cache_hold_snapshot(cache, a);
    ck_assert(held != TSR__NO_SNAPSHOT && tsr__kv_cache_has_snapshot(cache, held));
    int32_t pages[4];
    for (int i = 0; i < 4; i++) {
        pages[i] = tsr__kv_cache_page(cache, a, i);
        tsr__kv_cache_hold(cache, pages[i]);
    }
    GPU_OK(tsr_kv_cache_add(cache, -1, &c));
    GPU_OK(tsr__kv_cache_adopt(cache, c, 2, pages, TSR__NO_SNAPSHOT));
    GPU_FAILS(tsr_kv_cache_begin(cache, 1, &c, (int64_t[]){1}, NULL), TSR_ERR_INVALID,
              "sequence 2 has tokens without a state");
    ck_assert_int_eq(tsr_kv_cache_length(cache, c), 8);
    m.sequence[c] = m.sequence[a];
    GPU_OK(tsr_kv_cache_remove(cache, a));
    GPU_OK(tsr__kv_cache_adopt(cache, c, 2, pages + 2, held));
    add_tokens(&m, c, 3);
    add_tokens(&m, b, 3); /* 8, which takes the entry of 4 */
    add_tokens(&m, b, 4); /* 12: the held one leaves */
    ck_assert(!tsr__kv_cache_has_snapshot(cache, held));
    GPU_FAILS(tsr__kv_cache_adopt(cache, c, 1, pages, held), TSR_ERR_INVALID, "has left");
    tsr__kv_cache_release_snapshot(cache, held);
    for (int i = 0; i < 4; i++)
        tsr__kv_cache_release(cache, pages[i]);
    GPU_OK(tsr_kv_cache_remove(cache, b));
    GPU_OK(tsr_kv_cache_remove(cache, c));
    ck_assert_int_eq(cache->states.free_count, cache->states.slots);
    tsr_kv_cache_destroy(&m.cache);
}
END_TEST

START_TEST(refuses_states)
{
    static const int64_t floats[] = {8, 8}, negative[] = {8, -1};
    const tsr_kv_cache_params good = {.struct_size = sizeof good,
                                      .stream = queue,
                                      .layers = 2,
                                      .kv_heads = 1,
                                      .head_dim = 4,
                                      .page_tokens = 8,
                                      .pages = 1,
                                      .sequences = 1,
                                      .layer_conv_floats = floats};
    tsr_kv_cache_params wrong[6];
    static const char *const words[] = {
        "layer 1 has states of 8 and -1 floats",
        "kept_tokens is 16, kept_sequences 0; 0 to 15",
        "kept_tokens is 1, kept_sequences -1",
        "3 snapshots, each after 12 tokens; 0 or more, and a multiple of the 8 tokens",
        "snapshots is 0, but snapshot_tokens is 16",
        "are for layers with states; layer_conv_floats and layer_state_floats are NULL",
    };
    for (int i = 0; i < 6; i++)
        wrong[i] = good;
    wrong[0].layer_state_floats = negative;
    wrong[1].kept_tokens = 16;
    wrong[2].kept_tokens = 1;
    wrong[2].kept_sequences = -1;
    wrong[3].snapshots = 3;
    wrong[3].snapshot_tokens = 12;
    wrong[4].snapshot_tokens = 16;
    wrong[5].layer_conv_floats = NULL;
    wrong[5].kept_tokens = 1;
    tsr_kv_cache *cache = NULL;
    for (int i = 0; i < 6; i++)
        GPU_FAILS(tsr_kv_cache_create(&wrong[i], &cache), TSR_ERR_INVALID, words[i]);
    GPU_OK(tsr_kv_cache_create(&good, &cache));
    int a = -1;
    tsr_tensor *conv, *state, *reads, *writes, *k = gpu_new(TSR_F32, 4, (int64_t[]){1, 1, 1, 4});
    GPU_FAILS(tsr__kv_cache_states(cache, 0, &conv, &state, &reads, &writes), TSR_ERR_INVALID,
              "kv_cache_states: no step has begun");
    GPU_OK(tsr_kv_cache_add(cache, -1, &a));
    GPU_OK(tsr_kv_cache_begin(cache, 1, &a, (int64_t[]){1}, NULL));
    GPU_FAILS(tsr_kv_cache_append(cache, 1, k, k), TSR_ERR_INVALID,
              "kv_cache_append: layer 1 has a state, not keys and values");
    GPU_FAILS(tsr_kv_cache_attention(cache, 1, k, NULL, k, NULL), TSR_ERR_INVALID,
              "kv_cache_attention: layer 1 has a state");
    tsr_kv_cache_destroy(&cache);
    cache = small_cache(1);
    GPU_OK(tsr_kv_cache_add(cache, -1, &a));
    GPU_OK(tsr_kv_cache_begin(cache, 1, &a, (int64_t[]){3}, NULL));
    ck_assert_int_eq(tsr_kv_cache_restorable(cache, a, 2), 2);
    GPU_FAILS(tsr__kv_cache_states(cache, 0, &conv, &state, &reads, &writes), TSR_ERR_INVALID,
              "the cache has no states");
    tsr_kv_cache_destroy(&cache);
    tsr_tensor_destroy(&k);
}
END_TEST

/* A step that fails because of memory or a Vulkan call leaves lengths, pages and slots unchanged.
 */
static void survive(tsr__fault_kind kind, int code)
{
    const tsr_kv_cache_params p = {
        .pages = 8, .sequences = 3, .kept_tokens = 3, .snapshot_tokens = 4, .snapshots = 2};
    tsr_kv_cache *cache = state_cache(p, true);
    int a, b, both[2];
    GPU_OK(tsr_kv_cache_add(cache, -1, &a));
    GPU_OK(tsr_kv_cache_begin(cache, 1, &a, (int64_t[]){6}, NULL));
    GPU_OK(tsr_kv_cache_add(cache, a, &b));
    both[0] = a;
    both[1] = b;
    bool reached = true;
    for (uint64_t nth = 0; reached; nth++) {
        ck_assert_uint_lt(nth, 1000);
        GPU_OK(tsr_stream_wait(queue));
        const int64_t free_pages = tsr_kv_cache_free_pages(cache);
        const tsr__state_of before[2] = {cache->states.of[a], cache->states.of[b]};
        const int32_t free_slots = cache->states.free_count;
        tsr__fault_arm(kind, nth, code);
        tsr_status status = tsr_kv_cache_begin(cache, 2, both, (int64_t[]){3, 3}, NULL);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        ck_assert_int_eq(tsr_kv_cache_length(cache, a), status == TSR_OK ? 9 : 6);
        ck_assert_int_eq(tsr_kv_cache_length(cache, b), status == TSR_OK ? 9 : 6);
        if (status != TSR_OK) {
            ck_assert_int_eq(tsr_kv_cache_free_pages(cache), free_pages);
            ck_assert_int_eq(cache->states.free_count, free_slots);
            ck_assert_mem_eq(&cache->states.of[a], &before[0], sizeof *before);
            ck_assert_mem_eq(&cache->states.of[b], &before[1], sizeof *before);
            continue;
        }
        GPU_OK(
            tsr_kv_cache_remove(cache, b)); /* restores the state in which every attempt starts */
        GPU_OK(tsr_kv_cache_truncate(cache, a, 6));
        GPU_OK(tsr_kv_cache_add(cache, a, &b));
        both[1] = b;
    }
    tsr_kv_cache_destroy(&cache);
}

START_TEST(survives_failures)
{
    survive(TSR__FAULT_ALLOC, 0);
    survive(TSR__FAULT_VULKAN, -1 /* VK_ERROR_OUT_OF_HOST_MEMORY */);
}
END_TEST

TESTS(kv_cache)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, sequences_keep_their_tokens, 0, 1);
    tcase_add_loop_test(tests, sequences_keep_their_tokens, 5, 6);
    tcase_add_loop_test(tests, rotates_and_appends, 0, 3);
    tcase_add_loop_test(tests, attends_in_one_dispatch, 0, sizeof joints / sizeof *joints);
    tcase_add_test(tests, refuses_params);
    tcase_add_test(tests, refuses_steps);
    tcase_add_test(tests, reads_keys);
    tcase_add_loop_test(tests, sequences_keep_their_states, 0,
                        sizeof state_params / sizeof *state_params);
    tcase_add_test(tests, steps_find_room);
    tcase_add_test(tests, snapshots);
    tcase_add_test(tests, refuses_states);
}

TESTS(kv_cache_long)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, sequences_keep_their_tokens, 1, 5);
}

/* The Vulkan calls that fail include those that build pipelines, so this device must not share
 * pipelines with other tests. They are the same on all drivers. */
TESTS(kv_cache_failures_long)
{
    tcase_add_checked_fixture(tests, gpu_setup_not_shared, gpu_teardown);
    tcase_add_test(tests, survives_failures);
}

/* Intel's GPUs load fewer rows ahead. */
static void setup_as_intel(void)
{
    gpu_setup_as_gpu();
    gpu->info.vendor_id = TSR__VENDOR_INTEL;
}

TESTS(kv_cache_as_gpu_of_intel)
{
    tcase_add_checked_fixture(tests, setup_as_intel, gpu_teardown);
    tcase_add_loop_test(tests, attends_in_one_dispatch, 0, 2);
}

TESTS(kv_cache_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_test(tests, narrows_prompts);
}
