#include "gpu/matmul/lavapipe.h"

#include "base/checked.h"
#include "gpu/matmul/lavapipe_finish.h"
#include "gpu/matmul/lavapipe_plan.h"
#include "gpu/ops/copy.h"
#include "shaders/params/matmul.h"
#include "shaders/params/matmul_cpu.h"
#include "tessera/ops.h"

/* Of sums in scratch, unless a few rows are more. */
#define PARTIAL_BYTES (INT64_C(32) << 20)

bool tsr__lavapipe_runs(const tsr__matmul_device *device)
{
    return device->device_class == TSR__CLASS_LAVAPIPE && device->int64 &&
           (device->subgroup_size == 4 || device->subgroup_size == 8 ||
            device->subgroup_size == 16);
}

static bool narrow(int64_t stride)
{
    return stride <= (int64_t)UINT32_MAX;
}

/* Elements from one packed line to the next: in f32 an odd number of cache lines, so that a tile's
 * lines do not all fall into the same few sets of a cache. */
static uint64_t packed_stride(const tsr__matmul_problem *p)
{
    const uint32_t line_elements = 16;

    return tsr__align_up_u64((uint64_t)p->k, line_elements) | line_elements;
}

/* Whether a side's distinct matrices, were they packed, had at most so many elements. */
static bool packs_in(const tsr__matmul_problem *p, const tsr__matmul_side *side, int64_t lines,
                     uint64_t most)
{
    uint64_t elements = packed_stride(p);

    for (int i = 0; i < p->batch_dims; i++)
        if (side->batch[i] > 0 && !tsr__mul_u64(elements, (uint64_t)p->batch[i], &elements))
            return false;
    return tsr__mul_u64(elements, (uint64_t)lines, &elements) && elements <= most;
}

/* What cannot be read as it lies has to be packed, unless that is too much to do. */
static bool packable(const tsr__matmul_problem *p, const tsr__matmul_side *side, int64_t lines)
{
    return packs_in(p, side, lines, UINT64_C(1) << 28);
}

/* One of the strides is 1 and the other has 32 bits. */
static bool readable(const tsr__matmul_side *side)
{
    return (side->row == 1 && narrow(side->col)) || (side->col == 1 && narrow(side->row));
}

bool tsr__lavapipe_fits(const tsr__matmul_problem *p)
{
    return p->k > 0 && p->n <= INT64_C(1) << 27 && narrow(p->y.row) && narrow(p->y.col) &&
           narrow(p->bias.row) && narrow(p->bias.col) &&
           (readable(&p->a) || packable(p, &p->a, p->m)) &&
           (readable(&p->b) || packable(p, &p->b, p->n));
}

/* Packing -------------------------------------------------------------------------------------- */

/* A product on its way: the problem as its kernels see it, and where its operands are. */
typedef struct run {
    const tsr__matmul_call *call;
    tsr__matmul_problem problem;
    tsr_tensor a, b;               /* the caller's, or packed in scratch */
    tsr_tensor a_source, b_source; /* what to pack, where ndim is not 0 */
    tsr__buffer *partial;          /* f32 sums of some rows, where y cannot take them as they are */
    bool dealt;                    /* a is, see tsr__lavapipe_product */
    int64_t band;                  /* rows at a time */
    uint32_t lanes, parts;         /* sums of each element, tsr__lavapipe_parts() */
    bool record;                   /* false: only make the pipelines */
    const int64_t *batch;
    int64_t row;
    int inner; /* the batch dimension that a dispatch takes several matrices of; −1: none */
    uint32_t at_once;  /* how many at the most … */
    uint32_t matrices; /* … and now */
} run;

static bool has_halves(const tsr__matmul_side *side)
{
    return side->dtype != TSR_F32;
}

/* Lines of k elements each, row-major in the side's matrices; `line` and `k` are its strides. Batch
 * dimensions that the side repeats are packed once. */
