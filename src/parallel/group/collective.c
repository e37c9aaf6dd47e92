/* The operations: what their arguments have to be, and the copies on the device that make flat
 * tensors of them, and of flat tensors the results. */
#include <string.h>

#include "base/alloc.h"
#include "gpu/memory/host_access.h"
#include "parallel/group/group.h"
#include "tensor/check.h"
#include "tessera/ops.h"

#define SHAPE_OF(layout) TSR__SHAPE((layout)->ndim, (layout)->shape)

/* Arguments -------------------------------------------------------------------------------------
 */

static tsr_status check_group(const char *who, const tsr_group *group)
{
    TSR__REQUIRE(group, "%s: group is NULL", who);
    return TSR_OK;
}

static tsr_status check_tensor(const char *who, const char *name, const tsr_group *group,
                               const tsr_tensor *tensor)
{
    TSR__REQUIRE(tensor, "%s: %s is NULL", who, name);
    TSR__REQUIRE(tsr_tensor_device(tensor) == tsr_stream_device(group->stream),
                 "%s: %s is not on the device of the group's stream", who, name);
    return TSR_OK;
}

/* What comes back can be written to it: found out here, and with one rank too, rather than when it
 * has come. */
static tsr_status check_output(const char *who, const char *name, const tsr_group *group,
                               const tsr_tensor *tensor)
{
    TSR__TRY(check_tensor(who, name, group, tensor));
    return tsr__require_writable(who, name, tensor);
}

static tsr_status check_op(const char *who, tsr_op op)
{
    TSR__REQUIRE(op >= TSR_OP_SUM && op <= TSR_OP_PROD, "%s: there is no op %d", who, (int)op);
    return TSR_OK;
}

/* The size along `dim` of each rank's part, into the request; `whole` has all of them, `part` this
 * rank's. */
static tsr_status take_sizes(const char *who, tsr_group_request *request, const tsr_layout *whole,
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
    TSR__REQUIRE(fits,
                 "%s: parts like %s %s of %d ranks, %lld in all along dim %d, do not make %s %s",
                 who, tsr_dtype_name(part->dtype), SHAPE_OF(part), group->size, (long long)sum, dim,
                 tsr_dtype_name(whole->dtype), SHAPE_OF(whole));
    return TSR_OK;
}

static tsr_status take_dim(const char *who, const tsr_layout *whole, int dim, int *out)
{
    TSR__REQUIRE(dim >= -whole->ndim && dim < whole->ndim,
                 "%s: dim %d is outside a tensor of %d dimensions", who, dim, whole->ndim);
    *out = dim < 0 ? dim + whole->ndim : dim;
    return TSR_OK;
}

/* Flat tensors ----------------------------------------------------------------------------------
 */

static tsr_status flatten(const tsr_tensor *tensor, tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    return tsr_tensor_reshape(tensor, 1, (int64_t[]){tsr_layout_count(layout)}, out);
}

static tsr_status new_flat(const tsr_group *group, const tsr_layout *like, tsr_tensor **out)
{
    return tsr_tensor_create(tsr_stream_device(group->stream), like->dtype, 1,
                             (int64_t[]){tsr_layout_count(like)}, out);
}

/* A flat tensor as one of another shape. */
static tsr_status shaped(const tsr_tensor *flat, int64_t first, const tsr_layout *like,
                         tsr_tensor **out)
{
    tsr_layout layout;
    TSR__TRY(tsr_layout_init(like->dtype, like->ndim, like->shape, &layout));
    layout.offset = tsr_tensor_layout(flat)->offset + first;
    return tsr_tensor_view(flat, &layout, out);
}

static tsr_status copy_all(tsr_stream *stream, tsr_tensor *to, const tsr_tensor *from, bool to_flat)
{
    tsr_tensor *view = NULL;
    TSR__TRY(shaped(to_flat ? to : from, 0, tsr_tensor_layout(to_flat ? from : to), &view));
    tsr_status status = tsr_copy(stream, to_flat ? view : to, to_flat ? from : view);
    tsr_tensor_destroy(&view);
    return status;
}

