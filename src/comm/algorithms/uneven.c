/* Collectives in two levels (levels.h) whose subtrees have different numbers of leaves. */
#include "comm/algorithms/levels.h"

/* Returns whether the two ranks that share this rank's leaf are on different hosts. They then
 * exchange messages, as without levels. */
static bool leaf_is_split(const tsr__levels *levels)
{
    return levels->tree.other >= 0 && levels->count == 1;
}

static tsr__span nothing(void)
{
    return tsr__span_of(TSR__AT_RECV, 0, 0);
}

/* Broadcasts `all` inside the subtree if some of its ranks hold no leaf, because these have
 * exchanged no messages. */
static void give_to_others(tsr__schedule *schedule, const tsr__levels *levels, tsr__span all)
{
    if (levels->count > levels->leaves)
        tsr__schedule_inner(schedule, TSR__INNER_BROADCAST, levels->first, nothing(), all, 0);
    if (leaf_is_split(levels))
        tsr__schedule_send(schedule, levels->tree.other, all);
}

/* Positions of shares ----------------------------------------------------------------------------
 *
 * After an inner reduce-scatter (among the ranks of one subtree) of m leaves, each leaf has the
 * elements of P/m positions, as after log2 m rounds of recursive halving. */

/* Returns the first element that a rank has after the inner reduce-scatter or, if `end` is true,
 * the first one behind them. */
static uint64_t start_after_inner(const tsr__positions *of, const tsr__levels *levels, int rank,
                                  bool end)
{
    const int leaf = tsr__tree_leaf_of(of->tree, rank), each = of->tree->power / levels->leaves;
    const int first = tsr__tree_position(of->tree, leaf) / each * each;
    const bool holds = tsr__tree_holder(of->tree, leaf) == rank;
    return tsr__position_start(of, end && holds ? first + each : first);
}

static int add_bounds(tsr__schedule *schedule, const tsr__levels *levels, const tsr__positions *of)
{
    for (int end = 0; end < 2; end++) {
        for (int i = 0; i < levels->count; i++)
            tsr__schedule_bound(schedule, start_after_inner(of, levels, levels->first + i, end));
    }
    return levels->count;
}

/* Returns the elements that this rank has after the inner reduce-scatter. Element 0 is at `base` of
 * `array`. */
static tsr__span own_span(const tsr__levels *levels, const tsr__positions *of, tsr__array array,
                          uint64_t base)
{
    const uint64_t start = start_after_inner(of, levels, levels->tree.rank, false);
    const uint64_t end = start_after_inner(of, levels, levels->tree.rank, true);
    return tsr__span_of(array, base + start, end - start);
}

/* All-reduce ----------------------------------------------------------------------------------- */

/* If two hosts share this rank's leaf, one rank sends its contribution to the other, which stores
 * the sum in RECV. Otherwise, a rank that is alone in its subtree copies its contribution to RECV;
 * in a subtree of several ranks, an inner step (levels.h) follows. Returns false on the rank that
 * has sent, which only receives the result afterwards. */
static bool join_leaf(tsr__schedule *schedule, const tsr__levels *levels, tsr__span all,
                      uint64_t incoming)
{
    const tsr__tree *tree = &levels->tree;
    const tsr__span mine = tsr__span_of(TSR__AT_SEND, 0, all.count);
    const tsr__span theirs = tsr__span_of(TSR__AT_TEMP, incoming, all.count);
    if (leaf_is_split(levels) && !tree->holds) {
        tsr__schedule_send(schedule, tree->other, mine);
        tsr__schedule_next_round(schedule);
        tsr__schedule_recv(schedule, tree->other, all);
        return false;
    }
    if (leaf_is_split(levels)) {
        tsr__schedule_recv(schedule, tree->other, theirs);
        tsr__schedule_combine(schedule, mine, theirs, all);
    } else if (levels->count == 1) {
        tsr__schedule_copy(schedule, mine, all);
    }
    tsr__schedule_next_round(schedule);
    return true;
}

static void reduce_piece(tsr__schedule *schedule, const tsr__levels *levels, uint64_t start,
                         uint64_t count, uint64_t incoming)
{
    const tsr__positions shares = {.tree = &levels->tree, .total = count};
    const tsr__span own = own_span(levels, &shares, TSR__AT_RECV, start);
    if (levels->count > 1)
        tsr__schedule_inner(schedule, TSR__INNER_REDUCE_SCATTER, levels->first,
                            tsr__span_of(TSR__AT_SEND, start, count), own,
                            add_bounds(schedule, levels, &shares));
    if (levels->tree.holds)
        tsr__algorithm_tree_all_reduce(schedule, &levels->tree, start, count, incoming, true);
    if (levels->count > 1)
        tsr__schedule_inner(schedule, TSR__INNER_ALL_GATHER, levels->first, own,
                            tsr__span_of(TSR__AT_RECV, start, count),
                            add_bounds(schedule, levels, &shares));
}

