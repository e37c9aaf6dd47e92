/* Who gets what. Interleaved, the items that all ranks have given in step are the first of the
 * order, so that what is left is the rest of it, however often the number of ranks changes.
 * Contiguous, what is left is the end of each rank's stretch, and these laid end to end are dealt
 * anew; finding an item goes back through the deals, the last one first. */
#include "sampler/partition/partition.h"

#include "base/checked.h"

/* How `items` are cut for a contiguous split: stretches of one size, then of another, and what no
 * rank gets. */
typedef struct cut {
    uint64_t count[2], size[2], over;
} cut;

static cut cut_of(uint64_t items, uint64_t ranks, tsr_tail tail)
{
    uint64_t size = items / ranks, more = items % ranks;
    switch (tail) {
    case TSR_TAIL_UNEVEN:
        return (cut){{more, ranks - more}, {size + 1, size}, 0};
    case TSR_TAIL_DROP:
        return (cut){{ranks, 0}, {size, 0}, more};
    case TSR_TAIL_PAD:
    case TSR_TAIL_PAD_MASK:
        break;
    }
    /* What is really there of stretches that padding makes equally long. */
    size += more != 0;
    if (size == 0)
        return (cut){{0, 0}, {0, 0}, 0};
    return (cut){{items / size, items % size != 0}, {size, items % size}, 0};
}

/* The most items that a rank has. */
static uint64_t longest(uint64_t items, uint64_t ranks, tsr_tail tail)
{
    return tail == TSR_TAIL_DROP ? items / ranks : tsr__div_up_u64(items, ranks);
}

static uint64_t after(uint64_t size, uint64_t given)
{
    return size - tsr__min_u64(size, given);
}

/* Items left of `items` when each rank has given so many: none at the end of the epoch, where also
 * what was dropped has gone. */
static uint64_t left_of(uint64_t items, uint64_t ranks, tsr_tail tail, uint64_t given)
{
    if (given >= longest(items, ranks, tail))
        return 0;
    cut all = cut_of(items, ranks, tail);
    return all.count[0] * after(all.size[0], given) + all.count[1] * after(all.size[1], given) +
           all.over;
}

void tsr__deal_end_at(tsr__deal *deal, uint64_t n)
{
    deal->n = n;
    if (deal->split == TSR_SPLIT_INTERLEAVED) {
        deal->left = after(n, deal->offset);
        return;
    }
    deal->left = n;
    for (int i = 0; i < deal->count; i++) {
        deal->before[i].items = deal->left;
        deal->left = left_of(deal->left, deal->before[i].ranks, deal->tail, deal->before[i].given);
    }
}

void tsr__deal_start(tsr__deal *deal, uint64_t n)
{
    deal->offset = 0;
    deal->count = 0;
    deal->n = n;
    deal->left = n;
}

uint64_t tsr__deal_total(const tsr__deal *deal)
{
    if (deal->tail == TSR_TAIL_UNEVEN)
        return deal->left;
    return longest(deal->left, deal->ranks, deal->tail) * deal->ranks;
}

uint64_t tsr__deal_length(const tsr__deal *deal, uint64_t rank)
{
    if (deal->n == TSR_LENGTH_UNKNOWN)
        return TSR_LENGTH_UNKNOWN;
    if (deal->tail == TSR_TAIL_UNEVEN)
        return deal->left / deal->ranks + (rank < deal->left % deal->ranks);
    return longest(deal->left, deal->ranks, deal->tail);
}

/* Place `at` of what one deal had left, as a place of what it had; *run items follow it there. */
static uint64_t go_back(const tsr__deal_before *before, tsr_tail tail, uint64_t at, uint64_t *run)
{
    cut pieces = cut_of(before->items, before->ranks, tail);
    uint64_t start = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t rest = after(pieces.size[i], before->given);
        uint64_t all = pieces.count[i] * rest;
        if (at < all) {
            *run = tsr__min_u64(*run, rest - at % rest);
            return start + at / rest * pieces.size[i] + before->given + at % rest;
        }
        at -= all;
        start += pieces.count[i] * pieces.size[i];
    }
    return start + at;
}

static tsr__deal_run contiguous(const tsr__deal *deal, uint64_t item, uint64_t most)
{
    uint64_t size = longest(deal->left, deal->ranks, deal->tail), at = deal->rank * size + item;
    if (deal->tail == TSR_TAIL_UNEVEN) {
        size = deal->left / deal->ranks;
        at = deal->rank * size + tsr__min_u64(deal->rank, deal->left % deal->ranks) + item;
    }
    if (at >= deal->left) {
        uint64_t first = (at - deal->left) % deal->n;
        return (tsr__deal_run){first, 1, tsr__min_u64(most, deal->n - first), true};
    }
    tsr__deal_run run = {at, 1, tsr__min_u64(most, deal->left - at), false};
    for (int i = deal->count; i-- > 0;)
        run.first = go_back(&deal->before[i], deal->tail, run.first, &run.count);
    return run;
}

static tsr__deal_run interleaved(const tsr__deal *deal, uint64_t item, uint64_t most)
{
    uint64_t at = item * deal->ranks + deal->rank;
    if (at >= deal->left)
        return (tsr__deal_run){(at - deal->left) % deal->n, 1, 1, true};
    uint64_t real = (deal->left - at - 1) / deal->ranks + 1;
    return (tsr__deal_run){deal->offset + at, deal->ranks, tsr__min_u64(most, real), false};
}

tsr__deal_run tsr__deal_where(const tsr__deal *deal, uint64_t item, uint64_t most)
{
    most = tsr__min_u64(most, tsr__deal_length(deal, deal->rank) - item);
    return deal->split == TSR_SPLIT_INTERLEAVED ? interleaved(deal, item, most)
                                                : contiguous(deal, item, most);
}

bool tsr__deal_again(tsr__deal *deal, uint64_t given, uint64_t ranks, uint64_t rank)
{
    if (given > 0 && deal->split == TSR_SPLIT_INTERLEAVED) {
        bool known = deal->n != TSR_LENGTH_UNKNOWN;
        if (known && given >= longest(deal->left, deal->ranks, deal->tail))
            deal->offset = deal->n;
        else
            deal->offset += given * deal->ranks;
        if (known)
            deal->left = after(deal->n, deal->offset);
    } else if (given > 0) {
        if (deal->count == TSR_MAX__DEALS)
            return false;
        deal->before[deal->count++] = (tsr__deal_before){deal->ranks, given, deal->left};
        deal->left = left_of(deal->left, deal->ranks, deal->tail, given);
    }
    deal->ranks = ranks;
    deal->rank = rank;
    return true;
}
