/* Who sends which elements to whom, when, for each operation. Each function adds the steps of one
 * rank to an empty plan; all ranks together, each with its own, carry out the operation.
 * `large`: fewer bytes, more messages. All ranks choose alike; the results do not depend on it. */
#ifndef TSR_COMM_ALGORITHMS_ALGORITHMS_H
#define TSR_COMM_ALGORITHMS_ALGORITHMS_H

#include "comm/algorithms/schedule.h"
#include "comm/algorithms/tree.h"

/* 2 log2 P rounds of shrinking pieces when large, else log2 P of everything. */
void tsr__algorithm_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                               bool large);
void tsr__algorithm_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count, int root,
                           bool large);
void tsr__algorithm_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                                   const tsr__blocks *blocks);

/* The same, where the result depends on the contributions only: everybody sends each element to the
 * one rank that combines it. */
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
/* `blocks` on root; `count` is this rank's. */
void tsr__algorithm_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                           uint64_t count, int root);
void tsr__algorithm_scatter(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                            uint64_t count, int root);
/* in_place: SEND and RECV are the same memory. */
void tsr__algorithm_all_to_all(tsr__schedule *schedule, int size, int rank, const tsr__blocks *send,
                               const tsr__blocks *recv, bool in_place);
void tsr__algorithm_barrier(tsr__schedule *schedule, int size, int rank);

/* Parts of others. */

/* RECV holds this leaf's elements; afterwards it holds those of all. `starts` gives where those of
 * a leaf start: tsr__tree_share of `total`, or the blocks' where there are some. Between holders of
 * leaves only. */
void tsr__algorithm_doubling(tsr__schedule *schedule, const tsr__tree *tree,
                             const tsr__blocks *blocks, uint64_t total);
/* `total` cut into one block for each rank, in steps of whole elements: block r's start. */
static inline uint64_t tsr__even_start(uint64_t total, int size, int rank)
{
    const uint64_t n = (uint64_t)rank, p = (uint64_t)size, rest = total % p;
    return n * (total / p) + (n < rest ? n : rest);
}

#endif
