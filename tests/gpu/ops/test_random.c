/* Random numbers on the device have the same bits as those of the C code in src/base, and are
 * determined by the element index. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "base/variate.h"
#include "gpu/internal.h"
#include "support/check_main.h"
#include "support/gpu.h"

#define SEED UINT64_C(0x123456789abcdef0)
#define SUBSEQUENCE UINT64_C(0xfedcba9800000003)

static void *get_raw(tsr_tensor *tensor, uint64_t size_bytes)
{
    void *data = malloc(size_bytes + 1);
    ck_assert_ptr_nonnull(data);
    GPU_OK(tsr_tensor_download(queue, tensor, data, size_bytes));
    return data;
}

typedef enum kind { BITS, UNIFORM, NORMAL } kind;

static tsr_status draw(kind what, tsr_tensor *y, const tsr_random_params *params)
{
    switch (what) {
    case BITS:
        return tsr__random_bits(queue, y, params);
    case UNIFORM:
        return tsr_random_uniform(queue, y, -0.3f, 0.7f, params);
    case NORMAL:
        return tsr_random_normal(queue, y, 0.125f, 1.7f, params);
    }
    return TSR_OK;
}

/* Returns the expected bits of element `index`. */
static uint32_t expected(kind what, const tsr_random_params *params, uint64_t index)
{
    uint32_t word = tsr__philox_word(params->seed, params->subsequence, index);
    if (what == BITS)
        return word;
    float value = 0;
    if (what == UNIFORM) {
        value = tsr__uniform_from_word(word, -0.3f, 0.7f);
    } else {
        float product = 1.7f * tsr__normal_from_word(word);
        value = product + 0.125f;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static tsr_dtype dtype_of(kind what)
{
    return what == BITS ? TSR_U32 : TSR_F32;
}

/* Compares element (i, j, k) of a view with the random number of its index. */
static void check_view(kind what, tsr_tensor *y, const tsr_random_params *params)
{
    const int64_t *shape = tsr_tensor_layout(y)->shape;
    const int64_t row_major[3] = {shape[1] * shape[2], shape[2], 1};
    const int64_t *strides = params->index_strides ? params->index_strides : row_major;
    uint32_t *got = get_raw(y, (uint64_t)tsr_layout_count(tsr_tensor_layout(y)) * 4);
    int64_t at = 0;
    for (int64_t i = 0; i < shape[0]; i++)
        for (int64_t j = 0; j < shape[1]; j++)
            for (int64_t k = 0; k < shape[2]; k++, at++) {
                uint64_t index =
                    params->offset + (uint64_t)(i * strides[0] + j * strides[1] + k * strides[2]);
                uint32_t want = expected(what, params, index);
                ck_assert_msg(got[at] == want, "kind %d, element %lld,%lld,%lld: %08x, not %08x",
                              (int)what, (long long)i, (long long)j, (long long)k, got[at], want);
            }
    free(got);
}

/* A million words of each kind in one call have the same bits as on the host. */
START_TEST(million_words_match_the_host)
{
    const tsr_random_params params = {
        .struct_size = sizeof params, .seed = SEED, .subsequence = SUBSEQUENCE};
    const int64_t shape[] = {1, 1, 1200007};
    tsr_tensor *y = gpu_new(dtype_of((kind)_i), 3, shape);
    gpu_poison(y);
    GPU_OK(draw((kind)_i, y, &params));
    check_view((kind)_i, y, &params);
    tsr_tensor_destroy(&y);
}
END_TEST

/* Random views, whose rows start at all places of a block of four random words: strided,
 * transposed and with steps. */
START_TEST(any_view_and_offset)
{
    gpu_random random = {.state = 77};
    for (int i = 0; i < 60; i++) {
        kind what = (kind)(i % 3);
        const int64_t shape[] = {gpu_random_between(&random, 1, 4),
                                 gpu_random_between(&random, 1, 9),
                                 gpu_random_between(&random, 0, 23)};
        tsr_random_params params = {.struct_size = sizeof params,
                                    .seed = gpu_random_u64(&random),
                                    .subsequence = gpu_random_u64(&random),
                                    .offset = gpu_random_u64(&random) >> (i % 60 + 1)};
        tsr_tensor *parent;
        tsr_tensor *y = gpu_random_view(&random, dtype_of(what), 3, shape, &parent);
        GPU_OK(draw(what, y, &params));
        check_view(what, y, &params);
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&parent);
    }
}
END_TEST

/* Elements around a view stay unchanged. */
START_TEST(writes_nothing_else)
{
    const int64_t shape[] = {7, 10};
    tsr_tensor *whole = gpu_new(TSR_U32, 2, shape), *view = NULL;
    gpu_poison(whole);
    GPU_OK(tsr_tensor_slice(whole, 1, 3, 6, 1, &view));
    GPU_OK(tsr__random_bits(queue, view, tsr_random_params(.seed = 5, .offset = 1)));
    uint32_t *got = get_raw(whole, 7 * 10 * 4);
    for (uint64_t i = 0; i < 7; i++)
        for (uint64_t j = 0; j < 10; j++)
            ck_assert_uint_eq(got[i * 10 + j], j < 3 || j >= 6
                                                   ? UINT32_MAX
                                                   : tsr__philox_word(5, 0, 1 + i * 3 + j - 3));
    free(got);
    tsr_tensor_destroy(&view);
    tsr_tensor_destroy(&whole);
}
END_TEST

/* Indices that cross 2^32 and 2^34 (where the low word of the block's number overflows), and
 * indices at the end of 64 bits. */
START_TEST(indices_are_64_bit)
{
    const uint64_t offsets[] = {(UINT64_C(1) << 32) - 7, (UINT64_C(1) << 34) - 7,
                                (UINT64_C(3) << 34) - 2, UINT64_MAX - 4 * 3 * 5 + 1};
    for (size_t i = 0; i < sizeof offsets / sizeof *offsets; i++) {
        const tsr_random_params params = {
            .struct_size = sizeof params, .seed = SEED, .offset = offsets[i]};
        const int64_t shape[] = {4, 3, 5};
        tsr_tensor *y = gpu_new(TSR_U32, 3, shape);
        GPU_OK(tsr__random_bits(queue, y, &params));
        check_view(BITS, y, &params);
        tsr_tensor_destroy(&y);
    }
}
END_TEST

/* Strides so long that the tensor has to be divided among dispatches, and strides in any order. */
START_TEST(any_index_strides)
{
    const int64_t strides[][3] = {{1, 4, 12},
                                  {0, 0, 0},
                                  {INT64_C(1) << 40, INT64_C(1) << 31, 1},
                                  {5, INT64_C(0x7fffffff), 3},
                                  {INT64_C(1) << 61, 1, 7}};
    const int64_t shapes[][3] = {{3, 4, 6}, {1, 1, 9}, {1, 9, 1}, {4, 1, 1}};
    for (size_t i = 0; i < sizeof strides / sizeof *strides; i++)
        for (uint64_t k = 0; k < 4; k++) {
            const tsr_random_params params = {.struct_size = sizeof params,
                                              .seed = 9,
                                              .subsequence = i,
                                              .offset = k == 0 ? 3 : 4,
                                              .index_strides = strides[i]};
            tsr_tensor *y = gpu_new(TSR_U32, 3, shapes[k]);
            gpu_poison(y);
            GPU_OK(tsr__random_bits(queue, y, &params));
            check_view(BITS, y, &params);
            tsr_tensor_destroy(&y);
        }
}
END_TEST

/* The distance from the first to the last index is the largest that 63 bits
 * hold, or larger by one. */
START_TEST(indices_reach_63_bits)
{
    const int64_t strides[] = {INT64_MAX, 1, 1}, shape[] = {2, 1, 1}, farther[] = {2, 1, 2};
    const tsr_random_params params = {.struct_size = sizeof params,
                                      .seed = SEED,
                                      .offset = UINT64_C(1) << 63,
                                      .index_strides = strides};
    tsr_tensor *y = gpu_new(TSR_U32, 3, shape), *refused = gpu_new(TSR_U32, 3, farther);
    gpu_poison(y);
    GPU_OK(tsr__random_bits(queue, y, &params));
    check_view(BITS, y, &params);
    GPU_FAILS(tsr__random_bits(queue, refused, tsr_random_params(.index_strides = strides)),
              TSR_ERR_OVERFLOW, "over shape [2,1,2] with index_strides");
    tsr_tensor_destroy(&refused);
    tsr_tensor_destroy(&y);
}
END_TEST

/* A shard of a tensor is filled with its position in the complete tensor. It must get the
 * numbers that the complete tensor has there. */
START_TEST(shard_equals_slice_of_whole)
{
    enum { ROWS = 37, COLUMNS = 29 };
    const int64_t shape[] = {ROWS, COLUMNS};
    const int64_t index_strides[] = {COLUMNS, 1};
    const uint64_t first = 1000003;
    tsr_tensor *whole = gpu_new(TSR_F32, 2, shape);
    GPU_OK(tsr_random_normal(queue, whole, 0, 1,
                             tsr_random_params(.seed = 4, .subsequence = 8, .offset = first)));
    for (int dim = 0; dim < 2; dim++)
        for (int64_t begin = 0; begin < shape[dim]; begin += 11) {
            int64_t end = begin + 11 < shape[dim] ? begin + 11 : shape[dim];
            int64_t part[] = {ROWS, COLUMNS};
            part[dim] = end - begin;
            tsr_tensor *shard = gpu_new(TSR_F32, 2, part), *slice = NULL;
            GPU_OK(tsr_tensor_slice(whole, dim, begin, end, 1, &slice));
            GPU_OK(tsr_random_normal(
                queue, shard, 0, 1,
                tsr_random_params(.seed = 4, .subsequence = 8,
                                  .offset = first + (uint64_t)(begin * index_strides[dim]),
                                  .index_strides = index_strides)));
            uint64_t size = (uint64_t)(part[0] * part[1]) * 4;
            void *a = get_raw(shard, size), *b = get_raw(slice, size);
            ck_assert_mem_eq(a, b, size);
            free(a);
            free(b);
            tsr_tensor_destroy(&slice);
            tsr_tensor_destroy(&shard);
        }
    tsr_tensor_destroy(&whole);
}
END_TEST

/* f16 and bf16 get the f32 value rounded to nearest even; with odd sizes, neighbours stay
 * unchanged. */
START_TEST(float16_is_rounded)
{
    const tsr_dtype dtypes[] = {TSR_F16, TSR_BF16};
    for (int d = 0; d < 2; d++)
        for (int what = UNIFORM; what <= NORMAL; what++) {
            enum { COUNT = 1021 };
            const int64_t shape[] = {COUNT};
            const tsr_random_params params = {.struct_size = sizeof params, .seed = 3, .offset = 2};
            tsr_tensor *y = gpu_new(dtypes[d], 1, shape);
            gpu_poison(y);
            GPU_OK(draw((kind)what, y, &params));
            double got[COUNT];
            gpu_get(y, got);
            for (uint64_t i = 0; i < COUNT; i++) {
                uint32_t bits = expected((kind)what, &params, 2 + i);
                float exact;
                memcpy(&exact, &bits, sizeof exact);
                ck_assert_double_eq(got[i], gpu_rounded((double)exact, dtypes[d]));
            }
            tsr_tensor_destroy(&y);
        }
}
END_TEST

/* Returns the inverse of an odd number modulo 2^32, by Newton's method: each step doubles the
 * number of correct bits. */
static uint32_t inverse(uint32_t odd)
{
    uint32_t x = odd;
    for (int i = 0; i < 5; i++)
        x *= 2 - odd * x;
    return x;
}

/* Finds the counter whose block is `out`, by inverting the rounds of Philox. */
static void philox_inverse(const uint32_t out[4], const uint32_t key[2], uint32_t counter[4])
{
    const uint32_t m0 = 0xD2511F53, m1 = 0xCD9E8D57;
    memcpy(counter, out, 4 * sizeof *counter);
    for (uint32_t round = 10; round-- > 0;) {
        uint32_t c0 = counter[3] * inverse(m0), c2 = counter[1] * inverse(m1);
        uint32_t c1 =
            counter[0] ^ (uint32_t)(((uint64_t)m1 * c2) >> 32) ^ (key[0] + round * 0x9E3779B9u);
        uint32_t c3 =
            counter[2] ^ (uint32_t)(((uint64_t)m0 * c0) >> 32) ^ (key[1] + round * 0xBB67AE85u);
        const uint32_t before[4] = {c0, c1, c2, c3};
        memcpy(counter, before, sizeof before);
    }
}

/* Finds an index at which the words a, b and c are drawn one after another. Tries values of the
 * fourth word of their block until the block's number fits the 62 bits of element indices. */
static tsr_random_params find_words(uint64_t seed, uint32_t a, uint32_t b, uint32_t c)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t words[4] = {a, b, c, 0}, counter[4];
    do {
        words[3] += 0x9E3779B9u;
        philox_inverse(words, key, counter);
    } while (counter[1] >> 30);
    return (tsr_random_params){
        .struct_size = sizeof(tsr_random_params),
        .seed = seed,
        .subsequence = counter[2] | (uint64_t)counter[3] << 32,
        .offset = (counter[0] | (uint64_t)counter[1] << 32) * 4,
    };
}

