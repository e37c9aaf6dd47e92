#include "isa/cases.h"

#include <stdarg.h>

#include "gpu/internal.h"
#include "gpu/matmul/narrowed.h"
#include "gpu/ops/optimizer/step_params.h"
#include "shaders/params/choose.h"
#include "support/check_main.h"
#include "tessera/tessera.h"

#define TENSORS_MAX 16

static tsr_stream *queue;
static tsr_tensor *tensors[TENSORS_MAX]; /* the tensors of the case that is being recorded */
static int tensor_count;

static tsr_tensor *keep(tsr_tensor *tensor)
{
    ck_assert_int_lt(tensor_count, TENSORS_MAX);
    return tensors[tensor_count++] = tensor;
}

/* Makes a new tensor of the case, which is destroyed after the case. The sizes are the following
 * arguments, which end with −1. */
static tsr_tensor *make(tsr_dtype dtype, ...)
{
    int64_t shape[TSR_MAX_DIMS];
    int ndim = 0;
    tsr_tensor *tensor;
    va_list sizes;

    va_start(sizes, dtype);
    for (int size; (size = va_arg(sizes, int)) >= 0;)
        shape[ndim++] = size;
    va_end(sizes);
    ck_assert_ok(tsr_tensor_create(tsr_stream_device(queue), dtype, ndim, shape, &tensor));
    return keep(tensor);
}

static tsr_tensor *transposed(const tsr_tensor *tensor, int a, int b)
{
    tsr_tensor *view;

    ck_assert_ok(tsr_tensor_transpose(tensor, a, b, &view));
    return keep(view);
}

/* Products ------------------------------------------------------------------------------------- */

typedef struct product {
    const char *name;
    int batch; /* 0: no batch dimension */
    int m, k, n;
    tsr_dtype a, b, y;
    bool transpose_a, transpose_b;
    bool bias; /* with bias and GELU */
    bool sums; /* and the sums of a's rows */
    int pitch; /* elements from one row of a to the next; 0: a row */
} product;

/* X·Wᵀ is a forward product, X·W the gradient of its input and Xᵀ·W the gradient of its weight. */
static const product products[] = {
    {"f32 4096^3 XWt", 0, 4096, 4096, 4096, TSR_F32, TSR_F32, TSR_F32, .transpose_b = true},
    {"f32 4096^3 XW", 0, 4096, 4096, 4096, TSR_F32, TSR_F32, TSR_F32, .bias = false},
    {"f32 4096^3 XtW", 0, 4096, 4096, 4096, TSR_F32, TSR_F32, TSR_F32, .transpose_a = true},
    {"f32 sums 4096^3 XtW", 0, 4096, 4096, 4096, TSR_F32, TSR_F32, TSR_F32, .sums = true},
    {"f32 768^2x8192 XtW sums", 0, 768, 8192, 768, TSR_F32, TSR_F32, TSR_F32, .sums = true},
    {"bf16 768^2x8192 XtW sums", 0, 768, 8192, 768, TSR_BF16, TSR_BF16, TSR_F32, .sums = true},
    {"f16 4096^3 XWt", 0, 4096, 4096, 4096, TSR_F16, TSR_F16, TSR_F16, .transpose_b = true},
    {"f16 4096^3 XW", 0, 4096, 4096, 4096, TSR_F16, TSR_F16, TSR_F16, .bias = false},
    {"f16 4096^3 XtW", 0, 4096, 4096, 4096, TSR_F16, TSR_F16, TSR_F16, .transpose_a = true},
    {"bf16 4096^3 XWt", 0, 4096, 4096, 4096, TSR_BF16, TSR_BF16, TSR_BF16, .transpose_b = true},
    {"bf16 4096^3 XW", 0, 4096, 4096, 4096, TSR_BF16, TSR_BF16, TSR_BF16, .bias = false},
    {"bf16 4096^3 XtW", 0, 4096, 4096, 4096, TSR_BF16, TSR_BF16, TSR_BF16, .transpose_a = true},
    {"f32xf16 4096^3 XWt", 0, 4096, 4096, 4096, TSR_F32, TSR_F16, TSR_F32, .transpose_b = true},
    {"f16 4096^3 XWt bias gelu", 0, 4096, 4096, 4096, TSR_F16, TSR_F16, TSR_F16,
     .transpose_b = true, .bias = true},
    {"f16 24x4096x4096 XWt", 0, 24, 4096, 4096, TSR_F16, TSR_F16, TSR_F16, .transpose_b = true},
    {"f16 4095^3 XWt", 0, 4095, 4095, 4095, TSR_F16, TSR_F16, TSR_F16, .transpose_b = true},
    {"f16 768^3 XWt", 0, 768, 768, 768, TSR_F16, TSR_F16, TSR_F16, .transpose_b = true},
    {"f16 256^3 XWt", 0, 256, 256, 256, TSR_F16, TSR_F16, TSR_F16, .transpose_b = true},
    {"f32 4095^3 XWt", 0, 4095, 4095, 4095, TSR_F32, TSR_F32, TSR_F32, .transpose_b = true},
    {"f32 4096x4096x4095 XW", 0, 4096, 4096, 4095, TSR_F32, TSR_F32, TSR_F32, .bias = false},
    {"f16 4096x50257x768 XW", 0, 4096, 50257, 768, TSR_F16, TSR_F16, TSR_F16, .pitch = 50304},
    {"f16 50257x4096x768 XtW", 0, 50257, 4096, 768, TSR_F16, TSR_F16, TSR_F16, .transpose_a = true,
     .pitch = 50304},
    {"f32 4096x50257x768 XW", 0, 4096, 50257, 768, TSR_F32, TSR_F32, TSR_F32, .pitch = 50304},
    {"f32 50257x4096x768 XtW", 0, 50257, 4096, 768, TSR_F32, TSR_F32, TSR_F32, .transpose_a = true,
     .pitch = 50304},
    {"f32 768^3 XWt", 0, 768, 768, 768, TSR_F32, TSR_F32, TSR_F32, .transpose_b = true},
    {"f32 256^3 XWt", 0, 256, 256, 256, TSR_F32, TSR_F32, TSR_F32, .transpose_b = true},
    {"f32 100^3 XW", 0, 100, 99, 101, TSR_F32, TSR_F32, TSR_F32, .bias = false},
    {"f32 12x1024x64x1024", 12, 1024, 64, 1024, TSR_F32, TSR_F32, TSR_F32, .transpose_b = true},
    {"f32 1x4096x4096 XWt", 0, 1, 4096, 4096, TSR_F32, TSR_F32, TSR_F32, .transpose_b = true},
    {"f16 1x4096x4096 XWt", 0, 1, 4096, 4096, TSR_F16, TSR_F16, TSR_F16, .transpose_b = true},
    {"f32 8x4096x4096 XWt", 0, 8, 4096, 4096, TSR_F32, TSR_F32, TSR_F32, .transpose_b = true},
    {"f32 16x4096x11008 XWt", 0, 16, 4096, 11008, TSR_F32, TSR_F32, TSR_F32, .transpose_b = true},
    {"f16 1x4096x4096 XW", 0, 1, 4096, 4096, TSR_F32, TSR_F16, TSR_F32, .bias = false},
    {"f32 4x4096x4096 XW", 0, 4, 4096, 4096, TSR_F32, TSR_F32, TSR_F32, .bias = false},
    {"f32 128x4096x4096 XWt", 0, 128, 4096, 4096, TSR_F32, TSR_F32, TSR_F32, .transpose_b = true},
};

