#ifndef TSR_GPU_DEVICE_MESA_H
#define TSR_GPU_DEVICE_MESA_H

#include <stdbool.h>

/* Sets environment variables for lavapipe, Mesa's driver for CPUs, which must not have started yet.
 * A program's or a user's own values stay. */
void tsr__mesa_environment(void);

/* True if lavapipe computes faster with vectors of 512 bits on the processors of this vendor (the
 * text that cpuid has for it), family and model. */
bool tsr__mesa_is_faster_wide(const char *vendor, unsigned family, unsigned model);

#endif
