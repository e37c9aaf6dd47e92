/* Copies on Mesa's CPU driver: rows without gaps with the kernel of vectors.h, transposes with
 * shaders/cpu_drivers/transpose.comp. */
#include "base/checked.h"
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "shaders/params/transpose.h"
#include "shaders/params/vectors.h"

/* The largest number of workgroups in a dimension that the kernel's uniform_index() supports. */
enum { MAX_GROUPS = 65535 };

/* The transposition of one piece. `size` is the size of an element. */
typedef struct transpose {
    tsr_stream *stream;
    const tsr__piece *piece;
    const tsr_tensor *dst, *src;
    uint32_t lanes, size;
    int row_dim;
    /* the dimension along which one dispatch computes all planes; −1: there is only one plane */
    int plane_dim;
} transpose;

/* A range of dst's rows and columns, and the start of its plane in dst and src, in elements. */
typedef struct area {
    uint64_t dst, src;
    uint32_t row, rows, column, columns;
} area;

static uint32_t block_rows(const transpose *t)
{
    return t->lanes * TSR_VECTOR_BYTES / t->size;
}

/* Returns the alignment of the vectors that are loaded from src. They extend along the dimension
 * that contains dst's rows. The last block of rows is shifted back so that it ends with the last
 * row; therefore the end of the last row must be aligned, too. */
static uint32_t source_alignment(const transpose *t)
{
    tsr__piece piece = *t->piece;
    uint64_t end = (uint64_t)piece.shape[t->row_dim] * t->size;

    piece.strides[1][t->row_dim] = piece.strides[1][piece.ndim - 1];
    piece.strides[1][piece.ndim - 1] = 1;
    return tsr__vectors_common(tsr__vectors_alignment(&piece, 1, t->src) | end);
}

/* Returns the longest dimension besides those of rows and columns, or −1. */
static int longest_of_others(const tsr__piece *piece, int row_dim)
{
    int longest = -1;

    for (int i = 0; i < piece->ndim - 1; i++)
        if (i != row_dim && (longest < 0 || piece->shape[i] > piece->shape[longest]))
            longest = i;
    return longest >= 0 && piece->shape[longest] <= MAX_GROUPS ? longest : -1;
}

static transpose begin(const tsr__piece *piece, const tsr_tensor *dst, const tsr_tensor *src)
{
    int row_dim = tsr__piece_transposed(piece);

    return (transpose){.piece = piece,
                       .dst = dst,
                       .src = src,
                       .lanes = dst->buffer->device->info.subgroup_size,
                       .size = (uint32_t)tsr_dtype_size(dst->layout.dtype),
                       .row_dim = row_dim,
                       .plane_dim = longest_of_others(piece, row_dim)};
}

static uint32_t planes_at_once(const transpose *t)
{
    return t->plane_dim < 0 ? 1 : t->piece->shape[t->plane_dim];
}

/* Divides a piece into `whole`, which transpose_piece() can copy, and `rest`, which it cannot.
 * Returns false if it can copy nothing. */
static bool cut(const tsr__piece *piece, const tsr_tensor *dst, const tsr_tensor *src,
                tsr__piece *whole, tsr__piece *rest)
{
    const tsr_device *device = dst->buffer->device;
    transpose t = begin(piece, dst, src);
    uint32_t least = tsr__vectors_least_alignment(device);
    int inner = piece->ndim - 1;

    if (!tsr__vectors_suit(device) || dst->layout.dtype != src->layout.dtype || t.row_dim < 0 ||
        t.size == 1 || piece->count < TSR__MIN_VECTORS)
        return false;
    uint32_t rows = piece->shape[t.row_dim], columns = piece->shape[inner];
    uint32_t filled = columns - columns % (TSR_VECTOR_BYTES / t.size);
    if (rows < block_rows(&t) || filled < TSR_TRANSPOSE_COLUMNS ||
        piece->count / columns / rows / planes_at_once(&t) > TSR__VECTORS_MAX_PLANES ||
        tsr__vectors_alignment(piece, 0, dst) < least || source_alignment(&t) < least)
        return false;

    *whole = *rest = *piece;
    tsr__piece_columns(whole, 2, 0, filled);
    tsr__piece_columns(rest, 2, filled, columns);
    return true;
}

