/* Bounded integer equations: in how many ways can a target be written as a sum Σ weight·x, where
 * each x is an integer with 0 ≤ x ≤ limit? Whether two views have an element in common is a
 * question of this form. The problem is hard in general, but easy for the weights that views have.
 */
#ifndef TSR_TENSOR_EQUATION_H
#define TSR_TENSOR_EQUATION_H

#include <stdbool.h>
#include <stdint.h>

#define TSR__EQUATION_TERMS 20

typedef struct tsr__equation {
    int terms;
    uint64_t weight[TSR__EQUATION_TERMS]; /* > 0 */
    uint64_t limit[TSR__EQUATION_TERMS];  /* > 0 */
} tsr__equation;

/* Adds a term. A term with the weight 0 or the limit 0 is ignored, because it cannot contribute to
 * the sum. The sum of all weight·limit must fit 64 bits. */
void tsr__equation_add(tsr__equation *equation, uint64_t weight, uint64_t limit);

/* Combines all terms that have the same weight into one term, whose limit is the sum of theirs.
 * This changes the number of solutions, but not whether there are any. */
void tsr__equation_join(tsr__equation *equation);

typedef enum tsr__equation_answer {
    TSR__EQUATION_NO,
    TSR__EQUATION_YES,
    TSR__EQUATION_GAVE_UP
} tsr__equation_answer;

/* Answers whether there are at least `wanted` (≥ 1) solutions. The search does a limited amount of
 * work and then ends without an answer. Sorts the terms. */
tsr__equation_answer tsr__equation_solutions(tsr__equation *equation, uint64_t target, int wanted);

#endif
