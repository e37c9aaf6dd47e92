/* The choice of an algorithm for each collective, from the placement of the ranks and the size of
 * the data. It depends only on values that all ranks know, so that all ranks make the same
 * choice. */
#ifndef TSR_COMM_ALGORITHMS_CHOOSE_H
#define TSR_COMM_ALGORITHMS_CHOOSE_H

#include "comm/algorithms/levels.h"

/* A rank of a communicator, and which other ranks share memory with it. */
typedef struct tsr__placement {
    int size, rank;
    const tsr__levels *levels; /* NULL: no ranks share memory */
} tsr__placement;

/* The size of a reduction from which the algorithm that sends fewer bytes (`large` in algorithms.h)
 * is faster than the one that sends fewer messages. */
#define TSR__LARGE_REDUCE_BYTES 16384

/* Each function adds the steps of one rank to an empty schedule, for elements of `element_bytes`.
 * Returns whether the schedule may contain inner steps (levels.h). */
bool tsr__choose_all_reduce(tsr__schedule *schedule, const tsr__placement *placement,
                            uint64_t count, uint64_t element_bytes);
bool tsr__choose_reduce_scatter(tsr__schedule *schedule, const tsr__placement *placement,
                                const tsr__blocks *blocks);
bool tsr__choose_all_gather(tsr__schedule *schedule, const tsr__placement *placement,
                            const tsr__blocks *blocks, uint64_t element_bytes);
bool tsr__choose_broadcast(tsr__schedule *schedule, const tsr__placement *placement, uint64_t count,
                           int root, uint64_t element_bytes);
bool tsr__choose_barrier(tsr__schedule *schedule, const tsr__placement *placement);

#endif
