#include "gpu/matmul/narrowed.h"

#include "base/checked.h"
#include "gpu/quant/dequantize.h"
#include "shaders/params/matmul.h"
#include "tensor/check.h"

enum {
    THREADS = 128,
    /* With fewer rows, reading b takes most of the time, and each pass over k reads it again. This
     * is also the largest number of rows of a cooperative matrix. */
    MIN_ROWS = 32,
};

/* The largest size of the scratch memory for columns of b, in elements. */
#define MAX_ELEMENTS (INT64_C(1) << 25)

/* The largest strides of an operand that is narrowed, in elements: the shader's are in bytes. */
#define MAX_STRIDE (INT64_C(1) << 29)

static int64_t term_elements(int64_t k)
{
    return (k + TSR_MM_TERM_UNIT - 1) / TSR_MM_TERM_UNIT * TSR_MM_TERM_UNIT;
}

int64_t tsr__matmul_line_elements(int64_t k, uint32_t terms)
{
    return (int64_t)terms * term_elements(k) + TSR_MM_TERM_UNIT;
}

/* Returns the dtype of the terms, which is that of an operand of 16 bits, or 0 if no terms are
 * needed or possible. */
static tsr_dtype dtype_for(tsr_dtype a, tsr_dtype b)
{
    const bool a_wide = a == TSR_F32, b_wide = b == TSR_F32 || tsr__dtype_is_block(b);

    return a_wide && b_wide ? TSR_F16 : a_wide ? b : b_wide ? a : (tsr_dtype)0;
}

static uint32_t terms_for(tsr_precision precision, tsr_dtype dtype)
{
    return precision == TSR_PRECISION_MEDIUM ? 1 : dtype == TSR_F16 ? 2 : 3;
}

bool tsr__matmul_narrow(const tsr__matmul_problem *p, tsr_dtype a, tsr_dtype b,
                        tsr__matmul_problem *narrowed, tsr__matmul_plan *out)
{
    const tsr_dtype dtype = dtype_for(a, b);

    if (p->precision == TSR_PRECISION_HIGHEST || dtype == 0 || p->batch_dims > 0 ||
        p->m < MIN_ROWS || p->k < 1 || p->a.row >= MAX_STRIDE || p->a.col >= MAX_STRIDE ||
        p->b.row >= MAX_STRIDE || p->b.col >= MAX_STRIDE)
        return false;
    const uint32_t terms = terms_for(p->precision, dtype);
    out->narrowed.dtype = dtype;
    out->narrowed.a_terms = a == dtype ? 0 : terms;
    out->narrowed.b_terms = b == dtype ? 0 : terms;
    out->narrowed.columns = p->n;
    *narrowed = *p;
    narrowed->a_terms = out->narrowed.a_terms;
    narrowed->b_terms = out->narrowed.b_terms;
    narrowed->a.dtype = narrowed->b.dtype = dtype;
    if (narrowed->a_terms > 0)
        narrowed->a = (tsr__matmul_side){
            .dtype = dtype, .row = tsr__matmul_line_elements(p->k, terms), .col = 1};
    if (narrowed->b_terms > 0) {
        const int64_t unit = 128, pitch = tsr__matmul_line_elements(p->k, terms);
        const int64_t columns = MAX_ELEMENTS / pitch / unit * unit;
        narrowed->b = (tsr__matmul_side){.dtype = dtype, .row = 1, .col = pitch};
        out->narrowed.columns = tsr__matmul_min(columns > unit ? columns : unit, p->n);
        narrowed->n = out->narrowed.columns;
    }
    return true;
}

/* Recording ------------------------------------------------------------------------------------ */

tsr_status tsr__matmul_narrow_lines(tsr_stream *stream, const tsr__narrow_lines *l)
{
    const tsr_dtype dtype = l->from->layout.dtype;
    const bool blocks = tsr__dtype_is_block(dtype);
    const tsr_tensor *up = l->gate ? l->gate->up : NULL;
    const bool vectors = l->k_stride == 1 && l->line_stride % 4 == 0 && l->offset % 4 == 0 &&
                         (!up || up->layout.offset % 4 == 0);
    const struct tsr_matmul_narrow_push push = {
        .x = l->from->buffer->address + tsr__dtype_bytes(dtype, (uint64_t)l->offset),
        .y = l->to->address,
        .x_line = tsr__dtype_bytes(dtype, (uint64_t)l->line_stride),
        .x_k = blocks ? 0 : (uint32_t)tsr__dtype_bytes(dtype, (uint64_t)l->k_stride),
        .lines = (uint32_t)l->lines,
        .k = (uint32_t)l->k,
        .epsilon = l->norm ? l->norm->epsilon : 0,
        .weight = l->norm ? tsr__tensor_address(l->norm->weight) : 0,
        .up = up ? tsr__tensor_address(up) : 0,
    };
    tsr__dispatch dispatch = {
        .shader = blocks ? TSR__SHADER_MATMUL_NARROW_BLOCKS : TSR__SHADER_MATMUL_NARROW,
        .spec_count = TSR_QUANT_SPECS + (blocks ? 3 : 7),
        .push = &push,
        .push_bytes = sizeof push,
        .access_count = 2,
        .access = {tsr__read_of(l->from), tsr__write_buffer(l->to)},
    };
    if (blocks)
        tsr__quant_describe(dtype, dispatch.spec);
    dispatch.spec[TSR_QUANT_SPECS] = THREADS;
    dispatch.spec[TSR_QUANT_SPECS + 1] = l->dtype;
    dispatch.spec[TSR_QUANT_SPECS + 2] = l->terms;
    dispatch.spec[TSR_QUANT_SPECS + 3] = blocks ? 0 : vectors;
    if (l->norm) {
        dispatch.spec[TSR_QUANT_SPECS + 4] = (uint32_t)l->norm->weight->layout.dtype;
        dispatch.access[dispatch.access_count++] = tsr__read_of(l->norm->weight);
    }
    if (up) {
        dispatch.spec[TSR_QUANT_SPECS + 5] = 1;
        dispatch.spec[TSR_QUANT_SPECS + 6] = (uint32_t)l->gate->activation;
        dispatch.access[dispatch.access_count++] = tsr__read_of(up);
    }
    tsr__groups_for((uint64_t)l->lines, 1, dispatch.groups);
    return tsr__stream_dispatch(stream, &dispatch);
}

