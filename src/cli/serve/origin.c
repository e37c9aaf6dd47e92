/* Requests that web pages of others make. Any page may make a browser send a request to this host,
 * so a server without a key must tell whose page it was. */
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "cli/serve/serve.h"

/* Returns whether `name` is an address of IP, in brackets that of IPv6. */
static bool is_address(const char *name)
{
    char inner[64];
    struct in6_addr v6;
    struct in_addr v4;
    const size_t size = strlen(name);
    if (name[0] != '[')
        return inet_pton(AF_INET, name, &v4) == 1;
    if (size < 3 || size >= sizeof inner || name[size - 1] != ']')
        return false;
    memcpy(inner, name + 1, size - 2);
    inner[size - 2] = '\0';
    return inet_pton(AF_INET6, inner, &v6) == 1;
}

static bool ends_with(const char *name, const char *end)
{
    const size_t size = strlen(name), end_size = strlen(end);
    return size >= end_size && strcasecmp(name + size - end_size, end) == 0;
}

/* Returns whether no page of others can have this name: others may let a name of their own lead to
 * this host's address (DNS rebinding), but not an address, nor localhost. */
static bool is_own_name(const char *host)
{
    char name[256];
    const char *port = strrchr(host, ':');
    const size_t size =
        port != NULL && strchr(port, ']') == NULL ? (size_t)(port - host) : strlen(host);
    if (size >= sizeof name)
        return false;
    memcpy(name, host, size);
    name[size] = '\0';
    return is_address(name) || strcasecmp(name, "localhost") == 0 ||
           ends_with(name, ".localhost") || strcasecmp(name, serve_chosen.host) == 0;
}

static bool is_own_origin(const char *origin, const char *host)
{
    static const char *const schemes[] = {"http://", "https://"};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const size_t size = strlen(schemes[i]);
        if (strncasecmp(origin, schemes[i], size) == 0 && strcasecmp(origin + size, host) == 0)
            return true;
    }
    return false;
}

bool serve_check_origin(const char *host, const char *origin, serve_problem *problem)
{
    if (host != NULL && !is_own_name(host))
        serve_refuse(problem, 403, "",
                     "without an API key this server is known by its address and as localhost "
                     "only, not as '%.100s'; --api-key-file or --no-api-key allow other names",
                     host);
    else if (origin != NULL && (host == NULL || !is_own_origin(origin, host)))
        serve_refuse(problem, 403, "",
                     "the page is of '%.100s': without an API key only the server's own page may "
                     "send requests; --api-key-file or --no-api-key allow others",
                     origin);
    return problem->status == 0;
}
