#include "gpu/ops/straighten.h"

#include "gpu/ops/packets.h"
#include "tessera/ops.h"

enum {
    FEWEST_ELEMENTS = 4096, /* fewer take less time than another dispatch */
    MOST_INPUTS = 2,
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

    if (!tsr__packets_suit(y->buffer->device) || tsr_layout_count(&y->layout) < FEWEST_ELEMENTS ||
        repeats(&input->layout))
        return false;
    tsr__pieces_init(&walk, 2, (const tsr_layout *[]){&y->layout, &input->layout}, 0);
    return tsr__pieces_next(&walk, &piece) && tsr__piece_transposed(&piece) >= 0;
}

static tsr_status lend(tsr_stream *stream, const tsr_tensor *input, tsr_tensor *out)
{
    const tsr_layout *layout = &input->layout;
    TSR__TRY(tsr_layout_init(layout->dtype, layout->ndim, layout->shape, &out->layout));
    return tsr__stream_scratch(
        stream, (uint64_t)tsr_layout_count(layout) * tsr_dtype_size(layout->dtype), &out->buffer);
}

tsr_status tsr__straighten(tsr_stream *stream, const tsr_tensor *y, tsr_tensor *inputs, int count)
{
    tsr_tensor packed[MOST_INPUTS];
    bool packs[MOST_INPUTS];

    for (int i = 0; i < count; i++) { /* all scratch before the first copy is recorded */
        packs[i] = is_worth_it(y, &inputs[i]);
        if (packs[i])
            TSR__TRY(lend(stream, &inputs[i], &packed[i]));
    }
    for (int i = 0; i < count; i++)
        if (packs[i]) {
            TSR__TRY(tsr_copy(stream, &packed[i], &inputs[i]));
            inputs[i] = packed[i];
        }
    return TSR_OK;
}
