/* The sum of the squares of all elements of several tensors. Tensors are divided into chunks. A
 * dispatch writes a partial sum for each chunk to scratch memory; it computes the chunks of up to
 * five tensors. The partial sums are then added up as in tsr_reduce. The order of additions depends
 * only on the numbers of elements. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "gpu/ops/reduce/reduce.h"
#include "shaders/params/sum_squares.h"
#include "tensor/check.h"
#include "tessera/ops.h"

enum {
    WORKGROUP = 64,
};

/* The largest number of elements that one entry of the push constants describes: an entry is a
 * range of elements of one tensor. */
#define PIECE_MAX (INT64_C(1) << 27)

/* A dispatch that is being prepared: ranges of tensors are added to its push constants. All of them
 * have the same dtype and alignment. */
typedef struct batch {
    struct tsr_sum_squares_params push;
    int entries;
    tsr_dtype dtype;
    bool aligned;
    tsr__access read[TSR_SUM_SQUARES_TENSORS];
} batch;

typedef struct call {
    const char *op;
    tsr_stream *stream;
    tsr__dispatches list;
    tsr__access partial; /* the partial sums, in scratch memory */
    uint32_t chunks;     /* the number of chunks that have been added so far */
    float scale;
    batch batch; /* the dispatch being prepared */
} call;

static uint64_t chunks_of(int64_t count)
{
    return ((uint64_t)count + TSR_SUM_SQUARES_CHUNK - 1) / TSR_SUM_SQUARES_CHUNK;
}

static tsr_status flush(call *c)
{
    batch *b = &c->batch;
    if (b->entries == 0)
        return TSR_OK;
    for (int i = b->entries; i < TSR_SUM_SQUARES_TENSORS; i++)
        b->push.first[i] = UINT32_MAX;
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_SUM_SQUARES,
        .spec_count = 3,
        .spec = {WORKGROUP, (uint32_t)b->dtype, b->aligned ? TSR_ROW_DENSE4 : TSR_ROW_STRIDED},
        .push = &b->push,
        .push_bytes = sizeof b->push,
        .access_count = 1 + b->entries,
        .access = {c->partial},
    };
    for (int i = 0; i < b->entries; i++)
        dispatch.access[1 + i] = b->read[i];
    tsr__groups_for(b->push.chunks, WORKGROUP / 8, dispatch.groups);
    b->entries = 0;
    return tsr__dispatches_add(&c->list, &dispatch);
}

/* Adds `count` elements of a tensor without gaps, beginning with element number `first`. */
static tsr_status add_range(call *c, const tsr_tensor *x, int64_t first, int64_t count)
{
    batch *b = &c->batch;
    const tsr_dtype dtype = x->layout.dtype;
    const uint64_t address = tsr__tensor_address(x) + (uint64_t)first * tsr_dtype_size(dtype);
    const bool aligned = address % 4 == 0;
    if (b->entries == TSR_SUM_SQUARES_TENSORS || b->dtype != dtype || b->aligned != aligned)
        TSR__TRY(flush(c));
    if (b->entries == 0)
        b->push = (struct tsr_sum_squares_params){
            .partials = tsr__access_address(c->partial),
            .scale = c->scale,
        };
    b->dtype = dtype;
    b->aligned = aligned;
    b->push.x[b->entries] = address;
    b->push.count[b->entries] = (uint32_t)count;
    b->push.first[b->entries] = b->push.chunks;
    b->push.partial[b->entries] = c->chunks;
    b->read[b->entries++] = tsr__read_of(x);
    b->push.chunks += (uint32_t)chunks_of(count);
    c->chunks += (uint32_t)chunks_of(count);
    return TSR_OK;
}

static tsr_status add_tensor(call *c, const tsr_tensor *x)
{
    const int64_t count = tsr_layout_count(&x->layout);
    for (int64_t first = 0; first < count; first += PIECE_MAX)
        TSR__TRY(add_range(c, x, first, count - first < PIECE_MAX ? count - first : PIECE_MAX));
    return TSR_OK;
}

