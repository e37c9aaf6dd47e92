/* Reads model.safetensors.index.json, the index of a model that is stored in several files:
 * {"weight_map": {parameter: file, …}}. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "platform/paths.h"
#include "shard/formats/readers.h"
#include "json/text_check.h"

#define MAX_PATH 4096

/* A member of the weight map: the name of a parameter and the name of the file that contains it. */
typedef struct index_entry {
    char *name;
    char *file;
    size_t offset; /* the offset of this member in the index */
} index_entry;

typedef struct index_map {
    index_entry *items;
    size_t count, capacity;
} index_map;

static void map_finish(index_map *map)
{
    for (size_t i = 0; i < map->count; i++) {
        tsr__free(map->items[i].name);
        tsr__free(map->items[i].file);
    }
    tsr__free(map->items);
}

static tsr_status map_add(index_map *map, const char *name, const char *file, size_t offset)
{
    void *items = map->items;
    TSR__TRY(tsr__grow(&items, &map->capacity, map->count + 1, sizeof *map->items));
    map->items = items;
    index_entry entry = {tsr__strdup(name), tsr__strdup(file), offset};
    if (entry.name == NULL || entry.file == NULL) {
        tsr__free(entry.name);
        tsr__free(entry.file);
        return TSR_ERR_NO_MEMORY;
    }
    map->items[map->count++] = entry;
    return TSR_OK;
}

/* Returns what is wrong with the name of a file that the index contains, or NULL. The file must be
 * in the folder of the index. The caller has already checked that the name's characters are
 * printable. */
static const char *file_problem(const char *file)
{
    static const char ending[] = ".safetensors";
    size_t length = strlen(file), end = sizeof ending - 1;
    if (tsr__path_last_separator(file) != NULL || file[0] == '.')
        return "is not in the index's folder";
    if (length <= end || strcmp(file + length - end, ending) != 0)
        return "does not end in .safetensors";
    return NULL;
}

static tsr_status read_map(tsr__json *json, tsr__param_text *text, index_map *map)
{
    char shown[TSR__NAME_SHORT];
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        TSR__TRY(tsr__json_member(json, text->name, &more));
        if (!more)
            return TSR_OK;
        size_t offset = json->at, key_at = json->key_at;
        const char *problem = tsr__name_problem(text->name, strlen(text->name));
        if (problem != NULL)
            return tsr__json_fail(json, key_at, "a parameter's name %s", problem);
        tsr__subject_set(&json->subject, "parameter", text->name, 0);
        TSR__TRY(tsr__json_string(json, sizeof text->layer, text->layer));
        problem = tsr__name_problem(text->layer, strlen(text->layer));
        if (problem != NULL)
            return tsr__json_fail(json, offset, "its file's name %s", problem);
        problem = file_problem(text->layer);
        if (problem != NULL)
            return tsr__json_fail(json, offset, "its file '%s' %s",
                                  tsr__name_short(text->layer, shown), problem);
        tsr__subject_clear(&json->subject);
        if (map->count == TSR_SHARD_MAX_PARAMS)
            return tsr__json_fail(json, offset, "there are more than %d parameters",
                                  TSR_SHARD_MAX_PARAMS);
        TSR__TRY(map_add(map, text->name, text->layer, key_at));
    }
}

static tsr_status read_document(tsr__json *json, tsr__param_text *text, index_map *map)
{
    static const char *const names[] = {"metadata", "weight_map", NULL};
    unsigned seen = 0;
    bool more = false;
    TSR__TRY(tsr__json_enter(json, '{'));
    for (;;) {
        int member = -1;
        TSR__TRY(tsr__json_member(json, text->key, &more));
        if (!more)
            return tsr__json_end(json);
        TSR__TRY(tsr__json_known(json, names, text->key, &seen, &member));
        TSR__TRY(member == 1 ? read_map(json, text, map) : tsr__json_skip(json));
    }
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const index_entry *)a)->name, ((const index_entry *)b)->name);
}

static int by_file(const void *a, const void *b)
{
    const index_entry *x = a, *y = b;
    int order = tsr_shard_compare_names(x->file, y->file);
    return order != 0 ? order : by_name(a, b);
}

