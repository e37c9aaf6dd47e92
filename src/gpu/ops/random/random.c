/* Random fills and dropout. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/struct_size.h"
#include "gpu/internal.h"
#include "gpu/ops/common/rows.h"
#include "shaders/params/random.h"
#include "tensor/check.h"
#include "tensor/pieces.h"

#define WORKGROUP 64

/* The index of an element selects its random numbers: the offset plus the position times
 * index_strides. Checks that the last element's index fits in 64 bits, and its distance from the
 * first one's in 63 bits. */
static tsr_status check_indices(const char *op, const tsr_layout *index, uint64_t offset)
{
    uint64_t distance = 0;
    bool fits = true;
    for (int i = 0; i < index->ndim && tsr_layout_count(index) > 0; i++) {
        uint64_t span;
        fits = fits &&
               tsr__mul_u64((uint64_t)(index->shape[i] - 1), (uint64_t)index->strides[i], &span) &&
               tsr__add_u64(distance, span, &distance);
    }
    if (!fits || distance > INT64_MAX || distance > UINT64_MAX - offset)
        return tsr__fail(TSR_ERR_OVERFLOW,
                         "%s: element indices from offset %" PRIu64
                         " over shape %s with index_strides %s do not fit",
                         op, offset, TSR__SHAPE(index->ndim, index->shape),
                         TSR__SHAPE(index->ndim, index->strides));
    return TSR_OK;
}

/* Checks y and the params. Sets *index to a layout with y's shape, the index strides, and offset 0.
 * The division into pieces can then treat the indices of random numbers like one more operand. */
static tsr_status check(const char *op, const tsr_stream *stream, const tsr_tensor *y,
                        const tsr_random_params *params, tsr_layout *index)
{
    TSR__TRY(tsr__require_tensor(op, "y", stream, y));
    TSR__TRY(tsr__require_writable(op, "y", y));
    /* The layout of indices has dtype u8, so that each index counts as one byte: the division into
     * pieces, which span fewer than 2^31 bytes in every operand, then also keeps the indices of a
     * piece within 2^31. */
    TSR__TRY(tsr_layout_init(TSR_U8, y->layout.ndim, y->layout.shape, index));
    for (int i = 0; i < index->ndim && params->index_strides; i++) {
        TSR__REQUIRE(params->index_strides[i] >= 0,
                     "%s: index_strides[%d] is %" PRId64 "; it must not be negative", op, i,
                     params->index_strides[i]);
        index->strides[i] = params->index_strides[i];
    }
    return check_indices(op, index, params->offset);
}

/* Writes one number for each of a piece's dimensions to the end of `to`, so that the innermost
 * dimension is always the last. Fills the entries before them with `before`. */
static void align_right(const tsr__piece *piece, const uint32_t *from, uint32_t before,
                        uint32_t to[4])
{
    for (int i = 0; i < 4; i++) {
        int source = i - (4 - piece->ndim);
        to[i] = source < 0 ? before : from[source];
    }
}

_Static_assert(TSR__PIECE_DIMS == 4, "the shaders' arrays have four entries");

static void fill_push(struct tsr_random_fill_params *push, const tsr__piece *piece,
                      const tsr_tensor *y, const tsr_tensor *x, uint64_t offset)
{
    int last = x ? 2 : 1;
    align_right(piece, piece->shape, 1, push->shape);
    align_right(piece, piece->strides[0], 0, push->y_strides);
    align_right(piece, piece->strides[last], 0, push->index_strides);
    push->y = y->buffer->address + (uint64_t)piece->offset[0] * tsr_dtype_size(y->layout.dtype);
    push->index = offset + (uint64_t)piece->offset[last];
    if (x) {
        align_right(piece, piece->strides[1], 0, push->x_strides);
        push->x = x->buffer->address + (uint64_t)piece->offset[1] * tsr_dtype_size(x->layout.dtype);
    }
    /* Philox makes blocks of four numbers. If indices are consecutive along a row, one invocation
     * computes each block (random_walk.glsl). (size + 6) / 4 is the most blocks that a row touches,
     * because its first and last block may be partly used. */
    uint32_t size = push->shape[3];
    uint32_t per_row = push->index_strides[3] == 1 ? (size + 6) / 4 : size;
    push->invocations = piece->count / size * per_row;
}

/* True if a piece is one contiguous row that begins with a complete Philox block of four numbers.
 */
static bool is_dense(const struct tsr_random_fill_params *push, bool has_x)
{
    const uint64_t starts = push->y | push->index | (has_x ? push->x : 0);
    return push->shape[0] == 1 && push->shape[1] == 1 && push->shape[2] == 1 &&
           push->y_strides[3] == 1 && push->index_strides[3] == 1 &&
           (!has_x || push->x_strides[3] == 1) && starts % 4 == 0;
}

