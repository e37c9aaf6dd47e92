/* Products on Mesa's lavapipe. Its straight-line kernels can read only some layouts directly;
 * operands with other layouts are packed first. They can also store only some results directly;
 * other results are first stored as f32 sums in scratch memory, and finish.c applies the
 * epilogue. */
#include "base/checked.h"
#include "gpu/cpu_drivers/matmul/families.h"
#include "gpu/cpu_drivers/matmul/finish.h"
#include "gpu/cpu_drivers/matmul/operands.h"
#include "gpu/cpu_drivers/matmul/panels.h"
#include "gpu/cpu_drivers/matmul/plan.h"
#include "gpu/device/mesa.h"
#include "shaders/params/matmul.h"
#include "shaders/params/matmul_cpu.h"

/* The size in bytes to which the sums in scratch memory are limited. The sums of a band with the
 * minimum number of rows may be larger. */
#define PARTIAL_BYTES (INT64_C(32) << 20)

static bool runs(const tsr__matmul_config *config, const tsr__matmul_device *device)
{
    (void)config;
    return device->traits.device_class == TSR__CLASS_LAVAPIPE && device->int64 &&
           (device->subgroup_size == 4 || device->subgroup_size == 8 ||
            device->subgroup_size == 16);
}

static bool fits(const tsr__matmul_config *config, const tsr__matmul_device *device,
                 const tsr__matmul_problem *p)
{
    (void)config;
    (void)device;
    return p->k > 0 && p->n <= INT64_C(1) << 27 && tsr__lavapipe_narrow(p->y.row) &&
           tsr__lavapipe_narrow(p->y.col) && tsr__lavapipe_narrow(p->bias.row) &&
           tsr__lavapipe_narrow(p->bias.col) && tsr__lavapipe_operands_fit(p);
}

/* A product being recorded. */
typedef struct product_run {
    const tsr__matmul_call *call;
    tsr__lavapipe_operands operands;
    tsr__buffer *partial; /* f32 sums of a band of rows; NULL if y itself holds the sums */
    /* the epilogue (TSR_MM_…) that the product's own kernel applies; 0: none */
    uint32_t finish;
    /* True if `finish` is set and one dispatch covers all of k. `partial` is then one row, whose
     * contents are unused. */
    bool once;
    int64_t band; /* the number of rows that are computed at a time */
    uint32_t lanes;
    tsr__lavapipe_method method;
    const int64_t *batch; /* the current batch index */
    int64_t row;          /* the first row of the current band */
    int inner; /* the batch dimension of which one dispatch computes several matrices; −1: none */
    uint32_t at_once;     /* the largest number of matrices in a dispatch */
    uint32_t matrices;    /* the number of matrices in the current dispatch */
    double multiply_adds; /* those of a band, for its first dispatch; then 0 */
} product_run;

/* True if the kernel can add its sums to y in place. */
static bool y_takes_sums(const product_run *r)
{
    const tsr__matmul_problem *p = &r->operands.problem;

    return r->method.splits == 1 && tsr__matmul_plain(p) && (p->y.col == 1 || p->n == 1);
}

/* True if the bias has one element for each column, that is, if all rows of all matrices use the
 * same contiguous row. */
static bool bias_is_of_columns(const tsr__matmul_problem *p)
{
    int64_t steps = p->bias.row;

    for (int i = 0; i < p->batch_dims; i++)
        steps |= p->bias.batch[i];
    return steps == 0 && p->bias.col == 1;
}

/* True if the kernels can read the bias of each element of y: there is one matrix, whose rows are
 * contiguous. */
static bool bias_is_a_matrix(const tsr__matmul_problem *p)
{
    return p->batch_dims == 0 && p->bias.col == 1;
}

/* Returns the epilogue (TSR_MM_…) that the kernel for the last range of k should apply itself, or
 * 0. It converts to y's dtype, adds a bias and applies an activation. If k is divided into few
 * ranges, this is better than the separate dispatch of finish.c, although it needs its own
 * pipeline. */
