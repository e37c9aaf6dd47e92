/* Writes what was trained. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/lib/memory.h"
#include "cli/lib/say.h"
#include "cli/training/run.h"
#include "tool_seam.h"

/* Checking ------------------------------------------------------------------------------------- */

/* Fails if the folder that has, or will have, `path` cannot be written. */
static tsr_status check_folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t length = slash == NULL ? 0 : slash == path ? 1 : (size_t)(slash - path);
    char *folder = cli_alloc(length + 2, 1);
    memcpy(folder, length > 0 ? path : ".", length > 0 ? length : 1);
    const bool good = access(folder, W_OK | X_OK) == 0;
    const int error = errno;
    free(folder);
    return good ? TSR_OK
                : training_fail("%s: its folder cannot be written: %s", path, strerror(error));
}

/* Returns whether a file is one that the training reads. */
static bool is_data(const struct stat *file)
{
    const training_options *o = &training_chosen;
    struct stat info;
    for (int i = 0; i <= o->data.count; i++) {
        const char *path = i < o->data.count ? o->data.paths[i] : o->held_out_file;
        if (path != NULL && stat(path, &info) == 0 && info.st_dev == file->st_dev &&
            info.st_ino == file->st_ino)
            return true;
    }
    return false;
}

/* Fails if a file that exists is the model or a file of data. */
static tsr_status check_inputs(const char *path, const struct stat *info, bool is_adapter)
{
    const char *model = training_chosen.model;
    struct stat other;
    if (!is_adapter && model != NULL && stat(model, &other) == 0 && other.st_dev == info->st_dev &&
        other.st_ino == info->st_ino)
        return training_fail("%s is the model %s, which would be overwritten", path, model);
    return is_data(info) ? training_fail("%s has the data, which would be overwritten", path)
                         : TSR_OK;
}

/* Fails if `path` cannot be written, or is the model or a file of data. Files and folders of this
 * program replace older ones of the same kind only. NULL is no path. */
static tsr_status check_path(const char *path, bool is_folder)
{
    struct stat info;
    if (path == NULL)
        return TSR_OK;
    if (stat(path, &info) != 0)
        return errno == ENOENT ? check_folder_of(path)
                               : training_fail("%s: %s", path, strerror(errno));
    if (is_folder ? !S_ISDIR(info.st_mode) : !S_ISREG(info.st_mode))
        return training_fail("%s exists, and is no %s", path,
                             is_folder ? "folder" : "regular file");
    TRY(check_inputs(path, &info, is_folder && !training_chosen.full));
    if (!is_folder)
        return check_folder_of(path); /* the file is written under another name first */
    return access(path, W_OK | X_OK) == 0
               ? TSR_OK
               : training_fail("%s cannot be written: %s", path, strerror(errno));
}

/* The same for a file that is written in place, with the option `name`. */
static tsr_status check_report(const char *path, const char *name)
{
    struct stat info;
    if (path == NULL)
        return TSR_OK;
    if (stat(path, &info) != 0)
        return check_folder_of(path);
    if (S_ISDIR(info.st_mode))
        return training_fail("%s is a folder, but --%s takes a file", path, name);
    TRY(check_inputs(path, &info, false));
    return access(path, W_OK) == 0
               ? TSR_OK
               : training_fail("%s cannot be written: %s", path, strerror(errno));
}

tsr_status training_output_check(bool first)
{
    const training_options *o = &training_chosen;
    TRY(check_path(o->output, !training_is_gguf(o->output)));
    TRY(check_path(o->checkpoint, false));
    if (!first)
        return TSR_OK;
    if (o->output == NULL && o->checkpoint == NULL && o->reference == NULL)
        cli_say("%s: neither --output nor --checkpoint is given, so nothing that is learnt will be "
                "kept",
                training_name);
    TRY(check_report(o->log, "log"));
    return check_report(o->curve, "curve");
}

/* Writing -------------------------------------------------------------------------------------- */

static char *path_of(const char *folder, const char *name, const char *ending)
{
    const size_t size = strlen(folder) + strlen(name) + strlen(ending) + 2;
    char *path = cli_alloc(size, 1);
    snprintf(path, size, "%s/%s%s", folder, name, ending);
    return path;
}

/* Returns what comes before the names of a tokenizer's files: a folder and a slash, or of a file
 * the part before tokenizer.json or tokenizer.model. */
static char *prefix_of(const char *tokenizer)
{
    static const char *const endings[] = {"tokenizer.json", "tokenizer.model"};
    const size_t length = strlen(tokenizer);
    char *prefix = path_of(tokenizer, "", "");
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t size = strlen(endings[i]);
        if (length >= size && strcmp(tokenizer + length - size, endings[i]) == 0)
            prefix[length - size] = '\0';
    }
    return prefix;
}

