/* Compares operations on a range of a vocabulary's rows with the host and with
 * tsr_cross_entropy: embedding, its gradient, and the two steps of cross-entropy whose classes
 * are divided among ranks. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "support/check_main.h"
#include "support/gpu.h"

static double *doubles(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};
static const tsr_dtype index_dtypes[] = {TSR_I32, TSR_I64, TSR_U32, TSR_U8};

/* Makes random indices into a table of `size` rows. A few of them are outside the table, as if
 * other ranks had their rows. */
static void random_indices(gpu_random *random, tsr_tensor *tensor, double *indices, int64_t count,
                           int64_t size)
{
    tsr_dtype dtype = tsr_tensor_layout(tensor)->dtype;
    bool is_signed = dtype == TSR_I32 || dtype == TSR_I64;
    int64_t most = dtype == TSR_U8 && size > 240 ? 255 : size + 15;
    for (int64_t i = 0; i < count; i++)
        indices[i] = (double)gpu_random_between(random, is_signed ? -5 : 0, most);
    if (dtype == TSR_I64 && count > 2)
        indices[1] = 0x1p32 + 7; /* row 7 for a kernel that ignores the upper word */
    gpu_put(tensor, indices);
}

/* Like gpu_random_view, but without gaps inside rows. Rows are at any distance from each other
 * and from the start. */
static tsr_tensor *rows_apart(gpu_random *random, tsr_dtype dtype, int ndim, const int64_t *shape,
                              tsr_tensor **parent)
{
    int64_t before = gpu_random_between(random, 0, 4), after = gpu_random_between(random, 0, 4);
    tsr_tensor *view;
    ck_assert_int_eq(ndim, 2);
    *parent = gpu_new(dtype, 2, (int64_t[]){shape[0], before + shape[1] + after});
    gpu_poison(*parent);
    GPU_OK(tsr_tensor_slice(*parent, 1, before, before + shape[1], 1, &view));
    return view;
}

typedef struct embedding_case {
    int64_t rows, here, width;
    tsr_dtype table, y, indices;
    bool accumulate;
    tsr_tensor *(*matrix)(gpu_random *random, tsr_dtype dtype, int ndim, const int64_t *shape,
                          tsr_tensor **parent);
} embedding_case;

static void try_embedding(gpu_random *random, const embedding_case *c)
{
    const int64_t rows = c->rows, here = c->here, width = c->width;
    const int64_t first = gpu_random_between(random, 0, 9);
    const int64_t table_shape[] = {here, width}, y_shape[] = {rows, width};
    tsr_tensor *parents[4], *table, *y, *dy, *indices;
    table = c->matrix(random, c->table, 2, table_shape, &parents[0]);
    y = c->matrix(random, c->y, 2, y_shape, &parents[1]);
    dy = c->matrix(random, c->y, 2, y_shape, &parents[2]);
    indices = gpu_random_view(random, c->indices, 1, &rows, &parents[3]);
    double *values = doubles(here * width), *added = doubles(rows * width), *index = doubles(rows);
    double *got = doubles((rows > here ? rows : here) * width);
    /* The values are eighths, so that sums are exact. */
    for (int64_t i = 0; i < here * width; i++)
        values[i] = (double)gpu_random_between(random, -40, 40) / 8;
    for (int64_t i = 0; i < rows * width; i++)
        added[i] = (double)gpu_random_between(random, -8, 8) / 8;
    gpu_put(table, values);
    gpu_put(dy, added);
    random_indices(random, indices, index, rows, first + here);

    GPU_OK(tsr__embedding(queue, y, table, indices, first));
    gpu_get(y, got);
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = (int64_t)index[r] - first;
        for (int64_t j = 0; j < width; j++)
            ck_assert(got[r * width + j] == (row >= 0 && row < here ? values[row * width + j] : 0));
    }
    GPU_OK(tsr__embedding_grad(queue, table, dy, indices, first, c->accumulate));
    for (int64_t i = 0; i < here * width && !c->accumulate; i++)
        values[i] = 0;
    for (int64_t r = 0; r < rows; r++) {
        int64_t row = (int64_t)index[r] - first;
        for (int64_t j = 0; j < width && row >= 0 && row < here; j++)
            values[row * width + j] += added[r * width + j];
    }
    gpu_get(table, got);
    for (int64_t i = 0; i < here * width; i++)
        ck_assert_equal(got[i], values[i]);
    double *all[] = {values, added, index, got};
    for (int i = 0; i < 4; i++)
        free(all[i]);
    tsr_tensor *tensors[] = {table, y, dy, indices};
    for (int i = 0; i < 4; i++) {
        tsr_tensor_destroy(&tensors[i]);
        tsr_tensor_destroy(&parents[i]);
    }
}