static uint32_t finish_mode(const product_run *r)
{
    const int64_t long_k = 2048;
    const tsr__matmul_problem *p = &r->operands.problem;
    bool can = (p->b.row == 1 || tsr__lavapipe_suits_lanes_along_n(p, r->lanes)) &&
               r->method.splits == 1 && p->y.col == 1 && p->alpha == 1 && !p->accumulate &&
               (!p->has_bias || bias_is_of_columns(p) || bias_is_a_matrix(p)) &&
               tsr__lavapipe_finishes(r->call);
    const bool rows = p->has_bias && !bias_is_of_columns(p);

    return can && !tsr__matmul_plain(p) && p->k <= long_k
               ? tsr__matmul_mode(p) | (rows ? TSR_MM_BIAS_ROWS : 0) |
                     (r->call->times ? TSR_MM_TIMES : 0) | (r->call->slope ? TSR_MM_SLOPE : 0)
               : 0;
}

/* True if the kernel itself can multiply by call->times or store a second result, call->slope: only
 * the kernel with lanes along n that covers all of k does. */
static bool fuses(const tsr__matmul_call *call)
{
    const tsr__matmul_problem *p = call->problem;
    const uint32_t lanes = tsr_stream_device(call->stream)->info.subgroup_size;

    return p->batch_dims == 0 && p->y.col == 1 && p->y.dtype == TSR_F32 && p->alpha == 1 &&
           !p->accumulate && tsr__lavapipe_suits_lanes_along_n(p, lanes) &&
           (call->times ? p->has_bias && bias_is_a_matrix(p) && !bias_is_of_columns(p)
                        : !p->has_bias || bias_is_of_columns(p)) &&
           tsr__lavapipe_finishes(call);
}

/* True if the sums of a band of rows are kept in scratch memory. */
static bool keeps_sums(const product_run *r)
{
    if (r->finish != 0)
        return !r->once && r->operands.problem.y.dtype != TSR_F32;
    return !y_takes_sums(r);
}

static uint64_t operand_address(const product_run *r, const tsr_tensor *tensor,
                                const tsr__matmul_side *side, uint64_t elements)
{
    int64_t batch = tsr__matmul_batch_offset(side, r->operands.problem.batch_dims, r->batch);

    return tsr__matmul_address(tensor, side, batch + (int64_t)elements);
}

/* The address in call->slope at which the results of a dispatch start. slope has the strides of
 * y. */
static uint64_t slope_address(const product_run *r, const tsr__lavapipe_piece *piece)
{
    tsr__matmul_side slope = r->operands.problem.y;

    slope.offset = r->call->slope->layout.offset;
    return operand_address(r, r->call->slope, &slope, (uint64_t)(r->row * slope.row) + piece->y);
}

/* The number of elements of one matrix's sums in scratch memory. */
static uint64_t sums_size(const product_run *r)
{
    return r->once ? 0 : (uint64_t)(r->method.splits * r->band * r->operands.problem.n);
}

static uint64_t sums_stride(const product_run *r)
{
    return r->once ? 0 : (uint64_t)(r->partial ? r->operands.problem.n : r->operands.problem.y.row);
}

static tsr__shader shader_of(const tsr__lavapipe_piece *piece)
{
    bool finishes = piece->constants[TSR__LAVAPIPE_FINISH] != 0;

    if (piece->nn)
        return finishes ? TSR__SHADER_MATMUL_LAVAPIPE_NN_FINISH : TSR__SHADER_MATMUL_LAVAPIPE_NN;
    return finishes ? TSR__SHADER_MATMUL_LAVAPIPE_NT_FINISH : TSR__SHADER_MATMUL_LAVAPIPE_NT;
}

