/* Internals of optimizers.
 *
 *     optimizer.c  parameters, their state, and steps
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
} tsr__optimizer_item;

typedef struct tsr__optimizer_model {
    tsr_fsdp *fsdp;
    bool stepped;
} tsr__optimizer_model;

struct tsr_optimizer {
    tsr_optimizer_params params;
    tsr__optimizer_item *items;
    size_t item_count, item_capacity;
    tsr__optimizer_model *models;
    size_t model_count, model_capacity;
    tsr_group *group; /* of the first layer or model; NULL: none */
    int64_t steps;
};

const tsr_parameter *tsr__optimizer_parameter(const tsr__optimizer_item *item);
/* Gives all items, but not the models, the state that they were added with. */
tsr_status tsr__optimizer_fresh_state(tsr_optimizer *optimizer) TSR_NODISCARD;

#endif
