/* Push constants of random_fill.comp and dropout.comp. */
#ifndef TSR_PARAMS_RANDOM_H
#define TSR_PARAMS_RANDOM_H

#include "types.h"

/* A kernel works on a piece of y with up to four dimensions (src/tensor/pieces.h). They are
 * right-aligned in the arrays; missing outer dimensions have size 1. 64-bit numbers are
 * TSR_ADDRESS, which in GLSL is two words, the low one first. */
struct tsr_random_fill_params {
    TSR_ADDRESS y; /* the piece's first element */
    TSR_ADDRESS x; /* dropout only */
    TSR_ADDRESS seed;
    TSR_ADDRESS subsequence;
    TSR_ADDRESS index; /* the element index of the piece's first element */
    TSR_UINT shape[4];
    TSR_UINT y_strides[4];
    TSR_UINT x_strides[4];
    TSR_UINT index_strides[4];
    TSR_UINT invocations;
    TSR_UINT threshold; /* dropout: an element is dropped if its random word is less than this;
                           otherwise 0, which random_fill.comp passes to tsr_rounded() */
    TSR_FLOAT scale;    /* uniform: high − low; normal: the deviation; dropout: 1/(1 − p) */
    TSR_FLOAT shift;    /* uniform: low; normal: the mean */
    TSR_FLOAT limit;    /* uniform: the largest value of y's dtype below high */
};
TSR_PUSH_CHECK(tsr_random_fill_params);

/* What random_fill.comp makes of each random word, a specialization constant. */
#define TSR_RANDOM_BITS 0u
#define TSR_RANDOM_UNIFORM 1u
#define TSR_RANDOM_NORMAL 2u

#endif
