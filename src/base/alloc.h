/* Host memory. The library makes all its allocations with these functions, so that tests can make
 * any of them fail. */
#ifndef TSR_BASE_ALLOC_H
#define TSR_BASE_ALLOC_H

#include "tessera/base.h"

/* Returns zeroed memory of count × size bytes. Returns NULL, with the error recorded, if memory is
 * out or the product overflows. A size of 0 gives a unique pointer. */
void *tsr__calloc(size_t count, size_t size) TSR_NODISCARD;

/* Grows `*array` to hold at least `needed` elements of `size` bytes; `*capacity` counts elements.
 * New elements are not initialised. On failure nothing has changed. */
tsr_status tsr__grow(void **array, size_t *capacity, size_t needed, size_t size) TSR_NODISCARD;

/* Returns a copy of `text`, or NULL, with the error recorded, if memory is out. */
char *tsr__strdup(const char *text) TSR_NODISCARD;

void tsr__free(void *memory);

#endif
