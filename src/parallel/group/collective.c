/* The public operations. They check their arguments, prepare contiguous tensors on the device, and
 * start requests. */
#include "base/checked.h"
#include "base/struct_size.h"
#include "gpu/internal.h"
#include "parallel/group/group.h"
#include "tensor/check.h"
#include "tessera/ops.h"

#define SHAPE_OF(layout) TSR__SHAPE((layout)->ndim, (layout)->shape)

/* Arguments ---------------------------------------------------------------------------------- */

static tsr_status check_group(const char *who, const tsr_group *group)
{
    TSR__REQUIRE(group, "%s: group is NULL", who);
    return TSR_OK;
}

static tsr_status check_tensor(const char *who, const char *name, const tsr_group *group,
                               const tsr_tensor *tensor)
{
    TSR__REQUIRE(tensor, "%s: %s is NULL", who, name);
    TSR__REQUIRE(tsr__tensor_device(tensor) == tsr_stream_device(group->stream),
                 "%s: %s is not on the device of the group's stream", who, name);
    return tsr__require_no_blocks(who, name, tensor);
}

/* Checks that the result can be written to a tensor. This is done before anything is sent, and also
 * in a group of one rank. */
static tsr_status check_output(const char *who, const char *name, const tsr_group *group,
                               const tsr_tensor *tensor)
{
    TSR__TRY(check_tensor(who, name, group, tensor));
    return tsr__require_writable(who, name, tensor);
}

static tsr_status check_in_and_out(const char *who, const tsr_group *group, const tsr_tensor *out,
                                   const tsr_tensor *in)
{
    TSR__TRY(check_group(who, group));
    TSR__TRY(check_output(who, "out", group, out));
    return check_tensor(who, "in", group, in);
}

static tsr_status check_op(const char *who, tsr_op op)
{
    TSR__REQUIRE(op >= TSR_OP_SUM && op <= TSR_OP_PROD, "%s: op %d is not a tsr_op", who, (int)op);
    return TSR_OK;
}

/* Stores the size of each rank's part along the request's dim. `whole` is the tensor that all parts
 * make up, and `part` is this rank's part. */
static tsr_status set_sizes(const char *who, tsr__group_request *request, const tsr_layout *whole,
                            const tsr_layout *part, const int64_t *sizes)
{
    const tsr_group *group = request->group;
    const int dim = request->dim;
    int64_t sum = 0;
    for (int r = 0; r < group->size; r++) {
        int64_t size = sizes ? sizes[r] : part->shape[dim];
        TSR__REQUIRE(size >= 0, "%s: rank %d has size %lld", who, r, (long long)size);
        TSR__REQUIRE(size <= INT64_MAX - sum, "%s: the sizes of %d ranks overflow", who, r + 1);
        sum += size;
        request->sizes[r] = size;
    }
    TSR__REQUIRE(request->sizes[group->rank] == part->shape[dim],
                 "%s: rank %d has size %lld, its part is %s", who, group->rank,
                 (long long)request->sizes[group->rank], SHAPE_OF(part));
    bool fits = part->ndim == whole->ndim && part->dtype == whole->dtype;
    for (int d = 0; fits && d < whole->ndim; d++)
        fits = whole->shape[d] == (d == dim ? sum : part->shape[d]);
    TSR__REQUIRE(
        fits,
        "%s: a part is %s %s and the sizes along dim %d add up to %lld, but the full tensor "
        "is %s %s",
        who, tsr_dtype_name(part->dtype), SHAPE_OF(part), dim, (long long)sum,
        tsr_dtype_name(whole->dtype), SHAPE_OF(whole));
    return TSR_OK;
}

static tsr_status set_dim(const char *who, const tsr_layout *whole, int dim, int *out)
{
    TSR__REQUIRE(dim >= -whole->ndim && dim < whole->ndim,
                 "%s: dim %d is outside a tensor of %d dimensions", who, dim, whole->ndim);
    *out = dim < 0 ? dim + whole->ndim : dim;
    return TSR_OK;
}

/* Requests ----------------------------------------------------------------------------------- */

