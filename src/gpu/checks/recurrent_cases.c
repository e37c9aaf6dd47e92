/* Cases of layers with a state: the causal convolution and the gated delta rule, forward and
 * backward. */
#include <math.h>

#include "base/alloc.h"
#include "gpu/checks/cases.h"
#include "tessera/recurrent.h"

/* Causal convolution with a bias, a state before the first token, and SiLU ----------------------
 */

enum { BATCH = 2, LENGTH = 9, CHANNELS = 5, TAPS = 4, BEFORE = TAPS - 1 };
/* The tensors of both cases, in their order. */
enum { X, WEIGHT, BIAS, STATE, Y, NEW_STATE, DY = Y, DX, DWEIGHT, DBIAS, DSTATE };

/* The i-th input of a channel, counted from the oldest one in the state. */
static double *input(double *x, double *state, int b, int c, int i)
{
    return i < BEFORE ? state + ((b * CHANNELS + c) * BEFORE + i)
                      : x + ((b * LENGTH + i - BEFORE) * CHANNELS + c);
}

static double convolved(tsr__case *c, int b, int t, int channel)
{
    double z = c->value[BIAS][channel];
    for (int j = 0; j < TAPS; j++)
        z += c->value[WEIGHT][channel * TAPS + j] *
             *input(c->value[X], c->value[STATE], b, channel, t + j);
    return z;
}

static tsr_status add_inputs(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_3(BATCH, LENGTH, CHANNELS)));
    TSR__TRY(tsr__case_input(c, TSR_F32, TSR__SHAPE_2(CHANNELS, TAPS)));
    TSR__TRY(tsr__case_input(c, TSR_F32, TSR__SHAPE_1(CHANNELS)));
    return tsr__case_input(c, TSR_F32, TSR__SHAPE_3(BATCH, CHANNELS, BEFORE));
}

tsr_status tsr__case_causal_conv(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(add_inputs(c, dtype));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_3(BATCH, LENGTH, CHANNELS)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_3(BATCH, CHANNELS, BEFORE)));
    for (int i = 0; i < BATCH * LENGTH * CHANNELS; i++) {
        const double z = convolved(c, i / (LENGTH * CHANNELS), i / CHANNELS % LENGTH, i % CHANNELS);
        c->value[Y][i] = z / (1 + exp(-z));
    }
    for (int i = 0; i < BATCH * CHANNELS * BEFORE; i++)
        c->value[NEW_STATE][i] = *input(c->value[X], c->value[STATE], i / (CHANNELS * BEFORE),
                                        i / BEFORE % CHANNELS, LENGTH + i % BEFORE);
    return tsr_causal_conv(
        c->stream, c->tensor[Y], c->tensor[NEW_STATE], c->tensor[X], c->tensor[WEIGHT],
        tsr_causal_conv_params(.bias = c->tensor[BIAS], .state = c->tensor[STATE], .silu = true));
}

tsr_status tsr__case_causal_conv_grad(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(add_inputs(c, dtype));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_3(BATCH, LENGTH, CHANNELS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_3(BATCH, LENGTH, CHANNELS)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_2(CHANNELS, TAPS)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(CHANNELS)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_3(BATCH, CHANNELS, BEFORE)));
    for (int i = 0; i < BATCH * LENGTH * CHANNELS; i++) {
        const int b = i / (LENGTH * CHANNELS), t = i / CHANNELS % LENGTH, channel = i % CHANNELS;
        const double z = convolved(c, b, t, channel), sigmoid = 1 / (1 + exp(-z)),
                     dz = c->value[DY][i] * sigmoid * (1 + z * (1 - sigmoid));
        c->value[DBIAS][channel] += dz;
        for (int j = 0; j < TAPS; j++) {
            c->value[DWEIGHT][channel * TAPS + j] +=
                dz * *input(c->value[X], c->value[STATE], b, channel, t + j);
            *input(c->value[DX], c->value[DSTATE], b, channel, t + j) +=
                dz * c->value[WEIGHT][channel * TAPS + j];
        }
    }
    return tsr_causal_conv_grad(
        c->stream,
        tsr_causal_conv_grads(.dx = c->tensor[DX], .dweight = c->tensor[DWEIGHT],
                              .dbias = c->tensor[DBIAS], .dstate = c->tensor[DSTATE]),
        c->tensor[DY], NULL, c->tensor[X], c->tensor[WEIGHT],
        tsr_causal_conv_params(.bias = c->tensor[BIAS], .state = c->tensor[STATE], .silu = true));
}

/* The gated delta rule of two heads with one key head --------------------------------------------
 */

