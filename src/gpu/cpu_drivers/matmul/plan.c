/* The division of a product into dispatches; plan.h describes it. The nt kernels place lanes along
 * k, the nn kernels along n. A step is `lanes` elements of k in nt kernels, and one in nn kernels.
 * A stretch is the range of k that one dispatch computes. A tile is what a subgroup computes of y.
 * A part is a range of k with sums of its own, which are added up later. A block is the tiles of
 * rows whose rows of a stay in a cache together. `careful` kernels load single elements at the
 * edges of matrices. A product is outer if tsr__lavapipe_outer() is true. */
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
    /* The longest stretches (ranges of k that one dispatch computes) are used if m · n · k is at
     * least 2^LARGE_LOG2. For one row with lanes along n, they are used if b has at least
     * 2^ROW_LOG2 elements. For smaller products, compiling their kernels would take more time than
     * they save. */
    LARGE_LOG2 = 24,
    /* Replaces LARGE_LOG2 for stretches that cover all of k with lanes along k, and for
     * pipelines whose lines of b are a constant number of elements apart. */
    WHOLE_LOG2 = 23,
    ROW_LOG2 = 18,
    /* Replaces LARGE_LOG2 for stretches of LONG_STEPS steps of many rows with lanes along k,
     * whose code takes 0.8 s longer to compile. */
    LONG_LOG2 = 27,
    LONG_STEPS = 128,
    FEW_ROWS = 24, /* the largest number of rows that counts as few */
    /* With few rows, k is split if b has at least 2^THIN_LOG2 elements, into at most MAX_PARTS
     * parts. Adding up more sums would take more time than more parts save. */
    THIN_LOG2 = 20,
    MAX_PARTS = 16,
    /* k is also split if y has at most 2^DEEP_LOG2 elements. With so few elements, starting a
     * dispatch takes about as much time as its work. */
    DEEP_LOG2 = 13,
    /* Replace THIN_LOG2 and MAX_PARTS for one row with lanes along n. */
    ROW_PARTS_LOG2 = 16,
    ROW_MAX_PARTS = 32,
    /* The number of steps of a part with `careful` loads. It is small, because each of these
     * steps compiles to dozens of loads. */
    CAREFUL_STEPS = 16,
};

typedef struct tile {
    uint32_t rows, vectors; /* TM and TN of the kernels */
} tile;

/* The rows, the columns and the range of k that the next dispatch covers. */
typedef struct cursor {
    uint32_t row, rows, col, cols;
    uint32_t k;     /* the next element of k: the sums already contain the products before it */
    uint32_t steps; /* the number of steps of the next dispatch */
    /* the number of ranges of k of which one dispatch stores the sums separately; 0: one range,
     * whose sums are added to those of earlier dispatches */
    uint32_t parts;
    bool careful; /* loads must not cross the edge of the matrix */
} cursor;

static uint32_t rows_of(const tsr__lavapipe_product *p)
{
    return p->all_rows > 0 ? p->all_rows : p->m;
}

static bool is_nt(const tsr__lavapipe_product *p)
{
    return p->form == TSR__LAVAPIPE_NT;
}

bool tsr__lavapipe_is_short(int64_t k)
{
    const int64_t longest = 128, unit = 32;

    return k >= unit && k <= longest && k % unit == 0;
}

/* The number of elements of k in each part of a sum of outer products, or 0 if no length divides k.
 * There are only a few lengths, because each needs a pipeline. */
static uint32_t outer_length(int64_t k)
{
    static const uint32_t lengths[] = {128, 96, 64};

    for (int i = 0; i < 3; i++)
        if (k % lengths[i] == 0)
            return lengths[i];
    return 0;
}

/* The largest number of parts of an outer product that a dispatch computes, at most one for each
 * subgroup of a workgroup. If k has more parts, several dispatches compute about the same number
 * each. With eight lanes, if lines start in the same few sets of the second-level cache, half as
 * many parts in a dispatch are faster. With sixteen lanes, two such dispatches take as long as
 * one with all parts. */
