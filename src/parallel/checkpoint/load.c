#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/hash.h"
#include "base/struct_size.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/parts.h"
#include "platform/paths.h"
#include "shard/formats/header_file.h"
#include "shard/formats/readers.h"

static const char who[] = "checkpoint_load";

typedef struct reader {
    const char *path;
    /* The file that is open. The files of an index are opened one after the other. */
    tsr__file file;
    bool open;
    /* name of the open file, owned by `list`; NULL: the file is `path` itself */
    const char *name;
    tsr__params params;   /* the parameters of a single file */
    tsr_shard_list *list; /* the list that an index file contains; NULL for a single file */
    uint64_t hash;        /* a hash of all headers */
    bool checksums;       /* whether to verify checksums */
    bool has_checksums;
    /* [parameters]: the checksum of each parameter, and whether the files contain one. */
    uint32_t *expected;
    bool *known;
    tsr__param_name *names; /* if `path` is an index: its parameters, sorted by name */
    tsr__checksum checksum; /* the checksum of this rank's region of the current tensor */
} reader;

static const tsr__params *params_of(const reader *r)
{
    return r->list ? &r->list->params : &r->params;
}

static void reader_finish(reader *r)
{
    if (r->open)
        tsr__file_close(&r->file);
    tsr__params_finish(&r->params);
    tsr_shard_list_destroy(&r->list);
    tsr__free(r->expected);
    tsr__free(r->known);
    tsr__free(r->names);
}

/* Puts "checkpoint_load: PATH: " in front of the error text. */
static tsr_status with_path(const reader *r, tsr_status status)
{
    if (status == TSR_OK || status == TSR_ERR_NO_MEMORY)
        return status;
    return tsr__fail_context(status, "%s: %s", who, r->path);
}

/* Opening -------------------------------------------------------------------------------------- */

static bool is_index(const char *path)
{
    static const char ending[] = ".json";
    const size_t length = strlen(path), end = sizeof ending - 1;
    return length >= end && strcmp(path + length - end, ending) == 0;
}

/* Allocates the arrays of checksums. The number of parameters must be known. */
static tsr_status make_expected(reader *r)
{
    const size_t count = params_of(r)->count;
    r->expected = tsr__calloc(count, sizeof *r->expected);
    r->known = r->expected ? tsr__calloc(count, sizeof *r->known) : NULL;
    if (!r->known)
        return TSR_ERR_NO_MEMORY;
    return r->list ? tsr__params_sort(&r->list->params, &r->names) : TSR_OK;
}

/* Returns the position of a file's tensor among the parameters of the index. If the index does not
 * have this tensor, returns the number of parameters. */
static size_t find_param(const reader *r, const char *name)
{
    size_t low = 0, high = r->list->params.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = strcmp(r->names[middle].name, name);
        if (order == 0)
            return (size_t)r->names[middle].param;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return r->list->params.count;
}

/* Reads the checksums in the header of the open file, and keeps them in the reader. `params` are
 * the tensors of that file. */
static tsr_status read_checksums(reader *r, const char *header, uint64_t header_bytes,
                                 const tsr__params *params)
{
    uint32_t *tensors = NULL;
    if (!r->checksums)
        return TSR_OK;
    TSR__TRY(tsr__checksums_read(header, header_bytes, params->count, &tensors));
    for (size_t i = 0; tensors && i < params->count; i++) {
        const size_t param = r->list ? find_param(r, params->items[i].name) : i;
        if (param == params_of(r)->count)
            continue;
        r->expected[param] = tensors[i];
        r->known[param] = r->has_checksums = true;
    }
    tsr__free(tensors);
    return TSR_OK;
}

/* Reads the header and the checksums in it. Adds the header to the hash with which ranks check that
 * they read the same file. */
static tsr_status read_header(reader *r, const tsr__params *params)
{
    uint8_t bytes[8];
    char *header = NULL;
    TSR__TRY(tsr__file_read(&r->file, 0, sizeof bytes, "the header's length", bytes));
    const uint64_t size = 8 + tsr__little_endian(bytes, 8); /* the size has been checked */
    TSR__TRY(tsr__file_load(&r->file, 0, size, "the header", &header));
    r->hash = tsr__hash(r->hash, header, size);
    tsr_status status = r->expected ? TSR_OK : make_expected(r);
    if (status == TSR_OK)
        status = read_checksums(r, header, size, params);
    tsr__free(header);
    return status;
}

static tsr_status open_file(reader *r, const char *path, tsr__params *params)
{
    TSR__TRY(tsr__file_open(path, &r->file));
    r->open = true;
    TSR__TRY(tsr__read_safetensors(&r->file, params));
    return read_header(r, params);
}

