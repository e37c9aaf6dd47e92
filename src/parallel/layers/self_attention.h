/* Self-attention layers. self_attention.c has the passes, self_attention_norm.c the norms of
 * queries and keys, and self_attention_heads.c views of heads; self_attention_create.c creates
 * layers. */
#ifndef TSR_PARALLEL_LAYERS_SELF_ATTENTION_H
#define TSR_PARALLEL_LAYERS_SELF_ATTENTION_H

#include "parallel/internal.h"
#include "parallel/layers/layer.h"
#include "tessera/transformer.h"

/* The children. */
enum {
    TSR__ATTENTION_QKV,   /* column-parallel: queries, keys and values */
    TSR__ATTENTION_OUTPUT /* row-parallel */
};

typedef struct tsr__attention {
    /* The layer's own parameters are the weights of q_norm and k_norm, if it has these norms (with
     * shared_keys only the first), and the sinks, if it has them. */
    tsr_layer base;
    tsr_heads heads;     /* the heads of this rank */
    int32_t *kv_head;    /* [heads.count]: the index of the kv head that each head reads */
    bool regular;        /* kv_head is the default of tsr_attention, so it is not passed */
    int64_t *head_sizes; /* [ranks]: how many heads each rank has; NULL: there are no sinks */
    bool causal, sinks, output_gate;
    bool value_norm, keys_as_values, shared_keys; /* as in tsr_self_attention_params */
    tsr_qk_norm qk_norm;
    /* TSR_QK_NORM_WHOLE: the features of q and of k on all ranks; those kv heads of this rank,
     * counted from its first, that it counts in sums over all ranks, because several ranks may have
     * a kv head; and whether each rank has all weights of k's norm */
    int64_t whole[2];
    int64_t counted_first, counted;
    bool replicated;
    int64_t *weight_sizes[2]; /* [ranks]: how the weights of whole norms are divided; or NULL */
    int64_t window;
    float temperature; /* 0: none */
    int64_t temperature_length;
    float scale, softcap, norm_epsilon;
    tsr_rope *rope;                  /* NULL: no rotary embedding */
    tsr_tensor *positions;           /* i32: 0, 1, …; NULL until the first pass */
    const tsr__documents *documents; /* of the rows of forward passes; NULL: rows are documents */
    tsr__shared_keys *shared;        /* tsr__layer_set_shared_keys */
    tsr_group *context_group;        /* NULL: rows are not divided */
    tsr__context *context;           /* of the last pass whose documents had none */
} tsr__attention;

extern const tsr__layer_type tsr__self_attention_type;

/* The indices of the layer's own parameters, if it has norms. */
enum { TSR__Q_NORM, TSR__K_NORM };

/* Views [batch, heads, tokens, head_dim] of the heads of queries, keys, values and gates in the
 * features of tokens, where they follow each other in this order. Values and gates have value_dim
 * features in place of head_dim. */
typedef struct tsr__qkv_heads {
    tsr_tensor *q, *k, *v; /* NULL: the features have none */
    tsr_tensor *qk;        /* the heads of q and k together */
    tsr_tensor *gate;      /* NULL: there is none */
} tsr__qkv_heads;

/* self_attention.c */

/* Returns the self-attention of a layer: itself or one of its children, or NULL. */
tsr__attention *tsr__attention_of(const tsr_layer *layer);
/* positions.c */

/* Gets the tensor of positions 0 … tokens − 1. Makes *positions, which the layer owns, longer if
 * necessary. */
tsr_status tsr__need_positions(const tsr_layer *layer, tsr_tensor **positions, tsr__temps *temps,
                               int64_t tokens, tsr_tensor **out) TSR_NODISCARD;
/* Keeps the documents of a forward pass in `saved`. `documents` may be NULL. */
tsr_status tsr__documents_keep(const tsr__documents *documents,
                               tsr_layer_saved *saved) TSR_NODISCARD;

/* self_attention_heads.c */

/* Creates a view [batch, heads, tokens, head_dim] of a contiguous tensor [.., tokens, heads ·
 * head_dim]. */
tsr_status tsr__heads_of(tsr__temps *temps, const tsr_tensor *in, int64_t head_dim,
                         tsr_tensor **out) TSR_NODISCARD;
/* The same of results of the layer's heads, which have its value_dim. */
tsr_status tsr__by_heads(const tsr__attention *attention, tsr__temps *temps, const tsr_tensor *in,
                         tsr_tensor **out) TSR_NODISCARD;
/* Creates views of the heads in a contiguous tensor [.., tokens, features]. */
tsr_status tsr__qkv_split(const tsr__attention *attention, tsr__temps *temps,
                          const tsr_tensor *features, tsr__qkv_heads *out) TSR_NODISCARD;

/* self_attention_norm.c */

/* Normalises queries, keys and values if the layer has norms. If `keep_raw` is true, the normalised
 * values go to new memory, *normalised; otherwise the normalised values replace those in `qkv`, and
 * *normalised is NULL. *out are views of the normalised heads. *inverse_rms becomes what the
 * backward pass needs, or NULL. */
tsr_status tsr__attention_normalise(tsr__attention *attention, tsr__temps *temps,
                                    const tsr_tensor *qkv, bool keep_raw, tsr__qkv_heads *out,
                                    tsr_tensor **normalised,
                                    tsr_tensor **inverse_rms) TSR_NODISCARD;
/* Sets heads->v to values that are keys, or normalises values, before keys are normalised. If
 * `keep_raw` is true, to new memory. */
tsr_status tsr__attention_values(const tsr__attention *attention, tsr__temps *temps, bool keep_raw,
                                 tsr__qkv_heads *heads) TSR_NODISCARD;
/* Backward pass of tsr__attention_values, after that of the norms: replaces dv, the gradient of the
 * values, by that of the values before their norm, and adds it to d->k if values are keys. `raw`
 * are the heads before normalisation. */
tsr_status tsr__attention_value_grads(const tsr__attention *attention, const tsr__qkv_heads *raw,
                                      tsr_tensor *dv, const tsr__qkv_heads *d) TSR_NODISCARD;
/* Backward pass of the norms of queries and keys. In dqkv, replaces the gradients of the normalised
 * queries and keys by those of the queries and keys before normalisation. Adds the gradients of the
 * norms' weights. */
tsr_status tsr__attention_norm_grads(tsr__attention *attention, tsr__temps *temps,
                                     const tsr_layer_saved *saved, tsr_tensor *dqkv) TSR_NODISCARD;

#endif
