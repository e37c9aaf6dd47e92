/* Cases of attention, also with keys and values in blocks. A case computes an operation on the
 * device and, in c->value, on the host (case.h). */
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "gpu/checks/cases.h"
#include "gpu/internal.h"
#include "gpu/kv_cache/kv_cache.h"
#include "tensor/check.h"
#include "tessera/attention.h"
#include "tessera/ops.h"
#include "tessera/quant.h"
#include "tessera/rope.h"

/* Attention of two heads that read one kv head, with a causal mask -------------------------------
 */

/* Rows in blocks have BLOCK_WIDTH features. */
enum { HEADS = 2, WIDTH = 24, BLOCK_WIDTH = 32 };
/* Attention with 40 queries and more uses the kernels with cooperative matrices, and the gradients
 * with 128 and more those with matrices that a workgroup shares. */
enum {
    QUERIES = 37,
    KEYS = QUERIES + 4,
    MANY_QUERIES = 101,
    MANY_KEYS = MANY_QUERIES + 4,
    MOST_QUERIES = 133,
    MOST_KEYS = MOST_QUERIES + 4
};
/* Keys of one query that GPUs divide into several ranges. */
enum { LONG_KEYS = 300 };

static double dot(const double *a, const double *b, int width)
{
    double sum = 0;

    for (int i = 0; i < width; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Writes the attention probabilities of the first `seen` keys for the query `q` to `p`. Returns the
 * logarithm of the sum of the exponentials of its scores. */
static double probabilities(const double *q, const double *k, int width, int seen, double *p)
{
    double largest = -INFINITY, sum = 0;

    for (int j = 0; j < seen; j++) {
        p[j] = dot(q, k + (ptrdiff_t)j * width, width) / sqrt(width);
        largest = fmax(largest, p[j]);
    }
    for (int j = 0; j < seen; j++)
        sum += exp(p[j] - largest);
    const double lse = largest + log(sum);
    for (int j = 0; j < seen; j++)
        p[j] = exp(p[j] - lse);
    return lse;
}

/* The number of keys that a query sees. Row r of tensor q is query r % queries of head r / queries.
 */
static int seen_by(int r, int keys, int queries)
{
    return keys - queries + r % queries + 1;
}

/* Computes one query's result, `y`. Returns the same as probabilities(). */
static double attend(const double *q, const double *k, const double *v, int width, int seen,
                     double *y)
{
    double p[LONG_KEYS];
    const double lse = probabilities(q, k, width, seen, p);

    for (int i = 0; i < width; i++)
        y[i] = 0;
    for (int j = 0; j < seen; j++)
        for (int i = 0; i < width; i++)
            y[i] += p[j] * v[j * width + i];
    return lse;
}

/* Adds q, k and v, which are tensors 0 to 2. */
static tsr_status add_inputs(tsr__case *c, tsr_dtype dtype, int keys, int queries)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, HEADS, queries, WIDTH)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, 1, keys, WIDTH)));
    return tsr__case_input(c, dtype, TSR__SHAPE_4(1, 1, keys, WIDTH));
}

/* Adds the result of attention with the inputs, whose heads are `width` wide, and computes it. */
static tsr_status attend_inputs(tsr__case *c, tsr_dtype dtype, int width, int keys, int queries)
{
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, HEADS, queries, width)));
    for (int r = 0; r < HEADS * queries; r++)
        (void)attend(c->value[0] + (size_t)r * (size_t)width, c->value[1], c->value[2], width,
                     seen_by(r, keys, queries), c->value[3] + (size_t)r * (size_t)width);
    return tsr_attention(c->stream, c->tensor[3], NULL, c->tensor[0], c->tensor[1], c->tensor[2],
                         tsr_attention_params(.causal = true));
}

static tsr_status attention(tsr__case *c, tsr_dtype dtype, int keys, int queries)
{
    TSR__TRY(add_inputs(c, dtype, keys, queries));
    return attend_inputs(c, dtype, WIDTH, keys, queries);
}

tsr_status tsr__case_attention(tsr__case *c, tsr_dtype dtype)
{
    return attention(c, dtype, KEYS, QUERIES);
}

