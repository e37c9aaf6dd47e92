/* Products whose f32 and quantised operands are narrowed to 16 bits (tsr_matmul_params.precision):
 * when the library chooses this, the narrowed lines, which every driver computes, and the products,
 * compared with double precision, if the driver has cooperative matrices. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/device/device.h"
#include "gpu/matmul/choose_kernel.h"
#include "gpu/matmul/kernels/kernels.h"
#include "gpu/matmul/matmul_case.h"
#include "gpu/matmul/narrowed.h"
#include "shaders/params/matmul.h"

static const tsr_precision precisions[] = {TSR_PRECISION_HIGH, TSR_PRECISION_MEDIUM};
static const tsr_dtype sixteen[] = {TSR_F16, TSR_BF16};

/* The choice ----------------------------------------------------------------------------------- */

typedef struct known_gpu {
    const char *name;
    uint32_t vendor_id, subgroup, shared_bytes, processors;
    tsr_coopmat_shape f16, bf16;
} known_gpu;

#define SHAPE(rows, columns, depth)                                                                \
    {                                                                                              \
        .m = (rows), .n = (columns), .k = (depth)                                                  \
    }
static const known_gpu gpus[] = {
    {"H200", 0x10de, 32, 49152, 132, SHAPE(16, 16, 16), SHAPE(16, 16, 16)},
    {"a small NVIDIA GPU", 0x10de, 32, 49152, 20, SHAPE(16, 16, 16), SHAPE(16, 16, 16)},
    {"RDNA 3", 0x1002, 32, 65536, 96, SHAPE(16, 16, 16), SHAPE(16, 16, 16)},
    {"Xe2", 0x8086, 16, 65536, 20, SHAPE(8, 16, 16), SHAPE(8, 16, 16)},
    {"another", 0x13b5, 32, 32768, 0, SHAPE(16, 16, 16), SHAPE(16, 16, 16)},
};
#define GPUS ((int)(sizeof gpus / sizeof *gpus))

static tsr__matmul_device device_of(const known_gpu *known)
{
    return (tsr__matmul_device){.traits = tsr__traits_of(TSR__CLASS_GPU),
                                .vendor_id = known->vendor_id,
                                .processors = known->processors,
                                .max_invocations = 1024,
                                .max_shared_bytes = known->shared_bytes,
                                .subgroup_size = known->subgroup,
                                .subgroup_size_min = known->subgroup,
                                .int64 = true,
                                .coopmat = known->f16,
                                .coopmat_bf16 = known->bf16,
                                .coopmat_subgroup_size = known->subgroup,
                                .max_subgroups = 32};
}

/* The problem y[m,n] = a[m,k] · b[n,k]ᵀ, with f32 a and y. For b in blocks, b has positions of
 * elements only, as in tsr__matmul_check(). */
static tsr__matmul_problem problem_of(tsr_dtype b, int64_t m, int64_t k, int64_t n,
                                      tsr_precision precision)
{
    const tsr_dtype b_floats = b == TSR_F16 || b == TSR_BF16 ? b : TSR_F32;
    tsr_layout la, lb, ly;
    tsr__matmul_problem problem;

    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){m, k}, &la));
    ck_assert_ok(tsr_layout_init(b_floats, 2, (int64_t[]){n, k}, &lb));
    ck_assert_ok(tsr_layout_init(TSR_F32, 2, (int64_t[]){m, n}, &ly));
    ck_assert_ok(tsr__matmul_problem_init(
        &ly, &la, &lb, NULL, tsr_matmul_params(.transpose_b = true, .precision = precision),
        &problem));
    return problem;
}

/* True if the product is computed with cooperative matrices. */
static bool uses_matrices(const tsr__matmul_device *device, tsr_dtype b, int64_t m, int64_t k,
                          int64_t n, tsr_precision precision)
{
    const tsr__matmul_problem problem = problem_of(b, m, k, n, precision);
    tsr__matmul_problem narrowed;
    tsr__matmul_plan plan = {0}, chosen;

    if (!tsr__matmul_narrow(&problem, TSR_F32, b, &narrowed, &plan))
        return false;
    ck_assert_ok(tsr__matmul_choose(device, NULL, &narrowed, NULL, &chosen));
    return chosen.config->family == &tsr__matmul_coopmat;
}

/* Every product of a prompt of Llama's 1.1B model: queries, keys and values together, what follows
 * attention, the two matrices of the hidden layer together, the third one, and the head. */
