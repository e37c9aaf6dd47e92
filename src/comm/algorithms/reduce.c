/* Algorithms that combine elements along the tree that tree.h describes. */
#include "comm/algorithms/algorithms.h"

/* This rank's partial result of a reduction. Before the first combination it is the caller's input,
 * TSR__AT_SEND; afterwards it is in the array `own`. Element i of the operation is at index base +
 * i of the array that has the partial result. */
typedef struct partial {
    tsr__schedule *schedule;
    const tsr__tree *tree;
    tsr__array now, own; /* `now` has the partial result: TSR__AT_SEND or `own` */
    uint64_t now_base, own_base;
    uint64_t incoming; /* the position in TEMP that receives another rank's partial result */
} partial;

static tsr__span now_at(const partial *part, uint64_t start, uint64_t end)
{
    return tsr__span_of(part->now, part->now_base + start, end - start);
}

static tsr__span own_at(const partial *part, uint64_t start, uint64_t end)
{
    return tsr__span_of(part->own, part->own_base + start, end - start);
}

/* Receives elements start … end − 1 of the peer's partial result into TEMP. */
static void receive(const partial *part, int peer, uint64_t start, uint64_t end)
{
    tsr__schedule_recv(part->schedule, peer,
                       tsr__span_of(TSR__AT_TEMP, part->incoming, end - start));
}

static void combine(partial *part, uint64_t start, uint64_t end)
{
    tsr__schedule_combine(part->schedule, now_at(part, start, end),
                          tsr__span_of(TSR__AT_TEMP, part->incoming, end - start),
                          own_at(part, start, end));
}

/* Ends a round in which this rank has combined elements: from now on, its partial result is in
 * `own`. */
static void end_round(partial *part)
{
    part->now = part->own;
    part->now_base = part->own_base;
    tsr__schedule_next_round(part->schedule);
}

/* Combines the contributions of two ranks that share a leaf. Returns false on the rank that does
 * not hold the leaf, because that rank has nothing more to combine. */
static bool combine_leaf(partial *part, uint64_t total)
{
    const tsr__tree *tree = part->tree;
    if (tree->other < 0) {
        tsr__schedule_next_round(part->schedule);
        return true;
    }
    if (!tree->holds) {
        tsr__schedule_send(part->schedule, tree->other, now_at(part, 0, total));
        tsr__schedule_next_round(part->schedule);
        return false;
    }
    receive(part, tree->other, 0, total);
    combine(part, 0, total);
    end_round(part);
    return true;
}

/* Recursive halving: in each round, two ranks that still have the same elements divide them. Each
 * keeps one half: it sends the other half of its partial result, receives the other rank's partial
 * result of its own half, and combines the two. At the end this rank has the complete result for
 * the elements of its position. Positions at distance P/2, P/4, …, 1 are leaves at distance 1, 2,
 * …, P/2. */
static void halve(partial *part, const tsr__positions *layout)
{
    const tsr__tree *tree = part->tree;
    const int position = tsr__tree_position(tree, tree->leaf);
    for (int count = tree->power / tree->joined / 2; count > 0; count /= 2) {
        const int kept = position & ~(count - 1), given = kept ^ count;
        const int peer = tsr__tree_holder(tree, tsr__tree_position(tree, position ^ count));
        const uint64_t kept_start = tsr__position_start(layout, kept);
        const uint64_t kept_end = tsr__position_start(layout, kept + count);
        receive(part, peer, kept_start, kept_end);
        tsr__schedule_send(part->schedule, peer,
                           now_at(part, tsr__position_start(layout, given),
                                  tsr__position_start(layout, given + count)));
        combine(part, kept_start, kept_end);
        end_round(part);
    }
}

/* Recursive doubling: in each round two ranks exchange all elements, and both combine them. */
static void exchange_all(partial *part, uint64_t total)
{
    const tsr__tree *tree = part->tree;
    for (int distance = tree->joined; distance < tree->power; distance *= 2) {
        const int peer = tsr__tree_holder(tree, tree->leaf ^ distance);
        receive(part, peer, 0, total);
        tsr__schedule_send(part->schedule, peer, now_at(part, 0, total));
        combine(part, 0, total);
        end_round(part);
    }
}

/* Returns the elements of `own` at this rank's position, if they are divided into even shares. */
static tsr__span own_share(const partial *part, const tsr__positions *layout)
{
    const int position = tsr__tree_position(part->tree, part->tree->leaf);
    return own_at(part, tsr__position_start(layout, position),
                  tsr__position_start(layout, position + 1));
}

