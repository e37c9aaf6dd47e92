/* The internal functions of sharded parameters (FSDP). A unit is a set of parameters that are
 * gathered together. A slot is memory for all full parameters of one unit.
 *
 *     create.c           creates a model: its units and their parameters
 *     plan.c             the plan, and the ranges of parameters
 *     memory.c           the layout of shards and slots in memory
 *     pool.c             device memory for shards
 *     values.c           initial values
 *     slots.c            memory for full parameters, which units share
 *     gradients.c        memory for full gradients, and their reduction
 *     pass.c             passes, which gather units before they are used
 *     step.c             optimizer steps
 *     replica.c          copies of another rank's shards
 *     rebuild.c          models on another set of ranks: which ranks have what, and from which step
 *     move.c             models on another set of ranks: the bytes
 *     fsdp_checkpoint.c  checkpoints */
#ifndef TSR_PARALLEL_FSDP_FSDP_H
#define TSR_PARALLEL_FSDP_FSDP_H

#include "base/error.h"
#include "gpu/internal.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/internal.h"
#include "tessera/fsdp.h"

#define TSR__MAX_FSDP_SLOTS (TSR_MAX_FSDP_AHEAD + 1)
#define TSR__FSDP_ALIGN 64 /* alignment in bytes of parameters in a slot or pool */

typedef struct tsr__fsdp_param {
    /* The parameter as the caller sees it; `tensor` and `grad` are NULL while the unit is not in
     * use. */
    tsr_parameter seen;
    char *name;
    int64_t shape[TSR_MAX_DIMS]; /* the shape of the parameter in this rank's layer */
    uint64_t count;              /* number of elements of `shape` */
    tsr_shard_range range;       /* the range of these elements that this rank keeps */
    bool resident;               /* every rank keeps all elements */
    bool in_order;               /* the ranges follow each other in the order of ranks */
    int64_t *starts, *sizes;     /* [ranks]: each rank's range; NULL if resident */
    /* The layer uses the shard itself: the ranges are whole experts, which the parameter has along
     * its first dimension. [ranks]: how many each rank has; NULL: the parameter is gathered. */
    int64_t *experts;
    bool divisible; /* the parameter has experts that several ranks would divide */
    /* A matrix of a frozen layer in a block format: its dtype; `seen` then has the float dtype that
     * the layer has for it, and `shape` and `count` are bytes, in rows. Otherwise 0. */
    tsr_dtype blocks;
    /* Such a matrix if it is resident, in the memory that it had; `value` is NULL. */
    tsr_tensor *whole;
    uint64_t slot_bytes;      /* position in the slot of the unit */
    uint64_t grad_slot_bytes; /* position in the slot for the unit's gradients */

    /* One-dimensional tensors of range.count elements. */
    tsr_tensor *value, *grad, *moment1, *moment2, *master;
    bool grad_holds;   /* `grad` contains a gradient that was reduced after the last step */
    tsr_tensor *extra; /* the gradient of another pass, until it has been added to `grad` */
    tsr_request *gathering, *reducing;
    bool reduced; /* the reduction has been started, and its result has not been collected yet */
} tsr__fsdp_param;

typedef struct tsr__fsdp_unit {
    tsr_layer *layer;
    int first, count; /* the unit's first parameter in `params`, and their number */
    int slot;         /* the slot that contains its full parameters, or is being filled; -1: none */
    int grad_slot;    /* the slot that contains its full gradients; -1: none */
    bool slotted;     /* at least one parameter is not resident */
    bool in_use;
    tsr_pass pass;
    /* replica.c: `passes` counts the backward passes since the last step whose gradients have been
     * reduced. `expected` is the count at the last step that followed a pass, or 1. */
    int passes, expected;
    bool sent; /* the gradients of `expected` passes are being sent to the copy, or have been */
} tsr__fsdp_unit;

typedef struct tsr__fsdp_slot {
    tsr_tensor *memory; /* NULL if no unit needs memory */
    int unit;           /* the unit that uses the slot; -1: none */
} tsr__fsdp_slot;

typedef struct tsr__fsdp_chunk {
    tsr_tensor *memory;
    uint64_t bytes;
} tsr__fsdp_chunk;

