/* Compares quotients, extrema, functions of one variable, comparisons and selections, and their
 * gradients, with double precision, for random views and dtypes and at the ends of f32's range. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/check_main.h"
#include "support/gpu.h"

enum {
    COUNT_MAX = 6000,
    ENDS = 12000,
};

static const float low = -0.75f, high = 1.5f;

/* The operations ----------------------------------------------------------------------------- */

typedef tsr_status operation(tsr_tensor *y, tsr_tensor *const *x, int option);
typedef double reference(const double *x, int option);

/* One operation with `inputs` inputs. If `positive`, the numbers of the first input are positive.
 * `relative` is the allowed error relative to the result, and `absolute` is an error that is always
 * allowed. */
typedef struct function {
    const char *name;
    operation *run;
    reference *want;
    int option;
    int inputs;
    bool positive, flags;
    double relative, absolute;
} function;

static tsr_status run_div(tsr_tensor *y, tsr_tensor *const *x, int option)
{
    (void)option;
    return tsr_binary(queue, y, x[0], x[1], TSR_BINARY_DIV);
}

static double want_div(const double *x, int option)
{
    (void)option;
    return x[0] / x[1];
}

static tsr_status run_div_grad(tsr_tensor *y, tsr_tensor *const *x, int option)
{
    return tsr_binary_grad(queue, option == 0 ? y : NULL, option == 1 ? y : NULL, x[0], x[1], x[2],
                           TSR_BINARY_DIV);
}

static double want_div_grad(const double *x, int option)
{
    return option == 0 ? x[2] / x[1] : -x[2] * (x[0] / x[1]) / x[1];
}

static tsr_status run_extremum(tsr_tensor *y, tsr_tensor *const *x, int option)
{
    return option == 0 ? tsr_binary(queue, y, x[0], x[1], TSR_BINARY_MINIMUM)
                       : tsr_binary(queue, y, x[0], x[1], TSR_BINARY_MAXIMUM);
}

static double want_extremum(const double *x, int option)
{
    if (isnan(x[0]) || isnan(x[1]))
        return NAN;
    return option == 0 ? fmin(x[0], x[1]) : fmax(x[0], x[1]);
}

/* `option` selects the gradient: da of minimum, db of minimum, da of maximum or db of maximum. */
static tsr_status run_extremum_grad(tsr_tensor *y, tsr_tensor *const *x, int option)
{
    tsr_tensor *da = option % 2 == 0 ? y : NULL, *db = option % 2 == 1 ? y : NULL;
    return option < 2 ? tsr_binary_grad(queue, da, db, x[0], x[1], x[2], TSR_BINARY_MINIMUM)
                      : tsr_binary_grad(queue, da, db, x[0], x[1], x[2], TSR_BINARY_MAXIMUM);
}

static double want_extremum_grad(const double *x, int option)
{
    double mine = x[option % 2], other = x[1 - option % 2];
    if (option >= 2) {
        mine = -mine;
        other = -other;
    }
    return mine > other ? 0 : mine == other ? x[2] / 2 : x[2];
}

/* `option` selects the gradient: da or db of the sum, of the difference or of the product. */
static tsr_status run_linear_grad(tsr_tensor *y, tsr_tensor *const *x, int option)
{
    tsr_tensor *da = option % 2 == 0 ? y : NULL, *db = option % 2 == 1 ? y : NULL;
    return tsr_binary_grad(queue, da, db, x[0], x[1], x[2],
                           (tsr_binary_function)(TSR_BINARY_ADD + option / 2));
}

static double want_linear_grad(const double *x, int option)
{
    switch (option) {
    case 3:
        return -x[2];
    case 4:
        return x[2] * x[1];
    case 5:
        return x[2] * x[0];
    }
    return x[2];
}

static tsr_status run_unary(tsr_tensor *y, tsr_tensor *const *x, int option)
{
    return tsr_unary(queue, y, x[0], (tsr_unary_function)option);
}

