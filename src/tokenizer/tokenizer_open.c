/* Opens a tokenizer: finds the file and its format. */
#include "tokenizer/tokenizer_read.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "shard/formats/file_kind.h"

/* Returns a new string "folder/name", or NULL if there is no memory. */
static char *join_path(const char *folder, const char *name)
{
    size_t size = strlen(folder) + strlen(name) + 2;
    char *path = tsr__calloc(size, 1);
    if (path != NULL)
        snprintf(path, size, "%s/%s", folder, name);
    return path;
}

static bool is_bin(const char *name)
{
    size_t length = strlen(name);
    return length > 7 && strncmp(name, "tok", 3) == 0 && strcmp(name + length - 4, ".bin") == 0;
}

/* Sets *path to the only tok*.bin of a folder, a new string. */
static tsr_status find_bin(const char *folder, char **path)
{
    DIR *entries = opendir(folder);
    char *found = NULL;
    tsr_status status = TSR_OK;
    if (entries == NULL)
        return tsr__fail(TSR_ERR_IO, "tokenizer: cannot read the folder %s: %s", folder,
                         strerror(errno));
    for (const struct dirent *entry; status == TSR_OK && (entry = readdir(entries)) != NULL;) {
        if (!is_bin(entry->d_name))
            continue;
        if (found != NULL)
            status = tsr__fail(TSR_ERR_INVALID,
                               "tokenizer: %s has no tokenizer.json, and several tok*.bin", folder);
        else if ((found = join_path(folder, entry->d_name)) == NULL)
            status = TSR_ERR_NO_MEMORY;
    }
    closedir(entries);
    if (status == TSR_OK && found == NULL)
        status =
            tsr__fail(TSR_ERR_NOT_FOUND,
                      "tokenizer: %s has no tokenizer.json, tokenizer.model or tok*.bin", folder);
    if (status != TSR_OK) {
        tsr__free(found);
        return status;
    }
    *path = found;
    return TSR_OK;
}

