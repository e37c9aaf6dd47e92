#include "sampler/order/epoch_permutations.h"

#include "base/checked.h"
#include "base/error.h"

/* Returns how many numbers are drawn from the generator for one permutation. */
static uint64_t draws_of(const tsr__shuffled *shuffled)
{
    if (shuffled->passes.order == TSR_ORDER_TORCH)
        return tsr__torch_randperm_words(shuffled->passes.torch.version, shuffled->n);
    if (shuffled->passes.order == TSR_ORDER_MLX)
        return 1;
    return shuffled->n == 0 ? 0 : shuffled->n - 1;
}

tsr_status tsr__shuffled_init(const char *what, tsr_order order, uint64_t n, uint64_t rounds,
                              int64_t seed, const tsr_torch_options *torch, tsr__shuffled *out)
{
    TSR__TRY(tsr__order_check_shuffle(what, order, n));
    tsr__shuffled shuffled = {.n = n, .order.kind = order};
    TSR__TRY(tsr__passes_init(what, order, seed, torch, 0, true, &shuffled.passes));
    uint64_t draws;
    bool fit = tsr__mul_u64(draws_of(&shuffled), rounds, &draws);
    TSR__TRY(tsr__passes_init(what, order, seed, torch, fit ? draws : 0, fit, &shuffled.passes));
    *out = shuffled;
    return TSR_OK;
}

void tsr__shuffled_finish(tsr__shuffled *shuffled)
{
    tsr__table_finish(&shuffled->order.table);
}

tsr_status tsr__shuffled_set_epoch(const char *what, tsr__shuffled *shuffled, int64_t epoch)
{
    if (epoch == shuffled->passes.epoch)
        return TSR_OK;
    TSR__TRY(tsr__passes_set(what, &shuffled->passes, epoch));
    shuffled->ready = false;
    shuffled->draws.begun = false;
    return TSR_OK;
}

/* Computes permutation number `round` of the epoch. */
static tsr_status make(tsr__shuffled *shuffled, uint64_t round)
{
    const tsr__passes *passes = &shuffled->passes;
    tsr__draws *draws = &shuffled->draws;
    if (shuffled->ready && shuffled->round == round)
        return TSR_OK;
    shuffled->ready = false;
    switch (passes->order) {
    case TSR_ORDER_FEISTEL:
        TSR__TRY(tsr_feistel_init(shuffled->n, passes->seed, (uint64_t)passes->epoch, round,
                                  &shuffled->order.feistel));
        break;
    case TSR_ORDER_TORCH:
        tsr__draws_to(draws, passes, round, draws_of(shuffled));
        TSR__TRY(tsr__table_torch(&shuffled->order.table, passes->torch.version, shuffled->n,
                                  &draws->rng.as.mt19937));
        draws->next++;
        break;
    case TSR_ORDER_DOTNET:
        tsr__draws_to(draws, passes, round, draws_of(shuffled));
        TSR__TRY(tsr__table_dotnet(&shuffled->order.table, shuffled->n, &draws->rng.as.dotnet));
        draws->next++;
        break;
    case TSR_ORDER_MLX:
        tsr__draws_to(draws, passes, round, 1);
        /* Count the draw before computing the table, because the key has been drawn even if
         * computing the table fails. */
        draws->next++;
        TSR__TRY(tsr__table_mlx(&shuffled->order.table, shuffled->n,
                                tsr_threefry_next_key(&draws->rng.as.threefry.key)));
        break;
    case TSR_ORDER_NONE:
        break;
    }
    shuffled->round = round;
    shuffled->ready = true;
    return TSR_OK;
}

tsr_status tsr__shuffled_fill(tsr__shuffled *shuffled, uint64_t first, uint64_t count, int64_t *out)
{
    while (count > 0) {
        uint64_t at = first % shuffled->n;
        uint64_t here = tsr__min_u64(count, shuffled->n - at);
        TSR__TRY(make(shuffled, first / shuffled->n));
        tsr__order_fill(&shuffled->order, at, 1, here, out);
        out += here;
        first += here;
        count -= here;
    }
    return TSR_OK;
}
