/* Requests that modules above comm implement, such as those of groups (parallel/group). The public
 * functions of requests call the methods of such a request. */
#ifndef TSR_COMM_REQUEST_METHODS_H
#define TSR_COMM_REQUEST_METHODS_H

#include "tessera/comm.h"

/* The functions behind tsr_request_test, tsr_request_wait and tsr_request_cancel. *request is never
 * NULL. */
typedef struct tsr__request_methods {
    tsr_status (*test)(tsr_request **request, bool *done);
    tsr_status (*wait)(tsr_request **request);
    void (*cancel)(tsr_request **request);
} tsr__request_methods;

/* The first member of every request, to which a tsr_request * points. */
typedef struct tsr__request_base {
    const tsr__request_methods *methods; /* NULL: the request of a communicator */
} tsr__request_base;

#endif
