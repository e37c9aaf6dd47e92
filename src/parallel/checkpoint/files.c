/* The public functions that read the files of a checkpoint in one process, without a
 * communicator. */
#define _POSIX_C_SOURCE 200809L
#include "parallel/checkpoint/files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/checked.h"
#include "base/struct_size.h"
#include "parallel/checkpoint/output.h"
#include "parallel/checkpoint/parts.h"
#include "shard/formats/file_kind.h"

static const char opening[] = "checkpoint_files_open", verifying[] = "checkpoint_files_verify",
                  merging[] = "checkpoint_files_merge";

struct tsr_checkpoint_files {
    tsr__parts parts;
    tsr__error missing; /* "": all parts are there */
    tsr_checkpoint_summary summary;
    tsr_checkpoint_part *part_list;
    tsr_checkpoint_tensor *tensors;
    const char **metadata;
};

/* Opening ------------------------------------------------------------------------------------ */

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* Fails with the name of what `path` is instead of a checkpoint or its name. Keeps the last error
 * if the file may be a damaged part. */
static tsr_status fail_kind(const char *path, tsr_status status)
{
    tsr__file file;
    tsr__file_kind kind;
    const tsr__error problem = tsr__error_take();
    const bool opened = tsr__file_open(path, &file) == TSR_OK;
    const bool known = opened && tsr__file_kind_read(&file, &kind) == TSR_OK;
    if (opened)
        tsr__file_close(&file);
    const bool is_index = known && kind == TSR__FILE_JSON && ends_with(path, ".index.json");
    if (known && kind != TSR__FILE_SAFETENSORS && !is_index)
        return tsr__fail(TSR_ERR_INVALID, "%s: %s is %s, not a safetensors file", opening, path,
                         tsr__file_kind_name(kind));
    tsr__error_put_back(&problem);
    return status;
}

static tsr_status fail_folder(const char *path)
{
    struct stat info;
    const size_t size = strlen(path) + sizeof "/config.json";
    char *config = tsr__calloc(size, 1);
    if (!config)
        return TSR_ERR_NO_MEMORY;
    snprintf(config, size, "%s/config.json", path);
    const bool is_model = stat(config, &info) == 0;
    tsr__free(config);
    if (is_model)
        return tsr__fail(TSR_ERR_INVALID,
                         "%s: %s is the folder of a model; name a safetensors file in it", opening,
                         path);
    return tsr__fail(TSR_ERR_INVALID,
                     "%s: %s is a folder; name the checkpoint in it, as in %s/model", opening, path,
                     path);
}

/* Adds the parts of FOLDER/NAME, or of its index. `missing` is why the file itself cannot be
 * opened; 0: it exists. */
static tsr_status add_place(const char *path, int missing, tsr__view *view)
{
    tsr__part_place place = {0};
    const size_t before = view->count;
    TSR__TRY(tsr__part_place_init(opening, path, &place));
    tsr_status status = tsr__view_add_folder(place.folder, place.stem, view);
    tsr__part_place_finish(&place);
    if (status == TSR_OK && view->problem.text[0])
        status = tsr__fail(TSR_ERR_INVALID, "%s: %s", opening, view->problem.text);
    if (status != TSR_OK || view->count > before)
        return status;
    if (missing)
        return tsr__fail(TSR_ERR_NOT_FOUND,
                         "%s: cannot open %s: %s, and no part of it is there either", opening, path,
                         strerror(missing));
    return fail_kind(path, tsr__fail(TSR_ERR_NOT_FOUND,
                                     "%s: no part of a checkpoint is beside the index %s", opening,
                                     path));
}

static tsr_status add_path(const char *path, tsr__view *view)
{
    struct stat info;
    TSR__REQUIRE(path, "%s: a path is NULL", opening);
    const int missing = stat(path, &info) == 0 ? 0 : errno;
    if (!missing && S_ISDIR(info.st_mode))
        return fail_folder(path);
    if (missing || ends_with(path, ".json"))
        return add_place(path, missing, view);
    tsr_status status = tsr__view_add_file(path, view);
    if (status == TSR_OK || status == TSR_ERR_NO_MEMORY)
        return status;
    status = tsr__fail_context(status, "%s", opening);
    return status == TSR_ERR_INVALID ? fail_kind(path, status) : status;
}

