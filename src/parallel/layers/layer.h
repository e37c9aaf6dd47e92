/* The internal functions of layers.
 *
 *     layer.c      common to all layers: passes, parameters by index and name
 *     parameter.c  a rank's part of a parameter, and its gradient
 *     initial.c    initial values of parameters
 *     check.c      checks arguments
 *     temps.c      temporary tensors of one pass
 *     partials.c   gradients that are summed over the ranks
 *     linear.c     creates linear layers
 *     column.c     passes of column-parallel layers
 *     row.c        passes of row-parallel layers
 *     parts.c      column-parallel layers that consist of several parts
 *     product.c    a product that sums its finished rows or columns over the ranks while it
 *                  computes others
 *     attention.c, attention_create.c, block.c, dropout.c, embedding.c, mlp.c, norm.c, vocabulary.c
 *                  the layers and operations that these files are named after */
#ifndef TSR_PARALLEL_LAYERS_LAYER_H
#define TSR_PARALLEL_LAYERS_LAYER_H

#include "base/error.h"
#include "tensor/check.h"
#include "tessera/kv_cache.h"
#include "tessera/layer.h"

/* The shape of a tensor for error texts, such as [2,3]. */
#define TSR__SHAPE_OF(tensor)                                                                      \
    TSR__SHAPE(tsr_tensor_layout(tensor)->ndim, tsr_tensor_layout(tensor)->shape)

#define TSR__MAX_LAYER_PARAMETERS 6
#define TSR__MAX_CHILDREN 4

/* The distribution of a parameter's initial values. */
typedef enum tsr__draw {
    TSR__DRAW_ZEROS,
    TSR__DRAW_ONES,
    TSR__DRAW_NORMAL,  /* normal distribution with standard deviation `scale` */
    TSR__DRAW_UNIFORM, /* uniform distribution from −`scale` to `scale` */
    TSR__DRAW_NOTHING
} tsr__draw;

typedef struct tsr__layer_parameter {
    tsr_parameter seen; /* the parameter as the caller sees it */
    char *name;
    const int64_t *sizes; /* [ranks]: the sizes of the ranks' parts along shard_dim */
    tsr_dtype grad_dtype;
    /* The values in `grad` are not valid and count as 0. The next gradient overwrites them. */
    bool grad_empty;
    tsr__draw draw;
    float scale;
    uint64_t seed;
} tsr__layer_parameter;

/* The keys and values of earlier tokens. */
typedef struct tsr__cached {
    tsr_kv_cache *cache;
    int layer; /* the layer's index in the cache, which a block passes to its attention layer */
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
    int parameter_count;
    tsr__layer_parameter parameter[TSR__MAX_LAYER_PARAMETERS];
    /* NULL at the end; the children's parameters follow the layer's own */
    tsr_layer *child[TSR__MAX_CHILDREN];
};

/* Dropout of a block's branches. If p is 0, there is no dropout. */
typedef struct tsr__dropout {
    float p;
    uint64_t seed, subsequence, offset;
} tsr__dropout;

struct tsr_layer_saved {
    const tsr_layer *layer;
    tsr_tensor *x;
    /* x, gathered from all ranks; NULL if it was not gathered, or is not kept */
    tsr_tensor *ready;
    /* MLP: the input of the activation function or, if `sloped` is true, its derivative.
     * Attention: queries, keys and values. */
    tsr_tensor *hidden;
    bool sloped;
    tsr_tensor *kept[2]; /* attention only: log-sum-exp, and the normalised queries and keys */
    tsr__dropout dropout;
    tsr_layer_saved *child[TSR__MAX_CHILDREN];
};

/* layer.c */

/* Creates a layer of `size` bytes. Everything behind its tsr_layer is zero. If `group` is NULL, the
 * layer uses the default group. */
tsr_status tsr__layer_new(const tsr__layer_type *type, size_t size, tsr_group *group,
                          const char *name, tsr_layer **out) TSR_NODISCARD;