enum {
    HEADS = 2,
    KEY = 16 /* rows of a cooperative matrix */,
    VALUE = 12,
    FEW = 5,
    MANY = 70 /* more than a chunk */
};
/* The tensors of the cases, in their order: OUT is y or dy. */
enum { Q, K, V, BETA, G, OUT, STATE_AFTER, DQ = STATE_AFTER, DK, DV, DBETA, DG };
#define NORM_EPSILON 1e-6F

typedef double state[KEY][VALUE];

/* What a head computes for all tokens. */
typedef struct recurrence {
    double q[MANY][KEY], k[MANY][KEY], q_length[MANY], k_length[MANY];
    state before[MANY], after[MANY]; /* `before` is already decayed */
    double u[MANY][VALUE];           /* beta · error */
    double error[MANY][VALUE];       /* v − Sᵀk */
    state dstate;
    double dq[MANY][KEY], dk[MANY][KEY];
} recurrence;

/* Divides a row by its length, which is returned. */
static double normalise(const double *x, double *out)
{
    double squares = (double)NORM_EPSILON;
    for (int i = 0; i < KEY; i++)
        squares += x[i] * x[i];
    for (int i = 0; i < KEY; i++)
        out[i] = x[i] / sqrt(squares);
    return sqrt(squares);
}

static void compute_head(const tsr__case *c, int tokens, int head, recurrence *r)
{
    state zero = {{0}};
    for (int t = 0; t < tokens; t++) {
        double(*last)[VALUE] = t > 0 ? r->after[t - 1] : zero;
        const double beta = c->value[BETA][t * HEADS + head],
                     decay = exp(c->value[G][t * HEADS + head]);
        const double *v = c->value[V] + (ptrdiff_t)(t * HEADS + head) * VALUE;
        r->q_length[t] = normalise(c->value[Q] + (ptrdiff_t)t * KEY, r->q[t]);
        r->k_length[t] = normalise(c->value[K] + (ptrdiff_t)t * KEY, r->k[t]);
        for (int j = 0; j < VALUE; j++) {
            double seen = 0;
            for (int i = 0; i < KEY; i++) {
                r->before[t][i][j] = decay * last[i][j];
                seen += r->before[t][i][j] * r->k[t][i];
            }
            r->error[t][j] = v[j] - seen;
            r->u[t][j] = beta * r->error[t][j];
            for (int i = 0; i < KEY; i++)
                r->after[t][i][j] = r->before[t][i][j] + r->k[t][i] * r->u[t][j];
        }
    }
}

static void write_results(tsr__case *c, int tokens, int head, const recurrence *r)
{
    for (int i = 0; i < tokens * VALUE; i++) {
        const int t = i / VALUE, j = i % VALUE;
        double y = 0;
        for (int n = 0; n < KEY; n++)
            y += r->after[t][n][j] * r->q[t][n] / sqrt(KEY);
        c->value[OUT][(ptrdiff_t)(t * HEADS + head) * VALUE + j] = y;
    }
    for (int i = 0; i < KEY * VALUE; i++)
        c->value[STATE_AFTER][head * KEY * VALUE + i] = r->after[tokens - 1][i / VALUE][i % VALUE];
}

static tsr_status add_operands(tsr__case *c, tsr_dtype dtype, int tokens)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, tokens, 1, KEY)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, tokens, 1, KEY)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, tokens, HEADS, VALUE)));
    for (int i = 0; i < tokens * HEADS; i++) {
        c->value[BETA][i] = (double)(i * 37 % 16 + 1) / 16;
        c->value[G][i] = -(double)(i * 29 % 8) / 16;
    }
    TSR__TRY(tsr__case_given(c, TSR_F32, TSR__SHAPE_3(1, tokens, HEADS)));
    return tsr__case_given(c, TSR_F32, TSR__SHAPE_3(1, tokens, HEADS));
}

static const tsr_delta_rule_params *params_for(int tokens, tsr_delta_rule_params *out)
{
    *out = (tsr_delta_rule_params){.struct_size = sizeof *out,
                                   .norm_epsilon = NORM_EPSILON,
                                   .recurrent_tokens = tokens == MANY ? TSR_DELTA_CHUNKS : 0};
    return out;
}

static tsr_status delta_rule(tsr__case *c, tsr_dtype dtype, int tokens, tsr_precision precision)
{
    tsr_delta_rule_params params;
    recurrence *r = tsr__calloc(1, sizeof *r);
    if (!r)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = add_operands(c, dtype, tokens);
    if (status == TSR_OK)
        status = tsr__case_output(c, dtype, TSR__SHAPE_4(1, tokens, HEADS, VALUE));
    if (status == TSR_OK)
        status = tsr__case_output(c, TSR_F32, TSR__SHAPE_4(1, HEADS, KEY, VALUE));
    for (int h = 0; status == TSR_OK && h < HEADS; h++) {
        compute_head(c, tokens, h, r);
        write_results(c, tokens, h, r);
    }
    tsr__free(r);
    TSR__TRY(status);
    params_for(tokens, &params);
    params.precision = precision;
    return tsr_delta_rule(c->stream, c->tensor[OUT], c->tensor[STATE_AFTER], c->tensor[Q],
                          c->tensor[K], c->tensor[V], c->tensor[BETA], c->tensor[G], &params);
}

