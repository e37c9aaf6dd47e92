/* The internal functions of optimizers.
 *
 *     optimizer.c             parameters, their state, and steps
 *     norm.c                  the sum of the squares of all gradients, over all ranks
 *     clip.c                  the norm, and the factor by which a step multiplies gradients
 *     optimizer_checkpoint.c  saves and loads checkpoints */
#ifndef TSR_PARALLEL_OPTIMIZER_OPTIMIZER_H
#define TSR_PARALLEL_OPTIMIZER_OPTIMIZER_H

#include "base/error.h"
#include "gpu/internal.h"
#include "tessera/optimizer.h"

typedef struct tsr__optimizer_item {
    /* NULL if the item is a single tensor, `own`. Otherwise the item is parameter `index` of this
     * layer. */
    tsr_layer *layer;
    int index;
    tsr_parameter own; /* the caller's tensor: views of its memory, and a copy of its name */
    char *name;
    tsr_tensor *moment1, *moment2, *master;
    bool stepped; /* the step in progress has already updated this item */

    /* For norm.c: the range of elements along shard_dim whose squares this rank sums, counted
     * from the start of this rank's block. */
    int64_t own_first, own_count;
} tsr__optimizer_item;

typedef struct tsr__optimizer_model {
    tsr_fsdp *fsdp;
    bool stepped;
    /* For norm.c: for each parameter, whether this rank sums the squares of its shard. */
    bool *own;
} tsr__optimizer_model;

/* For clip.c: the norm that was computed last. */
typedef struct tsr__optimizer_norm {
    /* waits: the norm is computed from `seen` when it is needed; otherwise it is `value` */
    bool exists, waits;
    double value;
    /* For norms that the device computes while the host goes on; created when first used. */
    tsr_tensor *sum, *scale; /* f32 [1] and [TSR__SCALE_FLOATS], in the device's memory */
    /* `sum` in host memory, valid when the stream's timeline has reached `point` */
    tsr_tensor *seen;
    uint64_t point;
    double loss_scale;
} tsr__optimizer_norm;

struct tsr_optimizer {
    tsr_optimizer_params params; /* without pointers to others */
    tsr_adamw_params adamw;
    tsr_sgd_params sgd;
    tsr__optimizer_item *items;
    size_t item_count, item_capacity;
    tsr__optimizer_model *models;
    size_t model_count, model_capacity;
    tsr_group *group; /* the group of the first layer or model; NULL: none */
    int64_t steps;

    /* The next step must multiply the gradients by `scale`. */
    bool scaled;
    tsr__gradient_scale scale;
    tsr__optimizer_norm norm;
    /* For norm.c: the number of items, the number of models and the group for which this rank's
     * shares of the sums were computed last. */
    size_t shared_items, shared_models;
    const tsr_group *shared_group;
};

const tsr_parameter *tsr__optimizer_parameter(const tsr__optimizer_item *item);
/* Returns whether an item has a gradient. The gradient of a layer's parameter may not exist yet, or
 * may contain values that count as 0. */
bool tsr__optimizer_has_gradient(const tsr__optimizer_item *item);
/* Resets the state of all items to the state that they had when they were added. Does not change
 * the state of models. */
tsr_status tsr__optimizer_fresh_state(tsr_optimizer *optimizer) TSR_NODISCARD;

#endif
