/* Push constants of sgd.comp and adamw.comp. */
#ifndef TSR_PARAMS_OPTIMIZER_H
#define TSR_PARAMS_OPTIMIZER_H

#include "types.h"

/* The operands' indices. SGD has one state (the velocity), AdamW two (the moments). */
#define TSR_OPT_PARAMETER 0
#define TSR_OPT_GRADIENT 1
#define TSR_OPT_MASTER 2
#define TSR_OPT_STATE 3
#define TSR_OPT_STATE2 4
#define TSR_OPT_OPERANDS 5

/* The length of the array `number`, which holds the numbers that a step needs, such as the learning
 * rate. The last one, a factor of the gradient, has the same index for all optimizers. */
#define TSR_OPT_NUMBERS 7
#define TSR_OPT_GRADIENT_SCALE 6

/* A dispatch covers two dimensions, rows and columns: element e is in row e / columns and column e
 * % columns. The push constants have no room for strides of five operands in more dimensions; the
 * host records a dispatch for each position in the others. */
struct tsr_optimizer_params {
    TSR_ADDRESS base[TSR_OPT_OPERANDS];
    /* the address of the gradient's factor, which clip_scale.comp has written (clip_scale.h); 0:
     * the factor is in `number` */
    TSR_ADDRESS scale;
    TSR_UINT row_stride[TSR_OPT_OPERANDS];
    TSR_UINT column_stride[TSR_OPT_OPERANDS];
    TSR_UINT count;
    TSR_UINT columns;
    TSR_FLOAT number[TSR_OPT_NUMBERS]; /* indexed by TSR_SGD_… or TSR_ADAMW_… */
};
TSR_PUSH_CHECK(tsr_optimizer_params);

/* The push constants of optimizer_vectors.comp, for Mesa's CPU driver. Operands are contiguous:
 * element e is e elements after the base. */
struct tsr_optimizer_vectors_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    TSR_ADDRESS base[TSR_OPT_OPERANDS];
    TSR_ADDRESS scale;
    TSR_FLOAT number[TSR_OPT_NUMBERS];
    TSR_UINT vectors; /* the number of vectors of the parameter */
};
TSR_PUSH_CHECK(tsr_optimizer_vectors_push);

/* The optimizer, a specialization constant of optimizer_vectors.comp. */
#define TSR_OPT_SGD 0u
#define TSR_OPT_ADAMW 1u

/* SGD's indices of `number`. */
#define TSR_SGD_LEARNING_RATE 0
#define TSR_SGD_MOMENTUM 1
#define TSR_SGD_DAMPED 2 /* 1 − dampening */
#define TSR_SGD_WEIGHT_DECAY 3
/* The specialization constant MODE of SGD. FIRST is the first step, which sets the velocity; NEXT
 * is any later step, which updates it. */
#define TSR_SGD_PLAIN 0u
#define TSR_SGD_MOMENTUM_FIRST 1u
#define TSR_SGD_MOMENTUM_NEXT 2u
#define TSR_SGD_NESTEROV_FIRST 3u
#define TSR_SGD_NESTEROV_NEXT 4u

/* AdamW's indices of `number`. */
#define TSR_ADAMW_KEPT 0 /* 1 − learning rate · weight decay */
#define TSR_ADAMW_BETA1 1
#define TSR_ADAMW_BETA2 2
#define TSR_ADAMW_STEP 3       /* learning rate / (1 − beta1^step) */
#define TSR_ADAMW_ROOT_SCALE 4 /* 1 / √(1 − beta2^step) */
#define TSR_ADAMW_EPSILON 5

#endif
