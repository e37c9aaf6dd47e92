/* Push constants of the kernel for attention over a few keys on Mesa's CPU driver. Strides are
 * bytes. */
#ifndef TSR_PARAMS_ATTENTION_SHORT_H
#define TSR_PARAMS_ATTENTION_SHORT_H

#include "types.h"

struct tsr_attention_short_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8: 0 … 7, see lavapipe.glsl */
    /* The rows of which each lane has one: of q and dy, or of k and v. */
    TSR_ADDRESS own_x, own_y;
    /* The rows with which each lane combines its own row: those of k and v, or of q and dy. */
    TSR_ADDRESS other_x, other_y;
    TSR_ADDRESS lse, delta;       /* [batch, heads, queries] */
    TSR_ADDRESS result, result_v; /* y, dq or dk; and dv */
    TSR_UINT x_batch, x_head;     /* from one sequence and one head to the next, in q, k and v */
    TSR_UINT y_batch, y_head;     /* the same in y and dy */
    TSR_UINT dx_batch, dx_head;   /* the same in dq, dk and dv */
    TSR_UINT heads;
    TSR_FLOAT scale;
};
TSR_PUSH_CHECK(tsr_attention_short_push);

/* What the kernel computes, a specialization constant. */
#define TSR_SHORT_Y 0u     /* y and lse; lanes have queries */
#define TSR_SHORT_DQ 1u    /* dq and delta, Σ p·dp of each query; lanes have queries */
#define TSR_SHORT_DK_DV 2u /* dk and dv; lanes have keys */

#endif
