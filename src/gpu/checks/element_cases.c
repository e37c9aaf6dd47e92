/* Cases of operations on elements. A case computes an operation on the device and, in c->value, on
 * the host (case.h). */
#include <math.h>

#include "gpu/checks/cases.h"
#include "gpu/internal.h"
#include "gpu/kv_cache/kv_cache.h"
#include "gpu/ops/optimizer/step_params.h"
#include "tessera/ops.h"
#include "tessera/rope.h"

enum { ROWS = 5, COLUMNS = 133 };

/* Multiplies a matrix by one row, which is broadcast. */
tsr_status tsr__case_multiply(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        c->value[2][i] = c->value[0][i] * c->value[1][i % COLUMNS];
    return tsr_binary(c->stream, c->tensor[2], c->tensor[0], c->tensor[1], TSR_BINARY_MUL);
}

tsr_status tsr__case_silu(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        c->value[1][i] = c->value[0][i] / (1 + exp(-c->value[0][i]));
    return tsr_activate(c->stream, c->tensor[1], c->tensor[0], NULL, TSR_ACT_SILU);
}

tsr_status tsr__case_silu_mul(tsr__case *c, tsr_dtype dtype)
{
    for (int i = 0; i < 2; i++)
        TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        c->value[2][i] = c->value[0][i] / (1 + exp(-c->value[0][i])) * c->value[1][i];
    return tsr_activate(c->stream, c->tensor[2], c->tensor[0], c->tensor[1], TSR_ACT_SILU);
}

/* Copies a transposed view to a tensor of another dtype: f32, or f16 if `dtype` is f32. */
tsr_status tsr__case_transpose(tsr__case *c, tsr_dtype dtype)
{
    enum { HEIGHT = 37, WIDTH = 43 };
    tsr_tensor *transposed = NULL;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(HEIGHT, WIDTH)));
    TSR__TRY(
        tsr__case_output(c, dtype == TSR_F32 ? TSR_F16 : TSR_F32, TSR__SHAPE_2(WIDTH, HEIGHT)));
    for (int i = 0; i < HEIGHT * WIDTH; i++)
        c->value[1][i] = c->value[0][i % HEIGHT * WIDTH + i / HEIGHT];
    TSR__TRY(tsr_tensor_transpose(c->tensor[0], 0, 1, &transposed));
    tsr_status status = tsr_copy(c->stream, c->tensor[1], transposed);
    tsr_tensor_destroy(&transposed);
    return status;
}

/* Copies every second column to a tensor of another dtype: f32, or f16 if `dtype` is f32. */
tsr_status tsr__case_copy(tsr__case *c, tsr_dtype dtype)
{
    enum { HALF = (COLUMNS + 1) / 2 };
    tsr_tensor *columns = NULL;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype == TSR_F32 ? TSR_F16 : TSR_F32, TSR__SHAPE_2(ROWS, HALF)));
    for (int i = 0; i < ROWS * HALF; i++)
        c->value[1][i] = c->value[0][i / HALF * COLUMNS + i % HALF * 2];
    TSR__TRY(tsr_tensor_slice(c->tensor[0], 1, 0, COLUMNS, 2, &columns));
    tsr_status status = tsr_copy(c->stream, c->tensor[1], columns);
    tsr_tensor_destroy(&columns);
    return status;
}

tsr_status tsr__case_rope(tsr__case *c, tsr_dtype dtype)
{
    enum { HALF = 12, WIDTH = 2 * HALF, LENGTH = 7 };
    int32_t positions[LENGTH];
    tsr_rope *rope = NULL;

    for (int p = 0; p < LENGTH; p++)
        positions[p] = 3 * p;
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(LENGTH, WIDTH)));
    TSR__TRY(tsr__case_indices(c, LENGTH, positions));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(LENGTH, WIDTH)));
    for (int p = 0; p < LENGTH; p++)
        for (int i = 0; i < HALF; i++) {
            const double angle = positions[p] * pow(10000, -2.0 * i / WIDTH);
            const double *x = c->value[0] + (size_t)p * WIDTH;
            double *y = c->value[2] + (size_t)p * WIDTH;
            y[i] = x[i] * cos(angle) - x[i + HALF] * sin(angle);
            y[i + HALF] = x[i] * sin(angle) + x[i + HALF] * cos(angle);
        }
    TSR__TRY(tsr_rope_create(
        c->stream, tsr_rope_params(.rotary_dim = WIDTH, .pairing = TSR_ROPE_HALVES), &rope));
    tsr_status status = tsr_rope_apply(c->stream, rope, c->tensor[2], c->tensor[0], c->tensor[1]);
    tsr_rope_destroy(&rope);
    return status;
}

