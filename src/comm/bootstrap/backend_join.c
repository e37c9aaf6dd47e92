/* The backend of a process that joins a running job. The job's ranks exchange their contributions
 * through their old communicator (api/grow_comm.c), and one of them is rank 0 of a rendezvous with
 * the newcomers. */
#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "comm/bootstrap/backend.h"
#include "comm/bootstrap/rendezvous_client.h"
#include "comm/bootstrap/rendezvous_server.h"

typedef struct join_state {
    tsr__client *client;
    tsr__introduction place;
    uint64_t timeout_ns;
    /* The backend that makes the exchanges with gather_for_callback() below, and its state. */
    const tsr__bootstrap_backend *backend;
    void *state;
    tsr_status
        status; /* the status of the gather_for_callback() that has failed; `error` has its text */
    tsr__error error;
} join_state;

/* Receives the contributions of the old ranks in several messages, as gather_from() in
 * api/grow_comm.c sends them, and the contributions of the newcomers with the first of these. */
static tsr_status gather_all_ranks(join_state *join, const void *mine, uint64_t size_bytes,
                                   uint8_t *all)
{
    const uint64_t old_bytes = (uint64_t)join->place.old_size * size_bytes;
    uint64_t done = 0;
    do {
        const bool first = done == 0;
        tsr__bootstrap_gathered blocks;
        const tsr__bootstrap_limit limit = tsr__bootstrap_limit_from_now(join->timeout_ns);
        TSR__TRY(tsr__client_exchange(join->client, mine, first ? size_bytes : 0, &limit, &blocks));
        const uint64_t chunk = blocks.starts[1];
        const bool fits = chunk > 0 && chunk <= old_bytes - done;
        if (fits)
            memcpy(all + done, blocks.bytes, (size_t)chunk);
        done += chunk;
        for (int i = 0; i < join->place.newcomers && first && fits; i++) {
            if (blocks.starts[i + 2] - blocks.starts[i + 1] == size_bytes)
                memcpy(all + old_bytes + (uint64_t)i * size_bytes,
                       blocks.bytes + blocks.starts[i + 1], (size_t)size_bytes);
        }
        tsr__bootstrap_gathered_finish(&blocks);
        TSR__REQUIRE(fits, "bootstrap: the running job has sent %" PRIu64 " bytes too many", chunk);
    } while (done < old_bytes);
    return TSR_OK;
}

static int gather_for_callback(void *user, const void *mine, uint64_t size_bytes, void *all)
{
    join_state *join = user;
    join->status = gather_all_ranks(join, mine, size_bytes, all);
    if (join->status == TSR_OK)
        return 0;
    join->error = tsr__error_take();
    return 1;
}

static tsr_status exchange_with_job(void *state, const void *mine, uint64_t size_bytes,
                                    const tsr__bootstrap_limit *limit, tsr__bootstrap_gathered *out)
{
    join_state *join = state;
    join->status = TSR_OK;
    const tsr_status status = join->backend->exchange(join->state, mine, size_bytes, limit, out);
    if (join->status == TSR_OK)
        return status;
    tsr__error_put_back(&join->error);
    return join->status;
}

static void close_join(void *state)
{
    join_state *join = state;
    if (join->backend != NULL)
        join->backend->close(join->state);
    tsr__client_close(&join->client);
    tsr__free(join);
}

static bool own_address(void *state, struct sockaddr_storage *out)
{
    const join_state *join = state;
    socklen_t size = sizeof *out;
    return getsockname(join->client->channel.fd, (struct sockaddr *)out, &size) == 0;
}

/* Connects to the job and learns this process's place. */
static tsr_status join_running_job(join_state *join)
{
    tsr__rendezvous_params where = {.timeout_ns = join->timeout_ns,
                                    .handshake_ns = 5 * TSR__SECOND};
    tsr__bootstrap_gathered told;
    TSR__TRY(tsr__rendezvous_from_environment(&where));
    TSR__TRY(tsr__client_open(&where, &join->client));
    const tsr__bootstrap_limit limit = tsr__bootstrap_limit_from_now(join->timeout_ns);
    TSR__TRY(tsr__client_exchange(join->client, NULL, 0, &limit, &told));
    const uint64_t size = told.starts[1];
    if (size == TSR__INTRODUCTION_SIZE)
        join->place = (tsr__introduction){(int32_t)tsr__wire_get_u32(told.bytes),
                                          (int32_t)tsr__wire_get_u32(told.bytes + 4),
                                          (int32_t)tsr__wire_get_u32(told.bytes + 8)};
    tsr__bootstrap_gathered_finish(&told);
    const tsr__introduction *place = &join->place;
    TSR__REQUIRE(place->old_size > 0 && place->old_size <= TSR__BOOTSTRAP_MAX_RANKS &&
                     place->newcomers > 0 && place->newcomers <= TSR__BOOTSTRAP_MAX_RANKS &&
                     place->index >= 0 && place->index < place->newcomers,
                 "bootstrap: the running job has sent an introduction of %" PRIu64
                 " bytes that makes no sense: it may use another version of tessera",
                 size);
    tsr__client_set_size(join->client, 1 + place->newcomers);
    return TSR_OK;
}

tsr_status tsr__bootstrap_open_join(const tsr__bootstrap_params *params,
                                    tsr__bootstrap_place *place,
                                    const tsr__bootstrap_backend **backend, void **state)
{
    static const tsr__bootstrap_backend joined = {"the running job", exchange_with_job, close_join,
                                                  own_address};
    join_state *join = tsr__calloc(1, sizeof *join);
    if (join == NULL)
        return TSR_ERR_NO_MEMORY;
    join->timeout_ns = params->timeout_ns;
    tsr_status status = join_running_job(join);
    if (status == TSR_OK)
        status = tsr__bootstrap_open_callback(
            &(tsr__bootstrap_params){.kind = TSR__BOOTSTRAP_CALLBACK,
                                     .timeout_ns = params->timeout_ns,
                                     .rank = join->place.old_size + join->place.index,
                                     .size = join->place.old_size + join->place.newcomers,
                                     .gather = gather_for_callback,
                                     .user = join},
            place, &join->backend, &join->state);
    if (status != TSR_OK) {
        close_join(join);
        return status;
    }
    *backend = &joined;
    *state = join;
    return TSR_OK;
}
