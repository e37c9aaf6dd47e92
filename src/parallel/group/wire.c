/* Operations that send data in a narrow dtype, the wire dtype. A rank packs its data, which an
 * ordinary operation gathers or exchanges. Each rank unpacks the received data, and adds
 * contributions in f32 in the order of ranks. So all ranks get the same bits, also of their own
 * part, and each value is rounded once.
 *
 *     the caller wants    what is sent
 *     all-reduce          an all-gather of the ranks' tensors
 *     all-gather          an all-gather
 *     reduce-scatter      an all-to-all: to each rank this rank's contribution to its part */
#include "gpu/internal.h"
#include "parallel/group/group.h"
#include "tensor/check.h"
#include "tessera/ops.h"

bool tsr__group_wire_narrows(tsr_dtype wire, tsr_dtype dtype)
{
    return wire == TSR_Q8_0 || (dtype == TSR_F32 && (wire == TSR_F16 || wire == TSR_BF16));
}

tsr_status tsr__group_wire_check(const char *caller, tsr_dtype wire)
{
    TSR__REQUIRE(wire == 0 || wire == TSR_F32 || wire == TSR_F16 || wire == TSR_BF16 ||
                     wire == TSR_Q8_0,
                 "%s: wire is %s; f32, f16, bf16 or q8_0 is needed", caller, tsr_dtype_name(wire));
    return TSR_OK;
}

static bool sends_blocks(const tsr__group_request *request)
{
    return request->wire == TSR_Q8_0;
}

/* Returns the number of elements that are sent for `count` elements of a tensor. Blocks are sent as
 * words of 32 bits. */
static int64_t sent_for(const tsr__group_request *request, int64_t count)
{
    return sends_blocks(request) ? tsr__packed_words(count) : count;
}

/* Views -------------------------------------------------------------------------------------- */

/* Creates a view of a flat tensor's elements from `first` on, with this shape. */
static tsr_status view_of(const tsr_tensor *flat, int64_t first, int ndim, const int64_t *shape,
                          tsr_tensor **out)
{
    const tsr_layout *from = tsr_tensor_layout(flat);
    tsr_layout layout;
    TSR__TRY(tsr_layout_init(from->dtype, ndim, shape, &layout));
    layout.offset = from->offset + first;
    return tsr_tensor_view(flat, &layout, out);
}

static tsr_status new_sent(const tsr__group_request *request, int64_t count, tsr_tensor **out)
{
    return tsr_tensor_create(tsr_stream_device(request->group->stream), request->dtype, 1, &count,
                             out);
}

/* Packing ------------------------------------------------------------------------------------ */

/* Packs `count` elements of a flat tensor, from `first` on, to `packed`, from element `offset` on.
 */
static tsr_status pack_range(const tsr__group_request *request, tsr_tensor *packed, int64_t offset,
                             const tsr_tensor *flat, int64_t first, int64_t count)
{
    const int64_t words = sent_for(request, count);
    tsr_tensor *from = NULL, *to = NULL;
    tsr_status status = view_of(flat, first, 1, &count, &from);
    if (status == TSR_OK)
        status = view_of(packed, offset, 1, &words, &to);
    if (status == TSR_OK)
        status = sends_blocks(request) ? tsr__pack(request->group->stream, to, from)
                                       : tsr_copy(request->group->stream, to, from);
    tsr_tensor_destroy(&from);
    tsr_tensor_destroy(&to);
    return status;
}

/* Packs a tensor with any strides. */
static tsr_status pack_tensor(const tsr__group_request *request, tsr_tensor *packed,
                              const tsr_tensor *tensor)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    tsr_tensor *flat = NULL;
    if (!sends_blocks(request))
        return tsr__group_copy_to_flat(request->group->stream, packed, tensor);
    tsr_status status = TSR_OK;
    if (tsr_layout_is_contiguous(layout)) {
        status = tsr__group_flatten(tensor, &flat);
    } else {
        status = tsr__group_new_flat(request->group, layout, &flat);
        if (status == TSR_OK)
            status = tsr__group_copy_to_flat(request->group->stream, flat, tensor);
    }
    if (status == TSR_OK)
        status = pack_range(request, packed, 0, flat, 0, tsr_layout_count(layout));
    tsr_tensor_destroy(&flat);
    return status;
}

/* Returns the number of elements of a rank's part of `whole` along the request's dim. */
static int64_t part_count(const tsr__group_request *request, const tsr_layout *whole, int rank)
{
    const int64_t size = whole->shape[request->dim];
    return size == 0 ? 0 : tsr_layout_count(whole) / size * request->sizes[rank];
}

