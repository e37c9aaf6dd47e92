/* Tests reading weights: any number of threads must read the same elements, directly to memory and
 * through staging memory. The tensors are longer than what a thread reads at once. Also tests the
 * error for a file that has become shorter. */
#include "model/weights/reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/float16.h"
#include "model/file.h"
#include "parallel/spmd.h"
#include "tensor/dtype.h"

enum { COLUMNS = 1024, ROWS = 3072, HEAD = 64, BLOCK = 32, BLOCK_BYTES = 34 };

#define FLOATS_BYTES ((uint64_t)ROWS * COLUMNS * 2)
#define BLOCKS_BYTES ((uint64_t)ROWS * COLUMNS / BLOCK * BLOCK_BYTES)

/* A file of two tensors [ROWS, COLUMNS]. */
static tsr_shard_param params[2] = {
    {.name = "floats", .dtype = "f16", .block_count = 1, .block_bytes = 2},
    {.name = "blocks", .dtype = "q8_0", .block_count = BLOCK, .block_bytes = BLOCK_BYTES},
};

/* Returns a small integer, which is exact in every dtype. Blocks have a scale of 1. */
static int element(int tensor, int64_t row, int64_t column)
{
    return (int)((row * 31 + column * 7 + row / 64 + tensor) % 251) - 125;
}

static void write_file(char path[])
{
    uint8_t *bytes = malloc(FLOATS_BYTES + BLOCKS_BYTES), *to = bytes;
    CHECK(bytes, "no memory");
    for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++, to += 2) {
        const uint16_t half = tsr__f16_of_f32((float)element(0, i / COLUMNS, i % COLUMNS));
        memcpy(to, &half, 2);
    }
    for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++) {
        if (i % BLOCK == 0) {
            const uint16_t one = tsr__f16_of_f32(1);
            memcpy(to, &one, 2);
            to += 2;
        }
        *to++ = (uint8_t)(int8_t)element(1, i / COLUMNS, i % COLUMNS);
    }
    const int descriptor = mkstemp(path);
    CHECK(descriptor >= 0 && write(descriptor, bytes, FLOATS_BYTES + BLOCKS_BYTES) ==
                                 (ssize_t)(FLOATS_BYTES + BLOCKS_BYTES),
          "%s cannot be written", path);
    close(descriptor);
    free(bytes);
    for (int t = 0; t < 2; t++) {
        params[t].ndim = 2;
        params[t].shape[0] = ROWS;
        params[t].shape[1] = COLUMNS;
        params[t].count = (uint64_t)ROWS * COLUMNS;
        params[t].size_bytes = t == 0 ? FLOATS_BYTES : BLOCKS_BYTES;
        params[t].offset_bytes = t == 0 ? 0 : FLOATS_BYTES;
    }
}

/* A slice of one of the tensors, to be read as a dtype. */
typedef struct wanted {
    int tensor;
    tsr_dtype dtype;
    int64_t head, first_row, rows, first_column, columns;
    bool odd; /* the parameter has every second row of the tensor, from row 1 on */
    /* rows and columns of heads are in the order of delta nets in GGUF files: those of the first
     * head of each key head come first, then those of the second */
    bool tiled;
} wanted;

enum { ROW_KEYS = 16, COLUMN_KEYS = 8 }; /* key heads of tiled parameters */

