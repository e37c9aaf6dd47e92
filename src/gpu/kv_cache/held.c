/* Pages and states of a cache that stay in use when their sequences have ended. */
#include "base/error.h"
#include "gpu/internal.h"
#include "gpu/kv_cache/kv_cache.h"

int32_t tsr__kv_cache_page(const tsr_kv_cache *cache, int sequence, int64_t index)
{
    return tsr__pages_find(&cache->table, sequence)->pages[index];
}

void tsr__kv_cache_hold(tsr_kv_cache *cache, int32_t page)
{
    tsr__pages_hold(&cache->table, page);
}

void tsr__kv_cache_release(tsr_kv_cache *cache, int32_t page)
{
    tsr__pages_release(&cache->table, page);
}

tsr_status tsr__kv_cache_adopt(tsr_kv_cache *cache, int sequence, int64_t count,
                               const int32_t *pages, int64_t snapshot)
{
    TSR__REQUIRE(snapshot == TSR__NO_SNAPSHOT || tsr__states_has(&cache->states, snapshot),
                 "kv_cache: the snapshot for sequence %d has left", sequence);
    TSR__TRY(tsr__pages_adopt(&cache->table, sequence, count, pages));
    tsr__states_adopt(&cache->states, sequence, snapshot);
    return TSR_OK;
}

void tsr__kv_cache_drop_kept(tsr_kv_cache *cache, int sequence)
{
    tsr__states_drop_kept(&cache->states, sequence);
}

int64_t tsr__kv_cache_hold_snapshot(tsr_kv_cache *cache, int sequence)
{
    return tsr__states_hold(&cache->states, sequence, tsr_kv_cache_length(cache, sequence));
}

void tsr__kv_cache_release_snapshot(tsr_kv_cache *cache, int64_t snapshot)
{
    tsr__states_release(&cache->states, snapshot);
}

bool tsr__kv_cache_has_snapshot(const tsr_kv_cache *cache, int64_t snapshot)
{
    return tsr__states_has(&cache->states, snapshot);
}