static uint32_t outer_parts(const tsr__lavapipe_product *p)
{
    const uint64_t collides = 512;
    const bool few = p->lanes < 16 && (p->a_stride % collides == 0 || p->b_stride % collides == 0);
    const uint32_t parts = p->k / outer_length(p->k),
                   most = few ? MAX_SUBGROUPS / 2 : MAX_SUBGROUPS;

    return tsr__div_up_u32(parts, tsr__div_up_u32(parts, most));
}

bool tsr__lavapipe_outer(int64_t m, int64_t n, int64_t k, uint32_t lanes)
{
    const int64_t few_rows = 8, most_rows = 4096, most_elements = 1 << 19;
    const int64_t length = outer_length(k);

    return length > 0 && k >= 2 * length && m > few_rows && m <= most_rows &&
           n % (4 * (int64_t)lanes) == 0 && n <= most_elements / m && m * n <= length * (m + n) &&
           m * n > (INT64_C(1) << WHOLE_LOG2) / k;
}

/* The number of elements of k in a step. */
static uint32_t step_size(const tsr__lavapipe_product *p)
{
    return is_nt(p) ? p->lanes : 1;
}

/* True if m · n · k is more than 2^log2. */
static bool exceeds(const tsr__lavapipe_product *p, int log2)
{
    /* Sizes can be up to 2^31, and the product of three would overflow. */
    return (uint64_t)rows_of(p) * p->n > (UINT64_C(1) << log2) / p->k;
}

static bool is_large(const tsr__lavapipe_product *p)
{
    return exceeds(p, LARGE_LOG2);
}

/* True for a product of few rows with lanes along k in which reading b takes most of the time. */
static bool is_thin(const tsr__lavapipe_product *p)
{
    const uint32_t few_rows = 8;

    return is_nt(p) && rows_of(p) <= few_rows && (uint64_t)p->n * p->k >= UINT64_C(1) << THIN_LOG2;
}

/* True if k has this many steps with lanes along k and one stretch should cover it, because a
 * second stretch would load and store all sums again. With eight lanes, k is then 384 or 768,
 * common sizes of models. There are only two such lengths, because each needs a pipeline. */
static bool is_whole(uint32_t steps)
{
    return steps == 48 || steps == 96;
}

bool tsr__lavapipe_is_long(const tsr__lavapipe_product *p)
{
    const uint32_t lanes = 8; /* not measured with other numbers */

    return p->long_code && is_nt(p) && p->lanes == lanes && rows_of(p) > FEW_ROWS &&
           p->k / lanes >= LONG_STEPS && exceeds(p, LONG_LOG2) &&
           (uint64_t)rows_of(p) * p->n > UINT64_C(1) << DEEP_LOG2;
}

/* Returns the number of steps in the longest stretch, which is the range of k that one dispatch
 * computes. Longer stretches would save less time than their compilation and their code size cost.
 * With lanes along k, 64 steps of a small tile compile as fast as 32 steps of a large tile and fit
 * in the processor's instruction cache. Reading even longer runs of each line is faster only with
 * few rows and a large b. */
static uint32_t longest_stretch(const tsr__lavapipe_product *p)
{
    const uint32_t steps = p->k / step_size(p);
    bool pays = is_large(p);

    if (tsr__lavapipe_is_long(p))
        return LONG_STEPS;
    if (is_nt(p) && rows_of(p) > FEW_ROWS && is_whole(steps) && exceeds(p, WHOLE_LOG2))
        return steps;
    /* For one row with lanes along n, the work of 32 steps takes less time than starting a
     * dispatch. */
    if (rows_of(p) == 1 && !is_nt(p))
        pays = (uint64_t)p->n * p->k >= UINT64_C(1) << ROW_LOG2;
    if (pays && steps >= 128 && (!is_nt(p) || rows_of(p) <= FEW_ROWS))
        return 128;
    if (!is_nt(p) || is_thin(p) || steps < 64)
        return 32;
    return rows_of(p) == 1 && steps >= 128 ? 128 : 64;
}

/* True if y has few elements and k must be divided among many dispatches. */
static bool is_deep(const tsr__lavapipe_product *p)
{
    return is_nt(p) && p->alone && !is_thin(p) &&
           (uint64_t)rows_of(p) * p->n <= UINT64_C(1) << DEEP_LOG2 &&
           p->k / step_size(p) >= 4 * longest_stretch(p);
}

