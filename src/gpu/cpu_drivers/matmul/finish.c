/* Runs matmul_lavapipe_finish.comp, which applies the epilogue of products. */
#include "gpu/cpu_drivers/matmul/finish.h"

#include "base/checked.h"
#include "gpu/cpu_drivers/matmul/plan.h"
#include "shaders/params/matmul.h"
#include "shaders/params/matmul_cpu.h"

enum {
    TILE_ROWS = 8,
    VECTOR = 4, /* the number of neighbouring elements that a lane stores */
    /* the largest number of workgroups that the kernel's uniform_index() supports */
    MAX_GROUPS = 65535,
};

typedef struct finish {
    const tsr__matmul_call *call;
    const tsr__lavapipe_sums *sums;
    uint32_t lanes;
} finish;

/* The rows and columns of the matrix that one dispatch computes. */
typedef struct rectangle {
    uint32_t row, rows, col, cols;
    bool careful; /* load and store one element at a time */
} rectangle;

static uint64_t byte_offset(const tsr__matmul_side *side, const rectangle *at)
{
    return ((uint64_t)at->row * (uint64_t)side->row + (uint64_t)at->col * (uint64_t)side->col) *
           tsr_dtype_size(side->dtype);
}

/* True if the four neighbours that a lane stores start at a multiple of 8 bytes. This must hold for
 * every matrix of the batch, because all matrices use one pipeline. */
static bool packable(const tsr__matmul_problem *p, uint64_t y)
{
    int64_t vector = (int64_t)(8 / tsr_dtype_size(p->y.dtype)), elements = p->y.row;

    for (int i = 0; i < p->batch_dims; i++)
        elements |= p->y.batch[i];
    return elements % vector == 0 && y % 8 == 0;
}

static tsr_status emit(const finish *f, const rectangle *at)
{
    const tsr__matmul_problem *p = f->call->problem;
    const tsr__lavapipe_sums *sums = f->sums;
    uint32_t tile_rows = p->m < TILE_ROWS || sums->splits > 1 ? 1 : TILE_ROWS,
             tile_cols = f->lanes * VECTOR;
    uint32_t tiles = tsr__div_up_u32(at->cols, tile_cols),
             subgroups = tsr__lavapipe_subgroups(tiles);
    struct tsr_matmul_cpu_finish_push push = {
        .sums =
            sums->partial->address + ((uint64_t)at->row * (uint64_t)p->n + at->col) * sizeof(float),
        .y = sums->y + byte_offset(&p->y, at),
        .bias = p->has_bias ? sums->bias + byte_offset(&p->bias, at) : 0,
        .sums_row = (uint32_t)p->n,
        .sums_split = sums->rows * (uint32_t)p->n,
        .y_row = (uint32_t)p->y.row,
        .y_col = (uint32_t)p->y.col,
        .bias_row = (uint32_t)p->bias.row,
        .bias_col = (uint32_t)p->bias.col,
        .sums_batch = sums->batched ? sums->splits * sums->rows * (uint32_t)p->n : 0,
        .y_batch = sums->y_batch,
        .bias_batch = sums->bias_batch,
        .m = at->rows,
        .n = at->cols,
        .alpha = p->alpha};
    tsr__dispatch dispatch = {.shader = TSR__SHADER_MATMUL_LAVAPIPE_FINISH,
                              .spec_count = 8,
                              .spec = {f->lanes * subgroups, f->lanes, tile_rows, at->careful,
                                       tsr__matmul_mode(p), sums->splits, sums->batched,
                                       !at->careful && packable(p, push.y)},
                              .push = &push,
                              .push_bytes = sizeof push,
                              .groups = {tsr__div_up_u32(at->rows, tile_rows),
                                         tsr__div_up_u32(tiles, subgroups), sums->matrices},
                              .access_count = p->has_bias ? 3 : 2};

    for (uint32_t i = 0; i < 8; i++)
        push.identity[i] = i;
    dispatch.access[0] = tsr__read_buffer(sums->partial);
    dispatch.access[1] = tsr__write_of(f->call->y);
    if (p->has_bias)
        dispatch.access[2] = tsr__read_of(f->call->bias);
    return tsr__stream_dispatch(f->call->stream, &dispatch);
}

static tsr_status emit_band(const finish *f, uint32_t rows, uint32_t col, uint32_t cols,
                            bool careful)
{
    rectangle at = {.col = col, .cols = cols, .careful = careful};

    for (at.row = 0; at.row < rows; at.row += at.rows) {
        at.rows = tsr__min_u32(MAX_GROUPS, rows - at.row);
        TSR__TRY(emit(f, &at));
    }
    return TSR_OK;
}

/* True if y and bias allow loading and storing four neighbouring columns at once. */
static bool has_vectors(const tsr__matmul_problem *p)
{
    return p->y.col == 1 && (!p->has_bias || p->bias.col == 1);
}

bool tsr__lavapipe_finishes(const tsr__matmul_call *call)
{
    const tsr__matmul_problem *p = call->problem;

    return tsr_stream_device(call->stream)->storage == TSR__STORAGE_S16 ||
           (p->y.dtype == TSR_F32 && (!p->has_bias || p->bias.dtype == TSR_F32));
}

tsr_status tsr__lavapipe_finish(const tsr__matmul_call *call, const tsr__lavapipe_sums *sums)
{
    const tsr__matmul_problem *p = call->problem;
    finish f = {
        .call = call, .sums = sums, .lanes = tsr_stream_device(call->stream)->info.subgroup_size};
    uint32_t n = (uint32_t)p->n, tile = f.lanes * VECTOR, limit = MAX_GROUPS * tile, cols;
    uint32_t whole = has_vectors(p) ? n / tile * tile : 0;

    for (uint32_t col = 0; col < n; col += cols) {
        bool careful = col >= whole;
        cols = tsr__min_u32(limit, (careful ? n : whole) - col);
        TSR__TRY(emit_band(&f, sums->rows, col, cols, careful));
    }
    return TSR_OK;
}
