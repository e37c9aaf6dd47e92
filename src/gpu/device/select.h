/* Selects one of the listed devices by a text. It reads only the listing. */
#ifndef TSR_GPU_DEVICE_SELECT_H
#define TSR_GPU_DEVICE_SELECT_H

#include "tessera/device.h"

/* `wanted` as in tsr_device_params.device; NULL or empty: the best usable one. */
tsr_status tsr__select_device(const tsr_device_info *devices, int count, const char *wanted,
                              int *out);

#endif
