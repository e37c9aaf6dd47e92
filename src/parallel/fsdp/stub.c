/* Sharded parameters and calibration in a build without Vulkan: every function is there and says
 * so. */
#include "base/stub.h"
#include "tessera/calibrate.h"
#include "tessera/fsdp.h"

/* clang-format off */
TSR__ABSENT(tsr_calibrate, tsr_group *group, const tsr_calibrate_params *params, double *rates)

TSR__ABSENT(tsr_fsdp_create, const tsr_fsdp_params *params, tsr_fsdp **out)
TSR__ABSENT(tsr_fsdp_forward, tsr_fsdp *model, int unit, const tsr_tensor *x,
            tsr_layer_saved **saved, tsr_tensor **y)
TSR__ABSENT(tsr_fsdp_backward, tsr_fsdp *model, int unit, const tsr_layer_saved *saved,
            const tsr_tensor *dy, tsr_tensor **dx)
TSR__ABSENT(tsr_fsdp_begin, tsr_fsdp *model, int unit, tsr_pass pass)
TSR__ABSENT(tsr_fsdp_end, tsr_fsdp *model, int unit)
TSR__ABSENT(tsr_fsdp_shard_of, tsr_fsdp *model, uint64_t param, tsr_fsdp_shard *out)
TSR__ABSENT(tsr_fsdp_changed, tsr_fsdp *model)
TSR__ABSENT(tsr_fsdp_sgd_step, tsr_fsdp *model, const tsr_sgd_params *params)
TSR__ABSENT(tsr_fsdp_adamw_step, tsr_fsdp *model, const tsr_adamw_params *params)
TSR__ABSENT(tsr_fsdp_zero_grad, tsr_fsdp *model)
TSR__ABSENT(tsr_fsdp_save, tsr_fsdp *model, const char *path,
            const tsr_fsdp_file_params *params)
TSR__ABSENT(tsr_fsdp_load, tsr_fsdp *model, const char *path,
            const tsr_fsdp_file_params *params)
/* clang-format on */

void tsr_fsdp_destroy(tsr_fsdp **model)
{
    if (model)
        *model = NULL;
}

const tsr_shard_plan *tsr_fsdp_plan(const tsr_fsdp *model)
{
    return NULL;
}

const tsr_parameter *tsr_fsdp_parameter(const tsr_fsdp *model, int unit, int index)
{
    return NULL;
}

int tsr_fsdp_parameter_count(const tsr_fsdp *model, int unit)
{
    return 0;
}

int64_t tsr_fsdp_steps(const tsr_fsdp *model)
{
    return 0;
}

void tsr_fsdp_memory_usage(const tsr_fsdp *model, tsr_fsdp_memory *out)
{
    if (out)
        *out = (tsr_fsdp_memory){0};
}
