/* Cases of attention, packing, and products with weights in blocks. A case computes an operation on
 * the device and, in c->value, on the host (case.h). */
#include <math.h>
#include <string.h>

#include "base/float16.h"
#include "gpu/checks/cases.h"
#include "gpu/device/coopmat.h"
#include "gpu/internal.h"
#include "gpu/kv_cache/kv_cache.h"
#include "gpu/matmul/narrowed.h"
#include "quant/block_format.h"
#include "tensor/check.h"
#include "tessera/attention.h"
#include "tessera/matmul.h"
#include "tessera/moe.h"
#include "tessera/ops.h"
#include "tessera/quant.h"
#include "tessera/rope.h"

/* Attention of two heads that read one kv head, with a causal mask -------------------------------
 */

enum { HEADS = 2, WIDTH = 24 };
/* Attention with more than 40 queries uses the kernels with cooperative matrices, so there are
 * cases with fewer and with more. */
enum { QUERIES = 37, KEYS = QUERIES + 4, MANY_QUERIES = 101, MANY_KEYS = MANY_QUERIES + 4 };
/* Keys of one query that GPUs divide into several ranges. */
enum { LONG_KEYS = 300 };

static double dot(const double *a, const double *b)
{
    double sum = 0;

    for (int i = 0; i < WIDTH; i++)
        sum += a[i] * b[i];
    return sum;
}

/* Writes the attention probabilities of the first `seen` keys for the query `q` to `p`. Returns the
 * logarithm of the sum of the exponentials of its scores. */
static double probabilities(const double *q, const double *k, int seen, double *p)
{
    double largest = -INFINITY, sum = 0;

    for (int j = 0; j < seen; j++) {
        p[j] = dot(q, k + (size_t)j * WIDTH) / sqrt(WIDTH);
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
static double attend(const double *q, const double *k, const double *v, int seen, double *y)
{
    double p[LONG_KEYS];
    const double lse = probabilities(q, k, seen, p);

    for (int i = 0; i < WIDTH; i++)
        y[i] = 0;
    for (int j = 0; j < seen; j++)
        for (int i = 0; i < WIDTH; i++)
            y[i] += p[j] * v[j * WIDTH + i];
    return lse;
}

/* Adds q, k and v, which are tensors 0 to 2. */
static tsr_status add_inputs(tsr__case *c, tsr_dtype dtype, int keys, int queries)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, HEADS, queries, WIDTH)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, 1, keys, WIDTH)));
    return tsr__case_input(c, dtype, TSR__SHAPE_4(1, 1, keys, WIDTH));
}

static tsr_status attention(tsr__case *c, tsr_dtype dtype, int keys, int queries)
{
    TSR__TRY(add_inputs(c, dtype, keys, queries));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, HEADS, queries, WIDTH)));
    for (int r = 0; r < HEADS * queries; r++)
        (void)attend(c->value[0] + (size_t)r * WIDTH, c->value[1], c->value[2],
                     seen_by(r, keys, queries), c->value[3] + (size_t)r * WIDTH);
    return tsr_attention(c->stream, c->tensor[3], NULL, c->tensor[0], c->tensor[1], c->tensor[2],
                         tsr_attention_params(.causal = true));
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

    (void)probabilities(q, c->value[1], seen, p);
    for (int j = 0; j < seen; j++) {
        dp[j] = dot(dy, c->value[2] + (size_t)j * WIDTH);
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
        c->value[5][r] = attend(c->value[0] + (size_t)r * WIDTH, c->value[1], c->value[2],
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
                                      seen_by(r, KEYS, QUERIES), y);
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
            dot(c->value[3] + (size_t)r * WIDTH, c->value[4] + (size_t)r * WIDTH);
    return tsr_attention_grad(
        c->stream, NULL, NULL, NULL, c->tensor[3], c->tensor[4], c->tensor[5], c->tensor[0],
        c->tensor[1], c->tensor[2],
        tsr_attention_params(.causal = true, .sinks = c->tensor[6], .dsinks = c->tensor[7]));
}

/* Fails if the device has no cooperative matrices for the dtype, because it would compute the case
 * with another kernel. */
static tsr_status require_matrices(const tsr__case *c, tsr_dtype dtype)
{
    const tsr_device *device = tsr_stream_device(c->stream);
    return !device->traits.not_a_chip && tsr__coopmat_used(device, dtype) ? TSR_OK
                                                                          : TSR_ERR_UNSUPPORTED;
}

