/* Cases of mixtures of experts, whose weights are floats. A case computes an operation on the
 * device and, in c->value, on the host (case.h). */
#include <math.h>

#include "gpu/checks/cases.h"
#include "gpu/device/coopmat.h"
#include "gpu/internal.h"
#include "tessera/moe.h"

/* Choice --------------------------------------------------------------------------------------- */

enum { TOKENS = 5, EXPERTS = 70, CHOSEN = 3, GROUPS = 7, GROUPS_USED = 2 };
static const double scale = 2.5;

static void softmax(const double *logits, double *out)
{
    double largest = -INFINITY, sum = 0;

    for (int j = 0; j < EXPERTS; j++)
        largest = fmax(largest, logits[j]);
    for (int j = 0; j < EXPERTS; j++)
        sum += exp(logits[j] - largest);
    for (int j = 0; j < EXPERTS; j++)
        out[j] = exp(logits[j] - largest) / sum;
}

/* Writes the experts with the largest values, the lower number first of two that are equal. */
static void choose_largest(const double *values, double *ids)
{
    bool used[EXPERTS] = {false};

    for (int r = 0; r < CHOSEN; r++) {
        int best = -1;
        for (int j = 0; j < EXPERTS; j++)
            if (!used[j] && (best < 0 || values[j] > values[best]))
                best = j;
        used[best] = true;
        ids[r] = best;
    }
}

/* Replaces the values of experts by −∞ that are not in one of the GROUPS_USED best groups. */
static void keep_best_groups(double *values)
{
    enum { SIZE = EXPERTS / GROUPS };
    double sums[GROUPS];

    for (int g = 0; g < GROUPS; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (int j = g * SIZE; j < (g + 1) * SIZE; j++) {
            second = fmax(second, fmin(first, values[j]));
            first = fmax(first, values[j]);
        }
        sums[g] = first + second;
    }
    for (int g = 0; g < GROUPS; g++) {
        int better = 0;
        for (int other = 0; other < GROUPS; other++)
            better += sums[other] > sums[g];
        for (int j = g * SIZE; j < (g + 1) * SIZE && better >= GROUPS_USED; j++)
            values[j] = -INFINITY;
    }
}

/* Tests the choice by logits, some of which are equal, and the choice by scores with a bias and
 * groups. The biases differ by more than the scores, so that rounding cannot change the order. */
tsr_status tsr__case_route(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(TOKENS, EXPERTS)));
    for (int j = 0; j < EXPERTS; j++)
        c->value[1][j] = j * 29 % EXPERTS * 4;
    TSR__TRY(tsr__case_given(c, TSR_F32, TSR__SHAPE_1(EXPERTS)));
    for (int i = 0; i < 2; i++) {
        TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_2(TOKENS, CHOSEN)));
        TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_2(TOKENS, CHOSEN)));
    }
    for (int t = 0; t < TOKENS; t++) {
        const double *logits = c->value[0] + (size_t)t * EXPERTS;
        double scores[EXPERTS], values[EXPERTS], sum = 0;
        softmax(logits, scores);
        for (int j = 0; j < EXPERTS; j++)
            values[j] = scores[j] + c->value[1][j];
        keep_best_groups(values);
        choose_largest(logits, c->value[2] + (size_t)t * CHOSEN);
        choose_largest(values, c->value[4] + (size_t)t * CHOSEN);
        for (int r = t * CHOSEN; r < (t + 1) * CHOSEN; r++)
            sum += scores[(int)c->value[4][r]];
        for (int r = t * CHOSEN; r < (t + 1) * CHOSEN; r++) {
            c->value[3][r] = scores[(int)c->value[2][r]];
            c->value[5][r] = scores[(int)c->value[4][r]] / sum * scale;
        }
    }
    TSR__TRY(tsr_route(c->stream, c->tensor[2], c->tensor[3], c->tensor[0], NULL));
    return tsr_route(c->stream, c->tensor[4], c->tensor[5], c->tensor[0],
                     tsr_route_params(.bias = c->tensor[1], .groups = GROUPS,
                                      .groups_used = GROUPS_USED, .normalise = true,
                                      .scale = (float)scale));
}

/* Computes a token's gradient. */
static void route_grad(const double *logits, const double *ids, const double *dweights,
                       const double *dprobabilities, double *dlogits)
{
    double scores[EXPERTS], grads[EXPERTS], sum = 0, product = 0, mean = 0;

    softmax(logits, scores);
    for (int r = 0; r < CHOSEN; r++) {
        sum += scores[(int)ids[r]];
        product += dweights[r] * scores[(int)ids[r]];
    }
    for (int j = 0; j < EXPERTS; j++)
        grads[j] = dprobabilities[j];
    for (int r = 0; r < CHOSEN; r++)
        grads[(int)ids[r]] += scale * (dweights[r] - product / sum) / sum;
    for (int j = 0; j < EXPERTS; j++)
        mean += scores[j] * grads[j];
    for (int j = 0; j < EXPERTS; j++)
        dlogits[j] = scores[j] * (grads[j] - mean);
}

