/* Rotary position embedding: creates the table of frequencies and records the dispatches. */
#include "gpu/ops/rope/rope.h"

#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "base/struct_size.h"
#include "gpu/internal.h"
#include "gpu/ops/common/rows.h"
#include "gpu/ops/common/walk.h"
#include "shaders/params/rope.h"
#include "tensor/check.h"
#include "tessera/ops.h"

#define ITEMS_MAX (UINT64_C(1) << 28) /* invocations per dispatch */
/* a row must span fewer bytes, from its first to its last component */
#define SPAN_MAX (INT64_C(1) << 31)

struct tsr_rope {
    tsr_rope_params params; /* with defaults filled in */
    /* [pairs,2]: the low and the high 32 bits of each frequency; see fraction_of() */
    tsr_tensor *table;
};

/* The table ---------------------------------------------------------------------------------- */

/* Returns the frequency as the shader needs it: the fractional part of the number of turns per
 * position, times 2^64. */
static uint64_t fraction_of(double radians)
{
    static const double turn = 6.283185307179586477;
    const double turns = radians / turn;
    return (uint64_t)((turns - floor(turns)) * 0x1p64);
}

static tsr_status fill_table(tsr_stream *stream, tsr_rope *rope)
{
    const size_t pairs = (size_t)rope->params.rotary_dim / 2;
    double *frequencies = tsr__calloc(pairs, sizeof *frequencies);
    uint32_t(*words)[2] = tsr__calloc(pairs, sizeof *words);
    tsr_status status = frequencies && words ? TSR_OK : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK) {
        tsr__rope_frequencies(&rope->params, frequencies);
        for (size_t i = 0; i < pairs; i++) {
            const uint64_t fraction = fraction_of(frequencies[i]);
            words[i][0] = (uint32_t)fraction;
            words[i][1] = (uint32_t)(fraction >> 32);
        }
        status = tsr_tensor_create(tsr_stream_device(stream), TSR_U32, 2,
                                   (int64_t[]){(int64_t)pairs, 2}, &rope->table);
    }
    if (status == TSR_OK)
        status = tsr_tensor_upload(stream, rope->table, words, pairs * sizeof *words);
    tsr__free(words);
    tsr__free(frequencies);
    return status;
}

tsr_status tsr_rope_create(tsr_stream *stream, const tsr_rope_params *params, tsr_rope **out)
{
    TSR__REQUIRE(stream && params && out, "rope_create: %s is NULL",
                 !stream  ? "stream"
                 : params ? "out"
                          : "params");
    TSR__TAKE(tsr_rope_params, params);
    tsr_rope_params complete;
    TSR__TRY(tsr__rope_params_complete(params, &complete));
    tsr_rope *rope = tsr__calloc(1, sizeof *rope);
    if (!rope)
        return TSR_ERR_NO_MEMORY;
    rope->params = complete;
    tsr_status status = fill_table(stream, rope);
    rope->params.divisors = NULL; /* the caller's */
    if (status != TSR_OK) {
        tsr_rope_destroy(&rope);
        return status;
    }
    *out = rope;
    return TSR_OK;
}

void tsr_rope_destroy(tsr_rope **rope)
{
    if (!rope || !*rope)
        return;
    tsr_tensor_destroy(&(*rope)->table);
    tsr__free(*rope);
    *rope = NULL;
}

const tsr_rope_params *tsr__rope_params_of(const tsr_rope *rope)
{
    return &rope->params;
}

const tsr_tensor *tsr__rope_table(const tsr_rope *rope)
{
    return rope->table;
}

/* One call ----------------------------------------------------------------------------------- */

typedef struct call {
    const char *op, *y_name, *x_name;
    const tsr_rope *rope;
    bool back;
    tsr_tensor *y;
    const tsr_tensor *x, *positions;
    /* three layouts with one element for each row: the first component of y's rows, that of x's
     * rows, and the rows' positions */
    tsr_layout rows[3];
    tsr__dispatches list;
} call;

