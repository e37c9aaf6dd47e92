/* How products are divided for Mesa's CPU driver, as arithmetic. plan.h explains pieces (the
 * dispatches of a product), stretches (the ranges of k that pieces cover), splits (ranges of k with
 * sums of their own) and panels (packed operands). Every element of y must get all of k, once and
 * in order, from pieces that are inside the operands and within the limits of a dispatch. */
#include <stdlib.h>

#include "base/checked.h"
#include "gpu/cpu_drivers/matmul/plan.h"
#include "support/check_main.h"
#include "support/random.h"

typedef struct cut {
    tsr__lavapipe_product product;
    /* [m, n]: the k that each element of y needs next; NULL: only count the products */
    uint32_t *next_k;
    uint64_t products; /* the number of products that the pieces so far compute */
    bool once;         /* the result of tsr__lavapipe_once() */
    /* About the last piece: its first column, the column after its last one, and how many of its
     * columns the piece before had already computed. */
    uint64_t col;
    uint32_t end_col, again;
} cut;

/* The first element of y and the first k of a piece, computed from the offsets of its operands.
 * Strides are those of product_of(). */
typedef struct corner {
    uint64_t row, col, k;
    uint32_t skip; /* The piece skips this many elements from k on, because earlier pieces have
                      added them. */
} corner;

/* For operands in panels: finds the range of k of a piece. The panels of all lines for one
 * stretch follow those for the previous stretch. */
static void find_panels(const cut *c, const tsr__lavapipe_piece *piece, corner *at)
{
    const tsr__lavapipe_product *p = &c->product;
    const uint64_t done = (piece->a - (p->first_row + at->row) * piece->k) / p->a_lines;
    const tsr__lavapipe_stretch s = tsr__lavapipe_stretch_after(p, (uint32_t)done);

    ck_assert(piece->a == done * p->a_lines + (p->first_row + at->row) * piece->k);
    ck_assert(piece->b == done * p->b_lines + at->col * piece->k);
    ck_assert(s.steps == piece->constants[TSR__LAVAPIPE_STEPS] && s.k + s.skip == done);
    ck_assert(piece->constants[TSR__LAVAPIPE_ROWS] == TSR__LAVAPIPE_PANEL_LINES &&
              piece->constants[TSR__LAVAPIPE_VECTORS] == TSR__LAVAPIPE_PANEL_LINES);
    ck_assert(at->row % TSR__LAVAPIPE_PANEL_LINES == 0 && at->col % TSR__LAVAPIPE_PANEL_LINES == 0);
    ck_assert(piece->constants[TSR__LAVAPIPE_CAREFUL] == 0);
    ck_assert(piece->skip == 0);
    at->k = s.k;
    at->skip = s.skip;
}

static corner corner_of(const cut *c, const tsr__lavapipe_piece *piece)
{
    const tsr__lavapipe_product *p = &c->product;
    corner at = {.row = piece->sums / p->sums_stride,
                 .col = piece->sums % p->sums_stride,
                 .skip = piece->skip};

    ck_assert(piece->y == at.row * p->y_stride + at.col);
    ck_assert(piece->row == at.row && piece->column == at.col);
    ck_assert(piece->constants[TSR__LAVAPIPE_PANELS] == p->panels);
    if (p->panels) {
        find_panels(c, piece, &at);
        return at;
    }
    switch (p->form) {
    case TSR__LAVAPIPE_NT:
        at.k = piece->a - at.row * p->a_stride;
        ck_assert(piece->b == at.col * p->b_stride + at.k);
        break;
    case TSR__LAVAPIPE_NN:
        at.k = piece->a - at.row * p->a_stride;
        ck_assert(piece->b == at.k * p->b_stride + at.col);
        break;
    case TSR__LAVAPIPE_TN:
        at.k = (piece->a - at.row) / p->a_stride;
        ck_assert(piece->a == at.k * p->a_stride + at.row);
        ck_assert(piece->b == at.k * p->b_stride + at.col);
        break;
    }
    return at;
}

/* Checks that the z dimension of the dispatch counts blocks of rows, and that only few
 * workgroups are past the last row. */
static void check_blocks(const tsr__lavapipe_product *p, const tsr__lavapipe_piece *piece,
                         uint32_t tiles)
{
    const uint32_t blocks = piece->groups[2];

    if (blocks == 1) {
        ck_assert(piece->block == 0 && piece->groups[0] == tiles);
        return;
    }
    ck_assert(p->form == TSR__LAVAPIPE_NT && !p->batched);
    ck_assert(piece->groups[0] == piece->block);
    ck_assert(piece->groups[0] * (blocks - 1) < tiles && piece->groups[0] * blocks >= tiles);
    ck_assert(piece->groups[0] * blocks - tiles <= tiles / 32);
}

