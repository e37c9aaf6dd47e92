/* Self-attention layers: attention.c has their passes, attention_create.c creates them. */
#ifndef TSR_PARALLEL_LAYERS_ATTENTION_H
#define TSR_PARALLEL_LAYERS_ATTENTION_H

#include "parallel/layers/layer.h"
#include "tessera/transformer.h"

typedef struct tsr__attention {
    /* child[0]: queries, keys and values, child[1]: the output. Its own parameters are the weights
     * of q_norm and k_norm, if it has them. */
    tsr_layer base;
    tsr_heads heads;  /* this rank's */
    int32_t *kv_head; /* [heads.count]: the index of the kv head that each head reads */
    bool regular;     /* kv_head is what tsr_attention assumes without a table */
    bool causal, qk_norm;
    int64_t window;
    float scale, softcap, norm_epsilon;
    tsr_rope *rope;        /* NULL: none */
    tsr_tensor *positions; /* i32: 0, 1, …; NULL until first needed */
} tsr__attention;

extern const tsr__layer_type tsr__self_attention_type;

#endif
