/* An operation with the parameters that the caller passed, from which a request is made. */
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
    uint64_t count; /* of each block if all blocks have the same size; otherwise of all data */
    /* Block sizes, for kinds that end in _V: all_to_all_v has them for both buffers; all_gather_v
     * and gather_v for recv; the others for send. */
    const uint64_t *counts, *recv_counts;
    uint64_t timeout_ns; /* 0: the communicator's */
} tsr__operation;

/* Checks the parameters and starts the operation. On failure it has not started. */
tsr_status tsr__operation_start(tsr_comm *comm, const tsr__operation *operation,
                                tsr_request **out) TSR_NODISCARD;
/* Starts it and blocks until it is done. */
tsr_status tsr__operation_run(tsr_comm *comm, const tsr__operation *operation) TSR_NODISCARD;
/* An all-gather of bytes that counts as a call of another kind. */
tsr_status tsr__comm_all_gather_as(tsr_comm *comm, tsr__call_kind kind, const void *send,
                                   void *recv, uint64_t size_bytes) TSR_NODISCARD;

#endif