/* The cases of index_select and index_add select along the middle one of three dimensions, because
 * rows of a matrix would be selected by the kernels for embeddings. */
enum { PICKED = 6, PLANES = 3, INNER = 37 };
static const int32_t picked[PICKED] = {4, 0, 2, 2, 1, 4};

/* Returns the index of the input element that index_select copies to element `i`. */
static int picked_from(int i)
{
    const int plane = i / (PICKED * INNER), row = picked[i / INNER % PICKED];
    return (plane * ROWS + row) * INNER + i % INNER;
}

tsr_status tsr__case_index_select(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_3(PLANES, ROWS, INNER)));
    TSR__TRY(tsr__case_indices(c, PICKED, picked));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_3(PLANES, PICKED, INNER)));
    for (int i = 0; i < PLANES * PICKED * INNER; i++)
        c->value[2][i] = c->value[0][picked_from(i)];
    return tsr_index_select(c->stream, c->tensor[2], c->tensor[0], 1, c->tensor[1]);
}

tsr_status tsr__case_index_add(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_3(PLANES, PICKED, INNER)));
    TSR__TRY(tsr__case_indices(c, PICKED, picked));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_3(PLANES, ROWS, INNER)));
    for (int i = 0; i < PLANES * PICKED * INNER; i++)
        c->value[2][picked_from(i)] += c->value[0][i];
    return tsr_index_select_grad(c->stream, c->tensor[2], c->tensor[0], 1, c->tensor[1], false);
}

/* Fills every second column, so that the device cannot use Vulkan's command, which fills contiguous
 * memory. Outputs start as NaN, so a copy first writes the other columns. */
tsr_status tsr__case_fill(tsr__case *c, tsr_dtype dtype)
{
    tsr_tensor *even = NULL;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        c->value[1][i] = i % COLUMNS % 2 == 0 ? 1.5 : c->value[0][i];
    TSR__TRY(tsr_copy(c->stream, c->tensor[1], c->tensor[0]));
    TSR__TRY(tsr_tensor_slice(c->tensor[1], 1, 0, COLUMNS, 2, &even));
    tsr_status status = tsr_fill(c->stream, even, 1.5);
    tsr_tensor_destroy(&even);
    return status;
}

tsr_status tsr__case_where(tsr__case *c, tsr_dtype dtype)
{
    for (int i = 0; i < 3; i++)
        TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    for (int i = 0; i < ROWS * COLUMNS; i++)
        c->value[3][i] = c->value[c->value[0][i] != 0 ? 1 : 2][i];
    return tsr_where(c->stream, c->tensor[3], c->tensor[0], c->tensor[1], c->tensor[2]);
}

/* The gradient of SiLU: s + x · s · (1 − s), where s is the logistic function of x. */
tsr_status tsr__case_silu_grad(tsr__case *c, tsr_dtype dtype)
{
    for (int i = 0; i < 2; i++)
        TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        const double x = c->value[0][i], s = 1 / (1 + exp(-x));
        c->value[2][i] = c->value[1][i] * (s + x * s * (1 - s));
    }
    return tsr_activate_grad(c->stream, c->tensor[2], c->tensor[0], c->tensor[1], TSR_ACT_SILU);
}

/* A step with momentum: v = momentum · v + g + decay · p; p = p - rate · v. */
tsr_status tsr__case_sgd(tsr__case *c, tsr_dtype dtype)
{
    const double rate = 0.125, momentum = 0.5, decay = 0.25;
    const tsr_sgd_params params = {.struct_size = sizeof params,
                                   .learning_rate = (float)rate,
                                   .momentum = (float)momentum,
                                   .weight_decay = (float)decay};

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(COLUMNS)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(COLUMNS)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(COLUMNS)));
    TSR__TRY(tsr_fill(c->stream, c->tensor[1], 1));
    TSR__TRY(tsr_fill(c->stream, c->tensor[2], 3));
    for (int i = 0; i < COLUMNS; i++) {
        c->value[2][i] = momentum * 3 + c->value[0][i] + decay;
        c->value[1][i] = 1 - rate * c->value[2][i];
    }
    return tsr_sgd_step(c->stream, c->tensor[1], c->tensor[0], c->tensor[2], NULL, &params);
}