static tsr_tensor *make_pitched(tsr_dtype dtype, int rows, int columns, int pitch)
{
    tsr_tensor *view;

    ck_assert_ok(tsr_tensor_slice(make(dtype, rows, pitch, -1), 1, 0, columns, 1, &view));
    return keep(view);
}

static void record_product(const product *p)
{
    const bool turned = p->transpose_a || p->sums;
    const int a_rows = turned ? p->k : p->m, a_columns = turned ? p->m : p->k;
    tsr_tensor *a = p->batch
                        ? make(p->a, p->batch, p->m, p->k, -1)
                        : make_pitched(p->a, a_rows, a_columns, p->pitch ? p->pitch : a_columns);
    tsr_tensor *b = p->batch         ? make(p->b, p->batch, p->n, p->k, -1)
                    : p->transpose_b ? make(p->b, p->n, p->k, -1)
                                     : make(p->b, p->k, p->n, -1);
    tsr_tensor *y = p->batch ? make(p->y, p->batch, p->m, p->n, -1) : make(p->y, p->m, p->n, -1);

    bool recorded;
    if (p->sums) {
        ck_assert_ok(
            tsr__matmul_with_row_sums(queue, y, make(TSR_F32, p->m, -1), a, b, false, &recorded));
        ck_assert(recorded);
        return;
    }
    ck_assert_ok(
        tsr_matmul(queue, y, a, b,
                   tsr_matmul_params(.transpose_a = p->transpose_a, .transpose_b = p->transpose_b,
                                     .bias = p->bias ? make(p->y, p->n, -1) : NULL,
                                     .activation = p->bias ? TSR_ACT_GELU_TANH : TSR_ACT_NONE)));
}

/* Records a product in which the stride between rows of a does not fit 32 bits. */
static void wide_product(void)
{
    const int64_t shape[] = {4, INT64_C(1) << 33};
    tsr_tensor *whole, *a;

    ck_assert_ok(tsr_tensor_create(tsr_stream_device(queue), TSR_F16, 2, shape, &whole));
    keep(whole);
    ck_assert_ok(tsr_tensor_slice(whole, 1, 0, 4, 1, &a));
    keep(a);
    ck_assert_ok(tsr_matmul(queue, make(TSR_F32, 4, 4, -1), a, make(TSR_F16, 4, 4, -1), NULL));
}

static void quant_product(void)
{
    ck_assert_ok(tsr_matmul(queue, make(TSR_F32, 1, 4096, -1), make(TSR_F32, 1, 4096, -1),
                            make(TSR_Q4_K, 4096, 4096, -1),
                            tsr_matmul_params(.transpose_b = true)));
    ck_assert_ok(tsr_matmul(queue, make(TSR_F32, 128, 4096, -1), make(TSR_F32, 128, 4096, -1),
                            make(TSR_Q8_0, 4096, 4096, -1),
                            tsr_matmul_params(.transpose_b = true)));
}

/* Records products of one row with block-quantised weights, in a size of a model with 1.1 · 10⁹
 * parameters. */
static void blocks_product(void)
{
    static const tsr_dtype formats[] = {TSR_Q4_0, TSR_Q5_0, TSR_Q8_0};
    tsr_tensor *y = make(TSR_F32, 1, 2048, -1), *a = make(TSR_F32, 1, 5632, -1);

    for (int i = 0; i < 6; i++)
        ck_assert_ok(tsr_matmul(queue, y, a, make(formats[i % 3], 2048, 5632, -1),
                                tsr_matmul_params(.transpose_b = true, .allow_int8 = i >= 3)));
}

/* The same with large blocks. Rows of q6_k with 4096 elements start at multiples of 16 bytes, and
 * with 5632 anywhere. */
static void large_blocks_product(void)
{
    static const tsr_dtype formats[] = {TSR_Q4_K, TSR_Q5_K, TSR_Q6_K, TSR_Q6_K};

    for (int i = 0; i < 4; i++) {
        const int64_t k = i < 3 ? 4096 : 5632;
        ck_assert_ok(tsr_matmul(queue, make(TSR_F32, 1, 2048, -1), make(TSR_F32, 1, k, -1),
                                make(formats[i], 2048, k, -1),
                                tsr_matmul_params(.transpose_b = true)));
    }
}

