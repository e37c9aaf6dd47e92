#include "gpu/device/traits.h"

tsr__traits tsr__traits_of(tsr__device_class device_class)
{
    if (device_class == TSR__CLASS_GPU)
        return (tsr__traits){.device_class = device_class,
                             /* one dispatch is faster than many regions of this size */
                             .command_row_bytes = 1 << 20,
                             .most_iterations = UINT32_C(1) << 26};
    const bool lavapipe = device_class == TSR__CLASS_LAVAPIPE;
    return (tsr__traits){.device_class = device_class,
                         .few_invocations = true,
                         .narrow_accesses = true,
                         .slow_barriers = true,
                         .few_registers = true,
                         .slow_tables = true,
                         .slow_pipelines = true,
                         .slow_decoding = !lavapipe,
                         .memcpy_commands = true,
                         .ends_loops = lavapipe,
                         .not_a_chip = true,
                         .command_row_bytes = lavapipe ? 1024 : 256,
                         /* Mesa's driver ends all loops after 65535 iterations */
                         .most_iterations = 60000};
}