tsr_status tsr__case_attention_coopmat(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(require_matrices(c, dtype));
    return attention(c, dtype, MANY_KEYS, MANY_QUERIES);
}

tsr_status tsr__case_attention_coopmat_grad(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(require_matrices(c, dtype));
    return attention_grad(c, dtype, MANY_KEYS, MANY_QUERIES);
}

/* A call with lse, for which one invocation multiplies a key. */
tsr_status tsr__case_attention_few(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(add_inputs(c, dtype, KEYS, 1));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, HEADS, 1, WIDTH)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_3(1, HEADS, 1)));
    for (int r = 0; r < HEADS; r++)
        c->value[4][r] = attend(c->value[0] + (size_t)r * WIDTH, c->value[1], c->value[2], KEYS,
                                c->value[3] + (size_t)r * WIDTH);
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
        (void)attend(row, keys, values, BEFORE + 1, c->value[3] + h * width);
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

/* Weights in blocks ---------------------------------------------------------------------------- */

enum { COLUMNS = 5, DEPTH = 256, LONG_DEPTH = 1280, MAX_WEIGHTS = COLUMNS * LONG_DEPTH };

/* Makes blocks of a format to which the library cannot quantise: the elements are arbitrary bits,
 * and the scales are small. */
static void invent_blocks(const tsr_quant_format *format, uint8_t *blocks, uint64_t bytes)
{
    const uint16_t scale = tsr__f16_of_f32(format->block_count == 32 ? 0x1p-10F : 0x1p-15F);

    for (uint64_t i = 0; i < bytes; i++)
        blocks[i] = (uint8_t)(i * 37 + i / 64 + 11);
    for (uint64_t i = 0; i < bytes; i += (uint64_t)format->block_bytes)
        if (format->dtype == TSR_NVFP4)
            for (int group = 0; group < 4; group++)
                /* four scales, from 1/64 to 1/28 */
                blocks[i + (uint64_t)group] = (uint8_t)(8 + 3 * group);
        else
            memcpy(blocks + i + tsr__quant_format_of(format->dtype)->factor_offset, &scale,
                   sizeof scale);
}

/* Adds weights in a block format. The host's values are read back from the blocks, so that both
 * sides use the same rounded values. The values of the weights are at most 1/8, so that the
 * products are about 1. */
static tsr_status add_matrices(tsr__case *c, tsr_dtype format, int ndim, const int64_t *shape)
{
    uint8_t blocks[MAX_WEIGHTS * 2];
    float values[MAX_WEIGHTS];
    const int depth = (int)shape[ndim - 1];
    int count = 1;
    uint64_t bytes;

    for (int i = 0; i < ndim; i++)
        count *= (int)shape[i];
    for (int i = 0; i < count; i++)
        values[i] = (float)((i * 29 + i / depth) % 255 - 127) / 1024;
    TSR__TRY(tsr_quant_bytes(format, count, &bytes));
    if (tsr_quant_format_of(format)->quantizes)
        TSR__TRY(tsr_quantize(format, values, count, blocks, bytes));
    else
        invent_blocks(tsr_quant_format_of(format), blocks, bytes);
    TSR__TRY(tsr_dequantize(format, blocks, bytes, values, count));
    for (int i = 0; i < count; i++)
        c->value[c->count][i] = (double)values[i];
    tsr_tensor *weights;
    TSR__TRY(tsr_tensor_create(tsr_stream_device(c->stream), format, ndim, shape, &weights));
    tsr__case_adopt(c, weights);
    return tsr_tensor_upload(c->stream, weights, blocks, bytes);
}

static tsr_status add_weights(tsr__case *c, tsr_dtype format, int columns, int depth)
{
    return add_matrices(c, format, TSR__SHAPE_2(columns, depth));
}

/* Packing and unpacking numbers for slow connections. Each block of 32 has 127/64 as its largest
 * element, so that its scale is a power of two and nothing is rounded. */