static tsr_status emit(void *user, const tsr__lavapipe_piece *piece)
{
    product_run *r = user;
    const tsr__matmul_call *call = r->call;
    const tsr__matmul_problem *p = &r->operands.problem;
    struct tsr_matmul_cpu_push push = {.m = piece->m,
                                       .n = piece->n,
                                       .k = piece->k,
                                       .skip = piece->skip,
                                       .accumulate = piece->accumulate,
                                       .block = piece->block};
    tsr__dispatch dispatch = {.shader = shader_of(piece),
                              .spec_count = TSR__LAVAPIPE_CONSTANTS,
                              .push = &push,
                              .push_bytes = sizeof push,
                              .multiply_adds = r->multiply_adds,
                              .access_count = 3};

    r->multiply_adds = 0;
    for (int i = 0; i < TSR__LAVAPIPE_CONSTANTS; i++)
        dispatch.spec[i] = piece->constants[i];
    dispatch.spec[TSR__LAVAPIPE_BATCHED] = r->inner >= 0;
    for (uint32_t i = 0; i < 8; i++)
        push.identity[i] = i;
    if (r->inner >= 0) {
        push.a_batch = (uint32_t)p->a.batch[r->inner];
        push.b_batch = (uint32_t)p->b.batch[r->inner];
        push.sums_batch = r->partial ? (uint32_t)sums_size(r) : (uint32_t)p->y.batch[r->inner];
        push.y_batch = (uint32_t)p->y.batch[r->inner];
    }
    push.a_stride = (uint32_t)(p->a.col == 1 ? p->a.row : p->a.col);
    push.b_stride = (uint32_t)(p->b.row == 1 ? p->b.col : p->b.row);
    push.sums_stride = (uint32_t)sums_stride(r);
    push.y_stride = (uint32_t)p->y.row;
    push.a = operand_address(r, &r->operands.a, &p->a, (uint64_t)(r->row * p->a.row) + piece->a);
    push.b = operand_address(r, &r->operands.b, &p->b, piece->b);
    push.sums = call->slope  ? slope_address(r, piece)
                : r->partial ? r->partial->address + piece->sums * sizeof(float)
                             : operand_address(r, call->y, &p->y,
                                               (uint64_t)(r->row * p->y.row) + piece->sums);
    dispatch.groups[0] = piece->groups[0];
    dispatch.groups[1] = piece->groups[1];
    dispatch.groups[2] = r->inner >= 0 ? r->matrices : piece->groups[2];
    dispatch.access[0] = tsr__read_of(&r->operands.a);
    dispatch.access[1] = tsr__read_of(&r->operands.b);
    dispatch.access[2] = call->slope  ? tsr__write_of(call->slope)
                         : r->partial ? tsr__write_buffer(r->partial)
                                      : tsr__write_of(call->y);
    if (piece->constants[TSR__LAVAPIPE_FINISH] != 0) {
        push.y = operand_address(r, call->y, &p->y, (uint64_t)(r->row * p->y.row) + piece->y);
        if (r->partial)
            dispatch.access[dispatch.access_count++] = tsr__write_of(call->y);
        if (call->bias) {
            const uint64_t row = (uint64_t)r->row + piece->row;
            push.bias = operand_address(r, call->bias, &p->bias,
                                        row * (uint64_t)p->bias.row + piece->column);
            if ((r->finish & TSR_MM_BIAS_ROWS) != 0)
                push.sums_batch = (uint32_t)p->bias.row;
            dispatch.access[dispatch.access_count++] = tsr__read_of(call->bias);
        }
    }
    return tsr__stream_dispatch(call->stream, &dispatch);
}

/* True if every row of y, and every group of columns that are stored at once, starts at a multiple
 * of 8 bytes. */
static bool y_is_paired(const product_run *r)
{
    const tsr__matmul_problem *p = &r->operands.problem;
    int64_t elements = p->y.row, vector = (int64_t)(8 / tsr_dtype_size(p->y.dtype));

    for (int i = 0; i < p->batch_dims; i++)
        elements |= p->y.batch[i];
    return elements % vector == 0 && tsr__matmul_address(r->call->y, &p->y, 0) % 8 == 0;
}

