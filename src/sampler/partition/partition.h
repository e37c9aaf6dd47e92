/* Computes which items of an order go to which rank. */
#ifndef TSR_SAMPLER_PARTITION_PARTITION_H
#define TSR_SAMPLER_PARTITION_PARTITION_H

#include <stdbool.h>

#include "tessera/sampler.h"

/* How often an epoch with a contiguous split can be resumed with another number of ranks. */
#define TSR__MAX_REPARTITIONS 8

/* An earlier partition of the epoch, before the number of ranks changed: each of `ranks` ranks has
 * given `given` items. */
typedef struct tsr__partition_before {
    uint64_t ranks, given;
    uint64_t items; /* that it partitioned */
} tsr__partition_before;

typedef struct tsr__partition {
    uint64_t n; /* items of the order, or TSR_LENGTH_UNKNOWN (interleaved only) */
    uint64_t ranks, rank;
    tsr_tail tail;
    tsr_split split;
    /* Interleaved: items at the start of the order that earlier partitions have given. */
    uint64_t offset;
    /* Contiguous: the earlier partitions, oldest first. */
    tsr__partition_before before[TSR__MAX_REPARTITIONS];
    int count;
    uint64_t left; /* items to partition: n, less those that earlier partitions have given */
} tsr__partition;

/* A run of one rank's items at regular positions. */
typedef struct tsr__partition_run {
    uint64_t first, step, count; /* positions in the order */
    bool padding;                /* the items are repeated as padding */
} tsr__partition_run;

/* Starts the first partition of an epoch with n items, or TSR_LENGTH_UNKNOWN. */
void tsr__partition_start(tsr__partition *partition, uint64_t n);
/* Sets n once it is known, and computes `left`. */
void tsr__partition_set_length(tsr__partition *partition, uint64_t n);

/* Returns the number of items of all ranks, with padding and without dropped items. n must be
 * known.
 */
uint64_t tsr__partition_total(const tsr__partition *partition);
/* Returns the number of a rank's items, or TSR_LENGTH_UNKNOWN. */
uint64_t tsr__partition_length(const tsr__partition *partition, uint64_t rank);
/* Returns where this rank's items from number `item` on are: at least one, at most `most`. The rank
 * must have this item, and n must be known. */
tsr__partition_run tsr__partition_find(const tsr__partition *partition, uint64_t item,
                                       uint64_t most);

/* Partitions the remaining items among another number of ranks, after every rank has given `given`
 * items. Returns false if the number of ranks has changed too often. */
bool tsr__partition_change_ranks(tsr__partition *partition, uint64_t given, uint64_t ranks,
                                 uint64_t rank);

#endif