/* The first step, from moments of 0: after the correction of their bias, the moments are the
 * gradient and its square. */
tsr_status tsr__case_adamw(tsr__case *c, tsr_dtype dtype)
{
    const double rate = 0.125, decay = 0.25;
    const tsr_adamw_params params = {.struct_size = sizeof params,
                                     .learning_rate = (float)rate,
                                     .weight_decay = (float)decay,
                                     .step = 1};

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(COLUMNS)));
    for (int i = 0; i < 2; i++) {
        TSR__TRY(tsr__case_input(c, TSR_F32, TSR__SHAPE_1(COLUMNS)));
        TSR__TRY(tsr_fill(c->stream, c->tensor[1 + i], 0));
    }
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(COLUMNS)));
    TSR__TRY(tsr_fill(c->stream, c->tensor[3], 1));
    for (int i = 0; i < COLUMNS; i++) {
        const double g = c->value[0][i];
        c->value[3][i] = 1 - rate * decay - (g == 0 ? 0 : rate * copysign(1, g));
    }
    return tsr_adamw_step(c->stream, c->tensor[3], c->tensor[0], c->tensor[1], c->tensor[2], NULL,
                          &params);
}

/* The squares of the gradients add up to 9. The gradients are to be divided by 2, so their norm is
 * 3/2, and the largest norm that is allowed is 1. The scale is therefore 1 / (3/2) / 2. */
tsr_status tsr__case_clip_scale(tsr__case *c, tsr_dtype dtype)
{
    (void)dtype;
    c->value[0][0] = 9;
    TSR__TRY(tsr__case_given(c, TSR_F32, TSR__SHAPE_1(1)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(TSR__SCALE_FLOATS)));
    c->value[1][0] = 1 / (1.5 + 1e-6) / 2;
    c->value[1][1] = 1;
    return tsr__clip_scale(c->stream, c->tensor[1], c->tensor[0], 1, 2);
}

/* One sequence of seven tokens in pages of four. The places of the last page after the last token
 * stay 0. */
enum { TOKENS = 7, PAGE = 4, PAGES = 2, HEADS = 3, KV_HEADS = 2, HEAD_DIM = 10 };

static tsr_status append(const tsr__case *c, tsr_kv_cache *cache)
{
    int sequence;

    TSR__TRY(tsr_fill(c->stream, tsr__kv_cache_memory(cache), 0));
    TSR__TRY(tsr_kv_cache_add(cache, -1, &sequence));
    TSR__TRY(tsr_kv_cache_begin(cache, 1, &sequence, &(int64_t){TOKENS}, NULL));
    TSR__TRY(tsr_kv_cache_append(cache, 0, c->tensor[0], c->tensor[1]));
    return tsr_copy(c->stream, c->tensor[2], tsr__kv_cache_memory(cache));
}

tsr_status tsr__case_kv_append(tsr__case *c, tsr_dtype dtype)
{
    tsr_kv_cache *cache = NULL;
    const int64_t shape[] = {1, PAGES, 2 * (int64_t)KV_HEADS, PAGE, HEAD_DIM};

    for (int i = 0; i < 2; i++)
        TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, KV_HEADS, TOKENS, HEAD_DIM)));
    TSR__TRY(tsr__case_output(c, dtype, 5, shape));
    for (int i = 0; i < KV_HEADS * TOKENS * HEAD_DIM; i++) {
        const int head = i / (TOKENS * HEAD_DIM), token = i / HEAD_DIM % TOKENS;
        for (int kv = 0; kv < 2; kv++) {
            const int row = token / PAGE * 2 * KV_HEADS + kv * KV_HEADS + head;
            c->value[2][(row * PAGE + token % PAGE) * HEAD_DIM + i % HEAD_DIM] = c->value[kv][i];
        }
    }
    TSR__TRY(tsr_kv_cache_create(tsr_kv_cache_params(.stream = c->stream, .layers = 1,
                                                     .kv_heads = KV_HEADS, .head_dim = HEAD_DIM,
                                                     .dtype = dtype, .page_tokens = PAGE,
                                                     .pages = PAGES, .sequences = 1),
                                 &cache));
    tsr_status status = append(c, cache);
    tsr_kv_cache_destroy(&cache);
    return status;
}

