/* Internet addresses of rank 0 and of the processes that connect to it. */
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
    char text[TSR__ADDRESS_TEXT_SIZE]; /* for example "127.0.0.1:29501" or "[::1]:29501" */
} tsr__address;

/* Finds the address of a host name or a numeric address. If a name has several addresses, takes the
 * first that is not loopback, because a machine's own name is often listed with 127.0.1.1 as well.
 * Errors, whose recorded text does not contain the name: TSR_ERR_INVALID for a name that does not
 * exist or an address that does not belong to a single machine; TSR_ERR_IO for a failure that may
 * be temporary; TSR_ERR_TIMEOUT; TSR_ERR_NO_MEMORY. */
tsr_status tsr__address_find(const char *host, uint16_t port, uint64_t deadline_ns,
                             tsr__address *out) TSR_NODISCARD;

/* Returns whether this host has the address. */
bool tsr__address_is_here(const tsr__address *address);

/* Sets the members `loopback` and `text` of an address that accept() has returned. */
void tsr__address_describe(tsr__address *address);

#endif
