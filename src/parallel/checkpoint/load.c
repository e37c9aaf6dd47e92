#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/hash.h"
#include "parallel/checkpoint/checkpoint.h"
#include "shard/formats/file.h"
#include "shard/formats/list.h"
#include "tensor/check.h"

static const char who[] = "checkpoint_load";

typedef struct reader {
    const char *path;
    tsr__file file; /* the one that is open: of an index, one after the other */
    bool open;
    const char *name;     /* of that file, in the list's memory; NULL: the path itself */
    tsr__params params;   /* of a file by itself */
    tsr_shard_list *list; /* of an index */
    uint64_t hash;        /* of all headers */
} reader;

static void reader_finish(reader *r)
{
    if (r->open)
        tsr__file_close(&r->file);
    tsr__params_finish(&r->params);
    tsr_shard_list_destroy(&r->list);
}

/* "checkpoint_load: PATH: …" */
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

/* What two reads of one file agree in, and hardly two files: its header. */
static tsr_status hash_header(reader *r)
{
    uint8_t bytes[8];
    char *header = NULL;
    TSR__TRY(tsr__file_read(&r->file, 0, sizeof bytes, "the header's length", bytes));
    const uint64_t size = tsr__little_endian(bytes, 8); /* which has been checked */
    TSR__TRY(tsr__file_load(&r->file, 8, size, "the header", &header));
    r->hash = tsr__hash(r->hash, header, size);
    tsr__free(header);
    return TSR_OK;
}

static tsr_status open_file(reader *r, const char *path, tsr__params *params)
{
    TSR__TRY(tsr__file_open(path, &r->file));
    r->open = true;
    TSR__TRY(tsr__read_safetensors(&r->file, params));
    return hash_header(r);
}

/* The file that has a tensor is open. Of an index, it is read again: what has been checked has to
 * be what is in it now. */
static tsr_status open_for(reader *r, const tsr_shard_param *param)
{
    if (r->open && (!param->file || (r->name && strcmp(r->name, param->file) == 0)))
        return TSR_OK;
    if (r->open)
        tsr__file_close(&r->file);
    r->open = false;
    r->name = param->file;
    const char *slash = strrchr(r->path, '/');
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
        status = tsr__fail(TSR_ERR_IO, "%s has changed meanwhile", path);
    tsr__params_finish(&again);
    tsr__free(path);
    return with_path(r, status);
}

/* All headers, each once: an index lists the parameters of one file after those of another. */
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
                 "%s: %s is no index of safetensors files", who, r->path);
    return hash_files(r);
}

/* Entries -------------------------------------------------------------------------------------- */

static tsr_status compare(const reader *r, const tsr_checkpoint_entry *entry,
                          const tsr_shard_param *found)
{
    bool same = found->ndim == entry->ndim;
    for (int d = 0; d < entry->ndim && same; d++)
        same = found->shape[d] == entry->shape[d];
    TSR__REQUIRE(same, "%s: %s: '%s' is %s in the file, not %s", who, r->path, entry->name,
                 TSR__SHAPE(found->ndim, found->shape), TSR__SHAPE(entry->ndim, entry->shape));
    TSR__REQUIRE(strcmp(found->dtype, tsr__checkpoint_dtype(entry->dtype)) == 0,
                 "%s: %s: '%s' is %s in the file, not %s", who, r->path, entry->name, found->dtype,
                 tsr__checkpoint_dtype(entry->dtype));
    return TSR_OK;
}

/* Both in the order of names: each entry's tensor, into found[count]. */
static tsr_status match(const reader *r, int count, const tsr_checkpoint_entry *entries,
                        const int *order, const tsr__params *params, const tsr__param_name *names,
                        bool strict, const tsr_shard_param **found)
{
    size_t at = 0;
    for (int i = 0; i < count; i++) {
        const tsr_checkpoint_entry *entry = &entries[order[i]];
        for (; at < params->count && strcmp(names[at].name, entry->name) < 0; at++)
            TSR__REQUIRE(!strict, "%s: %s: '%s' is not asked for", who, r->path, names[at].name);
        if (at == params->count || strcmp(names[at].name, entry->name) != 0)
            return tsr__fail(TSR_ERR_NOT_FOUND, "%s: %s: there is no '%s'", who, r->path,
                             entry->name);
        found[order[i]] = &params->items[names[at++].param];
        TSR__TRY(compare(r, entry, found[order[i]]));
    }
    TSR__REQUIRE(!strict || at == params->count, "%s: %s: '%s' is not asked for", who, r->path,
                 names[at].name);
    return TSR_OK;
}

static tsr_status find_all(const reader *r, int count, const tsr_checkpoint_entry *entries,
                           bool strict, const tsr_shard_param **found)
{
    const tsr__params *params = r->list ? &r->list->params : &r->params;
    tsr__param_name *names = NULL;
    int *order = NULL;
    TSR__TRY(tsr__params_sort(params, &names));
    tsr_status status = tsr__checkpoint_sort(count, entries, &order);
    if (status == TSR_OK)
        status = match(r, count, entries, order, params, names, strict, found);
    tsr__free(order);
    tsr__free(names);
    return status;
}

static tsr_status move_in(void *user, uint64_t at, uint64_t size, void *data)
{
    return tsr__file_read(user, at, size, "a tensor", data);
}

static tsr_status read_all(reader *r, tsr_stream *stream, int count,
                           const tsr_checkpoint_entry *entries, const tsr_shard_param *const *found)
{
    for (int i = 0; i < count; i++) {
        if (entries[i].count == 0)
            continue;
        TSR__TRY(open_for(r, found[i]));
        tsr_status status = tsr__checkpoint_transfer(stream, &entries[i], found[i]->offset_bytes,
                                                     false, move_in, &r->file);
        if (status != TSR_OK)
            return with_path(r, status);
    }
    return TSR_OK;
}

static tsr_status load(reader *r, tsr_comm *comm, tsr_stream *stream, int count,
                       const tsr_checkpoint_entry *entries, bool strict)
{
    const tsr_shard_param **found = NULL;
    tsr_status status = tsr__checkpoint_check(who, r->path, stream, false, count, entries);
    if (status == TSR_OK)
        status = open_path(r);
    if (status == TSR_OK && (found = tsr__calloc((size_t)count, sizeof *found)) == NULL)
        status = TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = find_all(r, count, entries, strict, found);
    status = tsr__checkpoint_agree(comm, who, status);
    if (status == TSR_OK)
        status = tsr__checkpoint_same(comm, who, "this rank reads a file", r->hash);
    if (status == TSR_OK)
        status = tsr__checkpoint_agree(comm, who, read_all(r, stream, count, entries, found));
    tsr__free((void *)found);
    return status;
}

tsr_status tsr_checkpoint_load(const char *path, tsr_comm *comm, tsr_stream *stream, int count,
                               const tsr_checkpoint_entry *entries,
                               const tsr_checkpoint_params *params)
{
    reader r = {.path = path};
    tsr_status status = load(&r, comm, stream, count, entries, params && params->strict);
    reader_finish(&r);
    return status;
}
