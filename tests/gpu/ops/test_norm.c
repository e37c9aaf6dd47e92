/* Compares layer and RMS normalisation and their gradients with references in double precision. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "gpu/device/device.h"
#include "gpu/internal.h"
#include "gpu/ops/norm/norm.h"
#include "support/check_main.h"
#include "support/close.h"
#include "support/gpu.h"
#include "tsr_config.h"

#define MAX_DIMS 5

/* One normalisation and its gradients. */
typedef struct norm_case {
    bool centred;
    int ndim;
    int64_t size[MAX_DIMS];
    /* dx has y's dtype; weight, bias and their gradients have `vectors` */
    tsr_dtype x, dy, y, vectors;
    bool weighted, biased, accumulate;
    bool in_place; /* y is x, and dx is x or dy */
    bool strided;
    double offset, scale; /* x is scaled, then offset */
    double ramp;          /* how much x increases from the first column to the last */
    float epsilon;
} norm_case;

typedef struct operand {
    tsr_tensor *tensor, *parent;
    double *values;
} operand;

static int64_t columns_of(const norm_case *c)
{
    return c->size[c->ndim - 1];
}

static int64_t rows_of(const norm_case *c)
{
    int64_t rows = 1;
    for (int d = 0; d + 1 < c->ndim; d++)
        rows *= c->size[d];
    return rows;
}

