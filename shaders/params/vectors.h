/* Push constants of the kernel for rows without gaps on Mesa's CPU driver: y = f(a, b, c). */
#ifndef TSR_PARAMS_VECTORS_H
#define TSR_PARAMS_VECTORS_H

#include "types.h"

/* A vector is 8 bytes of neighbouring elements, which one SIMD lane stores at once: two of f32, or
 * four of 16-bit floats. */
#define TSR_VECTOR_BYTES 8

struct tsr_vectors_push {
    TSR_UINT identity[16]; /* TSR_IDENTITY_16 */
    TSR_ADDRESS y, a, b;   /* their first rows */
    TSR_ADDRESS c;         /* the third input; if there is none, alpha and beta as two words */
    TSR_UINT y_row, a_row, b_row, c_row; /* bytes from one row to the next */
    TSR_UINT rows, vectors;              /* vectors of y in a row */
    TSR_UINT magic, shift;               /* to divide by the blocks in a row; see params/walk.h */
};
TSR_PUSH_CHECK(tsr_vectors_push);

/* The function f, a specialization constant: one of TSR_EW_… in params/elementwise.h, or one of
 * these. */
#define TSR_VECTORS_ACTIVATE 64u
#define TSR_VECTORS_ACTIVATE_GRAD 65u
#define TSR_VECTORS_CONVERT 66u
#define TSR_VECTORS_MOVE 67u /* copies bits, for any dtype */
#define TSR_VECTORS_ACTIVATE_MUL 68u

/* The form of an operand's rows, a specialization constant. It is the alignment of the operand's
 * vectors in bytes (8, 4 or 2), or TSR_VECTORS_ONE. */
#define TSR_VECTORS_ONE 0u /* one element for the whole row */

#endif
