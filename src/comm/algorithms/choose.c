/* Chooses the algorithm of every collective operation. Nothing else chooses: the other files of
 * this folder, and shm/shm_rounds.c, only execute what this file has chosen.
 *
 * Algorithms by name
 *
 *     all-gather       direct exchange (one round)          all_gather.c
 *                      recursive doubling                   all_gather.c
 *                      ring                                 all_gather.c
 *     all-reduce       recursive doubling                   reductions.c
 *                      Rabenseifner (recursive halving,
 *                      then recursive doubling)             reductions.c
 *     reduce           binary tree                          reductions.c
 *                      recursive halving, then a gather     reductions.c
 *     reduce-scatter   recursive halving                    reductions.c
 *     the same four    direct exchange, exact result        reductions_exact.c
 *     broadcast        binomial tree                        broadcast_barrier.c
 *                      van de Geijn (scatter, then
 *                      an all-gather by rec. doubling)      broadcast_barrier.c
 *     barrier          dissemination                        broadcast_barrier.c
 *     gather, scatter,
 *     all-to-all       direct messages                      gather_scatter_all_to_all.c
 *     all kinds        hierarchical: single leader or
 *                      multi-leader                         hierarchical.c
 *                      hierarchical, uneven subtrees        hierarchical_uneven.c
 *                      in shared memory                     comm/shm/shm_rounds.c
 *
 * All reductions combine contributions along the tree of tree.h, whatever the algorithm.
 *
 * Which algorithm runs
 *
 *     all ranks on one host: in shared memory. Reductions of up to 16 KiB take one round, in which
 *     every rank combines everything; larger ones combine shares, a chunk at a time. gather_v,
 *     scatter_v, all_to_all_v, send and receive: as in the next table.
 *
 *     messages only: no two ranks that are neighbours in the tree share a host, or shared memory is
 *     off
 *       all-reduce      up to 16 KiB recursive doubling; above Rabenseifner, above 1 MiB in chunks
 *                       of 1 MiB
 *       reduce          up to 16 KiB binary tree; above recursive halving, then a gather
 *       reduce-scatter  recursive halving
 *       all-gather      recursive doubling; ring from 64 KiB if the number of ranks is not a power
 *                       of two
 *       broadcast       binomial tree; van de Geijn from 64 KiB
 *       barrier         dissemination
 *       others          direct messages
 *
 *     several hosts, with subtrees of equal size: all-reduce, reduce-scatter, all-gather, broadcast
 *     and barrier are hierarchical; single leader below 16 KiB, multi-leader from 16 KiB. Two
 *     subtrees of at most two leaves ("a pair", for example 4 ranks on 2 hosts) are an exception:
 *       all-reduce, all-gather   up to 1 KiB every rank exchanges all data of its host, above
 *                                multi-leader at any size. So 4 KiB on 4 ranks on 2 hosts:
 *                                multi-leader, one exchange of 2 KiB between the hosts
 *       all-reduce               in chunks of 256 KiB (otherwise 512 KiB)
 *
 *     several hosts, with subtrees of different sizes: the same five operations are hierarchical
 *     with uneven subtrees; all-gather as a ring from 64 KiB if the number of ranks is not a power
 *     of two
 *
 *     `reproducible` communicators: reductions of floats by direct exchange with an exact result,
 *     in shared memory or by messages */
#include "comm/algorithms/choose.h"

#include "base/checked.h"
#include "comm/algorithms/algorithms.h"

/* The sizes from which the algorithms that send fewer bytes are faster than those that send fewer
 * messages. */
#define LARGE_REDUCE_BYTES 16384
#define LARGE_BROADCAST_BYTES 65536
/* A hierarchical operation of LARGE_HIERARCHICAL_BYTES or more has many leaders: each rank that
 * holds a leaf exchanges a share of the data with the other subtrees. A smaller one has a single
 * leader in each subtree, which exchanges everything. In a pair, all ranks exchange messages at any
 * size: every rank then receives a message of its own, so that after a long wait all ranks wake at
 * once. They exchange shares, or up to SMALL_PAIR_BYTES all data, so that nothing is left to do
 * after the exchange. */
