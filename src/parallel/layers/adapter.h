/* Low-rank adapters of linear layers (Hu et al. 2021, arXiv:2106.09685): an adapter adds scale ·
 * (x Aᵀ) Bᵀ to the output of a linear layer or of one of its column blocks.
 *
 * A column-parallel layer has A on every rank, and of B the rows of its own features. A
 * row-parallel layer has the columns of A that belong to its features of x, and B on every rank; x
 * Aᵀ is then a contribution, and its product with B is summed together with that of the weight.
 * Neither needs a collective operation of its own in a pass. Of parameters that every rank has, a
 * backward pass computes contributions to the gradients, which tsr__adapters_sum sums over the
 * ranks.
 *
 *     adapter_create.c  creates sets of adapters, sums their gradients, and merges them
 *     adapter.c         their passes
 *     adapter_norm.c    adapters with magnitudes (DoRA)
 *     adapter_rows.c    passes in which each row has another adapter
 *     moe_adapters.c    adapters of the experts of a mixture (moe.h)
 *     latent_adapters.c adapters of latent attention */
#ifndef TSR_PARALLEL_LAYERS_ADAPTER_H
#define TSR_PARALLEL_LAYERS_ADAPTER_H

#include "base/alloc.h"
#include "parallel/layers/linear.h"

#define TSR__MAX_ADAPTED 4 /* the column blocks of a layer: q, k, v, and z of a delta net */

/* What an adapter is attached to. A mixture of experts has matrices A and B of each expert
 * (moe_adapters.c), which it divides as it divides their weights. */
typedef enum tsr__adapter_kind {
    TSR__ADAPTER_COLUMN, /* a column-parallel layer */
    TSR__ADAPTER_ROW,    /* a row-parallel layer */
    TSR__ADAPTER_EXPERTS,
    TSR__ADAPTER_SHARED, /* the shared expert of a mixture */
    TSR__ADAPTER_LATENT  /* latent attention (latent_adapters.c) */
} tsr__adapter_kind;

/* The adapter of one column block, or of a row-parallel layer. */
typedef struct tsr__adapted {
    int block;   /* of a column-parallel layer; 0 in a row-parallel one; a tsr__moe_parameter; a
                  * tsr__latent_parameter */
    int a, b, m; /* indices of A, B and the magnitudes among the adapter's parameters */
    int64_t rank;
    int64_t first; /* the column at which its columns of x Aᵀ start, in those of all parts */
    float scale;
} tsr__adapted;

/* The dropout of x before A in passes of a training. p 0: none. */
typedef struct tsr__adapter_dropout {
    float p;
    uint64_t seed, subsequence;
} tsr__adapter_dropout;

/* Which adapters a pass applies. */
typedef enum tsr__adapter_mode {
    TSR__ADAPTERS_ENABLED, /* those that are enabled, to all rows */
    TSR__ADAPTERS_ONE,     /* those of one set, to all rows */
    TSR__ADAPTERS_BY_ROW   /* to each row those of one set; without a backward pass */
} tsr__adapter_mode;
typedef struct tsr__adapter_choice {
    tsr__adapter_mode mode;
    int number, count;     /* the number of this set, and how many there are */
    int only;              /* ONE: the number of the set; -1: none */
    const tsr_tensor *ids; /* BY_ROW: i32 [rows, 1], the numbers of sets; -1: none */
    uint64_t version;      /* of the list of sets */
} tsr__adapter_choice;

/* The matrices of all adapters of a linear layer, by set, for passes that apply them by row. Sets
 * without an adapter of the layer have zeros, as ranks smaller than the largest have. */
struct tsr__adapter_bank {
    uint64_t version;
    tsr_tensor *a; /* [sets, ranks, columns], of all blocks */
    struct tsr__adapter_bank_block {
        tsr_tensor *b;        /* [sets, rows, rank], multiplied by the scales; NULL: none has one */
        int64_t rank, at;     /* at: of the block's first row in `a` */
        int64_t first, count; /* the range of features of y */
    } block[TSR__MAX_ADAPTED];
};

