/* Assigns classes to the places of an epoch that is cut into batches. */
#ifndef TSR_SAMPLER_KINDS_STRATIFIED_CLASSES_H
#define TSR_SAMPLER_KINDS_STRATIFIED_CLASSES_H

#include "sampler/sampler.h"

/* Writes classes[p] for each of `count` places, where each class occurs as often as its size. The
 * sizes must be positive and add up to `count`, at most 2^31. Within a batch, each place goes to
 * the class that is furthest behind its share of all places up to the end of that batch. */
tsr_status tsr__assign_classes(const int64_t *sizes, uint64_t class_count, uint64_t count,
                               uint64_t batch_size, uint32_t *classes);

#endif
