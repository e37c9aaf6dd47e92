/* The random sampler: 0 … n − 1 in random order, or drawn with replacement. */
#include <inttypes.h>

#include "base/philox.h"
#include "base/struct_size.h"
#include "rng/rng.h"
#include "sampler/order/epoch_permutations.h"
#include "sampler/sampler.h"

typedef struct random_sampler {
    tsr_sampler base;
    bool replacement;
    uint64_t n, samples;
    tsr__epoch_permutations shuffled; /* for draws with replacement, only its generator is used */
    uint64_t words; /* with replacement: how many draws of the generator each index takes */
    tsr__draws draws;
    tsr__order_keys keys; /* keys of the epoch; used in the order FEISTEL with replacement */
} random_sampler;

static uint64_t random_length(const tsr_sampler *sampler)
{
    return ((const random_sampler *)sampler)->samples;
}

static tsr_status random_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    random_sampler *self = (random_sampler *)sampler;
    TSR__TRY(tsr__epoch_permutations_set_epoch("random", &self->shuffled, epoch));
    self->draws.begun = false;
    tsr__order_key(self->shuffled.epoch_generator.seed, (uint64_t)epoch, 0, &self->keys);
    return TSR_OK;
}

/* Returns the high 64 bits of the product a · b and writes the low 64 bits to *low. */
static uint64_t multiply_high(uint64_t a, uint64_t b, uint64_t *low)
{
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t other = a0 * b1 + (uint32_t)middle;
    *low = a * b;
    return a1 * b1 + (middle >> 32) + (other >> 32);
}

/* Returns draw number `index` of an epoch: a number below n, with exactly equal probabilities. One
 * block of Philox has two 64-bit values, each of which is one attempt. If both must be rejected,
 * the next two attempts use a block with another key. */
static uint64_t drawn(const tsr__order_keys *keys, uint64_t index, uint64_t n)
{
    uint64_t rejected = (0 - n) % n;
    for (uint64_t attempt = 0;; attempt++) {
        uint64_t seed = keys->seed + attempt, low;
        uint32_t counter[4] = {(uint32_t)index, (uint32_t)(index >> 32), (uint32_t)keys->stream,
                               (uint32_t)(keys->stream >> 32)};
        uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)}, words[4];
        tsr__philox4x32(counter, key, words);
        for (int half = 0; half < 4; half += 2) {
            uint64_t bits = (uint64_t)words[half] << 32 | words[half + 1];
            uint64_t high = multiply_high(bits, n, &low);
            if (low >= rejected)
                return high;
        }
    }
}

static tsr_status fill_replacement(random_sampler *self, uint64_t position, uint64_t count,
                                   int64_t *out)
{
    const tsr__epoch_generator *generator = &self->shuffled.epoch_generator;
    if (generator->order == TSR_ORDER_FEISTEL) {
        for (uint64_t i = 0; i < count; i++)
            out[i] = (int64_t)drawn(&self->keys, position + i, self->n);
        return TSR_OK;
    }
    if (generator->order == TSR_ORDER_MLX) {
        const tsr_threefry_key key = tsr__epoch_generator_key(generator);
        for (uint64_t i = 0; i < count; i++)
            out[i] =
                tsr__threefry_randint_at(key, 0, (int32_t)self->n, self->samples, position + i);
        return TSR_OK;
    }
    tsr__draws_to(&self->draws, generator, position, self->words);
    if (generator->order == TSR_ORDER_TORCH) {
        TSR__TRY(tsr_torch_randint(&self->draws.rng.as.mt19937, generator->torch.version, 0,
                                   (int64_t)self->n, count, out));
    } else {
        for (uint64_t i = 0; i < count; i++) {
            int32_t value;
            TSR__TRY(
                tsr_dotnet_next_range(&self->draws.rng.as.dotnet, 0, (int32_t)self->n, &value));
            out[i] = value;
        }
    }
    self->draws.next += count;
    return TSR_OK;
}

static tsr_status random_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                              uint8_t *mask, uint64_t *count)
{
    (void)mask;
    random_sampler *self = (random_sampler *)sampler;
    uint64_t position = sampler->position, here = tsr__min_u64(capacity, self->samples - position);
    if (self->replacement)
        TSR__TRY(fill_replacement(self, position, here, indices));
    else
        TSR__TRY(tsr__epoch_permutations_fill(&self->shuffled, position, here, indices));
    *count = here;
    return TSR_OK;
}

