/* All-reduce, reduce and reduce-scatter by recursive doubling, recursive halving, or both
 * (Rabenseifner). They combine contributions along the tree that tree.h describes. */
#include "comm/algorithms/algorithms.h"

/* This rank's partial result of a reduction. Before the first combination it is the caller's input,
 * TSR__AT_SEND; afterwards it is in the array `own`. Element i of the operation is at index base +
 * i of the array that has the partial result. */
typedef struct partial_result {
    tsr__schedule *schedule;
    const tsr__tree *tree;
    tsr__array current, own; /* `current` has the partial result: TSR__AT_SEND or `own` */
    uint64_t current_base, own_base;
    uint64_t incoming; /* where in TEMP another rank's partial result is received */
} partial_result;

static tsr__span current_span(const partial_result *partial, uint64_t start, uint64_t end)
{
    return tsr__span_of(partial->current, partial->current_base + start, end - start);
}

static tsr__span own_span(const partial_result *partial, uint64_t start, uint64_t end)
{
    return tsr__span_of(partial->own, partial->own_base + start, end - start);
}

/* Receives elements start … end − 1 of the peer's partial result into TEMP. */
static void receive_incoming(const partial_result *partial, int peer, uint64_t start, uint64_t end)
{
    tsr__schedule_recv(partial->schedule, peer,
                       tsr__span_of(TSR__AT_TEMP, partial->incoming, end - start));
}

static void combine_incoming(partial_result *partial, uint64_t start, uint64_t end)
{
    tsr__schedule_combine(partial->schedule, current_span(partial, start, end),
                          tsr__span_of(TSR__AT_TEMP, partial->incoming, end - start),
                          own_span(partial, start, end));
}

/* Ends a round in which this rank has combined elements: from now on, its partial result is in
 * `own`. */
static void end_combining_round(partial_result *partial)
{
    partial->current = partial->own;
    partial->current_base = partial->own_base;
    tsr__schedule_next_round(partial->schedule);
}

/* Combines the contributions of two ranks that share a leaf. Returns false on the rank that does
 * not hold the leaf, because that rank has nothing more to combine. */
static bool combine_leaf(partial_result *partial, uint64_t total)
{
    const tsr__tree *tree = partial->tree;
    if (tree->partner < 0) {
        tsr__schedule_next_round(partial->schedule);
        return true;
    }
    if (!tree->holds) {
        tsr__schedule_send(partial->schedule, tree->partner, current_span(partial, 0, total));
        tsr__schedule_next_round(partial->schedule);
        return false;
    }
    receive_incoming(partial, tree->partner, 0, total);
    combine_incoming(partial, 0, total);
    end_combining_round(partial);
    return true;
}

/* Recursive halving and doubling ------------------------------------------------------------------
 */

/* Recursive halving: in each round, two ranks that still have the same elements divide them. Each
 * keeps one half: it sends the other half of its partial result, receives the other rank's partial
 * result of its own half, and combines the two. At the end this rank has the complete result for
 * the elements of its position. Positions at distance P/2, P/4, …, 1 are leaves at distance 1, 2,
 * …, P/2. */
static void recursive_halving(partial_result *partial, const tsr__positions *layout)
{
    const tsr__tree *tree = partial->tree;
    const int position = tsr__tree_position(tree, tree->leaf);
    for (int count = tree->power / tree->joined / 2; count > 0; count /= 2) {
        const int kept = position & ~(count - 1), given = kept ^ count;
        const int peer = tsr__tree_holder(tree, tsr__tree_position(tree, position ^ count));
        const uint64_t kept_start = tsr__position_start(layout, kept);
        const uint64_t kept_end = tsr__position_start(layout, kept + count);
        receive_incoming(partial, peer, kept_start, kept_end);
        tsr__schedule_send(partial->schedule, peer,
                           current_span(partial, tsr__position_start(layout, given),
                                        tsr__position_start(layout, given + count)));
        combine_incoming(partial, kept_start, kept_end);
        end_combining_round(partial);
    }
}

/* Recursive doubling: in each round two ranks exchange all elements, and both combine them. */
static void recursive_doubling(partial_result *partial, uint64_t total)
{
    const tsr__tree *tree = partial->tree;
    for (int distance = tree->joined; distance < tree->power; distance *= 2) {
        const int peer = tsr__tree_holder(tree, tree->leaf ^ distance);
        receive_incoming(partial, peer, 0, total);
        tsr__schedule_send(partial->schedule, peer, current_span(partial, 0, total));
        combine_incoming(partial, 0, total);
        end_combining_round(partial);
    }
}

/* Returns the elements of `own` at this rank's position, if they are divided into even shares. */
static tsr__span own_share(const partial_result *partial, const tsr__positions *layout)
{
    const int position = tsr__tree_position(partial->tree, partial->tree->leaf);
    return own_span(partial, tsr__position_start(layout, position),
                    tsr__position_start(layout, position + 1));
}

/* All-reduce --------------------------------------------------------------------------------------
 */

