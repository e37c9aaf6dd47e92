/* Internals of sharded parameters (FSDP).
 *
 *     create.c     creates a model: its units and their parameters
 *     plan.c       the plan, and each parameter's ranges
 *     memory.c     the layout of shards and slots in memory
 *     pool.c       device memory for shards
 *     values.c     initial values
 *     slots.c      memory for full parameters, which units share
 *     gradients.c  memory for full gradients, and their reduction
 *     pass.c       passes: units are gathered before use
 *     step.c       optimizer steps
 *     file.c       checkpoints */
#ifndef TSR_PARALLEL_FSDP_FSDP_H
#define TSR_PARALLEL_FSDP_FSDP_H

#include "base/error.h"
#include "parallel/checkpoint/checkpoint.h"
#include "tessera/fsdp.h"

#define TSR__MAX_FSDP_SLOTS (TSR_MAX_FSDP_AHEAD + 1)
#define TSR__FSDP_ALIGN 64 /* bytes; alignment of parameters within a slot or pool */

typedef struct tsr__fsdp_param {
    tsr_parameter
        seen; /* as the caller sees it; tensor and grad are NULL while the unit is not in use */
    char *name;
    int64_t shape[TSR_MAX_DIMS]; /* of this rank's part of the layer's parameter */
    uint64_t count;              /* the elements of `shape` */
    tsr_shard_range range;       /* what this rank keeps of them */
    bool resident;               /* every rank keeps all elements */
    bool in_order;               /* the ranks' ranges are in the order of ranks */
    int64_t *starts, *sizes;     /* [ranks]: their ranges; NULL if resident */
    uint64_t slot_bytes;         /* position in the unit's slot */
    uint64_t grad_slot_bytes;    /* position in the unit's slot for gradients */

    /* Flat: range.count elements. */
    tsr_tensor *value, *grad, *moment1, *moment2, *master;
    bool grad_holds;   /* `grad` holds a reduced gradient since the last step */
    tsr_tensor *extra; /* a further pass's gradient, until it has been added */
    tsr_group_request *gathering, *reducing;
    bool reduced; /* the reduction has been started, and not been collected */
} tsr__fsdp_param;

typedef struct tsr__fsdp_unit {
    tsr_layer *layer;
    int first, count; /* of its parameters in `params` */
    int slot;         /* that holds its full parameters, or is being filled; -1: none */
    int grad_slot;    /* that holds its full gradients; -1: none */
    bool slotted;     /* at least one parameter is not resident */
    bool in_use;
    tsr_pass pass;
} tsr__fsdp_unit;

typedef struct tsr__fsdp_slot {
    tsr_tensor *memory; /* NULL if no unit needs memory */
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
    bool made;         /* The chunks have memory. The next part is */
    size_t at;         /* in this chunk, */
    uint64_t at_bytes; /* at this position. */
} tsr__fsdp_pool;

struct tsr_fsdp {
    tsr_group *group;
    tsr_stream *stream;
    tsr_device *device;
    int rank, size;
    tsr_shard_plan *plan;
    bool has_layers; /* the model lends the layers their memory */
    int unit_count, param_count;
    tsr__fsdp_unit *units;
    tsr__fsdp_param *params;

    tsr_optimizer_kind optimizer;
    bool momentum;
    bool masters;
    tsr_dtype grad_dtype;
    tsr_op reduction;
    int64_t steps;

    tsr__fsdp_pool values, gradients, state; /* the memory of all shards */
    int slot_count;
    tsr__fsdp_slot slots[TSR__MAX_FSDP_SLOTS];
    tsr__fsdp_slot grad_slots[TSR__MAX_FSDP_SLOTS];
    int grad_next; /* the slot for gradients whose reduction started first */
    tsr_fsdp_memory memory;
};

/* pool.c: Makes the next part of a pool. Before the pool is made, only counts the memory that the
 * part needs. */
tsr_status tsr__fsdp_part(tsr__fsdp_pool *pool, tsr_dtype dtype, uint64_t elements,
                          tsr_tensor **out) TSR_NODISCARD;
tsr_status tsr__fsdp_pool_make(tsr__fsdp_pool *pool, tsr_device *device) TSR_NODISCARD;
void tsr__fsdp_pool_finish(tsr__fsdp_pool *pool);
/* Makes a view of this dtype and shape that starts `at_bytes` into `memory`, which is f32. */
tsr_status tsr__fsdp_view(const tsr_tensor *memory, uint64_t at_bytes, tsr_dtype dtype, int ndim,
                          const int64_t *shape, tsr_tensor **out) TSR_NODISCARD;
