/* Computes which bytes of a buffer a layout uses, and whether two layouts of one buffer overlap. */
#ifndef TSR_TENSOR_OVERLAP_H
#define TSR_TENSOR_OVERLAP_H

#include "tessera/layout.h"

/* The bytes from the start of the first element to the end of the last one: begin_bytes is
 * included, end_bytes is not. The two are equal if there are no elements. */
typedef struct tsr__extent {
    uint64_t begin_bytes, end_bytes;
} tsr__extent;

tsr__extent tsr__layout_extent(const tsr_layout *layout);

/* Returns true if two indices of the layout refer to the same element, as in a broadcast view. The
 * result of writing through such a layout would be ambiguous. The search for them stops after a
 * limited number of steps; the function then returns true, too. */
bool tsr__layout_repeats(const tsr_layout *layout);

typedef enum tsr__overlap {
    TSR__OVERLAP_NONE, /* no byte in common */
    /* the same dtype, and the same element at every index: an operation in place is safe */
    TSR__OVERLAP_SAME,
    TSR__OVERLAP_PARTIAL, /* some bytes in common, or the search could not rule that out */
} tsr__overlap;

/* Compares the bytes that the layouts use. The answer is exact for views that were sliced from one
 * tensor and have the same strides. For other layouts, the search for a common byte stops after a
 * limited number of steps; the function then returns TSR__OVERLAP_PARTIAL. */
tsr__overlap tsr__layout_overlap(const tsr_layout *a, const tsr_layout *b);

#endif
