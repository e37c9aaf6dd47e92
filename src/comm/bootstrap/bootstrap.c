#include <inttypes.h>
#include <sodium.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/bootstrap/choose.h"
#include "comm/bootstrap/impl.h"
#include "comm/bootstrap/node.h"

struct tsr__boot {
    tsr__boot_info info;
    int32_t *node_of;
    const tsr__boot_way *way;
    void *state;
    uint64_t timeout_ns;
    bool broken; /* an exchange failed: the ranks are no longer in step */
};

/* Numbers the nodes in the order in which their first ranks come. Quadratic in nodes, not in ranks.
 */
static tsr_status number_nodes(tsr__boot *boot, const tsr__boot_blocks *nodes)
{
    int32_t size = boot->info.size;
    int32_t *first = tsr__calloc((size_t)size, sizeof *first); /* rank of each node */
    if (first == NULL)
        return TSR_ERR_NO_MEMORY;
    for (int32_t rank = 0; rank < size; rank++) {
        const uint8_t *mine = nodes->bytes + nodes->starts[rank];
        if (nodes->starts[rank + 1] - nodes->starts[rank] != TSR__BOOT_NODE_SIZE) {
            tsr__free(first);
            return tsr__fail(TSR_ERR_INVALID,
                             "boot: rank %" PRId32 " names its node in %" PRIu64 " bytes, not %d: "
                             "another version of tessera?",
                             rank, nodes->starts[rank + 1] - nodes->starts[rank],
                             TSR__BOOT_NODE_SIZE);
        }
        int32_t node = 0;
        while (node < boot->info.node_count &&
               memcmp(nodes->bytes + nodes->starts[first[node]], mine, TSR__BOOT_NODE_SIZE) != 0)
            node++;
        if (node == boot->info.node_count)
            first[boot->info.node_count++] = rank;
        boot->node_of[rank] = node;
    }
    tsr__free(first);
    return TSR_OK;
}

static void find_local(tsr__boot_info *info)
{
    int32_t below = 0, all = 0;
    for (int32_t rank = 0; rank < info->size; rank++)
        if (info->node_of[rank] == info->node_of[info->rank]) {
            below += rank < info->rank;
            all++;
        }
    /* A launcher that knows only one of the two is not believed. */
    if (info->local_rank < 0 || info->local_size < 0) {
        info->local_rank = below;
        info->local_size = all;
    }
}

static tsr_status exchange(tsr__boot *boot, const void *mine, uint64_t size_bytes,
                           const tsr__boot_limit *limit, tsr__boot_blocks *out)
{
    tsr_status status = boot->way->exchange(boot->state, mine, size_bytes, limit, out);
    boot->broken = status != TSR_OK;
    return status;
}

static tsr_status meet(tsr__boot *boot, const tsr__boot_limit *limit)
{
    boot->node_of = tsr__calloc((size_t)boot->info.size, sizeof *boot->node_of);
    if (boot->node_of == NULL)
        return TSR_ERR_NO_MEMORY;
    boot->info.node_of = boot->node_of;
    tsr__boot_node(boot->info.node);
    tsr__boot_blocks nodes;
    TSR__TRY(exchange(boot, boot->info.node, TSR__BOOT_NODE_SIZE, limit, &nodes));
    tsr_status status = number_nodes(boot, &nodes);
    tsr__boot_blocks_finish(&nodes);
    if (status == TSR_OK)
        find_local(&boot->info);
    return status;
}

tsr_status tsr__boot_check_size(int64_t size)
{
    if (size > TSR__BOOT_MAX_RANKS)
        return tsr__fail(TSR_ERR_UNSUPPORTED, "boot: %" PRId64 " ranks are more than %d", size,
                         TSR__BOOT_MAX_RANKS);
    return TSR_OK;
}

