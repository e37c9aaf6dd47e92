/* Sharded parameters and calibration in a build without Vulkan: every function is there and says
 * so. */
#include "base/error.h"
#include "tessera/calibrate.h"
#include "tessera/sharded.h"

/* A stub names its parameters for the reader's sake only. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define UNSUPPORTED(name, ...)                                                                     \
    tsr_status name(__VA_ARGS__)                                                                   \
    {                                                                                              \
        return tsr__fail(TSR_ERR_UNSUPPORTED, "%s: this build of tessera has no Vulkan",           \
                         &#name[sizeof "tsr_" - 1]);                                               \
    }

/* clang-format off */
UNSUPPORTED(tsr_calibrate, tsr_parallel *group, const tsr_calibrate_params *params, double *rates)

UNSUPPORTED(tsr_sharded_create, const tsr_sharded_params *params, tsr_sharded **out)
UNSUPPORTED(tsr_sharded_forward, tsr_sharded *model, int unit, const tsr_tensor *x,
            tsr_layer_saved **saved, tsr_tensor **y)
UNSUPPORTED(tsr_sharded_backward, tsr_sharded *model, int unit, const tsr_layer_saved *saved,
            const tsr_tensor *dy, tsr_tensor **dx)
UNSUPPORTED(tsr_sharded_begin, tsr_sharded *model, int unit, tsr_pass pass)
UNSUPPORTED(tsr_sharded_end, tsr_sharded *model, int unit)
UNSUPPORTED(tsr_sharded_shard_of, tsr_sharded *model, uint64_t param, tsr_sharded_shard *out)
UNSUPPORTED(tsr_sharded_changed, tsr_sharded *model)
UNSUPPORTED(tsr_sharded_sgd_step, tsr_sharded *model, const tsr_sgd_params *params)
UNSUPPORTED(tsr_sharded_adamw_step, tsr_sharded *model, const tsr_adamw_params *params)
UNSUPPORTED(tsr_sharded_zero_grad, tsr_sharded *model)
UNSUPPORTED(tsr_sharded_save, tsr_sharded *model, const char *path,
            const tsr_sharded_file_params *params)
UNSUPPORTED(tsr_sharded_load, tsr_sharded *model, const char *path,
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