static void set_counts(tsr__group_request *request, const tsr_layout *whole)
{
    int64_t row = 1;
    for (int d = 0; d < whole->ndim; d++)
        row *= d == request->dim ? 1 : whole->shape[d];
    for (int r = 0; r < request->group->size; r++) {
        request->counts[r] = (uint64_t)request->sizes[r] * (uint64_t)row;
        if (request->counts[r] > request->most)
            request->most = request->counts[r];
    }
    request->dtype = whole->dtype;
    request->size_bytes = (uint64_t)tsr_layout_count(whole) * tsr_dtype_size(whole->dtype);
}

/* Starts a request. `status` says whether the request could be prepared. If it could, the request
 * goes into the queue, or completes at once if there is nothing to send. If it could not, the
 * request is freed. Blocks until the request is done if `out` is NULL. */
static tsr_status start_request(tsr__group_request *request, tsr_status status, tsr_request **out)
{
    bool alone = request->group->size == 1;
    if (status == TSR_OK && !alone)
        status = tsr__group_check(request->group);
    if (status == TSR_OK && !alone && request->most > 0) {
        if (tsr__group_may_defer(request)) {
            if (out)
                *out = NULL;
            return tsr__group_defer(request);
        }
        /* Deferred requests come first, those of all groups of the stream. */
        status = tsr__stream_settle(request->group->stream);
    }
    if (status == TSR_OK && (alone || request->most == 0))
        tsr__group_done(request);
    else if (status == TSR_OK)
        status = tsr__group_enqueue(request);
    if (status != TSR_OK) {
        tsr__group_request_free(request);
        return status;
    }
    tsr_request *started = (tsr_request *)(void *)request;
    if (!out)
        return tsr_request_wait(&started);
    *out = started;
    return TSR_OK;
}

/* Slow connections --------------------------------------------------------------------------- */

/* Checks the wire of the caller's params, and sets *narrows to whether data are sent in it. */
static tsr_status check_wire(const char *who, const char *name, const tsr_tensor *tensor,
                             tsr_dtype wire, bool *narrows)
{
    const tsr_dtype dtype = tsr_tensor_layout(tensor)->dtype;
    *narrows = false;
    if (wire == 0)
        return TSR_OK;
    TSR__TRY(tsr__group_wire_check(who, wire));
    TSR__REQUIRE(dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16,
                 "%s: %s is %s; with a wire, f32, f16 or bf16 is needed", who, name,
                 tsr_dtype_name(dtype));
    *narrows = tsr__group_wire_narrows(wire, dtype);
    return TSR_OK;
}

static tsr_status check_wire_of_reduction(const char *who, const char *name,
                                          const tsr_tensor *tensor, tsr_op op, tsr_dtype wire,
                                          bool *narrows)
{
    TSR__TRY(check_op(who, op));
    TSR__REQUIRE(wire == 0 || op == TSR_OP_SUM, "%s: with a wire, op must be TSR_OP_SUM, not %d",
                 who, (int)op);
    return check_wire(who, name, tensor, wire, narrows);
}

/* Creates a request for the caller's operation `serves`, whose data an operation `kind` sends as
 * dtype `wire`. */
static tsr_status new_wire_request(tsr_group *group, tsr__group_kind kind, tsr__group_kind serves,
                                   tsr_dtype wire, tsr__group_request **out)
{
    TSR__TRY(tsr__group_request_new(group, kind, out));
    (*out)->wire = wire;
    (*out)->serves = serves;
    return TSR_OK;
}

/* All-reduce and broadcast ------------------------------------------------------------------- */

static tsr_status prepare_in_place(tsr__group_request *request, tsr_tensor *tensor)
{
    const tsr_group *group = request->group;
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    request->counts[0] = request->most = (uint64_t)tsr_layout_count(layout);
    request->dtype = layout->dtype;
    request->size_bytes = request->most * tsr_dtype_size(layout->dtype);
    if (group->size == 1)
        return TSR_OK;
    if (tsr_layout_is_contiguous(layout))
        return tsr__group_flatten(tensor, &request->out);
    TSR__TRY(tsr_tensor_view(tensor, layout, &request->target));
    TSR__TRY(tsr__group_new_flat(group, layout, &request->out));
    return tsr__group_copy_to_flat(group->stream, request->out, tensor);
}

