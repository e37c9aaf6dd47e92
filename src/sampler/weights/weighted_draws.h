/* Several ways to draw indices with probabilities in proportion to weights. */
#ifndef TSR_SAMPLER_WEIGHTS_WEIGHTED_DRAWS_H
#define TSR_SAMPLER_WEIGHTS_WEIGHTED_DRAWS_H

#include <stdbool.h>

#include "sampler/order/order.h"

/* The caller's weights. Exactly one of the two pointers is not NULL. */
typedef struct tsr__weights {
    const double *wide;
    const float *narrow;
    uint64_t count;
} tsr__weights;

static inline double tsr__weight(const tsr__weights *weights, uint64_t i)
{
    return weights->wide != NULL ? weights->wide[i] : (double)weights->narrow[i];
}

/* Walker's alias method. Each index has a column, and all columns have the same width. A column can
 * also contain a share of one other index. A draw first chooses a column, then one of the two
 * indices in it. */
typedef struct tsr__alias {
    uint64_t count;
    /* below: a draw has a random 64-bit height; it gives the column's own index if the height is
     * less than `below`, and otherwise the other index. share: replaces `below` while the table is
     * computed. */
    union tsr__alias_share {
        double share;
        uint64_t below;
    } * own;
    uint32_t *other;
} tsr__alias;

/* Computes the table. `largest` must be the largest weight and must be above 0. */
tsr_status tsr__alias_init(const tsr__weights *weights, double largest, tsr__alias *out);
void tsr__alias_finish(tsr__alias *alias);
/* Writes draws number first … first + count − 1; draw i uses block i of the Philox stream that
 * `keys` selects. */
void tsr__alias_fill(const tsr__alias *alias, const tsr__order_keys *keys, uint64_t first,
                     uint64_t count, int64_t *out);

/* For torch.multinomial with replacement: the cumulative sums of the weights, divided by the total,
 * in the floating-point type of the weights. */
typedef struct tsr__sums {
    uint64_t count;
    double *wide;
    float *narrow;
} tsr__sums;

tsr_status tsr__sums_init(const tsr__weights *weights, tsr__sums *out);
void tsr__sums_finish(tsr__sums *sums);
/* Returns the first index whose cumulative sum is at least u. */
uint64_t tsr__sums_find(const tsr__sums *sums, double u);

/* For draws without replacement. Every index gets a random key, and the indices with the largest
 * keys are drawn, largest key first. If two keys are equal, the lower index comes first. */
typedef struct tsr__best {
    uint64_t capacity, count;
    double *keys; /* a heap with the worst key on top */
    uint32_t *indices;
} tsr__best;

tsr_status tsr__best_init(uint64_t capacity, tsr__best *out);
void tsr__best_finish(tsr__best *best);
void tsr__best_offer(tsr__best *best, double key, uint32_t index);
/* Sorts the indices, best first, so that they can be read. After that, count must be set to 0
 * before another index is offered. */
void tsr__best_sort(tsr__best *best);

/* Compute the keys of all indices, for the orders feistel and torch, and offer them to `best`,
 * which keeps the largest. An index of weight 0 gets no key. */
void tsr__weights_draw_native(const tsr__weights *weights, const tsr__order_keys *keys,
                              tsr__best *best);
void tsr__weights_draw_torch(const tsr__weights *weights, tsr_mt19937 *rng, tsr__best *best);

/* For mx.random.categorical. Each index has a logit: the logarithm of its weight divided by the
 * total weight. A draw adds random noise with Gumbel's distribution to each logit and gives the
 * index with the largest sum. Each step is rounded to 32-bit floats. */
typedef struct tsr__logits {
    uint64_t count, above_zero;
    float *values; /* −∞ if the weight is 0, or if its share is rounded to 0 in 32 bits */
} tsr__logits;

tsr_status tsr__logits_init(const tsr__weights *weights, tsr__logits *out);
void tsr__logits_finish(tsr__logits *logits);
/* Returns the index of draw number `draw` out of `draws` draws with replacement. count · draws must
 * be at most TSR__MAX_THREEFRY_WORDS. */
int64_t tsr__logits_draw(const tsr__logits *logits, tsr_threefry_key key, uint64_t draws,
                         uint64_t draw);
/* For draws without replacement: adds noise to the logits of all indices with a share above 0, and
 * offers the sums as keys to `best`. */
void tsr__logits_offer(const tsr__logits *logits, tsr_threefry_key key, tsr__best *best);

#endif