tsr_status tsr__fsdp_memory_new(tsr_device *device, uint64_t bytes, tsr_tensor **out) TSR_NODISCARD;
uint64_t tsr__fsdp_padded(uint64_t bytes);
/* The elements from a part's start to the next part's start. They are the same for all dtypes, so
 * that parameters that are adjacent in one pool are adjacent in every pool. */
uint64_t tsr__fsdp_part_elements(uint64_t elements);

/* The parameter as the caller gave it, in a layer or by itself. */
static inline const tsr_parameter *tsr__fsdp_given(const tsr_fsdp_unit *unit, int index)
{
    return unit->layer ? tsr_layer_parameter(unit->layer, index) : &unit->parameters[index];
}

/* plan.c: take_plan copies the caller's plan or makes one, compare_plans checks that it is the same
 * on all ranks, take_ranges sets each parameter's ranges. */
tsr_status tsr__fsdp_take_plan(tsr_fsdp *model, const tsr_fsdp_params *params) TSR_NODISCARD;
tsr_status tsr__fsdp_compare_plans(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_take_ranges(tsr_fsdp *model) TSR_NODISCARD;

/* memory.c */
tsr_status tsr__fsdp_make_slots(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_make_shards(tsr_fsdp *model) TSR_NODISCARD;
void tsr__fsdp_add_up(tsr_fsdp *model);

/* values.c */
tsr_status tsr__fsdp_first_values(tsr_fsdp *model, const tsr_fsdp_params *params) TSR_NODISCARD;
/* Sets moments to 0 and master copies to the values, and the number of steps to 0. */
tsr_status tsr__fsdp_fresh_state(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_fresh_masters(tsr_fsdp *model) TSR_NODISCARD;

/* slots.c: Starts to gather a unit, unless it has a slot. The units that are next in direction
 * `step`, starting with `from`, do not lose their slots. *out is false if no slot can be taken. */
tsr_status tsr__fsdp_gather(tsr_fsdp *model, int unit, int from, int step, bool *out) TSR_NODISCARD;
/* Blocks until the unit has been gathered. */
tsr_status tsr__fsdp_wait_gathered(tsr_fsdp *model, int unit) TSR_NODISCARD;
/* Discards everything that was gathered. */
tsr_status tsr__fsdp_discard_gathered(tsr_fsdp *model) TSR_NODISCARD;

/* gradients.c: take_grads provides memory for a unit's gradients, reduce starts their reduction,
 * drop_grads discards them, and collect blocks until they are reduced. collect_all does that for
 * all units that are not in a backward pass. */
tsr_status tsr__fsdp_take_grads(tsr_fsdp *model, int unit) TSR_NODISCARD;
tsr_status tsr__fsdp_reduce(tsr_fsdp *model, int unit) TSR_NODISCARD;
void tsr__fsdp_drop_grads(tsr_fsdp *model, int unit);
tsr_status tsr__fsdp_collect(tsr_fsdp *model, int unit) TSR_NODISCARD;
tsr_status tsr__fsdp_collect_all(tsr_fsdp *model) TSR_NODISCARD;

/* pass.c: Returns an error if a unit is in use. */
tsr_status tsr__fsdp_check_not_in_use(const tsr_fsdp *model, const char *who) TSR_NODISCARD;

/* step.c: one step, with one of both params. */
typedef struct tsr__fsdp_step {
    const tsr_sgd_params *sgd;
    const tsr_adamw_params *adamw;
    float gradient_scale; /* gradients are multiplied by it */
    bool decay_matrices;  /* no weight decay for parameters of fewer than two dimensions */
} tsr__fsdp_step;
tsr_status tsr__fsdp_step_with(tsr_fsdp *model, const tsr__fsdp_step *how) TSR_NODISCARD;

/* file.c */

/* Blocks until none of the model's requests is in progress, so that the group's communicator can be
 * used for something else. */
tsr_status tsr__fsdp_synchronise(tsr_fsdp *model, const char *who) TSR_NODISCARD;
/* Adds the model's entries to those of a file. */
tsr_status tsr__fsdp_list(const tsr_fsdp *model, bool model_only,
                          tsr__training_list *list) TSR_NODISCARD;
/* Call it after the entries have been filled from a file: discards gathered parameters and
 * gradients, and sets the number of steps. */
tsr_status tsr__fsdp_loaded(tsr_fsdp *model, bool model_only, int64_t steps) TSR_NODISCARD;

#endif
