/* Computes which bytes of a buffer a layout uses, and whether two layouts of one buffer overlap. */
#ifndef TSR_TENSOR_OVERLAP_H
#define TSR_TENSOR_OVERLAP_H

#include "tessera/layout.h"

/* The half-open byte range from the first to the last element; begin == end if there are no
 * elements. */
typedef struct tsr__extent {
    uint64_t begin_bytes, end_bytes;
} tsr__extent;

tsr__extent tsr__layout_extent(const tsr_layout *layout);

/* Returns true if two indices of the layout refer to the same element, as in a broadcast view, so
 * that writing through it is ambiguous. Also returns true if a bounded search could not exclude it.
 */
bool tsr__layout_repeats(const tsr_layout *layout);

typedef enum tsr__overlap {
    TSR__OVERLAP_NONE,    /* no byte in common */
    TSR__OVERLAP_SAME,    /* the same elements, of one dtype, at the same indices: safe in place */
    TSR__OVERLAP_PARTIAL, /* a byte in common, or the search could not exclude it */
} tsr__overlap;

/* The answer is exact for views cut from one parent (with the same strides). For others the search
 * is bounded; if it gives up, the answer is PARTIAL. */
tsr__overlap tsr__layout_overlap(const tsr_layout *a, const tsr_layout *b);

#endif
