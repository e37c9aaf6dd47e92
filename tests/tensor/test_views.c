/* Compares views with a model. The model holds the address of every element in a dense array and
 * makes each view by copying entries, without strides. */
#include <string.h>

#include "support/check_main.h"
#include "support/layouts.h"

typedef struct model {
    int ndim;
    int64_t shape[TSR_MAX_DIMS];
    int64_t count;
    int64_t at[LAYOUT_MAX_COUNT];
} model;

static model source, expected, got;

static void read_model(const tsr_layout *layout, model *m)
{
    m->ndim = layout->ndim;
    memcpy(m->shape, layout->shape, sizeof m->shape);
    m->count = layout_addresses(layout, m->at);
}

static int64_t flat(const model *m, const int64_t *index)
{
    int64_t position = 0;
    for (int i = 0; i < m->ndim; i++)
        position = position * m->shape[i] + index[i];
    return position;
}

/* Maps an index of the view to the index of the source. */
typedef void (*map_fn)(const int64_t *args, const int64_t *index, int64_t *source_index);

static void apply(map_fn map, const int64_t *args)
{
    expected.count = 1;
    for (int i = 0; i < expected.ndim; i++)
        expected.count *= expected.shape[i];
    for (int64_t n = 0; n < expected.count; n++) {
        int64_t index[TSR_MAX_DIMS], source_index[TSR_MAX_DIMS] = {0}, rest = n;
        for (int i = expected.ndim - 1; i >= 0; i--) {
            index[i] = rest % expected.shape[i];
            rest /= expected.shape[i];
        }
        map(args, index, source_index);
        expected.at[n] = source.at[flat(&source, source_index)];
    }
}

static void compare(const tsr_layout *view)
{
    read_model(view, &got);
    ck_assert_int_eq(got.ndim, expected.ndim);
    for (int i = 0; i < got.ndim; i++)
        ck_assert_equal(got.shape[i], expected.shape[i]);
    ck_assert_int_eq(got.count, expected.count);
    for (int64_t i = 0; i < got.count; i++)
        ck_assert(got.at[i] == expected.at[i]);
}

/* Starts a round of views. In half of the rounds, each view replaces its own input. */
static tsr_layout begin(uint64_t *random, int min_ndim)
{
    tsr_layout in;
    do
        in = layout_random_view(random, TSR_F32, 8);
    while (in.ndim < min_ndim);
    read_model(&in, &source);
    expected.ndim = source.ndim;
    memcpy(expected.shape, source.shape, sizeof source.shape);
    return in;
}

static int random_dim(uint64_t *random, int ndim)
{
    return (int)random_between(random, 0, ndim - 1);
}

static void map_slice(const int64_t *args, const int64_t *index, int64_t *source_index)
{
    memcpy(source_index, index, (size_t)source.ndim * sizeof *index);
    source_index[args[0]] = args[1] + index[args[0]] * args[2];
}

START_TEST(slice)
{
    uint64_t random = 1;
    for (int round = 0; round < 20000; round++) {
        tsr_layout in = begin(&random, 1), out = in;
        int dim = random_dim(&random, in.ndim);
        int64_t size = in.shape[dim];
        int64_t start = random_between(&random, -size - 2, size + 2);
        int64_t stop =
            random_between(&random, 0, 4) ? random_between(&random, -size - 2, size + 2) : TSR_END;
        int64_t step = random_between(&random, 1, 4);

        /* Applies Python's rule: walks over all indices and keeps those in the range. */
        int64_t low = start < 0 ? start + size : start, high = stop < 0 ? stop + size : stop;
        if (low < 0)
            low = 0;
        int64_t kept = 0;
        for (int64_t i = low; i < high && i < size; i += step)
            kept++;
        expected.shape[dim] = kept;
        apply(map_slice, (int64_t[]){dim, low, step});

        int named = random_between(&random, 0, 1) ? dim : dim - in.ndim;
        ck_assert_ok(tsr_layout_slice(round % 2 ? &in : &out, named, start, stop, step, &out));
        compare(&out);
    }
}
END_TEST

