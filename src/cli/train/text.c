/* Files as tokens, and the rows that a training takes from them. All tokens of all files follow
 * each other. An epoch has as many rows as fit, one after the other, in an order that depends on
 * the seed. Each epoch's first row starts at another place, so that the borders of rows move. */
#include <stdlib.h>
#include <string.h>

#include "cli/lib/memory.h"
#include "cli/train/train.h"
#include "cli/training/characters.h"
#include "cli/training/recorded.h"

#define HELD_OUT 0.1

/* How numbers are derived from the seed: the last argument of tsr_feistel_init. */
enum { ORDER_OF_ROWS, START_OF_EPOCH };

typedef struct tokens {
    int32_t *ids; /* [count] */
    int64_t count, capacity;
} tokens;

typedef struct texts {
    tokens trained, held_out;
    int64_t rows;     /* of an epoch */
    int64_t *offsets; /* [offset_count]: where rows start; NULL: they are shuffled */
    int64_t offset_count;
} texts;

/* Files ---------------------------------------------------------------------------------------- */

static bool ends_in(const char *path, const char *ending)
{
    const size_t length = strlen(path), size = strlen(ending);
    return length > size && strcmp(path + length - size, ending) == 0;
}

/* Returns the size of an id in bytes if the file has ids of tokens, or 0 for a text. */
static size_t size_of_ids(const char *path)
{
    return ends_in(path, ".u16") || ends_in(path, ".bin") ? 2 : ends_in(path, ".u32") ? 4 : 0;
}

static void add_ids(tokens *out, const int32_t *ids, int64_t count)
{
    if (out->count + count > out->capacity) {
        out->capacity =
            2 * out->capacity > out->count + count ? 2 * out->capacity : out->count + count;
        out->ids = cli_resize(out->ids, (size_t)out->capacity, sizeof *out->ids);
    }
    memcpy(out->ids + out->count, ids, (size_t)count * sizeof *ids);
    out->count += count;
}

