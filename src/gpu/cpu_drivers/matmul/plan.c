/* The division of a product into dispatches; plan.h describes it, and the table below says how each
 * product is divided.
 *
 * Lanes are placed along k if b is read transposed ("nt"), and along n otherwise ("nn"). A step is
 * `lanes` elements of k in nt kernels, and one in nn kernels. A stretch is the range of k that one
 * dispatch computes. A tile is what a subgroup computes of y. A split is a range of k with sums of
 * its own, which are added up later. A block is the tiles of rows whose rows of a stay in a cache
 * together. `careful` kernels load single elements at the edges of matrices. */
#include "gpu/cpu_drivers/matmul/plan.h"

#include "base/checked.h"
#include "base/error.h"
#include "shaders/params/matmul_cpu.h"

enum {
    MAX_GROUPS = TSR_MATMUL_CPU_GROUPS,
    /* The largest number of subgroups in a workgroup. The shaders' uniform_index() composes a
     * subgroup's index from digits with this many values. */
    MAX_SUBGROUPS = 8,
    MAX_BLOCKS = 8,
    /* The size of a block of rows of a: half of a small L2 cache. A block stays in a core's cache
     * while all of b is read. */
    BLOCK_BYTES = 256 * 1024,
    /* BLOCK_BYTES if each block is a separate dispatch: half of a usual L2 cache. */
    DISPATCH_BYTES = 512 * 1024,
    /* The steps of dispatches with `careful` loads, without and with splits. They are few, because
     * each of these steps compiles to dozens of loads. */
    CAREFUL_STEPS = 32,
    CAREFUL_SPLIT_STEPS = 16,
};

/* How products are divided: by the first line whose conditions hold. A 0 means that there is no
 * such condition. There are few lines, because each needs pipelines of its own, which take 0.1 to
 * 1 s to compile; for the same reason, small products have short stretches.
 * docs/design/cpu_drivers.md has the measurements. */
typedef struct division {
    enum { NN, NT } kernel;
    uint32_t min_rows, max_rows;   /* of a */
    int b_log2;                    /* n · k is at least 2^b_log2 */
    int work_log2;                 /* m · n · k is more than 2^work_log2 */
    int y_log2;                    /* m · n is at most 2^y_log2, and there is only one matrix */
    uint32_t min_steps, max_steps; /* of k */
    tsr__lavapipe_method method;   /* with the largest number of splits */
} division;

/* clang-format off */
static const division divisions[] = {
    /*   rows    n·k mnk mn   steps     tile  stretch split splits */
    /* Few rows, where reading b takes most of the time. The splits of k make workgroups read long
     * runs of b. */
    {NT,  1,  4,  24,  0,  0, 128,  0, {4, 8,  128,  128,  16, false}},
    {NT,  5,  8,  24,  0,  0, 128,  0, {8, 4,  128,  128,  16, false}},
    {NT,  1,  4,  20,  0,  0,   0,  0, {4, 8,   32,   64,  16, false}},
    {NT,  5,  8,  20,  0,  0,   0,  0, {8, 4,   32,   64,  16, false}},
    /* A small y with a long k, where starting a dispatch takes as much time as its work. */
    {NT,  1,  0,   0,  0, 13, 256,  0, {4, 4,   64,   64,  16, false}},
    /* A large product. Long stretches read long runs of each line, and load and store the sums
     * seldom. The code of 64 steps of a 4×4 tile fits the cache for instructions. With 48 or 96
     * steps, which are k = 384 and 768 with eight lanes, one dispatch computes all of k. */
    {NT,  9, 24,   0, 24,  0, 128,  0, {8, 4,  128,    0,   1, false}},
    {NT, 25,  0,   0, 27,  0, 128,  0, {6, 4,  128,    0,   1, true}},
    {NT, 25,  0,   0, 23,  0,  48, 48, {4, 4,   48,    0,   1, false}},
    {NT, 25,  0,   0, 23,  0,  96, 96, {4, 4,   96,    0,   1, false}},
    /* All others. */
    {NT,  1,  0,   0,  0,  0,  64,  0, {4, 4,   64,    0,   1, false}},
    {NT,  1,  0,   0,  0,  0,   0,  0, {8, 4,   32,    0,   1, false}},
    {NN,  1,  1,  16,  0,  0, 128,  0, {6, 4,   32,   32,  32, false}},
    {NN,  1,  0,   0,  0,  0,   0,  0, {6, 4,   32,    0,   1, false}},
};
/* clang-format on */

