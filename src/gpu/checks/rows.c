#include <math.h>
#include <string.h>

#include "gpu/checks/cases.h"
#include "tessera/ops.h"

enum { ROWS = 5, COLUMNS = 133, SHORT = 7 };

/* The logarithm of the sum of a row's exponentials, and the largest element. */
static double log_sum(const double *row, double *largest)
{
    double sum = 0;

    *largest = row[0];
    for (int i = 1; i < COLUMNS; i++)
        *largest = fmax(*largest, row[i]);
    for (int i = 0; i < COLUMNS; i++)
        sum += exp(row[i] - *largest);
    return *largest + log(sum);
}

tsr_status tsr__case_softmax(tsr__case *c, tsr_dtype dtype)
{
    double largest;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    for (int r = 0; r < ROWS; r++) {
        const double *x = c->value[0] + (size_t)r * COLUMNS;
        const double log_of_sum = log_sum(x, &largest);
        for (int i = 0; i < COLUMNS; i++)
            c->value[1][r * COLUMNS + i] = exp(x[i] - log_of_sum);
    }
    return tsr_softmax(c->stream, c->tensor[1], c->tensor[0]);
}

tsr_status tsr__case_softmax_grad(tsr__case *c, tsr_dtype dtype)
{
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    for (int r = 0; r < ROWS; r++) {
        const double *y = c->value[0] + (size_t)r * COLUMNS,
                     *dy = c->value[1] + (size_t)r * COLUMNS;
        double sum = 0;
        for (int i = 0; i < COLUMNS; i++)
            sum += y[i] * dy[i];
        for (int i = 0; i < COLUMNS; i++)
            c->value[2][r * COLUMNS + i] = y[i] * (dy[i] - sum);
    }
    return tsr_softmax_grad(c->stream, c->tensor[2], c->tensor[0], c->tensor[1]);
}

#define EPSILON 1e-3F

/* Returns 1 / √(variance + ε) of a row, and its mean. */
static double reciprocal_deviation(const double *row, double *mean)
{
    double sum = 0, squares = 0;

    for (int i = 0; i < COLUMNS; i++)
        sum += row[i];
    *mean = sum / COLUMNS;
    for (int i = 0; i < COLUMNS; i++)
        squares += (row[i] - *mean) * (row[i] - *mean);
    return 1 / sqrt(squares / COLUMNS + (double)EPSILON);
}

tsr_status tsr__case_norm(tsr__case *c, tsr_dtype dtype)
{
    double mean;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(COLUMNS)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    for (int r = 0; r < ROWS; r++) {
        const double *x = c->value[0] + (size_t)r * COLUMNS;
        const double factor = reciprocal_deviation(x, &mean);
        for (int i = 0; i < COLUMNS; i++)
            c->value[3][r * COLUMNS + i] = (x[i] - mean) * factor * c->value[1][i] + c->value[2][i];
    }
    return tsr_layer_norm(c->stream, c->tensor[3], c->tensor[0], c->tensor[1], c->tensor[2],
                          EPSILON);
}

/* dx = factor · (g − mean(g) − z · mean(g · z)), where g = dy · weight and z is the normalised x.
 */
tsr_status tsr__case_norm_grad(tsr__case *c, tsr_dtype dtype)
{
    double mean;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_1(COLUMNS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(COLUMNS)));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(COLUMNS)));
    for (int r = 0; r < ROWS; r++) {
        const double *x = c->value[0] + (size_t)r * COLUMNS,
                     *dy = c->value[1] + (size_t)r * COLUMNS;
        const double factor = reciprocal_deviation(x, &mean);
        double sum = 0, products = 0;
        for (int i = 0; i < COLUMNS; i++) {
            const double z = (x[i] - mean) * factor, g = dy[i] * c->value[2][i];
            sum += g;
            products += g * z;
            c->value[4][i] += dy[i] * z;
            c->value[5][i] += dy[i];
        }
        for (int i = 0; i < COLUMNS; i++)
            c->value[3][r * COLUMNS + i] = factor * (dy[i] * c->value[2][i] - sum / COLUMNS -
                                                     (x[i] - mean) * factor * products / COLUMNS);
    }
    return tsr_layer_norm_grad(c->stream, c->tensor[3], c->tensor[4], c->tensor[5], c->tensor[0],
                               c->tensor[1], c->tensor[2], EPSILON, false);
}

tsr_status tsr__case_cross_entropy(tsr__case *c, tsr_dtype dtype)
{
    static const int32_t labels[ROWS] = {0, 132, 57, 1, 99};
    double largest;

    TSR__TRY(tsr__case_input(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    TSR__TRY(tsr__case_indices(c, ROWS, labels));
    TSR__TRY(tsr__case_output(c, TSR_F32, TSR__SHAPE_1(ROWS)));
    TSR__TRY(tsr__case_output(c, dtype, TSR__SHAPE_2(ROWS, COLUMNS)));
    for (int r = 0; r < ROWS; r++) {
        const double *x = c->value[0] + (size_t)r * COLUMNS;
        const double log_of_sum = log_sum(x, &largest);
        c->value[2][r] = log_of_sum - x[labels[r]];
        for (int i = 0; i < COLUMNS; i++)
            c->value[3][r * COLUMNS + i] = exp(x[i] - log_of_sum) - (i == labels[r]);
    }
    return tsr_cross_entropy(c->stream, c->tensor[2], c->tensor[3], c->tensor[0], c->tensor[1], 1);
}

/* The elements' values repeat, so that the order of equal elements matters, too. */
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
    return sum(c, dtype, ROWS, COLUMNS, 1);
}

tsr_status tsr__case_sum_short_rows(tsr__case *c, tsr_dtype dtype)
{
    return sum(c, dtype, COLUMNS, SHORT, 1);
}

tsr_status tsr__case_sum_columns(tsr__case *c, tsr_dtype dtype)
{
    return sum(c, dtype, ROWS, COLUMNS, 0);
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
