/* The choice of a kernel for normalisation on Mesa's CPU driver. */
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/norm_operands.h"
#include "gpu/cpu_drivers/ops/vectors.h"

tsr__norm_kernels tsr__cpu_norm_kernels(const tsr__norm *norm, const tsr__norm_plane *plane,
                                        uint32_t output)
{
    /* From about this many columns on, the kernels of norm_chunks.c are about as fast as those of
     * norm_short.c, and their pipelines compile in a quarter of the time. */
    const uint32_t many_columns = 768;
    if (!tsr__vectors_suit(norm->operand[0]->buffer->device))
        return TSR__NORM_GENERAL;
    bool is_short = tsr__norm_short_suit(norm, plane, output);
    if ((tsr__norm_columns(norm) > many_columns || !is_short) &&
        tsr__norm_chunks_suit(norm, plane, output))
        return TSR__NORM_CHUNKS;
    return is_short ? TSR__NORM_SHORT : TSR__NORM_GENERAL;
}
