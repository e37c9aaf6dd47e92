/* Internals of optimizers.
 *
 *     optimizer.c  parameters, their state, and steps
 *     norm.c       the norm of all gradients, and clipping
 *     file.c       checkpoints */
#ifndef TSR_PARALLEL_OPTIMIZER_OPTIMIZER_H
#define TSR_PARALLEL_OPTIMIZER_OPTIMIZER_H

#include "base/error.h"
#include "tessera/optimizer.h"

typedef struct tsr__optimizer_item {
    tsr_layer *layer; /* the item is parameter `index` of this layer; NULL: the item is `own` */
    int index;
    tsr_parameter own; /* the tensors are views, the name a copy */
    char *name;
    tsr_tensor *moment1, *moment2, *master;
    bool stepped; /* a step that has not finished has stepped it */

    /* norm.c: the elements along shard_dim whose squares this rank sums; they count from the start
     * of this rank's part. */
    int64_t own_first, own_count;
} tsr__optimizer_item;

typedef struct tsr__optimizer_model {
    tsr_fsdp *fsdp;
    bool stepped;
    bool *own; /* norm.c: for each parameter, whether this rank sums the squares of its shard */
} tsr__optimizer_model;

struct tsr_optimizer {
    tsr_optimizer_params params;
    tsr__optimizer_item *items;
    size_t item_count, item_capacity;
    tsr__optimizer_model *models;
    size_t model_count, model_capacity;
    tsr_group *group; /* of the first layer or model; NULL: none */
    int64_t steps;

    /* Whether the next step multiplies the gradients by gradient_scale. */
    bool scaled;
    float gradient_scale;
    /* norm.c: the number of items and models, and the group, for which shares have been made. */
    size_t shared_items, shared_models;
    const tsr_group *shared_group;
};

const tsr_parameter *tsr__optimizer_parameter(const tsr__optimizer_item *item);
/* Returns whether an item has a gradient. That of a layer may not exist yet, or hold values that
 * count as 0. */
bool tsr__optimizer_has_gradient(const tsr__optimizer_item *item);
/* Gives all items, but not the models, the state that they were added with. */
tsr_status tsr__optimizer_fresh_state(tsr_optimizer *optimizer) TSR_NODISCARD;

#endif
