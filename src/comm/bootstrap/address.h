/* Where rank 0 is. */
#ifndef TSR_COMM_BOOTSTRAP_ADDRESS_H
#define TSR_COMM_BOOTSTRAP_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>

#include "comm/bootstrap/channel.h"
#include "tessera/base.h"

typedef struct tsr__address {
    struct sockaddr_storage storage;
    socklen_t size;
    bool loopback;
    char text[TSR__ADDRESS_TEXT_SIZE]; /* "127.0.0.1:29501", "[::1]:29501" */
} tsr__address;

/* Looks a name or number up; of several addresses the first that is not loopback, as a machine's
 * own name is often listed with 127.0.1.1 too. Errors say what is wrong, not with what: those of
 * tsr__lookup, and TSR_ERR_INVALID for addresses that are no one machine's. */
tsr_status tsr__address_find(const char *host, uint16_t port, uint64_t deadline_ns,
                             tsr__address *out) TSR_NODISCARD;

/* The same for an address that accept() gave. */
void tsr__address_describe(tsr__address *address);

#endif
