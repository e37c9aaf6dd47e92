/* Push constants that describe how rows are divided among subgroups (row_parts.glsl). A part of
 * a row is the elements or vectors that one subgroup works on. */
#ifndef TSR_PARAMS_ROW_PARTS_H
#define TSR_PARAMS_ROW_PARTS_H

#include "types.h"

struct tsr_row_parts {
    TSR_UINT rows, extent; /* extent: the length of a row, in elements or in vectors, as the kernel
                              counts parts */
    TSR_UINT across;       /* parts of a row */
    TSR_UINT magic, shift; /* to divide by `across`; see params/walk.h */
};

/* The type's name: C needs the word struct, GLSL does not allow it. */
#ifdef __STDC_VERSION__
#define TSR_ROW_PARTS struct tsr_row_parts
#else
#define TSR_ROW_PARTS tsr_row_parts
#endif

#endif