static tsr_status prepare_wire_all_reduce(tsr__group_request *request, tsr_tensor *tensor)
{
    if (request->group->size == 1 || tsr_layout_count(tsr_tensor_layout(tensor)) == 0)
        return TSR_OK;
    return tsr__group_wire_all_reduce(request, tensor);
}

tsr_status tsr_group_all_reduce(tsr_group *group, tsr_tensor *tensor, tsr_op op,
                                const tsr_collective_params *params, tsr_request **request)
{
    const char *who = "group_all_reduce";
    bool narrows;
    tsr__group_request *created;
    TSR__TAKE(tsr_collective_params, params);
    TSR__TRY(check_group(who, group));
    TSR__TRY(check_output(who, "tensor", group, tensor));
    TSR__TRY(check_wire_of_reduction(who, "tensor", tensor, op, params->wire, &narrows));
    TSR__REQUIRE(!params->sizes, "%s: sizes are for all-gathers and reduce-scatters", who);
    if (narrows) {
        TSR__TRY(new_wire_request(group, TSR__GROUP_ALL_GATHER, TSR__GROUP_ALL_REDUCE, params->wire,
                                  &created));
        return start_request(created, prepare_wire_all_reduce(created, tensor), request);
    }
    TSR__TRY(tsr__group_request_new(group, TSR__GROUP_ALL_REDUCE, &created));
    created->op = op;
    return start_request(created, prepare_in_place(created, tensor), request);
}

tsr_status tsr_group_broadcast(tsr_group *group, tsr_tensor *tensor, int root,
                               tsr_request **request)
{
    const char *who = "group_broadcast";
    tsr__group_request *created;
    TSR__TRY(check_group(who, group));
    TSR__TRY(check_output(who, "tensor", group, tensor));
    TSR__REQUIRE(root >= 0 && root < group->size, "%s: root is %d, outside %d ranks", who, root,
                 group->size);
    TSR__TRY(tsr__group_request_new(group, TSR__GROUP_BROADCAST, &created));
    created->root = root;
    return start_request(created, prepare_in_place(created, tensor), request);
}

/* Returns the request's full tensor in flat form, which is contiguous with the ranks' blocks one
 * after the other. Returns a view if `whole` is flat, otherwise a new tensor. */
static tsr_status flat_full_tensor(const tsr__group_request *request, const tsr_tensor *whole,
                                   tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(whole);
    return tsr__group_is_flat(layout, request->dim)
               ? tsr__group_flatten(whole, out)
               : tsr__group_new_flat(request->group, layout, out);
}

/* All-gather --------------------------------------------------------------------------------- */

/* The arguments of an all-gather or a reduce-scatter. */
typedef struct parts_call {
    tsr_tensor *out;
    const tsr_tensor *in;
    int dim;
    const int64_t *sizes;
} parts_call;

/* Checks that `part` is exactly this rank's part of `whole`, or does not overlap `whole`. Sets
 * *in_place to whether it is that part. */
static tsr_status check_overlap(const char *who, const tsr__group_request *request,
                                const tsr_tensor *whole, const tsr_tensor *part, bool *in_place)
{
    const int rank = request->group->rank;
    int64_t offset = 0;
    for (int r = 0; r < rank; r++)
        offset += request->sizes[r];
    tsr_tensor *own = NULL;
    TSR__TRY(tsr_tensor_slice(whole, request->dim, offset, offset + request->sizes[rank], 1, &own));
    bool overlaps = tsr__tensors_overlap(own, part, in_place);
    tsr_tensor_destroy(&own);
    if (*in_place || (!overlaps && !tsr__tensors_overlap(whole, part, NULL)))
        return TSR_OK;
    return tsr__fail(TSR_ERR_INVALID,
                     "%s: %s and %s overlap, but the second is not the part of rank %d", who,
                     SHAPE_OF(tsr_tensor_layout(whole)), SHAPE_OF(tsr_tensor_layout(part)), rank);
}

