/* A linear layer's forward and backward pass, in any configuration, against the reference. */
#ifndef TESTS_PARALLEL_LINEAR_CASE_H
#define TESTS_PARALLEL_LINEAR_CASE_H

#include "parallel/reference.h"

typedef struct linear_case {
    bool row;
    tsr_linear_params params; /* group NULL: the default one */
    tsr_dtype x_dtype;        /* 0: that of the parameters */
    int lead_ndim;
    int64_t lead[4]; /* of x when it is whole, before the features */
    bool gaps;       /* x and dy are views with gaps */
    uint64_t sequence;
} linear_case;

/* Everything: forward, backward twice (which adds), once again after zero_grad. */
void linear_case_run(const linear_case *c);

/* Equal parts, or as UNEVEN cuts: written without the library. */
int64_t part_start(int64_t size, int rank);
int64_t part_count(int64_t size, int rank);

/* A whole parameter, gathered; free() it. */
double *whole_parameter(const tsr_layer *layer, int index);

#endif