static tsr_status check_span(const call *c, const char *name, const tsr_tensor *tensor)
{
    const int last = tensor->layout.ndim - 1;
    const int64_t size = (int64_t)tsr_dtype_size(tensor->layout.dtype);
    TSR__REQUIRE(tensor->layout.strides[last] < SPAN_MAX / size / tensor->layout.shape[last],
                 "%s: a row of %s has %lld elements with a stride of %lld; less than 2^31 bytes "
                 "are needed",
                 c->op, name, (long long)tensor->layout.shape[last],
                 (long long)tensor->layout.strides[last]);
    return TSR_OK;
}

static tsr_status check(call *c, const tsr_stream *stream)
{
    TSR__REQUIRE(c->rope, "%s: rope is NULL", c->op);
    TSR__TRY(tsr__require_tensor(c->op, "the frequency table", stream, c->rope->table));
    TSR__TRY(tsr__require_float(c->op, c->y_name, stream, c->y));
    TSR__TRY(tsr__require_float(c->op, c->x_name, stream, c->x));
    TSR__TRY(tsr__require_tensor(c->op, "positions", stream, c->positions));
    TSR__REQUIRE(c->positions->layout.dtype == TSR_I32, "%s: positions are %s; i32 is needed",
                 c->op, tsr_dtype_name(c->positions->layout.dtype));
    TSR__TRY(tsr__require_same_shape(c->op, c->y_name, c->y, c->x_name, c->x));
    const tsr_layout *x = &c->x->layout;
    const int last = x->ndim - 1;
    TSR__REQUIRE(x->ndim >= 2 && x->shape[last] >= c->rope->params.rotary_dim,
                 "%s: %s is %s; at least 2 dimensions are needed, and a last one of at least "
                 "rotary_dim, %lld",
                 c->op, c->x_name, TSR__SHAPE(x->ndim, x->shape),
                 (long long)c->rope->params.rotary_dim);
    TSR__TRY(tsr__require_disjoint(c->op, c->y_name, c->y, c->x_name, c->x, true));
    TSR__TRY(tsr__require_disjoint(c->op, c->y_name, c->y, "positions", c->positions, false));
    TSR__TRY(check_span(c, c->y_name, c->y));
    TSR__TRY(check_span(c, c->x_name, c->x));
    c->rows[0] = tsr__layout_without(&c->y->layout, last);
    c->rows[1] = tsr__layout_without(x, last);
    const tsr_tensor rows = tsr__tensor_alias(c->x, &c->rows[1]);
    TSR__TRY(tsr__require_broadcast(c->op, "positions", c->positions, "the rows of x", &rows,
                                    &c->rows[2]));
    return tsr__device_check(c->x->buffer->device);
}

/* The distance between the two components of a pair, in components. */
static int64_t distance(const tsr_rope_params *params)
{
    return params->pairing == TSR_ROPE_ADJACENT ? 1 : params->rotary_dim / 2;
}

/* Returns the form (TSR_ROPE_FORM_…) in which an operand is accessed. The innermost dimension of
 * `piece` counts pairs. */
static uint32_t form_of(const call *c, const tsr__piece *piece, int operand,
                        const tsr_tensor *tensor, uint32_t repeat_stride)
{
    const uint64_t vector = 4 * tsr_dtype_size(tensor->layout.dtype);
    const int last = tensor->layout.ndim - 1;
    bool vectors = tensor->layout.strides[last] == 1 && c->rope->params.rotary_dim % 8 == 0 &&
                   repeat_stride % 4 == 0 &&
                   tsr__piece_address(piece, operand, tensor) % vector == 0;
    for (int i = 0; i + 1 < piece->ndim; i++)
        vectors = vectors && piece->strides[operand][i] % 4 == 0;
    return vectors ? TSR_ROPE_FORM_VECTORS : TSR_ROPE_FORM_STRIDED;
}

/* Adds the dispatch for a piece whose innermost dimension counts pairs. If `repeats` is above 0,
 * the rows extend along one more dimension of that size, with these strides in y and x. Positions
 * do not change along it. */