/* The rows, the columns and the range of k that the next dispatch covers. */
typedef struct cursor {
    uint32_t row, rows, col, cols;
    uint32_t k;     /* the next element of k: the sums already contain the products before it */
    uint32_t steps; /* the number of steps of the next dispatch */
    /* the number of splits that one dispatch computes; 0: its sums are added to those of earlier
     * dispatches */
    uint32_t splits;
    bool careful;                /* loads must not cross the edge of the matrix */
    uint32_t tile_rows, vectors; /* TM and TN of the kernels */
} cursor;

static uint32_t rows_of(const tsr__lavapipe_product *p)
{
    return p->all_rows > 0 ? p->all_rows : p->m;
}

static bool is_nt(const tsr__lavapipe_product *p)
{
    return p->form == TSR__LAVAPIPE_NT;
}

/* The number of elements of k in a step. */
static uint32_t step_size(const tsr__lavapipe_product *p)
{
    return is_nt(p) ? p->lanes : 1;
}

bool tsr__lavapipe_is_short(int64_t k)
{
    const int64_t longest = 128, unit = 32;

    return k >= unit && k <= longest && k % unit == 0;
}

/* True if m · n · k is more than 2^log2. */
static bool exceeds(const tsr__lavapipe_product *p, int log2)
{
    /* Sizes can be up to 2^31, and the product of three would overflow. */
    return (uint64_t)rows_of(p) * p->n > (UINT64_C(1) << log2) / p->k;
}

static bool holds(const division *d, const tsr__lavapipe_product *p)
{
    const uint32_t rows = rows_of(p), steps = p->k / step_size(p);

    return (d->kernel == NT) == is_nt(p) && rows >= d->min_rows &&
           (d->max_rows == 0 || rows <= d->max_rows) &&
           (uint64_t)p->n * p->k >= UINT64_C(1) << d->b_log2 &&
           (d->work_log2 == 0 || exceeds(p, d->work_log2)) &&
           (d->y_log2 == 0 || (p->alone && (uint64_t)rows * p->n <= UINT64_C(1) << d->y_log2)) &&
           steps >= d->min_steps && (d->max_steps == 0 || steps <= d->max_steps) &&
           (!d->method.long_code || (p->long_code && p->lanes == 8));
}

/* Adapts a tile to a number of rows: it should have many, because its start and its end take as
 * much time as dozens of steps, but few past the last row of a. */
static void fit_tile(const tsr__lavapipe_product *p, tsr__lavapipe_method *method)
{
    const uint64_t rows = rows_of(p), most = method->rows, fewer = most - 2;

    if (rows == 1) {
        method->rows = 1;
        method->vectors = is_nt(p) && p->lanes > 8 ? p->lanes : 8;
    } else if (rows <= TSR__LAVAPIPE_PANEL_LINES || p->panels) {
        method->rows = TSR__LAVAPIPE_PANEL_LINES;
    } else if (most > TSR__LAVAPIPE_PANEL_LINES && tsr__div_up_u64(rows, fewer) * fewer * 21 <
                                                       tsr__div_up_u64(rows, most) * most * 20) {
        method->rows = (uint32_t)fewer;
    }
}

tsr__lavapipe_method tsr__lavapipe_resolve(const tsr__lavapipe_product *p)
{
    const division *d = divisions;

    while (!holds(d, p)) /* the last lines of both kinds have no conditions */
        d++;
    tsr__lavapipe_method method = d->method;
    const uint32_t most = method.splits;
    method.splits = 1;
    while (method.splits * 2 <= most &&
           method.splits * 2 <= p->k / (method.split_steps * step_size(p)))
        method.splits *= 2;
    if (!is_nt(p) && rows_of(p) > 1 && tsr__lavapipe_is_short(p->k))
        method.stretch = p->k;
    fit_tile(p, &method);
    return method;
}

static uint32_t tile_cols(const tsr__lavapipe_product *p)
{
    return is_nt(p) ? p->method.vectors : p->method.vectors * p->lanes;
}

uint32_t tsr__lavapipe_subgroups(uint32_t tiles)
{
    return tiles % MAX_SUBGROUPS == 0 || tiles >= 8 * MAX_SUBGROUPS ? MAX_SUBGROUPS : 1;
}