tsr_status tsr__case_route_grad(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(TOKENS, EXPERTS)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(TOKENS, CHOSEN)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(EXPERTS)));
    for (int t = 0; t < TOKENS; t++)
        choose_largest(c->value[0] + (size_t)t * EXPERTS, c->value[3] + (size_t)t * CHOSEN);
    TSR__TRY(tsr__case_given(c, TSR_I32, TSR__SHAPE_2(TOKENS, CHOSEN)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(TOKENS, EXPERTS)));
    for (int t = 0; t < TOKENS; t++)
        route_grad(c->value[0] + (size_t)t * EXPERTS, c->value[3] + (size_t)t * CHOSEN,
                   c->value[1] + (size_t)t * CHOSEN, c->value[2],
                   c->value[4] + (size_t)t * EXPERTS);
    return tsr_route_grad(c->stream, c->tensor[4], c->tensor[0], c->tensor[3], c->tensor[1],
                          c->tensor[2], tsr_route_params(.normalise = true, .scale = (float)scale));
}

/* Adds ids [tokens,chosen] of `experts` experts, in an irregular order. With `some_absent`, some
 * pairs have an id that is not an expert. */
static tsr_status add_ids(tsr__case *c, int tokens, int chosen, int experts, bool some_absent)
{
    for (int i = 0; i < tokens * chosen; i++)
        c->value[c->count][i] = (i * 37 + i / 11) % (experts + some_absent);
    return tsr__case_given(c, TSR_I32, TSR__SHAPE_2(tokens, chosen));
}

/* Sorts the pairs whose ids are the `count` values by expert. The order has −1 behind the last pair
 * of an expert. */
static void sort(const double *ids, int count, int experts, double *order, double *offsets)
{
    int sorted = 0;

    for (int e = 0; e < experts; e++) {
        offsets[e] = sorted;
        for (int i = 0; i < count; i++)
            if ((int)ids[i] == e)
                order[sorted++] = i;
    }
    offsets[experts] = sorted;
    for (int i = sorted; i < count; i++)
        order[i] = -1;
}

/* Each invocation has several pairs. */
tsr_status tsr__case_route_sort(tsr__case *c, tsr_dtype dtype)
{
    enum { MANY_TOKENS = 100, MANY_CHOSEN = 7, PAIRS = MANY_TOKENS * MANY_CHOSEN, FEW_EXPERTS = 9 };

    (void)dtype;
    TSR__TRY(add_ids(c, MANY_TOKENS, MANY_CHOSEN, FEW_EXPERTS, true));
    TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_1(PAIRS)));
    TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_1(FEW_EXPERTS + 1)));
    sort(c->value[0], PAIRS, FEW_EXPERTS, c->value[1], c->value[2]);
    return tsr_route_sort(c->stream, c->tensor[1], c->tensor[2], c->tensor[0]);
}

/* Rows of pairs -------------------------------------------------------------------------------- */

enum { WIDTH = 70 };

tsr_status tsr__case_pair_sum(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_3(TOKENS, CHOSEN, WIDTH)));
    TSR__TRY(tsr__case_input(c, TSR_F32, TSR__SHAPE_2(TOKENS, CHOSEN)));
    TSR__TRY(add_ids(c, TOKENS, CHOSEN, EXPERTS / 10, true));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(TOKENS, WIDTH)));
    for (int i = 0; i < TOKENS * CHOSEN; i++)
        for (int f = 0; f < WIDTH && (int)c->value[2][i] < EXPERTS / 10; f++)
            c->value[3][i / CHOSEN * WIDTH + f] += c->value[1][i] * c->value[0][i * WIDTH + f];
    return tsr__pair_sum(c->stream, c->tensor[3], c->tensor[0], c->tensor[2], EXPERTS / 10,
                         c->tensor[1], false);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* Adds `hidden`, whose rows have a gate and a factor for each element, and ids. */
static tsr_status add_hidden(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_3(TOKENS, CHOSEN, INT64_C(2) * WIDTH)));
    return add_ids(c, TOKENS, CHOSEN, EXPERTS, false);
}

tsr_status tsr__case_pair_activate(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(add_hidden(c, dtype));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_3(TOKENS, CHOSEN, WIDTH)));
    for (int i = 0; i < TOKENS * CHOSEN * WIDTH; i++) {
        const double *gate = c->value[0] + (size_t)(i / WIDTH * 2 * WIDTH + i % WIDTH);
        c->value[2][i] = gate[0] * sigmoid(gate[0]) * gate[WIDTH];
    }
    const tsr__pair_activation call = {.ids = c->tensor[1],
                                       .hidden = c->tensor[0],
                                       .y = c->tensor[2],
                                       .experts = EXPERTS,
                                       .activation = TSR_EXPERT_SWIGLU};
    return tsr__pair_activate(c->stream, &call);
}