static tsr_status view_paths(int count, const char *const *paths, tsr__view *view)
{
    TSR__REQUIRE(count > 0 && paths, "%s: there are no paths", opening);
    for (int i = 0; i < count; i++)
        TSR__TRY(add_path(paths[i], view));
    for (size_t i = 0; i < view->count; i++)
        TSR__REQUIRE(view->items[i].id.id[0] || view->count == 1, "%s: %s is no part", opening,
                     view->items[i].path);
    return TSR_OK;
}

static tsr_status choose_and_read(const char *path, const tsr__view *view,
                                  tsr_checkpoint_files *files)
{
    tsr__chosen chosen = {0};
    tsr_status status = tsr__parts_choose(opening, NULL, path, view, &chosen, &files->missing);
    if (status == TSR_OK)
        status = tsr__parts_read(opening, NULL, view, &chosen, &files->parts);
    tsr__chosen_finish(&chosen);
    return status;
}

/* The summary -------------------------------------------------------------------------------- */

/* Returns the first part that is not missing. */
static const tsr__part *first_part(const tsr__parts *parts)
{
    const tsr__part *part = parts->parts;
    while (part->header_bytes == 0)
        part++;
    return part;
}

/* Returns false for the keys with which the library describes parts and checksums. A merged file
 * has other checksums and no parts. */
static bool is_callers(const char *key)
{
    return strcmp(key, TSR__PART_KEY) != 0 && strcmp(key, TSR__CHECKSUM_KEY) != 0;
}

static tsr_status list_metadata(tsr_checkpoint_files *files)
{
    const tsr__metadata *given = &first_part(&files->parts)->metadata;
    size_t length = 0;
    files->metadata = tsr__calloc(2 * given->count + 1, sizeof *files->metadata);
    if (!files->metadata)
        return TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < given->count; i++) {
        if (!is_callers(given->texts[2 * i]))
            continue;
        files->metadata[length++] = given->texts[2 * i];
        files->metadata[length++] = given->texts[2 * i + 1];
    }
    return TSR_OK;
}

static void list_tensors(tsr_checkpoint_files *files)
{
    const tsr__parts *parts = &files->parts;
    for (size_t i = 0; i < parts->tensor_count; i++) {
        const tsr__sliced *from = &parts->tensors[i];
        tsr_checkpoint_tensor *to = &files->tensors[i];
        *to = (tsr_checkpoint_tensor){.name = from->of->name,
                                      .dtype = from->of->dtype,
                                      .ndim = from->of->ndim,
                                      .slice_count = from->count};
        memcpy(to->shape, from->of->shape, sizeof to->shape);
    }
}

static void list_parts(tsr_checkpoint_files *files)
{
    for (int i = 0; i < files->parts.count; i++) {
        const tsr__part *from = &files->parts.parts[i];
        files->part_list[i] = (tsr_checkpoint_part){.path = files->parts.paths[i],
                                                    .size_bytes = from->size_bytes,
                                                    .slice_count = from->count,
                                                    .has_checksums = from->has_checksums};
    }
}

static tsr_status summarise(tsr_checkpoint_files *files)
{
    const tsr__parts *parts = &files->parts;
    files->part_list = tsr__calloc((size_t)parts->count, sizeof *files->part_list);
    files->tensors = tsr__calloc(parts->tensor_count, sizeof *files->tensors);
    if (!files->part_list || !files->tensors)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(list_metadata(files));
    list_tensors(files);
    list_parts(files);
    files->summary = (tsr_checkpoint_summary){
        .id = first_part(parts)->id.id,
        .generation = first_part(parts)->id.generation,
        .missing = files->missing.text[0] ? files->missing.text : NULL,
        .part_count = parts->count,
        .tensor_count = parts->tensor_count,
        .metadata = files->metadata,
    };
    return TSR_OK;
}

tsr_status tsr_checkpoint_files_open(int count, const char *const *paths,
                                     tsr_checkpoint_files **out)
{
    TSR__REQUIRE(out, "%s: out is NULL", opening);
    tsr__view view = {0};
    tsr_checkpoint_files *files = tsr__calloc(1, sizeof *files);
    tsr_status status = files ? view_paths(count, paths, &view) : TSR_ERR_NO_MEMORY;
    if (status == TSR_OK)
        status = choose_and_read(paths[0], &view, files);
    if (status == TSR_OK)
        status = summarise(files);
    tsr__view_finish(&view);
    if (status == TSR_OK)
        *out = files;
    else
        tsr_checkpoint_files_close(&files);
    return status;
}

void tsr_checkpoint_files_close(tsr_checkpoint_files **files)
{
    if (!files || !*files)
        return;
    tsr_checkpoint_files *f = *files;
    tsr__parts_finish(&f->parts);
    tsr__free(f->part_list);
    tsr__free(f->tensors);
    tsr__free((void *)f->metadata);
    tsr__free(f);
    *files = NULL;
}

