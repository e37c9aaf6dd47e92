/* The public functions of collectives, send and receive. Each maps its parameters to a
 * tsr__operation. */
#include "comm/api/start_operation.h"

static tsr_status run_operation(tsr_comm *comm, tsr__operation operation)
{
    return tsr__operation_run(comm, &operation);
}

static tsr_status start_operation(tsr_comm *comm, tsr__operation operation, uint64_t timeout_ns,
                                  tsr_request **out)
{
    operation.timeout_ns = timeout_ns;
    return tsr__operation_start(comm, &operation, out);
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
                               tsr_dtype dtype, tsr_op op)
{
    return run_operation(comm,
                         with_op(exchange_of(TSR__CALL_ALL_REDUCE, send, recv, count, dtype), op));
}

tsr_status tsr_comm_all_reduce_start(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                     tsr_dtype dtype, tsr_op op, uint64_t timeout_ns,
                                     tsr_request **out)
{
    return start_operation(comm,
                           with_op(exchange_of(TSR__CALL_ALL_REDUCE, send, recv, count, dtype), op),
                           timeout_ns, out);
}

tsr_status tsr_comm_reduce(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                           tsr_dtype dtype, tsr_op op, int root)
{
    return run_operation(
        comm,
        with_root(with_op(exchange_of(TSR__CALL_REDUCE, send, recv, count, dtype), op), root));
}

tsr_status tsr_comm_reduce_start(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                 tsr_dtype dtype, tsr_op op, int root, uint64_t timeout_ns,
                                 tsr_request **out)
{
    return start_operation(
        comm, with_root(with_op(exchange_of(TSR__CALL_REDUCE, send, recv, count, dtype), op), root),
        timeout_ns, out);
}

tsr_status tsr_comm_reduce_scatter(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                   tsr_dtype dtype, tsr_op op)
{
    return run_operation(
        comm, with_op(exchange_of(TSR__CALL_REDUCE_SCATTER, send, recv, count, dtype), op));
}

tsr_status tsr_comm_reduce_scatter_start(tsr_comm *comm, const void *send, void *recv,
                                         uint64_t count, tsr_dtype dtype, tsr_op op,
                                         uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(
        comm, with_op(exchange_of(TSR__CALL_REDUCE_SCATTER, send, recv, count, dtype), op),
        timeout_ns, out);
}

tsr_status tsr_comm_reduce_scatter_v(tsr_comm *comm, const void *send, void *recv,
                                     const uint64_t *counts, tsr_dtype dtype, tsr_op op)
{
    return run_operation(
        comm, with_op(exchange_v_of(TSR__CALL_REDUCE_SCATTER_V, send, recv, counts, dtype), op));
}

tsr_status tsr_comm_reduce_scatter_v_start(tsr_comm *comm, const void *send, void *recv,
                                           const uint64_t *counts, tsr_dtype dtype, tsr_op op,
                                           uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(
        comm, with_op(exchange_v_of(TSR__CALL_REDUCE_SCATTER_V, send, recv, counts, dtype), op),
        timeout_ns, out);
}

tsr_status tsr_comm_all_gather(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                               tsr_dtype dtype)
{
    return run_operation(comm, exchange_of(TSR__CALL_ALL_GATHER, send, recv, count, dtype));
}

tsr_status tsr_comm_all_gather_start(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                     tsr_dtype dtype, uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(comm, exchange_of(TSR__CALL_ALL_GATHER, send, recv, count, dtype),
                           timeout_ns, out);
}

tsr_status tsr_comm_all_gather_v(tsr_comm *comm, const void *send, void *recv,
                                 const uint64_t *counts, tsr_dtype dtype)
{
    return run_operation(comm, exchange_v_of(TSR__CALL_ALL_GATHER_V, send, recv, counts, dtype));
}

tsr_status tsr_comm_all_gather_v_start(tsr_comm *comm, const void *send, void *recv,
                                       const uint64_t *counts, tsr_dtype dtype, uint64_t timeout_ns,
                                       tsr_request **out)
{
    return start_operation(comm, exchange_v_of(TSR__CALL_ALL_GATHER_V, send, recv, counts, dtype),
                           timeout_ns, out);
}

static tsr__operation broadcast_of(void *data, uint64_t count, tsr_dtype dtype, int root)
{
    return (tsr__operation){
        .kind = TSR__CALL_BROADCAST, .recv = data, .count = count, .dtype = dtype, .peer = root};
}

tsr_status tsr_comm_broadcast(tsr_comm *comm, void *data, uint64_t count, tsr_dtype dtype, int root)
{
    return run_operation(comm, broadcast_of(data, count, dtype, root));
}

tsr_status tsr_comm_broadcast_start(tsr_comm *comm, void *data, uint64_t count, tsr_dtype dtype,
                                    int root, uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(comm, broadcast_of(data, count, dtype, root), timeout_ns, out);
}

tsr_status tsr_comm_gather(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                           tsr_dtype dtype, int root)
{
    return run_operation(comm,
                         with_root(exchange_of(TSR__CALL_GATHER, send, recv, count, dtype), root));
}

tsr_status tsr_comm_gather_start(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                 tsr_dtype dtype, int root, uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(comm,
                           with_root(exchange_of(TSR__CALL_GATHER, send, recv, count, dtype), root),
                           timeout_ns, out);
}

