/* Steps of optimizers on Mesa's CPU driver with shaders/cpu_drivers/optimizer_vectors.comp. */
#include "gpu/ops/optimizer/optimizer.h"

#include <string.h>

#include "base/checked.h"
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "shaders/params/vectors.h"

enum {
    UNITS = 4, /* the number of vectors that one invocation computes */
    /* the number of subgroups per workgroup; identity[] in the push constants has this many
     * entries */
    SUBGROUPS = 8,
};

/* True if shaders/cpu_drivers/optimizer_vectors.comp can compute a piece. The piece must have no
 * gaps, and every operand must start at a multiple of 8 bytes. */
static bool has_vectors(const tsr__optimizer_step *s, const tsr__piece *piece)
{
    const tsr_device *device = tsr_stream_device(s->stream);

    if (!tsr__vectors_suit(device) || piece->ndim != 1 || piece->count < TSR__MIN_VECTORS)
        return false;
    for (int i = 0; i < TSR_OPT_OPERANDS; i++)
        if (s->slot[i] >= 0 &&
            (piece->strides[s->slot[i]][0] != 1 ||
             tsr__vectors_alignment(piece, s->slot[i], s->optimizer->operand[i]) != 8))
            return false;
    return true;
}

/* Runs optimizer_vectors.comp on as many elements of the piece, from its start on, as form complete
 * vectors. */
static tsr_status run_vectors(const tsr__optimizer_step *s, const tsr__piece *piece, uint32_t group)
{
    uint32_t lanes = tsr_stream_device(s->stream)->info.subgroup_size;
    uint32_t most = TSR__VECTORS_MAX_BLOCKS / 4 * lanes * UNITS;
    uint32_t total = piece->count / group, dispatches = tsr__div_up_u32(total, most);
    struct tsr_optimizer_vectors_push push = {.identity = {TSR_IDENTITY_8}, .scale = s->scale};
    tsr__dispatch dispatch = s->dispatch;

    memcpy(push.number, s->numbers, sizeof push.number);
    dispatch.shader = TSR__SHADER_OPTIMIZER_VECTORS;
    dispatch.spec[0] = SUBGROUPS * lanes;
    dispatch.spec[5] = s->dispatch.shader == TSR__SHADER_ADAMW ? TSR_OPT_ADAMW : TSR_OPT_SGD;
    dispatch.spec[6] = lanes;
    dispatch.spec[7] = UNITS;
    dispatch.spec_count = 8;
    dispatch.push = &push;
    dispatch.push_bytes = sizeof push;
    for (uint32_t d = 0; d < dispatches; d++) {
        uint32_t first = (uint32_t)((uint64_t)total * d / dispatches);
        push.vectors = (uint32_t)((uint64_t)total * (d + 1) / dispatches) - first;
        for (int i = 0; i < TSR_OPT_OPERANDS; i++) {
            const tsr_tensor *operand = s->optimizer->operand[i];
            if (s->slot[i] >= 0)
                push.base[i] = tsr__piece_address(piece, s->slot[i], operand) +
                               (uint64_t)first * group * tsr_dtype_size(operand->layout.dtype);
        }
        uint32_t blocks = tsr__div_up_u32(push.vectors, UNITS * lanes);
        dispatch.groups[0] = tsr__div_up_u32(blocks, SUBGROUPS);
        dispatch.groups[1] = dispatch.groups[2] = 1;
        TSR__TRY(tsr__stream_dispatch(s->stream, &dispatch));
    }
    return TSR_OK;
}

tsr_status tsr__cpu_optimizer(const tsr__optimizer_step *s, int operands, const tsr__piece *piece,
                              tsr__piece *rest)
{
    tsr_dtype dtype = s->optimizer->operand[TSR_OPT_PARAMETER]->layout.dtype;
    uint32_t group = TSR_VECTOR_BYTES / (uint32_t)tsr_dtype_size(dtype);

    *rest = *piece;
    if (!has_vectors(s, piece))
        return TSR_OK;
    TSR__TRY(run_vectors(s, piece, group));
    tsr__piece_columns(rest, operands, piece->count / group * group, piece->count);
    return TSR_OK;
}
