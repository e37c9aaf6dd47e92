/* Layers whose weights are divided over the ranks of a group: column- and row-parallel linear
 * layers, MLP blocks with and without a gate, vocabulary-parallel embedding and cross-entropy. They
 * have forward and backward passes, for inputs of any number of batch dimensions [batch, …,
 * features].
 *
 *     tsr_layer *mlp = NULL;
 *     tsr_mlp_create(tsr_mlp_params(.group = group, .input_size = 64, .hidden_size = 256,
 *                                   .output_size = 10, .bias = true,
 *                                   .activation = TSR_ACT_RELU), &mlp);
 *     tsr_layer_forward(mlp, x, &saved, &logits);
 *     tsr_layer_backward(mlp, saved, dlogits, NULL);
 *     for (int i = 0; i < tsr_layer_parameter_count(mlp); i++) {
 *         const tsr_parameter *p = tsr_layer_parameter(mlp, i);
 *         tsr_adamw_step(stream, p->tensor, p->grad, moment1[i], moment2[i], NULL, &adamw);
 *     }
 *     tsr_layer_zero_grad(mlp);
 *
 * All ranks of the group must create the same layers with the same params, and call them in the
 * same order. All work is recorded on the group's stream. Calls return without waiting for the
 * device, except where a comment says that they block.
 *
 * Each rank stores its shard of a weight only. Initial values are drawn element by element from
 * Philox at the element's position in the full weight, and scaled by the full weight's fan-in and
 * fan-out. The full weight is therefore the same for any number of ranks, any partition, and
 * column- and row-parallel layers.
 *
 * Errors of all calls: TSR_ERR_INVALID with a text that names the layer and the values, the errors
 * of recording on a stream, and those of tsr_group operations. If a forward or backward pass fails,
 * no output is written; gradients of parameters may already have changed.
 *
 * Threads: as for the layer's group. */
#ifndef TESSERA_LAYER_H
#define TESSERA_LAYER_H

#include "tessera/group.h"
#include "tessera/ops.h"
#include "tessera/shard.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layers ------------------------------------------------------------------------------------- */

typedef struct tsr_layer tsr_layer;
/* The values that a forward pass keeps for the backward pass. */
typedef struct tsr_layer_saved tsr_layer_saved;

/* y = layer(x). y is a new tensor, which the caller must destroy; it has x's dtype (an embedding's
 * y has the dtype of its weight). *saved is for tsr_layer_backward. It keeps x's memory, which must
 * not change until then. `saved` may be NULL if there will be no backward pass. Blocks until the
 * collective operations of the pass are done, if the layer has any; work on the device may still be
 * in progress then. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_forward(tsr_layer *layer, const tsr_tensor *x,
                                                   tsr_layer_saved **saved, tsr_tensor **y);

/* Adds the gradients of the parameters to their `grad`, and creates the gradient of x: a new tensor
 * of x's shape and dtype, which the caller must destroy. `dx` may be NULL if it is not needed, and
 * must be NULL for an embedding. dy has y's shape. `saved` may be used several times, and other
 * passes may have run since its forward pass. Blocks until the collective operations of the pass
 * are done, if the layer has any. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                                    const tsr_tensor *dy, tsr_tensor **dx);

/* Frees the saved values and sets *saved to NULL. NULL is allowed. */
TSR_API void tsr_layer_saved_destroy(tsr_layer_saved **saved);

/* Destroys a layer. Call it before tsr_group_destroy for the layer's group. Outputs and `saved`
 * values remain valid memory. Sets *layer to NULL. NULL is allowed. */
TSR_API void tsr_layer_destroy(tsr_layer **layer);

TSR_API tsr_group *tsr_layer_group(const tsr_layer *layer);

/* Parameters --------------------------------------------------------------------------------- */

