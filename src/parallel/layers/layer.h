/* The internal functions of layers.
 *
 *     layer.c                 common to all layers: passes, parameters by index and name
 *     parameter.c             a rank's shard of a parameter, and its gradient
 *     initial_values.c        initial values of parameters
 *     layer_check.c           checks arguments
 *     temporary_tensors.c     tensors that exist during one pass
 *     replicated_gradients.c  sums over the ranks of gradients of parameters that all ranks have
 *
 *     linear_create.c         creates column- and row-parallel linear layers
 *     column_linear.c         passes of column-parallel layers
 *     column_blocks.c         products and gradients of the column blocks of such a layer
 *     row_linear.c            passes of row-parallel layers
 *     overlapped_product.c    a product whose chunks are summed over the ranks while the device
 *                             computes the next chunk
 *     adapter.c               low-rank adapters in passes of linear layers
 *     adapter_create.c        creates sets of adapters
 *     adapter_norm.c          adapters with magnitudes (DoRA)
 *     adapter_rows.c          adapters of which each row of a pass has another one
 *
 *     self_attention_create.c, self_attention.c, self_attention_heads.c, self_attention_norm.c
 *                             create self-attention; its passes; views of heads; norms of q and k
 *     latent_attention_create.c, latent_attention.c, latent_attention_backward.c, latent_adapters.c
 *                             create latent attention; its forward passes and its backward pass;
 *                             low-rank adapters of it
 *     context_divide.c, context.c, context_attention.c, context_delta_net.c
 *                             sequences that ranks divide: which rank has what; their attention
 *                             and delta nets
 *     delta_net_create.c, delta_net.c
 *                             create delta nets; their passes
 *     short_conv_create.c, short_conv.c
 *                             create short convolutions; their passes
 *     positions.c             positions and documents of tokens, for all of these
 *     transformer_block_create.c, transformer_block.c
 *                             create transformer blocks; their passes
 *
 *     moe.c                   creates a mixture of experts
 *     moe_forward.c, moe_backward.c
 *                             its passes
 *     moe_adapters.c          low-rank adapters of its experts
 *     moe_exchange.c          sends tokens to the data-parallel ranks that have their experts
 *     teams.c                 divides experts over teams of ranks
 *
 * The other files hold the layers and operations that they are named after.
 *
 * A *shard* is what one rank has of a parameter or tensor that the ranks divide among them. */
#ifndef TSR_PARALLEL_LAYERS_LAYER_H
#define TSR_PARALLEL_LAYERS_LAYER_H

#include "base/error.h"
#include "parallel/group/group.h"
#include "tensor/check.h"
#include "tessera/kv_cache.h"
#include "tessera/layer.h"

/* The shape of a tensor for error texts, such as [2,3]. */
#define TSR__SHAPE_OF(tensor)                                                                      \
    TSR__SHAPE(tsr_tensor_layout(tensor)->ndim, tsr_tensor_layout(tensor)->shape)

/* The division of a number of features, rows or heads among the ranks. The owner of the struct must
 * free `sizes`. */
typedef struct tsr__division {
    int64_t *sizes; /* [ranks]: the sizes of the ranks' shards; NULL: not divided */
    int64_t first;  /* the start of this rank's shard */
    int64_t length; /* sizes[rank] */
} tsr__division;

/* The distribution of a parameter's initial values. */
typedef enum tsr__draw {
    TSR__DRAW_ZEROS,
    TSR__DRAW_ONES,
    TSR__DRAW_NORMAL,  /* normal distribution with standard deviation `scale` */
    TSR__DRAW_UNIFORM, /* uniform distribution from −`scale` to `scale` */
    TSR__DRAW_LOG,     /* logarithms of numbers that are uniform from 1 to 16 */
    TSR__DRAW_NOTHING
} tsr__draw;

/* How the ranks of a data-parallel group divide the first dimension of this rank's shard of a
 * parameter. */
typedef struct tsr__over_data {
    tsr_group *group;     /* NULL: they do not divide it */
    const int64_t *sizes; /* [ranks]; they belong to the FSDP model */
} tsr__over_data;

