/* Compares the pieces (parts of at most a few dimensions) into which tensors are divided with
 * brute force: together they must visit every element once, at the right address in every
 * operand. */
#include <string.h>

#include "support/check_main.h"
#include "support/layouts.h"
#include "tensor/pieces.h"

static int64_t at[TSR__PIECE_OPERANDS][LAYOUT_MAX_COUNT];
static unsigned char visited[LAYOUT_MAX_COUNT];

static void check_limits(const tsr__piece *piece, int operands, const tsr_layout *const *layouts,
                         uint64_t max_count)
{
    ck_assert(piece->ndim >= 1);
    ck_assert(piece->ndim <= TSR__PIECE_DIMS);
    uint64_t count = 1;
    for (int i = 0; i < TSR__PIECE_DIMS; i++) {
        ck_assert(piece->shape[i] >= 1);
        count *= piece->shape[i];
        if (i >= piece->ndim) {
            ck_assert(piece->shape[i] == 1);
            ck_assert(piece->index_strides[i] == 0);
        }
    }
    ck_assert(count == piece->count);
    ck_assert(count <= (max_count == 0 ? UINT64_C(1) << 30 : max_count));
    for (int op = 0; op < operands; op++) {
        uint64_t last = 0, size = tsr_dtype_size(layouts[op]->dtype);
        for (int i = 0; i < TSR__PIECE_DIMS; i++) {
            last += (uint64_t)(piece->shape[i] - 1) * piece->strides[op][i];
            if (i >= piece->ndim)
                ck_assert(piece->strides[op][i] == 0);
        }
        ck_assert(last * size + size - 1 < UINT64_C(1) << 31);
    }
}

static void visit(const tsr__piece *piece, int operands)
{
    const uint32_t *shape = piece->shape;
    for (uint32_t n = 0; n < piece->count; n++) {
        uint32_t index[TSR__PIECE_DIMS], rest = n;
        for (int i = TSR__PIECE_DIMS - 1; i >= 0; i--) {
            index[i] = rest % shape[i];
            rest /= shape[i];
        }
        int64_t row_major = piece->index;
        for (int i = 0; i < TSR__PIECE_DIMS; i++)
            row_major += index[i] * piece->index_strides[i];
        ck_assert(row_major < LAYOUT_MAX_COUNT);
        ck_assert(visited[row_major] == 0);
        visited[row_major] = 1;
        for (int op = 0; op < operands; op++) {
            int64_t address = piece->offset[op];
            for (int i = 0; i < TSR__PIECE_DIMS; i++)
                address += (int64_t)index[i] * piece->strides[op][i];
            ck_assert(address == at[op][row_major]);
        }
    }
}

static int walk_all(int operands, const tsr_layout *const *layouts, uint64_t max_count)
{
    int64_t count = 0;
    for (int op = 0; op < operands; op++)
        count = layout_addresses(layouts[op], at[op]);
    memset(visited, 0, sizeof visited);

    tsr__pieces walk;
    tsr__piece piece;
    int pieces = 0;
    tsr__pieces_init(&walk, operands, layouts, max_count);
    for (; tsr__pieces_next(&walk, &piece); pieces++) {
        check_limits(&piece, operands, layouts, max_count);
        visit(&piece, operands);
    }
    ck_assert(!tsr__pieces_next(&walk, &piece)); /* it stays at the end */
    for (int64_t i = 0; i < LAYOUT_MAX_COUNT; i++)
        ck_assert(visited[i] == (i < count));
    return pieces;
}

/* Makes operands of one shape whose dimensions are in different orders, with steps and repeated
 * dimensions. */
static void random_operands(uint64_t *random, int operands, tsr_layout *layouts)
{
    layouts[0] = layout_random_view(random, TSR_F32, 8);
    for (int op = 1; op < operands; op++) {
        static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_U8, TSR_I64};
        ck_assert_ok(tsr_layout_init(dtypes[random_between(random, 0, 3)], layouts[0].ndim,
                                     layouts[0].shape, &layouts[op]));
        if (random_between(random, 0, 2) == 0)
            memcpy(layouts[op].strides, layouts[0].strides, sizeof layouts[op].strides);
        for (int i = 0; i < layouts[op].ndim; i++) {
            if (random_between(random, 0, 4) == 0)
                layouts[op].strides[i] =
                    random_between(random, 0, 1) ? 0 : random_between(random, 1, 99);
        }
        layouts[op].offset = random_between(random, 0, 1000);
    }
}

