/* What a distributed sampler adds to a state, and how it goes on with another number of ranks:
 *
 *     ranks  rank  offset                                    interleaved
 *     ranks  rank  deals before: number, (ranks, given) …    contiguous
 */
#include <inttypes.h>

#include "sampler/kinds/distributed.h"

tsr_status tsr__distributed_save(const tsr_sampler *sampler, tsr__state_writer *writer)
{
    const tsr__distributed *self = (const tsr__distributed *)sampler;
    const tsr__deal *deal = &self->deal;
    tsr__state_put(writer, deal->ranks);
    tsr__state_put(writer, deal->rank);
    if (deal->split == TSR_SPLIT_INTERLEAVED) {
        tsr__state_put(writer, deal->offset);
    } else {
        tsr__state_put(writer, (uint64_t)deal->count);
        for (int i = 0; i < deal->count; i++) {
            tsr__state_put(writer, deal->before[i].ranks);
            tsr__state_put(writer, deal->before[i].given);
        }
    }
    if (self->inner == NULL || self->inner->class_->save == NULL)
        return TSR_OK;
    return self->inner->class_->save(self->inner, writer);
}

static tsr_status load_ranks(tsr__state_reader *reader, uint64_t *ranks)
{
    TSR__TRY(tsr__state_get(reader, ranks));
    if (*ranks < 1 || *ranks > TSR_MAX__RANKS)
        return TSR__STATE_FAIL(reader, "there cannot be %" PRIu64 " ranks", *ranks);
    return TSR_OK;
}

/* The deal of the saved sampler, which is a first one where there cannot be another. */
static tsr_status load_deal(tsr__state_reader *reader, uint64_t n, bool only_first, tsr__deal *deal)
{
    uint64_t count;
    TSR__TRY(load_ranks(reader, &deal->ranks));
    TSR__TRY(tsr__state_get(reader, &deal->rank));
    if (deal->rank >= deal->ranks)
        return TSR__STATE_FAIL(reader, "there is no rank %" PRIu64 " of %" PRIu64, deal->rank,
                               deal->ranks);
    tsr__deal_start(deal, n);
    if (deal->split == TSR_SPLIT_INTERLEAVED) {
        TSR__TRY(tsr__state_get(reader, &deal->offset));
        if (deal->offset > TSR_MAX__ITEMS)
            return TSR__STATE_FAIL(reader, "%" PRIu64 " items cannot have been given",
                                   deal->offset);
    } else {
        TSR__TRY(tsr__state_get(reader, &count));
        if (count > TSR_MAX__DEALS)
            return TSR__STATE_FAIL(
                reader, "the number of ranks cannot have changed %" PRIu64 " times", count);
        for (; deal->count < (int)count; deal->count++) {
            TSR__TRY(load_ranks(reader, &deal->before[deal->count].ranks));
            TSR__TRY(tsr__state_get(reader, &deal->before[deal->count].given));
        }
    }
    if (only_first && (deal->offset > 0 || deal->count > 0))
        return TSR__STATE_FAIL(reader, "%s", "nothing can have been given before");
    if (n != TSR_LENGTH_UNKNOWN)
        tsr__deal_end_at(deal, n);
    return TSR_OK;
}

/* Whether a state has room for the deals before, whatever its other numbers are. */
static bool has_room(const tsr__deal *deal)
{
    uint8_t bytes[16];
    tsr__state_writer writer = {.data = bytes, .capacity = sizeof bytes};
    for (int i = 0; i < deal->count; i++) {
        tsr__state_put(&writer, deal->before[i].ranks);
        tsr__state_put(&writer, deal->before[i].given);
    }
    return !writer.full;
}

/* Turns the saved deal, at this position, into one for this sampler's ranks. */
static tsr_status deal_anew(const tsr__distributed *self, tsr__state_reader *reader,
                            uint64_t position, tsr__deal *deal)
{
    uint64_t own = tsr__deal_length(deal, deal->rank), given;
    if (reader->nested)
        return TSR__STATE_FAIL(
            reader, "inside another distributed sampler, %" PRIu64 " ranks cannot become %" PRIu64,
            deal->ranks, self->deal.ranks);
    if (tsr__distributed_drops_first(self))
        return TSR__STATE_FAIL(reader,
                               "in the order dotnet, the tail drop cannot go on with %" PRIu64
                               " ranks instead of %" PRIu64 ": the order depends on it",
                               self->deal.ranks, deal->ranks);
    if (deal->tail == TSR_TAIL_UNEVEN && position == own && position > 0 &&
        own < tsr__deal_length(deal, 0))
        return TSR__STATE_FAIL(reader,
                               "whether other ranks have given an item more than rank %" PRIu64
                               " is not known: use the state of rank 0",
                               deal->rank);
    if (!tsr__mul_u64(position, deal->ranks, &given) || given > TSR_MAX__ITEMS)
        return TSR__STATE_FAIL(reader,
                               "%" PRIu64 " items of each of %" PRIu64 " ranks are too many",
                               position, deal->ranks);
    if (!tsr__deal_again(deal, position, self->deal.ranks, self->deal.rank) || !has_room(deal))
        return TSR__STATE_FAIL(reader,
                               "the number of ranks has changed too often in one epoch: %d bytes "
                               "cannot tell what is left",
                               TSR_SAMPLER_STATE_BYTES);
    return TSR_OK;
}

tsr_status tsr__distributed_load(tsr_sampler *sampler, uint64_t position, tsr__state_reader *reader,
                                 uint64_t *resumed)
{
    tsr__distributed *self = (tsr__distributed *)sampler;
    tsr__deal deal = self->deal;
    bool only_first = reader->nested || tsr__distributed_drops_first(self);
    TSR__TRY(load_deal(reader, self->deal.n, only_first, &deal));
    uint64_t own = tsr__deal_length(&deal, deal.rank);
    if (position > own && !reader->rounded)
        return TSR__STATE_FAIL(reader,
                               "position %" PRIu64 " is beyond the end: rank %" PRIu64
                               " has %" PRIu64 " items",
                               position, deal.rank, own);
    position = tsr__min_u64(position, own);
    bool is_anew = deal.ranks != self->deal.ranks;
    if (is_anew) {
        TSR__TRY(deal_anew(self, reader, position, &deal));
        position = 0;
    } else {
        deal.rank = self->deal.rank;
        position = tsr__min_u64(position, tsr__deal_length(&deal, deal.rank));
    }
    if (self->inner != NULL && self->inner->class_->load != NULL) {
        uint64_t ignored;
        reader->nested = true;
        TSR__TRY(self->inner->class_->load(self->inner, 0, reader, &ignored));
    }
    self->deal = deal;
    *resumed = position;
    return TSR_OK;
}
