/* An optimizer for a set of parameters: those of layers, of FSDP models, and tensors of the
 * caller's own. It owns the moments and the f32 master copies, counts the steps, and writes
 * checkpoints from which a training can be resumed.
 *
 *     tsr_optimizer *optimizer = NULL;
 *     tsr_optimizer_create(tsr_optimizer_params(.stream = stream), &optimizer);  // AdamW
 *     tsr_optimizer_add_layer(optimizer, mlp);
 *     for (...) {
 *         ... forward and backward passes ...
 *         tsr_optimizer_step(optimizer, 1e-3f);
 *         tsr_optimizer_zero_grad(optimizer);
 *     }
 *     tsr_optimizer_save(optimizer, "run.safetensors", NULL);
 *
 * A step has the same bits as tsr_adamw_step or tsr_sgd_step called for each parameter by hand.
 *
 * Threads: one thread at a time uses an optimizer, together with its stream and the groups of its
 * layers and models. */
#ifndef TESSERA_OPTIMIZER_H
#define TESSERA_OPTIMIZER_H

#include "tessera/fsdp.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_optimizer tsr_optimizer;

typedef struct tsr_optimizer_params {
    tsr_stream *stream; /* steps are recorded on it. Required */
    tsr_optimizer_kind kind;
    /* The numbers of the chosen kind. The fields learning_rate, step and first_step are ignored:
     * each step gets its learning rate, and the optimizer counts the steps. SGD with a momentum of
     * 0 keeps no velocity. */
    tsr_adamw_params adamw;
    tsr_sgd_params sgd;
    /* f16 and bf16 parameters: keep no f32 master copy, and step the rounded values themselves. */
    bool no_master;
    /* Apply weight_decay only to parameters of two or more dimensions: to weights and embeddings,
     * but not to biases and the weights of normalisation. */
    bool decay_matrices;
} tsr_optimizer_params;
#define tsr_optimizer_params(...) (&(tsr_optimizer_params){__VA_ARGS__})

/* An optimizer without parameters. `stream` must outlive it. Errors: TSR_ERR_INVALID for a missing
 * stream, for the kind TSR_OPTIMIZER_NONE, and for numbers that tsr_adamw_step or tsr_sgd_step
 * refuses; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_create(const tsr_optimizer_params *params,
                                                      tsr_optimizer **out);
/* Call it before destroying the layers and models that were added. NULL is fine; sets NULL. */
TSR_API void tsr_optimizer_destroy(tsr_optimizer **optimizer);

/* Adding parameters -----------------------------------------------------------------------------
 *
 * Each call allocates the state of what it adds: moments or a velocity, f32, set to 0, and for f16
 * and bf16 parameters a master copy of the present values. On failure nothing has been added.
 * Parameters may be added between steps; the bias corrections of AdamW use the optimizer's number
 * of steps for all of them. Two parameters must not have the same name if the optimizer is saved.
 * Errors of all: TSR_ERR_INVALID naming the parameter, TSR_ERR_NO_MEMORY, TSR_ERR_DEVICE_MEMORY.
 */

/* All parameters of a layer, which must have memory (it is not deferred) and must outlive the
 * optimizer. Error: the layer has been added before. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_add_layer(tsr_optimizer *optimizer,
                                                         tsr_layer *layer);

/* A parameter of the caller's own: f32, f16 or bf16, with a gradient of the same shape and any
 * float dtype. The optimizer keeps views of both tensors and a copy of the name. Its gradient
 * counts in every step, and tsr_optimizer_zero_grad sets it to 0. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_add_tensor(tsr_optimizer *optimizer,
                                                          const char *name, tsr_tensor *tensor,
                                                          tsr_tensor *grad);

/* The same for this rank's part of a parameter: the struct, whose `tensor` and `grad` must not be
 * NULL, says which part of the whole they are, so that checkpoints hold the whole. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_add_parameter(tsr_optimizer *optimizer,
                                                             const tsr_parameter *parameter);

/* A model of fsdp.h, which must outlive the optimizer. The model owns its state, as without an
 * optimizer; steps call tsr_fsdp_adamw_step or tsr_fsdp_sgd_step. Errors: the model was created
 * for another kind of optimizer, or has been added before. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_add_fsdp(tsr_optimizer *optimizer, tsr_fsdp *model);

/* Steps -----------------------------------------------------------------------------------------
 */

/* Changes all parameters by their gradients, and counts. A layer's parameter without a gradient
 * since the last tsr_optimizer_zero_grad (or tsr_layer_zero_grad) stays as it is. Gradients stay,
 * except those of FSDP models. Records and returns; with FSDP models it blocks until their
 * gradients have been reduced.
 *
 * Errors: TSR_ERR_INVALID for a learning rate that is negative or not finite, before anything has
 * changed; those of tsr_adamw_step, tsr_sgd_step and tsr_fsdp_adamw_step. If memory or the device
 * fails halfway, calling it again steps the parameters that are left, and counts. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_step(tsr_optimizer *optimizer, float learning_rate);

/* All gradients start again from 0. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_zero_grad(tsr_optimizer *optimizer);

typedef struct tsr_optimizer_clip_params {
    /* The factor by which the loss, and so all gradients, was multiplied: the scale of
     * tsr_loss_scaler, or the number of micro-batches whose gradients have been added, to take
     * their mean; 0: 1. The norm and the next step use the gradients divided by it. */
    float loss_scale;
    /* The ranks among which the caller's own parameters with a shard_dim are divided; NULL: the
     * group of the first layer or model that was added. */
    tsr_group *group;
} tsr_optimizer_clip_params;
#define tsr_optimizer_clip_params(...) (&(tsr_optimizer_clip_params){__VA_ARGS__})