void tsr__uneven_all_reduce(tsr__schedule *schedule, const tsr__levels *levels, uint64_t count,
                            uint64_t piece)
{
    const tsr__tree *tree = &levels->tree;
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    const bool whole = leaf_is_split(levels) || piece == 0 || count < piece;
    const uint64_t incoming =
        tsr__schedule_temp(schedule, tree->holds ? (whole ? count : piece) : 0, 1);
    if (!join_leaf(schedule, levels, all, incoming))
        return;
    for (uint64_t start = 0; piece > 0 && start < count; start += piece)
        reduce_piece(schedule, levels, start, count - start < piece ? count - start : piece,
                     incoming);
    if (piece == 0) {
        if (levels->count > 1)
            tsr__schedule_inner(schedule, TSR__INNER_ALL_REDUCE, levels->first,
                                tsr__span_of(TSR__AT_SEND, 0, count), all, 0);
        if (tree->holds)
            tsr__algorithm_tree_all_reduce(schedule, tree, 0, count, incoming, false);
        give_to_others(schedule, levels, all);
    } else if (leaf_is_split(levels)) {
        tsr__schedule_send(schedule, tree->other, all);
    }
}

/* Reduce-scatter ------------------------------------------------------------------------------- */

/* Copies this rank's contribution to `base` of TEMP in the order of positions. If two hosts share
 * the leaf, combines it with the contribution of the other rank, which is at `incoming` of TEMP. */
static void arrange(tsr__schedule *schedule, const tsr__levels *levels,
                    const tsr__positions *blocks, uint64_t base, uint64_t incoming)
{
    for (int position = 0; position < levels->tree.power; position++) {
        const int leaf = tsr__tree_position(&levels->tree, position);
        const uint64_t start = tsr__tree_blocks(&levels->tree, blocks->blocks, leaf);
        const uint64_t count = tsr__tree_leaf_count(blocks->tree, blocks->blocks, leaf);
        const tsr__span from = tsr__span_of(TSR__AT_SEND, start, count);
        const tsr__span to = tsr__span_of(TSR__AT_TEMP, base, count);
        if (leaf_is_split(levels))
            tsr__schedule_combine(schedule, from,
                                  tsr__span_of(TSR__AT_TEMP, incoming + start, count), to);
        else
            tsr__schedule_copy(schedule, from, to);
        base += count;
    }
}

void tsr__uneven_reduce_scatter(tsr__schedule *schedule, const tsr__levels *levels,
                                const tsr__blocks *blocks)
{
    const tsr__tree *tree = &levels->tree;
    const tsr__positions all = {.tree = tree, .blocks = blocks};
    const uint64_t total = tsr__block_start(blocks, tree->size);
    const tsr__span mine = tsr__span_of(TSR__AT_RECV, 0, tsr__block_count(blocks, tree->rank));
    const bool split = leaf_is_split(levels);
    if (split && !tree->holds) {
        tsr__schedule_send(schedule, tree->other, tsr__span_of(TSR__AT_SEND, 0, total));
        tsr__schedule_next_round(schedule);
        tsr__schedule_recv(schedule, tree->other, mine);
        return;
    }
    const uint64_t base = tsr__schedule_temp(schedule, total, 1);
    const uint64_t incoming = tsr__schedule_temp(schedule, split ? total : 0, 1);
    if (split)
        tsr__schedule_recv(schedule, tree->other, tsr__span_of(TSR__AT_TEMP, incoming, total));
    arrange(schedule, levels, &all, base, incoming);
    tsr__schedule_next_round(schedule);
    if (levels->count > 1)
        tsr__schedule_inner(schedule, TSR__INNER_REDUCE_SCATTER, levels->first,
                            tsr__span_of(TSR__AT_TEMP, base, total),
                            own_span(levels, &all, TSR__AT_TEMP, base),
                            add_bounds(schedule, levels, &all));
    if (tree->holds)
        tsr__algorithm_tree_reduce_scatter(schedule, tree, tree->other, base, blocks);
    else
        tsr__schedule_recv(schedule, tree->other, mine);
}

