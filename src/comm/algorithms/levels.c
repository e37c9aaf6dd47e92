/* Collectives in two levels. levels.h explains them, and tree.h explains leaves. */
#include "comm/algorithms/levels.h"

/* The placement -------------------------------------------------------------------------------- */

/* Returns the first rank of a leaf. If `leaf` is the number of leaves, returns the number of
 * ranks. */
static int first_rank(const tsr__tree *tree, int leaf)
{
    return leaf < tree->extra ? 2 * leaf : leaf + tree->extra;
}

/* Returns whether the ranks that have the `leaves` leaves from `leaf` on are at most `most` ranks,
 * all on one host. */
static bool on_one_host(const tsr__tree *tree, const int *host_of, int leaf, int leaves, int most)
{
    const int first = first_rank(tree, leaf), end = first_rank(tree, leaf + leaves);
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
static int largest_from(const tsr__tree *tree, const int *host_of, int leaf, int most)
{
    int leaves = tree->power;
    while (leaves > 0 && (leaf % leaves || !on_one_host(tree, host_of, leaf, leaves, most)))
        leaves /= 2;
    return leaves;
}

/* Finds this rank's subtree for uneven subtrees, each of which is as large as possible. out->tree
 * must be set. */
static void find_own(const int *host_of, int most, tsr__levels *out)
{
    const tsr__tree *tree = &out->tree;
    int next, leaves;
    out->subtrees = 0;
    for (int leaf = 0; leaf < tree->power; leaf = next) {
        leaves = largest_from(tree, host_of, leaf, most);
        next = leaf + (leaves ? leaves : 1);
        if (leaf <= tree->leaf && tree->leaf < next) {
            out->subtree = out->subtrees;
            out->leaves = next - leaf;
            out->first = leaves ? first_rank(tree, leaf) : tree->rank;
            out->count = leaves ? first_rank(tree, next) - out->first : 1;
        }
        out->subtrees++;
    }
    out->tree.joined = out->leaves;
}

bool tsr__levels_find(int size, int rank, const int *host_of, int most, tsr__levels *out)
{
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    /* the numbers of leaves of the smallest and of the largest subtree */
    int common = tree.power, largest = 0;
    bool shares_leaf = false; /* whether there are two ranks of one host that share a leaf */
    for (int leaf = 0, leaves; leaf < tree.power; leaf += leaves ? leaves : 1) {
        leaves = largest_from(&tree, host_of, leaf, most);
        common = leaves < common ? leaves : common;
        largest = leaves > largest ? leaves : largest;
        shares_leaf = shares_leaf || (leaves > 0 && leaf < tree.extra);
    }
    if (largest < 2 && !shares_leaf)
        return false;
    *out = (tsr__levels){.tree = tree};
    if (common == 0 || (common == 1 && largest > 1)) {
        out->uneven = true;
        find_own(host_of, most, out);
        return true;
    }
    out->leaves = common;
    out->subtrees = tree.power / common;
    out->subtree = tree.leaf / common;
    out->first = first_rank(&tree, out->subtree * common);
    out->count = first_rank(&tree, (out->subtree + 1) * common) - out->first;
    return true;
}

/* Inner steps ---------------------------------------------------------------------------------- */

static tsr__span nothing(void)
{
    return tsr__span_of(TSR__AT_RECV, 0, 0);
}

/* Adds an inner step. In a subtree of one rank, adds a copy instead, or nothing for a broadcast or
 * barrier. */
static void inner(tsr__schedule *schedule, const tsr__levels *levels, tsr__inner_kind kind,
                  int root, tsr__span from, tsr__span to, int ranks)
{
    if (levels->count > 1) {
        tsr__schedule_inner(schedule, kind, root, from, to, ranks);
    } else if (kind != TSR__INNER_BROADCAST && kind != TSR__INNER_BARRIER) {
        tsr__schedule_copy(schedule, from, to);
        tsr__schedule_next_round(schedule);
    }
}

static void inner_broadcast(tsr__schedule *schedule, const tsr__levels *levels, int root,
                            tsr__span data)
{
    inner(schedule, levels, TSR__INNER_BROADCAST, root, nothing(), data, 0);
}

static void inner_barrier(tsr__schedule *schedule, const tsr__levels *levels)
{
    inner(schedule, levels, TSR__INNER_BARRIER, levels->first, nothing(), nothing(), 0);
}

/* Returns the place of this rank's leaf: its number among the leaves of its subtree, from 0. */
static int my_place(const tsr__levels *levels)
{
    return levels->tree.leaf - levels->subtree * levels->leaves;
}

/* Returns the tree between the holders of those leaves that have the same place in their
 * subtrees. */
static tsr__tree tree_between(const tsr__levels *levels, int place)
{
    return tsr__tree_between(&levels->tree, levels->leaves, place);
}

/* A range of elements, of which each leaf of a subtree gets an even share, in the order of the
 * leaves' places. */
typedef struct range {
    uint64_t start, count;
} range;

/* Returns where the share of the leaf with this place starts, counted from the start of the range.
 */
static uint64_t share_start(const tsr__levels *levels, const void *user, int place)
{
    const range *of = user;
    return tsr__even_start(of->count, levels->leaves, place);
}

/* Returns this rank's share of the range, which is empty if the rank holds no leaf. */
static tsr__span my_share(const tsr__levels *levels, const range *of)
{
    const uint64_t start = share_start(levels, of, my_place(levels));
    const uint64_t end = share_start(levels, of, my_place(levels) + 1);
    return tsr__span_of(TSR__AT_RECV, of->start + start, levels->tree.holds ? end - start : 0);
}

/* Adds to the schedule where the block of each rank of this subtree starts and ends, for a
 * collective inside the subtree (an inner step, levels.h). The holder of the leaf at place p has
 * the elements from start(p) to start(p + 1); a rank that holds no leaf has none. Returns the
 * number of ranks in the subtree. */
static int add_bounds(tsr__schedule *schedule, const tsr__levels *levels,
                      uint64_t (*start)(const tsr__levels *levels, const void *user, int place),
                      const void *user)
{
    for (int end = 0; end < 2; end++) {
        for (int rank = levels->first; rank < levels->first + levels->count; rank++) {
            const int leaf = tsr__tree_leaf_of(&levels->tree, rank);
            const int place = leaf - levels->subtree * levels->leaves;
            const bool holds = tsr__tree_holder(&levels->tree, leaf) == rank;
            tsr__schedule_bound(schedule, start(levels, user, holds ? place + end : place + 1));
        }
    }
    return levels->count;
}

/* All-reduce ----------------------------------------------------------------------------------- */

static void reduce_by_first(tsr__schedule *schedule, const tsr__levels *levels, uint64_t count)
{
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    inner(schedule, levels, TSR__INNER_REDUCE, levels->first, tsr__span_of(TSR__AT_SEND, 0, count),
          all, 0);
    if (levels->tree.rank == levels->first) {
        const tsr__tree between = tree_between(levels, 0);
        const uint64_t incoming = tsr__schedule_temp(schedule, count, 1);
        tsr__algorithm_tree_all_reduce(schedule, &between, 0, count, incoming, false);
    }
    inner_broadcast(schedule, levels, levels->first, all);
}

static void reduce_by_all(tsr__schedule *schedule, const tsr__levels *levels, const range *piece,
                          uint64_t incoming, bool halve)
{
    const tsr__span share = my_share(levels, piece);
    int ranks = add_bounds(schedule, levels, share_start, piece);
    inner(schedule, levels, TSR__INNER_REDUCE_SCATTER, levels->first,
          tsr__span_of(TSR__AT_SEND, piece->start, piece->count), share, ranks);
    if (levels->tree.holds) {
        const tsr__tree between = tree_between(levels, my_place(levels));
        tsr__algorithm_tree_all_reduce(schedule, &between, share.start, share.count, incoming,
                                       halve || levels->subtrees > 2);
    }
    ranks = add_bounds(schedule, levels, share_start, piece);
    inner(schedule, levels, TSR__INNER_ALL_GATHER, levels->first, share,
          tsr__span_of(TSR__AT_RECV, piece->start, piece->count), ranks);
}

void tsr__levels_all_reduce(tsr__schedule *schedule, const tsr__levels *levels, uint64_t count,
                            uint64_t piece, bool halve)
{
    if (piece == 0) {
        reduce_by_first(schedule, levels, count);
        return;
    }
    range now = {.start = 0};
    const uint64_t most = (count < piece ? count : piece) / (uint64_t)levels->leaves + 1;
    const uint64_t incoming = tsr__schedule_temp(schedule, most, 1);
    do {
        now.count = count - now.start < piece ? count - now.start : piece;
        reduce_by_all(schedule, levels, &now, incoming, halve);
        now.start += now.count;
    } while (now.start < count);
}

/* Reduce-scatter -------------------------------------------------------------------------------
 *
 * Each rank has a block for every rank. The blocks are first copied into columns. A column has the
 * blocks for the leaves that have the same place in their subtrees, in the order of the subtrees'
 * positions (tree.h). The inner reduce-scatter gives each holder a column, which is then reduced
 * between the subtrees. */

static uint64_t column_start(const tsr__levels *levels, const void *blocks, int place)
{
    uint64_t start = 0;
    for (int before = 0; before < place; before++) {
        for (int subtree = 0; subtree < levels->subtrees; subtree++)
            start += tsr__tree_leaf_count(&levels->tree, blocks, subtree * levels->leaves + before);
    }
    return start;
}

/* Copies this rank's contribution into columns, from `base` of TEMP on. */
static void copy_columns(tsr__schedule *schedule, const tsr__levels *levels,
                         const tsr__blocks *blocks, uint64_t base)
{
    for (int place = 0; place < levels->leaves; place++) {
        const tsr__tree between = tree_between(levels, place);
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

void tsr__levels_reduce_scatter(tsr__schedule *schedule, const tsr__levels *levels,
                                const tsr__blocks *blocks)
{
    const tsr__tree *tree = &levels->tree;
    const int place = my_place(levels);
    const uint64_t total = tsr__block_start(blocks, tree->size);
    const uint64_t base = tsr__schedule_temp(schedule, total, 1);
    const uint64_t start = column_start(levels, blocks, place);
    const uint64_t end = column_start(levels, blocks, place + 1);
    copy_columns(schedule, levels, blocks, base);
    const int ranks = add_bounds(schedule, levels, column_start, blocks);
    inner(schedule, levels, TSR__INNER_REDUCE_SCATTER, levels->first,
          tsr__span_of(TSR__AT_TEMP, base, total),
          tsr__span_of(TSR__AT_TEMP, base + start, tree->holds ? end - start : 0), ranks);
    if (!tree->holds) {
        tsr__schedule_recv(schedule, tree->other,
                           tsr__span_of(TSR__AT_RECV, 0, tsr__block_count(blocks, tree->rank)));
        return;
    }
    const tsr__tree between = tree_between(levels, place);
    tsr__algorithm_tree_reduce_scatter(schedule, &between, tree->other, base + start, blocks);
}

/* All-gather ----------------------------------------------------------------------------------- */

/* Which blocks a subtree has: those of the ranks of its leaves. */
typedef struct subtree_blocks {
    const tsr__blocks *blocks;
    int subtree;
} subtree_blocks;

static uint64_t leaf_in_subtree(const tsr__levels *levels, const void *user, int place)
{
    const subtree_blocks *of = user;
    const int first = of->subtree * levels->leaves;
    const uint64_t start = tsr__tree_blocks(&levels->tree, of->blocks, first);
    return tsr__tree_blocks(&levels->tree, of->blocks, first + place) - start;
}

static tsr__span subtree_span(const tsr__levels *levels, const tsr__blocks *blocks, int subtree)
{
    const tsr__tree *tree = &levels->tree;
    const uint64_t start = tsr__tree_blocks(tree, blocks, subtree * levels->leaves);
    const uint64_t end = tsr__tree_blocks(tree, blocks, (subtree + 1) * levels->leaves);
    return tsr__span_of(TSR__AT_RECV, start, end - start);
}

static tsr__span leaf_span(const tsr__tree *tree, const tsr__blocks *blocks, int leaf)
{
    return tsr__span_of(TSR__AT_RECV, tsr__tree_blocks(tree, blocks, leaf),
                        tsr__tree_leaf_count(tree, blocks, leaf));
}

/* An all-gather in which each rank that holds a leaf exchanges the leaf's blocks with the ranks
 * that hold the leaves of the same place in the other subtrees. Then the ranks of each subtree
 * gather the blocks of all other subtrees from each other. */
static void gather_by_all(tsr__schedule *schedule, const tsr__levels *levels,
                          const tsr__blocks *blocks)
{
    const tsr__tree between = tree_between(levels, my_place(levels));
    for (int i = 1; i < levels->subtrees && levels->tree.holds; i++) {
        const int in = (levels->subtree + levels->subtrees - i) % levels->subtrees;
        const int out = (levels->subtree + i) % levels->subtrees;
        tsr__schedule_recv(schedule, tsr__tree_holder(&between, in),
                           leaf_span(&between, blocks, in));
        tsr__schedule_send(schedule, tsr__tree_holder(&between, out),
                           leaf_span(&between, blocks, levels->subtree));
    }
    tsr__schedule_next_round(schedule);
    for (int subtree = 0; subtree < levels->subtrees && levels->count > 1; subtree++) {
        const subtree_blocks of = {.blocks = blocks, .subtree = subtree};
        tsr__span mine = leaf_span(&between, blocks, subtree);
        if (!levels->tree.holds)
            mine.count = 0;
        if (subtree != levels->subtree)
            tsr__schedule_inner(schedule, TSR__INNER_ALL_GATHER, levels->first, mine,
                                subtree_span(levels, blocks, subtree),
                                add_bounds(schedule, levels, leaf_in_subtree, &of));
    }
}

static void gather_by_first(tsr__schedule *schedule, const tsr__levels *levels,
                            const tsr__blocks *blocks)
{
    const tsr__tree between = tree_between(levels, 0);
    if (levels->tree.rank == levels->first)
        tsr__algorithm_doubling(schedule, &between, blocks, 0, 0);
    inner_broadcast(schedule, levels, levels->first,
                    tsr__span_of(TSR__AT_RECV, 0, tsr__block_start(blocks, levels->tree.size)));
}

void tsr__levels_all_gather(tsr__schedule *schedule, const tsr__levels *levels,
                            const tsr__blocks *blocks, bool shared)
{
    const uint64_t base = tsr__block_start(blocks, levels->first);
    const uint64_t count = tsr__block_count(blocks, levels->tree.rank);
    const tsr__span mine =
        tsr__span_of(TSR__AT_RECV, tsr__block_start(blocks, levels->tree.rank), count);
    tsr__schedule_copy(schedule, tsr__span_of(TSR__AT_SEND, 0, count), mine);
    for (int i = 0; i < 2 * levels->count; i++)
        tsr__schedule_bound(
            schedule,
            tsr__block_start(blocks, levels->first + i % levels->count + i / levels->count) - base);
    if (levels->count > 1)
        tsr__schedule_inner(schedule, TSR__INNER_ALL_GATHER, levels->first, mine,
                            subtree_span(levels, blocks, levels->subtree), levels->count);
    tsr__schedule_next_round(schedule);
    if (shared)
        gather_by_all(schedule, levels, blocks);
    else
        gather_by_first(schedule, levels, blocks);
}

/* Broadcast and barrier ------------------------------------------------------------------------ */

/* Returns the holders of those leaves that have the same place in their subtrees. */
static tsr__members members_of(const tsr__levels *levels, const tsr__tree *between)
{
    return (tsr__members){
        .count = levels->subtrees, .mine = levels->subtree, .tree = between, .replaced = -1};
}

static void broadcast_by_first(tsr__schedule *schedule, const tsr__levels *levels, tsr__span all,
                               int root, int home)
{
    const tsr__tree between = tree_between(levels, 0);
    const int leader = levels->subtree == home ? root : levels->first;
    tsr__members members = members_of(levels, &between);
    members.replaced = home;
    members.replacement = root;
    if (levels->tree.rank == leader)
        tsr__algorithm_binomial(schedule, &members, home, all);
    inner_broadcast(schedule, levels, leader, all);
}

/* First the ranks of root's subtree, which is number `home`, get the data. Then each holder of a
 * leaf there sends its share to the other subtrees. */
static void broadcast_by_all(tsr__schedule *schedule, const tsr__levels *levels, tsr__span all,
                             int root, int home)
{
    const range whole = {.count = all.count};
    const tsr__tree between = tree_between(levels, my_place(levels));
    const tsr__members members = members_of(levels, &between);
    const tsr__span share = my_share(levels, &whole);
    if (levels->subtree == home)
        inner_broadcast(schedule, levels, root, all);
    if (levels->tree.holds)
        tsr__algorithm_binomial(schedule, &members, home, share);
    if (levels->subtree != home)
        inner(schedule, levels, TSR__INNER_ALL_GATHER, levels->first, share, all,
              add_bounds(schedule, levels, share_start, &whole));
}

void tsr__levels_broadcast(tsr__schedule *schedule, const tsr__levels *levels, uint64_t count,
                           int root, bool shared)
{
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    const int home = tsr__tree_leaf_of(&levels->tree, root) / levels->leaves;
    (shared ? broadcast_by_all : broadcast_by_first)(schedule, levels, all, root, home);
}

void tsr__levels_barrier(tsr__schedule *schedule, const tsr__levels *levels, bool shared)
{
    const tsr__tree between = tree_between(levels, shared ? my_place(levels) : 0);
    const tsr__members members = members_of(levels, &between);
    inner_barrier(schedule, levels);
    if (shared ? levels->tree.holds : levels->tree.rank == levels->first)
        tsr__algorithm_dissemination(schedule, &members);
    /* ranks that have exchanged no messages with other subtrees wait for those of their subtree
     * that have */
    if (!shared || levels->count > levels->leaves)
        inner_barrier(schedule, levels);
}
