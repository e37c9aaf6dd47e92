#include "comm/shm/shm_state.h"

#include "comm/reduce/exact_combine.h"
#include "comm/shm/shm.h"

/* the size of a piece: so small that the pieces of all levels fit into the first-level cache */
#define PIECE_BYTES 4096
#define LEVELS 6 /* the largest number of levels of the tree: log2 of TSR__SHM_MAX_RANKS */

/* Contributions are combined one piece, a range of elements, at a time. A piece has memory for the
 * partial result of each level of the tree. */
typedef struct piece {
    const tsr__combination *combination;
    const void *const *inputs;
    tsr__tree tree;
    size_t start, count;
    uint8_t temps[LEVELS + 1][PIECE_BYTES];
} piece;

static const uint8_t *input_at(const piece *p, int rank)
{
    return (const uint8_t *)p->inputs[rank] + p->start * p->combination->element_bytes;
}

/* Combines the contributions of the leaves first … first + count − 1, which are a complete subtree.
 * Returns where the result is: `to`, or the contribution itself if there is only one leaf, of one
 * rank. */
static const uint8_t *evaluate(piece *p, int first, int count, int level, uint8_t *to)
{
    const uint8_t *left, *right;
    if (count > 1) {
        left = evaluate(p, first, count / 2, level + 1, to);
        right = evaluate(p, first + count / 2, count / 2, level + 1, p->temps[level]);
    } else if (first < p->tree.extra) {
        left = input_at(p, 2 * first);
        right = input_at(p, 2 * first + 1);
    } else {
        return input_at(p, first + p->tree.extra);
    }
    p->combination->combine(to, left, right, p->count);
    return to;
}

void tsr__combine_all(const tsr__combination *c, const void *const *inputs, void *out, size_t count)
{
    uint8_t *to = out;
    piece p;
    if (c->exact) {
        tsr__exact_combine(c->dtype, c->op, out, inputs, c->size, count);
    } else if (c->size == 2) {
        c->combine(out, inputs[0], inputs[1], count);
    } else {
        const size_t most = PIECE_BYTES / c->element_bytes;
        p.combination = c;
        p.inputs = inputs;
        p.tree = tsr__tree_of(c->size, 0, -1);
        const int half = p.tree.power / 2;
        for (p.start = 0; p.start < count; p.start += most) {
            p.count = count - p.start < most ? count - p.start : most;
            /* `out` may be one of the inputs, so it is written in the last step only. */
            const uint8_t *left = evaluate(&p, 0, half, 1, p.temps[LEVELS]);
            const uint8_t *right = evaluate(&p, half, half, 1, p.temps[0]);
            c->combine(to + p.start * c->element_bytes, left, right, p.count);
        }
    }
    if (c->divide)
        c->divide(out, count, (uint32_t)c->size);
}
