/* Reads weights: the bytes of a rank's part only, in pieces, which are ranges of rows of at most
 * PIECE_BYTES, unless a single row is longer.
 *
 * If the host reaches a tensor's memory, threads read pieces straight to their places, and convert
 * them on the way if necessary. The system then copies each byte once; most of the remaining time
 * it fills new pages with zeros. Other tensors are read piece by piece into host memory and
 * uploaded. */
#include "model/weights/reader.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/error.h"
#include "gpu/internal.h"
#include "model/weights/elements.h"
#include "model/weights/quantize.h"
#include "tensor/dtype.h"
#include "tensor/float_conversion.h"

#define PIECE_BYTES ((size_t)4 << 20)
/* The bytes that are read at once of rows that alternate with those of another parameter. */
#define RUN_BYTES ((uint64_t)256 << 10)

void tsr__weight_reader_init(const tsr__model_files *files, tsr_stream *stream, int ranks,
                             tsr__weight_reader *out)
{
    const int threads = tsr__host_processors() / (ranks > 1 ? ranks : 1);
    *out = (tsr__weight_reader){.stream = stream,
                                .threads = threads < 1                     ? 1
                                           : threads < TSR__WEIGHT_THREADS ? threads
                                                                           : TSR__WEIGHT_THREADS};
    tsr__weight_source_init("model", files, &out->source);
}

void tsr__weight_reader_finish(tsr__weight_reader *r)
{
    tsr__weight_source_finish(&r->source);
    for (int i = 0; i < TSR__WEIGHT_THREADS; i++) {
        tsr__free(r->staging[i].raw);
        tsr__free(r->staging[i].scratch);
        tsr__free(r->staging[i].run);
    }
    tsr__free(r->pending);
    tsr__free(r->converted);
    *r = (tsr__weight_reader){.source = r->source};
}

/* Geometry ----------------------------------------------------------------------------------- */

/* The bytes of the blocks that hold some columns of a row. */
typedef struct segment {
    uint64_t at, bytes; /* both count from the start of the row */
    int64_t skip;       /* the elements before the first column that is needed */
    int64_t elements;   /* the elements of all these blocks */
    uint64_t row_bytes; /* the bytes of the complete row */
} segment;

static segment segment_of(const tsr_shard_param *param, int64_t row, int64_t first, int64_t count)
{
    const uint64_t block = param->block_count, from = (uint64_t)first / block,
                   to = tsr__div_up_u64((uint64_t)(first + count), block);
    return (segment){
        .at = from * param->block_bytes,
        .bytes = (to - from) * param->block_bytes,
        .skip = first - (int64_t)(from * block),
        .elements = (int64_t)((to - from) * block),
        .row_bytes = (uint64_t)row / block * param->block_bytes,
    };
}

/* Returns the row of the file, seen as rows of `columns` elements, that holds row `row` of the
 * parameter. */
static uint64_t row_in_file(const tsr__weight *w, int64_t row)
{
    return (uint64_t)(w->matrix * w->all_rows + w->first_row +
                      tsr__order_in_file(&w->row_order, row) * w->row_step);
}

/* Returns how many of `most` rows from `row` on follow each other in the file. */
static int64_t run_from(const tsr__order *order, int64_t row, int64_t most)
{
    const int64_t left = order->run > 0 ? order->run - row % order->run : most;
    return left < most ? left : most;
}

/* Finds the range of the file's columns that has those of a part. The part may have columns between
 * them that belong to others. */
static void column_range(const tsr__weight *w, const tsr__weight_part *part, int64_t *first,
                         int64_t *count)
{
    const tsr__order *order = &w->column_order;
    int64_t low = w->columns, high = 0;
    if (order->run == 0) {
        *first = part->first_column;
        *count = part->columns;
        return;
    }
    for (int64_t c = 0; c < part->columns;) {
        const int64_t run = run_from(order, part->first_column + c, part->columns - c),
                      at = tsr__order_in_file(order, part->first_column + c);
        low = at < low ? at : low;
        high = at + run > high ? at + run : high;
        c += run;
    }
    *first = low;
    *count = high > low ? high - low : 0;
}