static const wanted all[] = {
    {0, TSR_F16, 0, 0, ROWS, 0, COLUMNS, false, false},
    {0, TSR_F16, HEAD, HEAD, ROWS - HEAD, 0, COLUMNS, false, false},
    {0, TSR_F16, 0, 5, 2900, 17, 500, false, false},
    {0, TSR_F32, 0, 0, ROWS, 0, COLUMNS, false, false},
    {0, TSR_F32, HEAD, 0, ROWS, 0, COLUMNS, false, false},
    {0, TSR_BF16, 0, 5, 2900, 17, 500, false, false},
    {1, TSR_Q8_0, 0, 0, ROWS, 0, COLUMNS, false, false},
    {1, TSR_Q8_0, HEAD, 0, ROWS, 0, COLUMNS, false, false},
    {1, TSR_Q8_0, 0, 1, ROWS - 1, 64, 512, false, false},
    {1, TSR_F16, HEAD, HEAD, 2 * HEAD, 40, 900, false, false},
    {0, TSR_F16, 0, 3, 1500, 0, COLUMNS, true, false},
    {0, TSR_F32, 0, 0, ROWS / 2, 17, 500, true, false},
    {1, TSR_Q8_0, 0, 7, 1400, 64, 512, true, false},
    {1, TSR_F32, HEAD, HEAD, 2 * HEAD, 0, COLUMNS, true, false},
    {0, TSR_F16, 0, 0, ROWS, 0, COLUMNS, false, true},
    {0, TSR_F32, 0, 3 * HEAD, 30 * HEAD, 2 * HEAD, 6 * HEAD, false, true},
    {1, TSR_Q8_0, 0, 5, 2000, 0, COLUMNS, false, true},
    {1, TSR_Q8_0, 0, 0, 500, 4 * HEAD, 4 * HEAD, false, true},
    {1, TSR_BF16, 0, 70, 900, 4 * HEAD, 10 * HEAD, false, true},
};
enum { COUNT = sizeof all / sizeof *all };

static tsr__order order_of(int64_t keys, int64_t heads)
{
    return (tsr__order){
        .run = HEAD, .runs = heads / keys, .run_step = keys * HEAD, .group_step = HEAD};
}

/* Returns the row or column of the file that is this one of ours. */
static int64_t tiled(int64_t i, int64_t keys, int64_t heads)
{
    const int64_t each = heads / keys, head = i / HEAD;
    return (head % each * keys + head / each) * HEAD + i % HEAD;
}

static tsr__weight weight_of(const wanted *w)
{
    const tsr__order same = {0};
    return (tsr__weight){.file = &params[w->tensor],
                         .rows = w->odd ? ROWS / 2 : ROWS,
                         .all_rows = ROWS,
                         .first_row = w->odd,
                         .row_step = w->odd ? 2 : 1,
                         .columns = COLUMNS,
                         .row_order = w->tiled ? order_of(ROW_KEYS, ROWS / HEAD) : same,
                         .column_order = w->tiled ? order_of(COLUMN_KEYS, COLUMNS / HEAD) : same,
                         .interleaved_head = w->head};
}

static tsr_status read_one(tsr__weight_reader *reader, const wanted *w, tsr_tensor *out)
{
    const tsr__weight weight = weight_of(w);
    return tsr__weight_read(reader, &weight,
                            &(tsr__weight_part){.first_row = w->first_row,
                                                .rows = w->rows,
                                                .first_column = w->first_column,
                                                .columns = w->columns},
                            out);
}

static float element_of(const wanted *w, const uint8_t *bytes, int64_t i)
{
    uint16_t half;
    float value;
    switch (w->dtype) {
    case TSR_F16:
        memcpy(&half, bytes + i * 2, 2);
        return tsr__f32_of_f16(half);
    case TSR_BF16:
        memcpy(&half, bytes + i * 2, 2);
        return tsr__f32_of_bf16(half);
    case TSR_F32:
        memcpy(&value, bytes + i * 4, 4);
        return value;
    default:
        memcpy(&half, bytes + i / BLOCK * BLOCK_BYTES, 2);
        return (float)(int8_t)bytes[i / BLOCK * BLOCK_BYTES + 2 + i % BLOCK] *
               tsr__f32_of_f16(half);
    }
}

