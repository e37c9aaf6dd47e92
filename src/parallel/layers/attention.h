/* Self-attention as a layer: attention.c has its passes, attention_create.c makes it. */
#ifndef TSR_PARALLEL_LAYERS_ATTENTION_H
#define TSR_PARALLEL_LAYERS_ATTENTION_H

#include "parallel/layers/layer.h"
#include "tessera/transformer.h"

typedef struct tsr__attention {
    /* child[0]: queries, keys and values, child[1]: the output. Its own parameters are the weights
     * of q_norm and k_norm, if it has them. */
    tsr_layer base;
    tsr_heads heads;  /* this rank's */
    int32_t *kv_head; /* [heads.count]: which of its kv heads each head reads */
    bool regular;     /* as attention assumes without such a table */
    bool causal, qk_norm;
    int64_t window;
    float scale, softcap, norm_epsilon;
    tsr_rope *rope;        /* NULL: none */
    tsr_tensor *positions; /* i32: 0, 1, …; NULL until they are needed */
} tsr__attention;

extern const tsr__layer_type tsr__self_attention_type;

#endif
