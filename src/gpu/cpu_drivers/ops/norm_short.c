#include "gpu/cpu_drivers/ops/norm_short.h"

#include "base/checked.h"
#include "gpu/cpu_drivers/ops/norm_operands.h"
#include "gpu/cpu_drivers/ops/softmax_short.h"
#include "shaders/params/norm_short.h"

enum {
    /* Subgroups per workgroup. Shaders look up their numbers in the push constant identity[], where
     * identity[i] is i (lavapipe.glsl); it has this many entries. */
    SUBGROUPS = 8,
    LONGEST = 1024,
};

bool tsr__norm_short_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output)
{
    tsr__norm_operands all = tsr__norm_operands_of(norm, plane, output);
    return tsr__norm_operands_suit(&all) && tsr__short_rows_of(&all.rows, LONGEST).units > 0;
}

tsr_status tsr__norm_short_add(tsr__dispatches *list, const tsr__norm *norm,
                               const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch)
{
    const tsr__norm_operands all = tsr__norm_operands_of(norm, plane, output);
    const tsr__softmax_rows *rows = &all.rows;
    const tsr__softmax_operand *order[TSR__NORM_ORDER];
    const uint32_t lanes = rows->device->info.subgroup_size;
    const tsr__short_rows cut = tsr__short_rows_of(rows, LONGEST);
    struct tsr_norm_short_push push = {
        .identity = {TSR_IDENTITY_8},
        .x = rows->a.address,
        .dy = rows->b.address,
        .y = output == TSR_NORM_STATS      ? tsr__norm_stats_address(plane, scratch)
             : output == TSR_NORM_PRODUCTS ? scratch->address
                                           : rows->y.address,
        .weight = all.vectors.a.address,
        .bias = all.vectors.b.address,
        .x_row = (uint32_t)rows->a.stride,
        .dy_row = (uint32_t)rows->b.stride,
        .y_row = (uint32_t)rows->y.stride,
        .rows = rows->rows,
        .overlap = cut.overlap,
        .epsilon = norm->epsilon,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_NORM_SHORT,
        .spec_count = 15,
        .spec = {SUBGROUPS * lanes, lanes, cut.units, norm->centred, output},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32(rows->rows, SUBGROUPS), 1, 1},
    };

    tsr__norm_operands_access(&all, &dispatch.spec[5], &dispatch);
    tsr__norm_operands_order(&all, order);
    for (int i = 0; i < TSR__NORM_ORDER; i++)
        dispatch.spec[10 + i] = tsr__short_rows_form(cut, order[i]);
    if (scratch)
        dispatch.access[dispatch.access_count++] = tsr__write_buffer(scratch);
    return tsr__dispatches_add(list, &dispatch);
}
