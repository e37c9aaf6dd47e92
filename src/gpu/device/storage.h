/* How shaders access elements smaller than 32 bits. This header contains no Vulkan types. */
#ifndef TSR_GPU_DEVICE_STORAGE_H
#define TSR_GPU_DEVICE_STORAGE_H

typedef enum tsr__storage {
    TSR__STORAGE_W32, /* elements are packed in 32-bit words; works on every device */
    TSR__STORAGE_S16, /* 8-bit and 16-bit elements are accessed directly */
    TSR__STORAGE_COUNT
} tsr__storage;

#endif
