/* The inside of layers.
 *
 *     layer.c      what all layers do: passes, parameters by number and name
 *     parameter.c  a rank's part of a parameter, and its gradient
 *     initial.c    what parameters begin with
 *     check.c      what is demanded of arguments
 *     temps.c      tensors that live as long as one pass
 *     partials.c   gradients that are sums over the ranks
 *     linear.c     making linear layers; column.c, row.c: their passes; parts.c: column-parallel
 *                  layers of several parts; product.c: a product whose finished parts are reduced
 *                  while others are computed
 *     mlp.c, embedding.c, vocabulary.c, dropout.c
 */
#ifndef TSR_PARALLEL_LAYERS_LAYER_H
#define TSR_PARALLEL_LAYERS_LAYER_H

#include "base/error.h"
#include "tensor/check.h"
#include "tessera/kv_cache.h"
#include "tessera/layer.h"

/* [2,3] of a tensor, for error texts. */
#define TSR__SHAPE_OF(tensor)                                                                      \
    TSR__SHAPE(tsr_tensor_layout(tensor)->ndim, tsr_tensor_layout(tensor)->shape)

#define TSR__MAX_LAYER_PARAMETERS 6
#define TSR__MAX_CHILDREN 4

/* The distribution of a parameter's first values. */
typedef enum tsr__draw {
    TSR__DRAW_ZEROS,
    TSR__DRAW_ONES,
    TSR__DRAW_NORMAL,  /* deviation `scale` */
    TSR__DRAW_UNIFORM, /* ±`scale` */
    TSR__DRAW_NOTHING
} tsr__draw;

typedef struct tsr__layer_parameter {
    tsr_parameter seen; /* what the caller sees */
    char *name;
    const int64_t *sizes; /* of all ranks' parts along shard_dim */
    tsr_dtype grad_dtype;
    /* What `grad` holds counts as 0, until something else is recorded to be there. */
    bool grad_empty;
    tsr__draw draw;
    float scale;
    uint64_t seed;
} tsr__layer_parameter;

/* Keys and values of earlier tokens. */
typedef struct tsr__cached {
    tsr_kv_cache *cache;
    int layer; /* in the cache; a block gives it to its attention */
} tsr__cached;

typedef struct tsr__layer_type {
    const char *name; /* "row_linear" */
    /* As the public functions, with arguments that are not NULL; `saved` and `dx` may be. */
    tsr_status (*forward)(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                          tsr_tensor **y);
    tsr_status (*backward)(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                           tsr_tensor **dx);
    void (*finish)(tsr_layer *layer); /* of its own fields; may be NULL */
    /* As tsr_layer_forward_cached; NULL where there is no attention. */
    tsr_status (*forward_cached)(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                 tsr_tensor **y);
} tsr__layer_type;

struct tsr_layer {
    const tsr__layer_type *type;
    tsr_group *group;
    tsr_stream *stream;
    tsr_device *device;
    int rank, size;
    char *name; /* "" where it has none */
    char *who;  /* for error texts: the type, and the name */
    int parameter_count;
    tsr__layer_parameter parameter[TSR__MAX_LAYER_PARAMETERS];
    tsr_layer *child[TSR__MAX_CHILDREN]; /* their parameters come after its own */
};

/* Dropout of a block's branches; p 0: none. */
typedef struct tsr__dropout {
    float p;
    uint64_t seed, subsequence, offset;
} tsr__dropout;

struct tsr_layer_saved {
    const tsr_layer *layer;
    tsr_tensor *x;
    tsr_tensor *ready;   /* what was gathered of it */
    tsr_tensor *hidden;  /* before an activation; of attention: queries, keys and values */
    tsr_tensor *kept[2]; /* attention: log-sum-exp; normalised queries and keys */
    tsr__dropout dropout;
    tsr_layer_saved *child[TSR__MAX_CHILDREN];
};

/* layer.c: fills the head of a layer of `size` bytes, zeroed, and gives it away on success. `group`
 * NULL: the default one. */
tsr_status tsr__layer_new(const tsr__layer_type *type, size_t size, tsr_group *group,
                          const char *name, tsr_layer **out) TSR_NODISCARD;
