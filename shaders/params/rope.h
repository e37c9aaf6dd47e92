/* Push constants of rope.comp. */
#ifndef TSR_PARAMS_ROPE_H
#define TSR_PARAMS_ROPE_H

#include "walk.h"

/* How the components of four neighbouring pairs are loaded and stored, a specialization constant
 * for each operand. */
#define TSR_ROPE_FORM_STRIDED 0u
/* loads and stores vectors of four components, aligned to their size */
#define TSR_ROPE_FORM_VECTORS 1u

/* The innermost dimension of the walk counts the pairs of a row, of which an invocation rotates
 * four. If the specialization constant REPEAT is 1, the rows along the outermost dimension have the
 * same position. The walk then has size 1 in this dimension, and an invocation computes the angles
 * once and rotates `repeats` rows. */
struct tsr_rope_push {
    TSR_ADDRESS y, x;
    TSR_ADDRESS positions;
    /* For each pair of a row, its angle per position as a fraction of a full turn, times 2^64. */
    TSR_ADDRESS table;
    TSR_WALK walk;
    /* The last stride leads from the first component of a pair to that of the next pair. */
    TSR_UINT y_strides[TSR_WALK_DIMS];
    TSR_UINT x_strides[TSR_WALK_DIMS];
    TSR_UINT position_strides[TSR_WALK_DIMS - 1];
    TSR_UINT y_second, x_second; /* strides from a pair's first component to its second */
    TSR_FLOAT scale;
    TSR_UINT repeats; /* the number of rows that an invocation rotates, if REPEAT is 1 */
};
TSR_PUSH_CHECK(tsr_rope_push);

#endif