/* Random words at both ends of the range, in its middle, and on both sides of the edges of all
 * octaves in the table with which the normal distribution is computed. */
START_TEST(extreme_words_match_the_host)
{
    const int64_t shape[] = {1, 1, 3};
    tsr_tensor *y = gpu_new(dtype_of((kind)_i), 3, shape);
    for (int octave = 0; octave < 32; octave++) {
        const uint32_t edge = UINT32_C(1) << octave;
        for (uint32_t mirror = 0; mirror < 2; mirror++) {
            uint32_t flip = mirror ? UINT32_MAX : 0;
            const tsr_random_params params =
                find_words(SEED, (edge - 1) ^ flip, edge ^ flip, (edge - 2) ^ flip);
            ck_assert_uint_eq(tsr__philox_word(SEED, params.subsequence, params.offset + 1),
                              edge ^ flip);
            GPU_OK(draw((kind)_i, y, &params));
            check_view((kind)_i, y, &params);
        }
    }
    tsr_tensor_destroy(&y);
}
END_TEST

/* Returns the largest value below `high`, by trying all values of a 16-bit dtype. */
static double largest_below(tsr_dtype dtype, double high)
{
    double found = -INFINITY;
    if (dtype == TSR_F32)
        return (double)nextafterf((float)high, -INFINITY);
    for (uint64_t bits = 0; bits < 65536; bits++) {
        double value = gpu_value(bits, dtype);
        if (value < high && value > found)
            found = value;
    }
    return found;
}