/* Records products that go through matmul_quant.comp: more rows, and another format. */
static void few_rows_of_blocks(void)
{
    static const struct {
        tsr_dtype format;
        int rows;
    } cases[] = {{TSR_Q8_0, 4}, {TSR_Q4_0, 8}, {TSR_Q4_K, 4}, {TSR_Q3_K, 1}};

    for (int i = 0; i < 4; i++)
        ck_assert_ok(tsr_matmul(
            queue, make(TSR_F32, cases[i].rows, 2048, -1), make(TSR_F32, cases[i].rows, 4096, -1),
            make(cases[i].format, 2048, 4096, -1), tsr_matmul_params(.transpose_b = true)));
}

/* Records gated products of one row, as MLPs have them. */
static void gated_product(void)
{
    static const tsr_dtype weights[] = {TSR_F16, TSR_Q8_0};
    bool recorded;

    for (int i = 0; i < 2; i++) {
        ck_assert_ok(tsr__matmul_gated(
            queue, make(TSR_F32, 1, 5632, -1), make(TSR_F32, 1, 2048, -1),
            make(weights[i], 2 * 5632, 2048, -1), NULL, TSR_ACT_SILU, false, &recorded));
        ck_assert(recorded);
    }
}

/* Records products of one row that normalise it: queries, keys and values, and a gated one. */
static void normed_product(void)
{
    static const tsr_dtype weights[] = {TSR_F16, TSR_Q8_0, TSR_Q4_0, TSR_Q4_K};
    const tsr__matmul_norm norm = {.weight = make(TSR_F32, 2048, -1), .epsilon = 1e-5F};
    tsr_tensor *x = make(TSR_F32, 1, 2048, -1), *y = make(TSR_F32, 1, 2560, -1);
    bool recorded;

    for (int i = 0; i < 8; i++) {
        const tsr__matmul_fusion fusion = {
            .norm = &norm, .gated = i > 3, .activation = i > 3 ? TSR_ACT_SILU : TSR_ACT_NONE};
        ck_assert_ok(tsr__matmul_fused(
            queue, y, x, make(weights[i % 4], i > 3 ? 5120 : 2560, 2048, -1), &fusion, &recorded));
        ck_assert(recorded);
    }
}

/* Records products of prompts, whose operands are narrowed on GPUs with matrix units, and the
 * kernels that narrow, which all GPUs can run. */
static void narrowed_product(void)
{
    static const tsr_dtype weights[] = {TSR_F16, TSR_Q8_0};
    tsr_tensor *x = make(TSR_F32, 512, 2048, -1), *blocks = make(TSR_Q8_0, 2048, 2048, -1);
    tsr_tensor *terms = make(TSR_F16, 2048, 2 * 2048 + 8, -1);
    const tsr__matmul_norm norm = {.weight = make(TSR_F32, 2048, -1), .epsilon = 1e-5F};

    for (int i = 0; i < 2; i++)
        ck_assert_ok(
            tsr_matmul(queue, make(TSR_F32, 512, 2048, -1), x, make(weights[i], 2048, 2048, -1),
                       tsr_matmul_params(.transpose_b = true, .precision = TSR_PRECISION_HIGH)));
    for (int i = 0; i < 3; i++)
        ck_assert_ok(
            tsr__matmul_narrow_lines(queue, &(tsr__narrow_lines){.from = i != 1 ? x : blocks,
                                                                 .line_stride = 2048,
                                                                 .k_stride = 1,
                                                                 .lines = i != 1 ? 512 : 2048,
                                                                 .k = 2048,
                                                                 .dtype = TSR_F16,
                                                                 .terms = 2,
                                                                 .to = terms->buffer,
                                                                 .norm = i == 2 ? &norm : NULL}));
}

/* Attention ------------------------------------------------------------------------------------ */

static void attention(tsr_dtype dtype, int heads, int q_len, int kv_len, int head_dim,
                      bool gradient)
{
    tsr_tensor *q = make(dtype, 1, heads, q_len, head_dim, -1);
    tsr_tensor *k = make(dtype, 1, heads, kv_len, head_dim, -1);
    tsr_tensor *v = make(dtype, 1, heads, kv_len, head_dim, -1);
    tsr_tensor *y = make(dtype, 1, heads, q_len, head_dim, -1);
    tsr_tensor *lse = make(TSR_F32, 1, heads, q_len, -1);
    const tsr_attention_params *params = tsr_attention_params(.causal = true);

    if (gradient)
        ck_assert_ok(tsr_attention_grad(queue, make(dtype, 1, heads, q_len, head_dim, -1),
                                        make(dtype, 1, heads, kv_len, head_dim, -1),
                                        make(dtype, 1, heads, kv_len, head_dim, -1),
                                        make(dtype, 1, heads, q_len, head_dim, -1), y, lse, q, k, v,
                                        params));
    else
        ck_assert_ok(tsr_attention(queue, y, lse, q, k, v, params));
}

static void attention_f32(void)
{
    attention(TSR_F32, 32, 2048, 2048, 128, false);
}

static void attention_f16(void)
{
    attention(TSR_F16, 32, 2048, 2048, 64, false);
}

static void attention_gradient(void)
{
    attention(TSR_F32, 12, 1024, 1024, 64, true);
}

static void attention_f16_wide(void)
{
    attention(TSR_F16, 32, 2048, 2048, 128, false);
}

static void attention_gradient_bf16(void)
{
    attention(TSR_BF16, 12, 1024, 1024, 64, true);
}