/* Adds the gradients that query number r causes: ds = p · (dp − Σ p · dp), where dp = dy · vᵀ. */
static void add_gradients(tsr__case *c, int r, int keys, int queries)
{
    double p[MANY_KEYS], dp[MANY_KEYS], mean = 0;
    const double *q = c->value[0] + (size_t)r * WIDTH, *dy = c->value[3] + (size_t)r * WIDTH;
    double *dq = c->value[6] + (size_t)r * WIDTH;
    const int seen = seen_by(r, keys, queries);

    (void)probabilities(q, c->value[1], WIDTH, seen, p);
    for (int j = 0; j < seen; j++) {
        dp[j] = dot(dy, c->value[2] + (size_t)j * WIDTH, WIDTH);
        mean += p[j] * dp[j];
    }
    for (int j = 0; j < seen; j++) {
        const double ds = p[j] * (dp[j] - mean) / sqrt(WIDTH);
        const size_t key = (size_t)j * WIDTH;
        for (int i = 0; i < WIDTH; i++) {
            dq[i] += ds * c->value[1][key + (size_t)i];
            c->value[7][key + (size_t)i] += ds * q[i];
            c->value[8][key + (size_t)i] += p[j] * dy[i];
        }
    }
}

/* Tests the gradients of attention. The host computes the inputs y and lse, so that the test does
 * not depend on the forward kernel. */
static tsr_status attention_grad(tsr__case *c, tsr_dtype dtype, int keys, int queries)
{
    TSR__TRY(add_inputs(c, dtype, keys, queries));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, HEADS, queries, WIDTH)));
    for (int r = 0; r < HEADS * queries; r++)
        c->value[5][r] = attend(c->value[0] + (size_t)r * WIDTH, c->value[1], c->value[2], WIDTH,
                                seen_by(r, keys, queries), c->value[4] + (size_t)r * WIDTH);
    TSR__TRY(tsr__case_given(c, dtype, TSR__SHAPE_4(1, HEADS, queries, WIDTH)));
    TSR__TRY(tsr__case_given(c, TSR_F32, TSR__SHAPE_3(1, HEADS, queries)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, HEADS, queries, WIDTH)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, 1, keys, WIDTH)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, 1, keys, WIDTH)));
    for (int r = 0; r < HEADS * queries; r++)
        add_gradients(c, r, keys, queries);
    return tsr_attention_grad(c->stream, c->tensor[6], c->tensor[7], c->tensor[8], c->tensor[3],
                              c->tensor[4], c->tensor[5], c->tensor[0], c->tensor[1], c->tensor[2],
                              tsr_attention_params(.causal = true));
}

tsr_status tsr__case_attention_grad(tsr__case *c, tsr_dtype dtype)
{
    return attention_grad(c, dtype, KEYS, QUERIES);
}

/* Tests the kernel that computes delta, Σ dy · y of each query. With 16-bit tensors, only kernels
 * with cooperative matrices read delta, so there are enough queries that these are used. */
tsr_status tsr__case_attention_delta(tsr__case *c, tsr_dtype dtype)
{
    return attention_grad(c, dtype, MANY_KEYS, MANY_QUERIES);
}

/* Tests the gradients of sinks, which the library computes from delta and lse. */
tsr_status tsr__case_attention_sinks(tsr__case *c, tsr_dtype dtype)
{
    static const double sinks[HEADS] = {0.75, -0.5};

    TSR__TRY(add_inputs(c, dtype, KEYS, QUERIES));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, HEADS, QUERIES, WIDTH)));
    for (int r = 0; r < HEADS * QUERIES; r++) {
        double *y = c->value[4] + (size_t)r * WIDTH;
        const double sink = sinks[r / QUERIES],
                     without = attend(c->value[0] + (size_t)r * WIDTH, c->value[1], c->value[2],
                                      WIDTH, seen_by(r, KEYS, QUERIES), y);
        c->value[5][r] = log(exp(without) + exp(sink));
        for (int i = 0; i < WIDTH; i++)
            y[i] *= exp(without - c->value[5][r]);
    }
    TSR__TRY(tsr__case_given(c, dtype, TSR__SHAPE_4(1, HEADS, QUERIES, WIDTH)));
    TSR__TRY(tsr__case_given(c, TSR_F32, TSR__SHAPE_3(1, HEADS, QUERIES)));
    for (int h = 0; h < HEADS; h++)
        c->value[6][h] = sinks[h];
    TSR__TRY(tsr__case_given(c, TSR_F32, TSR__SHAPE_1(HEADS)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(HEADS)));
    for (int r = 0; r < HEADS * QUERIES; r++)
        c->value[7][r / QUERIES] -=
            exp(sinks[r / QUERIES] - c->value[5][r]) *
            dot(c->value[3] + (size_t)r * WIDTH, c->value[4] + (size_t)r * WIDTH, WIDTH);
    return tsr_attention_grad(
        c->stream, NULL, NULL, NULL, c->tensor[3], c->tensor[4], c->tensor[5], c->tensor[0],
        c->tensor[1], c->tensor[2],
        tsr_attention_params(.causal = true, .sinks = c->tensor[6], .dsinks = c->tensor[7]));
}

