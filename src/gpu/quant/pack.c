/* Packs and unpacks numbers; gpu/internal.h describes the format. A kernel's unit of packing is two
 * blocks, because they fill whole 32-bit words. */
#include "gpu/internal.h"

#include "base/checked.h"
#include "gpu/stream/stream.h"
#include "shaders/params/pack.h"
#include "shaders/params/rows.h"

enum {
    WORKGROUP = 64,
    /* groups of four elements that an invocation reads to find the largest element */
    STEPS = 16,
    UNITS_ON_CPU = 8, /* groups of four elements that an invocation unpacks; 1 on a GPU */
    WORD = sizeof(uint32_t),
    PAIR = 2 * TSR_PACK_BLOCK,
};

/* The largest number of elements that one dispatch processes; it is a multiple of the number that a
 * workgroup processes. */
#define SPAN_MAX (UINT64_C(1) << 27)

static uint64_t pairs_for(uint64_t count)
{
    const uint64_t used = count / TSR_PACK_BLOCK + (count % TSR_PACK_BLOCK != 0);
    return (used + 2) / 2;
}

int64_t tsr__packed_words(int64_t count)
{
    return count == 0 ? 0 : (int64_t)(pairs_for((uint64_t)count) * TSR_PACK_PAIR_WORDS);
}

static uint32_t form_of(uint64_t address)
{
    return address % WORD == 0 ? TSR_ROW_DENSE4 : TSR_ROW_STRIDED;
}

static uint64_t address_at(const tsr_tensor *x, uint64_t element)
{
    return tsr__tensor_address(x) + element * tsr_dtype_size(x->layout.dtype);
}

/* A range of a tensor's elements that one dispatch processes. It consists either of whole units, as
 * many elements as a workgroup or invocation always processes, so that the kernels need no checks
 * of bounds; or it is partial, the rest of less than a unit. */
typedef struct span {
    uint64_t first;
    uint32_t count;
    bool partial;
} span;

/* Replaces the span by the next one of `count` elements: whole units first, then the rest. Returns
 * false at the end. */
static bool next_span(span *p, uint64_t count, uint64_t unit)
{
    p->first += p->count;
    const uint64_t left = count - p->first, whole = left / unit * unit;
    p->partial = whole == 0;
    p->count = (uint32_t)(whole > 0 ? tsr__min_u64(whole, SPAN_MAX) : left);
    return left > 0;
}

/* Returns the dispatch of a kernel for a span of the tensor `floats`; `at` is the span's address.
 */
static tsr__dispatch dispatch_of(tsr__shader shader, const tsr_tensor *floats, uint64_t at,
                                 bool partial, const void *push, uint32_t push_bytes)
{
    return (tsr__dispatch){
        .shader = shader,
        .spec_count = 4,
        .spec = {WORKGROUP, (uint32_t)floats->layout.dtype, form_of(at), partial},
        .push = push,
        .push_bytes = push_bytes,
    };
}

/* Packing ------------------------------------------------------------------------------------ */

typedef struct packing {
    const tsr_tensor *x, *y;
    tsr__access largest; /* a word of scratch memory that gets the bits of the largest element */
    uint64_t count;
} packing;

static tsr_status find_largest(tsr_stream *stream, const packing *pack)
{
    TSR__TRY(tsr__stream_fill(stream, pack->largest, 0));
    for (span p = {0}; next_span(&p, pack->count, UINT64_C(4) * WORKGROUP * STEPS);) {
        const struct tsr_pack_largest_params push = {
            .x = address_at(pack->x, p.first),
            .largest = tsr__access_address(pack->largest),
            .count = p.count,
        };
        tsr__dispatch dispatch =
            dispatch_of(TSR__SHADER_PACK_LARGEST, pack->x, push.x, p.partial, &push, sizeof push);
        dispatch.spec[dispatch.spec_count++] = STEPS;
        dispatch.access_count = 2;
        dispatch.access[0] = pack->largest;
        dispatch.access[1] = tsr__read_of(pack->x);
        tsr__groups_for(((uint64_t)p.count + 3) / 4, WORKGROUP * STEPS, dispatch.groups);
        TSR__TRY(tsr__stream_dispatch(stream, &dispatch));
    }
    return TSR_OK;
}

