/* Push constants of the kernels that compute probabilities from blocks of scores, and their
 * gradients, on Mesa's CPU driver. A block has the scores of `rows` queries of each head and up to
 * KEYS keys, f32; a row of it has KEYS elements, a specialization constant. */
#ifndef TSR_PARAMS_ATTENTION_SCORES_H
#define TSR_PARAMS_ATTENTION_SCORES_H

#include "types.h"

struct tsr_attention_scores_push {
    TSR_UINT identity[8]; /* TSR_IDENTITY_8 */
    TSR_ADDRESS scores;   /* products q·k, which become p */
    TSR_ADDRESS gradient; /* backward: products dy·v, which become ds */
    TSR_ADDRESS mask;     /* to be added, in the form of scores */
    TSR_ADDRESS state; /* forward: [heads][rows] of the largest score and the sum of exponentials so
                          far; backward: of delta */
    TSR_ADDRESS lse;   /* of the first row: [heads][q_len] */
    TSR_ADDRESS y;     /* forward: [heads][rows][Y_COLUMNS], the result so far */
    TSR_UINT rows, heads, q_len;
    TSR_INT position; /* of the first query, counted from the block's first key */
    TSR_UINT keys;    /* columns that are keys */
    TSR_UINT window;
    TSR_FLOAT scale, softcap;
};
TSR_PUSH_CHECK(tsr_attention_scores_push);

/* The columns that a row must leave out, a specialization constant. */
#define TSR_SCORES_ALL 0u
#define TSR_SCORES_KEYS 1u   /* from `keys` on */
#define TSR_SCORES_CAUSAL 2u /* also those after the query's position */
#define TSR_SCORES_WINDOW 3u /* also those before its window */

/* The source of delta, and what the backward kernel does, a specialization constant. */
#define TSR_SCORES_GRADIENT 0u    /* from `state` */
#define TSR_SCORES_ALONE 1u       /* the row has no other block; delta is Σ p·dp of this one */
#define TSR_SCORES_DELTA_FIRST 2u /* only writes Σ p·dp to `state` */
#define TSR_SCORES_DELTA_MORE 3u  /* only adds Σ p·dp to `state` */

#endif
