/* The table of all configurations, and generic access to them. */
#ifndef TSR_GPU_MATMUL_KERNELS_CONFIGS_H
#define TSR_GPU_MATMUL_KERNELS_CONFIGS_H

#include "gpu/matmul/common/kernel.h"

/* NULL past the end of the table. */
const tsr__matmul_config *tsr__matmul_config_at(int index);
/* NULL if no configuration has that name. */
const tsr__matmul_config *tsr__matmul_config_named(const char *name);

/* True if `device` can run it for some problem. */
bool tsr__matmul_config_runs(const tsr__matmul_config *config, const tsr__matmul_device *device);
/* True if it can compute this problem on `device`. */
bool tsr__matmul_config_fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                             const tsr__matmul_problem *problem);

/* The variant that suits a problem; without `vectors` it has scalar loads. */
tsr__matmul_variant tsr__matmul_variant_for(const tsr__matmul_config *config,
                                            const tsr__matmul_device *device,
                                            const tsr__matmul_problem *problem, bool vectors);

/* Calls `visit` for every variant with a pipeline of its own that the configuration can need on the
 * device. Configurations that choose their pipelines while they run have none. */
typedef void (*tsr__matmul_visit_fn)(void *user, const tsr__matmul_config *config,
                                     const tsr__matmul_variant *variant);
void tsr__matmul_each_variant(const tsr__matmul_config *config, const tsr__matmul_device *device,
                              tsr__matmul_visit_fn visit, void *user);

#endif
