/* The causal convolution and the gated delta rule: PyTorch's results in tests/data, sequences of
 * different lengths, packed documents, and states that are continued. */
#include <math.h>

#include "gpu/device/coopmat.h"
#include "gpu/device/device.h"
#include "gpu/stream/profile.h"
#include "support/golden.h"
#include "support/golden_tensor.h"
#include "support/gpu.h"
#include "support/struct_sizes.h"

#define OUTPUT_ERROR 1e-5
#define GRADIENT_ERROR 1e-4

/* The forms of the delta rule. Drivers for the CPU compute the last one as the one before. They
 * take the state from chunk to chunk by products, and as GPUs do only in tests that use them as a
 * GPU. */
static const struct {
    int64_t recurrent_tokens;
    tsr_precision precision;
} forms[] = {{1 << 20, TSR_PRECISION_DEFAULT},
             {TSR_DELTA_CHUNKS, TSR_PRECISION_DEFAULT},
             {TSR_DELTA_CHUNKS, TSR_PRECISION_HIGH}};
enum { CHUNKS = 1, MATRICES = 2 };
static int first_form, end_of_forms;

static void setup(void)
{
    gpu_setup();
    first_form = 0;
    end_of_forms = MATRICES;
}

static void setup_as_gpu(void)
{
    gpu_setup_as_gpu();
    first_form = CHUNKS;
    end_of_forms = tsr__coopmat_used(gpu, TSR_F16) ? MATRICES + 1 : MATRICES;
}

#define NEEDS_MATRICES                                                                             \
    if (!tsr__coopmat_used(gpu, TSR_F16))                                                          \
    SKIP("no cooperative matrices of f16")

