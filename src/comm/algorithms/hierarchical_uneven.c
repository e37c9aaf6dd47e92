/* Hierarchical collectives (hierarchical.h) whose subtrees have different numbers of leaves. */
#include "comm/algorithms/hierarchical.h"

/* Returns whether the two ranks that share this rank's leaf are on different hosts. They then
 * exchange messages, as in a flat algorithm. */
static bool leaf_is_split(const tsr__hierarchy *hierarchy)
{
    return hierarchy->tree.partner >= 0 && hierarchy->count == 1;
}

static tsr__span empty_span(void)
{
    return tsr__span_of(TSR__AT_RECV, 0, 0);
}

/* Delivers the result to the ranks that hold no leaf, because they have exchanged no messages: by a
 * broadcast of `all` inside the subtree, or by a message to the rank that shares this rank's leaf.
 */
static void deliver_to_other_ranks(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                   tsr__span all)
{
    if (hierarchy->count > hierarchy->leaves)
        tsr__schedule_inner(schedule, TSR__INNER_BROADCAST, hierarchy->first, empty_span(), all, 0);
    if (leaf_is_split(hierarchy))
        tsr__schedule_send(schedule, hierarchy->tree.partner, all);
}

/* Positions of shares ----------------------------------------------------------------------------
 *
 * After an inner reduce-scatter (among the ranks of one subtree) of m leaves, each leaf has the
 * elements of P/m positions, as after log2 m rounds of recursive halving. */

/* Returns the first element that a rank has after the inner reduce-scatter or, if `end` is true,
 * the first one behind them. */
static uint64_t start_after_inner(const tsr__positions *layout, const tsr__hierarchy *hierarchy,
                                  int rank, bool end)
{
    const int leaf = tsr__tree_leaf_of(layout->tree, rank),
              each = layout->tree->power / hierarchy->leaves;
    const int first = tsr__tree_position(layout->tree, leaf) / each * each;
    const bool holds = tsr__tree_holder(layout->tree, leaf) == rank;
    return tsr__position_start(layout, end && holds ? first + each : first);
}

static int add_bounds(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                      const tsr__positions *layout)
{
    for (int end = 0; end < 2; end++) {
        for (int i = 0; i < hierarchy->count; i++)
            tsr__schedule_bound(schedule,
                                start_after_inner(layout, hierarchy, hierarchy->first + i, end));
    }
    return hierarchy->count;
}

/* Returns the elements that this rank has after the inner reduce-scatter. Element 0 is at `base` of
 * `array`. */
static tsr__span own_span(const tsr__hierarchy *hierarchy, const tsr__positions *layout,
                          tsr__array array, uint64_t base)
{
    const uint64_t start = start_after_inner(layout, hierarchy, hierarchy->tree.rank, false);
    const uint64_t end = start_after_inner(layout, hierarchy, hierarchy->tree.rank, true);
    return tsr__span_of(array, base + start, end - start);
}

/* All-reduce --------------------------------------------------------------------------------------
 */

/* If two hosts share this rank's leaf, one rank sends its contribution to the other, which stores
 * the sum in RECV. Otherwise, a rank that is alone in its subtree copies its contribution to RECV;
 * in a subtree of several ranks, an inner step (hierarchical.h) follows. Returns false on the rank
 * that has sent, which only receives the result afterwards. */
static bool combine_split_leaf(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                               tsr__span all, uint64_t incoming)
{
    const tsr__tree *tree = &hierarchy->tree;
    const tsr__span mine = tsr__span_of(TSR__AT_SEND, 0, all.count);
    const tsr__span theirs = tsr__span_of(TSR__AT_TEMP, incoming, all.count);
    if (leaf_is_split(hierarchy) && !tree->holds) {
        tsr__schedule_send(schedule, tree->partner, mine);
        tsr__schedule_next_round(schedule);
        tsr__schedule_recv(schedule, tree->partner, all);
        return false;
    }
    if (leaf_is_split(hierarchy)) {
        tsr__schedule_recv(schedule, tree->partner, theirs);
        tsr__schedule_combine(schedule, mine, theirs, all);
    } else if (hierarchy->count == 1) {
        tsr__schedule_copy(schedule, mine, all);
    }
    tsr__schedule_next_round(schedule);
    return true;
}