START_TEST(prompts_use_matrix_units)
{
    static const int64_t products[][2] = {
        {2048, 2560}, {2048, 2048}, {2048, 11264}, {5632, 2048}, {2048, 32000}};
    static const tsr_dtype weights[] = {TSR_F16, TSR_BF16, TSR_Q8_0, TSR_Q4_0, TSR_Q4_K, TSR_F32};
    static const int64_t tokens[] = {32, 40, 64, 100, 128, 256, 512, 1000, 1024, 4096};

    for (int g = 0; g < GPUS; g++) {
        const tsr__matmul_device device = device_of(&gpus[g]);
        for (size_t w = 0; w < sizeof weights / sizeof *weights; w++)
            for (size_t p = 0; p < sizeof products / sizeof *products; p++) {
                const int64_t k = products[p][0], n = products[p][1];
                for (size_t t = 0; t < sizeof tokens / sizeof *tokens; t++)
                    for (int i = 0; i < 2; i++)
                        ck_assert_msg(
                            uses_matrices(&device, weights[w], tokens[t], k, n, precisions[i]),
                            "%s: %lld tokens, [%lld,%lld] in %s", gpus[g].name,
                            (long long)tokens[t], (long long)n, (long long)k,
                            tsr_dtype_name(weights[w]));
                ck_assert(!uses_matrices(&device, weights[w], 512, k, n, TSR_PRECISION_HIGHEST));
                ck_assert(!uses_matrices(&device, weights[w], 512, k, n, TSR_PRECISION_DEFAULT));
                ck_assert(!uses_matrices(&device, weights[w], 31, k, n, TSR_PRECISION_HIGH));
            }
    }
}
END_TEST

START_TEST(devices_without_matrix_units)
{
    tsr__matmul_device device = device_of(&gpus[0]);

    device.coopmat_bf16 = (tsr_coopmat_shape){0};
    ck_assert(uses_matrices(&device, TSR_F16, 512, 2048, 2048, TSR_PRECISION_HIGH));
    ck_assert(!uses_matrices(&device, TSR_BF16, 512, 2048, 2048, TSR_PRECISION_HIGH));
    device.coopmat = (tsr_coopmat_shape){0};
    ck_assert(!uses_matrices(&device, TSR_F16, 512, 2048, 2048, TSR_PRECISION_HIGH));
    ck_assert(!uses_matrices(&device, TSR_Q8_0, 512, 2048, 2048, TSR_PRECISION_HIGH));
    device = device_of(&gpus[0]);
    device.traits = tsr__traits_of(TSR__CLASS_LAVAPIPE);
    ck_assert(!uses_matrices(&device, TSR_F16, 512, 2048, 2048, TSR_PRECISION_HIGH));
}
END_TEST