/* Adds the little-endian numbers of a file. */
static tsr_status add_numbers(const char *path, const char *bytes, size_t size, tokens *out)
{
    const size_t each = size_of_ids(path), count = size / each;
    if (size % each != 0)
        return training_fail("%s has %zu bytes, which are no numbers of %zu bytes", path, size,
                             each);
    for (size_t i = 0; i < count; i++) {
        const unsigned char *at = (const unsigned char *)bytes + i * each;
        uint32_t value = (uint32_t)at[0] | (uint32_t)at[1] << 8;
        if (each == 4)
            value |= (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        if (value > INT32_MAX)
            return training_fail("%s: token %zu has the id %lu", path, i, (unsigned long)value);
        const int32_t id = (int32_t)value;
        add_ids(out, &id, 1);
    }
    return TSR_OK;
}

/* Encoding with a tokenizer -------------------------------------------------------------------- */

static tsr_status add_document(const tsr_tokenizer *tokenizer, const char *text, size_t size,
                               int32_t end, tokens *out)
{
    int32_t *ids = NULL;
    uint64_t count = 0;
    TRY(tsr_tokenizer_encode(tokenizer, text, size, NULL, &ids, &count));
    add_ids(out, ids, (int64_t)count);
    if (end >= 0 && (count == 0 || ids[count - 1] != end))
        add_ids(out, &end, 1);
    tsr_tokenizer_free_ids(&ids);
    return TSR_OK;
}

/* Returns where `wanted` is in text[size], or `size`. */
static size_t find_text(const char *text, size_t size, const char *wanted)
{
    const size_t length = strlen(wanted);
    for (size_t at = 0; at + length <= size; at++) {
        const char *next = memchr(text + at, wanted[0], size - at - length + 1);
        if (next == NULL)
            return size;
        at = (size_t)(next - text);
        if (memcmp(next, wanted, length) == 0)
            return at;
    }
    return size;
}

/* Returns the token that ends a text: the one that the files name, or the only one whose spelling
 * says so; −1: there is none. Files of GPT-2 name none, but have <|endoftext|>. */
static int32_t find_end(const tsr_tokenizer *tokenizer)
{
    tsr_tokenizer_info info = TSR_INIT(tsr_tokenizer_info);
    int32_t end = -1;
    int ends = 0;
    if (tsr_tokenizer_get_info(tokenizer, &info) == TSR_OK && info.eos >= 0)
        return info.eos;
    for (int32_t i = 0; i < tsr_tokenizer_size(tokenizer); i++)
        if (tsr_tokenizer_is_end(tokenizer, i)) {
            end = i;
            ends++;
        }
    return ends == 1 ? end : -1;
}

static tsr_status add_documents(const tsr_tokenizer *tokenizer, const char *path, const char *text,
                                size_t size, tokens *out)
{
    const char *separator = training_chosen.separator;
    const int32_t end = find_end(tokenizer);
    if (end < 0)
        return training_fail("the tokenizer does not say which token ends a text, which "
                             "--separator needs");
    if (find_text(text, size, separator) == size)
        return training_fail("%s does not have the separator '%.80s'", path, separator);
    for (size_t at = 0; at < size;) {
        const size_t length = find_text(text + at, size - at, separator);
        if (length > 0)
            TRY(add_document(tokenizer, text + at, length, end, out));
        at += length == size - at ? length : length + strlen(separator);
    }
    return TSR_OK;
}

/* Reading -------------------------------------------------------------------------------------- */

/* A file that has been read. */
typedef struct file_text {
    const char *path;
    char *bytes;
    size_t size;
} file_text;

static tsr_status add_text(const training_run *r, const training_characters *characters,
                           const file_text *file, tokens *out)
{
    if (size_of_ids(file->path) > 0)
        return add_numbers(file->path, file->bytes, file->size, out);
    if (characters == NULL)
        return training_chosen.separator != NULL
                   ? add_documents(r->tokenizer, file->path, file->bytes, file->size, out)
                   : add_document(r->tokenizer, file->bytes, file->size, -1, out);
    int32_t *ids = NULL;
    int64_t count = 0;
    training_characters_encode(characters, file->bytes, file->size, &ids, &count);
    add_ids(out, ids, count);
    free(ids);
    return TSR_OK;
}

/* Makes the characters of all texts the vocabulary, and opens that as a tokenizer. Fails if those
 * of the checkpoint differ, because their numbers would mean other characters then. */
static tsr_status use_characters(training_run *r, const file_text *files, int count,
                                 training_characters *characters)
{
    training_options *o = &training_chosen;
    for (int i = 0; i < count; i++)
        TRY(training_characters_add(characters, files[i].path, files[i].bytes, files[i].size));
    TRY(training_characters_open(characters, &r->tokenizer_json, &r->tokenizer));
    if (o->characters != NULL && strcmp(o->characters, r->tokenizer_json) != 0)
        return training_fail("the characters of the data are not those of the training in %s",
                             o->resume);
    o->characters = r->tokenizer_json;
    return TSR_OK;
}

/* Opens the tokenizer of --tokenizer or of MODEL, if there is one. */
static tsr_status open_tokenizer(training_run *r)
{
    const training_options *o = &training_chosen;
    if (o->model != NULL)
        TRY(tsr_model_file_open(o->model, &r->file));
    if (o->tokenizer != NULL)
        return tsr_tokenizer_open(o->tokenizer, &r->tokenizer);
    return o->model != NULL ? tsr_model_file_open_tokenizer(r->file, &r->tokenizer) : TSR_OK;
}

/* Checks what the options say about files of both kinds. */
static tsr_status check_kinds(const training_run *r, const file_text *files, int count)
{
    const training_options *o = &training_chosen;
    if (o->sample != NULL && r->tokenizer == NULL && size_of_ids(files[0].path) > 0)
        return training_fail("--sample-every needs a tokenizer, and %s has ids of tokens; "
                             "--tokenizer gives one",
                             files[0].path);
    for (int i = 0; i < count; i++) {
        const bool is_text = size_of_ids(files[i].path) == 0;
        if (files[i].size == 0)
            return training_fail("%s is empty", files[i].path);
        if (is_text && r->tokenizer == NULL && o->separator != NULL)
            return training_fail("--separator needs a tokenizer, and the characters of %s are the "
                                 "vocabulary; --tokenizer gives one",
                                 files[i].path);
        if (!is_text && r->tokenizer == NULL && o->shape.config == NULL)
            return training_fail("%s has ids of tokens, so --tokenizer or --config must say how "
                                 "many there are",
                                 files[i].path);
        if (is_text && r->tokenizer == NULL && size_of_ids(files[0].path) > 0)
            return training_fail("%s is a text, but %s has ids of tokens, so --tokenizer is needed",
                                 files[i].path, files[0].path);
    }
    return TSR_OK;
}

static tsr_status add_files(training_run *r, const file_text *files, int count, texts *out,
                            int64_t *vocabulary)
{
    const bool has_characters = r->tokenizer == NULL && size_of_ids(files[0].path) == 0;
    training_characters characters = {0};
    TRY(check_kinds(r, files, count));
    tsr_status status = has_characters ? use_characters(r, files, count, &characters) : TSR_OK;
    for (int i = 0; status == TSR_OK && i < count; i++)
        status = add_text(r, has_characters ? &characters : NULL, &files[i],
                          i < training_chosen.data.count ? &out->trained : &out->held_out);
    free(characters.codes);
    if (status == TSR_OK && r->tokenizer != NULL)
        *vocabulary = tsr_tokenizer_size(r->tokenizer);
    return status;
}

static void close_texts(void *user)
{
    texts *t = user;
    free(t->trained.ids);
    free(t->held_out.ids);
    free(t->offsets);
    free(t);
}

/* Moves the last tokens to those that are held out. */
static void hold_out(texts *t)
{
    training_options *o = &training_chosen;
    if (o->held_out < 0)
        o->held_out = o->held_out_file != NULL ? 0 : HELD_OUT;
    const int64_t count = (int64_t)(o->held_out * (double)t->trained.count);
    if (o->held_out_file != NULL || count == 0)
        return;
    t->trained.count -= count;
    add_ids(&t->held_out, t->trained.ids + t->trained.count, count);
}

tsr_status train_text_open(training_run *r, int64_t *vocabulary)
{
    const training_options *o = &training_chosen;
    const int count = o->data.count + (o->held_out_file != NULL);
    file_text *files = cli_alloc((size_t)count, sizeof *files);
    texts *t = cli_alloc(1, sizeof *t);
    r->source = (training_source){.user = t, .close = close_texts};
    tsr_status status = open_tokenizer(r);
    for (int i = 0; status == TSR_OK && i < count; i++) {
        files[i].path = i < o->data.count ? o->data.paths[i] : o->held_out_file;
        status = training_read_text(files[i].path, &files[i].bytes, &files[i].size);
    }
    if (status == TSR_OK)
        status = add_files(r, files, count, t, vocabulary);
    for (int i = 0; i < count; i++)
        free(files[i].bytes);
    free(files);
    if (status == TSR_OK)
        hold_out(t);
    return status;
}

/* Rows ----------------------------------------------------------------------------------------- */

/* Gives the element at `place` of the permutation of 0 … n − 1 that `use` has in an epoch. */
static tsr_status permute(int64_t n, int64_t epoch, int use, int64_t place, int64_t *out)
{
    tsr_feistel order;
    TRY(tsr_feistel_init((uint64_t)n, (uint64_t)training_chosen.seed, (uint64_t)epoch,
                         (uint64_t)use, &order));
    tsr_feistel_fill(&order, (uint64_t)place, 1, 1, out);
    return TSR_OK;
}

static tsr_status find_row(const texts *t, int64_t context, int64_t row, int64_t *out)
{
    const int64_t epoch = row / t->rows;
    int64_t number = 0, start = 0;
    if (t->offsets != NULL && row >= t->offset_count)
        return training_fail("%s has %lld rows, but row %lld is needed", training_chosen.offsets,
                             (long long)t->offset_count, (long long)row);
    if (t->offsets != NULL) {
        *out = t->offsets[row];
        return TSR_OK;
    }
    TRY(permute(t->rows, epoch, ORDER_OF_ROWS, row % t->rows, &number));
    TRY(permute(context, epoch, START_OF_EPOCH, 0, &start));
    *out = start + number * context;
    return TSR_OK;
}

static tsr_status get_rows(const training_source *self, data_part part, int64_t first,
                           int64_t count, data_batch *out)
{
    const texts *t = self->user;
    const int64_t context = self->context, all = (t->held_out.count - 1) / context;
    tsr_status status = TSR_OK;
    data_batch batch = data_batch_create(count, context);
    batch.epoch = part == DATA_TRAIN ? first / t->rows : 0;
    for (int64_t i = 0; status == TSR_OK && i < count; i++) {
        const int64_t row = first + i;
        int64_t start = 0;
        if (part == DATA_TRAIN) {
            status = find_row(t, context, row, &start);
            data_batch_put(&batch, i, t->trained.ids + start);
        } else if (row < self->held_out) {
            start = all * row / self->held_out * context;
            data_batch_put(&batch, i, t->held_out.ids + start);
        }
    }
    if (status == TSR_OK)
        *out = batch;
    else
        data_batch_free(&batch);
    return status;
}

static tsr_status count_labels(const training_source *self, data_part part, int64_t first,
                               int64_t count, int64_t *out)
{
    const int64_t left = self->held_out > first ? self->held_out - first : 0;
    *out = (part == DATA_TRAIN || count < left ? count : left) * self->context;
    return TSR_OK;
}

/* Reads where the rows of the recorded run --offsets start. */
static tsr_status read_offsets(texts *t)
{
    training_recorded r;
    tsr_status status = training_recorded_open(training_chosen.offsets, &r);
    if (status == TSR_OK)
        status = training_recorded_offsets(&r, t->trained.count, &t->offsets, &t->offset_count);
    training_recorded_close(&r);
    return status;
}

/* Fails if the model does not have a token. */
static tsr_status check_ids(const tokens *all, int64_t vocabulary)
{
    for (int64_t i = 0; i < all->count; i++)
        if (all->ids[i] >= vocabulary)
            return training_fail("the data has the token %ld, but the model has a vocabulary of "
                                 "%lld",
                                 (long)all->ids[i], (long long)vocabulary);
    return TSR_OK;
}

static int64_t hash_ids(const tokens *all)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int64_t i = 0; i < all->count; i++)
        hash = (hash ^ (uint64_t)all->ids[i]) * UINT64_C(0x100000001b3);
    return (int64_t)(hash >> 1);
}