#define LARGE_HIERARCHICAL_BYTES 16384
#define SMALL_PAIR_BYTES 1024
/* A hierarchical all-reduce handles chunks of this size one after the other, so that a chunk stays
 * in the cache. In a pair, chunks are smaller, because each message carries half a chunk. */
#define HIERARCHICAL_CHUNK_BYTES (UINT64_C(512) << 10)
#define PAIR_CHUNK_BYTES (UINT64_C(256) << 10)
/* The chunks of an all-reduce by messages only. The largest message is half a chunk, so that UCX
 * sends it over TCP without its rendezvous protocol (ucx/ucx_context.c). With that protocol, two
 * ranks that exchange messages use only one direction of the link at a time. */
#define FLAT_CHUNK_BYTES (UINT64_C(1) << 20)
/* In an all-reduce between two subtrees, two ranks exchange shares of this size in two rounds of
 * messages of half the size, which is faster than in one round. */
#define MIN_HALVED_BYTES (UINT64_C(16) << 10)
#define MAX_HALVED_BYTES (UINT64_C(64) << 10)
/* The largest reduction in shared memory that takes one round. */
#define ONE_ROUND_BYTES 16384
/* The largest job in which all ranks of different hosts connect to each other while the
 * communicator is created. */
#define CONNECT_HOSTS_RANKS 128

/* Topology ----------------------------------------------------------------------------------------
 */

static bool on_one_host(const int *host_of, int size)
{
    for (int rank = 1; rank < size; rank++) {
        if (host_of[rank] != host_of[0])
            return false;
    }
    return true;
}

tsr__topology tsr__choose_topology(int size, int rank, const int *host_of, int max_shared,
                                   tsr__hierarchy *hierarchy)
{
    if (size <= max_shared && on_one_host(host_of, size))
        return size > 1 ? TSR__TOPOLOGY_SHARED : TSR__TOPOLOGY_FLAT;
    return tsr__hierarchy_find(size, rank, host_of, max_shared, hierarchy)
               ? TSR__TOPOLOGY_HIERARCHICAL
               : TSR__TOPOLOGY_FLAT;
}

bool tsr__choose_shared_memory(tsr__call_kind kind)
{
    switch (kind) {
    case TSR__CALL_ALL_REDUCE:
    case TSR__CALL_REDUCE:
    case TSR__CALL_REDUCE_SCATTER:
    case TSR__CALL_REDUCE_SCATTER_V:
    case TSR__CALL_ALL_GATHER:
    case TSR__CALL_ALL_GATHER_V:
    case TSR__CALL_BROADCAST:
    case TSR__CALL_GATHER:
    case TSR__CALL_SCATTER:
    case TSR__CALL_ALL_TO_ALL:
    case TSR__CALL_BARRIER:
    case TSR__CALL_SPLIT:
    case TSR__CALL_DUPLICATE:
        return true;
    /* not every rank knows all block sizes */
    case TSR__CALL_GATHER_V:
    case TSR__CALL_SCATTER_V:
    case TSR__CALL_ALL_TO_ALL_V:
    /* the ranks connect, or do not share memory yet */
    case TSR__CALL_CREATE:
    case TSR__CALL_GROW:
    case TSR__CALL_SEND:
    case TSR__CALL_RECV:
    case TSR__CALL_KINDS:
        break;
    }
    return false;
}

bool tsr__choose_one_round(uint64_t bytes)
{
    return bytes <= ONE_ROUND_BYTES;
}

/* Hierarchical operations -------------------------------------------------------------------------
 */

static bool is_pair(const tsr__hierarchy *hierarchy)
{
    return hierarchy->leaves <= 2 && hierarchy->subtrees == 2;
}

