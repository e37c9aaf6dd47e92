/* Why candidates suffice for top_k: let L be the k-th largest logit of the whole vocabulary. top_k
 * keeps the tokens with L or more. Each rank sends its k + 1 largest logits. If the last of them is
 * below L, all of this rank's tokens with L or more are among those before it. Otherwise, tokens
 * that are equal to L may be missing, and all logits are needed.
 *
 * For top_p, let U be the largest of the ranks' last candidates, of those ranks that have more
 * tokens. All tokens above U are candidates. top_p keeps the most likely tokens until the sum of
 * their weights reaches a share of the sum of all. If the tokens above U reach it, top_p keeps none
 * of the others. */
#include <math.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/given.h"
#include "model/generate/generator.h"
#include "model/generate/split_draw.h"

tsr__split_kind tsr__split_kind_of(const tsr_sampling_params *p, int64_t *most)
{
    *most = 1;
    if (p->temperature == 0)
        return TSR__SPLIT_CANDIDATES;
    if (p->top_k > TSR__SPLIT_MOST_TOP_K)
        return TSR__SPLIT_GATHER;
    if (p->top_k > 0) {
        *most = p->top_k + 1;
        return TSR__SPLIT_CANDIDATES;
    }
    if (tsr__given_double(p->top_p, 1) >= 1)
        return TSR__SPLIT_SUMS;
    *most = TSR__SPLIT_MOST;
    return TSR__SPLIT_NUCLEUS;
}

void tsr__split_list(int64_t count, const float *logits, int32_t first, int64_t most,
                     tsr__candidate *list)
{
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        const float logit = logits[i];
        const tsr__candidate one = {.logit = logit, .token = first + (int32_t)i};
        if (!(logit < INFINITY)) { /* one such logit says that all are needed */
            list[0] = one;
            found = found > 0 ? found : 1;
            break;
        }
        if (found == most && logit <= list[most - 1].logit)
            continue;
        int64_t at = found < most ? found++ : most - 1;
        for (; at > 0 && list[at - 1].logit < logit; at--)
            list[at] = list[at - 1];
        list[at] = one;
    }
    for (; found < most; found++)
        list[found] = (tsr__candidate){.logit = -INFINITY};
}

static const tsr__candidate *candidates_of(const tsr__split_row *row, int rank)
{
    return row->candidates + rank * row->stride;
}

static float largest_logit(const tsr__split_row *row)
{
    float largest = -INFINITY;
    for (int r = 0; r < row->ranks; r++)
        largest = candidates_of(row, r)->logit > largest ? candidates_of(row, r)->logit : largest;
    return largest;
}

/* Returns the k-th largest of the candidates. */
static float kth_largest(const tsr__split_row *row, int64_t k)
{
    int64_t taken[TSR_MAX_COMM_SIZE] = {0}; /* by rank, of its candidates in their order */
    float last = -INFINITY;
    for (int64_t n = 0; n < k; n++) {
        int best = -1;
        for (int r = 0; r < row->ranks; r++)
            if (taken[r] < row->most &&
                (best < 0 || candidates_of(row, r)[taken[r]].logit >
                                 candidates_of(row, best)[taken[best]].logit))
                best = r;
        if (best < 0)
            return -INFINITY;
        last = candidates_of(row, best)[taken[best]++].logit;
    }
    return last;
}

/* Returns a logit that no token exceeds that is not a candidate; −inf if all are candidates. */
static float bound_of_others(const tsr__split_row *row)
{
    float bound = -INFINITY;
    for (int r = 0; r < row->ranks; r++) {
        const float last = candidates_of(row, r)[row->most - 1].logit;
        if (row->parts[r] > row->most && last > bound)
            bound = last;
    }
    return bound;
}

bool tsr__split_suffices(const tsr__split_row *row)
{
    for (int r = 0; r < row->ranks; r++)
        if (!(candidates_of(row, r)->logit < INFINITY)) /* NaN counts as the largest element */
            return false;
    if (largest_logit(row) == -INFINITY)
        return false;
    if (row->params->temperature == 0 || row->kind != TSR__SPLIT_CANDIDATES)
        return true;
    const float bound = bound_of_others(row);
    return bound == -INFINITY || bound < kth_largest(row, row->params->top_k);
}