typedef struct range {
    tsr_dtype dtype;
    float low, high;
} range;

/* In each of these ranges, rounding would move some numbers to `high` or above. */
static const range ranges[] = {
    {TSR_F32, 1, 1 + 0x1p-21f}, /* contains four floats */
    {TSR_F16, 0, 1},
    {TSR_BF16, 0, 1},
    {TSR_F16, -2, -1},
    {TSR_BF16, -2, -1},
    {TSR_F16, 1, 1 + 0x1p-10f}, /* low and high are neighbours */
    {TSR_BF16, -1, -1 + 0x1p-8f},
    {TSR_F16, -1, 1 + 0x1.8p-11f}, /* high is between two values */
    {TSR_BF16, 0.1f, 1 + 0x1.8p-8f},
    {TSR_BF16, 1.005f, 1.006f}, /* low and high are between the same two values */
    {TSR_F16, -1e-6f, 0},       /* numbers could be rounded to -0 */
    {TSR_F16, 0, 0x1p-24f},     /* high is the smallest value above 0 */
    {TSR_F16, 60000, 65504},    /* high is the largest value */
    {TSR_BF16, 0x1p127f, 0x1.fep127f},
};

static void check_below_high(const range *r)
{
    enum { COUNT = 1 << 16 };
    const int64_t shape[] = {COUNT};
    const double limit = largest_below(r->dtype, (double)r->high);
    tsr_tensor *y = gpu_new(r->dtype, 1, shape);
    GPU_OK(tsr_random_uniform(queue, y, r->low, r->high, tsr_random_params(.seed = 1)));
    double *got = malloc(COUNT * sizeof *got);
    ck_assert_ptr_nonnull(got);
    gpu_get(y, got);
    int clipped = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        const uint32_t word = tsr__philox_word(1, 0, i);
        const float product = (float)(word >> 8) * 0x1p-24f * (r->high - r->low);
        const float exact = product + r->low;
        const double want = gpu_rounded((double)exact, r->dtype);
        ck_assert_equal(got[i], want < (double)r->high ? want : limit);
        ck_assert(got[i] < (double)r->high);
        clipped += want >= (double)r->high;
    }
    ck_assert_int_gt(clipped, 0);
    free(got);
    tsr_tensor_destroy(&y);
}

