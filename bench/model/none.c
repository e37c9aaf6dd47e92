/* tessera bench model in builds without Vulkan, which have no models. */
#include "bench/model/model.h"

int bench_model_run(bench_model_options *options)
{
    (void)options;
    return cli_failed("bench model: this tessera was built without Vulkan, which models need");
}