START_TEST(terms_follow_precision_and_dtypes)
{
    static const struct {
        tsr_dtype a, b, dtype;
        uint32_t high[2], medium[2];
    } cases[] = {
        {TSR_F32, TSR_F16, TSR_F16, {2, 0}, {1, 0}},  {TSR_F32, TSR_BF16, TSR_BF16, {3, 0}, {1, 0}},
        {TSR_F32, TSR_Q8_0, TSR_F16, {2, 2}, {1, 1}}, {TSR_F32, TSR_F32, TSR_F16, {2, 2}, {1, 1}},
        {TSR_F16, TSR_Q4_K, TSR_F16, {0, 2}, {0, 1}}, {TSR_BF16, TSR_F32, TSR_BF16, {0, 3}, {0, 1}},
        {TSR_F16, TSR_F16, (tsr_dtype)0, {0}, {0}},   {TSR_BF16, TSR_F16, (tsr_dtype)0, {0}, {0}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int j = 0; j < 2; j++) {
            const uint32_t *terms = j == 0 ? cases[i].high : cases[i].medium;
            tsr__matmul_problem p = problem_of(TSR_F32, 100, 70, 90, precisions[j]), narrowed;
            tsr__matmul_plan plan = {0};
            bool done = tsr__matmul_narrow(&p, cases[i].a, cases[i].b, &narrowed, &plan);
            ck_assert_int_eq(done, cases[i].dtype != 0);
            if (!done)
                continue;
            ck_assert_int_eq(plan.narrowed.dtype, cases[i].dtype);
            ck_assert_uint_eq(narrowed.a_terms, terms[0]);
            ck_assert_uint_eq(narrowed.b_terms, terms[1]);
            ck_assert_int_eq(narrowed.a.dtype, cases[i].dtype);
            ck_assert_int_eq(narrowed.b.dtype, cases[i].dtype);
            ck_assert_int_eq(narrowed.a.row, terms[0] > 0 ? 72 * (int64_t)terms[0] + 8 : 70);
            ck_assert_int_eq(narrowed.b.col, terms[1] > 0 ? 72 * (int64_t)terms[1] + 8 : 70);
        }
}
END_TEST

/* Kernels for prompts have the tiles of all terms in shared memory together: b is read once. Three
 * terms of bf16 need more than 32 KiB, and on AMD's GPUs would leave no room for a second
 * workgroup.
 */
START_TEST(terms_are_together)
{
    static const tsr_dtype weights[] = {TSR_F16, TSR_BF16, TSR_Q8_0};

    for (int g = 0; g < GPUS; g++)
        for (size_t w = 0; w < sizeof weights / sizeof *weights; w++)
            for (int64_t n = 2048; n <= 11264; n += 9216) {
                const tsr__matmul_device device = device_of(&gpus[g]);
                const tsr__matmul_problem p =
                    problem_of(weights[w], 512, 2048, n, TSR_PRECISION_HIGH);
                tsr__matmul_problem narrowed;
                tsr__matmul_plan plan = {0}, chosen;
                uint32_t spec[TSR__MATMUL_SPEC_MAX];
                tsr__shader shader;
                if (weights[w] == TSR_BF16 &&
                    (device.vendor_id == TSR__VENDOR_AMD || device.max_shared_bytes <= 32768))
                    continue;
                ck_assert(tsr__matmul_narrow(&p, TSR_F32, weights[w], &narrowed, &plan));
                ck_assert_ok(tsr__matmul_choose(&device, NULL, &narrowed, NULL, &chosen));
                ck_assert_msg(chosen.variant.depth > 0, "%s: %s by %s in several passes",
                              gpus[g].name, tsr_dtype_name(weights[w]), chosen.config->name);
                const int count =
                    chosen.config->family->pipeline(chosen.config, &chosen.variant, &shader, spec);
                ck_assert_uint_eq(spec[5], chosen.variant.depth);
                ck_assert_uint_eq(spec[count - 1], 1);
                ck_assert_uint_eq(chosen.k_chunk % chosen.variant.depth, 0);
            }
}
END_TEST

START_TEST(batches_and_long_strides_are_not_narrowed)
{
    tsr__matmul_problem p = problem_of(TSR_F16, 100, 70, 90, TSR_PRECISION_HIGH), narrowed;
    tsr__matmul_plan plan = {0};

    ck_assert(tsr__matmul_narrow(&p, TSR_F32, TSR_F16, &narrowed, &plan));
    p.batch_dims = 1;
    ck_assert(!tsr__matmul_narrow(&p, TSR_F32, TSR_F16, &narrowed, &plan));
    p.batch_dims = 0;
    p.a.row = INT64_C(1) << 29;
    ck_assert(!tsr__matmul_narrow(&p, TSR_F32, TSR_F16, &narrowed, &plan));
    p.a.row = 70;
    p.k = 0;
    ck_assert(!tsr__matmul_narrow(&p, TSR_F32, TSR_F16, &narrowed, &plan));
}
END_TEST

TESTS(narrowed_choice)
{
    tcase_add_test(tests, prompts_use_matrix_units);
    tcase_add_test(tests, devices_without_matrix_units);
    tcase_add_test(tests, terms_follow_precision_and_dtypes);
    tcase_add_test(tests, terms_are_together);
    tcase_add_test(tests, batches_and_long_strides_are_not_narrowed);
}

/* Narrowed lines ------------------------------------------------------------------------------- */

/* Fills a row with numbers of one kind. */
static void fill_row(gpu_random *random, int kind, int64_t k, double *row)
{
    for (int64_t i = 0; i < k; i++) {
        double x = gpu_random_unit(random);
        switch (kind % 8) {
        case 0:
            break;
        case 1: /* near the largest f32 */
            x *= 0x1.fffffep127;
            break;
        case 2: /* near the smallest normal f32 */
            x = ldexp(x, -125);
            break;
        case 3: /* all exponents */
            x = ldexp(x, (int)gpu_random_between(random, -120, 127));
            break;
        case 4:
            x = 0;
            break;
        case 5: /* subnormal */
            x = ldexp(x, -127);
            break;
        case 6: /* one large element beside small ones */
            x = i == k / 2 ? 60000 : x * 0x1p-10;
            break;
        default: /* -0 and powers of two */
            x = i % 3 == 0 ? -0.0 : ldexp(1, (int)gpu_random_between(random, -3, 3));
        }
        row[i] = gpu_rounded(x, TSR_F32);
    }
}

static double largest_in(const double *row, int64_t k)
{
    double largest = 0;

    for (int64_t i = 0; i < k; i++)
        if (isfinite(row[i]))
            largest = fmax(largest, fabs(row[i]));
    return largest;
}

/* Checks a narrowed line against the line. `line` has its bits. */
static void check_line(const uint16_t *line, const double *row, int64_t k, tsr_dtype dtype,
                       uint32_t terms)
{
    const int64_t padded = (k + 7) / 8 * 8;
    const double most = largest_in(row, k);
    double own = terms == 1 ? (dtype == TSR_F16 ? 0x1p-11 : 0x1p-8) : 0x1p-22;
    float scale;

    memcpy(&scale, line + (int64_t)terms * padded, sizeof scale);
    int exponent;
    ck_assert(frexpf(scale, &exponent) == 0.5F && exponent - 1 >= -126 && exponent - 1 <= 126);
    if (most >= 0x1p-100 && most < 0x1p127) { /* the largest element uses the range of the dtype */
        double top = dtype == TSR_F16 ? 0x1p14 : 1;
        ck_assert(most / (double)scale >= top && most / (double)scale < 2 * top);
    }
    for (int64_t i = 0; i < padded; i++) {
        double sum = 0;
        for (uint32_t t = 0; t < terms; t++)
            sum += gpu_value(line[(int64_t)t * padded + i], dtype);
        sum *= (double)scale;
        double x = i < k ? row[i] : 0;
        if (isfinite(x))
            ck_assert_msg(fabs(sum - x) <= own * fabs(x) + 0x1p-28 * most + 0x1p-126,
                          "element %lld is %g, not %g", (long long)i, sum, x);
        else
            ck_assert(isnan(x) ? isnan(sum) : sum == x);
    }
}

enum { LINES = 19 };

static void narrow_and_check(gpu_random *random, int64_t k, tsr_dtype dtype, uint32_t terms,
                             bool view, bool special)
{
    const int64_t shape[2] = {LINES, k}, pitch = tsr__matmul_line_elements(k, terms);
    const int64_t y_shape[2] = {LINES, pitch};
    tsr_tensor *parent = NULL, *x, *y = gpu_new(dtype, 2, y_shape);
    double *values = malloc((size_t)(LINES * k) * sizeof *values);
    uint16_t *lines = malloc((size_t)(LINES * pitch) * sizeof *lines);

    ck_assert(values && lines);
    x = view ? gpu_random_view(random, TSR_F32, 2, shape, &parent) : gpu_new(TSR_F32, 2, shape);
    for (int i = 0; i < LINES; i++)
        fill_row(random, i, k, values + i * k);
    if (special) {
        values[0] = INFINITY;
        values[k + k / 2] = -INFINITY;
        values[2 * k + k - 1] = NAN;
    }
    gpu_put(x, values);
    gpu_poison(y);
    GPU_OK(tsr__matmul_narrow_lines(queue, &(tsr__narrow_lines){.from = x,
                                                                .offset = x->layout.offset,
                                                                .line_stride = x->layout.strides[0],
                                                                .k_stride = x->layout.strides[1],
                                                                .lines = LINES,
                                                                .k = k,
                                                                .dtype = dtype,
                                                                .terms = terms,
                                                                .to = y->buffer}));
    GPU_OK(tsr_tensor_download(queue, y, lines, (uint64_t)(LINES * pitch) * sizeof *lines));
    for (int i = 0; i < LINES; i++)
        check_line(lines + i * pitch, values + i * k, k, dtype, terms);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&parent);
    tsr_tensor_destroy(&y);
    free(values);
    free(lines);
}

