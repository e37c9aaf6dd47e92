/* Layers whose weights are divided over the ranks of a group: column- and row-parallel linear, MLP
 * blocks with or without a gate, vocabulary-parallel embedding and cross-entropy. Forward and
 * backward, for inputs of any batch rank [batch, …, features].
 *
 *     tsr_layer *mlp = NULL;
 *     tsr_mlp_create(tsr_mlp_params(.group = group, .input_size = 64, .hidden_size = 256,
 *                                   .output_size = 10, .activation = TSR_ACT_RELU), &mlp);
 *     tsr_layer_forward(mlp, x, &saved, &logits);
 *     tsr_layer_backward(mlp, saved, dlogits, NULL);
 *     for (int i = 0; i < tsr_layer_parameter_count(mlp); i++) {
 *         const tsr_parameter *p = tsr_layer_parameter(mlp, i);
 *         tsr_adamw_step(stream, p->tensor, p->grad, moment1[i], moment2[i], NULL, &adamw);
 *     }
 *     tsr_layer_zero_grad(mlp);
 *
 * All ranks of the group make the same layers with the same params and call them in the same order.
 * Everything runs in order with the group's stream; only what communicates waits.
 *
 * Each rank holds, and draws at random, its shard alone, element by element from Philox at the
 * element's place in the whole weight, with the whole weight's fan-in and fan-out: the whole weight
 * is the same for any number of ranks, any partition and either way of dividing it.
 *
 * Errors of all: TSR_ERR_INVALID naming layer and values, those of recording on a stream, and those
 * of tsr_group operations. On failure of forward or backward no output is written; gradients may
 * have been added to.
 *
 * Threads: as the group of the layer. */
#ifndef TESSERA_LAYER_H
#define TESSERA_LAYER_H

#include "tessera/group.h"
#include "tessera/ops.h"
#include "tessera/shard.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layers ----------------------------------------------------------------------------------------
 */

typedef struct tsr_layer tsr_layer;
/* What a forward pass keeps for its backward pass. */
typedef struct tsr_layer_saved tsr_layer_saved;

/* y = layer(x), a new tensor of x's dtype, which is the caller's. What `saved` gets is for
 * tsr_layer_backward and keeps x's memory, which must not change until then; NULL where there will
 * be none. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_forward(tsr_layer *layer, const tsr_tensor *x,
                                                   tsr_layer_saved **saved, tsr_tensor **y);

/* Adds the gradients of the parameters, and gives that of x as a new tensor of x's shape and dtype;
 * `dx` NULL where it is not wanted (an embedding has none). dy has y's shape. `saved` may be used
 * several times; the pass before may have been followed by other passes. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                                    const tsr_tensor *dy, tsr_tensor **dx);

/* NULL is fine; sets NULL. */
TSR_API void tsr_layer_saved_destroy(tsr_layer_saved **saved);

/* Before its group. Outputs and what was saved stay. NULL is fine; sets NULL. */
TSR_API void tsr_layer_destroy(tsr_layer **layer);

TSR_API tsr_group *tsr_layer_group(const tsr_layer *layer);

/* Parameters ------------------------------------------------------------------------------------
 */

/* A rank's part of a parameter. Everything belongs to the layer. */
typedef struct tsr_parameter {
    const char *name; /* "weight", or with the layer's name "mlp.up.weight" */
    /* This rank's part, [.., length, ..]; NULL in a deferred layer that was given none. */
    tsr_tensor *tensor;
    /* Of the same shape; f32, unless params say else. NULL before the first backward pass. */
    tsr_tensor *grad;
    tsr_dtype dtype;
    int ndim;
    int64_t global_shape[TSR_MAX_DIMS];
    /* Which dimension is divided; -1: every rank has all of it, and the same gradient. */
    int shard_dim;
    int64_t offset, length; /* of this rank's part along it; without one 0 and the whole of dim 0 */
} tsr_parameter;

TSR_API int tsr_layer_parameter_count(const tsr_layer *layer);
/* Parameter `index`, 0 … count − 1; NULL when there is none. The struct lives as long as the layer,
 * its tensors may change with each call on the layer. */
