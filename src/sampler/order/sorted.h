/* Sorts items by a number that each item has. */
#ifndef TSR_SAMPLER_ORDER_SORTED_H
#define TSR_SAMPLER_ORDER_SORTED_H

#include "sampler/sampler.h"

/* Gives 0 … count − 1 sorted by their keys, equal ones by index. The caller must free *out. count
 * must be at most 2^32. */
tsr_status tsr__sorted(const int64_t *keys, uint64_t count, uint32_t **out);

/* Checks that the samplers for properties of items share: `items` must not be NULL, nor be too
 * many; the batch size must be positive; the order must be feistel or none. */
tsr_status tsr__sorted_check(const char *what, const void *items, const char *name, uint64_t count);
tsr_status tsr__sorted_check_batches(const char *what, int64_t batch_size, tsr_order order);

#endif
