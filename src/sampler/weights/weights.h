/* Ways to draw indices in proportion to weights. */
#ifndef TSR_SAMPLER_WEIGHTS_WEIGHTS_H
#define TSR_SAMPLER_WEIGHTS_WEIGHTS_H

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

/* Walker's alias method: each index has a column of the same width, which it shares with at most
 * one other index. A draw chooses a column, then one of the two indices in it. */
typedef struct tsr__alias {
    uint64_t count;
    /* below: the column's own index is drawn for 64-bit levels below this. share: used instead
     * while the table is computed. */
    union tsr__alias_share {
        double share;
        uint64_t below;
    } * own;
    uint32_t *other;
} tsr__alias;

/* `largest` must be the largest weight, and above 0. */
tsr_status tsr__alias_init(const tsr__weights *weights, double largest, tsr__alias *out);
void tsr__alias_finish(tsr__alias *alias);
/* Writes draws first … first + count − 1 of the stream. */
void tsr__alias_fill(const tsr__alias *alias, const tsr__order_keys *keys, uint64_t first,
                     uint64_t count, int64_t *out);

/* For torch.multinomial with replacement: the cumulative sums of the weights, divided by the total,
 * in the weights' type. */
typedef struct tsr__sums {
    uint64_t count;
    double *wide;
    float *narrow;
} tsr__sums;

tsr_status tsr__sums_init(const tsr__weights *weights, tsr__sums *out);
void tsr__sums_finish(tsr__sums *sums);
/* Returns the first index whose sum is at least u. */
uint64_t tsr__sums_find(const tsr__sums *sums, double u);

/* For draws without replacement: every index gets a random key, and the indices with the largest
 * keys are drawn, largest first. Of equal keys, the lower index comes first. */
typedef struct tsr__best {
    uint64_t capacity, count;
    double *keys; /* a heap, the worst on top */
    uint32_t *indices;
} tsr__best;

tsr_status tsr__best_init(uint64_t capacity, tsr__best *out);
void tsr__best_finish(tsr__best *best);
void tsr__best_offer(tsr__best *best, double key, uint32_t index);
/* Sorts the indices, best first, so that they can be read. After that, nothing may be offered until
 * count is set to 0. */
void tsr__best_sort(tsr__best *best);

/* These offer the keys of the orders feistel and torch. An index of weight 0 gets no key. */
void tsr__weights_draw_native(const tsr__weights *weights, const tsr__order_keys *keys,
                              tsr__best *best);
void tsr__weights_draw_torch(const tsr__weights *weights, tsr_mt19937 *rng, tsr__best *best);

/* For mx.random.categorical: each index has a logit, the logarithm of its weight's share of the
 * total. Noise with Gumbel's distribution is added to it, and the index with the largest sum is
 * drawn. Each step is rounded to 32 bits. */
typedef struct tsr__logits {
    uint64_t count, above_zero;
    float *values; /* −∞ if the weight is 0, or its share rounds to 0 in 32 bits */
} tsr__logits;

tsr_status tsr__logits_init(const tsr__weights *weights, tsr__logits *out);
void tsr__logits_finish(tsr__logits *logits);
/* Returns draw number `draw` of `draws`, with replacement. count · draws must be at most
 * TSR__MAX_THREEFRY_WORDS. */
int64_t tsr__logits_draw(const tsr__logits *logits, tsr_threefry_key key, uint64_t draws,
                         uint64_t draw);
/* Offers the noisy logits of all indices with a share above 0, for draws without replacement. */
void tsr__logits_offer(const tsr__logits *logits, tsr_threefry_key key, tsr__best *best);

#endif