/* Fails on all ranks if they have read different files. */
static tsr_status compare_files(const training_run *r, const texts *t)
{
    const int64_t own[3] = {t->trained.count, hash_ids(&t->trained), hash_ids(&t->held_out)};
    int64_t low[3], high[3];
    if (training_job_is_joining()) /* the others do not wait for this rank */
        return TSR_OK;
    TRY(tsr_comm_all_reduce(r->job.world, own, low, 3, TSR_I64, TSR_OP_MIN, NULL));
    TRY(tsr_comm_all_reduce(r->job.world, own, high, 3, TSR_I64, TSR_OP_MAX, NULL));
    if (low[0] != high[0])
        return training_fail("the ranks have different data: rank %d has %lld tokens, but the "
                             "ranks have from %lld to %lld",
                             r->job.rank, (long long)own[0], (long long)low[0], (long long)high[0]);
    return low[1] == high[1] && low[2] == high[2]
               ? TSR_OK
               : training_fail("the ranks have different data: their tokens differ");
}

tsr_status train_text_use(training_run *r)
{
    training_options *o = &training_chosen;
    texts *t = r->source.user;
    const long long context = o->context, vocabulary = tsr_model_file_config(r->file)->vocabulary;
    t->rows = (t->trained.count - context) / context;
    if (t->rows < 1)
        return training_fail("the data has %lld tokens for training, but rows of --context %lld "
                             "need %lld",
                             (long long)t->trained.count, context, 2 * context);
    TRY(check_ids(&t->trained, vocabulary));
    TRY(check_ids(&t->held_out, vocabulary));
    const int64_t all = t->held_out.count > 0 ? (t->held_out.count - 1) / context : 0;
    if (o->held_out_file != NULL && all < 1)
        return training_fail("%s has %lld tokens, but a row of --context %lld needs %lld",
                             o->held_out_file, (long long)t->held_out.count, context, context + 1);
    r->source.context = context;
    r->source.held_out = all < o->evaluate_rows ? all : o->evaluate_rows;
    r->source.get = get_rows;
    r->source.count = count_labels;
    if (o->steps == 0)
        o->steps = (o->epochs * t->rows + o->batch - 1) / o->batch;
    if (o->offsets != NULL)
        TRY(read_offsets(t));
    return compare_files(r, t);
}
