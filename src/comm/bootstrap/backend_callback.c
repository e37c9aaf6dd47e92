/* The backend that uses an all-gather function of the caller, for example MPI's. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "comm/bootstrap/backend.h"

typedef struct callback_state {
    tsr__bootstrap_gather_fn gather;
    void *user;
    int32_t size;
} callback_state;

static tsr_status call_gather(const callback_state *state, const void *mine, uint64_t size_bytes,
                              void *all)
{
    int code = state->gather(state->user, mine, size_bytes, all);
    if (code != 0)
        return tsr__fail(TSR_ERR_IO,
                         "bootstrap: the caller's all-gather of %" PRIu64
                         " bytes per rank returned %d",
                         size_bytes, code);
    return TSR_OK;
}

/* Gathers contributions of different sizes. The caller's all-gather requires equal sizes, so all
 * contributions are padded to the largest size. */
static tsr_status gather_padded(const callback_state *state, const void *mine, uint64_t size_bytes,
                                const uint64_t *sizes, tsr__bootstrap_gathered *out)
{
    uint64_t largest = 0;
    for (int32_t rank = 0; rank < state->size; rank++)
        largest = tsr__max_u64(largest, sizes[rank]);
    if (largest == 0)
        return TSR_OK;
    uint8_t *padded = tsr__calloc((size_t)largest, 1);
    uint8_t *all = padded == NULL ? NULL : tsr__calloc((size_t)state->size, (size_t)largest);
    tsr_status status = all == NULL ? TSR_ERR_NO_MEMORY : TSR_OK;
    if (status == TSR_OK) {
        if (size_bytes > 0)
            memcpy(padded, mine, size_bytes);
        status = call_gather(state, padded, largest, all);
    }
    for (int32_t rank = 0; status == TSR_OK && rank < state->size; rank++)
        memcpy(out->bytes + out->starts[rank], all + (uint64_t)rank * largest, sizes[rank]);
    tsr__free(all);
    tsr__free(padded);
    return status;
}

static tsr_status exchange_through_callback(void *opaque, const void *mine, uint64_t size_bytes,
                                            const tsr__bootstrap_limit *limit,
                                            tsr__bootstrap_gathered *out)
{
    const callback_state *state = opaque;
    (void)limit;
    uint64_t *sizes = tsr__calloc((size_t)state->size, sizeof *sizes);
    if (sizes == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr__bootstrap_gathered all = {0};
    tsr_status status = call_gather(state, &size_bytes, sizeof size_bytes, sizes);
    if (status == TSR_OK)
        status = tsr__bootstrap_gathered_init(state->size, sizes, &all);
    if (status == TSR_OK)
        status = gather_padded(state, mine, size_bytes, sizes, &all);
    tsr__free(sizes);
    if (status == TSR_OK)
        *out = all;
    else
        tsr__bootstrap_gathered_finish(&all);
    return status;
}

tsr_status tsr__bootstrap_open_callback(const tsr__bootstrap_params *params,
                                        tsr__bootstrap_place *place,
                                        const tsr__bootstrap_backend **backend, void **state)
{
    static const tsr__bootstrap_backend callback = {"the caller's all-gather",
                                                    exchange_through_callback, tsr__free, NULL};
    TSR__REQUIRE(params->gather != NULL, "bootstrap: the all-gather callback is NULL");
    TSR__REQUIRE(params->size >= 1, "bootstrap: size is %" PRId32 ", not at least 1", params->size);
    TSR__TRY(tsr__bootstrap_check_size(params->size));
    TSR__REQUIRE(params->rank >= 0 && params->rank < params->size,
                 "bootstrap: rank is %" PRId32 ", not from 0 to %" PRId32, params->rank,
                 params->size - 1);
    callback_state *mine = tsr__calloc(1, sizeof *mine);
    if (mine == NULL)
        return TSR_ERR_NO_MEMORY;
    *mine = (callback_state){params->gather, params->user, params->size};
    *place = (tsr__bootstrap_place){params->rank, params->size, -1, -1};
    *backend = &callback;
    *state = mine;
    return TSR_OK;
}
