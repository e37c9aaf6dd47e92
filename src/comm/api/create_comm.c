/* Creates the communicator of all ranks: exchanges transport addresses through the bootstrap,
 * connects to all ranks, and waits until all ranks have connected. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "base/error.h"
#include "base/fork.h"
#include "base/hash.h"
#include "base/struct_size.h"
#include "comm/api/comm.h"
#include "comm/api/processors.h"
#include "comm/api/start_operation.h"
#include "comm/bootstrap/backend.h"
#include "comm/bootstrap/bootstrap.h"
#include "comm/bootstrap/launch_report.h"
#include "comm/progress/control_channel.h"

#define VERSION 3 /* the version of all data that processes exchange */

/* What each rank contributes to the bootstrap's exchange. The address of its transport follows this
 * struct. */
typedef struct greeting {
    uint32_t version;
    uint32_t reproducible;
    int64_t pid;
    /* identifies the host and the PID namespace in which `pid` is valid; 0: unknown */
    uint64_t pid_namespace;
    /* ipc_namespace identifies the host and this process's namespace of System V shared memory;
     * net_namespace identifies the host and this process's network namespace. 0: unknown */
    uint64_t ipc_namespace, net_namespace;
    /* whether UCX uses shared memory between processes of one host, and
     * whether the user chose that */
    uint32_t ucx_shares, ucx_is_chosen;
    /* the keys of the process's shared memory and mailbox, for processes with the same
     * pid_namespace */
    tsr__shm_memory_key key;
    tsr__mailbox_key mailbox;
    tsr__card card;
    tsr__processors processors;
    uint64_t address_bytes;
} greeting;

/* Returns a hash that identifies the running kernel and one of this process's namespaces; 0 if
 * unknown. */
static uint64_t namespace_id(const char *namespace)
{
    char text[128];
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file)
        return 0;
    size_t length = fread(text, 1, sizeof text, file);
    uint64_t hash = tsr__hash(TSR__HASH_START, text, length);
    (void)fclose(file);
    ssize_t link = readlink(namespace, text, sizeof text);
    return length > 0 && link > 0 ? tsr__hash(hash, text, (size_t)link) : 0;
}

static tsr_status open_bootstrap(const tsr_comm_params *params, uint64_t timeout_ns,
                                 tsr__bootstrap **out)
{
    static const tsr__bootstrap_kind kinds[] = {
        [TSR_BOOTSTRAP_AUTO] = TSR__BOOTSTRAP_AUTO,
        [TSR_BOOTSTRAP_PMIX] = TSR__BOOTSTRAP_PMIX,
        [TSR_BOOTSTRAP_ENV] = TSR__BOOTSTRAP_ENV,
        [TSR_BOOTSTRAP_CALLBACK] = TSR__BOOTSTRAP_CALLBACK,
        [TSR_BOOTSTRAP_SINGLE] = TSR__BOOTSTRAP_SINGLE,
        [TSR_BOOTSTRAP_JOIN] = TSR__BOOTSTRAP_JOIN,
    };
    const size_t kind = (size_t)params->bootstrap;
    TSR__REQUIRE(kind < sizeof kinds / sizeof kinds[0], "unsupported bootstrap %d",
                 (int)params->bootstrap);
    return tsr__bootstrap_open(&(tsr__bootstrap_params){.kind = kinds[kind],
                                                        .timeout_ns = timeout_ns,
                                                        .rank = params->rank,
                                                        .size = params->size,
                                                        .gather = params->all_gather,
                                                        .user = params->user},
                               out);
}

/* Reads another rank's greeting. Fails if the two ranks run different versions, or if only one of
 * them is reproducible. */
static tsr_status check_greeting(const tsr__bootstrap_gathered *blocks, int rank,
                                 const greeting *mine, greeting *out)
{
    const uint64_t size = blocks->starts[rank + 1] - blocks->starts[rank];
    if (size < sizeof *out)
        return tsr__fail(TSR_ERR_INVALID, "rank %d runs another version of tessera", rank);
    memcpy(out, blocks->bytes + blocks->starts[rank], sizeof *out);
    if (out->version != mine->version || out->address_bytes != size - sizeof *out)
        return tsr__fail(TSR_ERR_INVALID, "rank %d runs another version of tessera", rank);
    TSR__REQUIRE(out->reproducible == mine->reproducible,
                 "this rank is %sreproducible, rank %d is %sreproducible",
                 mine->reproducible ? "" : "not ", rank, out->reproducible ? "" : "not ");
    return TSR_OK;
}

