/* Linear layers: y = x · weightᵀ + bias. In a column-parallel layer, each rank has some rows of the
 * weight [output_size, input_size] and computes some features of y. In a row-parallel layer, each
 * rank has some columns of the weight and computes a contribution to all features of y.
 *
 * A column-parallel layer consists of one or more *column blocks*, which have the same x: gate and
 * up, or query, key and value. y contains the features of all blocks, one block after the other.
 * layer.h defines the word shard. */
#ifndef TSR_PARALLEL_LAYERS_LINEAR_H
#define TSR_PARALLEL_LAYERS_LINEAR_H

#include "parallel/layers/layer.h"

#define TSR__MAX_OVERLAP_CHUNKS 16
#define TSR__MAX_COLUMN_BLOCKS 6 /* of a column-parallel layer */

/* The fields that column- and row-parallel layers share. */
typedef struct tsr__linear {
    tsr_layer base;
    int64_t input_size, output_size; /* of the full layer; output_size: all blocks together */
    tsr_layer_layout input, output;
    int sequence_dim;
    bool has_bias, reduce_f32;
} tsr__linear;

typedef struct tsr__column_block {
    /* for example "gate" for the weight "gate.weight"; may be "" if there is only one block */
    const char *name;
    int64_t output_size;
    /* The shards of the block's features. If `sizes` is NULL in the argument of tsr__column_create,
     * and the block is not replicated, params->partition divides the features. */
    tsr__division division;
    /* If true, every rank keeps the full parameter but computes only its own features,
     * division.first and division.length, which other ranks may compute too. The gradient is summed
     * over the ranks. division.sizes must be NULL. */
    bool replicated;
    /* With `replicated`: every rank computes all features, and has all of dy, which is the same on
     * all ranks. No gradient is summed. Only for the one block of a layer without adapters. */
    bool whole;
    int64_t start; /* position in y of the block's features; set by tsr__column_create */
} tsr__column_block;

typedef struct tsr__column_linear {
    tsr__linear linear;
    int block_count;
    tsr__column_block *block;
    int64_t features; /* number of features of y on this rank, summed over all blocks */
    /* The shards of x's features if `input` is GATHER; otherwise x has all features. */
    tsr__division input_division;
} tsr__column_linear;

typedef struct tsr__row_linear {
    tsr__linear linear;
    tsr__division weight_division; /* the shards of the weight's columns */
    /* The shards of x's features if `input` is GATHER. If they are those of the weight's columns,
     * `same_division` is true, and x is not gathered. */
    tsr__division input_division;
    bool same_division;
    tsr__division output_division; /* the shards of y's features if `output` is SHARDED */
    int overlap_chunks;            /* params.overlap_parts; 0: see overlapped_product.c */
} tsr__row_linear;

/* linear_create.c */

/* Creates a column-parallel layer of several blocks. The layer copies the blocks and their
 * divisions. params->output_size is that of a block without a division of its own. */
tsr_status tsr__column_create(const tsr_linear_params *params, int count,
                              const tsr__column_block *blocks, tsr_layer **out) TSR_NODISCARD;
/* Creates a row-parallel layer. `prefix` and a dot are put before the names of its parameters; it
 * may be "". */
tsr_status tsr__row_create(const tsr_linear_params *params, const char *prefix,
                           tsr_layer **out) TSR_NODISCARD;

/* Checks the params that a layer passes to linear layers, its children, except for sizes. Error
 * texts then have this layer's name, not a child's. */
tsr_status tsr__linear_check(const tsr_layer *layer, const tsr_linear_params *params) TSR_NODISCARD;

/* column_linear.c, row_linear.c: the passes, as tsr__layer_type in layer.h declares them. */

tsr_status tsr__column_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                               tsr_tensor **y) TSR_NODISCARD;
tsr_status tsr__column_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, tsr_tensor **dx) TSR_NODISCARD;
tsr_status tsr__row_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                            tsr_tensor **y) TSR_NODISCARD;
tsr_status tsr__row_backward(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                             tsr_tensor **dx) TSR_NODISCARD;
/* The function forward_added of row-parallel layers; `cached` is not used. */
tsr_status tsr__row_forward_added(tsr_layer *layer, const tsr_tensor *x, const tsr__cached *cached,
                                  const tsr_tensor *added, tsr_layer_saved *saved,
                                  tsr_tensor **y) TSR_NODISCARD;

/* The forward pass of a column-parallel layer, in which the product also applies an activation. */
tsr_status tsr__column_forward_activated(tsr_layer *layer, const tsr_tensor *x,
                                         tsr_activation activation, tsr_layer_saved *saved,
                                         tsr_tensor **y) TSR_NODISCARD;
/* The forward pass of a column-parallel layer of norm(x), in one dispatch for each product if there
 * are kernels for that. No backward pass can follow. `norm` may be NULL. */
tsr_status tsr__column_forward_after(tsr_layer *layer, tsr_layer *norm, const tsr_tensor *x,
                                     tsr_tensor **y) TSR_NODISCARD;
/* The forward pass of a column-parallel layer with an activation, for a later backward pass: *slope
 * becomes the derivative of the activation. If no kernel computes both y and slope in one product,
 * or the layer gathers x or y, *y is NULL, and nothing is recorded. */
