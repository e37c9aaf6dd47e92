#include "comm/shm/shm_state.h"

#include "comm/reduce/exact_combine.h"
#include "comm/shm/shm.h"

/* so small that the tiles of all depths of the tree fit into the L1 cache */
#define TILE_BYTES 4096
#define MAX_DEPTH 6 /* the largest depth of the tree: log2 of TSR__SHM_MAX_RANKS */

/* Contributions are combined tile by tile. A tile is a range of elements, with memory for the
 * partial result at each depth of the tree. */
typedef struct tile {
    const tsr__combination *combination;
    const void *const *inputs;
    tsr__tree tree;
    size_t start, count;
    uint8_t temps[MAX_DEPTH + 1][TILE_BYTES];
} tile;

static const uint8_t *input_of_rank(const tile *t, int rank)
{
    return (const uint8_t *)t->inputs[rank] + t->start * t->combination->element_bytes;
}

/* Combines the contributions of the leaves first … first + count − 1, which are a complete subtree.
 * Returns where the result is: `to`, or the contribution itself if there is only one leaf, of one
 * rank. */
static const uint8_t *combine_subtree(tile *t, int first, int count, int depth, uint8_t *to)
{
    const uint8_t *left, *right;
    if (count > 1) {
        left = combine_subtree(t, first, count / 2, depth + 1, to);
        right = combine_subtree(t, first + count / 2, count / 2, depth + 1, t->temps[depth]);
    } else if (first < t->tree.extra) {
        left = input_of_rank(t, 2 * first);
        right = input_of_rank(t, 2 * first + 1);
    } else {
        return input_of_rank(t, first + t->tree.extra);
    }
    t->combination->combine(to, left, right, t->count);
    return to;
}

void tsr__combine_all(const tsr__combination *c, const void *const *inputs, void *out, size_t count)
{
    uint8_t *to = out;
    tile t;
    if (c->exact) {
        tsr__exact_combine(c->dtype, c->op, out, inputs, c->size, count);
    } else if (c->size == 2) {
        c->combine(out, inputs[0], inputs[1], count);
    } else {
        const size_t most = TILE_BYTES / c->element_bytes;
        t.combination = c;
        t.inputs = inputs;
        t.tree = tsr__tree_of(c->size, 0, -1);
        const int half = t.tree.power / 2;
        for (t.start = 0; t.start < count; t.start += most) {
            t.count = count - t.start < most ? count - t.start : most;
            /* `out` may be one of the inputs, so it is written in the last step only. */
            const uint8_t *left = combine_subtree(&t, 0, half, 1, t.temps[MAX_DEPTH]);
            const uint8_t *right = combine_subtree(&t, half, half, 1, t.temps[0]);
            c->combine(to + t.start * c->element_bytes, left, right, t.count);
        }
    }
    if (c->divide)
        c->divide(out, count, (uint32_t)c->size);
}
