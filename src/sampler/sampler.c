/* The code that all kinds of samplers share. */
#include "sampler/sampler.h"
#include "base/struct_size.h"

#include <inttypes.h>

#include "base/alloc.h"

tsr_sampler *tsr__sampler_new(const tsr__sampler_class *class_, size_t size_bytes)
{
    tsr_sampler *sampler = tsr__calloc(1, size_bytes);
    if (sampler != NULL) {
        sampler->class_ = class_;
        atomic_init(&sampler->references, 1);
        sampler->name = class_->name;
        sampler->fingerprint = tsr__fingerprint(UINT64_C(0x5453525353414d50), class_->kind);
    }
    return sampler;
}

tsr_status tsr__sampler_created(tsr_status status, tsr_sampler *sampler, tsr_sampler **out)
{
    if (status == TSR_OK)
        *out = sampler;
    else
        tsr_sampler_destroy(&sampler);
    return status;
}

void tsr_sampler_destroy(tsr_sampler **sampler)
{
    if (sampler == NULL || *sampler == NULL)
        return;
    if (atomic_fetch_sub(&(*sampler)->references, 1) == 1) {
        if ((*sampler)->class_->finish != NULL)
            (*sampler)->class_->finish(*sampler);
        tsr_sampler_destroy(&(*sampler)->inner);
        tsr__free(*sampler);
    }
    *sampler = NULL;
}

tsr_sampler *tsr__sampler_retain(tsr_sampler *sampler)
{
    atomic_fetch_add(&sampler->references, 1);
    return sampler;
}

const char *tsr__sampler_kind_name(unsigned kind)
{
    static const char *const names[TSR__SAMPLER_KINDS] = {
        "custom", "sequential",  "random",        "subset",     "weighted",
        "batch",  "distributed", "length-sorted", "stratified", "curriculum"};
    return kind < TSR__SAMPLER_KINDS ? names[kind] : "?";
}

uint64_t tsr_sampler_length(const tsr_sampler *sampler)
{
    if (sampler == NULL)
        return 0;
    return sampler->rollback.size_bytes != 0 ? sampler->rollback.length
                                             : sampler->class_->length(sampler);
}

uint64_t tsr__sampler_max_length(const tsr_sampler *sampler)
{
    return sampler->class_->most != NULL ? sampler->class_->most(sampler) : UINT64_MAX;
}

uint64_t tsr_sampler_position(const tsr_sampler *sampler)
{
    return sampler != NULL ? sampler->position : 0;
}

int64_t tsr_sampler_epoch(const tsr_sampler *sampler)
{
    return sampler != NULL ? sampler->epoch : 0;
}

tsr_status tsr_sampler_get_info(const tsr_sampler *sampler, tsr_sampler_info *info)
{
    TSR__REQUIRE(sampler != NULL && info != NULL, "sampler info: %s is NULL",
                 sampler != NULL ? "info" : "sampler");
    const uint64_t length = tsr_sampler_length(sampler);
    tsr_sampler_info value = {
        .struct_size = sizeof value,
        .name = sampler->name,
        .batch_max = sampler->batch_max,
        .ranks = 1,
        .n = length,
        .total = length,
    };
    if (sampler->class_->info != NULL)
        sampler->class_->info(sampler, &value);
    TSR__GIVE(tsr_sampler_info, &value, info);
    return TSR_OK;
}

tsr_status tsr__sampler_check_samples(const char *what, uint64_t n, int64_t num_samples,
                                      uint64_t *samples)
{
    TSR__REQUIRE(n > 0, "%s: there is nothing to draw from", what);
    TSR__REQUIRE(n <= TSR__MAX_ITEMS, "%s: %" PRIu64 " items are more than 2^62", what, n);
    TSR__REQUIRE(num_samples >= 0, "%s: num_samples %" PRId64 " is negative", what, num_samples);
    TSR__REQUIRE((uint64_t)num_samples <= TSR__MAX_ITEMS,
                 "%s: num_samples %" PRId64 " is more than 2^62", what, num_samples);
    *samples = num_samples == 0 ? n : (uint64_t)num_samples;
    return TSR_OK;
}
