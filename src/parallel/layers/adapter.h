/* Low-rank adapters of linear layers (Hu et al. 2021, arXiv:2106.09685): an adapter adds scale ·
 * (x Aᵀ) Bᵀ to the output of a linear layer or of one of its column blocks.
 *
 * A column-parallel layer has A on every rank, and of B the rows of its own features. A
 * row-parallel layer has the columns of A that belong to its features of x, and B on every rank; x
 * Aᵀ is then a contribution, and its product with B is summed together with that of the weight.
 * Neither needs a collective operation of its own in a pass. Of parameters that every rank has, a
 * backward pass computes contributions to the gradients, which tsr__adapters_sum sums over the
 * ranks. */
#ifndef TSR_PARALLEL_LAYERS_ADAPTER_H
#define TSR_PARALLEL_LAYERS_ADAPTER_H

#include "parallel/layers/linear.h"

#define TSR__MAX_ADAPTED 3 /* the column blocks of a layer: query, key and value */

/* The adapter of one column block, or of a row-parallel layer. */
typedef struct tsr__adapted {
    int block; /* of a column-parallel layer; 0 in a row-parallel one */
    int a, b;  /* indices of A and B among the adapter's parameters */
    int64_t rank;
    int64_t first; /* the column at which its columns of x Aᵀ start, in those of all parts */
    float scale;
} tsr__adapted;

/* The dropout of x before A in passes of a training. p 0: none. */
typedef struct tsr__adapter_dropout {
    float p;
    uint64_t seed, subsequence;
} tsr__adapter_dropout;

/* The adapters of one linear layer that belong together. Its parameters are the A of all parts, and
 * then the B of all parts. */
struct tsr__adapter {
    tsr_layer base;
    tsr__linear *target; /* the layer to which it is attached */
    bool is_row, enabled;
    int count, a_count; /* of the parts, and of the matrices A: 1 if all parts have the same one */
    tsr__adapted part[TSR__MAX_ADAPTED];
    int64_t ranks;                       /* the sum of the ranks of all A */
    const tsr__adapter_dropout *dropout; /* of the set */
    uint64_t mask;                       /* makes the layer's masks differ from those of others */
    struct tsr__adapter *next;           /* the next one of the same layer */
    /* [parameters]: contributions to gradients; NULL if the rank computes the gradient itself */
    tsr_tensor *contribution[2 * TSR__MAX_ADAPTED];
};
typedef struct tsr__adapter tsr__adapter;

/* A product that an adapter adds: factor · h [m,r] · b [n,r]ᵀ. */
typedef struct tsr__adapter_term {
    const tsr_tensor *h, *b;
    float scale;
    int64_t first, count; /* the range of features of y */
} tsr__adapter_term;
typedef struct tsr__adapter_terms {
    int count;
    tsr__adapter_term *term;
} tsr__adapter_terms;

/* Returns whether a layer has an adapter that passes apply. */
static inline bool tsr__layer_is_adapted(const tsr_layer *layer)
{
    for (const tsr__adapter *adapter = layer->adapters; adapter; adapter = adapter->next)
        if (adapter->enabled)
            return true;
    return false;
}
/* Returns whether a layer or one inside it has adapters that are enabled and trained. */
static inline bool tsr__layer_trains_adapters(const tsr_layer *layer)
{
    for (const tsr__adapter *adapter = layer->adapters; adapter; adapter = adapter->next)
        if (adapter->enabled && !adapter->base.frozen)
            return true;
    for (int i = 0; i < layer->child_count; i++)
        if (tsr__layer_trains_adapters(layer->child[i]))
            return true;
    return false;
}

/* Computes x2 Aᵀ of all enabled adapters of a layer: the terms to add to the product of x2 [m,k],
 * which has the columns of this rank. The caller frees terms->term, also after an error. */
tsr_status tsr__adapter_terms_find(const tsr__linear *linear, tsr__temps *temps,
                                   const tsr_tensor *x2, tsr__adapter_terms *terms) TSR_NODISCARD;
/* y2 += the terms, for features first … first + count − 1 of them and rows from `row` on. */
tsr_status tsr__adapter_terms_add(const tsr__linear *linear, tsr__temps *temps,
                                  const tsr__adapter_terms *terms, int64_t row, int64_t first,
                                  int64_t count, tsr_tensor *y2) TSR_NODISCARD;
/* The two above, for all features of a column-parallel layer. */
tsr_status tsr__adapters_forward(const tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x2,
                                 tsr_tensor *y2) TSR_NODISCARD;
/* dx2 += the gradient of x2 through the enabled adapters, unless dx2 is NULL; adds the gradients of
 * those that are trained. dy2 has the features of y that this rank computes, or all of a
 * row-parallel layer. */
tsr_status tsr__adapters_backward(const tsr__linear *linear, tsr__temps *temps,
                                  const tsr_tensor *dy2, const tsr_tensor *x2,
                                  tsr_tensor *dx2) TSR_NODISCARD;

#endif