tsr_status tsr__case_pack(tsr__case *c, tsr_dtype dtype)
{
    enum { COUNT = 32 * 5 + 7 };
    tsr_tensor *packed;

    for (int i = 0; i < COUNT; i++)
        c->value[0][i] = (i % 32 == 0 ? 127 : i * 29 % 255 - 127) / 64.0;
    TSR__TRY(tsr__case_given(c, dtype, TSR__SHAPE_1(COUNT)));
    TSR__TRY(tsr_tensor_create(tsr_stream_device(c->stream), TSR_U32,
                               TSR__SHAPE_1(tsr__packed_words(COUNT)), &packed));
    tsr__case_adopt(c, packed);
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_1(COUNT)));
    for (int i = 0; i < COUNT; i++)
        c->value[2][i] = c->value[0][i];
    TSR__TRY(tsr__pack(c->stream, packed, c->tensor[0]));
    return tsr__unpack_sum(c->stream, c->tensor[2], packed, 1);
}

/* Returns the block format, and writes the dtype of the other tensors, with which a kernel is
 * tested for `dtype`: one of the two is `dtype`. */
static tsr_dtype split(tsr_dtype dtype, tsr_dtype *floats)
{
    const bool block = tsr__dtype_is_block(dtype);

    *floats = block ? TSR_F32 : dtype;
    return block ? dtype : TSR_Q8_0;
}

/* Multiplies tensor 0, [rows,depth], by weights in blocks, [COLUMNS,depth], which this function
 * adds. */
static tsr_status multiply_blocks(tsr__case *c, tsr_dtype dtype, int rows, int depth,
                                  bool allow_int8)
{
    tsr_dtype floats;
    const tsr_dtype format = split(dtype, &floats);

    TSR__TRY(add_weights(c, format, COLUMNS, depth));
    TSR__TRY(tsr__case_output(c, floats, TSR__SHAPE_2(rows, COLUMNS)));
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < COLUMNS; n++)
            for (int k = 0; k < depth; k++)
                c->value[2][r * COLUMNS + n] +=
                    c->value[0][r * depth + k] * c->value[1][n * depth + k];
    return tsr_matmul(c->stream, c->tensor[2], c->tensor[0], c->tensor[1],
                      tsr_matmul_params(.transpose_b = true, .allow_int8 = allow_int8));
}

static tsr_status product_with_blocks(tsr__case *c, tsr_dtype dtype, int rows, int depth)
{
    tsr_dtype floats;

    split(dtype, &floats);
    TSR__TRY(tsr__case_input(c, floats, TSR__SHAPE_2(rows, depth)));
    return multiply_blocks(c, dtype, rows, depth, false);
}

tsr_status tsr__case_quant_product(tsr__case *c, tsr_dtype dtype)
{
    return product_with_blocks(c, dtype, 3, DEPTH);
}

tsr_status tsr__case_long_quant_product(tsr__case *c, tsr_dtype dtype)
{
    return product_with_blocks(c, dtype, 2, LONG_DEPTH);
}

/* The kernel rounds the first tensor to 8 bits, with a scale for each 32 elements. The largest of
 * each 32 is 127/512, so the scale is a power of two and rounding changes nothing. */
tsr_status tsr__case_int8_product(tsr__case *c, tsr_dtype dtype)
{
    enum { ROWS = 2 };
    tsr_dtype floats;

    split(dtype, &floats);
    for (int i = 0; i < ROWS * LONG_DEPTH; i++)
        c->value[0][i] = (i % 32 == 0 ? 127 : i * 29 % 255 - 127) / 512.0;
    TSR__TRY(tsr__case_given(c, floats, TSR__SHAPE_2(ROWS, LONG_DEPTH)));
    return multiply_blocks(c, dtype, ROWS, LONG_DEPTH, true);
}

tsr_status tsr__case_dequantize(tsr__case *c, tsr_dtype dtype)
{
    tsr_dtype floats;
    const tsr_dtype format = split(dtype, &floats);

    TSR__TRY(add_weights(c, format, COLUMNS, DEPTH));
    TSR__TRY(tsr__case_output(c, floats, TSR__SHAPE_2(COLUMNS, DEPTH)));
    for (int i = 0; i < COLUMNS * DEPTH; i++)
        c->value[1][i] = c->value[0][i];
    return tsr_copy(c->stream, c->tensor[1], c->tensor[0]);
}

