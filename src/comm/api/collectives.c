/* The public functions of collectives, send and receive. Each maps its parameters to a
 * tsr__operation. */
#include "comm/api/start_operation.h"

/* Starts the operation, and blocks until it is done if `request` is NULL. */
static tsr_status start_or_run(tsr_comm *comm, tsr__operation operation, tsr_request **request)
{
    return request ? tsr__operation_start(comm, &operation, request)
                   : tsr__operation_run(comm, &operation);
}

/* The operations below fill in their common fields with exchange_of or exchange_v_of. */

static tsr__operation exchange_of(tsr__call_kind kind, const void *send, void *recv, uint64_t count,
                                  tsr_dtype dtype)
{
    return (tsr__operation){
        .kind = kind, .send = send, .recv = recv, .count = count, .dtype = dtype};
}

static tsr__operation exchange_v_of(tsr__call_kind kind, const void *send, void *recv,
                                    const uint64_t *counts, tsr_dtype dtype)
{
    return (tsr__operation){
        .kind = kind, .send = send, .recv = recv, .counts = counts, .dtype = dtype};
}

static tsr__operation with_op(tsr__operation operation, tsr_op op)
{
    operation.op = op;
    return operation;
}

static tsr__operation with_root(tsr__operation operation, int root)
{
    operation.peer = root;
    return operation;
}

tsr_status tsr_comm_all_reduce(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                               tsr_dtype dtype, tsr_op op, tsr_request **request)
{
    return start_or_run(
        comm, with_op(exchange_of(TSR__CALL_ALL_REDUCE, send, recv, count, dtype), op), request);
}

tsr_status tsr_comm_reduce(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                           tsr_dtype dtype, tsr_op op, int root, tsr_request **request)
{
    return start_or_run(
        comm, with_root(with_op(exchange_of(TSR__CALL_REDUCE, send, recv, count, dtype), op), root),
        request);
}

tsr_status tsr_comm_reduce_scatter(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                   tsr_dtype dtype, tsr_op op, tsr_request **request)
{
    return start_or_run(
        comm, with_op(exchange_of(TSR__CALL_REDUCE_SCATTER, send, recv, count, dtype), op),
        request);
}

tsr_status tsr_comm_reduce_scatter_v(tsr_comm *comm, const void *send, void *recv,
                                     const uint64_t *counts, tsr_dtype dtype, tsr_op op,
                                     tsr_request **request)
{
    return start_or_run(
        comm, with_op(exchange_v_of(TSR__CALL_REDUCE_SCATTER_V, send, recv, counts, dtype), op),
        request);
}

tsr_status tsr_comm_all_gather(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                               tsr_dtype dtype, tsr_request **request)
{
    return start_or_run(comm, exchange_of(TSR__CALL_ALL_GATHER, send, recv, count, dtype), request);
}

tsr_status tsr_comm_all_gather_v(tsr_comm *comm, const void *send, void *recv,
                                 const uint64_t *counts, tsr_dtype dtype, tsr_request **request)
{
    return start_or_run(comm, exchange_v_of(TSR__CALL_ALL_GATHER_V, send, recv, counts, dtype),
                        request);
}

tsr_status tsr_comm_broadcast(tsr_comm *comm, void *data, uint64_t count, tsr_dtype dtype, int root,
                              tsr_request **request)
{
    return start_or_run(comm,
                        (tsr__operation){.kind = TSR__CALL_BROADCAST,
                                         .recv = data,
                                         .count = count,
                                         .dtype = dtype,
                                         .peer = root},
                        request);
}

tsr_status tsr_comm_gather(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                           tsr_dtype dtype, int root, tsr_request **request)
{
    return start_or_run(
        comm, with_root(exchange_of(TSR__CALL_GATHER, send, recv, count, dtype), root), request);
}

tsr_status tsr_comm_gather_v(tsr_comm *comm, const void *send, void *recv, const uint64_t *counts,
                             tsr_dtype dtype, int root, tsr_request **request)
{
    return start_or_run(
        comm, with_root(exchange_v_of(TSR__CALL_GATHER_V, send, recv, counts, dtype), root),
        request);
}

tsr_status tsr_comm_scatter(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                            tsr_dtype dtype, int root, tsr_request **request)
{
    return start_or_run(
        comm, with_root(exchange_of(TSR__CALL_SCATTER, send, recv, count, dtype), root), request);
}

tsr_status tsr_comm_scatter_v(tsr_comm *comm, const void *send, void *recv, const uint64_t *counts,
                              tsr_dtype dtype, int root, tsr_request **request)
{
    return start_or_run(
        comm, with_root(exchange_v_of(TSR__CALL_SCATTER_V, send, recv, counts, dtype), root),
        request);
}

tsr_status tsr_comm_all_to_all(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                               tsr_dtype dtype, tsr_request **request)
{
    return start_or_run(comm, exchange_of(TSR__CALL_ALL_TO_ALL, send, recv, count, dtype), request);
}

tsr_status tsr_comm_all_to_all_v(tsr_comm *comm, const void *send, const uint64_t *send_counts,
                                 void *recv, const uint64_t *recv_counts, tsr_dtype dtype,
                                 tsr_request **request)
{
    return start_or_run(comm,
                        (tsr__operation){.kind = TSR__CALL_ALL_TO_ALL_V,
                                         .send = send,
                                         .counts = send_counts,
                                         .recv = recv,
                                         .recv_counts = recv_counts,
                                         .dtype = dtype},
                        request);
}

tsr_status tsr_comm_barrier(tsr_comm *comm, tsr_request **request)
{
    return start_or_run(comm, (tsr__operation){.kind = TSR__CALL_BARRIER}, request);
}

tsr_status tsr_comm_send(tsr_comm *comm, const void *data, uint64_t count, tsr_dtype dtype, int to,
                         int tag, tsr_request **request)
{
    return start_or_run(comm,
                        (tsr__operation){.kind = TSR__CALL_SEND,
                                         .send = data,
                                         .count = count,
                                         .dtype = dtype,
                                         .peer = to,
                                         .tag = tag},
                        request);
}

tsr_status tsr_comm_recv(tsr_comm *comm, void *data, uint64_t count, tsr_dtype dtype, int from,
                         int tag, tsr_request **request)
{
    return start_or_run(comm,
                        (tsr__operation){.kind = TSR__CALL_RECV,
                                         .recv = data,
                                         .count = count,
                                         .dtype = dtype,
                                         .peer = from,
                                         .tag = tag},
                        request);
}
