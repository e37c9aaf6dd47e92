/* Specialises SPIR-V before it is passed to the driver: folds constants and removes the branches
 * that they decide.
 *
 * A shader of this library is used for many dtypes and shapes, and most of it is dead code for
 * given specialization constants. Drivers of GPUs remove that code. SwiftShader executes all of it
 * under masks, which is 40 times as slow, and compiling it takes 100 times as long. All drivers get
 * the specialised modules. */
#ifndef TSR_GPU_CPU_DRIVERS_SPECIALIZE_SPECIALIZE_H
#define TSR_GPU_CPU_DRIVERS_SPECIALIZE_SPECIALIZE_H

#include <stddef.h>

#include "tessera/base.h"

/* Writes a copy of the module in which the specialization constant of id i has the value spec[i],
 * or its default if i >= spec_count. The module must be valid and use 32-bit specialization
 * constants only, like the library's own shaders. The caller frees *out with tsr__free; it is NULL
 * if this build does not specialise, and the driver must. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__specialize(const uint32_t *code, size_t size_bytes, const uint32_t *spec,
                           int spec_count, uint32_t **out, size_t *out_size_bytes) TSR_NODISCARD;

#endif
