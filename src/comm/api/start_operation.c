/* Makes a request from the parameters of an operation. Checks the parameters, fills in the call
 * that all ranks compare, and prepares the schedule or the shared-memory operation. */
#include "comm/api/start_operation.h"

#include <inttypes.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/hash.h"
#include "comm/algorithms/choose.h"
#include "comm/api/comm.h"
#include "comm/failure/failure.h"
#include "comm/progress/progress.h"

/* How many elements this rank reads from `send` and writes to `recv`, and how they are divided into
 * blocks. */
typedef struct extents {
    const tsr__operation *operation;
    const char *name;
    int rank, size;
    tsr__blocks blocks, recv_blocks; /* recv_blocks is for all_to_all only */
    uint64_t send, recv;
    const uint8_t *same_send; /* the only address inside recv at which `send` may be, or NULL */
    const uint8_t *same_recv; /* the only address inside send at which `recv` may be, or NULL */
} extents;

/* Checks ------------------------------------------------------------------------------------------
 */

static bool is_reduction(tsr__call_kind kind)
{
    return kind <= TSR__CALL_REDUCE_SCATTER_V;
}

static bool has_root(tsr__call_kind kind)
{
    return kind == TSR__CALL_REDUCE || kind == TSR__CALL_BROADCAST || kind == TSR__CALL_GATHER ||
           kind == TSR__CALL_GATHER_V || kind == TSR__CALL_SCATTER || kind == TSR__CALL_SCATTER_V;
}

static bool is_direct(tsr__call_kind kind)
{
    return kind == TSR__CALL_SEND || kind == TSR__CALL_RECV;
}

static bool is_uneven(tsr__call_kind kind)
{
    return kind == TSR__CALL_REDUCE_SCATTER_V || kind == TSR__CALL_ALL_GATHER_V ||
           kind == TSR__CALL_GATHER_V || kind == TSR__CALL_SCATTER_V ||
           kind == TSR__CALL_ALL_TO_ALL_V;
}

static tsr_status check_arguments(const tsr_comm *comm, const tsr__operation *o, const char *name)
{
    if (o->kind != TSR__CALL_BARRIER)
        TSR__REQUIRE(tsr__element_size(o->dtype) != 0, "%s: unsupported dtype %d", name,
                     (int)o->dtype);
    if (is_reduction(o->kind))
        TSR__REQUIRE(o->op >= TSR_OP_SUM && o->op <= TSR_OP_PROD, "%s: unsupported op %d", name,
                     (int)o->op);
    if (has_root(o->kind))
        TSR__REQUIRE(o->peer >= 0 && o->peer < comm->size, "%s: root %d is not one of %d ranks",
                     name, o->peer, comm->size);
    if (is_direct(o->kind)) {
        TSR__REQUIRE(o->peer >= 0 && o->peer < comm->size, "%s: rank %d is not one of %d ranks",
                     name, o->peer, comm->size);
        TSR__REQUIRE(o->peer != comm->rank, "%s: rank %d is this rank itself", name, o->peer);
        TSR__REQUIRE(o->tag >= 0 && o->tag <= TSR_MAX_COMM_TAG, "%s: tag %d is not in 0..%d", name,
                     o->tag, TSR_MAX_COMM_TAG);
    }
    if (is_uneven(o->kind))
        TSR__REQUIRE(o->counts && (o->recv_counts || o->kind != TSR__CALL_ALL_TO_ALL_V),
                     "%s: counts is NULL", name);
    return TSR_OK;
}

static tsr_status check_bytes(const extents *e, uint64_t count)
{
    const uint64_t element = tsr__element_size(e->operation->dtype);
    if (count > INT64_MAX / (element ? element : 1))
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: %" PRIu64 " elements of %s are too many", e->name,
                         count, tsr__element_name(e->operation->dtype));
    return TSR_OK;
}

/* Fails if the total size of all ranks' blocks, of `each` elements each, is too large. */
static tsr_status check_even(const extents *e, uint64_t each)
{
    uint64_t total;
    if (!tsr__mul_u64(each, (uint64_t)e->size, &total))
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: %d blocks of %" PRIu64 " elements are too many",
                         e->name, e->size, each);
    return check_bytes(e, total);
}

