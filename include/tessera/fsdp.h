/* Sharded parameters (FSDP, fully sharded data parallelism). Each rank of a data-parallel group
 * keeps the shards that a plan (shard.h) assigns to it, with their gradients and the optimizer's
 * state. Full parameters exist only while they are used.
 *
 *     tsr_fsdp *model = NULL;
 *     tsr_fsdp_create(tsr_fsdp_params(.group = data, .unit_count = 2,
 *                                     .units = (tsr_fsdp_unit[]){*tsr_fsdp_unit(.layer = up),
 *                                                                *tsr_fsdp_unit(.layer = down)}),
 *                     &model);
 *     tsr_optimizer_add_fsdp(optimizer, model);
 *     tsr_fsdp_forward(model, 0, x, &saved[0], &hidden);
 *     …
 *     tsr_fsdp_backward(model, 0, saved[0], dhidden, NULL);
 *     tsr_optimizer_step(optimizer, 1e-3f);
 *
 * Steps and checkpoints are made by a tsr_optimizer (optimizer.h), as for parameters that are not
 * sharded. The optimizer's state belongs to the model.
 *
 * Parameters are gathered one unit at a time; a unit is usually a layer. While a unit is used, the
 * next one is already being gathered, and the gradients of the previous one are reduced and
 * scattered. This needs memory for the full parameters and the full gradients of two units.
 * Always-gathered parameters are stored in full on every rank, and their gradients are all-reduced:
 * the pattern {"*"} gives plain data parallelism.
 *
 * Experts of layers with experts_over_data (moe.h) stay where they are: each rank has some of them,
 * whatever the strategy and `gather` are.
 *
 * Data parallelism and tensor parallelism can be combined in a grid of data × tensor ranks. The
 * tensor-parallel group divides the layers, and the plan then divides each rank's part of a layer
 * into shards.
 *
 * Results: with the same number of ranks, every strategy gives the same bits as data parallelism
 * without shards, because the order of additions depends on the number of ranks only. In a group
 * whose communicator is `reproducible`, the order of additions between ranks does not matter. The
 * results may still differ for another number of ranks, because each rank contributes the sum over
 * its own part of the batch, and these parts are then different.
 *
 * The group's `wire` (group.h) is for activations only: parameters are sent in their dtype, and
 * gradients in `grad_dtype`, so that neither is ever rounded unless these dtypes ask for it.
 *
 * All ranks of the group must make the same calls in the same order. Errors of all calls:
 * TSR_ERR_INVALID with a text that names the values, those of recording on a stream, and those of
 * tsr_group operations.
 *
 * Threads: as for the group. */
#ifndef TESSERA_FSDP_H
#define TESSERA_FSDP_H

#include "tessera/layer.h"
#include "tessera/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_fsdp tsr_fsdp;

/* Creating ----------------------------------------------------------------------------------- */

/* The parameters that are gathered together: those of a layer, or tensors of the caller. */
typedef struct tsr_fsdp_unit {
    size_t struct_size;
    /* The layer should be deferred: its initial values are then drawn shard by shard, so that there
     * is never memory for the full layer. If it is not deferred, its values are copied, which must
     * be the same on all ranks, and its memory is released. The layer must outlive the tsr_fsdp. */
    tsr_layer *layer;
    /* The parameters if `layer` is NULL. Their names, dtypes, shapes and positions are copied, and
     * also the values of `tensor`; if `tensor` is NULL, the values are 0. `grad` is ignored. */
    int parameter_count;
    const tsr_parameter *parameters;
} tsr_fsdp_unit;
#define tsr_fsdp_unit(...) (&(tsr_fsdp_unit){.struct_size = sizeof(tsr_fsdp_unit), __VA_ARGS__})

typedef struct tsr_fsdp_params {
    size_t struct_size;
    tsr_group *group; /* the data-parallel group; NULL: tsr_group_default() */
    int unit_count;
    const tsr_fsdp_unit *units; /* the units, in the order of the forward pass */

    /* A plan for this group's ranks, and for all parameters of all units in their order, with the
     * shapes of this rank's parts. Copied. NULL: the plan is made from the next four fields. */
    const tsr_shard_plan *plan;
    const tsr_shard_strategy *strategy; /* NULL: TSR_SHARD_FULL */
    const char *const *gather;          /* patterns, as in tsr_shard_plan_params */
    const double *rates;                /* [ranks], as in tsr_shard_plan_params */
    const uint64_t *memory_bytes;       /* [ranks], as in tsr_shard_plan_params */

    /* The kind of optimizer that will step the model, for whose state memory is allocated. */
    tsr_optimizer_kind optimizer;
    /* For SGD: the momentum of all steps is 0, so no velocity is allocated. */
    bool plain_sgd;
    /* Steps change f16 and bf16 values in place. If false, they change f32 master copies. */
    bool in_place;
    tsr_dtype grad_dtype; /* the dtype of gradients, in memory and in messages; 0: f32 */
    tsr_op reduction; /* how the gradients of the ranks are combined: TSR_OP_AVG or TSR_OP_SUM; 0:
                         TSR_OP_AVG */
    /* How many units after the one in use are gathered already, at most TSR_MAX_FSDP_AHEAD; 0: 1.
     * -1: no unit is gathered ahead. This needs less memory, for the full parameters and gradients
     * of one unit only. */
    int ahead;
    /* 1: each rank also has a copy of another rank's shards, so that a lost rank costs no
     * checkpoint: see "Lost and new ranks" below. 0: no copies. Must be the same on all ranks. */
    int replicas;
} tsr_fsdp_params;
#define tsr_fsdp_params(...)                                                                       \
    (&(tsr_fsdp_params){.struct_size = sizeof(tsr_fsdp_params), __VA_ARGS__})