static bool is_multi_leader(const tsr__hierarchy *hierarchy, uint64_t bytes)
{
    return is_pair(hierarchy) || bytes >= LARGE_HIERARCHICAL_BYTES;
}

/* Returns whether there is a pair of subtrees and so few bytes that each rank moves all data of its
 * subtree. */
static bool is_small_pair(const tsr__hierarchy *hierarchy, uint64_t bytes)
{
    return !hierarchy->uneven && is_pair(hierarchy) && bytes <= SMALL_PAIR_BYTES;
}

/* Marks equal subtrees as uneven. The algorithms for uneven subtrees are then used, in which each
 * rank that holds a leaf exchanges all data of its subtree. */
static tsr__hierarchy as_uneven(const tsr__hierarchy *hierarchy)
{
    tsr__hierarchy uneven = *hierarchy;
    uneven.uneven = true;
    uneven.tree.joined = hierarchy->leaves;
    return uneven;
}

static void hierarchical_all_reduce(tsr__schedule *schedule, const tsr__collective *c)
{
    const tsr__hierarchy *hierarchy = c->hierarchy;
    const uint64_t bytes = c->count * c->element_bytes;
    if (is_small_pair(hierarchy, bytes)) {
        const tsr__hierarchy uneven = as_uneven(hierarchy);
        tsr__uneven_all_reduce(schedule, &uneven, c->count, 0);
    } else if (hierarchy->uneven) {
        const bool large = bytes >= LARGE_REDUCE_BYTES;
        tsr__uneven_all_reduce(schedule, hierarchy, c->count,
                               large ? HIERARCHICAL_CHUNK_BYTES / c->element_bytes : 0);
    } else if (is_multi_leader(hierarchy, bytes)) {
        const uint64_t chunk = is_pair(hierarchy) ? PAIR_CHUNK_BYTES : HIERARCHICAL_CHUNK_BYTES;
        const uint64_t share = tsr__min_u64(bytes, chunk) / (uint64_t)hierarchy->leaves;
        tsr__multi_leader_all_reduce(schedule, hierarchy, c->count, chunk / c->element_bytes,
                                     share >= MIN_HALVED_BYTES && share <= MAX_HALVED_BYTES);
    } else {
        tsr__single_leader_all_reduce(schedule, hierarchy, c->count);
    }
}

static void hierarchical_all_gather(tsr__schedule *schedule, const tsr__collective *c,
                                    uint64_t bytes)
{
    if (c->hierarchy->uneven) {
        tsr__uneven_all_gather(schedule, c->hierarchy, c->blocks);
    } else if (is_small_pair(c->hierarchy, bytes)) {
        const tsr__hierarchy uneven = as_uneven(c->hierarchy);
        tsr__uneven_all_gather(schedule, &uneven, c->blocks);
    } else {
        tsr__hierarchical_all_gather(schedule, c->hierarchy, c->blocks,
                                     is_multi_leader(c->hierarchy, bytes));
    }
}

/* One operation each ------------------------------------------------------------------------------
 */

/* An all-reduce by messages only, `chunk` elements at a time. It is an all-reduce over uneven
 * subtrees in which each rank is a subtree of its own. */
static void flat_chunked_all_reduce(tsr__schedule *schedule, const tsr__collective *c,
                                    uint64_t chunk)
{
    const tsr__tree tree = tsr__tree_of(c->size, c->rank, -1);
    const tsr__hierarchy alone = {.tree = tree,
                                  .uneven = true,
                                  .leaves = 1,
                                  .subtrees = tree.power,
                                  .subtree = tree.leaf,
                                  .first = tree.rank,
                                  .count = 1};
    tsr__uneven_all_reduce(schedule, &alone, c->count, chunk);
}