tsr_status tsr__case_attention_coopmat(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_require_matrices(c, dtype));
    return attention(c, dtype, MANY_KEYS, MANY_QUERIES);
}

tsr_status tsr__case_attention_coopmat_grad(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_require_matrices(c, dtype));
    return attention_grad(c, dtype, MANY_KEYS, MANY_QUERIES);
}

tsr_status tsr__case_attention_coopmat2_grad(tsr__case *c, tsr_dtype dtype)
{
    const tsr_device_info *info = tsr_device_get_info(tsr_stream_device(c->stream));
    if (!(dtype == TSR_F16 ? info->coopmat2 : info->coopmat2_bf16))
        return TSR_ERR_UNSUPPORTED;
    return attention_grad(c, dtype, MOST_KEYS, MOST_QUERIES);
}

/* A call with lse, for which one invocation multiplies a key. */
tsr_status tsr__case_attention_few(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(add_inputs(c, dtype, KEYS, 1));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, HEADS, 1, WIDTH)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_3(1, HEADS, 1)));
    for (int r = 0; r < HEADS; r++)
        c->value[4][r] = attend(c->value[0] + (size_t)r * WIDTH, c->value[1], c->value[2], WIDTH,
                                KEYS, c->value[3] + (size_t)r * WIDTH);
    return tsr_attention(c->stream, c->tensor[3], c->tensor[4], c->tensor[0], c->tensor[1],
                         c->tensor[2], tsr_attention_params(.causal = true));
}

tsr_status tsr__case_attention_lanes(tsr__case *c, tsr_dtype dtype)
{
    return attention(c, dtype, KEYS, 1);
}

tsr_status tsr__case_attention_joined(tsr__case *c, tsr_dtype dtype)
{
    return attention(c, dtype, LONG_KEYS, 1);
}

/* One token of two heads after six others, whose keys and values are in a cache with pages of four.
 * Tensor 0 has the token's queries, key and value, tensors 1 and 2 have the other keys and values.
 * The token's query and key are rotated. */
enum { BEFORE = 6, PAGE = 4, PAGES = 2 };

static void rotate(double *row, int position)
{
    for (int i = 0; i < WIDTH / 2; i++) {
        const double angle = position * pow(10000, -2.0 * i / WIDTH), u = row[i],
                     w = row[i + WIDTH / 2];
        row[i] = u * cos(angle) - w * sin(angle);
        row[i + WIDTH / 2] = u * sin(angle) + w * cos(angle);
    }
}

/* Computes y, tensor 3, and the cache, tensor 4, on the host. */
static void attend_appended(tsr__case *c)
{
    double keys[(BEFORE + 1) * WIDTH], values[(BEFORE + 1) * WIDTH], row[WIDTH];
    const double *token = c->value[0];
    const size_t heads = HEADS, width = WIDTH, before = BEFORE, page_length = PAGE;

    memcpy(keys, c->value[1], before * width * sizeof *keys);
    memcpy(values, c->value[2], before * width * sizeof *values);
    memcpy(keys + before * width, token + heads * width, width * sizeof *keys);
    memcpy(values + before * width, token + (heads + 1) * width, width * sizeof *values);
    rotate(keys + before * width, BEFORE);
    for (size_t h = 0; h < heads; h++) {
        memcpy(row, token + h * width, sizeof row);
        rotate(row, BEFORE);
        (void)attend(row, keys, values, WIDTH, BEFORE + 1, c->value[3] + h * width);
    }
    for (size_t j = 0; j <= before; j++)
        for (size_t i = 0; i < width; i++) {
            double *page = c->value[4] + j / page_length * 2 * page_length * width;
            page[j % page_length * width + i] = keys[j * width + i];
            page[(page_length + j % page_length) * width + i] = values[j * width + i];
        }
}

static tsr_status append_and_attend(const tsr__case *c, tsr_kv_cache *cache, const tsr_rope *rope)
{
    static const int64_t first[] = {0, HEADS, HEADS + 1, HEADS + 2};
    tsr_tensor part[3];
    int sequence;

    for (int i = 0; i < 3; i++) {
        part[i] = *c->tensor[0];
        TSR__TRY(
            tsr_layout_slice(&c->tensor[0]->layout, 1, first[i], first[i + 1], 1, &part[i].layout));
    }
    TSR__TRY(tsr_fill(c->stream, tsr__kv_cache_memory(cache), 0));
    TSR__TRY(tsr_kv_cache_add(cache, -1, &sequence));
    TSR__TRY(tsr_kv_cache_begin(cache, 1, &sequence, &(int64_t){BEFORE}, NULL));
    TSR__TRY(tsr_kv_cache_append(cache, 0, c->tensor[1], c->tensor[2]));
    TSR__TRY(tsr_kv_cache_begin(cache, 1, &sequence, &(int64_t){1}, NULL));
    TSR__TRY(tsr__kv_cache_append_and_attend(cache, 0, rope, c->tensor[3], &part[0], &part[1],
                                             &part[2], tsr_attention_params(.causal = true)));
    return tsr_copy(c->stream, c->tensor[4], tsr__kv_cache_memory(cache));
}

