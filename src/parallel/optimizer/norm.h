/* The sum of the squares of all gradients over all ranks, from which clip.c computes the norm. */
#ifndef TSR_PARALLEL_OPTIMIZER_NORM_H
#define TSR_PARALLEL_OPTIMIZER_NORM_H

#include "base/error.h"
#include "parallel/optimizer/optimizer.h"

enum {
    TSR__NORM_CLASSES = 32,
};

/* A class: the parameters that have the same two groups (see norm.c). */
typedef struct tsr__norm_class {
    tsr_group *data, *tensor; /* NULL: the group has one rank */
    const tsr_tensor **grads; /* the gradients whose squares this rank sums */
    size_t count, capacity;
    double sum;
} tsr__norm_class;

typedef struct tsr__norm {
    tsr_optimizer *optimizer;
    tsr_group *own_group; /* the group over which the caller's own parameters are divided */
    tsr_comm *stages;     /* NULL: none */
    /* names of parameters whose squares another stage adds; NULL: none */
    const char *const *elsewhere;
    int class_count;
    tsr__norm_class classes[TSR__NORM_CLASSES];
    tsr_tensor **views; /* slices of gradients */
    size_t view_count, view_capacity;
} tsr__norm;

/* Lists the gradients by class. Returns an error that all ranks have. Sets *mine to an error of
 * this rank alone, which it must pass to tsr__norm_sum_over_ranks so that no rank waits for it. */
tsr_status tsr__norm_prepare(tsr__norm *norm, tsr_status *mine) TSR_NODISCARD;
/* Sets the sum of each class to the squares that this rank adds. Waits for the device. */
tsr_status tsr__norm_sum_local(tsr__norm *norm) TSR_NODISCARD;
/* Adds the sums of all ranks. Each rank sends with its sums whether the rank has failed, so that
 * no rank waits for a rank that has failed. */
tsr_status tsr__norm_sum_over_ranks(tsr__norm *norm, tsr_status mine, double *out) TSR_NODISCARD;
void tsr__norm_finish(tsr__norm *norm);

#endif
