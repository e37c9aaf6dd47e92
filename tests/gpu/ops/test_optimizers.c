/* Compares several steps of SGD and AdamW with the formulas of torch.optim in double precision. */
#include <math.h>
#include <stdlib.h>

#include "gpu/ops/optimizer/step_params.h"
#include "support/check_main.h"
#include "support/gpu.h"

#define STEPS 5
#define COUNT_MAX 2048

#define SGD(...) (&(tsr_sgd_params){.struct_size = sizeof(tsr_sgd_params), __VA_ARGS__})
#define ADAMW(...) (&(tsr_adamw_params){.struct_size = sizeof(tsr_adamw_params), __VA_ARGS__})

/* An optimizer's tensors, and their values in double precision. */
typedef struct setup {
    tsr_dtype parameter_dtype, gradient_dtype;
    bool has_master;
    int64_t count;
    tsr_tensor *parameter, *gradient, *master, *state, *state2;
    tsr_tensor *parents[5];
    double p[COUNT_MAX], g[COUNT_MAX], s[COUNT_MAX], s2[COUNT_MAX];
} setup;

static tsr_tensor *view(gpu_random *random, tsr_dtype dtype, const int64_t *shape, int ndim,
                        tsr_tensor **parent)
{
    return gpu_random_view(random, dtype, ndim, shape, parent);
}

static setup *make(gpu_random *random, tsr_dtype parameter, tsr_dtype gradient, bool master,
                   int ndim, const int64_t *shape)
{
    setup *s = calloc(1, sizeof *s);
    ck_assert_ptr_nonnull(s);
    s->parameter_dtype = parameter;
    s->gradient_dtype = gradient;
    s->has_master = master;
    s->parameter = view(random, parameter, shape, ndim, &s->parents[0]);
    s->gradient = view(random, gradient, shape, ndim, &s->parents[1]);
    s->state = view(random, TSR_F32, shape, ndim, &s->parents[2]);
    s->state2 = view(random, TSR_F32, shape, ndim, &s->parents[3]);
    if (master)
        s->master = view(random, TSR_F32, shape, ndim, &s->parents[4]);
    s->count = tsr_layout_count(tsr_tensor_layout(s->parameter));
    ck_assert_int_le(s->count, COUNT_MAX);

    for (int64_t i = 0; i < s->count; i++)
        s->p[i] = gpu_rounded(gpu_random_unit(random), master ? TSR_F32 : parameter);
    gpu_put(s->parameter, s->p);
    if (master)
        gpu_put(s->master, s->p);
    return s;
}

static void next_gradient(setup *s, gpu_random *random)
{
    for (int64_t i = 0; i < s->count; i++)
        s->g[i] = gpu_rounded(gpu_random_unit(random), s->gradient_dtype);
    gpu_put(s->gradient, s->g);
}

static void check(const char *what, tsr_tensor *tensor, const double *want, int64_t count,
                  double tolerance)
{
    double *got = malloc((size_t)(count + 1) * sizeof *got);
    ck_assert_ptr_nonnull(got);
    gpu_get(tensor, got);
    for (int64_t i = 0; i < count; i++)
        ck_assert_msg(fabs(got[i] - want[i]) <= tolerance * (1 + fabs(want[i])),
                      "%s[%lld] is %.9g, not %.9g", what, (long long)i, got[i], want[i]);
    free(got);
}

/* Without a master copy the parameter is rounded at each step. Therefore the reference starts each
 * step from the values that the device stored. */
static void check_step(setup *s, bool state2)
{
    const double f32 = 4e-7;
    double half_step = s->parameter_dtype == TSR_F16 ? 0x1p-11 : 0x1p-8;
    check("parameter", s->parameter, s->p, s->count,
          s->parameter_dtype == TSR_F32 ? f32 : half_step + f32);
    check("state", s->state, s->s, s->count, f32);
    if (state2)
        check("state2", s->state2, s->s2, s->count, f32);
    if (s->has_master) {
        double *exact = malloc((size_t)(s->count + 1) * sizeof *exact);
        ck_assert_ptr_nonnull(exact);
        check("master", s->master, s->p, s->count, f32);
        /* The parameter must be exactly the master copy, rounded to the parameter's dtype. */
        gpu_get(s->master, exact);
        for (int64_t i = 0; i < s->count; i++)
            exact[i] = gpu_rounded(exact[i], s->parameter_dtype);
        check("parameter", s->parameter, exact, s->count, 0);
        free(exact);
    } else {
        gpu_get(s->parameter, s->p);
    }
}

