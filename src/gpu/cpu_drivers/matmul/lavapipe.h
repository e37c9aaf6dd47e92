/* Products on Mesa's CPU driver: operands that its kernels cannot read as they are get packed
 * first, and what they cannot store is made in f32 scratch and finished (lavapipe_finish.h). */
#ifndef TSR_GPU_CPU_DRIVERS_MATMUL_LAVAPIPE_H
#define TSR_GPU_CPU_DRIVERS_MATMUL_LAVAPIPE_H

#include "gpu/matmul/run.h"

tsr_status tsr__matmul_run_lavapipe(const tsr__matmul_call *call, const tsr__matmul_plan *plan);

/* Part of tsr__matmul_config_runs and …_fits. */
bool tsr__lavapipe_runs(const tsr__matmul_device *device);
bool tsr__lavapipe_fits(const tsr__matmul_problem *problem);

#endif