/* The adapters of one linear layer that belong together. Its parameters are the A of all parts,
 * then the B of all parts, and then their magnitudes, if they have some. */
struct tsr__adapter {
    tsr_layer base;
    tsr_layer *target; /* the layer to which it is attached */
    tsr__adapter_kind kind;
    bool is_row, enabled;
    bool has_magnitudes; /* adapter_norm.c */
    int count, a_count;  /* of the parts, and of the matrices A: 1 if all parts have the same one */
    tsr__adapted part[TSR__MAX_ADAPTED];
    int64_t ranks;                       /* the sum of the ranks of all A */
    const tsr__adapter_dropout *dropout; /* of the set */
    const tsr__adapter_choice *choice;   /* of the set */
    uint64_t mask;                       /* makes the layer's masks differ from those of others */
    struct tsr__adapter *next;           /* the next one of the same layer */
    /* [parameters]: contributions to gradients; NULL if the rank computes the gradient itself */
    tsr_tensor *contribution[3 * TSR__MAX_ADAPTED];
    /* With magnitudes: the norms of the rows of W + scale · B A that this rank keeps, by part, as
     * they were at norms_at, a value of *version, which is the set's */
    tsr_tensor *norm[TSR__MAX_ADAPTED];
    uint64_t norms_at;
    const uint64_t *version;
};
typedef struct tsr__adapter tsr__adapter;

/* A product that an adapter adds: factor · h [m,r] · b [n,r]ᵀ. */
typedef struct tsr__adapter_term {
    const tsr_tensor *h, *b;
    const tsr_tensor *ids; /* by row: b is [sets, n, r], with the scales; otherwise NULL */
    float scale;
    int64_t first, count; /* the range of features of y */
} tsr__adapter_term;
typedef struct tsr__adapter_terms {
    int count;
    tsr__adapter_term *term;
} tsr__adapter_terms;

/* Returns the linear layer to which an adapter is attached. */
static inline const tsr__linear *tsr__adapter_linear(const tsr__adapter *adapter)
{
    return (const tsr__linear *)adapter->target;
}

