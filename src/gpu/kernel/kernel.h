/* The inside of a user's kernel. */
#ifndef TSR_GPU_KERNEL_KERNEL_H
#define TSR_GPU_KERNEL_KERNEL_H

#include "gpu/device/device.h"
#include "tessera/kernel.h"

/* For the batches that still have to run it: the pipeline goes with the last reference. */
void tsr__kernel_retain(tsr_kernel *kernel);
void tsr__kernel_release(tsr_kernel *kernel);

#endif
