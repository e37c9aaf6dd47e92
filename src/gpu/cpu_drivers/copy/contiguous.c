#include "gpu/cpu_drivers/copy/contiguous.h"

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

static tsr_status pack(tsr_stream *stream, tsr_tensor *input, tsr_tensor **packed)
{
    const tsr_layout *layout = &input->layout;
    TSR__TRY(tsr_tensor_create(input->buffer->device, layout->dtype, layout->ndim, layout->shape,
                               packed));
    TSR__TRY(tsr__copy_local(stream, *packed, input));
    *input = **packed;
    return TSR_OK;
}

tsr_status tsr__make_contiguous(tsr_stream *stream, const tsr_tensor *y, tsr__contiguous *out)
{
    for (int i = 0; i < out->count; i++)
        if (is_worth_it(y, &out->input[i]))
            TSR__TRY(pack(stream, &out->input[i], &out->packed[i]));
    return TSR_OK;
}

void tsr__contiguous_finish(tsr__contiguous *inputs)
{
    for (int i = 0; i < inputs->count; i++)
        tsr_tensor_destroy(
            /* the stream keeps the copy's memory until the recorded work has used it */
            &inputs->packed[i]);
}