static tsr_status pack(run *r, const tsr_tensor *tensor, tsr__matmul_side *side, int64_t lines,
                       int64_t line, int64_t k, bool widen, tsr_tensor *source, tsr_tensor *packed)
{
    const tsr__matmul_problem *p = &r->problem;
    tsr_layout from = {.dtype = side->dtype, .ndim = p->batch_dims + 2, .offset = side->offset};
    int64_t step = (int64_t)packed_stride(p);

    for (int i = 0; i < p->batch_dims; i++) {
        from.shape[i] = side->batch[i] > 0 ? p->batch[i] : 1;
        from.strides[i] = side->batch[i];
    }
    from.shape[p->batch_dims] = lines;
    from.strides[p->batch_dims] = line;
    from.shape[p->batch_dims + 1] = p->k;
    from.strides[p->batch_dims + 1] = k;

    tsr_layout to = from;
    to.dtype = widen ? TSR_F32 : side->dtype;
    to.offset = 0;
    to.strides[p->batch_dims + 1] = 1;
    for (int i = p->batch_dims; i >= 0; i--) {
        to.strides[i] = step;
        step *= to.shape[i];
    }
    for (int i = 0; i < p->batch_dims; i++)
        side->batch[i] = side->batch[i] > 0 ? to.strides[i] : 0;
    side->dtype = to.dtype;
    side->offset = 0;

    *source = tsr__tensor_alias(tensor, &from);
    packed->layout = to;
    return tsr__stream_scratch(r->call->stream, (uint64_t)step * tsr_dtype_size(to.dtype),
                               &packed->buffer);
}

static tsr_status pack_a(run *r, bool widen)
{
    tsr__matmul_side *a = &r->problem.a;

    TSR__TRY(pack(r, r->call->a, a, r->problem.m, a->row, a->col, widen, &r->a_source, &r->a));
    a->row = r->a.layout.strides[r->problem.batch_dims];
    a->col = 1;
    return TSR_OK;
}

static tsr_status pack_b(run *r, bool widen)
{
    tsr__matmul_side *b = &r->problem.b;

    TSR__TRY(pack(r, r->call->b, b, r->problem.n, b->col, b->row, widen, &r->b_source, &r->b));
    b->col = r->b.layout.strides[r->problem.batch_dims];
    b->row = 1;
    return TSR_OK;
}

/* Elements to pack at the most where that only saves time: 256 MiB of f32. */
static const uint64_t most_to_save_time = UINT64_C(1) << 26;

/* A b that lies along its rows is multiplied with lanes along n, at half to three quarters of the
 * speed with lanes along k, a fraction of it in few rows or with an a that lies along its columns.
 * Packing and multiplying takes less than that from two rows on. */
static bool should_pack_b(const tsr__matmul_problem *p)
{
    const int64_t few_elements = INT64_C(1) << 14;

    return p->b.row != 1 && p->m > 1 && p->k >= few_elements / p->n &&
           packs_in(p, &p->b, p->n, most_to_save_time) &&
           (p->a.col == 1 || packs_in(p, &p->a, p->m, most_to_save_time));
}

/* Two operands in bf16 with lanes along k are read by words. */
static bool reads_words(const tsr__matmul_problem *p)
{
    return p->a.dtype == TSR_BF16 && p->b.dtype == TSR_BF16 && p->b.row == 1;
}

/* Each element of a is widened once for every tile of columns: once and for all takes less where
 * there are many. Read by words they cost hardly more than f32, unless a can be widened to their
 * order. */
static bool should_widen_a(const run *r)
{
    const int64_t few_rows = 8, many_rows = 128, many_columns = 128;
    const tsr__matmul_problem *p = &r->problem;
    bool deals = p->batch_dims == 0 && p->k % (2 * (int64_t)r->lanes) == 0 && p->m >= many_rows;

    return has_halves(&p->a) && (!reads_words(p) || deals) && p->a.col == 1 && p->m > few_rows &&
           p->n >= many_columns && packs_in(p, &p->a, p->m, most_to_save_time);
}