static void finish(setup *s)
{
    tsr_tensor_destroy(&s->parameter);
    tsr_tensor_destroy(&s->gradient);
    tsr_tensor_destroy(&s->state);
    tsr_tensor_destroy(&s->state2);
    tsr_tensor_destroy(&s->master);
    for (int i = 0; i < 5; i++)
        tsr_tensor_destroy(&s->parents[i]);
    free(s);
}

/* SGD ------------------------------------------------------------------------------------------ */

static void sgd_reference(setup *s, const tsr_sgd_params *params)
{
    double rate = (double)params->learning_rate, momentum = (double)params->momentum;
    for (int64_t i = 0; i < s->count; i++) {
        double d = s->g[i] + (double)params->weight_decay * s->p[i];
        if (momentum != 0) {
            s->s[i] =
                params->first_step ? d : momentum * s->s[i] + (1 - (double)params->dampening) * d;
            d = params->nesterov ? d + momentum * s->s[i] : s->s[i];
        }
        s->p[i] -= rate * d;
    }
}

static const struct {
    tsr_dtype parameter, gradient;
    bool master;
    tsr_sgd_params params;
} sgd_cases[] = {
    {TSR_F32, TSR_F32, false, {.learning_rate = 0.1f}},
    {TSR_F32, TSR_F32, false, {.learning_rate = 0.1f, .weight_decay = 0.01f}},
    {TSR_F32, TSR_F32, false, {.learning_rate = 0.05f, .momentum = 0.9f}},
    {TSR_F32,
     TSR_BF16,
     false,
     {.learning_rate = 0.05f, .momentum = 0.8f, .dampening = 0.3f, .weight_decay = 0.1f}},
    {TSR_F32,
     TSR_F32,
     false,
     {.learning_rate = 0.05f, .momentum = 0.9f, .nesterov = true, .weight_decay = 0.05f}},
    {TSR_F16, TSR_F16, true, {.learning_rate = 0.01f, .momentum = 0.9f, .nesterov = true}},
    {TSR_BF16, TSR_BF16, false, {.learning_rate = 0.1f, .momentum = 0.5f}},
    {TSR_BF16, TSR_F32, true, {.learning_rate = 0.001f, .weight_decay = 0.1f}},
};

START_TEST(sgd_matches_reference)
{
    gpu_random random = {.state = 100 + (uint64_t)_i};
    const int64_t shape[] = {13, 2, 31};
    setup *s = make(&random, sgd_cases[_i].parameter, sgd_cases[_i].gradient, sgd_cases[_i].master,
                    3, shape);
    bool momentum = sgd_cases[_i].params.momentum != 0;
    gpu_poison(s->parents[2] ? s->parents[2] : s->state); /* the first step does not read it */
    for (int step = 0; step < STEPS; step++) {
        tsr_sgd_params params = sgd_cases[_i].params;
        params.struct_size = sizeof params;
        params.first_step = step == 0;
        next_gradient(s, &random);
        GPU_OK(tsr_sgd_step(queue, s->parameter, s->gradient, momentum ? s->state : NULL, s->master,
                            &params));
        sgd_reference(s, &params);
        if (!momentum) {
            for (int64_t i = 0; i < s->count; i++)
                s->s[i] = 0;
            gpu_put(s->state, s->s);
        }
        check_step(s, false);
    }
    finish(s);
}
END_TEST

/* AdamW ---------------------------------------------------------------------------------------- */

/* The number that a field means: 0 is its default, −0 is zero. */
static double number(float field, float otherwise)
{
    return field != 0 ? (double)field : signbit(field) ? 0 : (double)otherwise;
}

static void adamw_reference(setup *s, const tsr_adamw_params *params)
{
    double beta1 = number(params->beta1, 0.9f), beta2 = number(params->beta2, 0.999f);
    double epsilon = number(params->epsilon, 1e-8f);
    double rate = (double)params->learning_rate;
    double correction1 = 1 - pow(beta1, (double)params->step);
    double correction2 = 1 - pow(beta2, (double)params->step);
    for (int64_t i = 0; i < s->count; i++) {
        s->p[i] *= 1 - rate * (double)params->weight_decay;
        s->s[i] = beta1 * s->s[i] + (1 - beta1) * s->g[i];
        s->s2[i] = beta2 * s->s2[i] + (1 - beta2) * s->g[i] * s->g[i];
        s->p[i] -= rate / correction1 * s->s[i] / (sqrt(s->s2[i]) / sqrt(correction2) + epsilon);
    }
}

