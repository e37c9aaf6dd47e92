/* Kernels of the user's own: GLSL compiled at run time, or SPIR-V, run on a stream together with
 * the library's operations.
 *
 * A kernel is a compute shader with entry point "main", no descriptors, and a push-constant block
 * that begins with one 64-bit buffer address per tensor (a uvec2, a uint64_t or a
 * buffer_reference), in the order in which tensors are passed, followed by the caller's scalars,
 * laid out by std430 rules:
 *
 *     #extension GL_EXT_buffer_reference : require
 *     layout(buffer_reference, std430, buffer_reference_align = 4) buffer Floats { float v[]; };
 *     layout(push_constant) uniform Params { Floats x; Floats y; uint n; float scale; } p;
 *
 * An address points at a tensor's first element. If a kernel needs strides, the caller must pass
 * them as scalars. Accesses are not bounds-checked. A block longer than tensor_count and
 * scalar_bytes say is refused; a shorter one is allowed.
 *
 * examples/hello_kernel.c is a complete program.
 *
 * Threads: a kernel does not change after its creation. Several threads may run it, each on a
 * stream of its own. */
#ifndef TESSERA_KERNEL_H
#define TESSERA_KERNEL_H

#include "tessera/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tsr_kernel tsr_kernel;

typedef struct tsr_kernel_params {
    size_t struct_size;
    const char *glsl; /* source text; needs a build with shaderc. Exactly one of glsl and spirv must
                         be set */
    const uint32_t *spirv; /* words of a SPIR-V module */
    uint64_t spirv_words;
    const char *name;          /* the name in error texts; NULL: "kernel" */
    int tensor_count;          /* number of tensors, whose addresses begin the push constants */
    uint32_t scalar_bytes;     /* bytes of scalars after the addresses, a multiple of 4 */
    const uint32_t *constants; /* specialization constants 0, 1, …, as 32-bit patterns */
    int constant_count;        /* at most 24 */
    /* Size of the subgroups, all of which are then full: a power of two within the limits in
     * tsr_device_info that divides the workgroup's size in x. 0: the driver chooses. */
    uint32_t subgroup_size;
} tsr_kernel_params;

#define tsr_kernel_params(...)                                                                     \
    (&(tsr_kernel_params){.struct_size = sizeof(tsr_kernel_params), __VA_ARGS__})

/* Compiles a kernel. Blocks until the driver has built its pipeline. It holds a reference to
 * `device`; `params` is not used after the call. Errors: TSR_ERR_INVALID (the shader does not
 * compile: the error text has the compiler's messages; a workgroup that, with these constants, is
 * empty or exceeds the device's limits; a push-constant block that is longer than the params say),
 * TSR_ERR_UNSUPPORTED (GLSL in a build without shaderc; more push constants than the device has; a
 * capability or a subgroup size that the device does not have), TSR_ERR_NO_MEMORY,
 * TSR_ERR_DRIVER. */
TSR_API TSR_NODISCARD tsr_status tsr_kernel_create(tsr_device *device,
                                                   const tsr_kernel_params *params,
                                                   tsr_kernel **out);
/* Destroys a kernel and sets *kernel to NULL. NULL is allowed. Recorded runs still execute. */
TSR_API void tsr_kernel_destroy(tsr_kernel **kernel);

typedef struct tsr_kernel_argument {
    size_t struct_size;
    tsr_tensor *tensor;
    bool written; /* false: the kernel only reads it */
} tsr_kernel_argument;
/* An element of an array of arguments. */
#define tsr_kernel_argument(...)                                                                   \
    ((tsr_kernel_argument){.struct_size = sizeof(tsr_kernel_argument), __VA_ARGS__})

/* Records a run of groups[0]×groups[1]×groups[2] workgroups, or nothing if one of them is 0.
 * `arguments` has tensor_count entries, and `scalars` has scalar_bytes bytes, which are copied
 * before the call returns. The kernel's accesses are ordered with other work by the tensors in
 * `arguments`: one that it writes must say so. As with all recording, blocks until the device has
 * caught up if it is far behind (stream.h). Errors: TSR_ERR_INVALID (NULL, a tensor or stream of
 * another device, more workgroups than the device allows), and those of tsr_stream_submit. */
TSR_API TSR_NODISCARD tsr_status tsr_kernel_run(tsr_stream *stream, tsr_kernel *kernel,
                                                const tsr_kernel_argument *arguments,
                                                const void *scalars, const uint32_t groups[3]);

#ifdef __cplusplus
}
#endif

#endif
