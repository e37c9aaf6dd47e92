/* The table of all configurations, and functions to use them. */
#ifndef TSR_GPU_MATMUL_KERNELS_CONFIGS_H
#define TSR_GPU_MATMUL_KERNELS_CONFIGS_H

#include "gpu/matmul/common/kernel.h"

/* Returns the configuration at `index`, a tsr__matmul_id or higher, or NULL past the end of the
 * table. */
const tsr__matmul_config *tsr__matmul_config_at(int index);
/* Returns the configuration of that name, or NULL if there is none. Names come from callers and
 * from files; the library itself uses indices. */
const tsr__matmul_config *tsr__matmul_config_named(const char *name);
/* Sets *out to the configuration of that name. Errors: TSR_ERR_UNSUPPORTED. */
tsr_status tsr__matmul_config_find(const char *name, const tsr__matmul_config **out) TSR_NODISCARD;

/* Returns the index of a configuration of the table. It is less than 64. */
int tsr__matmul_config_index(const tsr__matmul_config *config);

/* True if `device` can run the configuration for some problem. */
bool tsr__matmul_config_runs(const tsr__matmul_config *config, const tsr__matmul_device *device);
/* True if the configuration can compute this problem on `device`. */
bool tsr__matmul_config_fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                             const tsr__matmul_problem *problem);

/* Returns the variant for a problem. It has scalar loads if `vectors` is false. */
tsr__matmul_variant tsr__matmul_variant_for(const tsr__matmul_config *config,
                                            const tsr__matmul_device *device,
                                            const tsr__matmul_problem *problem, bool vectors);

/* Calls `visit` for every variant of the configuration that can occur on the device and that has
 * its own pipeline. Configurations that choose their pipelines only when they run have no such
 * variants. */
typedef void (*tsr__matmul_visit_fn)(void *user, const tsr__matmul_config *config,
                                     const tsr__matmul_variant *variant);
void tsr__matmul_each_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                              tsr__matmul_visit_fn visit, void *user);

#endif