/* Creates the struct in which the forward pass of a layer saves tensors, with a view of x. */
tsr_status tsr__layer_saved_new(const tsr_layer *layer, const tsr_tensor *x,
                                tsr_layer_saved **out) TSR_NODISCARD;
/* The forward pass of a layer that ends a residual branch: *y = layer(x) + added. The layer's last
 * product adds `added`, if that is possible. `cached`, `added` and `saved` may be NULL. */
tsr_status tsr__layer_forward_added(tsr_layer *layer, const tsr_tensor *x,
                                    const tsr__cached *cached, const tsr_tensor *added,
                                    tsr_layer_saved **saved, tsr_tensor **y) TSR_NODISCARD;
/* Creates a view of a caller's tensor, which keeps the tensor's memory alive. */
tsr_status tsr__keep(const tsr_tensor *tensor, tsr_tensor **out) TSR_NODISCARD;
/* Divides a size among the group's ranks as `params` says. *sizes is an array of the ranks' sizes,
 * which the caller must free. *first is the start of this rank's part. Error texts call the size
 * `what` and the params `field`. */
tsr_status tsr__layer_partition(const tsr_layer *layer, const char *what, int64_t size,
                                const char *field, const tsr_partition_params *params,
                                int64_t **sizes, int64_t *first) TSR_NODISCARD;

/* check.c */

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
/* Checks, before a forward pass sends anything, that all parameters of the layer and its children
 * have memory. */
tsr_status tsr__layer_check_forward(const tsr_layer *layer) TSR_NODISCARD;
/* Checks the layer and its children before a backward pass sends anything. If they are not frozen,
 * no weight may be in a block format, and no gradient may overlap x or dy, from which it is
 * computed. If `weights` is true, the pass needs the weights, so they must have memory. */
tsr_status tsr__layer_check_backward(const tsr_layer *layer, bool weights, const tsr_tensor *x,
                                     const tsr_tensor *dy) TSR_NODISCARD;
/* Checks that `tensor` can be the memory of a parameter, unless it is NULL. It must have the shape
 * of this rank's part, and must not repeat an element. `dtype` is that of the values, for which a
 * matrix may be in a block format instead; 0: the tensor is a gradient, and may be any float. Error
 * texts call the tensor `what`. */
tsr_status tsr__parameter_check_memory(const tsr_layer *layer,
                                       const tsr__layer_parameter *parameter, const char *what,
                                       const tsr_tensor *tensor, tsr_dtype dtype) TSR_NODISCARD;

/* parameter.c */
typedef struct tsr__parameter_spec {
    const char *name; /* without the layer's name */
    tsr_dtype dtype, grad_dtype;
    int ndim;
    int64_t shape[2];
    int shard_dim;
    int64_t first;
    const int64_t *sizes;
    tsr_init_params init;
    int64_t fan_in, fan_out;
    bool bias;
    bool ones; /* the initial values are 1, unless init is NONE */
} tsr__parameter_spec;
/* Adds a parameter without memory to a layer. */
tsr_status tsr__parameter_add(tsr_layer *layer, const tsr__parameter_spec *spec) TSR_NODISCARD;
/* Gets the shape of this rank's part. */
static inline void tsr__parameter_shape(const tsr__layer_parameter *parameter, int64_t shape[2])
{
    const tsr_parameter *seen = &parameter->seen;
    for (int d = 0; d < seen->ndim; d++)
        shape[d] = d == seen->shard_dim ? seen->length : seen->global_shape[d];
}
/* Allocates a parameter's memory and sets its initial values. */
tsr_status tsr__parameter_allocate(tsr_layer *layer, int index) TSR_NODISCARD;
/* Checks that a parameter has memory. */
tsr_status tsr__parameter_require(const tsr_layer *layer, int index) TSR_NODISCARD;
/* Allocates memory for the gradient, unless the gradient has memory. */
tsr_status tsr__parameter_need_grad(tsr_layer *layer, int index) TSR_NODISCARD;
/* grad += dy2 [m,n]ᵀ · x2 [m,k]. */
tsr_status tsr__parameter_add_weight_grad(tsr_layer *layer, int index, const tsr_tensor *dy2,
                                          const tsr_tensor *x2) TSR_NODISCARD;