/* pool.c: the memory for all shards of one kind. It consists of chunks, which are tensors, and each
 * chunk is divided into regions, one for each shard. */
typedef struct tsr__fsdp_pool {
    uint64_t most; /* the most bytes of a chunk; a larger region has a chunk of its own */
    size_t count, capacity;
    tsr__fsdp_chunk *chunks;
    uint64_t shard_bytes; /* the bytes of shards; resident parameters follow, and are not counted */
    bool made;            /* the chunks have memory */
    size_t next_chunk;    /* the chunk of the next region */
    uint64_t next_bytes;  /* the position of the next region in its chunk */
} tsr__fsdp_pool;

/* The memory of a set of shards: this rank's own, or the copies of another rank's. */
typedef struct tsr__fsdp_pools {
    tsr__fsdp_pool values, gradients, state;
} tsr__fsdp_pools;

/* step.c: one optimizer step. Exactly one of `sgd` and `adamw` is not NULL. The model sets their
 * number of the step. */
typedef struct tsr__fsdp_step {
    const tsr_sgd_params *sgd;
    const tsr_adamw_params *adamw;
    tsr__gradient_scale scale; /* the factor by which gradients are multiplied */
    bool decay_matrices;       /* only parameters of two or more dimensions have weight decay */
} tsr__fsdp_step;

/* The state of the next optimizer step. */
typedef enum tsr__fsdp_progress {
    TSR__FSDP_IDLE = 0,
    /* This rank has the gradients of its shards and of its copies, so it can make the step without
     * the other ranks. */
    TSR__FSDP_PREPARED = 1,
    /* All ranks are prepared. No rank changes its shards before that. */
    TSR__FSDP_MET = 2
} tsr__fsdp_progress;

/* replica.c: this rank's copy of the shards of rank `from`. Rank `to` keeps the copy of this rank's
 * shards. */
typedef struct tsr__fsdp_replica {
    tsr_comm *comm;   /* NULL: there are no copies */
    tsr_group *group; /* the group that sends gradients while the device computes */
    bool changed;     /* the caller may have changed gradients that have been sent */
    int from, to, distance;
    tsr__fsdp_param *params; /* [param_count]; `reducing` is the exchange of gradients */
    tsr__fsdp_pools pools;
    /* Host memory for the piece to send and the piece to receive, if the network cannot access the
     * device's memory. Otherwise NULL. */
    void *sent, *received;
} tsr__fsdp_replica;

struct tsr_fsdp {
    tsr_group *group;
    tsr_stream *stream;
    tsr_device *device;
    int rank, size;
    tsr_shard_plan *plan;
    bool has_layers; /* the model gives the layers memory while their units are in use */
    int unit_count, param_count;
    tsr__fsdp_unit *units;
    tsr__fsdp_param *params;

    tsr_optimizer_kind optimizer;
    bool momentum;
    bool masters;
    tsr_dtype grad_dtype;
    tsr_op reduction;
    int64_t steps;

    tsr__fsdp_pools pools;
    /* The most bytes of an allocation. With copies it is the same on all ranks, so that a shard and
     * its copy are in the same chunks. */
    uint64_t most_bytes;
    tsr__fsdp_replica replica;
    tsr__fsdp_progress progress;
    tsr__fsdp_step next; /* set unless `progress` is idle; it points to the next two fields */
    tsr_sgd_params next_sgd;
    tsr_adamw_params next_adamw;

    /* rebuild.c */
    int64_t generation; /* how often the model has been rebuilt */
    /* The complete model of the next generation, as long as this rank does not know whether all
     * other ranks have completed theirs; otherwise NULL. */
    tsr_fsdp *successor;
    /* For a rank that has joined, and so has no model of the previous generation, whose `successor`
     * this model would be: the rank does not know whether all other ranks have completed this
     * generation. */
    bool tentative;

    int slot_count;
    tsr__fsdp_slot slots[TSR__MAX_FSDP_SLOTS];
    tsr__fsdp_slot grad_slots[TSR__MAX_FSDP_SLOTS];
    int grad_next; /* the gradient slot to take next, unless its unit is in use */
    tsr_fsdp_memory memory;
    const tsr__fsdp_source *source; /* while the model is created from one; otherwise NULL */
};

