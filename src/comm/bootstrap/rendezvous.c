#include "comm/bootstrap/rendezvous.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "comm/bootstrap/rendezvous_client.h"
#include "comm/bootstrap/rendezvous_server.h"

#define HANDSHAKE_NS (5 * TSR__SECOND)

struct tsr__rendezvous {
    tsr__server *server; /* on rank 0 only */
    tsr__client *client; /* on all ranks except 0 */
};

tsr_status tsr__rendezvous_open(const tsr__rendezvous_params *params, tsr__rendezvous **out)
{
    tsr__rendezvous_params chosen = *params;
    if (chosen.handshake_ns == 0)
        chosen.handshake_ns = HANDSHAKE_NS;
    tsr__rendezvous *rendezvous = tsr__calloc(1, sizeof *rendezvous);
    if (rendezvous == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = chosen.rank == 0 ? tsr__server_open(&chosen, &rendezvous->server)
                                         : tsr__client_open(&chosen, &rendezvous->client);
    if (status != TSR_OK) {
        tsr__free(rendezvous);
        return status;
    }
    *out = rendezvous;
    return TSR_OK;
}

tsr_status tsr__rendezvous_adopt_server(int32_t size, const tsr__channel *channels,
                                        tsr__rendezvous **out)
{
    tsr__rendezvous *rendezvous = tsr__calloc(1, sizeof *rendezvous);
    if (rendezvous == NULL)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = tsr__server_adopt(size, channels, &rendezvous->server);
    if (status == TSR_OK)
        *out = rendezvous;
    else
        tsr__free(rendezvous);
    return status;
}

tsr_status tsr__rendezvous_adopt_client(int32_t rank, int32_t size, const tsr__channel *channel,
                                        tsr__rendezvous **out)
{
    tsr__rendezvous *rendezvous = tsr__calloc(1, sizeof *rendezvous);
    if (rendezvous == NULL)
        return TSR_ERR_NO_MEMORY;
    const tsr_status status = tsr__client_adopt(rank, size, channel, &rendezvous->client);
    if (status == TSR_OK)
        *out = rendezvous;
    else
        tsr__free(rendezvous);
    return status;
}

bool tsr__rendezvous_own_address(const tsr__rendezvous *rendezvous, struct sockaddr_storage *out)
{
    socklen_t size = sizeof *out;
    if (rendezvous->client != NULL)
        return getsockname(rendezvous->client->channel.fd, (struct sockaddr *)out, &size) == 0;
    *out = rendezvous->server->address.storage;
    return rendezvous->server->address.size > 0;
}

tsr_status tsr__rendezvous_exchange(tsr__rendezvous *rendezvous, const void *mine,
                                    uint64_t size_bytes, const tsr__bootstrap_limit *limit,
                                    tsr__bootstrap_gathered *out)
{
    if (rendezvous->server != NULL)
        return tsr__server_exchange(rendezvous->server, mine, size_bytes, limit, out);
    return tsr__client_exchange(rendezvous->client, mine, size_bytes, limit, out);
}

void tsr__rendezvous_close(tsr__rendezvous **rendezvous)
{
    if (*rendezvous == NULL)
        return;
    tsr__server_close(&(*rendezvous)->server);
    tsr__client_close(&(*rendezvous)->client);
    tsr__free(*rendezvous);
    *rendezvous = NULL;
}
