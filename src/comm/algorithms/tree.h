/* The order in which contributions are combined, which follows from the number of ranks alone.
 *
 * Of `size` ranks let P be the largest power of two, r = size − P. Ranks 2i and 2i + 1 with i < r
 * share a leaf: one of them holds it, the other gives its contribution to it first, and gets its
 * result last. The P leaves are combined at distance P/2, then P/4, …, 1 (recursive halving and
 * doubling, see R. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004, with
 * one fixed sequence of distances). Whoever combines, and for which elements, the tree above each
 * element is the same. */
#ifndef TSR_COMM_ALGORITHMS_TREE_H
#define TSR_COMM_ALGORITHMS_TREE_H

#include <stdbool.h>
#include <stdint.h>

/* Blocks of elements, one for each rank, one behind the other. */
typedef struct tsr__blocks {
    const uint64_t *starts; /* size + 1 of them; NULL: all alike */
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
    int root; /* holds its leaf, where it shares one; −1: the even rank does */
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

/* Where the elements of leaves [leaf, …) start when each has an equal share of `total`. */
static inline uint64_t tsr__tree_share(const tsr__tree *tree, uint64_t total, int leaf)
{
    const uint64_t n = (uint64_t)leaf, p = (uint64_t)tree->power;
    const uint64_t rest = total % p;
    return n * (total / p) + (n < rest ? n : rest);
}

/* … and when each has the blocks of its ranks. */
static inline uint64_t tsr__tree_blocks(const tsr__tree *tree, const tsr__blocks *blocks, int leaf)
{
    return tsr__block_start(blocks, leaf < tree->extra ? 2 * leaf : leaf + tree->extra);
}

#endif
