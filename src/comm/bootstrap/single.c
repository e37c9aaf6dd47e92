/* No one else. */
#include <string.h>

#include "comm/bootstrap/impl.h"

static tsr_status exchange(void *state, const void *mine, uint64_t size_bytes,
                           const tsr__boot_limit *limit, tsr__boot_blocks *out)
{
    (void)state, (void)limit;
    tsr_status status = tsr__boot_blocks_init(1, &size_bytes, out);
    if (status == TSR_OK && size_bytes > 0)
        memcpy(out->bytes, mine, size_bytes);
    return status;
}

static void close_single(void *state)
{
    (void)state;
}

tsr_status tsr__boot_open_single(const tsr__boot_params *params, tsr__boot_place *place,
                                 const tsr__boot_way **way, void **state)
{
    static const tsr__boot_way single = {"a single process", exchange, close_single};
    (void)params;
    *place = (tsr__boot_place){0, 1, 0, 1};
    *way = &single;
    *state = NULL;
    return TSR_OK;
}
