/* Algorithms that combine elements along the tree that tree.h describes. */
#include "comm/algorithms/algorithms.h"

/* This rank's partial result. Before the first combination it is the caller's input; afterwards it
 * is in `own`. Element i of the operation is at index base + i of the place where the partial
 * result is. */
typedef struct partial {
    tsr__schedule *schedule;
    const tsr__tree *tree;
    tsr__place now, own; /* `now` is where the partial result is: TSR__AT_SEND or `own` */
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

/* Receives elements start … end − 1 of the peer's partial result. */
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

/* After this call, the partial result is in `own`. */
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

static uint64_t leaf_start(const tsr__tree *tree, const tsr__blocks *blocks, uint64_t total,
                           int leaf)
{
    return blocks ? tsr__tree_blocks(tree, blocks, leaf) : tsr__tree_share(tree, total, leaf);
}

/* Recursive halving: in each round two ranks divide the elements that both still have between them.
 * Each sends the half that the other keeps, and combines the half that it keeps itself. At the end
 * this rank has the complete result for the elements of its leaf. */
static void halve(partial *part, const tsr__blocks *blocks, uint64_t total)
{
    const tsr__tree *tree = part->tree;
    for (int distance = tree->power / 2; distance > 0; distance /= 2) {
        const int kept = tree->leaf & ~(distance - 1), given = kept ^ distance;
        const int peer = tsr__tree_holder(tree, tree->leaf ^ distance);
        const uint64_t kept_start = leaf_start(tree, blocks, total, kept);
        const uint64_t kept_end = leaf_start(tree, blocks, total, kept + distance);
        receive(part, peer, kept_start, kept_end);
        tsr__schedule_send(part->schedule, peer,
                           now_at(part, leaf_start(tree, blocks, total, given),
                                  leaf_start(tree, blocks, total, given + distance)));
        combine(part, kept_start, kept_end);
        end_round(part);
    }
}

/* Recursive doubling: in each round two ranks exchange all elements, and both combine them. */
static void exchange_all(partial *part, uint64_t total)
{
    const tsr__tree *tree = part->tree;
    for (int distance = tree->power / 2; distance > 0; distance /= 2) {
        const int peer = tsr__tree_holder(tree, tree->leaf ^ distance);
        receive(part, peer, 0, total);
        tsr__schedule_send(part->schedule, peer, now_at(part, 0, total));
        combine(part, 0, total);
        end_round(part);
    }
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
    if (large) {
        halve(&part, NULL, count);
        const uint64_t start = tsr__tree_share(&tree, count, tree.leaf);
        const uint64_t end = tsr__tree_share(&tree, count, tree.leaf + 1);
        tsr__schedule_divide(schedule, tsr__span_of(TSR__AT_RECV, start, end - start));
        tsr__schedule_next_round(schedule);
        tsr__algorithm_doubling(schedule, &tree, NULL, count);
    } else {
        exchange_all(&part, count);
        tsr__schedule_divide(schedule, all);
        tsr__schedule_next_round(schedule);
    }
    if (tree.other >= 0)
        tsr__schedule_send(schedule, tree.other, all);
}

/* Of each pair of leaves, the leaf that has the same bit `distance` as root's leaf receives. So
 * root has the result at the end. */
static void reduce_tree(partial *part, uint64_t count)
{
    const tsr__tree *tree = part->tree;
    const int root = tsr__tree_leaf_of(tree, tree->root);
    for (int distance = tree->power / 2; distance > 0; distance /= 2) {
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
    halve(part, NULL, count);
    const uint64_t start = tsr__tree_share(tree, count, tree->leaf);
    const uint64_t end = tsr__tree_share(tree, count, tree->leaf + 1);
    tsr__schedule_divide(schedule, own_at(part, start, end));
    tsr__schedule_next_round(schedule);
    if (tree->rank != tree->root) {
        tsr__schedule_send(schedule, tree->root, own_at(part, start, end));
        return;
    }
    for (int leaf = 0; leaf < tree->power; leaf++) {
        if (leaf != tree->leaf)
            tsr__schedule_recv(schedule, tsr__tree_holder(tree, leaf),
                               own_at(part, tsr__tree_share(tree, count, leaf),
                                      tsr__tree_share(tree, count, leaf + 1)));
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

void tsr__algorithm_reduce_scatter(tsr__schedule *schedule, int size, int rank,
                                   const tsr__blocks *blocks)
{
    const uint64_t start = tsr__block_start(blocks, rank), count = tsr__block_count(blocks, rank);
    const uint64_t total = tsr__block_start(blocks, size);
    const tsr__span mine = tsr__span_of(TSR__AT_RECV, 0, count);
    if (alone(schedule, size, count))
        return;
    const tsr__tree tree = tsr__tree_of(size, rank, -1);
    partial part = {.schedule = schedule, .tree = &tree, .now = TSR__AT_SEND, .own = TSR__AT_TEMP};
    part.own_base = tsr__schedule_temp(schedule, tree.holds ? total : 0, 1);
    part.incoming = tsr__schedule_temp(schedule, tree.holds ? total : 0, 1);
    if (!combine_leaf(&part, total)) {
        tsr__schedule_recv(schedule, tree.other, mine);
        return;
    }
    halve(&part, blocks, total);
    if (tree.other >= 0) {
        const uint64_t theirs = tsr__block_start(blocks, tree.other);
        const uint64_t theirs_end = tsr__block_start(blocks, tree.other + 1);
        tsr__schedule_divide(schedule, own_at(&part, theirs, theirs_end));
        tsr__schedule_next_round(schedule);
        tsr__schedule_send(schedule, tree.other, own_at(&part, theirs, theirs_end));
    }
    tsr__schedule_copy(schedule, own_at(&part, start, start + count), mine);
    tsr__schedule_divide(schedule, mine);
}
