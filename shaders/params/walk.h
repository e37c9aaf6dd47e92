/* How invocations find their elements. A piece (src/tensor/pieces.h) has up to four dimensions, and
 * each invocation takes a group of neighbouring elements along the innermost one. */
#ifndef TSR_PARAMS_WALK_H
#define TSR_PARAMS_WALK_H

#include "types.h"

#define TSR_WALK_DIMS 4

/* `magic` and `shifts` replace divisions by a multiplication: n / size = (high32(n · magic) + n) >>
 * shift, for n < 2^31. */
struct tsr_walk {
    TSR_UINT items;   /* the number of invocations with work: groups per row × rows */
    TSR_UINT inner;   /* elements of the innermost dimension */
    TSR_UINT shifts;  /* the shifts for the divisors below, one byte for each */
    TSR_UINT size[3]; /* divisors: groups per row, then the sizes of dimensions 2 and 1 */
    TSR_UINT magic[3];
};

/* The type's name: C needs the word struct, GLSL does not allow it. */
#ifdef __STDC_VERSION__
#define TSR_WALK struct tsr_walk
#else
#define TSR_WALK tsr_walk
#endif

#endif
