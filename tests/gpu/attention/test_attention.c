/* Compares attention and its gradients with double precision for random shapes, views, dtypes and
 * options. */
#include "attention_case.h"

#include "base/fault.h"

#define F32_ERROR 2e-6

/* A case and its tensors, which are views. */
typedef struct problem {
    attention_case c;
    const tsr_dtype *dtypes;
    tsr_tensor *q, *k, *v, *dy, *y, *lse, *dq, *dk, *dv, *mask, *q_lengths, *kv_lengths;
    tsr_tensor *parents[12];
    int parent_count;
} problem;

static tsr_tensor *view(problem *p, gpu_random *random, tsr_dtype dtype, int ndim,
                        const int64_t *shape)
{
    ck_assert_int_lt(p->parent_count, 12);
    return gpu_random_view(random, dtype, ndim, shape, &p->parents[p->parent_count++]);
}

static double *random_values(gpu_random *random, int64_t count, double size, tsr_dtype dtype)
{
    double *values = attention_doubles(count);
    for (int64_t i = 0; i < count; i++)
        values[i] = gpu_rounded(size * gpu_random_unit(random), dtype);
    return values;
}

/* The dtypes of q, k, v, dy, y, dq, dk, dv and mask. There are few combinations because drivers
 * compile kernels for each. */
static const tsr_dtype mixtures[][9] = {
    {TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32},
    {TSR_F16, TSR_F16, TSR_F16, TSR_F16, TSR_F16, TSR_F16, TSR_F16, TSR_F16, TSR_F16},
    {TSR_BF16, TSR_BF16, TSR_BF16, TSR_BF16, TSR_BF16, TSR_BF16, TSR_BF16, TSR_BF16, TSR_F32},
    {TSR_F16, TSR_F32, TSR_BF16, TSR_F32, TSR_BF16, TSR_F32, TSR_F16, TSR_F32, TSR_BF16},
};
enum { Q, K, V, DY, Y, DQ, DK, DV, MASK };

static double *random_lengths(gpu_random *random, int64_t batch, int64_t most)
{
    double *lengths = attention_doubles(batch);
    for (int64_t b = 0; b < batch; b++)
        lengths[b] = (double)gpu_random_between(random, -1, most + 1);
    return lengths;
}

static double *random_mask(gpu_random *random, int64_t count, tsr_dtype dtype)
{
    double *mask = random_values(random, count, 2, dtype);
    for (int64_t n = 0; n < count; n++)
        if (gpu_random_between(random, 0, 4) == 0)
            mask[n] = -INFINITY;
    return mask;
}

/* Sets the rows of keys from a sequence's length on to NaN. */
static void spoil_keys(const attention_case *c, double *values)
{
    for (int64_t n = 0; n < attention_keys_count(c); n++) {
        const int64_t b = n / c->kv_len / c->kv_heads;
        if (n % c->kv_len < attention_clamped(c->kv_length, b, c->kv_len))
            continue;
        for (int64_t d = 0; d < c->head_dim; d++)
            values[n * c->head_dim + d] = NAN;
    }
}

static void add_options(problem *p, gpu_random *random)
{
    attention_case *c = &p->c;
    const int64_t mask_shape[] = {c->batch, c->heads, c->q_len, c->kv_len};
    if (gpu_random_between(random, 0, 2) == 0)
        c->softcap = 1.5;
    if (gpu_random_between(random, 0, 2) == 0)
        c->scale = 0.375;
    if (gpu_random_between(random, 0, 1))
        c->causal = true;
    if (c->causal && gpu_random_between(random, 0, 1))
        c->window = gpu_random_between(random, 1, 40);
    if (gpu_random_between(random, 0, 2) == 0) {
        const tsr_dtype dtype = p->dtypes[MASK];
        c->mask = random_mask(random, attention_queries_count(c) * c->kv_len, dtype);
        p->mask = view(p, random, dtype, 4, mask_shape);
        gpu_put(p->mask, c->mask);
    }
    if (gpu_random_between(random, 0, 2) == 0) {
        c->kv_length = random_lengths(random, c->batch, c->kv_len);
        p->kv_lengths = view(p, random, TSR_I32, 1, mask_shape);
        gpu_put(p->kv_lengths, c->kv_length);
    }
    if (gpu_random_between(random, 0, 2) == 0) {
        c->q_length = random_lengths(random, c->batch, c->q_len);
        p->q_lengths = view(p, random, TSR_I32, 1, mask_shape);
        gpu_put(p->q_lengths, c->q_length);
    }
    if (gpu_random_between(random, 0, 2) == 0) {
        c->kv_head = calloc((size_t)c->heads + 1, sizeof *c->kv_head);
        ck_assert_ptr_nonnull(c->kv_head);
        for (int64_t h = 0; h < c->heads; h++)
            c->kv_head[h] = (int32_t)gpu_random_between(random, 0, c->kv_heads - 1);
    }
}

