/* Reads and changes SPIR-V modules: checks those that the caller supplies, and adapts the library's
 * own to a device and to the values of their specialization constants. */
#ifndef TSR_GPU_SPIRV_SPIRV_H
#define TSR_GPU_SPIRV_SPIRV_H

#include <stddef.h>

#include "gpu/device/device.h"

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

/* Writes a copy of a module, changed so that it keeps subnormal f16 numbers on this device when
 * it widens them to f32. *out is NULL if the module needs no change for that. The caller frees *out
 * with tsr__free. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__spirv_keep_subnormals(const tsr_device *device, const uint32_t *words,
                                      size_t size_bytes, uint32_t **out,
                                      size_t *out_size_bytes) TSR_NODISCARD;

/* Writes a copy of a module, changed so that its arithmetic in f32 keeps infinities and NaNs on
 * this device, if the module has an infinity among its constants. Otherwise as
 * tsr__spirv_keep_subnormals. */
tsr_status tsr__spirv_keep_infinities(const tsr_device *device, const uint32_t *words,
                                      size_t size_bytes, uint32_t **out,
                                      size_t *out_size_bytes) TSR_NODISCARD;

/* Writes a copy of a module in which the specialization constant with SpecId i is a constant of
 * value spec[i], or of the module's own value if i >= spec_count, without the code that these
 * values exclude.
 *
 * A shader of this library is used for many dtypes and shapes, and most of it is dead code for
 * given specialization constants. Drivers of GPUs remove that code. SwiftShader executes all of it
 * under masks, which is 40 times as slow, and compiling it takes 100 times as long. All drivers get
 * the specialised modules.
 *
 * The module must be valid and use 32-bit specialization constants only, like the library's own
 * shaders. The caller frees *out with tsr__free. Errors: TSR_ERR_NO_MEMORY; TSR_ERR_INVALID if a
 * block has no terminator, as in modules that glslang 11 and 12 make of constants such as `a && (b
 * || c)` of specialization constants. */
tsr_status tsr__spirv_specialize(const uint32_t *words, size_t size_bytes, const uint32_t *spec,
                                 int spec_count, uint32_t **out,
                                 size_t *out_size_bytes) TSR_NODISCARD;

#endif