static void attention_gradient_f16(void)
{
    attention(TSR_F16, 12, 1024, 1024, 64, true);
}

static void attention_decode(void)
{
    attention(TSR_F16, 32, 1, 4096, 128, false);
}

/* More heads than one dispatch can merge ranges of keys for. */
static void attention_merge(void)
{
    attention(TSR_F16, 2049, 1, 9000, 24, false);
}

/* The largest heads, for which a result takes several dispatches, and the few queries of a token.
 */
static void attention_large(void)
{
    attention(TSR_F32, 8, 1024, 1024, 512, false);
    attention(TSR_F16, 8, 1, 4096, 512, false);
}

/* One head of latents for all heads of queries, with values inside the keys: of a prompt and of a
 * token. */
static void attention_latent(void)
{
    static const int q_lens[] = {1024, 1};
    tsr_tensor *k = make(TSR_F16, 1, 1, 4096, 576, -1), *v;

    ck_assert_ok(tsr_tensor_slice(k, 3, 0, 512, 1, &v));
    keep(v);
    for (int i = 0; i < 2; i++)
        ck_assert_ok(tsr_attention(queue, make(TSR_F16, 1, 128, q_lens[i], 512, -1), NULL,
                                   make(TSR_F16, 1, 128, q_lens[i], 576, -1), k, v,
                                   tsr_attention_params(.causal = true)));
}

static void attention_gradient_sinks(void)
{
    tsr_tensor *y = make(TSR_F32, 1, 12, 1024, 64, -1), *k = make(TSR_F32, 1, 12, 1024, 64, -1);
    tsr_tensor *sinks = make(TSR_F32, 12, -1), *dsinks = make(TSR_F32, 12, -1);

    ck_assert_ok(tsr_attention_grad(queue, NULL, NULL, NULL, make(TSR_F32, 1, 12, 1024, 64, -1), y,
                                    make(TSR_F32, 1, 12, 1024, -1), y, k, k,
                                    tsr_attention_params(.sinks = sinks, .dsinks = dsinks)));
}

/* Makes views of the queries, keys and values in one tensor, for `tokens` tokens. */
static void split_heads(int tokens, tsr_tensor *part[3])
{
    static const int64_t first[] = {0, 32, 40, 48};
    tsr_tensor *all = transposed(make(TSR_F32, 1, tokens, 48, 128, -1), 1, 2);

    for (int i = 0; i < 3; i++) {
        ck_assert_ok(tsr_tensor_slice(all, 1, first[i], first[i + 1], 1, &part[i]));
        keep(part[i]);
    }
}

/* Records a step of 16 tokens, and one of a token after many. */
static void cache_steps(tsr_kv_cache *pages, const tsr_rope *angles)
{
    tsr_tensor *part[3];
    int sequence;

    ck_assert_ok(tsr_kv_cache_add(pages, -1, &sequence));
    ck_assert_ok(tsr_kv_cache_begin(pages, 1, &sequence, &(int64_t){16}, NULL));
    ck_assert_ok(tsr_kv_cache_append(pages, 0, make(TSR_F32, 1, 8, 16, 128, -1),
                                     make(TSR_F32, 1, 8, 16, 128, -1)));
    split_heads(16, part);
    ck_assert_ok(tsr__kv_cache_append_rotated(pages, 0, angles, part[0], part[1], part[2], NULL));
    ck_assert_ok(tsr_kv_cache_begin(pages, 1, &sequence, &(int64_t){4000}, NULL));
    ck_assert_ok(tsr_kv_cache_begin(pages, 1, &sequence, &(int64_t){1}, NULL));
    split_heads(1, part);
    ck_assert_ok(tsr__kv_cache_append_and_attend(pages, 0, angles, make(TSR_F32, 1, 32, 1, 128, -1),
                                                 part[0], part[1], part[2],
                                                 tsr_attention_params(.causal = true)));
}

static void cache_of(tsr_dtype dtype)
{
    tsr_kv_cache *pages;
    tsr_rope *angles;

    ck_assert_ok(tsr_kv_cache_create(
        tsr_kv_cache_params(.stream = queue, .layers = 1, .kv_heads = 8, .head_dim = 128,
                            .dtype = dtype, .pages = 64, .sequences = 1),
        &pages));
    ck_assert_ok(tsr_rope_create(queue, tsr_rope_params(.rotary_dim = 128), &angles));
    cache_steps(pages, angles);
    tsr_rope_destroy(&angles);
    tsr_kv_cache_destroy(&pages);
}

static void cache(void)
{
    cache_of(TSR_F16);
}

static void cache_q8_0(void)
{
    cache_of(TSR_Q8_0);
}

static void cache_q4_0(void)
{
    cache_of(TSR_Q4_0);
}

/* Attention of many queries to keys and values in blocks, in f32 and by matrix units. */
static void attention_q8_0(void)
{
    static const tsr_dtype queries[] = {TSR_F32, TSR_F16};
    tsr_tensor *k = make(TSR_Q8_0, 1, 8, 512, 128, -1);

    for (int i = 0; i < 2; i++)
        ck_assert_ok(tsr_attention(queue, make(queries[i], 1, 32, 512, 128, -1), NULL,
                                   make(queries[i], 1, 32, 512, 128, -1), k, k,
                                   tsr_attention_params(.causal = true)));
}

static void rope(void)
{
    tsr_rope *angles;
    tsr_tensor *x = make(TSR_F16, 1, 32, 2048, 128, -1);

    ck_assert_ok(tsr_rope_create(queue, tsr_rope_params(.rotary_dim = 128), &angles));
    ck_assert_ok(tsr_rope_apply(queue, angles, x, x, make(TSR_I32, 1, 1, 2048, -1)));
    tsr_rope_destroy(&angles);
}

/* States --------------------------------------------------------------------------------------- */