/* Adds the dispatches that add up all partial sums and write the result to y. */
static tsr_status add_total(call *c, tsr_tensor *y)
{
    tsr_layout one = y->layout,
               partial = {.dtype = TSR_F32,
                          .ndim = 2,
                          .shape = {(int64_t)c->chunks, 1},
                          .strides = {1, 1},
                          .offset = (int64_t)(c->partial.begin_bytes / sizeof(float))};
    one.ndim = 1;
    one.shape[0] = one.strides[0] = 1;
    tsr_tensor to = tsr__tensor_alias(y, &one),
               from = {.layout = partial, .buffer = c->partial.buffer};
    return tsr__sum_columns_add(&c->list, c->stream, c->op, &to, &from, false);
}

static tsr_status check(const char *op, tsr_stream *stream, const tsr_tensor *y,
                        const tsr_tensor *const *x, int count)
{
    TSR__TRY(tsr__require_float(op, "y", stream, y));
    TSR__REQUIRE(y->layout.dtype == TSR_F32 && tsr_layout_count(&y->layout) == 1,
                 "%s: y is %s %s; one element of f32 is needed", op,
                 tsr_dtype_name(y->layout.dtype), TSR__SHAPE(y->layout.ndim, y->layout.shape));
    TSR__REQUIRE(count >= 0 && (x || count == 0), "%s: count is %d%s", op, count,
                 x ? "" : ", but x is NULL");
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "x[%d]", i);
        TSR__TRY(tsr__require_float(op, name, stream, x[i]));
        TSR__TRY(tsr__require_disjoint(op, "y", y, name, x[i], false));
    }
    return TSR_OK;
}

/* Creates contiguous copies of those tensors that have gaps. */
static tsr_status make_contiguous(tsr_stream *stream, const tsr_tensor *const *x, int count,
                                  tsr_tensor **copies)
{
    for (int i = 0; i < count; i++) {
        if (tsr_layout_is_contiguous(&x[i]->layout))
            continue;
        const tsr_layout *layout = &x[i]->layout;
        TSR__TRY(tsr_tensor_create(x[i]->buffer->device, layout->dtype, layout->ndim, layout->shape,
                                   &copies[i]));
        TSR__TRY(tsr_copy(stream, copies[i], x[i]));
    }
    return TSR_OK;
}

static tsr_status record(call *c, tsr_tensor *y, const tsr_tensor *const *x,
                         tsr_tensor *const *copies, int count, uint64_t chunks)
{
    tsr__buffer *scratch;
    TSR__TRY(tsr__stream_scratch(c->stream, chunks * sizeof(float), &scratch));
    c->partial = (tsr__access){scratch, 0, chunks * sizeof(float), true};
    for (int i = 0; i < count; i++)
        TSR__TRY(add_tensor(c, copies[i] ? copies[i] : x[i]));
    TSR__TRY(flush(c));
    TSR__TRY(add_total(c, y));
    return tsr__dispatches_record(&c->list, c->stream);
}

tsr_status tsr_sum_squares(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *const *x, int count,
                           float scale)
{
    const char *op = "sum_squares";
    TSR__TRY(check(op, stream, y, x, count));
    TSR__REQUIRE(isfinite(scale), "%s: scale is %g; it must be finite", op, (double)scale);
    uint64_t chunks = 0;
    for (int i = 0; i < count; i++)
        chunks += chunks_of(tsr_layout_count(&x[i]->layout));
    if (chunks == 0)
        return tsr_fill(stream, y, 0);
    if (chunks > INT32_MAX)
        return tsr__fail(TSR_ERR_OVERFLOW, "%s: %" PRIu64 " chunks of %u elements; at most %d", op,
                         chunks, TSR_SUM_SQUARES_CHUNK, (int)INT32_MAX);
    call c = {.op = op, .stream = stream, .scale = scale};
    tsr_tensor **copies = tsr__calloc((size_t)count, sizeof *copies);
    if (!copies)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = make_contiguous(stream, x, count, copies);
    if (status == TSR_OK)
        status = record(&c, y, x, copies, count, chunks);
    tsr__dispatches_finish(&c.list);
    for (int i = 0; i < count; i++)
        /* the stream keeps the memory until the recorded work is done */
        tsr_tensor_destroy(&copies[i]);
    tsr__free(copies);
    return status;
}
