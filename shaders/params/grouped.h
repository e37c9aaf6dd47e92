/* Push constants of grouped products: products in which each row of x is multiplied by the matrix
 * of its expert. A row is a pair (token, rank of the chosen expert), number token · chosen + rank.
 */
#ifndef TSR_PARAMS_GROUPED_H
#define TSR_PARAMS_GROUPED_H

#include "types.h"

/* Strides of x and y count elements; those of w count bytes. Row i of x belongs to pair i, or to
 * the pairs of token i if x_divide is `chosen` instead of 1. `order` has the pairs of expert e at
 * offsets[e] … offsets[e + 1] − 1. An address that is 0 means that the tensor is missing. `up` and
 * `up_bias` have the strides of w and `bias`; they are used if the kernel is specialised for
 * them. */
struct tsr_grouped_push {
    TSR_ADDRESS x, w, y, bias, order, offsets;
    TSR_ADDRESS w_expert, w_line,
        w_k; /* from expert to expert, from column of y to column, along k */
    TSR_ADDRESS up, up_bias;
    TSR_UINT experts, n, k;
    TSR_UINT x_stride, x_divide, y_stride;
    TSR_UINT bias_stride;
    /* the dispatch computes tiles of rows first_slot … slots − 1, some of which are empty */
    TSR_UINT slots, first_slot;
    TSR_FLOAT limit;
};
TSR_PUSH_CHECK(tsr_grouped_push);

/* Flags of the structs below. ADDED: the rows of `up`, in the product for few tokens, or of
 * `added` are added to those of y, which have the same stride and dtype. */
#define TSR_GROUPED_ACCUMULATE 1u
#define TSR_GROUPED_ADDED 2u

/* How w is loaded, a specialization constant; x is loaded as VEC_K or SCALAR. */
#define TSR_GROUPED_SCALAR 0u   /* any strides, one element at a time */
#define TSR_GROUPED_VEC_K 1u    /* four neighbours along k */
#define TSR_GROUPED_VEC_LINE 2u /* four neighbouring columns of y */
#define TSR_GROUPED_BLOCKS 3u   /* a block format, along k */

/* The product for few tokens. Row i of x is as above. If `weights` is given, y has a row per token:
 * the weighted sum over its experts. If `up` is given, y = act(x·wᵀ + bias) · (x·upᵀ + up_bias).
 * mode has the dtypes of y and of the biases, and the activation. */
struct tsr_grouped_few_push {
    TSR_ADDRESS x, w, up, y, ids, weights, bias, up_bias;
    TSR_ADDRESS w_expert;
    TSR_UINT w_line;
    TSR_UINT tokens, chosen, experts, n, k;
    TSR_UINT x_stride, x_divide, y_stride;
    TSR_UINT ids_stride, weights_stride, bias_stride;
    TSR_FLOAT limit;
    TSR_UINT flags;
};
TSR_PUSH_CHECK(tsr_grouped_few_push);

/* The gradient of w: dw[e] = Σ over its pairs of dyᵀ · x. The dispatch computes tiles of rows
 * first_tile … last_tile − 1 of all experts. */
struct tsr_grouped_grad_push {
    TSR_ADDRESS dy, x, dw, order, offsets;
    TSR_ADDRESS dw_expert, dw_row; /* bytes */
    TSR_UINT experts, rows, columns;
    TSR_UINT dy_stride, dy_divide, x_stride, x_divide;
    TSR_UINT first_tile, last_tile;
    TSR_UINT flags;
};
TSR_PUSH_CHECK(tsr_grouped_grad_push);

/* Rows of pairs: y[token] = Σ over ranks of weight · x[pair]. */
struct tsr_pair_sum_push {
    TSR_ADDRESS x, y, weights, ids, added;
    TSR_UINT tokens, chosen, experts, n;
    TSR_UINT x_stride, y_stride, weights_stride, ids_stride;
    TSR_UINT flags;
};
TSR_PUSH_CHECK(tsr_pair_sum_push);

/* The activation between the products of an expert, and its gradient. `hidden` has gate in columns
 * 0 … n − 1 and up in columns n … 2n − 1. In the gradient, dy is the gradient of y before the
 * weights, and the results are the gradient of `hidden`, y times the weights, and the gradient of
 * the weights. */
struct tsr_pair_activate_push {
    TSR_ADDRESS hidden, y, dy, dhidden, weights, dweights, ids;
    TSR_UINT pairs, chosen, experts, n;
    TSR_UINT hidden_stride, y_stride, dy_stride, dhidden_stride;
    TSR_UINT weights_stride, dweights_stride, ids_stride;
    TSR_FLOAT limit;
};
TSR_PUSH_CHECK(tsr_pair_activate_push);

/* The values of tsr_expert_activation. */
#define TSR_EXPERT_ACT_SILU 0u
#define TSR_EXPERT_ACT_GELU 1u
#define TSR_EXPERT_ACT_SWIGLU_OAI 2u

#endif
