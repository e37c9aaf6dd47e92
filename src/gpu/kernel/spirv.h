/* SPIR-V that comes from outside: is it whole, and is it for this device? */
#ifndef TSR_GPU_KERNEL_SPIRV_H
#define TSR_GPU_KERNEL_SPIRV_H

#include "tessera/device.h"

/* Checks a module before a driver sees it, since drivers crash on garbage: the header, that the
 * instructions fill the module exactly, one compute entry point "main" that fits the device, no
 * descriptors, no capability that `info` lacks, a block of push constants that fits `push_bytes`.
 * Specialization constants, which a workgroup's size
 * may depend on, have the values of `constants`, the rest their own. It does not check types and
 * control flow. `name` begins the error text. */
tsr_status tsr__spirv_check(const tsr_device_info *info, const char *name, const uint32_t *words,
                            uint64_t count, const uint32_t *constants, int constant_count,
                            uint32_t push_bytes) TSR_NODISCARD;

/* Compiles a GLSL compute shader for Vulkan 1.2. *out is the caller's to tsr__free.
 * TSR_ERR_UNSUPPORTED in a build without shaderc; the compiler's messages are in the text of
 * TSR_ERR_INVALID. */
tsr_status tsr__glsl_compile(const char *name, const char *glsl, uint32_t **out,
                             uint64_t *out_count) TSR_NODISCARD;

#endif