static double want_unary(const double *x, int option)
{
    switch (option) {
    case TSR_UNARY_EXP:
        return exp(x[0]);
    case TSR_UNARY_LOG:
        return log(x[0]);
    case TSR_UNARY_SQRT:
        return sqrt(x[0]);
    case TSR_UNARY_RSQRT:
        return 1 / sqrt(x[0]);
    case TSR_UNARY_SIGMOID:
        return 1 / (1 + exp(-x[0]));
    case TSR_UNARY_TANH:
        return tanh(x[0]);
    case TSR_UNARY_ABS:
        return fabs(x[0]);
    }
    return -x[0];
}

static tsr_status run_unary_grad(tsr_tensor *y, tsr_tensor *const *x, int option)
{
    return tsr_unary_grad(queue, y, x[0], x[1], (tsr_unary_function)option);
}

static double want_unary_grad(const double *x, int option)
{
    double c;
    switch (option) {
    case TSR_UNARY_EXP:
        return x[1] * exp(x[0]);
    case TSR_UNARY_LOG:
        return x[1] / x[0];
    case TSR_UNARY_SQRT:
        return x[1] / (2 * sqrt(x[0]));
    case TSR_UNARY_RSQRT:
        return x[1] * (-0.5 / sqrt(x[0]) / x[0]);
    case TSR_UNARY_SIGMOID:
        return x[1] / (1 + exp(-x[0])) / (1 + exp(x[0]));
    case TSR_UNARY_TANH:
        c = cosh(x[0]);
        return x[1] / (c * c);
    case TSR_UNARY_ABS:
        return isnan(x[0]) ? x[0] : x[1] * ((x[0] > 0) - (x[0] < 0));
    }
    return -x[1];
}

static tsr_status run_clamp(tsr_tensor *y, tsr_tensor *const *x, int option)
{
    return option == 0 ? tsr_clamp(queue, y, x[0], low, high)
                       : tsr_clamp_grad(queue, y, x[0], x[1], low, high);
}

static double want_clamp(const double *x, int option)
{
    if (option == 1)
        return x[0] >= (double)low && x[0] <= (double)high ? x[1] : 0;
    return isnan(x[0]) ? x[0] : fmin(fmax(x[0], (double)low), (double)high);
}

static tsr_status run_compare(tsr_tensor *y, tsr_tensor *const *x, int option)
{
    return tsr_binary(queue, y, x[0], x[1], (tsr_binary_function)option);
}

static double want_compare(const double *x, int option)
{
    switch (option) {
    case TSR_BINARY_EQUAL:
        return x[0] == x[1];
    case TSR_BINARY_NOT_EQUAL:
        return x[0] != x[1];
    case TSR_BINARY_LESS:
        return x[0] < x[1];
    case TSR_BINARY_LESS_EQUAL:
        return x[0] <= x[1];
    case TSR_BINARY_GREATER:
        return x[0] > x[1];
    }
    return x[0] >= x[1];
}

/* `option` says which operands tsr_where gets: 0: a and b; 1: only a; 2: only b. */
static tsr_status run_where(tsr_tensor *y, tsr_tensor *const *x, int option)
{
    return tsr_where(queue, y, x[0], option < 2 ? x[1] : NULL,
                     option == 0   ? x[2]
                     : option == 2 ? x[1]
                                   : NULL);
}

static double want_where(const double *x, int option)
{
    if (option == 0)
        return x[0] != 0 ? x[1] : x[2];
    return (x[0] != 0) == (option == 1) ? x[1] : 0;
}

#define UNARY(name, option, positive, absolute)                                                    \
    {name, run_unary, want_unary, option, 1, positive, false, 6e-7, absolute},                     \
    {                                                                                              \
        name "'", run_unary_grad, want_unary_grad, option, 2, positive, false, 1.2e-6, 0           \
    }
#define COMPARE(name, option)                                                                      \
    {                                                                                              \
        name, run_compare, want_compare, option, 2, false, false, 0, 0                             \
    }