START_TEST(lines_of_f32)
{
    static const int64_t sizes[] = {1, 3, 8, 64, 70, 512, 513, 1100, 2048};
    gpu_random random = {21};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int d = 0; d < 2; d++)
            for (int view = 0; view < 2; view++)
                for (int special = 0; special < 2; special++) {
                    narrow_and_check(&random, sizes[i], sixteen[d], 1, view, special);
                    narrow_and_check(&random, sizes[i], sixteen[d], d == 0 ? 2 : 3, view, special);
                }
}
END_TEST

/* Lines of which the RMS norm is narrowed. */
START_TEST(lines_of_norms)
{
    static const int64_t sizes[] = {1, 7, 64, 513, 2048};
    gpu_random random = {23};

    for (int n = 0; n < 5; n++)
        for (uint32_t terms = 1; terms < 3; terms++) {
            const int64_t k = sizes[n], pitch = tsr__matmul_line_elements(k, terms);
            const tsr_dtype w_dtype = n % 2 ? TSR_F16 : TSR_F32;
            double *x = malloc((size_t)(LINES * k) * sizeof *x), *w = malloc((size_t)k * sizeof *w);
            uint16_t *lines = malloc((size_t)(LINES * pitch) * sizeof *lines);
            tsr_tensor *from = gpu_new(TSR_F32, 2, (int64_t[]){LINES, k}),
                       *weight = gpu_new(w_dtype, 1, &k),
                       *to = gpu_new(TSR_F16, 2, (int64_t[]){LINES, pitch});
            const tsr__matmul_norm norm = {.weight = weight, .epsilon = 1e-3F};
            ck_assert(x && w && lines);
            for (int64_t i = 0; i < LINES * k; i++)
                x[i] = gpu_rounded(ldexp(gpu_random_unit(&random), (int)(i / k) - 9), TSR_F32);
            for (int64_t i = 0; i < k; i++)
                w[i] = gpu_rounded(1 + gpu_random_unit(&random) / 2, w_dtype);
            gpu_put(from, x);
            gpu_put(weight, w);
            gpu_poison(to);
            GPU_OK(tsr__matmul_narrow_lines(queue, &(tsr__narrow_lines){.from = from,
                                                                        .line_stride = k,
                                                                        .k_stride = 1,
                                                                        .lines = LINES,
                                                                        .k = k,
                                                                        .dtype = TSR_F16,
                                                                        .terms = terms,
                                                                        .to = to->buffer,
                                                                        .norm = &norm}));
            GPU_OK(tsr_tensor_download(queue, to, lines, (uint64_t)(LINES * pitch) * 2));
            for (int line = 0; line < LINES; line++) {
                const uint16_t *got = lines + line * pitch;
                double squares = 0;
                float scale;
                memcpy(&scale, got + (int64_t)terms * ((k + 7) / 8 * 8), sizeof scale);
                for (int64_t i = 0; i < k; i++)
                    squares += x[line * k + i] * x[line * k + i];
                for (int64_t i = 0; i < k; i++) {
                    const double want =
                        x[line * k + i] * w[i] / sqrt(squares / (double)k + (double)norm.epsilon);
                    double sum = 0;
                    for (uint32_t t = 0; t < terms; t++)
                        sum += gpu_value(got[(int64_t)t * ((k + 7) / 8 * 8) + i], TSR_F16);
                    sum *= (double)scale;
                    const double error = terms == 1 ? 0x1p-10 : 0x1p-20;
                    ck_assert_msg(fabs(sum - want) <= error * fabs(want) + 0x1p-26,
                                  "line %d of %lld elements, %lld: %g, not %g", line, (long long)k,
                                  (long long)i, sum, want);
                }
            }
            tsr_tensor_destroy(&from);
            tsr_tensor_destroy(&weight);
            tsr_tensor_destroy(&to);
            free(x);
            free(w);
            free(lines);
        }
}
END_TEST