/* Products of each token and the matrices of two experts. */
static tsr_status grouped_blocks(tsr__case *c, tsr_dtype dtype, int tokens)
{
    enum { EXPERTS = 4, USED = 2 };
    tsr_dtype floats;
    const tsr_dtype format = split(dtype, &floats);

    TSR__TRY(tsr__case_input(c, floats, TSR__SHAPE_2(tokens, DEPTH)));
    TSR__TRY(add_matrices(c, format, TSR__SHAPE_3(EXPERTS, COLUMNS, DEPTH)));
    for (int i = 0; i < tokens * USED; i++)
        c->value[2][i] = i * 7 % 9 % EXPERTS;
    TSR__TRY(tsr__case_given(c, TSR_I32, TSR__SHAPE_2(tokens, USED)));
    TSR__TRY(tsr__case_output(c, floats, TSR__SHAPE_3(tokens, USED, COLUMNS)));
    for (int i = 0; i < tokens * USED * COLUMNS; i++) {
        const int pair = i / COLUMNS, line = (int)c->value[2][pair] * COLUMNS + i % COLUMNS;
        for (int k = 0; k < DEPTH; k++)
            c->value[3][i] += c->value[0][pair / USED * DEPTH + k] * c->value[1][line * DEPTH + k];
    }
    return tsr_matmul_grouped(c->stream, c->tensor[3], c->tensor[0], c->tensor[1], c->tensor[2],
                              NULL);
}

tsr_status tsr__case_grouped_blocks(tsr__case *c, tsr_dtype dtype)
{
    return grouped_blocks(c, dtype, 21);
}

tsr_status tsr__case_grouped_few_blocks(tsr__case *c, tsr_dtype dtype)
{
    return grouped_blocks(c, dtype, 3);
}

/* Rows in f32 are narrowed to f16. */
tsr_status tsr__case_grouped_coopmat_blocks(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(require_matrices(c, TSR_F16));
    return tsr__case_grouped_blocks(c, dtype);
}

static float narrow(float value, tsr_dtype dtype)
{
    return dtype == TSR_F16 ? tsr__f32_of_f16(tsr__f16_of_f32(value))
                            : tsr__f32_of_bf16(tsr__bf16_of_f32(value));
}

/* Computes a line's two terms, and returns the bits of its scale, an f32
 * (shaders/include/matmul_narrow.glsl). */
static double narrow_line(const double *line, tsr_dtype dtype, double *terms)
{
    double largest = 0;
    int exponent;

    for (int k = 0; k < DEPTH; k++)
        largest = fmax(largest, fabs(line[k]));
    (void)frexp(largest, &exponent); /* the largest element is from 2^(exponent − 1) on */
    const int shift = (dtype == TSR_F16 ? 14 : 0) - (exponent - 1);
    for (int k = 0; k < DEPTH; k++) {
        const double scaled = ldexp(line[k], shift);
        terms[k] = (double)narrow((float)scaled, dtype);
        terms[DEPTH + k] = (double)narrow((float)(scaled - terms[k]), dtype);
    }
    return ldexp(127 - shift, 23);
}

/* Narrows lines of f32 to one term, with an RMS norm or with an activation and a factor. */
static tsr_status narrow_rows(tsr__case *c, tsr_dtype dtype, bool gated)
{
    enum { LINES = 3 };
    const int64_t pitch = tsr__matmul_line_elements(DEPTH, 1);
    tsr__matmul_norm norm = {.epsilon = 1e-3F};
    tsr__matmul_gate gate = {.activation = TSR_ACT_SILU};
    tsr_tensor *lines, *view;

    if (dtype == TSR_F32)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: lines are not narrowed to f32");
    TSR__TRY(tsr__case_input(c, TSR_F32, TSR__SHAPE_2(LINES, DEPTH)));
    TSR__TRY(gated ? tsr__case_input(c, TSR_F32, TSR__SHAPE_2(LINES, DEPTH))
                   : tsr__case_input(c, TSR_F32, TSR__SHAPE_1(DEPTH)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(LINES, DEPTH)));
    TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_2(LINES, 1)));
    TSR__TRY(tsr_tensor_create(tsr_stream_device(c->stream), TSR_I32,
                               TSR__SHAPE_2(LINES, pitch / 2), &lines));
    tsr__case_adopt(c, lines);
    for (int r = 0; r < LINES; r++) {
        const double *x = c->value[0] + (ptrdiff_t)r * DEPTH;
        double line[DEPTH], terms[2 * DEPTH], squares = 0;
        for (int k = 0; k < DEPTH; k++)
            squares += x[k] * x[k];
        for (int k = 0; k < DEPTH; k++)
            line[k] = gated ? x[k] / (1 + exp(-x[k])) * c->value[1][r * DEPTH + k]
                            : x[k] / sqrt(squares / DEPTH + (double)norm.epsilon) * c->value[1][k];
        c->value[3][r] = narrow_line(line, dtype, terms);
        memcpy(c->value[2] + (ptrdiff_t)r * DEPTH, terms, sizeof line);
    }
    norm.weight = gate.up = c->tensor[1];
    TSR__TRY(
        tsr__matmul_narrow_lines(c->stream, &(tsr__narrow_lines){.from = c->tensor[0],
                                                                 .line_stride = DEPTH,
                                                                 .k_stride = 1,
                                                                 .lines = LINES,
                                                                 .k = DEPTH,
                                                                 .dtype = dtype,
                                                                 .terms = 1,
                                                                 .to = lines->buffer,
                                                                 .norm = gated ? NULL : &norm,
                                                                 .gate = gated ? &gate : NULL}));
    TSR__TRY(tsr_tensor_slice(lines, 1, DEPTH / 2, DEPTH / 2 + 1, 1, &view));
    tsr__case_adopt(c, view);
    TSR__TRY(tsr_copy(c->stream, c->tensor[3], view));
    tsr_tensor as_terms = *lines;
    TSR__TRY(tsr_layout_init(dtype, TSR__SHAPE_2(LINES, pitch), &as_terms.layout));
    TSR__TRY(tsr_tensor_slice(&as_terms, 1, 0, DEPTH, 1, &view));
    tsr__case_adopt(c, view);
    return tsr_copy(c->stream, c->tensor[2], view);
}