/* Computes the norm of all gradients together, √Σ g² (`norm` may be NULL), and makes the next
 * tsr_optimizer_step multiply them by min(1, max_norm / (norm + 1e-6)), as
 * torch.nn.utils.clip_grad_norm_ does. The gradients themselves do not change; the multiplication
 * is part of the step. A max_norm of INFINITY clips nothing. A norm that is not finite is not an
 * error: the caller decides what to do (tsr_loss_scaler_update).
 *
 * Every element of the model counts once. The sums of tensor-parallel parts are added over the
 * ranks of their layer's group, and those of shards over the ranks of the FSDP model. What several
 * ranks have, such as biases and always-gathered parameters, counts for one of them. In data
 * parallelism without FSDP, the gradients must have been averaged before, so that they are the same
 * on all its ranks. The norm has the same bits on all ranks, because the order of additions depends
 * on shapes and the number of ranks only.
 *
 * Collective: all ranks of these groups must call it. Blocks until the gradients have been computed
 * and reduced, and the norm has been read. `params` may be NULL. A call replaces the previous one;
 * tsr_optimizer_zero_grad cancels it. Errors: TSR_ERR_INVALID for a max_norm that is negative or
 * NaN, for a loss_scale that is negative or not finite, for a divided parameter of the caller
 * without a group, and for parts of a parameter that overlap on some ranks without being the same;
 * those of tsr_group operations. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_clip(tsr_optimizer *optimizer, float max_norm,
                                                    const tsr_optimizer_clip_params *params,
                                                    double *norm);

/* The number of steps so far, with those before a checkpoint that was loaded. */
TSR_API int64_t tsr_optimizer_steps(const tsr_optimizer *optimizer);

/* The program has written to parameters: makes their master copies anew. Not needed after
 * tsr_optimizer_load. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_changed(tsr_optimizer *optimizer);

/* State -----------------------------------------------------------------------------------------
 */

/* One parameter and its state, without FSDP models (see tsr_fsdp_shard_of). All belongs to the
 * optimizer or the layer. */
typedef struct tsr_optimizer_state {
    const tsr_parameter *parameter;
    tsr_tensor *master;            /* NULL: none */
    tsr_tensor *moment1, *moment2; /* AdamW; SGD: the velocity in moment1, or NULL */
} tsr_optimizer_state;
TSR_API int tsr_optimizer_parameter_count(const tsr_optimizer *optimizer);
/* Parameter `index`, in the order in which they were added. Errors: TSR_ERR_INVALID. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_state_of(const tsr_optimizer *optimizer, int index,
                                                        tsr_optimizer_state *out);

/* Checkpoints -----------------------------------------------------------------------------------
 *
 * The file of tsr_fsdp_save: each parameter under its name, its state as
 * "optimizer.moment1.NAME", "optimizer.moment2.NAME" or "optimizer.velocity.NAME", and
 * "optimizer.master.NAME", and the number of steps as "tessera.steps" in the metadata. Any number
 * of ranks may load it, through an optimizer or an FSDP model.
 */
typedef struct tsr_optimizer_file_params {
    /* All ranks that hold parts of the parameters; they call together. NULL: the ranks of the group
     * of the first layer or model that was added; without one, this process alone. */
    tsr_comm *world;
    /* Parameters only; loading then starts with fresh state and 0 steps. The same on all ranks. */
    bool model_only;
    const char *const *metadata; /* saving: as in tsr_checkpoint_params, in addition */
} tsr_optimizer_file_params;
#define tsr_optimizer_file_params(...) (&(tsr_optimizer_file_params){__VA_ARGS__})

/* Blocks until the file is on the disk. Errors: those of tsr_checkpoint_save and tsr_fsdp_save;
 * TSR_ERR_INVALID for an FSDP model whose number of steps is not the optimizer's. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_save(tsr_optimizer *optimizer, const char *path,
                                                    const tsr_optimizer_file_params *params);
/* Fills parameters and state, takes the number of steps over, and sets gradients to 0. Blocks until
 * everything has been read. Errors: those of tsr_checkpoint_load and tsr_fsdp_load;
 * TSR_ERR_NOT_FOUND for a file without an optimizer's state, unless `model_only` is set. After an
 * error of reading, values are unspecified. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_load(tsr_optimizer *optimizer, const char *path,
                                                    const tsr_optimizer_file_params *params);

#ifdef __cplusplus
}
#endif

#endif
