/* Chooses algorithms. An operation "in levels" combines or exchanges data inside subtrees of ranks
 * that share a host, and between these subtrees (levels.h). */
#include "comm/algorithms/choose.h"

#include "base/checked.h"

/* The size of a broadcast from which the algorithm that sends fewer bytes is faster than the one
 * that sends fewer messages. */
#define LARGE_BROADCAST_BYTES 65536
/* In an operation in levels of LARGE_LEVELS_BYTES or more, each rank that holds a leaf exchanges a
 * share of the data with the other subtrees; below, the first rank of a subtree exchanges all of
 * it. If there are two subtrees of up to two leaves ("a pair"), all ranks exchange messages at any
 * size: every rank then receives a message of its own, so that after a long wait all ranks wake at
 * once. They exchange shares, or up to SMALL_PAIR_BYTES all data, so that nothing is left to do
 * after the exchange. */
#define LARGE_LEVELS_BYTES 16384
#define SMALL_PAIR_BYTES 1024
/* An all-reduce in levels handles the data in pieces of this size, one after the other, so that a
 * piece stays in the cache. In a pair, pieces are smaller, because each message carries half a
 * piece. */
#define LEVELS_PIECE_BYTES (UINT64_C(512) << 10)
#define PAIR_PIECE_BYTES (UINT64_C(256) << 10)
/* The size of the pieces in which an all-reduce by messages only handles the data. The largest
 * message is half a piece, so that UCX sends it over TCP without its rendezvous protocol
 * (ucx/context.c). With that protocol, two ranks that exchange messages use only one direction of
 * the link at a time. */
#define FLAT_PIECE_BYTES (UINT64_C(1) << 20)
/* In an all-reduce between two subtrees, two ranks exchange shares of this size in two rounds of
 * messages of half the size, which is faster than in one round. */
#define MIN_HALVED_BYTES (UINT64_C(16) << 10)
#define MAX_HALVED_BYTES (UINT64_C(64) << 10)

static bool is_pair(const tsr__levels *levels)
{
    return levels->leaves <= 2 && levels->subtrees == 2;
}

/* Returns whether each rank that holds a leaf exchanges a share of the data with other subtrees,
 * instead of the first rank exchanging everything. */
static bool is_shared(const tsr__levels *levels, uint64_t bytes)
{
    return is_pair(levels) || bytes >= LARGE_LEVELS_BYTES;
}

/* Returns whether there are two small subtrees and so few bytes that each rank moves all data of
 * its subtree. */
static bool is_small_pair(const tsr__levels *levels, uint64_t bytes)
{
    return !levels->uneven && is_pair(levels) && bytes <= SMALL_PAIR_BYTES;
}

/* Marks equal subtrees as uneven. The algorithms for uneven subtrees are then used, in which each
 * rank that holds a leaf exchanges all data of its subtree. */
static tsr__levels as_uneven(const tsr__levels *levels)
{
    tsr__levels uneven = *levels;
    uneven.uneven = true;
    uneven.tree.joined = levels->leaves;
    return uneven;
}

/* An all-reduce by messages only, of `piece` elements at a time. It uses the algorithm for uneven
 * subtrees, and treats each rank as a subtree of its own. */
static void reduce_pieces(tsr__schedule *schedule, const tsr__placement *placement, uint64_t count,
                          uint64_t piece)
{
    const tsr__tree tree = tsr__tree_of(placement->size, placement->rank, -1);
    const tsr__levels alone = {.tree = tree,
                               .uneven = true,
                               .leaves = 1,
                               .subtrees = tree.power,
                               .subtree = tree.leaf,
                               .first = tree.rank,
                               .count = 1};
    tsr__uneven_all_reduce(schedule, &alone, count, piece);
}

