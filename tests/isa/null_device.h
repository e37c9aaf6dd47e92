/* A device on Mesa's null hardware: the driver compiles pipelines for a GPU that does not exist.
 * Functions that do nothing replace those for memory, commands and synchronisation, so that every
 * operation can be recorded. A test then sees which pipelines the operation uses. */
#ifndef TESTS_ISA_NULL_DEVICE_H
#define TESTS_ISA_NULL_DEVICE_H

#include "gpu/device/device.h"

/* Opens the device. Pipelines are built with their statistics and machine code. */
tsr_device *null_device_open(void);

/* A recorded dispatch. */
typedef struct null_dispatch {
    VkPipeline pipeline;
    uint32_t groups[3];
} null_dispatch;

/* Returns the dispatches since the last call, and their number. They are valid until the next
 * dispatch is recorded. */
const null_dispatch *null_device_take(int *count);

/* Returns the text of the pipeline's machine code, which the caller frees, or NULL. */
char *null_device_code(tsr_device *device, VkPipeline pipeline);

#endif