/* This rank's shard of a parameter: what the rank has of a parameter that the ranks divide among
 * them, or all of a parameter that every rank has. A layer owns everything in its structs; programs
 * fill such structs for parameters of their own (fsdp.h, optimizer.h). */
typedef struct tsr_parameter {
    size_t struct_size;
    const char *name; /* "weight", or "mlp.up.weight" if the layer has a name */
    /* This rank's shard: global_shape, but `length` in dimension shard_dim. NULL in a deferred
     * layer without memory. */
    tsr_tensor *tensor;
    /* The gradient, of the same shape; f32 unless params.grad_dtype is set. NULL before the first
     * backward pass. */
    tsr_tensor *grad;
    tsr_dtype dtype; /* a float; `tensor` may have a block format instead */
    int ndim;
    int64_t global_shape[TSR_MAX_DIMS];
    /* The dimension that is divided. -1: every rank has the full parameter, and the same
     * gradient. */
    int shard_dim;
    /* This rank's shard of shard_dim: `length` elements from `offset` on. If shard_dim is -1: 0 and
     * the size of dimension 0. */
    int64_t offset, length;
} tsr_parameter;
#define tsr_parameter(...) (&(tsr_parameter){.struct_size = sizeof(tsr_parameter), __VA_ARGS__})

TSR_API int tsr_layer_parameter_count(const tsr_layer *layer);
/* Returns parameter `index`, 0 … count − 1, or NULL if there is no such parameter. The struct is
 * valid until the layer is destroyed; its tensors may change with each call on the layer. */
TSR_API const tsr_parameter *tsr_layer_parameter(const tsr_layer *layer, int index);
/* Finds the parameter whose name is `name`, or ends in a dot and `name`: "weight" or "up.weight".
 * Errors: TSR_ERR_NOT_FOUND naming it; TSR_ERR_INVALID if several parameters match. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_find_parameter(const tsr_layer *layer, const char *name,
                                                          const tsr_parameter **out);

/* Clears the gradients: the next backward pass starts from 0. The gradients keep their memory. */
TSR_API void tsr_layer_zero_grad(tsr_layer *layer);

/* Freezes a layer, with all layers inside an MLP, a self-attention layer or a block, or, with
 * false, lets it be trained again. The backward pass of a frozen layer computes dx only: the
 * parameters get no gradients, which then need no memory, and are not changed by an optimizer. The
 * gradients that they already have remain. Matrices of a frozen layer may be in a block format
 * (quant.h); each is converted to the parameter's dtype, in temporary memory, when dx is computed.
 * A layer of an FSDP model (fsdp.h) must not be frozen. Must be the same on all ranks. */
TSR_API void tsr_layer_set_frozen(tsr_layer *layer, bool frozen);

/* Sets the memory of a parameter's values and gradient to tensors of the caller. The layer keeps
 * views of them. Both must have the shape of this rank's shard and no repeated element; `tensor`
 * must have the parameter's dtype, the gradient may have any float dtype. A matrix may be in
 * another float dtype or in a block format (quant.h) instead; the layer then has a backward pass
 * only if it is frozen. NULL removes the memory, for the parameters of deferred layers that exist
 * only while they are needed. If `grad_holds` is true, the next backward pass adds to the contents
 * of `grad`; otherwise it overwrites them. Errors: TSR_ERR_INVALID. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_set_parameter(tsr_layer *layer, int index,
                                                         tsr_tensor *tensor, tsr_tensor *grad,
                                                         bool grad_holds);

/* Gathers the full parameter from all ranks into a new contiguous tensor, which the caller must
 * destroy. Collective. Blocks until the shards of all ranks have arrived. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_gather_parameter(const tsr_layer *layer, int index,
                                                            tsr_tensor **out);

/* Linear ----------------------------------------------------------------------------------------
 *
 * y[…, out] = x[…, in] · wᵀ + bias, weight [out, in], bias [out].
 *
 *     column-parallel   each rank has rows of the weight and of the bias, and computes their
 *                       features of y
 *     row-parallel      each rank has columns of the weight, for the same features of x. The
 *                       products are summed over the ranks, and then the bias, which is the same
 *                       on every rank, is added once
 */