typedef struct tsr__layer_parameter {
    tsr_parameter seen; /* the parameter as the caller sees it */
    char *name;
    bool divisible;           /* data-parallel ranks may divide it */
    tsr__over_data over_data; /* `seen` has memory for this rank's part only */
    /* a parameter of experts, of which the rank's team has these only: `seen` has memory for them
     */
    bool in_team;
    int64_t team_first, team_count;
    const int64_t *sizes; /* [ranks]: the sizes of the ranks' shards along shard_dim */
    tsr_dtype grad_dtype;
    /* The values in `grad` are not valid and count as 0. The next gradient overwrites them. */
    bool grad_empty;
    tsr__draw draw;
    float scale;
    uint64_t seed;
} tsr__layer_parameter;

/* The cache with the keys and values of earlier tokens. */
typedef struct tsr__cached {
    tsr_kv_cache *cache;
    int layer; /* the layer's index in the cache, which a block passes to its attention layer */
    /* a norm to apply to x first, with the product that reads x if possible; NULL: none. Only for
     * layers whose type has `normalises`. */
    tsr_layer *norm;
} tsr__cached;

typedef struct tsr__layer_type {
    const char *name; /* for example "row_linear" */
    /* The passes that tsr_layer_forward and tsr_layer_backward call. Only `saved` and `dx` may be
     * NULL. */
    tsr_status (*forward)(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                          tsr_tensor **y);
    tsr_status (*backward)(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                           tsr_tensor **dx);
    void (*finish)(tsr_layer *layer); /* releases the fields that only this type has; may be NULL */
    /* The pass that tsr_layer_forward_cached calls. NULL for layers without attention. */
    tsr_status (*forward_cached)(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                 tsr_tensor **y);
    /* *y = layer(x) + added, as `forward` or, if `cached` is not NULL, as `forward_cached`. `added`
     * has the shape of y, or is NULL. NULL for layers that cannot end a residual branch. */
    tsr_status (*forward_added)(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                const tsr_tensor *added, tsr_layer_saved *saved, tsr_tensor **y);
    bool normalises; /* forward_added applies cached->norm */
} tsr__layer_type;

struct tsr_layer {
    const tsr__layer_type *type;
    tsr_group *group;
    tsr_stream *stream;
    tsr_device *device;
    int rank, size;
    char *name;  /* "" if the layer has no name */
    char *who;   /* the start of error texts: the type and the name */
    bool frozen; /* see tsr_layer_set_frozen; the same as in the children */
    int parameter_count, child_count;
    size_t parameter_capacity, child_capacity;
    tsr__layer_parameter **parameter;       /* the addresses of the structs never change */
    tsr_layer **child;                      /* the children's parameters follow the layer's own */
    struct tsr__adapter_bank *adapter_bank; /* of its adapters; NULL: not needed yet */
    struct tsr__adapter *adapters; /* of a linear layer (adapter.h), which owns none of them */
};

/* Dropout in the residual branches of a transformer block. If p is 0, there is no dropout. */
typedef struct tsr__dropout {
    float p;
    uint64_t seed, subsequence, offset;
} tsr__dropout;

/* What latent attention saves: compressed queries and latents, before their norms and after. */
typedef enum tsr__latent_saved {
    TSR__SAVED_Q_RAW,    /* NULL if queries are not compressed */
    TSR__SAVED_Q_NORMED, /* the same */
    TSR__SAVED_KV_RAW,
    TSR__SAVED_LATENTS, /* normalised and rotated */
    TSR__SAVED_LATENT_COUNT
} tsr__latent_saved;

typedef enum tsr__expert_saved {
    TSR__SAVED_LOGITS,
    TSR__SAVED_IDS,
    TSR__SAVED_WEIGHTS,
    TSR__SAVED_HERE,
    TSR__SAVED_ORDER,
    TSR__SAVED_OFFSETS,
    TSR__SAVED_UNSCALED,
    TSR__SAVED_SHARED_HIDDEN,
    TSR__SAVED_SHARED_LOGITS,
    TSR__SAVED_ROWS,
    TSR__SAVED_PAIRS,
    TSR__SAVED_INVERSE,
    TSR__SAVED_RECEIVED,
    TSR__SAVED_EXPERT_COUNT
} tsr__expert_saved;

