/* Transformer blocks. transformer_block_create.c creates them, and transformer_block.c has their
 * passes. */
#ifndef TSR_PARALLEL_LAYERS_TRANSFORMER_BLOCK_H
#define TSR_PARALLEL_LAYERS_TRANSFORMER_BLOCK_H

#include "parallel/layers/layer.h"

/* A residual branch: the indices of its children. Those that it does not have are -1. */
typedef struct tsr__residual_branch {
    const char *name; /* in random sequences of dropout */
    int norm, layer, post_norm;
    /* experts beside the layer, and the norms after the layer and after the experts */
    int experts, layer_norm, experts_norm;
} tsr__residual_branch;

typedef struct tsr__block {
    tsr_layer base;
    tsr__residual_branch attention, mlp;
    float residual_scale;
    bool recompute, sequence, has_experts;
    bool output_scale;       /* the block's own parameter */
    int gate, out, end_norm; /* for the layer's own input, children; -1: it has none */
    const tsr_tensor *input; /* tsr__block_set_input */
    tsr_tensor *input_grad;  /* the same */
    int sequence_dim;
    tsr__dropout dropout;
} tsr__block;

extern const tsr__layer_type tsr__block_type;

#endif
