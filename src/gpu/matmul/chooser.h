/* Which kernel computes a product, with which tile.
 *
 * Every way to compute one is a named configuration, a line of the table in configs.c. The choice
 * follows shape, dtypes, strides, device and the device's tuning file only, so that a call's bits
 * do not change from run to run unless somebody tunes. */
#ifndef TSR_GPU_MATMUL_CHOOSER_H
#define TSR_GPU_MATMUL_CHOOSER_H

#include "gpu/matmul/configs.h"

typedef struct tsr__matmul_plan {
    const tsr__matmul_config *config;
    tsr__matmul_variant variant;
    uint32_t splits;  /* parts k is cut into, each … */
    uint32_t k_chunk; /* … this long but for the last */
    bool tuned;       /* this is what a tuning says */
} tsr__matmul_plan;

/* Replaces parts of the choice; fields left 0 choose as usual. */
typedef struct tsr__matmul_override {
    const char *config; /* by name */
    uint32_t splits;    /* at most this many, where the configuration can split */
} tsr__matmul_override;

/* `override` may be NULL: only then a tuning is asked, which falls back to the usual choice where
 * its configuration cannot do this one. TSR_ERR_UNSUPPORTED when it names a configuration that is
 * unknown, does not run on the device or does not fit the problem. */
tsr_status tsr__matmul_choose(const tsr__matmul_device *device, const tsr__matmul_problem *problem,
                              const tsr__matmul_override *override, tsr__matmul_plan *out);

/* For tests: the override of all calls from now on; NULL ends it. Not thread-safe. */
void tsr__matmul_force(const tsr__matmul_override *override);
const tsr__matmul_override *tsr__matmul_forced(void);

#endif
