/* Hierarchical collectives, with subtrees of equal size. hierarchical.h explains them, and tree.h
 * explains leaves. */
#include "comm/algorithms/hierarchical.h"

/* The placement -----------------------------------------------------------------------------------
 */

/* Returns whether the ranks that have the `leaves` leaves from `leaf` on are at most `most` ranks,
 * all on one host. */
static bool subtree_is_on_one_host(const tsr__tree *tree, const int *host_of, int leaf, int leaves,
                                   int most)
{
    const int first = tsr__tree_first_rank(tree, leaf),
              end = tsr__tree_first_rank(tree, leaf + leaves);
    if (end - first > most)
        return false;
    for (int rank = first + 1; rank < end; rank++) {
        if (host_of[rank] != host_of[first])
            return false;
    }
    return true;
}

/* Returns the number of leaves in the largest subtree that begins with leaf `leaf`, is on one host
 * and has at most `most` ranks. Returns 0 if the ranks of this leaf are on two hosts. */
static int largest_subtree_from(const tsr__tree *tree, const int *host_of, int leaf, int most)
{
    int leaves = tree->power;
    while (leaves > 0 &&
           (leaf % leaves || !subtree_is_on_one_host(tree, host_of, leaf, leaves, most)))
        leaves /= 2;
    return leaves;
}

/* Finds this rank's subtree if subtrees are uneven: each of them is as large as possible. out->tree
 * must be set. */
static void find_own_uneven(const int *host_of, int most, tsr__hierarchy *out)
{
    const tsr__tree *tree = &out->tree;
    int next, leaves;
    out->subtrees = 0;
    for (int leaf = 0; leaf < tree->power; leaf = next) {
        leaves = largest_subtree_from(tree, host_of, leaf, most);
        next = leaf + (leaves ? leaves : 1);
        if (leaf <= tree->leaf && tree->leaf < next) {
            out->subtree = out->subtrees;
            out->leaves = next - leaf;
            out->first = leaves ? tsr__tree_first_rank(tree, leaf) : tree->rank;
            out->count = leaves ? tsr__tree_first_rank(tree, next) - out->first : 1;
        }
        out->subtrees++;
    }
    out->tree.joined = out->leaves;
}

bool tsr__hierarchy_find(int size, int rank, const int *host_of, int most, tsr__hierarchy *out)
{
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    /* the numbers of leaves of the smallest and of the largest subtree */
    int common = tree.power, largest = 0;
    bool shares_leaf = false; /* whether there are two ranks of one host that share a leaf */
    for (int leaf = 0, leaves; leaf < tree.power; leaf += leaves ? leaves : 1) {
        leaves = largest_subtree_from(&tree, host_of, leaf, most);
        common = leaves < common ? leaves : common;
        largest = leaves > largest ? leaves : largest;
        shares_leaf = shares_leaf || (leaves > 0 && leaf < tree.extra);
    }
    if (largest < 2 && !shares_leaf)
        return false;
    *out = (tsr__hierarchy){.tree = tree};
    if (common == 0 || (common == 1 && largest > 1)) {
        out->uneven = true;
        find_own_uneven(host_of, most, out);
        return true;
    }
    out->leaves = common;
    out->subtrees = tree.power / common;
    out->subtree = tree.leaf / common;
    out->first = tsr__tree_first_rank(&tree, out->subtree * common);
    out->count = tsr__tree_first_rank(&tree, (out->subtree + 1) * common) - out->first;
    return true;
}

/* Inner steps -------------------------------------------------------------------------------------
 */

static tsr__span empty_span(void)
{
    return tsr__span_of(TSR__AT_RECV, 0, 0);
}

/* Adds an inner step. In a subtree of one rank, adds a copy instead, or nothing for a broadcast or
 * barrier. */
static void add_inner_step(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                           tsr__inner_kind kind, int root, tsr__span from, tsr__span to, int ranks)
{
    if (hierarchy->count > 1) {
        tsr__schedule_inner(schedule, kind, root, from, to, ranks);
    } else if (kind != TSR__INNER_BROADCAST && kind != TSR__INNER_BARRIER) {
        tsr__schedule_copy(schedule, from, to);
        tsr__schedule_next_round(schedule);
    }
}