/* How the input or the output of a layer is divided over the ranks. */
typedef enum tsr_layer_layout {
    TSR_LAYOUT_DEFAULT = 0,
    /* Every rank has the full tensor. A row-parallel layer takes its shard of the tensor as a view.
     */
    TSR_LAYOUT_FULL = 1,
    /* Each rank has its shard of the features; for an input, the features that its columns of the
     * weight multiply. */
    TSR_LAYOUT_SHARDED = 2,
    /* For inputs only: each rank has a shard of the features, as `other_partition` divides them,
     * and the layer gathers the shards of all ranks. */
    TSR_LAYOUT_GATHER = 3,
    /* Sequence parallelism: each rank has an equal shard of dimension `sequence_dim`, and all
     * features. A column-parallel layer gathers such an input. A row-parallel layer produces such
     * an output with a reduce-scatter instead of its all-reduce. */
    TSR_LAYOUT_SEQUENCE = 4
} tsr_layer_layout;

typedef enum tsr_init {
    TSR_INIT_DEFAULT = 0,        /* linear: XAVIER_NORMAL; embedding: NORMAL with deviation 1 */
    TSR_INIT_XAVIER_NORMAL = 1,  /* normal, deviation √(2 / (in + out)); biases 0 */
    TSR_INIT_XAVIER_UNIFORM = 2, /* uniform in ±√(6 / (in + out)); biases 0 */
    TSR_INIT_KAIMING_NORMAL = 3, /* normal, deviation √(2 / in); biases 0 */
    TSR_INIT_TORCH = 4,          /* uniform in ±1/√in, also for biases, as torch.nn.Linear */
    TSR_INIT_NORMAL = 5,         /* normal, with `deviation`; biases 0 */
    TSR_INIT_ZEROS = 6,
    TSR_INIT_NONE = 7 /* undefined until written */
} tsr_init;

/* The initial values of parameters. Element i of the full parameter, in row-major order, is element
 * i of tsr_random_normal or tsr_random_uniform with this seed, and with the 64-bit FNV-1a hash of
 * the parameter's full name as subsequence. Layers with different names therefore get different
 * weights. */
typedef struct tsr_init_params {
    size_t struct_size;
    tsr_init kind;
    uint64_t seed;
    float deviation; /* the standard deviation, for TSR_INIT_NORMAL; 0: 1; TSR_ZERO is possible */
} tsr_init_params;
#define tsr_init_params(...)                                                                       \
    (&(tsr_init_params){.struct_size = sizeof(tsr_init_params), __VA_ARGS__})

typedef struct tsr_linear_params {
    size_t struct_size;
    tsr_group *group; /* NULL: tsr_group_default() */
    /* The layer's name, with which its parameters' names start. Copied. NULL: none. */
    const char *name;
    int64_t input_size, output_size;
    bool bias;       /* the layer has a bias */
    tsr_dtype dtype; /* the dtype of the parameters: f32, f16 or bf16; 0: f32 */
    /* Column-parallel: FULL (default), GATHER or SEQUENCE. Row-parallel: SHARDED (default), FULL or
     * GATHER. */
    tsr_layer_layout input;
    /* Column-parallel: SHARDED (default), or FULL: gathered. Row-parallel: FULL (default), SHARDED
     * or SEQUENCE. */
    tsr_layer_layout output;
    int sequence_dim; /* for SEQUENCE inputs and outputs: at least 0, and not the last dimension */
    /* How the sharded dimension is divided. NULL, EVEN and STRICT: a size that the ranks do not
     * divide is an error. UNEVEN, and WEIGHTED with rates: ranks may get shards of different sizes,
     * even empty ones. */
    const tsr_partition_params *partition;
    /* How the features are divided that `partition` does not divide: the input features of a
     * column-parallel layer with a GATHER input, or the output features of a row-parallel layer
     * with a SHARDED output. Unused otherwise. */
    const tsr_partition_params *other_partition;
    const tsr_init_params *init;
    tsr_dtype grad_dtype; /* 0: f32 */
    /* If x is f16 or bf16, sum the partial products of the ranks in f32. They are then rounded once
     * less, but twice the bytes are sent. */
    bool reduce_f32;
    /* The number of overlap chunks into which a product is divided, so that one chunk is reduced
     * while the next one is computed. 1: it is not divided; at most 16; 0: chosen by the size of
     * the product. Must be the same on all ranks. */
    int overlap_parts;
    /* Create the layer without memory for its parameters; see tsr_layer_set_parameter. */
    bool deferred;
} tsr_linear_params;
#define tsr_linear_params(...)                                                                     \
    (&(tsr_linear_params){.struct_size = sizeof(tsr_linear_params), __VA_ARGS__})

