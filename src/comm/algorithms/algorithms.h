/* The algorithms of collective operations, as pure functions. Each adds the steps of one rank to an
 * empty schedule; the operation is done when every rank has executed its own schedule. `large`
 * selects the variant with fewer bytes and more messages. All ranks must pass the same value; the
 * results do not depend on it. */
#ifndef TSR_COMM_ALGORITHMS_ALGORITHMS_H
#define TSR_COMM_ALGORITHMS_ALGORITHMS_H

#include "comm/algorithms/schedule.h"
#include "comm/algorithms/tree.h"

/* If large, 2 log2 P rounds of shrinking pieces; otherwise log2 P rounds of all elements. */
void tsr__algorithm_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                               bool large);
void tsr__algorithm_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count, int root,
                           bool large);
void tsr__algorithm_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                                   const tsr__blocks *blocks);

/* The same with a result that depends on the contributions only: every rank sends each element to
 * the one rank that combines it. */
void tsr__algorithm_exact_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                     bool large);
void tsr__algorithm_exact_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                 int root, bool large);
void tsr__algorithm_exact_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                                         const tsr__blocks *blocks);

void tsr__algorithm_all_gather(tsr__schedule *schedule, int size, int rank,
                               const tsr__blocks *blocks, bool large);
void tsr__algorithm_broadcast(tsr__schedule *schedule, int size, int rank, uint64_t count, int root,
                              bool large);
/* `blocks` are used on root only; `count` is the size of this rank's block. */
void tsr__algorithm_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                           uint64_t count, int root);
void tsr__algorithm_scatter(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                            uint64_t count, int root);
/* `in_place`: SEND and RECV are the same memory. */
void tsr__algorithm_all_to_all(tsr__schedule *schedule, int size, int rank, const tsr__blocks *send,
                               const tsr__blocks *recv, bool in_place);
void tsr__algorithm_barrier(tsr__schedule *schedule, int size, int rank);

/* Building blocks of the above. */

/* An all-gather by recursive doubling among the ranks that hold leaves. RECV holds this leaf's
 * elements before, and those of all leaves afterwards. A leaf's elements are the blocks of its
 * ranks or, if `blocks` is NULL, tsr__tree_share of `total`. */
void tsr__algorithm_doubling(tsr__schedule *schedule, const tsr__tree *tree,
                             const tsr__blocks *blocks, uint64_t total);
/* Where the share of `rank` starts if `total` elements are divided evenly among the ranks. */
static inline uint64_t tsr__even_start(uint64_t total, int size, int rank)
{
    const uint64_t n = (uint64_t)rank, p = (uint64_t)size, rest = total % p;
    return n * (total / p) + (n < rest ? n : rest);
}

#endif
