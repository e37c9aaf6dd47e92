/* Compares rotary position embedding and its gradient with PyTorch's results in tests/data, and
 * with double precision for random shapes, views, dtypes and positions. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/fault.h"
#include "gpu/ops/rope/rope.h"
#include "support/check_main.h"
#include "support/golden.h"
#include "support/golden_tensor.h"
#include "support/gpu.h"

static const tsr_dtype floats[] = {TSR_F32, TSR_F16, TSR_BF16};

/* Returns half a unit in the last place, as a fraction of the value. */
static double half_unit(tsr_dtype dtype)
{
    return dtype == TSR_F32 ? 0x1p-24 : dtype == TSR_F16 ? 0x1p-11 : 0x1p-8;
}

static double *doubles(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

/* Comparison with PyTorch -------------------------------------------------------------------- */

static double number(const json_t *object, const char *name)
{
    return strtod(golden_text(object, name), NULL);
}

static double optional(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return value == NULL ? 0 : json_number_value(value);
}

static tsr_rope_params params_of(const json_t *one)
{
    tsr_rope_params params = {
        .struct_size = sizeof params,
        .rotary_dim = golden_integer(one, "rotary_dim"),
        .pairing = strcmp(golden_text(one, "pairing"), "halves") == 0 ? TSR_ROPE_HALVES
                                                                      : TSR_ROPE_ADJACENT,
        .theta = number(one, "theta"),
    };
    const json_t *scaling = golden_member(one, "scaling");
    if (json_is_null(scaling))
        return params;
    const char *type = golden_text(scaling, "type");
    params.scaling = strcmp(type, "linear") == 0   ? TSR_ROPE_SCALING_LINEAR
                     : strcmp(type, "llama3") == 0 ? TSR_ROPE_SCALING_LLAMA3
                                                   : TSR_ROPE_SCALING_YARN;
    params.factor = optional(scaling, "factor");
    params.original_length = optional(scaling, "original_max_position_embeddings");
    params.low_frequency_factor = optional(scaling, "low_freq_factor");
    params.high_frequency_factor = optional(scaling, "high_freq_factor");
    params.beta_fast = optional(scaling, "beta_fast");
    params.beta_slow = optional(scaling, "beta_slow");
    params.attention_factor = optional(scaling, "attention_factor");
    return params;
}

static void check_frequencies(const json_t *one, const tsr_rope_params *params)
{
    golden_tensor want = golden_tensor_load(one, "inv_freq");
    double *got = doubles(want.count);
    tsr_rope_params complete;
    GPU_OK(tsr__rope_params_complete(params, &complete));
    ck_assert_int_eq(want.count, params->rotary_dim / 2);
    tsr__rope_frequencies(&complete, got);
    for (int64_t i = 0; i < want.count; i++)
        if (!(fabs(got[i] - want.values[i]) <= 1e-14 * want.values[i]))
            ck_abort_msg("%s: frequency %d is %.17g, not %.17g", golden_text(one, "name"), (int)i,
                         got[i], want.values[i]);
    ck_assert_double_eq_tol(complete.attention_factor, number(one, "attention_factor"), 1e-14);
    free(got);
    golden_tensor_free(&want);
}

typedef tsr_status turning(tsr_stream *, const tsr_rope *, tsr_tensor *, const tsr_tensor *,
                           const tsr_tensor *);

/* Checks the rotation or its gradient: `in` [B,T,H,D] of the file must give `out`. */
static void check_direction(const json_t *one, const tsr_rope *rope, turning *turn,
                            const tsr_tensor *positions, const char *in_name, const char *out_name)
{
    golden_tensor in = golden_tensor_load(one, in_name), out = golden_tensor_load(one, out_name);
    double *got = doubles(out.count), most = 0;
    tsr_tensor *x = gpu_new(TSR_F32, 4, in.shape), *y = gpu_new(TSR_F32, 4, in.shape), *xt, *yt;
    gpu_put(x, in.values);
    gpu_poison(y);
    GPU_OK(tsr_tensor_transpose(x, 1, 2, &xt)); /* [B,H,T,D], to which positions [T] broadcast */
    GPU_OK(tsr_tensor_transpose(y, 1, 2, &yt));
    GPU_OK(turn(queue, rope, yt, xt, positions));
    gpu_get(y, got);
    for (int64_t i = 0; i < out.count; i++)
        most = fmax(most, fabs(out.values[i]));
    for (int64_t i = 0; i < out.count; i++)
        if (!(fabs(got[i] - out.values[i]) <= 3e-7 * most))
            ck_abort_msg("%s: %s[%d] is %.9g, not %.9g", golden_text(one, "name"), out_name, (int)i,
                         got[i], out.values[i]);
    tsr_tensor *tensors[] = {yt, xt, y, x};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&tensors[i]);
    free(got);
    golden_tensor_free(&out);
    golden_tensor_free(&in);
}