bool tsr__choose_all_reduce(tsr__schedule *schedule, const tsr__placement *placement,
                            uint64_t count, uint64_t element_bytes)
{
    const tsr__levels *levels = placement->levels;
    const uint64_t bytes = count * element_bytes;
    const bool large = bytes >= TSR__LARGE_REDUCE_BYTES;
    if (!levels && bytes > FLAT_PIECE_BYTES) {
        reduce_pieces(schedule, placement, count, FLAT_PIECE_BYTES / element_bytes);
        return false;
    }
    if (!levels) {
        tsr__algorithm_all_reduce(schedule, placement->size, placement->rank, count, large);
        return false;
    }
    if (is_small_pair(levels, bytes)) {
        const tsr__levels uneven = as_uneven(levels);
        tsr__uneven_all_reduce(schedule, &uneven, count, 0);
        return true;
    }
    if (levels->uneven) {
        tsr__uneven_all_reduce(schedule, levels, count,
                               large ? LEVELS_PIECE_BYTES / element_bytes : 0);
        return true;
    }
    const uint64_t piece = is_pair(levels) ? PAIR_PIECE_BYTES : LEVELS_PIECE_BYTES,
                   share = tsr__min_u64(bytes, piece) / (uint64_t)levels->leaves;
    tsr__levels_all_reduce(schedule, levels, count,
                           is_shared(levels, bytes) ? piece / element_bytes : 0,
                           share >= MIN_HALVED_BYTES && share <= MAX_HALVED_BYTES);
    return true;
}

bool tsr__choose_reduce_scatter(tsr__schedule *schedule, const tsr__placement *placement,
                                const tsr__blocks *blocks)
{
    const tsr__levels *levels = placement->levels;
    if (!levels)
        tsr__algorithm_reduce_scatter(schedule, placement->size, placement->rank, blocks);
    else if (levels->uneven)
        tsr__uneven_reduce_scatter(schedule, levels, blocks);
    else
        tsr__levels_reduce_scatter(schedule, levels, blocks);
    return levels != NULL;
}

bool tsr__choose_all_gather(tsr__schedule *schedule, const tsr__placement *placement,
                            const tsr__blocks *blocks, uint64_t element_bytes)
{
    const tsr__levels *levels = placement->levels;
    const uint64_t bytes = tsr__block_start(blocks, placement->size) * element_bytes;
    const bool large = bytes >= LARGE_BROADCAST_BYTES;
    /* Use the algorithm without levels, a ring if `large`: if the number of ranks is not a power of
     * two (extra > 0), it sends fewer bytes. */
    if (!levels || (levels->uneven && large && levels->tree.extra > 0)) {
        tsr__algorithm_all_gather(schedule, placement->size, placement->rank, blocks, large);
        return false;
    }
    if (levels->uneven) {
        tsr__uneven_all_gather(schedule, levels, blocks);
    } else if (is_small_pair(levels, bytes)) {
        const tsr__levels uneven = as_uneven(levels);
        tsr__uneven_all_gather(schedule, &uneven, blocks);
    } else {
        tsr__levels_all_gather(schedule, levels, blocks, is_shared(levels, bytes));
    }
    return true;
}

bool tsr__choose_broadcast(tsr__schedule *schedule, const tsr__placement *placement, uint64_t count,
                           int root, uint64_t element_bytes)
{
    const tsr__levels *levels = placement->levels;
    const uint64_t bytes = count * element_bytes;
    if (!levels)
        tsr__algorithm_broadcast(schedule, placement->size, placement->rank, count, root,
                                 bytes >= LARGE_BROADCAST_BYTES);
    else if (levels->uneven)
        tsr__uneven_broadcast(schedule, levels, count, root);
    else
        tsr__levels_broadcast(schedule, levels, count, root, is_shared(levels, bytes));
    return levels != NULL;
}

bool tsr__choose_barrier(tsr__schedule *schedule, const tsr__placement *placement)
{
    const tsr__levels *levels = placement->levels;
    if (!levels)
        tsr__algorithm_barrier(schedule, placement->size, placement->rank);
    else if (levels->uneven)
        tsr__uneven_barrier(schedule, levels);
    else
        tsr__levels_barrier(schedule, levels, is_shared(levels, 0));
    return levels != NULL;
}
