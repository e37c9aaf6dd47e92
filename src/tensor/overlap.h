/* Which buffer bytes a layout touches, and whether two layouts of one buffer touch the same
 * element. */
#ifndef TSR_TENSOR_OVERLAP_H
#define TSR_TENSOR_OVERLAP_H

#include "tessera/layout.h"

/* The half-open byte range from the first to the last element; begin == end when there are no
 * elements. */
typedef struct tsr__extent {
    uint64_t begin_bytes, end_bytes;
} tsr__extent;

tsr__extent tsr__layout_extent(const tsr_layout *layout);

/* True when two indices of the layout name the same element (a broadcast view, for example), so
 * that writing through it is ambiguous. */
bool tsr__layout_repeats(const tsr_layout *layout);

typedef enum tsr__overlap {
    TSR__OVERLAP_NONE,    /* no byte in common */
    TSR__OVERLAP_SAME,    /* the same elements, of one dtype, at the same indices: safe in place */
    TSR__OVERLAP_PARTIAL, /* some byte in common, or it could not be excluded */
} tsr__overlap;

/* Exact for views cut from one parent (same strides); otherwise a bounded search, whose giving up
 * counts as PARTIAL. */
tsr__overlap tsr__layout_overlap(const tsr_layout *a, const tsr_layout *b);

#endif