static double *doubles(int64_t count)
{
    double *values = calloc((size_t)(count + 1), sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

/* Creates an operand whose buffer is poisoned. */
static operand create(gpu_random *random, const norm_case *c, tsr_dtype dtype, bool vector)
{
    int ndim = vector ? 1 : c->ndim;
    const int64_t *size = vector ? &c->size[c->ndim - 1] : c->size;
    operand o = {.values = doubles(vector ? columns_of(c) : rows_of(c) * columns_of(c))};
    if (c->strided) {
        o.tensor = gpu_random_view(random, dtype, ndim, size, &o.parent);
    } else {
        o.tensor = gpu_new(dtype, ndim, size);
        gpu_poison(o.tensor);
    }
    return o;
}

static void randomise(gpu_random *random, operand *o, double offset, double scale)
{
    const tsr_layout *layout = tsr_tensor_layout(o->tensor);
    for (int64_t i = 0; i < tsr_layout_count(layout); i++)
        o->values[i] = gpu_rounded(offset + scale * gpu_random_unit(random), layout->dtype);
    gpu_put(o->tensor, o->values);
}

static void randomise_x(gpu_random *random, const norm_case *c, operand *x)
{
    int64_t count = columns_of(c);
    for (int64_t i = 0; i < rows_of(c) * count; i++)
        x->values[i] = gpu_rounded(c->offset + c->ramp * (double)(i % count) / (double)count +
                                       c->scale * gpu_random_unit(random),
                                   c->x);
    gpu_put(x->tensor, x->values);
}

static void destroy(operand *o)
{
    tsr_tensor_destroy(&o->tensor);
    tsr_tensor_destroy(&o->parent);
    free(o->values);
}

static void assert_close_at(const norm_case *c, const char *what, int64_t index, double got,
                            double want, double tolerance)
{
    if (!is_close(got, want, tolerance))
        ck_abort_msg("%s of %s, %lld rows of %lld: row %lld, column %lld is %.9g, not %.9g (±%.2g)",
                     what, c->centred ? "layer_norm" : "rms_norm", (long long)rows_of(c),
                     (long long)columns_of(c), (long long)(index / columns_of(c)),
                     (long long)(index % columns_of(c)), got, want, tolerance);
}

/* Computes the normalised row n. Returns the factor by which the elements less the mean are
 * multiplied. */
static double normalised(const norm_case *c, const double *x, double *n)
{
    int64_t count = columns_of(c);
    double mean = c->centred ? x[0] : 0, squares = 0;
    for (int64_t j = 0; j < count && c->centred; j++)
        mean += (x[j] - x[0]) / (double)count;
    for (int64_t j = 0; j < count; j++)
        squares += (x[j] - mean) * (x[j] - mean) / (double)count;
    double factor = 1 / sqrt(squares + (double)c->epsilon);
    for (int64_t j = 0; j < count; j++)
        n[j] = (x[j] - mean) * factor;
    return factor;
}

static tsr_status forward(const norm_case *c, tsr_stream *stream, tsr_tensor *y,
                          const tsr_tensor *x, const tsr_tensor *weight, const tsr_tensor *bias)
{
    return c->centred ? tsr_norm(stream, y, x, weight, bias, TSR_NORM_LAYER, c->epsilon)
                      : tsr_norm(stream, y, x, weight, NULL, TSR_NORM_RMS, c->epsilon);
}

static tsr_status gradient(const norm_case *c, tsr_stream *stream, tsr_tensor *dx,
                           tsr_tensor *dweight, tsr_tensor *dbias, const tsr_tensor *x,
                           const tsr_tensor *dy, const tsr_tensor *weight)
{
    return c->centred ? tsr_norm_grad(stream, dx, dweight, dbias, x, dy, weight, TSR_NORM_LAYER,
                                      c->epsilon, c->accumulate)
                      : tsr_norm_grad(stream, dx, dweight, NULL, x, dy, weight, TSR_NORM_RMS,
                                      c->epsilon, c->accumulate);
}

static void check_forward(gpu_random *random, const norm_case *c)
{
    operand x = create(random, c, c->x, false), other = create(random, c, c->y, false);
    operand weight = create(random, c, c->vectors, true),
            bias = create(random, c, c->vectors, true);
    operand *y = c->in_place ? &x : &other;
    int64_t count = columns_of(c), total = rows_of(c) * count;
    double *got = doubles(total), *n = doubles(count);
    bool biased = c->biased && c->centred;

    randomise_x(random, c, &x);
    randomise(random, &weight, 0, 2);
    randomise(random, &bias, 0, 3);
    GPU_OK(forward(c, queue, y->tensor, x.tensor, c->weighted ? weight.tensor : NULL,
                   biased ? bias.tensor : NULL));
    gpu_get(y->tensor, got);
    for (int64_t i = 0; i < total; i++) {
        int64_t j = i % count;
        if (j == 0)
            (void)normalised(c, x.values + i, n);
        double w = c->weighted ? weight.values[j] : 1, b = biased ? bias.values[j] : 0;
        assert_close_at(c, "y", i, got[i], n[j] * w + b,
                        2e-6 * fabs(w) * (1 + fabs(n[j])) + 2e-7 * fabs(b) +
                            2 * storage_error(n[j] * w + b, tsr_tensor_layout(y->tensor)->dtype));
    }
    free(got);
    free(n);
    destroy(&x);
    destroy(&other);
    destroy(&weight);
    destroy(&bias);
}

/* The reference for one column of the gradients of weight and bias: the sums over all rows, and
 * the sums of the absolute values of their terms. */
typedef struct column {
    double weight, weight_size, bias, bias_size;
} column;

/* Compares element j of the output `o` with the reference `sum`, plus its old value when
 * accumulating. */
static void check_columns(const norm_case *c, const char *what, const operand *o, int64_t j,
                          const double *got, double sum, double size)
{
    double before = c->accumulate ? o->values[j] : 0, want = before + sum;
    assert_close_at(c, what, j, got[j], want,
                    4e-6 * size + 2e-7 * fabs(before) + 2 * storage_error(want, c->vectors));
}

static void check_gradient(gpu_random *random, const norm_case *c)
{
    operand x = create(random, c, c->x, false), dy = create(random, c, c->dy, false);
    operand other = create(random, c, c->y, false), weight = create(random, c, c->vectors, true);
    operand dweight = create(random, c, c->vectors, true);
    operand dbias = create(random, c, c->vectors, true);
    operand *dx = !c->in_place ? &other : gpu_random_between(random, 0, 1) == 0 ? &x : &dy;
    int64_t rows = rows_of(c), count = columns_of(c);
    double *got = doubles(rows * count), *n = doubles(count), *got_weight = doubles(count);
    double *got_bias = doubles(count);
    column *columns = calloc((size_t)count + 1, sizeof *columns);
    ck_assert_ptr_nonnull(columns);

    randomise_x(random, c, &x);
    randomise(random, &dy, 0, 2);
    randomise(random, &weight, 0, 2);
    if (c->accumulate) {
        randomise(random, &dweight, 0, 8);
        randomise(random, &dbias, 0, 8);
    }
    GPU_OK(gradient(c, queue, dx->tensor, dweight.tensor, c->centred ? dbias.tensor : NULL,
                    x.tensor, dy.tensor, c->weighted ? weight.tensor : NULL));
    gpu_get(dx->tensor, got);
    gpu_get(dweight.tensor, got_weight);
    gpu_get(dbias.tensor, got_bias);
    for (int64_t r = 0; r < rows; r++) {
        double factor = normalised(c, x.values + r * count, n);
        double mean = 0, slope = 0, mean_size = 0, slope_size = 0;
        for (int64_t j = 0; j < count; j++) {
            double incoming = dy.values[r * count + j];
            double g = incoming * (c->weighted ? weight.values[j] : 1) / (double)count;
            mean += g;
            mean_size += fabs(g);
            slope += g * n[j];
            slope_size += fabs(g) * (1 + fabs(n[j]));
            columns[j].weight += incoming * n[j];
            columns[j].weight_size += fabs(incoming) * (1 + fabs(n[j]));
            columns[j].bias += incoming;
            columns[j].bias_size += fabs(incoming);
        }
        for (int64_t j = 0; j < count; j++) {
            double g = dy.values[r * count + j] * (c->weighted ? weight.values[j] : 1);
            double want = factor * (g - (c->centred ? mean : 0) - n[j] * slope);
            double size = fabs(g) + mean_size + (1 + fabs(n[j])) * slope_size;
            assert_close_at(c, "dx", r * count + j, got[r * count + j], want,
                            4e-6 * factor * size +
                                2 * storage_error(want, tsr_tensor_layout(dx->tensor)->dtype));
        }
    }
    for (int64_t j = 0; j < count; j++) {
        check_columns(c, "dweight", &dweight, j, got_weight, columns[j].weight,
                      columns[j].weight_size);
        if (c->centred)
            check_columns(c, "dbias", &dbias, j, got_bias, columns[j].bias, columns[j].bias_size);
    }
    free(got);
    free(n);
    free(got_weight);
    free(got_bias);
    free(columns);
    operand *all[] = {&x, &dy, &other, &weight, &dweight, &dbias};
    for (int i = 0; i < 6; i++)
        destroy(all[i]);
}

static void check_passes(gpu_random *random, const norm_case *c)
{
    check_forward(random, c);
    check_gradient(random, c);
}

static void check_both(gpu_random *random, norm_case c)
{
    for (int centred = 0; centred < 2; centred++) {
        c.centred = centred != 0;
        check_passes(random, &c);
    }
}

/* Returns a case of f32 [rows, columns] with weight, bias and all gradients. */
static norm_case plain(int64_t rows, int64_t columns)
{
    return (norm_case){.ndim = 2,
                       .size = {rows, columns},
                       .x = TSR_F32,
                       .dy = TSR_F32,
                       .y = TSR_F32,
                       .vectors = TSR_F32,
                       .weighted = true,
                       .biased = true,
                       .scale = 3,
                       .epsilon = 1e-5F};
}

/* Returns a case with random views of up to five dimensions that cannot be merged. Kernels
 * iterate over two dimensions of rows, and the host over the others. Rows have 1 to 40 elements,
 * sometimes hundreds. */
static norm_case random_case(gpu_random *random)
{
    static const tsr_dtype mixtures[3][4] = {{TSR_F32, TSR_F32, TSR_F32, TSR_F32},
                                             {TSR_F16, TSR_F32, TSR_BF16, TSR_F32},
                                             {TSR_BF16, TSR_F16, TSR_F16, TSR_BF16}};
    /* The options of a round. There are few combinations, because kernels are compiled for each.
     * Any two options occur together, each alone, and both missing. Each mixture of dtypes has
     * each option and each kind of normalisation once. */
    static const bool options[6][4] = {{true, false, true, true},   {false, true, false, false},
                                       {true, true, false, true},   {false, false, true, false},
                                       {true, false, false, false}, {false, true, true, true}};
    static const int64_t most[] = {8, 40, 40, 300};
    const int64_t kind = gpu_random_between(random, 0, 5);
    const tsr_dtype *dtypes = mixtures[kind / 2];
    norm_case c = plain(0, 0);
    c.ndim = (int)gpu_random_between(random, 1, MAX_DIMS);
    for (int d = 0; d + 1 < c.ndim; d++)
        c.size[d] = gpu_random_between(random, 0, 15) == 0 ? 0 : gpu_random_between(random, 1, 5);
    c.size[c.ndim - 1] = gpu_random_between(random, 1, most[gpu_random_between(random, 0, 3)]);
    c.x = dtypes[0];
    c.dy = dtypes[1];
    c.y = dtypes[2];
    c.vectors = dtypes[3];
    c.weighted = options[kind][0];
    c.biased = options[kind][1];
    c.accumulate = options[kind][2];
    c.centred = options[kind][3];
    c.in_place = gpu_random_between(random, 0, 3) == 0;
    c.strided = true;
    c.scale = ldexp(1, (int)gpu_random_between(random, -2, 5));
    c.offset = c.scale * 2 * gpu_random_unit(random);
    return c;
}

START_TEST(random_views)
{
    gpu_random random = {71};
    for (int i = 0; i < 30; i++) {
        const norm_case c = random_case(&random);
        check_passes(&random, &c);
    }
}
END_TEST

/* Tests kernels that access two 16-bit floats as one word. If the device has no 16-bit storage,
 * the test above has already used these kernels. */
START_TEST(packed_float16)
{
    gpu_random random = {72};
    if (!tsr_device_get_info(gpu)->storage16)
        return;
    for (int i = 0; i < 18; i++) {
        const norm_case c = random_case(&random);
        check_passes(&random, &c);
    }
}
END_TEST

START_TEST(any_number_of_columns)
{
    static const int64_t counts[] = {1, 2, 15, 16, 17, 255, 256, 257, 259, 4099, 200003};
    gpu_random random = {73};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        check_both(&random, plain(3, counts[i]));
}
END_TEST

/* Numbers of rows around multiples of the chunks of rows over which the gradients of weight and
 * bias are summed; so many rows that the sums of the chunks are reduced in several passes; and
 * so many that CPU drivers compute each row in one invocation. */
START_TEST(any_number_of_rows)
{
    static const int64_t counts[] = {1, 31, 32, 33, 64, 300, 1037, 9000};
    gpu_random random = {74};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        norm_case c = plain(counts[i], 21 + (int64_t)i % 4);
        c.accumulate = c.in_place = i % 2 == 0;
        check_both(&random, c);
    }
    check_both(&random, plain(40000, 3)); /* more chunks than one pass reduces */
}
END_TEST

/* Checks rows without gaps, after `first` elements and `gap` columns that must stay unchanged. For
 * rows of up to 1024 elements, Mesa's CPU driver has a kernel for short rows. */
static void check_gaps(gpu_random *random, norm_case c, int64_t gap, int64_t first)
{
    int64_t size[] = {c.size[0], c.size[1] + gap}, total = size[0] * size[1];
    tsr_tensor *whole = gpu_new(c.x, 2, size), *part;
    double *values = doubles(total), *got = doubles(total), *n = doubles(c.size[1]);
    for (int64_t i = 0; i < total; i++)
        values[i] = gpu_rounded(c.offset + c.scale * gpu_random_unit(random), c.x);
    gpu_put(whole, values);
    GPU_OK(tsr_tensor_slice(whole, 1, first, first + c.size[1], 1, &part));
    GPU_OK(forward(&c, queue, part, part, NULL, NULL));
    gpu_get(whole, got);
    for (int64_t r = 0; r < size[0]; r++) {
        (void)normalised(&c, values + r * size[1] + first, n);
        for (int64_t j = 0; j < size[1]; j++) {
            bool inside = j >= first && j < first + c.size[1];
            double want = inside ? n[j - first] : values[r * size[1] + j];
            assert_close_at(&c, "y in place", r * size[1] + j, got[r * size[1] + j], want,
                            inside ? 2e-6 * (1 + fabs(want)) + 2 * storage_error(want, c.x) : 0);
        }
    }
    free(values);
    free(got);
    free(n);
    tsr_tensor_destroy(&part);
    tsr_tensor_destroy(&whole);
}

START_TEST(rows_without_gaps)
{
    static const int64_t sizes[][2] = {{400, 31}, {400, 32}, {20, 767}, {20, 1024}};
    gpu_random random = {78};
    for (int i = 0; i < 4; i++) {
        norm_case c = plain(sizes[i][0], sizes[i][1]);
        c.offset = i % 2 == 0 ? 1e4 : 0;
        c.in_place = i % 3 == 0;
        c.weighted = i != 2;
        c.biased = i != 3;
        c.accumulate = i % 2 == 1;
        c.centred = i != 2;
        if (i < 2)
            check_both(&random, c);
        else /* not the longest rows, whose kernels take long to compile */
            check_passes(&random, &c);
        check_gaps(&random, c, 3, i % 4);
    }
}
END_TEST

/* Checks the ith of three mixtures of dtypes. */
static void check_float16(gpu_random *random, int i, int64_t rows, int64_t columns)
{
    static const tsr_dtype dtypes[3][4] = {{TSR_F16, TSR_F32, TSR_BF16, TSR_F32},
                                           {TSR_BF16, TSR_F16, TSR_F16, TSR_BF16},
                                           {TSR_F32, TSR_BF16, TSR_F32, TSR_F16}};
    norm_case c = plain(rows, columns);
    c.x = dtypes[i][0];
    c.dy = dtypes[i][1];
    c.y = dtypes[i][2];
    c.vectors = dtypes[i][3];
    check_both(random, c);
    c.centred = i != 1;
    check_gaps(random, c, 3, i);
}

START_TEST(float16_without_gaps)
{
    gpu_random random = {79};
    for (int i = 0; i < 3; i++)
        check_float16(&random, i, 100, 200 + 133 * i);
}
END_TEST

/* Longer rows, which Mesa's CPU driver divides into ranges of columns: with a last range that
 * overlaps the previous one, with whole ranges only, and with hundreds of them. */
START_TEST(long_rows)
{
    static const int64_t sizes[][2] = {{40, 1026}, {17, 2052}, {9, 4096}, {10, 6000}, {1, 150002}};
    gpu_random random = {80};
    for (int i = 0; i < 5; i++) {
        norm_case c = plain(sizes[i][0], sizes[i][1]);
        c.offset = i % 2 == 0 ? 1e4 : 0;
        c.ramp = i < 3 ? 0 : 1000;
        c.in_place = i % 3 == 0;
        c.weighted = i != 1;
        c.biased = i != 2;
        c.accumulate = i % 2 == 1;
        check_both(&random, c);
        c.ramp = 0;
        c.centred = i % 2 < 1;
        check_gaps(&random, c, 3, i % 4);
    }
}
END_TEST

START_TEST(long_rows_of_float16)
{
    static const int64_t sizes[][2] = {{30, 1100}, {16, 2056}, {8, 4100}};
    gpu_random random = {81};
    for (int i = 0; i < 3; i++)
        check_float16(&random, i, sizes[i][0], sizes[i][1]);
}
END_TEST

/* Checks which kernels of Mesa's CPU driver the tests above use if vectors have 256 bits. */
START_TEST(kernels_by_length)
{
    static const struct {
        int64_t rows, columns;
        tsr_dtype dtype;
        tsr__norm_kernels way;
    } table[] = {
        {400, 31, TSR_F32, TSR__NORM_GENERAL},  {400, 32, TSR_F32, TSR__NORM_SHORT},
        {100, 768, TSR_F32, TSR__NORM_SHORT},   {100, 770, TSR_F32, TSR__NORM_CHUNKS},
        {20, 1024, TSR_F32, TSR__NORM_SHORT}, /* few elements in total */
        {64, 1023, TSR_F32, TSR__NORM_SHORT}, /* has an odd length */
        {64, 1025, TSR_F32, TSR__NORM_GENERAL}, {40, 1026, TSR_F32, TSR__NORM_CHUNKS},
        {30, 1100, TSR_F16, TSR__NORM_CHUNKS},  {30, 1102, TSR_BF16, TSR__NORM_GENERAL},
        {1, 150002, TSR_F32, TSR__NORM_CHUNKS},
    };
    const tsr_device_info *info = tsr_device_get_info(gpu);
    if (!TSR__HAVE_CPU_KERNELS || gpu->traits.device_class != TSR__CLASS_LAVAPIPE ||
        !info->storage16 || info->subgroup_size != 8)
        SKIP("only lavapipe with vectors of 256 bits has these kernels");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        const int64_t size[] = {table[i].rows, table[i].columns};
        tsr_tensor *x = gpu_new(table[i].dtype, 2, size);
        const tsr__norm norm = {.op = "norm", .count = 2, .operand = {x, x}};
        tsr__norm_planes planes;
        tsr__norm_plane plane;
        tsr__norm_planes_init(&planes, &norm, 0);
        ck_assert(tsr__norm_planes_next(&planes, &plane));
        ck_assert_msg(tsr__norm_kernels_of(&norm, &plane, TSR_NORM_RESULT) == table[i].way,
                      "%lld rows of %lld", (long long)size[0], (long long)size[1]);
        tsr_tensor_destroy(&x);
    }
}
END_TEST

