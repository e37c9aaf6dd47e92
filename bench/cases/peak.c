/* tessera bench peak: measures all ceilings. Other benchmarks measure the
 * ceilings that they need. */
#include "bench/ceilings/ceilings.h"

static bool run_peaks(bench_context *context)
{
    return bench_fma_peak(context) != NULL &&
           (!context->info->fp16 || bench_fma_peak_f16(context) != NULL) &&
           (!bench_has_coopmat(context->info) || bench_coopmat_peak(context) != NULL) &&
           bench_device_copy(context) != NULL && bench_memory_stream(context) != NULL &&
           bench_memory_peak(context) != NULL;
}

const bench bench_peak = {
    .name = "peak",
    .summary = "the ceilings: multiply-adds in registers, and memory bandwidth",
    .help = "Chains of multiply-adds in registers, in f32 and, if the device has it, in f16; "
            "products of cooperative matrices, if the library uses them; and the bandwidth of the "
            "memory: a contiguous copy and, on GPUs, kernels that read and write; for CPU drivers "
            "also the host's memcpy on all CPUs. bf16 has no ceiling of its own: it is computed in "
            "f32, and multiplied by cooperative matrices at the rate of f16.\n",
    .run = run_peaks,
};