/* The rounds of an all-reduce between the holders of leaves. The result is in RECV. */
static void reduce_between_holders(partial_result *partial, uint64_t count, bool rabenseifner)
{
    tsr__schedule *schedule = partial->schedule;
    const tsr__positions shares = {.tree = partial->tree, .total = count};
    if (!rabenseifner) {
        recursive_doubling(partial, count);
        tsr__schedule_divide(schedule, own_span(partial, 0, count));
        tsr__schedule_next_round(schedule);
        return;
    }
    recursive_halving(partial, &shares);
    tsr__schedule_divide(schedule, own_share(partial, &shares));
    tsr__schedule_next_round(schedule);
    tsr__leaves_gather_shares(schedule, partial->tree, partial->own_base, count);
}

void tsr__leaves_all_reduce(tsr__schedule *schedule, const tsr__tree *tree, uint64_t base,
                            uint64_t count, uint64_t incoming, bool rabenseifner)
{
    partial_result partial = {.schedule = schedule,
                              .tree = tree,
                              .current = TSR__AT_RECV,
                              .own = TSR__AT_RECV,
                              .current_base = base,
                              .own_base = base,
                              .incoming = incoming};
    reduce_between_holders(&partial, count, rabenseifner);
}

/* In a communicator of one rank, copies the input to the output and returns true. */
static bool copy_if_alone(tsr__schedule *schedule, int size, uint64_t count)
{
    if (size == 1)
        tsr__schedule_copy(schedule, tsr__span_of(TSR__AT_SEND, 0, count),
                           tsr__span_of(TSR__AT_RECV, 0, count));
    return size == 1;
}

static void all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                       bool rabenseifner)
{
    if (copy_if_alone(schedule, size, count))
        return;
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    partial_result partial = {
        .schedule = schedule, .tree = &tree, .current = TSR__AT_SEND, .own = TSR__AT_RECV};
    partial.incoming = tsr__schedule_temp(schedule, tree.holds ? count : 0, 1);
    if (!combine_leaf(&partial, count)) {
        tsr__schedule_recv(schedule, tree.partner, all);
        return;
    }
    reduce_between_holders(&partial, count, rabenseifner);
    if (tree.partner >= 0)
        tsr__schedule_send(schedule, tree.partner, all);
}

void tsr__recursive_doubling_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count)
{
    all_reduce(schedule, size, rank, count, false);
}

void tsr__rabenseifner_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count)
{
    all_reduce(schedule, size, rank, count, true);
}

/* Reduce ------------------------------------------------------------------------------------------
 */

/* A reduce along the tree to root. Of two leaves that are combined at distance d, the one whose
 * number has the same bit d as root's leaf receives and combines, so root has the result at the
 * end. */
static void reduce_along_tree(partial_result *partial, uint64_t count)
{
    const tsr__tree *tree = partial->tree;
    const int root = tsr__tree_leaf_of(tree, tree->root);
    for (int distance = 1; distance < tree->power; distance *= 2) {
        const int peer = tsr__tree_holder(tree, tree->leaf ^ distance);
        if ((tree->leaf & distance) != (root & distance)) {
            tsr__schedule_send(partial->schedule, peer, current_span(partial, 0, count));
            return;
        }
        receive_incoming(partial, peer, 0, count);
        combine_incoming(partial, 0, count);
        end_combining_round(partial);
    }
    tsr__schedule_divide(partial->schedule, own_span(partial, 0, count));
}

static void reduce_by_halving(partial_result *partial, uint64_t count)
{
    tsr__schedule *schedule = partial->schedule;
    const tsr__tree *tree = partial->tree;
    const tsr__positions shares = {.tree = tree, .total = count};
    recursive_halving(partial, &shares);
    tsr__schedule_divide(schedule, own_share(partial, &shares));
    tsr__schedule_next_round(schedule);
    if (tree->rank != tree->root) {
        tsr__schedule_send(schedule, tree->root, own_share(partial, &shares));
        return;
    }
    for (int position = 0; position < tree->power; position++) {
        const int leaf = tsr__tree_position(tree, position);
        if (leaf != tree->leaf)
            tsr__schedule_recv(schedule, tsr__tree_holder(tree, leaf),
                               own_span(partial, tsr__position_start(&shares, position),
                                        tsr__position_start(&shares, position + 1)));
    }
}

/* Prepares a reduce, and combines the contributions of ranks that share a leaf. Returns whether
 * this rank has more steps. `partial` keeps a pointer to the tree. */
static bool begin_reduce(tsr__schedule *schedule, const tsr__tree *tree, uint64_t count,
                         partial_result *partial)
{
    if (copy_if_alone(schedule, tree->size, count))
        return false;
    *partial = (partial_result){
        .schedule = schedule, .tree = tree, .current = TSR__AT_SEND, .own = TSR__AT_RECV};
    if (tree->rank != tree->root) {
        partial->own = TSR__AT_TEMP;
        partial->own_base = tsr__schedule_temp(schedule, tree->holds ? count : 0, 1);
    }
    partial->incoming = tsr__schedule_temp(schedule, tree->holds ? count : 0, 1);
    return combine_leaf(partial, count);
}

