/* Element-wise operations on Mesa's CPU driver, with the kernel of vectors.h. */
#include "gpu/ops/elementwise/elementwise.h"
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "shaders/params/vectors.h"

static tsr__vectors vectors_of(const tsr__elementwise *work, const tsr_tensor *operands, int count)
{
    tsr__vectors vectors = {
        .function = work->function, .alpha = work->alpha, .beta = work->beta, .count = count};

    if (work->activation) {
        vectors.function = work->multiplied ? TSR_VECTORS_ACTIVATE_MUL
                           : count > 2      ? TSR_VECTORS_ACTIVATE_GRAD
                                            : TSR_VECTORS_ACTIVATE;
        vectors.activation = work->function;
    }
    for (int i = 0; i < count; i++)
        vectors.tensor[i] = &operands[i];
    return vectors;
}

tsr_status tsr__cpu_elementwise(tsr_stream *stream, const tsr__elementwise *work,
                                const tsr_tensor *operands, int count, const tsr__piece *piece,
                                tsr__piece *rest)
{
    const tsr__vectors vectors = vectors_of(work, operands, count);
    tsr__piece whole;

    *rest = *piece;
    return tsr__vectors_cut(&vectors, piece, &whole, rest)
               ? tsr__vectors_run(stream, &vectors, &whole)
               : TSR_OK;
}