/* pool.c: Creates the next region of a pool. If the pool has no memory yet, only counts the bytes
 * that the region needs. */
tsr_status tsr__fsdp_pool_region(tsr__fsdp_pool *pool, tsr_dtype dtype, uint64_t elements,
                                 tsr_tensor **out) TSR_NODISCARD;
tsr_status tsr__fsdp_pool_make(tsr__fsdp_pool *pool, tsr_device *device) TSR_NODISCARD;
void tsr__fsdp_pool_finish(tsr__fsdp_pool *pool);
/* Creates a view with this dtype and shape that starts at byte `at_bytes` of `memory`, whose dtype
 * is f32. */
tsr_status tsr__fsdp_view(const tsr_tensor *memory, uint64_t at_bytes, tsr_dtype dtype, int ndim,
                          const int64_t *shape, tsr_tensor **out) TSR_NODISCARD;
tsr_status tsr__fsdp_memory_new(tsr_device *device, uint64_t bytes, tsr_tensor **out) TSR_NODISCARD;
uint64_t tsr__fsdp_pool_bytes(const tsr__fsdp_pool *pool);
uint64_t tsr__fsdp_padded(uint64_t bytes);
/* Creates a view of a matrix in a block format in a slot. */
tsr_status tsr__fsdp_view_blocks(const tsr_tensor *slot, const tsr__fsdp_param *p,
                                 tsr_tensor **out) TSR_NODISCARD;
/* The dtype in which a parameter is kept and sent. */
static inline tsr_dtype tsr__fsdp_dtype(const tsr__fsdp_param *p)
{
    return p->blocks != 0 ? TSR_U8 : p->seen.dtype;
}
/* Returns the stride from a region to the next one, in elements. It is the same for all dtypes, so
 * that parameters that are adjacent in one pool are adjacent in every pool. */
uint64_t tsr__fsdp_region_elements(uint64_t elements);

/* Returns the parameter as the caller has passed it, in a layer or by itself. */
static inline const tsr_parameter *tsr__fsdp_given(const tsr_fsdp_unit *unit, int index)
{
    return unit->layer ? tsr_layer_parameter(unit->layer, index) : &unit->parameters[index];
}

/* memory.c: tsr__fsdp_in_memory returns the shards of a set, params[param_count], in the order of
 * their memory: first those of all matrices, that is, of parameters with two or more dimensions,
 * and then those of all others. An optimizer step often treats the two kinds differently, and this
 * way each kind is one range. Resident parameters come last, also with matrices first. So
 * everything that is copied to another rank is one range, too. `place` is 0 to tsr__fsdp_places
 * − 1. Returns NULL if there is no shard at this place. */
int tsr__fsdp_places(const tsr_fsdp *model);
tsr__fsdp_param *tsr__fsdp_in_memory(const tsr_fsdp *model, tsr__fsdp_param *params, int place);
tsr_status tsr__fsdp_make_slots(tsr_fsdp *model) TSR_NODISCARD;
/* Allocates the shards of a set. The caller has set their ranges, and whether they are resident. */
tsr_status tsr__fsdp_make_shards(tsr_fsdp *model, tsr__fsdp_param *params,
                                 tsr__fsdp_pools *pools) TSR_NODISCARD;
void tsr__fsdp_free_shards(tsr__fsdp_param *params, int count, tsr__fsdp_pools *pools);
void tsr__fsdp_add_up(tsr_fsdp *model);

/* values.c */
tsr_status tsr__fsdp_first_values(tsr_fsdp *model, const tsr_fsdp_params *params) TSR_NODISCARD;
/* Resets the optimizer's state: moments are 0, master copies equal the values, and the number of
 * steps is 0. */
