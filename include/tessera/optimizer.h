/* An optimizer for a set of parameters, which may be those of layers and of FSDP models, and
 * tensors of the caller. It owns the moments and the f32 master copies, except those of FSDP
 * models, counts the steps, and writes checkpoints from which a training run can be resumed.
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
 * A step gives the same bits as a call of tsr_adamw_step or tsr_sgd_step for each parameter.
 *
 * Threads: only one thread at a time may use an optimizer, its stream, and the groups of its layers
 * and models. */
#ifndef TESSERA_OPTIMIZER_H
#define TESSERA_OPTIMIZER_H

#include "tessera/checkpoint.h"
#include "tessera/fsdp.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_optimizer tsr_optimizer;

typedef struct tsr_optimizer_params {
    size_t struct_size;
    tsr_stream *stream; /* required; steps are recorded on this stream */
    /* TSR_OPTIMIZER_NONE: an optimizer that makes no steps and keeps no state. It loads and saves
     * parameters that are not trained; they need no gradients. */
    tsr_optimizer_kind kind;
    /* The settings of the chosen kind; NULL: the defaults. The other struct is ignored. The fields
     * learning_rate, step and first_step are ignored, because tsr_optimizer_step gets the learning
     * rate and the optimizer counts the steps. SGD with a momentum of 0 keeps no velocity. */
    const tsr_adamw_params *adamw;
    const tsr_sgd_params *sgd;
    /* Steps change f16 and bf16 values in place. If false, they change f32 master copies. */
    bool in_place;
    /* Apply weight_decay only to parameters of two or more dimensions, which are weights and
     * embeddings, but not biases and the weights of normalisation. */
    bool decay_matrices;
} tsr_optimizer_params;
#define tsr_optimizer_params(...)                                                                  \
    (&(tsr_optimizer_params){.struct_size = sizeof(tsr_optimizer_params), __VA_ARGS__})

/* Creates an optimizer without parameters. `stream` must outlive it. Errors: TSR_ERR_INVALID for a
 * missing stream, for an unknown kind, and for settings that tsr_adamw_step or tsr_sgd_step
 * refuses; TSR_ERR_NO_MEMORY. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_create(const tsr_optimizer_params *params,
                                                      tsr_optimizer **out);
/* Destroys an optimizer and sets *optimizer to NULL. NULL is allowed. Call it before the layers and
 * models that were added are destroyed. */
TSR_API void tsr_optimizer_destroy(tsr_optimizer **optimizer);

/* Adding parameters -----------------------------------------------------------------------------
 *
 * Each call allocates the state of the parameters that it adds: moments or a velocity in f32, which
 * are set to 0, and for f16 and bf16 parameters an f32 master copy of their present values. On
 * failure nothing has been added. Parameters may be added between steps; the bias corrections of
 * AdamW use the optimizer's number of steps for all of them. If the optimizer is to be saved, all
 * parameters must have different names. Errors of all these calls: TSR_ERR_INVALID naming the
 * parameter, TSR_ERR_NO_MEMORY, TSR_ERR_DEVICE_MEMORY. */

/* Adds all parameters of a layer. The layer must outlive the optimizer, and its parameters must
 * have memory, so it must not be deferred. Errors: TSR_ERR_INVALID also if the layer has been added
 * before. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_add_layer(tsr_optimizer *optimizer,
                                                         tsr_layer *layer);

/* Adds a parameter of the caller: a tensor, or this rank's part of a tensor that is divided over
 * ranks. Of the struct, `name`, `tensor` and `grad` must be set. If ndim is 0, this rank has the
 * full tensor, whose dtype and shape are the parameter's. Otherwise all fields say which part the
 * rank has, so that checkpoints hold the full tensor.
 *
 * `tensor` is f32, f16 or bf16; `grad` has the same shape and any float dtype. The optimizer keeps
 * views of both, and a copy of the name. Every step uses the gradient, and tsr_optimizer_zero_grad
 * sets it to 0. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_add_parameter(tsr_optimizer *optimizer,
                                                             const tsr_parameter *parameter);

/* Adds all parameters of an FSDP model, which must outlive the optimizer. The state and the number
 * of steps remain in the model: they are the same for an optimizer that is created later. An
 * optimizer without parameters takes over the number of steps of the model. Errors: TSR_ERR_INVALID
 * also if the model was created for another kind of optimizer, or with plain_sgd if the optimizer
 * has a momentum, or has been added before. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_add_fsdp(tsr_optimizer *optimizer, tsr_fsdp *model);

/* Steps -------------------------------------------------------------------------------------- */