/* True if every row of the sums, in scratch memory or in y, starts at a multiple of 8 bytes. */
static bool sums_are_paired(const product_run *r)
{
    return r->partial ? r->operands.problem.n % 2 == 0 : y_is_paired(r);
}

static tsr__lavapipe_product product_of(const product_run *r, int64_t rows)
{
    const tsr__matmul_problem *p = &r->operands.problem;
    const tsr_device *device = tsr_stream_device(r->call->stream);

    return (tsr__lavapipe_product){
        .form = p->b.row == 1   ? TSR__LAVAPIPE_NT
                : p->a.col == 1 ? TSR__LAVAPIPE_NN
                                : TSR__LAVAPIPE_TN,
        .m = (uint32_t)rows,
        .all_rows = (uint32_t)p->m,
        .n = (uint32_t)p->n,
        .k = (uint32_t)p->k,
        .lanes = r->lanes,
        .a_stride = (uint64_t)(p->a.col == 1 ? p->a.row : p->a.col),
        .b_stride = (uint64_t)(p->b.row == 1 ? p->b.col : p->b.row),
        .sums_stride = sums_stride(r),
        .y_stride = (uint64_t)p->y.row,
        .a_dtype = p->a.dtype,
        .b_dtype = p->b.dtype,
        .accumulate = p->accumulate && !r->partial,
        .batched = r->inner >= 0,
        .alone = p->batch_dims == 0,
        .sums_paired = sums_are_paired(r),
        .y_paired = y_is_paired(r),
        .finish = r->finish,
        .long_code = device->long_code,
        .phases = tsr__mesa_takes_phases(device->info.driver_info),
        .panels = r->operands.panels,
        .a_lines = tsr__lavapipe_panel_lines((uint32_t)p->m),
        .b_lines = tsr__lavapipe_panel_lines((uint32_t)p->n),
        .first_row = (uint32_t)r->row,
        .method = r->method,
    };
}

/* Records the computation of `rows` rows of one matrix, starting with row r->row. */
static tsr_status record_band(product_run *r, int64_t rows)
{
    const tsr__matmul_problem *p = &r->operands.problem;
    tsr__lavapipe_product product = product_of(r, rows);

    r->multiply_adds = tsr__matmul_row_work(p) * (double)rows * r->matrices;
    TSR__TRY(tsr__lavapipe_plan(&product, emit, r));
    if (!r->partial || r->finish != 0)
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
                               .splits = r->method.splits,
                               .rows = (uint32_t)rows,
                               .y = push.y,
                               .bias = push.bias,
                               .y_batch = r->inner >= 0 ? (uint32_t)p->y.batch[r->inner] : 0,
                               .bias_batch = r->inner >= 0 ? (uint32_t)p->bias.batch[r->inner] : 0,
                               .batched = r->inner >= 0};
    if (tsr__lavapipe_finishes(call))
        return tsr__lavapipe_finish(call, &sums);
    tsr__matmul_epilogue(p, &push);
    push.m = (uint32_t)rows;
    push.batch_inner = r->matrices;
    push.y_inner = sums.y_batch;
    push.bias_inner = sums.bias_batch;
    return tsr__matmul_finish(call, r->partial, r->method.splits, r->matrices, &push);
}

static tsr_status record_matrices(product_run *r)
{
    int64_t rows;

    for (r->row = 0; r->row < r->operands.problem.m; r->row += rows) {
        rows = r->band < r->operands.problem.m - r->row ? r->band : r->operands.problem.m - r->row;
        TSR__TRY(record_band(r, rows));
    }
    return TSR_OK;
}

