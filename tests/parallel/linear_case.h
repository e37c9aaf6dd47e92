/* Runs a linear layer's forward and backward pass in any configuration, and compares with the
 * reference. */
#ifndef TESTS_PARALLEL_LINEAR_CASE_H
#define TESTS_PARALLEL_LINEAR_CASE_H

#include "parallel/reference.h"

typedef struct linear_case {
    bool row;
    tsr_linear_params params; /* if its group is NULL, the default group */
    tsr_dtype x_dtype;        /* 0: the dtype of the parameters */
    int lead_ndim;
    int64_t lead[4]; /* the dimensions of the full x, without the features */
    bool gaps;       /* x and dy are views with gaps */
    uint64_t sequence;
} linear_case;

/* Runs a forward pass; two backward passes, whose gradients are added; and one more backward pass
 * after zero_grad. */
void linear_case_run(const linear_case *c);

/* Return the start and size of a rank's range of `size` features that are divided evenly, or by
 * the partition UNEVEN. They are computed without the library. */
int64_t part_start(int64_t size, int rank);
int64_t part_count(int64_t size, int rank);

tsr_linear_shard shard_of(const tsr_layer *layer);

/* Gathers a full parameter; free() it. */
double *whole_parameter(const tsr_layer *layer, int index);

#endif