/* The part of an all-reduce that only ranks with a leaf take part in. The result is in RECV. */
static void reduce_all(partial *part, uint64_t count, bool large)
{
    tsr__schedule *schedule = part->schedule;
    const tsr__positions shares = {.tree = part->tree, .total = count};
    if (!large) {
        exchange_all(part, count);
        tsr__schedule_divide(schedule, own_at(part, 0, count));
        tsr__schedule_next_round(schedule);
        return;
    }
    halve(part, &shares);
    tsr__schedule_divide(schedule, own_share(part, &shares));
    tsr__schedule_next_round(schedule);
    tsr__algorithm_doubling(schedule, part->tree, NULL, part->own_base, count);
}

void tsr__algorithm_tree_all_reduce(tsr__schedule *schedule, const tsr__tree *tree, uint64_t base,
                                    uint64_t count, uint64_t incoming, bool large)
{
    partial part = {.schedule = schedule,
                    .tree = tree,
                    .now = TSR__AT_RECV,
                    .own = TSR__AT_RECV,
                    .now_base = base,
                    .own_base = base,
                    .incoming = incoming};
    reduce_all(&part, count, large);
}

static bool alone(tsr__schedule *schedule, int size, uint64_t count)
{
    if (size == 1)
        tsr__schedule_copy(schedule, tsr__span_of(TSR__AT_SEND, 0, count),
                           tsr__span_of(TSR__AT_RECV, 0, count));
    return size == 1;
}

void tsr__algorithm_all_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count,
                               bool large)
{
    if (alone(schedule, size, count))
        return;
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    const tsr__span all = tsr__span_of(TSR__AT_RECV, 0, count);
    partial part = {.schedule = schedule, .tree = &tree, .now = TSR__AT_SEND, .own = TSR__AT_RECV};
    part.incoming = tsr__schedule_temp(schedule, tree.holds ? count : 0, 1);
    if (!combine_leaf(&part, count)) {
        tsr__schedule_recv(schedule, tree.other, all);
        return;
    }
    reduce_all(&part, count, large);
    if (tree.other >= 0)
        tsr__schedule_send(schedule, tree.other, all);
}

/* A reduce along the tree to root. Of two leaves that are combined at distance d, the one whose
 * number has the same bit d as root's leaf receives and combines, so root has the result at the
 * end. */
static void reduce_tree(partial *part, uint64_t count)
{
    const tsr__tree *tree = part->tree;
    const int root = tsr__tree_leaf_of(tree, tree->root);
    for (int distance = 1; distance < tree->power; distance *= 2) {
        const int peer = tsr__tree_holder(tree, tree->leaf ^ distance);
        if ((tree->leaf & distance) != (root & distance)) {
            tsr__schedule_send(part->schedule, peer, now_at(part, 0, count));
            return;
        }
        receive(part, peer, 0, count);
        combine(part, 0, count);
        end_round(part);
    }
    tsr__schedule_divide(part->schedule, own_at(part, 0, count));
}

static void reduce_halves(partial *part, uint64_t count)
{
    tsr__schedule *schedule = part->schedule;
    const tsr__tree *tree = part->tree;
    const tsr__positions shares = {.tree = tree, .total = count};
    halve(part, &shares);
    tsr__schedule_divide(schedule, own_share(part, &shares));
    tsr__schedule_next_round(schedule);
    if (tree->rank != tree->root) {
        tsr__schedule_send(schedule, tree->root, own_share(part, &shares));
        return;
    }
    for (int position = 0; position < tree->power; position++) {
        const int leaf = tsr__tree_position(tree, position);
        if (leaf != tree->leaf)
            tsr__schedule_recv(schedule, tsr__tree_holder(tree, leaf),
                               own_at(part, tsr__position_start(&shares, position),
                                      tsr__position_start(&shares, position + 1)));
    }
}

void tsr__algorithm_reduce(tsr__schedule *schedule, int size, int rank, uint64_t count, int root,
                           bool large)
{
    if (alone(schedule, size, count))
        return;
    const tsr__tree tree = tsr__tree_of(size, rank, root);
    partial part = {.schedule = schedule, .tree = &tree, .now = TSR__AT_SEND, .own = TSR__AT_RECV};
    if (rank != root) {
        part.own = TSR__AT_TEMP;
        part.own_base = tsr__schedule_temp(schedule, tree.holds ? count : 0, 1);
    }
    part.incoming = tsr__schedule_temp(schedule, tree.holds ? count : 0, 1);
    if (!combine_leaf(&part, count))
        return;
    if (large)
        reduce_halves(&part, count);
    else
        reduce_tree(&part, count);
}