START_TEST(agrees_with_pytorch)
{
    json_t *document = golden_load("rope"), *one;
    size_t index, i;
    ck_assert_int_eq((int)json_array_size(golden_list(document, "cases")), 44);
    json_array_foreach(golden_list(document, "cases"), index, one)
    {
        const tsr_rope_params params = params_of(one);
        const json_t *list = golden_list(one, "positions"), *position;
        const int64_t length = (int64_t)json_array_size(list);
        double *places = doubles(length);
        json_array_foreach(list, i, position) places[i] = json_number_value(position);
        tsr_tensor *positions = gpu_new(TSR_I32, 1, &length);
        gpu_put(positions, places);
        check_frequencies(one, &params);
        tsr_rope *rope;
        GPU_OK(tsr_rope_create(queue, &params, &rope));
        check_direction(one, rope, tsr_rope_apply, positions, "x", "y");
        check_direction(one, rope, tsr_rope_grad, positions, "dy", "dx");
        tsr_rope_destroy(&rope);
        ck_assert_ptr_null(rope);
        tsr_tensor_destroy(&positions);
        free(places);
    }
    json_decref(document);
}
END_TEST

/* Comparison with double precision ----------------------------------------------------------- */

/* Computes the rotation of `rows` rows of `width` components; row r has position places[r].
 * `scales` gets, for each component, the sum of the absolute values of the two terms, to which
 * errors are relative. */
static void expected(const tsr_rope_params *params, bool back, int64_t rows, int64_t width,
                     const double *places, const double *x, double *y, double *scales)
{
    tsr_rope_params complete;
    double *frequencies = doubles(params->rotary_dim / 2);
    GPU_OK(tsr__rope_params_complete(params, &complete));
    tsr__rope_frequencies(&complete, frequencies);
    memcpy(y, x, (size_t)(rows * width) * sizeof *y);
    for (int64_t i = 0; i < rows * width; i++)
        scales[i] = fabs(x[i]);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < params->rotary_dim / 2; i++) {
            const bool adjacent = params->pairing == TSR_ROPE_ADJACENT;
            const int64_t first = r * width + (adjacent ? 2 * i : i);
            const int64_t second = first + (adjacent ? 1 : params->rotary_dim / 2);
            const double angle = places[r] * frequencies[i] * (back ? -1 : 1);
            const double m = complete.attention_factor;
            y[first] = m * (x[first] * cos(angle) - x[second] * sin(angle));
            y[second] = m * (x[first] * sin(angle) + x[second] * cos(angle));
            scales[first] = scales[second] = m * (fabs(x[first]) + fabs(x[second]));
        }
    free(frequencies);
}

static void compare(int64_t count, const double *got, const double *want, const double *scales,
                    tsr_dtype dtype)
{
    for (int64_t i = 0; i < count; i++) {
        const double limit = half_unit(dtype) * fabs(want[i]) + 2.5e-7 * scales[i] +
                             (dtype == TSR_F16 ? 0x1p-25 : 0);
        if (!(fabs(got[i] - want[i]) <= limit))
            ck_abort_msg("element %d of %d (%s) is %.9g, not %.9g, among numbers of %.3g", (int)i,
                         (int)count, tsr_dtype_name(dtype), got[i], want[i], scales[i]);
    }
}