/* Checks the shapes and the overlap of the tensors of an all-gather or a reduce-scatter, and stores
 * the sizes of the ranks' parts. In a group of one rank, records the copy. */
static tsr_status check_and_set_parts(const char *who, tsr__group_request *request,
                                      const parts_call *call, bool gathers)
{
    const tsr_group *group = request->group;
    const tsr_tensor *whole = gathers ? call->out : call->in,
                     *part = gathers ? call->in : call->out;
    const tsr_layout *all = tsr_tensor_layout(whole), *mine = tsr_tensor_layout(part);
    TSR__TRY(set_dim(who, all, call->dim, &request->dim));
    TSR__REQUIRE(mine->ndim == all->ndim, "%s: in is %s, out is %s", who,
                 SHAPE_OF(tsr_tensor_layout(call->in)), SHAPE_OF(tsr_tensor_layout(call->out)));
    TSR__TRY(set_sizes(who, request, all, mine, call->sizes));
    TSR__TRY(check_overlap(who, request, whole, part, &request->in_place));
    set_counts(request, all);
    if (group->size == 1 && !request->in_place)
        return tsr_copy(group->stream, call->out, call->in);
    return TSR_OK;
}

static tsr_status prepare_all_gather(tsr__group_request *request, const parts_call *call)
{
    const tsr_group *group = request->group;
    tsr_tensor *out = call->out;
    const tsr_tensor *in = call->in;
    const tsr_layout *whole = tsr_tensor_layout(out), *part = tsr_tensor_layout(in);
    TSR__TRY(check_and_set_parts("group_all_gather", request, call, true));
    if (group->size == 1)
        return TSR_OK;

    TSR__TRY(flat_full_tensor(request, out, &request->out));
    if (!tsr__group_is_flat(whole, request->dim)) {
        TSR__TRY(tsr_tensor_view(out, whole, &request->target));
        request->in_place = false;
    }
    if (tsr_layout_is_contiguous(part))
        return tsr__group_flatten(in, &request->in);
    TSR__TRY(tsr__group_new_flat(group, part, &request->in));
    return tsr__group_copy_to_flat(group->stream, request->in, in);
}

static tsr_status prepare_wire_all_gather(tsr__group_request *request, const parts_call *call)
{
    TSR__TRY(check_and_set_parts("group_all_gather", request, call, true));
    if (request->group->size == 1 || request->most == 0)
        return TSR_OK;
    return tsr__group_wire_all_gather(request, call->out, call->in);
}

tsr_status tsr_group_all_gather(tsr_group *group, tsr_tensor *out, const tsr_tensor *in, int dim,
                                const tsr_collective_params *params, tsr_request **request)
{
    const char *who = "group_all_gather";
    bool narrows;
    tsr__group_request *created;
    TSR__TAKE(tsr_collective_params, params);
    TSR__TRY(check_in_and_out(who, group, out, in));
    TSR__TRY(check_wire(who, "in", in, params->wire, &narrows));
    const parts_call call = {out, in, dim, params->sizes};
    if (narrows) {
        TSR__TRY(new_wire_request(group, TSR__GROUP_ALL_GATHER, TSR__GROUP_ALL_GATHER, params->wire,
                                  &created));
        return start_request(created, prepare_wire_all_gather(created, &call), request);
    }
    TSR__TRY(tsr__group_request_new(group, TSR__GROUP_ALL_GATHER, &created));
    return start_request(created, prepare_all_gather(created, &call), request);
}

/* Reduce-scatter ----------------------------------------------------------------------------- */

static tsr_status prepare_reduce_scatter(tsr__group_request *request, const parts_call *call)
{
    const tsr_group *group = request->group;
    tsr_tensor *out = call->out;
    const tsr_tensor *in = call->in;
    const tsr_layout *whole = tsr_tensor_layout(in), *part = tsr_tensor_layout(out);
    TSR__TRY(check_and_set_parts("group_reduce_scatter", request, call, false));
    if (group->size == 1)
        return TSR_OK;

    TSR__TRY(flat_full_tensor(request, in, &request->in));
    if (!tsr__group_is_flat(whole, request->dim))
        TSR__TRY(tsr__group_copy_to_blocks(request, request->in, in));
    request->in_place = false;
    if (tsr_layout_is_contiguous(part))
        return tsr__group_flatten(out, &request->out);
    TSR__TRY(tsr_tensor_view(out, part, &request->target));
    return tsr__group_new_flat(group, part, &request->out);
}

