/* Makes transposed inputs contiguous before an operation on Mesa's CPU driver, which reads
 * neighbouring elements tens of times as fast as scattered ones. Copies are tensors and not scratch
 * memory, because a stream provides scratch memory only before an operation's first command. */
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "gpu/ops/copy/copy.h"

enum {
    MIN_ELEMENTS = 4096, /* copies of smaller tensors cost more time than they save */
};

static bool repeats(const tsr_layout *layout)
{
    for (int i = 0; i < layout->ndim; i++)
        if (layout->strides[i] == 0 && layout->shape[i] > 1)
            return true;
    return false;
}

static bool is_worth_it(const tsr_tensor *y, const tsr_tensor *input)
{
    tsr__pieces walk;
    tsr__piece piece;

    if (!tsr__vectors_suit(y->buffer->device) || tsr_layout_count(&y->layout) < MIN_ELEMENTS ||
        repeats(&input->layout))
        return false;
    tsr__pieces_init(&walk, 2, (const tsr_layout *[]){&y->layout, &input->layout}, 0);
    return tsr__pieces_next(&walk, &piece) && tsr__piece_transposed(&piece) >= 0;
}

tsr_status tsr__cpu_make_contiguous(tsr_stream *stream, const tsr_tensor *y, tsr_tensor *input,
                                    tsr_tensor **copy)
{
    const tsr_layout *layout = &input->layout;
    if (!is_worth_it(y, input))
        return TSR_OK;
    TSR__TRY(
        tsr_tensor_create(input->buffer->device, layout->dtype, layout->ndim, layout->shape, copy));
    TSR__TRY(tsr__copy_local(stream, *copy, input));
    *input = **copy;
    return TSR_OK;
}