/* grad += the column sums of dy2 [m,n]. */
tsr_status tsr__parameter_add_bias_grad(tsr_layer *layer, int index,
                                        const tsr_tensor *dy2) TSR_NODISCARD;
void tsr__parameter_finish(tsr__layer_parameter *parameter);

struct tsr__temps;

/* partials.c: gradients that are summed over the ranks. Each rank computes its contribution, called
 * its share. Initialise the struct as {.layer = …, .temps = …}. Call begin, compute the shares, and
 * call start and finish. Call cancel in any case, also after an error. */
typedef struct tsr__partials {
    tsr_layer *layer;
    struct tsr__temps *temps;
    tsr_tensor *all;
    int count;
    struct {
        int index; /* index among the layer's own parameters */
        tsr_tensor *share;
    } item[TSR__MAX_LAYER_PARAMETERS];
    tsr_group_request *request;
} tsr__partials;
/* Allocates the shares of the gradients of parameters indices[count]. If `zeros` is true, the
 * shares are set to 0. This is needed if not all elements of a share are computed. */
tsr_status tsr__partials_begin(tsr__partials *sums, const int *indices, int count,
                               bool zeros) TSR_NODISCARD;
/* Gets the share of the gradient of parameter `index`, to which the caller writes. It is f32 and
 * has the parameter's shape. */
tsr_status tsr__partials_take(const tsr__partials *sums, int index, tsr_tensor **out) TSR_NODISCARD;
tsr_status tsr__partials_start(tsr__partials *sums) TSR_NODISCARD;
/* Blocks until the shares have been summed over the ranks, and adds the sums to the gradients. */
tsr_status tsr__partials_finish(tsr__partials *sums) TSR_NODISCARD;
void tsr__partials_cancel(tsr__partials *sums);

/* initial.c */
void tsr__initial_choose(tsr__layer_parameter *parameter, const tsr__parameter_spec *spec);
/* Writes the initial values of this rank's part to `out`, whose shape is [rows,columns] or
 * [rows]. */
tsr_status tsr__initial_fill(const tsr__layer_parameter *parameter, tsr_stream *stream,
                             tsr_tensor *out) TSR_NODISCARD;
/* Writes the initial values of some elements of this rank's part to a contiguous tensor of one
 * dimension. The elements are first, first + 1, …, and must be inside the part. */
tsr_status tsr__initial_range(const tsr__layer_parameter *parameter, tsr_stream *stream,
                              int64_t first, tsr_tensor *out) TSR_NODISCARD;

/* temps.c: a list of tensors that are destroyed together. Initialise it as {.stream = …}. The
 * tensors that the functions below return belong to the list. */
#define TSR__MAX_TEMPS 160
typedef struct tsr__temps {
    tsr_stream *stream;
    int count;
    tsr_tensor *item[TSR__MAX_TEMPS + 8];
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
/* Creates a tensor with the shape of `in`, except that dimension `dim` has size `size`. */
tsr_status tsr__temp_like(tsr__temps *temps, const tsr_tensor *in, tsr_dtype dtype, int dim,
                          int64_t size, tsr_tensor **out) TSR_NODISCARD;
/* Adds a tensor to the list. The list has room for a few more tensors than TSR__MAX_TEMPS. */
void tsr__temp_keep(tsr__temps *temps, tsr_tensor *tensor);
/* Removes a tensor from the list. After this call, the tensor belongs to the caller. */
tsr_tensor *tsr__temp_take(tsr__temps *temps, tsr_tensor *tensor);

#endif
