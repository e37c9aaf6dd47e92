/* Rows that are divided into segments (ranges of columns), each with a workgroup of its own. The
 * results must have the same bits as those of one workgroup per row, for any strides. That these
 * bits are right is checked with the same lengths by the tests of the operations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "gpu/internal.h"
#include "gpu/ops/common/segments.h"
#include "gpu/stream/state.h"
#include "support/check_main.h"
#include "support/gpu.h"

/* How the rows lie in memory. */
typedef enum placing { CONTIGUOUS, GAPS_BETWEEN_ROWS, GAPS_BETWEEN_ELEMENTS, PLACINGS } placing;

enum { RESULTS = 3 };

/* An operation on rows of x and dy, which writes y. `more` are its other outputs. */
typedef struct call {
    tsr_tensor *x, *dy, *y, *weight, *labels;
    tsr_tensor *more[RESULTS - 1];
} call;

static tsr_status softmax(tsr_stream *stream, const call *c)
{
    return tsr_softmax(stream, c->y, c->x, false);
}

static tsr_status log_softmax(tsr_stream *stream, const call *c)
{
    return tsr_softmax(stream, c->y, c->x, true);
}

static tsr_status softmax_grad(tsr_stream *stream, const call *c)
{
    return tsr_softmax_grad(stream, c->y, c->x, c->dy, false);
}

static tsr_status log_softmax_grad(tsr_stream *stream, const call *c)
{
    return tsr_softmax_grad(stream, c->y, c->x, c->dy, true);
}

static tsr_status layer_norm(tsr_stream *stream, const call *c)
{
    return tsr_norm(stream, c->y, c->x, c->weight, c->weight, TSR_NORM_LAYER, 1e-5F);
}

static tsr_status rms_norm(tsr_stream *stream, const call *c)
{
    return tsr_norm(stream, c->y, c->x, c->weight, NULL, TSR_NORM_RMS, 1e-5F);
}

static tsr_status layer_norm_grad(tsr_stream *stream, const call *c)
{
    return tsr_norm_grad(stream, c->y, c->more[0], c->more[1], c->x, c->dy, c->weight,
                         TSR_NORM_LAYER, 1e-5F, false);
}

static tsr_status rms_norm_grad(tsr_stream *stream, const call *c)
{
    return tsr_norm_grad(stream, c->y, c->more[0], NULL, c->x, c->dy, c->weight, TSR_NORM_RMS,
                         1e-5F, false);
}

static tsr_status cross_entropy(tsr_stream *stream, const call *c)
{
    return tsr_cross_entropy(stream, c->more[0], c->y, c->x, c->labels, 0.5F);
}

/* Computes cross-entropy as one rank that has all classes, which are numbered from 5 on. */
static tsr_status cross_entropy_shard(tsr_stream *stream, const call *c)
{
    const int64_t classes = tsr_tensor_layout(c->x)->shape[1];
    tsr_tensor *mine;
    tsr_status status = tsr_tensor_select(c->more[1], 0, 0, &mine);

    if (status == TSR_OK)
        status = tsr__cross_entropy_shard_stats(stream, mine, c->x, c->labels, 5);
    if (status == TSR_OK)
        status = tsr__cross_entropy_shard(stream, c->more[0], c->y, c->x, c->labels, c->more[1], 5,
                                          classes + 5, 0.5F);
    tsr_tensor_destroy(&mine);
    return status;
}

typedef struct operation {
    const char *name;
    tsr_status (*run)(tsr_stream *stream, const call *c);
    /* How many other outputs there are: vectors of a row's length, or (`losses`) the losses of
     * the rows and statistics. */
    int more;
    bool losses;
    bool in_place; /* y may be x; if not set, y may be dy */
} operation;

static const operation operations[] = {
    {"softmax", softmax, 0, false, true},
    {"log_softmax", log_softmax, 0, false, true},
    {"softmax_grad", softmax_grad, 0, false, false},
    {"log_softmax_grad", log_softmax_grad, 0, false, false},
    {"layer_norm", layer_norm, 0, false, true},
    {"rms_norm", rms_norm, 0, false, true},
    {"layer_norm_grad", layer_norm_grad, 2, false, false},
    {"rms_norm_grad", rms_norm_grad, 1, false, true},
    {"cross_entropy", cross_entropy, 1, true, true},
    {"cross_entropy_shard", cross_entropy_shard, 2, true, true},
};
enum { OPERATIONS = sizeof operations / sizeof *operations };

