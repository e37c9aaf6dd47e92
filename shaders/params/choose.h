/* How tokens are chosen from logits: the push constants of choose.comp, and the numbers that the
 * host (src/base/choice.h) and the kernel both compute with, so that they choose the same tokens.
 *
 * The distance of a token is how far its logit is below the largest one, divided by the
 * temperature, in units of ln 2 / 2^25. The weight of a token is 2^40 · 2^(−distance / 2^25),
 * rounded down: an integer, so that sums of weights do not depend on the order of additions. */
#ifndef TSR_PARAMS_CHOOSE_H
#define TSR_PARAMS_CHOOSE_H

#include "types.h"

#define TSR_CHOICE_WEIGHT_BITS 40u   /* the weight of the most likely token is 2 to this power */
#define TSR_CHOICE_DISTANCE_BITS 25u /* a distance of 2 to this power halves the weight */

/* Coefficients of 2^-r = 1 − r·(C1 − r·(C2 − …)) for r in [0, 1), times 2^31. The result, times
 * 2^31, is off by at most 4, and never increases with r. */
#define TSR_CHOICE_C1 1488522236u
#define TSR_CHOICE_C2 515882469u
#define TSR_CHOICE_C3 119193747u
#define TSR_CHOICE_C4 20652244u
#define TSR_CHOICE_C5 2856024u
#define TSR_CHOICE_C6 319744u
#define TSR_CHOICE_C7 24275u

#define TSR_CHOICE_GREEDY                                                                          \
    1u /* the most likely token, the one with the lowest id if several are                         \
        */
#define TSR_CHOICE_PENALISED 2u
#define TSR_CHOICE_TOP_P 4u

/* How the token of one row is chosen. 64-bit numbers are two words, the low one first. */
struct tsr_choice_words {
    TSR_UINT flags;
    TSR_FLOAT scale;           /* distance per unit of logits */
    TSR_FLOAT penalty;         /* multiplies the logits below 0 of tokens that were seen */
    TSR_FLOAT inverse_penalty; /* multiplies those above 0 */
    TSR_UINT top_k;            /* 0: all tokens */
    TSR_UINT seen_row;         /* the row of `seen` that belongs to this row of logits */
    TSR_UINT top_p[2];         /* the probability · 2^64, rounded down */
    TSR_UINT least[2];         /* the least weight of a token that min_p keeps */
    TSR_UINT random[2];        /* a random number in [0, 1), times 2^64 */
    TSR_UINT unused[4];
};

/* What choose.comp writes to `results` if it cannot choose a token. */
#define TSR_CHOICE_NOT_FINITE (-1) /* a logit is NaN or +inf */
#define TSR_CHOICE_NOTHING (-2)    /* all logits are −inf */

/* A workgroup works on a row. */
struct tsr_choose_params {
    TSR_ADDRESS logits;  /* f32 [rows, count] */
    TSR_ADDRESS choices; /* tsr_choice_words [rows] */
    /* One bit for each token, set if the sequence has it: [rows of `seen`, seen_words]. The kernel
     * sets the bit of the token that it chooses. Address 0: there are no bits. */
    TSR_ADDRESS seen;
    TSR_ADDRESS ids;      /* i32 [rows]: the tokens, 0 for a row in which none can be chosen */
    TSR_ADDRESS results;  /* i32 [rows]: the tokens, or TSR_CHOICE_… */
    TSR_ADDRESS row_step; /* bytes from one row of logits to the next */
    TSR_UINT rows, count, seen_words;
};
TSR_PUSH_CHECK(tsr_choose_params);

#endif