static const function all[] = {
    {"div", run_div, want_div, 0, 2, false, false, 4e-7, 0},
    {"add's da", run_linear_grad, want_linear_grad, 0, 3, false, false, 0, 0},
    {"add's db", run_linear_grad, want_linear_grad, 1, 3, false, false, 0, 0},
    {"sub's da", run_linear_grad, want_linear_grad, 2, 3, false, false, 0, 0},
    {"sub's db", run_linear_grad, want_linear_grad, 3, 3, false, false, 0, 0},
    {"mul's da", run_linear_grad, want_linear_grad, 4, 3, false, false, 4e-7, 0},
    {"mul's db", run_linear_grad, want_linear_grad, 5, 3, false, false, 4e-7, 0},
    {"div's da", run_div_grad, want_div_grad, 0, 3, false, false, 4e-7, 0},
    {"div's db", run_div_grad, want_div_grad, 1, 3, false, false, 1e-6, 0},
    {"minimum", run_extremum, want_extremum, 0, 2, false, false, 0, 0},
    {"maximum", run_extremum, want_extremum, 1, 2, false, false, 0, 0},
    {"minimum's da", run_extremum_grad, want_extremum_grad, 0, 3, false, false, 0, 0},
    {"minimum's db", run_extremum_grad, want_extremum_grad, 1, 3, false, false, 0, 0},
    {"maximum's da", run_extremum_grad, want_extremum_grad, 2, 3, false, false, 0, 0},
    {"maximum's db", run_extremum_grad, want_extremum_grad, 3, 3, false, false, 0, 0},
    UNARY("exp", TSR_UNARY_EXP, false, 0),
    UNARY("log", TSR_UNARY_LOG, true, 1e-7),
    UNARY("sqrt", TSR_UNARY_SQRT, true, 0),
    UNARY("rsqrt", TSR_UNARY_RSQRT, true, 0),
    UNARY("sigmoid", TSR_UNARY_SIGMOID, false, 0),
    UNARY("tanh", TSR_UNARY_TANH, false, 0),
    UNARY("abs", TSR_UNARY_ABS, false, 0),
    UNARY("neg", TSR_UNARY_NEG, false, 0),
    {"clamp", run_clamp, want_clamp, 0, 1, false, false, 0, 0},
    {"clamp'", run_clamp, want_clamp, 1, 2, false, false, 0, 0},
    COMPARE("equal", TSR_BINARY_EQUAL),
    COMPARE("not equal", TSR_BINARY_NOT_EQUAL),
    COMPARE("less", TSR_BINARY_LESS),
    COMPARE("less or equal", TSR_BINARY_LESS_EQUAL),
    COMPARE("greater", TSR_BINARY_GREATER),
    COMPARE("greater or equal", TSR_BINARY_GREATER_EQUAL),
    {"where", run_where, want_where, 0, 3, false, true, 0, 0},
    {"where without b", run_where, want_where, 1, 2, false, true, 0, 0},
    {"where without a", run_where, want_where, 2, 2, false, true, 0, 0},
};

enum {
    FUNCTIONS = sizeof all / sizeof *all,
};

static bool compares(const function *f)
{
    return f->run == run_compare;
}

/* Returns whether a result is close enough. Rounding it from f32 to y's dtype adds an error of up
 * to one unit in y's last place. */
static bool is_close(const function *f, tsr_dtype dtype, double got, double want)
{
    if (isnan(want))
        return isnan(got);
    want = gpu_rounded(want, TSR_F32);
    if (got == 0 && fabs(want) < 0x1p-126)
        return true; /* subnormal numbers may be flushed */
    if (isinf(want) || f->relative == 0)
        return got == gpu_rounded(want, dtype);
    const double error = f->relative * fabs(want) + f->absolute + 0x1p-126;
    const double least = gpu_rounded(want - error, dtype), most = gpu_rounded(want + error, dtype);
    return got >= least && got <= most;
}

/* Random views ------------------------------------------------------------------------------- */

typedef struct operand {
    int ndim;
    int64_t shape[TSR_MAX_DIMS];
    tsr_tensor *parent, *view;
    double values[COUNT_MAX];
} operand;

