/* Copies pieces of tensors (tensor/pieces.h) of two kinds: those whose rows have gaps, and those
 * whose rows in dst are columns in src, which are transposed in tiles. A tile is several cache
 * lines wide and high, so that each cache line is read or written completely and only once,
 * regardless of the distance between rows or columns. Neighbouring cache lines are accessed one
 * after the other, which is fast. */
#include <string.h>

#include "base/checked.h"
#include "gpu/host/copy.h"
#include "gpu/host/transpose.h"
#include "gpu/ops/common/walk.h"

enum {
    VECTOR_BYTES = 16,
    /* the length of a tile along a column, which is contiguous in src, in bytes */
    RUN_BYTES = 256,
    TILE_BYTES = 32 * 1024, /* the largest tile, in bytes; it fits the second-level cache */
    BAND_TILES = 16,        /* the number of tiles side by side in a band (copy.h) */
    STRAIGHT_ROWS = 16,
    MAX_COLUMNS = 512,
    ROW_BYTES = MAX_COLUMNS * 8,
};

/* A plane consists of the elements of a piece along two dimensions, its rows and columns. Planes
 * are divided into bands (copy.h), and bands into tiles. Arrays with two elements are for dst and
 * src. */
typedef struct plane {
    /* the dimensions of the rows and of the columns; row_dim is −1 if there is only one row */
    int row_dim, column_dim;
    uint32_t rows, columns;
    /* transpose: columns of src are rows of dst, and both dimensions are at least one vector long
     */
    bool turned;
    uint32_t band_rows, tile_rows, tile_columns, band_columns;
    uint64_t row_step[2], step[2]; /* bytes to the next row and to the next column */
} plane;

/* Returns the dimension with the smallest stride in src that is not 0, except the innermost
 * dimension. */
static int closest_dim(const tsr__piece *piece)
{
    int inner = piece->ndim - 1, best = inner - 1;
    for (int i = inner - 1; i >= 0; i--) {
        uint32_t stride = piece->strides[1][i];
        if (stride > 0 && (piece->strides[1][best] == 0 || stride < piece->strides[1][best]))
            best = i;
    }
    return best;
}

static void set_dims(plane *p, const tsr__host_piece *work, int row_dim, int column_dim)
{
    const tsr__piece *piece = work->piece;
    const uint64_t bytes[2] = {work->to_bytes, work->from_bytes};

    p->row_dim = row_dim;
    p->column_dim = column_dim;
    p->rows = row_dim < 0 ? 1 : piece->shape[row_dim];
    p->columns = piece->shape[column_dim];
    for (int i = 0; i < 2; i++) {
        p->row_step[i] = row_dim < 0 ? 0 : piece->strides[i][row_dim] * bytes[i];
        p->step[i] = piece->strides[i][column_dim] * bytes[i];
    }
}

static plane plane_of(const tsr__host_piece *work)
{
    const int inner = work->piece->ndim - 1, row_dim = closest_dim(work->piece);
    const uint32_t least = VECTOR_BYTES / work->from_bytes;
    plane p = {.band_rows = STRAIGHT_ROWS, .tile_rows = 1, .tile_columns = MAX_COLUMNS};

    set_dims(&p, work, row_dim, inner);
    p.turned = p.row_step[1] == work->from_bytes && p.step[1] != p.row_step[1] && p.rows >= least &&
               p.columns >= least;
    if (p.turned) {
        p.tile_rows = p.band_rows = tsr__min_u32(RUN_BYTES / work->from_bytes, p.rows);
        p.tile_columns = tsr__min_u32(TILE_BYTES / work->from_bytes / p.tile_rows, MAX_COLUMNS);
    } else if (p.columns < least && p.rows > p.columns) {
        /* exchange rows and columns, because a few long rows are copied faster than many short ones
         */
        set_dims(&p, work, inner, row_dim);
    }
    p.band_columns = BAND_TILES * p.tile_columns;
    return p;
}

static uint32_t bands_across(const plane *p)
{
    return tsr__div_up_u32(p->columns, p->band_columns);
}

static uint64_t bands_of(const plane *p)
{
    return (uint64_t)tsr__div_up_u32(p->rows, p->band_rows) * bands_across(p);
}

uint64_t tsr__host_bands(const tsr__host_piece *work)
{
    plane p = plane_of(work);
    return work->piece->count / p.columns / p.rows * bands_of(&p);
}

