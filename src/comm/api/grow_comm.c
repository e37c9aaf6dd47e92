/* Creates a communicator of the ranks of an existing one and of processes that join. The old ranks
 * use their communicator as the bootstrap of the new one. One of them, the contact, also exchanges
 * the data with the newcomers (bootstrap/backend_join.c). */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "comm/api/comm.h"
#include "comm/api/start_operation.h"
#include "comm/bootstrap/address.h"
#include "comm/bootstrap/rendezvous_server.h"

/* The old ranks wait for each other's messages this much longer than the contact waits for the
 * newcomers. */
#define MARGIN_NS (5 * TSR__SECOND)

typedef struct growth {
    tsr_comm *comm;
    int32_t contact;     /* the old rank that the newcomers are connected to */
    tsr__server *server; /* only on the contact */
    int newcomers;
    tsr__bootstrap_limit limit;
    /* one number for each rank of the new communicator, gathered by confirm_growth() */
    uint64_t *confirmations;
    bool has_ended; /* the old ranks know that one of them has failed, and exchange nothing more */
    tsr_status status; /* the status of the first gather_for_bootstrap() that failed; `error` has
                          its text */
    tsr__error error;
} growth;

/* What the old ranks tell each other: the status of a rank, and from the contact also the number of
 * newcomers. */
typedef struct report {
    int32_t status;
    int32_t newcomers;
    char why[256];
} report;

static report make_report(tsr_status status, int32_t newcomers)
{
    report made = {.status = (int32_t)status, .newcomers = newcomers};
    if (status != TSR_OK)
        (void)snprintf(made.why, sizeof made.why, "%s", tsr_last_error());
    return made;
}

static tsr_status fail_as_reported(const report *told)
{
    return tsr__fail((tsr_status)told->status, "%s", told->why);
}

/* Runs an operation of the old communicator. Tries up to three times if memory is exhausted: the
 * operation has then not started, and giving up would let the other ranks wait for this one. */
static tsr_status run_on_old_comm(const growth *g, const tsr__operation *operation)
{
    tsr_status status = TSR_ERR_NO_MEMORY;
    for (int i = 0; i < 3 && status == TSR_ERR_NO_MEMORY; i++)
        status = tsr__operation_run(g->comm, operation);
    return status;
}

static tsr_status all_gather_bytes(const growth *g, const void *mine, void *all,
                                   uint64_t size_bytes)
{
    return run_on_old_comm(g, &(tsr__operation){.kind = TSR__CALL_GROW,
                                                .send = mine,
                                                .recv = all,
                                                .count = size_bytes,
                                                .dtype = TSR_U8});
}

static tsr_status broadcast_bytes(const growth *g, int from, void *data, uint64_t size_bytes)
{
    return run_on_old_comm(g, &(tsr__operation){.kind = TSR__CALL_BROADCAST,
                                                .recv = data,
                                                .count = size_bytes,
                                                .dtype = TSR_U8,
                                                .peer = from});
}

/* Compares the statuses of all old ranks; `mine` is that of this rank. If any rank has an error,
 * fails on all ranks with the error of the lowest such rank. Sets *lowest to the lowest rank that
 * has passed true as `is_able`, or to INT32_MAX. Allocates no memory, so that a rank without memory
 * can still report its error. */
static tsr_status compare_statuses(growth *g, tsr_status mine, bool is_able, int32_t *lowest)
{
    report told = make_report(mine, 0);
    const int32_t rank = g->comm->rank;
    int32_t numbers[2] = {mine != TSR_OK ? rank : INT32_MAX, is_able ? rank : INT32_MAX};
    g->has_ended = true;
    TSR__TRY(run_on_old_comm(g, &(tsr__operation){.kind = TSR__CALL_ALL_REDUCE,
                                                  .send = numbers,
                                                  .recv = numbers,
                                                  .count = 2,
                                                  .dtype = TSR_I32,
                                                  .op = TSR_OP_MIN}));
    if (numbers[0] != INT32_MAX) {
        TSR__TRY(broadcast_bytes(g, numbers[0], &told, sizeof told));
        return fail_as_reported(&told);
    }
    g->has_ended = false;
    *lowest = numbers[1];
    return TSR_OK;
}

