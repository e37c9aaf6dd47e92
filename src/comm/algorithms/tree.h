/* The order in which contributions are combined. It is a binary tree that depends only on the
 * number of ranks.
 *
 * Let P be the largest power of two with P ≤ size, and r = size − P. For each i < r, ranks 2i and
 * 2i + 1 share a leaf. One of the two holds the leaf. The other one sends its contribution to the
 * holder before all other steps, and receives the result after them. Every other rank has a leaf of
 * its own. The P leaves are combined in pairs at distance 1, then 2, 4, …, P/2. So every aligned
 * group of 2^k leaves is a complete subtree, and neighbours, which often share a host, are combined
 * first. This is recursive halving and doubling (R. Rabenseifner, "Optimization of collective
 * reduction operations", ICCS 2004) with one fixed sequence of distances. The tree is the same for
 * every element and for every rank that combines elements.
 *
 * Recursive halving divides the elements into P shares and gives each leaf the result of one. The
 * leaf has the share at its *position*, which is the leaf's number with the bits in reverse order.
 * With this order, the elements that a rank keeps in each round are consecutive. */
#ifndef TSR_COMM_ALGORITHMS_TREE_H
#define TSR_COMM_ALGORITHMS_TREE_H

#include <stdbool.h>
#include <stdint.h>

/* Blocks of elements, one for each rank. They are consecutive unless `ends` says where they end. */
typedef struct tsr__blocks {
    /* [size + 1], where each block starts; NULL if all blocks have `each` elements */
    const uint64_t *starts;
    uint64_t each;
    /* [size], where each block ends; NULL if it ends where the next one starts. Only inner steps
     * (hierarchical.h) have ends, and their starts are [size]. */
    const uint64_t *ends;
} tsr__blocks;

static inline uint64_t tsr__block_start(const tsr__blocks *blocks, int rank)
{
    return blocks->starts ? blocks->starts[rank] : blocks->each * (uint64_t)rank;
}

static inline uint64_t tsr__block_count(const tsr__blocks *blocks, int rank)
{
    const uint64_t end = blocks->ends ? blocks->ends[rank] : tsr__block_start(blocks, rank + 1);
    return end - tsr__block_start(blocks, rank);
}

typedef struct tsr__tree {
    int size, rank;
    int power;   /* P in the comment at the top of this file */
    int extra;   /* r in that comment */
    int leaf;    /* the leaf of this rank */
    int partner; /* the rank that shares this leaf, or −1 */
    bool holds;
    /* The root of the operation; −1: it has none. Of two ranks that share a leaf, root holds the
     * leaf if it is one of them, and otherwise the even rank does. */
    int root;
    /* Leaf i of this tree is leaf first + i · step of the tree of all ranks. The two trees differ
     * only after tsr__tree_between. */
    int first, step;
    /* The number of leaves that an inner step (hierarchical.h) has already combined or gathered: an
     * aligned group that includes this rank's leaf. Algorithms leave out the rounds between these
     * leaves. 1: there was no such step. Ranks may have different values. */
    int joined;
} tsr__tree;

static inline int tsr__tree_leaf_of(const tsr__tree *tree, int rank)
{
    return rank < 2 * tree->extra ? rank / 2 : rank - tree->extra;
}

/* Returns the rank that holds a leaf. */
static inline int tsr__tree_holder(const tsr__tree *tree, int leaf)
{
    const int of_all = tree->first + leaf * tree->step; /* the leaf in the tree of all ranks */
    if (of_all >= tree->extra)
        return of_all + tree->extra;
    return 2 * of_all + (tree->root == 2 * of_all + 1);
}

static inline tsr__tree tsr__tree_of(int size, int rank, int root)
{
    tsr__tree tree = {.size = size, .rank = rank, .power = 1, .partner = -1, .root = root};
    tree.step = tree.joined = 1;
    while (tree.power <= size / 2)
        tree.power *= 2;
    tree.extra = size - tree.power;
    tree.leaf = tsr__tree_leaf_of(&tree, rank);
    if (tree.leaf < tree.extra)
        tree.partner = rank ^ 1;
    tree.holds = tsr__tree_holder(&tree, tree.leaf) == rank;
    return tree;
}

/* Divides the leaves of `tree` into groups of `leaves` leaves. Returns the tree whose leaves are
 * leaf number `index` of each group. */
static inline tsr__tree tsr__tree_between(const tsr__tree *tree, int leaves, int index)
{
    tsr__tree between = *tree;
    between.power = tree->power / leaves;
    between.leaf = tree->leaf / leaves;
    between.first = index;
    between.step = leaves;
    between.partner = -1;
    return between;
}

/* Returns the position of a leaf. The same function returns the leaf of a position. */
static inline int tsr__tree_position(const tsr__tree *tree, int leaf)
{
    int position = 0;
    for (int bit = 1; bit < tree->power; bit *= 2, leaf /= 2)
        position = 2 * position + leaf % 2;
    return position;
}

/* Returns where the share at `position` starts if `total` elements are divided evenly among all
 * positions. */
static inline uint64_t tsr__tree_share(const tsr__tree *tree, uint64_t total, int position)
{
    const uint64_t n = (uint64_t)position, p = (uint64_t)tree->power;
    const uint64_t rest = total % p;
    return n * (total / p) + (n < rest ? n : rest);
}

/* Returns the first rank of a leaf of the tree of all ranks. */
static inline int tsr__tree_first_rank(const tsr__tree *tree, int leaf_of_all)
{
    return leaf_of_all < tree->extra ? 2 * leaf_of_all : leaf_of_all + tree->extra;
}

/* The following two functions return where the blocks of the ranks of a leaf start and end. */
static inline uint64_t tsr__tree_blocks(const tsr__tree *tree, const tsr__blocks *blocks, int leaf)
{
    return tsr__block_start(blocks, tsr__tree_first_rank(tree, tree->first + leaf * tree->step));
}

static inline uint64_t tsr__tree_blocks_end(const tsr__tree *tree, const tsr__blocks *blocks,
                                            int leaf)
{
    return tsr__block_start(blocks,
                            tsr__tree_first_rank(tree, tree->first + leaf * tree->step + 1));
}

static inline uint64_t tsr__tree_leaf_count(const tsr__tree *tree, const tsr__blocks *blocks,
                                            int leaf)
{
    return tsr__tree_blocks_end(tree, blocks, leaf) - tsr__tree_blocks(tree, blocks, leaf);
}

/* Which elements belong to each position; they are consecutive in memory. If `blocks` is NULL, each
 * position has a share of `total` elements. Otherwise it has the blocks of the ranks that share its
 * leaf. */
typedef struct tsr__positions {
    const tsr__tree *tree;
    const tsr__blocks *blocks;
    uint64_t total;
} tsr__positions;

static inline uint64_t tsr__position_start(const tsr__positions *positions, int position)
{
    const tsr__tree *tree = positions->tree;
    uint64_t start = 0;
    if (!positions->blocks)
        return tsr__tree_share(tree, positions->total, position);
    for (int before = 0; before < position; before++)
        start += tsr__tree_leaf_count(tree, positions->blocks, tsr__tree_position(tree, before));
    return start;
}

#endif
