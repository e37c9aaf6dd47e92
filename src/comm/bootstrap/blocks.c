#include <inttypes.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/bootstrap/impl.h"

tsr_status tsr__boot_blocks_init(int32_t count, const uint64_t *sizes, tsr__boot_blocks *out)
{
    tsr__boot_blocks blocks = {0};
    blocks.starts = tsr__calloc((size_t)count + 1, sizeof *blocks.starts);
    if (blocks.starts == NULL)
        return TSR_ERR_NO_MEMORY;
    for (int32_t rank = 0; rank < count; rank++) {
        if (sizes[rank] > TSR__BOOT_MAX_BLOCK) {
            tsr__boot_blocks_finish(&blocks);
            return tsr__fail(TSR_ERR_INVALID,
                             "boot: rank %" PRId32 " brings %" PRIu64
                             " bytes to an exchange, the limit is %d",
                             rank, sizes[rank], TSR__BOOT_MAX_BLOCK);
        }
        blocks.starts[rank + 1] = blocks.starts[rank] + sizes[rank];
    }
    blocks.bytes = tsr__calloc((size_t)blocks.starts[count], 1);
    if (blocks.bytes == NULL) {
        tsr__boot_blocks_finish(&blocks);
        return TSR_ERR_NO_MEMORY;
    }
    *out = blocks;
    return TSR_OK;
}

void tsr__boot_blocks_finish(tsr__boot_blocks *blocks)
{
    tsr__free(blocks->bytes);
    tsr__free(blocks->starts);
    *blocks = (tsr__boot_blocks){0};
}