static const struct {
    tsr_dtype parameter, gradient;
    bool master;
    tsr_adamw_params params;
} adamw_cases[] = {
    {TSR_F32, TSR_F32, false, {.learning_rate = 0.01f}},
    {TSR_F32,
     TSR_BF16,
     false,
     {.learning_rate = 0.1f,
      .beta1 = 0.8f,
      .beta2 = 0.95f,
      .epsilon = 1e-3f,
      .weight_decay = 0.2f}},
    {TSR_F16, TSR_F32, true, {.learning_rate = 0.003f, .weight_decay = 0.1f}},
    {TSR_BF16, TSR_BF16, false, {.learning_rate = 0.1f, .beta1 = 0.5f}},
    {TSR_F32, TSR_F32, false, {.learning_rate = 0.1f, .beta1 = TSR_ZERO, .beta2 = 0.9f}},
    {TSR_F32, TSR_F32, false, {.learning_rate = 0.1f, .beta2 = TSR_ZERO}},
    {TSR_F32, TSR_F32, false, {.learning_rate = 0.1f, .epsilon = TSR_ZERO}},
};

static void start_moments(setup *s)
{
    gpu_put(s->state, s->s);
    gpu_put(s->state2, s->s2);
}

START_TEST(adamw_matches_reference)
{
    gpu_random random = {.state = 200 + (uint64_t)_i};
    const int64_t shape[] = {7, 3, 1, 41};
    setup *s = make(&random, adamw_cases[_i].parameter, adamw_cases[_i].gradient,
                    adamw_cases[_i].master, 4, shape);
    start_moments(s);
    for (int step = 1; step <= STEPS; step++) {
        tsr_adamw_params params = adamw_cases[_i].params;
        params.struct_size = sizeof params;
        params.step = step;
        next_gradient(s, &random);
        GPU_OK(tsr_adamw_step(queue, s->parameter, s->gradient, s->state, s->state2, s->master,
                              &params));
        adamw_reference(s, &params);
        check_step(s, true);
    }
    finish(s);
}
END_TEST

/* The bias corrections are computed in double precision: they are 1 to the last bit at step 10^6,
 * and 1 − beta at step 1. */
START_TEST(adamw_late_step)
{
    gpu_random random = {.state = 5};
    const int64_t shape[] = {100};
    setup *s = make(&random, TSR_F32, TSR_F32, false, 1, shape);
    start_moments(s);
    const tsr_adamw_params params = {
        .struct_size = sizeof params, .learning_rate = 0.5f, .step = 1000000};
    next_gradient(s, &random);
    GPU_OK(tsr_adamw_step(queue, s->parameter, s->gradient, s->state, s->state2, NULL, &params));
    adamw_reference(s, &params);
    check_step(s, true);
    finish(s);
}
END_TEST

/* Shapes of parameters ------------------------------------------------------------------------- */

/* Tests views of all kinds with up to eight dimensions that cannot be merged. */
START_TEST(any_views)
{
    gpu_random random = {.state = 31};
    for (int i = 0; i < 25; i++) {
        int64_t shape[8];
        int ndim = (int)gpu_random_between(&random, 0, 6);
        for (int d = 0; d < ndim; d++)
            shape[d] = gpu_random_between(&random, d == 0 && i % 8 == 0 ? 0 : 1, 4);
        setup *s = make(&random, TSR_F32, TSR_F32, false, ndim, shape);
        start_moments(s);
        next_gradient(s, &random);
        const tsr_adamw_params adamw = {
            .struct_size = sizeof adamw, .learning_rate = 0.1f, .step = 3};
        GPU_OK(tsr_adamw_step(queue, s->parameter, s->gradient, s->state, s->state2, NULL, &adamw));
        adamw_reference(s, &adamw);
        check_step(s, true);
        const tsr_sgd_params sgd = {
            .struct_size = sizeof sgd, .learning_rate = 0.1f, .momentum = 0.9f};
        GPU_OK(tsr_sgd_step(queue, s->parameter, s->gradient, s->state, NULL, &sgd));
        sgd_reference(s, &sgd);
        check_step(s, true);
        finish(s);
    }
}
END_TEST

/* The parameter is a view of every other row and column, in three dimensions. The other elements
 * must keep their poison. */