/* Whether the ranks' parts along `dim` follow each other in memory. */
static bool is_flat(const tsr_layout *layout, int dim)
{
    for (int d = 0; d < dim; d++)
        if (layout->shape[d] > 1)
            return false;
    return tsr_layout_is_contiguous(layout);
}

/* Rank r's part of `whole`, to or from its block of `flat`. */
static tsr_status copy_block(const tsr_group_request *request, int r, int64_t at, int64_t first,
                             const tsr_tensor *whole, tsr_tensor *flat, bool to_flat)
{
    tsr_tensor *part = NULL, *block = NULL;
    TSR__TRY(tsr_tensor_slice(whole, request->dim, at, at + request->sizes[r], 1, &part));
    tsr_status status = shaped(flat, first, tsr_tensor_layout(part), &block);
    if (status == TSR_OK)
        status = tsr_copy(request->group->stream, to_flat ? block : part, to_flat ? part : block);
    tsr_tensor_destroy(&block);
    tsr_tensor_destroy(&part);
    return status;
}

static tsr_status copy_blocks(const tsr_group_request *request, const tsr_tensor *whole,
                              tsr_tensor *flat, bool to_flat)
{
    int64_t at = 0, first = 0;
    for (int r = 0; r < request->group->size; r++) {
        if (request->counts[r] > 0)
            TSR__TRY(copy_block(request, r, at, first, whole, flat, to_flat));
        at += request->sizes[r];
        first += (int64_t)request->counts[r];
    }
    return TSR_OK;
}

/* The whole side of a request, flat: as it is or, where it is not that, a stand-in. */
static tsr_status flat_whole(const tsr_group_request *request, const tsr_tensor *whole,
                             tsr_tensor **out)
{
    const tsr_layout *layout = tsr_tensor_layout(whole);
    return is_flat(layout, request->dim) ? flatten(whole, out)
                                         : new_flat(request->group, layout, out);
}

tsr_status tsr__group_deliver(tsr_group_request *request)
{
    if (!request->target)
        return TSR_OK;
    if (request->kind == TSR__GROUP_ALL_GATHER)
        return copy_blocks(request, request->target, request->out, false);
    return copy_all(request->group->stream, request->target, request->out, false);
}

/* Making requests -------------------------------------------------------------------------------
 */

static tsr_status new_request(tsr_group *group, tsr__group_kind kind, tsr_group_request **out)
{
    tsr_group_request *request = tsr__calloc(1, sizeof *request);
    if (!request)
        return TSR_ERR_NO_MEMORY;
    request->group = group;
    request->kind = kind;
    request->op = TSR_OP_SUM;
    request->counts = tsr__calloc((size_t)group->size, sizeof *request->counts);
    request->sizes =
        request->counts ? tsr__calloc((size_t)group->size, sizeof *request->sizes) : NULL;
    if (!request->sizes) {
        tsr__group_request_free(request);
        return TSR_ERR_NO_MEMORY;
    }
    *out = request;
    return TSR_OK;
}

static void set_counts(tsr_group_request *request, const tsr_layout *whole)
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

/* A request that is ready goes into the queue, or is done at once where there is nothing to send;
 * one that could not be made is freed. */
static tsr_status launch(tsr_group_request *request, tsr_status status, tsr_group_request **out)
{
    bool alone = request->group->size == 1;
    if (status == TSR_OK && !alone)
        status = tsr__group_check(request->group);
    if (status == TSR_OK && (alone || request->most == 0))
        tsr__group_done(request);
    else if (status == TSR_OK)
        status = tsr__group_enqueue(request);
    if (status != TSR_OK) {
        tsr__group_request_free(request);
        return status;
    }
    *out = request;
    return TSR_OK;
}

static tsr_status wait_for(tsr_status status, tsr_group_request **request)
{
    return status == TSR_OK ? tsr_group_wait(request) : status;
}

/* All-reduce and broadcast -----------------------------------------------------------------------
 */