/* Returns the segment of each row of the file that contains a rank's part. */
static segment segment_for(const tsr__weight *w, const tsr__weight_part *part)
{
    int64_t first, count;
    if (w->transposed)
        return segment_of(w->file, w->all_rows, w->first_row + part->first_row * w->row_step,
                          part->rows > 0 ? (part->rows - 1) * w->row_step + 1 : 0);
    column_range(w, part, &first, &count);
    return segment_of(w->file, w->columns, first, count);
}

uint64_t tsr__weight_part_bytes(const tsr__weight *w, const tsr__weight_part *part)
{
    if (part->rows == 0 || part->columns == 0)
        return 0;
    return segment_for(w, part).bytes * (uint64_t)(w->transposed ? part->columns : part->rows);
}

/* Returns the number that row `row` of the file has in the order of this library's layers ("ours",
 * see weights.h). Both numbers count from the first row of a head; `head` is the number of rows of
 * a head, or 0 if the orders are the same. */
static int64_t our_row(int64_t head, int64_t row)
{
    if (head == 0)
        return row;
    const int64_t in = row % head;
    return row - in + in % 2 * (head / 2) + in / 2;
}

/* Pieces ------------------------------------------------------------------------------------- */

typedef struct piece {
    const tsr__weight *weight;
    const tsr__weight_part *part;
    tsr_dtype to;        /* the tensor's dtype */
    tsr_dtype dtype;     /* f32 for elements that must still be quantised, otherwise `to` */
    int64_t first, rows; /* rows of the part */
} piece;

/* Returns whether rows of the file can be copied to the tensor without conversion. */
static bool same_bytes(const tsr__weight *w, tsr_dtype to)
{
    return !w->transposed && !w->less_one && !w->minus_exp && w->column_order.run == 0 &&
           tsr__elements_dtype(w->file) == to;
}

/* Returns whether elements must be quantised. */
static bool must_quantise(const tsr__weight *w, tsr_dtype to)
{
    return tsr__dtype_is_block(to) &&
           (tsr__elements_dtype(w->file) != to || !tsr__weight_keeps_blocks(w, to));
}

static uint64_t bytes_of(const piece *p, tsr_dtype dtype)
{
    return tsr__dtype_bytes(dtype, (uint64_t)(p->rows * p->part->columns));
}

/* Reads rows of a piece that alternate with rows of another parameter, in runs of both. */
static tsr_status read_runs(const tsr__weight_source *source, tsr__weight_staging *staging,
                            const piece *p, const segment *s, int64_t head, char *out)
{
    const int64_t row = p->part->first_row + p->first;
    const uint64_t stride = s->row_bytes * (uint64_t)p->weight->row_step;
    const int64_t most = (int64_t)tsr__max_u64(1, RUN_BYTES / stride);
    for (int64_t i = 0; i < p->rows; i += most) {
        const int64_t count = p->rows - i < most ? p->rows - i : most;
        const uint64_t bytes = (uint64_t)(count - 1) * stride + s->bytes;
        TSR__TRY(tsr__need_staging(&staging->run, &staging->run_bytes, bytes, 1));
        TSR__TRY(tsr__weight_source_read_open(
            source, p->weight->file, row_in_file(p->weight, row + i) * s->row_bytes + s->at, bytes,
            staging->run));
        for (int64_t k = 0; k < count; k++)
            memcpy(out + (uint64_t)our_row(head, i + k) * s->bytes,
                   (char *)staging->run + (uint64_t)k * stride, s->bytes);
    }
    return TSR_OK;
}