static void reduce_chunk(tsr__schedule *schedule, const tsr__hierarchy *hierarchy, uint64_t start,
                         uint64_t count, uint64_t incoming)
{
    const tsr__positions shares = {.tree = &hierarchy->tree, .total = count};
    const tsr__span own = own_span(hierarchy, &shares, TSR__AT_RECV, start);
    if (hierarchy->count > 1)
        tsr__schedule_inner(schedule, TSR__INNER_REDUCE_SCATTER, hierarchy->first,
                            tsr__span_of(TSR__AT_SEND, start, count), own,
                            add_bounds(schedule, hierarchy, &shares));
    if (hierarchy->tree.holds)
        tsr__leaves_all_reduce(schedule, &hierarchy->tree, start, count, incoming, true);
    if (hierarchy->count > 1)
        tsr__schedule_inner(schedule, TSR__INNER_ALL_GATHER, hierarchy->first, own,
                            tsr__span_of(TSR__AT_RECV, start, count),
                            add_bounds(schedule, hierarchy, &shares));
}

void tsr__uneven_all_reduce(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                            uint64_t count, uint64_t chunk)
{
    const tsr__tree *tree = &hierarchy->tree;
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    const bool whole = leaf_is_split(hierarchy) || chunk == 0 || count < chunk;
    const uint64_t incoming =
        tsr__schedule_temp(schedule, tree->holds ? (whole ? count : chunk) : 0, 1);
    if (!combine_split_leaf(schedule, hierarchy, all, incoming))
        return;
    for (uint64_t start = 0; chunk > 0 && start < count; start += chunk)
        reduce_chunk(schedule, hierarchy, start, count - start < chunk ? count - start : chunk,
                     incoming);
    if (chunk == 0) {
        if (hierarchy->count > 1)
            tsr__schedule_inner(schedule, TSR__INNER_ALL_REDUCE, hierarchy->first,
                                tsr__span_of(TSR__AT_SEND, 0, count), all, 0);
        if (tree->holds)
            tsr__leaves_all_reduce(schedule, tree, 0, count, incoming, false);
        deliver_to_other_ranks(schedule, hierarchy, all);
    } else if (leaf_is_split(hierarchy)) {
        tsr__schedule_send(schedule, tree->partner, all);
    }
}

/* Reduce-scatter ----------------------------------------------------------------------------------
 */

/* Copies this rank's contribution to `base` of TEMP in the order of positions. If two hosts share
 * the leaf, combines it with the contribution of the other rank, which is at `incoming` of TEMP. */
static void arrange_by_position(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                const tsr__positions *blocks, uint64_t base, uint64_t incoming)
{
    for (int position = 0; position < hierarchy->tree.power; position++) {
        const int leaf = tsr__tree_position(&hierarchy->tree, position);
        const uint64_t start = tsr__tree_blocks(&hierarchy->tree, blocks->blocks, leaf);
        const uint64_t count = tsr__tree_leaf_count(blocks->tree, blocks->blocks, leaf);
        const tsr__span from = tsr__span_of(TSR__AT_SEND, start, count);
        const tsr__span to = tsr__span_of(TSR__AT_TEMP, base, count);
        if (leaf_is_split(hierarchy))
            tsr__schedule_combine(schedule, from,
                                  tsr__span_of(TSR__AT_TEMP, incoming + start, count), to);
        else
            tsr__schedule_copy(schedule, from, to);
        base += count;
    }
}

void tsr__uneven_reduce_scatter(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                                const tsr__blocks *blocks)
{
    const tsr__tree *tree = &hierarchy->tree;
    const tsr__positions all = {.tree = tree, .blocks = blocks};
    const uint64_t total = tsr__block_start(blocks, tree->size);
    const tsr__span mine = tsr__span_of(TSR__AT_RECV, 0, tsr__block_count(blocks, tree->rank));
    const bool split = leaf_is_split(hierarchy);
    if (split && !tree->holds) {
        tsr__schedule_send(schedule, tree->partner, tsr__span_of(TSR__AT_SEND, 0, total));
        tsr__schedule_next_round(schedule);
        tsr__schedule_recv(schedule, tree->partner, mine);
        return;
    }
    const uint64_t base = tsr__schedule_temp(schedule, total, 1);
    const uint64_t incoming = tsr__schedule_temp(schedule, split ? total : 0, 1);
    if (split)
        tsr__schedule_recv(schedule, tree->partner, tsr__span_of(TSR__AT_TEMP, incoming, total));
    arrange_by_position(schedule, hierarchy, &all, base, incoming);
    tsr__schedule_next_round(schedule);
    if (hierarchy->count > 1)
        tsr__schedule_inner(schedule, TSR__INNER_REDUCE_SCATTER, hierarchy->first,
                            tsr__span_of(TSR__AT_TEMP, base, total),
                            own_span(hierarchy, &all, TSR__AT_TEMP, base),
                            add_bounds(schedule, hierarchy, &all));
    if (tree->holds)
        tsr__leaves_reduce_scatter(schedule, tree, tree->partner, base, blocks);
    else
        tsr__schedule_recv(schedule, tree->partner, mine);
}