/* The number of subgroups in a workgroup. It is one with few rows, lanes along k and splits, so
 * that each subgroup reads long runs of the lines of b; with lanes along n, neighbouring tiles
 * together read such runs. */
static uint32_t subgroups_for(const tsr__lavapipe_product *p, const cursor *at, uint32_t tiles)
{
    const uint32_t few_rows = 8;

    return is_nt(p) && at->splits > 0 && rows_of(p) <= few_rows ? 1
                                                                : tsr__lavapipe_subgroups(tiles);
}

/* Returns the number of steps in the next stretch if `left` elements of k remain. There are only a
 * few different numbers, because each needs a pipeline. The last stretch may be longer than the
 * remaining elements, but not longer than k. It then starts earlier and skips the elements that
 * earlier stretches have added. Starting a stretch takes as much time as about ten steps. */
static uint32_t stretch_for(const tsr__lavapipe_product *p, uint32_t left, bool careful)
{
    const uint32_t begun = tsr__div_up_u32(left, step_size(p)), all = p->k / step_size(p);
    const uint32_t longest = careful ? CAREFUL_STEPS : p->method.stretch;
    uint32_t steps = 1;

    if (longest > 32 && begun > longest / 4 * 3)
        return longest;
    if (begun > 12 && all >= 32)
        return 32;
    if (careful) /* kernels with careful loads may execute more steps than k has elements */
        return 8;
    while (steps < 8 && steps * 2 <= all)
        steps *= 2;
    return steps;
}

/* The number of elements at the start of a stretch of `length` elements of k that earlier stretches
 * have added. It is not 0 only for the last stretch. */
static uint32_t skipped(const tsr__lavapipe_product *p, uint32_t done, uint32_t length)
{
    uint32_t left = p->k - done;

    return length > left && p->k >= length ? length - left : 0;
}

/* True if the kernel for a stretch of `steps` steps can skip elements of k. Kernels of short
 * stretches always can, so that stretches with and without skipped elements use the same
 * pipeline. */
static bool may_skip(uint32_t steps, uint32_t skip)
{
    return skip > 0 || steps <= 8;
}

bool tsr__lavapipe_takes_panels(const tsr__lavapipe_product *p)
{
    const uint32_t few_rows = 24, long_stretch = 64;
    const int large_log2 = 24;

    return is_nt(p) && rows_of(p) > few_rows && exceeds(p, large_log2) &&
           p->method.stretch >= long_stretch && p->method.splits == 1;
}

tsr__lavapipe_stretch tsr__lavapipe_stretch_after(const tsr__lavapipe_product *p, uint32_t done)
{
    uint32_t steps = stretch_for(p, p->k - done, false);
    uint32_t skip = skipped(p, done, steps * step_size(p));

    return (tsr__lavapipe_stretch){.k = done - skip,
                                   .steps = steps,
                                   .skip = skip,
                                   .words = steps % 2 == 0 && !may_skip(steps, skip)};
}

bool tsr__lavapipe_once(const tsr__lavapipe_product *p)
{
    const uint32_t cols = tile_cols(p);
    /* the last columns need a dispatch of their own */
    const bool careful = !is_nt(p) && (p->n < cols || (p->accumulate && p->n % cols > 0));

    return p->method.splits == 1 && !careful && stretch_for(p, p->k, false) * step_size(p) >= p->k;
}

/* Lets one dispatch compute several blocks of rows, numbered by the workgroup's z, so that all
 * columns of one block are computed before the next block. A dispatch for each block would cost
 * more, because drivers divide dispatches of a few milliseconds badly among processors. */
static void block_rows(const tsr__lavapipe_product *p, tsr__lavapipe_piece *piece)
{
    uint32_t tiles = piece->groups[0];
    uint32_t bytes =
        piece->constants[TSR__LAVAPIPE_ROWS] * piece->k * (uint32_t)tsr_dtype_size(p->a_dtype);
    uint32_t blocks = tsr__min_u32(tsr__div_up_u32(tiles, BLOCK_BYTES / bytes), MAX_BLOCKS);
    uint32_t block = tsr__div_up_u32(tiles, blocks);

    /* In the last block, workgroups past the last row take as much time as other workgroups,
     * although their results are not needed. Blocks are not used if there are many such
     * workgroups. */
    if (blocks == 1 || block * blocks - tiles > tiles / 32)
        return;
    piece->block = block;
    piece->groups[0] = block;
    piece->groups[2] = blocks;
}

