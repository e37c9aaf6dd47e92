/* getaddrinfo with a deadline. It has none itself, and name servers that do not answer take it half
 * a minute and more. */
#ifndef TSR_COMM_BOOTSTRAP_LOOKUP_H
#define TSR_COMM_BOOTSTRAP_LOOKUP_H

#include <netdb.h>
#include <stdint.h>

#include "tessera/base.h"

/* TCP addresses of a name or number, for freeaddrinfo. Errors, recorded: TSR_ERR_INVALID for a name
 * that stands for nothing; TSR_ERR_IO for what may be over another time; TSR_ERR_TIMEOUT;
 * TSR_ERR_NO_MEMORY. */
tsr_status tsr__lookup(const char *host, uint16_t port, uint64_t deadline_ns,
                       struct addrinfo **out) TSR_NODISCARD;

#endif
