#include "sampler/order/epoch_generators.h"

#include <inttypes.h>

#include "base/checked.h"
#include "base/error.h"
#include "rng/rng.h"

/* The number of draws of the generator that a 64-bit number needs. */
#define WORDS_OF_64 2

static void start_over(tsr__passes *passes)
{
    passes->epoch = 0;
    if (passes->order == TSR_ORDER_DOTNET) {
        passes->start.kind = TSR_RNG_DOTNET;
        tsr_dotnet_init((int32_t)(int64_t)passes->seed, &passes->start.as.dotnet);
    } else if (passes->order == TSR_ORDER_MLX) {
        passes->start.kind = TSR_RNG_THREEFRY;
        tsr_threefry_init(tsr_threefry_key_from_seed(passes->seed), &passes->start.as.threefry);
    } else {
        passes->start.kind = TSR_RNG_MT19937;
        tsr_mt19937_init(passes->seed, &passes->start.as.mt19937);
    }
}

static bool has_generator(const tsr__passes *passes)
{
    return passes->order == TSR_ORDER_TORCH || passes->order == TSR_ORDER_DOTNET ||
           passes->order == TSR_ORDER_MLX;
}

static void skip(const tsr__passes *passes, tsr_rng *rng, uint64_t draws)
{
    if (passes->order == TSR_ORDER_MLX)
        for (uint64_t i = 0; i < draws; i++)
            (void)tsr_threefry_next_key(&rng->as.threefry.key);
    else
        tsr_rng_skip(rng, draws);
}

tsr_status tsr__passes_init(const char *what, tsr_order order, int64_t seed,
                            const tsr_torch_options *torch, uint64_t draws, bool draws_fit,
                            tsr__passes *out)
{
    tsr__passes passes = {.order = order, .seed = (uint64_t)seed, .torch = *torch};
    TSR__TRY(tsr__order_check(what, order));
    if (order == TSR_ORDER_TORCH) {
        TSR__TRY(tsr__torch_version(what, torch->version, &passes.torch.version));
        if (torch->global_generator) {
            draws = WORDS_OF_64; /* PyTorch seeds a separate generator in each epoch, by one 64-bit
                                    draw from the global one */
            draws_fit = true;
        }
        uint64_t first = torch->data_loader ? WORDS_OF_64 : 0;
        draws_fit = draws_fit && tsr__add_u64(draws, first, &draws);
    } else {
        passes.torch = (tsr_torch_options){0};
    }
    TSR__TRY(tsr__order_check_seed(what, order, seed));
    passes.draws = draws_fit ? draws : UINT64_MAX;
    if (has_generator(&passes))
        start_over(&passes);
    *out = passes;
    return TSR_OK;
}

tsr_status tsr__passes_set(const char *what, tsr__passes *passes, int64_t epoch)
{
    uint64_t draws;
    TSR__REQUIRE(epoch >= 0, "%s: epoch %" PRId64 " is negative", what, epoch);
    if (!has_generator(passes)) {
        passes->epoch = epoch;
        return TSR_OK;
    }
    if (!tsr__mul_u64((uint64_t)epoch, passes->draws, &draws) || draws == UINT64_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "%s: more than 2^64 random numbers are drawn before epoch %" PRId64, what,
                         epoch);
    if (epoch < passes->epoch)
        start_over(passes);
    skip(passes, &passes->start, (uint64_t)(epoch - passes->epoch) * passes->draws);
    passes->epoch = epoch;
    return TSR_OK;
}

void tsr__passes_begin(const tsr__passes *passes, tsr_rng *out)
{
    *out = passes->start;
    if (passes->order != TSR_ORDER_TORCH)
        return;
    if (passes->torch.data_loader)
        (void)tsr_mt19937_next_u64(&out->as.mt19937);
    if (passes->torch.global_generator) {
        /* PyTorch's random_() clears the sign bit of this int64. This makes no difference, because
         * the generator uses only the low 32 bits of a seed. */
        uint64_t seed = tsr_mt19937_next_u64(&out->as.mt19937);
        tsr_mt19937_init(seed, &out->as.mt19937);
    }
}

tsr_threefry_key tsr__passes_key(const tsr__passes *passes)
{
    tsr_threefry_key state = passes->start.as.threefry.key;
    return tsr_threefry_next_key(&state);
}

void tsr__draws_to(tsr__draws *draws, const tsr__passes *passes, uint64_t item, uint64_t words)
{
    if (!draws->begun || item < draws->next) {
        tsr__passes_begin(passes, &draws->rng);
        draws->begun = true;
        draws->next = 0;
    }
    if (item > draws->next) {
        skip(passes, &draws->rng, (item - draws->next) * words);
        draws->next = item;
    }
}