static tsr_status prepare_wire_reduce_scatter(tsr__group_request *request, const parts_call *call)
{
    TSR__TRY(check_and_set_parts("group_reduce_scatter", request, call, false));
    request->in_place = false;
    if (request->group->size == 1 || request->most == 0)
        return TSR_OK;
    return tsr__group_wire_reduce_scatter(request, call->out, call->in);
}

tsr_status tsr_group_reduce_scatter(tsr_group *group, tsr_tensor *out, const tsr_tensor *in,
                                    int dim, tsr_op op, const tsr_collective_params *params,
                                    tsr_request **request)
{
    const char *who = "group_reduce_scatter";
    bool narrows;
    tsr__group_request *created;
    TSR__TAKE(tsr_collective_params, params);
    TSR__TRY(check_in_and_out(who, group, out, in));
    TSR__TRY(check_wire_of_reduction(who, "in", in, op, params->wire, &narrows));
    const parts_call call = {out, in, dim, params->sizes};
    if (narrows) {
        TSR__TRY(new_wire_request(group, TSR__GROUP_ALL_TO_ALL, TSR__GROUP_REDUCE_SCATTER,
                                  params->wire, &created));
        return start_request(created, prepare_wire_reduce_scatter(created, &call), request);
    }
    TSR__TRY(tsr__group_request_new(group, TSR__GROUP_REDUCE_SCATTER, &created));
    created->op = op;
    return start_request(created, prepare_reduce_scatter(created, &call), request);
}

/* Exchange ----------------------------------------------------------------------------------- */

tsr_status tsr__group_exchange_start(tsr_group *group, tsr_tensor *in, int to, tsr_tensor *out,
                                     int from, tsr_request **out_request)
{
    const tsr_layout *sent = tsr_tensor_layout(in), *received = tsr_tensor_layout(out);
    tsr__group_request *request;
    TSR__TRY(tsr__group_request_new(group, TSR__GROUP_EXCHANGE, &request));
    request->root = to;
    request->from = from;
    request->dtype = sent->dtype;
    request->counts[0] = (uint64_t)tsr_layout_count(sent);
    request->recv_counts[0] = (uint64_t)tsr_layout_count(received);
    request->most = tsr__max_u64(request->counts[0], request->recv_counts[0]);
    request->size_bytes = request->counts[0] * tsr_dtype_size(sent->dtype);
    tsr_status status = tsr__group_flatten(in, &request->in);
    if (status == TSR_OK)
        status = tsr__group_flatten(out, &request->out);
    return start_request(request, status, out_request);
}

/* All-to-all --------------------------------------------------------------------------------- */

tsr_status tsr__group_all_to_all(tsr_group *group, tsr_tensor *out, const tsr_tensor *in,
                                 const tsr__group_rows *rows)
{
    const tsr_layout *sent = tsr_tensor_layout(in);
    const uint64_t width = (uint64_t)sent->shape[1];
    tsr__group_request *request;
    if (group->size == 1)
        return tsr_copy(group->stream, out, in);
    TSR__TRY(tsr__group_request_new(group, TSR__GROUP_ALL_TO_ALL, &request));
    for (int r = 0; r < group->size; r++) {
        request->counts[r] = (uint64_t)rows->sent[r] * width;
        request->recv_counts[r] = (uint64_t)rows->received[r] * width;
    }
    /* Ranks that neither send nor receive take part, too, in as many pieces as the others. */
    request->most = (uint64_t)rows->most * width;
    request->dtype = sent->dtype;
    request->size_bytes = (uint64_t)tsr_layout_count(sent) * tsr_dtype_size(sent->dtype);
    tsr_status status = tsr__group_flatten(in, &request->in);
    if (status == TSR_OK)
        status = tsr__group_flatten(out, &request->out);
    return start_request(request, status, NULL);
}