/* Create a linear layer, without communication. Errors: TSR_ERR_INVALID for sizes below 1 or above
 * 2^31 − 1, sizes that the ranks do not divide, layouts that the layer does not support, a negative
 * sequence_dim with a SEQUENCE layout, or a missing group; those of tsr_partition and of creating
 * tensors. A sequence_dim that x does not have is an error of the passes. */
TSR_API TSR_NODISCARD tsr_status tsr_column_linear_create(const tsr_linear_params *params,
                                                          tsr_layer **out);
TSR_API TSR_NODISCARD tsr_status tsr_row_linear_create(const tsr_linear_params *params,
                                                       tsr_layer **out);

/* The params of common layers; all other fields may be 0:
 *
 *     a row-parallel layer behind a column-parallel one   .input_size, .output_size
 *     the output layer of an MLP                          the same; or use tsr_mlp_create
 *     a row-parallel layer, if every rank has all of x    .input = TSR_LAYOUT_FULL
 *     … if x is divided differently than the weight       .input = TSR_LAYOUT_GATHER,
 *                                                         .other_partition = …
 *     a column-parallel layer, and the row-parallel layer that takes its output: the defaults for
 *     both; y = row(activation(column(x)))
 *
 * Layers of one model must have different names: layers with the same name get the same initial
 * weights, and plans and checkpoints cannot distinguish them. A pair named "mlp.up" and "mlp.down"
 * has the same parameter names as a tsr_mlp_create with the name "mlp". */

/* This rank's shard of a linear layer, for inspection. The layer owns the tensors. */
typedef struct tsr_linear_shard {
    size_t struct_size;
    tsr_tensor *weight;    /* NULL in a deferred layer without memory */
    tsr_tensor *bias;      /* also NULL if the layer has no bias */
    int64_t rows, columns; /* the shape of the weight */
} tsr_linear_shard;
/* Gets the shard. Errors: TSR_ERR_INVALID if the layer is not linear. */
TSR_API TSR_NODISCARD tsr_status tsr_linear_get_shard(const tsr_layer *layer,
                                                      tsr_linear_shard *out);

/* MLP -------------------------------------------------------------------------------------------
 *
 * plain   y = act(x · upᵀ + bias) · downᵀ + bias
 *
 * gated   y = (act(x · gateᵀ + bias) ⊙ (x · upᵀ + bias)) · downᵀ + bias
 *
 * The parameters are "up.weight", "up.bias", "down.weight", "down.bias", and in a gated MLP also
 * "gate.weight" and "gate.bias". gate and up are column-parallel and are computed in one product;
 * down is row-parallel. A forward pass needs one all-reduce, and so does a backward pass. A gated
 * MLP with TSR_ACT_SILU is SwiGLU. Source: Shoeybi et al., "Megatron-LM" (2019); for sequence
 * parallelism Korthikanti et al., "Reducing activation recomputation in large transformer models"
 * (2022). */

