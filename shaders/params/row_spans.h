/* Push constants that describe how rows are divided among subgroups (row_spans.glsl). A span of
 * a row is the elements or vectors that one subgroup works on. */
#ifndef TSR_PARAMS_ROW_SPANS_H
#define TSR_PARAMS_ROW_SPANS_H

#include "types.h"

struct tsr_row_spans {
    TSR_UINT rows, extent; /* extent: the length of a row, in elements or in vectors, as the kernel
                              counts spans */
    TSR_UINT across;       /* spans of a row */
    TSR_UINT magic, shift; /* to divide by `across`; see params/walk.h */
};

/* The type's name: C needs the word struct, GLSL does not allow it. */
#ifdef __STDC_VERSION__
#define TSR_ROW_SPANS struct tsr_row_spans
#else
#define TSR_ROW_SPANS tsr_row_spans
#endif

#endif