START_TEST(neighbours_are_untouched)
{
    const int64_t shape[] = {5, 6, 7}, part[] = {3, 3, 4};
    tsr_tensor *whole = gpu_new(TSR_F16, 3, shape), *a = NULL, *b = NULL, *c = NULL;
    tsr_tensor *gradient = gpu_new(TSR_F32, 3, part);
    gpu_poison(whole);
    GPU_OK(tsr_tensor_slice(whole, 0, 0, 5, 2, &a));
    GPU_OK(tsr_tensor_slice(a, 1, 0, 6, 2, &b));
    GPU_OK(tsr_tensor_slice(b, 2, 0, 7, 2, &c));
    double ones[36], got[210];
    for (int i = 0; i < 36; i++)
        ones[i] = 1;
    gpu_put(c, ones);
    gpu_put(gradient, ones);
    GPU_OK(tsr_sgd_step(queue, c, gradient, NULL, NULL, SGD(.learning_rate = 0.25f)));
    gpu_get(whole, got);
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 6; j++)
            for (int k = 0; k < 7; k++) {
                double value = got[(i * 6 + j) * 7 + k];
                if (i % 2 == 0 && j % 2 == 0 && k % 2 == 0)
                    ck_assert_double_eq(value, 0.75);
                else
                    ck_assert(isnan(value));
            }
    tsr_tensor_destroy(&c);
    tsr_tensor_destroy(&b);
    tsr_tensor_destroy(&a);
    tsr_tensor_destroy(&gradient);
    tsr_tensor_destroy(&whole);
}
END_TEST

/* With weight decay 0, an infinite parameter must not make the momentum infinite or NaN. */
START_TEST(sgd_keeps_nan_out)
{
    const int64_t shape[] = {2};
    tsr_tensor *p = gpu_new(TSR_F32, 1, shape), *g = gpu_new(TSR_F32, 1, shape);
    tsr_tensor *v = gpu_new(TSR_F32, 1, shape);
    gpu_put(p, (double[]){INFINITY, 1});
    gpu_put(g, (double[]){1, 2});
    GPU_OK(
        tsr_sgd_step(queue, p, g, v, NULL,
                     tsr_sgd_params(.learning_rate = 0.5f, .momentum = 0.5f, .first_step = true)));
    double got[2];
    gpu_get(v, got);
    ck_assert_double_eq(got[0], 1);
    ck_assert_double_eq(got[1], 2);
    gpu_get(p, got);
    ck_assert_double_eq(got[0], INFINITY);
    ck_assert_double_eq(got[1], 0);
    tsr_tensor_destroy(&p);
    tsr_tensor_destroy(&g);
    tsr_tensor_destroy(&v);
}
END_TEST

/* Refused calls -------------------------------------------------------------------------------- */

typedef struct tensors {
    tsr_tensor *f, *f2, *f3, *f4, *h, *u, *wide;
} tensors;

static tensors make_tensors(void)
{
    const int64_t shape[] = {3, 4}, wide[] = {3, 5};
    return (tensors){gpu_new(TSR_F32, 2, shape), gpu_new(TSR_F32, 2, shape),
                     gpu_new(TSR_F32, 2, shape), gpu_new(TSR_F32, 2, shape),
                     gpu_new(TSR_F16, 2, shape), gpu_new(TSR_U32, 2, shape),
                     gpu_new(TSR_F32, 2, wide)};
}

static void destroy_tensors(tensors *t)
{
    tsr_tensor **all[] = {&t->f, &t->f2, &t->f3, &t->f4, &t->h, &t->u, &t->wide};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(all[i]);
}