/* The tile for the longest stretches. Its start and its end take as much time as about 35 steps of
 * four rows, so it should have many rows, unless too many of them would lie past the last row of a.
 * Panels have four lines, and so have their tiles. */
static tile long_tile(const tsr__lavapipe_product *p)
{
    const uint64_t rows = rows_of(p), most = 6, fewer = TSR__LAVAPIPE_PANEL_LINES;
    /* true if tiles of six rows cover at most a twentieth more rows than tiles of four */
    const bool fills =
        tsr__div_up_u64(rows, most) * most * 20 <= tsr__div_up_u64(rows, fewer) * fewer * 21;

    return (tile){p->panels || !fills ? (uint32_t)fewer : (uint32_t)most,
                  TSR__LAVAPIPE_PANEL_LINES};
}

/* Returns the tile for lanes along k. Small tiles leave room for more steps in the instruction
 * cache; large tiles load less per product. The sums of up to six rows of four columns stay in
 * registers. */
static tile nt_tile(const tsr__lavapipe_product *p)
{
    uint32_t longest = longest_stretch(p);
    bool thin = is_thin(p);

    if (rows_of(p) == 1)
        return (tile){1, longest > 32 && !thin ? 4 : p->lanes > 8 ? p->lanes : 8};
    if (rows_of(p) <= 4)
        return (tile){4, thin ? 8 : 4};
    if (tsr__lavapipe_is_long(p))
        return long_tile(p);
    if (longest == 64 || is_whole(longest))
        return (tile){TSR__LAVAPIPE_PANEL_LINES, TSR__LAVAPIPE_PANEL_LINES};
    if (thin || longest == 128)
        return (tile){
            tsr__div_up_u32(rows_of(p), 6) * 6 < tsr__div_up_u32(rows_of(p), 8) * 8 ? 6 : 8, 4};
    return (tile){8, 4};
}

/* Returns the number of rows of a tile with lanes along n, if there are several rows. The sums of
 * up to six rows of four vectors stay in registers. If a is transposed, the kernel loads its
 * elements fastest if all tiles are complete. */
static uint32_t nn_rows(const tsr__lavapipe_product *p)
{
    uint32_t rows = rows_of(p);

    if (p->form == TSR__LAVAPIPE_TN && rows % 4 == 0)
        return 4;
    return rows > 4 ? 6 : 4;
}

static tile tile_for(const tsr__lavapipe_product *p)
{
    if (is_nt(p))
        return nt_tile(p);
    if (rows_of(p) == 1)
        return (tile){1, 8};
    return (tile){nn_rows(p), 4};
}

static uint32_t tile_cols(const tsr__lavapipe_product *p, tile shape)
{
    return is_nt(p) ? shape.vectors : shape.vectors * p->lanes;
}

uint64_t tsr__lavapipe_outer_elements(const tsr__lavapipe_product *p)
{
    const uint32_t rows = tile_for(p).rows;

    return (uint64_t)tsr__div_up_u32(p->m, rows) * rows * p->n * outer_parts(p);
}

uint32_t tsr__lavapipe_subgroups(uint32_t tiles)
{
    return tiles % MAX_SUBGROUPS == 0 || tiles >= 8 * MAX_SUBGROUPS ? MAX_SUBGROUPS : 1;
}

/* The number of subgroups in a workgroup. It is one for few rows, because memory limits their speed
 * and each subgroup should read long runs of the lines of b. With lanes along n and k divided into
 * parts, it is larger, because neighbouring tiles together read such runs. */
static uint32_t subgroups_for(const tsr__lavapipe_product *p, const cursor *at, tile shape)
{
    if (p->outer)
        return at->parts;
    bool few =
        is_nt(p) ? at->parts > 0 && is_thin(p) : at->parts == 0 && rows_of(p) < 8 * shape.rows;

    return few ? 1 : tsr__lavapipe_subgroups(tsr__div_up_u32(at->cols, tile_cols(p, shape)));
}

/* Returns the number of steps in the next stretch (the range of k that one dispatch computes) if
 * `left` elements of k remain. There are only a few different numbers, because each needs a
 * pipeline. The last stretch may be longer than the remaining elements, but not longer than k. It
 * then starts earlier and skips the elements that earlier stretches have added. Starting a stretch
 * takes as much time as about ten steps. */
