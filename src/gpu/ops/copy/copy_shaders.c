/* Copies with shaders, one dispatch per piece. If dst and src have the same dtype, a shader copies
 * units of up to 16 bytes, as wide as the alignment of the addresses allows. Transposed pieces have
 * their own kernels. */
#include "gpu/cpu_drivers/cpu_drivers.h"
#include "gpu/ops/copy/copy.h"
#include "shaders/params/copy.h"
#include "shaders/params/copy_tile.h"

/* How a piece is copied: the piece, whose sizes count units, and the kinds of units in source and
 * destination (TSR_COPY_… for bits that are not converted, or a dtype). */
typedef struct copy_plan {
    tsr__piece piece;
    uint32_t source_kind, destination_kind;
    uint32_t unit_bytes; /* the size of a unit, the smaller one of source and destination */
} copy_plan;

static uint32_t bits_kind(uint64_t unit_bytes)
{
    switch (unit_bytes) {
    case 1:
        return TSR_COPY_BITS8;
    case 2:
        return TSR_COPY_BITS16;
    case 4:
        return TSR_COPY_BITS32;
    case 8:
        return TSR_COPY_BITS64;
    }
    return TSR_COPY_BITS128;
}

static void make_plan(const tsr__piece *piece, const tsr_tensor *dst, const tsr_tensor *src,
                      copy_plan *out)
{
    out->piece = *piece;
    if (dst->layout.dtype == src->layout.dtype) {
        out->unit_bytes = tsr__piece_widen(&out->piece, 2, (const tsr_tensor *[]){dst, src});
        out->source_kind = out->destination_kind = bits_kind(out->unit_bytes);
        return;
    }
    uint64_t dst_bytes = tsr_dtype_size(dst->layout.dtype);
    uint64_t src_bytes = tsr_dtype_size(src->layout.dtype);
    out->unit_bytes = (uint32_t)(dst_bytes < src_bytes ? dst_bytes : src_bytes);
    out->source_kind = src->layout.dtype;
    out->destination_kind = dst->layout.dtype;
}

/* The number of neighbouring units that an invocation copies. On a GPU it is one if units have at
 * least 4 bytes, so that a subgroup's accesses are adjacent. It is four for smaller units, because
 * these share a word, and on CPU drivers, where an invocation costs more than an access. */
static uint32_t group_of(const copy_plan *plan, const tsr_device *device)
{
    if (tsr__piece_inner(&plan->piece) == 1)
        return 1;
    return plan->unit_bytes >= 4 && !device->traits.few_invocations ? 1 : 4;
}

/* The size in bytes of what the operand's strides count. */
static uint64_t operand_unit(const copy_plan *plan, const tsr_tensor *tensor)
{
    const bool converts = plan->source_kind != plan->destination_kind;
    return converts ? tsr_dtype_size(tensor->layout.dtype) : plan->unit_bytes;
}

static uint32_t inner_mode(const copy_plan *plan, int operand, const tsr_tensor *tensor)
{
    const uint64_t unit = operand_unit(plan, tensor), alignment = unit > 4 ? 16 : 4 * unit;
    if (tsr__piece_aligned(&plan->piece, operand, tensor, unit, alignment))
        return TSR_COPY_ALIGNED;
    return tsr__piece_inner_stride(&plan->piece, operand) == 1 ? TSR_COPY_RUN : TSR_COPY_STRIDED;
}

static void fill_dispatch(const copy_plan *plan, const tsr_tensor *dst, const tsr_tensor *src,
                          struct tsr_copy_params *push, tsr__dispatch *dispatch)
{
    uint32_t group = group_of(plan, dst->buffer->device);
    push->destination = tsr__piece_address(&plan->piece, 0, dst);
    push->source = tsr__piece_address(&plan->piece, 1, src);
    tsr__walk_init(&push->walk, &plan->piece, group);
    tsr__walk_strides(&plan->piece, 0, push->destination_strides);
    tsr__walk_strides(&plan->piece, 1, push->source_strides);

    /* Modes are specialization constants. If the kernel does not use them, they get a fixed value,
     * because each other value would be another pipeline. */
    bool modes = group == 4 && plan->unit_bytes < 16;
    uint32_t dst_mode = modes ? inner_mode(plan, 0, dst) : TSR_COPY_STRIDED;
    uint32_t src_mode = modes ? inner_mode(plan, 1, src) : TSR_COPY_STRIDED;
    dispatch->shader = TSR__SHADER_COPY;
    dispatch->spec_count = 6;
    dispatch->spec[0] = TSR__WALK_WORKGROUP;
    dispatch->spec[1] = plan->source_kind;
    dispatch->spec[2] = plan->destination_kind;
    dispatch->spec[3] = group;
    dispatch->spec[4] = src_mode == TSR_COPY_RUN ? TSR_COPY_STRIDED : src_mode;
    dispatch->spec[5] = dst_mode;
    dispatch->push = push;
    dispatch->push_bytes = sizeof *push;
    tsr__groups_for(push->walk.items, TSR__WALK_WORKGROUP, dispatch->groups);
}