#define TSR_MAX_FSDP_AHEAD 7

/* Creates a model. Collective. Blocks until all ranks have called it and compared their plans. It
 * allocates all memory for parameters, gradients and optimizer state. From then on, layers have
 * memory for parameters only while they are in use. Errors: TSR_ERR_INVALID for a missing group, no
 * units, a plan that is not for these parameters and ranks, or that differs between ranks; those of
 * tsr_shard_plan_create; TSR_ERR_DEVICE_MEMORY. An error on one rank is returned on all. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_create(const tsr_fsdp_params *params, tsr_fsdp **out);
/* Destroys a model. Call it before destroying its layers and its group. Its layers then have no
 * memory for parameters. Blocks until requests in progress are done or have failed. Sets *model to
 * NULL. NULL is allowed. */
TSR_API void tsr_fsdp_destroy(tsr_fsdp **model);

/* Returns the plan that the model uses. It belongs to the model. */
TSR_API const tsr_shard_plan *tsr_fsdp_plan(const tsr_fsdp *model);

/* Passes ------------------------------------------------------------------------------------- */

/* Run a forward or backward pass of a unit that is a layer: they call tsr_fsdp_begin, then
 * tsr_layer_forward or tsr_layer_backward, then tsr_fsdp_end. Both block until the unit's
 * parameters have been gathered and the collective operations of the layer are done. If the pass
 * fails, the unit is not in use afterwards, the gradients of its parameters are those of the passes
 * before, and the pass may be repeated. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_forward(tsr_fsdp *model, int unit, const tsr_tensor *x,
                                                  tsr_layer_saved **saved, tsr_tensor **y);
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_backward(tsr_fsdp *model, int unit,
                                                   const tsr_layer_saved *saved,
                                                   const tsr_tensor *dy, tsr_tensor **dx);

/* Between begin and end, a unit's parameters are complete: those of its layer have memory, and
 * tsr_fsdp_parameter returns them. At most 1 + `ahead` units may be in use at the same time. In a
 * backward pass of a unit without a layer, the gradients are undefined after `begin` and must be
 * written; those of a layer that tsr_layer_backward does not write are 0. `end` starts to reduce
 * them. The gradients of several backward passes before a step are added; each pass after the first
 * needs memory for another gradient of this rank's shards of the unit.
 *
 * tsr_fsdp_begin blocks until the unit's parameters have been gathered; a backward pass also blocks
 * until the gradients whose memory it needs have been reduced. tsr_fsdp_end usually returns at
 * once. Both block for a parameter whose shards are not in the order of the ranks, until its
 * collective operation is done.
 *
 * If tsr_fsdp_begin fails, the unit is not in use. tsr_fsdp_end ends the use even if it fails; the
 * gradients of this pass are then discarded. If the work between the two fails, call tsr_fsdp_end
 * all the same, and after a backward pass tsr_optimizer_zero_grad, because incomplete gradients
 * have been added. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_begin(tsr_fsdp *model, int unit, tsr_pass pass);
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_end(tsr_fsdp *model, int unit);

/* Returns parameter `index` of a unit, or NULL if there is none. Its tensor and grad are NULL while
 * the unit is not in use. The struct is valid until the model is destroyed. */
TSR_API const tsr_parameter *tsr_fsdp_parameter(const tsr_fsdp *model, int unit, int index);

/* What this rank keeps of parameter `param` of the plan, as tensors of one dimension: its shard, or
 * the full parameter if it is always gathered. The tensors belong to the model. After writing to
 * `value`, call tsr_fsdp_changed, so that the next step and the next tsr_fsdp_begin use the new
 * values. A tensor is NULL if there is none: for an empty shard, or for `grad` if there has been no
 * gradient since the last step. */