static bool choose_all_reduce(tsr__schedule *schedule, const tsr__collective *c)
{
    const uint64_t bytes = c->count * c->element_bytes;
    if (c->exact && bytes >= LARGE_REDUCE_BYTES)
        tsr__exact_all_reduce_two_rounds(schedule, c->size, c->rank, c->count);
    else if (c->exact)
        tsr__exact_all_reduce_one_round(schedule, c->size, c->rank, c->count);
    else if (c->hierarchy)
        hierarchical_all_reduce(schedule, c);
    else if (bytes > FLAT_CHUNK_BYTES)
        flat_chunked_all_reduce(schedule, c, FLAT_CHUNK_BYTES / c->element_bytes);
    else if (bytes >= LARGE_REDUCE_BYTES)
        tsr__rabenseifner_all_reduce(schedule, c->size, c->rank, c->count);
    else
        tsr__recursive_doubling_all_reduce(schedule, c->size, c->rank, c->count);
    return c->hierarchy && !c->exact;
}

static void choose_reduce(tsr__schedule *schedule, const tsr__collective *c)
{
    const bool large = c->count * c->element_bytes >= LARGE_REDUCE_BYTES;
    if (c->exact && large)
        tsr__exact_reduce_two_rounds(schedule, c->size, c->rank, c->count, c->peer);
    else if (c->exact)
        tsr__exact_reduce_one_round(schedule, c->size, c->rank, c->count, c->peer);
    else if (large)
        tsr__recursive_halving_reduce(schedule, c->size, c->rank, c->count, c->peer);
    else
        tsr__tree_reduce(schedule, c->size, c->rank, c->count, c->peer);
}

static bool choose_reduce_scatter(tsr__schedule *schedule, const tsr__collective *c)
{
    if (c->exact)
        tsr__exact_reduce_scatter(schedule, c->size, c->rank, c->blocks);
    else if (!c->hierarchy)
        tsr__recursive_halving_reduce_scatter(schedule, c->size, c->rank, c->blocks);
    else if (c->hierarchy->uneven)
        tsr__uneven_reduce_scatter(schedule, c->hierarchy, c->blocks);
    else
        tsr__hierarchical_reduce_scatter(schedule, c->hierarchy, c->blocks);
    return c->hierarchy && !c->exact;
}

static bool choose_all_gather(tsr__schedule *schedule, const tsr__collective *c)
{
    const tsr__hierarchy *hierarchy = c->hierarchy;
    const uint64_t bytes = tsr__block_start(c->blocks, c->size) * c->element_bytes;
    const bool is_power_of_two = (c->size & (c->size - 1)) == 0;
    /* if the number of ranks is not a power of two, the ring sends fewer bytes */
    const bool ring = bytes >= LARGE_BROADCAST_BYTES && !is_power_of_two;
    if (hierarchy && !(hierarchy->uneven && ring)) {
        hierarchical_all_gather(schedule, c, bytes);
        return true;
    }
    if (ring)
        tsr__ring_all_gather(schedule, c->size, c->rank, c->blocks);
    else
        tsr__recursive_doubling_all_gather(schedule, c->size, c->rank, c->blocks);
    return false;
}

static bool choose_broadcast(tsr__schedule *schedule, const tsr__collective *c)
{
    const uint64_t bytes = c->count * c->element_bytes;
    if (!c->hierarchy && bytes >= LARGE_BROADCAST_BYTES)
        tsr__van_de_geijn_broadcast(schedule, c->size, c->rank, c->count, c->peer);
    else if (!c->hierarchy)
        tsr__binomial_broadcast(schedule, c->size, c->rank, c->count, c->peer);
    else if (c->hierarchy->uneven)
        tsr__uneven_broadcast(schedule, c->hierarchy, c->count, c->peer);
    else
        tsr__hierarchical_broadcast(schedule, c->hierarchy, c->count, c->peer,
                                    is_multi_leader(c->hierarchy, bytes));
    return c->hierarchy != NULL;
}