static tsr_status add_up(const extents *e, const uint64_t *counts, uint64_t *starts)
{
    starts[0] = 0;
    for (int i = 0; i < e->size; i++) {
        if (!tsr__add_u64(starts[i], counts[i], &starts[i + 1]))
            return tsr__fail(TSR_ERR_OVERFLOW, "%s: the counts add up to too many", e->name);
    }
    return check_bytes(e, starts[e->size]);
}

static bool buffers_overlap(const uint8_t *a, uint64_t a_bytes, const uint8_t *b, uint64_t b_bytes)
{
    const uintptr_t a_start = (uintptr_t)a, b_start = (uintptr_t)b;
    return a_bytes > 0 && b_bytes > 0 && a_start < b_start + b_bytes && b_start < a_start + a_bytes;
}

static tsr_status check_buffers(const extents *e)
{
    const tsr__operation *o = e->operation;
    const uint64_t element = tsr__element_size(o->dtype);
    TSR__REQUIRE(o->send || e->send == 0, "%s: %s is NULL", e->name,
                 o->kind == TSR__CALL_SEND ? "data" : "send");
    TSR__REQUIRE(o->recv || e->recv == 0, "%s: %s is NULL", e->name,
                 o->kind == TSR__CALL_BROADCAST || o->kind == TSR__CALL_RECV ? "data" : "recv");
    const bool is_same = (e->same_send && e->same_send == o->send) ||
                         (e->same_recv && e->same_recv == (const uint8_t *)o->recv);
    TSR__REQUIRE(is_same ||
                     !buffers_overlap(o->send, e->send * element, o->recv, e->recv * element),
                 "%s: recv overlaps send", e->name);
    return TSR_OK;
}

/* Extents -----------------------------------------------------------------------------------------
 */

static const uint8_t *element_at(const void *start, const extents *e, uint64_t element)
{
    return start ? (const uint8_t *)start + element * tsr__element_size(e->operation->dtype) : NULL;
}

static void set_extents(extents *e)
{
    const tsr__operation *o = e->operation;
    const uint64_t total = tsr__block_start(&e->blocks, e->size);
    const uint64_t start = tsr__block_start(&e->blocks, e->rank);
    const uint64_t mine = tsr__block_count(&e->blocks, e->rank);
    const bool is_root = o->peer == e->rank;
    switch (o->kind) {
    case TSR__CALL_ALL_REDUCE:
        e->send = e->recv = o->count;
        e->same_recv = o->send;
        break;
    case TSR__CALL_REDUCE:
        e->send = o->count;
        e->recv = is_root ? o->count : 0;
        e->same_recv = o->send;
        break;
    case TSR__CALL_REDUCE_SCATTER:
    case TSR__CALL_REDUCE_SCATTER_V:
        e->send = total;
        e->recv = mine;
        e->same_recv = element_at(o->send, e, start);
        break;
    case TSR__CALL_ALL_GATHER:
    case TSR__CALL_ALL_GATHER_V:
    case TSR__CALL_SPLIT:
    case TSR__CALL_DUPLICATE:
    case TSR__CALL_CREATE:
    case TSR__CALL_GROW:
        e->send = mine;
        e->recv = total;
        e->same_send = element_at(o->recv, e, start);
        break;
    case TSR__CALL_GATHER:
    case TSR__CALL_GATHER_V:
        e->send = mine;
        e->recv = is_root ? total : 0;
        e->same_send = element_at(o->recv, e, start);
        break;
    case TSR__CALL_SCATTER:
    case TSR__CALL_SCATTER_V:
        e->send = is_root ? total : 0;
        e->recv = mine;
        e->same_recv = element_at(o->send, e, start);
        break;
    case TSR__CALL_ALL_TO_ALL:
        e->send = e->recv = total;
        e->same_recv = o->send;
        break;
    case TSR__CALL_ALL_TO_ALL_V:
        e->send = total;
        e->recv = tsr__block_start(&e->recv_blocks, e->size);
        break;
    case TSR__CALL_BROADCAST:
    case TSR__CALL_RECV:
        e->recv = o->count;
        break;
    case TSR__CALL_SEND:
        e->send = o->count;
        break;
    case TSR__CALL_BARRIER:
    case TSR__CALL_KINDS:
        break;
    }
}