static const tsr__epoch_generator *random_epoch_generator(const tsr_sampler *sampler)
{
    return &((const random_sampler *)sampler)->shuffled.epoch_generator;
}

static void random_finish(tsr_sampler *sampler)
{
    tsr__epoch_permutations_finish(&((random_sampler *)sampler)->shuffled);
}

static const tsr__sampler_class random_class = {
    .kind = TSR__SAMPLER_RANDOM,
    .name = "random",
    .fill = random_fill,
    .set_epoch = random_set_epoch,
    .length = random_length,
    .most = random_length,
    .epoch_generator = random_epoch_generator,
    .finish = random_finish,
};

static void random_add_params(random_sampler *self, const tsr_sampler_random_params *params)
{
    tsr_sampler *base = &self->base;
    tsr__sampler_add_param(base, "n", TSR__PARAM_COUNT, self->n);
    tsr__sampler_add_param(base, "order", TSR__PARAM_ORDER, (uint64_t)params->order);
    tsr__sampler_add_param(base, "replacement", TSR__PARAM_FLAG, params->replacement);
    tsr__sampler_add_param(base, "num_samples", TSR__PARAM_COUNT, self->samples);
    tsr__sampler_add_param(base, "seed", TSR__PARAM_SIGNED,
                           params->order != TSR_ORDER_NONE ? (uint64_t)params->seed : 0);
    tsr__sampler_add_torch(base, params->order == TSR_ORDER_TORCH,
                           &self->shuffled.epoch_generator.torch);
}

/* Prepares the generator for draws with replacement. No shuffle has to be prepared for them. */
static tsr_status prepare_replacement(const tsr_sampler_random_params *params,
                                      const tsr_torch_options *torch, random_sampler *self)
{
    tsr__epoch_generator *generator = &self->shuffled.epoch_generator;
    uint64_t draws;
    TSR__REQUIRE(params->order != TSR_ORDER_NONE,
                 "random: with replacement there is no order 'none'");
    if (params->order == TSR_ORDER_MLX) {
        TSR__REQUIRE(params->n <= INT32_MAX,
                     "random: MLX draws from at most %" PRId32 " items, not %" PRIu64, INT32_MAX,
                     params->n);
        TSR__REQUIRE(self->samples <= TSR__MAX_THREEFRY_WORDS,
                     "random: %" PRIu64 " samples are more than MLX can draw, %" PRIu64,
                     self->samples, TSR__MAX_THREEFRY_WORDS);
        return tsr__epoch_generator_init("random", params->order, params->seed, torch, 1, true,
                                         generator);
    }
    bool wide = params->order == TSR_ORDER_TORCH &&
                params->n >= UINT64_C(1) << (generator->torch.version >= TSR_TORCH_2_7 ? 28 : 32);
    self->words = wide ? 2 : 1;
    bool fit = tsr__mul_u64(self->samples, self->words, &draws);
    return tsr__epoch_generator_init("random", params->order, params->seed, torch, fit ? draws : 0,
                                     fit, generator);
}

tsr_status tsr_sampler_create_random(const tsr_sampler_random_params *params, tsr_sampler **out)
{
    TSR__REQUIRE(params != NULL && out != NULL, "random: %s is NULL",
                 params != NULL ? "out" : "params");
    TSR__TAKE(tsr_sampler_random_params, params);
    const tsr_torch_options *torch = params->torch;
    TSR__TAKE(tsr_torch_options, torch);
    uint64_t samples;
    TSR__TRY(tsr__sampler_check_samples("random", params->n, params->num_samples, &samples));
    TSR__TRY(tsr__order_check("random", params->order));
    random_sampler *self = (random_sampler *)tsr__sampler_new(&random_class, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    self->n = params->n;
    self->samples = samples;
    self->replacement = params->replacement;
    /* PyTorch always draws one permutation more than the epoch uses completely, even if it uses
     * nothing of the last one. */
    uint64_t rounds = params->order == TSR_ORDER_TORCH ? samples / params->n + 1
                                                       : tsr__div_up_u64(samples, params->n);
    tsr_status status = tsr__epoch_permutations_init("random", params->order, params->n, rounds,
                                                     params->seed, torch, &self->shuffled);
    if (status == TSR_OK && params->replacement)
        status = prepare_replacement(params, torch, self);
    if (status == TSR_OK) {
        random_add_params(self, params);
        tsr__order_key((uint64_t)params->seed, 0, 0, &self->keys);
    }
    return tsr__sampler_created(status, &self->base, out);
}
