#include "gpu/ops/elementwise/elementwise.h"

#include "gpu/cpu_drivers/cpu_drivers.h"
#include "shaders/params/elementwise.h"

enum {
    OPERANDS = 4,
};

/* y, and the inputs after they have been broadcast to y's shape. */
typedef struct operand_set {
    int count;
    tsr_tensor tensor[OPERANDS];
} operand_set;

static tsr_status require_dtype(const tsr__elementwise *work, const char *name,
                                const tsr_stream *stream, const tsr_tensor *tensor, bool flags)
{
    if (!flags)
        return tsr__require_float(work->op, name, stream, tensor);
    TSR__TRY(tsr__require_tensor(work->op, name, stream, tensor));
    const tsr_dtype dtype = tensor->layout.dtype;
    TSR__REQUIRE(dtype == TSR_F32 || dtype == TSR_F16 || dtype == TSR_BF16 || dtype == TSR_U8,
                 "%s: %s is %s; u8, f32, f16 or bf16 is needed", work->op, name,
                 tsr_dtype_name(dtype));
    return TSR_OK;
}

static tsr_status add_input(const tsr__elementwise *work, const tsr_stream *stream, int index,
                            operand_set *out)
{
    const tsr_tensor *in = work->in[index].tensor;
    const char *name = work->in[index].name;
    TSR__TRY(require_dtype(work, name, stream, in, work->a_flags && index == 0));
    tsr_layout layout;
    TSR__TRY(tsr__require_broadcast(work->op, name, in, work->y_name, work->y, &layout));
    tsr_tensor *operand = &out->tensor[out->count++];
    *operand = tsr__tensor_alias(in, &layout);
    return tsr__require_disjoint(work->op, work->y_name, work->y, name, operand, true);
}

static tsr_status check(const tsr__elementwise *work, const tsr_stream *stream, operand_set *out)
{
    TSR__TRY(require_dtype(work, work->y_name, stream, work->y, work->y_flags));
    *out = (operand_set){.count = 1, .tensor = {*work->y}};
    for (int i = 0; i + 1 < OPERANDS && work->in[i].name; i++)
        TSR__TRY(add_input(work, stream, i, out));
    return tsr__device_check(work->y->buffer->device);
}

static uint32_t inner_mode(const tsr__piece *piece, int operand, const tsr_tensor *tensor)
{
    const uint64_t size = tsr_dtype_size(tensor->layout.dtype);
    if (tsr__piece_aligned(piece, operand, tensor, size, 4 * size))
        return TSR_EW_ALIGNED;
    switch (tsr__piece_inner_stride(piece, operand)) {
    case 0:
        return TSR_EW_ONE;
    case 1:
        /* The elements are contiguous, but groups of four are not aligned. The kernel has a variant
         * for this (TSR_EW_RUN) only for y; it reads such inputs element by element. */
        return operand == 0 ? TSR_EW_RUN : TSR_EW_STRIDED;
    }
    return TSR_EW_STRIDED;
}

/* Sets the push constants of the kernel for three inputs. */
static void fill_push3(struct tsr_elementwise3_params *push, const operand_set *operands,
                       const tsr__piece *piece)
{
    struct tsr_walk walk;
    tsr__walk_init(&walk, piece, 4);
    *push = (struct tsr_elementwise3_params){
        .y = tsr__piece_address(piece, 0, &operands->tensor[0]),
        .a = tsr__piece_address(piece, 1, &operands->tensor[1]),
        .b = tsr__piece_address(piece, 2, &operands->tensor[2]),
        .c = tsr__piece_address(piece, 3, &operands->tensor[3]),
        .items = walk.items,
        .inner = walk.inner,
        .shifts = walk.shifts,
        .size1 = walk.size[1],
        .size2 = walk.size[2],
        .magic = {walk.magic[0], walk.magic[1], walk.magic[2]},
    };
    tsr__walk_strides(piece, 0, push->y_strides);
    tsr__walk_strides(piece, 1, push->a_strides);
    tsr__walk_strides(piece, 2, push->b_strides);
    tsr__walk_strides(piece, 3, push->c_strides);
}