/* On the contact: sends the old ranks' contributions to the newcomers, in as many messages as their
 * size requires, and receives the contributions of the newcomers in exchange for the first message.
 */
static tsr_status exchange_with_newcomers(growth *g, const uint8_t *old, uint64_t old_bytes,
                                          uint8_t *new, uint64_t size_bytes)
{
    for (uint64_t done = 0; done < old_bytes;) {
        const uint64_t chunk = tsr__min_u64(old_bytes - done, TSR__BOOTSTRAP_MAX_BYTES);
        tsr__bootstrap_gathered blocks;
        bool fits = true;
        TSR__TRY(tsr__server_exchange(g->server, old + done, chunk, &g->limit, &blocks));
        for (int i = 0; i < g->newcomers && done == 0; i++) {
            const uint64_t start = blocks.starts[i + 1];
            fits = fits && blocks.starts[i + 2] - start == size_bytes;
            if (fits)
                memcpy(new + (uint64_t)i *size_bytes, blocks.bytes + start, (size_t)size_bytes);
        }
        tsr__bootstrap_gathered_finish(&blocks);
        TSR__REQUIRE(fits, "a process that joins contributes another number of bytes than %" PRIu64,
                     size_bytes);
        done += chunk;
    }
    return TSR_OK;
}

static tsr_status gather_all_ranks(growth *g, const void *mine, uint64_t size_bytes, uint8_t *all)
{
    const uint64_t old_bytes = (uint64_t)g->comm->size * size_bytes;
    uint8_t *new = all + old_bytes;
    report told = {0};
    int32_t ignored;
    TSR__TRY(compare_statuses(g, TSR_OK, false, &ignored));
    /* From here on, no rank fails while others succeed, unless a rank is lost. */
    tsr_status status = all_gather_bytes(g, mine, all, size_bytes);
    if (status == TSR_OK && g->server) {
        const tsr_status done = exchange_with_newcomers(g, all, old_bytes, new, size_bytes);
        told = make_report(done, 0);
    }
    if (status == TSR_OK)
        status = broadcast_bytes(g, g->contact, &told, sizeof told);
    g->has_ended = status != TSR_OK || told.status != TSR_OK;
    TSR__TRY(status);
    if (told.status != TSR_OK)
        return fail_as_reported(&told);
    status = broadcast_bytes(g, g->contact, new, (uint64_t)g->newcomers * size_bytes);
    g->has_ended = status != TSR_OK;
    return status;
}

/* The all-gather function that the bootstrap of the new job calls. */
static int gather_for_bootstrap(void *user, const void *mine, uint64_t size_bytes, void *all)
{
    growth *g = user;
    g->status = gather_all_ranks(g, mine, size_bytes, all);
    if (g->status == TSR_OK)
        return 0;
    g->error = tsr__error_take();
    return 1;
}

/* Sets g->contact to the lowest old rank that can listen at the address to which newcomers connect.
 * If `status` is an error, this rank has failed already, and all ranks fail. */
static tsr_status find_contact(growth *g, const tsr__rendezvous_params *where, tsr_status status)
{
    tsr__address address;
    const bool can =
        status == TSR_OK &&
        tsr__address_find(where->address, where->port, g->limit.deadline_ns, &address) == TSR_OK &&
        tsr__address_is_here(&address);
    TSR__TRY(compare_statuses(g, status, can, &g->contact));
    if (g->contact == INT32_MAX)
        return tsr__fail(
            TSR_ERR_IO, "no rank runs on the machine of MASTER_ADDR, '%.80s', where processes join",
            where->address);
    return TSR_OK;
}

/* On the contact: waits until the newcomers have joined, and tells them their places. */
static tsr_status receive_newcomers(growth *g, const tsr__rendezvous_params *where)
{
    TSR__TRY(tsr__server_open_growing(where, &g->newcomers, &g->server));
    return tsr__server_introduce(g->server, g->comm->size, &g->limit);
}

/* tsr__origin.confirm of the old ranks. The newcomers confirm by an exchange of empty contributions
 * through the bootstrap, so the old ranks gather the size of their contributions, 0, in the same
 * way. After that, no rank can fail alone. */
