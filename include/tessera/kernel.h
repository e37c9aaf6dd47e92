/* Kernels of the user's own: GLSL compiled at run time, or SPIR-V, run on a stream beside the
 * library's operations.
 *
 * A kernel is a compute shader with entry point "main", no descriptors, and a push-constant block
 * that begins with one 64-bit buffer address per tensor (a uvec2, a uint64_t or a
 * buffer_reference), in the order tensors are passed, followed by the caller's scalars laid out by
 * std430 rules:
 *
 *     #extension GL_EXT_buffer_reference : require
 *     layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
 *     layout(push_constant) uniform Params { Floats x; Floats y; uint n; float scale; } p;
 *
 * Addresses point at a tensor's first element; strides, where they matter, are the caller's to
 * pass. Nothing checks bounds. A block longer than tensor_count and scalar_bytes say is refused, a
 * shorter one is not.
 * examples/hello_kernel.c is a whole program. */
#ifndef TESSERA_KERNEL_H
#define TESSERA_KERNEL_H

#include "tessera/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_kernel tsr_kernel;

typedef struct tsr_kernel_params {
    const char
        *glsl; /* source text; needs a build with shaderc. Exactly one of glsl and spirv is set */
    const uint32_t *spirv; /* words of a SPIR-V module */
    uint64_t spirv_words;
    const char *name;          /* for error texts; NULL: "kernel" */
    int tensor_count;          /* addresses at the start of the push constants */
    uint32_t scalar_bytes;     /* bytes of scalars after them, a multiple of 4 */
    const uint32_t *constants; /* specialization constants 0, 1, …, as 32-bit patterns */
    int constant_count;        /* at most 24 */
    /* Invocations in a subgroup, all subgroups being full: a power of two within what
     * tsr_device_info says, of which the workgroup's size in x is a multiple. 0: the driver's
     * choice. */
    uint32_t subgroup_size;
} tsr_kernel_params;

#define tsr_kernel_params(...) (&(tsr_kernel_params){__VA_ARGS__})

/* Errors: TSR_ERR_INVALID (the compiler's messages are in the error text; a workgroup that, with
 * these constants, is empty or larger than the device's limits; more push constants than the params
 * say), TSR_ERR_UNSUPPORTED
 * (GLSL in a build without shaderc; more push constants than the device has; a subgroup size that
 * the device does not have or cannot be asked for), TSR_ERR_NO_MEMORY, TSR_ERR_DRIVER. */
TSR_API TSR_NODISCARD tsr_status tsr_kernel_create(tsr_device *device,
                                                   const tsr_kernel_params *params,
                                                   tsr_kernel **out);
/* Recorded runs still finish. Sets *kernel to NULL; NULL is fine. */
TSR_API void tsr_kernel_destroy(tsr_kernel **kernel);

typedef struct tsr_kernel_argument {
    tsr_tensor *tensor;
    bool written; /* false: the kernel only reads it */
} tsr_kernel_argument;

/* Runs groups[0]×groups[1]×groups[2] workgroups; a 0 among them runs nothing. `arguments` has
 * tensor_count entries, `scalars` scalar_bytes bytes, copied before the call returns. Errors:
 * TSR_ERR_INVALID (devices, counts beyond the device's limit), and those of recording. */
TSR_API TSR_NODISCARD tsr_status tsr_kernel_run(tsr_stream *stream, tsr_kernel *kernel,
                                                const tsr_kernel_argument *arguments,
                                                const void *scalars, const uint32_t groups[3]);

#ifdef __cplusplus
}
#endif

#endif
