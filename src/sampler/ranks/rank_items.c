/* Assigns items to ranks, and assigns the remaining items again when the number of ranks changes
 * during an epoch. At such a change, every rank has given the same number of items.
 *
 * In an interleaved split, the given items are the first ones of the order, so the remaining items
 * are the rest of the order. This also holds after several changes. In a contiguous split, the
 * remaining items are the ends of all ranks' ranges. These ends, placed one after the other, are
 * partitioned again. To find an item, its position is converted back through the earlier
 * partitions, the last one first. */
#include "sampler/ranks/rank_items.h"

#include "base/checked.h"

/* The ranges of a contiguous split: first count[0] ranges of size[0] items, then count[1] ranges of
 * size[1] items. The last `over` items belong to no rank. */
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
    /* Padding makes all ranges equally long. The cut counts only the items before the padding, so
     * the last ranges may be shorter or empty. */
    size += more != 0;
    if (size == 0)
        return (cut){{0, 0}, {0, 0}, 0};
    return (cut){{items / size, items % size != 0}, {size, items % size}, 0};
}

/* Returns the number of items, with padding, of the rank that has the most. */
static uint64_t longest(uint64_t items, uint64_t ranks, tsr_tail tail)
{
    return tail == TSR_TAIL_DROP ? items / ranks : tsr__div_up_u64(items, ranks);
}

static uint64_t after(uint64_t size, uint64_t given)
{
    return size - tsr__min_u64(size, given);
}

/* Returns how many of `items` items remain after each rank has given `given` of them. If the ranks
 * have given all their items, none remain, not even the items that TSR_TAIL_DROP leaves out. */
static uint64_t left_of(uint64_t items, uint64_t ranks, tsr_tail tail, uint64_t given)
{
    if (given >= longest(items, ranks, tail))
        return 0;
    cut taken = cut_of(items, ranks, tail);
    return taken.count[0] * after(taken.size[0], given) +
           taken.count[1] * after(taken.size[1], given) + taken.over;
}

void tsr__rank_items_set_length(tsr__rank_items *partition, uint64_t n)
{
    partition->n = n;
    if (partition->split == TSR_SPLIT_INTERLEAVED) {
        partition->left = after(n, partition->offset);
        return;
    }
    partition->left = n;
    for (int i = 0; i < partition->count; i++) {
        partition->before[i].items = partition->left;
        partition->left = left_of(partition->left, partition->before[i].ranks, partition->tail,
                                  partition->before[i].given);
    }
}

void tsr__rank_items_start(tsr__rank_items *partition, uint64_t n)
{
    partition->offset = 0;
    partition->count = 0;
    partition->n = n;
    partition->left = n;
}

uint64_t tsr__rank_items_total(const tsr__rank_items *partition)
{
    if (partition->tail == TSR_TAIL_UNEVEN)
        return partition->left;
    return longest(partition->left, partition->ranks, partition->tail) * partition->ranks;
}

uint64_t tsr__rank_items_length(const tsr__rank_items *partition, uint64_t rank)
{
    if (partition->n == TSR_LENGTH_UNKNOWN)
        return TSR_LENGTH_UNKNOWN;
    if (partition->tail == TSR_TAIL_UNEVEN)
        return partition->left / partition->ranks + (rank < partition->left % partition->ranks);
    return longest(partition->left, partition->ranks, partition->tail);
}

/* Converts a position among the items that an earlier partition left over to a position among all
 * items of that partition. Of the *run consecutive positions from `position` on, only the first
 * ones may be consecutive there, too; *run is reduced to their number. */
static uint64_t go_back(const tsr__earlier_split *before, tsr_tail tail, uint64_t position,
                        uint64_t *run)
{
    cut pieces = cut_of(before->items, before->ranks, tail);
    uint64_t start = 0;
    for (int i = 0; i < 2; i++) {
        uint64_t rest = after(pieces.size[i], before->given);
        uint64_t taken = pieces.count[i] * rest;
        if (position < taken) {
            *run = tsr__min_u64(*run, rest - position % rest);
            return start + position / rest * pieces.size[i] + before->given + position % rest;
        }
        position -= taken;
        start += pieces.count[i] * pieces.size[i];
    }
    return start + position;
}

static tsr__item_run contiguous(const tsr__rank_items *partition, uint64_t item, uint64_t most)
{
    uint64_t size = longest(partition->left, partition->ranks, partition->tail),
             position = partition->rank * size + item;
    if (partition->tail == TSR_TAIL_UNEVEN) {
        size = partition->left / partition->ranks;
        position = partition->rank * size +
                   tsr__min_u64(partition->rank, partition->left % partition->ranks) + item;
    }
    if (position >= partition->left) {
        uint64_t first = (position - partition->left) % partition->n;
        return (tsr__item_run){first, 1, tsr__min_u64(most, partition->n - first), true};
    }
    tsr__item_run run = {position, 1, tsr__min_u64(most, partition->left - position), false};
    for (int i = partition->count; i-- > 0;)
        run.first = go_back(&partition->before[i], partition->tail, run.first, &run.count);
    return run;
}

static tsr__item_run interleaved(const tsr__rank_items *partition, uint64_t item, uint64_t most)
{
    uint64_t position = item * partition->ranks + partition->rank;
    if (position >= partition->left)
        return (tsr__item_run){(position - partition->left) % partition->n, 1, 1, true};
    uint64_t real = (partition->left - position - 1) / partition->ranks + 1;
    return (tsr__item_run){partition->offset + position, partition->ranks, tsr__min_u64(most, real),
                           false};
}

tsr__item_run tsr__rank_items_find(const tsr__rank_items *partition, uint64_t item, uint64_t most)
{
    most = tsr__min_u64(most, tsr__rank_items_length(partition, partition->rank) - item);
    return partition->split == TSR_SPLIT_INTERLEAVED ? interleaved(partition, item, most)
                                                     : contiguous(partition, item, most);
}

bool tsr__rank_items_change_ranks(tsr__rank_items *partition, uint64_t given, uint64_t ranks,
                                  uint64_t rank)
{
    if (given > 0 && partition->split == TSR_SPLIT_INTERLEAVED) {
        bool known = partition->n != TSR_LENGTH_UNKNOWN;
        if (known && given >= longest(partition->left, partition->ranks, partition->tail))
            partition->offset = partition->n;
        else
            partition->offset += given * partition->ranks;
        if (known)
            partition->left = after(partition->n, partition->offset);
    } else if (given > 0) {
        if (partition->count == TSR__MAX_REPARTITIONS)
            return false;
        partition->before[partition->count++] =
            (tsr__earlier_split){partition->ranks, given, partition->left};
        partition->left = left_of(partition->left, partition->ranks, partition->tail, given);
    }
    partition->ranks = ranks;
    partition->rank = rank;
    return true;
}