static void map_select(const int64_t *args, const int64_t *index, int64_t *source_index)
{
    for (int i = 0, from = 0; i < source.ndim; i++)
        source_index[i] = i == args[0] ? args[1] : index[from++];
}

START_TEST(selects)
{
    uint64_t random = 2;
    for (int round = 0; round < 20000; round++) {
        tsr_layout in = begin(&random, 1), out = in;
        int dim = random_dim(&random, in.ndim);
        int64_t size = in.shape[dim];
        if (size == 0)
            continue;
        int64_t index = random_between(&random, -size, size - 1);
        expected.ndim--;
        for (int i = dim; i < expected.ndim; i++)
            expected.shape[i] = source.shape[i + 1];
        apply(map_select, (int64_t[]){dim, index < 0 ? index + size : index});

        ck_assert_ok(tsr_layout_select(round % 2 ? &in : &out, dim - in.ndim, index, &out));
        compare(&out);
        for (int i = out.ndim; i < TSR_MAX_DIMS; i++) /* entries after the last dimension are 0 */
            ck_assert(out.shape[i] == 0 && out.strides[i] == 0);
    }
}
END_TEST

static void map_permute(const int64_t *args, const int64_t *index, int64_t *source_index)
{
    for (int i = 0; i < source.ndim; i++)
        source_index[args[i]] = index[i];
}

START_TEST(transpose)
{
    uint64_t random = 3;
    for (int round = 0; round < 20000; round++) {
        tsr_layout in = begin(&random, 1), out = in;
        int a = random_dim(&random, in.ndim), b = random_dim(&random, in.ndim);
        int64_t order[TSR_MAX_DIMS];
        for (int i = 0; i < in.ndim; i++)
            order[i] = i == a ? b : i == b ? a : i;
        expected.shape[a] = source.shape[b];
        expected.shape[b] = source.shape[a];
        apply(map_permute, order);

        ck_assert_ok(tsr_layout_transpose(round % 2 ? &in : &out, a - in.ndim, b, &out));
        compare(&out);
    }
}
END_TEST

START_TEST(permute)
{
    uint64_t random = 4;
    for (int round = 0; round < 20000; round++) {
        tsr_layout in = begin(&random, 0), out = in;
        int order[TSR_MAX_DIMS] = {0};
        int64_t wide[TSR_MAX_DIMS];
        for (int i = 0; i < in.ndim; i++) {
            int to = (int)random_between(&random, 0, i);
            order[i] = order[to];
            order[to] = i;
        }
        for (int i = 0; i < in.ndim; i++) {
            wide[i] = order[i];
            expected.shape[i] = source.shape[order[i]];
            if (random_between(&random, 0, 1))
                order[i] -= in.ndim;
        }
        apply(map_permute, wide);

        ck_assert_ok(tsr_layout_permute(round % 2 ? &in : &out, order, &out));
        compare(&out);
    }
}
END_TEST

static void map_broadcast(const int64_t *args, const int64_t *index, int64_t *source_index)
{
    (void)args;
    for (int i = 0; i < source.ndim; i++)
        source_index[i] = source.shape[i] == 1 ? 0 : index[expected.ndim - source.ndim + i];
}

START_TEST(broadcast)
{
    uint64_t random = 5;
    for (int round = 0; round < 20000; round++) {
        tsr_layout in = begin(&random, 0), out = in;
        int added = (int)random_between(&random, 0, TSR_MAX_DIMS - in.ndim);
        int64_t count = source.count;
        expected.ndim += added;
        for (int i = 0; i < expected.ndim; i++) {
            int64_t size = i < added ? 1 : source.shape[i - added];
            if (size == 1)
                size = random_between(&random, 0, 9) ? random_between(&random, 1, 3) : 0;
            if (count * size > LAYOUT_MAX_COUNT)
                size = i < added ? 1 : source.shape[i - added];
            expected.shape[i] = size;
            count *= i < added || source.shape[i - added] == 1 ? size : 1;
        }
        apply(map_broadcast, NULL);

        ck_assert_ok(
            tsr_layout_broadcast(round % 2 ? &in : &out, expected.ndim, expected.shape, &out));
        compare(&out);
    }
}
END_TEST