static tsr_status add_pairs(call *c, const tsr__piece *piece, uint32_t repeats,
                            const uint32_t repeat_strides[2])
{
    const tsr_rope_params *params = &c->rope->params;
    const int last = c->x->layout.ndim - 1;
    const int64_t y_step = c->y->layout.strides[last], x_step = c->x->layout.strides[last];
    struct tsr_rope_push push = {
        .y = tsr__piece_address(piece, 0, c->y),
        .x = tsr__piece_address(piece, 1, c->x),
        .positions = tsr__piece_address(piece, 2, c->positions),
        .table = tsr__tensor_address(c->rope->table),
        .y_second = (uint32_t)(y_step * distance(params)),
        .x_second = (uint32_t)(x_step * distance(params)),
        .scale = (float)params->attention_factor,
        .repeats = repeats,
    };
    uint32_t position_strides[TSR_WALK_DIMS];
    tsr__walk_init(&push.walk, piece, 4);
    tsr__walk_strides(piece, 0, push.y_strides);
    tsr__walk_strides(piece, 1, push.x_strides);
    tsr__walk_strides(piece, 2, position_strides);
    memcpy(push.position_strides, position_strides, sizeof push.position_strides);
    if (repeats > 0) {
        push.y_strides[0] = repeat_strides[0];
        push.x_strides[0] = repeat_strides[1];
    }
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_ROPE,
        .spec_count = 8,
        .spec = {TSR__WALK_WORKGROUP, (uint32_t)c->y->layout.dtype, (uint32_t)c->x->layout.dtype,
                 form_of(c, piece, 0, c->y, repeat_strides[0]),
                 form_of(c, piece, 1, c->x, repeat_strides[1]),
                 params->pairing == TSR_ROPE_ADJACENT, c->back, repeats > 0},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 4,
        .access = {tsr__write_of(c->y), tsr__read_of(c->x), tsr__read_of(c->positions),
                   tsr__read_of(c->rope->table)},
    };
    tsr__groups_for(push.walk.items, TSR__WALK_WORKGROUP, dispatch.groups);
    return tsr__dispatches_add(&c->list, &dispatch);
}

/* Removes dimension `dim` from a piece, which then describes its first index along it. */
static void remove_dim(tsr__piece *piece, int dim)
{
    piece->ndim--;
    piece->count /= piece->shape[dim];
    for (int i = dim; i < piece->ndim; i++) {
        piece->shape[i] = piece->shape[i + 1];
        for (int operand = 0; operand < 3; operand++)
            piece->strides[operand][i] = piece->strides[operand][i + 1];
    }
}

/* Returns the longest dimension along which positions do not change (for example the heads): an
 * invocation then computes its angle once and rotates all rows along that dimension. Returns -1 if
 * there is none, and on GPUs, where fewer invocations that each do more work are slower. */
static int repeated_dim(const call *c, const tsr__piece *piece)
{
    int best = -1;
    if (!c->x->buffer->device->traits.few_invocations)
        return -1;
    for (int i = 0; i < piece->ndim; i++)
        if (piece->strides[2][i] == 0 && piece->shape[i] > 1 && piece->ndim > 1 &&
            (best < 0 || piece->shape[i] > piece->shape[best]))
            best = i;
    return best;
}

/* Adds the dispatch that rotates the rows of a piece. Each element of the piece is a complete row,
 * and the piece has at most 3 dimensions; the pairs of components in a row become the last one. */
static tsr_status add_rows(call *c, tsr__piece piece)
{
    const tsr_rope_params *params = &c->rope->params;
    const int64_t step = params->pairing == TSR_ROPE_ADJACENT ? 2 : 1;
    const int repeated = repeated_dim(c, &piece), last = c->x->layout.ndim - 1;
    uint32_t repeats = 0, strides[2] = {0};
    if (repeated >= 0) {
        repeats = piece.shape[repeated];
        for (int operand = 0; operand < 2; operand++)
            strides[operand] = piece.strides[operand][repeated];
        remove_dim(&piece, repeated);
    }
    const int d = piece.ndim++;
    piece.shape[d] = (uint32_t)(params->rotary_dim / 2);
    piece.count *= piece.shape[d];
    piece.strides[0][d] = (uint32_t)(c->y->layout.strides[last] * step);
    piece.strides[1][d] = (uint32_t)(c->x->layout.strides[last] * step);
    piece.strides[2][d] = 0;
    return add_pairs(c, &piece, repeats, strides);
}