/* Reads the header of one of the model's files and appends its parameters. */
static tsr_status read_indexed_file(const char *path, const char *name, tsr__params *params)
{
    tsr__file file;
    tsr__params read = {0};
    const char *slash = tsr__path_last_separator(path);
    char shown[TSR__NAME_SHORT];
    int folder = slash != NULL ? (int)(slash - path) + 1 : 0;
    char full[MAX_PATH];
    int length = snprintf(full, sizeof full, "%.*s%s", folder, path, name);
    TSR__REQUIRE(length > 0 && (size_t)length < sizeof full,
                 "index: the path of its file '%s' is too long", tsr__name_short(name, shown));
    TSR__TRY(tsr__file_open(full, &file));
    tsr_status status = tsr__read_safetensors(&file, &read);
    tsr__file_close(&file);
    if (status != TSR_OK && status != TSR_ERR_NO_MEMORY)
        status = tsr__fail_context(status, "%s", full);
    for (size_t i = 0; i < read.count && status == TSR_OK; i++) {
        tsr_shard_param param = read.items[i];
        param.file = name;
        status = tsr__params_add(params, &param);
    }
    tsr__params_finish(&read);
    return status;
}

/* Checks that the index and its files contain the same parameters, and that each parameter is in
 * the file that the index says. */
static tsr_status compare_with_files(const index_map *map, const tsr__params *params)
{
    tsr__param_name *names = NULL;
    char text[TSR__NAME_SHORT], file[TSR__NAME_SHORT];
    TSR__TRY(tsr__params_sort(params, &names));
    tsr_status status = TSR_OK;
    for (size_t i = 0, j = 0; (i < map->count || j < params->count) && status == TSR_OK; i++, j++) {
        const index_entry *said = i < map->count ? &map->items[i] : NULL;
        const tsr_shard_param *found = j < params->count ? &params->items[names[j].param] : NULL;
        int order = said == NULL ? 1 : found == NULL ? -1 : strcmp(said->name, found->name);
        if (order < 0)
            status = tsr__fail(TSR_ERR_INVALID, "index: offset %zu: its files have no tensor '%s'",
                               said->offset, tsr__name_short(said->name, text));
        else if (order > 0)
            status = tsr__fail(
                TSR_ERR_INVALID, "index: tensor '%s' of %s is not in the index, or is in two files",
                tsr__name_short(found->name, text), tsr__name_short(found->file, file));
        else if (strcmp(said->file, found->file) != 0)
            status = tsr__fail(TSR_ERR_INVALID, "index: offset %zu: tensor '%s' is in another file",
                               said->offset, tsr__name_short(said->name, text));
    }
    tsr__free(names);
    return status;
}

static tsr_status read_files(const char *path, index_map *map, tsr__params *params)
{
    char text[TSR__NAME_SHORT];
    if (map->count == 0)
        return TSR_OK;
    qsort(map->items, map->count, sizeof *map->items, by_file);
    for (size_t i = 0; i < map->count; i++)
        if (i == 0 || strcmp(map->items[i - 1].file, map->items[i].file) != 0)
            TSR__TRY(read_indexed_file(path, map->items[i].file, params));
    qsort(map->items, map->count, sizeof *map->items, by_name);
    for (size_t i = 1; i < map->count; i++)
        if (strcmp(map->items[i - 1].name, map->items[i].name) == 0)
            return tsr__fail(TSR_ERR_INVALID, "index: offset %zu: parameter '%s' comes twice",
                             map->items[i].offset, tsr__name_short(map->items[i].name, text));
    return compare_with_files(map, params);
}

tsr_status tsr__read_index(const char *path, tsr__file *file, tsr__params *params)
{
    char *document = NULL;
    index_map map = {0};
    file->what = "index";
    TSR__TRY(tsr__file_load(file, 0, file->size, "the index", &document));
    tsr__param_text *text = tsr__calloc(1, sizeof *text);
    tsr_status status = TSR_ERR_NO_MEMORY;
    if (text != NULL) {
        tsr__json json = {.text = document, .size = file->size, .what = file->what};
        status = read_document(&json, text, &map);
    }
    tsr__free(text);
    tsr__free(document);
    if (status == TSR_OK)
        status = read_files(path, &map, params);
    map_finish(&map);
    return status;
}