/* All-gather ----------------------------------------------------------------------------------- */

static void gather_inside(tsr__schedule *schedule, const tsr__levels *levels,
                          const tsr__blocks *blocks)
{
    const uint64_t base = tsr__block_start(blocks, levels->first);
    const uint64_t end = tsr__block_start(blocks, levels->first + levels->count);
    for (int after = 0; after < 2; after++) {
        for (int i = 0; i < levels->count; i++)
            tsr__schedule_bound(schedule,
                                tsr__block_start(blocks, levels->first + i + after) - base);
    }
    tsr__schedule_inner(schedule, TSR__INNER_ALL_GATHER, levels->first,
                        tsr__block_at(TSR__AT_RECV, blocks, levels->tree.rank),
                        tsr__span_of(TSR__AT_RECV, base, end - base), levels->count);
}

void tsr__uneven_all_gather(tsr__schedule *schedule, const tsr__levels *levels,
                            const tsr__blocks *blocks)
{
    const tsr__tree *tree = &levels->tree;
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, tsr__block_start(blocks, tree->size));
    const tsr__span mine = tsr__block_at(TSR__AT_RECV, blocks, tree->rank);
    tsr__schedule_copy(schedule, tsr__span_of(TSR__AT_SEND, 0, mine.count), mine);
    tsr__schedule_next_round(schedule);
    if (leaf_is_split(levels) && !tree->holds) {
        tsr__schedule_send(schedule, tree->other, mine);
        tsr__schedule_next_round(schedule);
        tsr__schedule_recv(schedule, tree->other, all);
        return;
    }
    if (leaf_is_split(levels)) {
        tsr__schedule_recv(schedule, tree->other, tsr__block_at(TSR__AT_RECV, blocks, tree->other));
        tsr__schedule_next_round(schedule);
    }
    if (levels->count > 1)
        gather_inside(schedule, levels, blocks);
    if (tree->holds)
        tsr__algorithm_doubling(schedule, tree, blocks, 0, 0);
    give_to_others(schedule, levels, all);
}

/* Broadcast and barrier ------------------------------------------------------------------------ */

/* A binomial tree from root's leaf: leaves at distance P/2 exchange first, then at P/4, down to 1.
 * In each subtree, the leaf that receives from other subtrees is the one whose place (number in the
 * subtree) equals that of root's leaf. */
void tsr__uneven_broadcast(tsr__schedule *schedule, const tsr__levels *levels, uint64_t count,
                           int root)
{
    const tsr__tree tree = tsr__tree_of(levels->tree.size, levels->tree.rank, root);
    const int from = tsr__tree_leaf_of(&tree, root), leaves = levels->leaves;
    const int entry = tsr__tree_holder(&tree, (tree.leaf & ~(leaves - 1)) | (from & (leaves - 1)));
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    if (tree.rank == entry) {
        int distance = 1;
        while (distance < tree.power && !((tree.leaf ^ from) & distance))
            distance *= 2;
        if (distance < tree.power) {
            tsr__schedule_recv(schedule, tsr__tree_holder(&tree, tree.leaf ^ distance), all);
            tsr__schedule_next_round(schedule);
        }
        for (distance /= 2; distance >= leaves; distance /= 2)
            tsr__schedule_send(schedule, tsr__tree_holder(&tree, tree.leaf ^ distance), all);
    }
    if (levels->count > 1)
        tsr__schedule_inner(schedule, TSR__INNER_BROADCAST, entry, nothing(), all, 0);
    else if (tree.other >= 0 && tree.holds)
        tsr__schedule_send(schedule, tree.other, all);
    else if (tree.other >= 0)
        tsr__schedule_recv(schedule, tree.other, all);
}

static void inner_barrier(tsr__schedule *schedule, const tsr__levels *levels)
{
    tsr__schedule_inner(schedule, TSR__INNER_BARRIER, levels->first, nothing(), nothing(), 0);
}

void tsr__uneven_barrier(tsr__schedule *schedule, const tsr__levels *levels)
{
    if (!join_leaf(schedule, levels, nothing(), 0))
        return;
    if (levels->count > 1)
        inner_barrier(schedule, levels);
    if (levels->tree.holds)
        tsr__algorithm_tree_all_reduce(schedule, &levels->tree, 0, 0, 0, false);
    if (levels->count > levels->leaves)
        inner_barrier(schedule, levels);
    if (leaf_is_split(levels))
        tsr__schedule_send(schedule, levels->tree.other, nothing());
}
