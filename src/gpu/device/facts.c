#include "gpu/device/facts.h"

const tsr_heap_info *tsr_device_heap(const tsr_device_info *info, int index)
{
    return info && index >= 0 && index < info->heap_count ? &tsr__facts_of(info)->heaps[index]
                                                          : NULL;
}

const tsr_coopmat_shape *tsr_device_coopmat_shape(const tsr_device_info *info, int index)
{
    return info && index >= 0 && index < info->coopmat_count ? &tsr__facts_of(info)->coopmats[index]
                                                             : NULL;
}