TSR_API const tsr_parameter *tsr_layer_parameter(const tsr_layer *layer, int index);
/* The parameter whose name, or last part of it after a dot, is `name`: "weight" or "up.weight".
 * Errors: TSR_ERR_NOT_FOUND naming it, TSR_ERR_INVALID when several fit. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_find_parameter(const tsr_layer *layer, const char *name,
                                                          const tsr_parameter **out);

/* Gradients start from 0 again at the next backward pass; their memory stays. */
TSR_API void tsr_layer_zero_grad(tsr_layer *layer);

/* Gives a parameter memory of the caller's for its values and its gradient: views of which the
 * layer holds its own. They have the shape of this rank's part and repeat no element, `tensor` has
 * the parameter's dtype, the gradient any float dtype. NULL takes the memory away: for deferred
 * layers, whose parameters come and go. The gradient counts as 0 until the next backward pass
 * unless `grad_holds` says it has something to add to. Errors: TSR_ERR_INVALID. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_set_parameter(tsr_layer *layer, int index,
                                                         tsr_tensor *tensor, tsr_tensor *grad,
                                                         bool grad_holds);

/* The initial values of elements first, first + 1, … of this rank's part in row-major order, into a
 * contiguous tensor of one dimension: what the layer would have begun with. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_initial(const tsr_layer *layer, int index,
                                                   tsr_stream *stream, int64_t first,
                                                   tsr_tensor *out);

/* The whole parameter, gathered from all ranks, as a new contiguous tensor. All ranks call it. */
TSR_API TSR_NODISCARD tsr_status tsr_layer_gather_parameter(const tsr_layer *layer, int index,
                                                            tsr_tensor **out);

/* Linear ----------------------------------------------------------------------------------------
 *
 * y[…, out] = x[…, in] · wᵀ + bias, weight [out, in], bias [out].
 *
 *     column-parallel   each rank has rows of the weight, and of the bias: features of y
 *     row-parallel      each rank has columns of the weight, for features of x; its products are
 *                       summed over the ranks, then the bias, the same everywhere, is added once
 */

/* How an input or output is divided over the ranks. */
typedef enum tsr_layer_layout {
    TSR_LAYOUT_DEFAULT = 0,
    /* Every rank has all of it. A row-parallel layer takes its part of a full input as a view. */
    TSR_LAYOUT_FULL = 1,
    /* Each rank has its part of the features: of an input, the weight's columns it has. */
    TSR_LAYOUT_SHARDED = 2,
    /* Input only: each rank has a part of the features, by `other_partition`, and all ranks' parts
     * are gathered. */
    TSR_LAYOUT_GATHER = 3,
    /* Each rank has an equal part of dimension `sequence_dim`, and all features: sequence
     * parallelism. A column-parallel layer gathers such an input; a row-parallel one gives such an
     * output by a reduce-scatter in the place of its all-reduce. */
    TSR_LAYOUT_SEQUENCE = 4
} tsr_layer_layout;

typedef enum tsr_init {
    TSR_INIT_DEFAULT = 0,        /* linear: XAVIER_NORMAL; embedding: NORMAL with deviation 1 */
    TSR_INIT_XAVIER_NORMAL = 1,  /* deviation √(2 / (in + out)); biases 0 */
    TSR_INIT_XAVIER_UNIFORM = 2, /* ±√(6 / (in + out)); biases 0 */
    TSR_INIT_KAIMING_NORMAL = 3, /* deviation √(2 / in); biases 0 */
    TSR_INIT_TORCH = 4,          /* ±1/√in, also of biases: the ranges of torch.nn.Linear */
    TSR_INIT_NORMAL = 5,         /* `deviation`, where 0 means 1; biases 0 */
    TSR_INIT_ZEROS = 6,
    TSR_INIT_NONE = 7 /* undefined until written */
} tsr_init;

/* What parameters begin with. Element i of the whole parameter, in row-major order, is element i of
 * tsr_random_normal or tsr_random_uniform with this seed and the FNV-1a hash (64 bits) of the
 * parameter's full name as subsequence: layers with other names have other weights. */
