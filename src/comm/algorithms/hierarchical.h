/* Hierarchical collectives: shared memory inside the hosts, messages between them.
 *
 * The tree of reductions (tree.h) consists of complete subtrees of 2^k leaves. If the ranks of each
 * subtree share a host, they first combine their contributions through shared memory. The ranks of
 * a subtree are consecutive, so the tree of a reduction of only these ranks equals their subtree of
 * the tree of all ranks. Therefore the results have the same bits as those of the flat algorithms
 * (algorithms.h).
 *
 * An inner step (TSR__STEP_INNER) is a collective of the ranks of one subtree. Between the
 * subtrees, ranks exchange messages. In the single-leader variant, the first rank of each subtree
 * exchanges all data with the other subtrees. In the multi-leader variant, each rank that holds a
 * leaf exchanges a share of the data. All ranks must use the same variant, which does not change
 * the results. */
#ifndef TSR_COMM_ALGORITHMS_HIERARCHICAL_H
#define TSR_COMM_ALGORITHMS_HIERARCHICAL_H

#include "comm/algorithms/algorithms.h"

typedef struct tsr__hierarchy {
    tsr__tree tree; /* the tree of all ranks */
    bool uneven;    /* subtrees have different numbers of leaves */
    int leaves;     /* number of leaves in each subtree; if uneven, in this rank's subtree */
    int subtrees;   /* number of subtrees */
    int subtree;    /* the number of this rank's subtree, from 0 */
    int first;      /* the first rank of this rank's subtree */
    int count;      /* number of ranks in this rank's subtree */
} tsr__hierarchy;

/* Finds the largest subtrees whose ranks share a host and which have at most `most` ranks.
 * host_of[i] is the host of rank i. The subtrees are uneven if some must have one leaf while others
 * can have more, or if two ranks that share a leaf are on different hosts. Otherwise all subtrees
 * get the same number of leaves. Returns false if there are no subtrees of more than one rank. */
bool tsr__hierarchy_find(int size, int rank, const int *host_of, int most, tsr__hierarchy *out);

void tsr__single_leader_all_reduce(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                   uint64_t count);
/* Handles chunks of `chunk` elements one after the other. Between two subtrees, two ranks exchange
 * their shares of a chunk in one round or, if `halve` is true, in two rounds of half the size.
 * Between more subtrees, shares are always halved. The number of bytes is the same. */
void tsr__multi_leader_all_reduce(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                  uint64_t count, uint64_t chunk, bool halve);
void tsr__hierarchical_reduce_scatter(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                      const tsr__blocks *blocks);
void tsr__hierarchical_all_gather(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                  const tsr__blocks *blocks, bool multi_leader);
void tsr__hierarchical_broadcast(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                 uint64_t count, int root, bool multi_leader);
void tsr__hierarchical_barrier(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                               bool multi_leader);

/* These functions do the same for uneven subtrees (hierarchical_uneven.c). They use the flat
 * algorithms, but an inner step replaces the rounds in which all messages would be between ranks of
 * one subtree. So a subtree may have any number of leaves, and the two ranks of a leaf may be on
 * different hosts. If `chunk` is 0, the all-reduce is by recursive doubling; otherwise by
 * Rabenseifner's algorithm, `chunk` elements at a time. */
void tsr__uneven_all_reduce(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                            uint64_t count, uint64_t chunk);
void tsr__uneven_reduce_scatter(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                const tsr__blocks *blocks);
void tsr__uneven_all_gather(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                            const tsr__blocks *blocks);
void tsr__uneven_broadcast(tsr__schedule *schedule, const tsr__hierarchy *hierarchy, uint64_t count,
                           int root);
void tsr__uneven_barrier(tsr__schedule *schedule, const tsr__hierarchy *hierarchy);

#endif