tsr_status tsr__fsdp_fresh_state(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_fresh_masters(tsr_fsdp *model) TSR_NODISCARD;

/* slots.c: Starts to gather a unit, unless it already has a slot. This may take the slot of another
 * unit, but not of a unit that is in use or that the pass uses next. Those are `slot_count` units
 * from `from` on, in direction `step` (1 or -1). Sets *out to false if no slot is available. */
tsr_status tsr__fsdp_gather(tsr_fsdp *model, int unit, int from, int step, bool *out) TSR_NODISCARD;
/* Blocks until the unit has been gathered. */
tsr_status tsr__fsdp_wait_gathered(tsr_fsdp *model, int unit) TSR_NODISCARD;
/* Discards the full parameters of all gathered units. */
tsr_status tsr__fsdp_discard_gathered(tsr_fsdp *model) TSR_NODISCARD;

/* gradients.c: tsr__fsdp_take_grads provides memory for a unit's full gradients. tsr__fsdp_reduce
 * starts their reduction. tsr__fsdp_drop_grads discards them. tsr__fsdp_collect blocks until they
 * have been reduced. tsr__fsdp_collect_all does so for all units that are not in a backward
 * pass. */
tsr_status tsr__fsdp_take_grads(tsr_fsdp *model, int unit) TSR_NODISCARD;
tsr_status tsr__fsdp_reduce(tsr_fsdp *model, int unit) TSR_NODISCARD;
void tsr__fsdp_drop_grads(tsr_fsdp *model, int unit);
tsr_status tsr__fsdp_collect(tsr_fsdp *model, int unit) TSR_NODISCARD;
tsr_status tsr__fsdp_collect_all(tsr_fsdp *model) TSR_NODISCARD;

/* pass.c: Fails if a unit is in use. */
tsr_status tsr__fsdp_check_not_in_use(const tsr_fsdp *model, const char *who) TSR_NODISCARD;

/* step.c: A step has four phases. If an optimizer has several models, each phase is done for all
 * of them before the next phase. So if a rank is lost, either all models make the step or none
 * does: no rank says that one of its models has met before it has met for all.
 *
 * tsr__fsdp_prepare blocks until the gradients have been reduced, and sends them to the copies. The
 * caller must have checked the numbers, even on a rank without shards: such a rank must fail, or
 * count the step, like the others. tsr__fsdp_meet blocks until all ranks are prepared; without
 * copies it does not block. tsr__fsdp_have_met notes that. tsr__fsdp_apply changes the shards and
 * the copies; it needs no other rank. */
tsr_status tsr__fsdp_prepare(tsr_fsdp *model, const tsr__fsdp_step *how) TSR_NODISCARD;
tsr_status tsr__fsdp_meet(tsr_fsdp *model) TSR_NODISCARD;
void tsr__fsdp_have_met(tsr_fsdp *model);
tsr_status tsr__fsdp_apply(tsr_fsdp *model) TSR_NODISCARD;
/* Clears the gradients without a step. Blocks until all gradients have been reduced. */
tsr_status tsr__fsdp_zero_grad(tsr_fsdp *model) TSR_NODISCARD;

/* replica.c: tsr__fsdp_choose_replica chooses which rank keeps a copy of which shards; collective.
 * tsr__fsdp_make_replica allocates the copies. The other functions do nothing if there are no
 * copies. tsr__fsdp_refresh sends values and state to the copies; it is collective, and blocks
 * until done.
 *
 * tsr__fsdp_send_ahead must be called when the gradients of a unit's backward pass have been
 * reduced. It starts to send the unit's gradients if this was probably the last pass before the
 * step, that is, if the unit has now had as many passes as before the previous step.
 * tsr__fsdp_wait_sent blocks until the gradients of one parameter have been sent and received.
 * tsr__fsdp_stop_sending does so for all parameters, and then marks all gradients as not sent.
 * tsr__fsdp_send_gradients blocks until all copies have all gradients, and sends those that have
 * not been sent or have changed since. */
tsr_status tsr__fsdp_choose_replica(tsr_fsdp *model, int replicas) TSR_NODISCARD;
tsr_status tsr__fsdp_make_replica(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_refresh(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_send_ahead(tsr_fsdp *model, int unit) TSR_NODISCARD;
tsr_status tsr__fsdp_wait_sent(tsr_fsdp *model, int param) TSR_NODISCARD;
tsr_status tsr__fsdp_stop_sending(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_send_gradients(tsr_fsdp *model) TSR_NODISCARD;
void tsr__fsdp_finish_replica(tsr_fsdp *model);
/* Returns the rank that has the copy of `rank`'s shards. `distance` is that of
 * tsr__fsdp_replica. */
static inline int tsr__fsdp_holder(int rank, int distance, int size)
{
    return (rank + distance) % size;
}

/* plan.c: tsr__fsdp_set_plan copies the caller's plan, or computes one. tsr__fsdp_set_ranges sets
 * the ranges of each parameter. */
tsr_status tsr__fsdp_set_plan(tsr_fsdp *model, const tsr_fsdp_params *params) TSR_NODISCARD;
tsr_status tsr__fsdp_set_ranges(tsr_fsdp *model) TSR_NODISCARD;
tsr_status tsr__fsdp_plan_json(const tsr_shard_plan *plan, char **out,
                               size_t *out_size) TSR_NODISCARD;

/* Returns whether a unit needs a slot to use the parameter. */
static inline bool tsr__fsdp_is_gathered(const tsr__fsdp_param *p)
{
    return !p->resident && !p->experts;
}
/* memory.c: Creates a view of this rank's elements of a parameter that is not gathered, with the
 * shape that the layer uses. */
tsr_status tsr__fsdp_view_here(const tsr_fsdp *model, const tsr__fsdp_param *p,
                               const tsr_tensor *flat, tsr_tensor **out) TSR_NODISCARD;

/* create.c: Creates a model that does not use its layers yet. Without `with_values`, its shards and
 * their copies have no values. `source` may be NULL. Collective. */
tsr_status tsr__fsdp_create_model(const tsr_fsdp_params *params, const tsr__fsdp_source *source,
                                  bool with_values, tsr_fsdp **out) TSR_NODISCARD;
/* Open and close the layer of a unit by the model's source, if there are both. */
static inline tsr_status tsr__fsdp_open_layer(const tsr_fsdp *of, tsr_layer *layer,
                                              bool with_values)
{
    return of->source && layer ? of->source->open(of->source->user, layer, with_values) : TSR_OK;
}
static inline void tsr__fsdp_close_layer(const tsr_fsdp *of, tsr_layer *layer)
{
    if (of->source && layer)
        of->source->close(of->source->user, layer);
}
/* Takes the memory away from all layers. From then on the model gives each layer memory while the
 * layer's unit is in use. Cannot fail. */
void tsr__fsdp_take_layers(tsr_fsdp *model);

/* move.c: the model that is divided again, and the ranks that have shards of it. Ranks are those of
 * the new model's group, except where a comment says otherwise. */
typedef struct tsr__fsdp_move {
    const tsr_fsdp *from; /* NULL: this rank has no shards of the old model */
    tsr_fsdp *to;
    const tsr_shard_plan *plan; /* the plan of `from`; all ranks have it */
    int from_size;
    const int *providers; /* [from_size]: the rank that sends each old rank's shards; -1: none */
    const bool *has;      /* [to->size]: whether each rank has shards of `from` */
} tsr__fsdp_move;
/* Sends the values and the state of all shards to the ranks of `to` that keep the shards or their
 * copies. Collective. */
tsr_status tsr__fsdp_move_all(const tsr__fsdp_move *move) TSR_NODISCARD;

/* fsdp_checkpoint.c */

/* Blocks until none of the model's requests is in progress. After that, the group's communicator
 * can be used for other operations. */
tsr_status tsr__fsdp_synchronise(tsr_fsdp *model, const char *who) TSR_NODISCARD;
/* Adds the model's entries to the entries of a file. */
tsr_status tsr__fsdp_list(const tsr_fsdp *model, bool model_only,
                          tsr__training_list *list) TSR_NODISCARD;
/* Must be called after the entries have been read from a file. Discards gathered parameters and
 * gradients. Sets the number of steps or, if `model_only` is true, resets the optimizer's state.
 * Then sends the shards to their copies. Collective. */
tsr_status tsr__fsdp_loaded(tsr_fsdp *model, bool model_only, int64_t steps) TSR_NODISCARD;

#endif
