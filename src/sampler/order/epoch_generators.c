#include "sampler/order/epoch_generators.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"
#include "rng/rng.h"

/* The number of draws of the generator that a 64-bit number needs. */
#define WORDS_OF_64 2

static void start_over(tsr__epoch_generator *generator)
{
    generator->epoch = 0;
    if (generator->order == TSR_ORDER_DOTNET) {
        generator->start.kind = TSR_RNG_DOTNET;
        tsr__dotnet_init((int32_t)(int64_t)generator->seed, &generator->start.as.dotnet);
    } else if (generator->order == TSR_ORDER_MLX) {
        generator->start.kind = TSR_RNG_THREEFRY;
        tsr__threefry_init(tsr_threefry_key_from_seed(generator->seed),
                           &generator->start.as.threefry);
    } else {
        generator->start.kind = TSR_RNG_MT19937;
        tsr__mt19937_init(generator->seed, &generator->start.as.mt19937);
    }
}

static bool has_generator(const tsr__epoch_generator *generator)
{
    return generator->order == TSR_ORDER_TORCH || generator->order == TSR_ORDER_DOTNET ||
           generator->order == TSR_ORDER_MLX;
}

static void skip_draws(const tsr__epoch_generator *generator, tsr_rng *rng, uint64_t draws)
{
    if (generator->order == TSR_ORDER_MLX)
        for (uint64_t i = 0; i < draws; i++)
            (void)tsr_threefry_next_key(&rng->as.threefry.key);
    else
        tsr_rng_skip(rng, draws);
}

tsr_status tsr__epoch_generator_init(const char *what, tsr_order order, int64_t seed,
                                     const tsr_torch_options *torch, uint64_t draws, bool draws_fit,
                                     tsr__epoch_generator *out)
{
    tsr__epoch_generator generator = {.order = order, .seed = (uint64_t)seed, .torch = *torch};
    TSR__TRY(tsr__order_check(what, order));
    if (order == TSR_ORDER_TORCH) {
        TSR__TRY(tsr__torch_version(what, torch->version, &generator.torch.version));
        if (torch->global_generator) {
            draws = WORDS_OF_64; /* PyTorch seeds a separate generator in each epoch, by one 64-bit
                                    draw from the global one */
            draws_fit = true;
        }
        uint64_t first = torch->data_loader ? WORDS_OF_64 : 0;
        draws_fit = draws_fit && tsr__add_u64(draws, first, &draws);
    } else {
        generator.torch = (tsr_torch_options){0};
    }
    TSR__TRY(tsr__order_check_seed(what, order, seed));
    generator.draws = draws_fit ? draws : UINT64_MAX;
    if (has_generator(&generator))
        start_over(&generator);
    *out = generator;
    return TSR_OK;
}

tsr_status tsr__epoch_generator_set_epoch(const char *what, tsr__epoch_generator *generator,
                                          int64_t epoch)
{
    uint64_t draws;
    TSR__REQUIRE(epoch >= 0, "%s: epoch %" PRId64 " is negative", what, epoch);
    if (!has_generator(generator)) {
        generator->epoch = epoch;
        return TSR_OK;
    }
    if (!tsr__mul_u64((uint64_t)epoch, generator->draws, &draws) || draws == UINT64_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "%s: more than 2^64 random numbers are drawn before epoch %" PRId64, what,
                         epoch);
    if (epoch < generator->epoch)
        start_over(generator);
    skip_draws(generator, &generator->start,
               (uint64_t)(epoch - generator->epoch) * generator->draws);
    generator->epoch = epoch;
    return TSR_OK;
}

void tsr__epoch_generator_copy(const tsr__epoch_generator *generator, tsr_rng *out)
{
    *out = generator->start;
    if (generator->order != TSR_ORDER_TORCH)
        return;
    if (generator->torch.data_loader)
        (void)tsr__mt19937_next_u64(&out->as.mt19937);
    if (generator->torch.global_generator) {
        /* PyTorch's random_() clears the sign bit of this int64. This makes no difference, because
         * the generator uses only the low 32 bits of a seed. */
        uint64_t seed = tsr__mt19937_next_u64(&out->as.mt19937);
        tsr__mt19937_init(seed, &out->as.mt19937);
    }
}

tsr_threefry_key tsr__epoch_generator_key(const tsr__epoch_generator *generator)
{
    tsr_threefry_key state = generator->start.as.threefry.key;
    return tsr_threefry_next_key(&state);
}

void tsr__draws_to(tsr__draws *draws, const tsr__epoch_generator *generator, uint64_t item,
                   uint64_t words)
{
    if (!draws->begun || item < draws->next) {
        tsr__epoch_generator_copy(generator, &draws->rng);
        draws->begun = true;
        draws->next = 0;
    }
    if (item > draws->next) {
        skip_draws(generator, &draws->rng, (item - draws->next) * words);
        draws->next = item;
    }
}
