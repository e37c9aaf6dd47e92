/* Chooses the form of each operand, and packs operands. A line is a row of a or a column of b.
 * Packing makes the elements of each line contiguous, and widening converts them to f32. Lanes are
 * placed along k or along n, and a stretch is a range of k that one dispatch computes (plan.h).
 *
 * The first line that holds says how a product is computed; the functions name the limits. plan.c
 * then chooses tiles and stretches, from sizes only.
 *
 *   condition                              lanes   operands
 *   less than 1024 multiply-adds, unless   -       computed by the kernels for GPUs (configs.c)
 *     f32 without an epilogue
 *   many rows and columns, and the host    k       both in panels of f32, which the host packs
 *     may read both (should_make_panels)
 *   k is 32, 64, 96 or 128, and many       n       b packed unless it is row-major; a widened if
 *     rows (suits_lanes_along_n)                   it is 16-bit and there are many columns
 *   b is [n,k], or packing it pays         k       b packed if it is row-major, or widened
 *     (should_pack_b)                              (should_widen_b); a packed if its rows are not
 *                                                  contiguous or collide in a cache, or widened
 *   all others: few rows, or a short k     n       as they are
 *
 * Operands without a stride of 1 are always packed, and 16-bit operands always widened on devices
 * without 16-bit storage. */
#include "gpu/cpu_drivers/matmul/operands.h"

#include "base/checked.h"
#include "gpu/cpu_drivers/matmul/host_panels.h"
#include "tessera/ops.h"

bool tsr__lavapipe_narrow(int64_t stride)
{
    return stride <= (int64_t)UINT32_MAX;
}

/* The number of elements from one packed line to the next. In f32 this is an odd number of cache
 * lines, so that the lines of a tile do not all map to the same few sets of a cache. */
static uint64_t packed_stride(int64_t length)
{
    const uint32_t line_elements = 16;

    return tsr__align_up_u64((uint64_t)length, line_elements) | line_elements;
}

/* True if packed copies of an operand's matrices would have at most `most` elements in total.
 * Matrices that are repeated along a batch dimension count once. */
static bool packs_in(const tsr__matmul_problem *p, const tsr__matmul_side *side, int64_t lines,
                     uint64_t most)
{
    uint64_t elements = packed_stride(p->k);

    for (int i = 0; i < p->batch_dims; i++)
        if (side->batch[i] > 0 && !tsr__mul_u64(elements, (uint64_t)p->batch[i], &elements))
            return false;
    return tsr__mul_u64(elements, (uint64_t)lines, &elements) && elements <= most;
}

/* True if an operand is small enough to be packed. Operands that the kernels cannot read directly
 * must be packed. */
static bool packable(const tsr__matmul_problem *p, const tsr__matmul_side *side, int64_t lines)
{
    return packs_in(p, side, lines, UINT64_C(1) << 28);
}

/* True if one of the strides is 1 and the other fits 32 bits. */
static bool readable(const tsr__matmul_side *side)
{
    return (side->row == 1 && tsr__lavapipe_narrow(side->col)) ||
           (side->col == 1 && tsr__lavapipe_narrow(side->row));
}

bool tsr__lavapipe_operands_fit(const tsr__matmul_problem *p)
{
    return (readable(&p->a) || packable(p, &p->a, p->m)) &&
           (readable(&p->b) || packable(p, &p->b, p->n));
}

static bool is_16_bit(const tsr__matmul_side *side)
{
    return side->dtype != TSR_F32;
}

/* Reserves scratch memory for a packed copy of an operand: `lines` lines of `length` elements each,
 * row-major. Also describes the copy's source. `line` and `along` point to the operand's strides
 * between lines and in a line, and get those of the copy. Matrices that are repeated along a batch
 * dimension are packed once. */
static tsr_status pack(const tsr__matmul_call *call, tsr__lavapipe_operands *o,
                       const tsr_tensor *tensor, tsr__matmul_side *side, int64_t lines,
                       int64_t *line, int64_t length, int64_t *along, bool widen,
                       tsr_tensor *source, tsr_tensor *packed)
{
    const tsr__matmul_problem *p = &o->problem;
    tsr_layout from = {.dtype = side->dtype, .ndim = p->batch_dims + 2, .offset = side->offset};
    int64_t step = (int64_t)packed_stride(length);

    for (int i = 0; i < p->batch_dims; i++) {
        from.shape[i] = side->batch[i] > 0 ? p->batch[i] : 1;
        from.strides[i] = side->batch[i];
    }
    from.shape[p->batch_dims] = lines;
    from.strides[p->batch_dims] = *line;
    from.shape[p->batch_dims + 1] = length;
    from.strides[p->batch_dims + 1] = *along;

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
    *line = to.strides[p->batch_dims];
    *along = 1;

    *source = tsr__tensor_alias(tensor, &from);
    packed->layout = to;
    return tsr__stream_scratch(call->stream, (uint64_t)step * tsr_dtype_size(to.dtype),
                               &packed->buffer);
}