START_TEST(sgd_errors)
{
    tensors t = make_tensors();
    const tsr_sgd_params plain = {.struct_size = sizeof plain, .learning_rate = 0.1f};
    const tsr_sgd_params momentum = {
        .struct_size = sizeof momentum, .learning_rate = 0.1f, .momentum = 0.5f};
#define SGD_FAILS(parameter, gradient, velocity, master, params, words)                            \
    GPU_FAILS(tsr_sgd_step(queue, parameter, gradient, velocity, master, params), TSR_ERR_INVALID, \
              words)
    GPU_FAILS(tsr_sgd_step(NULL, t.f, t.f2, NULL, NULL, &plain), TSR_ERR_INVALID,
              "sgd_step: stream is NULL");
    SGD_FAILS(t.f, t.f2, NULL, NULL, NULL, "sgd_step: params is NULL");
    SGD_FAILS(NULL, t.f2, NULL, NULL, &plain, "parameter is NULL");
    SGD_FAILS(t.f, NULL, NULL, NULL, &plain, "gradient is NULL");
    SGD_FAILS(t.u, t.f2, NULL, NULL, &plain, "parameter is u32");
    SGD_FAILS(t.f, t.u, NULL, NULL, &plain, "gradient is u32");
    SGD_FAILS(t.f, t.wide, NULL, NULL, &plain, "parameter is [3,4], gradient is [3,5]");
    SGD_FAILS(t.f, t.f2, NULL, NULL, &momentum, "momentum is 0.5 but velocity is NULL");
    SGD_FAILS(t.f, t.f2, t.h, NULL, &momentum, "velocity is f16; f32 is needed");
    SGD_FAILS(t.f, t.f2, t.wide, NULL, &momentum, "velocity is [3,5]");
    SGD_FAILS(t.f, t.f2, t.f, NULL, &momentum, "parameter [3,4] overlaps velocity [3,4]");
    SGD_FAILS(t.f, t.f2, NULL, t.f3, &plain, "parameter is f32 and needs no master copy");
    SGD_FAILS(t.h, t.f2, NULL, t.wide, &plain, "master is [3,5]");
    SGD_FAILS(t.h, t.f2, NULL, t.u, &plain, "master is u32");
    SGD_FAILS(t.h, t.f2, t.f3, t.f3, &momentum, "overlaps");
    SGD_FAILS(t.f, t.f2, NULL, NULL, SGD(.learning_rate = -1), "learning_rate is -1");
    SGD_FAILS(t.f, t.f2, NULL, NULL, SGD(.learning_rate = NAN), "learning_rate is nan");
    SGD_FAILS(t.f, t.f2, NULL, NULL, SGD(.momentum = -0.5f), "momentum is -0.5");
    SGD_FAILS(t.f, t.f2, NULL, NULL, SGD(.weight_decay = -2), "weight_decay is -2");
    SGD_FAILS(t.f, t.f2, NULL, NULL, SGD(.dampening = INFINITY), "dampening is inf");
    SGD_FAILS(t.f, t.f2, t.f3, NULL, SGD(.nesterov = true),
              "nesterov needs momentum > 0 and dampening 0; they are 0 and 0");
    SGD_FAILS(t.f, t.f2, t.f3, NULL, SGD(.nesterov = true, .momentum = 0.5f, .dampening = 0.25f),
              "they are 0.5 and 0.25");
#undef SGD_FAILS
    /* The gradient may be the same view as the parameter. */
    GPU_OK(tsr_sgd_step(queue, t.f, t.f, NULL, NULL, &plain));
    destroy_tensors(&t);
}
END_TEST

START_TEST(adamw_errors)
{
    tensors t = make_tensors();
    const tsr_adamw_params params = {
        .struct_size = sizeof params, .learning_rate = 0.1f, .step = 1};
#define ADAMW_FAILS(parameter, gradient, m1, m2, master, params, words)                            \
    GPU_FAILS(tsr_adamw_step(queue, parameter, gradient, m1, m2, master, params), TSR_ERR_INVALID, \
              words)
    GPU_FAILS(tsr_adamw_step(NULL, t.f, t.f2, t.f3, t.f4, NULL, &params), TSR_ERR_INVALID,
              "adamw_step: stream is NULL");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.f4, NULL, NULL, "adamw_step: params is NULL");
    ADAMW_FAILS(NULL, t.f2, t.f3, t.f4, NULL, &params, "parameter is NULL");
    ADAMW_FAILS(t.f, NULL, t.f3, t.f4, NULL, &params, "gradient is NULL");
    ADAMW_FAILS(t.f, t.f2, NULL, t.f4, NULL, &params, "moment1 is NULL");
    ADAMW_FAILS(t.f, t.f2, t.f3, NULL, NULL, &params, "moment2 is NULL");
    ADAMW_FAILS(t.f, t.f2, t.h, t.f4, NULL, &params, "moment1 is f16; f32 is needed");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.wide, NULL, &params, "moment2 is [3,5]");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.f3, NULL, &params, "moment1 [3,4] overlaps moment2 [3,4]");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.f4, t.wide, &params, "master is [3,5]");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.f4, t.f2, &params, "needs no master copy");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.f4, NULL, ADAMW(.step = 0), "step is 0");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.f4, NULL, ADAMW(.step = 1, .learning_rate = -1),
                "learning_rate is -1");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.f4, NULL, ADAMW(.step = 1, .beta1 = 1), "beta1 is 1");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.f4, NULL, ADAMW(.step = 1, .beta2 = NAN), "beta2 is nan");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.f4, NULL, ADAMW(.step = 1, .epsilon = -1), "epsilon is -1");
    ADAMW_FAILS(t.f, t.f2, t.f3, t.f4, NULL, ADAMW(.step = 1, .weight_decay = INFINITY),
                "weight_decay is inf");