/* Moves this rank's contribution, or the combined contributions of a pair that shares a leaf, to
 * `own` in the order of positions. Returns false on the rank that does not hold the leaf. */
static bool arrange(partial *part, const tsr__positions *layout)
{
    const tsr__tree *tree = part->tree;
    const uint64_t total = layout->total;
    if (tree->power <= 2) /* with one or two leaves, positions (tree.h) equal the leaves' numbers */
        return combine_leaf(part, total);
    if (!tree->holds) {
        tsr__schedule_send(part->schedule, tree->other, now_at(part, 0, total));
        tsr__schedule_next_round(part->schedule);
        return false;
    }
    if (tree->other >= 0)
        receive(part, tree->other, 0, total);
    uint64_t to = 0;
    for (int position = 0; position < tree->power; position++) {
        const int leaf = tsr__tree_position(tree, position);
        const uint64_t start = tsr__tree_blocks(tree, layout->blocks, leaf);
        const uint64_t end = start + tsr__tree_leaf_count(tree, layout->blocks, leaf);
        const tsr__span from = now_at(part, start, end), own = own_at(part, to, to + end - start);
        if (tree->other >= 0)
            tsr__schedule_combine(part->schedule, from,
                                  tsr__span_of(TSR__AT_TEMP, part->incoming + start, end - start),
                                  own);
        else
            tsr__schedule_copy(part->schedule, from, own);
        to += end - start;
    }
    end_round(part);
    return true;
}

/* Sends the rank `other`, which shares this rank's leaf, its block of the result, and copies this
 * rank's own block to the output. `other` is −1 if no rank shares the leaf. */
static void give_blocks(const partial *part, const tsr__positions *layout, int other)
{
    tsr__schedule *schedule = part->schedule;
    const tsr__tree *tree = part->tree;
    const uint64_t start = tsr__position_start(layout, tsr__tree_position(tree, tree->leaf));
    const uint64_t count = tsr__block_count(layout->blocks, tree->rank);
    const uint64_t others = other >= 0 ? tsr__block_count(layout->blocks, other) : 0;
    const bool is_first = other < 0 || tree->rank < other;
    const uint64_t mine = is_first ? start : start + others;
    const tsr__span to = tsr__span_of(TSR__AT_RECV, 0, count);
    if (other >= 0) {
        const uint64_t theirs = is_first ? start + count : start;
        tsr__schedule_divide(schedule, own_at(part, theirs, theirs + others));
        tsr__schedule_next_round(schedule);
        tsr__schedule_send(schedule, other, own_at(part, theirs, theirs + others));
    }
    tsr__schedule_copy(schedule, own_at(part, mine, mine + count), to);
    tsr__schedule_divide(schedule, to);
}

void tsr__algorithm_tree_reduce_scatter(tsr__schedule *schedule, const tsr__tree *tree, int other,
                                        uint64_t base, const tsr__blocks *blocks)
{
    const tsr__positions layout = {.tree = tree, .blocks = blocks};
    partial part = {.schedule = schedule,
                    .tree = tree,
                    .now = TSR__AT_TEMP,
                    .own = TSR__AT_TEMP,
                    .now_base = base,
                    .own_base = base};
    part.incoming = tsr__schedule_temp(schedule, tsr__position_start(&layout, tree->power), 1);
    halve(&part, &layout);
    give_blocks(&part, &layout, other);
}

void tsr__algorithm_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                                   const tsr__blocks *blocks)
{
    const tsr__span mine = tsr__span_of(TSR__AT_RECV, 0, tsr__block_count(blocks, rank));
    const uint64_t total = tsr__block_start(blocks, size);
    if (alone(schedule, size, mine.count))
        return;
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    const tsr__positions layout = {.tree = &tree, .blocks = blocks, .total = total};
    partial part = {.schedule = schedule, .tree = &tree, .now = TSR__AT_SEND, .own = TSR__AT_TEMP};
    part.own_base = tsr__schedule_temp(schedule, tree.holds ? total : 0, 1);
    part.incoming = tsr__schedule_temp(schedule, tree.holds ? total : 0, 1);
    if (!arrange(&part, &layout)) {
        tsr__schedule_recv(schedule, tree.other, mine);
        return;
    }
    halve(&part, &layout);
    give_blocks(&part, &layout, tree.other);
}
