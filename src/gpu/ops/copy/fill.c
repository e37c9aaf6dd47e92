/* tsr_fill. If all 32-bit words get the same value, it uses vkCmdFillBuffer. Otherwise, and for
 * large tensors on GPUs, it uses a shader. */
#include "shaders/params/fill.h"

#include <string.h>

#include "gpu/ops/common/walk.h"
#include "tessera/ops.h"

/* Encodes a number in a float format with the given numbers of explicit mantissa bits and of
 * exponent bits. It uses integer arithmetic only. */
static uint64_t encode_float(double value, unsigned mantissa_bits, unsigned exponent_bits)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint64_t sign = (bits >> 63) << (mantissa_bits + exponent_bits);
    uint64_t infinity = ((UINT64_C(1) << exponent_bits) - 1) << mantissa_bits;
    uint64_t mantissa = bits & ((UINT64_C(1) << 52) - 1);
    int exponent = (int)(bits >> 52 & 0x7ff);
    if (exponent == 0x7ff)
        return sign | infinity | (mantissa != 0 ? UINT64_C(1) << (mantissa_bits - 1) : 0);

    exponent -= 1023 - ((1 << (exponent_bits - 1)) - 1);
    if (exponent >= (1 << exponent_bits) - 1)
        return sign | infinity;
    mantissa |= UINT64_C(1) << 52;
    /* the number of mantissa bits to round away; for subnormal numbers there are more */
    unsigned drop = 52 - mantissa_bits;
    if (exponent < 1) {
        drop += (unsigned)(1 - exponent);
        exponent = 1;
    }
    if (drop > 54)
        return sign;
    uint64_t kept = mantissa >> drop, rest = mantissa & ((UINT64_C(1) << drop) - 1);
    uint64_t half = UINT64_C(1) << (drop - 1);
    kept += rest > half || (rest == half && (kept & 1));
    /* `kept` still has the mantissa's implicit bit. The addition turns it into 1 in the exponent
     * field, which therefore starts as exponent − 1. If rounding carries out of the mantissa, the
     * exponent also grows by 1. */
    return sign | (((uint64_t)(exponent - 1) << mantissa_bits) + kept);
}

static uint64_t encode_integer(double value, double low, double high, uint64_t low_bits,
                               uint64_t high_bits)
{
    if (value != value)
        return 0;
    if (value <= low)
        return low_bits;
    if (value >= high)
        return high_bits;
    return value < 0 ? (uint64_t)(int64_t)value : (uint64_t)value;
}

/* Returns the bits of `value` as an element of `dtype`. Floats are rounded once, to nearest even.
 * For integers, the value is truncated and saturated, and NaN becomes 0. */
static uint64_t encode(double value, tsr_dtype dtype)
{
    switch (dtype) {
    case TSR_F32:
        return encode_float(value, 23, 8);
    case TSR_F16:
        return encode_float(value, 10, 5);
    case TSR_BF16:
        return encode_float(value, 7, 8);
    case TSR_I32:
        return encode_integer(value, INT32_MIN, INT32_MAX, 0x80000000, INT32_MAX) & UINT32_MAX;
    case TSR_U32:
        return encode_integer(value, 0, UINT32_MAX, 0, UINT32_MAX);
    case TSR_I64:
        return encode_integer(value, -0x1p63, 0x1p63, UINT64_C(1) << 63, INT64_MAX);
    default: /* TSR_U8: callers exclude block formats */
        return encode_integer(value, 0, UINT8_MAX, 0, UINT8_MAX);
    }
}

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

    uint64_t bits = encode(value, dst->layout.dtype);
    uint64_t pattern = repeat(bits, tsr_dtype_size(dst->layout.dtype));
    if (suits_command(dst, pattern))
        return tsr__stream_fill(stream, tsr__write_of(dst), (uint32_t)pattern);
    return tsr__stream_atomic(stream, fill_pieces, &(filling){dst, bits});
}
