/* The inside of sharded parameters.
 *
 *     create.c     what there is: units and their parameters
 *     plan.c       who keeps what of them
 *     memory.c     how they lie in memory, pool.c the memory of shards
 *     values.c     their first values
 *     slots.c      memory for whole parameters, which units take in turns
 *     gradients.c  memory for whole gradients, and what becomes of them
 *     pass.c       a unit's parameters come and go
 *     step.c       the optimizer
 *     file.c       checkpoints
 */
#ifndef TSR_PARALLEL_FSDP_FSDP_H
#define TSR_PARALLEL_FSDP_FSDP_H

#include "base/error.h"
#include "parallel/checkpoint/checkpoint.h"
#include "tessera/fsdp.h"

#define TSR__MAX_FSDP_SLOTS (TSR_MAX_FSDP_AHEAD + 1)
#define TSR__FSDP_ALIGN 64 /* bytes; of whatever lies in shared memory */

typedef struct tsr__fsdp_param {
    tsr_parameter seen; /* the caller's view; tensor and grad are NULL while not in use */
    char *name;
    int64_t shape[TSR_MAX_DIMS]; /* of this rank's part of the layer's parameter */
    uint64_t count;              /* its elements */
    tsr_shard_range range;       /* what this rank keeps of them */
    bool resident;               /* all of them are kept, by all ranks */
    bool in_order;               /* ranks' ranges follow each other as the ranks do */
    int64_t *starts, *sizes;     /* [ranks]: their ranges; not of resident ones */
    uint64_t slot_bytes;         /* place in the unit's slot */
    uint64_t grad_slot_bytes;    /* place in its slot of gradients */

    /* Flat: range.count elements. */
    tsr_tensor *value, *grad, *moment1, *moment2, *master;
    bool grad_holds;   /* something, reduced, since the last step */
    tsr_tensor *extra; /* another pass's gradient, until it has been added */
    tsr_group_request *gathering, *reducing;
    bool reduced; /* by a pass that has not been collected */
} tsr__fsdp_param;

typedef struct tsr__fsdp_unit {
    tsr_layer *layer;
    int first, count; /* of its parameters */
    int slot;         /* where its parameters are, or will be soon; -1: nowhere */
    int grad_slot;    /* where its gradients are; -1 */
    bool slotted;     /* some parameter of it is not resident */
    bool in_use;
    tsr_pass pass;
} tsr__fsdp_unit;

typedef struct tsr__fsdp_slot {
    tsr_tensor *memory; /* NULL where no unit needs any */
    int unit;           /* -1: free */
} tsr__fsdp_slot;

typedef struct tsr__fsdp_chunk {
    tsr_tensor *memory;
    uint64_t bytes;
} tsr__fsdp_chunk;

/* pool.c */
typedef struct tsr__fsdp_pool {
    uint64_t most; /* bytes in one chunk, unless one part has more */
    size_t count, capacity;
    tsr__fsdp_chunk *chunks;
    bool made;         /* … and the next part is … */
    size_t at;         /* … in this chunk … */
    uint64_t at_bytes; /* … at this place */
} tsr__fsdp_pool;

struct tsr_fsdp {
    tsr_group *group;
    tsr_stream *stream;
    tsr_device *device;
    int rank, size;
    tsr_shard_plan *plan;
    bool has_layers; /* they have no memory but what comes from here */
    int unit_count, param_count;
    tsr__fsdp_unit *units;
    tsr__fsdp_param *params;

    tsr_optimizer_kind optimizer;
    bool momentum;
    bool masters;
    tsr_dtype grad_dtype;
    tsr_op reduction;
    int64_t steps;

    tsr__fsdp_pool values, gradients, state; /* memory of all shards */
    int slot_count;
    tsr__fsdp_slot slots[TSR__MAX_FSDP_SLOTS];
    tsr__fsdp_slot grad_slots[TSR__MAX_FSDP_SLOTS];
    int grad_next; /* the slot of gradients that has been reduced for longest */
    tsr_fsdp_memory memory;
};

/* pool.c: the next part of a pool, or, before that has been made, how much memory it takes. */
tsr_status tsr__fsdp_part(tsr__fsdp_pool *pool, tsr_dtype dtype, uint64_t elements,
                          tsr_tensor **out) TSR_NODISCARD;