typedef struct tsr_init_params {
    tsr_init kind;
    uint64_t seed;
    float deviation; /* TSR_INIT_NORMAL */
} tsr_init_params;

typedef struct tsr_linear_params {
    tsr_group *group; /* NULL: tsr_group_default() */
    const char *name; /* of the layer, before its parameters' names; copied. NULL: none */
    int64_t input_size, output_size;
    bool no_bias;
    tsr_dtype dtype; /* of the parameters: f32, f16 or bf16; 0: f32 */
    /* column: FULL (default), GATHER or SEQUENCE. row: SHARDED (default), FULL or GATHER. */
    tsr_layer_layout input;
    /* column: SHARDED (default) or FULL: gathered. row: FULL (default), SHARDED or SEQUENCE. */
    tsr_layer_layout output;
    int sequence_dim; /* of SEQUENCE inputs and outputs, from 0 on. Not the last */
    /* How the sharded dimension is divided. EVEN (0) and STRICT: sizes that do not divide are an
     * error. UNEVEN, or WEIGHTED with rates, gives ranks unequal parts, also empty ones. */
    tsr_partition_params partition;
    /* The same of the other side where it is divided: a GATHER input, a row's SHARDED output. */
    tsr_partition_params other_partition;
    tsr_init_params init;
    tsr_dtype grad_dtype; /* 0: f32 */
    /* Sum partial products in f32 where x is f16 or bf16: one rounding less, twice the bytes. */
    bool reduce_f32;
    /* Into how many parts a product is cut, so that one is reduced while the next is computed; 0:
     * by its size, 1: not at all; at most 16. The same on all ranks. */
    int overlap_parts;
    /* Without memory for parameters: see tsr_layer_set_parameter. */
    bool deferred;
} tsr_linear_params;
#define tsr_linear_params(...) (&(tsr_linear_params){__VA_ARGS__})

/* Errors: TSR_ERR_INVALID: sizes below 1, sizes that do not divide, layouts a layer does not have,
 * a negative sequence_dim of one that has it, no group; those of tsr_partition and of tensors. A
 * sequence_dim that x does not have is an error of the passes. */
TSR_API TSR_NODISCARD tsr_status tsr_column_linear_create(const tsr_linear_params *params,
                                                          tsr_layer **out);
TSR_API TSR_NODISCARD tsr_status tsr_row_linear_create(const tsr_linear_params *params,
                                                       tsr_layer **out);

/* Common layers, by their params; all other fields may stay 0:
 *
 *     a row-parallel layer behind a column-parallel one   .input_size, .output_size
 *     … the output layer of an MLP                        the same; or use tsr_mlp_create
 *     … of which every rank has all of x                  .input = TSR_LAYOUT_FULL
 *     … whose x is divided in another way than its weight .input = TSR_LAYOUT_GATHER,
 *                                                         .other_partition = …
 *     a column-parallel layer, and the row-parallel layer that takes its output: both with the
 *     defaults; y = row(activation(column(x)))
 *
 * Layers of one model need different names. Layers of the same name begin with the same weights,
 * and plans and checkpoints cannot tell them apart. Named "mlp.up" and "mlp.down", a pair has the
 * parameters of a tsr_mlp_create with the name "mlp". */

/* A linear layer's local weight and bias, for inspection (NULL without one), and the local weight's
 * shape. They belong to the layer. Errors: TSR_ERR_INVALID for a layer that is not linear. */
TSR_API tsr_tensor *tsr_linear_local_weight(const tsr_layer *layer);
TSR_API tsr_tensor *tsr_linear_local_bias(const tsr_layer *layer);
TSR_API TSR_NODISCARD tsr_status tsr_linear_local_shape(const tsr_layer *layer, int64_t *rows,
                                                        int64_t *columns);

