/* Chooses the kernel and the tile that compute a product.
 *
 * Every method to compute a product is a named configuration, an entry of the table in
 * kernels/configs.c. The choice depends only on shapes, dtypes, strides, the device and the
 * device's tuning file. Therefore the bits of a result change between runs only if the device has
 * been tuned. */
#ifndef TSR_GPU_MATMUL_CHOOSE_KERNEL_H
#define TSR_GPU_MATMUL_CHOOSE_KERNEL_H

#include "gpu/matmul/kernels/configs.h"

typedef struct tsr__tuned tsr__tuned;

tsr__matmul_device tsr__matmul_device_of(const tsr_device *device);

/* Replaces the configuration, the number of ranges into which k is split, or both, for tunings
 * and tests. The chooser decides about fields that are 0. */
typedef struct tsr__matmul_override {
    const tsr__matmul_config *config;
    uint32_t splits; /* the largest number of ranges, if the configuration splits k */
} tsr__matmul_override;

/* Chooses the plan for a problem. `tuned` and `override` may be NULL. If `override` is not NULL,
 * the tuning is not used. It is not used either if the tuned configuration cannot compute this
 * problem. Returns TSR_ERR_UNSUPPORTED if the configuration of `override` does not run on the
 * device or cannot compute the problem. */
tsr_status tsr__matmul_choose(const tsr__matmul_device *device, tsr__tuned *tuned,
                              const tsr__matmul_problem *problem,
                              const tsr__matmul_override *override, tsr__matmul_plan *out);

/* True if a device that has no tuning of its own can choose `config`, which runs on it. */
bool tsr__matmul_can_choose(const tsr__matmul_device *device, const tsr__matmul_config *config);

#endif