tsr_status tsr__fsdp_pool_make(tsr__fsdp_pool *pool, tsr_device *device) TSR_NODISCARD;
void tsr__fsdp_pool_finish(tsr__fsdp_pool *pool);
/* A view of this dtype and shape that starts `at_bytes` into `memory`, which is f32. */
tsr_status tsr__fsdp_view(const tsr_tensor *memory, uint64_t at_bytes, tsr_dtype dtype, int ndim,
                          const int64_t *shape, tsr_tensor **out) TSR_NODISCARD;
tsr_status tsr__fsdp_memory_new(tsr_device *device, uint64_t bytes, tsr_tensor **out) TSR_NODISCARD;
uint64_t tsr__fsdp_padded(uint64_t bytes);
/* From a part's first element to the next part's: the same for all dtypes, so that what belongs to
 * parameters that lie behind each other lies so in every pool. */
uint64_t tsr__fsdp_part_elements(uint64_t elements);

/* The parameter as the caller gave it, whether in a layer or alone. */
static inline const tsr_parameter *tsr__fsdp_given(const tsr_fsdp_unit *unit, int index)
{
    return unit->layer ? tsr_layer_parameter(unit->layer, index) : &unit->parameters[index];
}

/* plan.c: the caller's plan or a new one, the same on all ranks, and each parameter's ranges. */
tsr_status tsr__fsdp_take_plan(tsr_fsdp *model, const tsr_fsdp_params *params) TSR_NODISCARD;
tsr_status tsr__fsdp_compare_plans(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_take_ranges(tsr_fsdp *model) TSR_NODISCARD;

/* memory.c */
tsr_status tsr__fsdp_make_slots(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_make_shards(tsr_fsdp *model) TSR_NODISCARD;
void tsr__fsdp_add_up(tsr_fsdp *model);

/* values.c */
tsr_status tsr__fsdp_first_values(tsr_fsdp *model, const tsr_fsdp_params *params) TSR_NODISCARD;
/* Sets f32 copies and moments to what a fresh model has. */
tsr_status tsr__fsdp_fresh_state(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_fresh_masters(tsr_fsdp *model) TSR_NODISCARD;

/* slots.c: sees to it that a unit is being gathered. `wanted` says which others are to be left
 * alone, if they are there: `ahead` units in direction `step` from it. *out false: there is no
 * slot. */
tsr_status tsr__fsdp_gather(tsr_fsdp *model, int unit, int from, int step, bool *out) TSR_NODISCARD;
/* Waits until it is there. */
tsr_status tsr__fsdp_gathered(tsr_fsdp *model, int unit) TSR_NODISCARD;
/* Nothing that was gathered is valid. */
tsr_status tsr__fsdp_forget(tsr_fsdp *model) TSR_NODISCARD;

/* gradients.c: memory for a unit's gradients, then their reduction, then its end: all of a unit, or
 * of all units that are not in a backward pass. */
tsr_status tsr__fsdp_take_grads(tsr_fsdp *model, int unit) TSR_NODISCARD;
tsr_status tsr__fsdp_reduce(tsr_fsdp *model, int unit) TSR_NODISCARD;
void tsr__fsdp_drop_grads(tsr_fsdp *model, int unit);
tsr_status tsr__fsdp_collect(tsr_fsdp *model, int unit) TSR_NODISCARD;
tsr_status tsr__fsdp_collect_all(tsr_fsdp *model) TSR_NODISCARD;

/* pass.c: error if a unit is in use. */
tsr_status tsr__fsdp_idle(const tsr_fsdp *model, const char *who) TSR_NODISCARD;

/* file.c */

/* Waits until none of the model's requests is in progress, so that the group's communicator is free
 * for other uses. */
tsr_status tsr__fsdp_synchronise(tsr_fsdp *model, const char *who) TSR_NODISCARD;
/* Adds the model's entries to a file's. */
tsr_status tsr__fsdp_list(const tsr_fsdp *model, bool model_only,
                          tsr__training_list *list) TSR_NODISCARD;
/* The entries have been filled from a file. */
tsr_status tsr__fsdp_loaded(tsr_fsdp *model, bool model_only, int64_t steps) TSR_NODISCARD;

#endif