static tsr_status prepare_operands(run *r)
{
    tsr__matmul_side *a = &r->problem.a, *b = &r->problem.b;
    bool widen = tsr_stream_device(r->call->stream)->storage != TSR__STORAGE_S16;

    r->a = *r->call->a;
    r->b = *r->call->b;
    if (!readable(b) || (widen && has_halves(b)) || should_pack_b(&r->problem))
        TSR__TRY(pack_b(r, widen));
    bool widen_a = widen ? has_halves(a) : should_widen_a(r), words = reads_words(&r->problem);
    /* Rows of a that are not contiguous can be read along columns of b, not along its lines. */
    if (!readable(a) || widen_a || (a->col != 1 && b->row == 1))
        TSR__TRY(pack_a(r, widen_a));
    r->dealt = widen_a && words && tsr__copy_deals(&r->a, &r->a_source);
    return TSR_OK;
}

/* Pieces --------------------------------------------------------------------------------------- */

static bool y_takes_sums(const run *r)
{
    const tsr__matmul_problem *p = &r->problem;

    return r->parts == 1 && tsr__matmul_plain(p) && (p->y.col == 1 || p->n == 1);
}

static uint64_t operand_address(const run *r, const tsr_tensor *tensor,
                                const tsr__matmul_side *side, uint64_t elements)
{
    int64_t batch = tsr__matmul_batch_offset(side, r->problem.batch_dims, r->batch);

    return tsr__matmul_address(tensor, side, batch + (int64_t)elements);
}

/* Elements of a matrix's sums in scratch. */
static uint64_t sums_size(const run *r)
{
    return (uint64_t)(r->parts * r->band * r->problem.n);
}

static tsr_status emit(void *user, const tsr__lavapipe_piece *piece)
{
    run *r = user;
    const tsr__matmul_call *call = r->call;
    const tsr__matmul_problem *p = &r->problem;
    struct tsr_matmul_cpu_push push = {.m = piece->m,
                                       .n = piece->n,
                                       .k = piece->k,
                                       .skip = piece->skip,
                                       .accumulate = piece->accumulate,
                                       .y_part = piece->y_part,
                                       .block = piece->block};
    tsr__dispatch dispatch = {.shader = piece->nn ? TSR__SHADER_MATMUL_LAVAPIPE_NN
                                                  : TSR__SHADER_MATMUL_LAVAPIPE_NT,
                              .spec_count = TSR__LAVAPIPE_CONSTANTS,
                              .push = &push,
                              .push_bytes = sizeof push,
                              .access_count = 3};

    for (int i = 0; i < TSR__LAVAPIPE_CONSTANTS; i++)
        dispatch.spec[i] = piece->constants[i];
    dispatch.spec[TSR__LAVAPIPE_BATCHED] = r->inner >= 0;
    if (!r->record)
        return tsr__stream_prepare(call->stream, &dispatch, 1);

    for (uint32_t i = 0; i < 8; i++)
        push.identity[i] = i;
    if (r->inner >= 0) {
        push.a_batch = (uint32_t)p->a.batch[r->inner];
        push.b_batch = (uint32_t)p->b.batch[r->inner];
        push.y_batch = r->partial ? (uint32_t)sums_size(r) : (uint32_t)p->y.batch[r->inner];
    }
    push.a_stride = (uint32_t)(p->a.col == 1 ? p->a.row : p->a.col);
    push.b_stride = (uint32_t)(p->b.row == 1 ? p->b.col : p->b.row);
    push.y_stride = (uint32_t)(r->partial ? p->n : p->y.row);
    push.a = operand_address(r, &r->a, &p->a, (uint64_t)(r->row * p->a.row) + piece->a);
    push.b = operand_address(r, &r->b, &p->b, piece->b);
    push.y = r->partial
                 ? r->partial->address + piece->y * sizeof(float)
                 : operand_address(r, call->y, &p->y, (uint64_t)(r->row * p->y.row) + piece->y);
    dispatch.groups[0] = piece->groups[0];
    dispatch.groups[1] = piece->groups[1];
    dispatch.groups[2] = r->inner >= 0 ? r->matrices : piece->groups[2];
    dispatch.access[0] = tsr__read_of(&r->a);
    dispatch.access[1] = tsr__read_of(&r->b);
    dispatch.access[2] = r->partial ? tsr__write_buffer(r->partial) : tsr__write_of(call->y);
    return tsr__stream_dispatch(call->stream, &dispatch);
}

