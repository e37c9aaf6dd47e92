/* Reads lists of parameters, with the reader for the format of the file. */
#include "shard/formats/readers.h"

#include <inttypes.h>
#include <string.h>

#include "base/alloc.h"

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

const tsr_shard_param *tsr_shard_list_param_array(const tsr_shard_list *list)
{
    return list != NULL ? list->params.items : NULL;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path), end = strlen(ending);
    return length >= end && strcmp(path + length - end, ending) == 0;
}

/* Determines the format from the end of the file's name, or otherwise from its content. A
 * safetensors file starts with the length of its header. This length is below 2^32, so its 8 bytes
 * contain zero bytes, which JSON never contains. */
static tsr_status guess_format(tsr__file *file, const char *path, tsr_shard_format *out)
{
    uint8_t start[8] = {0};
    if (ends_in(path, ".safetensors") || ends_in(path, ".gguf") || ends_in(path, ".json")) {
        *out = ends_in(path, ".json")   ? TSR_SHARD_JSON
               : ends_in(path, ".gguf") ? TSR_SHARD_GGUF
                                        : TSR_SHARD_SAFETENSORS;
        return TSR_OK;
    }
    uint64_t size = file->size < sizeof start ? file->size : sizeof start;
    TSR__TRY(tsr__file_read(file, 0, size, "the start", start));
    if (memcmp(start, "GGUF", 4) == 0)
        *out = TSR_SHARD_GGUF;
    else if (size == sizeof start && memcmp(start + 4, "\0\0\0\0", 4) == 0)
        *out = TSR_SHARD_SAFETENSORS;
    else if (start[0] == '{' || start[0] == '[')
        *out = TSR_SHARD_JSON;
    else
        return tsr__fail(TSR_ERR_INVALID,
                         "shard: offset 0: this is not a safetensors, GGUF or JSON file");
    return TSR_OK;
}

static tsr_status read_gguf(const char *path, tsr__file *file, tsr__params *params)
{
    return path != NULL ? tsr__read_gguf_files(path, file, params) : tsr__read_gguf(file, params);
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
                        : format == TSR_SHARD_GGUF      ? read_gguf(path, file, &list->params)
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

tsr_status tsr_shard_list_open(const char *path, tsr_shard_list **out)
{
    TSR__REQUIRE(path != NULL && out != NULL, "shard: %s is NULL", path != NULL ? "out" : "path");
    tsr__file file;
    tsr_shard_format format = TSR_SHARD_JSON;
    TSR__TRY(tsr__file_open(path, &file));
    tsr_status status = guess_format(&file, path, &format);
    if (status == TSR_OK)
        status = read_parameter_list(format, path, &file, out);
    tsr__file_close(&file);
    if (status != TSR_OK && status != TSR_ERR_NO_MEMORY)
        return tsr__fail_context(status, "%s", path);
    return status;
}

tsr_status tsr_shard_list_parse(tsr_shard_format format, const void *data, size_t size_bytes,
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