static double *doubles(int64_t count)
{
    double *values = calloc((size_t)count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

static tsr_tensor *uploaded(tsr_dtype dtype, int ndim, const int64_t *shape, const double *values)
{
    tsr_tensor *tensor = gpu_new(dtype, ndim, shape);
    gpu_put(tensor, values);
    return tensor;
}

static tsr_tensor *poisoned(tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsr_tensor *tensor = gpu_new(dtype, ndim, shape);
    gpu_poison(tensor);
    return tensor;
}

static void destroy(int count, tsr_tensor **tensors)
{
    for (int i = 0; i < count; i++)
        tsr_tensor_destroy(&tensors[i]);
}

/* Golden files ------------------------------------------------------------------------------- */

/* A tensor of a case as [1, …]; NULL if the case lacks it. A state may be in bytes. */
static tsr_tensor *input_of(const json_t *one, const char *name)
{
    char bytes[32];
    snprintf(bytes, sizeof bytes, "%s_u8", name);
    const bool packed = json_object_get(one, bytes) != NULL;
    if (!packed && !json_object_get(one, name))
        return NULL;
    golden_tensor golden = golden_tensor_load(one, packed ? bytes : name);
    int64_t shape[8] = {1};
    for (int d = 0; d < golden.ndim; d++)
        shape[d + 1] = golden.shape[d];
    for (int64_t i = 0; packed && i < golden.count; i++)
        golden.values[i] = (golden.values[i] - 128) / 64;
    tsr_tensor *tensor = uploaded(TSR_F32, golden.ndim + 1, shape, golden.values);
    golden_tensor_free(&golden);
    return tensor;
}

/* Compares a result with the file: the largest error must be at most `bound` of the largest value.
 * Large states are given by samples of each head. */
static void check_output(const json_t *one, const char *name, tsr_tensor *result, double bound)
{
    const json_t *member = golden_member(one, name);
    const bool sampled = json_object_get(member, "values") != NULL;
    golden_tensor want =
        sampled ? golden_tensor_load(member, "values") : golden_tensor_load(one, name);
    const int64_t count = tsr_layout_count(tsr_tensor_layout(result)),
                  heads = sampled ? want.shape[0] : 1, samples = want.count / heads,
                  size = count / heads;
    double *got = doubles(count), most = 0, error = 0;
    gpu_get(result, got);
    ck_assert(sampled || want.count == count);
    for (int64_t i = 0; i < want.count; i++) {
        const int64_t at =
            !sampled
                ? i
                : i / samples * size + (samples > 1 ? i % samples * (size - 1) / (samples - 1) : 0);
        ck_assert(isfinite(got[at]));
        most = fmax(most, fabs(want.values[i]));
        error = fmax(error, fabs(got[at] - want.values[i]));
    }
    ck_assert_msg(error <= bound * most, "%s, %s: error %g of %g", golden_text(one, "name"), name,
                  error, most);
    free(got);
    golden_tensor_free(&want);
}

static tsr_tensor *like(const tsr_tensor *tensor)
{
    if (!tensor)
        return NULL;
    const tsr_layout *l = tsr_tensor_layout(tensor);
    return poisoned(l->dtype, l->ndim, l->shape);
}

/* Removes the first dimension, which has size 1. */
static tsr_tensor *one_row(tsr_tensor **tensor)
{
    tsr_tensor *row = NULL;
    if (*tensor)
        GPU_OK(tsr_tensor_select(*tensor, 0, 0, &row));
    tsr_tensor_destroy(tensor);
    return row;
}

static void check_convolution(const json_t *one)
{
    tsr_tensor *x = input_of(one, "x"), *weight = input_of(one, "w"), *bias = input_of(one, "bias"),
               *state = input_of(one, "state"), *dy = input_of(one, "dy"),
               *dnew = input_of(one, "dstate_new");
    weight = one_row(&weight);
    bias = one_row(&bias);
    tsr_tensor *y = like(x), *new_state = like(dnew), *dx = like(x), *dweight = like(weight),
               *dbias = like(bias), *dstate = like(state);
    const tsr_causal_conv_params params = {
        .struct_size = sizeof params, .bias = bias, .state = state, .silu = true};
    GPU_OK(tsr_causal_conv(queue, y, new_state, x, weight, &params));
    check_output(one, "y", y, OUTPUT_ERROR);
    check_output(one, "state_new", new_state, 0);
    GPU_OK(tsr_causal_conv_grad(
        queue,
        tsr_causal_conv_grads(.dx = dx, .dweight = dweight, .dbias = dbias, .dstate = dstate), dy,
        dnew, x, weight, &params));
    check_output(one, "dx", dx, GRADIENT_ERROR);
    check_output(one, "dw", dweight, GRADIENT_ERROR);
    if (bias)
        check_output(one, "dbias", dbias, GRADIENT_ERROR);
    if (state)
        check_output(one, "dstate", dstate, GRADIENT_ERROR);
    tsr_tensor *all[] = {x, weight, bias,      state, dy,      dnew,
                         y, dx,     new_state, dbias, dweight, dstate};
    destroy(12, all);
}

START_TEST(golden_convolutions)
{
    json_t *file = golden_load("causal_conv"), *one;
    size_t i;
    json_array_foreach(golden_list(file, "cases"), i, one) check_convolution(one);
    json_decref(file);
}
END_TEST

/* True if lavapipe takes minutes to compile the kernel with matrices for states of this size. */
static bool is_slow(int form, const tsr_tensor *q)
{
    return form == MATRICES && gpu->info.type == TSR_DEVICE_CPU &&
           tsr_tensor_layout(q)->shape[3] > 16;
}

static void check_delta(const json_t *one)
{
    tsr_tensor *q = input_of(one, "q"), *k = input_of(one, "k"), *v = input_of(one, "v"),
               *beta = input_of(one, "beta"), *g = input_of(one, "g"), *state = input_of(one, "S0"),
               *dy = input_of(one, "dy"), *dnew = input_of(one, "dS");
    const tsr_layout *shape = tsr_tensor_layout(v);
    const int64_t states[] = {1, shape->shape[2], tsr_tensor_layout(q)->shape[3], shape->shape[3]};
    tsr_delta_rule_params params = {
        .struct_size = sizeof params,
        .state = state,
        .norm_epsilon = json_is_true(golden_member(one, "qk_l2norm")) ? 1e-6F : 0,
        .scale = strtof(golden_text(one, "scale"), NULL),
        .tiled_heads = strcmp(golden_text(one, "head_map"), "tiled") == 0,
    };
    for (int i = first_form; i < end_of_forms && !is_slow(i, q); i++) {
        tsr_tensor *y = like(v), *new_state = poisoned(TSR_F32, 4, states);
        params.recurrent_tokens = forms[i].recurrent_tokens;
        params.precision = forms[i].precision;
        GPU_OK(tsr_delta_rule(queue, y, new_state, q, k, v, beta, g, &params));
        check_output(one, "y", y, OUTPUT_ERROR);
        check_output(one, "S", new_state, OUTPUT_ERROR);
        destroy(2, (tsr_tensor *[]){y, new_state});
    }
    tsr_tensor *dq = like(q), *dk = like(k), *dv = like(v), *dbeta = like(beta), *dg = like(g),
               *dstate = like(state);
    GPU_OK(tsr_delta_rule_grad(queue,
                               tsr_delta_rule_grads(.dq = dq, .dk = dk, .dv = dv, .dbeta = dbeta,
                                                    .dg = dg, .dstate = dstate),
                               dy, dnew, q, k, v, beta, g, &params));
    check_output(one, "dq", dq, GRADIENT_ERROR);
    check_output(one, "dk", dk, GRADIENT_ERROR);
    check_output(one, "dv", dv, GRADIENT_ERROR);
    check_output(one, "dbeta", dbeta, GRADIENT_ERROR);
    check_output(one, "dg", dg, GRADIENT_ERROR);
    if (state)
        check_output(one, "dS0", dstate, GRADIENT_ERROR);
    destroy(6, (tsr_tensor *[]){dq, dk, dv, dbeta, dg, dstate});
    tsr_tensor *all[] = {q, k, v, beta, g, state, dy, dnew};
    destroy(8, all);
}

START_TEST(golden_deltas)
{
    json_t *file = golden_load("gated_delta"), *one;
    size_t i;
    json_array_foreach(golden_list(file, "cases"), i, one) check_delta(one);
    json_decref(file);
}
END_TEST

/* Batches ------------------------------------------------------------------------------------ */

enum { BATCH = 3, TOKENS = 140, KEY_HEADS = 2, HEADS = 4, KEY = 32, VALUE = 20, TAPS = 4 };
enum { CHANNELS = 2 * KEY_HEADS * KEY + HEADS * VALUE };

/* Random operands: q, k and v are views of one tensor [BATCH, TOKENS, CHANNELS] of `dtype`. */
typedef struct operands {
    tsr_tensor *mixed, *q, *k, *v, *beta, *g, *state;
} operands;

static tsr_tensor *random_tensor(gpu_random *random, tsr_dtype dtype, int ndim,
                                 const int64_t *shape, double centre, double spread)
{
    int64_t count = 1;
    for (int d = 0; d < ndim; d++)
        count *= shape[d];
    double *values = doubles(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = centre + spread * gpu_random_unit(random);
    tsr_tensor *tensor = uploaded(dtype, ndim, shape, values);
    free(values);
    return tensor;
}

/* A view [batch, tokens, heads, dim] of channels of `mixed`. */
static tsr_tensor *heads_of(const tsr_tensor *mixed, int64_t first, int64_t heads, int64_t dim)
{
    tsr_tensor *slice = NULL, *view = NULL;
    const tsr_layout *l = tsr_tensor_layout(mixed);
    GPU_OK(tsr_tensor_slice(mixed, 2, first, first + heads * dim, 1, &slice));
    GPU_OK(tsr_tensor_reshape(slice, 4, (int64_t[]){l->shape[0], l->shape[1], heads, dim}, &view));
    tsr_tensor_destroy(&slice);
    return view;
}

static operands operands_of(tsr_tensor *mixed, tsr_tensor *beta, tsr_tensor *g, tsr_tensor *state)
{
    return (operands){mixed,
                      heads_of(mixed, 0, KEY_HEADS, KEY),
                      heads_of(mixed, KEY_HEADS * KEY, KEY_HEADS, KEY),
                      heads_of(mixed, 2 * KEY_HEADS * KEY, HEADS, VALUE),
                      beta,
                      g,
                      state};
}

static operands operands_for(gpu_random *random, tsr_dtype dtype, int64_t batch, int64_t tokens)
{
    const int64_t mixed[] = {batch, tokens, CHANNELS}, heads[] = {batch, tokens, HEADS},
                  state[] = {batch, HEADS, KEY, VALUE};
    return operands_of(random_tensor(random, dtype, 3, mixed, 0, 1),
                       random_tensor(random, TSR_F32, 3, heads, 0.5, 0.5),
                       random_tensor(random, TSR_F32, 3, heads, -0.3, 0.3),
                       random_tensor(random, TSR_F32, 4, state, 0, 1));
}

static operands random_operands(gpu_random *random, tsr_dtype dtype)
{
    return operands_for(random, dtype, BATCH, TOKENS);
}

static void operands_destroy(operands *o)
{
    tsr_tensor *all[] = {o->q, o->k, o->v, o->mixed, o->beta, o->g, o->state};
    destroy(7, all);
}

/* Rows `row` of the operands, tokens first … first + count − 1, as a batch of one. */
static tsr_tensor *part_of(const tsr_tensor *tensor, int64_t row, int64_t first, int64_t count)
{
    tsr_tensor *rows = NULL, *part = NULL, *copy;
    GPU_OK(tsr_tensor_slice(tensor, 0, row, row + 1, 1, &rows));
    GPU_OK(tsr_tensor_slice(rows, 1, first, first + count, 1, &part));
    const tsr_layout *l = tsr_tensor_layout(part);
    copy = gpu_new(l->dtype, l->ndim, l->shape);
    GPU_OK(tsr_copy(queue, copy, part));
    destroy(2, (tsr_tensor *[]){rows, part});
    return copy;
}

static operands part_of_operands(const operands *o, int64_t row, int64_t first, int64_t count,
                                 bool state)
{
    return operands_of(part_of(o->mixed, row, first, count), part_of(o->beta, row, first, count),
                       part_of(o->g, row, first, count),
                       state ? part_of(o->state, row, 0, HEADS) : NULL);
}

typedef struct results {
    tsr_tensor *y, *new_state, *dmixed, *dbeta, *dg;
} results;

/* Runs the rule in both directions, with y as its own gradient; only forward if it may use
 * matrices, which gradients do not. */
static results run(const operands *o, const tsr_tensor *lengths, const tsr_tensor *starts, int form)
{
    const tsr_layout *l = tsr_tensor_layout(o->v);
    const int64_t state[] = {l->shape[0], HEADS, KEY, VALUE};
    results r = {.y = poisoned(TSR_F32, 4, l->shape), .new_state = poisoned(TSR_F32, 4, state)};
    const tsr_delta_rule_params params = {.struct_size = sizeof params,
                                          .state = o->state,
                                          .lengths = lengths,
                                          .starts = starts,
                                          .norm_epsilon = 1e-6F,
                                          .recurrent_tokens = forms[form].recurrent_tokens,
                                          .precision = forms[form].precision};
    GPU_OK(tsr_delta_rule(queue, r.y, r.new_state, o->q, o->k, o->v, o->beta, o->g, &params));
    if (form == MATRICES)
        return r;
    r.dmixed = like(o->mixed);
    r.dbeta = like(o->beta);
    r.dg = like(o->g);
    operands d = operands_of(r.dmixed, r.dbeta, r.dg, NULL);
    GPU_OK(tsr_delta_rule_grad(
        queue, tsr_delta_rule_grads(.dq = d.q, .dk = d.k, .dv = d.v, .dbeta = d.beta, .dg = d.g),
        r.y, r.new_state, o->q, o->k, o->v, o->beta, o->g, &params));
    destroy(3, (tsr_tensor *[]){d.q, d.k, d.v});
    return r;
}

static void results_destroy(results *r)
{
    tsr_tensor *all[] = {r->y, r->new_state, r->dmixed, r->dbeta, r->dg};
    destroy(5, all);
}

/* Compares tokens first … of row `row` of `whole` with those of `alone`, a batch of one. */
static void compare(const char *what, const tsr_tensor *whole, int64_t row, int64_t first,
                    tsr_tensor *alone, double bound)
{
    const tsr_layout *l = tsr_tensor_layout(alone);
    const int64_t count = tsr_layout_count(l);
    tsr_tensor *part = part_of(whole, row, first, l->shape[1]);
    double *got = doubles(count), *want = doubles(count), most = 0;
    gpu_get(part, got);
    gpu_get(alone, want);
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(want[i]));
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(fabs(got[i] - want[i]) <= bound * most, "%s, row %d: %g and %g", what,
                      (int)row, got[i], want[i]);
    tsr_tensor_destroy(&part);
    free(got);
    free(want);
}

static void compare_results(const results *whole, int64_t row, int64_t first, const results *alone,
                            double bound)
{
    compare("y", whole->y, row, first, alone->y, bound);
    if (!whole->dmixed)
        return;
    compare("dmixed", whole->dmixed, row, first, alone->dmixed, bound);
    compare("dbeta", whole->dbeta, row, first, alone->dbeta, bound);
    compare("dg", whole->dg, row, first, alone->dg, bound);
}

static void check_zero(const tsr_tensor *whole, int64_t row, int64_t first, int64_t count)
{
    tsr_tensor *part = part_of(whole, row, first, count);
    const int64_t all = tsr_layout_count(tsr_tensor_layout(part));
    double *values = doubles(all);
    gpu_get(part, values);
    for (int64_t i = 0; i < all; i++)
        ck_assert_double_eq(values[i], 0);
    tsr_tensor_destroy(&part);
    free(values);
}

/* Replaces tokens from `first` on by NaN. */
static void spoil(tsr_tensor *tensor, int64_t row, int64_t first)
{
    tsr_tensor *rows = NULL, *rest = NULL;
    GPU_OK(tsr_tensor_slice(tensor, 0, row, row + 1, 1, &rows));
    GPU_OK(tsr_tensor_slice(rows, 1, first, TSR_END, 1, &rest));
    GPU_OK(tsr_fill(queue, rest, NAN));
    destroy(2, (tsr_tensor *[]){rows, rest});
}

/* A batch of sequences of different lengths gives what each gives alone; what follows the end of a
 * sequence may be NaN. */
START_TEST(lengths_in_a_batch)
{
    if (_i == MATRICES)
        NEEDS_MATRICES;
    static const double given[BATCH] = {TOKENS, 0, 77};
    gpu_random random = {11};
    operands o = random_operands(&random, TSR_F32);
    tsr_tensor *lengths = uploaded(TSR_I32, 1, (int64_t[]){BATCH}, given);
    for (int64_t b = 0; b < BATCH; b++)
        if (given[b] < TOKENS) {
            spoil(o.mixed, b, (int64_t)given[b]);
            spoil(o.beta, b, (int64_t)given[b]);
            spoil(o.g, b, (int64_t)given[b]);
        }
    results whole = run(&o, lengths, NULL, _i);
    for (int64_t b = 0; b < BATCH; b++) {
        const int64_t length = (int64_t)given[b];
        const tsr_tensor *all[] = {whole.y, whole.dmixed, whole.dbeta, whole.dg};
        for (int i = 0; i < (_i == MATRICES ? 1 : 4); i++)
            check_zero(all[i], b, length, TOKENS - length);
        if (length == 0) {
            tsr_tensor *old = part_of(o.state, b, 0, HEADS);
            compare("state", whole.new_state, b, 0, old, 0);
            tsr_tensor_destroy(&old);
            continue;
        }
        operands own = part_of_operands(&o, b, 0, length, true);
        results alone = run(&own, NULL, NULL, _i);
        compare_results(&whole, b, 0, &alone, 1e-6);
        compare("state", whole.new_state, b, 0, alone.new_state, 1e-6);
        results_destroy(&alone);
        operands_destroy(&own);
    }
    results_destroy(&whole);
    operands_destroy(&o);
    tsr_tensor_destroy(&lengths);
}
END_TEST

/* Documents in a row give what each gives alone. */
START_TEST(packed_documents)
{
    if (_i == MATRICES)
        NEEDS_MATRICES;
    static const int64_t documents[BATCH][5] = {
        {0, 1, 64, 70, TOKENS}, {0, 100, 128, TOKENS}, {0, TOKENS}};
    gpu_random random = {12};
    operands o = random_operands(&random, TSR_F32);
    tsr_tensor_destroy(&o.state);
    double *values = doubles(BATCH * TOKENS);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t t = 0, n = 0; t < TOKENS; t++) {
            n += t == documents[b][n + 1];
            values[b * TOKENS + t] = (double)documents[b][n];
        }
    tsr_tensor *starts = uploaded(TSR_I32, 2, (int64_t[]){BATCH, TOKENS}, values);
    results whole = run(&o, NULL, starts, _i);
    for (int64_t b = 0; b < BATCH; b++)
        for (int n = 0; documents[b][n] < TOKENS; n++) {
            const int64_t first = documents[b][n], end = documents[b][n + 1];
            operands own = part_of_operands(&o, b, first, end - first, false);
            results alone = run(&own, NULL, NULL, _i);
            if (end == TOKENS) {
                compare_results(&whole, b, first, &alone, 1e-5);
                compare("state", whole.new_state, b, 0, alone.new_state, 1e-5);
            } else {
                compare("y", whole.y, b, first, alone.y, 1e-5); /* only the last has dnew_state */
            }
            results_destroy(&alone);
            operands_destroy(&own);
        }
    results_destroy(&whole);
    operands_destroy(&o);
    tsr_tensor_destroy(&starts);
    free(values);
}
END_TEST

/* A thousand tokens in chunks give what the recurrence gives in two pieces: there are more chunks
 * than those whose states are kept at a time, and the last one is not full. */
START_TEST(many_chunks)
{
    enum { ROWS = 2, PIECE = 548, LONG = 2 * PIECE };
    gpu_random random = {23};
    operands o = operands_for(&random, TSR_F32, ROWS, LONG);
    tsr_tensor *whole = poisoned(TSR_F32, 4, tsr_tensor_layout(o.v)->shape), *last = like(o.state);
    GPU_OK(tsr_delta_rule(queue, whole, last, o.q, o.k, o.v, o.beta, o.g,
                          tsr_delta_rule_params(.state = o.state, .norm_epsilon = 1e-6F,
                                                .recurrent_tokens = TSR_DELTA_CHUNKS)));
    for (int64_t b = 0; b < ROWS; b++) {
        tsr_tensor *state = part_of(o.state, b, 0, HEADS);
        for (int64_t first = 0; first < LONG; first += PIECE) {
            operands own = part_of_operands(&o, b, first, PIECE, false);
            tsr_tensor *y = poisoned(TSR_F32, 4, tsr_tensor_layout(own.v)->shape);
            GPU_OK(tsr_delta_rule(queue, y, state, own.q, own.k, own.v, own.beta, own.g,
                                  tsr_delta_rule_params(.state = state, .norm_epsilon = 1e-6F,
                                                        .recurrent_tokens = PIECE)));
            compare("y", whole, b, first, y, 1e-5);
            tsr_tensor_destroy(&y);
            operands_destroy(&own);
        }
        compare("state", last, b, 0, state, 1e-5);
        tsr_tensor_destroy(&state);
    }
    destroy(2, (tsr_tensor *[]){whole, last});
    operands_destroy(&o);
}
END_TEST

/* A sequence in pieces, whose state is changed in place, gives what it gives at once. */
START_TEST(pieces)
{
    static const int64_t ends[] = {1, 5, 69, 139, TOKENS};
    gpu_random random = {13};
    operands o = random_operands(&random, TSR_F16);
    results whole = run(&o, NULL, NULL, 1);
    tsr_tensor *state = part_of(o.state, 2, 0, HEADS);
    for (int64_t i = 0, first = 0; i < 5; first = ends[i++]) {
        operands own = part_of_operands(&o, 2, first, ends[i] - first, false);
        tsr_tensor *y = poisoned(TSR_F32, 4, tsr_tensor_layout(own.v)->shape);
        GPU_OK(tsr_delta_rule(queue, y, state, own.q, own.k, own.v, own.beta, own.g,
                              tsr_delta_rule_params(.state = state, .norm_epsilon = 1e-6F)));
        compare("y", whole.y, 2, first, y, 1e-5);
        tsr_tensor_destroy(&y);
        operands_destroy(&own);
    }
    compare("state", whole.new_state, 2, 0, state, 1e-5);
    tsr_tensor_destroy(&state);
    results_destroy(&whole);
    operands_destroy(&o);
}
END_TEST

/* The convolution: lengths with NaN behind them, packed documents, and pieces. */
START_TEST(convolution_of_batches)
{
    static const double given[2] = {9, 2}, first_of[2][9] = {{0, 0, 2, 2, 2, 2, 6, 6, 6}, {0}};
    const int64_t shape[] = {2, 9, 5}, state_shape[] = {2, 5, TAPS - 1};
    gpu_random random = {14};
    tsr_tensor *x = random_tensor(&random, TSR_BF16, 3, shape, 0, 1),
               *weight = random_tensor(&random, TSR_F32, 2, (int64_t[]){5, TAPS}, 0, 1),
               *state = random_tensor(&random, TSR_F32, 3, state_shape, 0, 1),
               *lengths = uploaded(TSR_I32, 1, (int64_t[]){2}, given),
               *starts = uploaded(TSR_I32, 2, shape, first_of[0]), *y = poisoned(TSR_F32, 3, shape),
               *whole = poisoned(TSR_F32, 3, shape), *kept = like(state);
    GPU_OK(tsr_causal_conv(queue, whole, kept, x, weight, tsr_causal_conv_params(.state = state)));
    spoil(x, 1, 2);
    GPU_OK(tsr_causal_conv(queue, y, kept, x, weight,
                           tsr_causal_conv_params(.state = state, .lengths = lengths)));
    tsr_tensor *want = part_of(whole, 1, 0, 2);
    compare("y", y, 1, 0, want, 0);
    check_zero(y, 1, 2, 7);
    tsr_tensor_destroy(&want);
    /* two tokens after a state of three: its last one, and the two */
    double old[30], next[30], rows[90];
    gpu_get(state, old);
    gpu_get(kept, next);
    gpu_get(x, rows);
    for (int c = 0; c < 5; c++) {
        ck_assert_double_eq(next[15 + 3 * c], old[15 + 3 * c + 2]);
        ck_assert_double_eq(next[15 + 3 * c + 1], rows[45 + c]);
        ck_assert_double_eq(next[15 + 3 * c + 2], rows[50 + c]);
    }
    GPU_OK(tsr_causal_conv(queue, y, kept, x, weight, tsr_causal_conv_params(.starts = starts)));
    static const int64_t ends[] = {2, 6, 9};
    for (int64_t i = 0, first = 0; i < 3; first = ends[i++]) {
        tsr_tensor *own = part_of(x, 0, first, ends[i] - first),
                   *alone = poisoned(TSR_F32, 3, tsr_tensor_layout(own)->shape);
        GPU_OK(tsr_causal_conv(queue, alone, NULL, own, weight, NULL));
        compare("y", y, 0, first, alone, 0);
        destroy(2, (tsr_tensor *[]){own, alone});
    }
    tsr_tensor *running = part_of(state, 0, 0, 5);
    for (int64_t i = 0, first = 0; i < 3; first = ends[i++]) {
        tsr_tensor *own = part_of(x, 0, first, ends[i] - first),
                   *alone = poisoned(TSR_F32, 3, tsr_tensor_layout(own)->shape);
        GPU_OK(tsr_causal_conv(queue, alone, running, own, weight,
                               tsr_causal_conv_params(.state = running)));
        compare("y", whole, 0, first, alone, 0);
        destroy(2, (tsr_tensor *[]){own, alone});
    }
    tsr_tensor *all[] = {x, weight, state, lengths, starts, y, whole, kept, running};
    destroy(9, all);
}
END_TEST

/* Each gradient may be wanted alone. */
START_TEST(gradients_alone)
{
    gpu_random random = {17};
    const int64_t shape[] = {2, 5, 6}, states[] = {2, 6, TAPS - 1};
    tsr_tensor *x = random_tensor(&random, TSR_F32, 3, shape, 0, 1),
               *dy = random_tensor(&random, TSR_F32, 3, shape, 0, 1),
               *weight = random_tensor(&random, TSR_F32, 2, (int64_t[]){6, TAPS}, 0, 1),
               *state = random_tensor(&random, TSR_F32, 3, states, 0, 1);
    const tsr_causal_conv_params params = {.struct_size = sizeof params, .state = state};
    tsr_tensor *dx = like(x), *dstate = like(state), *alone_dx = like(x),
               *alone_dstate = like(state);
    GPU_OK(tsr_causal_conv_grad(queue, tsr_causal_conv_grads(.dx = dx, .dstate = dstate), dy, NULL,
                                x, weight, &params));
    GPU_OK(tsr_causal_conv_grad(queue, tsr_causal_conv_grads(.dstate = alone_dstate), dy, NULL, x,
                                weight, &params));
    GPU_OK(tsr_causal_conv_grad(queue, tsr_causal_conv_grads(.dx = alone_dx), dy, NULL, x, weight,
                                &params));
    for (int64_t b = 0; b < 2; b++) {
        tsr_tensor *want = part_of(dstate, b, 0, 6);
        compare("dstate", alone_dstate, b, 0, want, 0);
        tsr_tensor_destroy(&want);
        want = part_of(dx, b, 0, 5);
        compare("dx", alone_dx, b, 0, want, 0);
        tsr_tensor_destroy(&want);
    }
    tsr_tensor *all[] = {x, dy, weight, state, dx, dstate, alone_dx, alone_dstate};
    destroy(8, all);
}
END_TEST

/* Slots -------------------------------------------------------------------------------------- */

enum { SLOTS = 6 };

/* Row b reads slot reads[b] and writes slot writes[b]; the others stay as they are. */
typedef struct slot_case {
    double reads[BATCH], writes[BATCH], lengths[BATCH];
} slot_case;

static const slot_case slot_cases[] = {
    {{4, -1, 2}, {0, 3, 2}, {5, 5, 5}},   /* another slot, zeros, in place */
    {{1, 1, 5}, {4, -1, 0}, {5, 3, 0}},   /* one slot read twice, not written, no tokens */
    {{-1, 6, 99}, {1, -7, 6}, {2, 4, 5}}, /* numbers that are no slots */
};

static bool is_slot(double number)
{
    return number >= 0 && number < SLOTS;
}

/* The states that rows begin with, as a batch. */
static tsr_tensor *gathered(tsr_tensor *slots, const double *reads)
{
    int64_t shape[4];
    const tsr_layout *l = tsr_tensor_layout(slots);
    const int64_t size = tsr_layout_count(l) / SLOTS;
    memcpy(shape, l->shape, sizeof shape);
    shape[0] = BATCH;
    double *from = doubles(SLOTS * size), *to = doubles(BATCH * size);
    gpu_get(slots, from);
    for (int b = 0; b < BATCH; b++)
        if (is_slot(reads[b]))
            memcpy(to + b * size, from + (int64_t)reads[b] * size, (size_t)size * sizeof *to);
    tsr_tensor *batch = uploaded(TSR_F32, l->ndim, shape, to);
    free(from);
    free(to);
    return batch;
}

/* Checks that the slots are `before`, and where rows write, the states of `batch`. */
static void check_slots(const double *before, tsr_tensor *slots, tsr_tensor *batch,
                        const double *writes)
{
    const int64_t size = tsr_layout_count(tsr_tensor_layout(batch)) / BATCH;
    double *got = doubles(SLOTS * size), *want = doubles(SLOTS * size),
           *states = doubles(BATCH * size);
    gpu_get(slots, got);
    gpu_get(batch, states);
    memcpy(want, before, (size_t)(SLOTS * size) * sizeof *want);
    for (int b = 0; b < BATCH; b++)
        if (is_slot(writes[b]))
            memcpy(want + (int64_t)writes[b] * size, states + b * size,
                   (size_t)size * sizeof *want);
    for (int64_t i = 0; i < SLOTS * size; i++)
        ck_assert_double_eq(got[i], want[i]);
    free(got);
    free(want);
    free(states);
}

static double *values_of(tsr_tensor *tensor)
{
    double *values = doubles(tsr_layout_count(tsr_tensor_layout(tensor)));
    gpu_get(tensor, values);
    return values;
}

static void check_same(tsr_tensor *a, tsr_tensor *b)
{
    double *left = values_of(a), *right = values_of(b);
    for (int64_t i = 0; i < tsr_layout_count(tsr_tensor_layout(a)); i++)
        ck_assert_double_eq(left[i], right[i]);
    free(left);
    free(right);
}

/* States in slots give the same bits as states of a batch, by recurrence, in chunks, and in the
 * convolution before them; slots that no row writes stay as they are. */
START_TEST(states_in_slots)
{
    const slot_case *one = &slot_cases[_i];
    gpu_random random = {18};
    operands o = random_operands(&random, TSR_F32);
    tsr_tensor *reads = uploaded(TSR_I32, 1, (int64_t[]){BATCH}, one->reads),
               *writes = uploaded(TSR_I32, 1, (int64_t[]){BATCH}, one->writes),
               *lengths = uploaded(TSR_I32, 1, (int64_t[]){BATCH}, one->lengths);
    const int64_t states[] = {SLOTS, HEADS, KEY, VALUE}, inputs[] = {SLOTS, CHANNELS, TAPS - 1};
    for (int form = first_form; form < end_of_forms; form++) {
        tsr_tensor *slots = random_tensor(&random, TSR_F32, 4, states, 0, 1),
                   *batch = gathered(slots, one->reads), *y = like(o.v), *want = like(o.v);
        double *before = values_of(slots);
        tsr_delta_rule_params params = {.struct_size = sizeof params,
                                        .state = batch,
                                        .lengths = lengths,
                                        .norm_epsilon = 1e-6F,
                                        .recurrent_tokens = forms[form].recurrent_tokens,
                                        .precision = forms[form].precision};
        GPU_OK(tsr_delta_rule(queue, want, batch, o.q, o.k, o.v, o.beta, o.g, &params));
        params.state = slots;
        params.read_slots = reads;
        params.write_slots = writes;
        GPU_OK(tsr_delta_rule(queue, y, slots, o.q, o.k, o.v, o.beta, o.g, &params));
        check_same(y, want);
        check_slots(before, slots, batch, one->writes);
        destroy(4, (tsr_tensor *[]){slots, batch, y, want});
        free(before);
    }
    tsr_tensor *slots = random_tensor(&random, TSR_F32, 3, inputs, 0, 1),
               *batch = gathered(slots, one->reads), *y = like(o.mixed), *want = like(o.mixed),
               *weight = random_tensor(&random, TSR_F32, 2, (int64_t[]){CHANNELS, TAPS}, 0, 1);
    double *before = values_of(slots);
    GPU_OK(tsr_causal_conv(queue, want, batch, o.mixed, weight,
                           tsr_causal_conv_params(.state = batch, .lengths = lengths)));
    GPU_OK(tsr_causal_conv(queue, y, slots, o.mixed, weight,
                           tsr_causal_conv_params(.state = slots, .lengths = lengths,
                                                  .read_slots = reads, .write_slots = writes)));
    check_same(y, want);
    check_slots(before, slots, batch, one->writes);
    free(before);
    tsr_tensor *all[] = {slots, batch, y, want, weight, reads, writes, lengths};
    destroy(8, all);
    operands_destroy(&o);
}
END_TEST

/* With a slot for each token, any of a row's states can be kept: they are those after so many
 * tokens. */
START_TEST(states_of_each_token)
{
    static const struct {
        int row, token, slot;
    } kept[] = {{0, 1, 5}, {0, 4, 0}, {1, 0, 3}, {2, 6, 2}};
    static const double reads[BATCH] = {4, -1, 1};
    double length[BATCH] = {5, 1, 7};
    gpu_random random = {19};
    operands o = random_operands(&random, TSR_F32);
    double *listed = doubles(BATCH * TOKENS);
    for (int64_t i = 0; i < BATCH * TOKENS; i++)
        listed[i] = -1;
    for (int i = 0; i < 4; i++)
        listed[kept[i].row * TOKENS + kept[i].token] = kept[i].slot;
    listed[1 * TOKENS + 1] = 5; /* of a token that does not count */
    tsr_tensor *read = uploaded(TSR_I32, 1, (int64_t[]){BATCH}, reads),
               *write = uploaded(TSR_I32, 2, (int64_t[]){BATCH, TOKENS}, listed),
               *lengths = uploaded(TSR_I32, 1, (int64_t[]){BATCH}, length),
               *slots =
                   random_tensor(&random, TSR_F32, 4, (int64_t[]){SLOTS, HEADS, KEY, VALUE}, 0, 1),
               *inputs =
                   random_tensor(&random, TSR_F32, 3, (int64_t[]){SLOTS, CHANNELS, TAPS - 1}, 0, 1),
               *weight = random_tensor(&random, TSR_F32, 2, (int64_t[]){CHANNELS, TAPS}, 0, 1),
               *states = gathered(slots, reads), *rows = gathered(inputs, reads), *y = like(o.v),
               *z = like(o.mixed), *new_states = like(states), *new_rows = like(rows);
    tsr_delta_rule_params rule = {.struct_size = sizeof rule,
                                  .state = slots,
                                  .lengths = lengths,
                                  .recurrent_tokens = 1 << 20,
                                  .read_slots = read,
                                  .write_slots = write};
    double *before[2] = {values_of(slots), values_of(inputs)};
    GPU_OK(tsr_delta_rule(queue, y, slots, o.q, o.k, o.v, o.beta, o.g, &rule));
    GPU_OK(tsr_causal_conv(queue, z, inputs, o.mixed, weight,
                           tsr_causal_conv_params(.state = inputs, .lengths = lengths,
                                                  .read_slots = read, .write_slots = write)));
    rule.recurrent_tokens = TSR_DELTA_CHUNKS;
    GPU_FAILS(tsr_delta_rule(queue, y, slots, o.q, o.k, o.v, o.beta, o.g, &rule), TSR_ERR_INVALID,
              "which needs a recurrence; 140 tokens");
    rule = (tsr_delta_rule_params){.struct_size = sizeof rule,
                                   .state = states,
                                   .lengths = lengths,
                                   .recurrent_tokens = 1 << 20};
    double *got[2] = {values_of(slots), values_of(inputs)};
    const int64_t size[2] = {HEADS * KEY * VALUE, CHANNELS * (TAPS - 1)};
    for (int i = 0; i < 4; i++) {
        for (int b = 0; b < BATCH; b++)
            length[b] = kept[i].token + 1;
        gpu_put(lengths, length);
        GPU_OK(tsr_delta_rule(queue, y, new_states, o.q, o.k, o.v, o.beta, o.g, &rule));
        GPU_OK(tsr_causal_conv(queue, z, new_rows, o.mixed, weight,
                               tsr_causal_conv_params(.state = rows, .lengths = lengths)));
        double *want[2] = {values_of(new_states), values_of(new_rows)};
        for (int n = 0; n < 2; n++) {
            ck_assert_mem_eq(got[n] + kept[i].slot * size[n], want[n] + kept[i].row * size[n],
                             (size_t)size[n] * sizeof **want);
            /* the slots that no token wrote: 1 and 4 */
            ck_assert_mem_eq(got[n] + size[n], before[n] + size[n],
                             (size_t)size[n] * sizeof **want);
            ck_assert_mem_eq(got[n] + 4 * size[n], before[n] + 4 * size[n],
                             (size_t)size[n] * sizeof **want);
            free(want[n]);
        }
    }
    for (int n = 0; n < 2; n++) {
        free(before[n]);
        free(got[n]);
    }
    free(listed);
    tsr_tensor *all[] = {read,   write, lengths, slots, inputs,     weight,
                         states, rows,  y,       z,     new_states, new_rows};
    destroy(12, all);
    operands_destroy(&o);
}
END_TEST

/* How many commands a kernel had in the profile. */
static int commands_of(const tsr__profile *profile, const char *name)
{
    int count = 0;
    for (int i = 0; i < profile->kernel_count; i++)
        if (strcmp(profile->kernels[i].name, name) == 0)
            count += (int)profile->kernels[i].commands;
    return count;
}

/* Dispatches that go from chunk to chunk are divided by the device's limit on work, with the state,
 * or its gradient, in memory between them: the bits are those of one dispatch. */
START_TEST(chunks_within_the_work_limit)
{
    if (_i == MATRICES)
        NEEDS_MATRICES;
    static tsr__profile profile;
    static const double reads[BATCH] = {4, -1, 2}, writes[BATCH] = {0, 3, 2},
                        lengths_of_rows[BATCH] = {TOKENS, 70, 5};
    const double usual = gpu->work_limit,
                 chunk = (double)BATCH * HEADS * 64 * VALUE * (3.0 * KEY + 64);
    const int chunks = (TOKENS + 63) / 64;
    const int64_t states[] = {SLOTS, HEADS, KEY, VALUE};
    gpu_random random = {24};
    operands o = random_operands(&random, TSR_F32);
    tsr_tensor *slots = random_tensor(&random, TSR_F32, 4, states, 0, 1), *y[3], *after[3],
               *dmixed[3], *dstate[3];
    tsr_tensor *lists[] = {uploaded(TSR_I32, 1, (int64_t[]){BATCH}, reads),
                           uploaded(TSR_I32, 1, (int64_t[]){BATCH}, writes),
                           uploaded(TSR_I32, 1, (int64_t[]){BATCH}, lengths_of_rows)};
    for (int i = 0; i < 3; i++) {
        tsr_delta_rule_params params = {.struct_size = sizeof params,
                                        .state = after[i] = like(slots),
                                        .read_slots = lists[0],
                                        .write_slots = lists[1],
                                        .lengths = lists[2],
                                        .norm_epsilon = 1e-6F,
                                        .recurrent_tokens = TSR_DELTA_CHUNKS,
                                        .precision = forms[_i].precision};
        y[i] = poisoned(TSR_F32, 4, tsr_tensor_layout(o.v)->shape);
        dmixed[i] = like(o.mixed);
        dstate[i] = like(o.state);
        GPU_OK(tsr_copy(queue, after[i], slots));
        gpu->work_limit = i == 0 ? usual : i * (chunk + 1);
        GPU_OK(tsr__stream_profile_begin(queue));
        GPU_OK(tsr_delta_rule(queue, y[i], after[i], o.q, o.k, o.v, o.beta, o.g, &params));
        params.state = o.state;
        params.read_slots = params.write_slots = NULL;
        operands d = operands_of(dmixed[i], like(o.beta), like(o.g), NULL);
        GPU_OK(tsr_delta_rule_grad(queue,
                                   tsr_delta_rule_grads(.dq = d.q, .dk = d.k, .dv = d.v,
                                                        .dbeta = d.beta, .dg = d.g,
                                                        .dstate = dstate[i]),
                                   o.v, o.state, o.q, o.k, o.v, o.beta, o.g, &params));
        GPU_OK(tsr__stream_profile_end(queue, &profile));
        destroy(5, (tsr_tensor *[]){d.q, d.k, d.v, d.beta, d.g});
        const int parts = i == 0 ? 1 : (chunks + i - 1) / i;
        ck_assert_int_eq(commands_of(&profile, "delta_scan_grad"), parts);
        ck_assert_int_eq(commands_of(&profile, "delta_scan") +
                             commands_of(&profile, "delta_scan_coopmat"),
                         2 * parts);
        check_same(y[0], y[i]);
        check_same(after[0], after[i]);
        check_same(dmixed[0], dmixed[i]);
        check_same(dstate[0], dstate[i]);
    }
    gpu->work_limit = usual;
    destroy(3, y);
    destroy(3, after);
    destroy(3, dmixed);
    destroy(3, dstate);
    destroy(3, lists);
    tsr_tensor_destroy(&slots);
    operands_destroy(&o);
}
END_TEST

/* A recurrence of more work than the device's limit, which cannot be divided, is computed in
 * chunks. */
START_TEST(long_recurrences_become_chunks)
{
    static tsr__profile profile;
    const double usual = gpu->work_limit;
    gpu_random random = {25};
    operands o = random_operands(&random, TSR_F32);
    for (int i = 0; i < 2; i++) {
        tsr_tensor *y = like(o.v);
        gpu->work_limit = 4.0 * TOKENS * HEADS * KEY * VALUE - i;
        GPU_OK(tsr__stream_profile_begin(queue));
        GPU_OK(tsr_delta_rule(queue, y, NULL, o.q, o.k, o.v, o.beta, o.g,
                              tsr_delta_rule_params(.recurrent_tokens = TOKENS)));
        GPU_OK(tsr__stream_profile_end(queue, &profile));
        ck_assert_int_eq(commands_of(&profile, "delta_step"), 1 - i);
        tsr_tensor_destroy(&y);
    }
    gpu->work_limit = usual;
    operands_destroy(&o);
}
END_TEST

/* A token's delta rule is one dispatch, which reads its state once and writes it once. */
START_TEST(token_reads_its_state_once)
{
    static tsr__profile profile;
    static const double slot = 1;
    gpu_random random = {21};
    operands all = random_operands(&random, TSR_F16), o = part_of_operands(&all, 0, 0, 1, false);
    tsr_tensor *slots = gpu_new(TSR_F32, 4, (int64_t[]){SLOTS, HEADS, KEY, VALUE}),
               *list = uploaded(TSR_I32, 1, (int64_t[]){1}, &slot),
               *y = poisoned(TSR_F32, 4, tsr_tensor_layout(o.v)->shape);
    GPU_OK(tsr__stream_profile_begin(queue));
    GPU_OK(tsr_delta_rule(queue, y, slots, o.q, o.k, o.v, o.beta, o.g,
                          tsr_delta_rule_params(.state = slots, .norm_epsilon = 1e-6F,
                                                .read_slots = list, .write_slots = list)));
    GPU_OK(tsr__stream_profile_end(queue, &profile));
    const double state = HEADS * KEY * VALUE * sizeof(float);
    int dispatches = 0;
    for (int i = 0; i < profile.kernel_count; i++) {
        const tsr__profile_kernel *kernel = &profile.kernels[i];
        if (strcmp(kernel->name, "update") == 0) /* push constants of drivers that need it */
            continue;
        dispatches += (int)kernel->commands;
        ck_assert_double_eq(kernel->read_bytes, state + CHANNELS * 2 + 2 * HEADS * sizeof(float));
        ck_assert_double_eq(kernel->written_bytes, state + HEADS * VALUE * sizeof(float));
    }
    ck_assert_int_eq(dispatches, 1);
    destroy(3, (tsr_tensor *[]){slots, list, y});
    operands_destroy(&o);
    operands_destroy(&all);
}
END_TEST

/* Makes the second half of the rows of each state as large as f16 cannot be without a scale. All
 * invocations of a workgroup must agree on the scale of their rows. */
static void enlarge(tsr_tensor *state)
{
    double *values = values_of(state);
    for (int64_t i = 0; i < tsr_layout_count(tsr_tensor_layout(state)); i++)
        if (i / VALUE % KEY >= KEY / 2)
            values[i] *= 1 << 20;
    gpu_put(state, values);
    free(values);
}

/* With 16-bit terms, the state goes from chunk to chunk by cooperative matrices, within the stated
 * errors. */
START_TEST(chunks_by_matrices)
{
    NEEDS_MATRICES;
    static const struct {
        tsr_precision precision;
        double bound;
    } cases[] = {{TSR_PRECISION_HIGH, 1e-6}, {TSR_PRECISION_MEDIUM, 2e-3}};
    static tsr__profile profile;
    gpu_random random = {22};
    operands o = random_operands(&random, TSR_F32);
    const int64_t states[] = {BATCH, HEADS, KEY, VALUE};
    enlarge(o.state);
    tsr_tensor *exact = poisoned(TSR_F32, 4, tsr_tensor_layout(o.v)->shape),
               *exact_state = poisoned(TSR_F32, 4, states);
    GPU_OK(tsr_delta_rule(queue, exact, exact_state, o.q, o.k, o.v, o.beta, o.g,
                          tsr_delta_rule_params(.state = o.state, .norm_epsilon = 1e-6F)));
    for (int i = 0; i < 2; i++) {
        tsr_tensor *y = poisoned(TSR_F32, 4, tsr_tensor_layout(o.v)->shape),
                   *new_state = poisoned(TSR_F32, 4, states);
        GPU_OK(tsr__stream_profile_begin(queue));
        GPU_OK(tsr_delta_rule(queue, y, new_state, o.q, o.k, o.v, o.beta, o.g,
                              tsr_delta_rule_params(.state = o.state, .norm_epsilon = 1e-6F,
                                                    .precision = cases[i].precision)));
        GPU_OK(tsr__stream_profile_end(queue, &profile));
        int by_matrices = 0;
        for (int k = 0; k < profile.kernel_count; k++) {
            by_matrices += profile.kernels[k].matrix_units;
            ck_assert_str_ne(profile.kernels[k].name, "delta_scan");
        }
        ck_assert_int_eq(by_matrices, 1);
        for (int64_t b = 0; b < BATCH; b++) {
            tsr_tensor *want = part_of(exact, b, 0, TOKENS),
                       *state = part_of(exact_state, b, 0, HEADS);
            compare("y", y, b, 0, want, cases[i].bound);
            compare("state", new_state, b, 0, state, cases[i].bound);
            destroy(2, (tsr_tensor *[]){want, state});
        }
        destroy(2, (tsr_tensor *[]){y, new_state});
    }
    destroy(2, (tsr_tensor *[]){exact, exact_state});
    operands_destroy(&o);
}
END_TEST

/* Errors ------------------------------------------------------------------------------------- */

START_TEST(refusals)
{
    gpu_random random = {15};
    operands o = random_operands(&random, TSR_F32);
    const tsr_layout *l = tsr_tensor_layout(o.v);
    tsr_tensor *y = gpu_new(TSR_F32, 4, l->shape), *swapped = NULL,
               *narrow = gpu_new(TSR_F16, 3, tsr_tensor_layout(o.beta)->shape),
               *odd = gpu_new(TSR_F32, 4, (int64_t[]){BATCH, TOKENS, HEADS, 10}),
               *three = gpu_new(TSR_F32, 4, (int64_t[]){BATCH, TOKENS, 3, KEY}),
               *two = gpu_new(TSR_F32, 4, (int64_t[]){2, HEADS, KEY, VALUE}),
               *slots = gpu_new(TSR_I32, 1, l->shape), *starts = gpu_new(TSR_I32, 2, l->shape),
               *lengths = gpu_new(TSR_I32, 1, &l->shape[1]),
               *weight = gpu_new(TSR_F32, 2, (int64_t[]){CHANNELS, 17}),
               *taps = gpu_new(TSR_F32, 2, (int64_t[]){CHANNELS, TAPS}), *out = like(o.mixed);
    GPU_OK(tsr_tensor_transpose(o.mixed, 0, 1, &swapped));
    operands other = operands_of(swapped, NULL, NULL, NULL);
#define RULE(Y, Q, K, V, B, G, ...)                                                                \
    tsr_delta_rule(queue, Y, NULL, Q, K, V, B, G, tsr_delta_rule_params(__VA_ARGS__))
    GPU_FAILS(RULE(NULL, o.q, o.k, o.v, o.beta, o.g, .scale = 1), TSR_ERR_INVALID, "y is NULL");
    GPU_FAILS(RULE(y, o.q, o.k, odd, o.beta, o.g, .scale = 1), TSR_ERR_INVALID, "value_dim 10");
    GPU_FAILS(RULE(y, three, three, o.v, o.beta, o.g, .scale = 1), TSR_ERR_INVALID,
              "4 value heads and 3 key heads");
    GPU_FAILS(RULE(y, o.q, three, o.v, o.beta, o.g, .scale = 1), TSR_ERR_INVALID,
              "k is f32 [3,140,3,32]");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, narrow, o.g, .scale = 1), TSR_ERR_INVALID, "beta is f16");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, o.beta, o.g, .scale = NAN), TSR_ERR_INVALID, "scale is nan");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, o.beta, o.g, .norm_epsilon = -1), TSR_ERR_INVALID,
              "norm_epsilon -1");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, o.beta, o.g, .recurrent_tokens = -2), TSR_ERR_INVALID,
              "recurrent_tokens is -2");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, o.beta, o.g, .precision = (tsr_precision)4), TSR_ERR_INVALID,
              "unknown precision 4");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, o.beta, o.g, .lengths = lengths), TSR_ERR_INVALID,
              "lengths is i32 [140]");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, o.beta, o.g, .starts = starts, .state = o.state,
                   .read_slots = slots),
              TSR_ERR_INVALID, "packed rows (starts) cannot read slots");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, o.beta, o.g, .state = y), TSR_ERR_INVALID,
              "state is f32 [3,140,4,20]");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, o.beta, o.g, .read_slots = slots), TSR_ERR_INVALID,
              "read_slots is given, but no state");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, o.beta, o.g, .write_slots = slots), TSR_ERR_INVALID,
              "write_slots is given, but no new_state");
    GPU_FAILS(RULE(y, o.q, o.k, o.v, o.beta, o.g, .state = o.state, .read_slots = lengths),
              TSR_ERR_INVALID, "read_slots is i32 [140]");
    GPU_FAILS(tsr_delta_rule(queue, y, two, o.q, o.k, o.v, o.beta, o.g,
                             tsr_delta_rule_params(.state = o.state, .read_slots = slots,
                                                   .write_slots = slots)),
              TSR_ERR_INVALID, "state has 3 slots and new_state 2");
    GPU_FAILS(tsr_delta_rule_grad(queue, tsr_delta_rule_grads(.dq = y), y, NULL, o.q, o.k, o.v,
                                  o.beta, o.g,
                                  tsr_delta_rule_params(.state = o.state, .read_slots = slots)),
              TSR_ERR_INVALID, "gradients cannot be computed with read_slots");
    GPU_FAILS(tsr_causal_conv_grad(queue, tsr_causal_conv_grads(.dx = out), out, NULL, o.mixed,
                                   taps, tsr_causal_conv_params(.write_slots = slots)),
              TSR_ERR_INVALID, "gradients cannot be computed with write_slots");
    GPU_FAILS(RULE(o.v, o.q, o.k, o.v, o.beta, o.g, .scale = 1), TSR_ERR_INVALID, "overlap");
    GPU_FAILS(RULE(y, other.q, other.k, other.v, o.beta, o.g, .scale = 1), TSR_ERR_INVALID,
              "equal distances");
    GPU_FAILS(tsr_delta_rule_grad(queue, tsr_delta_rule_grads(.dq = o.q), y, NULL, o.q, o.k, o.v,
                                  o.beta, o.g, NULL),
              TSR_ERR_INVALID, "dk is NULL");
    GPU_FAILS(tsr_causal_conv(queue, out, NULL, o.mixed, weight, NULL), TSR_ERR_INVALID, "17");
    GPU_FAILS(tsr_causal_conv(queue, o.mixed, NULL, o.mixed, taps, NULL), TSR_ERR_INVALID,
              "overlap");
    GPU_FAILS(tsr_causal_conv(queue, out, NULL, o.q, taps, NULL), TSR_ERR_INVALID,
              "x is [3,140,2,32]");
    GPU_FAILS(tsr_causal_conv(queue, out, o.state, o.mixed, taps, NULL), TSR_ERR_INVALID,
              "new_state is f32 [3,4,32,20]");
    GPU_FAILS(tsr_causal_conv_grad(queue, tsr_causal_conv_grads(.dx = NULL), out, NULL, o.mixed,
                                   taps, NULL),
              TSR_ERR_INVALID, "all gradients are NULL");
    GPU_FAILS(tsr_causal_conv_grad(queue, tsr_causal_conv_grads(.dbias = taps), out, NULL, o.mixed,
                                   taps, NULL),
              TSR_ERR_INVALID, "dbias is given, but no bias");
    destroy(3, (tsr_tensor *[]){other.q, other.k, other.v});
    tsr_tensor *all[] = {y,      narrow,  odd,    three, two, slots,
                         starts, lengths, weight, taps,  out, swapped};
    destroy(12, all);
    operands_destroy(&o);
}
END_TEST

