/* Opens the backend of a bootstrap, and computes what does not depend on the backend. */
#include <fcntl.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/environment.h"
#include "base/error.h"
#include "comm/bootstrap/backend.h"

struct tsr__bootstrap {
    tsr__bootstrap_info info;
    int32_t *node_of;
    const tsr__bootstrap_backend *backend;
    void *state;
    uint64_t timeout_ns;
    bool broken; /* an exchange has failed, so ranks may disagree about which exchange is next */
};

/* Nodes: which processes can share memory ---------------------------------------------------------
 */

static void hash_bytes(crypto_generichash_state *hash, const void *bytes, size_t size)
{
    crypto_generichash_update(hash, (const unsigned char *)bytes, size);
}

/* Adds to the hash what identifies the running kernel. All containers on one kernel have the same
 * value. */
static void hash_kernel(crypto_generichash_state *hash)
{
    char text[256];
    int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t size = file < 0 ? -1 : read(file, text, sizeof text);
    if (file >= 0)
        close(file);
    if (size <= 0) { /* if /proc is not available, uses the host name instead */
        memset(text, 0, sizeof text);
        gethostname(text, sizeof text - 1);
        size = (ssize_t)strlen(text);
    }
    hash_bytes(hash, text, (size_t)size);
}

/* Computes the hash that identifies this process's node, see tsr__bootstrap_info.node. */
static void identify_node(uint8_t node[TSR__BOOTSTRAP_NODE_SIZE])
{
    crypto_generichash_state hash;
    crypto_generichash_init(&hash, NULL, 0, TSR__BOOTSTRAP_NODE_SIZE);
    const char *name = tsr__env_text("TESSERA_NODE");
    if (name != NULL) {
        hash_bytes(&hash, "name", 4);
        hash_bytes(&hash, name, strlen(name));
    } else {
        static const char *const shared[] = {"/proc/self/ns/ipc", "/proc/self/ns/pid",
                                             "/proc/self/ns/net", "/dev/shm"};
        hash_kernel(&hash);
        for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
            struct stat info;
            uint64_t id[2] = {0};
            if (stat(shared[i], &info) == 0) {
                id[0] = (uint64_t)info.st_dev;
                id[1] = (uint64_t)info.st_ino;
            }
            hash_bytes(&hash, id, sizeof id);
        }
    }
    crypto_generichash_final(&hash, node, TSR__BOOTSTRAP_NODE_SIZE);
}

/* Gives each node (the processes that can share memory) a number, in the order of the nodes' lowest
 * ranks. `nodes` has the hash of each rank's node. Takes time proportional to ranks · nodes. */
static tsr_status number_nodes(tsr__bootstrap *bootstrap, const tsr__bootstrap_gathered *nodes)
{
    int32_t size = bootstrap->info.size;
    /* for each node that has been found, its lowest rank */
    int32_t *first = tsr__calloc((size_t)size, sizeof *first);
    if (first == NULL)
        return TSR_ERR_NO_MEMORY;
    for (int32_t rank = 0; rank < size; rank++) {
        const uint8_t *mine = nodes->bytes + nodes->starts[rank];
        if (nodes->starts[rank + 1] - nodes->starts[rank] != TSR__BOOTSTRAP_NODE_SIZE) {
            tsr__free(first);
            return tsr__fail(TSR_ERR_INVALID,
                             "bootstrap: rank %" PRId32 " identifies its node by %" PRIu64
                             " bytes, not %d: it may use another version of tessera",
                             rank, nodes->starts[rank + 1] - nodes->starts[rank],
                             TSR__BOOTSTRAP_NODE_SIZE);
        }
        int32_t node = 0;
        while (node < bootstrap->info.node_count &&
               memcmp(nodes->bytes + nodes->starts[first[node]], mine, TSR__BOOTSTRAP_NODE_SIZE) !=
                   0)
            node++;
        if (node == bootstrap->info.node_count)
            first[bootstrap->info.node_count++] = rank;
        bootstrap->node_of[rank] = node;
    }
    tsr__free(first);
    return TSR_OK;
}