/* Lines of act(gate) · up, two halves of a tensor, have the bits of narrowed results of
 * tsr_activate, which on CPU drivers uses other kernels. With an odd size, up is not aligned to
 * vectors. */
START_TEST(lines_of_gates)
{
    static const int64_t sizes[] = {64, 513, 1100};
    const tsr__device_class device_class = gpu->traits.device_class;
    gpu_random random = {25};

    for (int n = 0; n < 3; n++)
        for (int i = 0; i < 3; i++) {
            const int64_t k = sizes[n];
            const uint32_t terms = i == 2 ? 1 : 2;
            const uint64_t count = LINES * (uint64_t)tsr__matmul_line_elements(k, terms);
            const tsr_activation activation = (tsr_activation)(TSR_ACT_SILU - i);
            tsr_tensor *both = gpu_new(TSR_F32, 2, (int64_t[]){LINES, 2 * k}), *gate, *up,
                       *activated = gpu_new(TSR_F32, 2, (int64_t[]){LINES, k}), *lines[2];
            double *x = malloc(LINES * 2 * (size_t)k * sizeof *x);
            uint16_t *got[2];
            ck_assert_ptr_nonnull(x);
            for (int64_t j = 0; j < LINES * 2 * k; j++)
                x[j] =
                    gpu_rounded(ldexp(gpu_random_unit(&random), (int)(j / (2 * k)) - 9), TSR_F32);
            gpu_put(both, x);
            GPU_OK(tsr_tensor_slice(both, 1, 0, k, 1, &gate));
            GPU_OK(tsr_tensor_slice(both, 1, k, 2 * k, 1, &up));
            tsr__device_treat_as(gpu, TSR__CLASS_GPU);
            GPU_OK(tsr_activate(queue, activated, gate, up, activation));
            tsr__device_treat_as(gpu, device_class);
            for (int gated = 0; gated < 2; gated++) {
                lines[gated] = gpu_new(TSR_F16, 1, (int64_t[]){(int64_t)count});
                got[gated] = malloc(count * sizeof **got);
                ck_assert_ptr_nonnull(got[gated]);
                gpu_poison(lines[gated]);
                GPU_OK(tsr__matmul_narrow_lines(
                    queue, &(tsr__narrow_lines){.from = gated ? gate : activated,
                                                .line_stride = gated ? 2 * k : k,
                                                .k_stride = 1,
                                                .lines = LINES,
                                                .k = k,
                                                .dtype = TSR_F16,
                                                .terms = terms,
                                                .to = lines[gated]->buffer,
                                                .gate = gated ? &(tsr__matmul_gate){up, activation}
                                                              : NULL}));
                GPU_OK(tsr_tensor_download(queue, lines[gated], got[gated], count * 2));
            }
            for (uint64_t j = 0; j < count; j++) {
                /* what follows the scale is not written */
                if (!gpu_is_swiftshader() &&
                    (int64_t)(j % (count / LINES)) < (int64_t)(count / LINES) - 6)
                    ck_assert_msg(got[0][j] == got[1][j], "element %d of %lld: %x, not %x", (int)j,
                                  (long long)k, got[1][j], got[0][j]);
            }
            /* SwiftShader's compiler changes the last bit of an activation from kernel to kernel.
             */
            const int64_t padded = (k + 7) / 8 * 8, each = (int64_t)count / LINES;
            for (int64_t j = 0; gpu_is_swiftshader() && j < LINES * k; j++) {
                double sums[2] = {0, 0};
                for (int64_t t = 0; t < (int64_t)terms; t++)
                    for (int gated = 0; gated < 2; gated++)
                        sums[gated] +=
                            gpu_value(got[gated][j / k * each + t * padded + j % k], TSR_F16);
                ck_assert_msg(fabs(sums[1] - sums[0]) <=
                                  (terms == 1 ? 0x1p-9 : 0x1p-18) * fabs(sums[0]) + 0x1p-8,
                              "element %d of %lld: %g, not %g", (int)j, (long long)k, sums[1],
                              sums[0]);
            }
            tsr_tensor *all[] = {lines[0], lines[1], activated, up, gate, both};
            for (int j = 0; j < 6; j++)
                tsr_tensor_destroy(&all[j]);
            free(got[0]);
            free(got[1]);
            free(x);
        }
}
END_TEST