struct tsr_layer_saved {
    const tsr_layer *layer;
    tsr_tensor *x;
    /* linear layers: x, gathered from all ranks; NULL if x was not gathered, or is not kept */
    tsr_tensor *gathered_x;
    /* MLP: the input of the activation function or, if `sloped` is true, the derivative of the
     * activation function. Mixtures of experts: gate and up of each pair. Self-attention: queries,
     * keys and values, as they were before normalisation if the layer has norms, otherwise after
     * the rotary embedding. Latent attention: rotated queries. Transformer blocks: the output
     * before output_scale. */
    tsr_tensor *hidden;
    tsr_tensor *gate; /* blocks with an input of their own: its gate before the activation */
    bool sloped;
    tsr_tensor *lse; /* self-attention: log-sum-exp of each query's scores */
    /* the results of the heads before they are multiplied by a gate: of self-attention that has
     * one, and of delta nets */
    tsr_tensor *heads;
    /* delta nets and short convolutions, whose `hidden` are the projections: the result of the
     * convolution, of delta nets q, k and v */
    tsr_tensor *convolved;
    tsr_tensor *before[2]; /* with context ranks: the states before this rank's chunks */
    /* self-attention: normalised queries and keys, after the rotary embedding; NULL without norms
     */
    tsr_tensor *normalised;
    /* self-attention whose norms are over all heads of several ranks: [rows, 2], 1 / the root mean
     * square of each row of q and of k */
    tsr_tensor *inverse_rms;
    /* packed rows: tsr__documents of self-attention, and of blocks that run their forward pass
     * again; otherwise NULL */
    tsr_tensor *starts, *chunk_starts, *positions;
    struct tsr__context *context; /* the same, if ranks divide rows */
    tsr_tensor *norm_stats;       /* norms on GPUs: the statistics of x's rows; otherwise NULL */
    /* a tensor that a caller of the layer keeps for its own backward pass, see parallel/internal.h
     */
    tsr_tensor *kept;
    tsr__dropout dropout; /* transformer blocks */
    /* mixtures of experts; NULL where there is nothing to keep. HERE are the ids of this rank's
     * experts, and ORDER and OFFSETS its pairs (tsr_route_sort). UNSCALED are the weights before
     * the scale of experts. If data-parallel ranks divide the
     * experts, these are of the rows RECEIVED; ROWS, PAIRS and INVERSE are as in
     * tsr__moe_exchange. */
    tsr_tensor *expert[TSR__SAVED_EXPERT_COUNT];
    tsr_tensor *latent[TSR__SAVED_LATENT_COUNT];
    int64_t *exchanged; /* [2 · ranks + 1]: the numbers of rows as in tsr__group_rows; or NULL */
    int child_count;
    tsr_layer_saved *child[]; /* the same order as the layer's children */
};

/* layer.c */

/* Creates a layer of `size` bytes. Everything after its tsr_layer is zero. If `group` is NULL, the
 * layer uses the default group. */
tsr_status tsr__layer_new(const tsr__layer_type *type, size_t size, tsr_group *group,
                          const char *name, tsr_layer **out) TSR_NODISCARD;
/* Appends a child, which then belongs to the layer. On failure destroys the child. */
tsr_status tsr__layer_add_child(tsr_layer *layer, tsr_layer *child) TSR_NODISCARD;
/* Creates the struct in which the forward pass of a layer saves tensors, with a view of x. */
tsr_status tsr__layer_saved_new(const tsr_layer *layer, const tsr_tensor *x,
                                tsr_layer_saved **out) TSR_NODISCARD;
/* The forward pass of a layer that ends a residual branch: *y = layer(x) + added. The layer's last
 * product adds `added`, if that is possible. `cached`, `added` and `saved` may be NULL. */
tsr_status tsr__layer_forward_added(tsr_layer *layer, const tsr_tensor *x,
                                    const tsr__cached *cached, const tsr_tensor *added,
                                    tsr_layer_saved **saved, tsr_tensor **y) TSR_NODISCARD;
/* Returns whether data-parallel ranks may divide parameter `index` of a layer or its children. */
bool tsr__layer_is_divisible(const tsr_layer *layer, int index);
/* Sets how they divide it; the parameter must have no memory. A group of NULL: not at all. */
void tsr__layer_divide(tsr_layer *layer, int index, tsr__over_data over);
/* Returns whether the gradient of parameter `index` counts as 0, whatever its memory contains. */
bool tsr__layer_grad_is_empty(const tsr_layer *layer, int index);
/* Creates a view of a caller's tensor, which keeps the tensor's memory alive. */
tsr_status tsr__keep(const tsr_tensor *tensor, tsr_tensor **out) TSR_NODISCARD;
/* Divides a size among the group's ranks as `params`, the caller's or NULL, says. Error texts call
 * the size `what` and the params `field`. */
