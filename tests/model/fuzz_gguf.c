/* Reads any bytes as the header of a GGUF model: its configuration, and where its weights are. */
#include "base/error.h"
#include "model/fuzz.h"

/* The size of the file, in which the tensors of all models fit. Most of the file is a hole,
 * which takes no space. */
#define FILE_BYTES ((uint64_t)1 << 40)

/* Opens the file, and if that succeeds, checks its contents. */
static tsr_status check(const char *path, tsr_model_file **file)
{
    const tsr__weights *weights;
    TSR__TRY(tsr_model_file_open(path, file));
    FUZZ_CHECK((*file)->files.gguf);
    const tsr_model_config *config = tsr_model_file_config(*file);
    fuzz_check_config(config);
    TSR__TRY(tsr__model_file_weights(*file, &weights));
    const int layers = config->layers + config->next_token_layers;
    for (int layer = -1; layer < layers && layer < FUZZ_LAYERS; layer++)
        fuzz_check_weights(weights, layer);
    return TSR_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tsr_model_file *file = NULL;
    if (size < 4 || memcmp(data, "GGUF", 4) != 0) /* another format */
        return 0;
    const tsr_status status = check(fuzz_file(data, size, FILE_BYTES), &file);
    if (status != TSR_OK)
        fuzz_check_model_refusal(status);
    tsr_model_file_close(&file);
    return 0;
}