/* Prepares the shared memory, the mailbox and the watching of the process of another rank, which
 * has sent the greeting `theirs`. */
static void prepare_peer(tsr__job *job, int rank, const greeting *mine, greeting *theirs)
{
    const bool same_pid_namespace =
        theirs->pid_namespace != 0 && theirs->pid_namespace == mine->pid_namespace;
    const bool is_watched =
        same_pid_namespace && tsr__transport_watch(job->transport, rank, theirs->pid);
    if (!same_pid_namespace)
        theirs->key.file = -1;
    if (job->node_of[rank] == job->node_of[job->rank])
        tsr__shm_regions_attach(job->shm_regions, rank, &theirs->key);
    job->is_near[rank] = same_pid_namespace && theirs->mailbox.file >= 0 && mine->mailbox.file >= 0;
    /* If that process is not watched, this rank uses a connection instead of a mailbox, because
     * only the connection shows that the process has ended. */
    if (job->is_near[rank] && is_watched)
        tsr__mailbox_add(job->mailbox, rank, &theirs->mailbox);
}

static tsr_status prepare_peers(tsr__job *job, const tsr__bootstrap_gathered *blocks,
                                const greeting *mine)
{
    greeting theirs;
    tsr__sharing sharing = {0};
    int near = 0;
    tsr__sharing_add(&sharing, &mine->processors);
    for (int i = 0; i < job->size; i++) {
        memcpy(&theirs, blocks->bytes + blocks->starts[i], sizeof theirs);
        job->roster.cards[i] = theirs.card;
        if (i == job->rank)
            continue;
        if (job->size <= TSR__CONNECT_ALL_RANKS)
            TSR__TRY(tsr__transport_connect(job->transport, i));
        prepare_peer(job, i, mine, &theirs);
        tsr__sharing_add(&sharing, &theirs.processors);
        near += job->is_near[i];
    }
    job->all_near = near == job->size - 1;
    job->is_oversubscribed = tsr__sharing_is_oversubscribed(&sharing);
    return TSR_OK;
}

static tsr_status use_greetings(tsr__job *job, const tsr__bootstrap_gathered *blocks,
                                const greeting *mine)
{
    greeting theirs;
    tsr__transport_peer *peers = tsr__calloc((size_t)job->size, sizeof *peers);
    tsr_status status = peers ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int i = 0; i < job->size && status == TSR_OK; i++) {
        status = check_greeting(blocks, i, mine, &theirs);
        if (status == TSR_OK)
            peers[i] = (tsr__transport_peer){blocks->bytes + blocks->starts[i] + sizeof theirs,
                                             theirs.address_bytes};
    }
    if (status == TSR_OK)
        status = tsr__transport_set_peers(job->transport, job->rank, job->size, peers);
    tsr__free(peers);
    return status == TSR_OK ? prepare_peers(job, blocks, mine) : status;
}

/* Opens the transport, and exchanges the ranks' greetings. */
static tsr_status exchange_greetings(tsr__job *job, tsr__bootstrap *bootstrap,
                                     const tsr__bootstrap_limit *limit, bool without_shared_memory,
                                     greeting *mine, tsr__bootstrap_gathered *blocks)
{
    size_t address_bytes;
    TSR__TRY(tsr__transport_create(without_shared_memory, &job->transport));
    mine->ucx_shares = !without_shared_memory && tsr__transport_has_shared_memory();
    if (job->size > 1 && mine->ucx_shares)
        job->mailbox = tsr__mailbox_open(job->size);
    mine->mailbox = tsr__mailbox_get_key(job->mailbox);
    const void *address = tsr__transport_address(job->transport, &address_bytes);
    mine->address_bytes = address_bytes;
    const size_t size_bytes = sizeof *mine + address_bytes;
    uint8_t *block = tsr__calloc(1, size_bytes);
    if (!block)
        return TSR_ERR_NO_MEMORY;
    memcpy(block, mine, sizeof *mine);
    memcpy(block + sizeof *mine, address, address_bytes);
    const tsr_status status = tsr__bootstrap_exchange(bootstrap, block, size_bytes, limit, blocks);
    tsr__free(block);
    return status;
}

/* Two ranks between which UCX would use shared memory, although they are in different network
 * namespaces. */
typedef struct namespace_conflict {
    int first, second; /* two ranks of the job; first < 0: there is no such pair */
    bool is_chosen;    /* the user has chosen UCX's transports on some rank */
} namespace_conflict;