static uint32_t stretch_for(const tsr__lavapipe_product *p, uint32_t left, bool careful)
{
    uint32_t begun = tsr__div_up_u32(left, step_size(p)), all = p->k / step_size(p), steps = 1;
    uint32_t longest = careful ? 32 : longest_stretch(p);

    if (!is_nt(p) && !careful && rows_of(p) > 1 && tsr__lavapipe_is_short(p->k))
        return p->k;
    if (longest > 32 && begun > longest / 4 * 3)
        return longest;
    if (tsr__lavapipe_is_long(p) && begun > LONG_STEPS / 8 * 3)
        return LONG_STEPS / 2;
    if (begun > 12 && all >= 32)
        return 32;
    if (careful) /* kernels with careful loads may execute more steps than k has elements */
        return 8;
    while (steps < 8 && steps * 2 <= all)
        steps *= 2;
    return steps;
}

static uint32_t part_steps(const tsr__lavapipe_product *p)
{
    const uint32_t short_line = 512, many_lines = 4096;

    if (p->outer)
        return outer_length(p->k);
    bool large = (uint64_t)p->n * p->k >= UINT64_C(1) << LARGE_LOG2;

    if (is_nt(p))
        return is_deep(p) ? longest_stretch(p) : large ? 128 : 64;
    /* Each step reads a line of b. With more steps, a part reads more places of memory at the same
     * time. This is harmless only if lines are so short that these places are close to each
     * other. */
    if (p->n <= short_line && p->k >= many_lines)
        return 64;
    return large ? 16 : 32;
}

static bool has_parts(const tsr__lavapipe_product *p)
{
    uint64_t elements = (uint64_t)p->n * p->k;

    if (is_nt(p))
        return is_thin(p) || is_deep(p);
    /* Computing parts and adding up their sums takes two dispatches, so it is not faster than
     * computing two ranges of k in two dispatches. */
    return rows_of(p) == 1 && p->k >= (longest_stretch(p) > 32 ? 256 : 128) &&
           elements >= UINT64_C(1) << ROW_PARTS_LOG2;
}

uint32_t tsr__lavapipe_parts(const tsr__lavapipe_product *p)
{
    uint32_t stretches = p->k / (part_steps(p) * step_size(p)), parts = 1;
    uint32_t most = is_nt(p) ? MAX_PARTS : ROW_MAX_PARTS;

    if (!has_parts(p))
        return 1;
    while (parts < most && parts * 2 <= stretches)
        parts *= 2;
    return parts;
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
    return is_nt(p) && rows_of(p) > FEW_ROWS && longest_stretch(p) >= 64 && is_large(p) &&
           !has_parts(p);
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
    const uint32_t cols = tile_cols(p, tile_for(p));
    /* the last columns need a dispatch of their own */
    const bool careful = !is_nt(p) && (p->n < cols || (p->accumulate && p->n % cols > 0));

    return p->parts == 1 && !careful && stretch_for(p, p->k, false) * step_size(p) >= p->k;
}

/* True if one dispatch can compute several blocks of rows, numbered by the workgroup's z. All
 * columns of one block are then computed before the next block. A dispatch for each block would
 * cost more, because drivers divide dispatches of a few milliseconds badly among processors. */
static bool has_blocks(const tsr__lavapipe_product *p)
{
    return is_nt(p) && !p->batched;
}

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

/* True if one dispatch with lanes along n covers all of k and sets the sums. Such a dispatch may
 * compute columns twice. Only the kernels for the lengths of tsr__lavapipe_is_short() are
 * specialised for this. */
static bool is_fresh(const tsr__lavapipe_product *p)
{
    return !is_nt(p) && !p->accumulate && tsr__lavapipe_is_short(p->k) && tsr__lavapipe_once(p);
}

/* Returns the elements from one line of an operand to the next if pipelines should have it as a
 * constant, otherwise 0. The constant saves a fifth to a quarter of the time, but each value needs
 * a pipeline. */