static void embeddings_of_any_layout(uint64_t seed, int count)
{
    gpu_random random = {seed};
    for (int turn = 0; turn < count; turn++)
        try_embedding(&random, &(embedding_case){.rows = gpu_random_between(&random, 0, 30),
                                                 .here = gpu_random_between(&random, 0, 31),
                                                 .width = gpu_random_between(&random, 0, 12),
                                                 .table = floats[turn % 3],
                                                 .y = floats[turn / 3 % 3],
                                                 .indices = index_dtypes[turn % 4],
                                                 .accumulate = turn % 2,
                                                 .matrix = gpu_random_view});
    try_embedding(&random, &(embedding_case){100, 31, 1030, TSR_F32, TSR_F32, TSR_I32, false,
                                             gpu_random_view});
}

/* Row lengths around those that Mesa's CPU driver copies as vectors: with and without a whole
 * number of vectors, with one block, and with several blocks of which the last is incomplete. */
static void embeddings_of_dense_rows(uint64_t seed)
{
    static const int64_t widths[] = {16, 32, 36, 66, 129, 130, 132, 256, 260, 390, 1028};
    static const int64_t tables[] = {1, 17, 255, 300, 5000};
    gpu_random random = {seed};
    for (int turn = 0; turn < 33; turn++)
        try_embedding(&random, &(embedding_case){.rows = 2100 / widths[turn % 11] + turn,
                                                 .here = tables[turn % 5],
                                                 .width = widths[turn % 11],
                                                 .table = floats[turn % 3],
                                                 .y = floats[turn % 3],
                                                 .indices = index_dtypes[turn % 4],
                                                 .accumulate = turn % 2,
                                                 .matrix = rows_apart});
}

START_TEST(embeddings)
{
    embeddings_of_any_layout(51, 36);
    embeddings_of_dense_rows(55);
}
END_TEST

START_TEST(embeddings_packed)
{
    if (!tsr_device_get_info(gpu)->storage16)
        return;
    embeddings_of_any_layout(52, 18);
    embeddings_of_dense_rows(56);
}
END_TEST

/* There are more rows than Mesa's CPU driver copies in one dispatch. */
START_TEST(a_million_rows)
{
    enum { ROWS = 1050000, HERE = 200, WIDTH = 16 };
    static float table[HERE * WIDTH];
    uint8_t *index = malloc(ROWS);
    float *got = malloc(ROWS * WIDTH * sizeof *got);
    ck_assert(index && got);
    for (int i = 0; i < HERE * WIDTH; i++)
        table[i] = (float)(i + 1);
    for (int i = 0; i < ROWS; i++)
        index[i] = (uint8_t)(i * 7 + i / 4096);
    tsr_tensor *from = gpu_new(TSR_F32, 2, (int64_t[]){HERE, WIDTH});
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){ROWS, WIDTH});
    tsr_tensor *indices = gpu_new(TSR_U8, 1, (int64_t[]){ROWS});
    gpu_poison(y);
    GPU_OK(tsr_tensor_upload(queue, from, table, sizeof table));
    GPU_OK(tsr_tensor_upload(queue, indices, index, ROWS));
    GPU_OK(tsr__embedding(queue, y, from, indices, 0));
    GPU_OK(tsr_tensor_download(queue, y, got, ROWS * WIDTH * sizeof *got));
    static const float zeros[WIDTH];
    int wrong = 0;
    for (int i = 0; i < ROWS; i++)
        wrong += memcmp(got + i * WIDTH, index[i] < HERE ? table + index[i] * WIDTH : zeros,
                        sizeof zeros) != 0;
    ck_assert_int_eq(wrong, 0);
    free(index);
    free(got);
    tsr_tensor *all[] = {from, y, indices};
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

/* Divides the classes into `parts` ranges on one device, and computes what the rank of each
 * range would compute. */