static void inner_broadcast(tsr__schedule *schedule, const tsr__hierarchy *hierarchy, int root,
                            tsr__span data)
{
    add_inner_step(schedule, hierarchy, TSR__INNER_BROADCAST, root, empty_span(), data, 0);
}

static void inner_barrier(tsr__schedule *schedule, const tsr__hierarchy *hierarchy)
{
    add_inner_step(schedule, hierarchy, TSR__INNER_BARRIER, hierarchy->first, empty_span(),
                   empty_span(), 0);
}

/* Returns the index of this rank's leaf in its subtree, from 0. */
static int own_index(const tsr__hierarchy *hierarchy)
{
    return hierarchy->tree.leaf - hierarchy->subtree * hierarchy->leaves;
}

/* Returns the tree between the holders of the leaves that have this index in their subtrees. */
static tsr__tree tree_between(const tsr__hierarchy *hierarchy, int index)
{
    return tsr__tree_between(&hierarchy->tree, hierarchy->leaves, index);
}

/* A range of elements, of which each leaf of a subtree gets an even share, in the order of the
 * leaves. */
typedef struct range {
    uint64_t start, count;
} range;

/* Returns where the share of the leaf with this index starts, counted from the start of the range.
 * `user` is the range. */
static uint64_t share_start(const tsr__hierarchy *hierarchy, const void *user, int index)
{
    const range *divided = user;
    return tsr__even_start(divided->count, hierarchy->leaves, index);
}

/* Returns this rank's share of the range, which is empty if the rank holds no leaf. */
static tsr__span share_of_own_leaf(const tsr__hierarchy *hierarchy, const range *divided)
{
    const uint64_t start = share_start(hierarchy, divided, own_index(hierarchy));
    const uint64_t end = share_start(hierarchy, divided, own_index(hierarchy) + 1);
    return tsr__span_of(TSR__AT_RECV, divided->start + start,
                        hierarchy->tree.holds ? end - start : 0);
}

/* Adds to the schedule where the block of each rank of this subtree starts and ends, for a
 * collective inside the subtree (an inner step, hierarchical.h). The holder of the leaf with index
 * i has the elements from start(i) to start(i + 1) − 1; a rank that holds no leaf has none. Returns
 * the number of ranks in the subtree. */
static int add_bounds(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                      uint64_t (*start)(const tsr__hierarchy *hierarchy, const void *user,
                                        int index),
                      const void *user)
{
    for (int end = 0; end < 2; end++) {
        for (int rank = hierarchy->first; rank < hierarchy->first + hierarchy->count; rank++) {
            const int leaf = tsr__tree_leaf_of(&hierarchy->tree, rank);
            const int index = leaf - hierarchy->subtree * hierarchy->leaves;
            const bool holds = tsr__tree_holder(&hierarchy->tree, leaf) == rank;
            tsr__schedule_bound(schedule, start(hierarchy, user, holds ? index + end : index + 1));
        }
    }
    return hierarchy->count;
}

/* All-reduce --------------------------------------------------------------------------------------
 */

void tsr__single_leader_all_reduce(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                   uint64_t count)
{
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    add_inner_step(schedule, hierarchy, TSR__INNER_REDUCE, hierarchy->first,
                   tsr__span_of(TSR__AT_SEND, 0, count), all, 0);
    if (hierarchy->tree.rank == hierarchy->first) {
        const tsr__tree between = tree_between(hierarchy, 0);
        const uint64_t incoming = tsr__schedule_temp(schedule, count, 1);
        tsr__leaves_all_reduce(schedule, &between, 0, count, incoming, false);
    }
    inner_broadcast(schedule, hierarchy, hierarchy->first, all);
}