/* If the piece is dense, adds the dispatch for its complete blocks and changes `push` to the
 * remaining elements. */
static tsr_status add_blocks(tsr__dispatches *list, tsr__dispatch dispatch, const tsr_tensor *y,
                             const tsr_tensor *x, struct tsr_random_fill_params *push)
{
    struct tsr_random_fill_params blocks = *push;
    const uint32_t size = push->shape[3];
    if (!is_dense(push, x != NULL) || size < 4)
        return TSR_OK;
    blocks.invocations = size / 4;
    dispatch.push = &blocks;
    dispatch.spec[1] = 1;
    tsr__groups_for(blocks.invocations, WORKGROUP, dispatch.groups);
    const uint64_t done = size / 4 * UINT64_C(4);
    push->y += done * tsr_dtype_size(y->layout.dtype);
    push->x += x ? done * tsr_dtype_size(x->layout.dtype) : 0;
    push->index += done;
    push->shape[3] = size % 4;
    push->invocations = size % 4 > 0;
    return tsr__dispatches_add(list, &dispatch);
}

static tsr_status add_piece(tsr__dispatches *list, tsr__dispatch dispatch, const tsr_tensor *y,
                            const tsr_tensor *x, struct tsr_random_fill_params push)
{
    TSR__TRY(add_blocks(list, dispatch, y, x, &push));
    if (push.invocations == 0)
        return TSR_OK;
    dispatch.push = &push;
    tsr__groups_for(push.invocations, WORKGROUP, dispatch.groups);
    return tsr__dispatches_add(list, &dispatch);
}

/* Records `shader` for all elements of y. If x is not NULL, it has y's shape. `spec` has the
 * spec_count constants that follow the workgroup size and DENSE. This function sets those fields of
 * `push` that describe y, x and the indices of elements; the caller sets the others. */
static tsr_status record(tsr_stream *stream, tsr__shader shader, const uint32_t *spec,
                         int spec_count, tsr_tensor *y, const tsr_tensor *x,
                         const tsr_random_params *params, const tsr_layout *index,
                         struct tsr_random_fill_params push)
{
    push.seed = params->seed;
    push.subsequence = params->subsequence;

    const tsr_layout *layouts[3] = {&y->layout};
    int operands = 1;
    if (x)
        layouts[operands++] = &x->layout;
    layouts[operands++] = index;

    tsr__dispatch dispatch = {
        .shader = shader,
        .spec_count = spec_count + 2,
        .spec = {WORKGROUP, 0},
        .push_bytes = sizeof push,
        .access_count = x ? 2 : 1,
        .access = {tsr__write_of(y)},
    };
    memcpy(dispatch.spec + 2, spec, (size_t)spec_count * sizeof *spec);
    if (x)
        dispatch.access[1] = tsr__read_of(x);

    tsr__dispatches list = {0};
    tsr_status status = TSR_OK;
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, operands, layouts, 0);
    while (status == TSR_OK && tsr__pieces_next(&walk, &piece)) {
        fill_push(&push, &piece, y, x, params->offset);
        status = add_piece(&list, dispatch, y, x, push);
    }
    if (status == TSR_OK)
        status = tsr__dispatches_record(&list, stream);
    tsr__dispatches_finish(&list);
    return status;
}

/* A float format: the number of mantissa bits including the implicit one, and the smallest and the
 * largest exponent of normal numbers. */
typedef struct format {
    int digits, least, most;
} format;

static format format_of(tsr_dtype dtype)
{
    return dtype == TSR_F16    ? (format){11, -14, 15}
           : dtype == TSR_BF16 ? (format){8, -126, 127}
                               : (format){24, -126, 127};
}

static float largest(tsr_dtype dtype)
{
    const format f = format_of(dtype);
    return (float)ldexp(2 - ldexp(1, 1 - f.digits), f.most);
}

/* Returns the largest value of a float dtype that is less than `high`: the next f32 below `high`,
 * rounded down to the dtype. */
static float largest_below(tsr_dtype dtype, float high)
{
    const format f = format_of(dtype);
    const double below = (double)nextafterf(high, -INFINITY);
    const int exponent = below == 0 || ilogb(below) < f.least ? f.least : ilogb(below);
    const int unit = exponent - f.digits + 1; /* the exponent of the last digit */
    return (float)ldexp(floor(ldexp(below, -unit)), unit);
}

static tsr_status require_finite(const char *op, const char *name, float value)
{
    TSR__REQUIRE(isfinite(value), "%s: %s is %g; it must be finite", op, name, (double)value);
    return TSR_OK;
}