tsr_status tsr_comm_gather_v(tsr_comm *comm, const void *send, void *recv, const uint64_t *counts,
                             tsr_dtype dtype, int root)
{
    return run_operation(
        comm, with_root(exchange_v_of(TSR__CALL_GATHER_V, send, recv, counts, dtype), root));
}

tsr_status tsr_comm_gather_v_start(tsr_comm *comm, const void *send, void *recv,
                                   const uint64_t *counts, tsr_dtype dtype, int root,
                                   uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(
        comm, with_root(exchange_v_of(TSR__CALL_GATHER_V, send, recv, counts, dtype), root),
        timeout_ns, out);
}

tsr_status tsr_comm_scatter(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                            tsr_dtype dtype, int root)
{
    return run_operation(comm,
                         with_root(exchange_of(TSR__CALL_SCATTER, send, recv, count, dtype), root));
}

tsr_status tsr_comm_scatter_start(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                  tsr_dtype dtype, int root, uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(
        comm, with_root(exchange_of(TSR__CALL_SCATTER, send, recv, count, dtype), root), timeout_ns,
        out);
}

tsr_status tsr_comm_scatter_v(tsr_comm *comm, const void *send, void *recv, const uint64_t *counts,
                              tsr_dtype dtype, int root)
{
    return run_operation(
        comm, with_root(exchange_v_of(TSR__CALL_SCATTER_V, send, recv, counts, dtype), root));
}

tsr_status tsr_comm_scatter_v_start(tsr_comm *comm, const void *send, void *recv,
                                    const uint64_t *counts, tsr_dtype dtype, int root,
                                    uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(
        comm, with_root(exchange_v_of(TSR__CALL_SCATTER_V, send, recv, counts, dtype), root),
        timeout_ns, out);
}

tsr_status tsr_comm_all_to_all(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                               tsr_dtype dtype)
{
    return run_operation(comm, exchange_of(TSR__CALL_ALL_TO_ALL, send, recv, count, dtype));
}

tsr_status tsr_comm_all_to_all_start(tsr_comm *comm, const void *send, void *recv, uint64_t count,
                                     tsr_dtype dtype, uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(comm, exchange_of(TSR__CALL_ALL_TO_ALL, send, recv, count, dtype),
                           timeout_ns, out);
}

static tsr__operation all_to_all_v_of(const void *send, const uint64_t *send_counts, void *recv,
                                      const uint64_t *recv_counts, tsr_dtype dtype)
{
    return (tsr__operation){.kind = TSR__CALL_ALL_TO_ALL_V,
                            .send = send,
                            .counts = send_counts,
                            .recv = recv,
                            .recv_counts = recv_counts,
                            .dtype = dtype};
}

tsr_status tsr_comm_all_to_all_v(tsr_comm *comm, const void *send, const uint64_t *send_counts,
                                 void *recv, const uint64_t *recv_counts, tsr_dtype dtype)
{
    return run_operation(comm, all_to_all_v_of(send, send_counts, recv, recv_counts, dtype));
}

tsr_status tsr_comm_all_to_all_v_start(tsr_comm *comm, const void *send,
                                       const uint64_t *send_counts, void *recv,
                                       const uint64_t *recv_counts, tsr_dtype dtype,
                                       uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(comm, all_to_all_v_of(send, send_counts, recv, recv_counts, dtype),
                           timeout_ns, out);
}

static tsr__operation barrier_of(void)
{
    return (tsr__operation){.kind = TSR__CALL_BARRIER};
}

tsr_status tsr_comm_barrier(tsr_comm *comm)
{
    return run_operation(comm, barrier_of());
}

tsr_status tsr_comm_barrier_start(tsr_comm *comm, uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(comm, barrier_of(), timeout_ns, out);
}

static tsr__operation send_of(const void *data, uint64_t count, tsr_dtype dtype, int to, int tag)
{
    return (tsr__operation){.kind = TSR__CALL_SEND,
                            .send = data,
                            .count = count,
                            .dtype = dtype,
                            .peer = to,
                            .tag = tag};
}

tsr_status tsr_comm_send(tsr_comm *comm, const void *data, uint64_t count, tsr_dtype dtype, int to,
                         int tag)
{
    return run_operation(comm, send_of(data, count, dtype, to, tag));
}

tsr_status tsr_comm_send_start(tsr_comm *comm, const void *data, uint64_t count, tsr_dtype dtype,
                               int to, int tag, uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(comm, send_of(data, count, dtype, to, tag), timeout_ns, out);
}

static tsr__operation recv_of(void *data, uint64_t count, tsr_dtype dtype, int from, int tag)
{
    return (tsr__operation){.kind = TSR__CALL_RECV,
                            .recv = data,
                            .count = count,
                            .dtype = dtype,
                            .peer = from,
                            .tag = tag};
}

tsr_status tsr_comm_recv(tsr_comm *comm, void *data, uint64_t count, tsr_dtype dtype, int from,
                         int tag)
{
    return run_operation(comm, recv_of(data, count, dtype, from, tag));
}

tsr_status tsr_comm_recv_start(tsr_comm *comm, void *data, uint64_t count, tsr_dtype dtype,
                               int from, int tag, uint64_t timeout_ns, tsr_request **out)
{
    return start_operation(comm, recv_of(data, count, dtype, from, tag), timeout_ns, out);
}