/* MLP -------------------------------------------------------------------------------------------
 *
 * plain   y = act(x · upᵀ + bias) · downᵀ + bias                    "up.weight", "down.bias", …
 * gated   y = (act(x · gateᵀ + bias) ⊙ (x · upᵀ + bias)) · downᵀ + bias   and "gate.weight", …
 *
 * gate and up are column-parallel and computed in one product, down is row-parallel: one all-reduce
 * forward, one backward. Gated with TSR_ACT_SILU is SwiGLU. Source: Shoeybi et al., "Megatron-LM"
 * (2019); with sequence parallelism Korthikanti et al., "Reducing activation recomputation in large
 * transformer models" (2022).
 */

/* An activation of the caller's: records y = f(x) on the stream, where y may be x; and dx = dy ·
 * f'(x), where dx may be dy. A failure is passed on. */
typedef tsr_status (*tsr_activation_fn)(void *user, tsr_stream *stream, tsr_tensor *y,
                                        const tsr_tensor *x);
typedef tsr_status (*tsr_activation_grad_fn)(void *user, tsr_stream *stream, tsr_tensor *dx,
                                             const tsr_tensor *x, const tsr_tensor *dy);

typedef struct tsr_mlp_params {
    tsr_group *group;
    const char *name;
    int64_t input_size, hidden_size, output_size;
    bool no_bias;
    bool gated;
    tsr_activation activation;
    tsr_activation_fn activate;           /* where not NULL, instead of `activation`, */
    tsr_activation_grad_fn activate_grad; /* with its derivative: needed for a backward pass */
    void *user;
    bool sequence; /* x and y are divided along sequence_dim */
    int sequence_dim;
    tsr_partition_params partition; /* of hidden_size */
    tsr_dtype dtype;
    tsr_init_params init;
    tsr_dtype grad_dtype;
    bool reduce_f32;
    int overlap_parts;
    bool deferred;
} tsr_mlp_params;
#define tsr_mlp_params(...) (&(tsr_mlp_params){__VA_ARGS__})

TSR_API TSR_NODISCARD tsr_status tsr_mlp_create(const tsr_mlp_params *params, tsr_layer **out);

/* Vocabulary ------------------------------------------------------------------------------------
 */

typedef struct tsr_embedding_params {
    tsr_group *group;
    const char *name;
    int64_t vocabulary_size, width;
    tsr_dtype dtype;
    tsr_layer_layout output; /* FULL (default) or SEQUENCE */
    int sequence_dim;
    tsr_partition_params partition; /* of the vocabulary */
    tsr_init_params init;
    tsr_dtype grad_dtype;
    bool deferred;
} tsr_embedding_params;
#define tsr_embedding_params(...) (&(tsr_embedding_params){__VA_ARGS__})

/* y[…, width] = weight[x[…]], weight [vocabulary, width], of which each rank has rows; x is i32,
 * i64, u32 or u8, and full. y has the weight's dtype. An index outside the vocabulary gives zeros
 * and has no gradient. */
TSR_API TSR_NODISCARD tsr_status tsr_embedding_create(const tsr_embedding_params *params,
                                                      tsr_layer **out);

/* tsr_cross_entropy of logits [rows, part of the classes], as a column-parallel layer of
 * output_size `classes` with this partition leaves them: no rank ever has a whole row. loss [rows]
 * and labels [rows] are full, and labels the same on every rank. One small all-gather. `partition`
 * NULL: equal parts. */
TSR_API TSR_NODISCARD tsr_status
tsr_vocabulary_cross_entropy(tsr_group *group, tsr_tensor *loss, tsr_tensor *dlogits,
                             const tsr_tensor *logits, const tsr_tensor *labels, int64_t classes,
                             const tsr_partition_params *partition, float grad_scale);

/* Dropout ---------------------------------------------------------------------------------------
 */

/* tsr_dropout of a part of a tensor, with the mask that the whole would get: x is elements offset,
 * offset + 1, … of dimension `dim` of a tensor whose size there is `global_size`. The same for
 * every partition. dim -1 counts from the end. `params->offset` and index_strides are not looked
 * at. */
TSR_API TSR_NODISCARD tsr_status tsr_dropout_shard(tsr_stream *stream, tsr_tensor *y,
                                                   const tsr_tensor *x, float p, int dim,
                                                   int64_t offset, int64_t global_size,
                                                   const tsr_random_params *params);

#ifdef __cplusplus
}
#endif

#endif
