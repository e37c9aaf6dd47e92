#include "gpu/matmul/lavapipe_plan.h"

#include "base/checked.h"
#include "base/error.h"

enum {
    /* Workgroups per dimension: what every device takes, and what the kernels' uniform_index() can
       carry. */
    MAX_GROUPS = 65535,
    /* A block of rows of a this large stays in a core's cache while b passes by: half of a usual
       L2. */
    BLOCK_BYTES = 512 * 1024,
    /* Products in the whole problem, as a power of two, from which the longest stretch pays for its
       compilation … */
    LARGE_LOG2 = 24,
    /* … and from which the end of k may have a stretch of its own length. */
    HUGE_LOG2 = 28,
    /* Elements of b, as a power of two, from which a few rows are multiplied part by part of k, and
       no more parts than the addition of their sums is worth. */
    THIN_LOG2 = 20,
    MAX_PARTS = 16,
};

typedef struct tile {
    uint32_t rows, vectors; /* TM and TN of the kernels */
} tile;

typedef struct stretch {
    uint32_t steps;
    bool careful; /* checks where k ends, and n where lanes lie along it */
} stretch;

/* The part of the problem that a piece covers. */
typedef struct cursor {
    uint32_t row, rows, col, cols, k, k_count;
    uint32_t parts; /* of k, k_count each, whose sums are kept apart; 0: one, for the first */
} cursor;

bool tsr__lavapipe_worthwhile(int64_t m, int64_t n, int64_t k)
{
    const int64_t fewest_products = 1 << 10;

    return n >= 8 && k >= 8 && m >= fewest_products / k / n;
}

static bool is_nt(const tsr__lavapipe_product *p)
{
    return p->form == TSR__LAVAPIPE_NT;
}

static tile tile_for(const tsr__lavapipe_product *p)
{
    if (p->m > 4)
        return (tile){8, 4};
    if (is_nt(p))
        return p->m > 1 ? (tile){4, 8} : (tile){1, p->lanes > 8 ? p->lanes : 8};
    return p->m > 1 ? (tile){4, 4} : (tile){1, 8};
}

static stretch nt_stretch(uint32_t steps_left, bool large, bool huge)
{
    if (large && steps_left >= 128 + 64)
        return (stretch){128, false};
    if (huge && steps_left > 128) /* the rest in two halves rather than in one long and one short */
        return (stretch){steps_left / 2 / 8 * 8, false};
    if (large && steps_left >= 128)
        return (stretch){128, false};
    if (huge && steps_left >= 64)
        return (stretch){steps_left / 8 * 8, false};
    if (steps_left >= 32)
        return (stretch){32, false};
    return (stretch){8, steps_left < 8};
}

/* The longest stretch of the few there are that fits what is left of k. */
static stretch stretch_for(const tsr__lavapipe_product *p, uint32_t k_left, bool careful_columns)
{
    /* Sizes reach 2^31, so the product of three is taken in parts. */
    uint64_t area = (uint64_t)p->m * p->n;
    bool large = area > (UINT64_C(1) << LARGE_LOG2) / p->k;
    bool huge = area > (UINT64_C(1) << HUGE_LOG2) / p->k;

    if (is_nt(p))
        return nt_stretch(k_left / p->lanes, large, huge);
    if (careful_columns)
        return (stretch){32, true};
    if (large && k_left >= 128)
        return (stretch){128, false};
    return (stretch){32, k_left < 32};
}

static uint32_t part_steps(const tsr__lavapipe_product *p)
{
    return (uint64_t)p->n * p->k < UINT64_C(1) << LARGE_LOG2 ? 64 : 128;
}

uint32_t tsr__lavapipe_parts(const tsr__lavapipe_product *p)
{
    uint32_t stretches = p->k / (part_steps(p) * p->lanes), parts = 1;

    if (!is_nt(p) || p->m > tile_for(p).rows || (uint64_t)p->n * p->k < UINT64_C(1) << THIN_LOG2)
        return 1;
    while (parts < MAX_PARTS && parts * 2 <= stretches)
        parts *= 2;
    return parts;
}