/* A view that keeps the memory of a tensor of the caller's. */
tsr_status tsr__keep(const tsr_tensor *tensor, tsr_tensor **out) TSR_NODISCARD;
/* Cuts a size that error texts call `what` among the group's ranks, as `params`, the caller's
 * `field`, say: into sizes[ranks], which is allocated; `first` is where this rank's part starts. */
tsr_status tsr__layer_partition(const tsr_layer *layer, const char *what, int64_t size,
                                const char *field, const tsr_partition_params *params,
                                int64_t **sizes, int64_t *first) TSR_NODISCARD;

/* check.c */

/* `x` is a tensor of floats on the layer's device, of at least one dimension. */
tsr_status tsr__layer_check_input(const tsr_layer *layer, const char *name,
                                  const tsr_tensor *x) TSR_NODISCARD;
/* The `sequence_dim` of params can be one. */
tsr_status tsr__layer_check_sequence_dim(const tsr_layer *layer, int dim) TSR_NODISCARD;
/* It is a dimension of what is to be divided, other than the last. With one rank too: what works
 * there is to work with several. */
tsr_status tsr__layer_has_sequence_dim(const tsr_layer *layer, int dim,
                                       const tsr_layout *layout) TSR_NODISCARD;
/* 0 is f32; other dtypes than floats are errors, which call the field `what`. */
tsr_status tsr__layer_dtype(const tsr_layer *layer, const char *what, tsr_dtype given,
                            tsr_dtype *out) TSR_NODISCARD;
/* What the caller can have got wrong besides shapes, of the layer and its children, to be found
 * before anything is sent: all parameters have memory; in a backward pass, where `weights` are
 * needed in it, and no gradient is to be added to what it is computed from. */
tsr_status tsr__layer_check_forward(const tsr_layer *layer) TSR_NODISCARD;
tsr_status tsr__layer_check_backward(const tsr_layer *layer, bool weights, const tsr_tensor *x,
                                     const tsr_tensor *dy) TSR_NODISCARD;
/* `tensor`, where not NULL, repeats no element and can be what error texts call `what`, of dtype
 * `dtype`, 0 for any float. */
tsr_status tsr__parameter_check_memory(const tsr_layer *layer,
                                       const tsr__layer_parameter *parameter, const char *what,
                                       const tsr_tensor *tensor, tsr_dtype dtype) TSR_NODISCARD;

/* parameter.c */
typedef struct tsr__parameter_spec {
    const char *name; /* without the layer's */
    tsr_dtype dtype, grad_dtype;
    int ndim;
    int64_t shape[2];
    int shard_dim;
    int64_t first;
    const int64_t *sizes;
    tsr_init_params init;
    int64_t fan_in, fan_out;
    bool bias;
    bool ones; /* whatever init says, except NONE */
} tsr__parameter_spec;
/* The next parameter of a layer, without memory. */
tsr_status tsr__parameter_add(tsr_layer *layer, const tsr__parameter_spec *spec) TSR_NODISCARD;
/* The shape of this rank's part. */
static inline void tsr__parameter_shape(const tsr__layer_parameter *parameter, int64_t shape[2])
{
    const tsr_parameter *seen = &parameter->seen;
    for (int d = 0; d < seen->ndim; d++)
        shape[d] = d == seen->shard_dim ? seen->length : seen->global_shape[d];
}
/* Gives it memory of its own, with its first values. */
tsr_status tsr__parameter_allocate(tsr_layer *layer, int index) TSR_NODISCARD;
/* It has memory. */
tsr_status tsr__parameter_require(const tsr_layer *layer, int index) TSR_NODISCARD;
/* Sees to it that there is memory for the gradient. */
tsr_status tsr__parameter_need_grad(tsr_layer *layer, int index) TSR_NODISCARD;
/* grad += dy2 [m,n]ᵀ · x2 [m,k]. */
tsr_status tsr__parameter_add_weight_grad(tsr_layer *layer, int index, const tsr_tensor *dy2,
                                          const tsr_tensor *x2) TSR_NODISCARD;
/* grad += the column sums of dy2 [m,n]. */
tsr_status tsr__parameter_add_bias_grad(tsr_layer *layer, int index,
                                        const tsr_tensor *dy2) TSR_NODISCARD;