static tsr_status prepare_in_place(tsr_group_request *request, tsr_tensor *tensor)
{
    const tsr_group *group = request->group;
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    request->counts[0] = request->most = (uint64_t)tsr_layout_count(layout);
    request->dtype = layout->dtype;
    request->size_bytes = request->most * tsr_dtype_size(layout->dtype);
    if (group->size == 1)
        return TSR_OK;
    if (tsr_layout_is_contiguous(layout))
        return flatten(tensor, &request->out);
    TSR__TRY(tsr_tensor_view(tensor, layout, &request->target));
    TSR__TRY(new_flat(group, layout, &request->out));
    return copy_all(group->stream, request->out, tensor, true);
}

tsr_status tsr_group_all_reduce_start(tsr_group *group, tsr_tensor *tensor, tsr_op op,
                                      tsr_group_request **out)
{
    const char *who = "group_all_reduce";
    TSR__TRY(check_group(who, group));
    TSR__TRY(check_output(who, "tensor", group, tensor));
    TSR__TRY(check_op(who, op));
    TSR__REQUIRE(out, "%s: out is NULL", who);
    tsr_group_request *request;
    TSR__TRY(new_request(group, TSR__GROUP_ALL_REDUCE, &request));
    request->op = op;
    return launch(request, prepare_in_place(request, tensor), out);
}

tsr_status tsr_group_all_reduce(tsr_group *group, tsr_tensor *tensor, tsr_op op)
{
    tsr_group_request *request = NULL;
    return wait_for(tsr_group_all_reduce_start(group, tensor, op, &request), &request);
}

tsr_status tsr_group_broadcast_start(tsr_group *group, tsr_tensor *tensor, int root,
                                     tsr_group_request **out)
{
    const char *who = "group_broadcast";
    TSR__TRY(check_group(who, group));
    TSR__TRY(check_output(who, "tensor", group, tensor));
    TSR__REQUIRE(root >= 0 && root < group->size, "%s: there is no rank %d among %d", who, root,
                 group->size);
    TSR__REQUIRE(out, "%s: out is NULL", who);
    tsr_group_request *request;
    TSR__TRY(new_request(group, TSR__GROUP_BROADCAST, &request));
    request->root = root;
    return launch(request, prepare_in_place(request, tensor), out);
}

tsr_status tsr_group_broadcast(tsr_group *group, tsr_tensor *tensor, int root)
{
    tsr_group_request *request = NULL;
    return wait_for(tsr_group_broadcast_start(group, tensor, root, &request), &request);
}

/* All-gather ------------------------------------------------------------------------------------
 */

/* Whether `part` may stand beside `whole`: as this rank's part of it, or apart from it. */
static tsr_status check_place(const char *who, const tsr_group_request *request,
                              const tsr_tensor *whole, const tsr_tensor *part, bool *in_place)
{
    const int rank = request->group->rank;
    int64_t at = 0;
    for (int r = 0; r < rank; r++)
        at += request->sizes[r];
    tsr_tensor *place = NULL;
    TSR__TRY(tsr_tensor_slice(whole, request->dim, at, at + request->sizes[rank], 1, &place));
    bool overlaps = tsr__tensors_overlap(place, part, in_place);
    tsr_tensor_destroy(&place);
    if (*in_place || (!overlaps && !tsr__tensors_overlap(whole, part, NULL)))
        return TSR_OK;
    return tsr__fail(TSR_ERR_INVALID,
                     "%s: %s and %s overlap, and not as all of it and the part of rank %d", who,
                     SHAPE_OF(tsr_tensor_layout(whole)), SHAPE_OF(tsr_tensor_layout(part)), rank);
}

static tsr_status prepare_gather(tsr_group_request *request, tsr_tensor *out, const tsr_tensor *in,
                                 int dim, const int64_t *sizes)
{
    const char *who = "group_all_gather";
    const tsr_group *group = request->group;
    const tsr_layout *whole = tsr_tensor_layout(out), *part = tsr_tensor_layout(in);
    TSR__TRY(take_dim(who, whole, dim, &request->dim));
    TSR__REQUIRE(part->ndim == whole->ndim, "%s: in is %s, out is %s", who, SHAPE_OF(part),
                 SHAPE_OF(whole));
    TSR__TRY(take_sizes(who, request, whole, part, sizes));
    TSR__TRY(check_place(who, request, out, in, &request->in_place));
    set_counts(request, whole);
    if (group->size == 1)
        return request->in_place ? TSR_OK : tsr_copy(group->stream, out, in);

    TSR__TRY(flat_whole(request, out, &request->out));
    if (!is_flat(whole, request->dim)) {
        TSR__TRY(tsr_tensor_view(out, whole, &request->target));
        request->in_place = false;
    }
    if (tsr_layout_is_contiguous(part))
        return flatten(in, &request->in);
    TSR__TRY(new_flat(group, part, &request->in));
    return copy_all(group->stream, request->in, in, true);
}

