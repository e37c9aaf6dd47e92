/* Sorts items by a number that each item has. */
#ifndef TSR_SAMPLER_ORDER_SORT_ITEMS_H
#define TSR_SAMPLER_ORDER_SORT_ITEMS_H

#include "sampler/sampler.h"

/* Gives the numbers 0 … count − 1, sorted by their keys; numbers with equal keys are in ascending
 * order. count must be at most 2^32. The caller must free *out. */
tsr_status tsr__sort_items(const int64_t *keys, uint64_t count, uint32_t **out);

/* Check the params of samplers that use a property of each item, such as its length.
 * tsr__check_items fails if `items`, the array of this property, is NULL or `count` is too large;
 * tsr__check_item_batches fails if the batch size is not positive or the order is neither feistel
 * nor none. */
tsr_status tsr__check_items(const char *what, const void *items, const char *name, uint64_t count);
tsr_status tsr__check_item_batches(const char *what, int64_t batch_size, tsr_order order);

#endif
