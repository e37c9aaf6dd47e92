/* Checks a loader's params. */
#include <inttypes.h>

#include "loader/loader.h"
#include "sampler/sampler.h"

static tsr_status check_batch_sampler(const tsr_loader_params *params)
{
    TSR__REQUIRE(params->sampler == NULL, "loader: batch_sampler excludes sampler");
    TSR__REQUIRE(params->batch_size == 0,
                 "loader: batch_sampler excludes batch_size, which is %" PRId64,
                 params->batch_size);
    TSR__REQUIRE(!params->shuffle, "loader: batch_sampler excludes shuffle");
    TSR__REQUIRE(!params->drop_last, "loader: batch_sampler excludes drop_last");
    TSR__REQUIRE(tsr_sampler_batch_max(params->batch_sampler) != 0,
                 "loader: a %s sampler gives single indices: pass it as sampler",
                 tsr_sampler_name(params->batch_sampler));
    return TSR_OK;
}

static tsr_status check_sampler(const tsr_loader_params *params)
{
    TSR__REQUIRE(!params->shuffle, "loader: sampler excludes shuffle");
    TSR__REQUIRE(tsr_sampler_batch_max(params->sampler) == 0,
                 "loader: a %s sampler gives batches: pass it as batch_sampler",
                 tsr_sampler_name(params->sampler));
    return TSR_OK;
}

static tsr_status check_functions(const tsr_loader_params *params)
{
    TSR__REQUIRE(params->load_item != NULL || params->load_batch != NULL,
                 "loader: there is neither load_item nor load_batch");
    TSR__REQUIRE(params->load_item == NULL || params->load_batch == NULL,
                 "loader: load_item excludes load_batch");
    TSR__REQUIRE(params->load_item == NULL || params->batch_bytes == 0,
                 "loader: load_item excludes batch_bytes, which is %" PRIu64, params->batch_bytes);
    return TSR_OK;
}

static tsr_status check_workers(const tsr_loader_params *params)
{
    TSR__REQUIRE(params->workers >= 0 && params->workers <= TSR_MAX_LOADER_WORKERS,
                 "loader: %d workers are outside 0 to %d", params->workers, TSR_MAX_LOADER_WORKERS);
    TSR__REQUIRE(params->prefetch >= 0 && params->prefetch <= TSR_MAX_LOADER_PREFETCH,
                 "loader: prefetch %d is outside 0 to %d", params->prefetch,
                 TSR_MAX_LOADER_PREFETCH);
    TSR__REQUIRE(params->workers > 0 || params->prefetch == 0,
                 "loader: prefetch %d needs workers, of which there are 0", params->prefetch);
    TSR__REQUIRE(params->workers > 0 || params->timeout_ns == 0,
                 "loader: timeout_ns %" PRIu64 " needs workers, of which there are 0",
                 params->timeout_ns);
    TSR__REQUIRE(params->seed_strategy == TSR_SEED_STRATEGY_DOCUMENTED ||
                     params->seed_strategy == TSR_SEED_STRATEGY_HASHED,
                 "loader: %d is no seed strategy", (int)params->seed_strategy);
    return TSR_OK;
}

tsr_status tsr__loader_check(const tsr_loader_params *params, uint64_t *batch_max)
{
    TSR__TRY(check_functions(params));
    TSR__TRY(check_workers(params));
    TSR__REQUIRE(params->batch_size >= 0, "loader: batch size %" PRId64 " is negative",
                 params->batch_size);
    TSR__REQUIRE(params->shuffle || params->order == TSR_ORDER_FEISTEL,
                 "loader: order '%s' needs shuffle", tsr_order_name(params->order));
    uint64_t items = params->n;
    if (params->batch_sampler != NULL) {
        TSR__TRY(check_batch_sampler(params));
        *batch_max = tsr_sampler_batch_max(params->batch_sampler);
        return TSR_OK;
    }
    if (params->sampler != NULL) {
        TSR__TRY(check_sampler(params));
        items = tsr__sampler_max_length(params->sampler);
    } else {
        TSR__REQUIRE(params->n > 0,
                     "loader: there is nothing to read: n is 0, and there is no sampler");
    }
    *batch_max = tsr__batch_max(params->batch_size == 0 ? 1 : params->batch_size, items);
    return TSR_OK;
}

tsr_status tsr__loader_make_sampler(const tsr_loader_params *params, tsr_sampler **out)
{
    if (!params->shuffle)
        return tsr_sampler_create_sequential(params->n, out);
    tsr_sampler_random_params random = {.struct_size = sizeof random,
                                        .n = params->n,
                                        .order = params->order,
                                        .seed = params->seed,
                                        .torch = params->torch};
    if (params->order == TSR_ORDER_TORCH)
        random.torch.data_loader = true;
    return tsr_sampler_create_random(&random, out);
}