/* Whether every row of the sums starts at a multiple of 8 bytes. */
static bool y_is_paired(const run *r)
{
    const tsr__matmul_problem *p = &r->problem;
    int64_t elements = p->y.row;

    if (r->partial)
        return p->n % 2 == 0;
    for (int i = 0; i < p->batch_dims; i++)
        elements |= p->y.batch[i];
    return elements % 2 == 0 && tsr__matmul_address(r->call->y, &p->y, 0) % 8 == 0;
}

static tsr__lavapipe_product product_of(const run *r, int64_t rows)
{
    const tsr__matmul_problem *p = &r->problem;

    return (tsr__lavapipe_product){
        .form = p->b.row == 1   ? TSR__LAVAPIPE_NT
                : p->a.col == 1 ? TSR__LAVAPIPE_NN
                                : TSR__LAVAPIPE_TN,
        .m = (uint32_t)rows,
        .n = (uint32_t)p->n,
        .k = (uint32_t)p->k,
        .lanes = r->lanes,
        .a_stride = (uint64_t)(p->a.col == 1 ? p->a.row : p->a.col),
        .b_stride = (uint64_t)(p->b.row == 1 ? p->b.col : p->b.row),
        .y_stride = (uint64_t)(r->partial ? p->n : p->y.row),
        .a_dtype = p->a.dtype,
        .b_dtype = p->b.dtype,
        .accumulate = p->accumulate && !r->partial,
        .a_dealt = r->dealt,
        .batched = r->inner >= 0,
        .y_paired = y_is_paired(r),
        .parts = r->parts,
    };
}

/* `rows` rows of one matrix, from r->row on. */
static tsr_status record_band(run *r, int64_t rows)
{
    const tsr__matmul_problem *p = &r->problem;
    tsr__lavapipe_product product = product_of(r, rows);

    TSR__TRY(tsr__lavapipe_plan(&product, emit, r));
    if (!r->partial)
        return TSR_OK;

    const tsr__matmul_call *call = r->call;
    int64_t y = tsr__matmul_batch_offset(&p->y, p->batch_dims, r->batch) + r->row * p->y.row;
    int64_t bias =
        tsr__matmul_batch_offset(&p->bias, p->batch_dims, r->batch) + r->row * p->bias.row;
    struct tsr_matmul_push push = {
        .y = tsr__matmul_address(call->y, &p->y, y),
        .bias = call->bias ? tsr__matmul_address(call->bias, &p->bias, bias) : 0};
    tsr__lavapipe_sums sums = {.partial = r->partial,
                               .matrices = r->matrices,
                               .parts = r->parts,
                               .rows = (uint32_t)rows,
                               .y = push.y,
                               .bias = push.bias,
                               .y_batch = r->inner >= 0 ? (uint32_t)p->y.batch[r->inner] : 0,
                               .bias_batch = r->inner >= 0 ? (uint32_t)p->bias.batch[r->inner] : 0,
                               .batched = r->inner >= 0};
    if (tsr__lavapipe_finishes(call))
        return tsr__lavapipe_finish(call, &sums, r->record);
    tsr__matmul_epilogue(p, &push);
    push.m = (uint32_t)rows;
    push.batch_inner = r->matrices;
    push.y_inner = sums.y_batch;
    push.bias_inner = sums.bias_batch;
    return tsr__matmul_finish(call, r->partial, r->parts, r->matrices, &push, r->record);
}

