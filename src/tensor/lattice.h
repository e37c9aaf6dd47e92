/* Bounded integer equations: how many ways are there to write a target as Σ weight·x with 0 ≤ x ≤
 * limit? Whether two views share an element is such a question. Hard in general, but quick for the
 * weights that views have. */
#ifndef TSR_TENSOR_LATTICE_H
#define TSR_TENSOR_LATTICE_H

#include <stdbool.h>
#include <stdint.h>

#define TSR__LATTICE_TERMS 20

typedef struct tsr__lattice {
    int terms;
    uint64_t weight[TSR__LATTICE_TERMS]; /* > 0 */
    uint64_t limit[TSR__LATTICE_TERMS];  /* > 0 */
} tsr__lattice;

/* Adds a term; one that cannot contribute (weight or limit 0) is left out. The sum of all
 * weight·limit must fit 64 bits. */
void tsr__lattice_add(tsr__lattice *lattice, uint64_t weight, uint64_t limit);

/* Joins terms of equal weight into one. Changes how many solutions there are, but not whether there
 * are any. */
void tsr__lattice_join(tsr__lattice *lattice);

typedef enum tsr__lattice_answer {
    TSR__LATTICE_NO,
    TSR__LATTICE_YES,
    TSR__LATTICE_GAVE_UP
} tsr__lattice_answer;

/* Are there at least `wanted` (≥ 1) solutions? Gives up after a fixed amount of work. Sorts the
 * terms. */
tsr__lattice_answer tsr__lattice_solutions(tsr__lattice *lattice, uint64_t target, int wanted);

#endif