static tsr_rope_params random_params(gpu_random *random)
{
    tsr_rope_params params = {
        .struct_size = sizeof params,
        .rotary_dim = 2 * gpu_random_between(random, 1, 20),
        .pairing = (tsr_rope_pairing)gpu_random_between(random, 0, 1),
        .theta = gpu_random_between(random, 0, 1) ? 0 : 500000,
        .scaling = (tsr_rope_scaling)gpu_random_between(random, 0, 3),
        .factor = (double)gpu_random_between(random, 1, 9),
        .original_length = 128,
    };
    if (gpu_random_between(random, 0, 2) == 0)
        params.rotary_dim = 8 * gpu_random_between(random, 1, 6);
    return params;
}

/* Makes random positions, in a quarter of the cases as large as i32 allows. Even then the error of
 * the angle in double precision is small. */
static void random_positions(gpu_random *random, double *places, int64_t count)
{
    const int64_t most = gpu_random_between(random, 0, 3) == 0 ? INT32_MAX : 3000;
    for (int64_t i = 0; i < count; i++)
        places[i] = (double)gpu_random_between(random, -most - 1, most);
}

/* Rotates random views. `positions` has the sizes of x's leading dimensions, or sizes of 1, or
 * fewer dimensions. */
static void try_views(gpu_random *random, bool in_place, bool back)
{
    const tsr_rope_params params = random_params(random);
    int64_t shape[6], place_shape[6], rows = 1, place_count = 1;
    const int ndim = (int)gpu_random_between(random, 2, 6);
    const int place_ndim = (int)gpu_random_between(random, 1, ndim - 1);
    for (int d = 0; d + 1 < ndim; d++) {
        shape[d] =
            gpu_random_between(random, gpu_random_between(random, 0, 9) > 0, ndim < 4 ? 9 : 3);
        rows *= shape[d];
    }
    const int64_t width = shape[ndim - 1] =
        params.rotary_dim + gpu_random_between(random, 0, 1) * 3;
    for (int d = 0; d < place_ndim; d++) {
        const int64_t size = shape[ndim - 1 - place_ndim + d];
        place_shape[d] = gpu_random_between(random, 0, 2) ? size : 1;
        place_count *= place_shape[d];
    }
    const tsr_dtype x_dtype = floats[gpu_random_between(random, 0, 2)],
                    y_dtype = in_place ? x_dtype : floats[gpu_random_between(random, 0, 2)];
    tsr_tensor *parents[3],
        *x = gpu_random_view(random, x_dtype, ndim, shape, &parents[0]), *y,
        *positions = gpu_random_view(random, TSR_I32, place_ndim, place_shape, &parents[1]);
    y = in_place ? x : gpu_random_view(random, y_dtype, ndim, shape, &parents[2]);
    double *in = doubles(rows * width), *want = doubles(rows * width), *got = doubles(rows * width);
    double *scales = doubles(rows * width), *places = doubles(place_count), *all = doubles(rows);
    for (int64_t i = 0; i < rows * width; i++)
        in[i] = gpu_rounded(4 * gpu_random_unit(random), x_dtype);
    random_positions(random, places, place_count);
    gpu_put(x, in);
    gpu_put(positions, places);
    for (int64_t r = 0; r < rows; r++) {
        int64_t rest = r, at = 0, step = 1;
        for (int d = place_ndim - 1; d >= 0; d--) {
            const int64_t size = shape[ndim - 1 - place_ndim + d];
            at += place_shape[d] == 1 ? 0 : rest % size * step;
            step *= place_shape[d];
            rest /= size;
        }
        all[r] = places[at];
    }
    expected(&params, back, rows, width, all, in, want, scales);

    tsr_rope *rope;
    GPU_OK(tsr_rope_create(queue, &params, &rope));
    if (back)
        GPU_OK(tsr_rope_grad(queue, rope, y, x, positions));
    else
        GPU_OK(tsr_rope_apply(queue, rope, y, x, positions));
    tsr_rope_destroy(&rope); /* recorded work is still executed */
    gpu_get(y, got);
    compare(rows * width, got, want, scales, y_dtype);

    if (!in_place) {
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&parents[2]);
    }
    tsr_tensor *tensors[] = {x, positions, parents[0], parents[1]};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&tensors[i]);
    double *numbers[] = {in, want, got, scales, places, all};
    for (int i = 0; i < 6; i++)
        free(numbers[i]);
}