static bool has_blocks(tsr__call_kind kind)
{
    return kind != TSR__CALL_ALL_REDUCE && kind != TSR__CALL_REDUCE &&
           kind != TSR__CALL_BROADCAST && kind != TSR__CALL_BARRIER && !is_direct(kind);
}

static tsr_status measure_buffers(tsr_request *request, extents *e)
{
    const tsr__operation *o = e->operation;
    e->blocks.each = e->recv_blocks.each = o->count;
    if (!is_uneven(o->kind)) {
        TSR__TRY(has_blocks(o->kind) ? check_even(e, o->count) : check_bytes(e, o->count));
    } else {
        void *starts = request->starts;
        const size_t each = (size_t)e->size + 1;
        tsr_status status =
            tsr__grow(&starts, &request->starts_capacity, 2 * each, sizeof *request->starts);
        request->starts = starts;
        TSR__TRY(status);
        e->blocks.starts = request->starts;
        TSR__TRY(add_up(e, o->counts, request->starts));
        if (o->recv_counts) {
            e->recv_blocks.starts = request->starts + each;
            TSR__TRY(add_up(e, o->recv_counts, request->starts + each));
        }
    }
    set_extents(e);
    return check_buffers(e);
}

/* The request -------------------------------------------------------------------------------------
 */

static uint64_t hash_counts(const uint64_t *counts, int size)
{
    const uint64_t hash = tsr__hash(TSR__HASH_START, counts, (size_t)size * sizeof *counts);
    return hash ? hash : 1;
}

static tsr__call call_of(const extents *e)
{
    const tsr__operation *o = e->operation;
    tsr__call call = {.kind = (uint8_t)o->kind, .peer = o->peer, .tag = (uint16_t)o->tag};
    if (o->kind != TSR__CALL_BARRIER)
        call.dtype = (uint8_t)o->dtype;
    if (is_reduction(o->kind))
        call.op = (uint8_t)o->op;
    if (!is_uneven(o->kind)) {
        call.count = o->count;
    } else if (o->kind == TSR__CALL_REDUCE_SCATTER_V || o->kind == TSR__CALL_ALL_GATHER_V) {
        call.count = tsr__block_start(&e->blocks, e->size);
        call.counts = hash_counts(o->counts, e->size);
    }
    return call;
}

/* Returns whether contributions must be combined exactly (reduce/exact_combine.h): the communicator
 * is reproducible, and with this dtype and op the order in which they are combined could change the
 * result. */
static bool is_exact(const tsr_comm *comm, const tsr__operation *o)
{
    const bool is_float =
        o->dtype == TSR_F32 || o->dtype == TSR_F64 || o->dtype == TSR_F16 || o->dtype == TSR_BF16;
    return comm->reproducible && is_reduction(o->kind) && is_float && o->op != TSR_OP_MIN &&
           o->op != TSR_OP_MAX;
}

/* Makes the schedule of a request. Returns whether it may contain inner steps, collectives of the
 * ranks of one subtree (algorithms/hierarchical.h). */
static bool make_schedule(tsr_request *request, const extents *e)
{
    const tsr__operation *o = e->operation;
    const tsr_comm *comm = request->comm;
    const tsr__collective collective = {
        .kind = o->kind,
        .size = e->size,
        .rank = e->rank,
        .hierarchy = comm->hierarchy.subtrees > 1 ? &comm->hierarchy : NULL,
        .count = o->count,
        .element_bytes = request->element_bytes,
        .peer = o->peer,
        .blocks = &e->blocks,
        .recv_blocks = o->recv_counts ? &e->recv_blocks : &e->blocks,
        .in_place = o->send == o->recv && e->send > 0,
        .exact = is_exact(comm, o),
        .is_near = request->job->is_near,
        .all_near = request->job->all_near};
    return tsr__choose_schedule(&request->schedule, &collective);
}