tsr_status tsr__column_forward_sloped(tsr_layer *layer, const tsr_tensor *x,
                                      tsr_activation activation, tsr_layer_saved **saved,
                                      tsr_tensor **slope, tsr_tensor **y) TSR_NODISCARD;
/* The forward pass of a layer with the blocks gate and up, *y = act(gate) · up, in one dispatch. No
 * backward pass can follow. If there is no kernel for that, or the layer gathers x or y, *y is
 * NULL, and nothing is recorded. */
tsr_status tsr__column_forward_gated(tsr_layer *layer, const tsr_tensor *x,
                                     tsr_activation activation, tsr_tensor **y) TSR_NODISCARD;
/* The forward pass of a row-parallel layer with a SHARDED input x = act(gate) · up, plus `added` if
 * that is not NULL. gate and up have the same shape and strides. No backward pass can follow. One
 * dispatch less computes this if the product narrows x for matrix units. */
tsr_status tsr__row_forward_gated(tsr_layer *layer, const tsr_tensor *gate, const tsr_tensor *up,
                                  tsr_activation activation, const tsr_tensor *added,
                                  tsr_tensor **y) TSR_NODISCARD;
/* The forward pass of a row-parallel layer with a SHARDED input x, in which y has another dtype
 * than x. No backward pass can follow. */
tsr_status tsr__row_forward_as(tsr_layer *layer, const tsr_tensor *x, tsr_dtype dtype,
                               const tsr_tensor *added, tsr_tensor **y) TSR_NODISCARD;
/* The backward pass of a row-parallel layer with a SHARDED input: *dx is also multiplied by
 * `factor`, which has the shape of *dx. */
tsr_status tsr__row_backward_times(tsr_layer *layer, const tsr_layer_saved *saved,
                                   const tsr_tensor *dy, const tsr_tensor *factor,
                                   tsr_tensor **dx) TSR_NODISCARD;

/* column_blocks.c: computes column blocks with as few products as the layout of their memory
 * allows. */

typedef enum tsr__weight_or_bias { TSR__WEIGHT, TSR__BIAS } tsr__weight_or_bias;
/* Returns the index of a block's weight or bias among the layer's parameters. */
static inline int tsr__block_parameter(const tsr__column_linear *column, int block,
                                       tsr__weight_or_bias which)
{
    return block * (column->linear.has_bias ? 2 : 1) + (int)which;
}
/* Returns the number of rows of a block's weight that this rank keeps. */
static inline int64_t tsr__block_rows(const tsr__column_block *block)
{
    return block->replicated ? block->output_size : block->division.length;
}

/* The product of one block or of several blocks: its weight, its bias, and its range of features in
 * y.
 */
typedef struct tsr__column_product {
    const tsr_tensor *weight, *bias;
    int64_t start, length;
} tsr__column_product;
/* The products that compute a layer: one for each run of column blocks whose tensors follow each
 * other in memory. */
typedef struct tsr__column_products {
    int count;
    tsr__column_product product[TSR__MAX_COLUMN_BLOCKS];
} tsr__column_products;
/* Finds the products of a layer, whose parameters must all have memory. */
tsr_status tsr__column_products_find(tsr__column_linear *column, tsr__temps *temps,
                                     tsr__column_products *out) TSR_NODISCARD;
/* Adds the gradients of all parameters, computed from dy2 [m,features] and x2 [m,input_size]. */
tsr_status tsr__column_add_grads(tsr__column_linear *column, tsr__temps *temps,
                                 const tsr_tensor *dy2, const tsr_tensor *x2) TSR_NODISCARD;
/* Gets `weight` as a matrix of floats: `weight`, or, if `weight` is in a block format, a temporary
 * tensor of the parameter's dtype. */
tsr_status tsr__weight_floats(const tsr__linear *linear, tsr__temps *temps,
                              const tsr_tensor *weight, const tsr_tensor **out) TSR_NODISCARD;

/* overlapped_product.c */

/* A product on each rank, and the sum of these products over the ranks. */
typedef struct tsr__reduced_product {
    const tsr_tensor *x2, *weight; /* [m,k], [n,k] */
    const tsr_tensor *up2;         /* NULL, or [m,k] with x2's strides: x = act(x2) · up2 */
    tsr_activation activation;     /* if up2 is not NULL */
    const tsr_tensor *bias;        /* NULL, or [n], or the shard of [n] that belongs to y */
    const tsr_tensor *added;       /* NULL, or a tensor with y's shape, which is added to y */
    tsr_tensor *y;                 /* contiguous; the last dimension is the features */
    const tsr_layout *whole;       /* the layout [.., n] of the full sum */
    int dim;              /* y is this rank's shard along this dimension; -1: the full sum */
    const int64_t *sizes; /* the sizes of the ranks' shards along dim; NULL: all equal */
} tsr__reduced_product;
/* y = sum over ranks of x · weightᵀ + bias + added. */
tsr_status tsr__product_reduced(const tsr__row_linear *row, tsr__temps *temps,
                                const tsr__reduced_product *product) TSR_NODISCARD;

#endif