tsr_status tsr_group_all_gather_start(tsr_group *group, tsr_tensor *out, const tsr_tensor *in,
                                      int dim, const int64_t *sizes,
                                      tsr_group_request **out_request)
{
    const char *who = "group_all_gather";
    TSR__TRY(check_group(who, group));
    TSR__TRY(check_output(who, "out", group, out));
    TSR__TRY(check_tensor(who, "in", group, in));
    TSR__REQUIRE(out_request, "%s: request is NULL", who);
    tsr_group_request *request;
    TSR__TRY(new_request(group, TSR__GROUP_ALL_GATHER, &request));
    return launch(request, prepare_gather(request, out, in, dim, sizes), out_request);
}

tsr_status tsr_group_all_gather(tsr_group *group, tsr_tensor *out, const tsr_tensor *in, int dim,
                                const int64_t *sizes)
{
    tsr_group_request *request = NULL;
    return wait_for(tsr_group_all_gather_start(group, out, in, dim, sizes, &request), &request);
}

/* Reduce-scatter --------------------------------------------------------------------------------
 */

static tsr_status prepare_scatter(tsr_group_request *request, tsr_tensor *out, const tsr_tensor *in,
                                  int dim, const int64_t *sizes)
{
    const char *who = "group_reduce_scatter";
    const tsr_group *group = request->group;
    const tsr_layout *whole = tsr_tensor_layout(in), *part = tsr_tensor_layout(out);
    TSR__TRY(take_dim(who, whole, dim, &request->dim));
    TSR__REQUIRE(part->ndim == whole->ndim, "%s: in is %s, out is %s", who, SHAPE_OF(whole),
                 SHAPE_OF(part));
    TSR__TRY(take_sizes(who, request, whole, part, sizes));
    TSR__TRY(check_place(who, request, in, out, &request->in_place));
    set_counts(request, whole);
    if (group->size == 1)
        return request->in_place ? TSR_OK : tsr_copy(group->stream, out, in);

    TSR__TRY(flat_whole(request, in, &request->in));
    if (!is_flat(whole, request->dim))
        TSR__TRY(copy_blocks(request, in, request->in, true));
    request->in_place = false;
    if (tsr_layout_is_contiguous(part))
        return flatten(out, &request->out);
    TSR__TRY(tsr_tensor_view(out, part, &request->target));
    return new_flat(group, part, &request->out);
}

tsr_status tsr_group_reduce_scatter_start(tsr_group *group, tsr_tensor *out, const tsr_tensor *in,
                                          int dim, const int64_t *sizes, tsr_op op,
                                          tsr_group_request **out_request)
{
    const char *who = "group_reduce_scatter";
    TSR__TRY(check_group(who, group));
    TSR__TRY(check_output(who, "out", group, out));
    TSR__TRY(check_tensor(who, "in", group, in));
    TSR__TRY(check_op(who, op));
    TSR__REQUIRE(out_request, "%s: request is NULL", who);
    tsr_group_request *request;
    TSR__TRY(new_request(group, TSR__GROUP_REDUCE_SCATTER, &request));
    request->op = op;
    return launch(request, prepare_scatter(request, out, in, dim, sizes), out_request);
}

tsr_status tsr_group_reduce_scatter(tsr_group *group, tsr_tensor *out, const tsr_tensor *in,
                                    int dim, const int64_t *sizes, tsr_op op)
{
    tsr_group_request *request = NULL;
    return wait_for(tsr_group_reduce_scatter_start(group, out, in, dim, sizes, op, &request),
                    &request);
}
