/* The weighted sampler: indices with probabilities in proportion to weights. The order, and whether
 * an index can be drawn again (with replacement), determine the method of drawing:
 *
 *     order    replacement   method              draws
 *     feistel  with          ALIAS               from an alias table
 *     feistel  without       NATIVE_KEYS         the indices with the largest random keys
 *     torch    with          CUMULATIVE_SUMS     from cumulative sums
 *     torch    without       TORCH_KEYS          the indices with the largest of PyTorch's keys
 *     mlx      with          NOISY_LOGIT         the largest sum of logit and noise
 *     mlx      without       NOISY_LOGITS_KEYS   the indices with the largest sums
 *
 * In PyTorch 2.0 and later, one sample with replacement is drawn as without. The methods with keys
 * draw all samples of an epoch at once, the others each sample. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "rng/rng.h"
#include "sampler/order/epoch_generators.h"
#include "sampler/sampler.h"
#include "sampler/weights/weighted_draws.h"

#define MAX_NATIVE UINT32_MAX
#define MAX_TORCH (UINT64_C(1) << 24)

typedef enum draw_method {
    ALIAS,
    CUMULATIVE_SUMS,
    NOISY_LOGIT,
    NATIVE_KEYS,
    TORCH_KEYS,
    NOISY_LOGITS_KEYS
} draw_method;

typedef struct weighted {
    tsr_sampler base;
    uint64_t samples;
    draw_method method;
    tsr__epoch_generator epoch_generator;
    tsr__order_keys keys; /* the epoch's keys, in the order feistel */
    tsr__draws draws;
    tsr__alias alias;
    tsr__sums sums;
    tsr__logits logits;
    /* The methods with keys: a copy of the weights (not for logits), and the draws of the epoch,
     * which are valid if `ready` is set. */
    tsr__weights weights;
    void *copy;
    tsr__best best;
    bool ready;
} weighted;

static uint64_t weighted_length(const tsr_sampler *sampler)
{
    return ((const weighted *)sampler)->samples;
}

static tsr_status weighted_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    weighted *self = (weighted *)sampler;
    if (epoch == self->epoch_generator.epoch)
        return TSR_OK;
    TSR__TRY(tsr__epoch_generator_set_epoch("weighted", &self->epoch_generator, epoch));
    tsr__order_key(self->epoch_generator.seed, (uint64_t)epoch, 0, &self->keys);
    self->draws.begun = false;
    self->ready = false;
    return TSR_OK;
}

static draw_method method_of(const tsr_sampler_weighted_params *params, uint64_t samples,
                             tsr_torch_version torch)
{
    switch (params->order) {
    case TSR_ORDER_TORCH:
        return !params->replacement || (samples == 1 && torch >= TSR_TORCH_2_0) ? TORCH_KEYS
                                                                                : CUMULATIVE_SUMS;
    case TSR_ORDER_MLX:
        return !params->replacement ? NOISY_LOGITS_KEYS : NOISY_LOGIT;
    default:
        return !params->replacement ? NATIVE_KEYS : ALIAS;
    }
}

/* Draws all samples of the epoch, with a method that uses keys. */
static void draw_epoch(weighted *self)
{
    const tsr__epoch_generator *generator = &self->epoch_generator;
    tsr_rng rng;
    self->best.count = 0;
    switch (self->method) {
    case TORCH_KEYS:
        tsr__epoch_generator_copy(generator, &rng);
        tsr__weights_draw_torch(&self->weights, &rng.as.mt19937, &self->best);
        break;
    case NOISY_LOGITS_KEYS:
        tsr__logits_offer(&self->logits, tsr__epoch_generator_key(generator), &self->best);
        break;
    default:
        tsr__weights_draw_native(&self->weights, &self->keys, &self->best);
    }
    tsr__best_sort(&self->best);
    self->ready = true;
}

static void draw_from_sums(weighted *self, uint64_t position, uint64_t count, int64_t *indices)
{
    tsr__draws_to(&self->draws, &self->epoch_generator, position, 2);
    for (uint64_t i = 0; i < count; i++) {
        double u = tsr__mt19937_next_double(&self->draws.rng.as.mt19937);
        indices[i] = (int64_t)tsr__sums_find(&self->sums, u);
    }
    self->draws.next += count;
}

static void draw_from_logits(weighted *self, uint64_t position, uint64_t count, int64_t *indices)
{
    const tsr_threefry_key key = tsr__epoch_generator_key(&self->epoch_generator);
    for (uint64_t i = 0; i < count; i++)
        indices[i] = tsr__logits_draw(&self->logits, key, self->samples, position + i);
}

