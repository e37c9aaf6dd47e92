/* Device memory for all shards of one kind. The memory consists of as few tensors (chunks) as the
 * device's limit for one allocation allows. Each chunk is divided into regions, one for each shard.
 * The caller asks for all regions twice: first the memory is counted, then the regions are created.
 */
#include "parallel/fsdp/fsdp.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "tensor/dtype.h"

uint64_t tsr__fsdp_padded(uint64_t bytes)
{
    return tsr__align_up_u64(bytes, TSR__FSDP_ALIGN);
}

uint64_t tsr__fsdp_region_elements(uint64_t elements)
{
    const uint64_t smallest_bytes = 2; /* the smallest size of an element, except of bytes */
    return tsr__align_up_u64(elements, TSR__FSDP_ALIGN / smallest_bytes);
}

tsr_status tsr__fsdp_view(const tsr_tensor *memory, uint64_t at_bytes, tsr_dtype dtype, int ndim,
                          const int64_t *shape, tsr_tensor **out)
{
    tsr_layout layout;
    TSR__TRY(tsr_layout_init(dtype, ndim, shape, &layout));
    layout.offset = (int64_t)(at_bytes / tsr_dtype_size(dtype));
    return tsr_tensor_view(memory, &layout, out);
}

tsr_status tsr__fsdp_view_blocks(const tsr_tensor *slot, const tsr__fsdp_param *p, tsr_tensor **out)
{
    const uint64_t block = tsr__dtype_block_bytes(p->blocks), each = tsr__dtype_block(p->blocks);
    int64_t shape[TSR_MAX_DIMS];
    tsr_layout layout;
    for (int d = 0; d < p->seen.ndim; d++)
        shape[d] = p->shape[d];
    shape[p->seen.ndim - 1] = (int64_t)((uint64_t)shape[p->seen.ndim - 1] / block * each);
    TSR__TRY(tsr_layout_init(p->blocks, p->seen.ndim, shape, &layout));
    layout.offset = (int64_t)(p->slot_bytes / block * each);
    return tsr_tensor_view(slot, &layout, out);
}

static tsr_status count_region(tsr__fsdp_pool *pool, uint64_t bytes)
{
    tsr__fsdp_chunk *last = pool->count > 0 ? &pool->chunks[pool->count - 1] : NULL;
    if (last && (last->bytes == 0 || last->bytes + bytes <= pool->most)) {
        last->bytes += bytes;
        return TSR_OK;
    }
    void *chunks = pool->chunks;
    tsr_status status = tsr__grow(&chunks, &pool->capacity, pool->count + 1, sizeof *pool->chunks);
    pool->chunks = chunks;
    TSR__TRY(status);
    pool->chunks[pool->count++] = (tsr__fsdp_chunk){.bytes = bytes};
    return TSR_OK;
}

tsr_status tsr__fsdp_pool_region(tsr__fsdp_pool *pool, tsr_dtype dtype, uint64_t elements,
                                 tsr_tensor **out)
{
    const uint64_t bytes = tsr__fsdp_region_elements(elements) * tsr_dtype_size(dtype);
    if (!pool->made)
        return count_region(pool, bytes);
    if (pool->next_bytes + bytes > pool->chunks[pool->next_chunk].bytes) {
        pool->next_chunk++;
        pool->next_bytes = 0;
    }
    const uint64_t at_bytes = pool->next_bytes;
    pool->next_bytes += bytes;
    return tsr__fsdp_view(pool->chunks[pool->next_chunk].memory, at_bytes, dtype, 1,
                          (int64_t[]){(int64_t)elements}, out);
}

tsr_status tsr__fsdp_memory_new(tsr_device *device, uint64_t bytes, tsr_tensor **out)
{
    return tsr_tensor_create(device, TSR_F32, 1, (int64_t[]){(int64_t)(bytes / 4)}, out);
}

tsr_status tsr__fsdp_pool_make(tsr__fsdp_pool *pool, tsr_device *device)
{
    for (size_t i = 0; i < pool->count; i++)
        TSR__TRY(tsr__fsdp_memory_new(device, pool->chunks[i].bytes, &pool->chunks[i].memory));
    pool->made = true;
    return TSR_OK;
}

uint64_t tsr__fsdp_pool_bytes(const tsr__fsdp_pool *pool)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < pool->count; i++)
        bytes += pool->chunks[i].bytes;
    return bytes;
}

void tsr__fsdp_pool_finish(tsr__fsdp_pool *pool)
{
    for (size_t i = 0; i < pool->count; i++)
        tsr_tensor_destroy(&pool->chunks[i].memory);
    tsr__free(pool->chunks);
    *pool = (tsr__fsdp_pool){0};
}
