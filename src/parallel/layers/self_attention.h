/* Self-attention layers. self_attention.c has the passes; self_attention_create.c creates layers.
 */
#ifndef TSR_PARALLEL_LAYERS_SELF_ATTENTION_H
#define TSR_PARALLEL_LAYERS_SELF_ATTENTION_H

#include "parallel/layers/layer.h"
#include "tessera/transformer.h"

/* The children. */
enum {
    TSR__ATTENTION_QKV,   /* column-parallel: queries, keys and values */
    TSR__ATTENTION_OUTPUT /* row-parallel */
};

typedef struct tsr__attention {
    /* The layer's own parameters are the weights of q_norm and k_norm, if it has these norms, and
     * the sinks, if it has them. */
    tsr_layer base;
    tsr_heads heads;     /* the heads of this rank */
    int32_t *kv_head;    /* [heads.count]: the index of the kv head that each head reads */
    bool regular;        /* kv_head is the default of tsr_attention, so it is not passed */
    int64_t *head_sizes; /* [ranks]: how many heads each rank has; NULL: there are no sinks */
    bool causal, qk_norm, sinks;
    int64_t window;
    float scale, softcap, norm_epsilon;
    tsr_rope *rope;        /* NULL: no rotary embedding */
    tsr_tensor *positions; /* i32: 0, 1, …; NULL until the first pass */
} tsr__attention;

extern const tsr__layer_type tsr__self_attention_type;

#endif