/* Sets *path to the file to read, a new string. */
static tsr_status find_file(const char *given, char **path)
{
    static const char *const names[] = {"tokenizer.json", "tokenizer.model"};
    struct stat info;
    if (stat(given, &info) != 0 || !S_ISDIR(info.st_mode)) {
        *path = tsr__strdup(given);
        return *path != NULL ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    for (int i = 0; i < 2; i++) {
        char *file = join_path(given, names[i]);
        if (file == NULL)
            return TSR_ERR_NO_MEMORY;
        if (stat(file, &info) == 0) {
            *path = file;
            return TSR_OK;
        }
        tsr__free(file);
    }
    return find_bin(given, path);
}

/* Loads a whole file of text. */
static tsr_status load_text(tsr__file *file, char **text)
{
    if (file->size > TSR__MAX_HEADER)
        return tsr__fail(TSR_ERR_INVALID,
                         "tokenizer: %" PRIu64 " bytes are more than the %" PRIu64 " allowed",
                         file->size, TSR__MAX_HEADER);
    return tsr__file_load(file, 0, file->size, "the file", text);
}

/* Opens a file. The error text starts with this module's name, not with that of the reader. */
static tsr_status open_for_reading(const char *path, tsr__file *file)
{
    static const char prefix[] = "shard: ";
    tsr_status status = tsr__file_open(path, file);
    if (status == TSR_OK || status == TSR_ERR_NO_MEMORY)
        return status;
    tsr__error error = tsr__error_take();
    bool has_prefix = strncmp(error.text, prefix, sizeof prefix - 1) == 0;
    return tsr__fail(status, "tokenizer: %s", error.text + (has_prefix ? sizeof prefix - 1 : 0));
}

/* Loads the file whose path is `path` with `name` in place of `ending`. Sets *text to NULL if there
 * is no such file, or if `path` does not end in `ending`. */
static tsr_status load_beside(const char *path, const char *ending, const char *name, char **text,
                              size_t *size)
{
    const size_t length = strlen(path), end = strlen(ending), capacity = strlen(name) + 1;
    struct stat info;
    *text = NULL;
    *size = 0;
    if (length < end || strcmp(path + length - end, ending) != 0)
        return TSR_OK;
    char *other = tsr__calloc(length - end + capacity, 1);
    if (other == NULL)
        return TSR_ERR_NO_MEMORY;
    memcpy(other, path, length - end);
    memcpy(other + length - end, name, capacity);
    tsr__file file;
    tsr_status status = TSR_OK;
    if (stat(other, &info) == 0) {
        status = open_for_reading(other, &file);
        if (status == TSR_OK) {
            *size = (size_t)file.size;
            status = load_text(&file, text);
            tsr__file_close(&file);
        }
    }
    tsr__free(other);
    return status;
}

/* Takes the chat template from chat_template.jinja or, if there is no such file, from
 * config[config_size], the text of tokenizer_config.json, which may be NULL. */
static tsr_status read_chat(const char *path, const char *ending, const char *config,
                            size_t config_size, tsr_tokenizer *tokenizer)
{
    size_t size = 0;
    TSR__TRY(load_beside(path, ending, "chat_template.jinja", &tokenizer->chat_template, &size));
    if (tokenizer->chat_template != NULL && strlen(tokenizer->chat_template) < size)
        return tsr__fail(TSR_ERR_INVALID, "tokenizer: chat_template.jinja has a zero byte");
    return tokenizer->chat_template != NULL || config == NULL
               ? TSR_OK
               : tsr__tokenizer_chat_of_config(config, config_size, &tokenizer->chat_template);
}

static tsr_status read_json(const char *path, tsr__file *file, tsr_tokenizer *tokenizer)
{
    static const char ending[] = "tokenizer.json";
    char *text = NULL, *config = NULL;
    size_t config_size = 0;
    tsr_status status = load_text(file, &text);
    if (status == TSR_OK)
        status = load_beside(path, ending, "tokenizer_config.json", &config, &config_size);
    if (status == TSR_OK)
        status = tsr__tokenizer_read_json(text, (size_t)file->size, config, config_size, tokenizer);
    if (status == TSR_OK)
        status = read_chat(path, ending, config, config_size, tokenizer);
    tsr__free(text);
    tsr__free(config);
    return status;
}

static tsr_status read_model(const char *path, tsr__file *file, tsr_tokenizer *tokenizer)
{
    static const char ending[] = "tokenizer.model";
    char *config = NULL;
    size_t config_size = 0;
    tsr_status status = tsr__tokenizer_read_model(file, tokenizer);
    if (status == TSR_OK)
        status = load_beside(path, ending, "tokenizer_config.json", &config, &config_size);
    if (status == TSR_OK)
        status = read_chat(path, ending, config, config_size, tokenizer);
    tsr__free(config);
    return status;
}

static bool ends_in(const char *path, const char *ending)
{
    const size_t length = strlen(path), end = strlen(ending);
    return length >= end && strcmp(path + length - end, ending) == 0;
}

/* Returns the kind that the end of a file's name promises, so that the error about an empty or
 * damaged file says what it lacks. */
static tsr__file_kind kind_by_name(const char *path)
{
    const char *separator = strrchr(path, '/');
    return ends_in(path, ".gguf")                             ? TSR__FILE_GGUF
           : ends_in(path, ".json")                           ? TSR__FILE_JSON
           : ends_in(path, ".model")                          ? TSR__FILE_SENTENCEPIECE
           : is_bin(separator != NULL ? separator + 1 : path) ? TSR__FILE_LLAMA2C
                                                              : TSR__FILE_UNKNOWN;
}

static tsr_status read_any(const char *path, tsr__file *file, tsr_tokenizer *tokenizer)
{
    tsr__file_kind kind;
    file->what = "tokenizer";
    TSR__TRY(tsr__file_kind_read(file, &kind));
    switch (kind != TSR__FILE_UNKNOWN ? kind : kind_by_name(path)) {
    case TSR__FILE_GGUF:
        return tsr__tokenizer_read_gguf(file, tokenizer);
    case TSR__FILE_JSON:
        return read_json(path, file, tokenizer);
    case TSR__FILE_SENTENCEPIECE:
        return read_model(path, file, tokenizer);
    case TSR__FILE_LLAMA2C:
        return tsr__tokenizer_read_llama2c(file, tokenizer);
    case TSR__FILE_SAFETENSORS:
    case TSR__FILE_UNKNOWN:
        break;
    }
    return tsr__file_fail(file, TSR_ERR_INVALID, 0,
                          "this is %s, not a tokenizer: a GGUF file, a tokenizer.json, a "
                          "tokenizer.model of SentencePiece or a vocabulary of llama2.c",
                          tsr__file_kind_name(kind));
}

/* Opens a file. `keys` are those of a GGUF file; NULL: they are not known, nor the kind of file. */
static tsr_status open_file(const char *path, const tsr__gguf_keys *keys, tsr_tokenizer **out)
{
    tsr__file file;
    TSR__TRY(open_for_reading(path, &file));
    tsr_tokenizer *tokenizer = tsr__tokenizer_create();
    tsr_status status = tokenizer == NULL ? TSR_ERR_NO_MEMORY
                        : keys != NULL    ? tsr__tokenizer_read_gguf_by_keys(&file, keys, tokenizer)
                                          : read_any(path, &file, tokenizer);
    tsr__file_close(&file);
    if (status != TSR_OK) {
        tsr_tokenizer_close(&tokenizer);
        return status == TSR_ERR_NO_MEMORY ? status : tsr__fail_context(status, "%s", path);
    }
    *out = tokenizer;
    return TSR_OK;
}

tsr_status tsr__tokenizer_open_gguf(const char *path, const tsr__gguf_keys *keys,
                                    tsr_tokenizer **out)
{
    return open_file(path, keys, out);
}

tsr_status tsr_tokenizer_open(const char *path, tsr_tokenizer **out)
{
    char *found = NULL;
    TSR__REQUIRE(path != NULL && out != NULL, "tokenizer: %s is NULL",
                 path == NULL ? "path" : "out");
    TSR__TRY(find_file(path, &found));
    tsr_status status = open_file(found, NULL, out);
    tsr__free(found);
    return status;
}