static int64_t count_of(const operand *x)
{
    int64_t count = 1;
    for (int i = 0; i < x->ndim; i++)
        count *= x->shape[i];
    return count;
}

/* Returns a number with few digits, so that some numbers are equal and some are 0. All fit in u8 if
 * that is required. */
static double draw(gpu_random *random, const function *f, int index)
{
    if (f->flags && index == 0)
        return (double)gpu_random_between(random, 0, 1) * (double)gpu_random_between(random, 1, 9);
    double x = (double)gpu_random_between(random, -24, 24) / 8;
    if (x == 0 && (f->run == run_div || f->run == run_div_grad))
        return 0.5;
    return f->positive && index == 0 ? fabs(x) + 0.125 : x;
}

static void make(gpu_random *random, const function *f, int index, tsr_dtype dtype, operand *out)
{
    out->view = gpu_random_view(random, dtype, out->ndim, out->shape, &out->parent);
    for (int64_t i = 0; i < count_of(out); i++)
        out->values[i] = gpu_rounded(draw(random, f, index), dtype);
    gpu_put(out->view, out->values);
}

static void broadcast(gpu_random *random, const operand *y, operand *out)
{
    int dropped =
        gpu_random_between(random, 0, 3) == 0 ? (int)gpu_random_between(random, 0, y->ndim) : 0;
    out->ndim = y->ndim - dropped;
    for (int i = 0; i < out->ndim; i++)
        out->shape[i] = gpu_random_between(random, 0, 7) == 0 ? 1 : y->shape[dropped + i];
}

static double value_at(const operand *x, const operand *y, int64_t n)
{
    int64_t index = 0, stride = 1;
    for (int i = 1; i <= y->ndim; i++) {
        int64_t position = n % y->shape[y->ndim - i];
        n /= y->shape[y->ndim - i];
        if (i > x->ndim)
            continue;
        index += (x->shape[x->ndim - i] == 1 ? 0 : position) * stride;
        stride *= x->shape[x->ndim - i];
    }
    return x->values[index];
}

static void drop(operand *x)
{
    tsr_tensor_destroy(&x->view);
    tsr_tensor_destroy(&x->parent);
}

/* The dtypes of y and of the inputs. Each combination of dtypes or strides needs a pipeline.
 * Therefore each function is tested with two mixtures and three random combinations of strides.
 * That is enough, because all functions load and store in the same way. */
static const tsr_dtype mixtures[][4] = {
    {TSR_F32, TSR_F32, TSR_F32, TSR_F32},
    {TSR_F16, TSR_BF16, TSR_F32, TSR_F16},
    {TSR_BF16, TSR_F16, TSR_BF16, TSR_F32},
};

static void check_values(const function *f, const operand *y, const operand *x, tsr_dtype dtype)
{
    static double got[COUNT_MAX];
    gpu_get(y->view, got);
    for (int64_t n = 0; n < count_of(y); n++) {
        double in[3] = {0};
        for (int i = 0; i < f->inputs; i++)
            in[i] = value_at(&x[i], y, n);
        if (!is_close(f, dtype, got[n], f->want(in, f->option)))
            ck_abort_msg("%s, %s, element %lld: %.9g instead of %.9g from %.9g, %.9g, %.9g",
                         f->name, tsr_dtype_name(dtype), (long long)n, got[n],
                         f->want(in, f->option), in[0], in[1], in[2]);
    }
}

