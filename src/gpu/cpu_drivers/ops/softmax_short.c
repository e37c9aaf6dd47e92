#include "gpu/cpu_drivers/ops/softmax_short.h"

#include "base/checked.h"
#include "shaders/params/vectors.h"

enum {
    MIN_ELEMENTS = 1 << 13,
    MANY_ELEMENTS = 1 << 22,
    /* Subgroups per workgroup. The array identity[] of the push constants, in which shaders look up
     * the number of their subgroup (lavapipe.glsl), has this many elements. */
    SUBGROUPS = 8,
    MAX_ROWS = 65535 * SUBGROUPS,
};

static uint32_t unit_of(const tsr__softmax_rows *work)
{
    return work->device->info.subgroup_size * TSR_VECTOR_BYTES /
           (uint32_t)tsr_dtype_size(work->y.dtype);
}

/* The length of the longest row for which this kernel is used: 2048 if there are many elements,
 * otherwise 1024. For rows between these lengths, the kernel saves a third of the time, but
 * creating its pipeline takes 0.1 s even from the driver's cache. */
static uint32_t longest(const tsr__softmax_rows *work)
{
    return (uint64_t)work->rows * work->count >= MANY_ELEMENTS ? 2048 : 1024;
}

tsr__short_rows tsr__short_rows_of(const tsr__softmax_rows *work, uint32_t most)
{
    /* Each number is at most one and a half times the one before. Therefore half of the chosen
     * units never exceed a row. */
    static const uint32_t choices[] = {4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128};
    const uint32_t unit = unit_of(work);

    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++) {
        const uint32_t covered = choices[i] * unit;
        if (covered < work->count)
            continue;
        if (covered / 2 > work->count || covered > most || work->rows > MAX_ROWS ||
            (uint64_t)work->rows * work->count < MIN_ELEMENTS || !tsr__softmax_operands_suit(work))
            break;
        return (tsr__short_rows){choices[i], covered - work->count};
    }
    return (tsr__short_rows){0};
}

uint32_t tsr__short_rows_form(tsr__short_rows rows, const tsr__softmax_operand *operand)
{
    tsr__softmax_operand second = *operand;

    second.address += rows.overlap * tsr_dtype_size(operand->dtype);
    return tsr__min_u32(tsr__softmax_alignment(operand), tsr__softmax_alignment(&second));
}

bool tsr__softmax_short_suit(const tsr__softmax_rows *work)
{
    return tsr__short_rows_of(work, longest(work)).units > 0;
}

tsr_status tsr__softmax_short_add(tsr__dispatches *list, const tsr__softmax_rows *work)
{
    const uint32_t lanes = work->device->info.subgroup_size;
    const tsr__short_rows rows = tsr__short_rows_of(work, longest(work));
    struct tsr_softmax_short_push push = {
        .identity = {TSR_IDENTITY_8},
        .a = work->a.address,
        .b = work->b.address,
        .y = work->y.address,
        .a_row = (uint32_t)work->a.stride,
        .b_row = (uint32_t)work->b.stride,
        .y_row = (uint32_t)work->y.stride,
        .rows = work->rows,
        .overlap = rows.overlap,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_SOFTMAX_SHORT,
        .spec_count = 10,
        .spec = {SUBGROUPS * lanes, lanes, rows.units, work->function, (uint32_t)work->y.dtype,
                 (uint32_t)work->a.dtype, (uint32_t)work->b.dtype,
                 tsr__short_rows_form(rows, &work->y), tsr__short_rows_form(rows, &work->a),
                 tsr__short_rows_form(rows, &work->b)},
        .push = &push,
        .push_bytes = sizeof push,
        .groups = {tsr__div_up_u32(work->rows, SUBGROUPS), 1, 1},
        .access_count = 2,
        .access = {work->a.access, work->y.access},
    };

    if (work->b.address != 0)
        dispatch.access[dispatch.access_count++] = work->b.access;
    return tsr__dispatches_add(list, &dispatch);
}
