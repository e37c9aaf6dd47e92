/* Broadcasts (binomial tree, van de Geijn) and barriers (dissemination). tree.h explains leaves and
 * positions. */
#include "comm/algorithms/algorithms.h"

static int rank_of_member(const tsr__members *members, int number)
{
    if (!members->tree)
        return number;
    return number == members->replaced ? members->replacement
                                       : tsr__tree_holder(members->tree, number);
}

/* Broadcast ---------------------------------------------------------------------------------------
 */

void tsr__members_broadcast(tsr__schedule *schedule, const tsr__members *members, int root,
                            tsr__span data)
{
    const int count = members->count, me = members->mine;
    const int from_root = (me - root + count) % count;
    /* the distance to the member that this one receives from: the lowest set bit of from_root */
    int distance = 1;
    while (distance < count && !(from_root & distance))
        distance *= 2;
    if (from_root != 0) {
        tsr__schedule_recv(schedule, rank_of_member(members, (me - distance + count) % count),
                           data);
        tsr__schedule_next_round(schedule);
    }
    for (distance /= 2; distance > 0; distance /= 2) {
        if (from_root + distance < count)
            tsr__schedule_send(schedule, rank_of_member(members, (me + distance) % count), data);
    }
}

void tsr__binomial_broadcast(tsr__schedule *schedule, int size, int rank, uint64_t count, int root)
{
    tsr__members_broadcast(schedule, &(tsr__members){.count = size, .mine = rank}, root,
                           tsr__span_of(TSR__AT_RECV, 0, count));
}

static tsr__span share_of_leaf(const tsr__tree *tree, uint64_t count, int leaf)
{
    const int position = tsr__tree_position(tree, leaf);
    const uint64_t start = tsr__tree_share(tree, count, position);
    return tsr__span_of(TSR__AT_RECV, start, tsr__tree_share(tree, count, position + 1) - start);
}

void tsr__van_de_geijn_broadcast(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                 int root)
{
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    if (rank == root) {
        for (int leaf = 0; leaf < tree.power; leaf++) {
            const int to = tsr__tree_holder(&tree, leaf);
            if (to != rank)
                tsr__schedule_send(schedule, to, share_of_leaf(&tree, count, leaf));
        }
    } else if (tree.holds) {
        tsr__schedule_recv(schedule, root, share_of_leaf(&tree, count, tree.leaf));
    }
    tsr__schedule_next_round(schedule);
    if (tree.holds)
        tsr__leaves_gather_shares(schedule, &tree, 0, count);
    if (tree.partner >= 0 && tree.holds && tree.partner != root)
        tsr__schedule_send(schedule, tree.partner, all);
    if (!tree.holds && rank != root)
        tsr__schedule_recv(schedule, tree.partner, all);
}

/* Barrier -----------------------------------------------------------------------------------------
 */

/* After round k every member has received, directly or indirectly, from the 2^(k + 1) − 1 members
 * before it. D. Hensgen, R. Finkel, U. Manber, "Two algorithms for barrier synchronization",
 * 1988. */
void tsr__members_barrier(tsr__schedule *schedule, const tsr__members *members)
{
    const int count = members->count, me = members->mine;
    const tsr__span nothing = tsr__span_of(TSR__AT_RECV, 0, 0);
    for (int distance = 1; distance < count; distance *= 2) {
        tsr__schedule_recv(schedule, rank_of_member(members, (me + count - distance) % count),
                           nothing);
        tsr__schedule_send(schedule, rank_of_member(members, (me + distance) % count), nothing);
        tsr__schedule_next_round(schedule);
    }
}

void tsr__dissemination_barrier(tsr__schedule *schedule, int size, int rank)
{
    tsr__members_barrier(schedule, &(tsr__members){.count = size, .mine = rank});
}

void tsr__greet_other_hosts(tsr__schedule *schedule, int size, int rank, const bool *is_near)
{
    const tsr__span nothing = tsr__span_of(TSR__AT_RECV, 0, 0);
    for (int i = 1; i < size; i++) {
        const int from = (rank + size - i) % size, to = (rank + i) % size;
        if (!is_near[from])
            tsr__schedule_recv(schedule, from, nothing);
        if (!is_near[to])
            tsr__schedule_send(schedule, to, nothing);
    }
}