/* Finds the first pair of ranks between which UCX would use shared memory although they are in
 * different network namespaces. All ranks find the same pair. */
static tsr_status find_namespace_conflict(const tsr__bootstrap_gathered *blocks, int size,
                                          const greeting *mine, namespace_conflict *out)
{
    *out = (namespace_conflict){.first = -1};
    greeting *all = tsr__calloc((size_t)size, sizeof *all);
    tsr_status status = all ? TSR_OK : TSR_ERR_NO_MEMORY;
    for (int i = 0; i < size && status == TSR_OK; i++) {
        status = check_greeting(blocks, i, mine, &all[i]);
        int same = 0;
        while (same < i &&
               (all[same].ipc_namespace != all[i].ipc_namespace || !all[same].ucx_shares))
            same++;
        out->is_chosen = out->is_chosen || all[i].ucx_is_chosen;
        if (out->first < 0 && all[i].ucx_shares && all[i].ipc_namespace != 0 && same < i &&
            all[same].net_namespace != all[i].net_namespace) {
            out->first = same;
            out->second = i;
        }
    }
    tsr__free(all);
    return status;
}

/* Closes the transport, so that it can be opened again without UCX's shared memory. Fails if the
 * user has chosen UCX's transports. The reason is that UCX 1.13, with shared memory, wakes a
 * sleeping process through a socket whose name exists in one network namespace only. A sleeping
 * rank would not notice messages from a rank in another network namespace. */
static tsr_status do_without_shared_memory(tsr__job *job, const namespace_conflict *found)
{
    if (found->is_chosen)
        return tsr__fail(TSR_ERR_INVALID,
                         "ranks %d and %d share IPC (System V shared memory), but not the network, "
                         "and UCX_TLS allows UCX's shared memory, which does not work between "
                         "them: set UCX_TLS=tcp,self, or give containers IPC of their own",
                         found->first, found->second);
    tsr__log(TSR_LOG_INFO,
             "comm: ranks %d and %d share IPC, but not the network, so UCX uses no shared memory",
             found->first, found->second);
    tsr__transport_destroy(&job->transport, 0);
    tsr__mailbox_close(&job->mailbox);
    return TSR_OK;
}

static tsr_status greet_ranks(tsr__job *job, tsr__bootstrap *bootstrap,
                              const tsr_comm_params *params, const tsr__bootstrap_limit *limit)
{
    namespace_conflict found = {.first = -1};
    tsr__bootstrap_gathered blocks = {0};
    TSR__TRY(tsr__shm_regions_open(job->rank, job->size, &job->shm_regions));
    greeting mine = {.version = VERSION,
                     .reproducible = params->reproducible,
                     .pid = getpid(),
                     .pid_namespace = namespace_id("/proc/self/ns/pid"),
                     .ipc_namespace = namespace_id("/proc/self/ns/ipc"),
                     .net_namespace = namespace_id("/proc/self/ns/net"),
                     .ucx_is_chosen = tsr__env_text("UCX_TLS") != NULL,
                     .key = tsr__shm_regions_key(job->shm_regions),
                     .card = job->roster.recovery->card,
                     .processors = tsr__processors_find()};
    TSR__TRY(exchange_greetings(job, bootstrap, limit, false, &mine, &blocks));
    tsr_status status = find_namespace_conflict(&blocks, job->size, &mine, &found);
    if (status == TSR_OK && found.first >= 0) {
        tsr__bootstrap_gathered_finish(&blocks);
        status = do_without_shared_memory(job, &found);
        if (status == TSR_OK)
            status = exchange_greetings(job, bootstrap, limit, true, &mine, &blocks);
    }
    if (status == TSR_OK)
        status = use_greetings(job, &blocks, &mine);
    tsr__bootstrap_gathered_finish(&blocks);
    TSR__TRY(status);
    return tsr__control_open(job);
}

static tsr_status create_world_comm(tsr__job *job, const tsr_comm_params *params, tsr_comm **out)
{
    int *world_of = tsr__calloc((size_t)job->size, sizeof *world_of);
    if (!world_of)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < job->size; i++)
        world_of[i] = i;
    tsr_status status = tsr__comm_new(job, 0, job->rank, job->size, world_of, NULL, out);
    if (status != TSR_OK) {
        tsr__free(world_of);
        return status;
    }
    job->next_id = 1;
    (*out)->reproducible = params->reproducible;
    tsr_comm_set_timeout(*out, params->timeout_ns);
    return TSR_OK;
}

