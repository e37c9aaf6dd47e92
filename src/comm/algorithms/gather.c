/* Algorithms that move elements without combining them. tree.h explains leaves and positions. */
#include "comm/algorithms/algorithms.h"

/* Returns the element at which the blocks of the ranks of leaf `at` start or, if `blocks` is NULL,
 * at which the share at position `at` starts. */
static uint64_t start_of(const tsr__tree *tree, const tsr__blocks *blocks, uint64_t total, int at)
{
    return blocks ? tsr__tree_blocks(tree, blocks, at) : tsr__tree_share(tree, total, at);
}

void tsr__algorithm_doubling(tsr__schedule *schedule, const tsr__tree *tree,
                             const tsr__blocks *blocks, uint64_t base, uint64_t total)
{
    const int at = blocks ? tree->leaf : tsr__tree_position(tree, tree->leaf);
    const int from = blocks ? tree->joined : 1;
    const int until = blocks ? tree->power : tree->power / tree->joined;
    for (int count = from; count < until; count *= 2) {
        const int mine = at & ~(count - 1), theirs = mine ^ count, other = at ^ count;
        const int peer = tsr__tree_holder(tree, blocks ? other : tsr__tree_position(tree, other));
        const uint64_t my_start = start_of(tree, blocks, total, mine);
        const uint64_t their_start = start_of(tree, blocks, total, theirs);
        const uint64_t my_end = start_of(tree, blocks, total, mine + count);
        const uint64_t their_end = start_of(tree, blocks, total, theirs + count);
        tsr__schedule_recv(schedule, peer,
                           tsr__span_of(TSR__AT_RECV, base + their_start, their_end - their_start));
        tsr__schedule_send(schedule, peer,
                           tsr__span_of(TSR__AT_RECV, base + my_start, my_end - my_start));
        tsr__schedule_next_round(schedule);
    }
}

/* An all-gather along a ring. Before it, RECV contains this rank's block; afterwards it contains
 * all blocks. */
static void ring(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks)
{
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    for (int i = 0; i < size - 1; i++) {
        const int out = (rank + size - i) % size, in = (rank + 2 * size - i - 1) % size;
        tsr__schedule_recv(schedule, left, tsr__block_at(TSR__AT_RECV, blocks, in));
        tsr__schedule_send(schedule, right, tsr__block_at(TSR__AT_RECV, blocks, out));
        tsr__schedule_next_round(schedule);
    }
}

static void all_gather_doubling(tsr__schedule *schedule, const tsr__tree *tree,
                                const tsr__blocks *blocks)
{
    const uint64_t total = tsr__block_start(blocks, tree->size);
    if (tree->other >= 0 && tree->holds)
        tsr__schedule_recv(schedule, tree->other, tsr__block_at(TSR__AT_RECV, blocks, tree->other));
    if (!tree->holds) {
        tsr__schedule_send(schedule, tree->other, tsr__block_at(TSR__AT_RECV, blocks, tree->rank));
        tsr__schedule_next_round(schedule);
        tsr__schedule_recv(schedule, tree->other, tsr__span_of(TSR__AT_RECV, 0, total));
        return;
    }
    tsr__schedule_next_round(schedule);
    tsr__algorithm_doubling(schedule, tree, blocks, 0, 0);
    if (tree->other >= 0)
        tsr__schedule_send(schedule, tree->other, tsr__span_of(TSR__AT_RECV, 0, total));
}

void tsr__algorithm_all_gather(tsr__schedule *schedule, int size, int rank,
                               const tsr__blocks *blocks, bool large)
{
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    tsr__schedule_copy(schedule, tsr__span_of(TSR__AT_SEND, 0, tsr__block_count(blocks, rank)),
                       tsr__block_at(TSR__AT_RECV, blocks, rank));
    tsr__schedule_next_round(schedule);
    if (large && tree.extra > 0)
        ring(schedule, size, rank, blocks);
    else
        all_gather_doubling(schedule, &tree, blocks);
}

static int member(const tsr__members *members, int number)
{
    if (!members->tree)
        return number;
    return number == members->replaced ? members->replacement
                                       : tsr__tree_holder(members->tree, number);
}

void tsr__algorithm_binomial(tsr__schedule *schedule, const tsr__members *members, int root,
                             tsr__span all)
{
    const int count = members->count, me = members->mine;
    const int mine = (me - root + count) % count;
    /* the distance to the member that this one receives from: the lowest set bit of `mine` */
    int distance = 1;
    while (distance < count && !(mine & distance))
        distance *= 2;
    if (mine != 0) {
        tsr__schedule_recv(schedule, member(members, (me - distance + count) % count), all);
        tsr__schedule_next_round(schedule);
    }
    for (distance /= 2; distance > 0; distance /= 2) {
        if (mine + distance < count)
            tsr__schedule_send(schedule, member(members, (me + distance) % count), all);
    }
}

