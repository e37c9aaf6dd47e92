/* Writes what was trained. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/finetune/run.h"
#include "cli/lib/memory.h"

static bool is_gguf(const char *path)
{
    const size_t length = strlen(path);
    return length > 5 && strcmp(path + length - 5, ".gguf") == 0;
}

tsr_status finetune_output_check(void)
{
    const char *path = finetune_chosen.output, *slash = path != NULL ? strrchr(path, '/') : NULL;
    if (slash == NULL || slash == path)
        return TSR_OK;
    char *folder = cli_alloc((size_t)(slash - path) + 1, 1);
    memcpy(folder, path, (size_t)(slash - path));
    const bool good = access(folder, W_OK) == 0;
    const int error = errno;
    free(folder);
    return good ? TSR_OK
                : finetune_fail("%s: its folder cannot be written: %s", path, strerror(error));
}

/* Writes all layers: model.safetensors and config.json in a folder. */
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
    return status;
}

tsr_status finetune_output_write(finetune_run *r)
{
    const char *path = finetune_chosen.output;
    if (path == NULL)
        return TSR_OK;
    if (r->model.own != NULL)
        return write_layers(r, path);
    return tsr_lora_save(r->model.lora, path, is_gguf(path) ? TSR_LORA_GGUF : TSR_LORA_PEFT,
                         r->job.stages);
}
