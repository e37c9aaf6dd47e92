/* Host memory. The library makes all its allocations with these functions, so that tests can make
 * any of them fail. */
#ifndef TSR_BASE_ALLOC_H
#define TSR_BASE_ALLOC_H

#include "tessera/base.h"

/* Returns count × size bytes of memory that are set to 0. Returns NULL and records the error if
 * there is not enough memory or the product overflows. If the product is 0, the function allocates
 * one byte, so that NULL always means a failure. */
void *tsr__calloc(size_t count, size_t size) TSR_NODISCARD;

/* Grows `*array` so that it can hold at least `needed` elements of `size` bytes. `*capacity` is the
 * number of elements for which there is memory. The new elements are not initialised. On failure
 * the array and its capacity do not change. */
tsr_status tsr__grow(void **array, size_t *capacity, size_t needed, size_t size) TSR_NODISCARD;

/* A buffer that grows when bytes are appended. {0} is empty. The owner must free `data`. */
typedef struct tsr__bytes {
    uint8_t *data;
    size_t size, capacity;
} tsr__bytes;
/* Appends `size` bytes. On failure `to` does not change. */
tsr_status tsr__bytes_append(tsr__bytes *to, const void *bytes, size_t size) TSR_NODISCARD;

/* Returns a copy of `text`. Returns NULL and records the error if there is not enough memory. */
char *tsr__strdup(const char *text) TSR_NODISCARD;

void tsr__free(void *memory);

#endif
