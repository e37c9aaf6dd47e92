/* Elements copied by the host's CPUs. One of them does not fill the memory's bandwidth, so that
 * large copies are shared with threads that live as long as the copy. */
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/checked.h"
#include "gpu/ops/copy.h"

enum {
    MAX_SHARES = 4, /* more do not make memory faster */
    /* Bytes of a share that are worth a thread: some 100 µs of copying, and a thread takes 20 to 40
       to come and go. */
    SHARE_BYTES = 2 << 20,
    /* Of elements with gaps: what one row leaves of a line, the next ones take while caches have
       it. */
    TILE_ROWS = 16,
    TILE_COLUMNS = 256,
};

/* `first` to `end` of a piece's elements in row-major order, or where they have gaps, of its bands.
 */
typedef struct share {
    const tsr__piece *piece;
    char *destination;
    const char *source;
    uint64_t element_bytes, first, end;
} share;

static void *copy_rows(void *opaque)
{
    const share *mine = opaque;
    const tsr__piece *piece = mine->piece;
    uint32_t inner = tsr__copy_row_elements(piece);
    int outer_dims = inner > 1 ? piece->ndim - 1 : piece->ndim;
    uint32_t position[TSR__PIECE_DIMS] = {0};

    uint64_t row = mine->first / inner, in_row = mine->first % inner;
    for (int i = outer_dims - 1; i >= 0; i--) {
        position[i] = (uint32_t)(row % piece->shape[i]);
        row /= piece->shape[i];
    }
    uint64_t next;
    for (uint64_t at = mine->first; at < mine->end; at = next) {
        uint64_t to = (uint64_t)piece->offset[0] + in_row,
                 from = (uint64_t)piece->offset[1] + in_row;
        for (int i = 0; i < outer_dims; i++) {
            to += (uint64_t)position[i] * piece->strides[0][i];
            from += (uint64_t)position[i] * piece->strides[1][i];
        }
        next = tsr__min_u64(at + inner - in_row, mine->end);
        memcpy(mine->destination + to * mine->element_bytes,
               mine->source + from * mine->element_bytes, (next - at) * mine->element_bytes);
        in_row = 0;
        for (int i = outer_dims - 1; i >= 0 && ++position[i] == piece->shape[i]; i--)
            position[i] = 0;
    }
    return NULL;
}

/* Elements that lie so many bytes after one another. */
static inline void copy_apart(char *to, uint64_t to_step, const char *from, uint64_t from_step,
                              uint64_t count, uint64_t element_bytes)
{
    for (uint64_t i = 0; i < count; i++)
        memcpy(to + i * to_step, from + i * from_step, element_bytes);
}

/* With a size that is known to the compiler a copy is an instruction. */
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
    case 8:
        copy_apart(to, to_step, from, from_step, count, 8);
        break;
    default:
        copy_apart(to, to_step, from, from_step, count, element_bytes);
    }
}

static uint32_t plane_rows(const tsr__piece *piece)
{
    return piece->ndim > 1 ? piece->shape[piece->ndim - 2] : 1;
}

/* Of one plane: all of the two innermost dimensions. */
static uint32_t bands_of(const tsr__piece *piece)
{
    return tsr__div_up_u32(plane_rows(piece), TILE_ROWS);
}

/* TILE_ROWS rows of a plane, or what is left of them. */
static void copy_band(const share *mine, uint64_t number)
{
    const tsr__piece *piece = mine->piece;
    const uint64_t bytes = mine->element_bytes, plane = number / bands_of(piece);
    const uint32_t columns = tsr__piece_inner(piece);
    const uint32_t first = (uint32_t)(number % bands_of(piece)) * TILE_ROWS;
    const uint32_t end = tsr__min_u32(plane_rows(piece), first + TILE_ROWS);
    uint64_t start[2], row_step[2] = {0}, step[2];
    for (int i = 0; i < 2; i++) {
        start[i] = (uint64_t)piece->offset[i] +
                   tsr__piece_plane(piece, i, piece->ndim - 2, piece->ndim - 1, (uint32_t)plane);
        step[i] = piece->strides[i][piece->ndim - 1];
        if (piece->ndim > 1)
            row_step[i] = piece->strides[i][piece->ndim - 2];
    }
    for (uint32_t column = 0; column < columns; column += TILE_COLUMNS)
        for (uint32_t row = first; row < end; row++)
            copy_elements(mine->destination +
                              (start[0] + row * row_step[0] + column * step[0]) * bytes,
                          step[0] * bytes,
                          mine->source + (start[1] + row * row_step[1] + column * step[1]) * bytes,
                          step[1] * bytes, tsr__min_u32(TILE_COLUMNS, columns - column), bytes);
}

static void *copy_bands(void *opaque)
{
    const share *mine = opaque;
    for (uint64_t band = mine->first; band < mine->end; band++)
        copy_band(mine, band);
    return NULL;
}

static int share_count(uint64_t bytes)
{
    uint64_t count = tsr__min_u64(bytes / SHARE_BYTES, MAX_SHARES);

    if (count < 2) /* most copies: counting CPUs would take longer than many of them */
        return 1;
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return (int)tsr__min_u64(count, cpus > 1 ? (uint64_t)cpus : 1);
}

void tsr__copy_host(const tsr__piece *piece, uint64_t element_bytes, void *destination,
                    const void *source)
{
    const bool in_rows = tsr__copy_row_elements(piece) > 1;
    const uint64_t units =
        in_rows ? piece->count
                : piece->count / tsr__piece_inner(piece) / plane_rows(piece) * bands_of(piece);
    void *(*const copy)(void *) = in_rows ? copy_rows : copy_bands;
    int count = share_count(piece->count * element_bytes), started = 0;
    share shares[MAX_SHARES];
    pthread_t threads[MAX_SHARES];

    for (int i = 0; i < count; i++)
        shares[i] = (share){.piece = piece,
                            .destination = destination,
                            .source = source,
                            .element_bytes = element_bytes,
                            .first = units * (uint64_t)i / (uint64_t)count,
                            .end = units * (uint64_t)(i + 1) / (uint64_t)count};
    if (count > 1) { /* the process's signals are not for these threads */
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        while (started < count - 1 &&
               pthread_create(&threads[started], NULL, copy, &shares[started]) == 0)
            started++;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    /* All of them, where there are no threads to be had. */
    for (int i = started; i < count; i++)
        copy(&shares[i]);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
}