static void check(const wanted *w, tsr_stream *stream, const tsr_tensor *got)
{
    const uint64_t size = tsr__dtype_bytes(w->dtype, (uint64_t)(w->rows * w->columns));
    uint8_t *bytes = malloc(size);
    CHECK(bytes, "no memory");
    OK(tsr_tensor_download(stream, got, bytes, size));
    for (int64_t row = 0; row < w->rows; row++) {
        const int64_t in = row % (w->head ? w->head : 1), half = w->head / 2,
                      ours = w->first_row + row - in + (w->head ? in % half * 2 + in / half : 0),
                      from = w->odd     ? 2 * ours + 1
                             : w->tiled ? tiled(ours, ROW_KEYS, ROWS / HEAD)
                                        : ours;
        for (int64_t c = 0; c < w->columns; c++) {
            const int64_t own = w->first_column + c,
                          column = w->tiled ? tiled(own, COLUMN_KEYS, COLUMNS / HEAD) : own;
            const float want = (float)element(w->tensor, from, column),
                        value = element_of(w, bytes, row * w->columns + c);
            CHECK(value == want, "part %d: element [%d,%d] is %g, not %g", (int)(w - all), (int)row,
                  (int)c, (double)value, (double)want);
        }
    }
    free(bytes);
}

static void note(void *user, uint64_t done, uint64_t total)
{
    uint64_t *last = user;
    CHECK(done >= *last && done <= total, "%d after %d of %d bytes", (int)done, (int)*last,
          (int)total);
    *last = done;
}

static void read_all(const tsr__model_files *files, tsr_stream *stream, int threads)
{
    tsr__weight_reader reader;
    tsr_tensor *tensors[COUNT] = {NULL};
    uint64_t seen = 0;
    tsr__weight_reader_init(files, stream, 1, &reader);
    reader.threads = threads;
    reader.progress = note;
    reader.user = &seen;
    for (int i = 0; i < COUNT; i++) {
        const tsr__weight weight = weight_of(&all[i]);
        reader.total_bytes +=
            tsr__weight_part_bytes(&weight, &(tsr__weight_part){.first_row = all[i].first_row,
                                                                .rows = all[i].rows,
                                                                .first_column = all[i].first_column,
                                                                .columns = all[i].columns});
    }
    for (int i = 0; i < COUNT; i++) {
        OK(tsr_tensor_create(tsr_stream_device(stream), all[i].dtype, 2,
                             (int64_t[]){all[i].rows, all[i].columns}, &tensors[i]));
        OK(read_one(&reader, &all[i], tensors[i]));
    }
    OK(tsr__weight_read_rest(&reader));
    CHECK(seen == reader.total_bytes && reader.source.read_bytes == seen,
          "%" PRIu64 " of %" PRIu64 " bytes, %" PRIu64 " were read", seen, reader.total_bytes,
          reader.source.read_bytes);
    tsr__weight_reader_finish(&reader);
    OK(tsr_stream_wait(stream));
    for (int i = 0; i < COUNT; i++) {
        check(&all[i], stream, tensors[i]);
        tsr_tensor_destroy(&tensors[i]);
    }
}

/* The linker replaces the function that reads bytes of the open file by one that counts its calls.
 */
tsr_status __real_tsr__weight_source_read_open(const tsr__weight_source *source,
                                               const tsr_shard_param *param, uint64_t at,
                                               uint64_t size, void *out);
tsr_status __wrap_tsr__weight_source_read_open(const tsr__weight_source *source,
                                               const tsr_shard_param *param, uint64_t at,
                                               uint64_t size, void *out);
static atomic_int reads;

tsr_status __wrap_tsr__weight_source_read_open(const tsr__weight_source *source,
                                               const tsr_shard_param *param, uint64_t at,
                                               uint64_t size, void *out)
{
    atomic_fetch_add(&reads, 1);
    return __real_tsr__weight_source_read_open(source, param, at, size, out);
}

/* Rows that alternate with those of another parameter are not read one by one. */
static void count_reads(const tsr__model_files *files)
{
    for (int i = 0; i < COUNT; i++) {
        tsr__weight_reader reader;
        tsr_tensor *tensor = NULL;
        if (!all[i].odd)
            continue;
        atomic_store(&reads, 0);
        tsr__weight_reader_init(files, queue, 1, &reader);
        OK(tsr_tensor_create(gpu, all[i].dtype, 2, (int64_t[]){all[i].rows, all[i].columns},
                             &tensor));
        OK(read_one(&reader, &all[i], tensor));
        OK(tsr__weight_read_rest(&reader));
        CHECK(atomic_load(&reads) <= all[i].rows / 20, "part %d: %d reads of %d rows", i,
              atomic_load(&reads), (int)all[i].rows);
        tsr__weight_reader_finish(&reader);
        tsr_tensor_destroy(&tensor);
    }
}