/* All-gather --------------------------------------------------------------------------------------
 */

static void gather_inside(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                          const tsr__blocks *blocks)
{
    const uint64_t base = tsr__block_start(blocks, hierarchy->first);
    const uint64_t end = tsr__block_start(blocks, hierarchy->first + hierarchy->count);
    for (int after = 0; after < 2; after++) {
        for (int i = 0; i < hierarchy->count; i++)
            tsr__schedule_bound(schedule,
                                tsr__block_start(blocks, hierarchy->first + i + after) - base);
    }
    tsr__schedule_inner(schedule, TSR__INNER_ALL_GATHER, hierarchy->first,
                        tsr__block_at(TSR__AT_RECV, blocks, hierarchy->tree.rank),
                        tsr__span_of(TSR__AT_RECV, base, end - base), hierarchy->count);
}

void tsr__uneven_all_gather(tsr__schedule *schedule, const tsr__hierarchy *hierarchy,
                            const tsr__blocks *blocks)
{
    const tsr__tree *tree = &hierarchy->tree;
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, tsr__block_start(blocks, tree->size));
    const tsr__span mine = tsr__block_at(TSR__AT_RECV, blocks, tree->rank);
    tsr__schedule_copy(schedule, tsr__span_of(TSR__AT_SEND, 0, mine.count), mine);
    tsr__schedule_next_round(schedule);
    if (leaf_is_split(hierarchy) && !tree->holds) {
        tsr__schedule_send(schedule, tree->partner, mine);
        tsr__schedule_next_round(schedule);
        tsr__schedule_recv(schedule, tree->partner, all);
        return;
    }
    if (leaf_is_split(hierarchy)) {
        tsr__schedule_recv(schedule, tree->partner,
                           tsr__block_at(TSR__AT_RECV, blocks, tree->partner));
        tsr__schedule_next_round(schedule);
    }
    if (hierarchy->count > 1)
        gather_inside(schedule, hierarchy, blocks);
    if (tree->holds)
        tsr__leaves_gather_blocks(schedule, tree, blocks);
    deliver_to_other_ranks(schedule, hierarchy, all);
}

/* Broadcast and barrier ---------------------------------------------------------------------------
 */

/* A binomial tree from root's leaf: leaves at distance P/2 exchange first, then at P/4, down to 1.
 * In each subtree, the leaf that receives from other subtrees is the one whose index in the subtree
 * equals that of root's leaf. */
void tsr__uneven_broadcast(tsr__schedule *schedule, const tsr__hierarchy *hierarchy, uint64_t count,
                           int root)
{
    const tsr__tree tree = tsr__tree_of(hierarchy->tree.size, hierarchy->tree.rank, root);
    const int from = tsr__tree_leaf_of(&tree, root), leaves = hierarchy->leaves;
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
    if (hierarchy->count > 1)
        tsr__schedule_inner(schedule, TSR__INNER_BROADCAST, entry, empty_span(), all, 0);
    else if (tree.partner >= 0 && tree.holds)
        tsr__schedule_send(schedule, tree.partner, all);
    else if (tree.partner >= 0)
        tsr__schedule_recv(schedule, tree.partner, all);
}

static void inner_barrier(tsr__schedule *schedule, const tsr__hierarchy *hierarchy)
{
    tsr__schedule_inner(schedule, TSR__INNER_BARRIER, hierarchy->first, empty_span(), empty_span(),
                        0);
}

void tsr__uneven_barrier(tsr__schedule *schedule, const tsr__hierarchy *hierarchy)
{
    if (!combine_split_leaf(schedule, hierarchy, empty_span(), 0))
        return;
    if (hierarchy->count > 1)
        inner_barrier(schedule, hierarchy);
    if (hierarchy->tree.holds)
        tsr__leaves_all_reduce(schedule, &hierarchy->tree, 0, 0, 0, false);
    if (hierarchy->count > hierarchy->leaves)
        inner_barrier(schedule, hierarchy);
    if (leaf_is_split(hierarchy))
        tsr__schedule_send(schedule, hierarchy->tree.partner, empty_span());
}