static void entropy_case(gpu_random *random, int64_t rows, int64_t classes, int parts, int turn)
{
    tsr_dtype dtype = floats[turn % 3];
    const int64_t shape[] = {rows, classes}, stats_shape[] = {parts, 3, rows};
    tsr_tensor *logits = gpu_new(dtype, 2, shape), *want = gpu_new(TSR_F32, 2, shape);
    tsr_tensor *got = gpu_new(TSR_F32, 2, shape), *stats = gpu_new(TSR_F32, 3, stats_shape);
    tsr_tensor *labels = gpu_new(index_dtypes[turn % 4], 1, shape);
    tsr_tensor *loss = gpu_new(TSR_F32, 1, shape), *want_loss = gpu_new(TSR_F32, 1, shape);
    double *values = doubles(rows * classes), *label = doubles(rows), *a = doubles(rows * classes);
    double *b = doubles(rows * classes);
    for (int64_t i = 0; i < rows * classes; i++)
        values[i] = 9 * gpu_random_unit(random);
    for (int64_t r = 0; r < rows; r++)
        label[r] = (double)gpu_random_between(random, 0, classes < 250 ? classes : 250);
    gpu_put(logits, values);
    gpu_put(labels, label);
    gpu_poison(stats);
    gpu_poison(got);
    gpu_poison(loss);
    GPU_OK(tsr_cross_entropy(queue, want_loss, want, logits, labels, 0.5F));
    for (int step = 0; step < 2; step++)
        for (int p = 0; p < parts; p++) {
            int64_t first = classes * p / parts, end = classes * (p + 1) / parts;
            tsr_tensor *part, *dpart, *mine;
            GPU_OK(tsr_tensor_slice(logits, 1, first, end, 1, &part));
            GPU_OK(tsr_tensor_slice(got, 1, first, end, 1, &dpart));
            GPU_OK(tsr_tensor_select(stats, 0, p, &mine));
            if (step == 0)
                GPU_OK(tsr__cross_entropy_shard_stats(queue, mine, part, labels, first));
            else
                GPU_OK(tsr__cross_entropy_shard(queue, loss, dpart, part, labels, stats, first,
                                                classes, 0.5F));
            tsr_tensor_destroy(&part);
            tsr_tensor_destroy(&dpart);
            tsr_tensor_destroy(&mine);
        }
    gpu_get(want, a);
    gpu_get(got, b);
    for (int64_t i = 0; i < rows * classes; i++)
        ck_assert(fabs(a[i] - b[i]) <= 1e-6);
    gpu_get(want_loss, a);
    gpu_get(loss, b);
    for (int64_t r = 0; r < rows; r++)
        ck_assert(fabs(a[r] - b[r]) <= 1e-5);
    double *all[] = {values, label, a, b};
    for (int i = 0; i < 4; i++)
        free(all[i]);
    tsr_tensor *tensors[] = {logits, want, got, stats, labels, loss, want_loss};
    for (int i = 0; i < 7; i++)
        tsr_tensor_destroy(&tensors[i]);
}

START_TEST(divided_classes)
{
    static const int64_t classes[] = {1, 5, 10, 17, 300, 1000, 5000};
    gpu_random random = {53};
    for (int turn = 0; turn < 14; turn++)
        entropy_case(&random, 1 + 3 * turn, classes[turn % 7], 1 + turn % 4, turn);
    entropy_case(&random, 400, 33, 3, 0);
}
END_TEST

/* Rows are so long that on GPUs several workgroups compute each of them. */
START_TEST(many_divided_classes)
{
    gpu_random random = {54};

    entropy_case(&random, 3, 70001, 2, 0);
    entropy_case(&random, 5, 51000, 3, 1);
}
END_TEST

START_TEST(embeddings_as_gpu)
{
    gpu_random random = {56};
    try_embedding(
        &random, &(embedding_case){600, 100, 70, TSR_F16, TSR_F32, TSR_I64, true, gpu_random_view});
    try_embedding(&random,
                  &(embedding_case){700, 31, 1030, TSR_F32, TSR_F32, TSR_U8, false, rows_apart});
}
END_TEST