/* The mean is large compared with the deviation. Therefore neither E[x²] − E[x]² nor a mean rounded
 * to f32 is precise enough. */
START_TEST(large_offsets)
{
    static const double offsets[] = {1e4, -3e5, 1e4, -3e5};
    static const int64_t counts[] = {64, 1000, 20011, 20012};
    gpu_random random = {75};
    for (int i = 0; i < 4; i++) {
        norm_case c = plain(5, counts[i]);
        c.offset = offsets[i];
        c.scale = 1;
        check_both(&random, c);
        c.size[0] = 300; /* CPU drivers use one invocation per row */
        c.size[1] = 259;
        check_both(&random, c);
    }
}
END_TEST

/* Checks rows whose elements are equal. Without variance the result is exactly the bias; any
 * rounding error in the deviations from the mean would be multiplied by 1/√epsilon. */
static void check_equal_elements(gpu_random *random, int64_t rows, int64_t count)
{
    const int64_t size[] = {rows, count};
    tsr_tensor *x = gpu_new(TSR_F32, 2, size), *y = gpu_new(TSR_F32, 2, size);
    tsr_tensor *bias = gpu_new(TSR_F32, 1, &count);
    double *values = doubles(rows * count), *got = doubles(rows * count), *want = doubles(count);
    for (int64_t i = 0; i < rows * count; i++)
        values[i] = i % count > 0 ? values[i - 1] : ldexp(gpu_random_unit(random), (int)(i % 61));
    for (int64_t j = 0; j < count; j++)
        want[j] = gpu_rounded(gpu_random_unit(random), TSR_F32);
    gpu_put(x, values);
    gpu_put(bias, want);
    gpu_poison(y);
    GPU_OK(tsr_norm(queue, y, x, bias, bias, TSR_NORM_LAYER, 1e-5F));
    gpu_get(y, got);
    for (int64_t i = 0; i < rows * count; i++)
        ck_assert_msg(got[i] == want[i % count], "%lld equal elements %.9g: %.9g, not %.9g",
                      (long long)count, values[i], got[i], want[i % count]);
    free(values);
    free(got);
    free(want);
    tsr_tensor *all[] = {x, y, bias};
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&all[i]);
}

