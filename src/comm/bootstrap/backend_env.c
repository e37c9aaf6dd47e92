/* The backend that uses environment variables and a rendezvous over TCP. torchrun and tessera
 * launch set these variables. */
#include <inttypes.h>
#include <string.h>

#include "base/environment.h"
#include "base/error.h"
#include "comm/bootstrap/backend.h"
#include "comm/bootstrap/rendezvous.h"

#define DEFAULT_PORT 29501 /* the port after torch's default, 29500 */
#define MIN_TOKEN 16

static tsr_status read_place(tsr__bootstrap_place *place)
{
    int64_t rank, size, local_rank, local_size;
    TSR__TRY(tsr__env_needed_integer("bootstrap", "WORLD_SIZE", 1, INT32_MAX, &size));
    TSR__TRY(tsr__bootstrap_check_size(size));
    TSR__TRY(tsr__env_needed_integer("bootstrap", "RANK", 0, size - 1, &rank));
    TSR__TRY(tsr__env_integer("bootstrap", "LOCAL_WORLD_SIZE", 1, size, -1, &local_size));
    TSR__TRY(tsr__env_integer("bootstrap", "LOCAL_RANK", 0,
                              (local_size > 0 ? local_size : size) - 1, -1, &local_rank));
    *place = (tsr__bootstrap_place){(int32_t)rank, (int32_t)size, (int32_t)local_rank,
                                    (int32_t)local_size};
    return TSR_OK;
}

/* Reads or derives the port of rank 0. MASTER_PORT itself is not used, because torchrun's agent, or
 * torch, may listen on that port. */
static tsr_status read_port(uint16_t *port)
{
    int64_t master, own;
    TSR__TRY(tsr__env_integer("bootstrap", "MASTER_PORT", 1, 65535, 0, &master));
    TSR__TRY(tsr__env_integer("bootstrap", "TESSERA_MASTER_PORT", 1, 65535, 0, &own));
    const char *agent = tsr__env_text("TORCHELASTIC_USE_AGENT_STORE");
    TSR__REQUIRE(own == 0 || own != master || agent == NULL || strcmp(agent, "True") != 0,
                 "bootstrap: TESSERA_MASTER_PORT is %" PRId64
                 ", which is MASTER_PORT and belongs to torchrun's agent",
                 own);
    TSR__REQUIRE(own != 0 || master != 65535,
                 "bootstrap: MASTER_PORT is 65535, so that there is no port after it: set "
                 "TESSERA_MASTER_PORT");
    *port = (uint16_t)(own != 0 ? own : master != 0 ? master + 1 : DEFAULT_PORT);
    return TSR_OK;
}

tsr_status tsr__rendezvous_from_environment(tsr__rendezvous_params *params)
{
    const char *address = tsr__env_text("MASTER_ADDR");
    const char *token = tsr__env_text("TESSERA_TOKEN");
    params->address = address != NULL ? address : "127.0.0.1";
    params->token = token;
    params->token_size = token != NULL ? strlen(token) : 0;
    tsr__identity_init(&params->identity);
    TSR__TRY(read_port(&params->port));
    TSR__REQUIRE(token == NULL || params->token_size >= MIN_TOKEN,
                 "bootstrap: TESSERA_TOKEN has %zu characters, at least %d are needed",
                 params->token_size, MIN_TOKEN);
    return TSR_OK;
}

static tsr_status exchange_through_rendezvous(void *state, const void *mine, uint64_t size_bytes,
                                              const tsr__bootstrap_limit *limit,
                                              tsr__bootstrap_gathered *out)
{
    return tsr__rendezvous_exchange(state, mine, size_bytes, limit, out);
}

static void close_env(void *state)
{
    tsr__rendezvous *rendezvous = state;
    tsr__rendezvous_close(&rendezvous);
}

static bool own_address(void *state, struct sockaddr_storage *out)
{
    return tsr__rendezvous_own_address(state, out);
}

const tsr__bootstrap_backend tsr__bootstrap_rendezvous = {
    "the environment", exchange_through_rendezvous, close_env, own_address};

tsr_status tsr__bootstrap_open_env(const tsr__bootstrap_params *params, tsr__bootstrap_place *place,
                                   const tsr__bootstrap_backend **backend, void **state)
{
    tsr__bootstrap_place read;
    TSR__TRY(read_place(&read));
    if (read.size == 1) {
        TSR__TRY(tsr__bootstrap_open_single(params, place, backend, state));
        return TSR_OK;
    }

    tsr__rendezvous_params where = {
        .rank = read.rank, .size = read.size, .timeout_ns = params->timeout_ns};
    TSR__TRY(tsr__rendezvous_from_environment(&where));
    tsr__rendezvous *rendezvous;
    TSR__TRY(tsr__rendezvous_open(&where, &rendezvous));
    *place = read;
    *backend = &tsr__bootstrap_rendezvous;
    *state = rendezvous;
    return TSR_OK;
}
