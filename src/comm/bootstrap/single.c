/* No one else. */
#include <string.h>

#include "comm/bootstrap/backend.h"

static tsr_status exchange(void *state, const void *mine, uint64_t size_bytes,
                           const tsr__bootstrap_limit *limit, tsr__bootstrap_gathered *out)
{
    (void)state, (void)limit;
    tsr_status status = tsr__bootstrap_gathered_init(1, &size_bytes, out);
    if (status == TSR_OK && size_bytes > 0)
        memcpy(out->bytes, mine, size_bytes);
    return status;
}

static void close_single(void *state)
{
    (void)state;
}

tsr_status tsr__bootstrap_open_single(const tsr__bootstrap_params *params,
                                      tsr__bootstrap_place *place,
                                      const tsr__bootstrap_backend **backend, void **state)
{
    static const tsr__bootstrap_backend single = {"a single process", exchange, close_single};
    (void)params;
    *place = (tsr__bootstrap_place){0, 1, 0, 1};
    *backend = &single;
    *state = NULL;
    return TSR_OK;
}
