/* Which items of an order go to which rank: arithmetic only. */
#ifndef TSR_SAMPLER_PARTITION_PARTITION_H
#define TSR_SAMPLER_PARTITION_PARTITION_H

#include <stdbool.h>

#include "tessera/sampler.h"

/* How often an epoch's contiguous split can be resumed with another number of ranks. */
#define TSR__MAX_REPARTITIONS 8

/* What was dealt before the number of ranks changed: each of `ranks` has given `given`. */
typedef struct tsr__partition_before {
    uint64_t ranks, given;
    uint64_t items; /* that were there to be dealt then */
} tsr__partition_before;

typedef struct tsr__partition {
    uint64_t n; /* items of the whole order; TSR_LENGTH_UNKNOWN (only interleaved) */
    uint64_t ranks, rank;
    tsr_tail tail;
    tsr_split split;
    /* Interleaved: so many items at the start of the order have been given before. */
    uint64_t offset;
    /* Contiguous: the deals before, the first of them first. */
    tsr__partition_before before[TSR__MAX_REPARTITIONS];
    int count;
    uint64_t left; /* items to be dealt: n, less what has been given before */
} tsr__partition;

/* A stretch of one rank's items. */
typedef struct tsr__partition_run {
    uint64_t first, step, count; /* places in the order */
    bool padding;                /* they have been dealt already, and only fill up */
} tsr__partition_run;

/* The whole of an order. */
void tsr__partition_start(tsr__partition *partition, uint64_t n);
/* n became known: `left` is worked out. */
void tsr__partition_set_length(tsr__partition *partition, uint64_t n);

/* With padding, and without what is left out; n is known. */
uint64_t tsr__partition_total(const tsr__partition *partition);
/* Items of a rank, or the unknown. */
uint64_t tsr__partition_length(const tsr__partition *partition, uint64_t rank);
/* Where this rank's items from number `item` on are, up to `most` of them; there is at least one. n
 * is known. */
tsr__partition_run tsr__partition_find(const tsr__partition *partition, uint64_t item,
                                       uint64_t most);

/* Every rank has given so many; what is left is to be dealt to another number of ranks. False when
 * this has been done too often. */
bool tsr__partition_change_ranks(tsr__partition *partition, uint64_t given, uint64_t ranks,
                                 uint64_t rank);

#endif
