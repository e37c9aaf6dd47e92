/* Decides which class each place of an epoch gets. The places are divided into batches. */
#ifndef TSR_SAMPLER_KINDS_STRATIFIED_CLASSES_H
#define TSR_SAMPLER_KINDS_STRATIFIED_CLASSES_H

#include "sampler/sampler.h"

/* Writes the class of each place p to classes[p]. There are `count` places, at most 2^31, and each
 * class gets as many places as its size says. The sizes must be positive, and their sum must be
 * `count`. The places of a batch are assigned one after the other. Each place goes to the class
 * that lacks the most places, compared with its proportion of all places up to the end of this
 * batch. */
tsr_status tsr__assign_classes(const int64_t *sizes, uint64_t class_count, uint64_t count,
                               uint64_t batch_size, uint32_t *classes);

#endif