/* Blocks whose scales are from the smallest to the largest f16. */
static uint8_t *blocks_of(gpu_random *random, const tsr_quant_format *format, int64_t lines,
                          int64_t k, float *values, uint64_t *bytes)
{
    ck_assert_ok(tsr_quant_bytes(format->dtype, lines * k, bytes));
    uint8_t *blocks = malloc((size_t)*bytes);
    ck_assert_ptr_nonnull(blocks);
    float *source = malloc((size_t)(lines * k) * sizeof *source);
    ck_assert_ptr_nonnull(source);
    for (int64_t i = 0; i < lines * k; i++)
        source[i] = (float)ldexp(gpu_random_unit(random), (int)(i / k * 4 - 40) / 2);
    ck_assert_ok(tsr_quantize(format->dtype, source, lines * k, blocks, *bytes));
    free(source);
    ck_assert_ok(tsr_dequantize(format->dtype, blocks, *bytes, values, lines * k));
    return blocks;
}

static const tsr_dtype formats[] = {TSR_Q8_0, TSR_Q4_0, TSR_Q4_K, TSR_Q5_K, TSR_Q6_K, TSR_MXFP4};
#define FORMATS ((int)(sizeof formats / sizeof *formats))

/* The loop variable is the format. */
START_TEST(lines_of_blocks)
{
    const tsr_quant_format *format = tsr_quant_format_of(formats[_i]);
    gpu_random random = {(uint64_t)_i + 22};
    const int64_t k = 768, shape[2] = {LINES, k};
    float *values = malloc(LINES * (size_t)k * sizeof *values);
    double *row = malloc((size_t)k * sizeof *row);
    ck_assert(values && row);
    if (!format->quantizes) {
        free(values);
        free(row);
        return;
    }
    uint64_t bytes = 0;
    uint8_t *blocks = blocks_of(&random, format, LINES, k, values, &bytes);
    tsr_tensor *x = gpu_new(format->dtype, 2, shape);
    GPU_OK(tsr_tensor_upload(queue, x, blocks, bytes));
    for (int d = 0; d < 2; d++)
        for (uint32_t terms = 1; terms < 4; terms++) {
            if (terms == (d == 0 ? 3 : 2))
                continue;
            const int64_t pitch = tsr__matmul_line_elements(k, terms);
            tsr_tensor *y = gpu_new(sixteen[d], 2, (int64_t[]){LINES, pitch});
            uint16_t *lines = malloc(LINES * (size_t)pitch * sizeof *lines);
            ck_assert_ptr_nonnull(lines);
            gpu_poison(y);
            GPU_OK(tsr__matmul_narrow_lines(queue, &(tsr__narrow_lines){.from = x,
                                                                        .line_stride = k,
                                                                        .k_stride = 1,
                                                                        .lines = LINES,
                                                                        .k = k,
                                                                        .dtype = sixteen[d],
                                                                        .terms = terms,
                                                                        .to = y->buffer}));
            GPU_OK(tsr_tensor_download(queue, y, lines, LINES * (uint64_t)pitch * sizeof *lines));
            for (int i = 0; i < LINES; i++) {
                for (int64_t j = 0; j < k; j++)
                    row[j] = (double)values[i * k + j];
                check_line(lines + i * pitch, row, k, sixteen[d], terms);
            }
            free(lines);
            tsr_tensor_destroy(&y);
        }
    tsr_tensor_destroy(&x);
    free(blocks);
    free(values);
    free(row);
}
END_TEST

TESTS(narrowed_lines)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, lines_of_f32);
    tcase_add_test(tests, lines_of_norms);
    tcase_add_test(tests, lines_of_gates);
    tcase_add_loop_test(tests, lines_of_blocks, 0, FORMATS);
}

/* Products ------------------------------------------------------------------------------------- */

/* With two terms of a and of b, the tiles of coopmat-m exceed the 32 KiB of shared memory that
 * lavapipe has, so that it makes several passes. */
static const char *const kernels[] = {"coopmat-s", "coopmat-m"};
#define KERNELS ((int)(sizeof kernels / sizeof *kernels))

