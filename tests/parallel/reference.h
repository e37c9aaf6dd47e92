/* The reference for parallel layers, in double precision and in one process. */
#ifndef TESTS_PARALLEL_REFERENCE_H
#define TESTS_PARALLEL_REFERENCE_H

#include "parallel/spmd.h"

/* Values, and the sums of the magnitudes of their terms, to which errors are relative. */
typedef struct measured {
    int64_t count;
    double *value, *magnitude;
} measured;
measured measured_new(int64_t count);
void measured_free(measured *m);
/* Returns a slice of both arrays, as slice_of does. */
measured measured_slice(const measured *m, int ndim, const int64_t *shape, int dim, int64_t start,
                        int64_t count);

/* Computes y[m,n] = x[m,k] · w[n,k]ᵀ + bias[n]. If bias is NULL, there is none. */
measured reference_linear(const double *x, const double *w, const double *bias, int64_t m,
                          int64_t k, int64_t n);
/* Compute the gradients of x [m,k], w [n,k] and bias [n] from dy [m,n]. */
measured reference_dx(const double *dy, const double *w, int64_t m, int64_t k, int64_t n);
measured reference_dw(const double *dy, const double *x, int64_t m, int64_t k, int64_t n);
measured reference_db(const double *dy, int64_t m, int64_t n);

double reference_activation(tsr_activation activation, double x);
double reference_derivative(tsr_activation activation, double x);

#endif
