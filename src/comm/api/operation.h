/* One operation as the caller asked for it, on its way to being a request. */
#ifndef TSR_COMM_API_OPERATION_H
#define TSR_COMM_API_OPERATION_H

#include "comm/job.h"

typedef struct tsr__operation {
    tsr__call_kind kind;
    tsr_dtype dtype;
    tsr_op op;
    int peer, tag; /* root, or the other rank of a message */
    const void *send;
    void *recv;
    uint64_t count; /* of a block where blocks are alike, else of everything */
    /* Of kinds that end in _V; send's on all but all_to_all's, and all_gather's, where they are
     * recv's. */
    const uint64_t *counts, *recv_counts;
    uint64_t timeout_ns; /* 0: the communicator's */
} tsr__operation;

/* Checks everything, and starts. On failure nothing has started. */
tsr_status tsr__operation_start(tsr_comm *comm, const tsr__operation *operation,
                                tsr_request **out) TSR_NODISCARD;
/* Starts it and blocks until it is done. */
tsr_status tsr__operation_run(tsr_comm *comm, const tsr__operation *operation) TSR_NODISCARD;
/* An all-gather of bytes that counts as a call of another kind. */
tsr_status tsr__comm_all_gather_as(tsr_comm *comm, tsr__call_kind kind, const void *send,
                                   void *recv, uint64_t size_bytes) TSR_NODISCARD;

#endif
