/* The order in which contributions are combined: a binary tree that depends on the number of ranks
 * only.
 *
 * Let P be the largest power of two with P ≤ size, and r = size − P. Ranks 2i and 2i + 1 with i < r
 * share a leaf. One of them holds the leaf; the other sends its contribution to the holder first
 * and receives the result last. The P leaves are combined at distance P/2, then P/4, …, 1
 * (recursive halving and doubling, see R. Rabenseifner, "Optimization of collective reduction
 * operations", ICCS 2004, with one fixed sequence of distances). The tree is the same for every
 * element, whichever rank combines it. */
#ifndef TSR_COMM_ALGORITHMS_TREE_H
#define TSR_COMM_ALGORITHMS_TREE_H

#include <stdbool.h>
#include <stdint.h>

/* Consecutive blocks of elements, one for each rank. */
typedef struct tsr__blocks {
    const uint64_t *starts; /* size + 1 of them; NULL: all blocks have `each` elements */
    uint64_t each;
} tsr__blocks;

static inline uint64_t tsr__block_start(const tsr__blocks *blocks, int rank)
{
    return blocks->starts ? blocks->starts[rank] : blocks->each * (uint64_t)rank;
}

static inline uint64_t tsr__block_count(const tsr__blocks *blocks, int rank)
{
    return tsr__block_start(blocks, rank + 1) - tsr__block_start(blocks, rank);
}

typedef struct tsr__tree {
    int size, rank;
    int power; /* P */
    int extra; /* r */
    int leaf;  /* this rank's */
    int other; /* the rank it shares its leaf with, or −1 */
    bool holds;
    int root; /* this rank holds its leaf if it shares one; −1: the even rank of each pair does */
} tsr__tree;

static inline int tsr__tree_leaf_of(const tsr__tree *tree, int rank)
{
    return rank < 2 * tree->extra ? rank / 2 : rank - tree->extra;
}

/* The rank that holds a leaf. */
static inline int tsr__tree_holder(const tsr__tree *tree, int leaf)
{
    if (leaf >= tree->extra)
        return leaf + tree->extra;
    return 2 * leaf + (tree->root == 2 * leaf + 1);
}

static inline tsr__tree tsr__tree_of(int size, int rank, int root)
{
    tsr__tree tree = {.size = size, .rank = rank, .power = 1, .other = -1, .root = root};
    while (tree.power <= size / 2)
        tree.power *= 2;
    tree.extra = size - tree.power;
    tree.leaf = tsr__tree_leaf_of(&tree, rank);
    if (tree.leaf < tree.extra)
        tree.other = rank ^ 1;
    tree.holds = tsr__tree_holder(&tree, tree.leaf) == rank;
    return tree;
}

/* Where a leaf's elements start if the leaves divide `total` evenly. */
static inline uint64_t tsr__tree_share(const tsr__tree *tree, uint64_t total, int leaf)
{
    const uint64_t n = (uint64_t)leaf, p = (uint64_t)tree->power;
    const uint64_t rest = total % p;
    return n * (total / p) + (n < rest ? n : rest);
}

/* Where a leaf's elements start if they are the blocks of its ranks. */
static inline uint64_t tsr__tree_blocks(const tsr__tree *tree, const tsr__blocks *blocks, int leaf)
{
    return tsr__block_start(blocks, leaf < tree->extra ? 2 * leaf : leaf + tree->extra);
}

#endif