tsr_status tsr__layer_partition(const tsr_layer *layer, const char *what, int64_t size,
                                const char *field, const tsr_partition_params *params,
                                tsr__division *out) TSR_NODISCARD;

/* layer_check.c */

/* Checks that `x` is a tensor of floats on the layer's device with at least one dimension. */
tsr_status tsr__layer_check_input(const tsr_layer *layer, const char *name,
                                  const tsr_tensor *x) TSR_NODISCARD;
/* Checks that the sequence_dim in the params is not negative. */
tsr_status tsr__layer_check_sequence_dim(const tsr_layer *layer, int dim) TSR_NODISCARD;
/* Checks that sequence_dim is a dimension of `layout` other than the last one. This is checked with
 * one rank too, so that a program that runs on one rank also runs on several. */
tsr_status tsr__layer_has_sequence_dim(const tsr_layer *layer, int dim,
                                       const tsr_layout *layout) TSR_NODISCARD;
/* Replaces dtype 0 by f32, and checks that the dtype is a float. Error texts call the field
 * `what`. */
tsr_status tsr__layer_dtype(const tsr_layer *layer, const char *what, tsr_dtype given,
                            tsr_dtype *out) TSR_NODISCARD;
/* Copies the caller's params of initial values, or the defaults if they are NULL, and checks them.
 * Error texts call the field `what`. */
tsr_status tsr__layer_init(const tsr_layer *layer, const char *what, const tsr_init_params *given,
                           tsr_init_params *out) TSR_NODISCARD;
/* Checks, before a forward pass sends anything, that all parameters of the layer and its children
 * have memory. */
tsr_status tsr__layer_check_forward(const tsr_layer *layer) TSR_NODISCARD;
/* Checks that x, before it is divided over ranks, has the shape of the step of a cache, whose
 * positions are NULL before its first step. */
tsr_status tsr__layer_check_step(const tsr_layer *layer, const tsr_layout *x,
                                 const tsr_tensor *positions) TSR_NODISCARD;
/* Checks the layer and its children before a backward pass sends anything. If they are not frozen,
 * no weight may be in a block format, and no gradient may overlap x or dy, from which the
 * gradient is computed. If `weights` is true, the pass needs the weights, so they must have memory.
 */
tsr_status tsr__layer_check_backward(const tsr_layer *layer, bool weights, const tsr_tensor *x,
                                     const tsr_tensor *dy) TSR_NODISCARD;
/* Checks that `tensor` can be the memory of a parameter, unless `tensor` is NULL. The tensor must
 * have the shape of this rank's shard, and must not repeat an element. If `dtype` is not 0, the
 * tensor holds values: it must have this dtype or, if it is a matrix, may be in a block format. If
 * `dtype` is 0, the tensor is a gradient, and may have any float dtype. Error texts call the tensor
 * `what`. */
tsr_status tsr__parameter_check_memory(const tsr_layer *layer,
                                       const tsr__layer_parameter *parameter, const char *what,
                                       const tsr_tensor *tensor, tsr_dtype dtype) TSR_NODISCARD;

