/* Compares overlap of layouts with sets of bytes. */
#include <string.h>

#include "support/check_main.h"
#include "support/layouts.h"
#include "tensor/check.h"
#include "tensor/overlap.h"

#define BYTES 65536

static int64_t a_at[LAYOUT_MAX_COUNT], b_at[LAYOUT_MAX_COUNT];
static unsigned char touched[BYTES];

static tsr__overlap brute_force(const tsr_layout *a, const tsr_layout *b)
{
    int64_t a_size = (int64_t)tsr_dtype_size(a->dtype), b_size = (int64_t)tsr_dtype_size(b->dtype);
    int64_t a_count = layout_addresses(a, a_at), b_count = layout_addresses(b, b_at);
    if (a_count == 0 || b_count == 0)
        return TSR__OVERLAP_NONE;
    if (a->dtype == b->dtype && tsr__layout_same_shape(a, b) &&
        memcmp(a_at, b_at, (size_t)a_count * sizeof *a_at) == 0)
        return TSR__OVERLAP_SAME;

    memset(touched, 0, sizeof touched);
    for (int64_t i = 0; i < a_count; i++)
        memset(touched + a_at[i] * a_size, 1, (size_t)a_size);
    for (int64_t i = 0; i < b_count; i++) {
        for (int64_t byte = 0; byte < b_size; byte++) {
            if (touched[b_at[i] * b_size + byte])
                return TSR__OVERLAP_PARTIAL;
        }
    }
    return TSR__OVERLAP_NONE;
}

static void compare(const tsr_layout *a, const tsr_layout *b, int *seen)
{
    tsr__overlap expected = brute_force(a, b);
    char a_shape[TSR__SHAPE_TEXT], a_strides[TSR__SHAPE_TEXT];
    char b_shape[TSR__SHAPE_TEXT], b_strides[TSR__SHAPE_TEXT];
    for (int swapped = 0; swapped < 2; swapped++) {
        tsr__overlap got = swapped ? tsr__layout_overlap(b, a) : tsr__layout_overlap(a, b);
        ck_assert_msg(got == expected, "%d, not %d: %s%s+%d and %s%s+%d, swapped %d", (int)got,
                      (int)expected, tsr__shape_format(a->ndim, a->shape, a_shape, sizeof a_shape),
                      tsr__shape_format(a->ndim, a->strides, a_strides, sizeof a_strides),
                      (int)a->offset, tsr__shape_format(b->ndim, b->shape, b_shape, sizeof b_shape),
                      tsr__shape_format(b->ndim, b->strides, b_strides, sizeof b_strides),
                      (int)b->offset, swapped);
    }
    seen[expected]++;
}

static void check_seen(const int *seen)
{
    for (int i = 0; i < 3; i++)
        ck_assert_int_gt(seen[i], 100);
}

START_TEST(views_of_one_parent)
{
    uint64_t random = 1;
    int seen[3] = {0};
    for (int round = 0; round < 40000; round++) {
        tsr_layout a = layout_random(&random, TSR_F32, 6), b = a;
        layout_random_views_of(&random, &a);
        layout_random_views_of(&random, &b);
        compare(&a, &b, seen);
    }
    check_seen(seen);
}
END_TEST

START_TEST(any_strides)
{
    uint64_t random = 2;
    int seen[3] = {0};
    for (int round = 0; round < 40000; round++) {
        tsr_layout a = layout_random_strides(&random, TSR_F16, 3, 24), b;
        b = round % 16 ? layout_random_strides(&random, TSR_BF16, 3, 24) : a;
        a.offset += random_between(&random, 0, 1) * random_between(&random, 0, 64);
        compare(&a, &b, seen);
    }
    check_seen(seen);
}
END_TEST

START_TEST(other_element_sizes)
{
    static const tsr_dtype dtypes[] = {TSR_U8, TSR_F16, TSR_F32, TSR_I64};
    uint64_t random = 3;
    int seen[3] = {0};
    for (int round = 0; round < 40000; round++) {
        tsr_dtype a_dtype = dtypes[random_between(&random, 0, 3)];
        tsr_dtype b_dtype = dtypes[random_between(&random, 0, 3)];
        tsr_layout a = layout_random_strides(&random, a_dtype, 2, 16);
        tsr_layout b = layout_random_strides(&random, b_dtype, 2, 16);
        compare(&a, &b, seen);
    }
    ck_assert_int_gt(seen[TSR__OVERLAP_NONE], 100);
    ck_assert_int_gt(seen[TSR__OVERLAP_PARTIAL], 100);
}
END_TEST