static tsr_status weighted_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                                uint8_t *mask, uint64_t *count)
{
    (void)mask;
    weighted *self = (weighted *)sampler;
    const uint64_t position = sampler->position;
    *count = tsr__min_u64(capacity, self->samples - position);
    switch (self->method) {
    case ALIAS:
        tsr__alias_fill(&self->alias, &self->keys, position, *count, indices);
        break;
    case CUMULATIVE_SUMS:
        draw_from_sums(self, position, *count, indices);
        break;
    case NOISY_LOGIT:
        draw_from_logits(self, position, *count, indices);
        break;
    case NATIVE_KEYS:
    case TORCH_KEYS:
    case NOISY_LOGITS_KEYS:
        if (!self->ready)
            draw_epoch(self);
        for (uint64_t i = 0; i < *count; i++)
            indices[i] = self->best.indices[position + i];
        break;
    }
    return TSR_OK;
}

static const tsr__epoch_generator *weighted_epoch_generator(const tsr_sampler *sampler)
{
    return &((const weighted *)sampler)->epoch_generator;
}

static void weighted_finish(tsr_sampler *sampler)
{
    weighted *self = (weighted *)sampler;
    tsr__alias_finish(&self->alias);
    tsr__sums_finish(&self->sums);
    tsr__logits_finish(&self->logits);
    tsr__best_finish(&self->best);
    tsr__free(self->copy);
}

static const tsr__sampler_class weighted_class = {
    .kind = TSR__SAMPLER_WEIGHTED,
    .name = "weighted",
    .fill = weighted_fill,
    .set_epoch = weighted_set_epoch,
    .length = weighted_length,
    .most = weighted_length,
    .epoch_generator = weighted_epoch_generator,
    .finish = weighted_finish,
};

/* Checks the weights. Gives the largest weight, the number of weights above 0, and a hash of all
 * weights. */
static tsr_status check_weights(const tsr__weights *weights, double *largest, uint64_t *above_zero,
                                uint64_t *hash)
{
    *largest = 0;
    *above_zero = 0;
    *hash = 0;
    for (uint64_t i = 0; i < weights->count; i++) {
        double weight = tsr__weight(weights, i);
        TSR__REQUIRE(weight >= 0 && isfinite(weight),
                     "weighted: weight %" PRIu64 " is %g, not a finite number from 0 on", i,
                     weight);
        uint64_t bits;
        weight += 0.0; /* −0 becomes 0 */
        memcpy(&bits, &weight, sizeof bits);
        *hash = tsr__fingerprint(*hash, bits);
        *above_zero += weight > 0;
        if (weight > *largest)
            *largest = weight;
    }
    TSR__REQUIRE(*above_zero > 0, "weighted: all %" PRIu64 " weights are 0", weights->count);
    return TSR_OK;
}

static tsr_status keep_weights(const tsr__weights *weights, weighted *self)
{
    size_t size = weights->wide != NULL ? sizeof *weights->wide : sizeof *weights->narrow;
    self->copy = tsr__calloc((size_t)weights->count, size);
    if (self->copy == NULL)
        return TSR_ERR_NO_MEMORY;
    memcpy(self->copy,
           weights->wide != NULL ? (const void *)weights->wide : (const void *)weights->narrow,
           (size_t)weights->count * size);
    self->weights = (tsr__weights){.count = weights->count};
    if (weights->wide != NULL)
        self->weights.wide = self->copy;
    else
        self->weights.narrow = self->copy;
    return tsr__best_init(self->samples, &self->best);
}

static tsr_status prepare_logits(const tsr__weights *weights, weighted *self)
{
    const bool no_replacement = self->method == NOISY_LOGITS_KEYS;
    uint64_t words;
    TSR__REQUIRE(no_replacement || (tsr__mul_u64(weights->count, self->samples, &words) &&
                                    words <= TSR__MAX_THREEFRY_WORDS),
                 "weighted: MLX draws a number for each of %" PRIu64 " weights and %" PRIu64
                 " samples, and at most %" PRIu64,
                 weights->count, self->samples, TSR__MAX_THREEFRY_WORDS);
    TSR__TRY(tsr__logits_init(weights, &self->logits));
    if (!no_replacement)
        return TSR_OK;
    TSR__REQUIRE(self->samples <= self->logits.above_zero,
                 "weighted: %" PRIu64 " shares are above 0 in 32 bits, and %" PRIu64
                 " samples without replacement are more",
                 self->logits.above_zero, self->samples);
    return tsr__best_init(self->samples, &self->best);
}