const tsr_checkpoint_summary *tsr_checkpoint_files_summary(const tsr_checkpoint_files *files)
{
    return files ? &files->summary : NULL;
}

const tsr_checkpoint_part *tsr_checkpoint_files_part(const tsr_checkpoint_files *files, int index)
{
    return files && index >= 0 && index < files->parts.count ? &files->part_list[index] : NULL;
}

const tsr_checkpoint_tensor *tsr_checkpoint_files_tensor(const tsr_checkpoint_files *files,
                                                         uint64_t index)
{
    return files && index < files->parts.tensor_count ? &files->tensors[index] : NULL;
}

tsr_status tsr_checkpoint_files_get_slice(const tsr_checkpoint_files *files, uint64_t tensor,
                                          uint64_t index, tsr_checkpoint_slice *out)
{
    static const char who[] = "checkpoint_files_get_slice";
    TSR__REQUIRE(files && out, "%s: %s is NULL", who, files ? "out" : "files");
    TSR__REQUIRE(tensor < files->parts.tensor_count,
                 "%s: there is no tensor %" PRIu64 "; there are %zu", who, tensor,
                 files->parts.tensor_count);
    const tsr__sliced *of = &files->parts.tensors[tensor];
    TSR__REQUIRE(index < of->count, "%s: there is no slice %" PRIu64 " of %s; there are %zu", who,
                 index, of->of->name, of->count);
    const tsr__slice *from = &files->parts.slices[of->first + index];
    const tsr__region region = tsr__region_of(&from->of);
    tsr_checkpoint_slice slice = {.part = from->part,
                                  .dim = (int)region.dim,
                                  .offset = (int64_t)region.offset,
                                  .length = (int64_t)region.length,
                                  .first = region.first,
                                  .count = region.count};
    tsr_checkpoint_entry entry = from->of;
    entry.shard_dim = entry.ndim > 0 ? slice.dim : -1;
    entry.offset = slice.offset;
    entry.length = slice.length;
    tsr__slice_name_region(&entry, slice.text);
    TSR__GIVE(tsr_checkpoint_slice, &slice, out);
    return TSR_OK;
}

/* Reading ------------------------------------------------------------------------------------ */

/* A function that is called for each chunk of a slice: elements first … first + count − 1 of the
 * slice. */
typedef tsr_status (*visit_fn)(void *user, const tsr__slice *slice, uint64_t first, uint64_t count,
                               uint8_t *data);

static tsr_status read_slice(tsr__part_reader *reader, const tsr__slice *slice, visit_fn visit,
                             void *user)
{
    const uint64_t width = tsr__checkpoint_width(slice->of.dtype);
    const uint64_t most = TSR__PART_CHUNK_BYTES / width;
    uint32_t state = 0;
    for (uint64_t first = 0; first < slice->of.count; first += most) {
        const uint64_t count = tsr__min_u64(most, slice->of.count - first);
        TSR__TRY(tsr__part_reader_chunk(reader, slice, first * width, count * width, &state));
        if (visit)
            TSR__TRY(visit(user, slice, first, count, reader->chunk));
    }
    return TSR_OK;
}

static tsr_status check_complete(const char *who, const tsr_checkpoint_files *files)
{
    TSR__REQUIRE(files, "%s: files is NULL", who);
    if (files->missing.text[0])
        return tsr__fail(TSR_ERR_NOT_FOUND, "%s: %s", who, files->missing.text);
    return tsr__parts_check_cover(who, &files->parts);
}

tsr_status tsr_checkpoint_files_verify(const tsr_checkpoint_files *files)
{
    tsr__part_reader reader;
    TSR__TRY(check_complete(verifying, files));
    tsr_status status = tsr__part_reader_init(verifying, &files->parts, &reader);
    /* Reads in the order of the files, which is the fastest. */
    for (int i = 0; i < files->parts.count && status == TSR_OK; i++) {
        for (size_t j = 0; j < files->parts.parts[i].count && status == TSR_OK; j++) {
            tsr__slice slice = files->parts.parts[i].slices[j];
            slice.part = i;
            status = read_slice(&reader, &slice, NULL, NULL);
        }
    }
    tsr__part_reader_finish(&reader);
    return status;
}

/* Merging ------------------------------------------------------------------------------------ */