/* parameter.c */
#define TSR__PARAMETER_DIMS 3 /* the most dimensions of a parameter of the library's layers */
typedef struct tsr__parameter_spec {
    const char *name; /* without the layer's name */
    tsr_dtype dtype, grad_dtype;
    int ndim;
    int64_t shape[TSR__PARAMETER_DIMS];
    int shard_dim;                 /* the dimension that the ranks divide; -1: none */
    const tsr__division *division; /* of shard_dim; the layer keeps a pointer to `sizes` */
    tsr_init_params init;          /* of the library's own size */
    int64_t fan_in, fan_out;
    bool divisible;
    bool bias; /* initial values are those of a bias: 0, unless init is TORCH or NONE */
    bool ones; /* the initial values are 1, unless init is NONE */
    bool log;  /* the initial values are TSR__DRAW_LOG, unless init is NONE */
} tsr__parameter_spec;
/* Adds a parameter without memory to a layer. */
tsr_status tsr__parameter_add(tsr_layer *layer, const tsr__parameter_spec *spec) TSR_NODISCARD;
/* Gets the shape of this rank's shard, before data-parallel ranks divide it. */
static inline void tsr__parameter_shape(const tsr__layer_parameter *parameter,
                                        int64_t shape[TSR__PARAMETER_DIMS])
{
    const tsr_parameter *seen = &parameter->seen;
    for (int d = 0; d < seen->ndim; d++)
        shape[d] = d == seen->shard_dim ? seen->length : seen->global_shape[d];
}
/* Gets the shape of what this rank has memory for. */
static inline void tsr__parameter_shape_here(const tsr__layer_parameter *parameter,
                                             int64_t shape[TSR__PARAMETER_DIMS])
{
    const tsr__over_data *over = &parameter->over_data;
    tsr__parameter_shape(parameter, shape);
    if (parameter->in_team)
        shape[0] = parameter->team_count;
    if (over->group)
        shape[0] = over->sizes[tsr_group_rank(over->group)];
}
/* Allocates a parameter's memory and sets its initial values. */
tsr_status tsr__parameter_allocate(tsr_layer *layer, int index) TSR_NODISCARD;
/* Checks that a parameter has memory. */
tsr_status tsr__parameter_require(const tsr_layer *layer, int index) TSR_NODISCARD;
/* Allocates memory for the gradient, unless the gradient has memory. */
tsr_status tsr__parameter_need_grad(tsr_layer *layer, int index) TSR_NODISCARD;
/* grad += dy2 [m,n]ᵀ · x2 [m,k]. */
/* weight [n,k] = dy2 [m,n]ᵀ · x2 [m,k], and bias [n] = the column sums of dy2, each added to what
 * is there if `add_…` is set. bias may be NULL. On GPUs the product may compute the sums, too. */
tsr_status tsr__linear_grads(tsr_stream *stream, tsr_tensor *weight, tsr_tensor *bias,
                             const tsr_tensor *dy2, const tsr_tensor *x2, bool add_weight,
                             bool add_bias) TSR_NODISCARD;
/* Adds both gradients of a linear layer: those of the weight, and of the bias unless its index is
 * -1. */
tsr_status tsr__parameter_add_linear_grads(tsr_layer *layer, int weight, int bias,
                                           const tsr_tensor *dy2,
                                           const tsr_tensor *x2) TSR_NODISCARD;
tsr_status tsr__parameter_add_weight_grad(tsr_layer *layer, int index, const tsr_tensor *dy2,
                                          const tsr_tensor *x2) TSR_NODISCARD;
/* grad += the column sums of dy2 [m,n]. */
tsr_status tsr__parameter_add_bias_grad(tsr_layer *layer, int index,
                                        const tsr_tensor *dy2) TSR_NODISCARD;
void tsr__parameter_destroy(tsr__layer_parameter **parameter);

/* moe.c: moves the choice of the mixture of experts in `from` to `to`, for tsr_moe_get_choice. */
void tsr__moe_take_choice(tsr_layer_saved *from, tsr_layer_saved *to);

/* replicated_gradients.c: gradients of parameters that every rank has completely, while each rank
 * computes only its contribution to the gradient. One all-reduce sums all of them. Initialise the
 * struct as {.layer = …, .temps = …}. Add the parameters, allocate, compute the contributions, and
 * call start and finish. Call cancel in any case, also after an error. */
struct tsr__temps;
typedef struct tsr__replicated_grads {
    tsr_layer *layer;
    struct tsr__temps *temps;
    int count;
    size_t capacity;
    struct tsr__grad_contribution {
        int index; /* the parameter's index among the layer's own parameters */
        tsr_tensor *contribution;
    } * item;
    tsr_tensor *joint; /* the memory of all contributions */
    tsr_request *request;
} tsr__replicated_grads;
/* Adds a parameter, by its index among the layer's own. */
tsr_status tsr__replicated_grads_add(tsr__replicated_grads *grads, int index) TSR_NODISCARD;

/* Allocates the contributions to the gradients of the added parameters. `zeros` must be true if the
 * caller will not compute all elements. */
