/* Normalisation of short rows without gaps, and its gradients, on Mesa's CPU driver: runs
 * norm_short.comp and norm_short_grad.comp, each in one dispatch. A partial is the sums of the rows
 * of one workgroup for dweight or dbias. */
#include "shaders/params/norm_short.h"
#include "base/checked.h"
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/norm_operands.h"
#include "gpu/cpu_drivers/ops/softmax_short.h"
#include "gpu/cpu_drivers/ops/vectors.h"

enum {
    /* Subgroups per workgroup. The array identity[] of the push constants, in which shaders look up
     * the number of their subgroup (lavapipe.glsl), has this many elements. */
    SUBGROUPS = 8,
    LONGEST = 1024,
    /* The longest row, and the smallest number of elements, for the kernel that computes partials
     * of sums. With longer rows or fewer elements, its compilation, up to a second, takes more
     * time than the kernel saves. */
    LONGEST_SUMMED = 512,
    MIN_SUMMED = 1 << 16,
    /* The number of subgroups with which the partials of all workgroups are few enough to be added
     * up in one dispatch. */
    FEW_SUBGROUPS = 256,
};

bool tsr__norm_short_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output)
{
    tsr__norm_operands all = tsr__norm_operands_of(norm, plane, output);
    return tsr__norm_operands_suit(&all) && tsr__short_rows_of(&all.rows, LONGEST).units > 0;
}

tsr_status tsr__cpu_norm_short(tsr__dispatches *list, const tsr__norm *norm,
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

/* Parts of sums ------------------------------------------------------------------------------ */

static tsr__short_rows partials_cut(const tsr__norm_operands *all)
{
    return tsr__short_rows_of(&all->rows, LONGEST_SUMMED);
}

/* The number of rows that a subgroup processes: so many that there are at most FEW_SUBGROUPS
 * subgroups, but not more than a pipeline can compile in reasonable time. */
static uint32_t partials_rows(tsr__short_rows cut, uint32_t rows)
{
    const uint32_t most = cut.units > 16 ? 1 : cut.units > 8 ? 2 : 4;
    const uint32_t wanted = tsr__div_up_u32(rows, FEW_SUBGROUPS);
    return wanted < 2 && most > 1 ? 2 : tsr__min_u32(wanted, most);
}

bool tsr__cpu_norm_short_sums_suit(const tsr__norm *norm, const tsr__norm_plane *plane)
{
    const tsr__norm_operands all = tsr__norm_operands_of(norm, plane, TSR_NORM_PRODUCTS);
    return (uint64_t)all.rows.rows * all.rows.count >= MIN_SUMMED &&
           tsr__norm_operands_suit(&all) && partials_cut(&all).units > 0;
}

uint32_t tsr__cpu_norm_short_partials(const tsr__norm *norm, const tsr__norm_plane *plane)
{
    const tsr__norm_operands all = tsr__norm_operands_of(norm, plane, TSR_NORM_PRODUCTS);
    return tsr__div_up_u32(plane->rows, partials_rows(partials_cut(&all), plane->rows) * SUBGROUPS);
}

tsr_status tsr__cpu_norm_short_sums(tsr__dispatches *list, const tsr__norm *norm,
                                    const tsr__norm_plane *plane, bool dx,
                                    const tsr_tensor *dweight, const tsr_tensor *dbias)
{
    const tsr__norm_operands all =
        tsr__norm_operands_of(norm, plane, dx ? TSR_NORM_GRADIENT : TSR_NORM_PRODUCTS);
    const tsr__softmax_rows *rows = &all.rows;
    const tsr__softmax_operand *order[TSR__NORM_ORDER];
    const uint32_t lanes = rows->device->info.subgroup_size;
    const tsr__short_rows cut = partials_cut(&all);
    const uint64_t sums = tsr__tensor_address(dweight ? dweight : dbias);
    const uint32_t partials = tsr__cpu_norm_short_partials(norm, plane);
    struct tsr_norm_short_grad_push push = {
        .identity = {TSR_IDENTITY_8},
        .x = rows->a.address,
        .dy = rows->b.address,
        .dx = rows->y.address,
        .weight = all.vectors.a.address,
        .added = all.vectors.b.address,
        .sums = sums,
        .x_row = (uint32_t)rows->a.stride,
        .dy_row = (uint32_t)rows->b.stride,
        .dx_row = (uint32_t)rows->y.stride,
        .added_row = (uint32_t)all.vectors.b.stride,
        .sums_row = rows->count * (uint32_t)sizeof(float),
        .subgroup_sums_bytes = partials * rows->count * (uint32_t)sizeof(float),
        .sums_bytes = dweight && dbias ? (uint32_t)(tsr__tensor_address(dbias) - sums) : 0,
        .rows = rows->rows,
        .overlap = cut.overlap,
        .epsilon = norm->epsilon,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_NORM_SHORT_GRAD,
        .spec_count = 17,
        .spec = {SUBGROUPS * lanes, lanes, cut.units, partials_rows(cut, plane->rows),
                 norm->centred},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {partials, 1, 1},
    };

    tsr__norm_operands_access(&all, &dispatch.spec[5], &dispatch);
    tsr__norm_operands_order(&all, order);
    for (int i = 0; i < TSR__NORM_ORDER; i++)
        dispatch.spec[10 + i] = tsr__short_rows_form(cut, order[i]);
    dispatch.spec[15] = (dx ? TSR_NORM_WRITES_DX : 0) | (dweight ? TSR_NORM_WRITES_WEIGHT : 0) |
                        (dbias ? TSR_NORM_WRITES_BIAS : 0);
    dispatch.spec[16] =
        tsr__vectors_common(sums | push.sums_row | push.sums_bytes | cut.overlap * sizeof(float));
    dispatch.access[dispatch.access_count++] =
        tsr__write_buffer(dweight ? dweight->buffer : dbias->buffer);
    return tsr__dispatches_add(list, &dispatch);
}
