/* Memory of the process's own that the device uses in place (VK_EXT_external_memory_host). What
 * drivers map is often no ordinary memory: networks cannot register it, nor can other processes
 * read it. */
#ifndef TSR_GPU_MEMORY_HOST_IMPORT_H
#define TSR_GPU_MEMORY_HOST_IMPORT_H

#include "gpu/memory/memory.h"

/* Gives a slab such memory, of its size: all of `memory`, `buffer`, `host` and `own`. A device that
 * does not take it leaves all of them NULL, which is no failure. */
tsr_status tsr__host_import(tsr_device *device, const VkPhysicalDeviceMemoryProperties *types,
                            tsr__slab *slab) TSR_NODISCARD;

#endif