static tsr_status emit_piece(const tsr__lavapipe_product *p, const cursor *at, tile shape,
                             stretch of_k, tsr__lavapipe_emit_fn emit, void *user)
{
    bool nt = is_nt(p), tn = p->form == TSR__LAVAPIPE_TN;
    tsr__lavapipe_piece piece = {
        .nn = !nt,
        .constants = {p->lanes, shape.rows, shape.vectors, of_k.steps, of_k.careful, p->a_dtype,
                      p->b_dtype, nt ? at->parts > 0 : tn},
        .groups = {at->parts > 0 ? at->parts : tsr__div_up_u32(at->rows, shape.rows),
                   tsr__div_up_u32(at->cols, nt ? shape.vectors : shape.vectors * p->lanes), 1},
        .a = at->row * (tn ? 1 : p->a_stride) + at->k * (tn ? p->a_stride : 1),
        .b = at->col * (nt ? p->b_stride : 1) + at->k * (nt ? 1 : p->b_stride),
        .y = at->row * p->y_stride + at->col,
        .m = at->rows,
        .n = at->cols,
        .k = at->k_count,
        .accumulate = at->k != 0 || p->accumulate,
        .y_part = at->parts > 0 ? p->m * p->n : 0,
    };

    return emit(user, &piece);
}

/* As much of k as parts can take: in rounds, from which each part has a stretch. */
static tsr_status emit_parts(const tsr__lavapipe_product *p, cursor *at, tile shape,
                             tsr__lavapipe_emit_fn emit, void *user)
{
    uint32_t steps = part_steps(p);

    at->k_count = steps * p->lanes;
    for (uint32_t left = p->k / at->k_count; left > 0; left -= at->parts) {
        at->parts = tsr__min_u32(p->parts, left);
        TSR__TRY(emit_piece(p, at, shape, (stretch){steps, false}, emit, user));
        at->k += at->parts * at->k_count;
    }
    return TSR_OK;
}

/* One band of columns: stretch after stretch of k, each in blocks of rows. */
static tsr_status emit_band(const tsr__lavapipe_product *p, uint32_t col, uint32_t cols,
                            bool careful_columns, tsr__lavapipe_emit_fn emit, void *user)
{
    tile shape = tile_for(p);
    cursor at = {.col = col, .cols = cols, .rows = p->m};

    if (careful_columns)
        shape.vectors = 4;
    if (p->parts > 1)
        TSR__TRY(emit_parts(p, &at, shape, emit, user));
    for (at.parts = 0; at.k < p->k; at.k += at.k_count) {
        stretch of_k = stretch_for(p, p->k - at.k, careful_columns);
        uint32_t elements = of_k.steps * (is_nt(p) ? p->lanes : 1);
        uint32_t bytes = elements * (uint32_t)tsr_dtype_size(p->a_dtype);
        uint32_t block = tsr__min_u32(BLOCK_BYTES / bytes, MAX_GROUPS) / shape.rows * shape.rows;

        at.k_count = tsr__min_u32(elements, p->k - at.k);
        for (at.row = 0; at.row < p->m; at.row += at.rows) {
            at.rows = tsr__min_u32(block, p->m - at.row);
            TSR__TRY(emit_piece(p, &at, shape, of_k, emit, user));
        }
    }
    return TSR_OK;
}

tsr_status tsr__lavapipe_plan(const tsr__lavapipe_product *p, tsr__lavapipe_emit_fn emit,
                              void *user)
{
    uint32_t tile_cols = tile_for(p).vectors * (is_nt(p) ? 1 : p->lanes);
    /* With lanes along k, columns past the edge repeat the last one; the vector loads along n must
     * not cross it, so there the last few columns are a band of their own. */
    uint32_t whole = is_nt(p) ? p->n : p->n / tile_cols * tile_cols;
    uint32_t limit = MAX_GROUPS * tile_cols;
    uint32_t cols;

    for (uint32_t col = 0; col < whole; col += cols) {
        cols = tsr__min_u32(limit, whole - col);
        TSR__TRY(emit_band(p, col, cols, false, emit, user));
    }
    return whole < p->n ? emit_band(p, whole, p->n - whole, true, emit, user) : TSR_OK;
}
