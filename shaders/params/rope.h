/* Push constants of rope.comp. */
#ifndef TSR_PARAMS_ROPE_H
#define TSR_PARAMS_ROPE_H

#include "walk.h"

/* How the components of four neighbouring pairs are loaded and stored, a specialization constant
 * for each operand. */
#define TSR_ROPE_FORM_STRIDED 0u
#define TSR_ROPE_FORM_VECTORS 1u /* as vectors of four components, aligned to their size */

/* The innermost dimension of the walk is the pairs of a row, in groups of four. Positions may be
 * the same along the outermost dimension. Its size in the walk is then 1, and an invocation rotates
 * the `repeats` rows along it by the same angles, which it computes once. */
struct tsr_rope_push {
    TSR_ADDRESS y, x;
    TSR_ADDRESS positions;
    TSR_ADDRESS table; /* for each pair its frequency, as a fraction of a turn times 2^64 */
    TSR_WALK walk;
    TSR_UINT y_strides[TSR_WALK_DIMS]; /* the last: from a pair's first component to the next's */
    TSR_UINT x_strides[TSR_WALK_DIMS];
    TSR_UINT position_strides[TSR_WALK_DIMS - 1];
    TSR_UINT y_second, x_second; /* from a pair's first component to its second */
    TSR_FLOAT scale;
    TSR_UINT repeats; /* otherwise 1 */
};
TSR_PUSH_CHECK(tsr_rope_push);

#endif