static void multi_leader_chunk(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                               const range *chunk, uint64_t incoming, bool halve)
{
    const tsr__span share = share_of_own_leaf(hierarchy, chunk);
    int ranks = add_bounds(schedule, hierarchy, share_start, chunk);
    add_inner_step(schedule, hierarchy, TSR__INNER_REDUCE_SCATTER, hierarchy->first,
                   tsr__span_of(TSR__AT_SEND, chunk->start, chunk->count), share, ranks);
    if (hierarchy->tree.holds) {
        const tsr__tree between = tree_between(hierarchy, own_index(hierarchy));
        tsr__leaves_all_reduce(schedule, &between, share.start, share.count, incoming,
                               halve || hierarchy->subtrees > 2);
    }
    ranks = add_bounds(schedule, hierarchy, share_start, chunk);
    add_inner_step(schedule, hierarchy, TSR__INNER_ALL_GATHER, hierarchy->first, share,
                   tsr__span_of(TSR__AT_RECV, chunk->start, chunk->count), ranks);
}

void tsr__multi_leader_all_reduce(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                  uint64_t count, uint64_t chunk, bool halve)
{
    range current = {.start = 0};
    const uint64_t largest_share =
        (count < chunk ? count : chunk) / (uint64_t)hierarchy->leaves + 1;
    const uint64_t incoming = tsr__schedule_temp(schedule, largest_share, 1);
    do {
        current.count = count - current.start < chunk ? count - current.start : chunk;
        multi_leader_chunk(schedule, hierarchy, &current, incoming, halve);
        current.start += current.count;
    } while (current.start < count);
}

/* Reduce-scatter -------------------------------------------------------------------------------
 *
 * Each rank has a block for every rank. The blocks are first copied into columns. A column has the
 * blocks for the leaves that have the same index in their subtrees, in the order of the subtrees'
 * positions (tree.h). The inner reduce-scatter gives each holder a column, which is then reduced
 * between the subtrees. */

static uint64_t column_start(const tsr__hierarchy *hierarchy, const void *blocks, int index)
{
    uint64_t start = 0;
    for (int before = 0; before < index; before++) {
        for (int subtree = 0; subtree < hierarchy->subtrees; subtree++)
            start += tsr__tree_leaf_count(&hierarchy->tree, blocks,
                                          subtree * hierarchy->leaves + before);
    }
    return start;
}

/* Copies this rank's contribution into columns, from `base` of TEMP on. */
static void copy_columns(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                         const tsr__blocks *blocks, uint64_t base)
{
    for (int index = 0; index < hierarchy->leaves; index++) {
        const tsr__tree between = tree_between(hierarchy, index);
        for (int position = 0; position < between.power; position++) {
            const int subtree = tsr__tree_position(&between, position);
            const uint64_t start = tsr__tree_blocks(&between, blocks, subtree);
            const uint64_t count = tsr__tree_leaf_count(&between, blocks, subtree);
            tsr__schedule_copy(schedule, tsr__span_of(TSR__AT_SEND, start, count),
                               tsr__span_of(TSR__AT_TEMP, base, count));
            base += count;
        }
    }
}

void tsr__hierarchical_reduce_scatter(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                      const tsr__blocks *blocks)
{
    const tsr__tree *tree = &hierarchy->tree;
    const int index = own_index(hierarchy);
    const uint64_t total = tsr__block_start(blocks, tree->size);
    const uint64_t base = tsr__schedule_temp(schedule, total, 1);
    const uint64_t start = column_start(hierarchy, blocks, index);
    const uint64_t end = column_start(hierarchy, blocks, index + 1);
    copy_columns(schedule, hierarchy, blocks, base);
    const int ranks = add_bounds(schedule, hierarchy, column_start, blocks);
    add_inner_step(schedule, hierarchy, TSR__INNER_REDUCE_SCATTER, hierarchy->first,
                   tsr__span_of(TSR__AT_TEMP, base, total),
                   tsr__span_of(TSR__AT_TEMP, base + start, tree->holds ? end - start : 0), ranks);
    if (!tree->holds) {
        tsr__schedule_recv(schedule, tree->partner,
                           tsr__span_of(TSR__AT_RECV, 0, tsr__block_count(blocks, tree->rank)));
        return;
    }
    const tsr__tree between = tree_between(hierarchy, index);
    tsr__leaves_reduce_scatter(schedule, &between, tree->partner, base + start, blocks);
}