static operands sized;
static tsr_tensor *sized_y, *sized_weight;

static tsr_status take_rule(void *given)
{
    return tsr_delta_rule(queue, sized_y, NULL, sized.q, sized.k, sized.v, sized.beta, sized.g,
                          given);
}

static tsr_status take_convolution(void *given)
{
    tsr_tensor *y = like(sized.mixed);
    const tsr_status status = tsr_causal_conv(queue, y, NULL, sized.mixed, sized_weight, given);
    tsr_tensor_destroy(&y);
    return status;
}

START_TEST(sizes_of_structs)
{
    gpu_random random = {16};
    sized = random_operands(&random, TSR_F32);
    sized_y = gpu_new(TSR_F32, 4, tsr_tensor_layout(sized.v)->shape);
    sized_weight = random_tensor(&random, TSR_F32, 2, (int64_t[]){CHANNELS, TAPS}, 0, 1);
    const struct_sizes_case all[] = {
        {"tsr_delta_rule_params", sizeof(tsr_delta_rule_params),
         tsr_delta_rule_params(.recurrent_tokens = 1000), sizeof(size_t), false, take_rule},
        {"tsr_causal_conv_params", sizeof(tsr_causal_conv_params),
         tsr_causal_conv_params(.silu = true), sizeof(size_t), false, take_convolution},
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        unsigned char *given = malloc(all[i].size + STRUCT_SIZES_SPARE);
        ck_assert_ptr_nonnull(given);
        const char *wrong = struct_sizes_check(&all[i], given);
        free(given);
        ck_assert_msg(wrong == NULL, "%s", wrong);
    }
    destroy(2, (tsr_tensor *[]){sized_y, sized_weight});
    operands_destroy(&sized);
}
END_TEST

