/* Subnormal numbers of f16, which devices may replace by 0 unless they are asked not to. */
#ifndef TSR_GPU_PIPELINE_SUBNORMALS_H
#define TSR_GPU_PIPELINE_SUBNORMALS_H

#include <stddef.h>

#include "gpu/device/device.h"

/* Writes a copy of the module, changed so that it keeps subnormal f16 numbers on this device when
 * it widens them to f32. *out is NULL if the module needs no change for that. The caller frees *out
 * with tsr__free. Errors: TSR_ERR_NO_MEMORY. */
tsr_status tsr__keep_subnormals(const tsr_device *device, const uint32_t *code, size_t size_bytes,
                                uint32_t **out, size_t *out_size_bytes) TSR_NODISCARD;

#endif