/* Reads rows of a piece, of which row i goes to out + our_row(head, i) · s->bytes. */
static tsr_status read_rows(const tsr__weight_source *source, tsr__weight_staging *staging,
                            const piece *p, const segment *s, int64_t head, char *out)
{
    const tsr_shard_param *file = p->weight->file;
    const int64_t row = p->part->first_row + p->first;
    if (p->weight->row_step > 1)
        return read_runs(source, staging, p, s, head, out);
    if (s->bytes == s->row_bytes && head == 0 && p->weight->row_order.run > 0) {
        for (int64_t i = 0; i < p->rows;) {
            const int64_t run = run_from(&p->weight->row_order, row + i, p->rows - i);
            TSR__TRY(tsr__weight_source_read_open(
                source, file, row_in_file(p->weight, row + i) * s->row_bytes,
                s->bytes * (uint64_t)run, out + (uint64_t)i * s->bytes));
            i += run;
        }
        return TSR_OK;
    }
    if (s->bytes == s->row_bytes && head == 0)
        return tsr__weight_source_read_open(source, file,
                                            row_in_file(p->weight, row) * s->row_bytes,
                                            s->bytes * (uint64_t)p->rows, out);
    for (int64_t i = 0; i < p->rows; i++)
        TSR__TRY(tsr__weight_source_read_open(
            source, file, row_in_file(p->weight, row + i) * s->row_bytes + s->at, s->bytes,
            out + (uint64_t)our_row(head, i) * s->bytes));
    return TSR_OK;
}

/* Converts the rows of a piece, each of one element, and adds 1, or takes the logarithm. */
static tsr_status convert_changed(tsr__weight_staging *staging, const piece *p, char *out)
{
    const tsr_shard_param *file = p->weight->file;
    TSR__TRY(tsr__need_floats(&staging->scratch, &staging->scratch_count, (size_t)p->rows));
    TSR__TRY(
        tsr__elements_convert(file, staging->raw, 0, p->rows, TSR_F32, staging->scratch, NULL));
    for (int64_t i = 0; i < p->rows; i++) {
        float *value = &staging->scratch[i];
        TSR__REQUIRE(!p->weight->minus_exp || *value < 0,
                     "model: tensor %s: element %" PRIu64 " is %g; it must be less than 0",
                     file->name, row_in_file(p->weight, p->part->first_row + p->first + i),
                     (double)*value);
        *value = p->weight->minus_exp ? (float)log(-(double)*value) : *value + 1;
    }
    if (p->dtype == TSR_F32)
        memcpy(out, staging->scratch, (size_t)p->rows * sizeof(float));
    else
        tsr__converter(p->dtype, TSR_F32)(out, staging->scratch, (size_t)p->rows);
    return TSR_OK;
}

/* Converts a row, whose columns are in another order in the file, and puts them in ours. */
static tsr_status convert_columns(tsr__weight_staging *staging, const piece *p, const segment *s,
                                  const char *from, char *out)
{
    const tsr_shard_param *file = p->weight->file;
    const tsr__weight_part *part = p->part;
    const tsr__order *order = &p->weight->column_order;
    const int64_t block = (int64_t)file->block_count;
    int64_t low, count;
    column_range(p->weight, part, &low, &count);
    low -= s->skip; /* the first element of `from` */
    for (int64_t c = 0; c < part->columns;) {
        const int64_t run = run_from(order, part->first_column + c, part->columns - c),
                      at = tsr__order_in_file(order, part->first_column + c) - low;
        const char *blocks = from + (uint64_t)(at / block) * file->block_bytes;
        char *to = out + tsr__dtype_bytes(p->dtype, (uint64_t)c);
        if (tsr__dtype_is_block(p->dtype)) /* whole blocks: see tsr__weight_keeps_blocks */
            memcpy(to, blocks, tsr__dtype_bytes(p->dtype, (uint64_t)run));
        else
            TSR__TRY(tsr__elements_convert(file, blocks, at % block, run, p->dtype, to,
                                           staging->scratch));
        c += run;
    }
    return TSR_OK;
}