START_TEST(rows_of_equal_elements)
{
    static const double offsets[] = {0, 1, 0.1, -12345.678};
    gpu_random random = {76};
    check_equal_elements(&random, 100, 1009);
    check_equal_elements(&random, 100, 241);
    check_equal_elements(&random, 30, 2002);
    check_equal_elements(&random, 300, 203); /* CPU drivers use one invocation per row */
    for (int i = 0; i < 4; i++) {
        norm_case c = plain(4, 100 + i);
        c.offset = offsets[i];
        c.scale = 0;
        check_both(&random, c);
    }
}
END_TEST

/* A NaN makes its row NaN, and no other row. Tests the row lengths of all kernels of Mesa's CPU
 * driver. */
START_TEST(nan_and_infinities)
{
    enum { ROWS = 4, MAX = 9000 };
    static const int64_t counts[] = {50, 1000, MAX};
    const int64_t count = counts[_i], size[] = {ROWS, count}, last = count - 1;
    tsr_tensor *x = gpu_new(TSR_F32, 2, size), *y = gpu_new(TSR_F32, 2, size);
    static double values[ROWS * MAX], got[ROWS * MAX];
    for (int64_t i = 0; i < ROWS * count; i++)
        values[i] = (double)(i % 7 - 3);
    values[count + 9] = NAN;
    values[2 * count + last] = INFINITY;
    gpu_put(x, values);
    for (int centred = 0; centred < 2; centred++) {
        gpu_poison(y);
        GPU_OK(centred ? tsr_norm(queue, y, x, NULL, NULL, TSR_NORM_LAYER, 1e-5F)
                       : tsr_norm(queue, y, x, NULL, NULL, TSR_NORM_RMS, 1e-5F));
        gpu_get(y, got);
        for (int64_t j = 0; j < count; j++) {
            ck_assert(isfinite(got[j]) && isfinite(got[3 * count + j]));
            ck_assert(isnan(got[count + j]));
            /* As in PyTorch, the element ∞ gives ∞ · 0 = NaN, and the other elements are divided
             * by ∞. */
            ck_assert(centred || j == last ? isnan(got[2 * count + j]) : got[2 * count + j] == 0);
        }
    }
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

/* 16-bit floats at odd positions share words with elements that must stay unchanged. */
START_TEST(neighbours_stay)
{
    enum { ROWS = 40, WIDE = 9, COLUMNS = 5 };
    tsr_tensor *whole = gpu_new(TSR_F16, 2, (int64_t[]){ROWS, WIDE}), *part;
    double values[ROWS * WIDE], got[ROWS * WIDE];
    GPU_OK(tsr_tensor_slice(whole, 1, 1, 1 + COLUMNS, 1, &part));
    for (int i = 0; i < ROWS * WIDE; i++)
        values[i] = i % 11 - 5;
    gpu_put(whole, values);
    GPU_OK(tsr_norm(queue, part, part, NULL, NULL, TSR_NORM_LAYER, 1e-5F));
    GPU_OK(tsr_norm_grad(queue, part, NULL, NULL, part, part, NULL, TSR_NORM_LAYER, 1e-5F, false));
    gpu_get(whole, got);
    for (int i = 0; i < ROWS * WIDE; i++)
        if (i % WIDE < 1 || i % WIDE > COLUMNS)
            ck_assert(got[i] == values[i]);
    tsr_tensor_destroy(&part);
    tsr_tensor_destroy(&whole);
}
END_TEST

/* Each gradient has the same bits whether it is computed alone or with the others, also if dbias
 * follows dweight in one tensor. Some cases have enough elements for the kernels for short and for
 * long rows. The last one uses the kernels for GPUs, which then add up both in one dispatch. */
START_TEST(gradients_on_their_own)
{
    enum { MAX = 1025 * 66 };
    static const int64_t sizes[][2] = {{70, 33}, {300, 33}, {8, 4098}, {1025, 66}, {300, 35}};
    const int64_t *size = sizes[_i], rows = size[0], columns = size[1];
    tsr_tensor *x = gpu_new(TSR_F32, 2, size), *dy = gpu_new(TSR_F32, 2, size);
    tsr_tensor *out[] = {gpu_new(TSR_F32, 2, size), gpu_new(TSR_F32, 1, &columns),
                         gpu_new(TSR_F32, 1, &columns)};
    tsr_tensor *both = gpu_new(TSR_F32, 1, (int64_t[]){2 * columns + 3});
    static double together[3][MAX], alone[MAX];
    if (_i == 4)
        tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    GPU_OK(tsr_random_normal(queue, x, 1, 2, tsr_random_params(.seed = 7)));
    GPU_OK(tsr_random_normal(queue, dy, 0, 1, tsr_random_params(.seed = 8)));
    for (int run = -2; run < 3; run++) { /* −2 and −1 compute all gradients, 0 to 2 one each */
        for (int i = 1; run == -1 && i < 3; i++) {
            const int64_t first = (i - 1) * (columns + 3);
            tsr_tensor_destroy(&out[i]);
            GPU_OK(tsr_tensor_slice(both, 0, first, first + columns, 1, &out[i]));
        }
        for (int i = 0; i < 3; i++)
            gpu_poison(out[i]);
        GPU_OK(tsr_norm_grad(queue, run <= 0 ? out[0] : NULL, run < 0 || run == 1 ? out[1] : NULL,
                             run < 0 || run == 2 ? out[2] : NULL, x, dy, NULL, TSR_NORM_LAYER,
                             1e-5F, false));
        for (int i = 0; i < 3; i++) {
            size_t bytes = (size_t)(i == 0 ? rows * columns : columns) * sizeof *alone;
            gpu_get(out[i], run == -2 ? together[i] : alone);
            if (run == -1 || run == i)
                ck_assert_mem_eq(alone, together[i], bytes);
            else if (run >= 0)
                ck_assert(isnan(alone[0]));
        }
    }
    tsr_tensor *all[] = {x, dy, out[0], out[1], out[2], both};
    for (int i = 0; i < 6; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

/* If dx is f32 and there are at least 65536 elements, Mesa's CPU driver computes all gradients
 * in one kernel, each invocation of which sums several rows for weight and bias. Tests odd
 * numbers of rows, and rows whose two halves overlap. */
START_TEST(sums_of_parts)
{
    gpu_random random = {80};
    norm_case c = plain(1025, 66);
    c.accumulate = c.in_place = true;
    check_gradient(&random, &c);
    c = plain(513, 128);
    c.centred = true;
    check_gradient(&random, &c);
    c = plain(331, 199);
    c.centred = c.accumulate = true;
    c.weighted = false;
    c.x = TSR_F16;
    c.dy = c.vectors = TSR_BF16;
    check_gradient(&random, &c);
    c.y = TSR_F16; /* with this dtype, dx has another kernel */
    check_gradient(&random, &c);
    c = plain(140, 497);
    c.centred = c.in_place = true;
    check_gradient(&random, &c);
}
END_TEST

/* Checks that the sum of dx and another gradient has the bits that two operations give. */
static void check_added(tsr_dtype dtype, int64_t rows, int64_t columns, bool centred)
{
    const int64_t size[] = {rows, columns};
    enum { X, DY, ADDED, ONE, TWO, WEIGHT, SUM_ONE, SUM_TWO, TENSORS };
    tsr_tensor *t[TENSORS];
    static double one[600 * 128], two[600 * 128];
    for (int i = 0; i < TENSORS; i++)
        t[i] = i < WEIGHT ? gpu_new(i < ADDED ? TSR_F32 : dtype, 2, size)
                          : gpu_new(TSR_F32, 1, &columns);
    for (int i = 0; i < TENSORS; i++)
        GPU_OK(tsr_random_normal(queue, t[i], 0, 1, tsr_random_params(.seed = (uint64_t)i)));
    if (centred) {
        GPU_OK(tsr__norm_grad_added(queue, t[ONE], t[SUM_ONE], NULL, t[X], t[DY], t[WEIGHT],
                                    t[ADDED], NULL, TSR_NORM_LAYER, 1e-5F, false));
        GPU_OK(tsr_norm_grad(queue, t[TWO], t[SUM_TWO], NULL, t[X], t[DY], t[WEIGHT],
                             TSR_NORM_LAYER, 1e-5F, false));
    } else {
        GPU_OK(tsr__norm_grad_added(queue, t[ONE], t[SUM_ONE], NULL, t[X], t[DY], t[WEIGHT],
                                    t[ADDED], NULL, TSR_NORM_RMS, 1e-5F, false));
        GPU_OK(tsr_norm_grad(queue, t[TWO], t[SUM_TWO], NULL, t[X], t[DY], t[WEIGHT], TSR_NORM_RMS,
                             1e-5F, false));
    }
    GPU_OK(tsr_binary(queue, t[TWO], t[TWO], t[ADDED], TSR_BINARY_ADD));
    gpu_get(t[ONE], one);
    gpu_get(t[TWO], two);
    ck_assert_mem_eq(one, two, (size_t)(rows * columns) * sizeof *one);
    gpu_get(t[SUM_ONE], one);
    gpu_get(t[SUM_TWO], two);
    ck_assert_mem_eq(one, two, (size_t)columns * sizeof *one);
    for (int i = 0; i < TENSORS; i++)
        tsr_tensor_destroy(&t[i]);
}

/* The kernels for GPUs: statistics that the forward pass has written give the same gradients, with
 * another gradient added by the kernel, or, where its strides differ from dx's, separately. */
static void check_saved_statistics(tsr_dtype dtype, int64_t rows, int64_t columns, bool strided)
{
    const int64_t size[] = {rows, columns};
    enum { X, DY, Y, TWO, ADDED, ONE, WEIGHT, SUM_ONE, SUM_TWO, TENSORS };
    static double one[8 * 5000], two[8 * 5000];
    tsr_tensor *t[TENSORS], *stats = NULL, *parent = NULL;
    for (int i = 0; i < TENSORS; i++)
        t[i] = i < WEIGHT ? gpu_new(dtype, 2, size) : gpu_new(TSR_F32, 1, &columns);
    if (strided) {
        tsr_tensor_destroy(&t[ADDED]);
        parent = gpu_new(dtype, 2, (int64_t[]){rows, columns + 4});
        GPU_OK(tsr_tensor_slice(parent, 1, 0, columns, 1, &t[ADDED]));
    }
    for (int i = 0; i < TENSORS; i++)
        GPU_OK(tsr_random_normal(queue, t[i], 3, 1, tsr_random_params(.seed = (uint64_t)i)));
    for (int kind = TSR_NORM_LAYER; kind <= TSR_NORM_RMS; kind++) {
        GPU_OK(tsr__norm_new_stats(t[X], &stats));
        ck_assert_ptr_nonnull(stats);
        gpu_poison(stats);
        GPU_OK(tsr__norm_with_stats(queue, t[ONE], t[X], t[WEIGHT], NULL, (tsr_norm_kind)kind,
                                    1e-5F, stats));
        GPU_OK(tsr_norm(queue, t[TWO], t[X], t[WEIGHT], NULL, (tsr_norm_kind)kind, 1e-5F));
        gpu_get(t[ONE], one);
        gpu_get(t[TWO], two);
        ck_assert_mem_eq(one, two, (size_t)(rows * columns) * sizeof *one);
        GPU_OK(tsr__norm_grad_added(queue, t[ONE], t[SUM_ONE], NULL, t[X], t[DY], t[WEIGHT],
                                    t[ADDED], stats, (tsr_norm_kind)kind, 1e-5F, false));
        GPU_OK(tsr_norm_grad(queue, t[TWO], t[SUM_TWO], NULL, t[X], t[DY], t[WEIGHT],
                             (tsr_norm_kind)kind, 1e-5F, false));
        GPU_OK(tsr_binary(queue, t[TWO], t[TWO], t[ADDED], TSR_BINARY_ADD));
        gpu_get(t[ONE], one);
        gpu_get(t[TWO], two);
        for (int64_t i = 0; i < rows * columns; i++)
            ck_assert_msg(one[i] == two[i], "[%lld,%lld], element %lld: %.9g, not %.9g",
                          (long long)rows, (long long)columns, (long long)i, one[i], two[i]);
        gpu_get(t[SUM_ONE], one);
        gpu_get(t[SUM_TWO], two);
        ck_assert_mem_eq(one, two, (size_t)columns * sizeof *one);
        tsr_tensor_destroy(&stats);
    }
    for (int i = 0; i < TENSORS; i++)
        tsr_tensor_destroy(&t[i]);
    tsr_tensor_destroy(&parent);
}

START_TEST(statistics_are_saved)
{
    const tsr__device_class device_class = gpu->traits.device_class;
    tsr_tensor *stats = NULL, *x = gpu_new(TSR_F32, 2, (int64_t[]){4, 8}), *columns;
    GPU_OK(tsr__norm_new_stats(x, &stats));
    ck_assert_int_eq(!stats, gpu->cpu != NULL);
    tsr_tensor_destroy(&stats);
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    GPU_OK(tsr_tensor_transpose(x, 0, 1, &columns));
    GPU_OK(tsr__norm_new_stats(columns, &stats));
    ck_assert_ptr_null(stats);
    tsr_tensor_destroy(&columns);
    tsr_tensor_destroy(&x);
    check_saved_statistics(TSR_F32, 70, 128, false);
    check_saved_statistics(TSR_F32, 5, 33, true);
    check_saved_statistics(TSR_BF16, 9, 128, false);
    check_saved_statistics(TSR_F16, 3, 65, false);
    check_saved_statistics(TSR_F32, 2, 5000, false); /* too long for registers */
    tsr__device_treat_as(gpu, device_class);
}
END_TEST

START_TEST(another_gradient_is_added)
{
    check_added(TSR_F32, 600, 128, true);
    check_added(TSR_F32, 600, 128, false);
    check_added(TSR_BF16, 600, 128, true);
    check_added(TSR_F32, 5, 33, true);
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){3, 4}),
               *other = gpu_new(TSR_F32, 2, (int64_t[]){4, 3}),
               *dx = gpu_new(TSR_F32, 2, (int64_t[]){3, 4});
    GPU_FAILS(tsr__norm_grad_added(queue, dx, NULL, NULL, x, x, NULL, other, NULL, TSR_NORM_LAYER,
                                   1e-5F, false),
              TSR_ERR_INVALID, "layer_norm_grad: added is [4,3], x is [3,4]");
    GPU_FAILS(tsr__norm_grad_added(queue, dx, NULL, NULL, x, x, NULL, dx, NULL, TSR_NORM_RMS, 1e-5F,
                                   false),
              TSR_ERR_INVALID, "rms_norm_grad: dx [3,4] overlaps added [3,4]");
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&other);
    tsr_tensor_destroy(&dx);
}
END_TEST

