/* Layers of latent attention (transformer.h). latent_attention.c has the forward passes,
 * latent_attention_backward.c the backward pass; latent_attention_create.c creates layers. */
#ifndef TSR_PARALLEL_LAYERS_LATENT_ATTENTION_H
#define TSR_PARALLEL_LAYERS_LATENT_ATTENTION_H

#include "parallel/internal.h"
#include "parallel/layers/layer.h"
#include "tessera/transformer.h"

/* The layer's own parameters. Its only child is the output layer, which is row-parallel. */
typedef enum tsr__latent_parameter {
    TSR__LATENT_Q_A,
    TSR__LATENT_Q_A_NORM,
    TSR__LATENT_Q, /* "q_b.weight", or "q.weight" if queries are not compressed */
    TSR__LATENT_KV_A,
    TSR__LATENT_KV_A_NORM,
    TSR__LATENT_K_B,
    TSR__LATENT_V_B,
    TSR__LATENT_PARAMETERS
} tsr__latent_parameter;

typedef struct tsr__latent_attention {
    tsr_layer base;
    int64_t size, heads;     /* of all ranks */
    int64_t q_rank, kv_rank; /* q_rank 0: queries are not compressed */
    int64_t nope, rotary, value;
    tsr__division division; /* of the heads */
    /* [ranks] each: the features of queries, of keys that are not rotated, and of values */
    int64_t *q_sizes, *k_sizes, *v_sizes;
    int index[TSR__LATENT_PARAMETERS]; /* among the layer's own parameters; −1: it has none */
    bool causal, reduce_f32;
    float scale, norm_epsilon;
    /* The most numbers of keys and values that a pass with a cache computes together: those of so
     * many heads, at least one. */
    int64_t most_expanded;
    tsr_rope *rope;                  /* NULL: nothing is rotated */
    tsr_tensor *positions;           /* i32: 0, 1, …; NULL until the first pass */
    const tsr__documents *documents; /* of the rows of forward passes; NULL: rows are documents */
} tsr__latent_attention;

extern const tsr__layer_type tsr__latent_attention_type;

/* latent_attention_create.c */

/* Returns the latent attention of a layer: itself or one of its children, or NULL. */
tsr__latent_attention *tsr__latent_of(const tsr_layer *layer);
/* Gets the inputs and outputs of a weight as a linear layer, and how the ranks divide the outputs;
 * the sizes of *division are NULL if all ranks have all. Those of k_b and v_b are of all heads. */
void tsr__latent_sizes(const tsr__latent_attention *a, int which, int64_t *inputs, int64_t *outputs,
                       tsr__division *division);

/* latent_attention.c */

/* The forward passes, as tsr__layer_type in layer.h declares them. */
tsr_status tsr__latent_forward_added(tsr_layer *layer, const tsr_tensor *x,
                                     const tsr__cached *cached, const tsr_tensor *added,
                                     tsr_layer_saved *saved, tsr_tensor **y) TSR_NODISCARD;
/* The weight of a parameter that the layer has. */
const tsr_tensor *tsr__latent_weight(const tsr__latent_attention *a, tsr__latent_parameter which);
/* The same as floats: a copy, if it is in a block format. */
tsr_status tsr__latent_floats(const tsr__latent_attention *a, tsr__temps *temps,
                              tsr__latent_parameter which, const tsr_tensor **out) TSR_NODISCARD;
/* The params of tsr_attention. */
tsr_attention_params tsr__latent_params(const tsr__latent_attention *a, const tsr_tensor *starts);
/* Gets the positions of `tokens` tokens in rows that are one document. */
tsr_status tsr__latent_positions(tsr__latent_attention *a, tsr__temps *temps, int64_t tokens,
                                 tsr_tensor **out) TSR_NODISCARD;
/* Computes the keys k [.., count · (nope + rotary)] and values v [.., count · value] of `count`
 * heads from `first` on from the latents [.., kv_rank + rotary], which are normalised and rotated.
 * k_b and v_b are the matrices of all heads of the rank, as floats. */
tsr_status tsr__latent_expand(const tsr__latent_attention *a, tsr__temps *temps,
                              const tsr_tensor *latents, const tsr_tensor *k_b,
                              const tsr_tensor *v_b, int64_t first, int64_t count,
                              const tsr_tensor *k, const tsr_tensor *v) TSR_NODISCARD;
