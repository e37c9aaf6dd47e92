#define _DEFAULT_SOURCE /* for getifaddrs */
#include "comm/recovery/recovery.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/environment.h"
#include "base/error.h"

/* Addresses ---------------------------------------------------------------------------------------
 */

/* Adds an address to the card. Ignores families other than IPv4 and IPv6. */
static void add_address(tsr__card *card, const struct sockaddr *address)
{
    const uint32_t next = card->address_count;
    if (next == TSR__CARD_ADDRESSES)
        return;
    if (address->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, address, sizeof v4);
        memcpy(card->addresses[next].bytes, &v4.sin_addr, sizeof v4.sin_addr);
    } else if (address->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, address, sizeof v6);
        if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr))
            return;
        memcpy(card->addresses[next].bytes, &v6.sin6_addr, sizeof v6.sin6_addr);
    } else {
        return;
    }
    card->addresses[next].family = address->sa_family == AF_INET ? 4 : 6;
    card->address_count++;
}

static void add_loopback(tsr__card *card)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    add_address(card, (const struct sockaddr *)&address);
}

static void add_interfaces(tsr__card *card)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return;
    for (const struct ifaddrs *interface = all; interface; interface = interface->ifa_next) {
        if (interface->ifa_addr && (interface->ifa_flags & IFF_UP) &&
            !(interface->ifa_flags & IFF_LOOPBACK))
            add_address(card, interface->ifa_addr);
    }
    freeifaddrs(all);
}

/* Puts the addresses into the card at which other ranks can reach this one. In a job on one host,
 * that is loopback. In a job on several hosts, it is this host's address on the network of the
 * rendezvous or, if the bootstrap used no network, all addresses of this host. */
static void choose_addresses(tsr__card *card, const tsr__bootstrap_info *info)
{
    if (info->node_count > 1 && info->own_address.ss_family != AF_UNSPEC)
        add_address(card, (const struct sockaddr *)&info->own_address);
    else if (info->node_count > 1)
        add_interfaces(card);
    if (card->address_count == 0)
        add_loopback(card);
}

/* Listening ---------------------------------------------------------------------------------------
 */

/* Sets *out to the address to listen on: the only address of the card, or all addresses of the
 * host. Returns its size. */
static socklen_t bind_address(const tsr__card *card, struct sockaddr_storage *out)
{
    const bool has_one = card->address_count == 1;
    memset(out, 0, sizeof *out);
    if (has_one && card->addresses[0].family == 4) {
        struct sockaddr_in v4 = {.sin_family = AF_INET};
        memcpy(&v4.sin_addr, card->addresses[0].bytes, sizeof v4.sin_addr);
        memcpy(out, &v4, sizeof v4);
        return sizeof v4;
    }
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (has_one)
        memcpy(&v6.sin6_addr, card->addresses[0].bytes, sizeof v6.sin6_addr);
    memcpy(out, &v6, sizeof v6);
    return sizeof v6;
}

static int listen_on(struct sockaddr_storage *address, socklen_t size, uint32_t *port)
{
    const int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (address->ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){0}, sizeof(int));
    struct sockaddr_storage bound;
    socklen_t bound_size = sizeof bound;
    if (bind(fd, (const struct sockaddr *)address, size) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound, &bound_size) != 0) {
        const int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    if (bound.ss_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, &bound, sizeof v6);
        *port = ntohs(v6.sin6_port);
    } else {
        struct sockaddr_in v4;
        memcpy(&v4, &bound, sizeof v4);
        *port = ntohs(v4.sin_port);
    }
    return fd;
}