/* Opens the file that contains `param`, unless it is already open. A file that an index names may
 * have changed since `list` was read, so the header is read again and compared. */
static tsr_status open_for(reader *r, const tsr_shard_param *param)
{
    if (r->open && (!param->file || (r->name && strcmp(r->name, param->file) == 0)))
        return TSR_OK;
    if (r->open)
        tsr__file_close(&r->file);
    r->open = false;
    r->name = param->file;
    const char *slash = tsr__path_last_separator(r->path);
    const size_t folder = slash ? (size_t)(slash - r->path) + 1 : 0;
    char *path = tsr__calloc(folder + strlen(param->file) + 1, 1);
    if (!path)
        return TSR_ERR_NO_MEMORY;
    memcpy(path, r->path, folder);
    memcpy(path + folder, param->file, strlen(param->file));
    tsr__params again = {0};
    tsr_status status = open_file(r, path, &again);
    bool found = false;
    for (size_t i = 0; i < again.count && !found; i++)
        found = strcmp(again.items[i].name, param->name) == 0 &&
                again.items[i].offset_bytes == param->offset_bytes &&
                again.items[i].size_bytes == param->size_bytes;
    if (status == TSR_OK && !found)
        status = tsr__fail(TSR_ERR_IO, "%s has changed since its header was read", path);
    tsr__params_finish(&again);
    tsr__free(path);
    return with_path(r, status);
}

/* Opens each file of an index once, to hash all headers. In the list, the parameters of each file
 * are next to each other. */
static tsr_status hash_files(reader *r)
{
    const tsr__params *params = &r->list->params;
    for (size_t i = 0; i < params->count; i++)
        TSR__TRY(open_for(r, &params->items[i]));
    return TSR_OK;
}

static tsr_status open_path(reader *r)
{
    r->hash = TSR__HASH_START;
    if (!is_index(r->path)) {
        tsr_status status = open_file(r, r->path, &r->params);
        return status == TSR_OK ? TSR_OK : with_path(r, status);
    }
    tsr_status status = tsr_shard_list_open(r->path, &r->list);
    if (status != TSR_OK)
        return status == TSR_ERR_NO_MEMORY ? status : tsr__fail_context(status, "%s", who);
    TSR__REQUIRE(tsr_shard_list_format(r->list) == TSR_SHARD_INDEX,
                 "%s: %s is not an index of safetensors files", who, r->path);
    return hash_files(r);
}

static tsr_status read_bytes(void *user, uint64_t at_bytes, uint64_t size, void *data)
{
    reader *r = user;
    TSR__TRY(tsr__file_read(&r->file, at_bytes, size, "a tensor", data));
    if (r->has_checksums)
        tsr__checksum_add(&r->checksum, at_bytes, size, data);
    return TSR_OK;
}

/* Reads all entries. Sets states[i] to the checksum state of the elements of parameter i that this
 * rank has read. */
static tsr_status read_entries(reader *r, tsr_stream *stream, int count,
                               const tsr_checkpoint_entry *entries,
                               const tsr_shard_param *const *found, uint32_t *states)
{
    for (int i = 0; i < count; i++) {
        if (entries[i].count == 0)
            continue;
        TSR__TRY(open_for(r, found[i]));
        r->checksum =
            (tsr__checksum){.at_bytes = found[i]->offset_bytes, .size_bytes = found[i]->size_bytes};
        tsr_status status = tsr__checkpoint_transfer(stream, &entries[i], found[i]->offset_bytes,
                                                     false, read_bytes, r);
        if (status != TSR_OK)
            return with_path(r, status);
        if (r->has_checksums)
            states[found[i] - params_of(r)->items] = tsr__checksum_state(&r->checksum);
    }
    return TSR_OK;
}

/* Checksums ---------------------------------------------------------------------------------- */

/* The arrays for comparing checksums. Each has one element for each parameter of the files. */
typedef struct tally {
    /* the entry that reads the parameter; without elements if there is none on this rank */
    tsr_checkpoint_entry *entries;
    bool *mine, *complete;
    uint32_t *states;
} tally;

static void tally_finish(tally *t)
{
    tsr__free(t->entries);
    tsr__free(t->mine);
    tsr__free(t->complete);
    tsr__free(t->states);
}