void tsr__parameter_finish(tsr__layer_parameter *parameter);

struct tsr__temps;

/* partials.c. Starts as {.layer = …, .temps = …}: begin, fill the shares, start, finish; cancel in
 * any case. */
typedef struct tsr__partials {
    tsr_layer *layer;
    struct tsr__temps *temps;
    tsr_tensor *all;
    int count;
    struct {
        int index; /* of the layer's own parameters */
        tsr_tensor *share;
    } item[TSR__MAX_LAYER_PARAMETERS];
    tsr_group_request *request;
} tsr__partials;
/* `zeros`: shares begin as 0, for those that are not computed as a whole. */
tsr_status tsr__partials_begin(tsr__partials *sums, const int *indices, int count,
                               bool zeros) TSR_NODISCARD;
/* The share of parameter `index`: f32, of the parameter's shape. */
tsr_status tsr__partials_take(const tsr__partials *sums, int index, tsr_tensor **out) TSR_NODISCARD;
tsr_status tsr__partials_start(tsr__partials *sums) TSR_NODISCARD;
/* Adds the sums to the gradients. */
tsr_status tsr__partials_finish(tsr__partials *sums) TSR_NODISCARD;
void tsr__partials_cancel(tsr__partials *sums);

/* initial.c */
void tsr__initial_choose(tsr__layer_parameter *parameter, const tsr__parameter_spec *spec);
/* Into this rank's whole part, [rows,columns] or [rows]. */
tsr_status tsr__initial_fill(const tsr__layer_parameter *parameter, tsr_stream *stream,
                             tsr_tensor *out) TSR_NODISCARD;
/* The values of elements first, first + 1, … of this rank's part, which has them, into a contiguous
 * tensor of one dimension. */
tsr_status tsr__initial_range(const tsr__layer_parameter *parameter, tsr_stream *stream,
                              int64_t first, tsr_tensor *out) TSR_NODISCARD;

/* temps.c: tensors to be destroyed together. Starts as {.stream = …}. */
#define TSR__MAX_TEMPS 160
typedef struct tsr__temps {
    tsr_stream *stream;
    int count;
    tsr_tensor *item[TSR__MAX_TEMPS + 8];
} tsr__temps;
void tsr__temps_finish(tsr__temps *temps);
tsr_status tsr__temp_new(tsr__temps *temps, tsr_dtype dtype, int ndim, const int64_t *shape,
                         tsr_tensor **out) TSR_NODISCARD;
/* Elements start … start + count − 1 of `dim`. */
tsr_status tsr__temp_slice(tsr__temps *temps, const tsr_tensor *in, int dim, int64_t start,
                           int64_t count, tsr_tensor **out) TSR_NODISCARD;
tsr_status tsr__temp_transpose(tsr__temps *temps, const tsr_tensor *in, int dim0, int dim1,
                               tsr_tensor **out) TSR_NODISCARD;
/* A contiguous tensor in another shape. */
tsr_status tsr__temp_reshape(tsr__temps *temps, const tsr_tensor *in, int ndim,
                             const int64_t *shape, tsr_tensor **out) TSR_NODISCARD;
/* Any tensor in another shape: a view, or a copy where there is none. */
tsr_status tsr__temp_reshape_any(tsr__temps *temps, const tsr_tensor *in, int ndim,
                                 const int64_t *shape, tsr_tensor **out) TSR_NODISCARD;
/* The same: [rows, features] of [.., features]. */
tsr_status tsr__temp_flatten(tsr__temps *temps, const tsr_tensor *in,
                             tsr_tensor **out) TSR_NODISCARD;
/* A new tensor like `in` but for the size of its dimension `dim`. */
tsr_status tsr__temp_like(tsr__temps *temps, const tsr_tensor *in, tsr_dtype dtype, int dim,
                          int64_t size, tsr_tensor **out) TSR_NODISCARD;
/* Puts a tensor into the list; there is room for a few beyond TSR__MAX_TEMPS. */
void tsr__temp_keep(tsr__temps *temps, tsr_tensor *tensor);
/* Takes a tensor out of the list: it is the caller's now. */
tsr_tensor *tsr__temp_take(tsr__temps *temps, tsr_tensor *tensor);

#endif
