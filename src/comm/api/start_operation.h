/* Starts an operation: checks the parameters that the caller has passed, and makes a request. */
#ifndef TSR_COMM_API_START_OPERATION_H
#define TSR_COMM_API_START_OPERATION_H

#include "comm/comm_state.h"

typedef struct tsr__operation {
    tsr__call_kind kind;
    tsr_dtype dtype;
    tsr_op op;
    int peer, tag; /* `peer` is root, or the other rank of a send or receive */
    const void *send;
    void *recv;
    /* in elements: the size of each rank's block if the operation has blocks of equal size,
     * otherwise of all data */
    uint64_t count;
    /* Block sizes, for the kinds whose names end in _V. In all_to_all_v, `counts` is for send and
     * `recv_counts` for recv. `counts` is for recv in all_gather_v and gather_v, and for send in
     * the others. */
    const uint64_t *counts, *recv_counts;
} tsr__operation;

/* Checks the parameters and starts the operation. On failure it has not started. */
tsr_status tsr__operation_start(tsr_comm *comm, const tsr__operation *operation,
                                tsr_request **out) TSR_NODISCARD;
/* Starts the operation and blocks until it has completed. */
tsr_status tsr__operation_run(tsr_comm *comm, const tsr__operation *operation) TSR_NODISCARD;
/* Runs an all-gather of bytes whose call (collective_call.h) has the given kind, so that errors on
 * this and other ranks name, for example, a split instead of an all-gather. */
tsr_status tsr__comm_all_gather_as(tsr_comm *comm, tsr__call_kind kind, const void *send,
                                   void *recv, uint64_t size_bytes) TSR_NODISCARD;

#endif
