/* Kernels of one's own choice, for tests: until tsr__matmul_force(NULL). */
#ifndef TESTS_GPU_MATMUL_FORCE_H
#define TESTS_GPU_MATMUL_FORCE_H

#include "gpu/matmul/chooser.h"

static tsr__matmul_override override;

/* All calls from here on take the kernel called `name`. */
static inline void force(const char *name)
{
    override = (tsr__matmul_override){.config = name};
    tsr__matmul_force(&override);
}

static inline void force_splits(uint32_t splits)
{
    override = (tsr__matmul_override){.splits = splits};
    tsr__matmul_force(&override);
}

#endif