#undef ADAMW_FAILS
    destroy_tensors(&t);
}
END_TEST

/* Steps may multiply the gradient by a scale, given as a number or in device memory. For scales
 * that are powers of two, such a step must have the same bits as a step with the scaled
 * gradient. If the second number in that memory is 0, the step must change nothing. */
static void check_scaled(tsr_dtype dtype, bool adamw, int64_t count)
{
    tsr_tensor *t[4], *gradient = gpu_new(TSR_F32, 1, &count),
                      *scaled = gpu_new(TSR_F32, 1, &count);
    double *values = calloc((size_t)count, sizeof *values),
           *got = calloc((size_t)count, sizeof *got);
    gpu_random random = {(uint64_t)count};
    ck_assert(values && got);
    for (int64_t i = 0; i < count; i++)
        values[i] = gpu_rounded(gpu_random_unit(&random), TSR_F32);
    gpu_put(gradient, values);
    for (int64_t i = 0; i < count; i++)
        values[i] /= 8;
    gpu_put(scaled, values);
    for (int i = 0; i < 4; i++) {
        t[i] = gpu_new(i == 0 ? dtype : TSR_F32, 1, &count);
        GPU_OK(tsr_fill(queue, t[i], i == 0 ? 0.5 : 0.25));
    }
    tsr_tensor *memory = gpu_new(TSR_F32, 1, (int64_t[]){TSR__SCALE_FLOATS});
    for (int way = 0; way < 4; way++) {
        GPU_OK(tsr_fill(queue, t[0], 0.5));
        GPU_OK(tsr_fill(queue, t[1], 0.25));
        GPU_OK(tsr_fill(queue, t[2], 0.25));
        const tsr_tensor *g = way == 0 ? scaled : gradient;
        const tsr__gradient_scale scale = {.value = way == 0 ? 1 : 0.125f,
                                           .at = way < 2 ? NULL : memory};
        gpu_put(memory, (double[]){0.125, way == 2});
        if (adamw)
            GPU_OK(tsr__adamw_step(queue, t[0], g, t[1], t[2], NULL,
                                   ADAMW(.learning_rate = 0.1f, .step = 3, .weight_decay = 0.1f),
                                   scale));
        else
            GPU_OK(tsr__sgd_step(queue, t[0], g, t[1], NULL,
                                 SGD(.learning_rate = 0.1f, .momentum = 0.9f, .weight_decay = 0.1f),
                                 scale));
        gpu_get(t[0], way == 0 ? values : got);
        for (int64_t i = 0; i < count && way > 0; i++) {
            const double expected = way < 3 ? values[i] : 0.5;
            ck_assert_msg(got[i] == expected && values[i] != 0.5,
                          "%s, %s, way %d, element %lld: %.9g and %.9g", adamw ? "AdamW" : "SGD",
                          tsr_dtype_name(dtype), way, (long long)i, got[i], expected);
        }
        gpu_get(t[1], got);
        ck_assert((got[count - 1] == 0.25) == (way == 3));
    }
    tsr_tensor_destroy(&memory);
    for (int i = 0; i < 4; i++)
        tsr_tensor_destroy(&t[i]);
    tsr_tensor_destroy(&gradient);
    tsr_tensor_destroy(&scaled);
    free(values);
    free(got);
}

START_TEST(scaled_gradients)
{
    static const int64_t counts[] = {37, 5001};
    for (int i = 0; i < 2; i++)
        for (int adamw = 0; adamw < 2; adamw++) {
            check_scaled(TSR_F32, adamw, counts[i]);
            check_scaled(TSR_F16, adamw, counts[i]);
        }
}
END_TEST

TESTS(optimizers)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, sgd_matches_reference, 0,
                        (int)(sizeof sgd_cases / sizeof *sgd_cases));
    tcase_add_loop_test(tests, adamw_matches_reference, 0,
                        (int)(sizeof adamw_cases / sizeof *adamw_cases));
    tcase_add_test(tests, adamw_late_step);
    tcase_add_test(tests, any_views);
    tcase_add_test(tests, scaled_gradients);
    tcase_add_test(tests, neighbours_are_untouched);
    tcase_add_test(tests, sgd_keeps_nan_out);
    tcase_add_test(tests, sgd_errors);
    tcase_add_test(tests, adamw_errors);
}