static void check_case(gpu_random *random, const function *f, int mixture, bool vectors)
{
    static operand y, x[3];
    tsr_tensor *views[3] = {NULL};
    y.ndim = vectors ? 2 : (int)gpu_random_between(random, 0, 5);
    for (int i = 0; i < y.ndim; i++)
        y.shape[i] =
            gpu_random_between(random, gpu_random_between(random, 0, 30) > 0, y.ndim <= 2 ? 40 : 5);
    if (vectors) {
        y.shape[0] = gpu_random_between(random, 20, 27);
        y.shape[1] = gpu_random_between(random, 200, 220);
    }
    const tsr_dtype *dtypes = mixtures[(f - all + mixture) % 3];
    tsr_dtype dtype = dtypes[0];
    if (compares(f) && gpu_random_between(random, 0, 1))
        dtype = TSR_U8;
    if (vectors) {
        y.parent = NULL;
        y.view = gpu_new(dtype, y.ndim, y.shape);
    } else {
        y.view = gpu_random_view(random, dtype, y.ndim, y.shape, &y.parent);
    }
    for (int i = 0; i < f->inputs; i++) {
        tsr_dtype given = dtypes[1 + i];
        if (f->flags && i == 0 && gpu_random_between(random, 0, 1))
            given = TSR_U8;
        broadcast(random, &y, &x[i]);
        make(random, f, i, given, &x[i]);
        views[i] = x[i].view;
    }
    GPU_OK(f->run(y.view, views, f->option));
    check_values(f, &y, x, dtype);
    for (int i = 0; i < f->inputs; i++)
        drop(&x[i]);
    drop(&y);
}

/* Each round of a test runs several functions, because opening a device takes as long as checking
 * one of them. */
enum {
    PER_ROUND = 6,
    ROUNDS = FUNCTIONS / PER_ROUND,
};
_Static_assert(FUNCTIONS % PER_ROUND == 0 && FUNCTIONS % 3 == 0, "every function is tested");

START_TEST(random_views)
{
    for (int n = PER_ROUND * _i; n < PER_ROUND * (_i + 1); n++) {
        gpu_random random = {(uint64_t)n};
        for (int i = 0; i < 3; i++)
            check_case(&random, &all[n], i % 2, false);
    }
}
END_TEST

START_TEST(every_third)
{
    for (int n = 2; n < FUNCTIONS; n += 3) {
        gpu_random random = {200 + (uint64_t)n};
        for (int i = 0; i < 3; i++)
            check_case(&random, &all[n], i % 2, false);
    }
}
END_TEST

/* Rows are long enough for the kernels of CPU drivers. */
START_TEST(long_rows)
{
    for (int n = PER_ROUND * _i; n < PER_ROUND * (_i + 1); n++) {
        gpu_random random = {100 + (uint64_t)n};
        check_case(&random, &all[n], (n + n / 3) % 2, true);
    }
}
END_TEST

/* The ends of f32's range -------------------------------------------------------------------- */

static void fill_ends(double *x, uint64_t seed)
{
    static const double special[] = {0,
                                     -0.0,
                                     INFINITY,
                                     -INFINITY,
                                     NAN,
                                     3.4028234663852886e38,
                                     -3.4028234663852886e38,
                                     1.17549435e-38,
                                     -1.17549435e-38,
                                     88,
                                     -88,
                                     89,
                                     -104,
                                     1,
                                     -1,
                                     0.625,
                                     1e-20,
                                     1e20,
                                     1e-3};
    enum {
        SPECIAL = sizeof special / sizeof *special,
    };
    gpu_random random = {seed};
    for (int i = 0; i < ENDS; i++) {
        x[i] = 12 * gpu_random_unit(&random);
        if (i % 4 == 0)
            x[i] = ldexp(gpu_random_unit(&random), (int)gpu_random_between(&random, -120, 120));
        x[i] = gpu_rounded(x[i], TSR_F32);
    }
    for (int i = 0; i < SPECIAL * SPECIAL; i++)
        x[i] = special[seed == 1 ? i % SPECIAL : i / SPECIAL];
}

/* Returns whether the reference in double precision can be compared with the result in f32. It
 * cannot if an intermediate result, such as a quotient of quotients or a product with a slope,
 * leaves the range of f32. */
