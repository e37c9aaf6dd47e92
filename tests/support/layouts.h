/* Small random layouts, and the brute force to compare with: the address of every element in
 * row-major order. */
#ifndef TESTS_SUPPORT_LAYOUTS_H
#define TESTS_SUPPORT_LAYOUTS_H

#include "support/random.h"
#include "tessera/layout.h"

#define LAYOUT_MAX_COUNT 4096

/* Fills `addresses` (LAYOUT_MAX_COUNT entries) and returns how many elements there are. */
int64_t layout_addresses(const tsr_layout *layout, int64_t *addresses);

/* Row-major sizes 0..5 (rarely 0), ndim 0..max_ndim, at most LAYOUT_MAX_COUNT elements. */
tsr_layout layout_random(uint64_t *random, tsr_dtype dtype, int max_ndim);

/* The same, changed by a few random views: slices with steps, transpositions, selections,
 * broadcasts. */
tsr_layout layout_random_view(uint64_t *random, tsr_dtype dtype, int max_ndim);

/* A few random views of `layout`; the number of elements stays within LAYOUT_MAX_COUNT. */
void layout_random_views_of(uint64_t *random, tsr_layout *layout);

/* Any small strides and offset at all, 0 among them. */
tsr_layout layout_random_strides(uint64_t *random, tsr_dtype dtype, int max_ndim,
                                 int64_t max_stride);

#endif