tsr_status tsr__case_delta_step(tsr__case *c, tsr_dtype dtype)
{
    return delta_rule(c, dtype, FEW, TSR_PRECISION_HIGHEST);
}

tsr_status tsr__case_delta_chunks(tsr__case *c, tsr_dtype dtype)
{
    return delta_rule(c, dtype, MANY, TSR_PRECISION_HIGHEST);
}

tsr_status tsr__case_delta_matrices(tsr__case *c, tsr_dtype dtype)
{
    return delta_rule(c, dtype, MANY, TSR_PRECISION_HIGH);
}

/* The gradient of normalise(): adds it to `out`. */
static void add_row_gradient(const double *normalised, double length, const double *d, double *out)
{
    double along = 0;
    for (int i = 0; i < KEY; i++)
        along += normalised[i] * d[i];
    for (int i = 0; i < KEY; i++)
        out[i] += (d[i] - normalised[i] * along) / length;
}

/* The gradients of a token, from r->dstate, that of the state after it, which becomes that of the
 * state before it. */
static void differentiate_token(tsr__case *c, int t, int head, recurrence *r)
{
    const double beta = c->value[BETA][t * HEADS + head],
                 decay = exp(c->value[G][t * HEADS + head]);
    const double *dy = c->value[OUT] + (ptrdiff_t)(t * HEADS + head) * VALUE;
    for (int j = 0; j < VALUE; j++) {
        double du = 0;
        for (int i = 0; i < KEY; i++) {
            r->dq[t][i] += r->after[t][i][j] * dy[j] / sqrt(KEY);
            r->dstate[i][j] += r->q[t][i] * dy[j] / sqrt(KEY);
            r->dk[t][i] += r->dstate[i][j] * r->u[t][j];
            du += r->dstate[i][j] * r->k[t][i];
        }
        c->value[DBETA][t * HEADS + head] += du * r->error[t][j];
        c->value[DV][(ptrdiff_t)(t * HEADS + head) * VALUE + j] = beta * du;
        for (int i = 0; i < KEY; i++) {
            r->dk[t][i] -= r->before[t][i][j] * beta * du;
            r->dstate[i][j] -= r->k[t][i] * beta * du;
            c->value[DG][t * HEADS + head] += r->dstate[i][j] * r->before[t][i][j];
            r->dstate[i][j] *= decay;
        }
    }
}

static tsr_status add_gradients(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_4(1, MANY, HEADS, VALUE)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, MANY, 1, KEY)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, MANY, 1, KEY)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_4(1, MANY, HEADS, VALUE)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_3(1, MANY, HEADS)));
    return tsr__case_output(c, TSR_F32, TSR__SHAPE_3(1, MANY, HEADS));
}

static void differentiate_head(tsr__case *c, int head, recurrence *r)
{
    *r = (recurrence){.dstate = {{0}}};
    compute_head(c, MANY, head, r);
    for (int t = MANY - 1; t >= 0; t--) {
        differentiate_token(c, t, head, r);
        add_row_gradient(r->q[t], r->q_length[t], r->dq[t], c->value[DQ] + (ptrdiff_t)t * KEY);
        add_row_gradient(r->k[t], r->k_length[t], r->dk[t], c->value[DK] + (ptrdiff_t)t * KEY);
    }
}

tsr_status tsr__case_delta_grad(tsr__case *c, tsr_dtype dtype)
{
    tsr_delta_rule_params params;
    TSR__TRY(add_operands(c, dtype, MANY));
    TSR__TRY(add_gradients(c, dtype));
    recurrence *r = tsr__calloc(1, sizeof *r);
    if (!r)
        return TSR_ERR_NO_MEMORY;
    for (int h = 0; h < HEADS; h++)
        differentiate_head(c, h, r);
    tsr__free(r);
    return tsr_delta_rule_grad(c->stream,
                               tsr_delta_rule_grads(.dq = c->tensor[DQ], .dk = c->tensor[DK],
                                                    .dv = c->tensor[DV], .dbeta = c->tensor[DBETA],
                                                    .dg = c->tensor[DG]),
                               c->tensor[OUT], NULL, c->tensor[Q], c->tensor[K], c->tensor[V],
                               c->tensor[BETA], c->tensor[G], params_for(MANY, &params));
}