/* Packs the parts of all ranks, one after the other. */
static tsr_status pack_parts(const tsr__group_request *request, tsr_tensor *packed,
                             const tsr_tensor *whole)
{
    const tsr_layout *layout = tsr_tensor_layout(whole);
    tsr_tensor *flat = NULL;
    if (!sends_blocks(request))
        return tsr__group_copy_to_blocks(request, packed, whole);
    tsr_status status = TSR_OK;
    if (tsr__group_is_flat(layout, request->dim)) {
        status = tsr__group_flatten(whole, &flat);
    } else {
        status = tsr__group_new_flat(request->group, layout, &flat);
        if (status == TSR_OK)
            status = tsr__group_copy_to_blocks(request, flat, whole);
    }
    int64_t offset = 0, first = 0;
    for (int r = 0; r < request->group->size && status == TSR_OK; r++) {
        const int64_t count = part_count(request, layout, r);
        if (count > 0)
            status = pack_range(request, packed, offset, flat, first, count);
        offset += (int64_t)request->counts[r];
        first += count;
    }
    tsr_tensor_destroy(&flat);
    return status;
}

/* Requests ----------------------------------------------------------------------------------- */

static void set_sent(tsr__group_request *request, uint64_t all)
{
    request->most = 0;
    for (int r = 0; r < request->group->size; r++)
        if (request->counts[r] > request->most)
            request->most = request->counts[r];
    request->size_bytes = all * tsr_dtype_size(request->dtype);
}

static void set_dtype(tsr__group_request *request)
{
    request->dtype = sends_blocks(request) ? TSR_U32 : request->wire;
}

/* Sets the operands of an all-gather of request->counts elements: `in` is this rank's part of
 * `out`. */
static tsr_status gather_in_place(tsr__group_request *request)
{
    int64_t first = 0, all = 0;
    for (int r = 0; r < request->group->size; r++) {
        first += r < request->group->rank ? (int64_t)request->counts[r] : 0;
        all += (int64_t)request->counts[r];
    }
    set_sent(request, (uint64_t)all);
    request->in_place = true;
    TSR__TRY(new_sent(request, all, &request->out));
    return tsr_tensor_slice(request->out, 0, first,
                            first + (int64_t)request->counts[request->group->rank], 1,
                            &request->in);
}

tsr_status tsr__group_wire_all_reduce(tsr__group_request *request, tsr_tensor *tensor)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    set_dtype(request);
    for (int r = 0; r < request->group->size; r++)
        request->counts[r] = (uint64_t)sent_for(request, tsr_layout_count(layout));
    TSR__TRY(gather_in_place(request));
    TSR__TRY(tsr_tensor_view(tensor, layout, &request->target));
    return pack_tensor(request, request->in, tensor);
}

tsr_status tsr__group_wire_all_gather(tsr__group_request *request, tsr_tensor *out,
                                      const tsr_tensor *in)
{
    const tsr_layout *whole = tsr_tensor_layout(out);
    set_dtype(request);
    for (int r = 0; r < request->group->size; r++)
        request->counts[r] = (uint64_t)sent_for(request, part_count(request, whole, r));
    TSR__TRY(gather_in_place(request));
    TSR__TRY(tsr_tensor_view(out, whole, &request->target));
    return request->counts[request->group->rank] > 0 ? pack_tensor(request, request->in, in)
                                                     : TSR_OK;
}

tsr_status tsr__group_wire_reduce_scatter(tsr__group_request *request, tsr_tensor *out,
                                          const tsr_tensor *in)
{
    const tsr_group *group = request->group;
    const tsr_layout *whole = tsr_tensor_layout(in), *part = tsr_tensor_layout(out);
    const int64_t mine = sent_for(request, tsr_layout_count(part));
    int64_t all = 0;
    set_dtype(request);
    for (int r = 0; r < group->size; r++) {
        request->counts[r] = (uint64_t)sent_for(request, part_count(request, whole, r));
        request->recv_counts[r] = (uint64_t)mine;
        all += (int64_t)request->counts[r];
    }
    set_sent(request, (uint64_t)all);
    TSR__TRY(new_sent(request, all, &request->in));
    TSR__TRY(new_sent(request, mine * group->size, &request->out));
    TSR__TRY(tsr_tensor_view(out, part, &request->target));
    return pack_parts(request, request->in, in);
}

/* Unpacking ---------------------------------------------------------------------------------- */