static uint32_t constant_line(const tsr__lavapipe_product *p, uint64_t stride)
{
    /* The offset in bytes of the last of at most 128 lines fits the 31 bits that an instruction of
     * x86 has for it. */
    const uint64_t most = UINT16_MAX;
    const bool pays = p->outer || (is_fresh(p) && exceeds(p, WHOLE_LOG2));

    return pays && stride <= most ? (uint32_t)stride : 0;
}

/* Sets the numbers of workgroups. `rows` is the number of tiles of rows, and `columns` the
 * number of workgroups that compute all tiles of a row. */
static void set_groups(const tsr__lavapipe_product *p, const cursor *at, uint32_t rows,
                       uint32_t columns, uint32_t groups[3])
{
    const uint32_t tiles[3] = {rows, columns, 1}, turned[3] = {columns, rows, 1},
                   nt_parts[3] = {at->parts, columns, rows}, nn_parts[3] = {columns, at->parts, 1};
    const uint32_t *chosen = p->outer && p->m > p->n      ? turned
                             : at->parts == 0 || p->outer ? tiles
                             : is_nt(p)                   ? nt_parts
                                                          : nn_parts;

    for (int i = 0; i < 3; i++)
        groups[i] = chosen[i];
}

static tsr_status emit_piece(const tsr__lavapipe_product *p, const cursor *at, tile shape,
                             tsr__lavapipe_emit_fn emit, void *user)
{
    bool nt = is_nt(p), tn = p->form == TSR__LAVAPIPE_TN;
    uint32_t tiles = tsr__div_up_u32(at->cols, tile_cols(p, shape)),
             subgroups = subgroups_for(p, at, shape);
    bool outer = p->outer;
    uint32_t length = at->steps * step_size(p), skip = skipped(p, at->k, length);
    uint64_t k = at->k - skip;
    bool in_parts = at->parts > 0, careful = at->careful || length > p->k;
    bool fresh = is_fresh(p) || outer;
    uint32_t width = nt && shape.rows > 1 && at->cols % 4 == 0 ? 4 : 1;
    bool fours = nt ? width == 4 : !careful; /* whether y is stored in groups of four */
    uint32_t finish = at->k + (uint64_t)length >= p->k ? p->finish : 0;
    bool paired =
        (finish != 0 || outer ? p->y_paired : p->sums_paired) && (nt || at->cols % 4 == 0);
    uint32_t groups = outer ? tiles : tsr__div_up_u32(tiles, subgroups);
    uint32_t row_tiles = tsr__div_up_u32(at->rows, shape.rows);
    tsr__lavapipe_piece piece = {
        .nn = !nt,
        .constants = {[TSR__LAVAPIPE_WORKGROUP] = subgroups * p->lanes,
                      [TSR__LAVAPIPE_LANES] = p->lanes,
                      [TSR__LAVAPIPE_ROWS] = shape.rows,
                      [TSR__LAVAPIPE_VECTORS] = shape.vectors,
                      [TSR__LAVAPIPE_STEPS] = at->steps,
                      [TSR__LAVAPIPE_SKIPS] = at->careful || may_skip(at->steps, skip),
                      [TSR__LAVAPIPE_CAREFUL] = careful,
                      [TSR__LAVAPIPE_A_DTYPE] = p->a_dtype,
                      [TSR__LAVAPIPE_B_DTYPE] = p->b_dtype,
                      [TSR__LAVAPIPE_PARTS] = outer           ? 3
                                              : !in_parts     ? 0
                                              : row_tiles > 1 ? 2
                                                              : 1,
                      [TSR__LAVAPIPE_FORM] = nt ? width : tn,
                      [TSR__LAVAPIPE_PAIRS] = fours && paired && at->col % 2 == 0,
                      [TSR__LAVAPIPE_FINISH] = finish,
                      [TSR__LAVAPIPE_PANELS] = p->panels,
                      [TSR__LAVAPIPE_FRESH] = fresh,
                      [TSR__LAVAPIPE_FULL] = tn && !careful && at->rows % shape.rows == 0,
                      [TSR__LAVAPIPE_B_LINE] = constant_line(p, p->b_stride),
                      [TSR__LAVAPIPE_A_LINE] = outer ? constant_line(p, p->a_stride) : 0,
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
    };

    set_groups(p, at, row_tiles, groups, piece.groups);
    if (p->panels) { /* panels have zeros in place of skipped elements, so nothing is skipped */
        piece.skip = 0;
        piece.constants[TSR__LAVAPIPE_SKIPS] = may_skip(at->steps, 0);
        piece.a = (uint64_t)at->k * p->a_lines + (uint64_t)(p->first_row + at->row) * length;
        piece.b = (uint64_t)at->k * p->b_lines + (uint64_t)at->col * length;
    }
    if (has_blocks(p) && !in_parts)
        block_rows(p, &piece);
    return emit(user, &piece);
}

/* Emits the dispatches for all complete parts of k. A dispatch covers up to p->parts of them, or
 * outer_parts() of an outer product, and adds each to a partial sum of its own. */
static tsr_status emit_parts(const tsr__lavapipe_product *p, cursor *at, tile shape,
                             tsr__lavapipe_emit_fn emit, void *user)
{
    uint32_t length;

    at->steps = at->careful ? CAREFUL_STEPS : part_steps(p);
    length = at->steps * step_size(p);
    for (uint32_t left = p->k / length; left > 0; left -= at->parts) {
        at->parts = tsr__min_u32(p->outer ? outer_parts(p) : p->parts, left);
        TSR__TRY(emit_piece(p, at, shape, emit, user));
        at->k += at->parts * length;
    }
    at->parts = 0;
    return TSR_OK;
}

/* The number of rows that one dispatch covers. If a workgroup has several subgroups, they share the
 * rows of a through the cache. A single subgroup would read the rows from memory again and again;
 * therefore it gets only as many rows as its blocks can keep in the cache. */
static uint32_t rows_at_once(const tsr__lavapipe_product *p, const cursor *at, tile shape)
{
    uint32_t bytes = at->steps * step_size(p) * (uint32_t)tsr_dtype_size(p->a_dtype);
    uint32_t cached = has_blocks(p) ? MAX_BLOCKS * BLOCK_BYTES : DISPATCH_BYTES;
    uint32_t groups = MAX_GROUPS;

    if (subgroups_for(p, at, shape) == 1)
        groups = tsr__min_u32(groups, cached / bytes / shape.rows);
    return groups * shape.rows;
}

/* The tile for `careful` loads with lanes along n. There are only three sizes, because each needs a
 * pipeline, which takes 0.1 to 0.4 s to compile. */
static tile careful_tile(const tsr__lavapipe_product *p)
{
    const uint32_t many_rows = 64;

    return (tile){rows_of(p) == 1 ? 1 : rows_of(p) <= many_rows ? 4 : 6, 4};
}

/* Emits the dispatches of one band of columns. k is divided into stretches, which are computed
 * in order; within a stretch, all blocks of rows are computed in order. */
static tsr_status emit_band(const tsr__lavapipe_product *p, uint32_t col, uint32_t cols,
                            bool careful, tsr__lavapipe_emit_fn emit, void *user)
{
    tile shape = tile_for(p);
    cursor at = {.col = col, .cols = cols, .rows = p->m, .careful = careful};

    if (careful)
        shape = careful_tile(p);
    if (p->parts > 1 || p->outer)
        TSR__TRY(emit_parts(p, &at, shape, emit, user));
    while (at.k < p->k) {
        at.steps = stretch_for(p, p->k - at.k, careful);
        for (at.row = 0; at.row < p->m; at.row += at.rows) {
            at.rows = tsr__min_u32(rows_at_once(p, &at, shape), p->m - at.row);
            TSR__TRY(emit_piece(p, &at, shape, emit, user));
        }
        at.row = 0;
        at.k += tsr__min_u32(at.steps * step_size(p), p->k - at.k);
    }
    return TSR_OK;
}

tsr_status tsr__lavapipe_plan(const tsr__lavapipe_product *p, tsr__lavapipe_emit_fn emit,
                              void *user)
{
    uint32_t cols_of_tile = tile_cols(p, tile_for(p));
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
    if (whole > 0 && !p->accumulate && p->parts == 1)
        return emit_band(p, p->n - cols_of_tile, cols_of_tile, false, emit, user);
    return emit_band(p, whole, p->n - whole, true, emit, user);
}
