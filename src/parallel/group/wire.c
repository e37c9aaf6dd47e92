/* All-reduces whose contributions are rounded on the way. All ranks gather all contributions in the
 * narrow format, and each adds them in f32 in the order of ranks, so that all get the same bits and
 * each value is rounded once. */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "parallel/group/group.h"
#include "tensor/check.h"
#include "tessera/ops.h"
#include "tessera/quant.h"

static const char who[] = "group_all_reduce_wire";

/* A rank's contribution in TSR_Q8_0: whole blocks, of which the last four bytes are an f32. The
 * values are the elements times this factor. It brings the largest element of the tensor near the
 * largest that a block can hold, because scales of blocks are f16: gradients would become 0
 * otherwise. The number of blocks is even, so that the f32 is aligned. */
#define BLOCK 32
#define BLOCK_BYTES 34
#define LOG2_LARGEST 22 /* the largest scale of a block is then below 2^22 / 127 < 65504 */

static int64_t blocks_for(int64_t count)
{
    const int64_t used = (count + BLOCK - 1) / BLOCK;
    return (used + 2) / 2 * 2;
}

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

/* Views -----------------------------------------------------------------------------------------
 */

/* Elements `first` … of a contiguous tensor, reinterpreted as `dtype`. */
static tsr_status view_as(const tsr_tensor *tensor, tsr_dtype dtype, int64_t first, int ndim,
                          const int64_t *shape, tsr_tensor **out)
{
    tsr_layout layout;
    TSR__TRY(tsr_layout_init(dtype, ndim, shape, &layout));
    layout.offset = first;
    return tsr_tensor_view(tensor, &layout, out);
}

/* Packing ---------------------------------------------------------------------------------------
 */

/* Finds the factor by which elements are divided. Elements that are NaN or infinite are refused
 * later, by tsr_quantize. */
static float factor_of(const float *values, int64_t count)
{
    float largest = 0;
    for (int64_t i = 0; i < count; i++)
        largest = fabsf(values[i]) > largest ? fabsf(values[i]) : largest;
    int exponent;
    if (largest == 0 || isinf(largest))
        return 1;
    frexpf(largest, &exponent); /* largest < 2^exponent */
    exponent -= LOG2_LARGEST;
    return ldexpf(1, exponent < -126 ? -126 : exponent); /* a normal number */
}

/* Writes blocks of the elements values[blocks · 32]. The elements behind `count` are 0. */
static tsr_status quantize(float *values, int64_t count, int64_t blocks, uint8_t *out)
{
    const float factor = factor_of(values, count);
    const uint64_t size = (uint64_t)blocks * BLOCK_BYTES;
    for (int64_t i = 0; i < count; i++)
        values[i] /= factor;
    tsr_status status = tsr_quantize(TSR_Q8_0, values, blocks * BLOCK, out, size);
    if (status != TSR_OK)
        return tsr__fail_context(status, "%s", who);
    memcpy(out + size - sizeof factor, &factor, sizeof factor);
    return TSR_OK;
}

static tsr_status download(tsr_stream *stream, const tsr_tensor *tensor, float *values,
                           int64_t count)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    tsr_tensor *wide = NULL;
    if (layout->dtype == TSR_F32)
        return tsr_tensor_download(stream, tensor, values, (uint64_t)count * sizeof *values);
    TSR__TRY(
        tsr_tensor_create(tsr_stream_device(stream), TSR_F32, layout->ndim, layout->shape, &wide));
    tsr_status status = tsr_copy(stream, wide, tensor);
    if (status == TSR_OK)
        status = tsr_tensor_download(stream, wide, values, (uint64_t)count * sizeof *values);
    tsr_tensor_destroy(&wide);
    return status;
}

/* Packs the tensor on the host. Blocks until the device has computed it. */
static tsr_status pack_blocks(const tsr_group_request *request, const tsr_tensor *tensor)
{
    tsr_stream *stream = request->group->stream;
    const int64_t count = tsr_layout_count(tsr_tensor_layout(tensor)), blocks = blocks_for(count);
    float *values = tsr__calloc((size_t)(blocks * BLOCK), sizeof *values);
    uint8_t *packed = values ? tsr__calloc((size_t)blocks, BLOCK_BYTES) : NULL;
    tsr_status status = packed ? download(stream, tensor, values, count) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = quantize(values, count, blocks, packed);
    if (status == TSR_OK)
        status = tsr_tensor_upload(stream, request->in, packed, (uint64_t)blocks * BLOCK_BYTES);
    tsr__free(packed);
    tsr__free(values);
    return status;
}

static tsr_status pack_floats(const tsr_group_request *request, const tsr_tensor *tensor)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    tsr_tensor *packed = NULL;
    TSR__TRY(view_as(request->in, request->wire, tsr_tensor_layout(request->in)->offset,
                     layout->ndim, layout->shape, &packed));
    tsr_status status = tsr_copy(request->group->stream, packed, tensor);
    tsr_tensor_destroy(&packed);
    return status;
}