tsr_status tsr__case_narrow_norm(tsr__case *c, tsr_dtype dtype)
{
    return narrow_rows(c, dtype, false);
}

tsr_status tsr__case_narrow_gate(tsr__case *c, tsr_dtype dtype)
{
    return narrow_rows(c, dtype, true);
}

/* Narrows lines of blocks to two terms of f16 or bf16, and a scale behind them. `dtype` is a
 * block format, whose terms are then f16, or the dtype of the terms. */
tsr_status tsr__case_narrow_blocks(tsr__case *c, tsr_dtype dtype)
{
    enum { TERMS = 2 };
    tsr_device *device = tsr_stream_device(c->stream);
    const tsr_dtype terms = dtype == TSR_BF16 ? TSR_BF16 : TSR_F16;
    const tsr_dtype format = tsr__dtype_is_block(dtype) ? dtype : TSR_Q8_0;
    const int64_t pitch = tsr__matmul_line_elements(DEPTH, TERMS);
    tsr_tensor *lines, *view;

    if (dtype == TSR_F32)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "matmul: lines are not narrowed to f32");
    TSR__TRY(add_weights(c, format, COLUMNS, DEPTH));
    TSR__TRY(tsr_tensor_create(device, TSR_I32, TSR__SHAPE_2(COLUMNS, pitch / 2), &lines));
    tsr__case_adopt(c, lines);
    TSR__TRY(tsr__case_output(c, terms, TSR__SHAPE_2(COLUMNS, (int64_t)TERMS * DEPTH)));
    TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_2(COLUMNS, 1)));
    for (int i = 0; i < COLUMNS; i++)
        c->value[3][i] = narrow_line(c->value[0] + (size_t)i * DEPTH, terms,
                                     c->value[2] + (size_t)i * TERMS * DEPTH);
    TSR__TRY(tsr__matmul_narrow_lines(c->stream, &(tsr__narrow_lines){.from = c->tensor[0],
                                                                      .line_stride = DEPTH,
                                                                      .k_stride = 1,
                                                                      .lines = COLUMNS,
                                                                      .k = DEPTH,
                                                                      .dtype = terms,
                                                                      .terms = TERMS,
                                                                      .to = lines->buffer}));
    TSR__TRY(tsr_tensor_slice(lines, 1, TERMS * DEPTH / 2, TERMS * DEPTH / 2 + 1, 1, &view));
    tsr__case_adopt(c, view);
    TSR__TRY(tsr_copy(c->stream, c->tensor[3], view));
    tsr_tensor as_terms = *lines;
    TSR__TRY(tsr_layout_init(terms, TSR__SHAPE_2(COLUMNS, pitch), &as_terms.layout));
    TSR__TRY(tsr_tensor_slice(&as_terms, 1, 0, (int64_t)TERMS * DEPTH, 1, &view));
    tsr__case_adopt(c, view);
    return tsr_copy(c->stream, c->tensor[2], view);
}
