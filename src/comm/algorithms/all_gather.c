/* All-gathers: direct, by recursive doubling, and as a ring. tree.h explains leaves and
 * positions. */
#include "comm/algorithms/algorithms.h"

/* Copies this rank's block from its input to its place in the output. */
static void copy_own_block(tsr__schedule *schedule, int rank, const tsr__blocks *blocks)
{
    tsr__schedule_copy(schedule, tsr__span_of(TSR__AT_SEND, 0, tsr__block_count(blocks, rank)),
                       tsr__block_at(TSR__AT_RECV, blocks, rank));
}

void tsr__direct_all_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks)
{
    const tsr__span own = tsr__span_of(TSR__AT_SEND, 0, tsr__block_count(blocks, rank));
    for (int i = 1; i < size; i++) {
        tsr__schedule_recv(schedule, (rank + size - i) % size,
                           tsr__block_at(TSR__AT_RECV, blocks, (rank + size - i) % size));
        tsr__schedule_send(schedule, (rank + i) % size, own);
    }
    copy_own_block(schedule, rank, blocks);
}

/* Exchanges ranges of RECV with a peer in one round. */
static void exchange_ranges(tsr__schedule *schedule, int peer, uint64_t own_start, uint64_t own_end,
                            uint64_t peer_start, uint64_t peer_end)
{
    tsr__schedule_recv(schedule, peer,
                       tsr__span_of(TSR__AT_RECV, peer_start, peer_end - peer_start));
    tsr__schedule_send(schedule, peer, tsr__span_of(TSR__AT_RECV, own_start, own_end - own_start));
    tsr__schedule_next_round(schedule);
}

void tsr__leaves_gather_blocks(tsr__schedule *schedule, const tsr__tree *tree,
                               const tsr__blocks *blocks)
{
    for (int count = tree->joined; count < tree->power; count *= 2) {
        const int own = tree->leaf & ~(count - 1), peers = own ^ count;
        exchange_ranges(
            schedule, tsr__tree_holder(tree, tree->leaf ^ count),
            tsr__tree_blocks(tree, blocks, own), tsr__tree_blocks(tree, blocks, own + count),
            tsr__tree_blocks(tree, blocks, peers), tsr__tree_blocks(tree, blocks, peers + count));
    }
}

void tsr__leaves_gather_shares(tsr__schedule *schedule, const tsr__tree *tree, uint64_t base,
                               uint64_t total)
{
    const int position = tsr__tree_position(tree, tree->leaf);
    for (int count = 1; count < tree->power / tree->joined; count *= 2) {
        const int own = position & ~(count - 1), peers = own ^ count;
        exchange_ranges(schedule,
                        tsr__tree_holder(tree, tsr__tree_position(tree, position ^ count)),
                        base + tsr__tree_share(tree, total, own),
                        base + tsr__tree_share(tree, total, own + count),
                        base + tsr__tree_share(tree, total, peers),
                        base + tsr__tree_share(tree, total, peers + count));
    }
}

void tsr__recursive_doubling_all_gather(tsr__schedule *schedule, int size, int rank,
                                        const tsr__blocks *blocks)
{
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, tsr__block_start(blocks, size));
    copy_own_block(schedule, rank, blocks);
    tsr__schedule_next_round(schedule);
    if (tree.partner >= 0 && tree.holds)
        tsr__schedule_recv(schedule, tree.partner,
                           tsr__block_at(TSR__AT_RECV, blocks, tree.partner));
    if (!tree.holds) {
        tsr__schedule_send(schedule, tree.partner, tsr__block_at(TSR__AT_RECV, blocks, rank));
        tsr__schedule_next_round(schedule);
        tsr__schedule_recv(schedule, tree.partner, all);
        return;
    }
    tsr__schedule_next_round(schedule);
    tsr__leaves_gather_blocks(schedule, &tree, blocks);
    if (tree.partner >= 0)
        tsr__schedule_send(schedule, tree.partner, all);
}

void tsr__ring_all_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks)
{
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    copy_own_block(schedule, rank, blocks);
    tsr__schedule_next_round(schedule);
    for (int i = 0; i < size - 1; i++) {
        const int sent = (rank + size - i) % size, received = (rank + 2 * size - i - 1) % size;
        tsr__schedule_recv(schedule, left, tsr__block_at(TSR__AT_RECV, blocks, received));
        tsr__schedule_send(schedule, right, tsr__block_at(TSR__AT_RECV, blocks, sent));
        tsr__schedule_next_round(schedule);
    }
}
