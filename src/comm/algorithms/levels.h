/* Collectives in two levels: inside the hosts, and between them.
 *
 * The tree of reductions (tree.h) consists of complete subtrees of 2^k leaves. If the ranks of each
 * subtree share a host, they can first combine their contributions through shared memory; this is
 * the inner level. The ranks of a subtree are consecutive, so the tree for a reduction of only
 * these ranks equals their part of the tree of all ranks. Therefore the results have the same bits
 * as without levels.
 *
 * An inner step (TSR__STEP_INNER) is a collective of the ranks of one subtree. Between the
 * subtrees, ranks exchange messages. There are two variants. Either the first rank of each subtree
 * exchanges all data with the other subtrees, or each rank that holds a leaf exchanges a share of
 * it (`shared`). All ranks must choose the same variant, which does not change the results. */
#ifndef TSR_COMM_ALGORITHMS_LEVELS_H
#define TSR_COMM_ALGORITHMS_LEVELS_H

#include "comm/algorithms/algorithms.h"

typedef struct tsr__levels {
    tsr__tree tree; /* the tree of all ranks */
    bool uneven;    /* subtrees have different numbers of leaves */
    int leaves;     /* number of leaves in each subtree; if uneven, in this rank's subtree */
    int subtrees;   /* number of subtrees */
    int subtree;    /* the number of this rank's subtree, from 0 */
    int first;      /* the first rank of this rank's subtree */
    int count;      /* number of ranks in this rank's subtree */
} tsr__levels;

/* Finds the largest subtrees whose ranks share a host and which have at most `most` ranks.
 * host_of[i] is the host of rank i. The subtrees are uneven if some must have one leaf while others
 * can have more, or if two ranks that share a leaf are on different hosts. Otherwise all subtrees
 * get the same number of leaves. Returns false if there are no subtrees of more than one rank. */
bool tsr__levels_find(int size, int rank, const int *host_of, int most, tsr__levels *out);

/* If `piece` is 0, the first rank of each subtree exchanges all data. Otherwise the all-reduce
 * handles `piece` elements at a time, and each rank that holds a leaf exchanges a share of them.
 * Between two subtrees, two ranks exchange a share in one round, or in two rounds of half the size
 * if `halve` is true; with more subtrees always by halving. The number of bytes is the same. */
void tsr__levels_all_reduce(tsr__schedule *schedule, const tsr__levels *levels, uint64_t count,
                            uint64_t piece, bool halve);
void tsr__levels_reduce_scatter(tsr__schedule *schedule, const tsr__levels *levels,
                                const tsr__blocks *blocks);
void tsr__levels_all_gather(tsr__schedule *schedule, const tsr__levels *levels,
                            const tsr__blocks *blocks, bool shared);
void tsr__levels_broadcast(tsr__schedule *schedule, const tsr__levels *levels, uint64_t count,
                           int root, bool shared);
void tsr__levels_barrier(tsr__schedule *schedule, const tsr__levels *levels, bool shared);

/* These functions do the same for uneven subtrees. They use the algorithms for ranks that only
 * exchange messages, but an inner step replaces the rounds in which all messages would be between
 * ranks of one subtree. So a subtree may have any number of leaves, and the two ranks of a leaf may
 * be on different hosts. `blocks` and `piece` have the same meaning as above. */
void tsr__uneven_all_reduce(tsr__schedule *schedule, const tsr__levels *levels, uint64_t count,
                            uint64_t piece);
void tsr__uneven_reduce_scatter(tsr__schedule *schedule, const tsr__levels *levels,
                                const tsr__blocks *blocks);
void tsr__uneven_all_gather(tsr__schedule *schedule, const tsr__levels *levels,
                            const tsr__blocks *blocks);
void tsr__uneven_broadcast(tsr__schedule *schedule, const tsr__levels *levels, uint64_t count,
                           int root);
void tsr__uneven_barrier(tsr__schedule *schedule, const tsr__levels *levels);

#endif