/* Appends the same tokens as append(), by the operation that also rotates queries and keys. The
 * heads of tensor 0 are first those of the queries, then those of the keys, then those of the
 * values. If `apart` is set, the queries are not rotated in place, but to tensor 2. */
static tsr_status append_rotated(const tsr__case *c, tsr_kv_cache *cache, const tsr_rope *rope,
                                 bool apart)
{
    tsr_tensor qkv[3];
    int64_t first = 0;
    int sequence;

    for (int i = 0; i < 3; i++) {
        const int64_t heads = i == 0 ? HEADS : KV_HEADS;
        qkv[i] = *c->tensor[0];
        TSR__TRY(
            tsr_layout_slice(&c->tensor[0]->layout, 1, first, first + heads, 1, &qkv[i].layout));
        first += heads;
    }
    TSR__TRY(tsr_fill(c->stream, tsr__kv_cache_memory(cache), 0));
    TSR__TRY(tsr_kv_cache_add(cache, -1, &sequence));
    TSR__TRY(tsr_kv_cache_begin(cache, 1, &sequence, &(int64_t){TOKENS}, NULL));
    TSR__TRY(tsr__kv_cache_append_rotated(cache, 0, rope, &qkv[0], &qkv[1], &qkv[2],
                                          apart ? c->tensor[2] : NULL));
    TSR__TRY(tsr_copy(c->stream, c->tensor[1], tsr__kv_cache_memory(cache)));
    return apart ? TSR_OK : tsr_copy(c->stream, c->tensor[2], &qkv[0]);
}

/* Rotates row number `row` of tensor 0 on the host. */
static void rotated_row(tsr__case *c, int row)
{
    enum { PAIRS = HEAD_DIM / 2 };
    const int head = row / TOKENS, token = row % TOKENS, kv = head - HEADS;
    const double *in = c->value[0] + (ptrdiff_t)row * HEAD_DIM;
    const int place = (token / PAGE * 2 * KV_HEADS + kv) * PAGE + token % PAGE;
    double *out = kv < 0 ? c->value[2] + (ptrdiff_t)row * HEAD_DIM
                         : c->value[1] + (ptrdiff_t)place * HEAD_DIM;

    for (int i = 0; i < PAIRS; i++) {
        const double angle = kv < KV_HEADS ? token * pow(10000, -2.0 * i / HEAD_DIM) : 0;
        out[i] = in[i] * cos(angle) - in[i + PAIRS] * sin(angle);
        out[i + PAIRS] = in[i] * sin(angle) + in[i + PAIRS] * cos(angle);
    }
}

static tsr_status rope_append(tsr__case *c, tsr_dtype dtype, bool apart)
{
    tsr_kv_cache *cache = NULL;
    tsr_rope *rope = NULL;
    const int64_t shape[] = {1, PAGES, 2 * (int64_t)KV_HEADS, PAGE, HEAD_DIM};

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, HEADS + 2 * KV_HEADS, TOKENS, HEAD_DIM)));
    TSR__TRY(tsr__case_output(c, dtype, 5, shape));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, HEADS, TOKENS, HEAD_DIM)));
    for (int row = 0; row < (HEADS + 2 * KV_HEADS) * TOKENS; row++)
        rotated_row(c, row);
    tsr_status status = tsr_kv_cache_create(
        tsr_kv_cache_params(.stream = c->stream, .layers = 1, .kv_heads = KV_HEADS,
                            .head_dim = HEAD_DIM, .dtype = dtype, .page_tokens = PAGE,
                            .pages = PAGES, .sequences = 1),
        &cache);
    if (status == TSR_OK)
        status = tsr_rope_create(c->stream, tsr_rope_params(.rotary_dim = HEAD_DIM), &rope);
    if (status == TSR_OK)
        status = append_rotated(c, cache, rope, apart);
    tsr_rope_destroy(&rope);
    tsr_kv_cache_destroy(&cache);
    return status;
}

tsr_status tsr__case_rope_append(tsr__case *c, tsr_dtype dtype)
{
    return rope_append(c, dtype, false);
}

tsr_status tsr__case_rope_append_apart(tsr__case *c, tsr_dtype dtype)
{
    return rope_append(c, dtype, true);
}
