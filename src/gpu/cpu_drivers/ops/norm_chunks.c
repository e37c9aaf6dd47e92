/* Normalisation of long rows without gaps, and its gradients, on Mesa's CPU driver, in three
 * kernels: norm_chunks.comp, norm_rows.comp and norm_apply.comp. The first divides rows into
 * chunks, the third into blocks; chunks and blocks are the spans of rows that subgroups compute
 * (row_spans.h). */
#include "shaders/params/norm_chunks.h"
#include "base/checked.h"
#include "gpu/cpu_drivers/hooks.h"
#include "gpu/cpu_drivers/ops/norm_operands.h"
#include "gpu/cpu_drivers/ops/row_spans.h"
#include "shaders/params/vectors.h"

enum {
    MIN_ELEMENTS = 1 << 15, /* with fewer, three dispatches cost more time than they save */
    MIN_COLUMNS = 256,      /* with fewer, a span saves less time than its start takes */
    MAX_STEPS = 64,         /* steps of a chunk; more steps take longer to compile than they save */
    MAX_UNITS = 8,          /* vectors per lane */
    ROWS_WORKGROUP = 64,
    MAX_SCRATCH = 1 << 28,
};

/* A plane of rows, and how the rows are divided into spans. */
typedef struct plan {
    tsr__norm_operands all;
    uint32_t lanes, group; /* group: the number of y's elements in a vector */
    tsr__row_cut chunks, blocks;
    /* the size of the statistics of all chunks; in scratch memory, the slopes
     * (params/norm_chunks.h) follow */
    uint64_t chunk_bytes;
} plan;

static plan plan_of(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output)
{
    plan p = {.all = tsr__norm_operands_of(norm, plane, output)};
    const tsr__softmax_rows *rows = &p.all.rows;

    p.lanes = rows->device->info.subgroup_size;
    p.group = TSR_VECTOR_BYTES / (uint32_t)tsr_dtype_size(rows->y.dtype);
    p.chunks = tsr__cut_row(rows->count, p.lanes, MAX_STEPS);
    p.blocks = tsr__cut_row(rows->count / p.group, p.lanes, MAX_UNITS);
    p.chunk_bytes = (uint64_t)rows->rows * p.chunks.across * TSR_NORM_CHUNK_BYTES;
    return p;
}

static uint64_t scratch_bytes(const plan *p)
{
    return p->chunk_bytes + (uint64_t)p->all.rows.rows * TSR_NORM_SLOPES_BYTES;
}

bool tsr__norm_chunks_suit(const tsr__norm *norm, const tsr__norm_plane *plane, uint32_t output)
{
    const plan p = plan_of(norm, plane, output);
    const tsr__softmax_rows *rows = &p.all.rows;

    if (!tsr__norm_operands_suit(&p.all) || rows->count < MIN_COLUMNS ||
        (uint64_t)rows->rows * rows->count < MIN_ELEMENTS)
        return false;
    /* Columns that do not fill a vector would need the general kernel. */
    return (output == TSR_NORM_STATS || rows->count % p.group == 0) &&
           p.blocks.across <= TSR__MAX_SPANS && p.chunks.across <= TSR__MAX_SPANS &&
           scratch_bytes(&p) <= MAX_SCRATCH;
}

uint64_t tsr__cpu_norm_chunks_bytes(const tsr__norm *norm, const tsr__norm_plane *plane)
{
    const plan p = plan_of(norm, plane, TSR_NORM_STATS);

    return scratch_bytes(&p);
}

/* The address of statistics, and the size of one row's statistics in bytes. */
typedef struct side {
    uint64_t address, row_bytes;
} side;

/* Adds the dispatches of a kernel that works on spans of rows. Each dispatch covers as many rows as
 * possible. This function sets the push constants and groups of `dispatch`; the caller sets the
 * other fields. */
static tsr_status add_spans(tsr__dispatches *list, const plan *p, tsr__row_cut spans,
                            uint32_t extent, side stats, uint64_t slopes, tsr__dispatch *dispatch)
{
    const tsr__softmax_rows *rows = &p->all.rows;
    struct tsr_norm_spans_push push = {
        .identity = {TSR_IDENTITY_8},
        .weight = p->all.vectors.a.address,
        .bias = p->all.vectors.b.address,
        .x_row = (uint32_t)rows->a.stride,
        .dy_row = (uint32_t)rows->b.stride,
        .y_row = (uint32_t)rows->y.stride,
        .spans = tsr__row_spans_of(spans, extent),
    };

    dispatch->push = &push;
    dispatch->push_bytes = sizeof push;
    for (uint64_t row = 0; row < rows->rows; row += push.spans.rows) {
        tsr__row_spans_take(&push.spans, rows->rows - row, dispatch->groups);
        push.x = rows->a.address + row * rows->a.stride;
        push.dy = rows->b.address + row * rows->b.stride;
        push.y = rows->y.address + row * rows->y.stride;
        push.stats = stats.address + row * stats.row_bytes;
        push.slopes = slopes + row * TSR_NORM_SLOPES_BYTES;
        TSR__TRY(tsr__dispatches_add(list, dispatch));
    }
    return TSR_OK;
}