START_TEST(turns_views_of_any_layout)
{
    gpu_random random = {(uint64_t)_i + 1};
    for (int n = 0; n < 40; n++)
        try_views(&random, n % 3 == 0, n % 2 != 0);
}
END_TEST

/* Rotates queries and keys in place that are parts of one product's output, as in models. */
START_TEST(turns_a_part_of_a_product_in_place)
{
    enum { BATCH = 2, LENGTH = 5, HEADS = 6, WIDTH = 16, TURNED = 4 };
    const int64_t shape[] = {BATCH, LENGTH, HEADS, WIDTH}, length = LENGTH;
    const tsr_rope_params params = {.struct_size = sizeof params, .rotary_dim = WIDTH};
    const int64_t count = BATCH * LENGTH * HEADS * WIDTH;
    double *in = doubles(count), *got = doubles(count), *want = doubles(count),
           *scales = doubles(count), places[LENGTH], rows[BATCH * LENGTH * HEADS];
    gpu_random random = {7};
    for (int64_t i = 0; i < count; i++)
        in[i] = gpu_rounded(gpu_random_unit(&random), TSR_F32);
    for (int i = 0; i < LENGTH; i++)
        places[i] = 11 + i;
    for (int i = 0; i < BATCH * LENGTH * HEADS; i++)
        rows[i] = i % HEADS < TURNED ? places[i / HEADS % LENGTH] : 0;
    expected(&params, false, BATCH * LENGTH * HEADS, WIDTH, rows, in, want, scales);
    tsr_tensor *all = gpu_new(TSR_F32, 4, shape), *turned, *view,
               *positions = gpu_new(TSR_I32, 1, &length);
    gpu_put(all, in);
    gpu_put(positions, places);
    GPU_OK(tsr_tensor_slice(all, 2, 0, TURNED, 1, &turned));
    GPU_OK(tsr_tensor_transpose(turned, 1, 2, &view));
    tsr_rope *rope;
    GPU_OK(tsr_rope_create(queue, &params, &rope));
    GPU_OK(tsr_rope_apply(queue, rope, view, view, positions));
    gpu_get(all, got);
    compare(count, got, want, scales, TSR_F32);
    GPU_OK(tsr_rope_grad(queue, rope, view, view, positions));
    gpu_get(all, got);
    compare(count, got, in, scales, TSR_F32);
    tsr_rope_destroy(&rope);
    tsr_tensor *tensors[] = {view, turned, all, positions};
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&tensors[i]);
    double *numbers[] = {in, got, want, scales};
    for (int i = 0; i < 4; i++)
        free(numbers[i]);
}
END_TEST

