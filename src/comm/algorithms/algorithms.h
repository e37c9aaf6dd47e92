/* The algorithms of collective operations between ranks that exchange messages, as pure functions.
 * choose.c has an index of the algorithms by name. Each function adds the steps of one rank (send,
 * receive, copy, combine; schedule.h) to an empty schedule. The operation is complete when every
 * rank has executed its own schedule. All ranks must use the same algorithm; which one they use
 * does not change the results.
 *
 * Leaves, holders, positions and P (the largest power of two that is not greater than the number of
 * ranks) are defined in tree.h. */
#ifndef TSR_COMM_ALGORITHMS_ALGORITHMS_H
#define TSR_COMM_ALGORITHMS_ALGORITHMS_H

#include "comm/algorithms/schedule.h"
#include "comm/algorithms/tree.h"

/* reductions.c: along the tree of tree.h ----------------------------------------------------------
 */

/* log2 P rounds, each of which exchanges all elements. */
void tsr__recursive_doubling_all_reduce(tsr__schedule *schedule, int size, int rank,
                                        uint64_t count);
/* 2 log2 P rounds: recursive halving, in which a rank exchanges half of the elements, then a
 * quarter and so on; then recursive doubling, with the same sizes in reverse. */
void tsr__rabenseifner_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count);
void tsr__tree_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count, int root);
/* Recursive halving; then every rank sends its share of the result to root. */
void tsr__recursive_halving_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                   int root);
void tsr__recursive_halving_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                                           const tsr__blocks *blocks);

/* reductions_exact.c: results that depend on the contributions only -------------------------------
 */

/* These functions do not combine along the tree, because the order does not change their results
 * (reduce/exact_combine.h). One rank combines all contributions to an element, and every other rank
 * sends its contribution to that rank. In one round every rank (in a reduce, root) combines all
 * elements. In two rounds each rank combines a share of the elements, and then sends the results.
 */
void tsr__exact_all_reduce_one_round(tsr__schedule *schedule, int size, int rank, uint64_t count);
void tsr__exact_all_reduce_two_rounds(tsr__schedule *schedule, int size, int rank, uint64_t count);
void tsr__exact_reduce_one_round(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                 int root);
void tsr__exact_reduce_two_rounds(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                  int root);
void tsr__exact_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                               const tsr__blocks *blocks);

/* all_gather.c ------------------------------------------------------------------------------------
 */

/* One round: every rank sends its block to all others. */
void tsr__direct_all_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks);
/* log2 P rounds; if size > P, two more, in which one rank receives all blocks in one message. */
void tsr__recursive_doubling_all_gather(tsr__schedule *schedule, int size, int rank,
                                        const tsr__blocks *blocks);
/* size − 1 rounds, in each of which a rank passes one block to the next rank. */
void tsr__ring_all_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks);

/* broadcast_barrier.c -----------------------------------------------------------------------------
 */

void tsr__binomial_broadcast(tsr__schedule *schedule, int size, int rank, uint64_t count, int root);
/* Van de Geijn's algorithm: root scatters the elements, then all ranks gather them. */
void tsr__van_de_geijn_broadcast(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                 int root);
void tsr__dissemination_barrier(tsr__schedule *schedule, int size, int rank);
/* Exchanges empty messages with every rank i for which is_near[i] is false. */
void tsr__greet_other_hosts(tsr__schedule *schedule, int size, int rank, const bool *is_near);

/* gather_scatter_all_to_all.c: every block in one message from its owner to its receiver ----------
 */

/* `blocks` are the blocks of all ranks, which only root reads. `count` is the size of this rank's
 * block. */
void tsr__direct_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                        uint64_t count, int root);
void tsr__direct_scatter(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                         uint64_t count, int root);
/* `in_place` is true if the input (TSR__AT_SEND) and the output (TSR__AT_RECV) are the same memory.
 */
void tsr__direct_all_to_all(tsr__schedule *schedule, int size, int rank, const tsr__blocks *send,
                            const tsr__blocks *recv, bool in_place);

/* Building blocks that these algorithms share with the hierarchical ones ------------------------
 */

/* The ranks that take part in a broadcast or barrier that is a step of an algorithm, numbered from
 * 0. */
typedef struct tsr__members {
    int count, mine; /* the number of members, and the number of this rank */
    /* NULL: member i is rank i. Otherwise member i is the rank that holds leaf i of this tree,
     * except that member number `replaced` is the rank `replacement`. */
    const tsr__tree *tree;
    int replaced, replacement;
} tsr__members;

/* Broadcasts the elements of `data` along a binomial tree: root sends to one member, then two
 * members send to two others, then four to four. */
void tsr__members_broadcast(tsr__schedule *schedule, const tsr__members *members, int root,
                            tsr__span data);
/* Adds a barrier of the members, by the dissemination algorithm. */
void tsr__members_barrier(tsr__schedule *schedule, const tsr__members *members);

/* An all-reduce of the `count` elements from `base` on in RECV among the holders of the tree's
 * leaves, by recursive doubling or by Rabenseifner's algorithm. It receives other ranks' elements
 * into the `count` elements of TEMP from `incoming` on. */
void tsr__leaves_all_reduce(tsr__schedule *schedule, const tsr__tree *tree, uint64_t base,
                            uint64_t count, uint64_t incoming, bool rabenseifner);
/* A reduce-scatter among the holders of the tree's leaves. Their contributions are in TEMP from
 * `base` on: the blocks of all leaves in the order of their positions. `partner` is the rank that
 * shares this rank's leaf and gets its block at the end, or −1. */
void tsr__leaves_reduce_scatter(tsr__schedule *schedule, const tsr__tree *tree, int partner,
                                uint64_t base, const tsr__blocks *blocks);
/* These two functions gather by recursive doubling among the holders of the tree's leaves. Before,
 * RECV contains the elements of this rank's leaf; afterwards it contains those of all leaves. In
 * the first function, the elements of a leaf are the blocks of its ranks, and ranks exchange with
 * leaves at distance 1, then 2, 4, …. In the second function, each leaf has an even share of the
 * `total` elements from `base` on, and ranks exchange with leaves at distance P/2, then P/4, …,
 * 1. */
void tsr__leaves_gather_blocks(tsr__schedule *schedule, const tsr__tree *tree,
                               const tsr__blocks *blocks);
void tsr__leaves_gather_shares(tsr__schedule *schedule, const tsr__tree *tree, uint64_t base,
                               uint64_t total);

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