static tsr_tensor *place(placing how, tsr_dtype dtype, int64_t rows, int64_t count)
{
    const int64_t wide[] = {rows, how == GAPS_BETWEEN_ROWS       ? count + 3
                                  : how == GAPS_BETWEEN_ELEMENTS ? 2 * count
                                                                 : count};
    tsr_tensor *whole = gpu_new(dtype, 2, wide), *view;
    const int64_t step = how == GAPS_BETWEEN_ELEMENTS ? 2 : 1;

    gpu_poison(whole);
    GPU_OK(tsr_tensor_slice(whole, 1, 0, step * (count - 1) + 1, step, &view));
    tsr_tensor_destroy(&whole);
    return view;
}

static void put_random(uint64_t seed, double scale, tsr_tensor *tensor)
{
    gpu_random random = {seed};
    const int64_t count = tsr_layout_count(tsr_tensor_layout(tensor));
    double *values = malloc((size_t)count * sizeof *values);

    ck_assert_ptr_nonnull(values);
    for (int64_t i = 0; i < count; i++)
        values[i] = scale * gpu_random_unit(&random);
    gpu_put(tensor, values);
    free(values);
}

/* Makes labels in the first, the last and an inner segment, and one that is ignored. */
static tsr_tensor *labels_of(int64_t rows, int64_t count)
{
    const double values[] = {6, (double)count - 1, 9000, (double)count + 100};
    double *label = malloc((size_t)rows * sizeof *label);
    tsr_tensor *labels = gpu_new(TSR_I32, 1, &rows);

    ck_assert_ptr_nonnull(label);
    for (int64_t r = 0; r < rows; r++)
        label[r] = values[r % 4];
    gpu_put(labels, label);
    free(label);
    return labels;
}

static call prepare(const operation *o, placing how, const tsr_dtype dtypes[2], int64_t rows,
                    int64_t count, bool in_place)
{
    const int64_t stats[] = {1, 3, rows};
    call c = {.x = place(how, dtypes[0], rows, count), .dy = place(how, dtypes[0], rows, count)};

    c.weight = gpu_new(TSR_F32, 1, &count);
    c.labels = labels_of(rows, count);
    c.y = !in_place ? place(how, dtypes[1], rows, count) : o->in_place ? c.x : c.dy;
    put_random(1, 3, c.x);
    put_random(2, 1, c.dy);
    put_random(3, 1, c.weight);
    if (!in_place)
        gpu_poison(c.y);
    for (int i = 0; i < o->more; i++) {
        c.more[i] = !o->losses ? gpu_new(TSR_F32, 1, &count)
                    : i == 0   ? gpu_new(TSR_F32, 1, &rows)
                               : gpu_new(TSR_F32, 3, stats);
        gpu_poison(c.more[i]);
    }
    return c;
}