static tsr_status confirm_growth(void *user)
{
    growth *g = user;
    const uint64_t nothing = 0;
    return gather_all_ranks(g, &nothing, sizeof nothing, (uint8_t *)g->confirmations);
}

static tsr_status create_grown(growth *g, const tsr_comm_params *params, tsr_comm **out)
{
    tsr__bootstrap *bootstrap = NULL;
    const tsr__origin origin = {
        .confirms = true, .confirms_end = true, .confirm = confirm_growth, .user = g};
    const int size = g->comm->size + g->newcomers;
    g->confirmations = tsr__calloc((size_t)size, sizeof *g->confirmations);
    tsr_status status = g->confirmations ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = tsr__bootstrap_open(&(tsr__bootstrap_params){.kind = TSR__BOOTSTRAP_CALLBACK,
                                                              .timeout_ns = g->limit.timeout_ns,
                                                              .rank = g->comm->rank,
                                                              .size = size,
                                                              .gather = gather_for_bootstrap,
                                                              .user = g},
                                     &bootstrap);
    if (status == TSR_OK)
        status = tsr__comm_create_over(bootstrap, params, &g->limit, &origin, out);
    if (status == TSR_OK)
        return TSR_OK;
    /* creating the communicator has failed because gather_for_bootstrap() had: report the error of
     * gather_for_bootstrap() instead */
    if (g->status != TSR_OK) {
        tsr__error_put_back(&g->error);
        status = g->status;
    }
    if (!g->has_ended) {
        int32_t ignored;
        status = compare_statuses(g, status, false, &ignored);
    }
    if (g->server)
        tsr__server_abort(g->server, status);
    return status;
}

static tsr_status grow_by_newcomers(growth *g, tsr__rendezvous_params *where,
                                    const tsr_comm_params *params, tsr_comm **out)
{
    TSR__TRY(find_contact(g, where, tsr__rendezvous_from_environment(where)));
    report told = {0};
    if (g->contact == g->comm->rank) {
        const tsr_status status = receive_newcomers(g, where);
        told = make_report(status, g->newcomers);
    }
    TSR__TRY(broadcast_bytes(g, g->contact, &told, sizeof told));
    if (told.status != TSR_OK)
        return fail_as_reported(&told);
    g->newcomers = told.newcomers;
    g->limit = tsr__bootstrap_limit_from_now(params->timeout_ns);
    return create_grown(g, params, out);
}

tsr_status tsr_comm_grow(tsr_comm *comm, const tsr_comm_grow_params *params, tsr_comm **out)
{
    TSR__REQUIRE(comm && out, "grow: %s is NULL", comm ? "out" : "comm");
    TSR__TAKE(tsr_comm_grow_params, params);
    TSR__TRY(tsr__job_refuse_child(comm->job, "grow"));
    TSR__TRY(tsr_comm_status(comm));
    const int count = params->count != 0 ? params->count : 1;
    TSR__REQUIRE(count > 0 && count <= TSR__BOOTSTRAP_MAX_RANKS - comm->size,
                 "grow: count is %d; this communicator of %d ranks can get from 1 to %d more",
                 params->count, comm->size, TSR__BOOTSTRAP_MAX_RANKS - comm->size);
    const uint64_t timeout_ns = params->timeout_ns ? params->timeout_ns : comm->timeout_ns;
    const tsr_comm_params like = {.struct_size = sizeof like,
                                  .timeout_ns = comm->timeout_ns,
                                  .reproducible = comm->reproducible};
    tsr__rendezvous_params where = {
        .grows = true, .size = 1 + count, .timeout_ns = timeout_ns, .handshake_ns = MARGIN_NS};
    growth g = {.comm = comm, .limit = tsr__bootstrap_limit_from_now(timeout_ns + MARGIN_NS)};
    /* The other old ranks wait while the contact waits for the newcomers. */
    comm->timeout_ns = tsr__max_u64(like.timeout_ns, timeout_ns) + MARGIN_NS;
    const tsr_status status = grow_by_newcomers(&g, &where, &like, out);
    comm->timeout_ns = like.timeout_ns;
    tsr__server_close(&g.server);
    tsr__free(g.confirmations);
    return status == TSR_OK ? TSR_OK : tsr__fail_context(status, "grow");
}