/* Returns Σ dy·y of a row, computed by the reference. */
static double weighed(const norm_case *c, const double *x, const double *dy)
{
    double n[32], sum = 0;
    (void)normalised(c, x, n);
    for (int64_t j = 0; j < columns_of(c); j++)
        sum += dy[j] * n[j];
    return sum;
}

START_TEST(gradients_match_finite_differences)
{
    enum { COUNT = 23 };
    const double h = 1e-5;
    const int64_t count = COUNT;
    gpu_random random = {77};
    double x[COUNT], dy[COUNT], got[COUNT];
    tsr_tensor *in = gpu_new(TSR_F32, 1, &count), *incoming = gpu_new(TSR_F32, 1, &count);
    for (int i = 0; i < COUNT; i++) {
        x[i] = gpu_rounded(2 * gpu_random_unit(&random), TSR_F32);
        dy[i] = gpu_rounded(gpu_random_unit(&random), TSR_F32);
    }
    gpu_put(in, x);
    for (int centred = 0; centred < 2; centred++) {
        norm_case c = {.centred = centred != 0, .ndim = 1, .size = {COUNT}, .epsilon = 0.25F};
        gpu_put(incoming, dy);
        GPU_OK(gradient(&c, queue, incoming, NULL, NULL, in, incoming, NULL));
        gpu_get(incoming, got);
        for (int j = 0; j < COUNT; j++) {
            double kept = x[j];
            x[j] = kept + h;
            double up = weighed(&c, x, dy);
            x[j] = kept - h;
            double down = weighed(&c, x, dy);
            x[j] = kept;
            assert_close_at(&c, "dx", j, got[j], (up - down) / (2 * h), 2e-6);
        }
    }
    tsr_tensor_destroy(&in);
    tsr_tensor_destroy(&incoming);
}
END_TEST