/* Sizes are far beyond 32 bits, so no memory is behind the layouts, and only the arithmetic is
 * tested. */
START_TEST(huge)
{
    int64_t rows = INT64_C(1) << 30, columns = (INT64_C(1) << 28) + 3;
    tsr_layout layout, view;
    ck_assert_ok(tsr_layout_init(TSR_U8, 2, (int64_t[]){rows, columns}, &layout));
    ck_assert_ok(tsr_layout_slice(&layout, 0, -2, TSR_END, 1, &view));
    ck_assert_int_eq(view.offset, (rows - 2) * columns);
    ck_assert_ok(tsr_layout_slice(&view, 1, 5, INT64_MAX - 1, columns - 6, &view));
    ck_assert_int_eq(view.shape[1], 2);
    ck_assert_int_eq(view.strides[1], columns - 6);
    ck_assert_ok(tsr_layout_select(&view, 0, -1, &view));
    ck_assert_int_eq(view.offset, (rows - 1) * columns + 5);

    ck_assert_ok(tsr_layout_slice(&layout, 0, 1, TSR_END, INT64_MAX, &view));
    ck_assert_int_eq(view.shape[0], 1);
    ck_assert_int_eq(view.offset, columns);
    ck_assert_ok(tsr_layout_slice(&layout, 0, INT64_MIN, INT64_MIN, 1, &view));
    ck_assert_int_eq(view.shape[0], 0);
    ck_assert_ok(tsr_layout_slice(&layout, 0, TSR_END, TSR_END, 1, &view));
    ck_assert_int_eq(view.shape[0], 0);
    ck_assert_int_eq(view.offset, 0); /* the offset of an empty view stays inside the buffer */

    ck_assert_error(tsr_layout_broadcast(&layout, 3, (int64_t[]){1 << 6, rows, columns}, &view),
                    TSR_ERR_OVERFLOW,
                    "broadcast: the bytes of u8 [64,1073741824,268435459] do not fit 63 bits");
}
END_TEST

