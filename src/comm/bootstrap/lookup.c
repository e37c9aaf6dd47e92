#include "comm/bootstrap/lookup.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/error.h"
#include "comm/bootstrap/completion.h"

typedef struct lookup {
    tsr__completion completion;
    int code, reason; /* what getaddrinfo returned, and errno after it */
    struct addrinfo *found;
    char service[8];
    char host[]; /* the caller's may be gone before this is done */
} lookup;

static tsr_status fail(int code, int reason)
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

static int find(const char *host, const char *service, int flags, struct addrinfo **out)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    return getaddrinfo(host, service, &hints, out);
}

static void lookup_free(lookup *asked)
{
    if (asked->found != NULL)
        freeaddrinfo(asked->found);
    tsr__completion_finish(&asked->completion);
    tsr__free(asked);
}

static void *run(void *opaque)
{
    lookup *asked = opaque;
    asked->code = find(asked->host, asked->service, 0, &asked->found);
    asked->reason = errno;
    if (tsr__completion_signal(&asked->completion))
        lookup_free(asked);
    return NULL;
}

/* A thread that nobody joins, and that takes no signals of the program's. */
static int start(lookup *asked)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, run, asked);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

static tsr_status find_apart(const char *host, const char *service, uint64_t deadline_ns,
                             struct addrinfo **out)
{
    const size_t size = strlen(host) + 1;
    lookup *asked = tsr__calloc(1, sizeof *asked + size);
    if (asked == NULL)
        return TSR_ERR_NO_MEMORY;
    tsr__completion_init(&asked->completion);
    memcpy(asked->host, host, size);
    snprintf(asked->service, sizeof asked->service, "%s", service);
    int error = start(asked);
    if (error == 0 && !tsr__completion_wait(&asked->completion, deadline_ns))
        return tsr__fail(TSR_ERR_TIMEOUT, "the name service does not answer");
    tsr_status status = TSR_OK;
    if (error != 0 || asked->code != 0)
        status = error != 0 ? fail(EAI_SYSTEM, error) : fail(asked->code, asked->reason);
    *out = asked->found;
    asked->found = NULL;
    lookup_free(asked);
    return status;
}

tsr_status tsr__lookup(const char *host, uint16_t port, uint64_t deadline_ns, struct addrinfo **out)
{
    char service[8];
    snprintf(service, sizeof service, "%d", (int)port);
    *out = NULL;
    int code = find(host, service, AI_NUMERICHOST, out);
    if (code == EAI_NONAME) /* no number, so that others have to be asked */
        return find_apart(host, service, deadline_ns, out);
    return code == 0 ? TSR_OK : fail(code, errno);
}