/* Returns whether the device can run kernel `i` for terms of `dtype`. */
static bool runs(int i, tsr_dtype dtype)
{
    const tsr__matmul_device device = tsr__matmul_device_of(gpu);

    return tsr__matmul_fragment_for(tsr__matmul_config_named(kernels[i]), &device, dtype).m > 0;
}

static void setup(void)
{
    gpu_setup();
    if (!runs(0, TSR_F16))
        printf("# %s: no cooperative matrices, so products of narrowed operands are not tested\n",
               gpu->info.name);
    fflush(stdout);
}

/* Runs a case with all kernels that can compute it. */
static void run_all(gpu_random *random, tsr_dtype dtype, uint32_t splits, const matmul_case *c)
{
    for (int i = 0; i < KERNELS; i++)
        if (runs(i, dtype)) {
            force_both(kernels[i], splits);
            run_case(random, c);
            forced = NULL;
        }
}

/* The dtypes of a and b, and that of the terms. */
static const tsr_dtype pairs[][3] = {{TSR_F32, TSR_F16, TSR_F16},
                                     {TSR_F32, TSR_BF16, TSR_BF16},
                                     {TSR_F32, TSR_F32, TSR_F16},
                                     {TSR_F16, TSR_F32, TSR_F16}};
#define PAIRS ((int)(sizeof pairs / sizeof *pairs))

static matmul_case narrowed_case(int pair, int64_t m, int64_t k, int64_t n, tsr_precision precision)
{
    matmul_case c = plain_case(m, k, n);

    c.a = pairs[pair][0];
    c.b = pairs[pair][1];
    c.transpose_b = true;
    c.precision = precision;
    return c;
}

/* The loop variable is the pair of dtypes. */
START_TEST(shapes_and_transpositions)
{
    static const int64_t shapes[][3] = {{33, 7, 40}, {65, 33, 63}, {130, 200, 132}};
    gpu_random random = {(uint64_t)_i + 31};

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int t = 0; t < 4; t++) { /* both of a and b are transposed in TSR_PRECISION_MEDIUM */
            matmul_case c =
                narrowed_case(_i, shapes[i][0], shapes[i][1], shapes[i][2], precisions[t == 3]);
            c.transpose_a = t & 1;
            c.transpose_b = t != 2;
            run_all(&random, pairs[_i][2], 1, &c);
        }
}
END_TEST

START_TEST(views_epilogues_and_ranges)
{
    static const tsr_dtype dtypes[] = {TSR_F32, TSR_F16, TSR_BF16};
    gpu_random random = {(uint64_t)_i + 41};

    for (int act = TSR_ACT_NONE; act <= TSR_ACT_SILU; act += TSR_ACT_SILU)
        for (int i = 0; i < 3; i++) {
            matmul_case c = narrowed_case(_i, 45, 300 + i, 70, precisions[i == 1]);
            c.activation = (tsr_activation)act;
            c.y = dtypes[i];
            c.alpha = i & 1 ? -0.5f : 0;
            c.accumulate = (i + (act != 0)) & 1;
            c.bias = dtypes[(i + act) % 3];
            c.bias_shape = i & 2 ? (batch_shape){2, {45, 1}} : (batch_shape){1, {70}};
            c.views = i == 2;
            run_all(&random, pairs[_i][2], 1 + (uint32_t)(act + i) % 3, &c);
        }
}
END_TEST

/* Rows of all kinds, among them with infinities and NaN, which must not change other rows. */
START_TEST(rows_of_all_kinds)
{
    enum { M = 48, K = 144, N = 40 };
    const tsr_dtype dtype = sixteen[_i];
    gpu_random random = {(uint64_t)_i + 51};
    double *x = malloc(M * K * sizeof *x), *w = malloc(N * K * sizeof *w);
    double *got = malloc(M * N * sizeof *got);
    tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){M, K}),
               *b = gpu_new(dtype, 2, (int64_t[]){N, K});
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){M, N});

    for (int row = 0; row < M; row++)
        fill_row(&random, row, K, x + row * K);
    for (int i = 0; i < N * K; i++)
        w[i] = gpu_rounded(gpu_random_unit(&random) / 64, dtype);
    x[9 * K + 3] = INFINITY;
    x[20 * K + 5] = NAN;
    gpu_put(a, x);
    gpu_put(b, w);
    for (int kernel = 0; kernel < 2 * KERNELS; kernel++) {
        const bool high = kernel >= KERNELS;
        if (!runs(kernel % KERNELS, dtype))
            continue;
        force(kernels[kernel % KERNELS]);
        gpu_poison(y);
        GPU_OK(
            forced_matmul(queue, y, a, b,
                          tsr_matmul_params(.transpose_b = true, .precision = precisions[!high])));
        forced = NULL;
        gpu_get(y, got);
        for (int row = 0; row < M; row++)
            for (int col = 0; col < N; col++) {
                double sum = 0, magnitude = 0, of_largest = 0, value = got[row * N + col];
                const double most = largest_in(x + row * K, K);
                for (int k = 0; k < K; k++) {
                    sum += x[row * K + k] * w[col * K + k];
                    magnitude += fabs(x[row * K + k] * w[col * K + k]);
                    of_largest += fabs(w[col * K + k]) * most;
                }
                const double own = high ? 0x1p-22 : dtype == TSR_F16 ? 0x1p-11 : 0x1p-8;
                const double error = (own + (K + 4) * 0x1p-24) * magnitude + 0x1p-28 * of_largest;
                if (row == 9)
                    ck_assert(isinf(value) && (value > 0) == (w[col * K + 3] > 0));
                else if (row == 20)
                    ck_assert(isnan(value));
                else
                    ck_assert_msg(fabs(value - sum) <= error + 0x1p-126,
                                  "%s: row %d, column %d is %g, not %g ± %g",
                                  kernels[kernel % KERNELS], row, col, value, sum, error);
            }
    }
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&y);
    free(x);
    free(w);
    free(got);
}
END_TEST

