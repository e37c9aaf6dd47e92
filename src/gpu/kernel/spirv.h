/* Checks SPIR-V modules that the caller supplies. */
#ifndef TSR_GPU_KERNEL_SPIRV_H
#define TSR_GPU_KERNEL_SPIRV_H

#include "tessera/device.h"

/* Checks a module before a driver reads it, because drivers crash on invalid modules. It checks
 * that the header is valid; that the instructions fill the module exactly; that there is one
 * compute entry point "main" that fits the device; that there are no descriptors; that the device
 * has all declared capabilities; and that the block of push constants fits in `push_bytes`. If the
 * workgroup size depends on specialization constants, these have the values in `constants`, or
 * otherwise the module's own values. Types and control flow are not checked. Error texts begin with
 * `name`. */
tsr_status tsr__spirv_check(const tsr_device_info *info, const char *name, const uint32_t *words,
                            uint64_t count, const uint32_t *constants, int constant_count,
                            uint32_t push_bytes) TSR_NODISCARD;

/* Compiles a GLSL compute shader for Vulkan 1.2. The caller frees *out with tsr__free. Returns
 * TSR_ERR_UNSUPPORTED in a build without shaderc, and TSR_ERR_INVALID with the compiler's messages
 * as the error text if the shader has errors. */
tsr_status tsr__glsl_compile(const char *name, const char *glsl, uint32_t **out,
                             uint64_t *out_count) TSR_NODISCARD;

#endif