static void make_tensors(problem *p, gpu_random *random)
{
    attention_case *c = &p->c;
    const int64_t q_shape[] = {c->batch, c->heads, c->q_len, c->head_dim},
                  k_shape[] = {c->batch, c->kv_heads, c->kv_len, c->head_dim};
    tsr_tensor **inputs[] = {&p->q, &p->k, &p->v, &p->dy};
    double **values[] = {&c->q, &c->k, &c->v, &c->dy};
    for (int i = 0; i < 4; i++) {
        const bool of_keys = i == 1 || i == 2;
        const tsr_dtype dtype = p->dtypes[i];
        const int64_t count = of_keys ? attention_keys_count(c) : attention_queries_count(c);
        *values[i] = random_values(random, count * c->head_dim, of_keys || i > 0 ? 2 : 0.5, dtype);
        if (of_keys)
            spoil_keys(c, *values[i]);
        *inputs[i] = view(p, random, dtype, 4, of_keys ? k_shape : q_shape);
        gpu_put(*inputs[i], *values[i]);
    }
    p->y = view(p, random, p->dtypes[Y], 4, q_shape);
    p->lse = gpu_new(TSR_F32, 3, q_shape);
    p->dq = gpu_new(p->dtypes[DQ], 4, q_shape);
    p->dk = gpu_new(p->dtypes[DK], 4, k_shape);
    p->dv = view(p, random, p->dtypes[DV], 4, k_shape);
    gpu_poison(p->lse);
    gpu_poison(p->dq);
    gpu_poison(p->dk);
}

static void free_problem(problem *p)
{
    tsr_tensor *tensors[] = {p->q,  p->k,  p->v,  p->dy,   p->y,         p->lse,
                             p->dq, p->dk, p->dv, p->mask, p->q_lengths, p->kv_lengths};
    for (int i = 0; i < 12; i++)
        tsr_tensor_destroy(&tensors[i]);
    for (int i = 0; i < p->parent_count; i++)
        tsr_tensor_destroy(&p->parents[i]);
    attention_free(&p->c);
}

static tsr_attention_params params_of(const problem *p)
{
    return (tsr_attention_params){.scale = (float)p->c.scale,
                                  .softcap = (float)p->c.softcap,
                                  .causal = p->c.causal,
                                  .window = p->c.window,
                                  .mask = p->mask,
                                  .q_lengths = p->q_lengths,
                                  .kv_lengths = p->kv_lengths,
                                  .kv_head = p->c.kv_head};
}