START_TEST(random_layouts)
{
    uint64_t random = 1;
    for (int round = 0; round < 20000; round++) {
        tsr_layout layouts[TSR__PIECE_OPERANDS];
        const tsr_layout *list[TSR__PIECE_OPERANDS];
        int operands = (int)random_between(&random, 1, TSR__PIECE_OPERANDS);
        random_operands(&random, operands, layouts);
        for (int op = 0; op < operands; op++)
            list[op] = &layouts[op];
        uint64_t max_count = 0;
        if (random_between(&random, 0, 1))
            max_count =
                (uint64_t)random_between(&random, 1, random_between(&random, 0, 1) ? 9 : 500);
        walk_all(operands, list, max_count);
    }
}
END_TEST

START_TEST(dense_operands_are_one_piece)
{
    tsr_layout layout;
    ck_assert_ok(tsr_layout_init(TSR_F32, 8, (int64_t[]){2, 1, 3, 2, 2, 1, 3, 2}, &layout));
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, 2, (const tsr_layout *[]){&layout, &layout}, 0);
    ck_assert(tsr__pieces_next(&walk, &piece));
    ck_assert_int_eq(piece.ndim, 1);
    ck_assert_uint_eq(piece.shape[0], 144);
    ck_assert_uint_eq(piece.strides[0][0], 1);
    ck_assert(!tsr__pieces_next(&walk, &piece));
}
END_TEST

START_TEST(operand_0_decides_the_order)
{
    tsr_layout rows, columns;
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){5, 7}, &rows));
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){7, 5}, &columns));
    ck_assert_ok(tsr_layout_transpose(&columns, 0, 1, &columns));
    tsr__pieces walk;
    tsr__piece piece;
    tsr__pieces_init(&walk, 2, (const tsr_layout *[]){&columns, &rows}, 0);
    ck_assert(tsr__pieces_next(&walk, &piece));
    ck_assert_int_eq(piece.ndim, 2);
    ck_assert_uint_eq(piece.shape[0], 7);
    ck_assert_uint_eq(piece.shape[1], 5);
    ck_assert_uint_eq(piece.strides[0][1], 1);
    ck_assert_uint_eq(piece.strides[1][1], 7);
    ck_assert_int_eq(piece.index_strides[0], 1);
    ck_assert_int_eq(piece.index_strides[1], 7);

    /* The repeated dimension of operand 0 becomes the outermost. */
    tsr_layout bias;
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){5, 1}, &bias));
    ck_assert_ok(tsr_layout_broadcast(&bias, 2, rows.shape, &bias));
    tsr__pieces_init(&walk, 2, (const tsr_layout *[]){&bias, &rows}, 0);
    ck_assert(tsr__pieces_next(&walk, &piece));
    ck_assert_uint_eq(piece.shape[1], 5);
    ck_assert_uint_eq(piece.strides[0][0], 0);
}
END_TEST

START_TEST(long_dimensions_are_not_cut)
{
    /* Six dimensions cannot be merged. A piece takes the innermost and the three longest of the
     * others. */
    tsr_layout layout = {.dtype = TSR_F32, .ndim = 6, .shape = {2, 9, 2, 8, 7, 3}};
    int64_t stride = 1;
    for (int i = 5; i >= 0; i--) {
        layout.strides[i] = stride;
        stride *= 2 * layout.shape[i];
    }
    tsr__pieces walk;
    tsr__piece piece;
    int pieces = 0;
    tsr__pieces_init(&walk, 1, (const tsr_layout *[]){&layout}, 0);
    for (; tsr__pieces_next(&walk, &piece); pieces++)
        ck_assert_uint_eq(piece.count, 1512); /* 9 · 8 · 7 · 3 */
    ck_assert_int_eq(pieces, 4);
}
END_TEST

