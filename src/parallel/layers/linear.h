/* Linear layers, column- and row-parallel. */
#ifndef TSR_PARALLEL_LAYERS_LINEAR_H
#define TSR_PARALLEL_LAYERS_LINEAR_H

#include "parallel/layers/layer.h"

#define TSR__MAX_LINEAR_PARTS 2

typedef struct tsr__linear {
    tsr_layer base;
    bool row;
    /* A column-parallel layer may be several with one input: gate and up. Their outputs stand side
     * by side: y [.., parts · length]. */
    int parts;
    int64_t input_size, output_size; /* of the whole layer, of one part of it */
    tsr_layer_layout input, output;
    int sequence_dim;
    bool has_bias, reduce_f32;
    int overlap_parts;
    int64_t *sizes; /* [ranks] of the divided side of the weight */
    int64_t first, length;
    int64_t *other_sizes; /* [ranks] of the other side, where it is divided */
    int64_t other_first;
    bool same_split; /* a GATHER input of a row is divided as the weight is: nothing to gather */
    /* The parts' memory, one below the other, where it is the layer's own; else NULL. */
    tsr_tensor *joint_weight, *joint_bias;
} tsr__linear;

/* The parameter of a part: the weight, and the bias behind it. */
static inline int tsr__weight_of(const tsr__linear *linear, int part)
{
    return part * (linear->has_bias ? 2 : 1);
}

/* linear.c: a column-parallel layer of `parts`, whose parameters are named after them: "gate"
 * gives "gate.weight". One part may have no name. */
tsr_status tsr__column_create(const tsr_linear_params *params, int parts, const char *const *names,
                              tsr_layer **out) TSR_NODISCARD;
tsr_status tsr__row_create(const tsr_linear_params *params, const char *part,
                           tsr_layer **out) TSR_NODISCARD;

/* What a layer of linear ones is asked for beside sizes, by its own name. */
tsr_status tsr__linear_check(const tsr_layer *layer, const tsr_linear_params *params) TSR_NODISCARD;

/* column.c, row.c: the passes of tsr__layer_type. */
tsr_status tsr__column_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                               tsr_tensor **y) TSR_NODISCARD;
tsr_status tsr__column_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, tsr_tensor **dx) TSR_NODISCARD;
tsr_status tsr__row_forward(tsr_layer *layer, const tsr_tensor *x, tsr_layer_saved *saved,
                            tsr_tensor **y) TSR_NODISCARD;
tsr_status tsr__row_backward(tsr_layer *layer, const tsr_layer_saved *saved, const tsr_tensor *dy,
                             tsr_tensor **dx) TSR_NODISCARD;
/* The forward pass of a column-parallel layer with an activation in the product. */
tsr_status tsr__column_forward_activated(tsr_layer *layer, const tsr_tensor *x,
                                         tsr_activation activation, tsr_layer_saved *saved,
                                         tsr_tensor **y) TSR_NODISCARD;

/* product.c */

/* Where the sum of the ranks' products goes. */
typedef struct tsr__product {
    const tsr_tensor *x2, *weight; /* [m,k], [n,k] */
    const tsr_tensor *bias;        /* NULL, or [n], or what of it belongs to y */
    tsr_tensor *y;                 /* contiguous; its last dimension is features */
    const tsr_layout *whole;       /* of the products: [.., n] */
    int dim;                       /* y is this rank's part of them along it; -1: all of it */
    const int64_t *sizes;          /* along dim; NULL: equal parts */
} tsr__product;
/* y = sum over ranks of x · weightᵀ + bias. */
tsr_status tsr__product_reduced(const tsr__linear *linear, tsr__temps *temps,
                                const tsr__product *product) TSR_NODISCARD;

#endif
