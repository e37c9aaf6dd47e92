/* Reads lists of parameters, with the reader for the format of the file. */
#include "shard/formats/readers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "shard/formats/file_kind.h"

static const char *const format_names[] = {"safetensors", "gguf", "json", "index"};
#define FORMATS ((int)(sizeof format_names / sizeof *format_names))

const char *tsr_shard_format_name(tsr_shard_format format)
{
    return (int)format >= 0 && (int)format < FORMATS ? format_names[format] : "?";
}

void tsr_shard_list_destroy(tsr_shard_list **list)
{
    if (list == NULL || *list == NULL)
        return;
    tsr__params_finish(&(*list)->params);
    tsr__gguf_keys_finish(&(*list)->keys);
    tsr__free(*list);
    *list = NULL;
}

tsr_shard_format tsr_shard_list_format(const tsr_shard_list *list)
{
    return list != NULL ? list->format : TSR_SHARD_SAFETENSORS;
}

uint64_t tsr_shard_list_param_count(const tsr_shard_list *list)
{
    return list != NULL ? list->params.count : 0;
}

const tsr_shard_param *tsr_shard_list_param(const tsr_shard_list *list, uint64_t index)
{
    return list != NULL && index < list->params.count ? &list->params.items[index] : NULL;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), end = strlen(ending);
    return length >= end && strcmp(path + length - end, ending) == 0;
}

/* Determines the format from the file's contents. If these are of no known format, the end of the
 * file's name counts, so that the error about an empty or damaged file says what it lacks. */
static tsr_status find_format(tsr__file *file, const char *path, tsr_shard_format *out)
{
    tsr__file_kind kind;
    TSR__TRY(tsr__file_kind_read(file, &kind));
    if (kind == TSR__FILE_GGUF || (kind == TSR__FILE_UNKNOWN && ends_in(path, ".gguf")))
        *out = TSR_SHARD_GGUF;
    else if (kind == TSR__FILE_SAFETENSORS ||
             (kind == TSR__FILE_UNKNOWN && ends_in(path, ".safetensors")))
        *out = TSR_SHARD_SAFETENSORS;
    else if (kind == TSR__FILE_JSON || (kind == TSR__FILE_UNKNOWN && ends_in(path, ".json")))
        *out = TSR_SHARD_JSON;
    else
        return tsr__fail(TSR_ERR_INVALID,
                         "shard: offset 0: this is %s, not a safetensors, GGUF or JSON file",
                         tsr__file_kind_name(kind));
    return TSR_OK;
}

static tsr_status read_gguf(const char *path, tsr__file *file, tsr_shard_list *list)
{
    return path != NULL ? tsr__read_gguf_files(path, file, &list->params, &list->keys)
                        : tsr__read_gguf(file, &list->params, &list->keys);
}

/* Reads a list of parameters. `path` is NULL if the file is in memory. */
static tsr_status read_parameter_list(tsr_shard_format format, const char *path, tsr__file *file,
                                      tsr_shard_list **out)
{
    tsr_shard_list *list = tsr__calloc(1, sizeof *list);
    if (list == NULL)
        return TSR_ERR_NO_MEMORY;
    list->format = format;
    bool is_index = false;
    tsr_status status = format == TSR_SHARD_SAFETENSORS ? tsr__read_safetensors(file, &list->params)
                        : format == TSR_SHARD_GGUF      ? read_gguf(path, file, list)
                                                   : tsr__read_json(file, &list->params, &is_index);
    if (status == TSR_OK && is_index) {
        list->format = TSR_SHARD_INDEX;
        status = path != NULL
                     ? tsr__read_index(path, file, &list->params)
                     : tsr__fail(TSR_ERR_INVALID, "shard: an index cannot be read from memory");
    }
    if (status != TSR_OK) {
        tsr_shard_list_destroy(&list);
        return status;
    }
    *out = list;
    return TSR_OK;
}

tsr_status tsr__find_weights(const char *module, const char *folder, char **out)
{
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    const size_t length = strlen(folder), size = length + strlen(names[1]) + 2;
    char *path = tsr__calloc(size, 1);
    struct stat info;
    if (path == NULL)
        return TSR_ERR_NO_MEMORY;
    for (int i = 0; i < 2; i++) {
        snprintf(path, size, "%s%s%s", folder, length > 0 && folder[length - 1] == '/' ? "" : "/",
                 names[i]);
        if (stat(path, &info) == 0) {
            *out = path;
            return TSR_OK;
        }
    }
    tsr__free(path);
    return tsr__fail(TSR_ERR_NOT_FOUND, "%s: %s has neither %s nor %s", module, folder, names[0],
                     names[1]);
}

static tsr_status open_file(const char *path, tsr_shard_list **out)
{
    tsr__file file;
    tsr_shard_format format = TSR_SHARD_JSON;
    TSR__TRY(tsr__file_open(path, &file));
    tsr_status status = find_format(&file, path, &format);
    if (status == TSR_OK)
        status = read_parameter_list(format, path, &file, out);
    tsr__file_close(&file);
    if (status != TSR_OK && status != TSR_ERR_NO_MEMORY)
        return tsr__fail_context(status, "%s", path);
    return status;
}

tsr_status tsr_shard_list_open(const char *path, tsr_shard_list **out)
{
    TSR__REQUIRE(path != NULL && out != NULL, "shard: %s is NULL", path != NULL ? "out" : "path");
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return open_file(path, out);
    char *weights = NULL;
    TSR__TRY(tsr__find_weights("shard", path, &weights));
    const tsr_status status = open_file(weights, out);
    tsr__free(weights);
    return status;
}

tsr_status tsr__list_parse(tsr_shard_format format, const void *data, size_t size_bytes,
                           uint64_t file_bytes, tsr_shard_list **out)
{
    TSR__REQUIRE(out != NULL, "shard: out is NULL");
    TSR__REQUIRE(data != NULL || size_bytes == 0, "shard: data is NULL");
    TSR__REQUIRE((int)format >= 0 && format <= TSR_SHARD_JSON,
                 "shard: format %d cannot be read from memory", (int)format);
    TSR__REQUIRE(file_bytes >= size_bytes && file_bytes <= INT64_MAX,
                 "shard: size_bytes is %zu, file_bytes %" PRIu64, size_bytes, file_bytes);
    tsr__file file = {.what = "shard",
                      .size = file_bytes,
                      .data = data != NULL ? data : (const uint8_t *)"",
                      .data_size = size_bytes,
                      .descriptor = -1};
    return read_parameter_list(format, NULL, &file, out);
}