static tsr_status prepare_weighted(const tsr_sampler_weighted_params *params,
                                   const tsr__weights *weights, weighted *self)
{
    uint64_t above_zero, hash;
    double largest;
    tsr_torch_options torch;
    TSR__TRY(TSR__TAKE_PART(tsr_torch_options, params->torch, &torch));
    /* PyTorch's multinomial always draws directly from the global generator */
    torch.global_generator = false;
    TSR__TRY(check_weights(weights, &largest, &above_zero, &hash));
    TSR__REQUIRE(params->replacement || self->samples <= above_zero,
                 "weighted: %" PRIu64 " weights are above 0, and %" PRIu64
                 " samples without replacement are more",
                 above_zero, self->samples);

    TSR__TRY(tsr__torch_version("weighted", torch.version, &torch.version));
    self->method = method_of(params, self->samples, torch.version);
    const bool by_keys = self->method >= NATIVE_KEYS;
    uint64_t draws =
        params->order == TSR_ORDER_MLX ? 1 : 2 * (by_keys ? weights->count : self->samples);
    TSR__TRY(tsr__epoch_generator_init("weighted", params->order, params->seed, &torch, draws, true,
                                       &self->epoch_generator));
    tsr__order_key(self->epoch_generator.seed, 0, 0, &self->keys);

    tsr_sampler *base = &self->base;
    tsr__sampler_add_param(base, "count", TSR__PARAM_COUNT, weights->count);
    tsr__sampler_add_param(base, "num_samples", TSR__PARAM_COUNT, self->samples);
    tsr__sampler_add_param(base, "no_replacement", TSR__PARAM_FLAG, !params->replacement);
    tsr__sampler_add_param(base, "order", TSR__PARAM_ORDER, (uint64_t)params->order);
    tsr__sampler_add_param(base, "seed", TSR__PARAM_SIGNED, (uint64_t)params->seed);
    tsr__sampler_add_torch(base, params->order == TSR_ORDER_TORCH, &self->epoch_generator.torch);
    tsr__sampler_add_param(base, "type of weights", TSR__PARAM_HASH,
                           tsr__fingerprint(0, weights->wide != NULL));
    tsr__sampler_add_param(base, "weights", TSR__PARAM_HASH, hash);

    switch (self->method) {
    case NOISY_LOGIT:
    case NOISY_LOGITS_KEYS:
        return prepare_logits(weights, self);
    case NATIVE_KEYS:
    case TORCH_KEYS:
        return keep_weights(weights, self);
    case CUMULATIVE_SUMS:
        return tsr__sums_init(weights, &self->sums);
    case ALIAS:
        break;
    }
    return tsr__alias_init(weights, largest, &self->alias);
}

tsr_status tsr_sampler_create_weighted(const tsr_sampler_weighted_params *params, tsr_sampler **out)
{
    TSR__REQUIRE(params != NULL && out != NULL, "weighted: %s is NULL",
                 params != NULL ? "out" : "params");
    TSR__TAKE(tsr_sampler_weighted_params, params);
    TSR__REQUIRE(params->weights == NULL || params->weights_f32 == NULL,
                 "weighted: there are weights of both kinds, float and double");
    TSR__REQUIRE(params->weights != NULL || params->weights_f32 != NULL || params->count == 0,
                 "weighted: count is %" PRIu64 ", but weights and weights_f32 are NULL",
                 params->count);
    TSR__REQUIRE(params->order == TSR_ORDER_FEISTEL || params->order == TSR_ORDER_TORCH ||
                     params->order == TSR_ORDER_MLX,
                 "weighted: the order is feistel, torch or mlx, not %s",
                 tsr__order_name(params->order));
    uint64_t samples, most = params->order == TSR_ORDER_TORCH ? MAX_TORCH : MAX_NATIVE;
    TSR__REQUIRE(params->num_samples != 0, "weighted: num_samples is 0");
    TSR__TRY(tsr__sampler_check_samples("weighted", params->count, params->num_samples, &samples));
    TSR__REQUIRE(params->count <= most,
                 "weighted: %" PRIu64 " weights are more than the order %s can draw from, %" PRIu64,
                 params->count, tsr__order_name(params->order), most);

    const tsr__weights weights = {params->weights, params->weights_f32, params->count};
    weighted *self = (weighted *)tsr__sampler_new(&weighted_class, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    self->samples = samples;
    return tsr__sampler_created(prepare_weighted(params, &weights, self), &self->base, out);
}
