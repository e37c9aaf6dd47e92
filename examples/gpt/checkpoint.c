#include "checkpoint.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keys of the file's metadata. */
#define MODEL_KEY "gpt.model"
#define TEXT_KEY "gpt.characters"
#define OPTIONS_KEY "gpt.options"
#define MAX_OPTIONS (1 << 15) /* bytes */

typedef struct identity {
    char model[320];
    char characters[32];
} identity;

static void identify(const gpt_config *config, tsr_dtype dtype, const gpt_text *text, identity *out)
{
    char model[300];
    gpt_config_describe(config, sizeof model, model);
    snprintf(out->model, sizeof out->model, "%s, %s", model, tsr_dtype_name(dtype));
    snprintf(out->characters, sizeof out->characters, "%d:%016" PRIx64, text->vocabulary,
             text_hash(text));
}

tsr_status checkpoint_save(gpt_model *model, const gpt_text *text, const char *options,
                           const char *path, bool parts)
{
    identity self;
    identify(model->config, model->dtype, text, &self);
    const char *const metadata[] = {MODEL_KEY,   self.model, TEXT_KEY, self.characters,
                                    OPTIONS_KEY, options,    NULL};
    return tsr_optimizer_save(model->optimizer, path,
                              tsr_optimizer_file_params(.world = model->job->world,
                                                        .stages = model->job->stage_comm,
                                                        .metadata = metadata, .parts = parts));
}

/* Appends to `out` the items of a list that `other` lacks. Items are separated by ", ". */
static void list_difference(const char *list, const char *other, size_t size, char *out)
{
    char item[320], padded[340];
    snprintf(padded, sizeof padded, ", %s, ", other);
    *out = '\0';
    while (*list) {
        const char *end = strstr(list, ", ");
        const int length = (int)(end ? (size_t)(end - list) : strlen(list));
        snprintf(item, sizeof item, ", %.*s, ", length, list);
        const size_t used = strlen(out);
        if (!strstr(padded, item))
            snprintf(out + used, size - used, "%s%.*s", used ? ", " : "", length, list);
        list += length + (end ? 2 : 0);
    }
    if (!*out)
        snprintf(out, size, "without that");
}

/* Returns whether the file belongs to the model and the text that the options describe. */
static bool compare(const char *path, const gpt_text *text, const identity *file,
                    const identity *self, char *error, size_t error_size)
{
    char file_only[320], self_only[320];
    list_difference(file->model, self->model, sizeof file_only, file_only);
    list_difference(self->model, file->model, sizeof self_only, self_only);
    if (strcmp(file->model, self->model) != 0)
        snprintf(error, error_size, "%s has another model than the options describe: %s, not %s",
                 path, file_only, self_only);
    else if (strcmp(file->characters, self->characters) != 0)
        snprintf(error, error_size, "%s is of a text with other %s", path, text_unit(text));
    else
        return true;
    return false;
}

static tsr_status check_parts(const gpt_model *model, const gpt_text *text, const char *path,
                              char *error, size_t error_size)
{
    identity self, file;
    identify(model->config, model->dtype, text, &self);
    const tsr_checkpoint_params *params = tsr_checkpoint_params(.parts = true);
    TRY(tsr_checkpoint_metadata(path, model->job->world, params, MODEL_KEY, sizeof file.model,
                                file.model));
    TRY(tsr_checkpoint_metadata(path, model->job->world, params, TEXT_KEY, sizeof file.characters,
                                file.characters));
    return compare(path, text, &file, &self, error, error_size) ? TSR_OK : TSR_ERR_INVALID;
}

tsr_status checkpoint_load(gpt_model *model, const gpt_text *text, const char *path, bool parts,
                           char *error, size_t error_size)
{
    if (parts)
        TRY(check_parts(model, text, path, error, error_size));
    return tsr_optimizer_load(
        model->optimizer, path,
        tsr_optimizer_file_params(.world = model->job->world, .parts = parts));
}

/* Returns whether a file is a part of the checkpoint `name`: NAME-0000i-of-0000n.safetensors, or
 * the same with another suffix behind. */
static bool is_part(const char *file, const char *name, size_t length)
{
    unsigned part, count;
    int used = 0;
    return strncmp(file, name, length) == 0 &&
           sscanf(file + length, "-%5u-of-%5u.safetensors%n", &part, &count, &used) == 2 &&
           used > 0 &&
           (file[length + (size_t)used] == '\0' || strcmp(file + length + used, ".previous") == 0);
}

/* Finds a part of a checkpoint in its folder on this host. */
static bool find_part(const char *path, size_t size, char *out)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const int folder = (int)(name - path);
    const char *suffix = strstr(name, ".safetensors");
    const size_t length = suffix ? (size_t)(suffix - name) : strlen(name);
    bool found = false;
    snprintf(out, size, "%.*s", folder ? folder : 1, folder ? path : ".");
    DIR *open = opendir(out);
    for (const struct dirent *entry; open && !found && (entry = readdir(open));) {
        found = is_part(entry->d_name, name, length);
        if (found)
            snprintf(out, size, "%.*s%s", folder, path, entry->d_name);
    }
    if (open)
        closedir(open);
    return found;
}

char *checkpoint_options(const char *path, char *error, size_t error_size)
{
    char *text = malloc(MAX_OPTIONS);
    if (text && tsr_checkpoint_metadata(path, NULL, NULL, OPTIONS_KEY, MAX_OPTIONS, text) == TSR_OK)
        return text;
    if (text)
        snprintf(error, error_size, "this is no checkpoint of gpt: %s", tsr_last_error());
    else
        snprintf(error, error_size, "out of memory");
    free(text);
    return NULL;
}

char *checkpoint_parts_options(const char *path, tsr_comm *world, char *error, size_t error_size)
{
    char part[4096], *text;
    if (!world && find_part(path, sizeof part, part))
        return checkpoint_options(part, error, error_size);
    if (!world) {
        snprintf(error, error_size,
                 "this host has no part of %s, so this process cannot join: it does not know the "
                 "options of the training",
                 path);
        return NULL;
    }
    text = malloc(MAX_OPTIONS);
    if (text && tsr_checkpoint_metadata(path, world, tsr_checkpoint_params(.parts = true),
                                        OPTIONS_KEY, MAX_OPTIONS, text) == TSR_OK)
        return text;
    snprintf(error, error_size, "%s", text ? tsr_last_error() : "out of memory");
    free(text);
    return NULL;
}

bool checkpoint_check(const char *path, const gpt_config *config, tsr_dtype dtype,
                      const gpt_text *text, char *error, size_t error_size)
{
    identity self, file;
    identify(config, dtype, text, &self);
    if (tsr_checkpoint_metadata(path, NULL, NULL, MODEL_KEY, sizeof file.model, file.model) ==
            TSR_OK &&
        tsr_checkpoint_metadata(path, NULL, NULL, TEXT_KEY, sizeof file.characters,
                                file.characters) == TSR_OK)
        return compare(path, text, &file, &self, error, error_size);
    snprintf(error, error_size, "this is no checkpoint of gpt: %s", tsr_last_error());
    return false;
}