static void find_local(tsr__bootstrap_info *info)
{
    int32_t below = 0, all = 0;
    for (int32_t rank = 0; rank < info->size; rank++)
        if (info->node_of[rank] == info->node_of[info->rank]) {
            below += rank < info->rank;
            all++;
        }
    /* If the launcher has not set both the local rank and the local size, use the numbers that were
     * counted above. */
    if (info->local_rank < 0 || info->local_size < 0) {
        info->local_rank = below;
        info->local_size = all;
    }
}

/* Opening and exchanging --------------------------------------------------------------------------
 */

static tsr_status exchange_through_backend(tsr__bootstrap *bootstrap, const void *mine,
                                           uint64_t size_bytes, const tsr__bootstrap_limit *limit,
                                           tsr__bootstrap_gathered *out)
{
    tsr_status status =
        bootstrap->backend->exchange(bootstrap->state, mine, size_bytes, limit, out);
    bootstrap->broken = status != TSR_OK;
    return status;
}

/* Makes the first exchange, which waits for all ranks, and determines which of them share a node.
 */
static tsr_status exchange_nodes(tsr__bootstrap *bootstrap, const tsr__bootstrap_limit *limit)
{
    bootstrap->node_of = tsr__calloc((size_t)bootstrap->info.size, sizeof *bootstrap->node_of);
    if (bootstrap->node_of == NULL)
        return TSR_ERR_NO_MEMORY;
    bootstrap->info.node_of = bootstrap->node_of;
    identify_node(bootstrap->info.node);
    tsr__bootstrap_gathered nodes;
    TSR__TRY(exchange_through_backend(bootstrap, bootstrap->info.node, TSR__BOOTSTRAP_NODE_SIZE,
                                      limit, &nodes));
    tsr_status status = number_nodes(bootstrap, &nodes);
    tsr__bootstrap_gathered_finish(&nodes);
    if (status == TSR_OK)
        find_local(&bootstrap->info);
    if (bootstrap->backend->own_address == NULL ||
        !bootstrap->backend->own_address(bootstrap->state, &bootstrap->info.own_address))
        bootstrap->info.own_address.ss_family = AF_UNSPEC;
    return status;
}

/* The function that opens the backend of each kind. AUTO is replaced by another kind before this
 * table is read. */
static tsr__bootstrap_open_fn *const backends[] = {
    [TSR__BOOTSTRAP_PMIX] = tsr__bootstrap_open_pmix,
    [TSR__BOOTSTRAP_ENV] = tsr__bootstrap_open_env,
    [TSR__BOOTSTRAP_CALLBACK] = tsr__bootstrap_open_callback,
    [TSR__BOOTSTRAP_SINGLE] = tsr__bootstrap_open_single,
    [TSR__BOOTSTRAP_JOIN] = tsr__bootstrap_open_join,
};

static tsr_status open_backend(const tsr__bootstrap_params *params, tsr__bootstrap *bootstrap)
{
    tsr__bootstrap_place place = {0};
    const tsr__bootstrap_limit limit = tsr__bootstrap_limit_from_now(params->timeout_ns);
    TSR__REQUIRE((size_t)params->kind < sizeof backends / sizeof backends[0] &&
                     backends[params->kind] != NULL,
                 "bootstrap: invalid kind %d", (int)params->kind);
    TSR__TRY(backends[params->kind](params, &place, &bootstrap->backend, &bootstrap->state));
    bootstrap->info.rank = place.rank;
    bootstrap->info.size = place.size;
    bootstrap->info.local_rank = place.local_rank;
    bootstrap->info.local_size = place.local_size;
    return exchange_nodes(bootstrap, &limit);
}