static tsr_status emit(const transpose *t, const area *at)
{
    const tsr__piece *piece = t->piece;
    int inner = piece->ndim - 1;
    uint32_t x_column = piece->strides[1][inner], y_row = piece->strides[0][t->row_dim];
    struct tsr_transpose_push push = {
        .identity = {TSR_IDENTITY_16},
        .y = tsr__piece_address(piece, 0, t->dst) +
             (at->dst + (uint64_t)at->row * y_row + at->column) * t->size,
        .x = tsr__piece_address(piece, 1, t->src) +
             (at->src + (uint64_t)at->column * x_column + at->row) * t->size,
        .x_column = (uint64_t)x_column * t->size,
        .y_row = y_row * t->size,
        .rows = at->rows,
        .columns = at->columns,
        .across = tsr__div_up_u32(at->columns, TSR_TRANSPOSE_COLUMNS),
        .y_plane = t->plane_dim < 0 ? 0 : piece->strides[0][t->plane_dim],
        .x_plane = t->plane_dim < 0 ? 0 : piece->strides[1][t->plane_dim],
    };
    uint32_t blocks = push.across * tsr__div_up_u32(at->rows, block_rows(t));
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_TRANSPOSE,
        .spec_count = 5,
        .spec = {TSR__VECTORS_SUBGROUPS * t->lanes, t->lanes, t->size,
                 tsr__vectors_alignment(piece, 0, t->dst), source_alignment(t)},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32(blocks, TSR__VECTORS_SUBGROUPS), planes_at_once(t), 1},
        .access_count = 2,
        .access = {tsr__write_of(t->dst), tsr__read_of(t->src)},
    };

    tsr__walk_divisor(push.across, &push.magic, &push.shift);
    return tsr__stream_dispatch(t->stream, &dispatch);
}

/* Divides the area in two until one dispatch can cover each part. No part is smaller than a
 * block. */
static tsr_status run_area(const transpose *t, area at)
{
    uint64_t down = tsr__div_up_u32(at.rows, block_rows(t));
    uint64_t across = tsr__div_up_u32(at.columns, TSR_TRANSPOSE_COLUMNS);
    area half = at;

    if (down * across <= TSR__VECTORS_MAX_BLOCKS)
        return emit(t, &at);
    if (down > across) {
        half.rows = (uint32_t)(down / 2) * block_rows(t);
        at.row += half.rows;
        at.rows -= half.rows;
    } else {
        half.columns = (uint32_t)(across / 2) * TSR_TRANSPOSE_COLUMNS;
        at.column += half.columns;
        at.columns -= half.columns;
    }
    TSR__TRY(run_area(t, half));
    return run_area(t, at);
}

static tsr_status transpose_piece(tsr_stream *stream, const tsr__piece *piece,
                                  const tsr_tensor *dst, const tsr_tensor *src)
{
    transpose t = begin(piece, dst, src);
    area at = {.rows = piece->shape[t.row_dim], .columns = tsr__piece_inner(piece)};
    uint32_t planes = piece->count / at.rows / at.columns / planes_at_once(&t);
    tsr__piece first = *piece; /* the first of the planes that a dispatch computes */

    if (t.plane_dim >= 0)
        first.shape[t.plane_dim] = 1;
    t.stream = stream;
    for (uint32_t plane = 0; plane < planes; plane++) {
        at.dst = tsr__piece_plane(&first, 0, t.row_dim, piece->ndim - 1, plane);
        at.src = tsr__piece_plane(&first, 1, t.row_dim, piece->ndim - 1, plane);
        TSR__TRY(run_area(&t, at));
    }
    return TSR_OK;
}

static bool vectors_of(const tsr_tensor *dst, const tsr_tensor *src, tsr__vectors *out)
{
    bool same = dst->layout.dtype == src->layout.dtype;

    *out = (tsr__vectors){.function = same ? TSR_VECTORS_MOVE : TSR_VECTORS_CONVERT,
                          .count = 2,
                          .tensor = {dst, src}};
    return same ||
           (tsr__dtype_is_float(dst->layout.dtype) && tsr__dtype_is_float(src->layout.dtype));
}

tsr_status tsr__cpu_copy(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src,
                         const tsr__piece *piece, tsr__piece *rest)
{
    tsr__vectors vectors;
    tsr__piece whole;

    *rest = *piece;
    if (vectors_of(dst, src, &vectors) && tsr__vectors_cut(&vectors, piece, &whole, rest))
        return tsr__vectors_run(stream, &vectors, &whole);
    return cut(piece, dst, src, &whole, rest) ? transpose_piece(stream, &whole, dst, src) : TSR_OK;
}