START_TEST(repeats)
{
    uint64_t random = 4;
    int seen[2] = {0};
    for (int round = 0; round < 60000; round++) {
        tsr_layout layout = round % 2 ? layout_random_view(&random, TSR_F32, 8)
                                      : layout_random_strides(&random, TSR_F32, 4, 24);
        int64_t count = layout_addresses(&layout, a_at);
        memset(touched, 0, sizeof touched);
        bool expected = false;
        for (int64_t i = 0; i < count; i++) {
            expected = expected || touched[a_at[i]];
            touched[a_at[i]] = 1;
        }
        ck_assert_equal(tsr__layout_repeats(&layout), expected);
        seen[expected]++;
    }
    ck_assert_int_gt(seen[0], 1000);
    ck_assert_int_gt(seen[1], 1000);
}
END_TEST

START_TEST(extents)
{
    tsr_layout layout;
    ck_assert_ok(tsr_layout_init(TSR_F16, 2, (int64_t[]){4, 5}, &layout));
    ck_assert_ok(tsr_layout_slice(&layout, 0, 1, 3, 1, &layout));
    ck_assert_ok(tsr_layout_slice(&layout, 1, 1, 4, 2, &layout));
    tsr__extent extent = tsr__layout_extent(&layout);
    ck_assert_uint_eq(extent.begin_bytes, 12);
    ck_assert_uint_eq(extent.end_bytes, 28);
    layout.shape[0] = 0;
    extent = tsr__layout_extent(&layout);
    ck_assert_uint_eq(extent.begin_bytes, extent.end_bytes);
}
END_TEST

/* Views of parents of the largest possible sizes. The result must still be exact and quick. */
START_TEST(huge)
{
    tsr_layout parent, a, b;
    int64_t rows = INT64_C(1) << 31, columns = (INT64_C(1) << 29) + 1;
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){rows, columns}, &parent));
    ck_assert(!tsr__layout_repeats(&parent));
    ck_assert_int_eq(tsr__layout_overlap(&parent, &parent), TSR__OVERLAP_SAME);

    /* The left and right half of a matrix's columns do not overlap, nor do its even and odd
     * rows. */
    ck_assert_ok(tsr_layout_slice(&parent, 1, 0, columns / 2, 1, &a));
    ck_assert_ok(tsr_layout_slice(&parent, 1, columns / 2, TSR_END, 1, &b));
    ck_assert_int_eq(tsr__layout_overlap(&a, &b), TSR__OVERLAP_NONE);
    ck_assert_ok(tsr_layout_slice(&parent, 1, columns / 2 - 1, TSR_END, 1, &b));
    ck_assert_int_eq(tsr__layout_overlap(&a, &b), TSR__OVERLAP_PARTIAL);
    ck_assert_ok(tsr_layout_slice(&parent, 0, 0, TSR_END, 2, &a));
    ck_assert_ok(tsr_layout_slice(&parent, 0, 1, TSR_END, 2, &b));
    ck_assert_int_eq(tsr__layout_overlap(&a, &b), TSR__OVERLAP_NONE);
    ck_assert(!tsr__layout_repeats(&a));

    /* The layouts reach as far as possible in each dimension, so that a sum over the dimensions
     * could overflow. */
    tsr_layout far = {.dtype = TSR_U8, .ndim = 1, .shape = {2}, .strides = {INT64_MAX - 1}};
    tsr_layout near = {.dtype = TSR_U8, .ndim = 1, .shape = {INT64_MAX - 2}, .strides = {1}};
    near.offset = 1;
    ck_assert_int_eq(tsr__layout_overlap(&far, &near), TSR__OVERLAP_NONE);
    near.offset = 2;
    ck_assert_int_eq(tsr__layout_overlap(&far, &near), TSR__OVERLAP_PARTIAL);
}
END_TEST

/* For these strides, an exact search would take too long. The function must give up quickly,
 * with the safe answer that they overlap. */
START_TEST(giving_up)
{
    tsr_layout a = {.dtype = TSR_U8, .ndim = 8};
    static const int64_t strides[] = {1000003, 1000033, 1000037, 1000039,
                                      1000081, 1000099, 1000117, 1000121};
    for (int i = 0; i < 8; i++) {
        a.shape[i] = 40;
        a.strides[i] = strides[i];
    }
    ck_assert(tsr__layout_repeats(&a));
    tsr_layout b = a;
    b.offset = 12345;
    ck_assert_int_eq(tsr__layout_overlap(&a, &b), TSR__OVERLAP_PARTIAL);
}
END_TEST

TESTS(overlap)
{
    tcase_add_test(tests, views_of_one_parent);
    tcase_add_test(tests, any_strides);
    tcase_add_test(tests, other_element_sizes);
    tcase_add_test(tests, repeats);
    tcase_add_test(tests, extents);
    tcase_add_test(tests, huge);
    tcase_add_test(tests, giving_up);
}
