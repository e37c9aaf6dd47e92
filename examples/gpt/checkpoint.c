#include "checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Keys of the file's metadata. */
#define MODEL_KEY "gpt.model"
#define TEXT_KEY "gpt.characters"

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

tsr_status checkpoint_save(gpt_model *model, const gpt_text *text, const char *path, bool parts)
{
    identity self;
    identify(model->config, model->dtype, text, &self);
    const char *const metadata[] = {MODEL_KEY, self.model, TEXT_KEY, self.characters, NULL};
    return tsr_optimizer_save(model->optimizer, path,
                              tsr_optimizer_file_params(.world = model->job->world,
                                                        .stages = model->job->stage_comm,
                                                        .metadata = metadata, .parts = parts));
}

/* Returns whether the file belongs to the model and the text that the options describe. */
static bool compare(const char *path, const gpt_text *text, const identity *file,
                    const identity *self, char *error, size_t error_size)
{
    if (strcmp(file->model, self->model) != 0)
        snprintf(error, error_size, "%s has a model of %s; the options describe one of %s", path,
                 file->model, self->model);
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
    TRY(tsr_checkpoint_parts_metadata(path, model->job->world, MODEL_KEY, sizeof file.model,
                                      file.model));
    TRY(tsr_checkpoint_parts_metadata(path, model->job->world, TEXT_KEY, sizeof file.characters,
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

bool checkpoint_check(const char *path, const gpt_config *config, tsr_dtype dtype,
                      const gpt_text *text, char *error, size_t error_size)
{
    identity self, file;
    identify(config, dtype, text, &self);
    if (tsr_checkpoint_metadata(path, MODEL_KEY, sizeof file.model, file.model) == TSR_OK &&
        tsr_checkpoint_metadata(path, TEXT_KEY, sizeof file.characters, file.characters) == TSR_OK)
        return compare(path, text, &file, &self, error, error_size);
    snprintf(error, error_size, "this is no checkpoint of gpt: %s", tsr_last_error());
    return false;
}
