/* Enums that several modules share. */
#ifndef TESSERA_TYPES_H
#define TESSERA_TYPES_H

/* Activation functions: those of tsr_matmul, tsr_activate and tsr_mlp_create. */
typedef enum tsr_activation {
    TSR_ACT_NONE = 0,
    TSR_ACT_RELU = 1,
    TSR_ACT_GELU_TANH = 2, /* x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³))) */
    TSR_ACT_GELU_ERF = 3,  /* x/2 · (1 + erf(x/√2)) */
    TSR_ACT_SILU = 4       /* x / (1 + e^-x) */
} tsr_activation;

/* Normalisation, over the last dimension. */
typedef enum tsr_norm_kind {
    TSR_NORM_LAYER = 0, /* tsr_layer_norm */
    TSR_NORM_RMS = 1    /* tsr_rms_norm; has no bias */
} tsr_norm_kind;

/* The two passes of training. For tsr_fsdp_begin, the pass says which units are prefetched: those
 * after the unit in a forward pass, those before it in a backward pass, in which also the gradients
 * of the unit get memory. */
typedef enum tsr_pass { TSR_PASS_FORWARD = 0, TSR_PASS_BACKWARD = 1 } tsr_pass;

/* Optimizers, and the state that they keep of each parameter. */
typedef enum tsr_optimizer_kind {
    TSR_OPTIMIZER_ADAMW = 0, /* keeps two moments */
    TSR_OPTIMIZER_SGD = 1,   /* keeps one velocity */
    TSR_OPTIMIZER_NONE = 2   /* no gradients and no steps: forward passes only */
} tsr_optimizer_kind;

#endif