static tsr_status pack_a(const tsr__matmul_call *call, tsr__lavapipe_operands *o, bool widen)
{
    tsr__matmul_side *a = &o->problem.a;
    return pack(call, o, call->a, a, o->problem.m, &a->row, o->problem.k, &a->col, widen,
                &o->a_source, &o->a);
}

static tsr_status pack_b(const tsr__matmul_call *call, tsr__lavapipe_operands *o, bool widen)
{
    tsr__matmul_side *b = &o->problem.b;
    return pack(call, o, call->b, b, o->problem.n, &b->col, o->problem.k, &b->row, widen,
                &o->b_source, &o->b);
}

/* Packs b in lines along n instead of lines along k. */
static tsr_status pack_b_along_n(const tsr__matmul_call *call, tsr__lavapipe_operands *o,
                                 bool widen)
{
    tsr__matmul_side *b = &o->problem.b;
    return pack(call, o, call->b, b, o->problem.k, &b->row, o->problem.n, &b->col, widen,
                &o->b_source, &o->b);
}

/* The largest number of elements of a copy that is made only to save time: 256 MiB of f32. */
static const uint64_t most_to_save_time = UINT64_C(1) << 26;

/* Whether to pack a row-major b. Without packing, the kernels with lanes along n multiply it. They
 * have half to three quarters of the speed of the kernels with lanes along k, and less with few
 * rows or a column-major a. They also need a dispatch for every 32 elements of k, whereas packing
 * and multiplying take only a few dispatches in total. If a has one row and b is larger, b is not
 * packed, and k is split instead. */
static bool should_pack_b(const tsr__matmul_problem *p)
{
    const int64_t few_elements = INT64_C(1) << 14, small = INT64_C(1) << 16, long_k = 128;
    bool pays = p->m > 1 ? p->k > long_k || p->k >= few_elements / p->n
                         : p->k > long_k && p->k < small / p->n;

    return p->b.row != 1 && pays && packs_in(p, &p->b, p->n, most_to_save_time) &&
           (p->a.col == 1 || packs_in(p, &p->a, p->m, most_to_save_time));
}

/* With lanes along k, a tile whose k is short takes most of its time before its first product and
 * after its last one. A tile with lanes along n has at least four times as many products. */
bool tsr__lavapipe_suits_lanes_along_n(const tsr__matmul_problem *p, uint32_t lanes)
{
    const int64_t few_rows = 8, many_rows = 48, tile_columns = 4 * (int64_t)lanes;
    /* A b that is not row-major is transposed first, which pays only with more rows. */
    const int64_t enough_rows = p->b.col == 1 ? few_rows : many_rows;

    return tsr__lavapipe_is_short(p->k) && p->m > enough_rows && p->n >= tile_columns &&
           (!p->accumulate || p->n % tile_columns == 0) &&
           packs_in(p, &p->b, p->n, most_to_save_time);
}

/* Whether a copy of a saves more time than making it takes. Each element of a is read once for
 * every tile of columns, so a copy pays if there are many columns. */
static bool repacking_a_pays(const tsr__matmul_problem *p)
{
    const int64_t few_rows = 8, many_columns = 512;

    return p->a.col == 1 && p->m > few_rows && p->n >= many_columns &&
           packs_in(p, &p->a, p->m, most_to_save_time);
}

static bool widening_a_pays(const tsr__matmul_problem *p)
{
    return is_16_bit(&p->a) && repacking_a_pays(p);
}

/* The smallest number of rows for which widening b saves time, if a is f32 or is widened, too. */
static int64_t many_rows(const tsr__matmul_problem *p)
{
    /* The kernel takes two operations to widen bf16, more than for f16. */
    return p->b.dtype == TSR_BF16 ? 256 : 512;
}

/* Whether to widen b. Each element of b is read once for every tile of rows, so this pays if there
 * are many rows, but not with long_code (plan.h), whose tiles have more rows. b must not need
 * packing, because no kernel packs and widens at the same time. */
