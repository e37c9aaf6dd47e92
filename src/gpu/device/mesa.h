#ifndef TSR_GPU_DEVICE_MESA_H
#define TSR_GPU_DEVICE_MESA_H

#include <stdbool.h>

#include "gpu/device/instance.h"

/* If the instance's only devices are CPUs, and lavapipe, Mesa's driver for CPUs, computes faster
 * with wider vectors than it has now, sets environment variables that widen them, and sets
 * *widened. The driver reads the variables when it is loaded, so that the caller must then create
 * the instance again. If a program or its user has set one of the variables, they stay as they are.
 */
tsr_status tsr__mesa_widen(const tsr__instance *instance, bool *widened);

/* True if lavapipe with this driverInfo, for example "Mesa 22.3.6 (LLVM 15.0.6)", can compile for
 * vectors of 512 bits. */
bool tsr__mesa_can_be_wide(const char *driver_info);

/* True if lavapipe computes faster with vectors of 512 bits on the processors of this vendor (the
 * text that cpuid has for it), family and model. */
bool tsr__mesa_is_faster_wide(const char *vendor, unsigned family, unsigned model);

#endif