static tsr_status record_matrices(run *r)
{
    int64_t rows;

    for (r->row = 0; r->row < r->problem.m; r->row += rows) {
        rows = r->band < r->problem.m - r->row ? r->band : r->problem.m - r->row;
        TSR__TRY(record_band(r, rows));
    }
    return TSR_OK;
}

static tsr_status walk(run *r, bool record)
{
    const tsr__matmul_problem *p = &r->problem;
    int64_t index[TSR__MATMUL_BATCH] = {0};
    int looped = r->inner >= 0 ? r->inner : p->batch_dims;
    uint32_t inner_size = r->inner >= 0 ? (uint32_t)p->batch[r->inner] : 1;

    r->record = record;
    r->batch = index;
    do {
        for (uint32_t first = 0; first < inner_size; first += r->matrices) {
            r->matrices = tsr__min_u32(r->at_once, inner_size - first);
            if (r->inner >= 0)
                index[r->inner] = first;
            TSR__TRY(record_matrices(r));
            if (!record)
                return TSR_OK;
        }
    } while (tsr__matmul_next_batch(p, looped, index));
    return TSR_OK;
}

/* Small matrices share dispatches, which each cost as much as a product of some million. Larger
 * ones do not: their sums would leave the caches between two stretches of k. */
static void choose_inner(run *r)
{
    const int64_t large = 1 << 24;
    const tsr__matmul_problem *p = &r->problem;
    int last = p->batch_dims - 1;
    uint64_t most = TSR_MATMUL_CPU_GROUPS;

    if (last < 0 || r->band < p->m || p->batch[last] < 2 || p->batch[last] > INT32_MAX ||
        p->m > large / p->n / p->k)
        return;
    if (!narrow(p->a.batch[last]) || !narrow(p->b.batch[last]) || !narrow(p->y.batch[last]) ||
        !narrow(p->bias.batch[last]))
        return;
    r->inner = last;
    if (!y_takes_sums(r))
        most = tsr__min_u64(most, PARTIAL_BYTES / sizeof(float) / sums_size(r) + 1);
    r->at_once = (uint32_t)tsr__min_u64(most, (uint64_t)p->batch[last]);
}

/* Rows at a time whose sums scratch holds, of one matrix. */
static int64_t choose_band(const tsr__matmul_problem *p)
{
    const int64_t fewest_rows = 512, most = INT64_C(1) << 31; /* what the epilogue can count */
    int64_t band = PARTIAL_BYTES / (p->n * (int64_t)sizeof(float));

    band = band > fewest_rows ? band : fewest_rows;
    band = band < most / p->n ? band : most / p->n;
    return band < p->m ? band : p->m;
}

tsr_status tsr__matmul_run_lavapipe(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    run r = {.call = call,
             .problem = *call->problem,
             .band = call->problem->m,
             .inner = -1,
             .at_once = 1};

    (void)plan;
    r.lanes = tsr_stream_device(call->stream)->info.subgroup_size;
    TSR__TRY(prepare_operands(&r));
    tsr__lavapipe_product all = product_of(&r, r.band);
    r.parts = tsr__lavapipe_parts(&all);
    if (!y_takes_sums(&r))
        r.band = choose_band(&r.problem);
    choose_inner(&r);
    if (!y_takes_sums(&r))
        TSR__TRY(tsr__stream_scratch(call->stream, r.at_once * sums_size(&r) * sizeof(float),
                                     &r.partial));
    TSR__TRY(walk(&r, false));
    if (r.dealt)
        TSR__TRY(tsr__copy_dealt(call->stream, &r.a, &r.a_source));
    else if (r.a_source.layout.ndim > 0)
        TSR__TRY(tsr_copy(call->stream, &r.a, &r.a_source));
    if (r.b_source.layout.ndim > 0)
        TSR__TRY(tsr_copy(call->stream, &r.b, &r.b_source));
    return walk(&r, true);
}