START_TEST(errors)
{
    tsr_layout in, out;
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){2, 3}, &in));
    memset(&out, 0x5a, sizeof out);
    tsr_layout before = out;

    ck_assert_error(tsr_layout_slice(&in, 3, 0, 1, 1, &out), TSR_ERR_INVALID,
                    "slice: dim 3 is out of range for shape [2,3]");
    ck_assert_error(tsr_layout_slice(&in, -3, 0, 1, 1, &out), TSR_ERR_INVALID,
                    "slice: dim -3 is out of range for shape [2,3]");
    ck_assert_error(tsr_layout_slice(&in, 0, 0, 1, 0, &out), TSR_ERR_INVALID,
                    "slice: step 0 is not positive");
    ck_assert_error(tsr_layout_slice(&in, 0, 0, 1, -2, &out), TSR_ERR_INVALID,
                    "slice: step -2 is not positive");
    ck_assert_error(tsr_layout_slice(NULL, 0, 0, 1, 1, &out), TSR_ERR_INVALID,
                    "slice: layout is NULL");
    ck_assert_error(tsr_layout_slice(&in, 0, 0, 1, 1, NULL), TSR_ERR_INVALID, "slice: out is NULL");

    ck_assert_error(tsr_layout_select(&in, 2, 0, &out), TSR_ERR_INVALID,
                    "select: dim 2 is out of range for shape [2,3]");
    ck_assert_error(tsr_layout_select(&in, 1, 3, &out), TSR_ERR_INVALID,
                    "select: index 3 is out of range for dim 1 of shape [2,3]");
    ck_assert_error(tsr_layout_select(&in, -1, -4, &out), TSR_ERR_INVALID,
                    "select: index -4 is out of range for dim 1 of shape [2,3]");
    ck_assert_error(tsr_layout_select(NULL, 0, 0, &out), TSR_ERR_INVALID, "select: layout is NULL");
    ck_assert_error(tsr_layout_select(&in, 0, 0, NULL), TSR_ERR_INVALID, "select: out is NULL");

    ck_assert_error(tsr_layout_transpose(&in, 0, 2, &out), TSR_ERR_INVALID,
                    "transpose: dim 2 is out of range for shape [2,3]");
    ck_assert_error(tsr_layout_transpose(&in, -9, 1, &out), TSR_ERR_INVALID,
                    "transpose: dim -9 is out of range for shape [2,3]");
    ck_assert_error(tsr_layout_transpose(NULL, 0, 1, &out), TSR_ERR_INVALID,
                    "transpose: layout is NULL");
    ck_assert_error(tsr_layout_transpose(&in, 0, 1, NULL), TSR_ERR_INVALID,
                    "transpose: out is NULL");

    ck_assert_error(tsr_layout_permute(&in, (int[]){0, 2}, &out), TSR_ERR_INVALID,
                    "permute: dim 2 is out of range for shape [2,3]");
    ck_assert_error(tsr_layout_permute(&in, (int[]){1, -1}, &out), TSR_ERR_INVALID,
                    "permute: dim 1 of shape [2,3] appears twice in the order");
    ck_assert_error(tsr_layout_permute(&in, NULL, &out), TSR_ERR_INVALID, "permute: order is NULL");
    ck_assert_error(tsr_layout_permute(NULL, (int[]){0, 1}, &out), TSR_ERR_INVALID,
                    "permute: layout is NULL");
    ck_assert_error(tsr_layout_permute(&in, (int[]){0, 1}, NULL), TSR_ERR_INVALID,
                    "permute: out is NULL");

    ck_assert_error(tsr_layout_broadcast(&in, 2, (int64_t[]){4, 3}, &out), TSR_ERR_INVALID,
                    "broadcast: [2,3] does not broadcast to [4,3]: size 2 does not match size 4");
    ck_assert_error(tsr_layout_broadcast(&in, 1, (int64_t[]){3}, &out), TSR_ERR_INVALID,
                    "broadcast: [2,3] has more dimensions than [3]");
    ck_assert_error(tsr_layout_broadcast(&in, 2, (int64_t[]){2, -3}, &out), TSR_ERR_INVALID,
                    "broadcast: size -3 in shape [2,-3] is negative");
    ck_assert_error(tsr_layout_broadcast(&in, 9, (int64_t[9]){2}, &out), TSR_ERR_INVALID,
                    "broadcast: 9 dimensions are outside 0..8");
    ck_assert_error(tsr_layout_broadcast(&in, 2, NULL, &out), TSR_ERR_INVALID,
                    "broadcast: shape is NULL");
    ck_assert_error(tsr_layout_broadcast(NULL, 2, (int64_t[]){2, 3}, &out), TSR_ERR_INVALID,
                    "broadcast: layout is NULL");
    ck_assert_error(tsr_layout_broadcast(&in, 2, (int64_t[]){2, 3}, NULL), TSR_ERR_INVALID,
                    "broadcast: out is NULL");

    ck_assert_mem_eq(&out, &before, sizeof out);
}
END_TEST

TESTS(views)
{
    tcase_add_test(tests, slice);
    tcase_add_test(tests, selects);
    tcase_add_test(tests, transpose);
    tcase_add_test(tests, permute);
    tcase_add_test(tests, broadcast);
    tcase_add_test(tests, huge);
    tcase_add_test(tests, errors);
}