/* Makes one step: changes all parameters by their gradients, and increases the number of steps by
 * one. If a parameter of a layer has got no gradient since the last tsr_optimizer_zero_grad (or
 * tsr_layer_zero_grad), it does not change. Gradients remain, except those of FSDP models, which
 * are cleared. The call records the step and returns; with FSDP models it first blocks until their
 * gradients have been reduced.
 *
 * All parameters of an FSDP model have one counter of steps, also those that get gradients later
 * (PyTorch counts for each parameter from its own first gradient).
 *
 * Errors: TSR_ERR_INVALID for a learning rate that is negative or not finite, and for the kind
 * TSR_OPTIMIZER_NONE, before anything has changed, even if there is no gradient; TSR_ERR_INVALID
 * while a unit of an FSDP model is in use; those of tsr_adamw_step and tsr_sgd_step. If memory or
 * the device fails in the middle of a step, another call makes the step for the remaining
 * parameters, and then increases the number of steps. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_step(tsr_optimizer *optimizer, float learning_rate);

/* Clears the gradients: the next backward passes start from 0. Returns without waiting for the
 * device; with FSDP models it first blocks until their gradients have been reduced. Errors: those
 * of tsr_fill; TSR_ERR_INVALID while a unit of an FSDP model is in use. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_zero_grad(tsr_optimizer *optimizer);

typedef struct tsr_optimizer_clip_params {
    size_t struct_size;
    /* The norm and the next step use the gradients divided by this factor; 0: 1. Pass the scale of
     * a tsr_loss_scaler by which the loss was multiplied, or, to take the mean of the gradients of
     * several micro-batches that have been added, the number of micro-batches. */
    float loss_scale;
    /* The ranks over which parameters without a layer are divided: parameters of
     * tsr_optimizer_add_parameter, and those in units of FSDP models that have no layer. NULL: the
     * group of the first layer or model that was added; units of FSDP models then must not be
     * divided. */
    tsr_group *group;
    /* The stages of a pipeline: a communicator as in tsr_pipeline_params. The sums of squares of
     * the stages are added, so that the norm is that of the complete model. NULL: there are no
     * stages. */
    tsr_comm *stages;
    /* The names of parameters that this stage must leave out of the norm because another stage has
     * them, too, and counts them, such as an embedding that is also the head. Ends with NULL. NULL:
     * none. */
    const char *const *counted_elsewhere;
    /* Do not wait for the norm: `norm` must be NULL, tsr_optimizer_norm gives the norm later, and
     * the host meanwhile records the next step. If this rank has all parameters, the device
     * computes the factor; otherwise the call waits all the same, because the sums of squares of
     * the ranks are added on the host. If the norm is not finite, the next step changes nothing,
     * although it is counted. A norm above 1.8e19 then counts as not finite, and one below 1e-19
     * may be 0. */
    bool deferred;
} tsr_optimizer_clip_params;
#define tsr_optimizer_clip_params(...)                                                             \
    (&(tsr_optimizer_clip_params){.struct_size = sizeof(tsr_optimizer_clip_params), __VA_ARGS__})