static tsr_status take(void *user, const tsr__lavapipe_piece *piece)
{
    cut *c = user;
    const tsr__lavapipe_product *p = &c->product;
    const bool nt = p->form == TSR__LAVAPIPE_NT;
    const uint32_t tile_rows = piece->constants[TSR__LAVAPIPE_ROWS];
    const uint32_t vectors = piece->constants[TSR__LAVAPIPE_VECTORS];
    const uint32_t tile_cols = nt ? vectors : vectors * p->lanes;
    const uint32_t subgroups = piece->constants[TSR__LAVAPIPE_WORKGROUP] / p->lanes;
    const uint32_t steps = piece->constants[TSR__LAVAPIPE_STEPS] * (nt ? p->lanes : 1);
    const uint32_t width = nt ? piece->constants[TSR__LAVAPIPE_FORM] : 1;
    const bool careful = piece->constants[TSR__LAVAPIPE_CAREFUL] != 0;
    ck_assert_int_eq(piece->constants[TSR__LAVAPIPE_PHASES], p->phases);
    const bool is_split = piece->constants[TSR__LAVAPIPE_SPLIT] != 0;
    const bool fresh = piece->constants[TSR__LAVAPIPE_FRESH] != 0;
    const uint32_t splits = is_split ? piece->groups[!nt] : 1;
    const uint32_t col_groups = piece->groups[!is_split || nt];
    const corner at = corner_of(c, piece);
    const uint64_t first = at.k + at.skip, k_count = (uint64_t)piece->k * splits - at.skip;

    ck_assert(piece->nn == !nt);
    ck_assert(piece->m >= 1 && piece->n >= 1 && piece->k >= 1);
    ck_assert(at.row + piece->m <= p->m && at.col + piece->n <= p->n && first + k_count <= p->k);
    ck_assert(piece->constants[TSR__LAVAPIPE_LANES] == p->lanes);
    ck_assert(piece->constants[TSR__LAVAPIPE_BATCHED] == 0);
    /* A kernel without TSR__LAVAPIPE_CAREFUL has no checks of bounds: it executes all its steps
     * and computes complete tiles along n. */
    ck_assert(piece->k == steps || (careful && piece->k == p->k && piece->k < steps));
    ck_assert(nt || careful || piece->n % tile_cols == 0 || (fresh && piece->n > tile_cols));
    ck_assert(!nt || (vectors % width == 0 && piece->n % width == 0));
    ck_assert(nt || piece->constants[TSR__LAVAPIPE_FORM] == (p->form == TSR__LAVAPIPE_TN));
    /* Only the pieces that reach the end of k apply the epilogue and write y. */
    const uint32_t finish = piece->constants[TSR__LAVAPIPE_FINISH];
    ck_assert(finish == (at.k + (uint64_t)piece->k * splits == p->k ? p->finish : 0));
    ck_assert(!finish || nt || fresh);
    /* A column may be computed by two pieces only if each piece overwrites the sums with the
     * products of all of k. */
    ck_assert(!fresh || (!nt && !careful && !piece->accumulate && first == 0 && k_count == p->k));
    /* Stores of 64 bits are used if four elements are stored at once and every row starts at a
     * multiple of 8 bytes. */
    ck_assert((piece->constants[TSR__LAVAPIPE_PAIRS] != 0) ==
              ((finish ? p->y_paired : p->sums_paired) && at.col % 2 == 0 &&
               (nt ? width == 4 : !careful && piece->n % 4 == 0)));
    ck_assert(!piece->constants[TSR__LAVAPIPE_PAIRS] ||
              (finish ? piece->y % 4 == 0
                      : piece->sums % 2 == 0 && (splits == 1 || p->m * p->n % 2 == 0)));
    ck_assert(piece->skip < piece->k && !(is_split && piece->skip > 0));
    ck_assert(piece->skip == 0 || piece->constants[TSR__LAVAPIPE_SKIPS] == 1);
    /* The workgroups cover the piece, and their number is within the limit of a dispatch. */
    if (is_split && nt) /* z counts tiles of rows */
        ck_assert(piece->groups[2] == tsr__div_up_u32(piece->m, tile_rows) && piece->block == 0 &&
                  piece->constants[TSR__LAVAPIPE_SPLIT] == (piece->groups[2] > 1 ? 2 : 1));
    else if (is_split)
        ck_assert(piece->m <= tile_rows && piece->groups[2] == 1);
    else
        check_blocks(p, piece, tsr__div_up_u32(piece->m, tile_rows));
    ck_assert(subgroups >= 1 && subgroups <= 8);
    ck_assert((uint64_t)col_groups * subgroups * tile_cols >= piece->n);
    ck_assert(((uint64_t)col_groups * subgroups - subgroups) * tile_cols < piece->n);
    ck_assert(piece->groups[0] <= 4095 && piece->groups[1] <= 4095);
    ck_assert(piece->groups[2] <= (is_split && nt && p->alone ? 4095 : 8));
    /* The pieces at the start of k must overwrite the sums of all splits before any piece adds to
     * them. */
    ck_assert(piece->accumulate == (first != 0 || p->accumulate));
    ck_assert(splits <= p->method.splits);
    ck_assert(!c->once || (splits == 1 && first == 0 && k_count == p->k));
    if (first == 0) {
        ck_assert(p->method.splits == 1 || splits == p->method.splits);
    }
    /* The last tile along n may begin in columns of the previous piece. It then computes their
     * sums a second time. */
    if (at.col != c->col) {
        c->again = c->end_col - (uint32_t)at.col;
        ck_assert(c->again < piece->n);
        ck_assert(c->again == 0 || (!nt && !careful && !p->accumulate && p->method.splits == 1 &&
                                    piece->n == tile_cols && at.col + piece->n == p->n));
    }
    c->col = at.col;
    c->end_col = (uint32_t)at.col + piece->n;
    c->products += piece->m * (uint64_t)(piece->n - c->again) * k_count;
    for (uint64_t row = at.row; c->next_k && row < at.row + piece->m; row++)
        for (uint64_t col = at.col; col < at.col + piece->n; col++) {
            uint32_t *next = &c->next_k[row * p->n + col];
            if (first == 0 && col < at.col + c->again) {
                ck_assert(*next == p->k);
                *next = 0;
            }
            ck_assert(*next == first);
            *next += (uint32_t)k_count;
        }
    return TSR_OK;
}

