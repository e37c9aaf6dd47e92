#ifndef TSR_GPU_DEVICE_MESA_H
#define TSR_GPU_DEVICE_MESA_H

#include <stdbool.h>

#include "gpu/device/instance.h"

/* If the instance's only devices are CPUs, and lavapipe, Mesa's driver for CPUs, computes faster
 * with wider vectors than it has now, sets environment variables that widen them, and sets
 * *widened. The driver reads the variables when it is loaded, so if *widened is true, the caller
 * must destroy the instance and create it again. If a program or its user has set one of the
 * variables, they stay as they are. */
tsr_status tsr__mesa_widen(const tsr__instance *instance, bool *widened);

/* Returns the version of Mesa in lavapipe's driverInfo, for example "Mesa 22.3.6 (LLVM 15.0.6)", as
 * 100 · major + minor; 0 if there is none. */
unsigned tsr__mesa_version(const char *driver_info);
#define TSR__MESA_OF_DEBIAN_12 2203U

/* True if long kernels for this lavapipe should have additional barriers, whose only purpose is to
 * divide their code into phases (PHASES in shaders/cpu_drivers/matmul_lavapipe.glsl). */
bool tsr__mesa_takes_phases(const char *driver_info);

/* True if lavapipe computes faster with vectors of 512 bits on the processors of this vendor (the
 * text that cpuid has for it), family and model. */
bool tsr__mesa_is_faster_wide(const char *vendor, unsigned family, unsigned model);

#endif
