/* tessera bench model and bench rates in builds without Vulkan, which have no models. */
#include "bench/model/model.h"
#include "bench/model/rates.h"

int bench_model_run(bench_model_options *options)
{
    (void)options;
    return cli_failed("bench model: this tessera was built without Vulkan, which models need");
}

int bench_rates_run(bench_rates_options *options)
{
    (void)options;
    return cli_failed("bench rates: this tessera was built without Vulkan, which models need");
}
