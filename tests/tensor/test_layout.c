#include <string.h>

#include "support/check_main.h"
#include "support/layouts.h"
#include "tensor/check.h"

#define HUGE_SIZE (INT64_C(1) << 40)

START_TEST(row_major)
{
    tsr_layout layout;
    int64_t shape[] = {2, 3, 4};
    ck_assert_ok(tsr_layout_init(TSR_F16, 3, shape, &layout));
    ck_assert_int_eq((int)layout.dtype, (int)TSR_F16);
    ck_assert_int_eq(layout.ndim, 3);
    ck_assert_int_eq(layout.offset, 0);
    int64_t strides[] = {12, 4, 1};
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(layout.shape[i], shape[i]);
        ck_assert_int_eq(layout.strides[i], strides[i]);
    }
    ck_assert_int_eq(tsr_layout_count(&layout), 24);
}
END_TEST

START_TEST(scalar)
{
    tsr_layout layout;
    ck_assert_ok(tsr_layout_init(TSR_F32, 0, NULL, &layout));
    ck_assert_int_eq(tsr_layout_count(&layout), 1);
    ck_assert(tsr_layout_is_contiguous(&layout));
}
END_TEST

START_TEST(sizes_of_zero)
{
    tsr_layout layout;
    ck_assert_ok(tsr_layout_init(TSR_F32, 3, (int64_t[]){2, 0, 4}, &layout));
    ck_assert_int_eq(tsr_layout_count(&layout), 0);
    ck_assert(tsr_layout_is_contiguous(&layout));
    /* The product of the other sizes does not fit any integer, but no intermediate result
     * overflows. */
    layout.shape[0] = layout.shape[2] = INT64_MAX;
    ck_assert_int_eq(tsr_layout_count(&layout), 0);
}
END_TEST

START_TEST(bytes_up_to_63_bits)
{
    tsr_layout layout;
    ck_assert_ok(tsr_layout_init(TSR_U8, 1, (int64_t[]){INT64_MAX}, &layout));
    ck_assert_int_eq(tsr_layout_count(&layout), INT64_MAX);
    ck_assert_ok(tsr_layout_init(TSR_Q4_0, 1, (int64_t[]){INT64_MAX - 31}, &layout));
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){HUGE_SIZE, HUGE_SIZE >> 20}, &layout));
    ck_assert_int_eq(tsr_layout_count(&layout), INT64_C(1) << 60);
    ck_assert_error(tsr_layout_init(TSR_F32, 1, (int64_t[]){INT64_MAX / 4 + 1}, &layout),
                    TSR_ERR_OVERFLOW,
                    "layout_init: the bytes of f32 [2305843009213693952] do not fit 63 bits");
    /* A block of 32 elements of q8_0 has 34 bytes, so this number of elements fits 63 bits, but not
     * their bytes. */
    ck_assert_error(tsr_layout_init(TSR_Q8_0, 1, (int64_t[]){INT64_MAX - 31}, &layout),
                    TSR_ERR_OVERFLOW,
                    "layout_init: the bytes of q8_0 [9223372036854775776] do not fit 63 bits");
    ck_assert_error(tsr_layout_init(TSR_F32, 2, (int64_t[]){HUGE_SIZE, HUGE_SIZE}, &layout),
                    TSR_ERR_OVERFLOW,
                    "layout_init: the bytes of f32 [1099511627776,1099511627776] do not fit 63 "
                    "bits");
    ck_assert_error(tsr_layout_init(TSR_I64, 3, (int64_t[]){0, HUGE_SIZE, HUGE_SIZE}, &layout),
                    TSR_ERR_OVERFLOW,
                    "layout_init: the bytes of i64 [0,1099511627776,1099511627776] do not fit 63 "
                    "bits");
    ck_assert_int_eq(layout.ndim, 2); /* unchanged since the last success */
}
END_TEST

START_TEST(init_errors)
{
    tsr_layout out;
    memset(&out, 0x5a, sizeof out);
    tsr_layout before = out;
    int64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    ck_assert_error(tsr_layout_init((tsr_dtype)0, 1, shape, &out), TSR_ERR_INVALID,
                    "layout_init: 0 is no dtype");
    ck_assert_error(tsr_layout_init((tsr_dtype)9, 1, shape, &out), TSR_ERR_INVALID,
                    "layout_init: 9 is no dtype");
    ck_assert_error(tsr_layout_init(TSR_F64, 1, shape, &out), TSR_ERR_INVALID,
                    "layout_init: tensors cannot be f64; only communicators support it");
    ck_assert_error(tsr_layout_init(TSR_F32, 9, shape, &out), TSR_ERR_INVALID,
                    "layout_init: 9 dimensions are outside 0..8");
    ck_assert_error(tsr_layout_init(TSR_F32, -1, shape, &out), TSR_ERR_INVALID,
                    "layout_init: -1 dimensions are outside 0..8");
    ck_assert_error(tsr_layout_init(TSR_F32, 2, NULL, &out), TSR_ERR_INVALID,
                    "layout_init: shape is NULL");
    ck_assert_error(tsr_layout_init(TSR_F32, 2, (int64_t[]){3, -2}, &out), TSR_ERR_INVALID,
                    "layout_init: size -2 in shape [3,-2] is negative");
    ck_assert_error(tsr_layout_init(TSR_F32, 2, shape, NULL), TSR_ERR_INVALID,
                    "layout_init: out is NULL");
    ck_assert_mem_eq(&out, &before, sizeof out);
}
END_TEST

