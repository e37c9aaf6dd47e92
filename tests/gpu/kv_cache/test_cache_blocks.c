/* Caches of keys and values in blocks: the bits that are stored are those of tsr_quantize, and
 * attention agrees with double precision over the values of these blocks. */
#include "../attention/attention_case.h"

#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "gpu/kv_cache/kv_cache.h"
#include "gpu/memory/tensor.h"

static const tsr_dtype formats[] = {TSR_Q8_0, TSR_Q4_0};

static uint64_t bytes_of(tsr_dtype dtype, int64_t count)
{
    uint64_t bytes = 0;
    GPU_OK(tsr_quant_bytes(dtype, count, &bytes));
    return bytes;
}

/* Quantises values on the host. Replaces them by the values of the blocks, unless `values` is not
 * to be changed. The caller frees the result. */
static uint8_t *quantised(tsr_dtype dtype, double *values, int64_t count, bool replace)
{
    const uint64_t bytes = bytes_of(dtype, count);
    float *floats = calloc((size_t)count + 1, sizeof *floats);
    uint8_t *blocks = calloc((size_t)bytes + 1, 1);
    ck_assert(floats != NULL && blocks != NULL);
    for (int64_t i = 0; i < count; i++)
        floats[i] = (float)values[i];
    GPU_OK(tsr_quantize(dtype, floats, count, blocks, bytes));
    GPU_OK(tsr_dequantize(dtype, blocks, bytes, floats, count));
    for (int64_t i = 0; i < count && replace; i++)
        values[i] = floats[i];
    free(floats);
    return blocks;
}

/* Attention ------------------------------------------------------------------------------------ */

typedef struct shape {
    int64_t batch, heads, kv_heads, q_len, kv_len, head_dim, value_dim, window;
    bool causal, lengths, sinks, softcap, table;
} shape;