/* Converts the rows of a piece, and puts them in our order. */
static tsr_status convert_rows(tsr__weight_staging *staging, const piece *p, const segment *s,
                               char *out)
{
    const tsr_shard_param *file = p->weight->file;
    if (p->weight->less_one || p->weight->minus_exp)
        return convert_changed(staging, p, out);
    const int64_t columns = p->part->columns, head = p->weight->interleaved_head;
    const uint64_t row_bytes = tsr__dtype_bytes(p->dtype, (uint64_t)columns);
    if (p->weight->column_order.run > 0) {
        for (int64_t i = 0; i < p->rows; i++)
            TSR__TRY(convert_columns(staging, p, s, (char *)staging->raw + (uint64_t)i * s->bytes,
                                     out + (uint64_t)i * row_bytes));
        return TSR_OK;
    }
    if (file->block_count == 1 && head == 0)
        return tsr__elements_convert(file, staging->raw, 0, p->rows * columns, p->dtype, out,
                                     staging->scratch);
    for (int64_t i = 0; i < p->rows; i++)
        TSR__TRY(tsr__elements_convert(
            file, (char *)staging->raw + (uint64_t)i * s->bytes, s->skip, columns, p->dtype,
            out + (uint64_t)our_row(head, i) * row_bytes, staging->scratch));
    return TSR_OK;
}

/* Reads the rows of a piece from the file that is open, as p->dtype and in our order. */
static tsr_status fetch_rows(const tsr__weight_source *source, tsr__weight_staging *staging,
                             const piece *p, const segment *s, char *out)
{
    if (same_bytes(p->weight, p->dtype))
        return read_rows(source, staging, p, s, p->weight->interleaved_head, out);
    TSR__TRY(
        tsr__need_staging(&staging->raw, &staging->raw_bytes, s->bytes * (uint64_t)p->rows, 1));
    if (p->weight->file->block_count > 1)
        TSR__TRY(tsr__need_floats(&staging->scratch, &staging->scratch_count, (size_t)s->elements));
    TSR__TRY(read_rows(source, staging, p, s, 0, staging->raw));
    return convert_rows(staging, p, s, out);
}

/* Reads a piece of a file that has columns as rows: each row of the file becomes a column. */
static tsr_status read_transposed(tsr__weight_reader *r, const piece *p)
{
    const tsr_shard_param *file = p->weight->file;
    tsr__weight_staging *staging = &r->staging[0];
    const int64_t columns = p->part->columns, step = p->weight->row_step,
                  count = (p->rows - 1) * step + 1;
    const segment s =
        segment_of(file, p->weight->all_rows,
                   p->weight->first_row + (p->part->first_row + p->first) * step, count);
    const size_t size = tsr_dtype_size(p->dtype), line = (size_t)count * size;
    TSR__TRY(tsr__need_staging(&staging->raw, &staging->raw_bytes, (size_t)s.bytes + line, 1));
    if (file->block_count > 1)
        TSR__TRY(tsr__need_floats(&staging->scratch, &staging->scratch_count, (size_t)s.elements));
    char *values = (char *)staging->raw + s.bytes;
    for (int64_t c = 0; c < columns; c++) {
        const uint64_t row =
            (uint64_t)(p->weight->matrix * (p->weight->all_columns > 0 ? p->weight->all_columns
                                                                       : p->weight->columns) +
                       p->part->first_column + c);
        TSR__TRY(tsr__weight_source_read(&r->source, file, row * s.row_bytes + s.at, s.bytes,
                                         staging->raw));
        TSR__TRY(tsr__elements_convert(file, staging->raw, s.skip, count, p->dtype, values,
                                       staging->scratch));
        for (int64_t i = 0; i < p->rows; i++)
            memcpy((char *)r->converted + (size_t)(i * columns + c) * size,
                   values + (size_t)(i * step) * size, size);
    }
    return TSR_OK;
}

/* Quantises the converted elements into `raw`, whose bytes from the file are not needed any more.
 */
static tsr_status quantise(tsr__weight_reader *r, const piece *p)
{
    const uint64_t bytes = bytes_of(p, p->to);
    tsr__weight_staging *staging = &r->staging[0];
    TSR__TRY(tsr__need_staging(&staging->raw, &staging->raw_bytes, bytes, 1));
    const tsr_status status =
        tsr__quantize_rows(p->to, r->converted, p->rows, p->part->columns, staging->raw, bytes);
    return status == TSR_OK
               ? TSR_OK
               : tsr__fail_context(status, "model: tensor %s, rows from %" PRId64,
                                   p->weight->file->name, p->part->first_row + p->first);
}

