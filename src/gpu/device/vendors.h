/* The vendor ids of GPUs that have code or tables of their own. */
#ifndef TSR_GPU_DEVICE_VENDORS_H
#define TSR_GPU_DEVICE_VENDORS_H

#define TSR__VENDOR_NVIDIA 0x10de
#define TSR__VENDOR_AMD 0x1002
#define TSR__VENDOR_INTEL 0x8086

#endif