static tsr_status add_chunks(tsr__dispatches *list, const tsr__norm *norm, const plan *p,
                             uint32_t output, tsr__buffer *scratch)
{
    uint32_t dtypes[TSR__NORM_ORDER];
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_NORM_CHUNKS,
        .spec_count = 8,
        .spec = {TSR__SPAN_SUBGROUPS * p->lanes, p->lanes, p->chunks.steps, norm->centred, output},
        .access_count = 1,
        .access = {tsr__write_buffer(scratch)},
    };
    plan reads = *p;
    reads.all.rows.y.address = 0;
    reads.all.vectors.b.address = 0;
    tsr__norm_operands_access(&reads.all, dtypes, &dispatch);
    dispatch.spec[5] = dtypes[1];
    dispatch.spec[6] = dtypes[2];
    dispatch.spec[7] = dtypes[3];
    return add_spans(list, &reads, p->chunks, p->all.rows.count,
                     (side){scratch->address, (uint64_t)p->chunks.across * TSR_NORM_CHUNK_BYTES}, 0,
                     &dispatch);
}

static tsr_status add_rows(tsr__dispatches *list, const tsr__norm *norm,
                           const tsr__norm_plane *plane, const plan *p, uint32_t output,
                           tsr__buffer *scratch, tsr__buffer *stats)
{
    const tsr__softmax_rows *rows = &p->all.rows;
    struct tsr_norm_rows_push push = {
        .chunks = scratch->address,
        .stats = tsr__norm_stats_address(plane, stats),
        .slopes = scratch->address + p->chunk_bytes,
        .rows = rows->rows,
        .count = rows->count,
        .across = p->chunks.across,
        .chunk = p->chunks.steps * p->lanes,
        .epsilon = norm->epsilon,
    };
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_NORM_ROWS,
        .spec_count = 2,
        .spec = {ROWS_WORKGROUP, output},
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 2,
        .access = {tsr__write_buffer(scratch), tsr__write_buffer(stats)},
    };

    tsr__groups_for(rows->rows, ROWS_WORKGROUP, dispatch.groups);
    return tsr__dispatches_add(list, &dispatch);
}

tsr_status tsr__cpu_norm_chunks_stats(tsr__dispatches *list, const tsr__norm *norm,
                                      const tsr__norm_plane *plane, uint32_t output,
                                      tsr__buffer *scratch, tsr__buffer *stats)
{
    const plan p = plan_of(norm, plane, output);

    TSR__TRY(add_chunks(list, norm, &p, output, scratch));
    return add_rows(list, norm, plane, &p, output, scratch, stats);
}

tsr_status tsr__cpu_norm_chunks(tsr__dispatches *list, const tsr__norm *norm,
                                const tsr__norm_plane *plane, uint32_t output, tsr__buffer *scratch,
                                tsr__buffer *stats, tsr__buffer *products)
{
    const tsr__softmax_operand *order[TSR__NORM_ORDER];
    plan p = plan_of(norm, plane, output);
    tsr__dispatch dispatch = {
        .shader = TSR__SHADER_NORM_APPLY,
        .spec_count = 14,
        .spec = {TSR__SPAN_SUBGROUPS * p.lanes, p.lanes, p.blocks.steps, output},
        .access_count = 1,
        .access = {tsr__read_buffer(stats)},
    };
    uint64_t slopes = 0;

    tsr__norm_operands_access(&p.all, &dispatch.spec[4], &dispatch);
    if (output == TSR_NORM_GRADIENT) {
        slopes = scratch->address + p.chunk_bytes;
        dispatch.access[dispatch.access_count++] = tsr__read_buffer(scratch);
    }
    if (output == TSR_NORM_PRODUCTS) {
        p.all.rows.y.address = products->address;
        dispatch.access[dispatch.access_count++] = tsr__write_buffer(products);
    }
    tsr__norm_operands_order(&p.all, order);
    for (int i = 0; i < TSR__NORM_ORDER; i++)
        dispatch.spec[9 + i] = tsr__softmax_alignment(order[i]);
    return add_spans(list, &p, p.blocks, p.all.rows.count / p.group,
                     (side){tsr__norm_stats_address(plane, stats), TSR_NORM_STATS_BYTES}, slopes,
                     &dispatch);
}