START_TEST(uniform_stays_below_high)
{
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        check_below_high(&ranges[i]);
}
END_TEST

START_TEST(empty_tensors_draw_nothing)
{
    const int64_t shape[] = {3, 0, 5};
    tsr_tensor *y = gpu_new(TSR_F32, 3, shape);
    GPU_OK(tsr_random_uniform(queue, y, 0, 1, tsr_random_params(.offset = UINT64_MAX)));
    GPU_OK(tsr_random_normal(queue, y, 0, 1, tsr_random_params(.offset = UINT64_MAX)));
    GPU_OK(tsr_dropout(queue, y, y, 0.5f, tsr_random_params(.offset = UINT64_MAX)));
    tsr_tensor_destroy(&y);
}
END_TEST

enum { MAX_RUN = 67, RUN_ROOM = MAX_RUN + 8 };

/* Creates a view of `count` elements from element `start` on, in a buffer full of poison. */
static tsr_tensor *run_within(tsr_dtype dtype, int64_t start, int64_t count, tsr_tensor **whole)
{
    tsr_tensor *run;
    *whole = gpu_new(dtype, 1, (int64_t[]){RUN_ROOM});
    gpu_poison(*whole);
    GPU_OK(tsr_tensor_slice(*whole, 0, start, start + count, 1, &run));
    return run;
}

