#include "comm/bootstrap/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "comm/bootstrap/lookup.h"

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
    /* The loopback by any resolver (RFC 6761), also where there is none. */
    const char *name = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    struct addrinfo *all;
    TSR__TRY(tsr__lookup(name, port, deadline_ns, &all));

    tsr__address chosen = {.size = 0};
    for (const struct addrinfo *one = all; one != NULL; one = one->ai_next) {
        tsr__address address = {.size = one->ai_addrlen};
        if (one->ai_family != AF_INET && one->ai_family != AF_INET6)
            continue;
        memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
        tsr__address_describe(&address);
        if (chosen.size == 0 || (chosen.loopback && !address.loopback))
            chosen = address;
    }
    freeaddrinfo(all);
    TSR__REQUIRE(chosen.size != 0, "it has no internet address");
    TSR__REQUIRE(!is_any(&chosen), "it stands for every address of a machine, not for one");
    *out = chosen;
    return TSR_OK;
}