tsr_status tsr__case_attention_append(tsr__case *c, tsr_dtype dtype)
{
    tsr_kv_cache *cache = NULL;
    tsr_rope *rope = NULL;
    const int64_t shape[] = {1, PAGES, 2, PAGE, WIDTH};

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, HEADS + 2, 1, WIDTH)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, 1, BEFORE, WIDTH)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, 1, BEFORE, WIDTH)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, HEADS, 1, WIDTH)));
    TSR__TRY(tsr__case_output(c, dtype, 5, shape));
    attend_appended(c);
    tsr_status status = tsr_kv_cache_create(
        tsr_kv_cache_params(.stream = c->stream, .layers = 1, .kv_heads = 1, .head_dim = WIDTH,
                            .dtype = dtype, .page_tokens = PAGE, .pages = PAGES, .sequences = 1),
        &cache);
    if (status == TSR_OK)
        status = tsr_rope_create(c->stream, tsr_rope_params(.rotary_dim = WIDTH), &rope);
    if (status == TSR_OK)
        status = append_and_attend(c, cache, rope);
    tsr_rope_destroy(&rope);
    tsr_kv_cache_destroy(&cache);
    return status;
}

/* Keys and values in blocks -------------------------------------------------------------------- */

/* Attention of two heads with the blocks of one kv head. Queries and results are floats. */
static tsr_status attend_blocks(tsr__case *c, tsr_dtype floats, tsr_dtype format, int keys,
                                int queries)
{
    TSR__TRY(tsr__case_input(c, floats, TSR__SHAPE_4(1, HEADS, queries, BLOCK_WIDTH)));
    for (int i = 0; i < 2; i++)
        TSR__TRY(tsr__case_blocks(c, format, TSR__SHAPE_4(1, 1, keys, BLOCK_WIDTH)));
    return attend_inputs(c, floats, BLOCK_WIDTH, keys, queries);
}

tsr_status tsr__case_attention_blocks(tsr__case *c, tsr_dtype format)
{
    return attend_blocks(c, TSR_F32, format, KEYS, QUERIES);
}

tsr_status tsr__case_attention_blocks_coopmat(tsr__case *c, tsr_dtype format)
{
    TSR__TRY(tsr__case_require_matrices(c, TSR_F16));
    return attend_blocks(c, TSR_F16, format, MANY_KEYS, MANY_QUERIES);
}

/* Copies rows of floats to places in the cache, tensor `cached`, as it reads its blocks of them.
 * `what` is 0 for keys, and 1 for values. */
static tsr_status put_in_cache(tsr__case *c, int cached, tsr_dtype format, int what,
                               const double *rows, int first, int count)
{
    for (int j = first; j < first + count; j++) {
        float row[BLOCK_WIDTH];
        uint8_t blocks[2 * BLOCK_WIDTH];
        uint64_t bytes;
        for (int i = 0; i < BLOCK_WIDTH; i++)
            row[i] = (float)rows[(j - first) * BLOCK_WIDTH + i];
        TSR__TRY(tsr_quant_bytes(format, BLOCK_WIDTH, &bytes));
        TSR__TRY(tsr_quantize(format, row, BLOCK_WIDTH, blocks, bytes));
        TSR__TRY(tsr_dequantize(format, blocks, bytes, row, BLOCK_WIDTH));
        for (int i = 0; i < BLOCK_WIDTH; i++)
            c->value[cached][(((j / PAGE) * 2 + what) * PAGE + j % PAGE) * BLOCK_WIDTH + i] =
                (double)row[i];
    }
    return TSR_OK;
}

/* Copies the cache, whose pages have keys and values of one head, to a vector of floats. */
static tsr_status get_cache(const tsr__case *c, tsr_kv_cache *cache, tsr_tensor *to)
{
    tsr_tensor flat = *tsr__kv_cache_memory(cache);

    TSR__TRY(tsr_layout_reshape(&flat.layout, 1, to->layout.shape, &flat.layout));
    return tsr_copy(c->stream, to, &flat);
}

