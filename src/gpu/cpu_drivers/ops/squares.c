/* Sums of squares on Mesa's CPU driver with shaders/cpu_drivers/sum_squares_vectors.comp. */
#include "base/checked.h"
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/vectors.h"
#include "gpu/ops/common/rows.h"
#include "shaders/params/sum_squares.h"

enum {
    LANES = 8,
    /* the number of subgroups per workgroup; identity[] in the push constants has this many
     * entries */
    SUBGROUPS = 8,
};

bool tsr__cpu_squares_suit(const tsr_tensor *x, uint64_t address, int64_t count)
{
    const tsr_device *device = x->buffer->device;
    return tsr__vectors_suit(device) && device->info.subgroup_size == LANES &&
           count >= (int64_t)TSR__MIN_VECTORS && address % 4 == 0;
}

tsr_status tsr__cpu_squares(tsr__dispatches *list, const struct tsr_sum_squares_params *params,
                            int entries, tsr_dtype dtype, tsr__access parts,
                            const tsr__access *read)
{
    struct tsr_sum_squares_vectors_push push = {
        .identity = {TSR_IDENTITY_8}, .parts = params->parts, .scale = params->scale};
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_SUM_SQUARES_VECTORS,
        .spec_count = 3,
        .spec = {SUBGROUPS * LANES, (uint32_t)dtype, 8},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {0, (uint32_t)entries, 1},
        .access_count = 1 + entries,
        .access = {parts},
    };
    for (int i = 0; i < entries; i++) {
        push.x[i] = params->x[i];
        push.chunks[i] = params->count[i] / TSR_SUM_SQUARES_CHUNK;
        push.part[i] = params->part[i];
        const uint32_t groups = tsr__div_up_u32(push.chunks[i], SUBGROUPS);
        if (groups > dispatch.groups[0])
            dispatch.groups[0] = groups;
        if (params->x[i] % 8 != 0)
            dispatch.spec[2] = 4;
        dispatch.access[1 + i] = read[i];
    }
    return tsr__dispatches_add(list, &dispatch);
}