/* Copies `count` elements whose distances in `to` and `from` are to_step and from_step bytes. */
static inline void copy_apart(char *to, uint64_t to_step, const char *from, uint64_t from_step,
                              uint64_t count, uint64_t element_bytes)
{
    for (uint64_t i = 0; i < count; i++)
        memcpy(to + i * to_step, from + i * from_step, element_bytes);
}

/* Calls copy_apart with a constant size, so that the compiler copies an element with one
 * instruction. */
static void copy_elements(char *to, uint64_t to_step, const char *from, uint64_t from_step,
                          uint64_t count, uint64_t element_bytes)
{
    switch (element_bytes) {
    case 1:
        copy_apart(to, to_step, from, from_step, count, 1);
        break;
    case 2:
        copy_apart(to, to_step, from, from_step, count, 2);
        break;
    case 4:
        copy_apart(to, to_step, from, from_step, count, 4);
        break;
    default:
        copy_apart(to, to_step, from, from_step, count, 8);
    }
}

/* Copies `count` elements of a row, and converts them if necessary. */
static void copy_row(const tsr__host_piece *work, char *to, uint64_t to_step, const char *from,
                     uint64_t from_step, uint32_t count)
{
    char gathered[ROW_BYTES], converted[ROW_BYTES];

    if (!work->convert) {
        if (to_step == work->to_bytes && from_step == to_step)
            memcpy(to, from, (size_t)count * work->to_bytes);
        else
            copy_elements(to, to_step, from, from_step, count, work->to_bytes);
        return;
    }
    if (from_step != work->from_bytes) {
        copy_elements(gathered, work->from_bytes, from, from_step, count, work->from_bytes);
        from = gathered;
    }
    if (to_step == work->to_bytes) {
        work->convert(to, from, count);
    } else {
        work->convert(converted, from, count);
        copy_elements(to, to_step, converted, work->to_bytes, count, work->to_bytes);
    }
}

static void copy_tile(const tsr__host_piece *work, const plane *p, char *to, const char *from,
                      uint32_t rows, uint32_t columns)
{
    char tile[TILE_BYTES];
    const uint64_t bytes = work->from_bytes, pitch = bytes * p->tile_columns;

    if (!p->turned) {
        copy_row(work, to, p->step[0], from, p->step[1], columns);
        return;
    }
    tsr__host_transpose(tile, pitch, from, p->step[1], rows, columns, work->from_bytes);
    for (uint32_t row = 0; row < rows; row++)
        copy_row(work, to + row * p->row_step[0], p->step[0], tile + row * pitch, bytes, columns);
}

/* Copies band `number`, counted through all planes of the piece. */
static void copy_band(const tsr__host_piece *work, const plane *p, uint64_t number)
{
    const tsr__piece *piece = work->piece;
    const uint32_t index = (uint32_t)(number / bands_of(p));
    const uint32_t band = (uint32_t)(number % bands_of(p));
    const uint32_t row0 = band / bands_across(p) * p->band_rows;
    const uint32_t column0 = band % bands_across(p) * p->band_columns;
    const uint32_t rows_end = row0 + tsr__min_u32(p->rows - row0, p->band_rows);
    const uint32_t columns_end = column0 + tsr__min_u32(p->columns - column0, p->band_columns);
    const uint64_t bytes[2] = {work->to_bytes, work->from_bytes};
    uint64_t start[2];

    for (int i = 0; i < 2; i++)
        start[i] = bytes[i] * ((uint64_t)piece->offset[i] +
                               tsr__piece_plane(piece, i, p->row_dim, p->column_dim, index));
    for (uint32_t row = row0; row < rows_end; row += p->tile_rows)
        for (uint32_t column = column0; column < columns_end; column += p->tile_columns)
            copy_tile(work, p, work->to + start[0] + row * p->row_step[0] + column * p->step[0],
                      work->from + start[1] + row * p->row_step[1] + column * p->step[1],
                      tsr__min_u32(p->tile_rows, rows_end - row),
                      tsr__min_u32(p->tile_columns, columns_end - column));
}

void tsr__host_copy_bands(const tsr__host_piece *work, uint64_t first, uint64_t end)
{
    plane p = plane_of(work);

    for (uint64_t band = first; band < end; band++)
        copy_band(work, &p, band);
}
