/* Sharded parameters (FSDP): each rank of a data-parallel group keeps the shards that a plan
 * (shard.h) gives it, with their gradients and the optimizer's state; whole parameters are there
 * while they are used.
 *
 *     tsr_fsdp *model = NULL;
 *     tsr_fsdp_create(tsr_fsdp_params(.group = data, .unit_count = 2,
 *                                           .units = (tsr_fsdp_unit[]){{.layer = up},
 *                                                                         {.layer = down}}),
 *                        &model);
 *     tsr_fsdp_forward(model, 0, x, &saved[0], &hidden);
 *     …
 *     tsr_fsdp_backward(model, 0, saved[0], dhidden, NULL);
 *     tsr_fsdp_adamw_step(model, &(tsr_adamw_params){.learning_rate = 1e-3f});
 *     tsr_fsdp_save(model, "model.safetensors", NULL);
 *
 * Parameters are gathered a unit at a time, usually a layer. While a unit is used, the next one is
 * gathered already, and the gradients of the one before are reduced and scattered; two units' whole
 * parameters and two units' whole gradients are all the memory that takes. Always-gathered
 * parameters are whole on every rank, their gradients all-reduced: with {"*"} as pattern that is
 * plain data parallelism.
 *
 * In a grid of data × tensor ranks, the layers are divided over a tensor-parallel group first, and
 * the shards are of a rank's part of them.
 *
 * Results: with the same ranks, every strategy gives the same bits, those of data parallelism
 * without shards: a sum's order of additions depends on the number of ranks alone. In a group made
 * from a `reproducible` communicator it does not depend on that, either; what each rank brings, the
 * sum over its own part of a batch, still does.
 *
 * All ranks of the group make the same calls in the same order. Errors of all: TSR_ERR_INVALID
 * naming the values, those of recording on a stream and of tsr_group operations.
 *
 * Threads: as the group. */
#ifndef TESSERA_FSDP_H
#define TESSERA_FSDP_H

#include "tessera/checkpoint.h"
#include "tessera/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_fsdp tsr_fsdp;

/* Creating --------------------------------------------------------------------------------------
 */

/* What is gathered together: the parameters of a layer, or some of the caller's own. */
typedef struct tsr_fsdp_unit {
    /* Best a deferred one: its initial values are drawn shard by shard, and it never has all of
     * them. Otherwise its values, the same on all ranks, are taken, and its memory is given up. It
     * has to outlive the tsr_fsdp. */
    tsr_layer *layer;
    /* Without a layer: names, dtypes, shapes and places are copied; the values of `tensor`, too
     * (NULL: zeros). `grad` is not looked at. */
    int parameter_count;
    const tsr_parameter *parameters;
} tsr_fsdp_unit;

typedef enum tsr_optimizer_kind {
    TSR_OPTIMIZER_ADAMW = 0, /* two moments */
    TSR_OPTIMIZER_SGD = 1,   /* one velocity */
    TSR_OPTIMIZER_NONE = 2   /* no gradients either: forward passes only */
} tsr_optimizer_kind;

typedef struct tsr_fsdp_params {
    tsr_group *group; /* data-parallel; NULL: tsr_group_default() */
    int unit_count;
    const tsr_fsdp_unit *units; /* in the order of the forward pass */

    /* A plan for all parameters of all units in their order, with the shapes that this rank's parts
     * have, for the group's ranks; copied. NULL: made by the following. */
    const tsr_shard_plan *plan;
    const tsr_shard_strategy *strategy; /* NULL: TSR_SHARD_FULL */
    const char *const *gather;          /* as in tsr_shard_plan_params */
    const double *rates;                /* [ranks] */
    const uint64_t *memory_bytes;       /* [ranks] */

    tsr_optimizer_kind optimizer;
    /* SGD: no memory for a velocity: momentum is 0. */
    bool no_momentum;
    /* f16 and bf16 parameters: no f32 copy of the shard for the optimizer to work on. */
    bool no_master;
    tsr_dtype grad_dtype; /* of gradients, also while they travel; 0: f32 */
    tsr_op reduction;     /* of the ranks' gradients; 0: TSR_OP_AVG; or TSR_OP_SUM */
    /* How many units are gathered ahead; 0: 1. -1: none, which takes less memory: one unit's
     * parameters and one unit's gradients. At most TSR_MAX_FSDP_AHEAD. */
    int ahead;
} tsr_fsdp_params;
#define tsr_fsdp_params(...) (&(tsr_fsdp_params){__VA_ARGS__})
#define TSR_MAX_FSDP_AHEAD 7

/* All ranks of the group call it. All memory that training will need is taken here. Layers keep no
 * memory but what they are given while in use. Errors: TSR_ERR_INVALID for no group, no units, a
 * plan that is not for these parameters and ranks or that differs between ranks, naming the
 * difference; those of tsr_shard_plan_create; TSR_ERR_DEVICE_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_create(const tsr_fsdp_params *params, tsr_fsdp **out);
/* Before its layers and its group. The layers then have no memory. Requests in progress are waited
 * for where that is possible. NULL is fine; sets NULL. */
TSR_API void tsr_fsdp_destroy(tsr_fsdp **model);

/* Belongs to the model. */
TSR_API const tsr_shard_plan *tsr_fsdp_plan(const tsr_fsdp *model);

/* Passes ----------------------------------------------------------------------------------------
 */

/* tsr_layer_forward and _backward of a unit that is a layer: what follows, and the pass between. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_forward(tsr_fsdp *model, int unit, const tsr_tensor *x,
                                                  tsr_layer_saved **saved, tsr_tensor **y);
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_backward(tsr_fsdp *model, int unit,
                                                   const tsr_layer_saved *saved,
                                                   const tsr_tensor *dy, tsr_tensor **dx);

typedef enum tsr_pass {
    TSR_PASS_FORWARD = 0, /* the next unit is gathered ahead */
    TSR_PASS_BACKWARD = 1 /* the one before is; gradients have memory, too */
} tsr_pass;