/* True if a dispatch may have blocks of rows. */
static bool has_blocks(const tsr__lavapipe_product *p)
{
    return is_nt(p) && !p->batched;
}

/* True if one dispatch with lanes along n covers all of k and sets the sums. Such a dispatch may
 * compute columns twice. Only the kernels for the lengths of tsr__lavapipe_is_short() are
 * specialised for this. */
static bool is_fresh(const tsr__lavapipe_product *p)
{
    return !is_nt(p) && !p->accumulate && tsr__lavapipe_is_short(p->k) && tsr__lavapipe_once(p);
}

static tsr_status emit_piece(const tsr__lavapipe_product *p, const cursor *at,
                             tsr__lavapipe_emit_fn emit, void *user)
{
    const bool nt = is_nt(p), tn = p->form == TSR__LAVAPIPE_TN, split = at->splits > 0;
    const uint32_t tiles = tsr__div_up_u32(at->cols, nt ? at->vectors : at->vectors * p->lanes),
                   subgroups = subgroups_for(p, at, tiles),
                   groups = tsr__div_up_u32(tiles, subgroups),
                   row_tiles = tsr__div_up_u32(at->rows, at->tile_rows);
    const uint32_t length = at->steps * step_size(p), skip = skipped(p, at->k, length);
    const uint64_t k = at->k - skip;
    const bool careful = at->careful || length > p->k;
    const uint32_t width = nt && at->tile_rows > 1 && at->cols % 4 == 0 ? 4 : 1;
    const bool fours = nt ? width == 4 : !careful; /* whether y is stored in groups of four */
    const uint32_t finish = at->k + (uint64_t)length >= p->k ? p->finish : 0;
    const bool paired = (finish != 0 ? p->y_paired : p->sums_paired) && (nt || at->cols % 4 == 0);
    tsr__lavapipe_piece piece = {
        .nn = !nt,
        .constants = {[TSR__LAVAPIPE_WORKGROUP] = subgroups * p->lanes,
                      [TSR__LAVAPIPE_LANES] = p->lanes,
                      [TSR__LAVAPIPE_ROWS] = at->tile_rows,
                      [TSR__LAVAPIPE_VECTORS] = at->vectors,
                      [TSR__LAVAPIPE_STEPS] = at->steps,
                      [TSR__LAVAPIPE_SKIPS] = at->careful || may_skip(at->steps, skip),
                      [TSR__LAVAPIPE_CAREFUL] = careful,
                      [TSR__LAVAPIPE_A_DTYPE] = p->a_dtype,
                      [TSR__LAVAPIPE_B_DTYPE] = p->b_dtype,
                      [TSR__LAVAPIPE_SPLIT] = !split          ? 0
                                              : row_tiles > 1 ? 2
                                                              : 1,
                      [TSR__LAVAPIPE_FORM] = nt ? width : tn,
                      [TSR__LAVAPIPE_PAIRS] = fours && paired && at->col % 2 == 0,
                      [TSR__LAVAPIPE_FINISH] = finish,
                      [TSR__LAVAPIPE_PANELS] = p->panels,
                      [TSR__LAVAPIPE_FRESH] = is_fresh(p),
                      [TSR__LAVAPIPE_PHASES] = p->phases},
        .a = at->row * (tn ? 1 : p->a_stride) + k * (tn ? p->a_stride : 1),
        .b = at->col * (nt ? p->b_stride : 1) + k * (nt ? 1 : p->b_stride),
        .sums = at->row * p->sums_stride + at->col,
        .y = at->row * p->y_stride + at->col,
        .row = at->row,
        .column = at->col,
        .m = at->rows,
        .n = at->cols,
        .k = tsr__min_u32(length, p->k),
        .skip = skip,
        .accumulate = at->k != 0 || p->accumulate,
        .groups = {!split ? row_tiles
                   : nt   ? at->splits
                          : groups,
                   split && !nt ? at->splits : groups, split && nt ? row_tiles : 1},
    };

    if (p->panels) { /* panels have zeros in place of skipped elements, so nothing is skipped */
        piece.skip = 0;
        piece.constants[TSR__LAVAPIPE_SKIPS] = may_skip(at->steps, 0);
        piece.a = (uint64_t)at->k * p->a_lines + (uint64_t)(p->first_row + at->row) * length;
        piece.b = (uint64_t)at->k * p->b_lines + (uint64_t)at->col * length;
    }
    if (has_blocks(p) && !split)
        block_rows(p, &piece);
    return emit(user, &piece);
}

