#include <math.h>

#include "gpu/checks/cases.h"
#include "tessera/attention.h"
#include "tessera/matmul.h"
#include "tessera/quant.h"

/* Attention ------------------------------------------------------------------------------------ */

enum { HEADS = 2, WIDTH = 24, KEYS = 41 };

/* One query's result. The query sees the first `seen` keys. */
static void attend(const double *q, const double *k, const double *v, int seen, double *y)
{
    double score[KEYS], largest = -INFINITY, sum = 0;

    for (int j = 0; j < seen; j++) {
        score[j] = 0;
        for (int i = 0; i < WIDTH; i++)
            score[j] += q[i] * k[j * WIDTH + i] / sqrt(WIDTH);
        largest = fmax(largest, score[j]);
    }
    for (int i = 0; i < WIDTH; i++)
        y[i] = 0;
    for (int j = 0; j < seen; j++) {
        const double p = exp(score[j] - largest);
        sum += p;
        for (int i = 0; i < WIDTH; i++)
            y[i] += p * v[j * WIDTH + i];
    }
    for (int i = 0; i < WIDTH; i++)
        y[i] /= sum;
}

/* Two heads that read one kv head, with a causal mask. */
static tsr_status attention(tsr__case *c, tsr_dtype dtype, int queries)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, HEADS, queries, WIDTH)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, 1, KEYS, WIDTH)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, 1, KEYS, WIDTH)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, HEADS, queries, WIDTH)));
    for (int r = 0; r < HEADS * queries; r++)
        attend(c->value[0] + (size_t)r * WIDTH, c->value[1], c->value[2],
               KEYS - queries + r % queries + 1, c->value[3] + (size_t)r * WIDTH);
    return tsr_attention(c->stream, c->tensor[3], NULL, c->tensor[0], c->tensor[1], c->tensor[2],
                         &(tsr_attention_params){.causal = true});
}

tsr_status tsr__case_attention(tsr__case *c, tsr_dtype dtype)
{
    return attention(c, dtype, 37);
}

tsr_status tsr__case_attention_few(tsr__case *c, tsr_dtype dtype)
{
    return attention(c, dtype, 1);
}

/* Weights in q8_0 ------------------------------------------------------------------------------ */

enum { COLUMNS = 9, DEPTH = 64, BLOCK_BYTES = 34 };
static const int64_t weights = INT64_C(1) * COLUMNS * DEPTH;

static tsr_status add_weights(tsr__case *c)
{
    uint8_t blocks[COLUMNS * DEPTH / 32 * BLOCK_BYTES];
    float values[COLUMNS * DEPTH];

    /* Each block has 127 / 64 as its largest element, so that its scale is 1 / 64 and all dtypes
     * represent its elements. */
    for (int i = 0; i < COLUMNS * DEPTH; i++)
        values[i] = (float)(i % 32 == 0 ? 127 : (i * 29 + i / DEPTH) % 255 - 127) / 64;
    TSR__TRY(tsr_quantize(TSR_Q8_0, values, weights, blocks, sizeof blocks));
    TSR__TRY(tsr_dequantize(TSR_Q8_0, blocks, sizeof blocks, values, weights));
    TSR__TRY(tsr_tensor_create(tsr_stream_device(c->stream), TSR_Q8_0, TSR__SHAPE_2(COLUMNS, DEPTH),
                               &c->tensor[c->count]));
    for (int i = 0; i < COLUMNS * DEPTH; i++)
        c->value[c->count][i] = (double)values[i];
    c->count++;
    return tsr_tensor_upload(c->stream, c->tensor[c->count - 1], blocks, sizeof blocks);
}

static tsr_status multiply_quant(tsr__case *c, tsr_dtype dtype, int rows)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(rows, DEPTH)));
    TSR__TRY(add_weights(c));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_2(rows, COLUMNS)));
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < COLUMNS; n++)
            for (int k = 0; k < DEPTH; k++)
                c->value[2][r * COLUMNS + n] +=
                    c->value[0][r * DEPTH + k] * c->value[1][n * DEPTH + k];
    return tsr_matmul(c->stream, c->tensor[2], c->tensor[0], c->tensor[1],
                      tsr_matmul_params(.transpose_b = true));
}

tsr_status tsr__case_quant_few(tsr__case *c, tsr_dtype dtype)
{
    return multiply_quant(c, dtype, 3);
}

/* Weights are first converted to floats. */
tsr_status tsr__case_quant_many(tsr__case *c, tsr_dtype dtype)
{
    return multiply_quant(c, dtype, 21);
}