START_TEST(empty_tensors)
{
    static const int64_t sizes[][2] = {{0, 4}, {3, 0}, {0, 0}};
    for (int i = 0; i < 3; i++) {
        tsr_tensor *x = gpu_new(TSR_F32, 2, sizes[i]), *y = gpu_new(TSR_F16, 2, sizes[i]);
        tsr_tensor *weight = gpu_new(TSR_F32, 1, &sizes[i][1]);
        tsr_tensor *dbias = gpu_new(TSR_BF16, 1, &sizes[i][1]);
        double sums[4];
        GPU_OK(tsr_norm(queue, y, x, NULL, NULL, TSR_NORM_LAYER, 1e-5F));
        GPU_OK(tsr_norm(queue, y, x, weight, NULL, TSR_NORM_RMS, 1e-5F));
        for (int accumulate = 0; accumulate < 2; accumulate++) {
            gpu_poison(weight);
            gpu_poison(dbias);
            GPU_OK(tsr_norm_grad(queue, y, weight, dbias, x, x, NULL, TSR_NORM_LAYER, 1e-5F,
                                 accumulate != 0));
            tsr_tensor *both[] = {weight, dbias};
            for (int k = 0; k < 2; k++) {
                gpu_get(both[k], sums);
                for (int64_t j = 0; j < sizes[i][1]; j++)
                    ck_assert(accumulate ? isnan(sums[j]) : sums[j] == 0);
            }
        }
        GPU_OK(tsr_norm_grad(queue, NULL, weight, NULL, x, x, NULL, TSR_NORM_RMS, 1e-5F, true));
        GPU_OK(tsr_stream_wait(queue));
        tsr_tensor *all[] = {x, y, weight, dbias};
        for (int k = 0; k < 4; k++)
            tsr_tensor_destroy(&all[k]);
    }
}
END_TEST