/* Records packing `pairs` pairs of blocks, from pair number `first` on. If `partial` is set, they
 * are the last pairs, which the elements do not fill and whose last word is the factor (pack.h). */
static tsr_status pack_pairs(tsr_stream *stream, const packing *pack, uint64_t first,
                             uint64_t pairs, bool partial)
{
    const struct tsr_pack_params push = {
        .x = address_at(pack->x, first * PAIR),
        .y = tsr__tensor_address(pack->y) + first * TSR_PACK_PAIR_WORDS * WORD,
        .largest = tsr__access_address(pack->largest),
        .count = (uint32_t)tsr__min_u64(pack->count - first * PAIR, SPAN_MAX),
        .pairs = (uint32_t)pairs,
        .last = (uint32_t)(partial ? pairs - 1 : pairs),
    };
    tsr__dispatch dispatch =
        dispatch_of(TSR__SHADER_PACK, pack->x, push.x, partial, &push, sizeof push);
    dispatch.access_count = 3;
    dispatch.access[0] = tsr__write_of(pack->y);
    dispatch.access[1] = tsr__read_of(pack->x);
    dispatch.access[2] = pack->largest;
    dispatch.access[2].write = false;
    tsr__groups_for(pairs, WORKGROUP, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

static tsr_status record_pack(tsr_stream *stream, void *work)
{
    const packing *pack = work;
    const uint64_t whole = pack->count / PAIR, most = SPAN_MAX / PAIR;
    TSR__TRY(find_largest(stream, pack));
    for (uint64_t first = 0; first < whole; first += most)
        TSR__TRY(pack_pairs(stream, pack, first, tsr__min_u64(whole - first, most), false));
    return pack_pairs(stream, pack, whole, pairs_for(pack->count) - whole, true);
}

tsr_status tsr__pack(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x)
{
    packing pack = {.x = x, .y = y, .count = (uint64_t)tsr_layout_count(&x->layout)};
    tsr__buffer *scratch;
    if (pack.count == 0)
        return TSR_OK;
    TSR__TRY(tsr__stream_scratch(stream, WORD, &scratch));
    pack.largest = (tsr__access){scratch, 0, WORD, true};
    return tsr__stream_atomic(stream, record_pack, &pack);
}

/* Unpacking ---------------------------------------------------------------------------------- */

typedef struct unpacking {
    const tsr_tensor *x, *y;
    uint64_t count;
    uint32_t contributions;
} unpacking;

static tsr_status record_unpack(tsr_stream *stream, void *work)
{
    const unpacking *unpack = work;
    const uint64_t bytes = pairs_for(unpack->count) * TSR_PACK_PAIR_WORDS * WORD;
    const uint32_t units = tsr_stream_device(stream)->traits.few_invocations ? UNITS_ON_CPU : 1;
    for (span p = {0}; next_span(&p, unpack->count, PAIR);) {
        const uint64_t before = p.first / PAIR * TSR_PACK_PAIR_WORDS * WORD;
        const struct tsr_unpack_params push = {
            .x = tsr__tensor_address(unpack->x) + before,
            .y = address_at(unpack->y, p.first),
            .stride = bytes,
            .factor = bytes - WORD - before,
            .count = p.count,
            .contributions = unpack->contributions,
        };
        tsr__dispatch dispatch =
            dispatch_of(TSR__SHADER_UNPACK, unpack->y, push.y, p.partial, &push, sizeof push);
        dispatch.spec[dispatch.spec_count++] = units;
        dispatch.access_count = 2;
        dispatch.access[0] = tsr__write_of(unpack->y);
        dispatch.access[1] = tsr__read_of(unpack->x);
        tsr__groups_for(((uint64_t)p.count + 3) / 4, WORKGROUP * units, dispatch.groups);
        TSR__TRY(tsr__stream_dispatch(stream, &dispatch));
    }
    return TSR_OK;
}

tsr_status tsr__unpack_sum(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x,
                           int contributions)
{
    unpacking unpack = {.x = x,
                        .y = y,
                        .count = (uint64_t)tsr_layout_count(&y->layout),
                        .contributions = (uint32_t)contributions};
    return unpack.count == 0 ? TSR_OK : tsr__stream_atomic(stream, record_unpack, &unpack);
}