void tsr__tree_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count, int root)
{
    const tsr__tree tree = tsr__tree_of(size, rank, root);
    partial_result partial;
    if (begin_reduce(schedule, &tree, count, &partial))
        reduce_along_tree(&partial, count);
}

void tsr__recursive_halving_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                                   int root)
{
    const tsr__tree tree = tsr__tree_of(size, rank, root);
    partial_result partial;
    if (begin_reduce(schedule, &tree, count, &partial))
        reduce_by_halving(&partial, count);
}

/* Reduce-scatter ----------------------------------------------------------------------------------
 */

/* Moves this rank's contribution, or the combined contributions of a pair that shares a leaf, to
 * `own` in the order of positions. Returns false on the rank that does not hold the leaf. */
static bool arrange_by_position(partial_result *partial, const tsr__positions *layout)
{
    const tsr__tree *tree = partial->tree;
    const uint64_t total = layout->total;
    if (tree->power <= 2) /* with one or two leaves, positions (tree.h) equal the leaves' numbers */
        return combine_leaf(partial, total);
    if (!tree->holds) {
        tsr__schedule_send(partial->schedule, tree->partner, current_span(partial, 0, total));
        tsr__schedule_next_round(partial->schedule);
        return false;
    }
    if (tree->partner >= 0)
        receive_incoming(partial, tree->partner, 0, total);
    uint64_t to = 0;
    for (int position = 0; position < tree->power; position++) {
        const int leaf = tsr__tree_position(tree, position);
        const uint64_t start = tsr__tree_blocks(tree, layout->blocks, leaf);
        const uint64_t end = start + tsr__tree_leaf_count(tree, layout->blocks, leaf);
        const tsr__span from = current_span(partial, start, end),
                        own = own_span(partial, to, to + end - start);
        if (tree->partner >= 0)
            tsr__schedule_combine(
                partial->schedule, from,
                tsr__span_of(TSR__AT_TEMP, partial->incoming + start, end - start), own);
        else
            tsr__schedule_copy(partial->schedule, from, own);
        to += end - start;
    }
    end_combining_round(partial);
    return true;
}

/* Sends the rank `partner`, which shares this rank's leaf, its block of the result, and copies this
 * rank's own block to the output. `partner` is −1 if no rank shares the leaf. */
static void deliver_blocks(const partial_result *partial, const tsr__positions *layout, int partner)
{
    tsr__schedule *schedule = partial->schedule;
    const tsr__tree *tree = partial->tree;
    const uint64_t start = tsr__position_start(layout, tsr__tree_position(tree, tree->leaf));
    const uint64_t count = tsr__block_count(layout->blocks, tree->rank);
    const uint64_t others = partner >= 0 ? tsr__block_count(layout->blocks, partner) : 0;
    const bool is_first = partner < 0 || tree->rank < partner;
    const uint64_t mine = is_first ? start : start + others;
    const tsr__span to = tsr__span_of(TSR__AT_RECV, 0, count);
    if (partner >= 0) {
        const uint64_t theirs = is_first ? start + count : start;
        tsr__schedule_divide(schedule, own_span(partial, theirs, theirs + others));
        tsr__schedule_next_round(schedule);
        tsr__schedule_send(schedule, partner, own_span(partial, theirs, theirs + others));
    }
    tsr__schedule_copy(schedule, own_span(partial, mine, mine + count), to);
    tsr__schedule_divide(schedule, to);
}

void tsr__leaves_reduce_scatter(tsr__schedule *schedule, const tsr__tree *tree, int partner,
                                uint64_t base, const tsr__blocks *blocks)
{
    const tsr__positions layout = {.tree = tree, .blocks = blocks};
    partial_result partial = {.schedule = schedule,
                              .tree = tree,
                              .current = TSR__AT_TEMP,
                              .own = TSR__AT_TEMP,
                              .current_base = base,
                              .own_base = base};
    partial.incoming = tsr__schedule_temp(schedule, tsr__position_start(&layout, tree->power), 1);
    recursive_halving(&partial, &layout);
    deliver_blocks(&partial, &layout, partner);
}

void tsr__recursive_halving_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                                           const tsr__blocks *blocks)
{
    const tsr__span mine = tsr__span_of(TSR__AT_RECV, 0, tsr__block_count(blocks, rank));
    const uint64_t total = tsr__block_start(blocks, size);
    if (copy_if_alone(schedule, size, mine.count))
        return;
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    const tsr__positions layout = {.tree = &tree, .blocks = blocks, .total = total};
    partial_result partial = {
        .schedule = schedule, .tree = &tree, .current = TSR__AT_SEND, .own = TSR__AT_TEMP};
    partial.own_base = tsr__schedule_temp(schedule, tree.holds ? total : 0, 1);
    partial.incoming = tsr__schedule_temp(schedule, tree.holds ? total : 0, 1);
    if (!arrange_by_position(&partial, &layout)) {
        tsr__schedule_recv(schedule, tree.partner, mine);
        return;
    }
    recursive_halving(&partial, &layout);
    deliver_blocks(&partial, &layout, tree.partner);
}
