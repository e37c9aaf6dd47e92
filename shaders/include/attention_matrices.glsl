// What the kernels of attention for matrix units share. The including file declares the specialization constant KIND.
#ifndef TSR_ATTENTION_MATRICES_GLSL
#define TSR_ATTENTION_MATRICES_GLSL

#include "include/attention.glsl"

const bool OWNS_KEYS = KIND == TSR_ATTENTION_DK || KIND == TSR_ATTENTION_DV || KIND == TSR_ATTENTION_DKV;

// Scores are divided by ln 2, so that exp2() turns them into probabilities.
const float LOG2_E = 1.44269504;
const float LOWEST = -3.40282347e38;

// Divides a number, for example an element of the mask, by ln 2, as all scores are. Masks may contain
// the lowest number, which must not become -inf.
float binary(float natural)
{
    return max(natural * LOG2_E, LOWEST);
}

// Divides a query's lse by ln 2, as all scores are. If the query sees no key, its lse and all its
// scores are -inf; with 0 as the lse, its probabilities are 0.
float binary_lse(float lse)
{
    return lse == tsr_minus_infinity ? 0.0 : binary(lse);
}

#endif