/* A layout is contiguous exactly if the addresses in row-major order are consecutive. */
START_TEST(contiguous_matches_brute_force)
{
    static int64_t addresses[LAYOUT_MAX_COUNT];
    uint64_t random = 1;
    int contiguous = 0;
    for (int round = 0; round < 20000; round++) {
        tsr_layout layout = round % 2 ? layout_random_view(&random, TSR_F32, 8)
                                      : layout_random_strides(&random, TSR_F32, 3, 4);
        int64_t count = layout_addresses(&layout, addresses);
        ck_assert_int_eq(tsr_layout_count(&layout), count);
        bool expected = true;
        for (int64_t i = 0; i < count; i++)
            expected = expected && addresses[i] == addresses[0] + i;
        ck_assert_int_eq(tsr_layout_is_contiguous(&layout), expected);
        contiguous += expected && count > 1;
    }
    ck_assert_int_gt(contiguous, 1000);
}
END_TEST

START_TEST(same_shape)
{
    tsr_layout a, b;
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){2, 3}, &a));
    ck_assert_ok(tsr_layout_init(TSR_U8, 2, (int64_t[]){3, 2}, &b));
    ck_assert(!tsr__layout_same_shape(&a, &b));
    ck_assert_ok(tsr_layout_transpose(&b, 0, 1, &b));
    ck_assert(tsr__layout_same_shape(&a, &b)); /* dtype and strides do not matter */
    ck_assert_ok(tsr_layout_init(TSR_F32, 3, (int64_t[]){2, 3, 1}, &b));
    ck_assert(!tsr__layout_same_shape(&a, &b));
}
END_TEST

START_TEST(shape_text)
{
    char text[TSR__SHAPE_TEXT];
    ck_assert_str_eq(tsr__shape_format(0, NULL, text, sizeof text), "[]");
    ck_assert_str_eq(tsr__shape_format(1, (int64_t[]){7}, text, sizeof text), "[7]");
    ck_assert_str_eq(tsr__shape_format(3, (int64_t[]){3, 0, -4}, text, sizeof text), "[3,0,-4]");

    int64_t longest[8];
    for (int i = 0; i < 8; i++)
        longest[i] = INT64_MIN;
    tsr__shape_format(8, longest, text, sizeof text);
    ck_assert_int_eq(text[strlen(text) - 1], ']');
}
END_TEST

START_TEST(shape_text_is_cut_short)
{
    char text[9] = "xxxxxxxx";
    ck_assert_ptr_eq(tsr__shape_format(1, (int64_t[]){7}, text, 0), text);
    ck_assert_int_eq(text[0], 'x');
    for (size_t size = 1; size <= 8; size++) {
        memset(text, 'x', sizeof text);
        tsr__shape_format(2, (int64_t[]){12, 345}, text, size);
        ck_assert_uint_eq(strlen(text), size - 1);
        ck_assert_int_eq(strncmp("[12,345]", text, size - 1), 0);
        ck_assert_int_eq(text[size], 'x');
    }
}
END_TEST

START_TEST(shapes_broadcast)
{
    int ndim;
    int64_t shape[TSR_MAX_DIMS];
    ck_assert_ok(tsr__shape_broadcast(3, (int64_t[]){2, 1, 4}, 2, (int64_t[]){3, 1}, &ndim, shape));
    ck_assert_int_eq(ndim, 3);
    ck_assert_mem_eq(shape, ((int64_t[]){2, 3, 4}), 3 * sizeof *shape);
    ck_assert_ok(tsr__shape_broadcast(0, NULL, 1, (int64_t[]){5}, &ndim, shape));
    ck_assert_int_eq(ndim, 1);
    ck_assert_int_eq(shape[0], 5);
    ck_assert_ok(tsr__shape_broadcast(0, NULL, 0, NULL, &ndim, shape));
    ck_assert_int_eq(ndim, 0);
    ck_assert_ok(tsr__shape_broadcast(1, (int64_t[]){0}, 1, (int64_t[]){1}, &ndim, shape));
    ck_assert_int_eq(shape[0], 0);
    /* The output may be one of the inputs. */
    int64_t a[3] = {4, 1};
    ck_assert_ok(tsr__shape_broadcast(2, a, 3, (int64_t[]){2, 1, 3}, &ndim, a));
    ck_assert_mem_eq(a, ((int64_t[]){2, 4, 3}), sizeof a);
}
END_TEST

