/* Opened files of a model: everything that its header says, read and checked once. */
#include "model/file.h"

#include "base/alloc.h"
#include "model/weights/random.h"
#include "tokenizer/tokenizer_read.h"

static tsr_status read_header(tsr_model_file *file)
{
    if (!file->config)
        TSR__TRY(tsr__config_read(&file->files, &file->config));
    const tsr__error before = tsr__error_take();
    file->weights_status = tsr__weights_init(&file->files, &file->config->public, &file->weights);
    file->weights_error = tsr__error_take();
    tsr__error_put_back(&before);
    return TSR_OK;
}

tsr_status tsr_model_file_open(const char *path, tsr_model_file **out)
{
    TSR__REQUIRE(path && out, "model: %s is NULL", path ? "out" : "path");
    tsr_model_file *file = tsr__calloc(1, sizeof *file);
    if (!file)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__model_files_open(path, &file->files);
    if (status == TSR_OK)
        status = read_header(file);
    if (status == TSR_OK)
        *out = file;
    else
        tsr_model_file_close(&file);
    return status;
}

tsr_status tsr_model_file_open_random(const tsr_model_config *config, tsr_dtype dtype,
                                      uint64_t seed, tsr_model_file **out)
{
    TSR__REQUIRE(config && out, "model: %s is NULL", config ? "out" : "config");
    tsr_model_file *file = tsr__calloc(1, sizeof *file);
    if (!file)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__config_copy(config, &file->config);
    if (status == TSR_OK)
        status = tsr__random_files(&file->config->public, dtype, seed, &file->files);
    if (status == TSR_OK)
        status = read_header(file);
    if (status == TSR_OK)
        *out = file;
    else
        tsr_model_file_close(&file);
    return status;
}

tsr_status tsr_model_file_open_weights(const char *path, const tsr_model_config *config,
                                       tsr_model_file **out)
{
    TSR__REQUIRE(path && config && out, "model: %s is NULL",
                 !path    ? "path"
                 : config ? "out"
                          : "config");
    tsr_model_file *file = tsr__calloc(1, sizeof *file);
    const tsr__weights *weights;
    if (!file)
        return TSR_ERR_NO_MEMORY;
    tsr_status status = tsr__config_copy(config, &file->config);
    if (status == TSR_OK)
        status = tsr__model_files_open_weights(path, &file->files);
    if (status == TSR_OK)
        status = read_header(file);
    /* Files of a model that was not trained with biases for the choice of experts have none. */
    if (status == TSR_OK && file->weights_status == TSR_ERR_NOT_FOUND &&
        tsr__config_clear_choice_biases(file->config))
        status = read_header(file);
    if (status == TSR_OK)
        status = tsr__model_file_weights(file, &weights);
    if (status == TSR_OK)
        *out = file;
    else
        tsr_model_file_close(&file);
    return status;
}

void tsr_model_file_close(tsr_model_file **file)
{
    if (!file || !*file)
        return;
    tsr__model_files_finish(&(*file)->files);
    tsr__free((*file)->config);
    tsr__free(*file);
    *file = NULL;
}

const tsr_model_config *tsr_model_file_config(const tsr_model_file *file)
{
    return file ? &file->config->public : NULL;
}

tsr_status tsr__model_file_weights(const tsr_model_file *file, const tsr__weights **out)
{
    if (file->weights_status != TSR_OK) {
        tsr__error_put_back(&file->weights_error);
        return file->weights_status;
    }
    *out = &file->weights;
    return TSR_OK;
}

tsr_status tsr_model_file_open_tokenizer(const tsr_model_file *file, tsr_tokenizer **out)
{
    TSR__REQUIRE(file && out, "model: %s is NULL", file ? "out" : "file");
    const tsr__model_files *files = &file->files;
    if (files->random)
        return tsr__fail(TSR_ERR_NOT_FOUND, "model: a random model has no tokenizer");
    return files->gguf ? tsr__tokenizer_open_gguf(files->weights, &files->list->keys, out)
                       : tsr_tokenizer_open(*files->folder ? files->folder : ".", out);
}