/* All-gather --------------------------------------------------------------------------------------
 */

/* Which blocks a subtree has: those of the ranks of its leaves. */
typedef struct subtree_blocks {
    const tsr__blocks *blocks;
    int subtree;
} subtree_blocks;

/* Returns where the blocks of a leaf start, counted from the first block of its subtree. `user` is
 * a subtree_blocks. */
static uint64_t start_in_subtree(const tsr__hierarchy *hierarchy, const void *user, int index)
{
    const subtree_blocks *gathered = user;
    const int first = gathered->subtree * hierarchy->leaves;
    const uint64_t start = tsr__tree_blocks(&hierarchy->tree, gathered->blocks, first);
    return tsr__tree_blocks(&hierarchy->tree, gathered->blocks, first + index) - start;
}

static tsr__span subtree_span(const tsr__hierarchy *hierarchy, const tsr__blocks *blocks,
                              int subtree)
{
    const tsr__tree *tree = &hierarchy->tree;
    const uint64_t start = tsr__tree_blocks(tree, blocks, subtree * hierarchy->leaves);
    const uint64_t end = tsr__tree_blocks(tree, blocks, (subtree + 1) * hierarchy->leaves);
    return tsr__span_of(TSR__AT_RECV, start, end - start);
}

static tsr__span leaf_span(const tsr__tree *tree, const tsr__blocks *blocks, int leaf)
{
    return tsr__span_of(TSR__AT_RECV, tsr__tree_blocks(tree, blocks, leaf),
                        tsr__tree_leaf_count(tree, blocks, leaf));
}

/* Multi-leader: each rank that holds a leaf exchanges the leaf's blocks with the holders of the
 * leaves with the same index in the other subtrees. Then the ranks of each subtree gather the
 * blocks of all other subtrees from each other. */
static void multi_leader_gather(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                const tsr__blocks *blocks)
{
    const tsr__tree between = tree_between(hierarchy, own_index(hierarchy));
    for (int i = 1; i < hierarchy->subtrees && hierarchy->tree.holds; i++) {
        const int in = (hierarchy->subtree + hierarchy->subtrees - i) % hierarchy->subtrees;
        const int out = (hierarchy->subtree + i) % hierarchy->subtrees;
        tsr__schedule_recv(schedule, tsr__tree_holder(&between, in),
                           leaf_span(&between, blocks, in));
        tsr__schedule_send(schedule, tsr__tree_holder(&between, out),
                           leaf_span(&between, blocks, hierarchy->subtree));
    }
    tsr__schedule_next_round(schedule);
    for (int subtree = 0; subtree < hierarchy->subtrees && hierarchy->count > 1; subtree++) {
        const subtree_blocks gathered = {.blocks = blocks, .subtree = subtree};
        tsr__span mine = leaf_span(&between, blocks, subtree);
        if (!hierarchy->tree.holds)
            mine.count = 0;
        if (subtree != hierarchy->subtree)
            tsr__schedule_inner(schedule, TSR__INNER_ALL_GATHER, hierarchy->first, mine,
                                subtree_span(hierarchy, blocks, subtree),
                                add_bounds(schedule, hierarchy, start_in_subtree, &gathered));
    }
}

/* Single leader: the first rank of each subtree exchanges all blocks with the other leaders, and
 * broadcasts them in its subtree. */
static void single_leader_gather(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                 const tsr__blocks *blocks)
{
    const tsr__tree between = tree_between(hierarchy, 0);
    if (hierarchy->tree.rank == hierarchy->first)
        tsr__leaves_gather_blocks(schedule, &between, blocks);
    inner_broadcast(schedule, hierarchy, hierarchy->first,
                    tsr__span_of(TSR__AT_RECV, 0, tsr__block_start(blocks, hierarchy->tree.size)));
}