TESTS(recurrent)
{
    tcase_add_checked_fixture(tests, setup, gpu_teardown);
    tcase_add_test(tests, golden_convolutions);
    tcase_add_test(tests, golden_deltas);
    tcase_add_loop_test(tests, lengths_in_a_batch, 0, 2);
    tcase_add_loop_test(tests, packed_documents, 0, 2);
    tcase_add_test(tests, many_chunks);
    tcase_add_test(tests, pieces);
    tcase_add_test(tests, convolution_of_batches);
    tcase_add_test(tests, gradients_alone);
    tcase_add_loop_test(tests, states_in_slots, 0, 3);
    tcase_add_test(tests, states_of_each_token);
    tcase_add_test(tests, token_reads_its_state_once);
    tcase_add_test(tests, long_recurrences_become_chunks);
    tcase_add_test(tests, refusals);
    tcase_add_test(tests, sizes_of_structs);
}

/* The state from chunk to chunk in one kernel, with and without cooperative matrices. */
TESTS(recurrent_as_gpu)
{
    tcase_add_checked_fixture(tests, setup_as_gpu, gpu_teardown);
    tcase_add_test(tests, golden_deltas);
    tcase_add_loop_test(tests, lengths_in_a_batch, CHUNKS, MATRICES + 1);
    tcase_add_loop_test(tests, packed_documents, CHUNKS, MATRICES + 1);
    tcase_add_test(tests, pieces);
    tcase_add_loop_test(tests, states_in_slots, 0, 3);
    tcase_add_test(tests, chunks_by_matrices);
    tcase_add_loop_test(tests, chunks_within_the_work_limit, CHUNKS, MATRICES + 1);
}
