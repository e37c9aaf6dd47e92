/* Positions and documents of the tokens of a pass, for all layers that look at earlier tokens. */
#include "base/alloc.h"
#include "parallel/layers/self_attention.h"

tsr_status tsr__need_positions(const tsr_layer *layer, tsr_tensor **kept, tsr__temps *temps,
                               int64_t tokens, tsr_tensor **out)
{
    int64_t length = *kept ? tsr_tensor_layout(*kept)->shape[0] : 0;
    if (length < tokens) {
        length = length * 2 > tokens ? length * 2 : tokens;
        int32_t *values = tsr__calloc((size_t)length, sizeof *values);
        if (!values)
            return TSR_ERR_NO_MEMORY;
        for (int64_t i = 0; i < length; i++)
            values[i] = (int32_t)i;
        tsr_tensor *positions = NULL;
        tsr_status status = tsr_tensor_create(layer->device, TSR_I32, 1, &length, &positions);
        if (status == TSR_OK)
            status = tsr_tensor_upload(layer->stream, positions, values,
                                       (uint64_t)length * sizeof *values);
        tsr__free(values);
        if (status != TSR_OK) {
            tsr_tensor_destroy(&positions);
            return status;
        }
        tsr_tensor_destroy(kept);
        *kept = positions;
    }
    return tsr__temp_slice(temps, *kept, 0, 0, tokens, out);
}

tsr_status tsr__documents_keep(const tsr__documents *documents, tsr_layer_saved *saved)
{
    if (!documents)
        return TSR_OK;
    if (documents->starts)
        TSR__TRY(tsr__keep(documents->starts, &saved->starts));
    if (documents->chunk_starts)
        TSR__TRY(tsr__keep(documents->chunk_starts, &saved->chunk_starts));
    saved->context = tsr__context_keep(documents->context);
    return tsr__keep(documents->positions, &saved->positions);
}