/* Many heads and a long sequence need several workgroups, of which the last one is partial. */
START_TEST(turns_many_rows)
{
    const int64_t shape[] = {3, 7, 131, 48}, length = 131, count = INT64_C(3) * 7 * 131 * 48;
    const tsr_rope_params params = {
        .struct_size = sizeof params, .rotary_dim = 40, .pairing = (tsr_rope_pairing)_i};
    double *in = doubles(count), *got = doubles(count), *want = doubles(count),
           *scales = doubles(count), *places = doubles(length), *rows = doubles(3 * 7 * length);
    gpu_random random = {9};
    for (int64_t i = 0; i < count; i++)
        in[i] = gpu_rounded(gpu_random_unit(&random), TSR_F32);
    random_positions(&random, places, length);
    for (int64_t i = 0; i < 3 * 7 * length; i++)
        rows[i] = places[i % length];
    expected(&params, false, 3 * 7 * length, 48, rows, in, want, scales);
    tsr_tensor *x = gpu_new(TSR_F32, 4, shape), *y = gpu_new(TSR_F32, 4, shape),
               *positions = gpu_new(TSR_I32, 1, &length);
    gpu_put(x, in);
    gpu_put(positions, places);
    gpu_poison(y);
    tsr_rope *rope;
    GPU_OK(tsr_rope_create(queue, &params, &rope));
    GPU_OK(tsr_rope_apply(queue, rope, y, x, positions));
    gpu_get(y, got);
    compare(count, got, want, scales, TSR_F32);
    tsr_rope_destroy(&rope);
    tsr_tensor *tensors[] = {x, y, positions};
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&tensors[i]);
    double *numbers[] = {in, got, want, scales, places, rows};
    for (int i = 0; i < 6; i++)
        free(numbers[i]);
}
END_TEST

/* Refused calls ------------------------------------------------------------------------------ */

START_TEST(refuses_params)
{
    struct {
        tsr_rope_params params;
        const char *words;
    } wrong[] = {
        {{.rotary_dim = 0}, "rotary_dim is 0; an even number from 2 to 65536"},
        {{.rotary_dim = 7}, "rotary_dim is 7"},
        {{.rotary_dim = 65538}, "rotary_dim is 65538"},
        {{.rotary_dim = 8, .pairing = (tsr_rope_pairing)2}, "unknown pairing 2"},
        {{.rotary_dim = 8, .scaling = (tsr_rope_scaling)5}, "unknown scaling 5"},
        {{.rotary_dim = 8, .theta = -1}, "theta is -1; it must be above 0"},
        {{.rotary_dim = 8, .theta = INFINITY}, "theta is inf"},
        {{.rotary_dim = 8, .scaling = TSR_ROPE_SCALING_LINEAR}, "factor is 0"},
        {{.rotary_dim = 8, .scaling = TSR_ROPE_SCALING_LINEAR, .factor = NAN}, "factor is "},
        {{.rotary_dim = 8, .scaling = TSR_ROPE_SCALING_LLAMA3, .factor = 8},
         "original_length is 0; it must be at least 1"},
        {{.rotary_dim = 8,
          .scaling = TSR_ROPE_SCALING_LLAMA3,
          .factor = 8,
          .original_length = 8,
          .low_frequency_factor = 5},
         "high_frequency_factor is 4; it must be above low_frequency_factor, 5"},
        {{.rotary_dim = 8,
          .scaling = TSR_ROPE_SCALING_LLAMA3,
          .factor = 8,
          .low_frequency_factor = -1},
         "low_frequency_factor is -1"},
        {{.rotary_dim = 8, .scaling = TSR_ROPE_SCALING_YARN, .factor = 8, .theta = 1},
         "theta is 1; YARN needs one above 1"},
        {{.rotary_dim = 8, .scaling = TSR_ROPE_SCALING_YARN, .factor = 8, .beta_slow = 64},
         "beta_fast is 32; it must be at least beta_slow, 64"},
        {{.rotary_dim = 8, .scaling = TSR_ROPE_SCALING_YARN, .factor = 8, .beta_slow = -1},
         "beta_slow is -1"},
        {{.rotary_dim = 8, .scaling = TSR_ROPE_SCALING_YARN, .factor = 8, .attention_factor = -1},
         "attention_factor is -1"},
        {{.rotary_dim = 8, .scaling = TSR_ROPE_SCALING_YARN, .factor = 8}, "original_length is 0"},
        {{.rotary_dim = 8, .scaling = TSR_ROPE_SCALING_DIVISORS}, "divisors is NULL"},
        {{.rotary_dim = 8, .scaling = TSR_ROPE_SCALING_DIVISORS, .divisors = (float[]){1, 2, 0, 1}},
         "divisors[2] is 0; it must be above 0"},
        {{.rotary_dim = 8,
          .scaling = TSR_ROPE_SCALING_DIVISORS,
          .divisors = (float[]){1, 2, 3, 4},
          .attention_factor = -1},
         "attention_factor is -1"},
    };
    tsr_rope *rope = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong[i].params.struct_size = sizeof wrong[i].params;
        GPU_FAILS(tsr_rope_create(queue, &wrong[i].params, &rope), TSR_ERR_INVALID, wrong[i].words);
    }
    GPU_FAILS(tsr_rope_create(NULL, &wrong[0].params, &rope), TSR_ERR_INVALID, "stream is NULL");
    GPU_FAILS(tsr_rope_create(queue, NULL, &rope), TSR_ERR_INVALID, "params is NULL");
    GPU_FAILS(tsr_rope_create(queue, &wrong[0].params, NULL), TSR_ERR_INVALID, "out is NULL");
    ck_assert_ptr_null(rope);
    tsr_rope_destroy(&rope);
    tsr_rope_destroy(NULL);
}
END_TEST

