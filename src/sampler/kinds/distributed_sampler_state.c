/* Saves and loads the distributed sampler's own data in a saved state. The sampler that loads the
 * state may have another number of ranks. The state contains these values:
 *
 *     interleaved split   ranks  rank  offset
 *     contiguous split    ranks  rank  number of earlier partitions  (ranks  given) of each */
#include <inttypes.h>

#include "sampler/kinds/distributed_sampler.h"

tsr_status tsr__distributed_save(const tsr_sampler *sampler, tsr__state_writer *writer)
{
    const tsr__distributed *self = (const tsr__distributed *)sampler;
    const tsr__rank_items *partition = &self->partition;
    tsr__state_put(writer, partition->ranks);
    tsr__state_put(writer, partition->rank);
    if (partition->split == TSR_SPLIT_INTERLEAVED) {
        tsr__state_put(writer, partition->offset);
    } else {
        tsr__state_put(writer, (uint64_t)partition->count);
        for (int i = 0; i < partition->count; i++) {
            tsr__state_put(writer, partition->before[i].ranks);
            tsr__state_put(writer, partition->before[i].given);
        }
    }
    if (self->base.inner == NULL || self->base.inner->class_->save == NULL)
        return TSR_OK;
    return self->base.inner->class_->save(self->base.inner, writer);
}

static tsr_status load_ranks(tsr__state_reader *reader, uint64_t *ranks)
{
    TSR__TRY(tsr__state_get(reader, ranks));
    if (*ranks < 1 || *ranks > TSR__MAX_RANKS)
        return TSR__STATE_FAIL(reader, "%" PRIu64 " ranks are outside 1 to %" PRId32, *ranks,
                               TSR__MAX_RANKS);
    return TSR_OK;
}

/* Loads the partition of the saved sampler. If `only_first` is true, fails if it is not the first
 * partition of the epoch, that is, if the number of ranks had changed before. */
static tsr_status load_partition(tsr__state_reader *reader, uint64_t n, bool only_first,
                                 tsr__rank_items *partition)
{
    uint64_t count;
    TSR__TRY(load_ranks(reader, &partition->ranks));
    TSR__TRY(tsr__state_get(reader, &partition->rank));
    if (partition->rank >= partition->ranks)
        return TSR__STATE_FAIL(reader, "there is no rank %" PRIu64 " of %" PRIu64, partition->rank,
                               partition->ranks);
    tsr__rank_items_start(partition, n);
    if (partition->split == TSR_SPLIT_INTERLEAVED) {
        TSR__TRY(tsr__state_get(reader, &partition->offset));
        if (partition->offset > TSR__MAX_ITEMS)
            return TSR__STATE_FAIL(reader, "%" PRIu64 " items cannot have been given",
                                   partition->offset);
    } else {
        TSR__TRY(tsr__state_get(reader, &count));
        if (count > TSR__MAX_REPARTITIONS)
            return TSR__STATE_FAIL(
                reader, "the number of ranks cannot have changed %" PRIu64 " times", count);
        for (; partition->count < (int)count; partition->count++) {
            TSR__TRY(load_ranks(reader, &partition->before[partition->count].ranks));
            TSR__TRY(tsr__state_get(reader, &partition->before[partition->count].given));
        }
    }
    if (only_first && (partition->offset > 0 || partition->count > 0))
        return TSR__STATE_FAIL(reader, "%s",
                               "the number of ranks cannot have changed for this sampler");
    if (n != TSR_LENGTH_UNKNOWN)
        tsr__rank_items_set_length(partition, n);
    return TSR_OK;
}

/* Partitions the items that remain at this position of the saved sampler again, for the number of
 * ranks of this sampler. */
static tsr_status repartition(const tsr__distributed *self, tsr__state_reader *reader,
                              uint64_t position, tsr__rank_items *partition)
{
    uint64_t own_length = tsr__rank_items_length(partition, partition->rank), given;
    if (reader->nested)
        return TSR__STATE_FAIL(
            reader, "inside another distributed sampler, %" PRIu64 " ranks cannot become %" PRIu64,
            partition->ranks, self->partition.ranks);
    if (tsr__distributed_drops_first(self))
        return TSR__STATE_FAIL(reader,
                               "in the order dotnet, the tail drop cannot go on with %" PRIu64
                               " ranks instead of %" PRIu64 ": the order depends on it",
                               self->partition.ranks, partition->ranks);
    if (partition->tail == TSR_TAIL_UNEVEN && position == own_length && position > 0 &&
        own_length < tsr__rank_items_length(partition, 0))
        return TSR__STATE_FAIL(reader,
                               "whether other ranks have given an item more than rank %" PRIu64
                               " is not known: use the state of rank 0",
                               partition->rank);
    if (!tsr__mul_u64(position, partition->ranks, &given) || given > TSR__MAX_ITEMS)
        return TSR__STATE_FAIL(reader,
                               "%" PRIu64 " items of each of %" PRIu64 " ranks are too many",
                               position, partition->ranks);
    if (!tsr__rank_items_change_ranks(partition, position, self->partition.ranks,
                                      self->partition.rank))
        return TSR__STATE_FAIL(reader,
                               "the number of ranks has changed more than %d times in one epoch",
                               TSR__MAX_REPARTITIONS);
    return TSR_OK;
}

tsr_status tsr__distributed_load(tsr_sampler *sampler, uint64_t position, tsr__state_reader *reader,
                                 uint64_t *resumed)
{
    tsr__distributed *self = (tsr__distributed *)sampler;
    tsr__rank_items partition = self->partition;
    bool only_first = reader->nested || tsr__distributed_drops_first(self);
    TSR__TRY(load_partition(reader, self->partition.n, only_first, &partition));
    uint64_t own_length = tsr__rank_items_length(&partition, partition.rank);
    if (position > own_length && !reader->rounded)
        return TSR__STATE_FAIL(reader,
                               "position %" PRIu64 " is beyond the end: rank %" PRIu64
                               " has %" PRIu64 " items",
                               position, partition.rank, own_length);
    position = tsr__min_u64(position, own_length);
    bool is_anew = partition.ranks != self->partition.ranks;
    if (is_anew) {
        TSR__TRY(repartition(self, reader, position, &partition));
        position = 0;
    } else {
        partition.rank = self->partition.rank;
        position = tsr__min_u64(position, tsr__rank_items_length(&partition, partition.rank));
    }
    if (self->base.inner != NULL && self->base.inner->class_->load != NULL) {
        uint64_t ignored;
        reader->nested = true;
        TSR__TRY(self->base.inner->class_->load(self->base.inner, 0, reader, &ignored));
    }
    self->partition = partition;
    *resumed = position;
    return TSR_OK;
}