START_TEST(mistakes_are_named)
{
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){3, 4}),
               *y = gpu_new(TSR_F32, 2, (int64_t[]){3, 4});
    tsr_tensor *other = gpu_new(TSR_F32, 2, (int64_t[]){4, 3}),
               *integers = gpu_new(TSR_I32, 2, (int64_t[]){3, 4});
    tsr_tensor *scalar = gpu_new(TSR_F32, 0, NULL), *big = gpu_new(TSR_F32, 2, (int64_t[]){4, 4});
    tsr_tensor *w = gpu_new(TSR_F32, 1, (int64_t[]){4}), *dw = gpu_new(TSR_F32, 1, (int64_t[]){4});
    tsr_tensor *low, *high, *repeated, *row, *one;
    GPU_OK(tsr_tensor_slice(big, 0, 0, 3, 1, &low));
    GPU_OK(tsr_tensor_slice(big, 0, 1, 4, 1, &high));
    GPU_OK(tsr_tensor_select(y, 0, 0, &row));
    GPU_OK(tsr_tensor_broadcast(row, 2, (int64_t[]){3, 4}, &repeated));
    GPU_OK(tsr_tensor_slice(w, 0, 0, 1, 1, &one));
    const float e = 1e-5F;

    GPU_FAILS(tsr_norm(queue, y, x, w, w, (tsr_norm_kind)2, e), TSR_ERR_INVALID,
              "norm: unknown kind 2");
    GPU_FAILS(tsr_norm(queue, y, x, w, w, TSR_NORM_RMS, e), TSR_ERR_INVALID,
              "norm: bias must be NULL for TSR_NORM_RMS");
    GPU_FAILS(tsr_norm_grad(queue, y, NULL, NULL, x, x, w, (tsr_norm_kind)-1, e, false),
              TSR_ERR_INVALID, "norm_grad: unknown kind -1");
    GPU_FAILS(tsr_norm_grad(queue, y, NULL, w, x, x, w, TSR_NORM_RMS, e, false), TSR_ERR_INVALID,
              "norm_grad: dbias must be NULL for TSR_NORM_RMS");
    GPU_FAILS(tsr_norm(NULL, y, x, w, w, TSR_NORM_LAYER, e), TSR_ERR_INVALID,
              "layer_norm: stream is NULL");
    GPU_FAILS(tsr_norm(queue, NULL, x, w, w, TSR_NORM_LAYER, e), TSR_ERR_INVALID,
              "layer_norm: y is NULL");
    GPU_FAILS(tsr_norm(queue, y, NULL, w, w, TSR_NORM_LAYER, e), TSR_ERR_INVALID,
              "layer_norm: x is NULL");
    GPU_FAILS(tsr_norm(queue, integers, x, w, NULL, TSR_NORM_RMS, e), TSR_ERR_INVALID,
              "rms_norm: y is i32");
    GPU_FAILS(tsr_norm(queue, y, integers, w, NULL, TSR_NORM_RMS, e), TSR_ERR_INVALID,
              "rms_norm: x is i32");
    GPU_FAILS(tsr_norm(queue, y, x, integers, w, TSR_NORM_LAYER, e), TSR_ERR_INVALID,
              "weight is i32");
    GPU_FAILS(tsr_norm(queue, y, other, w, w, TSR_NORM_LAYER, e), TSR_ERR_INVALID,
              "layer_norm: weight is [4]; rows of x [4,3] have 3 elements");
    GPU_FAILS(tsr_norm(queue, y, x, w, row, TSR_NORM_LAYER, e), TSR_ERR_INVALID,
              "layer_norm: y [3,4] overlaps bias [4]");
    GPU_FAILS(tsr_norm(queue, y, x, w, x, TSR_NORM_LAYER, e), TSR_ERR_INVALID,
              "layer_norm: bias is [3,4]");
    GPU_FAILS(tsr_norm(queue, y, x, one, NULL, TSR_NORM_LAYER, e), TSR_ERR_INVALID,
              "weight is [1]");
    GPU_FAILS(tsr_norm(queue, y, other, NULL, NULL, TSR_NORM_RMS, e), TSR_ERR_INVALID,
              "y is [3,4], x is [4,3]");
    GPU_FAILS(tsr_norm(queue, scalar, scalar, NULL, NULL, TSR_NORM_RMS, e), TSR_ERR_INVALID,
              "rms_norm: x is a scalar and has no last dimension");
    GPU_FAILS(tsr_norm(queue, low, high, NULL, NULL, TSR_NORM_RMS, e), TSR_ERR_INVALID,
              "rms_norm: y [3,4] overlaps x [3,4]");
    GPU_FAILS(tsr_norm(queue, repeated, x, NULL, NULL, TSR_NORM_RMS, e), TSR_ERR_INVALID,
              "more than once");
    GPU_FAILS(tsr_norm(queue, y, x, row, NULL, TSR_NORM_RMS, e), TSR_ERR_INVALID,
              "y [3,4] overlaps weight [4]");
    static const float wrong[] = {0, -1e-5F, 1e-40F, INFINITY, NAN};
    for (int i = 0; i < 5; i++) {
        GPU_FAILS(tsr_norm(queue, y, x, NULL, NULL, TSR_NORM_LAYER, wrong[i]), TSR_ERR_INVALID,
                  "it must be finite and at least 1.17549e-38");
        GPU_FAILS(tsr_norm_grad(queue, y, NULL, NULL, x, x, NULL, TSR_NORM_RMS, wrong[i], false),
                  TSR_ERR_INVALID, "rms_norm_grad: epsilon is ");
    }

    GPU_FAILS(tsr_norm_grad(NULL, y, dw, NULL, x, x, w, TSR_NORM_LAYER, e, false), TSR_ERR_INVALID,
              "layer_norm_grad: stream is NULL");
    GPU_FAILS(tsr_norm_grad(queue, NULL, NULL, NULL, x, x, w, TSR_NORM_LAYER, e, false),
              TSR_ERR_INVALID, "layer_norm_grad: dx, dweight and dbias are all NULL");
    GPU_FAILS(tsr_norm_grad(queue, y, NULL, NULL, NULL, x, w, TSR_NORM_LAYER, e, false),
              TSR_ERR_INVALID, "layer_norm_grad: x is NULL");
    GPU_FAILS(tsr_norm_grad(queue, y, NULL, NULL, x, NULL, w, TSR_NORM_RMS, e, false),
              TSR_ERR_INVALID, "rms_norm_grad: dy is NULL");
    GPU_FAILS(tsr_norm_grad(queue, y, NULL, NULL, x, other, w, TSR_NORM_RMS, e, false),
              TSR_ERR_INVALID, "rms_norm_grad: dy is [4,3], x is [3,4]");
    GPU_FAILS(tsr_norm_grad(queue, other, NULL, NULL, x, x, w, TSR_NORM_RMS, e, false),
              TSR_ERR_INVALID, "rms_norm_grad: dx is [4,3], x is [3,4]");
    GPU_FAILS(tsr_norm_grad(queue, integers, NULL, NULL, x, x, w, TSR_NORM_RMS, e, false),
              TSR_ERR_INVALID, "rms_norm_grad: dx is i32");
    GPU_FAILS(tsr_norm_grad(queue, NULL, y, NULL, x, x, w, TSR_NORM_RMS, e, false), TSR_ERR_INVALID,
              "rms_norm_grad: dweight is [3,4]");
    GPU_FAILS(tsr_norm_grad(queue, NULL, NULL, one, x, x, w, TSR_NORM_LAYER, e, false),
              TSR_ERR_INVALID, "layer_norm_grad: dbias is [1]");
    GPU_FAILS(tsr_norm_grad(queue, y, dw, dw, x, x, w, TSR_NORM_LAYER, e, false), TSR_ERR_INVALID,
              "dbias [4] overlaps dweight [4]");
    GPU_FAILS(tsr_norm_grad(queue, y, w, dw, x, x, w, TSR_NORM_LAYER, e, true), TSR_ERR_INVALID,
              "dweight [4] overlaps weight [4]");
    GPU_FAILS(tsr_norm_grad(queue, x, row, dw, y, x, w, TSR_NORM_LAYER, e, true), TSR_ERR_INVALID,
              "dweight [4] overlaps x [3,4]");
    GPU_FAILS(tsr_norm_grad(queue, low, NULL, NULL, high, x, w, TSR_NORM_LAYER, e, true),
              TSR_ERR_INVALID, "dx [3,4] overlaps x [3,4]");
    GPU_FAILS(tsr_norm_grad(queue, low, NULL, NULL, x, high, w, TSR_NORM_LAYER, e, true),
              TSR_ERR_INVALID, "dx [3,4] overlaps dy [3,4]");

    tsr_tensor *all[] = {low, high, repeated, row, one, x, y, other, integers, scalar, big, w, dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

/* Computes the gradients, which take scratch memory and several dispatches, after `before` other
 * dispatches. The nth event of a kind (an allocation or a Vulkan call) fails, for all n. Each
 * call must give an error and leave everything unchanged, or succeed. */
static void survive_faults(int64_t rows, int64_t columns, int before, tsr__fault_kind fault,
                           int code)
{
    enum { MAX = 1025 * 66 };
    const int64_t size[] = {rows, columns};
    tsr_tensor *x = gpu_new(TSR_F32, 2, size), *dw = gpu_new(TSR_F32, 1, &columns);
    tsr_tensor *dy = gpu_new(TSR_F32, 2, size), *dx = gpu_new(TSR_F32, 2, size);
    tsr_tensor *other = gpu_new(TSR_F32, 1, (int64_t[]){3});
    static double got[MAX];
    int failed = 0;
    bool reached = true;
    GPU_OK(tsr_random_normal(queue, x, 1, 2, tsr_random_params(.seed = 7)));
    GPU_OK(tsr_random_normal(queue, dy, 0, 1, tsr_random_params(.seed = 8)));
    for (uint64_t nth = 0; reached; nth++) {
        tsr_stream *stream; /* a new one has no scratch memory yet */
        GPU_OK(tsr_stream_create(gpu, &stream));
        gpu_poison(dx);
        gpu_poison(dw);
        GPU_OK(tsr_stream_wait(queue));
        for (int i = 0; i < before; i++)
            GPU_OK(tsr_fill(stream, other, 1));
        tsr__fault_arm(fault, nth, code);
        tsr_status status =
            tsr_norm_grad(stream, dx, dw, NULL, x, dy, NULL, TSR_NORM_LAYER, 1e-5F, false);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        GPU_OK(tsr_stream_wait(stream));
        tsr_tensor *both[] = {dx, dw};
        for (int k = 0; k < 2; k++) {
            gpu_get(both[k], got);
            for (int64_t i = 0; i < (k == 0 ? rows * columns : columns); i++)
                ck_assert_msg(isnan(got[i]) == (status != TSR_OK),
                              "event %llu: %s; element %lld of %s is %g", (unsigned long long)nth,
                              tsr_last_error(), (long long)i, k == 0 ? "dx" : "dweight", got[i]);
        }
        failed += status != TSR_OK;
        tsr_stream_destroy(&stream);
        ck_assert(reached || status == TSR_OK);
        ck_assert_uint_lt(nth, 1000);
    }
    ck_assert_int_gt(failed, 3);
    tsr_tensor *all[] = {x, dw, dy, dx, other};
    for (int i = 0; i < 5; i++)
        tsr_tensor_destroy(&all[i]);
}

START_TEST(failures_leave_nothing_half_done)
{
    static const int64_t sizes[][2] = {{100, 33}, {300, 33}, {1025, 66}, {16, 2050}};
    const int64_t *size = sizes[_i < 4 ? _i : 3];
    const int before = _i < 4 ? 0 : 87 + _i; /* a batch of 96 becomes full within the operation */
    survive_faults(size[0], size[1], before, TSR__FAULT_VULKAN,
                   -3 /* VK_ERROR_INITIALIZATION_FAILED */);
    survive_faults(size[0], size[1], before, TSR__FAULT_ALLOC, 0);
}
END_TEST

/* There are many rows, and they are so long that one invocation cannot compute a row on
 * lavapipe, which ends all loops of an invocation after 65535 iterations together. Each row has
 * a single 1, which is its last element. */
START_TEST(many_very_long_rows)
{
    enum {
        ROWS = 256,
        COLUMNS = 90001,
    };
    const int64_t shape[] = {ROWS, COLUMNS};
    const double mean = 1.0 / COLUMNS, want = (1 - mean) / sqrt(mean * (1 - mean) + 1e-5);
    static double got[ROWS];
    tsr_tensor *x = gpu_new(TSR_F32, 2, shape), *y = gpu_new(TSR_F32, 2, shape), *x_end, *y_end;
    GPU_OK(tsr_tensor_select(x, 1, -1, &x_end));
    GPU_OK(tsr_tensor_select(y, 1, -1, &y_end));
    GPU_OK(tsr_fill(queue, x, 0));
    GPU_OK(tsr_fill(queue, x_end, 1));
    gpu_poison(y);
    GPU_OK(tsr_norm(queue, y, x, NULL, NULL, TSR_NORM_LAYER, 1e-5f));
    gpu_get(y_end, got);
    for (int i = 0; i < ROWS; i++)
        ck_assert_msg(fabs(got[i] - want) <= 1e-4 * want, "row %d: %g instead of %g", i, got[i],
                      want);
    tsr_tensor_destroy(&y_end);
    tsr_tensor_destroy(&x_end);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&x);
}
END_TEST

