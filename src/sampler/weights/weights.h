/* Ways to draw indices in proportion to weights. */
#ifndef TSR_SAMPLER_WEIGHTS_WEIGHTS_H
#define TSR_SAMPLER_WEIGHTS_WEIGHTS_H

#include <stdbool.h>

#include "sampler/order/order.h"

/* The weights as they were given, of which one is not NULL. */
typedef struct tsr__weights {
    const double *wide;
    const float *narrow;
    uint64_t count;
} tsr__weights;

static inline double tsr__weight(const tsr__weights *weights, uint64_t i)
{
    return weights->wide != NULL ? weights->wide[i] : (double)weights->narrow[i];
}

/* Walker's alias method: each index has a column of the same width, which it shares with at most
 * one other, so that a draw is one choice of a column and one of the two in it. */
typedef struct tsr__alias {
    uint64_t count;
    /* The column's own index is drawn below this, of 2^64. While the table is made, the share. */
    union tsr__alias_share {
        double share;
        uint64_t below;
    } * own;
    uint32_t *other;
} tsr__alias;

/* `largest` is the largest weight, above 0. */
tsr_status tsr__alias_init(const tsr__weights *weights, double largest, tsr__alias *out);
void tsr__alias_finish(tsr__alias *alias);
/* Draws number first … first + count − 1 of the stream. */
void tsr__alias_fill(const tsr__alias *alias, const tsr__order_keys *keys, uint64_t first,
                     uint64_t count, int64_t *out);

/* torch.multinomial with replacement: the sums of the weights up to each, as shares of all, in the
 * weights' type. */
typedef struct tsr__sums {
    uint64_t count;
    double *wide;
    float *narrow;
} tsr__sums;

tsr_status tsr__sums_init(const tsr__weights *weights, tsr__sums *out);
void tsr__sums_finish(tsr__sums *sums);
/* The first index whose sum is at least u. */
uint64_t tsr__sums_find(const tsr__sums *sums, double u);

/* Without replacement: every index gets a random key, and the largest keys are drawn, the largest
 * first; of equal ones the lower index. */
typedef struct tsr__best {
    uint64_t capacity, count;
    double *keys; /* a heap, the worst on top */
    uint32_t *indices;
} tsr__best;

tsr_status tsr__best_init(uint64_t capacity, tsr__best *out);
void tsr__best_finish(tsr__best *best);
void tsr__best_offer(tsr__best *best, double key, uint32_t index);
/* Puts the indices in their order; then they can be read, and none offered until count is 0. */
void tsr__best_sort(tsr__best *best);

/* The keys of the two orders. An index of weight 0 gets none. */
void tsr__weights_draw_native(const tsr__weights *weights, const tsr__order_keys *keys,
                              tsr__best *best);
void tsr__weights_draw_torch(const tsr__weights *weights, tsr_mt19937 *rng, tsr__best *best);

/* What mx.random.categorical does: each index has a logit, the logarithm of its weight as a share
 * of all, to which noise of Gumbel's distribution is added, and the largest sum is drawn. Each
 * step is rounded to 32 bits. */
typedef struct tsr__logits {
    uint64_t count, above_zero;
    float *values; /* −∞: of a weight that is 0, or so small a share that 32 bits make it 0 */
} tsr__logits;

tsr_status tsr__logits_init(const tsr__weights *weights, tsr__logits *out);
void tsr__logits_finish(tsr__logits *logits);
/* Number `draw` of `draws`, each from all; count · draws ≤ TSR__MAX_THREEFRY_WORDS. */
int64_t tsr__logits_draw(const tsr__logits *logits, tsr_threefry_key key, uint64_t draws,
                         uint64_t draw);
/* Without replacement: offers what is above zero, of one draw. */
void tsr__logits_offer(const tsr__logits *logits, tsr_threefry_key key, tsr__best *best);

#endif
