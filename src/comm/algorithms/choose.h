/* The choice of the algorithm of every collective operation. choose.c begins with an index of the
 * algorithms by name. A choice depends only on values that all ranks know, so all ranks make the
 * same choice. */
#ifndef TSR_COMM_ALGORITHMS_CHOOSE_H
#define TSR_COMM_ALGORITHMS_CHOOSE_H

#include "comm/algorithms/hierarchical.h"
#include "comm/collective_call.h"

/* How the ranks of a communicator exchange data. */
typedef enum tsr__topology {
    TSR__TOPOLOGY_FLAT,         /* messages between all ranks */
    TSR__TOPOLOGY_SHARED,       /* all ranks are on one host and use shared memory */
    TSR__TOPOLOGY_HIERARCHICAL, /* shared memory inside subtrees of ranks, messages between them */
} tsr__topology;

/* Chooses the topology. host_of[i] is the host of rank i; at most `max_shared` ranks of one host
 * can use shared memory together. Sets *hierarchy for TSR__TOPOLOGY_HIERARCHICAL only. */
tsr__topology tsr__choose_topology(int size, int rank, const int *host_of, int max_shared,
                                   tsr__hierarchy *hierarchy);

/* Returns whether an operation of this kind runs in shared memory in a communicator whose topology
 * is TSR__TOPOLOGY_SHARED. */
bool tsr__choose_shared_memory(tsr__call_kind kind);

/* Returns whether a reduction of `bytes` in shared memory takes one round, in which every rank
 * combines all elements. In a larger reduction each rank combines a share of the elements. */
bool tsr__choose_one_round(uint64_t bytes);

/* The largest job in which every rank connects to every other rank while the communicator is
 * created. In a larger job, ranks connect to few others. */
#define TSR__CONNECT_ALL_RANKS 32

/* A collective operation, or a send or receive, on one rank. */
typedef struct tsr__collective {
    tsr__call_kind kind;
    int size, rank;
    const tsr__hierarchy *hierarchy; /* NULL: messages only */
    /* Elements of all data; of each block, for kinds with blocks of equal size. */
    uint64_t count;
    uint64_t element_bytes;
    int peer; /* root, or the other rank of a send or receive */
    /* The blocks, for kinds that have blocks. recv_blocks is for all-to-all only. */
    const tsr__blocks *blocks, *recv_blocks;
    bool in_place; /* of an all-to-all: the input and the output are the same memory */
    /* The result must not depend on the order in which contributions are combined
     * (reduce/exact_combine.h). */
    bool exact;
    /* Only for TSR__CALL_CREATE: [size], whether this rank reaches rank i without a connection
     * (comm_state.h), and whether every two ranks of the job reach each other so. */
    const bool *is_near;
    bool all_near;
} tsr__collective;

/* Chooses an algorithm, and adds the steps of this rank to an empty schedule. Returns whether the
 * schedule may contain inner steps, collectives of the ranks of one subtree (hierarchical.h). */
bool tsr__choose_schedule(tsr__schedule *schedule, const tsr__collective *collective);

#endif
