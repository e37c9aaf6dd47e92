#include "comm/bootstrap/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/bootstrap/completion.h"

/* A lookup of a host name. It runs in a thread of its own, because getaddrinfo has no deadline and
 * takes half a minute or more if name servers do not answer. If the caller stops waiting, the
 * thread owns this struct and frees it. */
typedef struct lookup {
    tsr__completion completion;
    int code, reason; /* `code` is what getaddrinfo returned, `reason` is errno after that call */
    struct addrinfo *found;
    char service[8];
    char host[]; /* a copy of the host's name, because the thread may outlive the caller's text */
} lookup;

static tsr_status fail_lookup(int code, int reason)
{
    switch (code) {
    case EAI_MEMORY:
        return tsr__fail(TSR_ERR_NO_MEMORY, "%s", gai_strerror(code));
    case EAI_SYSTEM:
        return tsr__fail(TSR_ERR_IO, "%s", strerror(reason));
    case EAI_AGAIN:
    case EAI_FAIL:
        return tsr__fail(TSR_ERR_IO, "%s", gai_strerror(code));
    default:
        return tsr__fail(TSR_ERR_INVALID, "%s", gai_strerror(code));
    }
}

static int get_addresses(const char *host, const char *service, int flags, struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    return getaddrinfo(host, service, &hints, out);
}

static void lookup_free(lookup *request)
{
    if (request->found != NULL)
        freeaddrinfo(request->found);
    tsr__completion_finish(&request->completion);
    tsr__free(request);
}

static void *run_lookup(void *opaque)
{
    lookup *request = opaque;
    request->code = get_addresses(request->host, request->service, 0, &request->found);
    request->reason = errno;
    if (tsr__completion_signal(&request->completion))
        lookup_free(request);
    return NULL;
}

/* Starts the lookup in a detached thread that receives no signals. Returns 0 or an error number. */
static int start_lookup(lookup *request)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, run_lookup, request);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static tsr_status find_in_thread(const char *host, const char *service, uint64_t deadline_ns,
                                 struct addrinfo **out)
{
    const size_t size = strlen(host) + 1;
    lookup *request = tsr__calloc(1, sizeof *request + size);
    if (request == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr__completion_init(&request->completion);
    memcpy(request->host, host, size);
    snprintf(request->service, sizeof request->service, "%s", service);
    int error = start_lookup(request);
    if (error == 0 && !tsr__completion_wait(&request->completion, deadline_ns))
        return tsr__fail(TSR_ERR_TIMEOUT, "the name service does not answer");
    tsr_status status = TSR_OK;
    if (error != 0 || request->code != 0)
        status = error != 0 ? fail_lookup(EAI_SYSTEM, error)
                            : fail_lookup(request->code, request->reason);
    *out = request->found;
    request->found = NULL;
    lookup_free(request);
    return status;
}

/* Finds the TCP addresses of a host name or a numeric address. The caller frees them with
 * freeaddrinfo. Errors, with their text recorded: TSR_ERR_INVALID for a name that does not exist;
 * TSR_ERR_IO for a failure that may be temporary; TSR_ERR_TIMEOUT; TSR_ERR_NO_MEMORY. */
static tsr_status look_up(const char *host, uint16_t port, uint64_t deadline_ns,
                          struct addrinfo **out)
{
    char service[8];
    snprintf(service, sizeof service, "%d", (int)port);
    *out = NULL;
    int code = get_addresses(host, service, AI_NUMERICHOST, out);
    if (code == EAI_NONAME) /* `host` is a name, not a numeric address */
        return find_in_thread(host, service, deadline_ns, out);
    return code == 0 ? TSR_OK : fail_lookup(code, errno);
}

static bool is_any(const tsr__address *address)
{
    if (address->storage.ss_family == AF_INET)
        return ((const struct sockaddr_in *)&address->storage)->sin_addr.s_addr ==
               htonl(INADDR_ANY);
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)&address->storage)->sin6_addr);
}

void tsr__address_describe(tsr__address *address)
{
    char number[INET6_ADDRSTRLEN] = "?";
    if (address->storage.ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address->storage;
        inet_ntop(AF_INET, &v4->sin_addr, number, sizeof number);
        address->loopback = ntohl(v4->sin_addr.s_addr) >> 24 == 127;
        snprintf(address->text, sizeof address->text, "%s:%d", number, ntohs(v4->sin_port));
    } else if (address->storage.ss_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address->storage;
        inet_ntop(AF_INET6, &v6->sin6_addr, number, sizeof number);
        address->loopback = IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
        snprintf(address->text, sizeof address->text, "[%s]:%d", number, ntohs(v6->sin6_port));
    } else {
        address->loopback = false;
        snprintf(address->text, sizeof address->text, "?");
    }
}

tsr_status tsr__address_find(const char *host, uint16_t port, uint64_t deadline_ns,
                             tsr__address *out)
{
    /* RFC 6761 defines localhost as loopback, so no name service is needed for it. */
    const char *name = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    struct addrinfo *all;
    TSR__TRY(look_up(name, port, deadline_ns, &all));

    tsr__address chosen = {.size = 0};
    for (const struct addrinfo *entry = all; entry != NULL; entry = entry->ai_next) {
        tsr__address address = {.size = entry->ai_addrlen};
        if (entry->ai_family != AF_INET && entry->ai_family != AF_INET6)
            continue;
        memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
        tsr__address_describe(&address);
        if (chosen.size == 0 || (chosen.loopback && !address.loopback))
            chosen = address;
    }
    freeaddrinfo(all);
    TSR__REQUIRE(chosen.size != 0, "it has no internet address");
    TSR__REQUIRE(!is_any(&chosen), "it stands for all addresses of a machine, not for one");
    *out = chosen;
    return TSR_OK;
}

bool tsr__address_is_here(const tsr__address *address)
{
    struct sockaddr_storage any_port = address->storage;
    if (any_port.ss_family == AF_INET)
        ((struct sockaddr_in *)&any_port)->sin_port = 0;
    else
        ((struct sockaddr_in6 *)&any_port)->sin6_port = 0;
    const int fd = socket(any_port.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_here =
        fd >= 0 && bind(fd, (const struct sockaddr *)&any_port, address->size) == 0;
    if (fd >= 0)
        close(fd);
    return is_here;
}