static tsr_status open_way(const tsr__boot_params *params, tsr__boot *boot)
{
    tsr__boot_place place = {0};
    tsr_status status = TSR_OK;
    tsr__boot_limit limit = tsr__boot_limit_from_now(params->timeout_ns);
    switch (params->kind) {
    case TSR__BOOT_PMIX:
        status = tsr__boot_open_pmix(params, &place, &boot->way, &boot->state);
        break;
    case TSR__BOOT_ENV:
        status = tsr__boot_open_env(params, &place, &boot->way, &boot->state);
        break;
    case TSR__BOOT_CALLBACK:
        status = tsr__boot_open_callback(params, &place, &boot->way, &boot->state);
        break;
    case TSR__BOOT_SINGLE:
        status = tsr__boot_open_single(params, &place, &boot->way, &boot->state);
        break;
    case TSR__BOOT_AUTO:
    default:
        return tsr__fail(TSR_ERR_INVALID, "boot: there is no kind %d", (int)params->kind);
    }
    TSR__TRY(status);
    boot->info.rank = place.rank;
    boot->info.size = place.size;
    boot->info.local_rank = place.local_rank;
    boot->info.local_size = place.local_size;
    return meet(boot, &limit);
}

tsr_status tsr__boot_open(const tsr__boot_params *params, tsr__boot **out)
{
    tsr__boot_params chosen = params != NULL ? *params : (tsr__boot_params){0};
    const char *why = "asked for";
    TSR__REQUIRE(out != NULL, "boot: there is nowhere to put it");
    if (chosen.timeout_ns == 0)
        chosen.timeout_ns = 60 * TSR__SECOND;
    if (chosen.kind == TSR__BOOT_AUTO)
        TSR__TRY(tsr__boot_choose(&chosen.kind, &why));
    if (sodium_init() < 0)
        return tsr__fail(TSR_ERR_DRIVER, "boot: libsodium cannot be initialised");

    tsr__boot *boot = tsr__calloc(1, sizeof *boot);
    if (boot == NULL)
        return TSR_ERR_NO_MEMORY;
    boot->info.kind = chosen.kind;
    boot->timeout_ns = chosen.timeout_ns;
    tsr_status status = open_way(&chosen, boot);
    if (status != TSR_OK) {
        tsr__boot_close(&boot);
        return status;
    }
    tsr__log(TSR_LOG_INFO,
             "boot: rank %" PRId32 " of %" PRId32 ", local rank %" PRId32 " of %" PRId32
             ", node %" PRId32 " of %" PRId32 ", through %s: %s",
             boot->info.rank, boot->info.size, boot->info.local_rank, boot->info.local_size,
             boot->node_of[boot->info.rank], boot->info.node_count, boot->way->name, why);
    *out = boot;
    return TSR_OK;
}

const tsr__boot_info *tsr__boot_get_info(const tsr__boot *boot)
{
    return &boot->info;
}

tsr_status tsr__boot_exchange(tsr__boot *boot, const void *mine, uint64_t size_bytes,
                              const tsr__boot_limit *limit, tsr__boot_blocks *out)
{
    TSR__REQUIRE(size_bytes <= TSR__BOOT_MAX_BLOCK,
                 "boot: a block of %" PRIu64 " bytes is too large to exchange, the limit is %d",
                 size_bytes, TSR__BOOT_MAX_BLOCK);
    TSR__REQUIRE(mine != NULL || size_bytes == 0, "boot: a block of %" PRIu64 " bytes is NULL",
                 size_bytes);
    TSR__REQUIRE(!boot->broken, "boot: an earlier exchange failed");
    const tsr__boot_limit from_now = tsr__boot_limit_from_now(boot->timeout_ns);
    return exchange(boot, mine, size_bytes, limit != NULL ? limit : &from_now, out);
}

void tsr__boot_close(tsr__boot **boot)
{
    if (boot == NULL || *boot == NULL)
        return;
    if ((*boot)->way != NULL)
        (*boot)->way->close((*boot)->state);
    tsr__free((*boot)->node_of);
    tsr__free(*boot);
    *boot = NULL;
}
