/* Opening a tokenizer: finds the file and its format. */
#include "tokenizer/open.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"

tsr_status tsr__tokenizer_make_spm(tsr_tokenizer *tokenizer, const float *scores, bool adds_space)
{
    static const char space[] = "▁";
    tokenizer->kind = TSR_TOKENIZER_SPM;
    tokenizer->spells_spaces = true;
    tokenizer->fuse_unknown = true;
    tokenizer->strips_start = tokenizer->strips_after_control = adds_space;
    if (adds_space)
        TSR__TRY(
            tsr__normalizer_add(&tokenizer->normalizer, TSR__PREPEND, "", 0, space, strlen(space)));
    TSR__TRY(
        tsr__normalizer_add(&tokenizer->normalizer, TSR__REPLACE, " ", 1, space, strlen(space)));
    return tsr__merges_by_scores(&tokenizer->merges, &tokenizer->vocabulary, scores);
}

/* Returns a new string of the folder, a slash and the name, or NULL. */
static char *join(const char *folder, const char *name)
{
    size_t length = strlen(folder), size = length + strlen(name) + 2;
    char *path = tsr__calloc(size, 1);
    if (path == NULL)
        return NULL;
    memcpy(path, folder, length);
    path[length] = '/';
    memcpy(path + length + 1, name, strlen(name));
    return path;
}

static bool is_bin(const char *name)
{
    size_t length = strlen(name);
    return length > 7 && strncmp(name, "tok", 3) == 0 && strcmp(name + length - 4, ".bin") == 0;
}

/* Finds the only tok*.bin of a folder. */
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
        else if ((found = join(folder, entry->d_name)) == NULL)
            status = TSR_ERR_NO_MEMORY;
    }
    closedir(entries);
    if (status == TSR_OK && found == NULL)
        status = tsr__fail(TSR_ERR_NOT_FOUND, "tokenizer: %s has no tokenizer.json and no tok*.bin",
                           folder);
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
    struct stat info;
    if (stat(given, &info) != 0 || !S_ISDIR(info.st_mode)) {
        *path = tsr__strdup(given);
        return *path != NULL ? TSR_OK : TSR_ERR_NO_MEMORY;
    }
    char *json = join(given, "tokenizer.json");
    if (json == NULL)
        return TSR_ERR_NO_MEMORY;
    if (stat(json, &info) == 0) {
        *path = json;
        return TSR_OK;
    }
    tsr__free(json);
    return find_bin(given, path);
}

static tsr_status read_any(tsr__file *file, tsr_tokenizer *tokenizer)
{
    uint8_t start[4] = {0};
    uint64_t size = file->size < sizeof start ? file->size : sizeof start;
    file->what = "tokenizer";
    TSR__TRY(tsr__file_read(file, 0, size, "the start", start));
    if (memcmp(start, "GGUF", 4) == 0)
        return tsr__tokenizer_read_gguf(file, tokenizer);
    if (start[0] == '{')
        return tsr__fail(TSR_ERR_UNSUPPORTED, "tokenizer: JSON files cannot be read yet");
    return tsr__tokenizer_read_llama2c(file, tokenizer);
}

static tsr_status open_file(const char *path, tsr_tokenizer **out)
{
    tsr__file file;
    TSR__TRY(tsr__file_open(path, &file));
    tsr_tokenizer *tokenizer = tsr__tokenizer_create();
    tsr_status status = tokenizer != NULL ? read_any(&file, tokenizer) : TSR_ERR_NO_MEMORY;
    tsr__file_close(&file);
    if (status != TSR_OK) {
        tsr_tokenizer_destroy(&tokenizer);
        return status == TSR_ERR_NO_MEMORY ? status : tsr__fail_context(status, "%s", path);
    }
    *out = tokenizer;
    return TSR_OK;
}

tsr_status tsr_tokenizer_open(const char *path, tsr_tokenizer **out)
{
    char *found = NULL;
    TSR__REQUIRE(path != NULL && out != NULL, "tokenizer: %s is NULL",
                 path == NULL ? "path" : "out");
    TSR__TRY(find_file(path, &found));
    tsr_status status = open_file(found, out);
    tsr__free(found);
    return status;
}
