/* Specialization before the driver: constants folded, and the branches they decide removed.
 *
 * A shader here serves many dtypes and shapes, and most of it is dead once its specialization
 * constants are known. Drivers of GPUs find that out; SwiftShader runs all of it under masks, 40
 * times as slow and 100 times as slow to build. Doing it here makes what every driver gets small.
 */
#ifndef TSR_GPU_CPU_DRIVERS_SPECIALIZE_SPECIALIZE_H
#define TSR_GPU_CPU_DRIVERS_SPECIALIZE_SPECIALIZE_H

#include <stddef.h>

#include "tessera/base.h"

/* The module with the specialization constant of id i as spec[i], or as its default where there is
 * no such entry. For the library's own shaders, which use 32-bit constants only: the module is
 * taken to be valid. *out is the caller's to tsr__free. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__specialize(const uint32_t *code, size_t size_bytes, const uint32_t *spec,
                           int spec_count, uint32_t **out, size_t *out_size_bytes) TSR_NODISCARD;

#endif
