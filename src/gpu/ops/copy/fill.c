/* tsr_fill. If all 32-bit words get the same value, it uses vkCmdFillBuffer. Otherwise, and for
 * large tensors on GPUs, it uses a shader. */
#include "shaders/params/fill.h"
#include "gpu/ops/common/encode.h"
#include "gpu/ops/common/walk.h"
#include "tessera/ops.h"

/* Repeats the bits of an element until they fill 64 bits. */
static uint64_t repeat(uint64_t bits, uint64_t size)
{
    for (; size < 8; size *= 2)
        bits |= bits << (8 * size);
    return bits;
}

/* The size from which GPUs use a shader that stores 16 bytes per invocation instead of
 * vkCmdFillBuffer, because that command may run on a copy engine, which reaches only a fraction of
 * the memory's bandwidth. */
#define LARGE_BYTES (1 << 20)

static bool suits_command(const tsr_tensor *dst, uint64_t pattern)
{
    tsr__access range = tsr__write_of(dst);
    return tsr_layout_is_contiguous(&dst->layout) && (uint32_t)pattern == pattern >> 32 &&
           range.begin_bytes % 4 == 0 && range.end_bytes % 4 == 0 &&
           (dst->buffer->device->traits.memcpy_commands ||
            range.end_bytes - range.begin_bytes < LARGE_BYTES);
}

static tsr_status fill_piece(tsr_stream *stream, const tsr__piece *piece, const tsr_tensor *dst,
                             uint64_t bits)
{
    const uint32_t size = (uint32_t)tsr_dtype_size(dst->layout.dtype);
    tsr__piece units = *piece;
    const bool wide =
        !dst->buffer->device->traits.narrow_accesses && tsr__piece_widen(&units, 1, &dst) == 16;
    if (wide) {
        piece = &units;
        bits = repeat(bits, size);
    }
    struct tsr_fill_params push = {
        .destination = tsr__piece_address(piece, 0, dst),
        .value = {(uint32_t)bits, (uint32_t)(bits >> 32)},
    };
    tsr__walk_init(&push.walk, piece, wide ? 1 : 4);
    tsr__walk_strides(piece, 0, push.strides);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_FILL,
        .spec_count = 3,
        .spec = {TSR__WALK_WORKGROUP, wide ? 16 : size, tsr__piece_inner_stride(piece, 0) == 1},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 1,
        .access = {tsr__write_of(dst)},
    };
    tsr__groups_for(push.walk.items, TSR__WALK_WORKGROUP, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

typedef struct filling {
    const tsr_tensor *dst;
    uint64_t bits; /* the bits of one element */
} filling;

static tsr_status fill_pieces(tsr_stream *stream, void *work)
{
    const filling *f = work;
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, 1, (const tsr_layout *[]){&f->dst->layout}, 0);
    while (tsr__pieces_next(&walk, &piece))
        TSR__TRY(fill_piece(stream, &piece, f->dst, f->bits));
    return TSR_OK;
}

tsr_status tsr_fill(tsr_stream *stream, tsr_tensor *dst, double value)
{
    TSR__TRY(tsr__require_tensor("fill", "dst", stream, dst));
    TSR__TRY(tsr__require_writable("fill", "dst", dst));
    TSR__TRY(tsr__device_check(dst->buffer->device));
    if (tsr_layout_count(&dst->layout) == 0)
        return TSR_OK;

    uint64_t bits = tsr__encode(value, dst->layout.dtype);
    uint64_t pattern = repeat(bits, tsr_dtype_size(dst->layout.dtype));
    if (suits_command(dst, pattern))
        return tsr__stream_fill(stream, tsr__write_of(dst), (uint32_t)pattern);
    return tsr__stream_atomic(stream, fill_pieces, &(filling){dst, bits});
}
