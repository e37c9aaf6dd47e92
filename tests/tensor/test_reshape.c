/* Reshape keeps the row-major sequence of addresses, and succeeds exactly if some strides produce
 * it. */
#include <string.h>

#include "support/check_main.h"
#include "support/layouts.h"

static int64_t source[LAYOUT_MAX_COUNT], got[LAYOUT_MAX_COUNT];

/* Makes a random shape with the same count: distributes the prime factors over the dimensions, with
 * sizes of 1 in between. */
static int random_shape(uint64_t *random, int64_t count, int64_t *shape)
{
    int ndim = (int)random_between(random, count == 1 ? 0 : 1, TSR_MAX_DIMS);
    for (int i = 0; i < ndim; i++)
        shape[i] = 1;
    for (int64_t factor = 2; count > 1; factor++) {
        for (; count % factor == 0; count /= factor)
            shape[random_between(random, 0, ndim - 1)] *= factor;
    }
    return ndim;
}

/* Returns whether strides for the shape exist. The only candidates are the distances between
 * neighbours, which must explain every address. */
static bool strides_exist(int ndim, const int64_t *shape, int64_t count)
{
    int64_t strides[TSR_MAX_DIMS], step = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        strides[i] = shape[i] > 1 ? source[step] - source[0] : 0;
        if (strides[i] < 0)
            return false;
        step *= shape[i];
    }
    for (int64_t n = 0; n < count; n++) {
        int64_t address = source[0], rest = n;
        for (int i = ndim - 1; i >= 0; i--) {
            address += rest % shape[i] * strides[i];
            rest /= shape[i];
        }
        if (address != source[n])
            return false;
    }
    return true;
}

START_TEST(random_layouts)
{
    uint64_t random = 1;
    int possible = 0, impossible = 0;
    for (int round = 0; round < 60000; round++) {
        tsr_layout in = round % 3 ? layout_random_view(&random, TSR_F32, 8)
                                  : layout_random_strides(&random, TSR_F32, 3, 6);
        tsr_layout out = in;
        int64_t shape[TSR_MAX_DIMS] = {0}, asked[TSR_MAX_DIMS];
        int64_t count = layout_addresses(&in, source);
        if (count == 0)
            continue;
        int ndim = random_shape(&random, count, shape);
        memcpy(asked, shape, sizeof asked);
        if (ndim > 0 && random_between(&random, 0, 1))
            asked[random_between(&random, 0, ndim - 1)] = -1;

        tsr_status status = tsr_layout_reshape(round % 2 ? &in : &out, ndim, asked, &out);
        if (!strides_exist(ndim, shape, count)) {
            ck_assert_int_eq(status, TSR_ERR_INVALID);
            impossible++;
            continue;
        }
        ck_assert_ok(status);
        possible++;
        ck_assert_int_eq(out.ndim, ndim);
        for (int i = 0; i < ndim; i++)
            ck_assert_equal(out.shape[i], shape[i]);
        ck_assert_int_eq(layout_addresses(&out, got), count);
        ck_assert_mem_eq(got, source, (size_t)count * sizeof *got);
    }
    ck_assert_int_gt(possible, 10000);
    ck_assert_int_gt(impossible, 5000);
}
END_TEST

START_TEST(contiguous_gives_row_major_strides)
{
    tsr_layout in, out, direct;
    int64_t shape[] = {1, 4, 1, 6, 1};
    ck_assert_ok(tsr_layout_init(TSR_F32, 3, (int64_t[]){2, 3, 4}, &in));
    ck_assert_ok(tsr_layout_init(TSR_F32, 5, shape, &direct));
    ck_assert_ok(tsr_layout_reshape(&in, 5, shape, &out));
    ck_assert_mem_eq(&out, &direct, sizeof out);
}
END_TEST

START_TEST(empty)
{
    tsr_layout in, out;
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){3, 0}, &in));
    in.offset = 5;
    ck_assert_ok(tsr_layout_reshape(&in, 3, (int64_t[]){0, 7, 2}, &out));
    ck_assert_int_eq(tsr_layout_count(&out), 0);
    ck_assert_int_eq(out.shape[1], 7);
    ck_assert_int_eq(out.offset, 5);
    ck_assert_ok(tsr_layout_reshape(&in, 2, (int64_t[]){-1, 4}, &out));
    ck_assert_int_eq(out.shape[0], 0);
    ck_assert_error(tsr_layout_reshape(&in, 2, (int64_t[]){-1, 0}, &out), TSR_ERR_INVALID,
                    "reshape: no size for -1 gives [-1,0] the 0 elements of [3,0]");
    ck_assert_error(tsr_layout_reshape(&in, 0, NULL, &out), TSR_ERR_INVALID,
                    "reshape: [3,0] has 0 elements, [] has 1");
}
END_TEST

