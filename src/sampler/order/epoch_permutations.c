#include "sampler/order/epoch_permutations.h"

#include "base/checked.h"
#include "base/error.h"

/* Returns how many numbers are drawn from the generator for one permutation. */
static uint64_t draws_of(const tsr__epoch_permutations *shuffled)
{
    if (shuffled->epoch_generator.order == TSR_ORDER_TORCH)
        return tsr__torch_randperm_words(shuffled->epoch_generator.torch.version, shuffled->n);
    if (shuffled->epoch_generator.order == TSR_ORDER_MLX)
        return 1;
    return shuffled->n == 0 ? 0 : shuffled->n - 1;
}

tsr_status tsr__epoch_permutations_init(const char *what, tsr_order order, uint64_t n,
                                        uint64_t rounds, int64_t seed,
                                        const tsr_torch_options *torch,
                                        tsr__epoch_permutations *out)
{
    TSR__TRY(tsr__order_check_shuffle(what, order, n));
    tsr__epoch_permutations shuffled = {.n = n, .order.kind = order};
    TSR__TRY(
        tsr__epoch_generator_init(what, order, seed, torch, 0, true, &shuffled.epoch_generator));
    uint64_t draws;
    bool fit = tsr__mul_u64(draws_of(&shuffled), rounds, &draws);
    TSR__TRY(tsr__epoch_generator_init(what, order, seed, torch, fit ? draws : 0, fit,
                                       &shuffled.epoch_generator));
    *out = shuffled;
    return TSR_OK;
}

void tsr__epoch_permutations_finish(tsr__epoch_permutations *shuffled)
{
    tsr__table_finish(&shuffled->order.table);
}

tsr_status tsr__epoch_permutations_set_epoch(const char *what, tsr__epoch_permutations *shuffled,
                                             int64_t epoch)
{
    if (epoch == shuffled->epoch_generator.epoch)
        return TSR_OK;
    TSR__TRY(tsr__epoch_generator_set_epoch(what, &shuffled->epoch_generator, epoch));
    shuffled->ready = false;
    shuffled->draws.begun = false;
    return TSR_OK;
}

/* Computes permutation number `round` of the epoch. */
static tsr_status compute_permutation(tsr__epoch_permutations *shuffled, uint64_t round)
{
    const tsr__epoch_generator *generator = &shuffled->epoch_generator;
    tsr__draws *draws = &shuffled->draws;
    if (shuffled->ready && shuffled->round == round)
        return TSR_OK;
    shuffled->ready = false;
    switch (generator->order) {
    case TSR_ORDER_FEISTEL:
        TSR__TRY(tsr_feistel_init(shuffled->n, generator->seed, (uint64_t)generator->epoch, round,
                                  &shuffled->order.feistel));
        break;
    case TSR_ORDER_TORCH:
        tsr__draws_to(draws, generator, round, draws_of(shuffled));
        TSR__TRY(tsr__table_torch(&shuffled->order.table, generator->torch.version, shuffled->n,
                                  &draws->rng.as.mt19937));
        draws->next++;
        break;
    case TSR_ORDER_DOTNET:
        tsr__draws_to(draws, generator, round, draws_of(shuffled));
        TSR__TRY(tsr__table_dotnet(&shuffled->order.table, shuffled->n, &draws->rng.as.dotnet));
        draws->next++;
        break;
    case TSR_ORDER_MLX:
        tsr__draws_to(draws, generator, round, 1);
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

tsr_status tsr__epoch_permutations_fill(tsr__epoch_permutations *shuffled, uint64_t first,
                                        uint64_t count, int64_t *out)
{
    while (count > 0) {
        uint64_t place = first % shuffled->n;
        uint64_t here = tsr__min_u64(count, shuffled->n - place);
        TSR__TRY(compute_permutation(shuffled, first / shuffled->n));
        tsr__order_fill(&shuffled->order, place, 1, here, out);
        out += here;
        first += here;
        count -= here;
    }
    return TSR_OK;
}
