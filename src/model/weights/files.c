#include "model/weights/files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "model/weights/mxfp4.h"
#include "model/weights/random.h"
#include "platform/paths.h"

char *tsr__path_join(const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + 1;
    char *path = tsr__calloc(size, 1);
    if (path)
        snprintf(path, size, "%s%s", folder, name);
    return path;
}

static bool exists(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

/* Gives the part of a path up to and including its last slash. */
static tsr_status folder_of(const char *path, char **out)
{
    const char *slash = tsr__path_last_separator(path);
    const size_t length = slash ? (size_t)(slash - path) + 1 : 0;
    char *folder = tsr__calloc(length + 1, 1);
    if (!folder)
        return TSR_ERR_NO_MEMORY;
    memcpy(folder, path, length);
    *out = folder;
    return TSR_OK;
}

static tsr_status find_in_folder(const char *path, bool with_config, tsr__model_files *out)
{
    const size_t length = strlen(path);
    out->folder = tsr__path_join(path, length > 0 && path[length - 1] == '/' ? "" : "/");
    out->config = out->folder ? tsr__path_join(out->folder, "config.json") : NULL;
    if (!out->config)
        return TSR_ERR_NO_MEMORY;
    if (with_config && !exists(out->config))
        return tsr__fail(TSR_ERR_NOT_FOUND, "model: %s has no config.json", path);
    return tsr__find_weights("model", path, &out->weights);
}

/* Takes a config.json without weights. */
static tsr_status take_config(const char *path, tsr__model_files *out)
{
    TSR__TRY(folder_of(path, &out->folder));
    out->config = tsr__strdup(path);
    out->weights = tsr__strdup(path);
    out->list = tsr__calloc(1, sizeof *out->list);
    if (!out->config || !out->weights || !out->list)
        return TSR_ERR_NO_MEMORY;
    out->list->format = TSR_SHARD_SAFETENSORS;
    return TSR_OK;
}

static bool is_config(const char *path)
{
    const char *slash = tsr__path_last_separator(path);
    return strcmp(slash ? slash + 1 : path, "config.json") == 0;
}

static tsr_status find_beside(const char *path, bool with_config, tsr__model_files *out)
{
    if (with_config && is_config(path))
        return take_config(path, out);
    TSR__TRY(folder_of(path, &out->folder));
    out->weights = tsr__strdup(path);
    if (!out->weights)
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(tsr_shard_list_open(path, &out->list));
    out->gguf = tsr_shard_list_format(out->list) == TSR_SHARD_GGUF;
    if (out->gguf)
        return TSR_OK;
    TSR__REQUIRE(tsr_shard_list_format(out->list) != TSR_SHARD_JSON,
                 "model: %s is a list of parameters, without weights", path);
    out->config = tsr__path_join(out->folder, "config.json");
    if (!out->config)
        return TSR_ERR_NO_MEMORY;
    if (with_config && !exists(out->config))
        return tsr__fail(TSR_ERR_NOT_FOUND, "model: there is no config.json beside %s", path);
    return TSR_OK;
}

static tsr_status open_files(const char *path, bool with_config, tsr__model_files *out)
{
    struct stat info;
    *out = (tsr__model_files){0};
    if (stat(path, &info) != 0)
        return tsr__fail(errno == ENOENT || errno == ENOTDIR ? TSR_ERR_NOT_FOUND : TSR_ERR_IO,
                         "model: cannot open %s: %s", path, strerror(errno));
    TSR__TRY(S_ISDIR(info.st_mode) ? find_in_folder(path, with_config, out)
                                   : find_beside(path, with_config, out));
    if (!out->list)
        TSR__TRY(tsr_shard_list_open(out->weights, &out->list));
    out->config_is_read = with_config;
    TSR__TRY(tsr__params_sort(&out->list->params, &out->names));
    return out->gguf ? TSR_OK : tsr__mxfp4_join(out);
}

tsr_status tsr__model_files_open(const char *path, tsr__model_files *out)
{
    return open_files(path, true, out);
}

tsr_status tsr__model_files_open_weights(const char *path, tsr__model_files *out)
{
    return open_files(path, false, out);
}

void tsr__model_files_finish(tsr__model_files *files)
{
    tsr__free(files->folder);
    tsr__free(files->config);
    tsr__free(files->weights);
    tsr__free(files->names);
    tsr__free(files->joined);
    tsr_shard_list_destroy(&files->list);
    tsr__random_weights_destroy(&files->random);
    *files = (tsr__model_files){0};
}

const tsr_shard_param *tsr__model_files_find(const tsr__model_files *files, const char *name)
{
    return tsr__params_find(&files->list->params, files->names, files->list->params.count, name);
}

char *tsr__model_files_path(const tsr__model_files *files, const tsr_shard_param *param)
{
    return param->file ? tsr__path_join(files->folder, param->file) : tsr__strdup(files->weights);
}
