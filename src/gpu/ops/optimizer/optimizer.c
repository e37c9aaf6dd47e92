/* Checks of the operands of optimizers, and their dispatches. The operands are divided into pieces
 * (tensor/pieces.h). */
#include "gpu/ops/optimizer/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/ops/common/walk.h"

enum {
    WORKGROUP = 64,
};

_Static_assert(TSR_OPT_OPERANDS <= TSR__PIECE_OPERANDS, "one iteration covers all operands");

static tsr_status check_operand(const tsr_stream *stream, const tsr__optimizer *optimizer, int i)
{
    const char *op = optimizer->op, *name = optimizer->name[i];
    const tsr_tensor *operand = optimizer->operand[i];
    TSR__TRY(tsr__require_float(op, name, stream, operand));
    if (i != TSR_OPT_PARAMETER && i != TSR_OPT_GRADIENT)
        TSR__REQUIRE(operand->layout.dtype == TSR_F32, "%s: %s is %s; f32 is needed", op, name,
                     tsr_dtype_name(operand->layout.dtype));
    return tsr__require_same_shape(op, optimizer->name[TSR_OPT_PARAMETER],
                                   optimizer->operand[TSR_OPT_PARAMETER], name, operand);
}

/* Checks that operand `i` can be written and overlaps no other operand, except that it may be the
 * same view as the gradient. The gradient itself is never written. */
static tsr_status check_overlap(const tsr__optimizer *optimizer, int i)
{
    if (i == TSR_OPT_GRADIENT)
        return TSR_OK;
    TSR__TRY(tsr__require_writable(optimizer->op, optimizer->name[i], optimizer->operand[i]));
    for (int j = 0; j < TSR_OPT_OPERANDS; j++) {
        if (!optimizer->operand[j] || i == j)
            continue;
        TSR__TRY(tsr__require_disjoint(optimizer->op, optimizer->name[i], optimizer->operand[i],
                                       optimizer->name[j], optimizer->operand[j],
                                       j == TSR_OPT_GRADIENT));
    }
    return TSR_OK;
}

tsr_status tsr__optimizer_check(const tsr_stream *stream, const tsr__optimizer *optimizer)
{
    const char *op = optimizer->op;
    const tsr_tensor *parameter = optimizer->operand[TSR_OPT_PARAMETER];
    for (int i = 0; i < TSR_OPT_OPERANDS; i++)
        if (optimizer->operand[i] || i == TSR_OPT_PARAMETER || i == TSR_OPT_GRADIENT)
            TSR__TRY(check_operand(stream, optimizer, i));
    TSR__REQUIRE(!optimizer->operand[TSR_OPT_MASTER] || parameter->layout.dtype != TSR_F32,
                 "%s: parameter is f32 and needs no master copy", op);
    for (int i = 0; i < TSR_OPT_OPERANDS; i++)
        if (optimizer->operand[i])
            TSR__TRY(check_overlap(optimizer, i));
    return TSR_OK;
}

tsr_status tsr__optimizer_require_rate(const char *op, const char *name, float value)
{
    TSR__REQUIRE(isfinite(value) && value >= 0, "%s: %s is %g; it must be finite and at least 0",
                 op, name, (double)value);
    return TSR_OK;
}

/* Sets the push constants for plane number `k` of a piece. A plane extends over the piece's last
 * two dimensions. slot[i] is the number that operand i of the optimizer has in the piece; -1 if
 * this call does not have the operand. */