static bool in_range(const function *f, const double *x)
{
    if (f->relative == 0)
        return true;
    for (int i = 0; i < f->inputs; i++)
        if (fabs(x[i]) > 1e30 || (x[i] != 0 && fabs(x[i]) < 1e-30))
            return f->run == run_unary;
    const double want = f->want(x, f->option);
    if (f->run == run_unary_grad && isfinite(want)) {
        const double slope = f->want((double[]){x[0], 1}, f->option);
        return fabs(slope) > 1e-30 && fabs(slope) < 1e30;
    }
    if (f->run == run_div_grad && f->option == 1)
        for (int i = 0; i < 3; i += 2) {
            const double quotient = fabs(x[i] / x[1]);
            if (!(quotient > 1e-30 && quotient < 1e30))
                return false;
        }
    return true;
}

static void check_ends(const function *f)
{
    int64_t count = ENDS;
    double *x[3], *got = malloc(ENDS * sizeof *got);
    tsr_tensor *t[3] = {NULL}, *y = gpu_new(TSR_F32, 1, &count);
    ck_assert(got != NULL);
    for (int i = 0; i < 3; i++) {
        x[i] = malloc(ENDS * sizeof *x[i]);
        ck_assert(x[i] != NULL);
        fill_ends(x[i], 1 + (uint64_t)i);
        t[i] = gpu_new(TSR_F32, 1, &count);
        gpu_put(t[i], x[i]);
    }
    gpu_poison(y);
    GPU_OK(f->run(y, t, f->option));
    gpu_get(y, got);
    for (int n = 0; n < ENDS; n++) {
        const double in[3] = {x[0][n], x[1][n], x[2][n]};
        const double want = f->want(in, f->option);
        if (in_range(f, in) && !is_close(f, TSR_F32, got[n], want))
            ck_abort_msg("%s: %.9g instead of %.9g from %.9g, %.9g, %.9g", f->name, got[n], want,
                         in[0], in[1], in[2]);
    }
    for (int i = 0; i < 3; i++) {
        tsr_tensor_destroy(&t[i]);
        free(x[i]);
    }
    tsr_tensor_destroy(&y);
    free(got);
}

START_TEST(ends_of_the_range)
{
    for (int n = PER_ROUND * _i; n < PER_ROUND * (_i + 1); n++)
        check_ends(&all[n]);
}
END_TEST

/* tanh is about x near 0, and log is about x − 1 near 1. They must have the same relative precision
 * there. */
START_TEST(keeps_its_digits)
{
    double x[64], got[64];
    int64_t count = 64;
    tsr_tensor *t = gpu_new(TSR_F32, 1, &count), *y = gpu_new(TSR_F32, 1, &count);
    for (int i = 0; i < 64; i++)
        x[i] = gpu_rounded((i % 2 ? -1 : 1) * ldexp(1.37, -i), TSR_F32);
    gpu_put(t, x);
    GPU_OK(tsr_unary(queue, y, t, TSR_UNARY_TANH));
    gpu_get(y, got);
    for (int i = 0; i < 64; i++)
        ck_assert_msg(fabs(got[i] - tanh(x[i])) <= 4e-7 * fabs(x[i]), "tanh %g is %.9g", x[i],
                      got[i]);
    for (int i = 0; i < 64; i++)
        x[i] = gpu_rounded(1 + (i % 2 ? -1 : 1) * ldexp(0.37, -i / 3), TSR_F32);
    gpu_put(t, x);
    GPU_OK(tsr_unary(queue, y, t, TSR_UNARY_LOG));
    gpu_get(y, got);
    for (int i = 0; i < 64; i++)
        ck_assert_msg(fabs(got[i] - log(x[i])) <= 6e-7 * fabs(log(x[i])), "log %.9g is %.9g", x[i],
                      got[i]);
    tsr_tensor_destroy(&y);
    tsr_tensor_destroy(&t);
}
END_TEST

