/* Reads any bytes as config.json. If a configuration is accepted, the list of weights that it
 * requires must be accepted, too. */
#include "model/fuzz.h"

static tsr_status add(void *user, const char *name, int ndim, const int64_t *shape)
{
    tsr_shard_param param = {.name = name, .dtype = "bf16", .ndim = ndim};
    memcpy(param.shape, shape, (size_t)ndim * sizeof *shape);
    return tsr__params_add(user, &param);
}

static void check_weights(tsr__model_files *files, const tsr_model_config *config)
{
    tsr__weights weights;
    uint64_t count = 0;
    tsr_shard_list list = {.format = TSR_SHARD_SAFETENSORS};
    FUZZ_CHECK(tsr__weights_expected(files, config, add, &list.params) == TSR_OK);
    for (size_t i = 0; i < list.params.count; i++)
        count += list.params.items[i].count;
    uint64_t expected = tsr_model_config_parameters(config, -1);
    for (int i = 0; i < config->next_token_layers; i++)
        expected += tsr_model_config_parameters(config, config->layers + i);
    FUZZ_CHECK(count == expected);
    files->list = &list;
    FUZZ_CHECK(tsr__params_sort(&list.params, &files->names) == TSR_OK);
    FUZZ_CHECK(tsr__params_twice(files->names, list.params.count) == NULL);
    FUZZ_CHECK(tsr__weights_init(files, config, &weights) == TSR_OK);
    for (int layer = -1; layer < config->layers + config->next_token_layers; layer++)
        fuzz_check_weights(&weights, layer);
    tsr__free(files->names);
    tsr__params_finish(&list.params);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char folder[] = "/nowhere/", weights[] = "weights";
    tsr__model_files files = {.folder = folder, .weights = weights};
    tsr__config *config = NULL;
    files.config = (char *)fuzz_file(data, size, size);
    const tsr_status status = tsr__config_read(&files, &config);
    if (status != TSR_OK) {
        fuzz_check_model_refusal(status);
        return 0;
    }
    fuzz_check_config(&config->public);
    if (config->public.layers <= FUZZ_LAYERS)
        check_weights(&files, &config->public);
    tsr__free(config);
    return 0;
}