void tsr__hierarchical_all_gather(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                  const tsr__blocks *blocks, bool multi_leader)
{
    const uint64_t base = tsr__block_start(blocks, hierarchy->first);
    const uint64_t count = tsr__block_count(blocks, hierarchy->tree.rank);
    const tsr__span mine =
        tsr__span_of(TSR__AT_RECV, tsr__block_start(blocks, hierarchy->tree.rank), count);
    tsr__schedule_copy(schedule, tsr__span_of(TSR__AT_SEND, 0, count), mine);
    for (int i = 0; i < 2 * hierarchy->count; i++)
        tsr__schedule_bound(schedule,
                            tsr__block_start(blocks, hierarchy->first + i % hierarchy->count +
                                                         i / hierarchy->count) -
                                base);
    if (hierarchy->count > 1)
        tsr__schedule_inner(schedule, TSR__INNER_ALL_GATHER, hierarchy->first, mine,
                            subtree_span(hierarchy, blocks, hierarchy->subtree), hierarchy->count);
    tsr__schedule_next_round(schedule);
    if (multi_leader)
        multi_leader_gather(schedule, hierarchy, blocks);
    else
        single_leader_gather(schedule, hierarchy, blocks);
}

/* Broadcast and barrier ---------------------------------------------------------------------------
 */

/* Returns the holders of the leaves of `between`, one of each subtree. */
static tsr__members members_between(const tsr__hierarchy *hierarchy, const tsr__tree *between)
{
    return (tsr__members){
        .count = hierarchy->subtrees, .mine = hierarchy->subtree, .tree = between, .replaced = -1};
}

/* Root's subtree is number `home`; there, root itself is the leader. */
static void single_leader_broadcast(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                    tsr__span all, int root, int home)
{
    const tsr__tree between = tree_between(hierarchy, 0);
    const int leader = hierarchy->subtree == home ? root : hierarchy->first;
    tsr__members members = members_between(hierarchy, &between);
    members.replaced = home;
    members.replacement = root;
    if (hierarchy->tree.rank == leader)
        tsr__members_broadcast(schedule, &members, home, all);
    inner_broadcast(schedule, hierarchy, leader, all);
}

/* First the ranks of root's subtree get the data. Then each holder of a leaf there sends its share
 * to the other subtrees. */
static void multi_leader_broadcast(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                   tsr__span all, int root, int home)
{
    const range whole = {.count = all.count};
    const tsr__tree between = tree_between(hierarchy, own_index(hierarchy));
    const tsr__members members = members_between(hierarchy, &between);
    const tsr__span share = share_of_own_leaf(hierarchy, &whole);
    if (hierarchy->subtree == home)
        inner_broadcast(schedule, hierarchy, root, all);
    if (hierarchy->tree.holds)
        tsr__members_broadcast(schedule, &members, home, share);
    if (hierarchy->subtree != home)
        add_inner_step(schedule, hierarchy, TSR__INNER_ALL_GATHER, hierarchy->first, share, all,
                       add_bounds(schedule, hierarchy, share_start, &whole));
}

void tsr__hierarchical_broadcast(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                 uint64_t count, int root, bool multi_leader)
{
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    const int home = tsr__tree_leaf_of(&hierarchy->tree, root) / hierarchy->leaves;
    (multi_leader ? multi_leader_broadcast : single_leader_broadcast)(schedule, hierarchy, all,
                                                                      root, home);
}

void tsr__hierarchical_barrier(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                               bool multi_leader)
{
    const tsr__tree between = tree_between(hierarchy, multi_leader ? own_index(hierarchy) : 0);
    const tsr__members members = members_between(hierarchy, &between);
    inner_barrier(schedule, hierarchy);
    if (multi_leader ? hierarchy->tree.holds : hierarchy->tree.rank == hierarchy->first)
        tsr__members_barrier(schedule, &members);
    /* ranks that have exchanged no messages with other subtrees wait for those of their subtree
     * that have */
    if (!multi_leader || hierarchy->count > hierarchy->leaves)
        inner_barrier(schedule, hierarchy);
}
