/* Sharded parameters and calibration in a build without Vulkan: every function is there and says
 * so. */
#include "base/stub.h"
#include "tessera/calibrate.h"
#include "tessera/fsdp.h"

/* clang-format off */
TSR__ABSENT(tsr_calibrate, tsr_parallel *group, const tsr_calibrate_params *params, double *rates)

TSR__ABSENT(tsr_sharded_create, const tsr_sharded_params *params, tsr_sharded **out)
TSR__ABSENT(tsr_sharded_forward, tsr_sharded *model, int unit, const tsr_tensor *x,
            tsr_layer_saved **saved, tsr_tensor **y)
TSR__ABSENT(tsr_sharded_backward, tsr_sharded *model, int unit, const tsr_layer_saved *saved,
            const tsr_tensor *dy, tsr_tensor **dx)
TSR__ABSENT(tsr_sharded_begin, tsr_sharded *model, int unit, tsr_pass pass)
TSR__ABSENT(tsr_sharded_end, tsr_sharded *model, int unit)
TSR__ABSENT(tsr_sharded_shard_of, tsr_sharded *model, uint64_t param, tsr_sharded_shard *out)
TSR__ABSENT(tsr_sharded_changed, tsr_sharded *model)
TSR__ABSENT(tsr_sharded_sgd_step, tsr_sharded *model, const tsr_sgd_params *params)
TSR__ABSENT(tsr_sharded_adamw_step, tsr_sharded *model, const tsr_adamw_params *params)
TSR__ABSENT(tsr_sharded_zero_grad, tsr_sharded *model)
TSR__ABSENT(tsr_sharded_save, tsr_sharded *model, const char *path,
            const tsr_sharded_file_params *params)
TSR__ABSENT(tsr_sharded_load, tsr_sharded *model, const char *path,
            const tsr_sharded_file_params *params)
/* clang-format on */

void tsr_sharded_destroy(tsr_sharded **model)
{
    if (model)
        *model = NULL;
}

const tsr_shard_plan *tsr_sharded_plan(const tsr_sharded *model)
{
    return NULL;
}

const tsr_parameter *tsr_sharded_parameter(const tsr_sharded *model, int unit, int index)
{
    return NULL;
}

int tsr_sharded_parameter_count(const tsr_sharded *model, int unit)
{
    return 0;
}

int64_t tsr_sharded_steps(const tsr_sharded *model)
{
    return 0;
}

void tsr_sharded_memory_usage(const tsr_sharded *model, tsr_sharded_memory *out)
{
    if (out)
        *out = (tsr_sharded_memory){0};
}