tsr_status tsr__bootstrap_open(const tsr__bootstrap_params *params, tsr__bootstrap **out)
{
    tsr__bootstrap_params chosen = params != NULL ? *params : (tsr__bootstrap_params){0};
    const char *why = "chosen by the caller";
    TSR__REQUIRE(out != NULL, "bootstrap: out is NULL");
    if (chosen.timeout_ns == 0)
        chosen.timeout_ns = 60 * TSR__SECOND;
    if (chosen.kind == TSR__BOOTSTRAP_AUTO)
        TSR__TRY(tsr__bootstrap_choose(&chosen.kind, &why));
    if (sodium_init() < 0)
        return tsr__fail(TSR_ERR_DRIVER, "bootstrap: libsodium cannot be initialised");

    tsr__bootstrap *bootstrap = tsr__calloc(1, sizeof *bootstrap);
    if (bootstrap == NULL)
        return TSR_ERR_NO_MEMORY;
    bootstrap->info.kind = chosen.kind;
    bootstrap->timeout_ns = chosen.timeout_ns;
    tsr_status status = open_backend(&chosen, bootstrap);
    if (status != TSR_OK) {
        tsr__bootstrap_close(&bootstrap);
        return status;
    }
    tsr__log(TSR_LOG_INFO,
             "bootstrap: rank %" PRId32 " of %" PRId32 ", local rank %" PRId32 " of %" PRId32
             ", node %" PRId32 " of %" PRId32 ", through %s: %s",
             bootstrap->info.rank, bootstrap->info.size, bootstrap->info.local_rank,
             bootstrap->info.local_size, bootstrap->node_of[bootstrap->info.rank],
             bootstrap->info.node_count, bootstrap->backend->name, why);
    *out = bootstrap;
    return TSR_OK;
}

tsr_status tsr__bootstrap_open_adopted(struct tsr__rendezvous *rendezvous, int32_t rank,
                                       int32_t size, const tsr__bootstrap_limit *limit,
                                       tsr__bootstrap **out)
{
    tsr__bootstrap *bootstrap = tsr__calloc(1, sizeof *bootstrap);
    if (bootstrap == NULL) {
        tsr__bootstrap_rendezvous.close(rendezvous);
        return TSR_ERR_NO_MEMORY;
    }
    bootstrap->backend = &tsr__bootstrap_rendezvous;
    bootstrap->state = rendezvous;
    bootstrap->timeout_ns = limit->timeout_ns;
    bootstrap->info = (tsr__bootstrap_info){
        .kind = TSR__BOOTSTRAP_ENV, .rank = rank, .size = size, .local_rank = -1, .local_size = -1};
    const tsr_status status = exchange_nodes(bootstrap, limit);
    if (status != TSR_OK) {
        tsr__bootstrap_close(&bootstrap);
        return status;
    }
    *out = bootstrap;
    return TSR_OK;
}

const tsr__bootstrap_info *tsr__bootstrap_get_info(const tsr__bootstrap *bootstrap)
{
    return &bootstrap->info;
}

tsr_status tsr__bootstrap_exchange(tsr__bootstrap *bootstrap, const void *mine, uint64_t size_bytes,
                                   const tsr__bootstrap_limit *limit, tsr__bootstrap_gathered *out)
{
    TSR__REQUIRE(size_bytes <= TSR__BOOTSTRAP_MAX_BYTES,
                 "bootstrap: a contribution of %" PRIu64 " bytes is too large, the limit is %d",
                 size_bytes, TSR__BOOTSTRAP_MAX_BYTES);
    TSR__REQUIRE(mine != NULL || size_bytes == 0,
                 "bootstrap: a contribution of %" PRIu64 " bytes is NULL", size_bytes);
    TSR__REQUIRE(!bootstrap->broken, "bootstrap: an earlier exchange failed");
    const tsr__bootstrap_limit from_now = tsr__bootstrap_limit_from_now(bootstrap->timeout_ns);
    return exchange_through_backend(bootstrap, mine, size_bytes, limit != NULL ? limit : &from_now,
                                    out);
}

void tsr__bootstrap_close(tsr__bootstrap **bootstrap)
{
    if (bootstrap == NULL || *bootstrap == NULL)
        return;
    if ((*bootstrap)->backend != NULL)
        (*bootstrap)->backend->close((*bootstrap)->state);
    tsr__free((*bootstrap)->node_of);
    tsr__free(*bootstrap);
    *bootstrap = NULL;
}
