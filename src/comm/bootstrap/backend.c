/* Functions that the backends of all kinds of bootstrap share, and the backend of a job of one
 * process. */
#include <inttypes.h>
#include <string.h>

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
    tsr__bootstrap_gathered gathered = {0};
    gathered.starts = tsr__calloc((size_t)count + 1, sizeof *gathered.starts);
    if (gathered.starts == NULL)
        return TSR_ERR_NO_MEMORY;
    for (int32_t rank = 0; rank < count; rank++) {
        if (sizes[rank] > TSR__BOOTSTRAP_MAX_BYTES) {
            tsr__bootstrap_gathered_finish(&gathered);
            return tsr__fail(TSR_ERR_INVALID,
                             "bootstrap: rank %" PRId32 " contributes %" PRIu64
                             " bytes to an exchange, the limit is %d",
                             rank, sizes[rank], TSR__BOOTSTRAP_MAX_BYTES);
        }
        gathered.starts[rank + 1] = gathered.starts[rank] + sizes[rank];
    }
    gathered.bytes = tsr__calloc((size_t)gathered.starts[count], 1);
    if (gathered.bytes == NULL) {
        tsr__bootstrap_gathered_finish(&gathered);
        return TSR_ERR_NO_MEMORY;
    }
    *out = gathered;
    return TSR_OK;
}

void tsr__bootstrap_gathered_finish(tsr__bootstrap_gathered *gathered)
{
    tsr__free(gathered->bytes);
    tsr__free(gathered->starts);
    *gathered = (tsr__bootstrap_gathered){0};
}

/* The exchange of a job of one process: copies the process's own contribution. */
static tsr_status exchange_alone(void *state, const void *mine, uint64_t size_bytes,
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
    static const tsr__bootstrap_backend single = {"a single process", exchange_alone, close_single,
                                                  NULL};
    (void)params;
    *place = (tsr__bootstrap_place){0, 1, 0, 1};
    *backend = &single;
    *state = NULL;
    return TSR_OK;
}