static tsr__span share_of(const tsr__tree *tree, uint64_t count, int leaf)
{
    const int position = tsr__tree_position(tree, leaf);
    const uint64_t start = tsr__tree_share(tree, count, position);
    return tsr__span_of(TSR__AT_RECV, start, tsr__tree_share(tree, count, position + 1) - start);
}

/* A broadcast: root scatters the elements, then an all-gather brings them to all ranks (van de
 * Geijn's algorithm). */
static void broadcast_shares(tsr__schedule *schedule, int size, int rank, uint64_t count, int root)
{
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    if (rank == root) {
        for (int leaf = 0; leaf < tree.power; leaf++) {
            const int to = tsr__tree_holder(&tree, leaf);
            if (to != rank)
                tsr__schedule_send(schedule, to, share_of(&tree, count, leaf));
        }
    } else if (tree.holds) {
        tsr__schedule_recv(schedule, root, share_of(&tree, count, tree.leaf));
    }
    tsr__schedule_next_round(schedule);
    if (tree.holds)
        tsr__algorithm_doubling(schedule, &tree, NULL, 0, count);
    if (tree.other >= 0 && tree.holds && tree.other != root)
        tsr__schedule_send(schedule, tree.other, all);
    if (!tree.holds && rank != root)
        tsr__schedule_recv(schedule, tree.other, all);
}

void tsr__algorithm_broadcast(tsr__schedule *schedule, int size, int rank, uint64_t count, int root,
                              bool large)
{
    if (large)
        broadcast_shares(schedule, size, rank, count, root);
    else
        tsr__algorithm_binomial(schedule, &(tsr__members){.count = size, .mine = rank}, root,
                                tsr__span_of(TSR__AT_RECV, 0, count));
}

void tsr__algorithm_gather(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                           uint64_t count, int root)
{
    const tsr__span mine = tsr__span_of(TSR__AT_SEND, 0, count);
    if (rank != root) {
        tsr__schedule_send(schedule, root, mine);
        return;
    }
    for (int i = 1; i < size; i++) {
        const int from = (rank + i) % size;
        tsr__schedule_recv(schedule, from, tsr__block_at(TSR__AT_RECV, blocks, from));
    }
    tsr__schedule_copy(schedule, mine, tsr__block_at(TSR__AT_RECV, blocks, rank));
}

void tsr__algorithm_scatter(tsr__schedule *schedule, int size, int rank, const tsr__blocks *blocks,
                            uint64_t count, int root)
{
    const tsr__span mine = tsr__span_of(TSR__AT_RECV, 0, count);
    if (rank != root) {
        tsr__schedule_recv(schedule, root, mine);
        return;
    }
    for (int i = 1; i < size; i++) {
        const int to = (rank + i) % size;
        tsr__schedule_send(schedule, to, tsr__block_at(TSR__AT_SEND, blocks, to));
    }
    tsr__schedule_copy(schedule, tsr__block_at(TSR__AT_SEND, blocks, rank), mine);
}

void tsr__algorithm_all_to_all(tsr__schedule *schedule, int size, int rank, const tsr__blocks *send,
                               const tsr__blocks *recv, bool in_place)
{
    tsr__array from = TSR__AT_SEND;
    if (in_place) {
        const uint64_t total = tsr__block_start(send, size);
        tsr__schedule_copy(
            schedule, tsr__span_of(TSR__AT_SEND, 0, total),
            tsr__span_of(TSR__AT_TEMP, tsr__schedule_temp(schedule, total, 1), total));
        tsr__schedule_next_round(schedule);
        from = TSR__AT_TEMP;
    }
    /* Each rank starts with a different peer, so that no rank gets all messages at once. */
    for (int i = 1; i < size; i++) {
        const int in = (rank + size - i) % size, out = (rank + i) % size;
        tsr__schedule_recv(schedule, in, tsr__block_at(TSR__AT_RECV, recv, in));
        tsr__schedule_send(schedule, out, tsr__block_at(from, send, out));
    }
    tsr__schedule_copy(schedule, tsr__block_at(from, send, rank),
                       tsr__block_at(TSR__AT_RECV, recv, rank));
}

/* Dissemination: after round k every member has received, directly or indirectly, from the
 * 2^(k + 1) − 1 members before it. D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier
 * synchronization", 1988. */
void tsr__algorithm_dissemination(tsr__schedule *schedule, const tsr__members *members)
{
    const int count = members->count, mine = members->mine;
    const tsr__span nothing = tsr__span_of(TSR__AT_RECV, 0, 0);
    for (int distance = 1; distance < count; distance *= 2) {
        tsr__schedule_recv(schedule, member(members, (mine + count - distance) % count), nothing);
        tsr__schedule_send(schedule, member(members, (mine + distance) % count), nothing);
        tsr__schedule_next_round(schedule);
    }
}

void tsr__algorithm_barrier(tsr__schedule *schedule, int size, int rank)
{
    tsr__algorithm_dissemination(schedule, &(tsr__members){.count = size, .mine = rank});
}