START_TEST(huge)
{
    tsr_layout in, out;
    int64_t side = INT64_C(1) << 30;
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){side, side}, &in));
    ck_assert_ok(tsr_layout_reshape(&in, 3, (int64_t[]){2, -1, 8}, &out));
    ck_assert_int_eq(out.shape[1], side / 2 * (side / 8));
    ck_assert_int_eq(out.strides[0], side / 2 * side);
    /* The usual stride of a dimension of size 1 would not fit here. */
    tsr_layout far = {.dtype = TSR_U8, .ndim = 1, .shape = {2}, .strides = {INT64_MAX - 1}};
    ck_assert_ok(tsr_layout_reshape(&far, 2, (int64_t[]){1, 2}, &out));
    ck_assert_int_eq(out.strides[1], INT64_MAX - 1);
    ck_assert_int_ge(out.strides[0], 0);
}
END_TEST

START_TEST(errors)
{
    tsr_layout in, columns, out;
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){2, 3}, &in));
    ck_assert_ok(tsr_layout_transpose(&in, 0, 1, &columns));
    memset(&out, 0x5a, sizeof out);
    tsr_layout before = out;
    ck_assert_error(tsr_layout_reshape(&columns, 1, (int64_t[]){6}, &out), TSR_ERR_INVALID,
                    "reshape: strides [1,3] of shape [3,2] do not allow [6] without a copy");
    ck_assert_error(tsr_layout_reshape(&in, 1, (int64_t[]){5}, &out), TSR_ERR_INVALID,
                    "reshape: [2,3] has 6 elements, [5] has 5");
    ck_assert_error(tsr_layout_reshape(&in, 2, (int64_t[]){-1, 4}, &out), TSR_ERR_INVALID,
                    "reshape: no size for -1 gives [-1,4] the 6 elements of [2,3]");
    ck_assert_error(tsr_layout_reshape(&in, 2, (int64_t[]){-1, -1}, &out), TSR_ERR_INVALID,
                    "reshape: more than one size of [-1,-1] is -1");
    ck_assert_error(tsr_layout_reshape(&in, 2, (int64_t[]){-2, 3}, &out), TSR_ERR_INVALID,
                    "reshape: size -2 in shape [-2,3] is negative");
    ck_assert_error(tsr_layout_reshape(&in, 2, (int64_t[]){-1, -2}, &out), TSR_ERR_INVALID,
                    "reshape: size -2 in shape [1,-2] is negative");
    ck_assert_error(tsr_layout_reshape(&in, 9, (int64_t[9]){6}, &out), TSR_ERR_INVALID,
                    "reshape: 9 dimensions are outside 0..8");
    ck_assert_error(tsr_layout_reshape(&in, 1, NULL, &out), TSR_ERR_INVALID,
                    "reshape: shape is NULL");
    ck_assert_error(tsr_layout_reshape(NULL, 1, (int64_t[]){6}, &out), TSR_ERR_INVALID,
                    "reshape: layout is NULL");
    ck_assert_error(tsr_layout_reshape(&in, 1, (int64_t[]){6}, NULL), TSR_ERR_INVALID,
                    "reshape: out is NULL");
    int64_t big = INT64_C(1) << 40;
    ck_assert_error(tsr_layout_reshape(&in, 3, (int64_t[]){big, big, -1}, &out), TSR_ERR_OVERFLOW,
                    "reshape: the bytes of f32 [1099511627776,1099511627776,1] do not fit 63 bits");
    ck_assert_mem_eq(&out, &before, sizeof out);
}
END_TEST

TESTS(reshape)
{
    tcase_add_test(tests, random_layouts);
    tcase_add_test(tests, contiguous_gives_row_major_strides);
    tcase_add_test(tests, empty);
    tcase_add_test(tests, huge);
    tcase_add_test(tests, errors);
}
