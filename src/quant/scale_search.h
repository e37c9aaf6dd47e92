/* Searches scales for groups of elements, with llama.cpp's reference algorithms. All arithmetic is
 * in f32, in a fixed order, because the results must have the same bits everywhere. */
#ifndef TSR_QUANT_SCALE_SEARCH_H
#define TSR_QUANT_SCALE_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

enum { TSR__QUANT_MAX_GROUP = 32 };

/* How much each element counts, and how the search for a scale and a minimum proceeds. */
typedef struct tsr__quant_min_search {
    int count;   /* elements of the group */
    int top;     /* the largest level */
    float first; /* the first candidate for the scale is the range of x divided by top + first; each
                    next candidate increases this divisor by 0.1 */
    int steps;   /* the number of candidates after the first one */
    bool absolute; /* sums absolute errors weighted with |x|, instead of squared errors weighted
                      with |x| plus the root mean square of the group */
} tsr__quant_min_search;

/* Finds levels, a scale and a minimum ≤ 0 with x ≈ scale·level + minimum. Gives the negated minimum
 * in `min`. */
float tsr__quant_search_min(const tsr__quant_min_search *search, const float *x, uint8_t *levels,
                            float *min);

/* Finds levels and a scale with x ≈ scale·(level - half), levels from 0 to 2·half - 1, trying 19
 * scales. */
float tsr__quant_search_scales(int count, int half, const float *x, uint8_t *levels);

/* Finds levels and a scale as tsr__quant_search_scales does, but tries one scale only, and then
 * improves one level after the other. */
float tsr__quant_search_levels(int count, int half, const float *x, uint8_t *levels);

#endif