static void finish(call *c)
{
    if (c->y != c->x && c->y != c->dy)
        tsr_tensor_destroy(&c->y);
    tsr_tensor *all[] = {c->x, c->dy, c->weight, c->labels, c->more[0], c->more[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
}

/* Returns all outputs as numbers that represent their bits exactly; *count is their number. */
static double *outputs(const operation *o, const call *c, size_t *count)
{
    const tsr_tensor *results[RESULTS] = {c->y, c->more[0], c->more[1]};
    double *values = NULL;

    *count = 0;
    for (int i = 0; i <= o->more; i++) {
        const size_t elements = (size_t)tsr_layout_count(tsr_tensor_layout(results[i]));
        values = realloc(values, (*count + elements) * sizeof *values);
        ck_assert_ptr_nonnull(values);
        gpu_get((tsr_tensor *)results[i], values + *count);
        *count += elements;
    }
    return values;
}

/* Only devices with large workgroups divide rows. */
#define SKIP_WITHOUT_SEGMENTS()                                                                    \
    do {                                                                                           \
        divide(true);                                                                              \
        if (!tsr__segments_suit(gpu, 1, INT32_MAX))                                                \
            SKIP("workgroups of this device have at most %u invocations",                          \
                 gpu->info.max_workgroup_invocations);                                             \
    } while (0)

/* Turns the division of rows on or off by setting the number of processors. The devices of these
 * tests report none, which allows the division. With one processor, any row keeps the device
 * busy, so no row is divided. */
static void divide(bool divided)
{
    gpu->info.processor_count = divided ? 0 : 1;
}

static void compare(const operation *o, const tsr_dtype dtypes[2], int64_t rows, int64_t count,
                    bool in_place)
{
    double *want = NULL;
    size_t wanted = 0;
    uint64_t commands[2];

    for (int i = 0; i < 2 * PLACINGS; i++) {
        call c = prepare(o, (placing)(i / 2), dtypes, rows, count, in_place);
        divide(i % 2 == 1);
        ck_assert_int_eq(tsr__segments_suit(gpu, (uint64_t)rows, count), i % 2 == 1);
        commands[i % 2] = queue->serial;
        GPU_OK(o->run(queue, &c));
        commands[i % 2] = queue->serial - commands[i % 2];
        size_t got_count;
        double *got = outputs(o, &c, &got_count);
        finish(&c);
        if (!want) {
            want = got;
            wanted = got_count;
            continue;
        }
        ck_assert_uint_eq(wanted, got_count);
        for (size_t j = 0; j < wanted; j++)
            ck_assert_msg(!isnan(got[j]) && memcmp(&got[j], &want[j], sizeof *got) == 0,
                          "%s, %lld rows of %lld, placing %d, %s: element %zu is %a instead of %a",
                          o->name, (long long)rows, (long long)count, i / 2,
                          i % 2 == 1 ? "divided" : "whole", j, got[j], want[j]);
        free(got);
        if (i % 2 == 1) /* divided rows need a dispatch for each phase */
            ck_assert_uint_gt(commands[1], commands[0]);
    }
    free(want);
}

START_TEST(the_bits_are_those_of_one_workgroup)
{
    static const tsr_dtype f32[] = {TSR_F32, TSR_F32};

    SKIP_WITHOUT_SEGMENTS();
    compare(&operations[_i], f32, 4, 16385, false); /* the last segment has one element */
    compare(&operations[_i], f32, 2, 40003, true);
}
END_TEST

START_TEST(other_forms_too)
{
    static const tsr_dtype f32[] = {TSR_F32, TSR_F32}, mixed[] = {TSR_F16, TSR_F32};

    SKIP_WITHOUT_SEGMENTS();
    compare(&operations[0], f32, 2, 24576, false);  /* vectors and complete segments */
    compare(&operations[0], f32, 1, 270001, false); /* segments longer than the shortest */
    compare(&operations[4], mixed, 1, 50260, false);
}
END_TEST

START_TEST(only_few_long_rows_are_divided)
{
    divide(true);
    if (gpu->info.max_workgroup_invocations < 512) {
        ck_assert(!tsr__segments_suit(gpu, 1, 50257));
        ck_assert(!tsr__segments_suit(gpu, 1, INT32_MAX));
        return;
    }
    ck_assert(tsr__segments_suit(gpu, 1, 50257));
    ck_assert(!tsr__segments_suit(gpu, 1, 16384));
    ck_assert(tsr__segments_suit(gpu, 31, 16385));
    ck_assert(!tsr__segments_suit(gpu, 32, 16385));
    ck_assert(!tsr__segments_suit(gpu, 1, 0));
    ck_assert(tsr__segments_suit(gpu, 1, INT32_MAX));
    gpu->info.processor_count = 132;
    ck_assert(tsr__segments_suit(gpu, 131, 16385));
    ck_assert(!tsr__segments_suit(gpu, 132, 16385));
}
END_TEST

/* The number of segments of a row is limited, and together they must cover the row. */
START_TEST(segments_of_any_length)
{
    gpu_random random = {5};

    for (int i = 0; i < 100000; i++) {
        const uint32_t count = (uint32_t)gpu_random_between(
                                   &random, 1, INT64_C(1) << gpu_random_between(&random, 1, 31)) -
                               (i % 2 == 0);
        if (count == 0 || count > INT32_MAX)
            continue;
        const uint32_t length = TSR_SEGMENT_LENGTH(count), segments = (count - 1) / length + 1;
        ck_assert_uint_le(segments, TSR_SEGMENTS_MAX);
        ck_assert_uint_eq(length % TSR_SEGMENT_UNIT, 0);
        ck_assert_uint_ge((uint64_t)length * segments, count);
        ck_assert_uint_lt((uint64_t)length * (segments - 1), count);
    }
}
END_TEST

/* Rows in four dimensions with gaps must not be divided, and their results must be right. */
START_TEST(rows_in_four_dimensions)
{
    enum { COUNT = 16388 };
    const int64_t whole[] = {3, 3, 2, 3, COUNT}, all[] = {16, COUNT};
    tsr_tensor *views[5] = {gpu_new(TSR_F32, 5, whole)}, *x, *y, *want;
    double *got = malloc(16 * COUNT * sizeof *got), *expected = malloc(16 * COUNT * sizeof *got);

    ck_assert(got && expected);
    for (int d = 0; d < 4; d++)
        GPU_OK(tsr_tensor_slice(views[d], d, 0, 2, 1, &views[d + 1]));
    x = gpu_new(TSR_F32, 2, all);
    y = views[4];
    want = gpu_new(TSR_F32, 2, all);
    put_random(9, 2, x);
    put_random(9, 2, y);
    divide(true);
    GPU_OK(tsr_softmax(queue, want, x, false));
    GPU_OK(tsr_softmax(queue, y, y, false));
    gpu_get(y, got);
    gpu_get(want, expected);
    ck_assert_mem_eq(got, expected, 16 * COUNT * sizeof *got);
    free(got);
    free(expected);
    for (int d = 0; d < 5; d++)
        tsr_tensor_destroy(&views[d]);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&want);
}
END_TEST

/* The nth event of a kind (an allocation or a Vulkan call) fails, for all n. Each call must give
 * an error and leave the outputs unchanged, or succeed. */
static void survive(const operation *o, tsr__fault_kind fault, int code)
{
    static const tsr_dtype f32[] = {TSR_F32, TSR_F32};
    int failed = 0;
    bool reached = true;

    divide(true);
    for (uint64_t nth = 0; reached; nth++) {
        tsr_stream *stream; /* a new one has no scratch memory yet */
        call c = prepare(o, CONTIGUOUS, f32, 2, 16385, false);
        GPU_OK(tsr_stream_create(gpu, &stream));
        GPU_OK(tsr_stream_wait(queue));
        tsr__fault_arm(fault, nth, code);
        const tsr_status status = o->run(stream, &c);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        GPU_OK(tsr_stream_wait(stream));
        size_t count;
        double *got = outputs(o, &c, &count);
        for (size_t i = 0; i < count; i++)
            ck_assert_msg(isnan(got[i]) == (status != TSR_OK), "%s, event %llu: %s; element %zu",
                          o->name, (unsigned long long)nth, tsr_last_error(), i);
        free(got);
        finish(&c);
        tsr_stream_destroy(&stream);
        failed += status != TSR_OK;
        ck_assert(reached || status == TSR_OK);
        ck_assert_uint_lt(nth, 1000);
    }
    ck_assert_int_gt(failed, 3);
}

START_TEST(failures_leave_nothing_half_done)
{
    static const int which[] = {8, 6};

    survive(&operations[which[_i]], TSR__FAULT_VULKAN, -3 /* VK_ERROR_INITIALIZATION_FAILED */);
    survive(&operations[which[_i]], TSR__FAULT_ALLOC, 0);
}
END_TEST

TESTS(segments)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, the_bits_are_those_of_one_workgroup, 0, OPERATIONS);
    tcase_add_test(tests, other_forms_too);
    tcase_add_test(tests, only_few_long_rows_are_divided);
    tcase_add_test(tests, segments_of_any_length);
    tcase_add_test(tests, rows_in_four_dimensions);
    tcase_add_loop_test(tests, failures_leave_nothing_half_done, 0, 2);
}