typedef struct narrowed_run {
    const tsr__matmul_call *call;
    const tsr__matmul_plan *plan;
    tsr__matmul_problem problem; /* narrowed; for the first columns of y */
    tsr_tensor a, b;             /* the operands of the narrowed problem */
} narrowed_run;

/* Computes columns `first` to `first + columns` of y. */
static tsr_status multiply_columns(tsr_stream *stream, const narrowed_run *run, int64_t first,
                                   int64_t columns)
{
    const tsr__matmul_call *call = run->call;
    const tsr__matmul_problem *p = call->problem;
    const uint32_t b_terms = run->plan->narrowed.b_terms;
    tsr__matmul_problem problem = run->problem;

    tsr_tensor added;

    if (call->added) {
        added = *call->added;
        added.layout.offset += first * p->y.col;
    }
    problem.n = columns;
    problem.y.offset += first * problem.y.col;
    problem.bias.offset += first * problem.bias.col;
    if (b_terms > 0)
        TSR__TRY(tsr__matmul_narrow_lines(
            stream, &(tsr__narrow_lines){.from = call->b,
                                         .offset = p->b.offset + first * p->b.col,
                                         .line_stride = p->b.col,
                                         .k_stride = p->b.row,
                                         .lines = columns,
                                         .k = p->k,
                                         .dtype = run->plan->narrowed.dtype,
                                         .terms = b_terms,
                                         .to = run->b.buffer}));
    const tsr__matmul_call product = {.stream = stream,
                                      .problem = &problem,
                                      .y = call->y,
                                      .a = &run->a,
                                      .b = &run->b,
                                      .bias = call->bias,
                                      .added = call->added ? &added : NULL};
    return run->plan->config->family->run(&product, run->plan);
}

static tsr_status record(tsr_stream *stream, void *work)
{
    const narrowed_run *run = work;
    const tsr__matmul_call *call = run->call;
    const tsr__matmul_problem *p = call->problem;
    const uint32_t a_terms = run->plan->narrowed.a_terms;
    const int64_t step = run->plan->narrowed.columns;

    if (a_terms > 0)
        TSR__TRY(tsr__matmul_narrow_lines(stream,
                                          &(tsr__narrow_lines){.from = call->a,
                                                               .offset = p->a.offset,
                                                               .line_stride = p->a.row,
                                                               .k_stride = p->a.col,
                                                               .lines = p->m,
                                                               .k = p->k,
                                                               .dtype = run->plan->narrowed.dtype,
                                                               .terms = a_terms,
                                                               .to = run->a.buffer,
                                                               .norm = call->norm,
                                                               .gate = call->gate}));
    for (int64_t first = 0; first < p->n; first += step)
        TSR__TRY(multiply_columns(stream, run, first, tsr__matmul_min(step, p->n - first)));
    return TSR_OK;
}

/* Makes *out a tensor in scratch memory with room for `lines` narrowed lines. */
static tsr_status make_lines(const narrowed_run *run, int64_t lines, uint32_t terms,
                             tsr_tensor *out)
{
    const tsr_dtype dtype = run->plan->narrowed.dtype;
    const int64_t pitch = tsr__matmul_line_elements(run->problem.k, terms);
    uint64_t bytes;

    if (!tsr__mul_u64((uint64_t)lines, (uint64_t)pitch * tsr_dtype_size(dtype), &bytes))
        return TSR_ERR_NO_MEMORY;
    TSR__TRY(tsr_layout_init(dtype, 2, (int64_t[]){lines, pitch}, &out->layout));
    return tsr__stream_keep_scratch(run->call->stream, bytes, &out->buffer);
}

tsr_status tsr__matmul_record_narrowed(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    const uint32_t a_terms = plan->narrowed.a_terms, b_terms = plan->narrowed.b_terms;
    narrowed_run run = {.call = call, .plan = plan, .a = *call->a, .b = *call->b};
    tsr__matmul_plan same;
    tsr_status status = TSR_OK;

    tsr__matmul_narrow(call->problem, call->a->layout.dtype, call->b->layout.dtype, &run.problem,
                       &same);
    run.a.buffer = a_terms > 0 ? NULL : call->a->buffer;
    run.b.buffer = b_terms > 0 ? NULL : call->b->buffer;
    if (a_terms > 0)
        status = make_lines(&run, call->problem->m, a_terms, &run.a);
    if (status == TSR_OK && b_terms > 0)
        status = make_lines(&run, plan->narrowed.columns, b_terms, &run.b);
    if (status == TSR_OK)
        status = tsr__stream_atomic(call->stream, record, &run);
    if (b_terms > 0)
        tsr__stream_return_scratch(call->stream, run.b.buffer);
    if (a_terms > 0)
        tsr__stream_return_scratch(call->stream, run.a.buffer);
    return status;
}