/* Tests both gradients in one call, and outputs that are the same views as inputs. */
START_TEST(both_gradients)
{
    int64_t shape[] = {70, 90}, turned[] = {90, 70};
    enum {
        N = 70 * 90,
    };
    static double a[N], b[N], dy[N], da[N], db[N];
    gpu_random random = {7};
    tsr_tensor *ta = gpu_new(TSR_F32, 2, shape), *packed = gpu_new(TSR_F32, 2, turned), *tb;
    tsr_tensor *tdy = gpu_new(TSR_F32, 2, shape), *tda = gpu_new(TSR_F32, 2, shape);
    GPU_OK(tsr_tensor_transpose(packed, 0, 1, &tb));
    for (int i = 0; i < N; i++) {
        a[i] = (double)gpu_random_between(&random, 1, 5);
        b[i] = (double)gpu_random_between(&random, 1, 5);
        dy[i] = gpu_rounded(gpu_random_unit(&random), TSR_F32);
    }
    gpu_put(ta, a);
    gpu_put(tb, b);
    gpu_put(tdy, dy);
    GPU_OK(tsr_binary_grad(queue, tda, tdy, ta, tb, tdy, TSR_BINARY_MAXIMUM));
    gpu_get(tda, da);
    gpu_get(tdy, db);
    for (int i = 0; i < N; i++) {
        const double in[] = {a[i], b[i], dy[i]};
        ck_assert_double_eq(da[i], want_extremum_grad(in, 2));
        ck_assert_double_eq(db[i], want_extremum_grad(in, 3));
    }
    GPU_OK(tsr_binary_grad(queue, tdy, NULL, ta, tb, tda, TSR_BINARY_DIV));
    gpu_get(tdy, db);
    for (int i = 0; i < N; i++)
        ck_assert_double_eq_tol(db[i], da[i] / b[i], 4e-7);
    GPU_FAILS(tsr_binary_grad(queue, ta, tdy, ta, tb, tda, TSR_BINARY_DIV), TSR_ERR_INVALID,
              "div_grad: da [70,90] overlaps a [70,90]");
    GPU_FAILS(tsr_binary_grad(queue, tdy, tdy, ta, tb, tda, TSR_BINARY_DIV), TSR_ERR_INVALID,
              "div_grad: da [70,90] overlaps db [70,90]");
    tsr_tensor_destroy(&tda);
    tsr_tensor_destroy(&tdy);
    tsr_tensor_destroy(&tb);
    tsr_tensor_destroy(&packed);
    tsr_tensor_destroy(&ta);
}
END_TEST