tsr_status tsr__replicated_grads_allocate(tsr__replicated_grads *grads, bool zeros) TSR_NODISCARD;
/* Gets the contribution to the gradient of parameter `index`, to which the caller writes. The
 * tensor is f32 and has the parameter's shape. */
tsr_status tsr__replicated_grads_get(const tsr__replicated_grads *grads, int index,
                                     tsr_tensor **out) TSR_NODISCARD;
/* Starts the all-reduce. */
tsr_status tsr__replicated_grads_start(tsr__replicated_grads *grads) TSR_NODISCARD;
/* Blocks until the contributions of all ranks have been summed, and adds the sums to the
 * gradients. */
tsr_status tsr__replicated_grads_finish(tsr__replicated_grads *grads) TSR_NODISCARD;
void tsr__replicated_grads_cancel(tsr__replicated_grads *grads);

/* initial_values.c */

/* Chooses the distribution of a parameter's initial values. */
void tsr__initial_choose(tsr__layer_parameter *parameter, const tsr__parameter_spec *spec);
/* Writes the initial values of this rank's shard to `out`, whose shape is [rows,columns] or
 * [rows]. */
tsr_status tsr__initial_fill(const tsr__layer_parameter *parameter, tsr_stream *stream,
                             tsr_tensor *out) TSR_NODISCARD;
/* Writes the initial values of some elements of this rank's shard to a contiguous tensor of one
 * dimension. The elements are first, first + 1, …, and must be inside the shard. */
tsr_status tsr__initial_range(const tsr__layer_parameter *parameter, tsr_stream *stream,
                              int64_t first, tsr_tensor *out) TSR_NODISCARD;

/* temporary_tensors.c: a list of tensors that are destroyed together. Initialise the list as
 * {.stream = …}. The tensors that the functions below return belong to the list. */
typedef struct tsr__temps {
    tsr_stream *stream;
    size_t count, capacity;
    tsr_tensor **item;
} tsr__temps;
void tsr__temps_finish(tsr__temps *temps);
tsr_status tsr__temp_new(tsr__temps *temps, tsr_dtype dtype, int ndim, const int64_t *shape,
                         tsr_tensor **out) TSR_NODISCARD;
/* Creates a view of elements start … start + count − 1 of dimension `dim`. */
tsr_status tsr__temp_slice(tsr__temps *temps, const tsr_tensor *in, int dim, int64_t start,
                           int64_t count, tsr_tensor **out) TSR_NODISCARD;
tsr_status tsr__temp_transpose(tsr__temps *temps, const tsr_tensor *in, int dim0, int dim1,
                               tsr_tensor **out) TSR_NODISCARD;
/* Creates a view of a contiguous tensor with another shape. */
tsr_status tsr__temp_reshape(tsr__temps *temps, const tsr_tensor *in, int ndim,
                             const int64_t *shape, tsr_tensor **out) TSR_NODISCARD;
/* Gives any tensor another shape: creates a view, or a copy if no view is possible. */
tsr_status tsr__temp_reshape_any(tsr__temps *temps, const tsr_tensor *in, int ndim,
                                 const int64_t *shape, tsr_tensor **out) TSR_NODISCARD;
/* Gives a tensor [.., features] the shape [rows, features]: creates a view, or a copy if no view is
 * possible. */
tsr_status tsr__temp_flatten(tsr__temps *temps, const tsr_tensor *in,
                             tsr_tensor **out) TSR_NODISCARD;
/* Creates a view [batch, tokens, features] of a contiguous tensor [.., tokens, features]. */
tsr_status tsr__temp_by_rows(tsr__temps *temps, const tsr_tensor *in,
                             tsr_tensor **out) TSR_NODISCARD;
/* Creates a tensor with the shape of `in`, except that dimension `dim` has size `size`. */
tsr_status tsr__temp_like(tsr__temps *temps, const tsr_tensor *in, tsr_dtype dtype, int dim,
                          int64_t size, tsr_tensor **out) TSR_NODISCARD;
/* Adds a tensor to the list. On failure destroys the tensor. */
tsr_status tsr__temp_keep(tsr__temps *temps, tsr_tensor *tensor) TSR_NODISCARD;
/* Removes a tensor from the list. After this call, the tensor belongs to the caller. */
tsr_tensor *tsr__temp_take(tsr__temps *temps, tsr_tensor *tensor);

#endif