typedef struct tsr_fsdp_shard {
    size_t struct_size;
    tsr_shard_range range;
    tsr_tensor *value, *grad;
    tsr_tensor *master;            /* f32 copy of `value`; f16 and bf16 only */
    tsr_tensor *moment1, *moment2; /* for SGD, moment1 is the velocity */
} tsr_fsdp_shard;
/* Blocks until all gradients in progress have been reduced. Units may be in use; the gradients of a
 * backward pass that has not ended are not included. `grad` may be written until the next pass or
 * step; with `replicas`, that step then sends all gradients again. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_get_shard(tsr_fsdp *model, uint64_t param,
                                                    tsr_fsdp_shard *out);
/* Must be called after writing to shards. Discards gathered parameters, and copies the shards to
 * their master copies. Blocks until gathers in progress are done. With `replicas` the call is
 * collective, and also blocks until all copies have the new values. Error: a unit is in use. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_changed(tsr_fsdp *model);

/* Lost and new ranks ----------------------------------------------------------------------------
 *
 * With `replicas` = 1, each rank has a copy of the shards, moments and master copies of one other
 * rank. If possible, the copy is on another host than the shards. Copies are updated in each step:
 * a rank sends its reduced gradients to the rank that has its copy, and both update the shards with
 * them. Between devices that compute the step with different rounding, the copy is equal up to this
 * rounding. Always-gathered parameters need no copy.
 *
 * Cost: the memory of another shard with its gradient and state (replica_bytes, as much as
 * parameter_bytes + gradient_bytes + optimizer_bytes without always-gathered parameters); and per
 * step, messages of the gradients' size, a short message, a barrier and a second update. The
 * gradients of a unit are sent while others are computed, as soon as they have been reduced, if the
 * unit had as many backward passes as before the last step; otherwise the step sends all gradients
 * at once. tsr_fsdp_create, tsr_optimizer_load and tsr_fsdp_changed send all shards to their
 * copies, and block until that is done.
 *
 * A step is made by all ranks or by none: no rank changes its shards before all ranks have the
 * gradients of their own shards and of the shards that they keep copies of. So if a rank is lost
 * during a step, all other ranks go on from the state before the step, or all from the state after
 * it, and at most one step is lost. With several models in one tsr_optimizer, a step is made for
 * all of them or for none.
 *
 *     if (tsr_comm_shrink(world, NULL, &smaller) == TSR_OK &&     // after TSR_ERR_PEER_LOST
 *         tsr_group_create(smaller, stream, NULL, &group) == TSR_OK &&
 *         tsr_fsdp_rebuild(tsr_fsdp_params(.group = group, .replicas = 1, …), &model) == TSR_OK &&
 *         tsr_optimizer_create(tsr_optimizer_params(.stream = stream), &optimizer) == TSR_OK &&
 *         tsr_optimizer_add_fsdp(optimizer, model) == TSR_OK)
 *         step = tsr_optimizer_steps(optimizer);                  // go on from here
 *
 * See docs/training.md for a complete loop. */

/* Rebuilds a model on the ranks of another group: the group of a communicator from tsr_comm_shrink
 * or tsr_comm_grow. `params` are those of tsr_fsdp_create, with the new group; the plan is made for
 * its ranks. The units must have the same parameters as before, but their `tensor` is not used. On
 * a rank that has joined, *model is NULL. On success, the old model has been destroyed, *model is
 * the new one, and it has the values, the state and the number of steps of the old one, which is
 * the same on all ranks. Gradients since the last step are discarded. Units may have been in use;
 * they are not any more. An optimizer to which the old model was added must be created again.
 *
 * Collective on the new group. Blocks until all ranks have received their shards. It needs memory
 * for the old and the new model at the same time, and host memory for the parts of one parameter
 * and its state that the rank sends and receives. The old group must exist until the call has
 * succeeded, even if it has failed.
 *
 * Errors: those of tsr_fsdp_create; TSR_ERR_INVALID if the parameters or the optimizer are not
 * those of the model, or without `replicas` if ranks have made different numbers of steps;
 * TSR_ERR_NOT_FOUND naming the ranks if a rank and the one with its copy are both lost, if a rank
 * is lost and the model had no copies, or if no rank has a model: then only a checkpoint helps.
 * After an error, *model still has the old values, and the call may be repeated with another group,
 * for example if a further rank was lost. On a rank that has joined, *model may be set even then;
 * pass it to the next call, or destroy it. Until a call has succeeded, a model can only be
 * destroyed or rebuilt. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_rebuild(const tsr_fsdp_params *params, tsr_fsdp **model);

/* Memory ------------------------------------------------------------------------------------- */

/* Device memory of this rank. gathered_bytes and unreduced_bytes include padding, because each
 * parameter of a unit starts at a multiple of 64 bytes. The other numbers do not. */
typedef struct tsr_fsdp_memory {
    size_t struct_size;
    uint64_t parameter_bytes; /* shards and always-gathered parameters: total_bytes of the plan */
    uint64_t gradient_bytes;  /* gradients of the same elements */
    uint64_t optimizer_bytes; /* moments and f32 master copies */
    uint64_t gathered_bytes;  /* for full parameters: 1 + ahead times the largest unit */
    uint64_t unreduced_bytes; /* for full gradients: 1 + ahead times the largest unit */
    uint64_t total_bytes;
    uint64_t replica_bytes; /* copies of another rank's shards, gradients and state */
} tsr_fsdp_memory;
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_get_memory(const tsr_fsdp *model, tsr_fsdp_memory *out);

#ifdef __cplusplus
}
#endif

#endif