static tsr_status tally_make(const reader *r, int count, const tsr_checkpoint_entry *entries,
                             const tsr_shard_param *const *found, tally *t)
{
    const tsr__params *params = params_of(r);
    t->entries = tsr__calloc(params->count, sizeof *t->entries);
    t->mine = tsr__calloc(params->count, sizeof *t->mine);
    t->complete = tsr__calloc(params->count, sizeof *t->complete);
    t->states = tsr__calloc(params->count, sizeof *t->states);
    if (!t->entries || !t->mine || !t->complete || !t->states)
        return TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < params->count; i++) {
        const tsr_shard_param *param = &params->items[i];
        t->entries[i] =
            (tsr_checkpoint_entry){.name = param->name, .ndim = param->ndim, .shard_dim = -1};
        for (int d = 0; d < param->ndim && d < TSR_MAX_DIMS; d++)
            t->entries[i].shape[d] = param->shape[d];
    }
    for (int i = 0; i < count; i++)
        t->entries[found[i] - params->items] = entries[i];
    return TSR_OK;
}

/* Compares the checksums of the tensors that have been read completely by all ranks together. */
static tsr_status check_sums(const reader *r, tsr_comm *comm, tally *t)
{
    const tsr__params *params = params_of(r);
    const int count = (int)params->count;
    TSR__TRY(tsr__checkpoint_cover(comm, who, count, t->entries, t->mine, t->complete));
    for (int i = 0; i < count; i++)
        t->states[i] = t->mine[i] ? t->states[i] : 0;
    TSR__TRY(tsr__checkpoint_combine(comm, who, count, t->states));
    for (int i = 0; i < count; i++) {
        if (!r->known[i] || !t->complete[i])
            continue;
        const uint32_t sum = tsr__crc32c_of_state(t->states[i], params->items[i].size_bytes);
        TSR__REQUIRE(sum == r->expected[i],
                     "%s: %s: the data of '%s' are damaged: their checksum is %08" PRIx32
                     ", not %08" PRIx32,
                     who, r->path, params->items[i].name, sum, r->expected[i]);
    }
    return TSR_OK;
}

/* Finds the tensors that the entries read. The index of a checkpoint in parts lists slices, not
 * tensors. */
static tsr_status match_entries(const reader *r, int count, const tsr_checkpoint_entry *entries,
                                bool strict, const tsr_shard_param **found)
{
    const tsr_status status =
        tsr__checkpoint_match(who, r->path, params_of(r), count, entries, strict, found);
    return r->list ? tsr__parts_explain(r->path, status) : status;
}

static tsr_status load_file(reader *r, tsr_comm *comm, tsr_stream *stream, int count,
                            const tsr_checkpoint_entry *entries, bool strict)
{
    const tsr_shard_param **found = NULL;
    tally t = {0};
    tsr_status status = tsr__checkpoint_check(who, r->path, stream, false, count, entries);
    if (status == TSR_OK)
        status = tsr__parts_explain(r->path, open_path(r));
    if (status == TSR_OK && (found = tsr__calloc((size_t)count, sizeof *found)) == NULL)
        status = TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = match_entries(r, count, entries, strict, found);
    if (status == TSR_OK && r->has_checksums)
        status = tally_make(r, count, entries, found, &t);
    status = tsr__checkpoint_agree(comm, who, status);
    if (status == TSR_OK)
        status = tsr__checkpoint_same(
            comm, who, r->checksums ? "skip_checksums is false," : "skip_checksums is true,",
            r->checksums ? 2 : 0);
    if (status == TSR_OK)
        status = tsr__checkpoint_same(comm, who, "the file is", r->hash);
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(comm, who,
                                       read_entries(r, stream, count, entries, found, t.states));
    if (status == TSR_OK && r->has_checksums)
        status = check_sums(r, comm, &t);
    tally_finish(&t);
    tsr__free((void *)found);
    return status;
}

static tsr_status load_parts(const char *path, tsr_comm *comm, tsr_stream *stream, int count,
                             const tsr_checkpoint_entry *entries,
                             const tsr_checkpoint_params *params)
{
    tsr_status status = tsr__checkpoint_check(who, path, stream, false, count, entries);
    TSR__TRY(tsr__checkpoint_agree(comm, who, status));
    return tsr__parts_load(path, comm, stream, count, entries, params);
}

tsr_status tsr_checkpoint_load(const char *path, tsr_comm *comm, tsr_stream *stream, int count,
                               const tsr_checkpoint_entry *entries,
                               const tsr_checkpoint_params *params)
{
    void *taken = NULL;
    TSR__TAKE(tsr_checkpoint_params, params);
    TSR__TRY(tsr__checkpoint_take(count, &entries, &taken));
    reader r = {.path = path, .checksums = !params->skip_checksums};
    tsr_status status = params->parts ? load_parts(path, comm, stream, count, entries, params)
                                      : load_file(&r, comm, stream, count, entries, params->strict);
    reader_finish(&r);
    tsr__free(taken);
    return status;
}