/* The sizes of Qwen3.5: 16 key heads and 32 value heads of 128. */
static void delta_rule(int tokens, tsr_precision precision, bool gradient)
{
    tsr_tensor *q = make(TSR_F32, 1, tokens, 16, 128, -1),
               *k = make(TSR_F32, 1, tokens, 16, 128, -1),
               *v = make(TSR_F32, 1, tokens, 32, 128, -1), *beta = make(TSR_F32, 1, tokens, 32, -1),
               *g = make(TSR_F32, 1, tokens, 32, -1), *state = make(TSR_F32, 1, 32, 128, 128, -1),
               *y = make(TSR_F32, 1, tokens, 32, 128, -1);
    const tsr_delta_rule_params params = {.struct_size = sizeof params,
                                          .state = state,
                                          .norm_epsilon = 1e-6F,
                                          .precision = precision};

    ck_assert_ok(tsr_delta_rule(queue, y, state, q, k, v, beta, g, &params));
    if (!gradient)
        return;
    ck_assert_ok(
        tsr_delta_rule_grad(queue,
                            tsr_delta_rule_grads(.dq = make(TSR_F32, 1, tokens, 16, 128, -1),
                                                 .dk = make(TSR_F32, 1, tokens, 16, 128, -1),
                                                 .dv = make(TSR_F32, 1, tokens, 32, 128, -1),
                                                 .dbeta = make(TSR_F32, 1, tokens, 32, -1),
                                                 .dg = make(TSR_F32, 1, tokens, 32, -1)),
                            y, NULL, q, k, v, beta, g, &params));
}

static void delta_token(void)
{
    delta_rule(1, TSR_PRECISION_HIGHEST, false);
}

static void delta_chunks(void)
{
    delta_rule(512, TSR_PRECISION_HIGHEST, true);
}

static void delta_matrices(void)
{
    delta_rule(512, TSR_PRECISION_HIGH, false);
}

static void causal_convolution(void)
{
    tsr_tensor *x = make(TSR_F32, 1, 512, 8192, -1), *y = make(TSR_F32, 1, 512, 8192, -1),
               *weight = make(TSR_F32, 8192, 4, -1), *state = make(TSR_F32, 1, 8192, 3, -1);
    const tsr_causal_conv_params params = {
        .struct_size = sizeof params, .state = state, .silu = true};

    ck_assert_ok(tsr_causal_conv(queue, y, state, x, weight, &params));
    tsr_tensor *token = make(TSR_F32, 1, 1, 8192, -1);
    ck_assert_ok(
        tsr_causal_conv(queue, token, state, make(TSR_F32, 1, 1, 8192, -1), weight, &params));
    ck_assert_ok(tsr_causal_conv_grad(queue,
                                      tsr_causal_conv_grads(.dx = make(TSR_F32, 1, 512, 8192, -1),
                                                            .dweight = make(TSR_F32, 8192, 4, -1)),
                                      y, NULL, x, weight, &params));
}

static void gates(void)
{
    tsr_tensor *x = make(TSR_F32, 1, 512, 32, -1), *numbers = make(TSR_F32, 32, -1),
               *heads = make(TSR_F32, 1, 512, 32, 128, -1), *terms = make(TSR_F32, 512, 64, -1);
    const tsr__delta_gates in = {x, x, numbers, numbers};

    ck_assert_ok(tsr__delta_gates_forward(queue, &in, make(TSR_F32, 1, 512, 32, -1),
                                          make(TSR_F32, 1, 512, 32, -1)));
    ck_assert_ok(tsr__delta_gates_grad(queue, &in, x, x, make(TSR_F32, 1, 512, 32, -1),
                                       make(TSR_F32, 1, 512, 32, -1), terms));
    ck_assert_ok(tsr__gated_heads(queue, heads, make(TSR_F32, 1, 512, 32, 128, -1), heads,
                                  make(TSR_F32, 128, -1), 1e-6F));
}

/* Operations on rows --------------------------------------------------------------------------- */

static void softmax(void)
{
    ck_assert_ok(
        tsr_softmax(queue, make(TSR_F32, 2048, 2048, -1), make(TSR_F32, 2048, 2048, -1), false));
}

static void softmax_f16(void)
{
    ck_assert_ok(
        tsr_softmax(queue, make(TSR_F16, 2048, 2048, -1), make(TSR_F16, 2048, 2048, -1), false));
}

static void softmax_few_rows(void)
{
    ck_assert_ok(
        tsr_softmax(queue, make(TSR_F32, 1, 50257, -1), make(TSR_F32, 1, 50257, -1), false));
}

/* The rows are few and long, so several workgroups compute each row. */
static void few_rows(void)
{
    tsr_tensor *x = make(TSR_F32, 1, 50257, -1), *dy = make(TSR_F32, 1, 50257, -1);

    ck_assert_ok(tsr_softmax_grad(queue, make(TSR_F32, 1, 50257, -1), x, dy, false));
    ck_assert_ok(tsr_norm_grad(queue, make(TSR_F32, 1, 50257, -1), NULL, NULL, x, dy, NULL,
                               TSR_NORM_RMS, 1e-5F, false));
    ck_assert_ok(tsr_norm(queue, make(TSR_F32, 1, 50257, -1), x, make(TSR_F32, 50257, -1),
                          make(TSR_F32, 50257, -1), TSR_NORM_LAYER, 1e-5F));
}

static void cross_entropy_of_few_rows(void)
{
    ck_assert_ok(tsr_cross_entropy(queue, make(TSR_F32, 1, -1), make(TSR_F32, 1, 50257, -1),
                                   make(TSR_F32, 1, 50257, -1), make(TSR_I32, 1, -1), 1.0F));
}