/* Returns whether a pass with a cache computes keys and values of all heads: whether that needs
 * fewer multiplications, for sequences of up to `tokens` new tokens, with pages for `keys` tokens
 * each, and `pairs` of a new token and one that it sees in all sequences together. */
bool tsr__latent_expands(const tsr__latent_attention *a, int64_t sequences, int64_t tokens,
                         int64_t keys, double pairs);
/* Creates a view [heads, rows, count] of features first … first + count − 1 of each head in a
 * contiguous tensor [.., heads · each]. */
tsr_status tsr__latent_by_heads(tsr__temps *temps, const tsr_tensor *in, int64_t each,
                                int64_t first, int64_t count, tsr_tensor **out) TSR_NODISCARD;
/* Creates a view [batch, heads, tokens, count] of the same features. */
tsr_status tsr__latent_view(tsr__temps *temps, const tsr_tensor *in, int64_t each, int64_t first,
                            int64_t count, tsr_tensor **out) TSR_NODISCARD;

/* latent_adapters.c: what adapters add. */

/* Creates a view [rows, kv_rank] of the latents [.., kv_rank + rotary] without the rotated part. */
tsr_status tsr__latent_rows(const tsr__latent_attention *a, tsr__temps *temps,
                            const tsr_tensor *latents, tsr_tensor **out) TSR_NODISCARD;
/* Refuses passes whose rows have adapters of their own, if the layer has adapters. */
tsr_status tsr__latent_check_adapters(const tsr__latent_attention *a) TSR_NODISCARD;
/* y2 += what they add to a projection of x2. */
tsr_status tsr__latent_adapters_project(const tsr__latent_attention *a, tsr__temps *temps,
                                        tsr__latent_parameter which, const tsr_tensor *x2,
                                        tsr_tensor *y2) TSR_NODISCARD;
/* y += what they add to the keys (TSR__LATENT_K_B) or values of `count` heads from `first` on,
 * [count, rows, features], computed from latents. */
tsr_status tsr__latent_adapters_expand(const tsr__latent_attention *a, tsr__temps *temps,
                                       tsr__latent_parameter which, int64_t first, int64_t count,
                                       const tsr_tensor *latents, tsr_tensor *y) TSR_NODISCARD;
/* The same in absorbed form, for all heads of the rank: y [heads, rows, kv_rank] += what they add
 * to the products of queries [heads, rows, nope]; y [heads, rows, value] += what they add to those
 * of attention's results [heads, rows, kv_rank]. */
tsr_status tsr__latent_adapters_absorb(const tsr__latent_attention *a, tsr__temps *temps,
                                       const tsr_tensor *q, tsr_tensor *y) TSR_NODISCARD;
tsr_status tsr__latent_adapters_values(const tsr__latent_attention *a, tsr__temps *temps,
                                       const tsr_tensor *results, tsr_tensor *y) TSR_NODISCARD;
/* The backward pass of what they add to dy2's result from x2: adds to dx2, unless it is NULL, and
 * adds the gradients of those that are trained. With TSR__LATENT_K_B and _V_B, dy2 has the features
 * of all heads of the rank. */
tsr_status tsr__latent_adapters_back(const tsr__latent_attention *a, tsr__temps *temps,
                                     tsr__latent_parameter which, const tsr_tensor *dy2,
                                     const tsr_tensor *x2, tsr_tensor *dx2) TSR_NODISCARD;
/* The gradients of those parameters of which a rank without heads has no elements. */
tsr_status tsr__latent_adapters_empty(const tsr__latent_attention *a) TSR_NODISCARD;
struct tsr__adapter;
/* weight += scale · B A of a part of an adapter. */
tsr_status tsr__latent_adapters_merge(const struct tsr__adapter *adapter, tsr__temps *temps,
                                      int part, tsr_tensor *weight) TSR_NODISCARD;

/* latent_attention_backward.c: the backward pass, as tsr__layer_type in layer.h declares it. */
tsr_status tsr__latent_backward(tsr_layer *layer, const tsr_layer_saved *saved,
                                const tsr_tensor *dy, tsr_tensor **dx) TSR_NODISCARD;

#endif