static void start_listening(tsr__recovery *recovery)
{
    struct sockaddr_storage address;
    const socklen_t size = bind_address(&recovery->card, &address);
    recovery->listener = listen_on(&address, size, &recovery->card.port);
    /* the host may have no IPv6: listen with IPv4 only */
    if (recovery->listener < 0 && recovery->card.address_count > 1) {
        struct sockaddr_in any = {.sin_family = AF_INET};
        memset(&address, 0, sizeof address);
        memcpy(&address, &any, sizeof any);
        recovery->listener = listen_on(&address, sizeof any, &recovery->card.port);
    }
    if (recovery->listener >= 0)
        return;
    (void)snprintf(recovery->why, sizeof recovery->why, "%s", strerror(errno));
    recovery->card.port = 0;
    tsr__log(TSR_LOG_INFO, "comm: this rank cannot listen for others after a failure: %s",
             recovery->why);
}

tsr_status tsr__recovery_open(const tsr__bootstrap_info *info, tsr__recovery **out)
{
    tsr__recovery *recovery = tsr__calloc(1, sizeof *recovery);
    if (!recovery)
        return TSR_ERR_NO_MEMORY;
    recovery->references = 1;
    do
        randombytes_buf(&recovery->card.uid, sizeof recovery->card.uid);
    while (recovery->card.uid == 0);
    choose_addresses(&recovery->card, info);
    start_listening(recovery);
    *out = recovery;
    return TSR_OK;
}

void tsr__recovery_retain(tsr__recovery *recovery)
{
    recovery->references++;
}

void tsr__recovery_release(tsr__recovery **recovery)
{
    tsr__recovery *released = *recovery;
    *recovery = NULL;
    if (!released || --released->references > 0)
        return;
    if (released->listener >= 0)
        close(released->listener);
    while (released->decisions) {
        tsr__decision *next = released->decisions->next;
        tsr__free(released->decisions);
        released->decisions = next;
    }
    tsr__free(released);
}

void tsr__recovery_draw_seed(tsr__recovery *recovery)
{
    randombytes_buf(recovery->card.seed, sizeof recovery->card.seed);
}

void tsr__roster_derive(tsr__roster *roster)
{
    const char *token = tsr__env_text("TESSERA_TOKEN");
    const uint8_t *seed = roster->cards[0].seed;
    static const char purpose[] = "tessera recovery key";
    uint8_t digest[TSR__WIRE_MAC];
    crypto_auth_hmacsha256_state mac;
    crypto_auth_hmacsha256_init(&mac, (const unsigned char *)(token ? token : ""),
                                token ? strlen(token) : 0);
    crypto_auth_hmacsha256_update(&mac, (const unsigned char *)purpose, sizeof purpose);
    crypto_auth_hmacsha256_update(&mac, seed, sizeof roster->cards[0].seed);
    crypto_auth_hmacsha256_final(&mac, roster->key);
    crypto_generichash(digest, sizeof digest, seed, sizeof roster->cards[0].seed, NULL, 0);
    roster->lineage = tsr__wire_get_u64(digest);
    roster->generation = 0;
}

/* Decisions ---------------------------------------------------------------------------------------
 */

const tsr__decision *tsr__recovery_find(const tsr__recovery *recovery, uint64_t lineage,
                                        uint32_t generation)
{
    const tsr__decision *found = recovery->decisions;
    while (found && (found->lineage != lineage || found->generation != generation))
        found = found->next;
    return found;
}

tsr_status tsr__recovery_keep(tsr__recovery *recovery, uint64_t lineage, uint32_t generation,
                              bool without_me, const uint64_t *uids, int count)
{
    if (tsr__recovery_find(recovery, lineage, generation))
        return TSR_OK;
    tsr__decision *decision =
        tsr__calloc(1, sizeof *decision + (size_t)count * sizeof decision->uids[0]);
    if (!decision)
        return TSR_ERR_NO_MEMORY;
    decision->lineage = lineage;
    decision->generation = generation;
    decision->without_me = without_me;
    decision->count = count;
    if (count > 0)
        memcpy(decision->uids, uids, (size_t)count * sizeof *uids);
    decision->next = recovery->decisions;
    recovery->decisions = decision;
    return TSR_OK;
}