/* Emits the dispatches for all complete splits of k. A dispatch covers up to p->method.splits of
 * them, and adds each to a matrix of sums of its own. */
static tsr_status emit_splits(const tsr__lavapipe_product *p, cursor *at,
                              tsr__lavapipe_emit_fn emit, void *user)
{
    uint32_t length;

    at->steps = at->careful ? CAREFUL_SPLIT_STEPS : p->method.split_steps;
    length = at->steps * step_size(p);
    for (uint32_t left = p->k / length; left > 0; left -= at->splits) {
        at->splits = tsr__min_u32(p->method.splits, left);
        TSR__TRY(emit_piece(p, at, emit, user));
        at->k += at->splits * length;
    }
    at->splits = 0;
    return TSR_OK;
}

/* The number of rows that one dispatch covers. If a workgroup has several subgroups, they share the
 * rows of a through the cache. A single subgroup would read the rows from memory again and again;
 * therefore it gets only as many rows as its blocks can keep in the cache. */
static uint32_t rows_at_once(const tsr__lavapipe_product *p, const cursor *at)
{
    const uint32_t tiles =
        tsr__div_up_u32(at->cols, is_nt(p) ? at->vectors : at->vectors * p->lanes);
    uint32_t bytes = at->steps * step_size(p) * (uint32_t)tsr_dtype_size(p->a_dtype);
    uint32_t cached = has_blocks(p) ? MAX_BLOCKS * BLOCK_BYTES : DISPATCH_BYTES;
    uint32_t groups = MAX_GROUPS;

    if (subgroups_for(p, at, tiles) == 1)
        groups = tsr__min_u32(groups, cached / bytes / at->tile_rows);
    return groups * at->tile_rows;
}

/* Emits the dispatches of one band of columns. k is divided into stretches, which are computed
 * in order; within a stretch, all blocks of rows are computed in order. */
static tsr_status emit_band(const tsr__lavapipe_product *p, uint32_t col, uint32_t cols,
                            bool careful, tsr__lavapipe_emit_fn emit, void *user)
{
    cursor at = {.col = col,
                 .cols = cols,
                 .rows = p->m,
                 .careful = careful,
                 .tile_rows = p->method.rows,
                 .vectors = careful ? 4 : p->method.vectors};

    if (p->method.splits > 1)
        TSR__TRY(emit_splits(p, &at, emit, user));
    while (at.k < p->k) {
        at.steps = stretch_for(p, p->k - at.k, careful);
        for (at.row = 0; at.row < p->m; at.row += at.rows) {
            at.rows = tsr__min_u32(rows_at_once(p, &at), p->m - at.row);
            TSR__TRY(emit_piece(p, &at, emit, user));
        }
        at.row = 0;
        at.k += tsr__min_u32(at.steps * step_size(p), p->k - at.k);
    }
    return TSR_OK;
}

tsr_status tsr__lavapipe_plan(const tsr__lavapipe_product *p, tsr__lavapipe_emit_fn emit,
                              void *user)
{
    uint32_t cols_of_tile = tile_cols(p);
    /* With lanes along k, columns past the edge repeat the last one. With lanes along n, vector
     * loads must not cross the edge. If columns may be computed twice, the last tile begins
     * earlier, or, if k has several stretches, a band of one tile follows that sets its sums again
     * to the same bits. Otherwise the last few columns are a separate band with `careful` loads. */
    uint32_t whole = is_nt(p) || is_fresh(p) ? p->n : p->n / cols_of_tile * cols_of_tile;
    uint32_t limit = MAX_GROUPS * cols_of_tile;
    uint32_t cols;

    for (uint32_t col = 0; col < whole; col += cols) {
        cols = tsr__min_u32(limit, whole - col);
        TSR__TRY(emit_band(p, col, cols, false, emit, user));
    }
    if (whole == p->n)
        return TSR_OK;
    if (whole > 0 && !p->accumulate && p->method.splits == 1)
        return emit_band(p, p->n - cols_of_tile, cols_of_tile, false, emit, user);
    return emit_band(p, whole, p->n - whole, true, emit, user);
}
