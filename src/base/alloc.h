/* Host memory. All of the library's allocations come through here, so that tests can make any of
 * them fail. */
#ifndef TSR_BASE_ALLOC_H
#define TSR_BASE_ALLOC_H

#include "tessera/base.h"

/* Zeroed memory for count × size bytes, or NULL with TSR_ERR_NO_MEMORY recorded (also when the
 * product overflows). A size of 0 gives a unique pointer. */
void *tsr__calloc(size_t count, size_t size) TSR_NODISCARD;

/* Grows `*array` to hold at least `needed` elements of `size` bytes; `*capacity` counts elements.
 * New elements are not initialised. On failure nothing has changed. */
tsr_status tsr__grow(void **array, size_t *capacity, size_t needed, size_t size) TSR_NODISCARD;

/* NULL with the error recorded when memory is out. */
char *tsr__strdup(const char *text) TSR_NODISCARD;

void tsr__free(void *memory);

#endif