/* Records to = the sum of packed contributions, which follow each other in request->out from
 * element `offset` on. */
static tsr_status unpack_blocks(const tsr__group_request *request, tsr_tensor *to, int64_t offset,
                                int contributions)
{
    tsr_stream *stream = request->group->stream;
    const tsr_layout *layout = tsr_tensor_layout(to);
    const int64_t words = tsr__packed_words(tsr_layout_count(layout)) * contributions;
    const bool contiguous = tsr_layout_is_contiguous(layout);
    tsr_tensor *packed = NULL, *flat = NULL;
    TSR__TRY(view_of(request->out, offset, 1, &words, &packed));
    tsr_status status = contiguous ? tsr__group_flatten(to, &flat)
                                   : tsr__group_new_flat(request->group, layout, &flat);
    if (status == TSR_OK)
        status = tsr__unpack_sum(stream, flat, packed, contributions);
    if (status == TSR_OK && !contiguous)
        status = tsr__group_copy_from_flat(stream, flat, to);
    tsr_tensor_destroy(&flat);
    tsr_tensor_destroy(&packed);
    return status;
}

/* Replaces *sum by a new tensor, *sum + the contribution of rank r. If r is the last rank, writes
 * this sum to `to` instead. */
static tsr_status add_contribution(const tsr__group_request *request, int r, tsr_tensor **sum,
                                   tsr_tensor *to)
{
    const tsr_layout *layout = tsr_tensor_layout(to);
    tsr_stream *stream = request->group->stream;
    const bool is_last = r == request->group->size - 1;
    tsr_tensor *each = NULL, *next = NULL;
    TSR__TRY(
        view_of(request->out, r * tsr_layout_count(layout), layout->ndim, layout->shape, &each));
    tsr_status status = TSR_OK;
    if (!is_last)
        status = tsr_tensor_create(tsr_stream_device(stream), TSR_F32, layout->ndim, layout->shape,
                                   &next);
    if (status == TSR_OK)
        status = tsr_binary(stream, is_last ? to : next, *sum, each, TSR_BINARY_ADD);
    tsr_tensor_destroy(&each);
    if (status != TSR_OK) {
        tsr_tensor_destroy(&next);
        return status;
    }
    tsr_tensor_destroy(sum);
    *sum = next;
    return TSR_OK;
}

static tsr_status add_floats(const tsr__group_request *request, tsr_tensor *to)
{
    const tsr_layout *layout = tsr_tensor_layout(to);
    tsr_tensor *sum = NULL;
    TSR__TRY(view_of(request->out, 0, layout->ndim, layout->shape, &sum));
    tsr_status status = TSR_OK;
    for (int r = 1; r < request->group->size && status == TSR_OK; r++)
        status = add_contribution(request, r, &sum, to);
    tsr_tensor_destroy(&sum);
    return status;
}

/* Records, for each rank, unpacking its part from request->out to its place in `whole`. */
static tsr_status unpack_parts(const tsr__group_request *request, const tsr_tensor *whole)
{
    int64_t offset = 0, first = 0;
    for (int r = 0; r < request->group->size; r++) {
        if (request->counts[r] > 0) {
            tsr_tensor *part = NULL;
            TSR__TRY(
                tsr_tensor_slice(whole, request->dim, first, first + request->sizes[r], 1, &part));
            tsr_status status = unpack_blocks(request, part, offset, 1);
            tsr_tensor_destroy(&part);
            TSR__TRY(status);
        }
        offset += (int64_t)request->counts[r];
        first += request->sizes[r];
    }
    return TSR_OK;
}

/* Records writing the result to the target, from what has been received. */
static tsr_status write_result(const tsr__group_request *request)
{
    tsr_tensor *target = request->target;
    if (request->serves == TSR__GROUP_ALL_GATHER)
        return sends_blocks(request) ? unpack_parts(request, target)
                                     : tsr__group_copy_from_blocks(request, request->out, target);
    if (tsr_layout_count(tsr_tensor_layout(target)) == 0)
        return TSR_OK;
    return sends_blocks(request) ? unpack_blocks(request, target, 0, request->group->size)
                                 : add_floats(request, target);
}

tsr_status tsr__group_copy_out(const tsr__group_request *request)
{
    if (!request->target)
        return TSR_OK;
    if (request->wire)
        return write_result(request);
    if (request->kind == TSR__GROUP_ALL_GATHER)
        return tsr__group_copy_from_blocks(request, request->out, request->target);
    return tsr__group_copy_from_flat(request->group->stream, request->out, request->target);
}
