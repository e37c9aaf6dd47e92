/* tessera bench peak: the ceilings, which other benchmarks measure too when they need them. */
#include "bench/harness/bench.h"

static bool run(bench_context *context)
{
    return bench_fma_peak(context) != NULL &&
           (!context->info->fp16 || bench_fma_peak_f16(context) != NULL) &&
           (!bench_has_coopmat(context->info) || bench_coopmat_peak(context) != NULL) &&
           bench_device_copy(context) != NULL && bench_memory_peak(context) != NULL;
}

const bench bench_peak = {
    .name = "peak",
    .summary = "what limits everything else: multiply-adds in registers, and memory",
    .help = "Chains of multiply-adds in registers, in f32 and, where the device computes in it, in "
            "f16;\n"
            "products of cooperative matrices where it has them; a contiguous copy on the device; "
            "and for CPU drivers\n"
            "the host's memcpy on all CPUs. bf16 is computed in f32, and multiplied by "
            "such matrices\nat the rate of f16.\n",
    .run = run,
};
