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

/* How a product (tsr_matmul) may compute with f32 and quantised operands. GPUs with matrix units
 * multiply numbers of 16 bits several times as fast as f32. TSR_PRECISION_HIGH and
 * TSR_PRECISION_MEDIUM allow a product to use them where this is faster: with at least 32 rows,
 * without batch dimensions, and on GPUs only. Such an operand is then replaced by a sum of 16-bit
 * terms, with a power of two as scale for each row of op(a), or column of op(b), so that nothing
 * overflows. Operands of 16 bits stay as they are. Products are added in f32. */
typedef enum tsr_precision {
    TSR_PRECISION_DEFAULT = 0, /* tsr_matmul: HIGHEST; what layers do is in group.h */
    TSR_PRECISION_HIGHEST = 1, /* operands are not rounded, and products are those of f32 */
    /* Two terms of f16 or, if the other operand is bf16, three of bf16. The error of an element is
     * at most 2^-22 of its absolute value plus 2^-28 of the largest in its row, about that of f32.
     * If both operands have several terms, products of two of the smaller ones are left out, which
     * adds 2^-22 of the product of the absolute values. */
    TSR_PRECISION_HIGH = 2,
    /* One term, so that elements are rounded to f16 (to bf16 if the other operand is bf16): an
     * error of 2^-11 (2^-8) of its absolute value, plus 2^-28 of the largest in its row. */
    TSR_PRECISION_MEDIUM = 3
} tsr_precision;

/* The function between the products of an expert (moe.h). */
typedef enum tsr_expert_activation {
    TSR_EXPERT_SWIGLU = 0,    /* silu(gate) · up */
    TSR_EXPERT_GEGLU = 1,     /* gelu(gate) · up, gelu in its tanh form */
    TSR_EXPERT_SWIGLU_OAI = 2 /* g · sigmoid(1.702·g) · (u + 1), g = min(gate, limit), u = up
                                 limited to ±limit */
} tsr_expert_activation;

/* Normalisation, over the last dimension: see tsr_norm (ops.h). */
typedef enum tsr_norm_kind {
    TSR_NORM_LAYER = 0,
    TSR_NORM_RMS = 1 /* has no bias */
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