/* Returns whether two paths are those of one file. */
static bool is_same_file(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Copies the file `prefix``name` to `to`/name, under another name first. Does nothing if there is
 * no such file, or if they are the same. */
static tsr_status copy_file(const char *prefix, const char *to, const char *name)
{
    const size_t size = strlen(prefix) + strlen(name) + 1;
    char *source = cli_alloc(size, 1), *target = path_of(to, name, ""),
         *partial = path_of(to, name, ".partial"), bytes[1 << 14];
    snprintf(source, size, "%s%s", prefix, name);
    FILE *in = is_same_file(source, target) ? NULL : fopen(source, "rb"),
         *out = in != NULL ? fopen(partial, "wb") : NULL;
    bool good = in == NULL ? is_same_file(source, target) || errno == ENOENT || errno == ENOTDIR
                           : out != NULL;
    for (size_t count; out != NULL && good && (count = fread(bytes, 1, sizeof bytes, in)) > 0;)
        good = fwrite(bytes, 1, count, out) == count;
    good = good && (in == NULL || ferror(in) == 0);
    if (out != NULL) {
        good = fclose(out) == 0 && good;
        good = good && rename(partial, target) == 0;
    }
    const tsr_status status =
        good ? TSR_OK
             : training_fail("%s could not be copied to %s: %s", source, to, strerror(errno));
    if (!good && out != NULL)
        (void)remove(partial);
    if (in != NULL)
        fclose(in);
    free(source);
    free(target);
    free(partial);
    return status;
}

/* Writes a file of a tokenizer, under another name first. */
static tsr_status write_file(const char *folder, const char *name, const char *bytes, size_t size)
{
    char *path = path_of(folder, name, ""), *partial = path_of(folder, name, ".partial");
    FILE *file = fopen(partial, "wb");
    bool good = file != NULL && fwrite(bytes, 1, size, file) == size;
    good = (file == NULL || fclose(file) == 0) && good;
    good = good && rename(partial, path) == 0;
    const tsr_status status = good ? TSR_OK : training_fail("%s: %s", path, strerror(errno));
    free(path);
    free(partial);
    return status;
}

/* Writes a file that `save` makes of a tokenizer. */
static tsr_status write_saved(const char *folder, const char *name, const tsr_tokenizer *tokenizer,
                              tsr_status (*save)(const tsr_tokenizer *tokenizer, char **out,
                                                 size_t *size))
{
    char *text = NULL;
    size_t size = 0;
    TRY(save(tokenizer, &text, &size));
    const tsr_status status = write_file(folder, name, text, size);
    tsr__free(text);
    return status;
}

/* Writes the tokenizer of a GGUF file as `tessera convert` does. Says so if a folder cannot have
 * it. */
static tsr_status write_tokenizer(const char *folder, const tsr_tokenizer *tokenizer)
{
    const bool has_scores = tokenizer->kind == TSR_TOKENIZER_SPM;
    tsr_status status =
        has_scores ? write_saved(folder, "tokenizer.model", tokenizer, tsr__tokenizer_save_model)
                   : write_saved(folder, "tokenizer.json", tokenizer, tsr__tokenizer_save_json);
    if (status == TSR_OK)
        status =
            write_saved(folder, "tokenizer_config.json", tokenizer, tsr__tokenizer_save_config);
    if (status != TSR_ERR_UNSUPPORTED)
        return status;
    cli_say("%s: %s has no tokenizer: %s", training_name, folder, tsr_last_error());
    return TSR_OK;
}

/* Copies what a folder needs beside the layers to be a model. `from`, a folder or a file, has the
 * tokenizer. */
static tsr_status copy_tokenizer(const char *from, const char *folder)
{
    static const char *const names[] = {TSR__TOKENIZER_FILES, "generation_config.json"};
    char *prefix = prefix_of(from);
    tsr_status status = TSR_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names && status == TSR_OK; i++)
        status = copy_file(prefix, folder, names[i]);
    free(prefix);
    return status;
}

/* Says so if the model in `folder` has no tokenizer. `from`: as above; NULL: none. */
static void check_tokenizer(const char *from, const char *folder)
{
    tsr_tokenizer *tokenizer = NULL;
    const bool is_there = tsr_tokenizer_open(folder, &tokenizer) == TSR_OK;
    tsr_tokenizer_close(&tokenizer);
    if (!is_there && from == NULL)
        cli_say("%s: %s has no tokenizer, because none was given", training_name, folder);
    else if (!is_there)
        cli_say("%s: %s has no tokenizer, because that of %s is no file that could be copied",
                training_name, folder, from);
}

static tsr_status add_tokenizer(const training_run *r, const char *folder)
{
    const training_options *o = &training_chosen;
    const char *from = o->tokenizer != NULL ? o->tokenizer : o->model;
    if (r->tokenizer_json != NULL)
        return write_file(folder, "tokenizer.json", r->tokenizer_json, strlen(r->tokenizer_json));
    if (training_is_gguf(from) && r->tokenizer != NULL)
        return write_tokenizer(folder, r->tokenizer);
    if (from != NULL)
        TRY(copy_tokenizer(from, folder));
    check_tokenizer(from, folder);
    return TSR_OK;
}

/* Writes all layers: model.safetensors and config.json in a folder, and the tokenizer's files. */
static tsr_status write_layers(training_run *r, const char *folder)
{
    const size_t size = strlen(folder) + sizeof "/model.safetensors";
    tsr_status status = TSR_OK;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return training_fail("%s: %s", folder, strerror(errno));
    char *path = cli_alloc(size, 1);
    snprintf(path, size, "%s/model.safetensors", folder);
    status = tsr_stack_save(r->model.own, path, r->job.stages);
    free(path);
    return status == TSR_OK && r->job.rank == 0 ? add_tokenizer(r, folder) : status;
}

tsr_status training_output_write(training_run *r)
{
    const char *path = training_chosen.output;
    if (path == NULL)
        return TSR_OK;
    if (r->model.own != NULL)
        return write_layers(r, path);
    return tsr_lora_save(r->model.lora, path,
                         training_is_gguf(path) ? TSR_LORA_GGUF : TSR_LORA_PEFT, r->job.stages);
}