/* The minimum of rows and of columns for the kernel that transposes in tiles. With fewer, tiles
 * would be mostly empty. */
#define SHORTEST_SIDE 8

/* Initialises the dispatch that transposes a piece through shared memory: the rows of dst are
 * columns of src. Returns false if this kernel should not be used for the piece. */
static bool tile_dispatch(const tsr__piece *piece, const tsr_tensor *dst, const tsr_tensor *src,
                          struct tsr_copy_tile_params *push, tsr__dispatch *dispatch)
{
    int rows = tsr__piece_transposed(piece), columns = piece->ndim - 1;
    if (dst->buffer->device->traits.slow_barriers || rows < 0 ||
        piece->shape[rows] < SHORTEST_SIDE || piece->shape[columns] < SHORTEST_SIDE)
        return false;

    *push = (struct tsr_copy_tile_params){
        .destination = tsr__piece_address(piece, 0, dst),
        .source = tsr__piece_address(piece, 1, src),
        .rows = piece->shape[rows],
        .columns = piece->shape[columns],
        .destination_row = piece->strides[0][rows],
        .source_column = piece->strides[1][columns],
        .planes = 1,
    };
    uint32_t outer = 1;
    int found = 0;
    for (int i = columns - 1; i >= 0; i--) {
        if (i == rows)
            continue;
        push->destination_strides[1 - found] = piece->strides[0][i];
        push->source_strides[1 - found] = piece->strides[1][i];
        *(found == 0 ? &push->planes : &outer) = piece->shape[i];
        found++;
    }
    push->tiles = (push->rows + TSR_COPY_TILE - 1) / TSR_COPY_TILE *
                  ((push->columns + TSR_COPY_TILE - 1) / TSR_COPY_TILE) * push->planes * outer;

    dispatch->shader = TSR__SHADER_COPY_TILE;
    dispatch->spec_count = 4;
    dispatch->spec[2] = (uint32_t)tsr_dtype_size(src->layout.dtype);
    dispatch->spec[3] = (uint32_t)tsr_dtype_size(dst->layout.dtype);
    dispatch->push = push;
    dispatch->push_bytes = sizeof *push;
    tsr__groups_for(push->tiles, 1, dispatch->groups);
    return true;
}

static tsr_status copy_strided(tsr_stream *stream, const tsr__piece *piece, const tsr_tensor *dst,
                               const tsr_tensor *src)
{
    copy_plan plan;
    struct tsr_copy_params push;
    struct tsr_copy_tile_params tile_push;
    tsr__dispatch dispatch = {
        .access_count = 2,
        .access = {tsr__write_of(dst), tsr__read_of(src)},
    };
    make_plan(piece, dst, src, &plan);
    dispatch.spec[0] = plan.source_kind;
    dispatch.spec[1] = plan.destination_kind;
    if (!tile_dispatch(piece, dst, src, &tile_push, &dispatch))
        fill_dispatch(&plan, dst, src, &push, &dispatch);
    return tsr__stream_dispatch(stream, &dispatch);
}

/* Copies the piece. Kernels for CPU drivers copy as much of it as they can, the other kernels the
 * rest. */
static tsr_status copy_piece(tsr_stream *stream, const tsr__piece *piece, const tsr_tensor *dst,
                             const tsr_tensor *src)
{
    const tsr__cpu_kernels *cpu = tsr_stream_device(stream)->cpu;
    tsr__piece rest = *piece;

    if (cpu)
        TSR__TRY(cpu->copy(stream, dst, src, piece, &rest));
    return rest.count == 0 ? TSR_OK : copy_strided(stream, &rest, dst, src);
}

typedef struct copying {
    const tsr_tensor *dst, *src;
} copying;

static tsr_status copy_pieces(tsr_stream *stream, void *work)
{
    const copying *c = work;
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, 2, (const tsr_layout *[]){&c->dst->layout, &c->src->layout}, 0);
    while (tsr__pieces_next(&walk, &piece))
        TSR__TRY(copy_piece(stream, &piece, c->dst, c->src));
    return TSR_OK;
}

tsr_status tsr__copy_shader(tsr_stream *stream, const tsr_tensor *dst, const tsr_tensor *src)
{
    return tsr__stream_atomic(stream, copy_pieces, &(copying){dst, src});
}