TESTS(norm)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, random_views);
    tcase_add_test(tests, rows_without_gaps);
    tcase_add_test(tests, kernels_by_length);
    tcase_add_test(tests, many_very_long_rows);
    tcase_add_test(tests, rows_of_equal_elements);
    tcase_add_loop_test(tests, nan_and_infinities, 0, 3);
    tcase_add_test(tests, neighbours_stay);
    tcase_add_loop_test(tests, gradients_on_their_own, 0, 5);
    tcase_add_test(tests, another_gradient_is_added);
    tcase_add_test(tests, statistics_are_saved);
    tcase_add_test(tests, gradients_match_finite_differences);
    tcase_add_test(tests, empty_tensors);
    tcase_add_test(tests, mistakes_are_named);
}

TESTS(norm_long)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, any_number_of_columns);
    tcase_add_test(tests, any_number_of_rows);
}

/* The calls that fail include those that build pipelines. They are the same on all drivers. */
TESTS(norm_failures_long)
{
    tcase_add_checked_fixture(tests, gpu_setup_not_shared, gpu_teardown);
    tcase_add_loop_test(tests, failures_leave_nothing_half_done, 0, 9);
}

TESTS(norm_slow)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, sums_of_parts);
    tcase_add_test(tests, float16_without_gaps);
    tcase_add_test(tests, long_rows);
    tcase_add_test(tests, long_rows_of_float16);
    tcase_add_test(tests, large_offsets);
}

/* Uses the kernels with the workgroups of GPUs on any device. */
TESTS(norm_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_test(tests, long_rows);
    tcase_add_test(tests, large_offsets);
}

TESTS(norm_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_test(tests, packed_float16);
    tcase_add_test(tests, float16_without_gaps);
    tcase_add_test(tests, long_rows_of_float16);
    tcase_add_test(tests, neighbours_stay);
}