/* An activation function of the caller. The first records y = f(x) on the stream; y may be x. The
 * second records dx = dy · f'(x); dx may be dy. The layer returns their errors. */
typedef tsr_status (*tsr_activation_fn)(void *user, tsr_stream *stream, tsr_tensor *y,
                                        const tsr_tensor *x);
typedef tsr_status (*tsr_activation_grad_fn)(void *user, tsr_stream *stream, tsr_tensor *dx,
                                             const tsr_tensor *x, const tsr_tensor *dy);

/* Fields that tsr_linear_params has as well, and that have no comment here, are as there. */
typedef struct tsr_mlp_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t input_size, hidden_size, output_size;
    bool bias; /* all products have a bias */
    bool gated;
    tsr_activation activation;
    tsr_activation_fn activate;           /* if not NULL, used instead of `activation` */
    tsr_activation_grad_fn activate_grad; /* its derivative; required for a backward pass */
    void *user;
    bool sequence; /* x and y are divided along sequence_dim */
    int sequence_dim;
    const tsr_partition_params *partition; /* how hidden_size is divided */
    tsr_dtype dtype;
    const tsr_init_params *init;
    /* The initial values of "down"; NULL, or of the kind DEFAULT: `init`. */
    const tsr_init_params *output_init;
    tsr_dtype grad_dtype;
    bool reduce_f32;
    int overlap_parts;
    bool deferred;
} tsr_mlp_params;
#define tsr_mlp_params(...) (&(tsr_mlp_params){.struct_size = sizeof(tsr_mlp_params), __VA_ARGS__})

/* Creates an MLP, without communication. Errors: as for linear layers. */
TSR_API TSR_NODISCARD tsr_status tsr_mlp_create(const tsr_mlp_params *params, tsr_layer **out);

/* Vocabulary --------------------------------------------------------------------------------- */

/* Fields that tsr_linear_params has as well, and that have no comment here, are as there. */
typedef struct tsr_embedding_params {
    size_t struct_size;
    tsr_group *group;
    const char *name;
    int64_t vocabulary_size, width;
    tsr_dtype dtype;
    tsr_layer_layout output; /* FULL (default) or SEQUENCE */
    int sequence_dim;
    const tsr_partition_params *partition; /* how the vocabulary is divided */
    const tsr_init_params *init;
    tsr_dtype grad_dtype;
    bool deferred;
} tsr_embedding_params;
#define tsr_embedding_params(...)                                                                  \
    (&(tsr_embedding_params){.struct_size = sizeof(tsr_embedding_params), __VA_ARGS__})

/* Creates an embedding: y[…, width] = weight[x[…]], weight [vocabulary, width], of which each rank
 * has rows. x is i32, i64, u32 or u8, and the same on all ranks. y has the weight's dtype. An index
 * outside the vocabulary gives zeros and has no gradient. */
TSR_API TSR_NODISCARD tsr_status tsr_embedding_create(const tsr_embedding_params *params,
                                                      tsr_layer **out);

/* Computes tsr_cross_entropy of logits whose classes are divided over the ranks. logits is [rows,
 * this rank's shard of the classes], as a column-parallel layer of output_size `classes` with this
 * `partition` produces them; no rank ever has a full row. Every rank has all of loss [rows] and
 * labels [rows], and labels must be the same on all ranks. If `partition` is NULL, the shards are
 * equal. Collective: it needs one small all-gather (3 numbers per row and rank), and blocks until
 * that is done. */
TSR_API TSR_NODISCARD tsr_status
tsr_vocabulary_cross_entropy(tsr_group *group, tsr_tensor *loss, tsr_tensor *dlogits,
                             const tsr_tensor *logits, const tsr_tensor *labels, int64_t classes,
                             const tsr_partition_params *partition, float grad_scale);

#ifdef __cplusplus
}
#endif

#endif
