/* Where rank 0 is. */
#ifndef TSR_COMM_BOOT_ADDRESS_H
#define TSR_COMM_BOOT_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "comm/boot/channel.h"

typedef struct tsr__address {
    struct sockaddr_storage storage;
    socklen_t size;
    bool loopback;
    char text[TSR__PEER_SIZE]; /* "127.0.0.1:29501", "[::1]:29501" */
} tsr__address;

/* Looks a name or number up; of several addresses the first that is not loopback, as a machine's
 * own name is often listed with 127.0.1.1 too. NULL, or what is wrong, in static storage. May wait
 * for DNS. */
const char *tsr__address_find(const char *host, uint16_t port, tsr__address *out);

/* The same for an address that accept() gave. */
void tsr__address_describe(tsr__address *address);

#endif