START_TEST(no_elements_no_pieces)
{
    tsr_layout layout;
    tsr__pieces walk;
    tsr__piece piece;
    ck_assert_ok(tsr_layout_init(TSR_F32, 3, (int64_t[]){4, 0, 4}, &layout));
    tsr__pieces_init(&walk, 1, (const tsr_layout *[]){&layout}, 0);
    ck_assert(!tsr__pieces_next(&walk, &piece));
}
END_TEST

START_TEST(a_scalar_is_one_piece)
{
    tsr_layout layout;
    ck_assert_ok(tsr_layout_init(TSR_F32, 0, NULL, &layout));
    ck_assert_int_eq(walk_all(1, (const tsr_layout *[]){&layout}, 0), 1);
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){1, 1}, &layout));
    layout.offset = 9;
    ck_assert_int_eq(walk_all(1, (const tsr_layout *[]){&layout}, 1), 1);
}
END_TEST

/* Walks over tensors that are larger than any memory. Counts, limits and positions of the pieces
 * must still be right. */
static void walk_huge(int operands, const tsr_layout *const *layouts, int max_pieces)
{
    tsr__pieces walk;
    tsr__piece piece;
    int64_t total = 0, furthest = 0;
    int pieces = 0;
    tsr__pieces_init(&walk, operands, layouts, 0);
    for (; tsr__pieces_next(&walk, &piece); pieces++) {
        check_limits(&piece, operands, layouts, 0);
        total += piece.count;
        int64_t last = piece.index;
        for (int i = 0; i < piece.ndim; i++)
            last += (int64_t)(piece.shape[i] - 1) * piece.index_strides[i];
        furthest = last > furthest ? last : furthest;
        /* Recomputes the address of the piece's first element from its row-major index. */
        for (int op = 0; op < operands; op++) {
            int64_t address = layouts[op]->offset, rest = piece.index;
            for (int i = layouts[op]->ndim - 1; i >= 0; i--) {
                address += rest % layouts[op]->shape[i] * layouts[op]->strides[i];
                rest /= layouts[op]->shape[i];
            }
            ck_assert(piece.offset[op] == address);
        }
    }
    ck_assert_int_eq(total, tsr_layout_count(layouts[0]));
    ck_assert_int_eq(furthest, total - 1);
    ck_assert_int_le(pieces, max_pieces);
}

START_TEST(huge)
{
    tsr_layout bytes, floats, other;
    int64_t giant = (INT64_C(1) << 34) + 12345;
    ck_assert_ok(tsr_layout_init(TSR_U8, 1, &giant, &bytes));
    walk_huge(1, (const tsr_layout *[]){&bytes}, 17);
    ck_assert_ok(tsr_layout_init(TSR_F32, 1, &giant, &floats));
    walk_huge(2, (const tsr_layout *[]){&bytes, &floats}, 33);

    /* Rows are longer than the limit of a piece. In a transposed layout, neighbours are a row
     * apart. */
    int64_t shape[] = {300, INT64_C(1) << 30};
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, shape, &floats));
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){shape[1], shape[0]}, &other));
    ck_assert_ok(tsr_layout_transpose(&other, 0, 1, &other));
    walk_huge(2, (const tsr_layout *[]){&floats, &other}, 300 * 620);

    /* All indices refer to one element, so only the count is limited. */
    tsr_layout one;
    ck_assert_ok(tsr_layout_init(TSR_F32, 0, NULL, &one));
    ck_assert_ok(tsr_layout_broadcast(&one, 1, &giant, &one));
    walk_huge(1, (const tsr_layout *[]){&one}, 17);
}
END_TEST

TESTS(pieces)
{
    tcase_add_test(tests, random_layouts);
    tcase_add_test(tests, dense_operands_are_one_piece);
    tcase_add_test(tests, operand_0_decides_the_order);
    tcase_add_test(tests, long_dimensions_are_not_cut);
    tcase_add_test(tests, no_elements_no_pieces);
    tcase_add_test(tests, a_scalar_is_one_piece);
    tcase_add_test(tests, huge);
}