static tsr_status walk(tsr_stream *stream, void *work)
{
    product_run *r = work;
    const tsr__matmul_problem *p = &r->operands.problem;
    int64_t index[TSR__MATMUL_BATCH] = {0};
    int looped = r->inner >= 0 ? r->inner : p->batch_dims;
    uint32_t inner_size = r->inner >= 0 ? (uint32_t)p->batch[r->inner] : 1;

    r->batch = index;
    do {
        for (uint32_t first = 0; first < inner_size; first += r->matrices) {
            r->matrices = tsr__min_u32(r->at_once, inner_size - first);
            if (r->inner >= 0)
                index[r->inner] = first;
            TSR__TRY(record_matrices(r));
            if (tsr__stream_in_preflight(stream)) /* all matrices use the same pipelines */
                return TSR_OK;
        }
    } while (tsr__matmul_next_batch(p, looped, index));
    return TSR_OK;
}

/* Chooses whether a dispatch computes several matrices. Small matrices share dispatches, because
 * each dispatch costs as much as a few million products. Large matrices do not, because their
 * sums would leave the caches between the dispatches for two ranges of k. */
static void choose_inner(product_run *r)
{
    const int64_t large = 1 << 24;
    const tsr__matmul_problem *p = &r->operands.problem;
    int last = p->batch_dims - 1;
    uint64_t most = TSR_MATMUL_CPU_GROUPS;

    if (last < 0 || r->band < p->m || p->batch[last] < 2 || p->batch[last] > INT32_MAX ||
        p->m > large / p->n / p->k)
        return;
    if (!tsr__lavapipe_narrow(p->a.batch[last]) || !tsr__lavapipe_narrow(p->b.batch[last]) ||
        !tsr__lavapipe_narrow(p->y.batch[last]) || !tsr__lavapipe_narrow(p->bias.batch[last]))
        return;
    r->inner = last;
    if (keeps_sums(r))
        most = tsr__min_u64(most, PARTIAL_BYTES / sizeof(float) / sums_size(r) + 1);
    r->at_once = (uint32_t)tsr__min_u64(most, (uint64_t)p->batch[last]);
}

/* The number of rows in a band. The sums of one band are in scratch memory at a time. */
static int64_t choose_band(const tsr__matmul_problem *p)
{
    const int64_t min_rows = 512, most = INT64_C(1) << 26; /* `most` counts elements */
    int64_t band = PARTIAL_BYTES / (p->n * (int64_t)sizeof(float));

    band = band > min_rows ? band : min_rows;
    band = band < most / p->n ? band : most / p->n;
    if (band > TSR__LAVAPIPE_PANEL_LINES) /* every band starts with the first line of a panel */
        band -= band % TSR__LAVAPIPE_PANEL_LINES;
    band = band > 0 ? band : 1;
    return band < p->m ? band : p->m;
}

static tsr_status run(const tsr__matmul_call *call, const tsr__matmul_plan *plan)
{
    product_run r = {.call = call, .band = call->problem->m, .inner = -1, .at_once = 1};

    (void)plan;
    r.lanes = tsr_stream_device(call->stream)->info.subgroup_size;
    TSR__TRY(tsr__lavapipe_operands_prepare(call, &r.operands));
    tsr__lavapipe_product all = product_of(&r, r.band);
    r.method = all.method = tsr__lavapipe_resolve(&all);
    r.finish = finish_mode(&r);
    r.once = r.finish != 0 && tsr__lavapipe_once(&all);
    if (keeps_sums(&r))
        r.band = choose_band(&r.operands.problem);
    choose_inner(&r);
    uint64_t sums = r.once           ? (uint64_t)r.operands.problem.n
                    : keeps_sums(&r) ? r.at_once * sums_size(&r)
                                     : 0;
    if (sums > 0)
        TSR__TRY(tsr__stream_scratch(call->stream, sums * sizeof(float), &r.partial));
    TSR__TRY(tsr__lavapipe_operands_pack(call, &r.operands));
    return tsr__stream_atomic(call->stream, walk, &r);
}

/* This family divides k itself and chooses the pipelines while it records. */
const tsr__matmul_family tsr__matmul_lavapipe = {
    .runs = runs, .fits = fits, .run = run, .fuses = fuses};