typedef struct merger {
    tsr__checkpoint_output file;
    tsr_checkpoint_entry *entries; /* the full tensors */
    uint32_t *states;
    tsr__checkpoint_layout layout;
    tsr__checksum checksum; /* the checksum of the current tensor */
    uint64_t at_bytes;      /* the position of the current tensor in the file */
    bool (*goes_on)(void);
} merger;

static tsr_status write_bytes(void *user, uint64_t at_bytes, uint64_t size, void *data)
{
    merger *m = user;
    tsr__checksum_add(&m->checksum, at_bytes, size, data);
    return tsr__checkpoint_output_write(&m->file, data, size, at_bytes);
}

static tsr_status write_chunk(void *user, const tsr__slice *slice, uint64_t first, uint64_t count,
                              uint8_t *data)
{
    merger *m = user;
    tsr_checkpoint_entry chunk = slice->of;
    if (m->goes_on && !m->goes_on())
        return tsr__fail(TSR_ERR_IO, "%s: stopped", merging);
    chunk.first += first;
    chunk.count = count;
    chunk.data = data;
    return tsr__checkpoint_transfer(NULL, &chunk, m->at_bytes, true, write_bytes, m);
}

static tsr_status write_tensors(const tsr_checkpoint_files *files, tsr__part_reader *reader,
                                merger *m)
{
    for (size_t i = 0; i < files->parts.tensor_count; i++) {
        const tsr__sliced *tensor = &files->parts.tensors[i];
        m->at_bytes = m->layout.at_bytes[i];
        m->checksum = (tsr__checksum){.at_bytes = m->at_bytes,
                                      .size_bytes = m->entries[i].count *
                                                    tsr__checkpoint_width(m->entries[i].dtype)};
        for (size_t j = 0; j < tensor->count; j++)
            TSR__TRY(read_slice(reader, &files->parts.slices[tensor->first + j], write_chunk, m));
        m->states[i] = tsr__checksum_state(&m->checksum);
    }
    return TSR_OK;
}

static tsr_status lay_out_merged(const tsr_checkpoint_files *files, merger *m)
{
    const size_t count = files->parts.tensor_count;
    m->entries = tsr__calloc(count, sizeof *m->entries);
    m->states = m->entries ? tsr__calloc(count, sizeof *m->states) : NULL;
    if (!m->states)
        return TSR_ERR_NO_MEMORY;
    for (size_t i = 0; i < count; i++) {
        m->entries[i] = *files->parts.tensors[i].of;
        m->entries[i].shard_dim = -1;
        m->entries[i].first = 0;
        m->entries[i].count = tsr__checkpoint_elements(&m->entries[i]);
    }
    return tsr__checkpoint_lay_out(merging, (int)count, m->entries, files->metadata, true,
                                   &m->layout);
}

static tsr_status write_merged_file(const tsr_checkpoint_files *files, const char *path, merger *m)
{
    struct stat info;
    tsr__part_reader reader = {0};
    const int count = (int)files->parts.tensor_count;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode))
        return tsr__fail(TSR_ERR_IO, "%s: %s is not a regular file", merging, path);
    TSR__TRY(lay_out_merged(files, m));
    TSR__TRY(tsr__checkpoint_output_init(&m->file, merging, path, ".partial"));
    TSR__TRY(tsr__checkpoint_output_create(&m->file, m->layout.size_bytes));
    TSR__TRY(tsr__checkpoint_output_write(&m->file, m->layout.header, m->layout.header_bytes, 0));
    tsr_status status = tsr__part_reader_init(merging, &files->parts, &reader);
    if (status == TSR_OK)
        status = write_tensors(files, &reader, m);
    tsr__part_reader_finish(&reader);
    TSR__TRY(status);
    TSR__TRY(tsr__checksums_put(&m->file, count, m->entries, &m->layout, m->states));
    return tsr__checkpoint_output_commit(&m->file);
}

tsr_status tsr__checkpoint_files_merge(const tsr_checkpoint_files *files, const char *path,
                                       bool (*goes_on)(void))
{
    merger m = {.file.descriptor = -1, .goes_on = goes_on};
    TSR__REQUIRE(path, "%s: path is NULL", merging);
    TSR__TRY(check_complete(merging, files));
    tsr_status status = write_merged_file(files, path, &m);
    tsr__checkpoint_output_finish(&m.file);
    tsr__checkpoint_layout_finish(&m.layout);
    tsr__free(m.entries);
    tsr__free(m.states);
    return status;
}

tsr_status tsr_checkpoint_files_merge(const tsr_checkpoint_files *files, const char *path)
{
    return tsr__checkpoint_files_merge(files, path, NULL);
}
