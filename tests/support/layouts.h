/* Small random layouts, and their brute-force model: the address of every element in row-major
 * order. */
#ifndef TESTS_SUPPORT_LAYOUTS_H
#define TESTS_SUPPORT_LAYOUTS_H

#include "support/random.h"
#include "tessera/layout.h"

#define LAYOUT_MAX_COUNT 4096

/* Fills `addresses` (LAYOUT_MAX_COUNT entries) and returns the number of elements. */
int64_t layout_addresses(const tsr_layout *layout, int64_t *addresses);

/* Makes a row-major layout with sizes 0..5 (rarely 0), ndim 0..max_ndim and at most
 * LAYOUT_MAX_COUNT elements. */
tsr_layout layout_random(uint64_t *random, tsr_dtype dtype, int max_ndim);

/* Makes a layout as layout_random does, and changes it by a few random views: slices with steps,
 * transpositions, selections and broadcasts. */
tsr_layout layout_random_view(uint64_t *random, tsr_dtype dtype, int max_ndim);

/* Applies a few random views to `layout`. The number of elements stays within LAYOUT_MAX_COUNT. */
void layout_random_views_of(uint64_t *random, tsr_layout *layout);

/* Makes a layout with any small strides and offset, including 0. */
tsr_layout layout_random_strides(uint64_t *random, tsr_dtype dtype, int max_ndim,
                                 int64_t max_stride);

#endif