/* Fills in job->roster: what the ranks need to find each other after a failure. */
static tsr_status prepare_recovery(tsr__job *job, const tsr__bootstrap_info *info,
                                   const tsr__origin *origin)
{
    tsr__roster *roster = &job->roster;
    roster->cards = tsr__calloc((size_t)job->size, sizeof *roster->cards);
    if (!roster->cards)
        return TSR_ERR_NO_MEMORY;
    if (origin->recovery) {
        roster->recovery = origin->recovery;
        tsr__recovery_retain(roster->recovery);
    } else if (job->size > 1) {
        TSR__TRY(tsr__recovery_open(info, &roster->recovery));
    }
    if (roster->recovery) {
        tsr__recovery_draw_seed(roster->recovery);
        roster->cards[job->rank] = roster->recovery->card;
    }
    return TSR_OK;
}

static void set_lineage(tsr__job *job, const tsr__origin *origin)
{
    tsr__roster *roster = &job->roster;
    if (origin->roster) {
        memcpy(roster->key, origin->roster->key, sizeof roster->key);
        roster->lineage = origin->roster->lineage;
        roster->generation = origin->roster->generation;
    } else {
        tsr__roster_derive(roster);
    }
}

static tsr_status init_job(tsr__job *job, tsr__bootstrap *bootstrap, const tsr_comm_params *params,
                           const tsr__bootstrap_limit *limit, const tsr__origin *origin)
{
    const tsr__bootstrap_info *info = tsr__bootstrap_get_info(bootstrap);
    job->rank = info->rank;
    job->size = info->size;
    job->kernels = tsr__reduce_kernels();
    job->node_of = tsr__calloc((size_t)info->size, sizeof *job->node_of);
    if (!job->node_of)
        return TSR_ERR_NO_MEMORY;
    memcpy(job->node_of, info->node_of, (size_t)info->size * sizeof *job->node_of);
    job->is_near = tsr__calloc((size_t)info->size, sizeof *job->is_near);
    if (!job->is_near)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(prepare_recovery(job, info, origin));
    if (job->size > 1)
        TSR__TRY(greet_ranks(job, bootstrap, params, limit));
    set_lineage(job, origin);
    return TSR_OK;
}

/* Returns the time that is left to create the communicator. The time that a caller's all-gather
 * function takes does not count. */
static uint64_t time_left(const tsr_comm_params *params, const tsr__bootstrap_limit *limit)
{
    const uint64_t now = tsr__now_ns();
    if (params->bootstrap == TSR_BOOTSTRAP_CALLBACK)
        return limit->timeout_ns;
    return limit->deadline_ns > now ? limit->deadline_ns - now : 1;
}

/* Waits until all ranks are connected. Then lets the communicator use the ranks' slots in shared
 * memory. */
static tsr_status connect_and_share_memory(tsr_comm *comm, const tsr_comm_params *params,
                                           const tsr__bootstrap_limit *limit)
{
    tsr__shm_reservation shm = {.slot = -1};
    tsr_comm_set_timeout(comm, time_left(params, limit));
    tsr_status status = tsr__shm_reserve(comm->job, comm->size, &shm);
    const int32_t mine = shm.slot;
    if (status == TSR_OK)
        status = tsr__comm_all_gather_as(comm, TSR__CALL_CREATE, &mine, shm.slots, sizeof mine);
    tsr_comm_set_timeout(comm, params->timeout_ns);
    tsr__shm_regions_seal(comm->job->shm_regions);
    if (status == TSR_OK)
        tsr__shm_use(comm, &shm);
    else
        tsr__shm_cancel(comm->job, &shm);
    return status;
}

/* Creates the job over an open bootstrap. On success it has one communicator. */
static tsr_status make_job(tsr__bootstrap *bootstrap, const tsr_comm_params *params,
                           const tsr__bootstrap_limit *limit, const tsr__origin *origin,
                           tsr_comm **out)
{
    tsr__job *job = tsr__calloc(1, sizeof *job);
    if (!job)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__fork_generation(&job->generation);
    if (status == TSR_OK)
        status = init_job(job, bootstrap, params, limit, origin);
    if (status == TSR_OK)
        status = create_world_comm(job, params, out);
    if (status != TSR_OK)
        tsr__job_end(job, 0);
    return status;
}

