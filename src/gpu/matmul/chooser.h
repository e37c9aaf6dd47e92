/* Chooses the kernel and the tile that compute a product.
 *
 * Every way to compute a product is a named configuration, a line of the table in
 * kernels/configs.c. The choice depends only on shape, dtypes, strides, the device and the device's
 * tuning file, so that the bits of a result do not change from run to run unless somebody tunes. */
#ifndef TSR_GPU_MATMUL_CHOOSER_H
#define TSR_GPU_MATMUL_CHOOSER_H

#include "gpu/matmul/kernels/configs.h"

typedef struct tsr__tuned tsr__tuned;

tsr__matmul_device tsr__matmul_device_of(const tsr_device *device);

/* Replaces parts of the choice, for tunings and tests. A field that is 0 leaves its part to the
 * chooser. */
typedef struct tsr__matmul_override {
    const char *config; /* by name */
    uint32_t splits;    /* at most this many, if the configuration splits k */
} tsr__matmul_override;

/* `tuned` may be NULL, and so may `override`. Only if `override` is NULL does the tuning count; if
 * its configuration does not fit this problem, the usual choice holds. TSR_ERR_UNSUPPORTED if
 * `override` names a configuration that is unknown, does not run on the device or does not fit the
 * problem. */
tsr_status tsr__matmul_choose(const tsr__matmul_device *device, tsr__tuned *tuned,
                              const tsr__matmul_problem *problem,
                              const tsr__matmul_override *override, tsr__matmul_plan *out);

#endif