static void fill_push(struct tsr_elementwise_params *push, const tsr__elementwise *work,
                      const operand_set *operands, const tsr__piece *piece)
{
    *push = (struct tsr_elementwise_params){
        .y = tsr__piece_address(piece, 0, &operands->tensor[0]),
        .a = tsr__piece_address(piece, 1, &operands->tensor[1]),
        .alpha = work->alpha,
        .beta = work->beta,
    };
    tsr__walk_init(&push->walk, piece, 4);
    tsr__walk_strides(piece, 0, push->y_strides);
    tsr__walk_strides(piece, 1, push->a_strides);
    if (operands->count > 2) {
        push->b = tsr__piece_address(piece, 2, &operands->tensor[2]);
        tsr__walk_strides(piece, 2, push->b_strides);
    }
}

static tsr_status run_strided(tsr_stream *stream, const tsr__elementwise *work,
                              const operand_set *operands, const tsr__piece *piece)
{
    const bool three = operands->count > 3;
    struct tsr_elementwise_params push;
    struct tsr_elementwise3_params push3;
    if (three)
        fill_push3(&push3, operands, piece);
    else
        fill_push(&push, work, operands, piece);

    tsr__dispatch dispatch = {
        .shader = work->multiplied   ? TSR__SHADER_ACTIVATE_MUL
                  : work->activation ? TSR__SHADER_ACTIVATE
                  : three            ? TSR__SHADER_ELEMENTWISE3
                                     : TSR__SHADER_ELEMENTWISE,
        .spec_count = 10,
        .spec = {TSR__WALK_WORKGROUP},
        .push = three ? (void *)&push3 : (void *)&push,
        .push_bytes = three ? sizeof push3 : sizeof push,
        .access_count = operands->count,
        .access = {tsr__write_of(&operands->tensor[0])},
    };
    for (int i = 0; i < operands->count; i++) {
        dispatch.spec[1 + i] = operands->tensor[i].layout.dtype;
        dispatch.spec[5 + i] = inner_mode(piece, i, &operands->tensor[i]);
        if (i > 0)
            dispatch.access[i] = tsr__read_of(&operands->tensor[i]);
    }
    dispatch.spec[9] = work->function;
    tsr__groups_for(three ? push3.items : push.walk.items, TSR__WALK_WORKGROUP, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

static tsr_status run_piece(tsr_stream *stream, const tsr__elementwise *work,
                            const operand_set *operands, const tsr__piece *piece)
{
    const tsr__cpu_kernels *cpu = tsr_stream_device(stream)->cpu;
    tsr__piece rest = *piece;

    if (cpu)
        TSR__TRY(cpu->elementwise(stream, work, operands->tensor, operands->count, piece, &rest));
    return rest.count == 0 ? TSR_OK : run_strided(stream, work, operands, &rest);
}

/* The operations of one call of tsr__elementwise_run, and their operands. */
typedef struct call {
    const tsr__elementwise *work;
    int count;
    operand_set operands[TSR__ELEMENTWISE_MAX];
} call;

static tsr_status run_pieces(tsr_stream *stream, const tsr__elementwise *work,
                             const operand_set *operands)
{
    const tsr_layout *layouts[OPERANDS];
    for (int i = 0; i < operands->count; i++)
        layouts[i] = &operands->tensor[i].layout;
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, operands->count, layouts, 0);
    while (tsr__pieces_next(&walk, &piece))
        TSR__TRY(run_piece(stream, work, operands, &piece));
    return TSR_OK;
}

static tsr_status run_all(tsr_stream *stream, void *opaque)
{
    const call *c = opaque;
    for (int i = 0; i < c->count; i++)
        TSR__TRY(run_pieces(stream, &c->work[i], &c->operands[i]));
    return TSR_OK;
}

tsr_status tsr__elementwise_run(tsr_stream *stream, const tsr__elementwise *work, int count)
{
    call c = {.work = work, .count = count};
    for (int i = 0; i < count; i++)
        TSR__TRY(check(&work[i], stream, &c.operands[i]));
    return tsr__stream_atomic(stream, run_all, &c);
}