/* An element whose logarithm is needed must be negative: of the first ones, number 18 is 1. */
static void refuse_positive(const tsr__model_files *files)
{
    const tsr__weight weight = {.file = &params[0],
                                .rows = 20,
                                .all_rows = (int64_t)ROWS * COLUMNS,
                                .row_step = 1,
                                .columns = 1,
                                .minus_exp = true};
    const tsr__weight_part part = {.rows = 20, .columns = 1};
    tsr__weight_reader reader;
    tsr_tensor *tensor = NULL;
    tsr__weight_reader_init(files, queue, 1, &reader);
    OK(tsr_tensor_create(gpu, TSR_F32, 1, (int64_t[]){20}, &tensor));
    tsr_status status = tsr__weight_read(&reader, &weight, &part, tensor);
    if (status == TSR_OK)
        status = tsr__weight_read_rest(&reader);
    CHECK(status == TSR_ERR_INVALID &&
              strcmp(tsr_last_error(),
                     "model: tensor floats: element 18 is 1; it must be less than 0") == 0,
          "\"%s\"", tsr_last_error());
    tsr__weight_reader_finish(&reader);
    tsr_tensor_destroy(&tensor);
}

CASE(pieces, "reader: pieces of tensors, by several threads and through staging memory")
{
    char path[] = "/tmp/tessera-reader-XXXXXX";
    const tsr__model_files files = {.weights = path};
    tsr_device *device = NULL;
    tsr_stream *stream = NULL;
    write_file(path);
    read_all(&files, queue, 1);
    read_all(&files, queue, TSR__WEIGHT_THREADS);
    count_reads(&files);
    refuse_positive(&files);
    OK(tsr_device_open(tsr_device_params(.force_staging = true), &device));
    OK(tsr_stream_create(device, &stream));
    read_all(&files, stream, 2);
    tsr_stream_destroy(&stream);
    tsr_device_close(&device);
    unlink(path);
}

/* The error must be about the first tensor that is missing. Reading the next ones would fail,
 * too, with another text. */
/* Reads a part of a parameter as f32. free() the result. */
static float *read_floats(const tsr__weights *weights, int layer, const char *ours,
                          const tsr__weight_part *part)
{
    const int64_t shape[2] = {part->rows, part->columns};
    const uint64_t count = (uint64_t)(part->rows * part->columns);
    tsr__weight_reader reader;
    tsr__weight weight;
    tsr_tensor *tensor = NULL;
    float *values = malloc(count * sizeof *values);
    CHECK(values, "no memory");
    OK(tsr__weight_find(weights, layer, ours, &weight));
    OK(tsr_tensor_create(gpu, TSR_F32, 2, shape, &tensor));
    tsr__weight_reader_init(weights->files, queue, 1, &reader);
    OK(tsr__weight_read(&reader, &weight, part, tensor));
    OK(tsr__weight_read_rest(&reader));
    tsr__weight_reader_finish(&reader);
    OK(tsr_tensor_download(queue, tensor, values, count * sizeof *values));
    tsr_tensor_destroy(&tensor);
    return values;
}

/* Compares a part of a parameter in two files of one model. A GGUF file has −e^x of each a_log as
 * f32, which rounds its logarithm. */
static void compare_part(const tsr__weights *a, const tsr__weights *b, int layer, const char *ours,
                         const tsr__weight_part *part)
{
    float *x = read_floats(a, layer, ours, part), *y = read_floats(b, layer, ours, part);
    const double allowed = strstr(ours, "a_log") || strstr(ours, "norm") ? 2e-7 : 0;
    for (int64_t i = 0; i < part->rows * part->columns; i++)
        CHECK(fabs((double)x[i] - (double)y[i]) <= allowed * fmax(1, fabs((double)x[i])),
              "layer %d, %s: element %d is %g in the folder, %g in the GGUF file", layer, ours,
              (int)i, (double)x[i], (double)y[i]);
    free(x);
    free(y);
}