/* Checks that the view has the values want[], and that the elements around it are still poison. */
static void check_run(tsr_tensor *whole, int64_t start, int64_t count, const double *want)
{
    const tsr_dtype dtype = tsr_tensor_layout(whole)->dtype;
    double got[RUN_ROOM];
    gpu_get(whole, got);
    for (int64_t i = 0; i < RUN_ROOM; i++) {
        const bool inside = i >= start && i < start + count;
        const bool poison = dtype == TSR_U32 ? got[i] == UINT32_MAX : isnan(got[i]);
        ck_assert_msg(inside ? got[i] == want[i - start] : poison,
                      "%s, %lld from %lld on: element %lld is %.9g", tsr_dtype_name(dtype),
                      (long long)count, (long long)start, (long long)i, got[i]);
    }
}

static const int64_t run_lengths[] = {1, 3, 4, 5, 8, 11, 64, MAX_RUN};
#define RUN_LENGTHS ((int)(sizeof run_lengths / sizeof *run_lengths))

static void draw_run(kind what, tsr_dtype dtype, int64_t start, int64_t count, uint64_t offset)
{
    const tsr_random_params params = {.struct_size = sizeof params, .seed = SEED, .offset = offset};
    tsr_tensor *whole, *run = run_within(dtype, start, count, &whole);
    double want[MAX_RUN];
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = expected(what, &params, offset + (uint64_t)i);
        float value;
        memcpy(&value, &bits, sizeof value);
        want[i] = what == BITS ? bits : gpu_rounded((double)value, dtype);
    }
    GPU_OK(draw(what, run, &params));
    check_run(whole, start, count, want);
    tsr_tensor_destroy(&run);
    tsr_tensor_destroy(&whole);
}

/* Contiguous elements at any start, with and without incomplete blocks. */
START_TEST(runs_of_any_start_and_length)
{
    static const struct {
        kind what;
        tsr_dtype dtype;
    } cases[] = {{BITS, TSR_U32}, {NORMAL, TSR_F32}, {UNIFORM, TSR_F16}, {UNIFORM, TSR_BF16}};
    static const uint64_t offsets[] = {0, 4, 5};
    for (int i = 0; i < RUN_LENGTHS; i++)
        for (int64_t start = 0; start < 4; start++)
            for (int k = 0; k < 3; k++)
                draw_run(cases[_i].what, cases[_i].dtype, start, run_lengths[i], offsets[k]);
}
END_TEST

/* Dropout -------------------------------------------------------------------------------------- */

