#include <inttypes.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/bootstrap/backend.h"

tsr_status tsr__bootstrap_check_size(int64_t size)
{
    if (size > TSR__BOOTSTRAP_MAX_RANKS)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "bootstrap: %" PRId64 " ranks are more than %d", size,
                         TSR__BOOTSTRAP_MAX_RANKS);
    return TSR_OK;
}

tsr_status tsr__bootstrap_gathered_init(int32_t count, const uint64_t *sizes,
                                        tsr__bootstrap_gathered *out)
{
    tsr__bootstrap_gathered blocks = {0};
    blocks.starts = tsr__calloc((size_t)count + 1, sizeof *blocks.starts);
    if (blocks.starts == NULL)
        return TSR_ERR_NO_MEMORY;
    for (int32_t rank = 0; rank < count; rank++) {
        if (sizes[rank] > TSR__BOOTSTRAP_MAX_BYTES) {
            tsr__bootstrap_gathered_finish(&blocks);
            return tsr__fail(TSR_ERR_INVALID,
                             "bootstrap: rank %" PRId32 " brings %" PRIu64
                             " bytes to an exchange, the limit is %d",
                             rank, sizes[rank], TSR__BOOTSTRAP_MAX_BYTES);
        }
        blocks.starts[rank + 1] = blocks.starts[rank] + sizes[rank];
    }
    blocks.bytes = tsr__calloc((size_t)blocks.starts[count], 1);
    if (blocks.bytes == NULL) {
        tsr__bootstrap_gathered_finish(&blocks);
        return TSR_ERR_NO_MEMORY;
    }
    *out = blocks;
    return TSR_OK;
}

void tsr__bootstrap_gathered_finish(tsr__bootstrap_gathered *blocks)
{
    tsr__free(blocks->bytes);
    tsr__free(blocks->starts);
    *blocks = (tsr__bootstrap_gathered){0};
}
