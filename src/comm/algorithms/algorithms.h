/* The algorithms of collective operations, as pure functions. Each function adds the steps of one
 * rank (send, receive, copy, combine; schedule.h) to an empty schedule. The operation is complete
 * when every rank has executed its own schedule. `large` selects the variant that sends fewer bytes
 * in more messages. All ranks must pass the same value of `large`, which does not change the
 * results. */
#ifndef TSR_COMM_ALGORITHMS_ALGORITHMS_H
#define TSR_COMM_ALGORITHMS_ALGORITHMS_H

#include "comm/algorithms/schedule.h"
#include "comm/algorithms/tree.h"

/* If `large` is true, the schedule has 2 log2 P rounds, in which a rank exchanges half of the
 * elements, then a quarter and so on, and then the same sizes in reverse. Otherwise it has log2 P
 * rounds, each of which exchanges all elements. tree.h defines P. */
void tsr__algorithm_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                               bool large);
void tsr__algorithm_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count, int root,
                           bool large);
void tsr__algorithm_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                                   const tsr__blocks *blocks);

/* An all-reduce whose result depends on the contributions only, not on the order in which they are
 * combined. One rank combines each element, and every other rank sends its contribution to that
 * rank. */
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
/* `blocks` are the blocks of all ranks, which only root reads. `count` is the size of this rank's
 * block. */
void tsr__algorithm_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                           uint64_t count, int root);
void tsr__algorithm_scatter(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                            uint64_t count, int root);
/* `in_place` is true if the input (TSR__AT_SEND) and the output (TSR__AT_RECV) are the same memory.
 */
void tsr__algorithm_all_to_all(tsr__schedule *schedule, int size, int rank, const tsr__blocks *send,
                               const tsr__blocks *recv, bool in_place);
void tsr__algorithm_barrier(tsr__schedule *schedule, int size, int rank);

/* Functions that these algorithms and those of levels.h share. */

/* The ranks that take part in a broadcast or barrier that is a step of an algorithm, numbered from
 * 0. */
typedef struct tsr__members {
    int count, mine; /* the number of members, and the number of this rank */
    /* NULL: member i is rank i. Otherwise member i is the rank that holds leaf i of this tree,
     * except that member number `replaced` is the rank `replacement`. */
    const tsr__tree *tree;
    int replaced, replacement;
} tsr__members;

/* Broadcasts `all` along a binomial tree: root sends to one member, then two members send to two
 * others, then four to four. */
void tsr__algorithm_binomial(tsr__schedule *schedule, const tsr__members *members, int root,
                             tsr__span all);
/* Adds a barrier of the members, by the dissemination algorithm. */
void tsr__algorithm_dissemination(tsr__schedule *schedule, const tsr__members *members);
/* An all-reduce of the `count` elements from `base` on in RECV among the holders of the tree's
 * leaves. It receives other ranks' elements into the `count` elements of TEMP from `incoming` on.
 */
void tsr__algorithm_tree_all_reduce(tsr__schedule *schedule, const tsr__tree *tree, uint64_t base,
                                    uint64_t count, uint64_t incoming, bool large);
/* A reduce-scatter among the holders of the tree's leaves. Their contributions are in TEMP from
 * `base` on: the blocks of all leaves in the order of their positions (tree.h). `other` is the rank
 * that shares this rank's leaf and gets its block at the end, or −1. */
void tsr__algorithm_tree_reduce_scatter(tsr__schedule *schedule, const tsr__tree *tree, int other,
                                        uint64_t base, const tsr__blocks *blocks);
/* An all-gather by recursive doubling among the ranks that hold leaves (see tree.h). Before it,
 * RECV contains the elements of this rank's leaf; afterwards it contains those of all leaves. If
 * `blocks` is not NULL, a leaf has the blocks of the ranks that share it, and ranks exchange with
 * leaves at distance 1, then 2, 4, …. Otherwise each leaf has an even share of the `total` elements
 * from `base` on, and ranks exchange with leaves at distance P/2, then P/4, …, 1. */
void tsr__algorithm_doubling(tsr__schedule *schedule, const tsr__tree *tree,
                             const tsr__blocks *blocks, uint64_t base, uint64_t total);
static inline tsr__span tsr__block_at(tsr__array array, const tsr__blocks *blocks, int rank)
{
    return tsr__span_of(array, tsr__block_start(blocks, rank), tsr__block_count(blocks, rank));
}
/* Returns the first of the elements that `rank` gets if `total` elements are divided evenly among
 * `size` ranks. */
static inline uint64_t tsr__even_start(uint64_t total, int size, int rank)
{
    const uint64_t n = (uint64_t)rank, p = (uint64_t)size, rest = total % p;
    return n * (total / p) + (n < rest ? n : rest);
}

#endif