START_TEST(runs_agree_bit_by_bit)
{
    enum { ROWS = 500, HERE = 7, WIDTH = 9 };
    gpu_random random = {54};
    const int64_t rows = ROWS;
    float sums[2][HERE * WIDTH];
    double *values = doubles(ROWS * WIDTH), *index = doubles(ROWS);
    tsr_tensor *dy = gpu_new(TSR_F32, 2, (int64_t[]){ROWS, WIDTH});
    tsr_tensor *grad = gpu_new(TSR_F32, 2, (int64_t[]){HERE, WIDTH});
    tsr_tensor *indices = gpu_new(TSR_I32, 1, &rows);
    for (int i = 0; i < ROWS * WIDTH; i++)
        values[i] = gpu_random_unit(&random);
    gpu_put(dy, values);
    random_indices(&random, indices, index, ROWS, HERE);
    for (int run = 0; run < 2; run++) {
        GPU_OK(tsr__embedding_grad(queue, grad, dy, indices, 0, false));
        GPU_OK(tsr_tensor_download(queue, grad, sums[run], sizeof sums[run]));
    }
    ck_assert_mem_eq(sums[0], sums[1], sizeof sums[0]);
    free(values);
    free(index);
    tsr_tensor_destroy(&dy);
    tsr_tensor_destroy(&grad);
    tsr_tensor_destroy(&indices);
}
END_TEST

/* Checks that rows are added one after another and each sum is rounded to the table's dtype, even
 * if a kernel looks at many indices at once. With `few`, most indices are those of three rows. */
static void add_in_order(gpu_random *random, int64_t rows, tsr_dtype dtype, bool few)
{
    enum { HERE = 40, WIDTH = 5 };
    double sums[HERE * WIDTH] = {0}, got[HERE * WIDTH];
    double *values = doubles(rows * WIDTH), *index = doubles(rows);
    tsr_tensor *dy = gpu_new(TSR_F32, 2, (int64_t[]){rows, WIDTH});
    tsr_tensor *grad = gpu_new(dtype, 2, (int64_t[]){HERE, WIDTH});
    tsr_tensor *indices = gpu_new(TSR_I32, 1, &rows);
    for (int64_t i = 0; i < rows * WIDTH; i++)
        values[i] = gpu_rounded(gpu_random_unit(random), TSR_F32);
    gpu_put(dy, values);
    random_indices(random, indices, index, rows, HERE);
    for (int64_t i = 0; i < rows && few; i++)
        index[i] = i % 7 < 3 ? 32 : i % 7 < 6 ? (double)(i % 2) : index[i];
    gpu_put(indices, index);
    GPU_OK(tsr__embedding_grad(queue, grad, dy, indices, 0, false));
    gpu_get(grad, got);
    for (int64_t i = 0; i < rows; i++)
        for (int j = 0; j < WIDTH && index[i] >= 0 && index[i] < HERE; j++) {
            double *sum = &sums[(int)index[i] * WIDTH + j];
            const float exact = (float)*sum + (float)values[i * WIDTH + j];
            *sum = gpu_rounded((double)exact, dtype);
        }
    ck_assert_mem_eq(got, sums, sizeof sums);
    free(values);
    free(index);
    tsr_tensor_destroy(&dy);
    tsr_tensor_destroy(&grad);
    tsr_tensor_destroy(&indices);
}

START_TEST(rows_are_added_in_their_order)
{
    static const int64_t rows[] = {1, 31, 511, 512, 513, 1300};
    const double usual = gpu->work_limit;
    const uint32_t processors = gpu->info.processor_count;
    gpu_random random = {55};
    if (gpu->traits.device_class == TSR__CLASS_GPU && gpu_is_swiftshader())
        SKIP("SwiftShader takes 48 s to compile this kernel of GPUs; lavapipe runs it");
    /* Up to 16 workgroups read all indices, instead of 256, so that a CPU driver takes less than a
     * second. */
    gpu->info.processor_count = 2;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        add_in_order(&random, rows[r], TSR_F32, false);
    /* The kernel for GPUs lists at most 256 of the indices that a workgroup adds. */
    for (int i = 0; i < 3; i++)
        add_in_order(&random, 1900, floats[i], true);
    /* A dispatch may add at most 100 rows. */
    gpu->work_limit = 100.0 * 5 * 12 * TSR__BYTE_WORK;
    add_in_order(&random, 1300, TSR_F32, false);
    gpu->work_limit = usual;
    gpu->info.processor_count = processors;
}
END_TEST

START_TEST(mistakes_are_named)
{
    tsr_tensor *table = gpu_new(TSR_F32, 2, (int64_t[]){4, 5});
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){3, 5});
    tsr_tensor *ids = gpu_new(TSR_I32, 1, (int64_t[]){3});
    tsr_tensor *stats = gpu_new(TSR_F32, 2, (int64_t[]){3, 3});
    tsr_tensor *all_stats = gpu_new(TSR_F32, 3, (int64_t[]){1, 3, 3});
    tsr_tensor *loss = gpu_new(TSR_F32, 1, (int64_t[]){3}), *low, *high;
    GPU_OK(tsr_tensor_slice(table, 0, 0, 3, 1, &low));
    GPU_OK(tsr_tensor_slice(table, 0, 1, 4, 1, &high));