static tsr_status upload(tsr__weight_reader *r, const piece *p, const void *values, tsr_tensor *out)
{
    tsr_tensor *rows = NULL;
    TSR__TRY(tsr_tensor_slice(out, 0, p->first, p->first + p->rows, 1, &rows));
    tsr_status status = tsr_tensor_upload(r->stream, rows, values, bytes_of(p, p->to));
    tsr_tensor_destroy(&rows);
    return status;
}

static tsr_status read_piece(tsr__weight_reader *r, const piece *p, const segment *s,
                             tsr_tensor *out)
{
    TSR__TRY(tsr__need_staging(&r->converted, &r->converted_bytes, bytes_of(p, p->dtype), 1));
    if (p->weight->transposed) {
        TSR__TRY(read_transposed(r, p));
    } else {
        TSR__TRY(tsr__weight_source_open(&r->source, p->weight->file));
        TSR__TRY(fetch_rows(&r->source, &r->staging[0], p, s, r->converted));
        r->source.read_bytes += s->bytes * (uint64_t)p->rows;
    }
    if (p->dtype == p->to)
        return upload(r, p, r->converted, out);
    TSR__TRY(quantise(r, p));
    return upload(r, p, r->staging[0].raw, out);
}

/* Returns the number of rows of a piece: as many of `row_bytes` as piece_bytes holds, but whole
 * heads and at least one row. */
static int64_t step_of(const tsr__weight *w, uint64_t row_bytes, uint64_t piece_bytes)
{
    const int64_t step = (int64_t)tsr__max_u64(1, piece_bytes / row_bytes),
                  head = w->interleaved_head;
    return head == 0 ? step : step < head ? head : step / head * head;
}

/* Straight to memory ------------------------------------------------------------------------- */

/* The state that the threads share. */
typedef struct gang {
    tsr__weight_reader *reader;
    pthread_mutex_t lock;
    /* The first row that no thread has taken: row `row` of pending part `at`. */
    size_t at;
    int64_t row;
    uint64_t read_bytes;
    int count;
    /* The first piece that failed, in the order in which they are taken, with its error. */
    size_t failed_at;
    int64_t failed_row;
    tsr_status status;
    tsr__error error;
} gang;

/* Takes the next piece of those pending, unless there is none, or one has failed. All pieces before
 * one that failed are read, too, so the error does not depend on the threads. */
static bool take(gang *g, size_t *at, segment *s, piece *out)
{
    const tsr__weight_reader *r = g->reader;
    pthread_mutex_lock(&g->lock);
    const bool more = g->status == TSR_OK && g->at < r->pending_count;
    if (more) {
        const tsr__weight_pending *from = &r->pending[g->at];
        *at = g->at;
        *s = segment_for(&from->weight, &from->part);
        /* The system fills a page of 2 MiB with zeros at the first write to it, and twice if two
         * threads write to it at the same time. Pieces that need no staging memory are therefore
         * not made smaller for several threads. */
        const bool same = same_bytes(&from->weight, from->dtype);
        const int64_t left = from->part.rows - g->row,
                      step = same ? step_of(&from->weight, s->bytes, PIECE_BYTES)
                                  : step_of(&from->weight, (uint64_t)s->elements * sizeof(float),
                                            PIECE_BYTES / (uint64_t)g->count);
        *out = (piece){.weight = &from->weight,
                       .part = &from->part,
                       .to = from->dtype,
                       .dtype = from->dtype,
                       .first = g->row,
                       .rows = left < step ? left : step};
        g->row += out->rows;
        if (g->row == from->part.rows) {
            g->at++;
            g->row = 0;
        }
    }
    pthread_mutex_unlock(&g->lock);
    return more;
}

