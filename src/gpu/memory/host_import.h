/* Memory of the process that the device uses directly (VK_EXT_external_memory_host). It replaces
 * memory that the driver allocates and maps, which network interfaces often cannot register and
 * other processes cannot read. */
#ifndef TSR_GPU_MEMORY_HOST_IMPORT_H
#define TSR_GPU_MEMORY_HOST_IMPORT_H

#include "gpu/memory/slabs.h"

/* Imports memory of the slab's size and sets the slab's `memory`, `buffer`, `host` and `own`. If
 * the device cannot import it, all four stay NULL, and the function still returns TSR_OK. */
tsr_status tsr__host_import(tsr_device *device, const VkPhysicalDeviceMemoryProperties *types,
                            tsr__slab *slab) TSR_NODISCARD;

#endif
