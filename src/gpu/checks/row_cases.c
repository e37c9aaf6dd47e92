/* Cases of operations on rows. A case computes an operation on the device and, in c->value, on the
 * host (case.h). In some cases a row is divided into segments (shaders/params/rows.h). */
#include <math.h>
#include <string.h>

#include "base/choice.h"
#include "gpu/checks/cases.h"
#include "gpu/internal.h"
#include "gpu/ops/common/segments.h"
#include "tessera/ops.h"

enum { ROWS = 5, COLUMNS = 133, SHORT = 7 };
/* the length of the only row in cases whose row is divided into segments */
enum { LONG = 16391 };
/* the cases of sums compute SUMS results, each the sum of SUMMED elements, which reduce.c divides
 * into two chunks and adds up separately */
enum { SUMMED = 300, SUMS = 36 };

/* The number of rows of a case, and their length. */
typedef struct extent {
    int count, length;
} extent;

static const extent some = {ROWS, COLUMNS}, one = {1, LONG};

/* Fails if the device does not divide long rows into segments. */
static tsr_status require_division(const tsr__case *c)
{
    return tsr__segments_suit(tsr_stream_device(c->stream), 1, LONG) ? TSR_OK : TSR_ERR_UNSUPPORTED;
}

/* Returns the logarithm of the sum of a row's exponentials, and writes the row's largest element.
 */
static double log_sum(const double *row, int length, double *largest)
{
    double sum = 0;

    *largest = row[0];
    for (int i = 1; i < length; i++)
        *largest = fmax(*largest, row[i]);
    for (int i = 0; i < length; i++)
        sum += exp(row[i] - *largest);
    return *largest + log(sum);
}

static tsr_status softmax(tsr__case *c, tsr_dtype dtype, extent all, bool logarithm)
{
    double largest;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    for (int r = 0; r < all.count; r++) {
        const double *x = c->value[0] + (ptrdiff_t)r * all.length;
        const double log_of_sum = log_sum(x, all.length, &largest);
        for (int i = 0; i < all.length; i++)
            c->value[1][r * all.length + i] =
                logarithm ? x[i] - log_of_sum : exp(x[i] - log_of_sum);
    }
    return logarithm ? tsr_softmax(c->stream, c->tensor[1], c->tensor[0], true)
                     : tsr_softmax(c->stream, c->tensor[1], c->tensor[0], false);
}

tsr_status tsr__case_softmax(tsr__case *c, tsr_dtype dtype)
{
    return softmax(c, dtype, some, false);
}

/* Tests the logarithm of the softmax, because the probabilities of so many elements are smaller
 * than the tolerance of the comparison. */
tsr_status tsr__case_softmax_divided(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(require_division(c));
    return softmax(c, dtype, one, true);
}

static tsr_status softmax_grad(tsr__case *c, tsr_dtype dtype, extent all)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    for (int r = 0; r < all.count; r++) {
        const double *y = c->value[0] + (ptrdiff_t)r * all.length,
                     *dy = c->value[1] + (ptrdiff_t)r * all.length;
        double sum = 0;
        for (int i = 0; i < all.length; i++)
            sum += y[i] * dy[i];
        for (int i = 0; i < all.length; i++)
            c->value[2][r * all.length + i] = y[i] * (dy[i] - sum);
    }
    return tsr_softmax_grad(c->stream, c->tensor[2], c->tensor[0], c->tensor[1], false);
}

tsr_status tsr__case_softmax_grad(tsr__case *c, tsr_dtype dtype)
{
    return softmax_grad(c, dtype, some);
}

tsr_status tsr__case_softmax_grad_divided(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(require_division(c));
    return softmax_grad(c, dtype, one);
}

#define EPSILON 1e-3F

/* Returns 1 / √(variance + ε) of a row, and its mean. */
static double reciprocal_deviation(const double *row, int length, double *mean)
{
    double sum = 0, squares = 0;

    for (int i = 0; i < length; i++)
        sum += row[i];
    *mean = sum / length;
    for (int i = 0; i < length; i++)
        squares += (row[i] - *mean) * (row[i] - *mean);
    return 1 / sqrt(squares / length + (double)EPSILON);
}

/* Adds x, weight, bias and the result. */
static tsr_status add_norm(tsr__case *c, tsr_dtype dtype, extent all)
{
    double mean;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(all.length)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(all.length)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    for (int r = 0; r < all.count; r++) {
        const double *x = c->value[0] + (ptrdiff_t)r * all.length;
        const double factor = reciprocal_deviation(x, all.length, &mean);
        for (int i = 0; i < all.length; i++)
            c->value[3][r * all.length + i] =
                (x[i] - mean) * factor * c->value[1][i] + c->value[2][i];
    }
    return TSR_OK;
}

static tsr_status norm(tsr__case *c, tsr_dtype dtype, extent all)
{
    TSR__TRY(add_norm(c, dtype, all));
    return tsr_norm(c->stream, c->tensor[3], c->tensor[0], c->tensor[1], c->tensor[2],
                    TSR_NORM_LAYER, EPSILON);
}