/* Compares y with the host's result: the same mask, and x · f32(1/(1−p)) rounded to y's dtype. */
static void check_dropout(tsr_tensor *y, const double *x, const tsr_random_params *params, float p,
                          double *kept_share)
{
    int64_t count = tsr_layout_count(tsr_tensor_layout(y));
    tsr_dtype dtype = tsr_tensor_layout(y)->dtype;
    double *got = malloc((size_t)(count + 1) * sizeof *got);
    ck_assert_ptr_nonnull(got);
    gpu_get(y, got);
    const float scale = (float)(1 / (1 - (double)p));
    const uint64_t threshold = (uint64_t)floor((double)p * 0x1p32 + 0.5);
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
        uint32_t word =
            tsr__philox_word(params->seed, params->subsequence, params->offset + (uint64_t)i);
        double want = word >= threshold ? gpu_rounded((double)((float)x[i] * scale), dtype) : 0;
        kept += word >= threshold;
        ck_assert_msg(got[i] == want || (isnan(got[i]) && isnan(want)),
                      "element %lld of %.9g: %.9g, not %.9g", (long long)i, x[i], got[i], want);
    }
    *kept_share = (double)kept / (double)count;
    free(got);
}

START_TEST(dropout_matches_the_host)
{
    const struct {
        tsr_dtype y, x;
        float p;
    } cases[] = {{TSR_F32, TSR_F32, 0.1f},  {TSR_F32, TSR_F32, 0},
                 {TSR_F16, TSR_F16, 0.5f},  {TSR_BF16, TSR_F32, 0.9f},
                 {TSR_F32, TSR_BF16, 0.3f}, {TSR_F32, TSR_F32, 1 - 0x1p-24f}};
    gpu_random random = {.state = 3};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        enum { ROWS = 61, COLUMNS = 83 };
        const int64_t shape[] = {ROWS, COLUMNS};
        const tsr_random_params params = {
            .struct_size = sizeof params, .seed = SEED + c, .subsequence = c, .offset = c};
        double *x = malloc(ROWS * COLUMNS * sizeof *x);
        ck_assert_ptr_nonnull(x);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            x[i] = gpu_rounded(gpu_random_unit(&random), cases[c].x);
        tsr_tensor *x_parent, *y_parent;
        tsr_tensor *tx = gpu_random_view(&random, cases[c].x, 2, shape, &x_parent);
        tsr_tensor *ty = gpu_random_view(&random, cases[c].y, 2, shape, &y_parent);
        gpu_put(tx, x);
        GPU_OK(tsr_dropout(queue, ty, tx, cases[c].p, &params));
        double share;
        check_dropout(ty, x, &params, cases[c].p, &share);
        ck_assert_double_lt(fabs(share - (1 - (double)cases[c].p)), 0.03);
        tsr_tensor_destroy(&tx);
        tsr_tensor_destroy(&ty);
        tsr_tensor_destroy(&x_parent);
        tsr_tensor_destroy(&y_parent);
        free(x);
    }
}
END_TEST

static void drop_run(tsr_dtype y_dtype, tsr_dtype x_dtype, int64_t start, int64_t count)
{
    const float p = 0.25f, scale = (float)(1 / (1 - 0.25));
    const tsr_random_params params = {
        .struct_size = sizeof params, .seed = SEED, .offset = 8 + (uint64_t)(count % 2)};
    tsr_tensor *wholes[2], *y = run_within(y_dtype, start, count, &wholes[0]);
    tsr_tensor *x = run_within(x_dtype, start / 2, count, &wholes[1]);
    double from[MAX_RUN], want[MAX_RUN];
    for (int64_t i = 0; i < count; i++) {
        uint32_t word = tsr__philox_word(SEED, 0, params.offset + (uint64_t)i);
        from[i] = (double)(i + 1);
        want[i] = word < 0x40000000 ? 0 : gpu_rounded((double)((float)from[i] * scale), y_dtype);
    }
    gpu_put(x, from);
    GPU_OK(tsr_dropout(queue, y, x, p, &params));
    check_run(wholes[0], start, count, want);
    tsr_tensor *all[] = {y, x, wholes[0], wholes[1]};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&all[i]);
}

START_TEST(dropout_of_runs)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    for (int i = 0; i < RUN_LENGTHS; i++)
        for (int64_t start = 0; start < 4; start++)
            drop_run(dtypes[_i], dtypes[start % 3], start, run_lengths[i]);
}
END_TEST

/* Dropout keeps an element whose random word equals the threshold, and drops one whose word is
 * less by one, in complete and in incomplete blocks of four words. */