static void fill_plane(struct tsr_optimizer_params *push, const tsr__optimizer *optimizer,
                       const int *slot, const tsr__piece *piece, uint32_t k)
{
    int column = piece->ndim - 1, row = piece->ndim - 2;
    for (int i = 0; i < TSR_OPT_OPERANDS; i++) {
        if (slot[i] < 0)
            continue;
        const uint32_t *strides = piece->strides[slot[i]];
        int64_t at = piece->offset[slot[i]];
        uint32_t rest = k;
        for (int d = row - 1; d >= 0; d--) {
            at += (int64_t)(rest % piece->shape[d]) * strides[d];
            rest /= piece->shape[d];
        }
        const tsr_tensor *operand = optimizer->operand[i];
        push->base[i] =
            operand->buffer->address + (uint64_t)at * tsr_dtype_size(operand->layout.dtype);
        push->column_stride[i] = strides[column];
        push->row_stride[i] = row >= 0 ? strides[row] : 0;
    }
    push->columns = piece->shape[column];
    push->count = push->columns * (row >= 0 ? piece->shape[row] : 1);
}

/* Runs the general kernel, which supports any strides. */
static tsr_status run_strided(tsr__optimizer_step *s, const tsr__piece *piece)
{
    struct tsr_optimizer_params push = {.scale = s->scale};
    tsr__dispatch dispatch = s->dispatch;

    memcpy(push.number, s->numbers, sizeof push.number);
    dispatch.push = &push;
    dispatch.push_bytes = sizeof push;
    for (uint32_t done = 0, k = 0; done < piece->count; done += push.count, k++) {
        fill_plane(&push, s->optimizer, s->slot, piece, k);
        tsr__groups_for(push.count, WORKGROUP, dispatch.groups);
        TSR__TRY(tsr__stream_dispatch(s->stream, &dispatch));
    }
    return TSR_OK;
}

static tsr_status run_piece(tsr__optimizer_step *s, const tsr__piece *piece, int operands)
{
    const tsr__cpu_kernels *cpu = tsr_stream_device(s->stream)->cpu;
    tsr__piece rest = *piece;

    if (cpu)
        TSR__TRY(cpu->optimizer(s, operands, piece, &rest));
    return rest.count == 0 ? TSR_OK : run_strided(s, &rest);
}

static tsr_status run_pieces(tsr_stream *stream, void *work)
{
    tsr__optimizer_step *s = work;
    const tsr_layout *layouts[TSR_OPT_OPERANDS];
    int operands = 0;
    tsr__pieces walk;
    tsr__piece piece;

    (void)stream;
    for (int i = 0; i < TSR_OPT_OPERANDS; i++)
        if (s->slot[i] >= 0)
            layouts[operands++] = &s->optimizer->operand[i]->layout;
    tsr__pieces_init(&walk, operands, layouts, 0);
    while (tsr__pieces_next(&walk, &piece))
        TSR__TRY(run_piece(s, &piece, operands));
    return TSR_OK;
}

tsr_status tsr__optimizer_record(tsr_stream *stream, const tsr__optimizer *optimizer,
                                 tsr__shader shader, uint32_t mode,
                                 const float numbers[TSR_OPT_NUMBERS], const tsr_tensor *scale)
{
    tsr__optimizer_step s = {
        .stream = stream,
        .optimizer = optimizer,
        .numbers = numbers,
        .scale = scale ? tsr__tensor_address(scale) : 0,
        .dispatch = {.shader = shader,
                     .spec_count = 5,
                     .spec = {WORKGROUP,
                              (uint32_t)optimizer->operand[TSR_OPT_PARAMETER]->layout.dtype,
                              (uint32_t)optimizer->operand[TSR_OPT_GRADIENT]->layout.dtype,
                              optimizer->operand[TSR_OPT_MASTER] != NULL, mode}},
    };
    int operands = 0;

    for (int i = 0; i < TSR_OPT_OPERANDS; i++) {
        const tsr_tensor *operand = optimizer->operand[i];
        s.slot[i] = operand ? operands : -1;
        if (!operand)
            continue;
        s.dispatch.access[operands++] =
            i == TSR_OPT_GRADIENT ? tsr__read_of(operand) : tsr__write_of(operand);
    }
    if (scale)
        s.dispatch.access[operands++] = tsr__read_of(scale);
    s.dispatch.access_count = operands;

    return tsr__stream_atomic(stream, run_pieces, &s);
}