tsr_status tsr__case_norm(tsr__case *c, tsr_dtype dtype)
{
    return norm(c, dtype, some);
}

tsr_status tsr__case_norm_divided(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(require_division(c));
    return norm(c, dtype, one);
}

/* Copies component `first` of each row's statistics (shaders/params/norm.h) to a column, and adds
 * component `second` unless that is 0. */
static tsr_status copy_statistic(const tsr__case *c, int output, const tsr_tensor *stats, int first,
                                 int second)
{
    tsr_tensor part = *stats, other = *stats;

    TSR__TRY(tsr_layout_slice(&stats->layout, 1, first, first + 1, 1, &part.layout));
    TSR__TRY(tsr_layout_slice(&stats->layout, 1, second, second + 1, 1, &other.layout));
    return second > 0 ? tsr_binary(c->stream, c->tensor[output], &part, &other, TSR_BINARY_ADD)
                      : tsr_copy(c->stream, c->tensor[output], &part);
}

tsr_status tsr__case_norm_with_stats(tsr__case *c, tsr_dtype dtype)
{
    enum { RESULT = 3, FACTOR, MEAN };
    tsr_tensor *stats = NULL;

    TSR__TRY(add_norm(c, dtype, some));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_2(ROWS, 1)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_2(ROWS, 1)));
    for (int r = 0; r < ROWS; r++)
        c->value[FACTOR][r] =
            reciprocal_deviation(c->value[0] + (ptrdiff_t)r * COLUMNS, COLUMNS, &c->value[MEAN][r]);
    TSR__TRY(tsr__norm_new_stats(c->tensor[0], &stats));
    if (!stats)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "norm: the device saves no statistics");
    tsr__case_adopt(c, stats);
    TSR__TRY(tsr__norm_with_stats(c->stream, c->tensor[RESULT], c->tensor[0], c->tensor[1],
                                  c->tensor[2], TSR_NORM_LAYER, EPSILON, stats));
    TSR__TRY(copy_statistic(c, FACTOR, stats, 0, 0));
    return copy_statistic(c, MEAN, stats, 1, 2);
}

/* dx = factor · (g − mean(g) − z · mean(g · z)), where g = dy · weight and
 * z is the normalised x. */
static tsr_status norm_grad(tsr__case *c, tsr_dtype dtype, extent all, bool adds)
{
    double mean;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(all.length)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(all.length)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(all.length)));
    for (int r = 0; r < all.count; r++) {
        const double *x = c->value[0] + (ptrdiff_t)r * all.length,
                     *dy = c->value[1] + (ptrdiff_t)r * all.length;
        const double factor = reciprocal_deviation(x, all.length, &mean);
        double sum = 0, products = 0;
        for (int i = 0; i < all.length; i++) {
            const double z = (x[i] - mean) * factor, g = dy[i] * c->value[2][i];
            sum += g;
            products += g * z;
            c->value[4][i] += dy[i] * z;
            c->value[5][i] += dy[i];
        }
        for (int i = 0; i < all.length; i++)
            c->value[3][r * all.length + i] =
                factor * (dy[i] * c->value[2][i] - sum / all.length -
                          (x[i] - mean) * factor * products / all.length);
    }
    if (adds)
        TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    for (int i = 0; adds && i < all.count * all.length; i++)
        c->value[3][i] += c->value[6][i];
    return tsr__norm_grad_added(c->stream, c->tensor[3], c->tensor[4], c->tensor[5], c->tensor[0],
                                c->tensor[1], c->tensor[2], adds ? c->tensor[6] : NULL, NULL,
                                TSR_NORM_LAYER, EPSILON, false);
}

tsr_status tsr__case_norm_grad(tsr__case *c, tsr_dtype dtype)
{
    return norm_grad(c, dtype, some, false);
}

tsr_status tsr__case_norm_grad_added(tsr__case *c, tsr_dtype dtype)
{
    return norm_grad(c, dtype, some, true);
}

tsr_status tsr__case_norm_grad_divided(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(require_division(c));
    return norm_grad(c, dtype, one, false);
}

static tsr_status cross_entropy(tsr__case *c, tsr_dtype dtype, extent all)
{
    static const int32_t labels[ROWS] = {0, 132, 57, 1, 99};
    double largest;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    TSR__TRY(tsr__case_indices(c, all.count, labels));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(all.count)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(all.count, all.length)));
    for (int r = 0; r < all.count; r++) {
        const double *x = c->value[0] + (ptrdiff_t)r * all.length;
        const double log_of_sum = log_sum(x, all.length, &largest);
        c->value[2][r] = log_of_sum - x[labels[r]];
        for (int i = 0; i < all.length; i++)
            c->value[3][r * all.length + i] = exp(x[i] - log_of_sum) - (i == labels[r]);
    }
    return tsr_cross_entropy(c->stream, c->tensor[2], c->tensor[3], c->tensor[0], c->tensor[1], 1);
}

tsr_status tsr__case_cross_entropy(tsr__case *c, tsr_dtype dtype)
{
    return cross_entropy(c, dtype, some);
}