static void check(problem *p, const char *name)
{
    attention_case *c = &p->c;
    const int64_t rows = attention_queries_count(c), keys = attention_keys_count(c);
    const double scale = attention_scale(c), most_q = attention_most(c->q, rows * c->head_dim),
                 most_k = attention_most(c->k, keys * c->head_dim),
                 most_v = attention_most(c->v, keys * c->head_dim),
                 most_dy = attention_most(c->dy, rows * c->head_dim);
    const struct {
        const char *name;
        const tsr_tensor *got;
        const double *want;
        int64_t count;
        double natural;
    } results[] = {
        {"y", p->y, c->y, rows * c->head_dim, 0},
        {"lse", p->lse, c->lse, rows, 1},
        {"dq", p->dq, c->dq, rows * c->head_dim, most_dy * most_v * most_k * scale},
        {"dk", p->dk, c->dk, keys * c->head_dim, most_dy * most_v * most_q * scale},
        {"dv", p->dv, c->dv, keys * c->head_dim, most_dy},
    };
    double *got = attention_doubles((rows + keys) * c->head_dim);
    for (int i = 0; i < 5; i++) {
        if (!results[i].got)
            continue;
        gpu_get((tsr_tensor *)results[i].got, got);
        const double most =
            fmax(attention_most(results[i].want, results[i].count), results[i].natural);
        attention_compare(name, results[i].name, results[i].count, got, results[i].want, most,
                          F32_ERROR, tsr_tensor_layout(results[i].got)->dtype);
    }
    free(got);
}

static void compute(problem *p, gpu_random *random, const char *name)
{
    make_tensors(p, random);
    const tsr_attention_params params = params_of(p);
    attention_solve(&p->c);
    GPU_OK(tsr_attention(queue, p->y, p->lse, p->q, p->k, p->v, &params));
    GPU_OK(tsr_attention_grad(queue, p->dq, p->dk, p->dv, p->dy, p->y, p->lse, p->q, p->k, p->v,
                              &params));
    check(p, name);
    free_problem(p);
}

static void random_name(const problem *p, char name[128])
{
    const attention_case *c = &p->c;
    snprintf(name, 128, "%lldx%lld/%lldx%lld,%lldx%lld", (long long)c->batch, (long long)c->heads,
             (long long)c->kv_heads, (long long)c->q_len, (long long)c->kv_len,
             (long long)c->head_dim);
}

START_TEST(agrees_with_doubles)
{
    static const int64_t dims[] = {1, 3, 8, 17, 32, 64, 66, 96, 128, 250, 256};
    gpu_random random = {(uint64_t)_i + 1};
    for (int n = 0; n < 4; n++) {
        char name[128];
        problem p = {.dtypes = mixtures[(n + _i) % 4],
                     .c = {.batch = gpu_random_between(&random, 1, 2),
                           .heads = gpu_random_between(&random, 1, 5),
                           .kv_heads = gpu_random_between(&random, 1, 3),
                           .q_len = gpu_random_between(&random, 1, 70),
                           .kv_len = gpu_random_between(&random, 1, 90),
                           .head_dim = dims[gpu_random_between(&random, 0, 10)]}};
        random_name(&p, name);
        add_options(&p, &random);
        compute(&p, &random, name);
    }
}
END_TEST

/* Several blocks of keys and of queries, and heads of uneven groups. */
START_TEST(agrees_with_doubles_in_several_blocks)
{
    gpu_random random = {(uint64_t)_i + 100};
    char name[128];
    problem p = {.dtypes = mixtures[_i % 4],
                 .c = {.batch = 1 + _i / 4,
                       .heads = 3 + _i % 2,
                       .kv_heads = 2,
                       .q_len = gpu_random_between(&random, 257, 400),
                       .kv_len = gpu_random_between(&random, 600, 1200),
                       .head_dim = gpu_random_between(&random, 4, 10) * 4,
                       .causal = _i % 2 == 0,
                       .window = _i % 4 == 2 ? 300 : 0,
                       .softcap = _i == 3 ? 3 : 0}};
    const int64_t mask_shape[] = {1, p.c.heads, 1, p.c.kv_len};
    if (_i == 1 || _i == 2) {
        /* A mask that broadcasts. */
        double *values = random_mask(&random, p.c.heads * p.c.kv_len, p.dtypes[MASK]);
        p.c.mask = attention_doubles(attention_queries_count(&p.c) * p.c.kv_len);
        for (int64_t n = 0; n < attention_queries_count(&p.c) * p.c.kv_len; n++)
            p.c.mask[n] =
                values[n / p.c.kv_len / p.c.q_len % p.c.heads * p.c.kv_len + n % p.c.kv_len];
        p.mask = view(&p, &random, p.dtypes[MASK], 4, mask_shape);
        gpu_put(p.mask, values);
        free(values);
    }
    random_name(&p, name);
    compute(&p, &random, name);
}
END_TEST

