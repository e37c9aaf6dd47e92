/* Declarations that the files of the distributed sampler share. */
#ifndef TSR_SAMPLER_KINDS_DISTRIBUTED_H
#define TSR_SAMPLER_KINDS_DISTRIBUTED_H

#include "sampler/order/order.h"
#include "sampler/partition/partition.h"
#include "sampler/sampler.h"

#define TSR__MAX_RANKS INT32_MAX

typedef struct tsr__distributed {
    tsr_sampler base;
    uint64_t n; /* items of the dataset, if no sampler is wrapped */
    int64_t seed;
    tsr_torch_options torch;
    tsr__partition partition;
    tsr__order order; /* of the dataset */
    bool ready;       /* `order` is the order of the current epoch */
    /* If the length is unknown: memory to check whether there is an item. */
    int64_t *scratch;
} tsr__distributed;

/* Returns whether the items that the tail drops are left out before the shuffle, as they are in the
 * order dotnet. All other orders shuffle first. */
static inline bool tsr__distributed_drops_first(const tsr__distributed *self)
{
    return self->base.inner == NULL && self->order.kind == TSR_ORDER_DOTNET &&
           self->partition.tail == TSR_TAIL_DROP;
}

/* The class's functions save and load. */
tsr_status tsr__distributed_save(const tsr_sampler *sampler, tsr__state_writer *writer);
tsr_status tsr__distributed_load(tsr_sampler *sampler, uint64_t position, tsr__state_reader *reader,
                                 uint64_t *resumed);

#endif