static bool should_widen_b(const tsr__matmul_call *call)
{
    const tsr__matmul_problem *p = call->problem;

    return is_16_bit(&p->b) && !tsr__lavapipe_reads_words(p) && p->m >= many_rows(p) &&
           p->b.row == 1 && (!is_16_bit(&p->a) || widening_a_pays(p)) &&
           !tsr__lavapipe_panels_product(call).method.long_code &&
           packs_in(p, &p->b, p->n, most_to_save_time);
}

static bool should_widen_a(const tsr__matmul_problem *p)
{
    return widening_a_pays(p) && !tsr__lavapipe_reads_words(p);
}

/* True if the rows of a start in the same few sets of a first-level cache, so that they evict each
 * other. */
static bool rows_collide(const tsr__matmul_problem *p)
{
    const uint64_t way_bytes = 4096;
    const int64_t large = INT64_C(1) << 24;
    const uint64_t step = (uint64_t)p->a.row * tsr_dtype_size(p->a.dtype);

    return p->b.row == 1 && step > 0 && step % way_bytes == 0 && p->k >= large / p->n / p->m &&
           repacking_a_pays(p);
}

/* True if the host should pack both operands into panels (panels.h). The kernels read panels a
 * fifth faster than lines, but only slightly faster if the operands are f32 and one dispatch covers
 * all of k. Packing takes as much time as panels save in about a hundred rows. Fewer rows are
 * enough if b has to be packed anyway. Products with long_code (plan.h) are as fast without
 * panels. */
static bool should_make_panels(const tsr__matmul_call *call)
{
    const int64_t many_lines = 128;
    const tsr__matmul_problem *p = call->problem;
    const tsr__lavapipe_product product = tsr__lavapipe_panels_product(call);
    const bool any_16_bit = is_16_bit(&p->a) || is_16_bit(&p->b);
    const bool packs = should_pack_b(p);
    bool pays = p->m >= (packs ? 1 : many_lines) && p->n >= many_lines &&
                (any_16_bit || !tsr__lavapipe_once(&product)) &&
                (packs || !product.method.long_code);

    return pays && tsr__lavapipe_takes_panels(&product) && readable(&p->a) && readable(&p->b) &&
           packs_in(p, &p->a, p->m, most_to_save_time) &&
           packs_in(p, &p->b, p->n, most_to_save_time) && tsr__lavapipe_host_may_pack(call);
}

tsr_status tsr__lavapipe_operands_prepare(const tsr__matmul_call *call, tsr__lavapipe_operands *o)
{
    tsr__matmul_side *a = &o->problem.a, *b = &o->problem.b;
    const tsr__lavapipe_operands as_they_are = {
        .problem = *call->problem, .a = *call->a, .b = *call->b};
    const tsr_device *device = tsr_stream_device(call->stream);
    bool native = device->storage == TSR__STORAGE_S16;

    *o = as_they_are;
    if (should_make_panels(call)) {
        TSR__TRY(tsr__lavapipe_reserve_panels(call, &o->problem, &o->a, &o->b, &o->panels));
        if (o->panels)
            return TSR_OK;
        *o = as_they_are;
    }
    if (tsr__lavapipe_suits_lanes_along_n(&o->problem, device->info.subgroup_size)) {
        const bool widen = !native && is_16_bit(b);
        if (b->col != 1 || widen)
            TSR__TRY(pack_b_along_n(call, o, widen));
        const bool widen_a = is_16_bit(a) && (!native || repacking_a_pays(&o->problem));
        if (!readable(a) || widen_a)
            TSR__TRY(pack_a(call, o, widen_a));
        return TSR_OK;
    }
    bool widen_b = native ? should_widen_b(call) : is_16_bit(b);
    bool widen_a = native ? should_widen_a(&o->problem) : is_16_bit(a);
    if (!readable(b) || widen_b || should_pack_b(&o->problem))
        TSR__TRY(pack_b(call, o, widen_b));
    /* The kernels with lanes along k need contiguous rows of a; those with lanes along n do not. */
    if (!readable(a) || widen_a || (a->col != 1 && b->row == 1) || rows_collide(&o->problem))
        TSR__TRY(pack_a(call, o, widen_a));
    return TSR_OK;
}

tsr_status tsr__lavapipe_operands_pack(const tsr__matmul_call *call, tsr__lavapipe_operands *o)
{
    if (o->panels)
        tsr__lavapipe_fill_panels(call, &o->problem, &o->a, &o->b);
    if (o->a_source.layout.ndim > 0)
        TSR__TRY(tsr_copy(call->stream, &o->a, &o->a_source));
    if (o->b_source.layout.ndim > 0)
        TSR__TRY(tsr_copy(call->stream, &o->b, &o->b_source));
    return TSR_OK;
}
