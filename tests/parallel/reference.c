#include "parallel/reference.h"

measured measured_new(int64_t count)
{
    return (measured){count, doubles(count), doubles(count)};
}

void measured_free(measured *m)
{
    free(m->value);
    free(m->magnitude);
    *m = (measured){0};
}

measured measured_slice(const measured *m, int ndim, const int64_t *shape, int dim, int64_t start,
                        int64_t count)
{
    measured part = {.value = slice_of(m->value, ndim, shape, dim, start, count),
                     .magnitude = slice_of(m->magnitude, ndim, shape, dim, start, count)};
    part.count = count;
    for (int d = 0; d < ndim; d++)
        part.count *= d == dim ? 1 : shape[d];
    return part;
}

static void add(measured *m, int64_t i, double term)
{
    m->value[i] += term;
    m->magnitude[i] += fabs(term);
}

measured reference_linear(const double *x, const double *w, const double *bias, int64_t m,
                          int64_t k, int64_t n)
{
    measured y = measured_new(m * n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            for (int64_t l = 0; l < k; l++)
                add(&y, i * n + j, x[i * k + l] * w[j * k + l]);
            if (bias)
                add(&y, i * n + j, bias[j]);
        }
    return y;
}

measured reference_dx(const double *dy, const double *w, int64_t m, int64_t k, int64_t n)
{
    measured dx = measured_new(m * k);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t l = 0; l < k; l++)
                add(&dx, i * k + l, dy[i * n + j] * w[j * k + l]);
    return dx;
}

measured reference_dw(const double *dy, const double *x, int64_t m, int64_t k, int64_t n)
{
    measured dw = measured_new(n * k);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t l = 0; l < k; l++)
                add(&dw, j * k + l, dy[i * n + j] * x[i * k + l]);
    return dw;
}

measured reference_db(const double *dy, int64_t m, int64_t n)
{
    measured db = measured_new(n);
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            add(&db, j, dy[i * n + j]);
    return db;
}

double reference_activation(tsr_activation activation, double x)
{
    const double c = 0.7978845608028654; /* √(2/π) */
    switch (activation) {
    case TSR_ACT_NONE:
        return x;
    case TSR_ACT_RELU:
        return x > 0 ? x : 0;
    case TSR_ACT_GELU_TANH:
        return x / 2 * (1 + tanh(c * (x + 0.044715 * x * x * x)));
    case TSR_ACT_GELU_ERF:
        return x / 2 * (1 + erf(x / sqrt(2)));
    case TSR_ACT_SILU:
        return x / (1 + exp(-x));
    }
    return NAN;
}

double reference_derivative(tsr_activation activation, double x)
{
    const double h = 1e-6;
    if (activation == TSR_ACT_RELU)
        return x > 0;
    return (reference_activation(activation, x + h) - reference_activation(activation, x - h)) /
           (2 * h);
}