/* Computes the norm of all gradients together, √Σ g² (`norm` may be NULL), and makes the next
 * tsr_optimizer_step multiply them by min(1, max_norm / (norm + 1e-6)), as
 * torch.nn.utils.clip_grad_norm_ does. The gradients themselves do not change; the multiplication
 * is part of the step. A max_norm of INFINITY clips nothing. A norm that is not finite is not an
 * error: the caller decides what to do (tsr_loss_scaler_update).
 *
 * Every element of the model counts once. The sums of squares of tensor-parallel parts are added
 * over the ranks of their layer's group, and those of shards over the ranks of the FSDP model. If
 * several ranks have the same elements, such as those of biases and always-gathered parameters,
 * these elements count for one rank only. In data parallelism without FSDP, the gradients must have
 * been averaged before, so that they are the same on all its ranks. The norm has the same bits on
 * all ranks, because the order of additions depends on shapes and the number of ranks only.
 *
 * Collective: all ranks of these groups must call it. Blocks until the gradients have been computed
 * and reduced, and the norm has been read, unless `deferred` is set. `params` may be NULL. A call
 * replaces the previous one; tsr_optimizer_zero_grad cancels it. Errors: TSR_ERR_INVALID for a
 * max_norm that is negative or NaN, for a loss_scale that is negative or not finite, for the kind
 * TSR_OPTIMIZER_NONE, for a divided parameter of the caller without a group, and for parts of a
 * parameter that overlap on some ranks without being the same; those of tsr_group operations. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_clip(tsr_optimizer *optimizer, float max_norm,
                                                    const tsr_optimizer_clip_params *params,
                                                    double *norm);

/* Gives the norm that tsr_optimizer_clip has computed last. Blocks until the device has computed
 * it, but not until later work is complete: a program that reads the norm of a step after it has
 * recorded the next one does not make the device wait. Errors: TSR_ERR_INVALID if no norm has been
 * computed; those of tsr_stream_wait_point. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_norm(tsr_optimizer *optimizer, double *out);

/* Returns the number of steps so far, including those before a checkpoint that was loaded. */
TSR_API int64_t tsr_optimizer_steps(const tsr_optimizer *optimizer);

/* Copies the values of the parameters to their master copies. Call it after the program has written
 * to parameters; it is not needed after tsr_optimizer_load. Records the copies and returns; with
 * FSDP models, blocks as tsr_fsdp_changed does. Errors: those of tsr_copy and tsr_fsdp_changed. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_changed(tsr_optimizer *optimizer);

/* Checkpoints -----------------------------------------------------------------------------------
 *
 * The file is one that tsr_checkpoint_save writes. Each full parameter is stored under its name,
 * and its state as "optimizer.moment1.NAME", "optimizer.moment2.NAME" or "optimizer.velocity.NAME",
 * and "optimizer.master.NAME". The number of steps is the metadata "tessera.steps". The file does
 * not depend on the number of ranks, the grid, the strategy, or whether parameters are sharded, and
 * may be loaded with any other. It has checksums, which loading verifies (checkpoint.h). */
typedef struct tsr_optimizer_file_params {
    size_t struct_size;
    /* All ranks that hold parts of the parameters; they must all make the call. NULL: the ranks of
     * the group of the first layer or model that was added, or this process alone if none was
     * added. */
    tsr_comm *world;
    /* Saving a model whose layers are divided over the stages of a pipeline: as in
     * tsr_checkpoint_params. All stages must have made the same number of steps. Loading does not
     * need it. */
    tsr_comm *stages;
    /* Save or load the parameters only. After loading, the state is then as for a new optimizer,
     * with 0 steps. Must be the same on all ranks. */
    bool model_only;
    const char *const *metadata; /* for saving: additional metadata, as in tsr_checkpoint_params */
    bool parts; /* a file for each rank, on its host, as in tsr_checkpoint_params */
} tsr_optimizer_file_params;
#define tsr_optimizer_file_params(...)                                                             \
    (&(tsr_optimizer_file_params){.struct_size = sizeof(tsr_optimizer_file_params), __VA_ARGS__})

/* Saves parameters and state. Collective. Blocks until the file is on the disk. Errors: those of
 * tsr_checkpoint_save; TSR_ERR_INVALID while a unit of an FSDP model is in use, and for an FSDP
 * model whose number of steps is not the optimizer's. */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_save(tsr_optimizer *optimizer, const char *path,
                                                    const tsr_optimizer_file_params *params);
/* Loads parameters, state and the number of steps, and clears the gradients. Collective. Blocks
 * until everything has been read. Errors: those of tsr_checkpoint_load; TSR_ERR_INVALID while a
 * unit of an FSDP model is in use; TSR_ERR_NOT_FOUND for a file without an optimizer's state,
 * unless `model_only` is set. If reading fails, the values of parameters and state are unspecified.
 */
TSR_API TSR_NODISCARD tsr_status tsr_optimizer_load(tsr_optimizer *optimizer, const char *path,
                                                    const tsr_optimizer_file_params *params);

#ifdef __cplusplus
}
#endif

#endif