tsr_status tsr__case_cross_entropy_divided(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(require_division(c));
    return cross_entropy(c, dtype, one);
}

/* The values of the inputs repeat, so this also tests that equal elements keep their order. */
tsr_status tsr__case_topk(tsr__case *c, tsr_dtype dtype)
{
    enum { MOST = 5 };
    bool taken[COLUMNS];

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, MOST)));
    TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_2(ROWS, MOST)));
    for (int r = 0; r < ROWS; r++) {
        const double *x = c->value[0] + (size_t)r * COLUMNS;
        memset(taken, 0, sizeof taken);
        for (int k = 0; k < MOST; k++) {
            int best = -1;
            for (int i = 0; i < COLUMNS; i++)
                if (!taken[i] && (best < 0 || x[i] > x[best]))
                    best = i;
            taken[best] = true;
            c->value[1][r * MOST + k] = x[best];
            c->value[2][r * MOST + k] = best;
        }
    }
    return tsr_topk(c->stream, c->tensor[1], c->tensor[2], c->tensor[0], 1);
}

/* Returns the token that the kernel must choose from a row: the first of the most likely, or the
 * one at a random place in the sum of the weights of tokens whose logits are `least` or more. */
static int chosen_from(const double *x, const struct tsr_choice_words *choice, double least)
{
    uint64_t total = 0, sum = 0;
    int best = 0, token = 0;
    uint64_t weights[COLUMNS];

    for (int i = 1; i < COLUMNS; i++)
        best = x[i] > x[best] ? i : best;
    if (choice->flags & TSR_CHOICE_GREEDY)
        return best;
    for (int i = 0; i < COLUMNS; i++) {
        weights[i] = x[i] < least ? 0
                                  : tsr__choice_weight(tsr__choice_distance(
                                        (float)x[best], (float)x[i], choice->scale));
        total += weights[i];
    }
    const uint64_t place =
        tsr__mul_high_u64(choice->random[0] | (uint64_t)choice->random[1] << 32, total);
    while (sum + weights[token] <= place)
        sum += weights[token++];
    return token;
}

/* Greedy choice, draws from all tokens, and from those of the largest logit, with ties. */
tsr_status tsr__case_choose(tsr__case *c, tsr_dtype dtype)
{
    struct tsr_choice_words choices[ROWS];

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_1(ROWS)));
    TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_1(ROWS)));
    for (int r = 0; r < ROWS; r++) {
        const double *x = c->value[0] + (size_t)r * COLUMNS;
        double least = -INFINITY;
        choices[r] =
            (struct tsr_choice_words){.flags = r == 0 ? TSR_CHOICE_GREEDY : 0,
                                      .scale = 48408812, /* 2^25 / ln 2: a temperature of 1 */
                                      .top_k = (uint32_t)r % 2,
                                      .random = {77, UINT32_MAX / ROWS * (uint32_t)r}};
        for (int i = 0; r % 2 == 1 && i < COLUMNS; i++)
            least = fmax(least, x[i]);
        c->value[1][r] = c->value[2][r] = chosen_from(x, &choices[r], least);
    }
    return tsr__choose(c->stream, c->tensor[1], c->tensor[2], NULL, c->tensor[0], choices);
}

tsr_status tsr__case_argmax(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, TSR_I32, TSR__SHAPE_1(ROWS)));
    for (int r = 0; r < ROWS; r++) {
        const double *x = c->value[0] + (size_t)r * COLUMNS;
        int best = 0;
        for (int i = 1; i < COLUMNS; i++)
            best = x[i] > x[best] ? i : best;
        c->value[1][r] = best;
    }
    return tsr_argmax(c->stream, c->tensor[1], c->tensor[0], 1);
}

static tsr_status sum(tsr__case *c, tsr_dtype dtype, int rows, int columns, int dim)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(rows, columns)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(dim == 0 ? columns : rows)));
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < columns; i++)
            c->value[1][dim == 0 ? i : r] += c->value[0][r * columns + i];
    return tsr_reduce(c->stream, c->tensor[1], c->tensor[0], dim, TSR_REDUCE_SUM, false);
}

tsr_status tsr__case_sum_rows(tsr__case *c, tsr_dtype dtype)
{
    return sum(c, dtype, SUMS, SUMMED, 1);
}

tsr_status tsr__case_sum_short_rows(tsr__case *c, tsr_dtype dtype)
{
    return sum(c, dtype, COLUMNS, SHORT, 1);
}

tsr_status tsr__case_sum_columns(tsr__case *c, tsr_dtype dtype)
{
    return sum(c, dtype, SUMMED, SUMS, 0);
}

tsr_status tsr__case_sum_squares(tsr__case *c, tsr_dtype dtype)
{
    enum { COUNT = 2931 };

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(COUNT)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(1)));
    for (int i = 0; i < COUNT; i++)
        c->value[1][0] += c->value[0][i] * c->value[0][i];
    return tsr_sum_squares(c->stream, c->tensor[1], (const tsr_tensor *const *)&c->tensor[0], 1, 1);
}