static void prepare_shm(tsr_request *request, const extents *e)
{
    tsr__shm_operation *operation = &request->shm;
    operation->kind = e->operation->kind;
    operation->root = request->call.peer;
    operation->count = request->call.count;
    operation->send = request->send;
    operation->recv = request->recv;
    operation->element_bytes = request->element_bytes;
    operation->combine = request->combine;
    operation->divide = request->divide;
    operation->exact = is_exact(request->comm, e->operation);
    operation->blocks = e->blocks;
    tsr__shm_prepare(e->size, operation);
    request->in_shm = true;
}

static tsr_status prepare_request(tsr_request *request, const tsr__operation *o)
{
    tsr_comm *comm = request->comm;
    extents e = {.operation = o,
                 .name = tsr__call_name((int)o->kind),
                 .rank = comm->rank,
                 .size = comm->size};
    TSR__TRY(check_arguments(comm, o, e.name));
    TSR__TRY(measure_buffers(request, &e));
    request->call = call_of(&e);
    request->send = o->send;
    request->recv = o->recv;
    request->element_bytes = tsr__element_size(o->dtype);
    request->timeout_ns = comm->timeout_ns;
    if (is_reduction(o->kind)) {
        request->combine = comm->job->kernels->combine[o->dtype][o->op];
        request->divide = o->op == TSR_OP_AVG ? comm->job->kernels->divide[o->dtype] : NULL;
    }
    if (comm->shm && comm->hierarchy.subtrees == 1 && tsr__choose_shared_memory(o->kind))
        prepare_shm(request, &e);
    request->is_hierarchical = !request->in_shm && make_schedule(request, &e);
    return TSR_OK;
}

/* Handles the messages that other ranks have sent, before this rank sends more messages to them. */
static tsr_status receive_first(tsr_comm *comm)
{
    tsr__job_progress_all(comm->job);
    return comm->status == TSR_OK ? TSR_OK : tsr__fail(comm->status, "%s", comm->why);
}

static tsr_status start_checked(tsr_comm *comm, const tsr__operation *operation, tsr_request **out)
{
    const char *name = tsr__call_name((int)operation->kind);
    tsr_request *request;
    TSR__REQUIRE(comm, "%s: comm is NULL", name);
    TSR__TRY(tsr__job_refuse_child(comm->job, name));
    if (comm->status != TSR_OK)
        return tsr__fail(comm->status, "%s", comm->why);
    /* comm->held counts all requests that the caller has not released, also completed ones. The
     * number in progress is not used, because it differs between ranks at any time, and all ranks
     * must refuse the same call. */
    TSR__REQUIRE(comm->held < TSR_MAX_COMM_REQUESTS,
                 "%s: %d requests have been started and not been waited for", name, comm->held);
    TSR__TRY(tsr__request_create(comm, &request));
    tsr_status status = prepare_request(request, operation);
    if (status == TSR_OK && !request->in_shm)
        status = receive_first(comm);
    if (status == TSR_OK)
        status = tsr__request_start(request);
    if (status != TSR_OK) {
        tsr__request_release(request);
        return status;
    }
    *out = request;
    return TSR_OK;
}

tsr_status tsr__operation_start(tsr_comm *comm, const tsr__operation *operation, tsr_request **out)
{
    tsr_request *request = NULL;
    TSR__TRY(start_checked(comm, operation, &request));
    if (!request->done && request->started_ns == 0)
        tsr__request_start_clock(request, tsr__now_ns());
    *out = request;
    return TSR_OK;
}

tsr_status tsr__operation_run(tsr_comm *comm, const tsr__operation *operation)
{
    tsr_request *request = NULL;
    /* Does not read the clock to set a deadline, because most operations in shared memory complete
     * long before it; tsr__job_check_deadlines sets the deadline of those that do not. */
    TSR__TRY(start_checked(comm, operation, &request));
    return tsr_request_wait(&request);
}

tsr_status tsr__comm_all_gather_as(tsr_comm *comm, tsr__call_kind kind, const void *send,
                                   void *recv, uint64_t size_bytes)
{
    return tsr__operation_run(
        comm, &(tsr__operation){
                  .kind = kind, .send = send, .recv = recv, .count = size_bytes, .dtype = TSR_U8});
}