static void softmax_gradient(void)
{
    tsr_tensor *dy = make(TSR_F32, 2048, 2048, -1);

    ck_assert_ok(tsr_softmax_grad(queue, dy, make(TSR_F32, 2048, 2048, -1), dy, false));
}

static void layer_norm(void)
{
    ck_assert_ok(tsr_norm(queue, make(TSR_F32, 2048, 2048, -1), make(TSR_F32, 2048, 2048, -1),
                          make(TSR_F32, 2048, -1), make(TSR_F32, 2048, -1), TSR_NORM_LAYER, 1e-5F));
}

static void rms_norm(void)
{
    ck_assert_ok(tsr_norm(queue, make(TSR_F16, 2048, 2048, -1), make(TSR_F16, 2048, 2048, -1),
                          make(TSR_F16, 2048, -1), NULL, TSR_NORM_RMS, 1e-5F));
}

static void layer_norm_gradient(void)
{
    ck_assert_ok(tsr_norm_grad(queue, make(TSR_F32, 2048, 2048, -1), make(TSR_F32, 2048, -1),
                               make(TSR_F32, 2048, -1), make(TSR_F32, 2048, 2048, -1),
                               make(TSR_F32, 2048, 2048, -1), make(TSR_F32, 2048, -1),
                               TSR_NORM_LAYER, 1e-5F, false));
}

static void cross_entropy(void)
{
    ck_assert_ok(tsr_cross_entropy(queue, make(TSR_F32, 2048, -1), make(TSR_F32, 2048, 50257, -1),
                                   make(TSR_F32, 2048, 50257, -1), make(TSR_I32, 2048, -1), 1.0F));
}

static void cross_entropy_aligned(void)
{
    ck_assert_ok(tsr_cross_entropy(queue, make(TSR_F32, 2048, -1), make(TSR_F32, 2048, 32000, -1),
                                   make(TSR_F32, 2048, 32000, -1), make(TSR_I32, 2048, -1), 1.0F));
}

static void cross_entropy_shard(void)
{
    tsr_tensor *logits = make(TSR_F32, 2048, 16000, -1), *labels = make(TSR_I32, 2048, -1);

    ck_assert_ok(
        tsr__cross_entropy_shard_stats(queue, make(TSR_F32, 3, 2048, -1), logits, labels, 0));
    ck_assert_ok(tsr__cross_entropy_shard(queue, make(TSR_F32, 2048, -1),
                                          make(TSR_F32, 2048, 16000, -1), logits, labels,
                                          make(TSR_F32, 2, 3, 2048, -1), 0, 32000, 1.0F));
}

static void sum_rows(void)
{
    ck_assert_ok(tsr_reduce(queue, make(TSR_F32, 2048, -1), make(TSR_F32, 2048, 2048, -1), 1,
                            TSR_REDUCE_SUM, false));
}

static void sum_one_row(void)
{
    ck_assert_ok(tsr_reduce(queue, make(TSR_F32, 1, -1), make(TSR_F32, 1, 50257, -1), 1,
                            TSR_REDUCE_SUM, false));
}

static void sum_columns(void)
{
    ck_assert_ok(tsr_reduce(queue, make(TSR_F32, 2048, -1), make(TSR_F32, 2048, 2048, -1), 0,
                            TSR_REDUCE_SUM, false));
}

static void sum_short_rows(void)
{
    ck_assert_ok(tsr_reduce(queue, make(TSR_F32, 65536, -1), make(TSR_F32, 65536, 8, -1), 1,
                            TSR_REDUCE_SUM, false));
}

static void sum_squares(void)
{
    const tsr_tensor *x = make(TSR_F32, 4096, 1024, -1);

    ck_assert_ok(tsr_sum_squares(queue, make(TSR_F32, 1, -1), &x, 1, 1.0F));
}

static void pack(void)
{
    const int words = (int)tsr__packed_words(3145728);

    ck_assert_ok(tsr__pack(queue, make(TSR_U32, words, -1), make(TSR_F32, 3145728, -1)));
}

static void unpack(void)
{
    const int words = (int)tsr__packed_words(3145728);

    ck_assert_ok(
        tsr__unpack_sum(queue, make(TSR_F32, 3145728, -1), make(TSR_U32, 2 * words, -1), 2));
}

static void argmax(void)
{
    ck_assert_ok(tsr_argmax(queue, make(TSR_I32, 2048, -1), make(TSR_F32, 2048, 2048, -1), 1));
}

static void topk(void)
{
    ck_assert_ok(tsr_topk(queue, make(TSR_F32, 1, 40, -1), make(TSR_I32, 1, 40, -1),
                          make(TSR_F32, 1, 50257, -1), 1));
}

/* Mixtures of experts: 32 experts of 768 features, of which each token has 8. */

static void route(void)
{
    ck_assert_ok(tsr_route(queue, make(TSR_I32, 512, 8, -1), make(TSR_F32, 512, 8, -1),
                           make(TSR_F32, 512, 32, -1), tsr_route_params(.normalise = true)));
}

static void route_gradient(void)
{
    ck_assert_ok(tsr_route_grad(queue, make(TSR_F32, 512, 32, -1), make(TSR_F32, 512, 32, -1),
                                make(TSR_I32, 512, 8, -1), make(TSR_F32, 512, 8, -1), NULL,
                                tsr_route_params(.normalise = true)));
}

/* Gate and up, and down with the weighted sum. */
static void record_experts(int tokens, tsr_dtype dtype)
{
    tsr_tensor *ids = make(TSR_I32, tokens, 8, -1);
    tsr_tensor *hidden = make(TSR_F32, tokens, 8, 768, -1);
    ck_assert_ok(tsr_matmul_grouped(
        queue, hidden, make(TSR_F32, tokens, 2048, -1), make(dtype, 32, 768, 2048, -1), ids,
        tsr_matmul_grouped_params(.up = make(dtype, 32, 768, 2048, -1))));
    ck_assert_ok(tsr_matmul_grouped(
        queue, make(TSR_F32, tokens, 2048, -1), hidden, make(dtype, 32, 2048, 768, -1), ids,
        tsr_matmul_grouped_params(.weights = make(TSR_F32, tokens, 8, -1))));
}