/* Checks that `value` is in the range of y's dtype. Otherwise it would become infinite. */
static tsr_status require_in_range(const char *op, const char *name, float value, tsr_dtype dtype)
{
    TSR__TRY(require_finite(op, name, value));
    TSR__REQUIRE(fabsf(value) <= largest(dtype), "%s: %s %g is outside the range of %s", op, name,
                 (double)value, tsr_dtype_name(dtype));
    return TSR_OK;
}

tsr_status tsr_random_uniform(tsr_stream *stream, tsr_tensor *y, float low, float high,
                              const tsr_random_params *params)
{
    static const char op[] = "random_uniform";
    TSR__REQUIRE(params, "%s: params is NULL", op);
    TSR__TAKE(tsr_random_params, params);
    tsr_layout index;
    TSR__TRY(tsr__require_float(op, "y", stream, y));
    TSR__TRY(check(op, stream, y, params, &index));
    TSR__TRY(require_in_range(op, "low", low, y->layout.dtype));
    TSR__TRY(require_in_range(op, "high", high, y->layout.dtype));
    TSR__REQUIRE(low < high, "%s: low %g is not below high %g", op, (double)low, (double)high);
    float span = high - low;
    TSR__REQUIRE(isfinite(span), "%s: high %g - low %g is outside the range of f32", op,
                 (double)high, (double)low);

    struct tsr_random_fill_params push = {
        .scale = span, .shift = low, .limit = largest_below(y->layout.dtype, high)};
    const uint32_t spec[] = {TSR_RANDOM_UNIFORM, (uint32_t)y->layout.dtype};
    return record(stream, TSR__SHADER_RANDOM_FILL, spec, 2, y, NULL, params, &index, push);
}

tsr_status tsr_random_normal(tsr_stream *stream, tsr_tensor *y, float mean, float deviation,
                             const tsr_random_params *params)
{
    static const char op[] = "random_normal";
    TSR__REQUIRE(params, "%s: params is NULL", op);
    TSR__TAKE(tsr_random_params, params);
    tsr_layout index;
    TSR__TRY(tsr__require_float(op, "y", stream, y));
    TSR__TRY(check(op, stream, y, params, &index));
    TSR__TRY(require_finite(op, "mean", mean));
    TSR__TRY(require_finite(op, "deviation", deviation));
    TSR__REQUIRE(deviation >= 0, "%s: deviation %g is negative", op, (double)deviation);

    struct tsr_random_fill_params push = {.scale = deviation, .shift = mean};
    const uint32_t spec[] = {TSR_RANDOM_NORMAL, (uint32_t)y->layout.dtype,
                             tsr_stream_device(stream)->traits.slow_tables};
    return record(stream, TSR__SHADER_RANDOM_FILL, spec, 3, y, NULL, params, &index, push);
}

tsr_status tsr__random_bits(tsr_stream *stream, tsr_tensor *y, const tsr_random_params *params)
{
    static const char op[] = "random_bits";
    TSR__REQUIRE(params, "%s: params is NULL", op);
    TSR__TAKE(tsr_random_params, params);
    tsr_layout index;
    TSR__TRY(check(op, stream, y, params, &index));
    TSR__REQUIRE(y->layout.dtype == TSR_U32, "%s: y is %s; u32 is needed", op,
                 tsr_dtype_name(y->layout.dtype));

    const uint32_t spec[] = {TSR_RANDOM_BITS, TSR_DT_U32};
    return record(stream, TSR__SHADER_RANDOM_FILL, spec, 2, y, NULL, params, &index,
                  (struct tsr_random_fill_params){0});
}

tsr_status tsr_dropout(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *x, float p,
                       const tsr_random_params *params)
{
    static const char op[] = "dropout";
    TSR__REQUIRE(params, "%s: params is NULL", op);
    TSR__TAKE(tsr_random_params, params);
    tsr_layout index;
    TSR__TRY(tsr__require_float(op, "y", stream, y));
    TSR__TRY(tsr__require_float(op, "x", stream, x));
    TSR__TRY(tsr__require_same_shape(op, "y", y, "x", x));
    TSR__TRY(tsr__require_disjoint(op, "y", y, "x", x, true));
    TSR__TRY(check(op, stream, y, params, &index));
    TSR__REQUIRE(p >= 0 && p < 1, "%s: p is %g; 0 <= p < 1 is needed", op, (double)p);

    /* An element is dropped if its random 32-bit word is less than the threshold. p is at most 1 −
     * 2^-24, so the threshold is less than 2^32. Computing in double rounds threshold and scale
     * only once. */
    struct tsr_random_fill_params push = {
        .threshold = (uint32_t)floor((double)p * 0x1p32 + 0.5),
        .scale = (float)(1 / (1 - (double)p)),
    };
    const uint32_t spec[] = {(uint32_t)y->layout.dtype, (uint32_t)x->layout.dtype};
    return record(stream, TSR__SHADER_DROPOUT, spec, 2, y, x, params, &index, push);
}