/* A cache of blocks with pages of four tokens gets six of them. Places without a token stay 0. */
static tsr_status create_filled(const tsr__case *c, tsr_dtype format, const tsr_tensor *k,
                                const tsr_tensor *v, tsr_kv_cache **out)
{
    int sequence;

    TSR__TRY(tsr_kv_cache_create(tsr_kv_cache_params(.stream = c->stream, .layers = 1,
                                                     .kv_heads = 1, .head_dim = BLOCK_WIDTH,
                                                     .dtype = format, .page_tokens = PAGE,
                                                     .pages = PAGES, .sequences = 1),
                                 out));
    tsr__access whole = tsr__write_buffer(tsr__kv_cache_memory(*out)->buffer);
    whole.end_bytes = tsr__align_up_u64(whole.end_bytes, 4);
    TSR__TRY(tsr__stream_fill(c->stream, whole, 0));
    TSR__TRY(tsr_kv_cache_add(*out, -1, &sequence));
    TSR__TRY(tsr_kv_cache_begin(*out, 1, &sequence, &(int64_t){BEFORE}, NULL));
    return tsr_kv_cache_append(*out, 0, k, v);
}

enum { CACHED = PAGES * 2 * PAGE * BLOCK_WIDTH };

tsr_status tsr__case_kv_append_blocks(tsr__case *c, tsr_dtype format)
{
    tsr_kv_cache *cache = NULL;

    for (int i = 0; i < 2; i++)
        TSR__TRY(tsr__case_input(c, TSR_F32, TSR__SHAPE_4(1, 1, BEFORE, BLOCK_WIDTH)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(CACHED)));
    for (int i = 0; i < 2; i++)
        TSR__TRY(put_in_cache(c, 2, format, i, c->value[i], 0, BEFORE));
    tsr_status status = create_filled(c, format, c->tensor[0], c->tensor[1], &cache);
    if (status == TSR_OK)
        status = get_cache(c, cache, c->tensor[2]);
    tsr_kv_cache_destroy(&cache);
    return status;
}

/* As tsr__case_attention_append, without rotation. */
tsr_status tsr__case_attention_append_blocks(tsr__case *c, tsr_dtype format)
{
    enum { TOKENS = BEFORE + 1, Y = 3, CACHE };
    static const int64_t first[] = {0, HEADS, HEADS + 1, HEADS + 2};
    const size_t width = BLOCK_WIDTH;
    double rows[2][TOKENS * BLOCK_WIDTH];
    tsr_kv_cache *cache = NULL;
    tsr_tensor part[3];
    int sequence = 0;

    TSR__TRY(tsr__case_input(c, TSR_F32, TSR__SHAPE_4(1, HEADS + 2, 1, BLOCK_WIDTH)));
    for (int i = 0; i < 2; i++)
        TSR__TRY(tsr__case_input(c, TSR_F32, TSR__SHAPE_4(1, 1, BEFORE, BLOCK_WIDTH)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_4(1, HEADS, 1, BLOCK_WIDTH)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(CACHED)));
    for (int i = 0; i < 2; i++) {
        TSR__TRY(put_in_cache(c, CACHE, format, i, c->value[1 + i], 0, BEFORE));
        TSR__TRY(put_in_cache(c, CACHE, format, i, c->value[0] + (HEADS + (size_t)i) * width,
                              BEFORE, 1));
        for (size_t j = 0; j < TOKENS; j++)
            memcpy(rows[i] + j * width,
                   c->value[CACHE] + ((j / PAGE * 2 + (size_t)i) * PAGE + j % PAGE) * width,
                   width * sizeof **rows);
    }
    for (size_t h = 0; h < HEADS; h++)
        (void)attend(c->value[0] + h * width, rows[0], rows[1], BLOCK_WIDTH, TOKENS,
                     c->value[Y] + h * width);
    for (int i = 0; i < 3; i++) {
        part[i] = *c->tensor[0];
        TSR__TRY(
            tsr_layout_slice(&c->tensor[0]->layout, 1, first[i], first[i + 1], 1, &part[i].layout));
    }
    tsr_status status = create_filled(c, format, c->tensor[1], c->tensor[2], &cache);
    if (status == TSR_OK)
        status = tsr_kv_cache_begin(cache, 1, &sequence, &(int64_t){1}, NULL);
    if (status == TSR_OK)
        status = tsr__kv_cache_append_and_attend(cache, 0, NULL, c->tensor[Y], &part[0], &part[1],
                                                 &part[2], tsr_attention_params(.causal = true));
    if (status == TSR_OK)
        status = get_cache(c, cache, c->tensor[CACHE]);
    tsr_kv_cache_destroy(&cache);
    return status;
}