static bool choose_barrier(tsr__schedule *schedule, const tsr__collective *c)
{
    if (!c->hierarchy)
        tsr__dissemination_barrier(schedule, c->size, c->rank);
    else if (c->hierarchy->uneven)
        tsr__uneven_barrier(schedule, c->hierarchy);
    else
        tsr__hierarchical_barrier(schedule, c->hierarchy, is_multi_leader(c->hierarchy, 0));
    return c->hierarchy != NULL;
}

/* Chooses the all-gather that connects the ranks when a communicator is created. UCX connects two
 * ranks at their first message, and over a network this first message should not be the report of
 * an error. So all ranks connect in a job of up to TSR__CONNECT_ALL_RANKS ranks, and all ranks of
 * different hosts in a job of up to CONNECT_HOSTS_RANKS. In a larger job, a rank connects only to
 * those ranks with which most algorithms exchange messages. */
static void choose_connecting(tsr__schedule *schedule, const tsr__collective *c)
{
    if (c->size <= TSR__CONNECT_ALL_RANKS) {
        tsr__direct_all_gather(schedule, c->size, c->rank, c->blocks);
        return;
    }
    tsr__recursive_doubling_all_gather(schedule, c->size, c->rank, c->blocks);
    tsr__schedule_next_round(schedule);
    if (c->all_near)
        return;
    if (c->size <= CONNECT_HOSTS_RANKS)
        tsr__greet_other_hosts(schedule, c->size, c->rank, c->is_near);
    else
        tsr__dissemination_barrier(schedule, c->size, c->rank);
}

bool tsr__choose_schedule(tsr__schedule *schedule, const tsr__collective *c)
{
    const int size = c->size, rank = c->rank;
    tsr__collective flat = *c;
    switch (c->kind) {
    case TSR__CALL_ALL_REDUCE:
        return choose_all_reduce(schedule, c);
    case TSR__CALL_REDUCE:
        choose_reduce(schedule, c);
        break;
    case TSR__CALL_REDUCE_SCATTER:
    case TSR__CALL_REDUCE_SCATTER_V:
        return choose_reduce_scatter(schedule, c);
    case TSR__CALL_ALL_GATHER:
    case TSR__CALL_ALL_GATHER_V:
        return choose_all_gather(schedule, c);
    case TSR__CALL_SPLIT:
    case TSR__CALL_DUPLICATE:
    case TSR__CALL_GROW:
        flat.hierarchy = NULL;
        return choose_all_gather(schedule, &flat);
    case TSR__CALL_CREATE:
        choose_connecting(schedule, c);
        break;
    case TSR__CALL_BROADCAST:
        return choose_broadcast(schedule, c);
    case TSR__CALL_GATHER:
    case TSR__CALL_GATHER_V:
        tsr__direct_gather(schedule, size, rank, c->blocks, tsr__block_count(c->blocks, rank),
                           c->peer);
        break;
    case TSR__CALL_SCATTER:
    case TSR__CALL_SCATTER_V:
        tsr__direct_scatter(schedule, size, rank, c->blocks, tsr__block_count(c->blocks, rank),
                            c->peer);
        break;
    case TSR__CALL_ALL_TO_ALL:
    case TSR__CALL_ALL_TO_ALL_V:
        tsr__direct_all_to_all(schedule, size, rank, c->blocks, c->recv_blocks, c->in_place);
        break;
    case TSR__CALL_BARRIER:
        return choose_barrier(schedule, c);
    case TSR__CALL_SEND:
        tsr__schedule_send(schedule, c->peer, tsr__span_of(TSR__AT_SEND, 0, c->count));
        break;
    case TSR__CALL_RECV:
        tsr__schedule_recv(schedule, c->peer, tsr__span_of(TSR__AT_RECV, 0, c->count));
        break;
    case TSR__CALL_KINDS:
        break;
    }
    return false;
}