START_TEST(dropout_at_its_threshold)
{
    const tsr_random_params params = find_words(SEED, 0x40000000, 0x3fffffff, 0x40000001);
    for (int64_t count = 3; count <= 4; count++) {
        double got[4];
        tsr_tensor *x = gpu_new(TSR_F32, 1, &count), *y = gpu_new(TSR_F32, 1, &count);
        GPU_OK(tsr_fill(queue, x, 3));
        GPU_OK(tsr_dropout(queue, y, x, 0.25f, &params));
        gpu_get(y, got);
        ck_assert(got[0] == 4 && got[1] == 0 && got[2] == 4);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&y);
    }
}
END_TEST

/* If y is x, a dropped element becomes 0 even if it is NaN or infinite. */
START_TEST(dropout_in_place_drops_nan)
{
    enum { COUNT = 4096 };
    const int64_t shape[] = {COUNT};
    const tsr_random_params params = {.struct_size = sizeof params, .seed = 12, .subsequence = 1};
    double x[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = i % 3 == 0 ? NAN : i % 3 == 1 ? INFINITY : (double)i;
    tsr_tensor *t = gpu_new(TSR_F32, 1, shape);
    gpu_put(t, x);
    GPU_OK(tsr_dropout(queue, t, t, 0.25f, &params));
    double share;
    check_dropout(t, x, &params, 0.25f, &share);
    ck_assert_double_lt(fabs(share - 0.75), 0.03);
    tsr_tensor_destroy(&t);
}
END_TEST

/* Refused calls -------------------------------------------------------------------------------- */

START_TEST(errors_name_the_values)
{
    const int64_t shape[] = {4, 5}, wide[] = {8, 5};
    const tsr_random_params params = {.struct_size = sizeof params, .seed = 1};
    tsr_tensor *f = gpu_new(TSR_F32, 2, shape), *u = gpu_new(TSR_U32, 2, shape);
    tsr_tensor *w = gpu_new(TSR_F32, 2, wide), *repeated = NULL, *a = NULL, *b = NULL;
    tsr_tensor *h = gpu_new(TSR_F16, 2, shape), *bf = gpu_new(TSR_BF16, 2, shape);

    GPU_FAILS(tsr__random_bits(NULL, u, &params), TSR_ERR_INVALID, "random_bits: stream is NULL");
    GPU_FAILS(tsr__random_bits(queue, NULL, &params), TSR_ERR_INVALID, "random_bits: y is NULL");
    GPU_FAILS(tsr__random_bits(queue, u, NULL), TSR_ERR_INVALID, "random_bits: params is NULL");
    GPU_FAILS(tsr__random_bits(queue, f, &params), TSR_ERR_INVALID, "y is f32; u32 is needed");
    GPU_FAILS(tsr_random_uniform(queue, u, 0, 1, &params), TSR_ERR_INVALID,
              "random_uniform: y is u32");
    GPU_FAILS(tsr_random_normal(queue, u, 0, 1, &params), TSR_ERR_INVALID,
              "random_normal: y is u32");
    GPU_FAILS(tsr_random_uniform(queue, f, 1, 1, &params), TSR_ERR_INVALID,
              "low 1 is not below high 1");
    GPU_FAILS(tsr_random_uniform(queue, f, NAN, 1, &params), TSR_ERR_INVALID, "low is nan");
    GPU_FAILS(tsr_random_uniform(queue, f, 0, INFINITY, &params), TSR_ERR_INVALID, "high is inf");
    GPU_FAILS(tsr_random_uniform(queue, f, -3e38f, 3e38f, &params), TSR_ERR_INVALID,
              "outside the range of f32");
    GPU_FAILS(tsr_random_uniform(queue, h, 0, 1e6f, &params), TSR_ERR_INVALID,
              "random_uniform: high 1e+06 is outside the range of f16");
    GPU_FAILS(tsr_random_uniform(queue, h, -65505, 1, &params), TSR_ERR_INVALID,
              "random_uniform: low -65505 is outside the range of f16");
    GPU_FAILS(tsr_random_uniform(queue, bf, 0, 3.4e38f, &params), TSR_ERR_INVALID,
              "random_uniform: high 3.4e+38 is outside the range of bf16");
    GPU_FAILS(tsr_random_normal(queue, f, 0, -1, &params), TSR_ERR_INVALID,
              "deviation -1 is negative");
    GPU_FAILS(tsr_random_normal(queue, f, INFINITY, 1, &params), TSR_ERR_INVALID, "mean is inf");
    GPU_FAILS(tsr_random_normal(queue, f, 0, NAN, &params), TSR_ERR_INVALID, "deviation is nan");

    const int64_t negative[] = {5, -1}, huge[] = {INT64_MAX, INT64_MAX};
    GPU_FAILS(tsr__random_bits(queue, u, tsr_random_params(.index_strides = negative)),
              TSR_ERR_INVALID, "index_strides[1] is -1");
    GPU_FAILS(tsr__random_bits(queue, u, tsr_random_params(.index_strides = huge)),
              TSR_ERR_OVERFLOW, "over shape [4,5] with index_strides");
    GPU_FAILS(tsr__random_bits(queue, u, tsr_random_params(.offset = UINT64_MAX - 18)),
              TSR_ERR_OVERFLOW, "from offset 18446744073709551597");

    GPU_OK(tsr_tensor_slice(f, 0, 0, 1, 1, &a));
    GPU_OK(tsr_tensor_broadcast(a, 2, shape, &repeated));
    GPU_FAILS(tsr_random_uniform(queue, repeated, 0, 1, &params), TSR_ERR_INVALID, "y");
    GPU_FAILS(tsr_dropout(queue, repeated, f, 0.5f, &params), TSR_ERR_INVALID, "dropout: y");
    GPU_FAILS(tsr_dropout(queue, f, w, 0.5f, &params), TSR_ERR_INVALID, "[8,5]");
    GPU_FAILS(tsr_dropout(queue, u, f, 0.5f, &params), TSR_ERR_INVALID, "dropout: y is u32");
    GPU_FAILS(tsr_dropout(queue, f, u, 0.5f, &params), TSR_ERR_INVALID, "dropout: x is u32");
    GPU_FAILS(tsr_dropout(queue, f, NULL, 0.5f, &params), TSR_ERR_INVALID, "dropout: x is NULL");
    GPU_FAILS(tsr_dropout(queue, f, f, 0.5f, NULL), TSR_ERR_INVALID, "dropout: params is NULL");
    GPU_FAILS(tsr_dropout(queue, f, f, 1, &params), TSR_ERR_INVALID, "p is 1; 0 <= p < 1");
    GPU_FAILS(tsr_dropout(queue, f, f, -0.5f, &params), TSR_ERR_INVALID, "p is -0.5");
    GPU_FAILS(tsr_dropout(queue, f, f, NAN, &params), TSR_ERR_INVALID, "p is nan");
    GPU_OK(tsr_tensor_slice(w, 0, 1, 5, 1, &b));
    tsr_tensor_destroy(&a);
    GPU_OK(tsr_tensor_slice(w, 0, 0, 4, 1, &a));
    GPU_FAILS(tsr_dropout(queue, a, b, 0.5f, &params), TSR_ERR_INVALID, "overlap");

    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&repeated);
    tsr_tensor_destroy(&h);
    tsr_tensor_destroy(&bf);
    tsr_tensor_destroy(&w);
    tsr_tensor_destroy(&u);
    tsr_tensor_destroy(&f);
}
END_TEST