static void check_pieces(cut *c, bool each)
{
    const tsr__lavapipe_product *p = &c->product;
    const size_t elements = (size_t)p->m * p->n;

    if (each) {
        c->next_k = calloc(elements, sizeof *c->next_k);
        ck_assert_ptr_nonnull(c->next_k);
    }
    ck_assert_ok(tsr__lavapipe_plan(p, take, c));
    ck_assert(c->products == (uint64_t)p->m * p->n * p->k);
    for (size_t i = 0; each && i < elements; i++)
        ck_assert(c->next_k[i] == p->k);
    free(c->next_k);
}

static void check_plan(tsr__lavapipe_form form, uint32_t m, uint32_t n, uint32_t k, uint32_t lanes,
                       bool accumulate, bool each)
{
    cut c = {.product = {.form = form,
                         .m = m,
                         .n = n,
                         .k = k,
                         .lanes = lanes,
                         .a_stride = form == TSR__LAVAPIPE_TN ? (uint64_t)m + 5 : (uint64_t)k + 3,
                         .b_stride = form == TSR__LAVAPIPE_NT ? (uint64_t)k + 7 : (uint64_t)n + 1,
                         .sums_stride = n,
                         .sums_paired = n % 2 == 0,
                         .y_stride = tsr__align_up_u64(n, 4) + (m % 2 ? 0 : 3),
                         .y_paired = m % 2 != 0,
                         .a_dtype = TSR_F32,
                         .b_dtype = TSR_F16,
                         .accumulate = accumulate,
                         .alone = m % 4 != 3}};
    c.product.method = tsr__lavapipe_resolve(&c.product);
    const uint32_t splits = c.product.method.splits;
    ck_assert(splits >= 1 && splits <= 32);
    ck_assert(splits == 1 || m <= (form == TSR__LAVAPIPE_NT ? 8 : 1) ||
              (form == TSR__LAVAPIPE_NT && c.product.alone && m * n <= 1 << 13));
    if (splits > 1)
        c.product.accumulate = false; /* adding up the splits accumulates */
    else if (form == TSR__LAVAPIPE_NT ||
             (m > 1 && n >= 4 * lanes && !accumulate && tsr__lavapipe_is_short(k)))
        c.product.finish = n % 3;
    c.once = tsr__lavapipe_once(&c.product);
    check_pieces(&c, each);
}