START_TEST(refuses)
{
    int64_t shape[] = {2, 3}, other[] = {4};
    tsr_tensor *x = gpu_new(TSR_F32, 2, shape), *z = gpu_new(TSR_F32, 2, shape),
               *i = gpu_new(TSR_I32, 2, shape), *u = gpu_new(TSR_U8, 2, shape),
               *o = gpu_new(TSR_F32, 1, other);
    GPU_FAILS(tsr_unary(queue, x, x, (tsr_unary_function)0), TSR_ERR_INVALID,
              "unary: unknown function 0");
    GPU_FAILS(tsr_unary_grad(queue, x, x, x, (tsr_unary_function)9), TSR_ERR_INVALID,
              "unary_grad: unknown function 9");
    GPU_FAILS(tsr_unary(queue, x, NULL, TSR_UNARY_EXP), TSR_ERR_INVALID, "unary: x is NULL");
    GPU_FAILS(tsr_unary(queue, u, x, TSR_UNARY_EXP), TSR_ERR_INVALID, "unary: y is u8");
    GPU_FAILS(tsr_unary_grad(queue, x, x, NULL, TSR_UNARY_EXP), TSR_ERR_INVALID,
              "unary_grad: dy is NULL");
    GPU_FAILS(tsr_binary(queue, x, i, x, TSR_BINARY_DIV), TSR_ERR_INVALID,
              "div: a is i32; f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_binary(queue, x, x, o, TSR_BINARY_MINIMUM), TSR_ERR_INVALID,
              "minimum: b [4] does not broadcast to y [2,3]");
    GPU_FAILS(tsr_binary(NULL, x, x, x, TSR_BINARY_MAXIMUM), TSR_ERR_INVALID,
              "maximum: stream is NULL");
    GPU_FAILS(tsr_binary_grad(queue, NULL, NULL, x, x, x, TSR_BINARY_DIV), TSR_ERR_INVALID,
              "div_grad: da and db are both NULL");
    GPU_FAILS(tsr_binary_grad(queue, z, NULL, x, x, NULL, TSR_BINARY_DIV), TSR_ERR_INVALID,
              "div_grad: dy is NULL");
    GPU_FAILS(tsr_binary_grad(queue, z, NULL, x, u, x, TSR_BINARY_MINIMUM), TSR_ERR_INVALID,
              "minimum_grad: b is u8");
    GPU_FAILS(tsr_binary_grad(queue, NULL, z, x, o, x, TSR_BINARY_MAXIMUM), TSR_ERR_INVALID,
              "maximum_grad: b [4] does not broadcast to db [2,3]");
    GPU_FAILS(tsr_clamp(queue, x, x, 2, 1), TSR_ERR_INVALID,
              "clamp: low is 2 and high 1; low must not be above high");
    GPU_FAILS(tsr_clamp(queue, x, x, NAN, 1), TSR_ERR_INVALID, "clamp: low is nan");
    GPU_FAILS(tsr_clamp_grad(queue, x, x, x, 2, 1), TSR_ERR_INVALID, "clamp_grad: low is 2");
    GPU_FAILS(tsr_binary(queue, x, x, x, (tsr_binary_function)0), TSR_ERR_INVALID,
              "binary: unknown function 0");
    GPU_FAILS(tsr_binary(queue, x, x, x, (tsr_binary_function)13), TSR_ERR_INVALID,
              "binary: unknown function 13");
    GPU_FAILS(tsr_binary_grad(queue, z, NULL, x, x, x, (tsr_binary_function)13), TSR_ERR_INVALID,
              "binary_grad: unknown function 13");
    GPU_FAILS(tsr_binary_grad(queue, z, NULL, x, x, x, TSR_BINARY_LESS_EQUAL), TSR_ERR_INVALID,
              "binary_grad: less_equal has no gradients");
    GPU_FAILS(tsr_binary_grad(queue, z, NULL, x, NULL, x, TSR_BINARY_MUL), TSR_ERR_INVALID,
              "mul_grad: b is NULL");
    GPU_FAILS(tsr_binary(queue, u, x, x, TSR_BINARY_ADD), TSR_ERR_INVALID, "add: y is u8");
    GPU_FAILS(tsr_binary(queue, i, x, x, TSR_BINARY_LESS), TSR_ERR_INVALID,
              "less: y is i32; u8, f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_binary(queue, u, u, x, TSR_BINARY_LESS), TSR_ERR_INVALID, "less: a is u8");
    GPU_FAILS(tsr_where(queue, x, u, NULL, NULL), TSR_ERR_INVALID, "where: a and b are both NULL");
    GPU_FAILS(tsr_where(queue, x, NULL, x, x), TSR_ERR_INVALID, "where: condition is NULL");
    GPU_FAILS(tsr_where(queue, x, i, x, x), TSR_ERR_INVALID,
              "where: condition is i32; u8, f32, f16 or bf16 is needed");
    GPU_FAILS(tsr_where(queue, x, u, x, u), TSR_ERR_INVALID, "where: b is u8");
    GPU_FAILS(tsr_where(queue, x, u, NULL, o), TSR_ERR_INVALID,
              "where: b [4] does not broadcast to y [2,3]");
    tsr_tensor_destroy(&o);
    tsr_tensor_destroy(&u);
    tsr_tensor_destroy(&i);
    tsr_tensor_destroy(&z);
    tsr_tensor_destroy(&x);
}
END_TEST

TESTS(functions)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, random_views, 0, ROUNDS);
    tcase_add_loop_test(tests, ends_of_the_range, 0, ROUNDS);
    tcase_add_test(tests, keeps_its_digits);
    tcase_add_test(tests, both_gradients);
    tcase_add_test(tests, refuses);
}

TESTS(functions_slow)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, long_rows, 0, ROUNDS);
}

TESTS(functions_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_test(tests, every_third);
}
