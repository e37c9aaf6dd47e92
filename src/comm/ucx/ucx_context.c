/* Creates and destroys the UCX context and worker. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "base/error.h"
#include "comm/ucx/ucx_errors.h"
#include "comm/ucx/ucx_state.h"

static ucs_log_func_rc_t pass_on(const char *file, unsigned line, const char *function,
                                 ucs_log_level_t level, const ucs_log_component_config_t *component,
                                 const char *message, va_list arguments)
{
    char text[512];
    (void)line;
    (void)component;
    (void)file;
    if (vsnprintf(text, sizeof text, message, arguments) < 0)
        return UCS_LOG_FUNC_RC_STOP;
    /* UCX logs an error when a peer is lost. This library reports the loss itself, so UCX's error
     * is logged as INFO. */
    tsr__log(level <= UCS_LOG_LEVEL_WARN ? TSR_LOG_INFO : TSR_LOG_DEBUG, "ucx: %s: %s", function,
             text);
    /* UCX must print fatal errors itself, because it aborts the process after this function. */
    return level == UCS_LOG_LEVEL_FATAL ? UCS_LOG_FUNC_RC_CONTINUE : UCS_LOG_FUNC_RC_STOP;
}

/* Redirects UCX's messages to the library's log, unless the user has set UCX_LOG_LEVEL. */
static void redirect_log(void)
{
    /* not locked, because only one thread at a time creates communicators */
    static bool is_redirected;
    if (is_redirected || getenv("UCX_LOG_LEVEL"))
        return;
    ucs_log_push_handler(pass_on);
    is_redirected = true;
}

/* UCX divides a message over TCP into segments of at most this size. With its default, 64 KiB,
 * all-reduces of 1 and 2 MiB between hosts take longer. */
#define TCP_SEGMENT_BYTES "256k"

/* Sets environment variables for UCX. Without UCX_MM_ERROR_HANDLING, UCX does not use shared memory
 * between peers whose loss it must detect. UCX reads variables with its configuration and again
 * when it opens its transports, so they stay set. Values that the user has set are not changed.
 *
 * UCX_CMA_MEMORY_INVALIDATE is not set. With it, receivers would read the memory of senders
 * directly, even after a sender has cancelled the message and uses the memory for something
 * else. */
static void set_environment(void)
{
    (void)setenv("UCX_MM_ERROR_HANDLING", "y", 0);
    (void)setenv("UCX_TCP_RX_SEG_SIZE", TCP_SEGMENT_BYTES, 0);
}

/* Returns whether the host has a network interface for RDMA. */
static bool has_rdma(void)
{
    bool found = false;
    DIR *devices = opendir("/sys/class/infiniband");
    for (struct dirent *entry; devices && !found && (entry = readdir(devices)) != NULL;)
        found = entry->d_name[0] != '.';
    if (devices)
        closedir(devices);
    return found;
}

/* If there is only TCP between hosts, messages of up to this size are sent at once, without asking
 * the receiver first. With UCX's rendezvous, its default from some 10 KiB on, two ranks that
 * exchange messages over TCP use only one direction of the link at a time. The limit bounds the
 * memory for messages on a rank that does not receive yet. */
#define EAGER_BYTES "1m"

#define WITHOUT_POSIX "^posix" /* all transports but POSIX shared memory */

static tsr_status open_context(tsr__transport *transport, const char *transports)
{
    ucp_config_t *config = NULL;
    set_environment();
    TSR__TRY(tsr__ucx_check(ucp_config_read(NULL, NULL, &config), "ucp_config_read"));
    /* Detect lost peers sooner than with UCX's default interval of 20 s. */
    if (!getenv("UCX_KEEPALIVE_INTERVAL"))
        (void)ucp_config_modify(config, "KEEPALIVE_INTERVAL", "1s");
    if (!getenv("UCX_RNDV_THRESH") && !has_rdma())
        (void)ucp_config_modify(config, "RNDV_THRESH", EAGER_BYTES);
    if (transports)
        (void)ucp_config_modify(config, "TLS", transports);
    const ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                                 .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP};
    ucs_status_t status = ucp_init(&params, config, &transport->context);
    ucp_config_release(config);
    return tsr__ucx_check(status, "ucp_init");
}

static void close_worker(tsr__transport *transport)
{
    if (transport->address)
        ucp_worker_release_address(transport->worker, transport->address);
    if (transport->worker)
        ucp_worker_destroy(transport->worker);
    if (transport->context)
        ucp_cleanup(transport->context);
}

/* Opens the context and the worker. If /dev/shm has no room, UCX fails instead of using System V
 * shared memory. So POSIX shared memory is then disabled. If other processes take the room after
 * this check, the first attempt fails, and the function tries again without POSIX shared memory. */
static tsr_status open_worker(tsr__transport *transport, bool without_shared_memory)
{
    const bool may_avoid_posix = !without_shared_memory && tsr__ucx_may_avoid_posix();
    bool avoid_posix = may_avoid_posix && !tsr__ucx_posix_fits();
    TSR__TRY(tsr__ucx_check_descriptors());
    TSR__TRY(tsr__ucx_library_open());
    redirect_log();
    const ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE,
                                        .thread_mode = UCS_THREAD_MODE_SERIALIZED};
    const char *transports = avoid_posix ? WITHOUT_POSIX : NULL;
    if (without_shared_memory && tsr__env_text("UCX_TLS") == NULL)
        transports = "^sm";
    TSR__TRY(open_context(transport, transports));
    ucs_status_t created = ucp_worker_create(transport->context, &params, &transport->worker);
    if (may_avoid_posix && !avoid_posix && tsr__ucx_is_out_of_resources(created)) {
        avoid_posix = true;
        ucp_cleanup(transport->context);
        transport->context = NULL;
        TSR__TRY(open_context(transport, WITHOUT_POSIX));
        created = ucp_worker_create(transport->context, &params, &transport->worker);
    }
    TSR__TRY(tsr__ucx_check(created, "ucp_worker_create"));
    if (avoid_posix)
        tsr__log(TSR_LOG_INFO, "comm: /dev/shm has no room for UCX, which uses System V shared "
                               "memory instead");
    return tsr__ucx_check(
        ucp_worker_get_address(transport->worker, &transport->address, &transport->address_bytes),
        "ucp_worker_get_address");
}

tsr_status tsr__transport_create(bool without_shared_memory, tsr__transport **out)
{
    tsr__transport *transport = tsr__calloc(1, sizeof *transport);
    if (!transport)
        return TSR_ERR_NO_MEMORY;
    transport->wake = -1;
    tsr_status status = open_worker(transport, without_shared_memory);
    if (status == TSR_OK)
        status = tsr__ucx_wake_open(transport);
    if (status != TSR_OK) {
        tsr__transport_destroy(&transport, 0);
        return status;
    }
    *out = transport;
    return TSR_OK;
}

const void *tsr__transport_address(const tsr__transport *transport, size_t *size_bytes)
{
    *size_bytes = transport->address_bytes;
    return transport->address;
}

void tsr__transport_destroy(tsr__transport **transport, uint64_t until_ns)
{
    if (!transport || !*transport)
        return;
    tsr__transport *t = *transport;
    if (t->peers)
        tsr__ucx_disconnect(t, until_ns);
    tsr__ucx_wake_close(t);
    close_worker(t);
    tsr__free(t->peers);
    tsr__free(t->addresses);
    tsr__free(t);
    *transport = NULL;
}
