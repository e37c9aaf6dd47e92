/* Writes what was trained. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/finetune/run.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

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
                : finetune_fail("%s: its folder cannot be written: %s", path, strerror(error));
}

/* Fails if `path` cannot be written, or is the model. Files and folders of this program replace
 * older ones of the same kind only. NULL is no path. */
static tsr_status check_path(const char *path, bool is_folder)
{
    struct stat info, model;
    if (path == NULL)
        return TSR_OK;
    if (stat(path, &info) != 0)
        return errno == ENOENT ? check_folder_of(path)
                               : finetune_fail("%s: %s", path, strerror(errno));
    if (is_folder ? !S_ISDIR(info.st_mode) : !S_ISREG(info.st_mode))
        return finetune_fail("%s exists, and is no %s", path,
                             is_folder ? "folder" : "regular file");
    if ((finetune_chosen.full || !is_folder) && stat(finetune_chosen.model, &model) == 0 &&
        model.st_dev == info.st_dev && model.st_ino == info.st_ino)
        return finetune_fail("%s is the model %s, which would be overwritten", path,
                             finetune_chosen.model);
    if (!is_folder)
        return check_folder_of(path); /* the file is written under another name first */
    return access(path, W_OK | X_OK) == 0
               ? TSR_OK
               : finetune_fail("%s cannot be written: %s", path, strerror(errno));
}

tsr_status finetune_output_check(bool first)
{
    const finetune_options *o = &finetune_chosen;
    struct stat info;
    TRY(check_path(o->output, !finetune_is_gguf(o->output)));
    TRY(check_path(o->checkpoint, false));
    if (!first)
        return TSR_OK;
    if (o->output == NULL && o->checkpoint == NULL && o->reference == NULL)
        cli_say("finetune: neither --output nor --checkpoint is given, so nothing that is learnt "
                "will be kept");
    if (o->curve == NULL)
        return TSR_OK;
    if (stat(o->curve, &info) != 0)
        return check_folder_of(o->curve);
    if (S_ISDIR(info.st_mode))
        return finetune_fail("%s is a folder, but --curve takes a file", o->curve);
    return access(o->curve, W_OK) == 0
               ? TSR_OK
               : finetune_fail("%s cannot be written: %s", o->curve, strerror(errno));
}

/* Writing -------------------------------------------------------------------------------------- */

static char *path_of(const char *folder, const char *name, const char *ending)
{
    const size_t size = strlen(folder) + strlen(name) + strlen(ending) + 2;
    char *path = cli_alloc(size, 1);
    snprintf(path, size, "%s/%s%s", folder, name, ending);
    return path;
}

/* Copies folder/name of the model to `to`/name, under another name first. Does nothing if the model
 * has no such file. */
static tsr_status copy_file(const char *to, const char *name)
{
    char *source = path_of(finetune_chosen.model, name, ""), *target = path_of(to, name, ""),
         *partial = path_of(to, name, ".partial"), bytes[1 << 14];
    FILE *in = fopen(source, "rb"), *out = in != NULL ? fopen(partial, "wb") : NULL;
    bool good = in == NULL ? errno == ENOENT || errno == ENOTDIR : out != NULL;
    for (size_t count; out != NULL && good && (count = fread(bytes, 1, sizeof bytes, in)) > 0;)
        good = fwrite(bytes, 1, count, out) == count;
    good = good && (in == NULL || ferror(in) == 0);
    if (out != NULL) {
        good = fclose(out) == 0 && good;
        good = good && rename(partial, target) == 0;
    }
    const tsr_status status =
        good ? TSR_OK
             : finetune_fail("%s could not be copied to %s: %s", source, to, strerror(errno));
    if (!good && out != NULL)
        (void)remove(partial);
    if (in != NULL)
        fclose(in);
    free(source);
    free(target);
    free(partial);
    return status;
}

/* Copies what a folder needs beside the layers to be a model. GGUF files have no such files. */
static tsr_status copy_tokenizer(const char *folder)
{
    static const char *const names[] = {"tokenizer.json",
                                        "tokenizer_config.json",
                                        "special_tokens_map.json",
                                        "added_tokens.json",
                                        "vocab.json",
                                        "merges.txt",
                                        "tokenizer.model",
                                        "chat_template.jinja",
                                        "generation_config.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        TRY(copy_file(folder, names[i]));
    return TSR_OK;
}

/* Writes all layers: model.safetensors and config.json in a folder, and the tokenizer's files. */
static tsr_status write_layers(finetune_run *r, const char *folder)
{
    const size_t size = strlen(folder) + sizeof "/model.safetensors";
    tsr_status status = TSR_OK;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return finetune_fail("%s: %s", folder, strerror(errno));
    char *path = cli_alloc(size, 1);
    snprintf(path, size, "%s/model.safetensors", folder);
    status = tsr_stack_save(r->model.own, path, r->job.stages);
    free(path);
    return status == TSR_OK && r->job.rank == 0 ? copy_tokenizer(folder) : status;
}

tsr_status finetune_output_write(finetune_run *r)
{
    const char *path = finetune_chosen.output;
    if (path == NULL)
        return TSR_OK;
    if (r->model.own != NULL)
        return write_layers(r, path);
    return tsr_lora_save(r->model.lora, path,
                         finetune_is_gguf(path) ? TSR_LORA_GGUF : TSR_LORA_PEFT, r->job.stages);
}