/* Returns whether a pass applies an adapter, or, by row, may apply it. */
static inline bool tsr__adapter_is_active(const tsr__adapter *adapter)
{
    const tsr__adapter_choice *choice = adapter->choice;
    if (choice->mode == TSR__ADAPTERS_ENABLED)
        return adapter->enabled;
    return choice->mode == TSR__ADAPTERS_BY_ROW || choice->only == choice->number;
}
/* Returns whether a layer has an adapter that passes apply. */
static inline bool tsr__layer_is_adapted(const tsr_layer *layer)
{
    for (const tsr__adapter *adapter = layer->adapters; adapter; adapter = adapter->next)
        if (tsr__adapter_is_active(adapter))
            return true;
    return false;
}
/* Frees the bank of a layer, which is made again when it is needed. */
static inline void tsr__adapter_bank_drop(tsr_layer *layer)
{
    struct tsr__adapter_bank *bank = layer->adapter_bank;
    if (!bank)
        return;
    tsr_tensor_destroy(&bank->a);
    for (int i = 0; i < TSR__MAX_ADAPTED; i++)
        tsr_tensor_destroy(&bank->block[i].b);
    tsr__free(bank);
    layer->adapter_bank = NULL;
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

/* Gets the weight that a part belongs to. */
tsr__layer_parameter *tsr__adapter_weight(const tsr__adapter *adapter, int part);
/* Gets the rows of a tensor, which has those that this rank keeps, that it computes. */
tsr_status tsr__adapter_rows_of(const tsr__adapter *adapter, tsr__temps *temps, int part,
                                tsr_tensor *tensor, tsr_tensor **out) TSR_NODISCARD;
/* Gets the columns of y2 that belong to a part. */
tsr_status tsr__adapter_columns_of(const tsr__adapter *adapter, tsr__temps *temps, int part,
                                   const tsr_tensor *y2, tsr_tensor **out) TSR_NODISCARD;
/* Gets where to add the gradient of parameter `index`: the gradient, or this rank's contribution to
 * it; *adds is false if its contents do not count. Call tsr__adapter_grad_done when it has been
 * written. */
tsr_status tsr__adapter_grad(tsr__adapter *adapter, int index, tsr_tensor **grad,
                             bool *adds) TSR_NODISCARD;
static inline void tsr__adapter_grad_done(tsr__adapter *adapter, int index)
{
    if (!adapter->contribution[index])
        adapter->base.parameter[index]->grad_empty = false;
}

/* Computes x2 Aᵀ of all enabled adapters of a layer: the terms to add to the product of x2 [m,k],
 * which has the columns of this rank. The caller frees terms->term, also after an error. */
tsr_status tsr__adapter_terms_find(const tsr__linear *linear, tsr__temps *temps,
                                   const tsr_tensor *x2, tsr__adapter_terms *terms) TSR_NODISCARD;
/* y2 += the terms, for features first … first + count − 1 of them and rows from `row` on. */
tsr_status tsr__adapter_terms_add(const tsr__linear *linear, tsr__temps *temps,
                                  const tsr__adapter_terms *terms, int64_t row, int64_t first,
                                  int64_t count, tsr_tensor *y2) TSR_NODISCARD;
/* Both, for all features of a column-parallel layer. */
tsr_status tsr__adapters_forward(const tsr__linear *linear, tsr__temps *temps, const tsr_tensor *x2,
                                 tsr_tensor *y2) TSR_NODISCARD;
/* dx2 += the gradient of x2 through the enabled adapters, unless dx2 is NULL; adds the gradients of
 * those that are trained. dy2 has the features of y that this rank computes, or all of a
 * row-parallel layer. */
tsr_status tsr__adapters_backward(const tsr__linear *linear, tsr__temps *temps,
                                  const tsr_tensor *dy2, const tsr_tensor *x2,
                                  tsr_tensor *dx2) TSR_NODISCARD;

/* adapter_rows.c: tsr__adapter_terms_find and tsr__adapter_terms_add by row, from the layer's bank.
 */
tsr_status tsr__adapter_rows_find(const tsr__linear *linear, tsr__temps *temps,
                                  const tsr_tensor *x2, tsr__adapter_terms *terms) TSR_NODISCARD;
tsr_status tsr__adapter_rows_add(const tsr__linear *linear, tsr__temps *temps,
                                 const tsr__adapter_term *term, tsr_tensor *y2) TSR_NODISCARD;

/* adapter_norm.c */

/* Sets the magnitudes to the norms. The weights and the matrices must have their values. */
tsr_status tsr__adapter_fill_magnitudes(tsr__adapter *adapter) TSR_NODISCARD;
/* Multiplies the features in y2, the output with its bias, by the factors of the adapter with
 * magnitudes that a pass applies, if there is one. */
tsr_status tsr__adapter_norms_forward(const tsr__linear *linear, tsr__temps *temps,
                                      tsr_tensor *y2) TSR_NODISCARD;
/* Replaces *dy2 by its product with the factors, and adds the gradients of the magnitudes. */
tsr_status tsr__adapter_norms_backward(const tsr__linear *linear, tsr__temps *temps,
                                       const tsr_tensor *x2, tsr_tensor **dy2) TSR_NODISCARD;
/* Returns whether a pass applies an adapter with magnitudes. */
static inline bool tsr__layer_is_normed(const tsr_layer *layer)
{
    for (const tsr__adapter *adapter = layer->adapters; adapter; adapter = adapter->next)
        if (adapter->has_magnitudes && tsr__adapter_is_active(adapter))
            return true;
    return false;
}
/* weight = g · (weight + scale · B A). */
tsr_status tsr__adapter_merge_normed(tsr__adapter *adapter, tsr__temps *temps,
                                     int part) TSR_NODISCARD;

#endif