static void experts_many(void)
{
    record_experts(512, TSR_F16);
}

static void experts_many_f32(void)
{
    record_experts(512, TSR_F32);
}

static void experts_many_q4_0(void)
{
    record_experts(512, TSR_Q4_0);
}

static void experts_many_q4_k(void)
{
    record_experts(256, TSR_Q4_K);
}

static void experts_many_bf16(void)
{
    tsr_tensor *x = make(TSR_BF16, 512, 2048, -1), *ids = make(TSR_I32, 512, 8, -1);
    ck_assert_ok(tsr_matmul_grouped(queue, make(TSR_F32, 512, 8, 768, -1), x,
                                    make(TSR_BF16, 32, 768, 2048, -1), ids, NULL));
}

static void experts_few(void)
{
    record_experts(1, TSR_Q4_K);
}

static void experts_few_f16(void)
{
    record_experts(1, TSR_F16);
}

static void experts_few_q4_0(void)
{
    record_experts(1, TSR_Q4_0);
}

static void experts_gradient(void)
{
    ck_assert_ok(tsr_matmul_grouped_grad(
        queue, make(TSR_F32, 32, 768, 2048, -1), make(TSR_F32, 512, 8, 768, -1),
        make(TSR_F32, 512, 2048, -1), make(TSR_I32, 4096, -1), make(TSR_I32, 33, -1), 8, false));
    ck_assert_ok(tsr__pair_activate(
        queue, &(tsr__pair_activation){.ids = make(TSR_I32, 512, 8, -1),
                                       .hidden = make(TSR_F32, 512, 8, 1536, -1),
                                       .y = make(TSR_F32, 512, 8, 768, -1),
                                       .dy = make(TSR_F32, 512, 8, 768, -1),
                                       .weights = make(TSR_F32, 512, 8, -1),
                                       .dhidden = make(TSR_F32, 512, 8, 1536, -1),
                                       .dweights = make(TSR_F32, 512, 8, -1),
                                       .experts = 32}));
}

static void choose(void)
{
    const struct tsr_choice_words choice = {.flags = TSR_CHOICE_TOP_P, .scale = 1};

    ck_assert_ok(tsr__choose(queue, make(TSR_I32, 1, -1), make(TSR_I32, 1, -1), NULL,
                             make(TSR_F32, 1, 50257, -1), &choice));
}

/* Operations with tables of rows --------------------------------------------------------------- */

static void embedding(void)
{
    ck_assert_ok(tsr__embedding(queue, make(TSR_F32, 8192, 1024, -1),
                                make(TSR_F32, 32000, 1024, -1), make(TSR_I32, 8192, -1), 0));
}

static void embedding_gradient(void)
{
    ck_assert_ok(tsr__embedding_grad(queue, make(TSR_F32, 32000, 1024, -1),
                                     make(TSR_F32, 8192, 1024, -1), make(TSR_I32, 8192, -1), 0,
                                     false));
}

static void index_select(void)
{
    ck_assert_ok(tsr_index_select(queue, make(TSR_F32, 512, 256, -1), make(TSR_F32, 512, 1024, -1),
                                  1, make(TSR_I32, 256, -1)));
}

static void index_select_gradient(void)
{
    ck_assert_ok(tsr_index_select_grad(queue, make(TSR_F32, 512, 1024, -1),
                                       make(TSR_F32, 512, 256, -1), 1, make(TSR_I32, 256, -1),
                                       false));
}

/* Operations on elements ----------------------------------------------------------------------- */

static void add(void)
{
    ck_assert_ok(tsr_binary(queue, make(TSR_F32, 2048, 2048, -1), make(TSR_F32, 2048, 2048, -1),
                            make(TSR_F32, 2048, 2048, -1), TSR_BINARY_ADD));
}

static void add_row(void)
{
    ck_assert_ok(tsr_binary(queue, make(TSR_F16, 2048, 2048, -1), make(TSR_F16, 2048, 2048, -1),
                            make(TSR_F16, 2048, -1), TSR_BINARY_ADD));
}

static void where(void)
{
    ck_assert_ok(tsr_where(queue, make(TSR_F32, 2048, 2048, -1), make(TSR_F32, 2048, 2048, -1),
                           make(TSR_F32, 2048, 2048, -1), make(TSR_F32, 2048, 2048, -1)));
}

static void silu(void)
{
    ck_assert_ok(tsr_activate(queue, make(TSR_F32, 2048, 2048, -1), make(TSR_F32, 2048, 2048, -1),
                              make(TSR_F32, 2048, 2048, -1), TSR_ACT_SILU));
    ck_assert_ok(tsr_activate(queue, make(TSR_F32, 2048, 2048, -1), make(TSR_F32, 2048, 2048, -1),
                              NULL, TSR_ACT_SILU));
}

static void convert(void)
{
    ck_assert_ok(tsr_copy(queue, make(TSR_F16, 2048, 2048, -1), make(TSR_F32, 2048, 2048, -1)));
}

static void transpose(void)
{
    ck_assert_ok(tsr_copy(queue, make(TSR_F32, 4096, 4096, -1),
                          transposed(make(TSR_F32, 4096, 4096, -1), 0, 1)));
}

static void dequantize(void)
{
    ck_assert_ok(tsr_copy(queue, make(TSR_F16, 4096, 4096, -1), make(TSR_Q4_K, 4096, 4096, -1)));
}