/* From begin to end a unit's parameters are whole: those of its layer have memory, and
 * tsr_fsdp_parameter gives them. As many units as are gathered ahead, and one, may be in use at
 * one time. In a backward pass, what the gradients hold at `begin` is undefined for a unit without
 * a layer, and has to be written; at `end` it starts being reduced. Several backward passes before
 * a step add up; each but the first needs memory for another gradient of what this rank keeps of
 * the unit. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_begin(tsr_fsdp *model, int unit, tsr_pass pass);
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_end(tsr_fsdp *model, int unit);

/* Parameter `index` of a unit; its tensor and grad are NULL while it is not in use. The struct
 * lives as long as the model. NULL when there is none. */
TSR_API const tsr_parameter *tsr_fsdp_parameter(const tsr_fsdp *model, int unit, int index);
TSR_API int tsr_fsdp_parameter_count(const tsr_fsdp *model, int unit);

/* What this rank keeps of parameter `param` of the plan, flat: its shard, or all of an
 * always-gathered one. They belong to the model; what is written to `value` is seen by the next
 * step and the next tsr_fsdp_begin after tsr_fsdp_changed. NULL where there is none: an empty
 * shard, no gradient since the last step. */
typedef struct tsr_fsdp_shard {
    tsr_shard_range range;
    tsr_tensor *value, *grad;
    tsr_tensor *master;            /* f32; f16 and bf16 parameters only */
    tsr_tensor *moment1, *moment2; /* SGD: velocity in moment1 */
} tsr_fsdp_shard;
/* Waits for gradients that are being reduced. Units may be in use: what a backward pass is about to
 * give does not count yet. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_shard_of(tsr_fsdp *model, uint64_t param,
                                                   tsr_fsdp_shard *out);
/* Values were written to shards: nothing that was gathered is valid. Where values of half precision
 * were, their f32 copies are made anew. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_changed(tsr_fsdp *model);

/* Steps -----------------------------------------------------------------------------------------
 *
 * Waits for the gradients, changes this rank's shards, and forgets the gradients. A parameter
 * without a gradient since the last step stays as it is. The fields `step` and `first_step` are not
 * looked at: the model counts, for all parameters alike, also for those whose gradients come later
 * (PyTorch counts for each from its own first one). Errors: TSR_ERR_INVALID for another optimizer
 * than the model has, and for numbers that tsr_sgd_step or tsr_adamw_step refuses, also where there
 * is no gradient; nothing has been changed or counted then. Where memory or the device fails
 * halfway, the same call again steps the parameters that are left, and counts. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_sgd_step(tsr_fsdp *model, const tsr_sgd_params *params);
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_adamw_step(tsr_fsdp *model,
                                                     const tsr_adamw_params *params);
/* Forgets the gradients without a step. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_zero_grad(tsr_fsdp *model);
/* How many steps there have been, also before a checkpoint that was loaded. */
TSR_API int64_t tsr_fsdp_steps(const tsr_fsdp *model);

/* Memory ----------------------------------------------------------------------------------------
 */

/* Device memory of this rank: without padding, but for parameters in units, which begin at
 * multiples of 64 bytes there. */
typedef struct tsr_fsdp_memory {
    uint64_t parameter_bytes; /* shards, and always-gathered ones: total_bytes of the plan */
    uint64_t gradient_bytes;  /* of the same */
    uint64_t optimizer_bytes; /* moments and f32 copies */
    uint64_t gathered_bytes;  /* for units in use and ahead: 1 + ahead times the largest */
    uint64_t unreduced_bytes; /* for their gradients */
    uint64_t total_bytes;
} tsr_fsdp_memory;
TSR_API void tsr_fsdp_memory_usage(const tsr_fsdp *model, tsr_fsdp_memory *out);

/* Checkpoints -----------------------------------------------------------------------------------
 *
 * The file of tsr_checkpoint_save with each parameter whole, under its name; and with the
 * optimizer's state as "optimizer.moment1.NAME", "optimizer.moment2.NAME" or
 * "optimizer.velocity.NAME", "optimizer.master.NAME", and "tessera.steps" in its metadata. It does
 * not depend on the number of ranks, the grid or the strategy, and may be loaded with any other.
 */
typedef struct tsr_fsdp_file_params {
    /* All ranks of a grid of data × tensor ranks, which then call together; NULL: those of the
     * group. */
    tsr_comm *world;
    /* No optimizer state; loading then starts with a fresh one. All ranks give the same. */
    bool model_only;
    const char *const *metadata; /* as in tsr_checkpoint_params, besides the model's own */
} tsr_fsdp_file_params;
#define tsr_fsdp_file_params(...) (&(tsr_fsdp_file_params){__VA_ARGS__})

/* Errors: those of tsr_checkpoint_save; TSR_ERR_INVALID while a unit is in use. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_save(tsr_fsdp *model, const char *path,
                                               const tsr_fsdp_file_params *params);
/* Forgets the gradients. Errors: those of tsr_checkpoint_load; TSR_ERR_INVALID while a unit is in
 * use; TSR_ERR_NOT_FOUND for a file without an optimizer's state, unless `model_only` is set.
 * After an error of reading, values are unspecified. */
TSR_API TSR_NODISCARD tsr_status tsr_fsdp_load(tsr_fsdp *model, const char *path,
                                               const tsr_fsdp_file_params *params);

#ifdef __cplusplus
}
#endif

#endif
