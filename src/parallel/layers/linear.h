/* Linear layers, column- and row-parallel. */
#ifndef TSR_PARALLEL_LAYERS_LINEAR_H
#define TSR_PARALLEL_LAYERS_LINEAR_H

#include "parallel/layers/layer.h"

#define TSR__MAX_LINEAR_PARTS 3

/* A part of a column-parallel layer. Such a layer may consist of several layers with the same
 * input: gate and up, or query, key and value. y contains the outputs of all parts, one after the
 * other. */
typedef struct tsr__column_part {
    /* for example "gate" for the weight "gate.weight"; may be "" if there is only one part */
    const char *name;
    int64_t output_size;
    /* The features of this rank, and the number of features of each rank. If `sizes` is NULL, the
     * params decide how the features are divided. */
    int64_t first, length;
    const int64_t *sizes; /* [ranks]; the layer copies it */
    /* If true, every rank keeps the full parameter but computes only its own features. Other ranks
     * may compute the same features. The gradient is summed over the ranks. `sizes` must be
     * NULL. */
    bool replicated;
    int64_t at; /* position of the part's features in y; set by tsr__column_create */
} tsr__column_part;

typedef struct tsr__linear {
    tsr_layer base;
    bool row;
    int parts;
    tsr__column_part part[TSR__MAX_LINEAR_PARTS]; /* for column-parallel layers only */
    /* number of features of y on this rank, summed over all parts */
    int64_t features;
    int64_t input_size, output_size; /* output_size is that of the first part */
    tsr_layer_layout input, output;
    int sequence_dim;
    bool has_bias, reduce_f32;
    int overlap_parts;
    /* [ranks]: the sizes along the divided dimension of the weight (of the first part's weight). */
    int64_t *sizes;
    int64_t first, length;
    int64_t *part_sizes[TSR__MAX_LINEAR_PARTS]; /* copies of the parts' own sizes, or NULL */
    /* [ranks]: the sizes of the parts of the features that the weight is not divided along, which
     * params.other_partition divides: those of x if `input` is GATHER in a column-parallel layer,
     * or those of y if `output` is SHARDED in a row-parallel layer. NULL: they are not divided. */
    int64_t *other_sizes;
    int64_t other_first;
    /* Row-parallel layers with a GATHER input only: x is divided like the weight, so nothing is
     * gathered. */
    bool same_split;
} tsr__linear;

/* Returns the index of a part's weight. If there is a bias, its index is one higher. */
static inline int tsr__weight_of(const tsr__linear *linear, int part)
{
    return part * (linear->has_bias ? 2 : 1);
}

/* Returns the number of rows of a part's parameter that this rank keeps. */
static inline int64_t tsr__part_rows(const tsr__column_part *part)
{
    return part->replicated ? part->output_size : part->length;
}
/* Returns the first of the rows that this rank keeps whose features it computes. */
static inline int64_t tsr__part_start(const tsr__column_part *part)
{
    return part->replicated ? part->first : 0;
}

/* linear.c: creates a column-parallel layer of several parts. params->output_size must be that of
 * the first part. */
tsr_status tsr__column_create(const tsr_linear_params *params, int count,
                              const tsr__column_part *parts, tsr_layer **out) TSR_NODISCARD;
tsr_status tsr__row_create(const tsr_linear_params *params, const char *part,
                           tsr_layer **out) TSR_NODISCARD;

/* Checks the params that a layer passes to linear layers, its children, except for sizes. Error
 * texts then have this layer's name, not a child's. */
tsr_status tsr__linear_check(const tsr_layer *layer, const tsr_linear_params *params) TSR_NODISCARD;

/* column.c, row.c: the passes, as tsr__layer_type declares them. */
tsr_status tsr__column_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                               tsr_tensor **y) TSR_NODISCARD;
tsr_status tsr__column_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, tsr_tensor **dx) TSR_NODISCARD;
tsr_status tsr__row_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                            tsr_tensor **y) TSR_NODISCARD;
tsr_status tsr__row_backward(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                             tsr_tensor **dx) TSR_NODISCARD;
/* The function forward_added (see tsr__layer_type) of row-parallel layers; `cached` is not used. */
tsr_status tsr__row_forward_added(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                  const tsr_tensor *added, tsr_layer_saved *saved,
                                  tsr_tensor **y) TSR_NODISCARD;
