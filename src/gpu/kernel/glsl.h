/* Compiles GLSL at run time. */
#ifndef TSR_GPU_KERNEL_GLSL_H
#define TSR_GPU_KERNEL_GLSL_H

#include "tessera/base.h"

/* Compiles a GLSL compute shader to SPIR-V for Vulkan 1.2. The caller frees *out with tsr__free.
 * Returns TSR_ERR_UNSUPPORTED in a build without shaderc, and TSR_ERR_INVALID with the compiler's
 * messages as the error text if the shader has errors. */
tsr_status tsr__glsl_compile(const char *name, const char *glsl, uint32_t **out,
                             uint64_t *out_count) TSR_NODISCARD;

#endif
