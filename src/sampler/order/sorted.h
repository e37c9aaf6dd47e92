/* Items in the order of a number that each has. */
#ifndef TSR_SAMPLER_ORDER_SORTED_H
#define TSR_SAMPLER_ORDER_SORTED_H

#include "sampler/sampler.h"

/* 0 … count − 1 in the order of their keys, equal ones by index; to be freed. count is at most
 * 2^32. */
tsr_status tsr__sorted(const int64_t *keys, uint64_t count, uint32_t **out);

/* What the samplers by what items are have in common: that there are `items`, not too many, a batch
 * size, and an order that is feistel or none. */
tsr_status tsr__sorted_check(const char *what, const void *items, const char *name, uint64_t count);
tsr_status tsr__sorted_check_batches(const char *what, int64_t batch_size, tsr_order order);

#endif
