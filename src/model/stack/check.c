/* Checks that files have the weights of a model, without a device. */
#include "base/alloc.h"
#include "base/error.h"
#include "model/config/config.h"
#include "model/weights/weights.h"
#include "tessera/stack.h"

tsr_status tsr_stack_check(const tsr_model_config *config, const char *path)
{
    tsr__config *checked = NULL;
    tsr__model_files files;
    tsr__weights weights;
    TSR__REQUIRE(config && path, "stack: %s is NULL", config ? "path" : "config");
    TSR__TRY(tsr__config_copy(config, &checked));
    tsr_status status = tsr__model_files_open_weights(path, &files);
    if (status == TSR_OK)
        status = tsr__weights_init(&files, &checked->public, &weights);
    tsr__model_files_finish(&files);
    tsr__free(checked);
    return status;
}