/* The parameters of delta nets and gated attention are in other orders in both kinds of files. */
static void compare_files(const char *family)
{
    char folder[256], gguf[256];
    const tsr__weights *a, *b;
    tsr_model_file *files[2] = {NULL};
    tsr__parameter p;
    int compared = 0;
    snprintf(folder, sizeof folder, TEST_DATA "/model/families/%s/hf", family);
    snprintf(gguf, sizeof gguf, TEST_DATA "/model/families/%s/%s-f16.gguf", family, family);
    OK(tsr_model_file_open(folder, &files[0]));
    OK(tsr_model_file_open(gguf, &files[1]));
    OK(tsr__model_file_weights(files[0], &a));
    OK(tsr__model_file_weights(files[1], &b));
    for (int layer = 2; layer < 4; layer++) /* one of each kind */
        for (int i = 0; tsr__weights_parameter(a->config, layer, i, &p); i++) {
            const tsr_model_layer *kind = a->config->kinds[a->config->layer_kinds[layer]];
            const bool by_columns = strstr(p.ours, ".o.") != NULL;
            const int64_t length = by_columns ? p.columns : p.rows,
                          heads = kind->delta_net ? kind->delta_net->key_heads : kind->heads;
            if (p.experts > 0)
                continue;
            compare_part(a, b, layer, p.ours,
                         &(tsr__weight_part){.rows = p.rows, .columns = p.columns});
            compared++;
            for (int64_t head = 0; length % heads == 0 && head < heads; head++) {
                tsr__weight_part part = {.rows = p.rows, .columns = p.columns};
                *(by_columns ? &part.first_column : &part.first_row) = head * length / heads;
                *(by_columns ? &part.columns : &part.rows) = length / heads;
                compare_part(a, b, layer, p.ours, &part);
            }
        }
    CHECK(compared > 25, "%s: %d parameters", family, compared);
    tsr_model_file_close(&files[0]);
    tsr_model_file_close(&files[1]);
}

CASE(delta_nets, "reader: delta nets, of folders and of GGUF files, and the parts of each head")
{
    compare_files("qwen3next");
    compare_files("qwen35moe");
}

CASE(shorter, "reader: the first tensor that a file lacks is named, for any number of threads")
{
    char path[] = "/tmp/tessera-reader-XXXXXX";
    const tsr__model_files files = {.weights = path};
    const uint64_t size = FLOATS_BYTES + 1000;
    const int tensors_read[] = {0, 7, 8, 8, 8};
    write_file(path);
    CHECK(truncate(path, (off_t)size) == 0, "%s cannot be made shorter", path);
    for (int threads = 1; threads <= TSR__WEIGHT_THREADS; threads++) {
        tsr__weight_reader reader;
        tsr_tensor *tensors[5] = {NULL};
        tsr_status status = TSR_OK;
        tsr__weight_reader_init(&files, queue, 1, &reader);
        reader.threads = threads;
        for (int i = 0; i < 5; i++) {
            const wanted *w = &all[tensors_read[i]];
            OK(tsr_tensor_create(gpu, w->dtype, 2, (int64_t[]){w->rows, w->columns}, &tensors[i]));
            if (status == TSR_OK)
                status = read_one(&reader, w, tensors[i]);
        }
        if (status == TSR_OK)
            status = tsr__weight_read_rest(&reader);
        CHECK(status == TSR_ERR_IO, "%s", tsr_status_name(status));
        CHECK(strcmp(tsr_last_error(),
                     "model: the file has become shorter: tensor blocks ends after 1000 of 3342336 "
                     "bytes") == 0,
              "\"%s\"", tsr_last_error());
        tsr__weight_reader_finish(&reader);
        for (int i = 0; i < 5; i++)
            tsr_tensor_destroy(&tensors[i]);
    }
    unlink(path);
}
