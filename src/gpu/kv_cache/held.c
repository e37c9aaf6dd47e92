/* Pages of a cache that stay in use when their sequences have ended. */
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
                               const int32_t *pages)
{
    return tsr__pages_adopt(&cache->table, sequence, count, pages);
}
