/* The curriculum sampler: easy items first, harder ones in later epochs. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "rng/rng.h"
#include "sampler/order/order.h"
#include "sampler/order/sort_items.h"

typedef struct curriculum {
    tsr_sampler base;
    uint64_t count, samples, seed;
    int64_t max_epochs;
    /* [count] the items' difficulties, as integers that have the same order */
    int64_t *keys;
    uint32_t *items; /* [count] items, sorted by difficulty */
    uint64_t valid;  /* this epoch draws only from the first `valid` of `items` */
    /* the order of the valid items, used if each item is drawn at most once */
    tsr_feistel order;
    tsr__order_keys draw; /* the key for draws with replacement */
} curriculum;

/* Returns the bits of a non-negative double as an integer. The integers of two doubles compare as
 * the doubles do. */
static int64_t key_of(double difficulty)
{
    int64_t bits;
    difficulty += 0.0; /* −0 becomes 0 */
    memcpy(&bits, &difficulty, sizeof bits);
    return bits;
}

static uint64_t curriculum_length(const tsr_sampler *sampler)
{
    return ((const curriculum *)sampler)->samples;
}

/* Returns how many items have a key of at most `key`. */
static uint64_t up_to(const curriculum *self, int64_t key)
{
    uint64_t low = 0, high = self->count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (self->keys[self->items[middle]] <= key)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static tsr_status curriculum_set_epoch(tsr_sampler *sampler, int64_t epoch)
{
    curriculum *self = (curriculum *)sampler;
    TSR__REQUIRE(epoch >= 0, "curriculum: epoch %" PRId64 " is negative", epoch);
    double progress = 1;
    if (epoch < self->max_epochs - 1)
        progress = (double)epoch / (double)(self->max_epochs - 1);
    uint64_t valid = up_to(self, key_of(progress));
    if (valid == 0)
        valid = up_to(self, self->keys[self->items[0]]);
    TSR__TRY(tsr_feistel_init(valid, self->seed, (uint64_t)epoch, 0, &self->order));
    tsr__order_key(self->seed, (uint64_t)epoch, 1, &self->draw);
    self->valid = valid;
    return TSR_OK;
}

/* Draws with replacement. Each index is drawn from its own generator, so computing any index takes
 * constant time. */
static void draw_with_replacement(const curriculum *self, uint64_t first, uint64_t count,
                                  int64_t *out)
{
    tsr_rng rng = {.kind = TSR_RNG_PHILOX};
    for (uint64_t i = 0; i < count; i++) {
        tsr__philox_init(self->draw.seed, self->draw.stream + first + i, &rng.as.philox);
        out[i] = (int64_t)tsr_rng_below(&rng, self->valid);
    }
}

static tsr_status curriculum_fill(tsr_sampler *sampler, uint64_t capacity, int64_t *indices,
                                  uint8_t *mask, uint64_t *count)
{
    (void)mask;
    const curriculum *self = (const curriculum *)sampler;
    uint64_t position = sampler->position, here = tsr__min_u64(capacity, self->samples - position);
    if (self->valid < self->samples)
        draw_with_replacement(self, position, here, indices);
    else
        tsr_feistel_fill(&self->order, position, 1, here, indices);
    for (uint64_t i = 0; i < here; i++)
        indices[i] = self->items[indices[i]];
    *count = here;
    return TSR_OK;
}

static void curriculum_finish(tsr_sampler *sampler)
{
    tsr__free(((curriculum *)sampler)->keys);
    tsr__free(((curriculum *)sampler)->items);
}

static const tsr__sampler_class curriculum_class = {
    .kind = TSR__SAMPLER_CURRICULUM,
    .name = "curriculum",
    .fill = curriculum_fill,
    .set_epoch = curriculum_set_epoch,
    .length = curriculum_length,
    .most = curriculum_length,
    .finish = curriculum_finish,
};

static tsr_status prepare_curriculum(curriculum *self, const double *difficulties)
{
    self->keys = tsr__calloc(self->count, sizeof *self->keys);
    if (self->keys == NULL)
        return TSR_ERR_NO_MEMORY;
    for (uint64_t i = 0; i < self->count; i++)
        self->keys[i] = key_of(difficulties[i]);
    TSR__TRY(tsr__sort_items(self->keys, self->count, &self->items));
    tsr__sampler_add_param(&self->base, "count", TSR__PARAM_COUNT, self->count);
    tsr__sampler_add_param(&self->base, "num_samples", TSR__PARAM_COUNT, self->samples);
    tsr__sampler_add_param(&self->base, "max_epochs", TSR__PARAM_COUNT, (uint64_t)self->max_epochs);
    tsr__sampler_add_param(&self->base, "seed", TSR__PARAM_SIGNED, self->seed);
    tsr__sampler_add_param(&self->base, "difficulties", TSR__PARAM_HASH,
                           tsr__fingerprint_array(self->keys, self->count));
    return curriculum_set_epoch(&self->base, 0);
}

tsr_status tsr_sampler_create_curriculum(const tsr_sampler_curriculum_params *params,
                                         tsr_sampler **out)
{
    TSR__REQUIRE(params != NULL && out != NULL, "curriculum: %s is NULL",
                 params != NULL ? "out" : "params");
    TSR__TAKE(tsr_sampler_curriculum_params, params);
    uint64_t samples;
    TSR__TRY(tsr__check_items("curriculum", params->difficulties, "difficulties", params->count));
    TSR__TRY(
        tsr__sampler_check_samples("curriculum", params->count, params->num_samples, &samples));
    TSR__REQUIRE(params->max_epochs > 0, "curriculum: max_epochs %" PRId64 " is not positive",
                 params->max_epochs);
    for (uint64_t i = 0; i < params->count; i++)
        TSR__REQUIRE(params->difficulties[i] >= 0 && params->difficulties[i] <= 1,
                     "curriculum: item %" PRIu64 " has difficulty %g, which is not in 0 to 1", i,
                     params->difficulties[i]);

    curriculum *self = (curriculum *)tsr__sampler_new(&curriculum_class, sizeof *self);
    if (self == NULL)
        return TSR_ERR_NO_MEMORY;
    self->count = params->count;
    self->samples = samples;
    self->seed = (uint64_t)params->seed;
    self->max_epochs = params->max_epochs;
    return tsr__sampler_created(prepare_curriculum(self, params->difficulties), &self->base, out);
}