TESTS(random)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, million_words_match_the_host, BITS, NORMAL + 1);
    tcase_add_loop_test(tests, extreme_words_match_the_host, BITS, NORMAL + 1);
    tcase_add_test(tests, any_view_and_offset);
    tcase_add_test(tests, writes_nothing_else);
    tcase_add_test(tests, indices_are_64_bit);
    tcase_add_test(tests, any_index_strides);
    tcase_add_test(tests, indices_reach_63_bits);
    tcase_add_test(tests, shard_equals_slice_of_whole);
    tcase_add_test(tests, float16_is_rounded);
    tcase_add_test(tests, uniform_stays_below_high);
    tcase_add_test(tests, empty_tensors_draw_nothing);
    tcase_add_test(tests, dropout_matches_the_host);
    tcase_add_loop_test(tests, runs_of_any_start_and_length, 0, 4);
    tcase_add_loop_test(tests, dropout_of_runs, 0, 3);
    tcase_add_test(tests, dropout_at_its_threshold);
    tcase_add_test(tests, dropout_in_place_drops_nan);
    tcase_add_test(tests, errors_name_the_values);
}

/* Uses the kernels for GPUs, which read a table of constants. */
TESTS(random_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, million_words_match_the_host, NORMAL, NORMAL + 1);
    tcase_add_loop_test(tests, extreme_words_match_the_host, NORMAL, NORMAL + 1);
}
