/* Forces products to use a kernel that the test chooses. */
#ifndef TESTS_GPU_MATMUL_FORCE_H
#define TESTS_GPU_MATMUL_FORCE_H

#include "gpu/matmul/matmul.h"

static tsr__matmul_override override;
static const tsr__matmul_override *forced; /* what forced_matmul uses; NULL: the library chooses */

/* Makes forced_matmul use the kernel called `name` from now on. */
static inline void force(const char *name)
{
    override = (tsr__matmul_override){.config = tsr__matmul_config_named(name)};
    forced = &override;
}

static inline void force_splits(uint32_t splits)
{
    override = (tsr__matmul_override){.splits = splits};
    forced = &override;
}

static inline void force_both(const char *name, uint32_t splits)
{
    override = (tsr__matmul_override){.config = tsr__matmul_config_named(name), .splits = splits};
    forced = &override;
}

/* Like tsr_matmul, but uses the forced kernel. */
static inline tsr_status forced_matmul(tsr_stream *stream, tsr_tensor *y, const tsr_tensor *a,
                                       const tsr_tensor *b, const tsr_matmul_params *params)
{
    return tsr__matmul_run(stream, y, a, b, params, forced);
}

#endif