static void fill(void)
{
    ck_assert_ok(tsr_fill(queue, transposed(make(TSR_F16, 2048, 2048, -1), 0, 1), 1.0));
}

static void dropout(void)
{
    ck_assert_ok(tsr_dropout(queue, make(TSR_F32, 2048, 2048, -1), make(TSR_F32, 2048, 2048, -1),
                             0.1F, tsr_random_params(.seed = 1)));
}

static void random_normal(void)
{
    ck_assert_ok(tsr_random_normal(queue, make(TSR_F32, 2048, 2048, -1), 0.0F, 1.0F,
                                   tsr_random_params(.seed = 1)));
}

static void adamw(void)
{
    ck_assert_ok(tsr_adamw_step(queue, make(TSR_F32, 4096, 1024, -1), make(TSR_F32, 4096, 1024, -1),
                                make(TSR_F32, 4096, 1024, -1), make(TSR_F32, 4096, 1024, -1), NULL,
                                tsr_adamw_params(.learning_rate = 1e-3F, .step = 1)));
}

static void clip_scale(void)
{
    ck_assert_ok(tsr__clip_scale(queue, make(TSR_F32, 2, -1), make(TSR_F32, 1, -1), 1, 1));
}

static void sgd(void)
{
    ck_assert_ok(tsr_sgd_step(queue, make(TSR_F32, 4096, 1024, -1), make(TSR_F32, 4096, 1024, -1),
                              make(TSR_F32, 4096, 1024, -1), NULL,
                              tsr_sgd_params(.learning_rate = 1e-3F, .momentum = 0.9F)));
}

static const struct {
    const char *name;
    void (*record)(void);
} others[] = {
    {"wide strides", wide_product},
    {"blocks", quant_product},
    {"long row of blocks", blocks_product},
    {"row of large blocks", large_blocks_product},
    {"few rows of blocks", few_rows_of_blocks},
    {"attention f32 2048 x 128", attention_f32},
    {"attention f16 2048 x 64", attention_f16},
    {"attention gradient 1024 x 64", attention_gradient},
    {"attention f16 2048 x 128", attention_f16_wide},
    {"attention gradient bf16 1024 x 64", attention_gradient_bf16},
    {"attention gradient f16 1024 x 64", attention_gradient_f16},
    {"attention f16 decode 4096 x 128", attention_decode},
    {"attention f16 2049 heads, decode", attention_merge},
    {"attention x 512", attention_large},
    {"attention x 576, values of 512", attention_latent},
    {"attention gradient of sinks", attention_gradient_sinks},
    {"kv cache", cache},
    {"rope", rope},
    {"kv cache q8_0", cache_q8_0},
    {"kv cache q4_0", cache_q4_0},
    {"attention q8_0", attention_q8_0},
    {"delta rule, 1 token", delta_token},
    {"delta rule, 512 tokens", delta_chunks},
    {"delta rule, 512 tokens, 16-bit terms", delta_matrices},
    {"causal convolution", causal_convolution},
    {"gates", gates},
    {"gated product", gated_product},
    {"normed product", normed_product},
    {"softmax 2048 x 2048", softmax},
    {"softmax f16 2048 x 2048", softmax_f16},
    {"softmax 1 x 50257", softmax_few_rows},
    {"few rows 1 x 50257", few_rows},
    {"cross-entropy 1 x 50257", cross_entropy_of_few_rows},
    {"softmax gradient", softmax_gradient},
    {"layer norm", layer_norm},
    {"rms norm f16", rms_norm},
    {"layer norm gradient", layer_norm_gradient},
    {"cross-entropy 2048 x 50257", cross_entropy},
    {"cross-entropy 2048 x 32000", cross_entropy_aligned},
    {"cross-entropy shard", cross_entropy_shard},
    {"sum rows", sum_rows},
    {"sum 1 x 50257", sum_one_row},
    {"sum columns", sum_columns},
    {"sum rows of 8", sum_short_rows},
    {"sum of squares", sum_squares},
    {"pack", pack},
    {"unpack", unpack},
    {"argmax", argmax},
    {"top 40 of 50257", topk},
    {"choose 1 x 50257", choose},
    {"experts: choice", route},
    {"experts: choice gradient", route_gradient},
    {"experts: 512 tokens f16", experts_many},
    {"experts: 512 tokens f32", experts_many_f32},
    {"experts: 512 tokens q4_0", experts_many_q4_0},
    {"experts: 256 tokens q4_k", experts_many_q4_k},
    {"experts: 512 tokens bf16", experts_many_bf16},
    {"experts: 1 token q4_k", experts_few},
    {"experts: 1 token f16", experts_few_f16},
    {"experts: 1 token q4_0", experts_few_q4_0},
    {"experts: weights' gradient", experts_gradient},
    {"embedding", embedding},
    {"embedding gradient", embedding_gradient},
    {"index select", index_select},
    {"index select gradient", index_select_gradient},
    {"add", add},
    {"add f16 row", add_row},
    {"where", where},
    {"silu", silu},
    {"f32 to f16", convert},
    {"transpose", transpose},
    {"dequantize q4_k", dequantize},
    {"narrowed 512x2048", narrowed_product},
    {"fill f16 columns", fill},
    {"dropout", dropout},
    {"random normal", random_normal},
    {"adamw", adamw},
    {"clip scale", clip_scale},
    {"sgd", sgd},
};

static void finish_case(void)
{
    while (tensor_count > 0)
        tsr_tensor_destroy(&tensors[--tensor_count]);
}

void isa_record_cases(tsr_stream *stream, isa_recorded_fn *recorded, void *user)
{
    queue = stream;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        record_product(&products[i]);
        recorded(user, products[i].name);
        finish_case();
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        others[i].record();
        recorded(user, others[i].name);
        finish_case();
    }
}