#define FAILS(call, words) GPU_FAILS(call, TSR_ERR_INVALID, words)
    FAILS(tsr__embedding(queue, y, ids, ids, 0), "embedding: table is i32");
    FAILS(tsr__embedding(queue, y, loss, ids, 0), "embedding: table is [3], not [rows,width]");
    FAILS(tsr__embedding(queue, y, table, loss, 0),
          "embedding: indices are f32, not i32, i64, u32 or u8");
    FAILS(tsr__embedding(queue, table, y, ids, 0),
          "embedding: y is [4,5], indices are [3], table is [3,5]; [n,width], [n] and"
          " [rows,width] are needed");
    FAILS(tsr__embedding(queue, y, table, ids, -1),
          "embedding: first row -1 and 4 rows are not within [0,2147483647)");
    FAILS(tsr__embedding(queue, y, table, ids, INT32_MAX - 2),
          "embedding: first row 2147483645 and 4 rows");
    FAILS(tsr__embedding(queue, low, high, ids, 0), "embedding: y [3,5] overlaps table [3,5]");
    FAILS(tsr__embedding_grad(queue, table, low, ids, 0, false),
          "embedding_grad: gradient [4,5] overlaps dy [3,5]");
    FAILS(tsr__embedding_grad(queue, NULL, low, ids, 0, false), "embedding_grad: gradient is NULL");
    FAILS(tsr__cross_entropy_shard_stats(queue, y, y, ids, 0),
          "vocabulary_cross_entropy: stats are f32 [3,5]; contiguous f32 [3,rows] is needed");
    FAILS(tsr__cross_entropy_shard_stats(queue, stats, loss, ids, 0),
          "vocabulary_cross_entropy: logits are [3], not [rows,classes]");
    FAILS(tsr__cross_entropy_shard_stats(queue, stats, table, ids, 0),
          "vocabulary_cross_entropy: labels are [3]; logits [4,5] need one per row");
    FAILS(tsr__cross_entropy_shard_stats(queue, stats, y, loss, 0),
          "vocabulary_cross_entropy: labels are f32");
    FAILS(tsr__cross_entropy_shard_stats(queue, stats, y, ids, -1),
          "vocabulary_cross_entropy: first class -1 and 5 classes are not within [0,2147483647)");
#define WHOLE_FAILS(words, ...)                                                                    \
    FAILS(tsr__cross_entropy_shard(queue, __VA_ARGS__, 1), "vocabulary_cross_entropy: " words)
    WHOLE_FAILS("loss and dlogits are both NULL", NULL, NULL, y, ids, all_stats, 0, 5);
    WHOLE_FAILS("stats are f32 [3,3]; contiguous f32 [ranks,3,rows]", loss, NULL, y, ids, stats, 0,
                5);
    WHOLE_FAILS("first class 1 and 5 classes are not within [0,5)", loss, NULL, y, ids, all_stats,
                1, 5);
    WHOLE_FAILS("loss is [3,5]; logits [3,5] need one", y, NULL, y, ids, all_stats, 0, 5);
    WHOLE_FAILS("dlogits is [4,5], logits is [3,5]", NULL, table, y, ids, all_stats, 0, 5);
    WHOLE_FAILS("dlogits [3,5] overlaps logits [3,5]", NULL, high, low, ids, all_stats, 0, 5);
    tsr_tensor *all[] = {low, high, table, y, ids, stats, all_stats, loss};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

TESTS(vocabulary)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, embeddings);
    tcase_add_test(tests, a_million_rows);
    tcase_add_test(tests, divided_classes);
    tcase_add_test(tests, runs_agree_bit_by_bit);
    tcase_add_test(tests, rows_are_added_in_their_order);
    tcase_add_test(tests, mistakes_are_named);
}

TESTS(vocabulary_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_test(tests, rows_are_added_in_their_order);
    tcase_add_test(tests, embeddings_as_gpu);
    tcase_add_test(tests, many_divided_classes);
}

TESTS(vocabulary_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_test(tests, embeddings_packed);
}