/* Returns the weight of a token; 0 if min_p removes it, which comes after top_p. */
static uint64_t weight_of(const tsr__split_row *row, float largest, float logit)
{
    if (logit == -INFINITY)
        return 0;
    const uint64_t weight =
        tsr__choice_weight(tsr__choice_distance(largest, logit, row->words.scale));
    const uint64_t least = row->words.least[0] | (uint64_t)row->words.least[1] << 32;
    return row->kind == TSR__SPLIT_SUMS && weight < least ? 0 : weight;
}

uint64_t tsr__split_sum(const tsr__split_row *row, int64_t count, const float *logits)
{
    const float largest = largest_logit(row);
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += weight_of(row, largest, logits[i]);
    return sum;
}

static uint64_t sum_of_ranks(const tsr__split_row *row)
{
    uint64_t sum = 0;
    for (int r = 0; r < row->ranks; r++)
        sum += row->sums[r * row->sums_stride];
    return sum;
}

void tsr__split_find_rank(const tsr__split_row *row, int *rank, uint64_t *place)
{
    const uint64_t random = row->words.random[0] | (uint64_t)row->words.random[1] << 32;
    uint64_t left = tsr__mul_high_u64(random, sum_of_ranks(row));
    int r = 0;
    while (r < row->ranks - 1 && left >= row->sums[r * row->sums_stride])
        left -= row->sums[r++ * row->sums_stride];
    *rank = r;
    *place = left;
}

int32_t tsr__split_find_token(const tsr__split_row *row, int64_t count, const float *logits,
                              uint64_t place)
{
    const float largest = largest_logit(row);
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += weight_of(row, largest, logits[i]);
        if (place < sum)
            return (int32_t)i;
    }
    return 0; /* not reached: the place is below the sum */
}

static int by_token(const void *a, const void *b)
{
    const int32_t first = ((const tsr__candidate *)a)->token,
                  second = ((const tsr__candidate *)b)->token;
    return (first > second) - (first < second);
}

/* Copies the candidates that exist, in the order of their tokens. Returns their number. */
static int64_t list_candidates(const tsr__split_row *row, tsr__candidate *list)
{
    int64_t count = 0;
    for (int r = 0; r < row->ranks; r++)
        for (int64_t i = 0; i < row->most; i++)
            if (candidates_of(row, r)[i].logit != -INFINITY)
                list[count++] = candidates_of(row, r)[i];
    qsort(list, (size_t)count, sizeof *list, by_token);
    return count;
}

/* Returns whether top_p keeps candidates only. Sets *others to the sum of the weights of all other
 * tokens. */
static bool keeps_candidates(const tsr__split_row *row, const tsr__candidate *list, int64_t count,
                             uint64_t *others)
{
    const uint64_t all = sum_of_ranks(row),
                   p = row->words.top_p[0] | (uint64_t)row->words.top_p[1] << 32,
                   share = tsr__mul_high_u64(p, all);
    const float largest = largest_logit(row), bound = bound_of_others(row);
    uint64_t sum = 0, above = 0;
    for (int64_t i = 0; i < count; i++) {
        const uint64_t weight = weight_of(row, largest, list[i].logit);
        sum += weight;
        above += list[i].logit > bound ? weight : 0;
    }
    *others = all - sum;
    return above > 0 && above >= share;
}

/* Chooses one of the candidates in `list`. */
static tsr_status choose_listed(const tsr__split_row *row, const tsr__candidate *list,
                                int64_t count, uint64_t others, int32_t *token)
{
    float *logits = tsr__calloc((size_t)count, sizeof *logits);
    int32_t index = 0;
    if (!logits)
        return TSR_ERR_NO_MEMORY;
    for (int64_t i = 0; i < count; i++)
        logits[i] = list[i].logit;
    const tsr_status status =
        tsr__sampling_draw_some(row->params, &row->words, count, logits, others, &index);
    tsr__free(logits);
    if (status == TSR_OK)
        *token = list[index].token;
    return status;
}

tsr_status tsr__split_choose(const tsr__split_row *row, int32_t *token)
{
    tsr__candidate *list = tsr__calloc((size_t)(row->ranks * row->most), sizeof *list);
    uint64_t others = 0;
    if (!list)
        return TSR_ERR_NO_MEMORY;
    const int64_t count = list_candidates(row, list);
    tsr_status status = TSR_OK;
    if (row->kind == TSR__SPLIT_NUCLEUS && !keeps_candidates(row, list, count, &others))
        *token = -1;
    else
        status = choose_listed(row, list, count, others, token);
    tsr__free(list);
    return status;
}