/* Notes how reading a piece ended, and returns the bytes read so far. */
static uint64_t note(gang *g, size_t at, const piece *p, uint64_t bytes, tsr_status status)
{
    pthread_mutex_lock(&g->lock);
    if (status == TSR_OK) {
        g->read_bytes += bytes;
    } else if (g->status == TSR_OK || at < g->failed_at ||
               (at == g->failed_at && p->first < g->failed_row)) {
        g->failed_at = at;
        g->failed_row = p->first;
        g->status = status;
        g->error = tsr__error_take();
    }
    const uint64_t done = g->read_bytes;
    pthread_mutex_unlock(&g->lock);
    return done;
}

/* Reads pieces until there are no more. `number` is this thread's; the caller's own thread has the
 * last number, and calls `progress`. */
static void read_some(void *user, int number)
{
    gang *g = user;
    tsr__weight_reader *r = g->reader;
    piece p;
    segment s;
    size_t at;
    while (take(g, &at, &s, &p)) {
        char *out = r->pending[at].memory +
                    tsr__dtype_bytes(p.dtype, (uint64_t)p.first * (uint64_t)p.part->columns);
        const tsr_status status = fetch_rows(&r->source, &r->staging[number], &p, &s, out);
        const uint64_t done = note(g, at, &p, s.bytes * (uint64_t)p.rows, status);
        if (r->progress && number == g->count - 1)
            r->progress(r->user, r->source.read_bytes + done, r->total_bytes);
    }
}

tsr_status tsr__weight_read_rest(tsr__weight_reader *r)
{
    gang g = {.reader = r, .count = r->threads};
    if (r->pending_count == 0)
        return TSR_OK;
    TSR__TRY(tsr__weight_source_open(&r->source, r->pending[0].weight.file));
    pthread_mutex_init(&g.lock, NULL);
    tsr__host_tasks(g.count, read_some, &g);
    pthread_mutex_destroy(&g.lock);
    r->pending_count = 0;
    r->source.read_bytes += g.read_bytes;
    if (g.status != TSR_OK)
        tsr__error_put_back(&g.error);
    else if (r->progress)
        r->progress(r->user, r->source.read_bytes, r->total_bytes);
    return g.status;
}

/* Adds a part to those pending, which are all from one file. */
static tsr_status add_pending(tsr__weight_reader *r, const tsr__weight_pending *one)
{
    if (!tsr__weight_source_is_open(&r->source, one->weight.file))
        TSR__TRY(tsr__weight_read_rest(r));
    TSR__TRY(tsr__weight_source_open(&r->source, one->weight.file));
    void *pending = r->pending;
    TSR__TRY(tsr__grow(&pending, &r->pending_capacity, r->pending_count + 1, sizeof *r->pending));
    r->pending = pending;
    r->pending[r->pending_count++] = *one;
    return TSR_OK;
}

/* Reading ------------------------------------------------------------------------------------ */

tsr_status tsr__weight_read(tsr__weight_reader *r, const tsr__weight *w,
                            const tsr__weight_part *part, tsr_tensor *out)
{
    const tsr_dtype to = tsr_tensor_layout(out)->dtype;
    const bool quantises = must_quantise(w, to);
    void *memory;
    if (part->rows == 0 || part->columns == 0)
        return TSR_OK;
    if (!w->transposed && !quantises && tsr_tensor_map(out, &memory) == TSR_OK)
        return add_pending(
            r, &(tsr__weight_pending){.weight = *w, .part = *part, .dtype = to, .memory = memory});
    const segment s = segment_for(w, part);
    const int64_t wide = w->transposed ? part->columns : s.elements,
                  step = step_of(w, (uint64_t)wide * sizeof(float), PIECE_BYTES);
    TSR__TRY(tsr__weight_read_rest(r));
    for (int64_t first = 0; first < part->rows; first += step) {
        const piece p = {
            .weight = w,
            .part = part,
            .to = to,
            .dtype = quantises ? TSR_F32 : to,
            .first = first,
            .rows = part->rows - first < step ? part->rows - first : step,
        };
        TSR__TRY(read_piece(r, &p, &s, out));
        if (r->progress)
            r->progress(r->user, r->source.read_bytes, r->total_bytes);
    }
    return TSR_OK;
}