static const uint32_t lane_counts[] = {4, 8, 16};

START_TEST(random_products)
{
    uint64_t random = 1 + (uint64_t)_i;
    for (int i = 0; i < 800; i++) {
        const uint32_t m = (uint32_t)random_between(&random, 1, 70);
        const uint32_t n = (uint32_t)random_between(&random, 1, 300);
        const uint32_t k = (uint32_t)random_between(&random, 1, i % 4 ? 3000 : 40000);
        check_plan((tsr__lavapipe_form)_i, m, n, k, lane_counts[i % 3], i & 1, true);
    }
}
END_TEST

/* Operands are in panels. The product may be a band of rows of a larger product, perhaps with
 * too few rows to use panels by itself. */
START_TEST(products_in_panels)
{
    uint64_t random = 12;
    int in_panels = 0;
    for (int i = 0; i < 300; i++) {
        const uint32_t all_rows = (uint32_t)random_between(&random, 20, 300);
        const uint32_t m = i % 3 ? all_rows : (uint32_t)random_between(&random, 1, all_rows);
        const uint32_t n = (uint32_t)random_between(&random, 20, 300);
        const uint32_t k = (uint32_t)random_between(&random, 200, i % 4 ? 3000 : 40000);
        const uint32_t first = (uint32_t)random_between(&random, 0, 50) * TSR__LAVAPIPE_PANEL_LINES;
        cut c = {.product = {.form = TSR__LAVAPIPE_NT,
                             .m = m,
                             .n = n,
                             .k = k,
                             .all_rows = all_rows,
                             .lanes = lane_counts[i / 3 % 3],
                             .sums_stride = n,
                             .sums_paired = n % 2 == 0,
                             .y_stride = n + 3,
                             .a_dtype = TSR_F32,
                             .b_dtype = TSR_F32,
                             .finish = n % 3,
                             .panels = true,
                             .a_lines = m + first + 8,
                             .b_lines = n + 4,
                             .first_row = first}};
        c.product.method = tsr__lavapipe_resolve(&c.product);
        if (!tsr__lavapipe_takes_panels(&c.product))
            continue;
        in_panels++;
        ck_assert(c.product.method.splits == 1 && k >= 64 * c.product.lanes && all_rows > 24);
        c.once = tsr__lavapipe_once(&c.product);
        check_pieces(&c, true);
    }
    ck_assert_int_gt(in_panels, 100);
}
END_TEST

static tsr_status keep(void *user, const tsr__lavapipe_piece *piece)
{
    *(tsr__lavapipe_piece *)user = *piece;
    return TSR_OK;
}

static tsr_status keep_first(void *user, const tsr__lavapipe_piece *piece)
{
    keep(user, piece);
    return TSR_ERR_TIMEOUT; /* stops the plan */
}

/* Products that are divided into the longest stretches, with and without panels. */
START_TEST(long_products)
{
    uint64_t random = 19;
    int six_rows = 0, four_rows = 0;
    for (int i = 0; i < 60; i++) {
        const uint32_t m = (uint32_t)random_between(&random, 20, 90);
        const uint32_t n = (uint32_t)random_between(&random, 60, 400);
        const uint32_t least = (1 << 27) / (m * n);
        const uint32_t k = least + (uint32_t)random_between(&random, 0, 4000);
        cut c = {.product = {.form = TSR__LAVAPIPE_NT,
                             .m = m,
                             .n = n,
                             .k = k,
                             .lanes = i % 10 ? 8 : 16,
                             .a_stride = (uint64_t)k + 3,
                             .b_stride = (uint64_t)k + 7,
                             .sums_stride = n,
                             .sums_paired = n % 2 == 0,
                             .y_stride = n + 3,
                             .a_dtype = TSR_F32,
                             .b_dtype = TSR_F16,
                             .finish = n % 3,
                             .alone = true,
                             .long_code = i % 7 > 0,
                             .phases = i % 5 > 0,
                             .panels = i % 3 == 0,
                             .a_lines = m + 8,
                             .b_lines = n + 4}};
        c.product.method = tsr__lavapipe_resolve(&c.product);
        if (c.product.panels && !tsr__lavapipe_takes_panels(&c.product))
            continue;
        tsr__lavapipe_piece first = {0};
        const bool is_long = c.product.method.long_code;
        ck_assert(!is_long || (c.product.long_code && c.product.lanes == 8 && m > 24));
        ck_assert_int_eq(tsr__lavapipe_plan(&c.product, keep_first, &first), TSR_ERR_TIMEOUT);
        ck_assert((first.constants[TSR__LAVAPIPE_STEPS] == 128) == is_long || m <= 24);
        six_rows += is_long && first.constants[TSR__LAVAPIPE_ROWS] == 6;
        four_rows += is_long && first.constants[TSR__LAVAPIPE_ROWS] == 4;
        c.once = tsr__lavapipe_once(&c.product);
        check_pieces(&c, true);
    }
    ck_assert_int_gt(six_rows, 10);
    ck_assert_int_gt(four_rows, 10);
}
END_TEST

