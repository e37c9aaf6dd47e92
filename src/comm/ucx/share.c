/* Memory that the processes of one host look into, with plain loads and stores. */
#include <string.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/ucx/state.h"

static void note(const char *what, ucs_status_t status)
{
    tsr__log(TSR_LOG_DEBUG, "comm: no shared memory: %s: UCX says: %s", what,
             ucs_status_string(status));
}

void *tsr__transport_share(tsr__transport *transport, size_t size_bytes)
{
    const ucp_mem_map_params_t params = {.field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH |
                                                       UCP_MEM_MAP_PARAM_FIELD_FLAGS,
                                         .length = size_bytes,
                                         .flags = UCP_MEM_MAP_ALLOCATE};
    ucp_mem_attr_t memory = {.field_mask = UCP_MEM_ATTR_FIELD_ADDRESS};
    ucs_status_t status = ucp_mem_map(transport->context, &params, &transport->shared);
    if (status != UCS_OK) {
        note("ucp_mem_map", status);
        transport->shared = NULL;
        return NULL;
    }
    status = ucp_mem_query(transport->shared, &memory);
    if (status == UCS_OK)
        status = ucp_rkey_pack(transport->context, transport->shared, &transport->shared_key,
                               &transport->shared_key_bytes);
    if (status == UCS_OK)
        return memory.address;
    note("ucp_rkey_pack", status);
    return NULL;
}

const void *tsr__transport_shared_key(const tsr__transport *transport, size_t *size_bytes)
{
    *size_bytes = transport->shared_key ? transport->shared_key_bytes : 0;
    return transport->shared_key;
}

void *tsr__transport_look(tsr__transport *transport, int peer, const void *key, const void *address)
{
    tsr__peer *looked = &transport->peers[peer];
    void *here = NULL;
    ucs_status_t status = ucp_ep_rkey_unpack(looked->endpoint, key, &looked->shared_key);
    if (status != UCS_OK) {
        looked->shared_key = NULL;
        note("ucp_ep_rkey_unpack", status);
        return NULL;
    }
    status = ucp_rkey_ptr(looked->shared_key, (uint64_t)(uintptr_t)address, &here);
    if (status == UCS_OK)
        return here;
    note("ucp_rkey_ptr", status);
    return NULL;
}

void tsr__ucx_unshare(tsr__transport *transport)
{
    for (int i = 0; i < transport->size; i++) {
        if (transport->peers[i].shared_key)
            ucp_rkey_destroy(transport->peers[i].shared_key);
        transport->peers[i].shared_key = NULL;
    }
    if (transport->shared_key)
        ucp_rkey_buffer_release(transport->shared_key);
    if (transport->shared)
        (void)ucp_mem_unmap(transport->context, transport->shared);
}
