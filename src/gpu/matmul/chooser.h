/* Chooses the kernel and the tile that compute a product.
 *
 * Every method to compute a product is a named configuration, a line of the table in
 * kernels/configs.c. The choice depends only on shape, dtypes, strides, the device and the device's
 * tuning file. The bits of a result therefore do not change between runs unless the device is
 * tuned. */
#ifndef TSR_GPU_MATMUL_CHOOSER_H
#define TSR_GPU_MATMUL_CHOOSER_H

#include "gpu/matmul/kernels/configs.h"

typedef struct tsr__tuned tsr__tuned;

tsr__matmul_device tsr__matmul_device_of(const tsr_device *device);

/* Replaces parts of the choice, for tunings and tests. If a field is 0, the chooser decides. */
typedef struct tsr__matmul_override {
    const char *config; /* by name */
    uint32_t splits;    /* at most this many, if the configuration splits k */
} tsr__matmul_override;

/* Chooses the plan for a problem. `tuned` and `override` may be NULL. The tuning is used only if
 * `override` is NULL. If its configuration cannot compute this problem, the usual choice is made.
 * Returns TSR_ERR_UNSUPPORTED if `override` names a configuration that is unknown, does not run on
 * the device or cannot compute the problem. */
tsr_status tsr__matmul_choose(const tsr__matmul_device *device, tsr__tuned *tuned,
                              const tsr__matmul_problem *problem,
                              const tsr__matmul_override *override, tsr__matmul_plan *out);

#endif