/* Tests from which sizes on products have the method with long_code (number of rows, k, and m · n ·
 * k), and with which numbers of rows tiles of six rows waste less than tiles of four. */
START_TEST(products_that_are_long)
{
    static const struct {
        uint32_t m, n, k, rows, steps;
        bool panels;
    } cases[] = {
        {128, 2048, 2048, 6, 128, false},  {512, 5632, 2048, 6, 128, false},
        {128, 2048, 2048, 4, 128, true},   {128, 5632, 1024, 6, 128, false},
        {128, 5632, 1023, 4, 64, false},   {28, 5632, 1024, 4, 128, false},
        {24, 5632, 1024, 8, 128, false},   {1024, 128, 1024, 4, 64, false},
        {1026, 128, 1024, 6, 128, false},  {64, 128, 1 << 20, 4, 64, false},
        {65, 128, 1 << 20, 6, 128, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tsr__lavapipe_product product = {.form = TSR__LAVAPIPE_NT,
                                         .m = cases[i].m,
                                         .n = cases[i].n,
                                         .k = cases[i].k,
                                         .lanes = 8,
                                         .alone = true,
                                         .long_code = true,
                                         .panels = cases[i].panels,
                                         .a_dtype = TSR_F32,
                                         .b_dtype = TSR_F32};
        product.method = tsr__lavapipe_resolve(&product);
        tsr__lavapipe_piece first = {0};
        ck_assert_int_eq(tsr__lavapipe_plan(&product, keep_first, &first), TSR_ERR_TIMEOUT);
        ck_assert_uint_eq(first.constants[TSR__LAVAPIPE_ROWS], cases[i].rows);
        ck_assert_uint_eq(first.constants[TSR__LAVAPIPE_STEPS], cases[i].steps);
    }
}
END_TEST

/* Few rows, with k divided into ranges that are summed in parallel: sizes around each limit of
 * m, n and k. */
START_TEST(few_long_rows)
{
    uint64_t random = 9;
    int in_parts = 0;
    for (int i = 0; i < 800; i++) {
        const uint32_t m = (uint32_t)random_between(&random, 1, 9);
        const uint32_t n = (uint32_t)random_between(&random, 200, 2000);
        const uint32_t steps = (uint32_t)random_between(&random, 1, 40) * 64;
        const uint32_t k =
            steps * lane_counts[i % 3] +
            (uint32_t)random_between(&random, 0, 3) * (uint32_t)random_between(&random, 0, 99);
        check_plan(TSR__LAVAPIPE_NT, m, n, k, lane_counts[i % 3], false, i % 20 == 0);
        in_parts += (uint64_t)n * k >= 1 << 20 && m <= 8;
    }
    ck_assert_int_gt(in_parts, 300);
}
END_TEST

/* Few elements of y and a long k, which is divided into ranges: sizes around each limit of the
 * number of ranges. */
START_TEST(few_deep_elements)
{
    uint64_t random = 11;
    int in_parts = 0;
    for (int i = 0; i < 800; i++) {
        const uint32_t m = (uint32_t)random_between(&random, 1, 300);
        const uint32_t n = (uint32_t)random_between(&random, 8, 16384 / m + 8);
        const uint32_t lanes = lane_counts[i % 3];
        const uint32_t k =
            (uint32_t)random_between(&random, 1, 40) * 64 * lanes +
            (uint32_t)random_between(&random, 0, 3) * (uint32_t)random_between(&random, 0, 99);
        check_plan(TSR__LAVAPIPE_NT, m, n, k, lanes, false, true);
        in_parts += m * n <= 1 << 13 && m % 4 != 3 && k >= 128 * 4 * lanes;
    }
    ck_assert_int_gt(in_parts, 100);
}
END_TEST

/* k is so short that one stretch covers it, and lanes are along n. */
START_TEST(short_k)
{
    uint64_t random = 13;
    int overlapping = 0;
    for (int i = 0; i < 600; i++) {
        const uint32_t m = (uint32_t)random_between(&random, 2, 90);
        const uint32_t n = (uint32_t)random_between(&random, 1, 200);
        const uint32_t k = 32 * (uint32_t)random_between(&random, 1, 5);
        ck_assert(tsr__lavapipe_is_short(k) == (k <= 128));
        ck_assert(!tsr__lavapipe_is_short(k + 16));
        check_plan(i % 2 ? TSR__LAVAPIPE_NN : TSR__LAVAPIPE_TN, m, n, k, lane_counts[i % 3],
                   i % 4 == 0, true);
        overlapping += i % 4 != 0 && k <= 128 && n > 64 && n % 64 > 0;
    }
    ck_assert_int_gt(overlapping, 100);
}
END_TEST

/* One row, with lanes along n. */
START_TEST(one_long_row)
{
    uint64_t random = 10;
    for (int i = 0; i < 800; i++) {
        const uint32_t n = (uint32_t)random_between(&random, 20, i % 8 ? 1500 : 20000);
        const uint32_t k = (uint32_t)random_between(&random, 100, i % 8 ? 9000 : 2000);
        check_plan(i % 2 ? TSR__LAVAPIPE_NN : TSR__LAVAPIPE_TN, 1, n, k, lane_counts[i % 3], false,
                   true);
    }
}
END_TEST

static uint32_t row_splits(uint32_t n, uint32_t k)
{
    const tsr__lavapipe_product product = {
        .form = TSR__LAVAPIPE_NN, .m = 1, .n = n, .k = k, .lanes = 8};

    return tsr__lavapipe_resolve(&product).splits;
}

/* The sizes from which summing ranges of k in parallel is faster; see
 * docs/log/matmul-lavapipe.md. */
START_TEST(splits_of_one_row)
{
    ck_assert_uint_eq(row_splits(256, 255), 1);
    ck_assert_uint_eq(row_splits(256, 256), 8);
    ck_assert_uint_eq(row_splits(1 << 14, 127), 1);
    ck_assert_uint_eq(row_splits(512, 128), 4);
    ck_assert_uint_eq(row_splits(8192, 256), 8);
    ck_assert_uint_eq(row_splits(1024, 1023), 16);
    ck_assert_uint_eq(row_splits(1024, 1024), 32);
    ck_assert_uint_eq(row_splits(4096, 4096), 32);
    ck_assert_uint_eq(row_splits(64, 4096), 32);
}
END_TEST

static uint32_t deep_splits(uint32_t m, uint32_t n, uint32_t k, bool alone)
{
    const tsr__lavapipe_product product = {
        .form = TSR__LAVAPIPE_NT, .m = m, .n = n, .k = k, .lanes = 8, .alone = alone};

    return tsr__lavapipe_resolve(&product).splits;
}

/* k is divided into ranges if it has at least four stretches of 64 steps of 8 elements; see
 * docs/log/matmul-lavapipe.md. */
START_TEST(splits_of_few_elements)
{
    ck_assert_uint_eq(deep_splits(64, 64, 2047, true), 1);
    ck_assert_uint_eq(deep_splits(64, 64, 2048, true), 4);
    ck_assert_uint_eq(deep_splits(64, 64, 4095, true), 4);
    ck_assert_uint_eq(deep_splits(64, 64, 4096, true), 8);
    ck_assert_uint_eq(deep_splits(64, 64, 4096, false), 1);
    ck_assert_uint_eq(deep_splits(64, 128, 4096, true), 8);
    ck_assert_uint_eq(deep_splits(64, 129, 4096, true), 1);
    ck_assert_uint_eq(deep_splits(512, 16, 1 << 16, true), 16);
    ck_assert_uint_eq(deep_splits(1, 64, 2047, true), 1);
    ck_assert_uint_eq(deep_splits(1, 64, 2048, true), 4);
}
END_TEST

static const struct {
    uint32_t m, n, k;
    bool batched;
    uint32_t groups, blocks, lanes;
} blocks_of_rows[] = {
    {256, 1024, 256, false, 32, 1, 8},
    {512, 1024, 256, false, 32, 2, 8},
    {1024, 1024, 256, false, 32, 4, 8},
    {1024, 1024, 64, false, 128, 1, 8},
    {1024, 1024, 256, true, 128, 1, 8},
    {1016, 1024, 256, false, 32, 4, 8},
    {1000, 1024, 256, false, 32, 4, 8},
    {520, 1024, 256, false, 22, 3, 8},
    {328, 1024, 256, false, 21, 2, 8},
    {1024, 1024, 512, false, 32, 8, 8},
    {1000, 1024, 512, false, 32, 8, 8},
    {1320, 1024, 512, false, 42, 8, 8},
    {4096, 1024, 256, false, 64, 8, 8},
    {32760, 1024, 256, false, 512, 8, 8},
    {32760, 1024, 256, true, 4095, 1, 8},
    /* Two blocks of rows would take 18 workgroups, of which one would be past the last row. */
    {68, 1024, 1024, false, 17, 1, 16},
    {72, 1024, 1024, false, 9, 2, 16},
    /* n is short, so the subgroups of a workgroup compute different rows */
    {2048, 100, 256, false, 32, 8, 8},
    {4096, 100, 256, false, 32, 8, 8},
    {512, 100, 256, true, 64, 1, 8},
    {1024, 100, 256, true, 64, 1, 8},
};

START_TEST(rows_in_blocks)
{
    tsr__lavapipe_product product = {.form = TSR__LAVAPIPE_NT,
                                     .m = blocks_of_rows[_i].m,
                                     .n = blocks_of_rows[_i].n,
                                     .k = blocks_of_rows[_i].k,
                                     .lanes = blocks_of_rows[_i].lanes,
                                     .a_dtype = TSR_F32,
                                     .b_dtype = TSR_F32,
                                     .batched = blocks_of_rows[_i].batched};
    tsr__lavapipe_piece piece;

    product.method = tsr__lavapipe_resolve(&product);
    ck_assert_ok(tsr__lavapipe_plan(&product, keep, &piece));
    ck_assert_uint_eq(piece.groups[0], blocks_of_rows[_i].groups);
    ck_assert_uint_eq(piece.groups[2], blocks_of_rows[_i].blocks);
}
END_TEST

static const struct {
    uint32_t m, n, k;
    tsr_dtype b_dtype;
    uint32_t rows, vectors, steps;
    tsr__lavapipe_form form;
} tiles_and_stretches[] = {
    /* k is too short for more steps */
    {256, 256, 256, TSR_F32, 8, 4, 32, TSR__LAVAPIPE_NT},
    {4096, 4096, 511, TSR_F32, 8, 4, 32, TSR__LAVAPIPE_NT},
    {12, 64, 500, TSR_F32, 6, 4, 32, TSR__LAVAPIPE_NT},
    /* the longest code that fits the instruction cache */
    {12, 64, 512, TSR_F32, 4, 4, 64, TSR__LAVAPIPE_NT},
    {64, 256, 1024, TSR_F32, 4, 4, 64, TSR__LAVAPIPE_NT},
    {1024, 1024, 1024, TSR_F32, 4, 4, 64, TSR__LAVAPIPE_NT},
    {1024, 1024, 1024, TSR_BF16, 4, 4, 64, TSR__LAVAPIPE_NT},
    {1024, 1024, 1024, TSR_F16, 4, 4, 64, TSR__LAVAPIPE_NT},
    {25, 4096, 4096, TSR_F32, 4, 4, 64, TSR__LAVAPIPE_NT},
    /* one stretch for all of k, except with few rows, or if several stretches of equal length
     * cover k */
    {768, 128, 384, TSR_F32, 4, 4, 48, TSR__LAVAPIPE_NT},
    {128, 512, 768, TSR_F32, 4, 4, 96, TSR__LAVAPIPE_NT},
    {128, 128, 768, TSR_BF16, 4, 4, 96, TSR__LAVAPIPE_NT},
    {64, 128, 768, TSR_F32, 4, 4, 64, TSR__LAVAPIPE_NT},
    {12, 2048, 768, TSR_F32, 4, 4, 64, TSR__LAVAPIPE_NT},
    {768, 128, 640, TSR_F32, 4, 4, 64, TSR__LAVAPIPE_NT},
    /* few rows, with the number of rows in a tile that wastes the fewest */
    {24, 4096, 4096, TSR_F32, 8, 4, 128, TSR__LAVAPIPE_NT},
    {18, 4096, 4096, TSR_F32, 6, 4, 128, TSR__LAVAPIPE_NT},
    {16, 4096, 4096, TSR_F16, 8, 4, 128, TSR__LAVAPIPE_NT},
    {12, 4096, 4096, TSR_F16, 6, 4, 128, TSR__LAVAPIPE_NT},
    /* one row or a few, first with a small b, then with a b so large that a dispatch reads a
     * long range of k */
    {1, 512, 256, TSR_F32, 1, 8, 32, TSR__LAVAPIPE_NT},
    {1, 512, 512, TSR_F32, 1, 8, 64, TSR__LAVAPIPE_NT},
    {1, 512, 1024, TSR_F32, 1, 8, 64, TSR__LAVAPIPE_NT},
    {1, 1024, 1000, TSR_F32, 1, 8, 64, TSR__LAVAPIPE_NT},
    {1, 1024, 1024, TSR_F32, 1, 8, 64, TSR__LAVAPIPE_NT},
    {1, 8192, 4096, TSR_F32, 1, 8, 128, TSR__LAVAPIPE_NT},
    {3, 512, 512, TSR_F32, 4, 4, 64, TSR__LAVAPIPE_NT},
    {3, 1024, 1024, TSR_F32, 4, 8, 64, TSR__LAVAPIPE_NT},
    {6, 1024, 1024, TSR_F32, 6, 4, 64, TSR__LAVAPIPE_NT},
    {8, 1024, 1024, TSR_F16, 8, 4, 64, TSR__LAVAPIPE_NT},
    /* lanes along n */
    {64, 64, 64, TSR_F32, 6, 4, 64, TSR__LAVAPIPE_TN},
    {66, 64, 72, TSR_F32, 6, 4, 32, TSR__LAVAPIPE_TN},
    {9, 64, 96, TSR_F32, 6, 4, 96, TSR__LAVAPIPE_NN},
    {11, 64, 32, TSR_F32, 6, 4, 32, TSR__LAVAPIPE_NN},
    {64, 1 << 20, 128, TSR_F32, 6, 4, 128, TSR__LAVAPIPE_NN},
    {1, 64, 128, TSR_F32, 1, 8, 32, TSR__LAVAPIPE_NN},
};

START_TEST(sizes_of_tiles)
{
    tsr__lavapipe_product product = {.form = tiles_and_stretches[_i].form,
                                     .m = tiles_and_stretches[_i].m,
                                     .n = tiles_and_stretches[_i].n,
                                     .k = tiles_and_stretches[_i].k,
                                     .lanes = 8,
                                     .a_dtype = TSR_F32,
                                     .b_dtype = tiles_and_stretches[_i].b_dtype};
    tsr__lavapipe_piece first = {0};

    product.method = tsr__lavapipe_resolve(&product);
    ck_assert_int_eq(tsr__lavapipe_plan(&product, keep_first, &first), TSR_ERR_TIMEOUT);
    ck_assert_uint_eq(first.constants[TSR__LAVAPIPE_ROWS], tiles_and_stretches[_i].rows);
    ck_assert_uint_eq(first.constants[TSR__LAVAPIPE_VECTORS], tiles_and_stretches[_i].vectors);
    ck_assert_uint_eq(first.constants[TSR__LAVAPIPE_STEPS], tiles_and_stretches[_i].steps);
}
END_TEST

/* The largest sizes that the kernels for lavapipe take. */
START_TEST(huge_products)
{
    static const uint32_t sizes[][3] = {
        {1, 1 << 27, 9},         {8, 1 << 27, 1 << 12},   {2147483647, 8, 8},
        {2147483647, 1, 70},     {1, 1, 2147483647},      {9, 100000, 100000},
        {1 << 20, 1 << 20, 900}, {70000, 70000, 1 << 20}, {1, 1 << 20, 1 << 24},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_plan((tsr__lavapipe_form)_i, sizes[i][0], sizes[i][1], sizes[i][2], 8, false, false);
}
END_TEST

TESTS(lavapipe_plan)
{
    tcase_add_loop_test(tests, random_products, 0, 3);
    tcase_add_test(tests, products_in_panels);
    tcase_add_test(tests, long_products);
    tcase_add_test(tests, products_that_are_long);
    tcase_add_test(tests, few_long_rows);
    tcase_add_test(tests, short_k);
    tcase_add_test(tests, one_long_row);
    tcase_add_test(tests, splits_of_one_row);
    tcase_add_test(tests, few_deep_elements);
    tcase_add_test(tests, splits_of_few_elements);
    tcase_add_loop_test(tests, rows_in_blocks, 0,
                        (int)(sizeof blocks_of_rows / sizeof *blocks_of_rows));
    tcase_add_loop_test(tests, sizes_of_tiles, 0,
                        (int)(sizeof tiles_and_stretches / sizeof *tiles_and_stretches));
    tcase_add_loop_test(tests, huge_products, 0, 3);
}