/* The scores of 16,384 queries of 8 heads would take 8 GiB. */
START_TEST(takes_little_memory)
{
    const int64_t shape[] = {1, 8, 16384, 64}, last[] = {1, 8, 1, 64};
    tsr_tensor *q = gpu_new(TSR_F32, 4, shape), *k = gpu_new(TSR_F32, 4, shape),
               *v = gpu_new(TSR_F32, 4, shape), *y = gpu_new(TSR_F32, 4, shape),
               *lse = gpu_new(TSR_F32, 3, shape);
    tsr_tensor *inputs[] = {q, k, v};
    for (uint64_t i = 0; i < 3; i++)
        GPU_OK(tsr_random_uniform(queue, inputs[i], -1, 1, &(tsr_random_params){.seed = i}));
    gpu_poison(y);
    uint64_t before, after;
    tsr_device_memory_usage(gpu, NULL, &before);
    /* A CPU driver without its special kernels would take minutes for all keys. */
    const bool slow = strcmp(tsr_device_get_info(gpu)->driver_name, "SwiftShader driver") == 0;
    GPU_OK(tsr_attention(queue, y, lse, q, k, v,
                         tsr_attention_params(.causal = true, .window = slow ? 64 : 0)));
    GPU_OK(tsr_stream_wait(queue));
    tsr_device_memory_usage(gpu, NULL, &after);
    ck_assert_uint_le(after - before, UINT64_C(64) << 20);

    /* Compares the last query with a separate call for it. */
    tsr_tensor *one = gpu_new(TSR_F32, 4, last), *of_y, *of_q;
    GPU_OK(tsr_tensor_slice(q, 2, -1, TSR_END, 1, &of_q));
    GPU_OK(tsr_tensor_slice(y, 2, -1, TSR_END, 1, &of_y));
    GPU_OK(tsr_attention(queue, one, NULL, of_q, k, v,
                         tsr_attention_params(.causal = true, .window = slow ? 64 : 0)));
    double got[512], want[512];
    gpu_get(of_y, got);
    gpu_get(one, want);
    attention_compare("16384", "y", 512, got, want, attention_most(want, 512), F32_ERROR, TSR_F32);
    tsr_tensor *tensors[] = {of_y, of_q, one, q, k, v, y, lse};
    for (int i = 0; i < 8; i++)
        tsr_tensor_destroy(&tensors[i]);
}
END_TEST

/* Tests sizes of 0. */
START_TEST(accepts_nothing)
{
    static const int64_t sizes[][5] = {
        {0, 2, 1, 3, 4}, {2, 0, 1, 3, 4}, {2, 0, 0, 3, 4}, {2, 2, 1, 0, 4},
        {2, 2, 1, 3, 0}, {0, 0, 0, 0},    {1, 2, 2, 0},
    };
    gpu_random random = {3};
    for (size_t n = 0; n < sizeof sizes / sizeof *sizes; n++) {
        char name[128];
        problem p = {.dtypes = mixtures[0],
                     .c = {.batch = sizes[n][0],
                           .heads = sizes[n][1],
                           .kv_heads = sizes[n][2],
                           .q_len = sizes[n][3],
                           .kv_len = sizes[n][4],
                           .head_dim = 8}};
        random_name(&p, name);
        compute(&p, &random, name);
    }
}
END_TEST

TESTS(attention)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_doubles, 0, 3);
    tcase_add_loop_test(tests, agrees_with_doubles_in_several_blocks, 0, 5);
    tcase_add_test(tests, takes_little_memory);
    tcase_add_test(tests, accepts_nothing);
}

TESTS(attention_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_doubles, 5, 6);
}

TESTS(attention_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_doubles, 6, 8);
}
