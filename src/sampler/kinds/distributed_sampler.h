/* Declarations that the files of the distributed sampler share. */
#ifndef TSR_SAMPLER_KINDS_DISTRIBUTED_SAMPLER_H
#define TSR_SAMPLER_KINDS_DISTRIBUTED_SAMPLER_H

#include "sampler/order/order.h"
#include "sampler/ranks/rank_items.h"
#include "sampler/sampler.h"

#define TSR__MAX_RANKS INT32_MAX

typedef struct tsr__distributed {
    tsr_sampler base;
    uint64_t n; /* number of items of the dataset, if there is no wrapped sampler */
    int64_t seed;
    tsr_torch_options torch;
    tsr__rank_items partition;
    tsr__order order; /* the order of the dataset's items */
    bool ready;       /* whether `order` has been computed for the current epoch */
    /* Memory for one item of the wrapped sampler. The item is read only to see whether it exists,
     * which is necessary if the length is unknown. */
    int64_t *scratch;
} tsr__distributed;

/* Returns whether the dropped items at the tail are removed before the shuffle. This is so in the
 * order dotnet; in all other orders, they are removed after it. */
static inline bool tsr__distributed_drops_first(const tsr__distributed *self)
{
    return self->base.inner == NULL && self->order.kind == TSR_ORDER_DOTNET &&
           self->partition.tail == TSR_TAIL_DROP;
}

/* The functions `save` and `load` of the class of distributed samplers. */
tsr_status tsr__distributed_save(const tsr_sampler *sampler, tsr__state_writer *writer);
tsr_status tsr__distributed_load(tsr_sampler *sampler, uint64_t position, tsr__state_reader *reader,
                                 uint64_t *resumed);

#endif
