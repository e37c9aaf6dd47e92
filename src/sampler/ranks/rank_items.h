/* Computes which items belong to which rank. The items are those of an order: a permutation, or the
 * items of a wrapped sampler. A partition is the division of an epoch's items among the ranks. (The
 * partitions of shard.h are ranges of one length; these may be interleaved, padded and dropped.) */
#ifndef TSR_SAMPLER_RANKS_RANK_ITEMS_H
#define TSR_SAMPLER_RANKS_RANK_ITEMS_H

#include <stdbool.h>

#include "tessera/sampler.h"

/* How often the number of ranks can change in one epoch with a contiguous split. */
#define TSR__MAX_REPARTITIONS 8

/* An earlier partition of the epoch's items. It ended when the number of ranks changed; by then,
 * each of its `ranks` ranks had given `given` items. */
typedef struct tsr__earlier_split {
    uint64_t ranks, given;
    uint64_t items; /* number of items that were divided */
} tsr__earlier_split;

typedef struct tsr__rank_items {
    uint64_t n; /* number of items of the order, or TSR_LENGTH_UNKNOWN (only if interleaved) */
    uint64_t ranks, rank;
    tsr_tail tail;
    tsr_split split;
    /* For an interleaved split: how many items of the order were given out before the last change
     * of the number of ranks. */
    uint64_t offset;
    /* For a contiguous split: the earlier partitions of this epoch, oldest first. */
    tsr__earlier_split before[TSR__MAX_REPARTITIONS];
    int count;
    /* number of items to partition: n minus those that earlier partitions have given */
    uint64_t left;
} tsr__rank_items;

/* Several consecutive items of one rank. Their positions in the order are first, first + step, …,
 * `count` in total. */
typedef struct tsr__item_run {
    uint64_t first, step, count;
    bool padding; /* the items are padding: they repeat other items */
} tsr__item_run;

/* Starts the first partition of an epoch. n is the number of items, or TSR_LENGTH_UNKNOWN. */
void tsr__rank_items_start(tsr__rank_items *partition, uint64_t n);
/* Sets n after it has become known, and computes `left`. */
void tsr__rank_items_set_length(tsr__rank_items *partition, uint64_t n);

/* Returns the total number of items of all ranks. Padding counts, dropped items do not. n must be
 * known. */
uint64_t tsr__rank_items_total(const tsr__rank_items *partition);
/* Returns the number of items of a rank, or TSR_LENGTH_UNKNOWN if n is not known. */
uint64_t tsr__rank_items_length(const tsr__rank_items *partition, uint64_t rank);
/* Returns the positions of this rank's items, from its item number `item` on. The result contains
 * at least one item and at most `most`. The rank must have this item, and n must be known. */
tsr__item_run tsr__rank_items_find(const tsr__rank_items *partition, uint64_t item, uint64_t most);

/* Changes the number of ranks after every rank has given `given` items: partitions the remaining
 * items among the new ranks. Returns false if the number of ranks has changed too often in this
 * epoch. */
bool tsr__rank_items_change_ranks(tsr__rank_items *partition, uint64_t given, uint64_t ranks,
                                  uint64_t rank);

#endif