/* Products with weights in blocks, whose rows have scales of their own. The loop variable is the
 * format. */
START_TEST(weights_in_blocks)
{
    enum { M = 70, K = 512, N = LINES };
    const tsr_quant_format *format = tsr_quant_format_of(formats[_i]);
    gpu_random random = {(uint64_t)_i + 61};
    float *w = malloc(N * K * sizeof *w);
    double *x = malloc(M * K * sizeof *x), *got = malloc(M * N * sizeof *got);
    double *bias_values = malloc(N * sizeof *bias_values);

    ck_assert(w && x && got && bias_values);
    if (format->quantizes && runs(0, TSR_F16)) {
        uint64_t bytes = 0;
        uint8_t *blocks = blocks_of(&random, format, N, K, w, &bytes);
        tsr_tensor *a = gpu_new(TSR_F32, 2, (int64_t[]){M, K});
        tsr_tensor *b = gpu_new(format->dtype, 2, (int64_t[]){N, K});
        tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){M, N});
        tsr_tensor *bias = gpu_new(TSR_F32, 1, (int64_t[]){N});
        for (int i = 0; i < M * K; i++)
            x[i] = gpu_rounded(gpu_random_unit(&random), TSR_F32);
        for (int i = 0; i < N; i++)
            bias_values[i] = gpu_rounded(gpu_random_unit(&random), TSR_F32);
        gpu_put(a, x);
        gpu_put(bias, bias_values);
        GPU_OK(tsr_tensor_upload(queue, b, blocks, bytes));
        free(blocks);
        for (int i = 0; i < 2; i++) {
            const double own = precisions[i] == TSR_PRECISION_HIGH ? 3 * 0x1p-22 : 2.01 * 0x1p-11;
            force(kernels[0]);
            gpu_poison(y);
            GPU_OK(forced_matmul(
                queue, y, a, b,
                tsr_matmul_params(.transpose_b = true, .bias = bias, .precision = precisions[i])));
            forced = NULL;
            gpu_get(y, got);
            for (int row = 0; row < M; row++)
                for (int col = 0; col < N; col++) {
                    double sum = bias_values[col], magnitude = fabs(sum), of_largest = 0, most = 0;
                    for (int k = 0; k < K; k++)
                        most = fmax(most, fabs((double)w[col * K + k]));
                    for (int k = 0; k < K; k++) {
                        const double p = x[row * K + k] * (double)w[col * K + k];
                        sum += p;
                        magnitude += fabs(p);
                        of_largest += fabs(x[row * K + k]) * most + fabs((double)w[col * K + k]);
                    }
                    const double error =
                        (own + (K + 4) * 0x1p-24) * magnitude + 0x1p-28 * of_largest;
                    ck_assert_msg(fabs(got[row * N + col] - sum) <= error,
                                  "%s: row %d, column %d is %g, not %g ± %g", format->name, row,
                                  col, got[row * N + col], sum, error);
                }
        }
        tsr_tensor_destroy(&a);
        tsr_tensor_destroy(&b);
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&bias);
    }
    free(w);
    free(x);
    free(got);
    free(bias_values);
}
END_TEST

START_TEST(refusals)
{
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){40, 40});
    tsr_tensor *y = gpu_new(TSR_F32, 2, (int64_t[]){40, 40});

    GPU_FAILS(tsr_matmul(queue, y, x, x, tsr_matmul_params(.precision = (tsr_precision)4)),
              TSR_ERR_INVALID, "matmul: unknown precision 4");
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&y);
}
END_TEST

TESTS(narrowed_products)
{
    tcase_add_checked_fixture(tests, setup, gpu_teardown);
    tcase_add_loop_test(tests, shapes_and_transpositions, 0, PAIRS);
    tcase_add_loop_test(tests, views_epilogues_and_ranges, 0, PAIRS);
    tcase_add_loop_test(tests, rows_of_all_kinds, 0, 2);
    tcase_add_loop_test(tests, weights_in_blocks, 0, FORMATS);
    tcase_add_test(tests, refusals);
}