START_TEST(shapes_broadcast_errors)
{
    int ndim = 77;
    int64_t shape[TSR_MAX_DIMS] = {77}, three[] = {3, 4}, two[] = {2, 4}, negative[] = {-1};
    ck_assert_error(tsr__shape_broadcast(2, two, 2, three, &ndim, shape), TSR_ERR_INVALID,
                    "shape_broadcast: [2,4] and [3,4] do not broadcast: size 2 does not match "
                    "size 3");
    ck_assert_error(tsr__shape_broadcast(1, (int64_t[]){0}, 1, two, &ndim, shape), TSR_ERR_INVALID,
                    "shape_broadcast: [0] and [2] do not broadcast: size 0 does not match size 2");
    ck_assert_error(tsr__shape_broadcast(9, two, 2, three, &ndim, shape), TSR_ERR_INVALID,
                    "shape_broadcast: 9 dimensions are outside 0..8");
    ck_assert_error(tsr__shape_broadcast(2, two, 1, negative, &ndim, shape), TSR_ERR_INVALID,
                    "shape_broadcast: size -1 in shape [-1] is negative");
    ck_assert_error(tsr__shape_broadcast(2, two, 1, NULL, &ndim, shape), TSR_ERR_INVALID,
                    "shape_broadcast: shape is NULL");
    ck_assert_error(tsr__shape_broadcast(2, two, 2, two, NULL, shape), TSR_ERR_INVALID,
                    "shape_broadcast: out_ndim is NULL");
    ck_assert_error(tsr__shape_broadcast(2, two, 2, two, &ndim, NULL), TSR_ERR_INVALID,
                    "shape_broadcast: out_shape is NULL");
    ck_assert_int_eq(ndim, 77);
    ck_assert_int_eq(shape[0], 77);
}
END_TEST

START_TEST(invalid_layouts)
{
    tsr_layout good, bad;
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){2, 3}, &good));
    ck_assert_ok(tsr__layout_check("test", &good));
    ck_assert_error(tsr__layout_check("test", NULL), TSR_ERR_INVALID, "test: layout is NULL");
    ck_assert_int_eq(tsr_layout_count(NULL), 0);
    ck_assert(!tsr_layout_is_contiguous(NULL));
    ck_assert(!tsr__layout_same_shape(NULL, &good) && !tsr__layout_same_shape(&good, NULL));

    bad = good, bad.dtype = (tsr_dtype)9;
    ck_assert_error(tsr__layout_check("test", &bad), TSR_ERR_INVALID, "test: 9 is no dtype");
    bad.dtype = TSR_F64;
    ck_assert_error(tsr__layout_check("test", &bad), TSR_ERR_INVALID,
                    "test: tensors cannot be f64; only communicators support it");
    bad = good, bad.ndim = 9;
    ck_assert_error(tsr__layout_check("test", &bad), TSR_ERR_INVALID,
                    "test: 9 dimensions are outside 0..8");
    bad = good, bad.shape[1] = -3;
    ck_assert_error(tsr__layout_check("test", &bad), TSR_ERR_INVALID,
                    "test: size -3 in shape [2,-3] is negative");
    bad = good, bad.strides[0] = -3;
    ck_assert_error(tsr__layout_check("test", &bad), TSR_ERR_INVALID,
                    "test: stride -3 in strides [-3,1] is negative");
    bad = good, bad.offset = -1;
    ck_assert_error(tsr__layout_check("test", &bad), TSR_ERR_INVALID,
                    "test: offset -1 is negative");
    bad = good, bad.offset = INT64_MAX / 4 - 5;
    ck_assert_error(tsr__layout_check("test", &bad), TSR_ERR_OVERFLOW,
                    "test: the last byte of shape [2,3], strides [3,1], offset "
                    "2305843009213693946 does not fit 63 bits");
    bad = good, bad.offset = INT64_MAX / 4 - 6;
    ck_assert_ok(tsr__layout_check("test", &bad));
    bad = good, bad.strides[0] = INT64_MAX;
    ck_assert_int_eq(tsr__layout_check("test", &bad), TSR_ERR_OVERFLOW);
    bad.shape[0] = 1; /* the stride of a dimension of size 1 does not matter */
    ck_assert_ok(tsr__layout_check("test", &bad));
}
END_TEST

TESTS(layout)
{
    tcase_add_test(tests, row_major);
    tcase_add_test(tests, scalar);
    tcase_add_test(tests, sizes_of_zero);
    tcase_add_test(tests, bytes_up_to_63_bits);
    tcase_add_test(tests, init_errors);
    tcase_add_test(tests, contiguous_matches_brute_force);
    tcase_add_test(tests, same_shape);
    tcase_add_test(tests, shape_text);
    tcase_add_test(tests, shape_text_is_cut_short);
    tcase_add_test(tests, shapes_broadcast);
    tcase_add_test(tests, shapes_broadcast_errors);
    tcase_add_test(tests, invalid_layouts);
}