tsr_status tsr__case_pair_activate_grad(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(add_hidden(c, dtype));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_3(TOKENS, CHOSEN, WIDTH)));
    TSR__TRY(tsr__case_input(c, TSR_F32, TSR__SHAPE_2(TOKENS, CHOSEN)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_3(TOKENS, CHOSEN, WIDTH)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_3(TOKENS, CHOSEN, INT64_C(2) * WIDTH)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_2(TOKENS, CHOSEN)));
    for (int i = 0; i < TOKENS * CHOSEN * WIDTH; i++) {
        const int pair = i / WIDTH, at = pair * 2 * WIDTH + i % WIDTH;
        const double gate = c->value[0][at], up = c->value[0][at + WIDTH], dy = c->value[2][i];
        const double s = sigmoid(gate), weight = c->value[3][pair];
        c->value[4][i] = weight * gate * s * up;
        c->value[5][at] = weight * dy * up * s * (1 + gate * (1 - s));
        c->value[5][at + WIDTH] = weight * dy * gate * s;
        c->value[6][pair] += dy * gate * s * up;
    }
    const tsr__pair_activation call = {.ids = c->tensor[1],
                                       .hidden = c->tensor[0],
                                       .y = c->tensor[4],
                                       .dy = c->tensor[2],
                                       .weights = c->tensor[3],
                                       .dhidden = c->tensor[5],
                                       .dweights = c->tensor[6],
                                       .experts = EXPERTS,
                                       .activation = TSR_EXPERT_SWIGLU};
    return tsr__pair_activate(c->stream, &call);
}

/* Products ------------------------------------------------------------------------------------- */

enum { MATRICES = 3, DEPTH = 72, USED = 2, FEW_TOKENS = 3, MANY_TOKENS = 21 };

static tsr_status product(tsr__case *c, tsr_dtype dtype, int tokens, int columns)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(tokens, DEPTH)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_3(MATRICES, columns, DEPTH)));
    TSR__TRY(add_ids(c, tokens, USED, MATRICES, false));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_3(tokens, USED, columns)));
    for (int i = 0; i < tokens * USED * columns; i++) {
        const int pair = i / columns, line = (int)c->value[2][pair] * columns + i % columns;
        for (int k = 0; k < DEPTH; k++)
            c->value[3][i] += c->value[0][pair / USED * DEPTH + k] * c->value[1][line * DEPTH + k];
    }
    return tsr_matmul_grouped(c->stream, c->tensor[3], c->tensor[0], c->tensor[1], c->tensor[2],
                              NULL);
}

/* Tiles of several workgroups for each expert, incomplete at their edges. */
tsr_status tsr__case_grouped(tsr__case *c, tsr_dtype dtype)
{
    return product(c, dtype, MANY_TOKENS, WIDTH);
}

/* Fails on devices without matrix units, which compute the case with another kernel. */
tsr_status tsr__case_grouped_coopmat(tsr__case *c, tsr_dtype dtype)
{
    const tsr_device *device = tsr_stream_device(c->stream);

    if (device->traits.not_a_chip || !tsr__coopmat_used(device, dtype))
        return TSR_ERR_UNSUPPORTED;
    return product(c, dtype, MANY_TOKENS, WIDTH);
}

tsr_status tsr__case_grouped_few(tsr__case *c, tsr_dtype dtype)
{
    return product(c, dtype, FEW_TOKENS, 37);
}

tsr_status tsr__case_grouped_grad(tsr__case *c, tsr_dtype dtype)
{
    enum { PAIRS = MANY_TOKENS * USED };

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_3(MANY_TOKENS, USED, WIDTH)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(MANY_TOKENS, DEPTH)));
    TSR__TRY(add_ids(c, MANY_TOKENS, USED, MATRICES, true));
    sort(c->value[2], PAIRS, MATRICES, c->value[3], c->value[4]);
    TSR__TRY(tsr__case_given(c, TSR_I32, TSR__SHAPE_1(PAIRS)));
    TSR__TRY(tsr__case_given(c, TSR_I32, TSR__SHAPE_1(MATRICES + 1)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_3(MATRICES, WIDTH, DEPTH)));
    for (int i = 0; i < PAIRS * WIDTH; i++) {
        const int pair = i / WIDTH, line = (int)c->value[2][pair] * WIDTH + i % WIDTH;
        for (int k = 0; k < DEPTH && c->value[2][pair] < MATRICES; k++)
            c->value[5][line * DEPTH + k] += c->value[0][i] * c->value[1][pair / USED * DEPTH + k];
    }
    return tsr_matmul_grouped_grad(c->stream, c->tensor[5], c->tensor[0], c->tensor[1],
                                   c->tensor[3], c->tensor[4], USED, false);
}