/* Sets the operands of an all-gather: `out` has a part for every rank, of which `in` is this
 * rank's. */
static tsr_status set_operands(tsr_group_request *request, int64_t count)
{
    const tsr_group *group = request->group;
    const bool is_blocks = request->wire == TSR_Q8_0;
    const int64_t part = is_blocks ? blocks_for(count) * BLOCK_BYTES : count;
    const int64_t whole = part * group->size;
    request->dtype = is_blocks ? TSR_U8 : request->wire;
    request->most = (uint64_t)part;
    for (int r = 0; r < group->size; r++)
        request->counts[r] = (uint64_t)part;
    request->size_bytes = (uint64_t)whole * tsr_dtype_size(request->dtype);
    request->in_place = true;
    TSR__TRY(tsr_tensor_create(tsr_stream_device(group->stream), request->dtype, 1, &whole,
                               &request->out));
    return tsr_tensor_slice(request->out, 0, part * group->rank, part * (group->rank + 1), 1,
                            &request->in);
}

tsr_status tsr__group_wire_prepare(tsr_group_request *request, tsr_tensor *tensor)
{
    const tsr_layout *layout = tsr_tensor_layout(tensor);
    const int64_t count = tsr_layout_count(layout);
    if (request->group->size == 1 || count == 0)
        return TSR_OK;
    TSR__TRY(set_operands(request, count));
    TSR__TRY(tsr_tensor_view(tensor, layout, &request->target));
    return request->wire == TSR_Q8_0 ? pack_blocks(request, tensor) : pack_floats(request, tensor);
}

/* Unpacking -------------------------------------------------------------------------------------
 */

/* Creates rank r's contribution in f32, or as floats that have been gathered. */
static tsr_status unpack(const tsr_group_request *request, int r, tsr_tensor **out)
{
    tsr_stream *stream = request->group->stream;
    const tsr_layout *target = tsr_tensor_layout(request->target);
    const int64_t count = tsr_layout_count(target), blocks = blocks_for(count);
    const int64_t elements = blocks * BLOCK, one = 1;
    tsr_tensor *packed = NULL, *factor = NULL, *wide = NULL, *flat = NULL;
    if (request->wire != TSR_Q8_0)
        return view_as(request->out, request->wire, r * count, target->ndim, target->shape, out);
    tsr_status status = view_as(request->out, TSR_Q8_0, r * elements, 1, &elements, &packed);
    if (status == TSR_OK)
        status = view_as(request->out, TSR_F32, (r + 1) * blocks * BLOCK_BYTES / 4 - 1, 1, &one,
                         &factor);
    if (status == TSR_OK)
        status = tsr_tensor_create(tsr_stream_device(stream), TSR_F32, 1, &elements, &wide);
    if (status == TSR_OK)
        status = tsr_copy(stream, wide, packed);
    if (status == TSR_OK)
        status = tsr_tensor_slice(wide, 0, 0, count, 1, &flat);
    if (status == TSR_OK)
        status = tsr_mul(stream, flat, flat, factor);
    if (status == TSR_OK)
        status = tsr_tensor_reshape(flat, target->ndim, target->shape, out);
    tsr_tensor_destroy(&packed);
    tsr_tensor_destroy(&factor);
    tsr_tensor_destroy(&wide);
    tsr_tensor_destroy(&flat);
    return status;
}

/* sum = sum + the contribution of rank r, or the sum of the first two. The last sum is `to`. */
static tsr_status add(const tsr_group_request *request, int r, tsr_tensor **sum, tsr_tensor *to)
{
    const tsr_layout *layout = tsr_tensor_layout(to);
    tsr_stream *stream = request->group->stream;
    const bool is_last = r == request->group->size - 1;
    tsr_tensor *each = NULL, *next = NULL;
    TSR__TRY(unpack(request, r, &each));
    tsr_status status = TSR_OK;
    if (!is_last)
        status = tsr_tensor_create(tsr_stream_device(stream), TSR_F32, layout->ndim, layout->shape,
                                   &next);
    if (status == TSR_OK)
        status = tsr_add(stream, is_last ? to : next, *sum, each);
    tsr_tensor_destroy(&each);
    if (status != TSR_OK) {
        tsr_tensor_destroy(&next);
        return status;
    }
    tsr_tensor_destroy(sum);
    *sum = next;
    return TSR_OK;
}

tsr_status tsr__group_wire_sum(const tsr_group_request *request)
{
    tsr_tensor *sum = NULL;
    TSR__TRY(unpack(request, 0, &sum));
    tsr_status status = TSR_OK;
    for (int r = 1; r < request->group->size && status == TSR_OK; r++)
        status = add(request, r, &sum, request->target);
    tsr_tensor_destroy(&sum);
    return status;
}