/* The forward pass of a column-parallel layer, in which the product also applies an activation. */
tsr_status tsr__column_forward_activated(tsr_layer *layer, const tsr_tensor *x,
                                         tsr_activation activation, tsr_layer_saved *saved,
                                         tsr_tensor **y) TSR_NODISCARD;

/* The forward pass of a column-parallel layer with an activation, for a later backward pass: *slope
 * becomes the derivative of the activation. If no kernel computes both y and slope in one product,
 * or the layer gathers x or y, *y is NULL, and nothing is recorded. */
tsr_status tsr__column_forward_sloped(tsr_layer *layer, const tsr_tensor *x,
                                      tsr_activation activation, tsr_layer_saved **saved,
                                      tsr_tensor **slope, tsr_tensor **y) TSR_NODISCARD;
/* The backward pass of a row-parallel layer with a SHARDED input: *dx is also multiplied by
 * `factor`, which has the shape of *dx. */
tsr_status tsr__row_backward_times(tsr_layer *layer, const tsr_layer_saved *saved,
                                   const tsr_tensor *dy, const tsr_tensor *factor,
                                   tsr_tensor **dx) TSR_NODISCARD;

/* The forward pass of the layer with the parts gate and up, *y = act(gate) · up, in one dispatch if
 * there is a kernel for that, no backward pass will follow, and the layer neither gathers x nor y.
 * Otherwise *y is NULL, and nothing is recorded. */
tsr_status tsr__column_forward_gated(tsr_layer *layer, const tsr_tensor *x,
                                     tsr_activation activation, tsr_tensor **y) TSR_NODISCARD;

/* parts.c: computes the parts of a column-parallel layer with as few products as the layout of
 * their memory allows. */

/* A product of all parts or of one part: its weight, its bias, and its range of features in y. */
typedef struct tsr__block {
    const tsr_tensor *weight, *bias;
    int64_t first, count;
} tsr__block;
/* Finds the products that compute a layer, and their number. All parameters must have memory. */
tsr_status tsr__column_blocks(tsr__linear *linear, tsr__temps *temps,
                              tsr__block blocks[TSR__MAX_LINEAR_PARTS], int *count) TSR_NODISCARD;
/* Adds the gradients of all parameters. They are computed from dy2 [m,features] and x2
 * [m,input_size]. */
tsr_status tsr__column_add_grads(tsr__linear *linear, tsr__temps *temps, const tsr_tensor *dy2,
                                 const tsr_tensor *x2) TSR_NODISCARD;

/* Gets `weight` as a matrix of floats: itself, or, if it is in a block format, a temporary tensor
 * of the parameter's dtype. */
tsr_status tsr__weight_floats(const tsr__linear *linear, tsr__temps *temps,
                              const tsr_tensor *weight, const tsr_tensor **out) TSR_NODISCARD;

/* product.c */

/* A product of each rank, and the sum of these products over the ranks. */
typedef struct tsr__product {
    const tsr_tensor *x2, *weight; /* [m,k], [n,k] */
    const tsr_tensor *bias;        /* NULL, or [n], or the part of [n] that belongs to y */
    const tsr_tensor *added;       /* NULL, or a tensor with y's shape, which is added to y */
    tsr_tensor *y;                 /* contiguous; the last dimension is the features */
    const tsr_layout *whole;       /* the layout [.., n] of the full sum */
    /* y is this rank's part of the sum along this dimension; -1: y is the full sum */
    int dim;
    /* the sizes of the ranks' parts along dim; NULL: all parts are equal */
    const int64_t *sizes;
} tsr__product;
/* y = sum over ranks of x · weightᵀ + bias + added. */
tsr_status tsr__product_reduced(const tsr__linear *linear, tsr__temps *temps,
                                const tsr__product *product) TSR_NODISCARD;

#endif
