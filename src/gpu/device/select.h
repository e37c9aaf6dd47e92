/* Selects a device from the listing by a text. Uses only the listing's contents. */
#ifndef TSR_GPU_DEVICE_SELECT_H
#define TSR_GPU_DEVICE_SELECT_H

#include "tessera/device.h"

/* `wanted` has the form of tsr_device_params.device. If it is NULL or empty, the best usable device
 * is selected. */
tsr_status tsr__select_device(const tsr_device_info *const *devices, int count, const char *wanted,
                              int *out);

#endif