static const shape shapes[] = {
    /* one query, and few: one range of keys, and several */
    {2, 2, 1, 1, 37, 32, 32, 0, true, false, false, false, false},
    {1, 8, 1, 1, 700, 64, 64, 0, true, true, true, false, false},
    {1, 4, 4, 3, 300, 96, 32, 40, true, false, false, true, false},
    {2, 3, 2, 2, 131, 128, 128, 0, true, true, true, false, true},
    /* many queries */
    {2, 4, 2, 45, 77, 64, 64, 0, true, true, false, false, false},
    {1, 5, 2, 66, 66, 128, 128, 17, true, false, true, false, true},
    {1, 2, 2, 33, 70, 256, 96, 0, false, false, false, true, false},
    {1, 3, 1, 19, 50, 32, 32, 0, true, true, true, true, false},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

static tsr_tensor *blocks_tensor(tsr_dtype dtype, const int64_t *dims, double *values)
{
    const int64_t count = dims[0] * dims[1] * dims[2] * dims[3];
    uint8_t *blocks = quantised(dtype, values, count, true);
    tsr_tensor *tensor = gpu_new(dtype, 4, dims);
    GPU_OK(tsr_tensor_upload(queue, tensor, blocks, bytes_of(dtype, count)));
    free(blocks);
    return tensor;
}

/* Whether matrix units compute the attention of many queries in f16. They round keys and values to
 * 16 bits, and probabilities. */
static bool has_matrices(void)
{
    return gpu->info.coopmat_used >= 0 && gpu->subgroup_votes && gpu->storage == TSR__STORAGE_S16;
}

/* Computes shape number `number` / 2 with queries and results of a dtype. */
static void attend(int number, tsr_dtype dtype)
{
    const shape *s = &shapes[number / 2];
    gpu_random random = {(uint64_t)number + 1};
    attention_case c = {.batch = s->batch,
                        .heads = s->heads,
                        .kv_heads = s->kv_heads,
                        .q_len = s->q_len,
                        .kv_len = s->kv_len,
                        .head_dim = s->head_dim,
                        .value_dim = s->value_dim,
                        .window = s->window,
                        .causal = s->causal,
                        .softcap = s->softcap ? 1.5 : 0};
    const tsr_dtype k_dtype = formats[number % 2],
                    v_dtype = s->head_dim == s->value_dim ? k_dtype : formats[(number + 1) % 2];
    const int64_t k_shape[] = {c.batch, c.kv_heads, c.kv_len, c.head_dim},
                  v_shape[] = {c.batch, c.kv_heads, c.kv_len, c.value_dim},
                  q_shape[] = {c.batch, c.heads, c.q_len, c.head_dim},
                  y_shape[] = {c.batch, c.heads, c.q_len, c.value_dim};
    const int64_t rows = attention_queries_count(&c), keys = attention_keys_count(&c);
    c.q = attention_random_values(&random, rows * c.head_dim, 1, dtype);
    c.k = attention_random_values(&random, keys * c.head_dim, 2, TSR_F32);
    c.v = attention_random_values(&random, keys * c.value_dim, 2, TSR_F32);
    tsr_tensor *k = blocks_tensor(k_dtype, k_shape, c.k), *v = blocks_tensor(v_dtype, v_shape, c.v),
               *q = gpu_new(dtype, 4, q_shape), *y = gpu_new(dtype, 4, y_shape),
               *lse = gpu_new(TSR_F32, 3, y_shape), *lengths = NULL, *sinks = NULL;
    if (s->lengths) {
        c.kv_length = attention_random_lengths(&random, c.batch, c.kv_len);
        c.kv_length[0] = (double)c.kv_len - 1;
        lengths = gpu_new(TSR_I32, 1, &c.batch);
        gpu_put(lengths, c.kv_length);
    }
    if (s->sinks) {
        c.sinks = attention_random_values(&random, c.heads, 2, TSR_F32);
        sinks = gpu_new(TSR_F32, 1, &c.heads);
        gpu_put(sinks, c.sinks);
    }
    if (s->table) {
        c.kv_head = calloc((size_t)c.heads, sizeof *c.kv_head);
        ck_assert_ptr_nonnull(c.kv_head);
        for (int64_t h = 0; h < c.heads; h++) /* 0 has one reader */
            c.kv_head[h] = h > 0;
    }
    gpu_put(q, c.q);
    gpu_poison(y);
    gpu_poison(lse);
    attention_solve(&c);
    GPU_OK(tsr_attention(queue, y, number % 3 == 0 ? lse : NULL, q, k, v,
                         tsr_attention_params(.causal = c.causal, .window = c.window,
                                              .softcap = (float)c.softcap, .kv_lengths = lengths,
                                              .sinks = sinks, .kv_head = c.kv_head)));
    double *got = attention_doubles(rows * c.value_dim);
    const double error = dtype == TSR_F16 && has_matrices() && c.q_len >= 40 ? 2e-3 : 2e-6;
    char name[64];
    snprintf(name, sizeof name, "shape %d, %s", number / 2, tsr_dtype_name(k_dtype));
    gpu_get(y, got);
    attention_compare(name, "y", rows * c.value_dim, got, c.y, 2, error, dtype);
    if (number % 3 == 0) {
        gpu_get(lse, got);
        attention_compare(name, "lse", rows, got, c.lse, 8, error, TSR_F32);
    }
    free(got);
    tsr_tensor *tensors[] = {q, k, v, y, lse, lengths, sinks};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tsr_tensor_destroy(&tensors[i]);
    attention_free(&c);
}

START_TEST(attends_to_blocks)
{
    attend(2 * _i + _i % 2, TSR_F32);
}
END_TEST

/* The same for one query, several, and many, because drivers of CPUs need seconds for each
 * pipeline. */
START_TEST(attends_to_some_blocks)
{
    static const int numbers[] = {1, 6, 9};
    attend(numbers[_i], TSR_F32);
}
END_TEST

START_TEST(attends_in_16_bits)
{
    attend(2 * _i + (_i + 1) % 2, _i + 1 < SHAPES ? TSR_F16 : TSR_BF16);
}
END_TEST

/* Storing -------------------------------------------------------------------------------------- */

enum { LAYERS = 2, LONGEST = 40, PAGE = 8, PAGES = 40, SEQUENCES = 4, KV_HEADS = 3, HEADS = 4 };

/* The sizes of a cache's layers, and the keys and values that each sequence should have. */
typedef struct stored {
    tsr_kv_cache *cache;
    tsr_dtype dtype;
    int64_t head_dim[LAYERS], value_dim[LAYERS], kv_heads[LAYERS];
    bool in_keys[LAYERS];
    bool used[SEQUENCES];
    int64_t length[SEQUENCES];
    int token[SEQUENCES][LONGEST]; /* a number that determines the token's keys and values */
    int next;
} stored;

/* A component of a token's key (what = 0) or value. Some blocks are 0, have one large component,
 * have elements that are halfway between two levels, or have two largest ones. */
static double component(int token, int layer, int what, int64_t head, int64_t d)
{
    const uint64_t number =
        ((uint64_t)token * 8 + (uint64_t)layer * 4 + (uint64_t)what) * 64 + (uint64_t)head;
    gpu_random random = {number * 1024 + (uint64_t)d + 1};
    const double unit = gpu_random_unit(&random);
    switch ((number * UINT64_C(0x9e3779b97f4a7c15) >> 60) + (uint64_t)d / 32) {
    case 0:
        return d % 32 == 0 ? -0.0 : 0;
    case 1:
        return d % 32 == 7 ? 60000 : unit * 1e4;
    case 2:
        return d % 32 == 31 ? 127 : (double)(int)(unit * 127) + 0.5;
    case 3:
        return d % 32 == 3 ? 4 : d % 32 == 5 ? -4 : (double)(int)(unit * 16) / 4;
    case 4:
        return unit * 1e-6;
    default:
        return unit;
    }
}

/* The tensor [count, heads, most, dim] of the step's keys or values, in rows of `width`. */
static tsr_tensor *rows_of(const stored *s, tsr_dtype dtype, int layer, int what, int count,
                           const int *sequences, const int64_t *tokens, int64_t most)
{
    const int64_t heads = s->kv_heads[layer],
                  dim = what == 0 ? s->head_dim[layer] : s->value_dim[layer],
                  sizes[] = {count, heads, most, dim};
    double *values = attention_doubles(count * heads * most * dim);
    for (int64_t i = 0; i < count; i++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t t = 0; t < tokens[i]; t++)
                for (int64_t d = 0; d < dim; d++) {
                    const int n = sequences[i];
                    values[((i * heads + h) * most + t) * dim + d] =
                        component(s->token[n][s->length[n] - tokens[i] + t], layer, what, h, d);
                }
    tsr_tensor *tensor = gpu_new(dtype, 4, sizes);
    gpu_put(tensor, values);
    free(values);
    return tensor;
}

/* Compares all keys, or values, of a layer with what the host makes of them. */
static void check_rows(const stored *s, tsr_dtype given, int layer, int what)
{
    const int64_t heads = s->kv_heads[layer],
                  dim = what == 0 ? s->head_dim[layer] : s->value_dim[layer],
                  row_bytes = (int64_t)bytes_of(s->dtype, dim);
    tsr_tensor view;
    GPU_OK(what == 0 ? tsr__kv_cache_keys(s->cache, layer, &view)
                     : tsr__kv_cache_values(s->cache, layer, &view));
    tsr_tensor *copy = gpu_new(s->dtype, 4, view.layout.shape);
    const uint64_t size = bytes_of(s->dtype, tsr_layout_count(&view.layout));
    uint8_t *got = calloc((size_t)size, 1);
    double *row = attention_doubles(dim);
    ck_assert_ptr_nonnull(got);
    GPU_OK(tsr_copy(queue, copy, &view));
    GPU_OK(tsr_tensor_download(queue, copy, got, size));
    for (int n = 0; n < SEQUENCES; n++)
        for (int64_t t = 0; s->used[n] && t < s->length[n]; t++)
            for (int64_t h = 0; h < heads; h++) {
                const int64_t page = tsr__kv_cache_page(s->cache, n, t / PAGE);
                for (int64_t d = 0; d < dim; d++)
                    row[d] = gpu_rounded(component(s->token[n][t], layer, what, h, d), given);
                uint8_t *want = quantised(s->dtype, row, dim, false);
                ck_assert_mem_eq(got + ((page * heads + h) * PAGE + t % PAGE) * row_bytes, want,
                                 (size_t)row_bytes);
                free(want);
            }
    free(row);
    free(got);
    tsr_tensor_destroy(&copy);
}

static void grow(stored *s, gpu_random *random, tsr_dtype given)
{
    int sequences[SEQUENCES], count = 0;
    int64_t tokens[SEQUENCES], most = 0;
    for (int n = 0; n < SEQUENCES; n++) {
        if (!s->used[n])
            continue;
        sequences[count] = n;
        tokens[count] = gpu_random_between(random, 0, 6);
        if (s->length[n] + tokens[count] > LONGEST)
            tokens[count] = 0;
        for (int64_t t = 0; t < tokens[count]; t++)
            s->token[n][s->length[n]++] = s->next++;
        most = tokens[count] > most ? tokens[count] : most;
        count++;
    }
    if (count == 0)
        return;
    GPU_OK(tsr_kv_cache_begin(s->cache, count, sequences, tokens, NULL));
    for (int layer = 0; layer < LAYERS && most > 0; layer++) {
        tsr_tensor *k = rows_of(s, given, layer, 0, count, sequences, tokens, most),
                   *v = s->in_keys[layer]
                            ? NULL
                            : rows_of(s, given, layer, 1, count, sequences, tokens, most);
        GPU_OK(tsr_kv_cache_append(s->cache, layer, k, v));
        tsr_tensor_destroy(&k);
        tsr_tensor_destroy(&v);
    }
}

/* Adds, forks, shortens or removes a sequence. */
static void change(stored *s, gpu_random *random)
{
    const int n = (int)gpu_random_between(random, 0, SEQUENCES - 1);
    int free_ones = 0, number = -1;
    for (int i = 0; i < SEQUENCES; i++)
        free_ones += !s->used[i];
    if (s->used[n] && gpu_random_between(random, 0, 1)) {
        s->length[n] = gpu_random_between(random, 0, s->length[n]);
        GPU_OK(tsr_kv_cache_truncate(s->cache, n, s->length[n]));
    } else if (free_ones > 0) {
        GPU_OK(tsr_kv_cache_add(s->cache, s->used[n] ? n : -1, &number));
        s->used[number] = true;
        s->length[number] = s->used[n] && number != n ? s->length[n] : 0;
        memcpy(s->token[number], s->token[n], sizeof s->token[n]);
    } else {
        GPU_OK(tsr_kv_cache_remove(s->cache, n));
        s->used[n] = false;
    }
}

/* Reads the keys of a sequence as floats, as attention with keys from latents does. */
static void check_read_keys(const stored *s, tsr_dtype given, int layer)
{
    int n = 0;
    while (n < SEQUENCES - 1 && (!s->used[n] || s->length[n] == 0))
        n++;
    ck_assert(s->used[n] && s->length[n] > 0);
    GPU_OK(tsr_kv_cache_begin(s->cache, 1, &n, &(int64_t){0}, NULL));
    const int64_t dim = s->head_dim[layer], keys = tsr__kv_cache_step_keys(s->cache, NULL);
    tsr_tensor *y = gpu_new(TSR_F32, 3, (int64_t[]){1, keys, dim});
    double *got = attention_doubles(keys * dim), *want = attention_doubles(dim);
    GPU_OK(tsr__kv_cache_read_keys(s->cache, layer, y));
    gpu_get(y, got);
    for (int64_t t = 0; t < s->length[n]; t++) {
        for (int64_t d = 0; d < dim; d++)
            want[d] = gpu_rounded(component(s->token[n][t], layer, 0, 0, d), given);
        free(quantised(s->dtype, want, dim, true));
        for (int64_t d = 0; d < dim; d++)
            ck_assert_equal(got[t * dim + d], want[d]);
    }
    free(got);
    free(want);
    tsr_tensor_destroy(&y);
}

START_TEST(stores_what_the_host_makes)
{
    static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {(uint64_t)_i + 20};
    const bool differ = _i >= 2;
    const tsr_dtype given = floats[_i % 3];
    stored s = {.dtype = formats[_i % 2],
                .head_dim = {differ ? 32 : 64, differ ? 96 : 64},
                .value_dim = {64, 64},
                .kv_heads = {KV_HEADS, differ ? 1 : KV_HEADS},
                .in_keys = {false, differ}};
    GPU_OK(tsr_kv_cache_create(
        tsr_kv_cache_params(.stream = queue, .layers = LAYERS, .layer_kv_heads = s.kv_heads,
                            .layer_head_dims = s.head_dim, .layer_value_dims = s.value_dim,
                            .layer_values_in_keys = s.in_keys, .page_tokens = PAGE, .pages = PAGES,
                            .sequences = SEQUENCES, .dtype = s.dtype),
        &s.cache));
    gpu_poison(tsr__kv_cache_memory(s.cache));
    for (int round = 0; round < 16; round++) {
        change(&s, &random);
        grow(&s, &random, given);
    }
    for (int layer = 0; layer < LAYERS; layer++) {
        check_rows(&s, given, layer, 0);
        if (!s.in_keys[layer])
            check_rows(&s, given, layer, 1);
    }
    if (differ)
        check_read_keys(&s, given, 1);
    tsr_kv_cache_destroy(&s.cache);
}
END_TEST

/* Attention over pages ------------------------------------------------------------------------- */

/* Attention of a step over a cache, whose keys and values other steps have stored, against double
 * precision. The last step has one token, a few or many. Many are also computed without storing
 * them, with the logarithms of sums. */
START_TEST(attends_to_pages)
{
    static const int64_t last[] = {1, 3, 44};
    enum { BEFORE = 30, DIM = 64, TOTAL = BEFORE + 44 };
    const tsr_dtype dtype = formats[_i % 2];
    const int64_t now = last[_i / 2], total = BEFORE + now, counts[] = {BEFORE, now};
    gpu_random random = {(uint64_t)_i + 50};
    tsr_kv_cache *cache = NULL;
    int sequence;
    GPU_OK(tsr_kv_cache_create(
        tsr_kv_cache_params(.stream = queue, .layers = 1, .kv_heads = KV_HEADS - 1, .head_dim = DIM,
                            .page_tokens = PAGE, .pages = PAGES, .sequences = 1, .dtype = dtype),
        &cache));
    gpu_poison(tsr__kv_cache_memory(cache));
    GPU_OK(tsr_kv_cache_add(cache, -1, &sequence));
    attention_case c = {.batch = 1,
                        .heads = HEADS,
                        .kv_heads = KV_HEADS - 1,
                        .q_len = now,
                        .kv_len = total,
                        .head_dim = DIM,
                        .value_dim = DIM,
                        .causal = true};
    const int64_t keys = attention_keys_count(&c), rows = attention_queries_count(&c);
    c.q = attention_random_values(&random, rows * DIM, 1, TSR_F32);
    c.k = attention_random_values(&random, keys * DIM, 2, TSR_F32);
    c.v = attention_random_values(&random, keys * DIM, 2, TSR_F32);
    tsr_tensor *all[2], *part[2], *q = gpu_new(TSR_F32, 4, (int64_t[]){1, HEADS, now, DIM}),
                                  *y = gpu_new(TSR_F32, 4, (int64_t[]){1, HEADS, now, DIM}),
                                  *lse = gpu_new(TSR_F32, 3, (int64_t[]){1, HEADS, now});
    for (int i = 0; i < 2; i++) {
        all[i] = gpu_new(TSR_F32, 4, (int64_t[]){1, c.kv_heads, total, DIM});
        gpu_put(all[i], i == 0 ? c.k : c.v);
    }
    gpu_put(q, c.q);
    gpu_poison(y);
    for (int step = 0, from = 0; step < 2; from += (int)counts[step++]) {
        for (int i = 0; i < 2; i++)
            GPU_OK(tsr_tensor_slice(all[i], 2, from, from + counts[step], 1, &part[i]));
        GPU_OK(tsr_kv_cache_begin(cache, 1, &sequence, &counts[step], NULL));
        if (step == 0)
            GPU_OK(tsr_kv_cache_append(cache, 0, part[0], part[1]));
        else
            GPU_OK(tsr__kv_cache_append_and_attend(cache, 0, NULL, y, q, part[0], part[1],
                                                   tsr_attention_params(.causal = true)));
        tsr_tensor_destroy(&part[0]);
        tsr_tensor_destroy(&part[1]);
    }
    free(quantised(dtype, c.k, keys * DIM, true));
    free(quantised(dtype, c.v, keys * DIM, true));
    attention_solve(&c);
    double *got = attention_doubles(rows * DIM);
    gpu_get(y, got);
    /* matrix units compute with queries, keys, probabilities and values in 16 bits */
    const bool narrow = now >= 40 && has_matrices();
    attention_compare(tsr_dtype_name(dtype), "y", rows * DIM, got, c.y, 2, narrow ? 2e-3 : 2e-6,
                      TSR_F32);
    if (now >= 40) {
        gpu_poison(y);
        gpu_poison(lse);
        GPU_OK(
            tsr__kv_cache_attend(cache, 0, NULL, y, lse, q, tsr_attention_params(.causal = true)));
        gpu_get(y, got);
        attention_compare("without storing", "y", rows * DIM, got, c.y, 2, narrow ? 2e-3 : 2e-6,
                          TSR_F32);
        gpu_get(lse, got);
        attention_compare("without storing", "lse", rows, got, c.lse, 8, narrow ? 2e-3 : 2e-6,
                          TSR_F32);
    }
    free(got);
    tsr_tensor *tensors[] = {q, y, lse, all[0], all[1]};
    for (int i = 0; i < 5; i++)
        tsr_tensor_destroy(&tensors[i]);
    tsr_kv_cache_destroy(&cache);
    attention_free(&c);
}
END_TEST

/* Elements that a block cannot hold ------------------------------------------------------------ */

/* A block with NaN or an infinite element, or with elements too large for its scale, has only NaN
 * or infinite elements, or both. A block whose scale is 0 has only zeros. */
START_TEST(shows_what_blocks_cannot_hold)
{
    enum { DIM = 32, ROWS = 5 };
    const tsr_dtype dtype = formats[_i];
    const double odd[ROWS] = {NAN, INFINITY, -INFINITY, 1e9, 1e-40};
    double values[ROWS * DIM], got[2 * PAGE * DIM];
    tsr_kv_cache *cache = NULL;
    int sequence;
    GPU_OK(tsr_kv_cache_create(tsr_kv_cache_params(.stream = queue, .layers = 1, .kv_heads = 1,
                                                   .head_dim = DIM, .page_tokens = PAGE, .pages = 1,
                                                   .sequences = 1, .dtype = dtype),
                               &cache));
    GPU_OK(tsr_kv_cache_add(cache, -1, &sequence));
    GPU_OK(tsr_kv_cache_begin(cache, 1, &sequence, &(int64_t){ROWS}, NULL));
    for (int r = 0; r < ROWS; r++)
        for (int d = 0; d < DIM; d++)
            values[r * DIM + d] = d == 9 ? odd[r] : r == ROWS - 1 ? 0 : 0.5;
    tsr_tensor *k = gpu_new(TSR_F32, 4, (int64_t[]){1, 1, ROWS, DIM}),
               *plain = gpu_new(TSR_F32, 1, (int64_t[]){2 * PAGE * DIM}), flat;
    gpu_put(k, values);
    GPU_OK(tsr_kv_cache_append(cache, 0, k, k));
    flat = *tsr__kv_cache_memory(cache);
    GPU_OK(tsr_layout_reshape(&flat.layout, 1, (int64_t[]){2 * PAGE * DIM}, &flat.layout));
    GPU_OK(tsr_copy(queue, plain, &flat));
    gpu_get(plain, got);
    for (int r = 0; r < ROWS; r++)
        for (int d = 0; d < DIM; d++)
            ck_assert(r == ROWS - 1 ? got[r * DIM + d] == 0
                      : r < 3       ? isnan(got[r * DIM + d])
                                    : !isfinite(got[r * DIM + d]));
    tsr_tensor_destroy(&k);
    tsr_tensor_destroy(&plain);
    tsr_kv_cache_destroy(&cache);
}
END_TEST

START_TEST(refuses)
{
    tsr_kv_cache *cache = NULL;
    const int64_t values[] = {48};
    tsr_kv_cache_params p = {.struct_size = sizeof p,
                             .stream = queue,
                             .layers = 1,
                             .kv_heads = 1,
                             .head_dim = 80,
                             .pages = 1,
                             .sequences = 1,
                             .dtype = TSR_Q8_0};
    GPU_FAILS(tsr_kv_cache_create(&p, &cache), TSR_ERR_INVALID,
              "the keys of layer 0 have 80 features and its values 80; q8_0 needs multiples of 32");
    p.head_dim = 64;
    p.layer_value_dims = values;
    p.dtype = TSR_Q4_0;
    GPU_FAILS(tsr_kv_cache_create(&p, &cache), TSR_ERR_INVALID,
              "the keys of layer 0 have 64 features and its values 48; q4_0 needs multiples of 32");
    p.dtype = TSR_Q4_K;
    GPU_FAILS(tsr_kv_cache_create(&p, &cache), TSR_ERR_INVALID,
              "dtype is q4_k; f32, f16, bf16, q8_0 or q4_0 is needed");
    ck_assert_ptr_null(cache);

    const int64_t four[] = {1, 1, 2, 64};
    tsr_tensor *k = gpu_new(TSR_Q8_0, 4, four), *other = gpu_new(TSR_Q5_0, 4, four),
               *x = gpu_new(TSR_F32, 4, four), *y = gpu_new(TSR_F32, 4, four),
               *lse = gpu_new(TSR_F32, 3, four), *flat = gpu_new(TSR_Q8_0, 1, (int64_t[]){64});
    GPU_FAILS(tsr_attention(queue, y, NULL, x, other, x, tsr_attention_params(0)), TSR_ERR_INVALID,
              "attention: k is q5_0; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_attention(queue, y, NULL, k, k, x, tsr_attention_params(0)), TSR_ERR_INVALID,
              "attention: q is q8_0; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_attention(queue, y, NULL, x, x, flat, tsr_attention_params(0)), TSR_ERR_INVALID,
              "attention: v is [64]; 4 dimensions are needed");
    GPU_FAILS(tsr_attention_grad(queue, y, NULL, NULL, x, x, lse, x, k, x, tsr_attention_params(0)),
              TSR_ERR_INVALID, "attention_grad: k is q8_0; f32, f16 or bf16 is needed");
    tsr_tensor *tensors[] = {k, other, x, y, lse, flat};
    for (int i = 0; i < 6; i++)
        tsr_tensor_destroy(&tensors[i]);
}
END_TEST

TESTS(cache_blocks)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, attends_to_some_blocks, 0, 3);
    tcase_add_loop_test(tests, stores_what_the_host_makes, 0, 6);
    tcase_add_loop_test(tests, attends_to_pages, 1, 2);
    tcase_add_loop_test(tests, attends_to_pages, 4, 5);
    tcase_add_loop_test(tests, shows_what_blocks_cannot_hold, 0, 2);
    tcase_add_test(tests, refuses);
}

TESTS(cache_blocks_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, attends_to_blocks, 0, SHAPES);
    tcase_add_loop_test(tests, attends_in_16_bits, 4, SHAPES);
    tcase_add_loop_test(tests, attends_to_pages, 0, 5);
}