/* Adds the dispatches for a piece whose elements are rows. If it has 4 dimensions, it is divided
 * along the shortest one. */
static tsr_status add_piece(call *c, const tsr__piece *piece)
{
    if (piece->ndim < TSR__PIECE_DIMS)
        return add_rows(c, *piece);
    int cut = 0;
    for (int i = 1; i < piece->ndim; i++)
        if (piece->shape[i] < piece->shape[cut])
            cut = i;
    tsr__piece slice = *piece;
    remove_dim(&slice, cut);
    for (uint32_t n = 0; n < piece->shape[cut]; n++) {
        TSR__TRY(add_rows(c, slice));
        for (int operand = 0; operand < 3; operand++)
            slice.offset[operand] += piece->strides[operand][cut];
    }
    return TSR_OK;
}

/* Copies the components that are not rotated, from rotary_dim on, unless y is x. */
static tsr_status copy_rest(tsr_stream *stream, const call *c)
{
    const int last = c->x->layout.ndim - 1;
    const int64_t first = c->rope->params.rotary_dim, end = c->x->layout.shape[last];
    tsr_layout y, x;
    bool same = false;
    if (first == end || (tsr__tensors_overlap(c->y, c->x, &same) && same))
        return TSR_OK;
    TSR__TRY(tsr_layout_slice(&c->y->layout, last, first, end, 1, &y));
    TSR__TRY(tsr_layout_slice(&c->x->layout, last, first, end, 1, &x));
    tsr_tensor to = tsr__tensor_alias(c->y, &y);
    const tsr_tensor from = tsr__tensor_alias(c->x, &x);
    return tsr_copy(stream, &to, &from);
}

static tsr_status record(tsr_stream *stream, void *opaque)
{
    call *c = opaque;
    TSR__TRY(tsr__dispatches_record(&c->list, stream));
    return copy_rest(stream, c);
}

static tsr_status run_rope(tsr_stream *stream, call *c)
{
    TSR__TRY(check(c, stream));
    if (tsr_layout_count(&c->x->layout) == 0)
        return TSR_OK;
    const tsr_layout *layouts[] = {&c->rows[0], &c->rows[1], &c->rows[2]};
    const uint64_t groups = ((uint64_t)c->rope->params.rotary_dim / 2 + 3) / 4;
    tsr__pieces walk;
    tsr__piece piece;
    tsr_status status = TSR_OK;
    tsr__pieces_init(&walk, 3, layouts, ITEMS_MAX / groups);
    while (status == TSR_OK && tsr__pieces_next(&walk, &piece))
        status = add_piece(c, &piece);
    if (status == TSR_OK)
        status = tsr__stream_atomic(stream, record, c);
    tsr__dispatches_finish(&c->list);
    return status;
}

tsr_status tsr_rope_apply(tsr_stream *stream, const tsr_rope *rope, tsr_tensor *y,
                          const tsr_tensor *x, const tsr_tensor *positions)
{
    call c = {.op = "rope_apply",
              .y_name = "y",
              .x_name = "x",
              .rope = rope,
              .y = y,
              .x = x,
              .positions = positions};
    return run_rope(stream, &c);
}

tsr_status tsr_rope_grad(tsr_stream *stream, const tsr_rope *rope, tsr_tensor *dx,
                         const tsr_tensor *dy, const tsr_tensor *positions)
{
    call c = {.op = "rope_grad",
              .y_name = "dx",
              .x_name = "dy",
              .rope = rope,
              .back = true,
              .y = dx,
              .x = dy,
              .positions = positions};
    return run_rope(stream, &c);
}