static tsr_status confirm_success(tsr__bootstrap *bootstrap, const tsr__bootstrap_limit *limit,
                                  const tsr__origin *origin)
{
    tsr__bootstrap_gathered nothing;
    if (origin->confirm)
        return origin->confirm(origin->user);
    TSR__TRY(tsr__bootstrap_exchange(bootstrap, NULL, 0, limit, &nothing));
    tsr__bootstrap_gathered_finish(&nothing);
    return TSR_OK;
}

tsr_status tsr__comm_create_over(tsr__bootstrap *bootstrap, const tsr_comm_params *params,
                                 const tsr__bootstrap_limit *limit, const tsr__origin *origin,
                                 tsr_comm **out)
{
    tsr_comm *comm = NULL;
    tsr_status status = make_job(bootstrap, params, limit, origin, &comm);
    /* the bootstrap is not needed any more: close its sockets before this rank waits for the others
     */
    if (!origin->confirms)
        tsr__bootstrap_close(&bootstrap);
    if (status == TSR_OK && origin->confirms)
        status = confirm_success(bootstrap, limit, origin);
    if (status == TSR_OK && comm->size > 1)
        status = connect_and_share_memory(comm, params, limit);
    if (status == TSR_OK && origin->confirms_end)
        status = confirm_success(bootstrap, limit, origin);
    tsr__bootstrap_close(&bootstrap);
    if (status != TSR_OK) {
        tsr_comm_destroy(&comm);
        return status;
    }
    *out = comm;
    return TSR_OK;
}

/* Opens the bootstrap and creates this process's first communicator over it. If this process joins
 * a running job, the ranks confirm (see tsr__origin). */
static tsr_status create_first(const tsr_comm_params *params, bool joins, uint64_t timeout_ns,
                               const tsr__bootstrap_limit *limit, tsr_comm **out)
{
    tsr__bootstrap *bootstrap = NULL;
    TSR__TRY(open_bootstrap(params, timeout_ns, &bootstrap));
    const tsr__origin origin = {.confirms = joins, .confirms_end = joins};
    return tsr__comm_create_over(bootstrap, params, limit, &origin, out);
}

static tsr_status find_whether_joins(const tsr_comm_params *params, bool *joins)
{
    tsr__bootstrap_kind kind = TSR__BOOTSTRAP_ENV;
    const char *why;
    if (params->bootstrap == TSR_BOOTSTRAP_AUTO)
        TSR__TRY(tsr__bootstrap_choose(&kind, &why));
    *joins = params->bootstrap == TSR_BOOTSTRAP_JOIN || kind == TSR__BOOTSTRAP_JOIN;
    return TSR_OK;
}

/* Returns whether this process could not join because another was lost meanwhile. The ranks of the
 * job may then go on without that one, and look for processes that join again. */
static bool may_join_later(tsr_status status, const tsr__bootstrap_limit *limit)
{
    return (status == TSR_ERR_PEER_LOST || status == TSR_ERR_TIMEOUT || status == TSR_ERR_IO) &&
           tsr__now_ns() < limit->deadline_ns;
}

static tsr_status create(const tsr_comm_params *params, const tsr__bootstrap_limit *limit,
                         tsr_comm **out)
{
    bool enabled, joins;
    uint64_t timeout_ns = limit->timeout_ns;
    /* read TESSERA_SHARED_MEMORY first, so that an invalid value is reported before other ranks
     * wait for this one */
    TSR__TRY(tsr__shm_is_enabled(&enabled));
    TSR__TRY(find_whether_joins(params, &joins));
    for (;;) {
        const tsr_status status = create_first(params, joins, timeout_ns, limit, out);
        if (!joins || !may_join_later(status, limit))
            return status;
        tsr__log(TSR_LOG_WARNING, "comm: joining again: %s", tsr_last_error());
        const uint64_t now = tsr__now_ns();
        timeout_ns = limit->deadline_ns > now ? limit->deadline_ns - now : 1;
    }
}

tsr_status tsr_comm_create(const tsr_comm_params *params, tsr_comm **out)
{
    TSR__REQUIRE(out, "comm_create: out is NULL");
    TSR__TAKE(tsr_comm_params, params);
    const tsr__bootstrap_limit limit = tsr__bootstrap_limit_from_now(
        params->timeout_ns ? params->timeout_ns : TSR__COMM_TIMEOUT_NS);
    const tsr_status status = create(params, &limit, out);
    if (status != TSR_OK)
        return tsr__fail_context(status, "comm_create");
    if ((*out)->size > 1)
        tsr__launch_report_member();
    return TSR_OK;
}
