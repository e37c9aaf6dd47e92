/* Makes samplers of the kinds that do not depend on properties of the items, with different orders
 * and parameters, for tests of behaviour that all samplers share. */
#ifndef TESTS_SAMPLER_KINDS_H
#define TESTS_SAMPLER_KINDS_H

#include <stdint.h>

#include "sampler/read.h"

#define KINDS 29

static inline tsr_status kind_distributed(tsr_tail tail, tsr_split split, tsr_order order,
                                          int64_t ranks, int64_t rank, tsr_sampler **out)
{
    return tsr_sampler_create_distributed(
        tsr_sampler_distributed_params(.n = 103, .ranks = ranks, .rank = rank, .order = order,
                                       .tail = tail, .split = split, .seed = 6),
        out);
}

static inline tsr_status kind_random(tsr_order order, bool replacement, int64_t samples,
                                     tsr_sampler **out)
{
    return tsr_sampler_create_random(tsr_sampler_random_params(.n = 40, .order = order,
                                                               .replacement = replacement,
                                                               .num_samples = samples, .seed = 3),
                                     out);
}

static inline tsr_status kind_weighted(tsr_order order, bool once, int64_t samples,
                                       tsr_sampler **out)
{
    static const double weights[] = {1, 0, 3, 0.5, 2, 2, 1, 0.25, 9, 4};
    return tsr_sampler_create_weighted(
        tsr_sampler_weighted_params(.weights = weights, .count = 10, .num_samples = samples,
                                    .replacement = !once, .order = order, .seed = 8),
        out);
}

/* Takes ownership of the base, and destroys it even on failure. */
static inline tsr_status kind_batch(tsr_status made, tsr_sampler *base, int64_t size,
                                    bool drop_last, tsr_sampler **out)
{
    if (made == TSR_OK)
        made = tsr_sampler_create_batch(
            tsr_sampler_batch_params(.base = base, .batch_size = size, .drop_last = drop_last),
            out);
    tsr_sampler_destroy(&base);
    return made;
}

static inline tsr_status kind_shared(tsr_status made, tsr_sampler *base, tsr_tail tail,
                                     tsr_sampler **out)
{
    if (made == TSR_OK)
        made = tsr_sampler_create_distributed(
            tsr_sampler_distributed_params(.base = base, .ranks = 3, .rank = 1, .tail = tail), out);
    tsr_sampler_destroy(&base);
    return made;
}

static inline tsr_status kind_create(int kind, tsr_sampler **out)
{
    static const int64_t indices[] = {9, -3, 7, 1099511627776, 0, 5, 5};
    tsr_sampler *base = NULL;
    tsr_status made;
    switch (kind) {
    case 0:
        return tsr_sampler_create_sequential(50, out);
    case 1:
        return kind_random(TSR_ORDER_FEISTEL, false, 0, out);
    case 2:
        return kind_random(TSR_ORDER_FEISTEL, false, 95, out);
    case 3:
        return kind_random(TSR_ORDER_FEISTEL, true, 55, out);
    case 4:
        return kind_random(TSR_ORDER_TORCH, false, 95, out);
    case 5:
        return kind_random(TSR_ORDER_TORCH, true, 55, out);
    case 6:
        return kind_random(TSR_ORDER_DOTNET, false, 95, out);
    case 7:
        return kind_random(TSR_ORDER_DOTNET, true, 55, out);
    case 8:
        return kind_random(TSR_ORDER_NONE, false, 95, out);
    case 9:
    case 10:
        return tsr_sampler_create_subset(
            tsr_sampler_subset_params(.indices = indices, .count = 7, .seed = 1,
                                      .order = kind == 9 ? TSR_ORDER_FEISTEL : TSR_ORDER_TORCH),
            out);
    case 11:
        return kind_weighted(TSR_ORDER_FEISTEL, false, 70, out);
    case 12:
        return kind_weighted(TSR_ORDER_FEISTEL, true, 9, out);
    case 13:
        return kind_weighted(TSR_ORDER_TORCH, false, 70, out);
    case 14:
        return kind_weighted(TSR_ORDER_TORCH, true, 9, out);
    case 15:
        return kind_distributed(TSR_TAIL_PAD_MASK, TSR_SPLIT_INTERLEAVED, TSR_ORDER_FEISTEL, 4, 3,
                                out);
    case 16:
        return kind_distributed(TSR_TAIL_UNEVEN, TSR_SPLIT_CONTIGUOUS, TSR_ORDER_TORCH, 4, 1, out);
    case 17:
        return kind_distributed(TSR_TAIL_DROP, TSR_SPLIT_INTERLEAVED, TSR_ORDER_DOTNET, 4, 1, out);
    case 18:
    case 19:
        made = kind_random(TSR_ORDER_TORCH, false, 95, &base);
        return kind_batch(made, base, 7, kind == 19, out);
    case 20:
        made = kind_distributed(TSR_TAIL_PAD_MASK, TSR_SPLIT_CONTIGUOUS, TSR_ORDER_FEISTEL, 5, 4,
                                &base);
        return kind_batch(made, base, 4, false, out);
    case 21:
        made = kind_weighted(TSR_ORDER_TORCH, false, 70, &base);
        return kind_shared(made, base, TSR_TAIL_PAD, out);
    case 22:
        made = kind_random(TSR_ORDER_FEISTEL, true, 55, &base);
        made = kind_batch(made, base, 4, false, &base);
        return kind_shared(made, made == TSR_OK ? base : NULL, TSR_TAIL_PAD_MASK, out);
    case 23:
        return kind_random(TSR_ORDER_MLX, false, 95, out);
    case 24:
        return kind_random(TSR_ORDER_MLX, true, 55, out);
    case 25:
        return kind_weighted(TSR_ORDER_MLX, false, 70, out);
    case 26:
        return kind_weighted(TSR_ORDER_MLX, true, 9, out);
    case 27:
        return kind_distributed(TSR_TAIL_PAD, TSR_SPLIT_INTERLEAVED, TSR_ORDER_MLX, 4, 3, out);
    default:
        made =
            kind_distributed(TSR_TAIL_PAD, TSR_SPLIT_INTERLEAVED, TSR_ORDER_FEISTEL, 2, 1, &base);
        made = kind_shared(made, base, TSR_TAIL_UNEVEN, &base);
        return kind_batch(made, made == TSR_OK ? base : NULL, 5, true, out);
    }
}

#endif