START_TEST(refuses_tensors)
{
    const int64_t shape[] = {2, 3, 8}, narrow_shape[] = {2, 3, 6}, line = 8, length = 3, other = 4;
    tsr_tensor *x = gpu_new(TSR_F32, 3, shape), *narrow = gpu_new(TSR_F32, 3, narrow_shape),
               *row = gpu_new(TSR_F32, 1, &line), *whole = gpu_new(TSR_I32, 3, shape),
               *places = gpu_new(TSR_I32, 1, &length), *reals = gpu_new(TSR_F32, 1, &length),
               *four = gpu_new(TSR_I32, 1, &other), *shifted, *first, *repeated;
    double values[48], got[48];
    for (int i = 0; i < 48; i++)
        values[i] = i;
    gpu_put(x, values);
    GPU_OK(tsr_tensor_slice(x, 1, 0, 2, 1, &first));
    GPU_OK(tsr_tensor_slice(x, 1, 1, 3, 1, &shifted));
    GPU_OK(tsr_tensor_broadcast(row, 3, shape, &repeated));
    tsr_rope *rope;
    GPU_OK(tsr_rope_create(queue, tsr_rope_params(.rotary_dim = 8), &rope));
    GPU_FAILS(tsr_rope_apply(queue, NULL, x, x, places), TSR_ERR_INVALID,
              "rope_apply: rope is NULL");
    GPU_FAILS(tsr_rope_apply(queue, rope, NULL, x, places), TSR_ERR_INVALID, "y is NULL");
    GPU_FAILS(tsr_rope_grad(queue, rope, NULL, x, places), TSR_ERR_INVALID,
              "rope_grad: dx is NULL");
    GPU_FAILS(tsr_rope_grad(queue, rope, x, NULL, places), TSR_ERR_INVALID, "dy is NULL");
    GPU_FAILS(tsr_rope_apply(queue, rope, x, x, NULL), TSR_ERR_INVALID, "positions is NULL");
    GPU_FAILS(tsr_rope_apply(queue, rope, x, whole, places), TSR_ERR_INVALID,
              "x is i32; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_rope_apply(queue, rope, whole, x, places), TSR_ERR_INVALID, "y is i32");
    GPU_FAILS(tsr_rope_apply(queue, rope, x, x, reals), TSR_ERR_INVALID,
              "positions are f32; i32 is needed");
    GPU_FAILS(tsr_rope_apply(queue, rope, x, narrow, places), TSR_ERR_INVALID, "[2,3,6]");
    GPU_FAILS(tsr_rope_apply(queue, rope, narrow, narrow, places), TSR_ERR_INVALID,
              "x is [2,3,6]; at least 2 dimensions are needed, and a last one of at least "
              "rotary_dim, 8");
    GPU_FAILS(tsr_rope_apply(queue, rope, row, row, places), TSR_ERR_INVALID, "x is [8]");
    GPU_FAILS(tsr_rope_apply(queue, rope, x, x, four), TSR_ERR_INVALID,
              "positions [4] does not broadcast to the rows of x [2,3]");
    GPU_FAILS(tsr_rope_apply(queue, rope, shifted, first, places), TSR_ERR_INVALID, "overlap");
    GPU_FAILS(tsr_rope_apply(queue, rope, repeated, x, places), TSR_ERR_INVALID, "more than once");
    gpu_get(x, got);
    for (int i = 0; i < 48; i++)
        ck_assert_equal(got[i], i);
    tsr_rope_destroy(&rope);
    tsr_tensor *tensors[] = {repeated, shifted, first, x, narrow, row, whole, places, reals, four};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tsr_tensor_destroy(&tensors[i]);
}
END_TEST

/* Every allocation and every Vulkan call fails once. Nothing may leak. y must be unchanged, or
 * correct if the call succeeded in spite of the failure. */
static void survive(tsr__fault_kind kind, int code)
{
    const int64_t shape[] = {2, 5, 10}, length = 5;
    tsr_tensor *x = gpu_new(TSR_F32, 3, shape), *y = gpu_new(TSR_F32, 3, shape),
               *places = gpu_new(TSR_I32, 1, &length);
    double in[100], got[100], want[100], scales[100], rows[10], numbers[] = {0, 1, 2, 3, 4};
    for (int i = 0; i < 100; i++)
        in[i] = i - 50;
    for (int i = 0; i < 10; i++)
        rows[i] = i % 5;
    expected(tsr_rope_params(.rotary_dim = 8), false, 10, 10, rows, in, want, scales);
    gpu_put(x, in);
    gpu_put(places, numbers);
    bool reached = true;
    for (uint64_t nth = 0; reached; nth++) {
        ck_assert_uint_lt(nth, 1000);
        tsr_rope *rope = NULL;
        GPU_OK(tsr_fill(queue, y, 77));
        GPU_OK(tsr_stream_wait(queue));
        tsr__fault_arm(kind, nth, code);
        tsr_status status = tsr_rope_create(queue, tsr_rope_params(.rotary_dim = 8), &rope);
        if (status == TSR_OK)
            status = tsr_rope_apply(queue, rope, y, x, places);
        reached = tsr__fault_site() != NULL;
        tsr__fault_disarm();
        tsr_rope_destroy(&rope);
        gpu_get(y, got);
        if (status == TSR_OK)
            compare(100, got, want, scales, TSR_F32);
        for (int i = 0; i < 100 && status != TSR_OK; i++)
            ck_assert_equal(got[i], 77);
    }
    tsr_tensor *tensors[] = {x, y, places};
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&tensors[i]);
}

START_TEST(survives_failures)
{
    survive(TSR__FAULT_ALLOC, 0);
    survive(TSR__FAULT_VULKAN, -1 /* VK_ERROR_OUT_OF_HOST_MEMORY */);
}
END_TEST

TESTS(rope)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, agrees_with_pytorch);
    tcase_add_loop_test(tests, turns_views_of_any_layout, 0, 2);
    tcase_add_test(tests, turns_a_part_of_a_product_in_place);
    tcase_add_loop_test(tests, turns_many_rows, 0, 2);
    tcase_add_test(tests, refuses_params);
    tcase_add_test(tests, refuses_tensors);
}

/* The calls that fail include those that build pipelines. */
TESTS(rope_failures)
{
    tcase_add_checked_fixture(tests, gpu_setup_not_shared, gpu_teardown);
    tcase_add_test(tests, survives_failures);
}

TESTS(rope_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_loop_test(tests, turns_views_of_any_layout, 4, 6);
}

TESTS(rope_staged)
{
    tcase_add_checked_fixture(tests, gpu_setup_staged, gpu_teardown);
    tcase_add_test(tests, turns_a_part_of_a_product_in_place);
}
