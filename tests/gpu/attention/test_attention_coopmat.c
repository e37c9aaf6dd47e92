/* Compares attention and its gradients by cooperative matrices with double precision. On a device
 * without them, other kernels compute the same calls; test_attention.c tests those. */
#include "attention_case.h"

#include "gpu/device/device.h"
#include "gpu/device/vendors.h"
#include "gpu/pipeline/pipeline.h"

static const uint32_t subgroup_spirv[] =
#include "attention_coopmat2_subgroup.inc"
    ;

typedef struct problem {
    attention_case c;
    tsr_dtype dtype;
    /* The tensors have no gaps, so that the kernel can load vectors instead of single elements. */
    bool plain;
    bool by_token; /* all heads of a token are next to each other */
    bool without_dk, without_dv;
    tsr_tensor *q, *k, *v, *dy, *y, *lse, *dq, *dk, *dv, *mask, *q_lengths, *kv_lengths, *pages,
        *sinks, *dsinks, *starts;
    tsr_tensor *parents[16];
    int parent_count;
} problem;

/* How many pipelines the library has requested since the last check, with and without
 * cooperative matrices; and, among the former, those with matrices that a workgroup shares. */
static int asked_matrices, asked_others, asked_workgroups;
static bool refuses_matrices;

static tsr_status admit(tsr_device *device, int shader, const uint32_t *spec, int spec_count,
                        bool *settled)
{
    (void)device;
    (void)spec;
    (void)spec_count;
    *settled = false;
    const bool workgroups =
        shader == TSR__SHADER_ATTENTION_COOPMAT2 || shader == TSR__SHADER_ATTENTION_COOPMAT2_BF16;
    const bool matrices = workgroups || shader == TSR__SHADER_ATTENTION_COOPMAT ||
                          shader == TSR__SHADER_ATTENTION_COOPMAT_BF16;
    if (matrices && refuses_matrices)
        return TSR_ERR_UNSUPPORTED;
    asked_matrices += matrices;
    asked_workgroups += workgroups;
    asked_others += shader == TSR__SHADER_ATTENTION;
    return TSR_OK;
}

static void setup(void)
{
    gpu_setup_as_gpu();
    gpu->admit = admit;
    asked_matrices = asked_others = asked_workgroups = 0;
    refuses_matrices = false;
}

static bool has_matrices(tsr_dtype dtype)
{
    const int used = dtype == TSR_F16 ? gpu->info.coopmat_used : gpu->info.coopmat_bf16_used;
    return used >= 0 && gpu->subgroup_votes && gpu->storage == TSR__STORAGE_S16;
}

#define NEEDS_MATRICES(dtype)                                                                      \
    if (!has_matrices(dtype))                                                                      \
    SKIP("no cooperative matrices of %s", tsr_dtype_name(dtype))

/* Checks whether the last call requested only kernels with cooperative matrices, or only other
 * kernels. */
static void check_asked(bool matrices)
{
    ck_assert_int_eq(asked_matrices > 0, matrices);
    ck_assert_int_eq(asked_others > 0, !matrices);
    asked_matrices = asked_others = 0;
}

static tsr_tensor *make(problem *p, gpu_random *random, tsr_dtype dtype, int ndim,
                        const int64_t *shape)
{
    if (p->by_token && ndim == 4) {
        const int64_t tokens[] = {shape[0], shape[2], shape[1], shape[3]};
        tsr_tensor *parent = gpu_new(dtype, 4, tokens), *view;
        tsr_layout layout;
        ck_assert_int_lt(p->parent_count, 16);
        p->parents[p->parent_count++] = parent;
        gpu_poison(parent);
        GPU_OK(tsr_layout_permute(tsr_tensor_layout(parent), (int[]){0, 2, 1, 3}, &layout));
        GPU_OK(tsr_tensor_view(parent, &layout, &view));
        return view;
    }
    if (!p->plain) {
        ck_assert_int_lt(p->parent_count, 16);
        return gpu_random_view(random, dtype, ndim, shape, &p->parents[p->parent_count++]);
    }
    tsr_tensor *tensor = gpu_new(dtype, ndim, shape);
    gpu_poison(tensor);
    return tensor;
}

/* Adds options; the bits of `number` choose them, as in test_attention.c. */
static void add_options(problem *p, gpu_random *random, int number)
{
    attention_case *c = &p->c;
    const int64_t mask_shape[] = {c->batch, c->heads, c->q_len, c->kv_len};
    const bool first = number & 1, second = number & 2, third = number & 4;
    if (first) {
        c->scale = 0.375;
        c->temperature = 0.125;
        c->temperature_length = 30;
    }
    c->causal = first == second;
    if (c->causal && third)
        c->window = gpu_random_between(random, 1, 90);
    if (first != third)
        c->softcap = 1.5;
    if (third) {
        c->mask = attention_random_mask(random, attention_queries_count(c) * c->kv_len, TSR_F32);
        p->mask = make(p, random, TSR_F32, 4, mask_shape);
        gpu_put(p->mask, c->mask);
    }
    if (second != third) {
        c->kv_length = attention_random_lengths(random, c->batch, c->kv_len);
        p->kv_lengths = make(p, random, TSR_I32, 1, mask_shape);
        gpu_put(p->kv_lengths, c->kv_length);
    }
    if (first ^ second ^ third) {
        c->q_length = attention_random_lengths(random, c->batch, c->q_len);
        p->q_lengths = make(p, random, TSR_I32, 1, mask_shape);
        gpu_put(p->q_lengths, c->q_length);
    }
    if (!second) {
        c->sinks = attention_random_values(random, c->heads, 3, TSR_F32);
        c->sinks[0] = -INFINITY;
        p->sinks = make(p, random, TSR_F32, 1, &c->heads);
        p->dsinks = make(p, random, TSR_F32, 1, &c->heads);
        gpu_put(p->sinks, c->sinks);
        gpu_poison(p->dsinks);
    }
    if (second) {
        c->kv_head = calloc((size_t)c->heads + 1, sizeof *c->kv_head);
        ck_assert_ptr_nonnull(c->kv_head);
        for (int64_t h = 0; h < c->heads; h++)
            c->kv_head[h] = (int32_t)gpu_random_between(random, 0, c->kv_heads - 1);
    }
}

/* Makes the problem's tensors with random values. `q_size` is the magnitude of the queries;
 * large queries make large scores. */
static void make_tensors(problem *p, gpu_random *random, double q_size)
{
    attention_case *c = &p->c;
    const int64_t q_shape[] = {c->batch, c->heads, c->q_len, c->head_dim},
                  k_shape[] = {c->batch, c->kv_heads, c->kv_len, c->head_dim};
    tsr_tensor **inputs[] = {&p->q, &p->k, &p->v, &p->dy};
    double **values[] = {&c->q, &c->k, &c->v, &c->dy};
    for (int i = 0; i < 4; i++) {
        const bool of_keys = i == 1 || i == 2;
        const int64_t count = of_keys ? attention_keys_count(c) : attention_queries_count(c);
        *values[i] =
            attention_random_values(random, count * c->head_dim, i == 0 ? q_size : 2, p->dtype);
        if (of_keys)
            attention_spoil_keys(c, *values[i], c->head_dim);
        *inputs[i] = make(p, random, p->dtype, 4, of_keys ? k_shape : q_shape);
        gpu_put(*inputs[i], *values[i]);
    }
    p->y = make(p, random, p->dtype, 4, q_shape);
    p->lse = make(p, random, TSR_F32, 3, q_shape);
    p->dq = make(p, random, p->dtype, 4, q_shape);
    p->dk = make(p, random, p->dtype, 4, k_shape);
    p->dv = make(p, random, p->dtype, 4, k_shape);
}

static void free_problem(problem *p)
{
    tsr_tensor *tensors[] = {p->q,     p->k,     p->v,      p->dy,    p->y,         p->lse,
                             p->dq,    p->dk,    p->dv,     p->mask,  p->q_lengths, p->kv_lengths,
                             p->pages, p->sinks, p->dsinks, p->starts};
    for (int i = 0; i < 16; i++)
        tsr_tensor_destroy(&tensors[i]);
    for (int i = 0; i < p->parent_count; i++)
        tsr_tensor_destroy(&p->parents[i]);
    attention_free(&p->c);
}

static tsr_attention_params params_of(const problem *p)
{
    return (tsr_attention_params){.struct_size = sizeof(tsr_attention_params),
                                  .scale = (float)p->c.scale,
                                  .softcap = (float)p->c.softcap,
                                  .temperature = (float)p->c.temperature,
                                  .temperature_length = p->c.temperature_length,
                                  .causal = p->c.causal,
                                  .window = p->c.window,
                                  .mask = p->mask,
                                  .q_lengths = p->q_lengths,
                                  .kv_lengths = p->kv_lengths,
                                  .pages = p->pages,
                                  .kv_head = p->c.kv_head,
                                  .sinks = p->sinks,
                                  .dsinks = p->dsinks,
                                  .starts = p->starts};
}

/* Compares the results with the references. Results for which the problem has no tensor are left
 * out. The kernels round probabilities, and their gradients, to the dtype before they multiply
 * them, with an error of half a unit each. The error of a sum of such products is therefore
 * relative to the magnitude of the products: `natural`. */
static void check(const problem *p, const char *name)
{
    const attention_case *c = &p->c;
    const int64_t rows = attention_queries_count(c), keys = attention_keys_count(c);
    const double scale = attention_scale(c), most_q = attention_most(c->q, rows * c->head_dim),
                 most_k = attention_most(c->k, keys * c->head_dim),
                 most_v = attention_most(c->v, keys * c->head_dim),
                 most_dy = c->dy ? attention_most(c->dy, rows * c->head_dim) : 0;
    /* |ds| is at most |dp − delta|, whose typical size is that of a sum of head_dim products with
     * random signs. */
    const double ds = most_dy * most_v * sqrt((double)c->head_dim) * scale;
    const struct {
        const char *name;
        const tsr_tensor *got;
        const double *want;
        int64_t count;
        double natural;
    } results[] = {
        {"y", p->y, c->y, rows * c->head_dim, most_v},
        {"lse", p->lse, c->lse, rows, 1},
        {"dq", p->dq, c->dq, rows * c->head_dim, ds * most_k},
        {"dk", p->dk, c->dk, keys * c->head_dim, ds * most_q},
        {"dv", p->dv, c->dv, keys * c->head_dim, most_dy},
        {"dsinks", c->dy ? p->dsinks : NULL, c->dsinks, c->heads,
         most_dy * most_v * (double)(c->batch * c->q_len)},
    };
    double *got = attention_doubles((rows + keys) * c->head_dim);
    for (int i = 0; i < 6; i++) {
        if (!results[i].got || !results[i].want)
            continue;
        gpu_get((tsr_tensor *)results[i].got, got);
        const double most =
            fmax(attention_most(results[i].want, results[i].count), results[i].natural);
        const bool is_lse = i == 1;
        attention_compare(name, results[i].name, results[i].count, got, results[i].want, most,
                          is_lse ? 4e-6 : attention_half_unit(p->dtype),
                          tsr_tensor_layout(results[i].got)->dtype);
    }
    free(got);
}

static void name_of(const problem *p, char name[128])
{
    const attention_case *c = &p->c;
    snprintf(name, 128, "%s %lldx%lld/%lldx%lld,%lldx%lld", tsr_dtype_name(p->dtype),
             (long long)c->batch, (long long)c->heads, (long long)c->kv_heads, (long long)c->q_len,
             (long long)c->kv_len, (long long)c->head_dim);
}

static void compute(problem *p, gpu_random *random, double q_size)
{
    char name[128];
    make_tensors(p, random, q_size);
    name_of(p, name);
    const tsr_attention_params params = params_of(p);
    if (p->without_dk)
        tsr_tensor_destroy(&p->dk);
    if (p->without_dv)
        tsr_tensor_destroy(&p->dv);
    attention_solve(&p->c);
    GPU_OK(tsr_attention(queue, p->y, p->lse, p->q, p->k, p->v, &params));
    check_asked(!refuses_matrices);
    GPU_OK(tsr_attention_grad(queue, p->dq, p->dk, p->dv, p->dy, p->y, p->lse, p->q, p->k, p->v,
                              &params));
    check_asked(!refuses_matrices);
    check(p, name);
    free_problem(p);
}

/* Makes a CPU driver look like a GPU of AMD and of NVIDIA alternately, for which the kernels
 * differ: those for AMD load fragments along k, which needs transposed tiles. */
static void pretend(int number)
{
    if (gpu->info.type == TSR_DEVICE_CPU)
        gpu->info.vendor_id = number % 2 ? TSR__VENDOR_AMD : TSR__VENDOR_NVIDIA;
}

START_TEST(agrees_with_doubles)
{
    static const int64_t dims[] = {32, 17, 24, 64, 40, 72, 128, 96};
    const tsr_dtype dtype = _i % 2 ? TSR_BF16 : TSR_F16;
    gpu_random random = {(uint64_t)_i + 1};
    NEEDS_MATRICES(dtype);
    for (int n = 0; n < 2; n++) {
        problem p = {.dtype = dtype,
                     .plain = n == 0,
                     .c = {.batch = gpu_random_between(&random, 1, 2),
                           .heads = gpu_random_between(&random, 1, 3),
                           .kv_heads = gpu_random_between(&random, 1, 3),
                           .q_len = gpu_random_between(&random, 41, 150),
                           .kv_len = gpu_random_between(&random, 1, 170),
                           .head_dim = dims[(_i / 2 + 4 * n) % 8]}};
        pretend(_i / 2 + n);
        add_options(&p, &random, _i / 2 + 4 * n);
        compute(&p, &random, _i / 2 == 1 ? 6 : 0.5);
    }
}
END_TEST

/* Packed documents, some as long as several blocks, so that some blocks are skipped, some seen by
 * all of their queries, and some divided. */
START_TEST(stays_inside_documents)
{
    const int64_t shape[] = {2, 300};
    NEEDS_MATRICES(TSR_F16);
    gpu_random random = {90};
    problem p = {.dtype = TSR_F16,
                 .plain = true,
                 .c = {.batch = 2,
                       .heads = 2,
                       .kv_heads = 1,
                       .q_len = 300,
                       .kv_len = 300,
                       .head_dim = 32,
                       .causal = true}};
    pretend(0);
    p.c.starts = attention_random_starts(&random, &p.c, 200);
    p.starts = make(&p, &random, TSR_I32, 2, shape);
    gpu_put(p.starts, p.c.starts);
    compute(&p, &random, 0.5);
}
END_TEST

/* Scores rise from one block of keys to the next, so that the running maximum of each row rises
 * often. A few rows have masks of -inf or the lowest finite number; the kernel must not treat
 * keys with the latter as masked. */
START_TEST(follows_maxima)
{
    NEEDS_MATRICES(_i ? TSR_BF16 : TSR_F16);
    gpu_random random = {(uint64_t)_i + 30};
    problem p = {
        .dtype = _i ? TSR_BF16 : TSR_F16,
        .plain = true,
        .c = {.batch = 1, .heads = 2, .kv_heads = 1, .q_len = 70, .kv_len = 200, .head_dim = 64}};
    const int64_t mask_shape[] = {1, 2, 70, 200};
    p.c.mask = attention_doubles(2 * 70 * 200);
    for (int64_t n = 0; n < 2 * 70 * 200; n++) {
        const int64_t j = n % 200, i = n / 200 % 70;
        p.c.mask[n] = i == 7   ? -3.4028234e38
                      : i == 8 ? -INFINITY
                      : i == 9 ? (double)(j < 190 ? -INFINITY : 0)
                      : i % 3  ? (double)j / 2
                      : i % 2  ? (double)-j
                               : (double)(j / 50) * 3;
        p.c.mask[n] = gpu_rounded(p.c.mask[n], TSR_F32);
    }
    p.mask = make(&p, &random, TSR_F32, 4, mask_shape);
    gpu_put(p.mask, p.c.mask);
    pretend(_i);
    make_tensors(&p, &random, 0.5);
    attention_solve(&p.c);
    const tsr_attention_params params = params_of(&p);
    GPU_OK(tsr_attention(queue, p.y, p.lse, p.q, p.k, p.v, &params));
    check_asked(true);
    tsr_tensor *gradients[] = {p.dq, p.dk, p.dv};
    p.dq = p.dk = p.dv = NULL;
    check(&p, "maxima");
    for (int i = 0; i < 3; i++)
        tsr_tensor_destroy(&gradients[i]);
    free_problem(&p);
}
END_TEST

/* The keys are in pages of a cache, and sequences share some pages. */
START_TEST(reads_pages)
{
    enum { PAGES = 7, COUNT = 6, PAGE = 24 };
    NEEDS_MATRICES(_i ? TSR_BF16 : TSR_F16);
    gpu_random random = {(uint64_t)_i + 70};
    problem p = {.dtype = _i ? TSR_BF16 : TSR_F16,
                 .plain = _i,
                 .c = {.batch = 2,
                       .heads = 4,
                       .kv_heads = 2,
                       .q_len = 75,
                       .kv_len = PAGE * COUNT,
                       .head_dim = 64,
                       .causal = true}};
    attention_case *c = &p.c;
    const int64_t q_shape[] = {2, 4, 75, 64}, cache_shape[] = {PAGES, 2, PAGE, 64},
                  table_shape[] = {2, COUNT}, page = 2 * PAGE * 64;
    double table[2 * COUNT], **wanted[] = {&c->k, &c->v};
    tsr_tensor **tensors[] = {&p.k, &p.v};
    c->kv_length = attention_doubles(2);
    for (int b = 0; b < 2; b++)
        c->kv_length[b] = (double)gpu_random_between(&random, 75, c->kv_len);
    for (int i = 0; i < 2 * COUNT; i++) {
        const bool used = (double)(i % COUNT * PAGE) < c->kv_length[i / COUNT];
        table[i] = used ? (double)gpu_random_between(&random, 0, PAGES - 1) : -77777;
    }
    for (int which = 0; which < 2; which++) {
        double *cache = attention_random_values(&random, PAGES * page, 2, p.dtype);
        *wanted[which] = attention_doubles(attention_keys_count(c) * 64);
        for (int64_t n = 0; n < attention_keys_count(c) * 64; n++) {
            const int64_t j = n / 64 % c->kv_len, g = n / 64 / c->kv_len % 2,
                          b = n / 64 / c->kv_len / 2;
            const double number = table[b * COUNT + j / PAGE];
            if (number >= 0)
                (*wanted[which])[n] =
                    cache[(int64_t)number * page + (g * PAGE + j % PAGE) * 64 + n % 64];
        }
        *tensors[which] = make(&p, &random, p.dtype, 4, cache_shape);
        gpu_put(*tensors[which], cache);
        free(cache);
    }
    c->q = attention_random_values(&random, attention_queries_count(c) * 64, 0.5, p.dtype);
    p.q = make(&p, &random, p.dtype, 4, q_shape);
    gpu_put(p.q, c->q);
    p.y = make(&p, &random, p.dtype, 4, q_shape);
    p.lse = make(&p, &random, TSR_F32, 3, q_shape);
    p.kv_lengths = make(&p, &random, TSR_I32, 1, table_shape);
    gpu_put(p.kv_lengths, c->kv_length);
    p.pages = make(&p, &random, TSR_I32, 2, table_shape);
    gpu_put(p.pages, table);
    attention_solve(c);
    pretend(_i);
    const tsr_attention_params params = params_of(&p);
    GPU_OK(tsr_attention(queue, p.y, p.lse, p.q, p.k, p.v, &params));
    check_asked(true);
    check(&p, "pages");
    free_problem(&p);
}
END_TEST

/* A call is divided into many dispatches, each within the work limit of a slow GPU. */
START_TEST(obeys_the_work_limit)
{
    NEEDS_MATRICES(TSR_F16);
    gpu_random random = {90};
    problem p = {
        .dtype = TSR_F16,
        .plain = true,
        .c = {.batch = 2, .heads = 2, .kv_heads = 2, .q_len = 150, .kv_len = 90, .head_dim = 64}};
    gpu->work_limit = 1;
    compute(&p, &random, 0.5);
}
END_TEST

/* Other kernels compute the calls that these kernels cannot compute, and all calls on a device on
 * which these kernels failed their self-test. */
START_TEST(falls_back)
{
    NEEDS_MATRICES(TSR_F16);
    gpu_random random = {80};
    problem p = {
        .dtype = TSR_F16,
        .plain = true,
        .c = {.batch = 1, .heads = 2, .kv_heads = 2, .q_len = 50, .kv_len = 60, .head_dim = 64}};
    refuses_matrices = true;
    compute(&p, &random, 0.5);
    refuses_matrices = false;

    const int64_t wide[] = {1, 1, 50, 136}, few[] = {1, 1, 20, 64}, shape[] = {1, 1, 50, 64};
    const int64_t *shapes[] = {wide, few, shape};
    for (int i = 0; i < 3; i++) {
        tsr_tensor *x = gpu_new(TSR_F16, 4, shapes[i]),
                   *y = gpu_new(i == 2 ? TSR_F32 : TSR_F16, 4, shapes[i]);
        GPU_OK(tsr_fill(queue, x, 0.5));
        GPU_OK(tsr_attention(queue, y, NULL, x, x, x, NULL));
        check_asked(false);
        double *got = attention_doubles(50 * 136);
        gpu_get(y, got);
        ck_assert_double_eq_tol(got[0], 0.5, 1e-3);
        free(got);
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&y);
    }
}
END_TEST

/* Matrices that a workgroup shares ------------------------------------------------------------- */

/* Makes the device look like one of NVIDIA's Ada, whose chips share matrices. If the driver has
 * matrices of any size, but only for subgroups, each subgroup computes all of its workgroup's
 * results, with small tiles, because a driver for the CPU compiles each multiply-add. */
static void setup_workgroups(void)
{
    setup();
    tsr__coopmat2 *shared = &gpu->coopmat2;
    gpu->info.vendor_id = TSR__VENDOR_NVIDIA;
    gpu->info.device_id = 0x2684;
    if (gpu->info.coopmat2 || !shared->converts || !has_matrices(TSR_F16))
        return;
    for (int i = 0; i < TSR__COOPMAT2_GROUPS; i++)
        shared->f16[i] = (tsr__coopmat2_units){8, 8, 8};
    shared->max_dimension = 16;
    GPU_OK(tsr__pipelines_replace(gpu, TSR__SHADER_ATTENTION_COOPMAT2, subgroup_spirv,
                                  sizeof subgroup_spirv));
}

#define NEEDS_WORKGROUPS(dtype)                                                                    \
    if (!(gpu->coopmat2.converts &&                                                                \
          ((dtype) == TSR_F16 ? gpu->coopmat2.f16 : gpu->coopmat2.bf16)[2].m > 0))                 \
    SKIP("no cooperative matrices of any size of %s", tsr_dtype_name(dtype))

/* Queries that see ranges of the keys; the bits of `number` choose how they are given. */
static void add_ranges(problem *p, gpu_random *random, int number)
{
    attention_case *c = &p->c;
    const int64_t starts_shape[] = {c->batch, c->q_len};
    c->causal = number & 1;
    if (c->causal && number & 2)
        c->window = gpu_random_between(random, 1, 90);
    if (number & 2) {
        c->scale = 0.375;
        c->sinks = attention_random_values(random, c->heads, 3, TSR_F32);
        p->sinks = make(p, random, TSR_F32, 1, &c->heads);
        p->dsinks = make(p, random, TSR_F32, 1, &c->heads);
        gpu_put(p->sinks, c->sinks);
        gpu_poison(p->dsinks);
    } else if (c->causal) {
        c->starts = attention_random_starts(random, c, 70);
        p->starts = make(p, random, TSR_I32, 2, starts_shape);
        gpu_put(p->starts, c->starts);
    }
    if (number & 4) {
        c->q_length = attention_random_lengths(random, c->batch, c->q_len);
        c->kv_length = attention_random_lengths(random, c->batch, c->kv_len);
        p->q_lengths = make(p, random, TSR_I32, 1, starts_shape);
        p->kv_lengths = make(p, random, TSR_I32, 1, starts_shape);
        gpu_put(p->q_lengths, c->q_length);
        gpu_put(p->kv_lengths, c->kv_length);
    }
}

START_TEST(workgroups_agree_with_doubles)
{
    static const int64_t dims[] = {16, 64, 128, 24, 72, 16, 80, 8};
    const tsr_dtype dtype = _i ? TSR_BF16 : TSR_F16;
    gpu_random random = {(uint64_t)_i + 60};
    NEEDS_WORKGROUPS(dtype);
    for (int i = 0; i < 8; i++) {
        const int64_t dim = dims[i] > gpu->coopmat2.max_dimension ? 16 : dims[i];
        problem p = {.dtype = dtype,
                     .plain = true,
                     .by_token = i % 3 == 2,
                     .without_dk = i == 3,
                     .without_dv = i == 4,
                     .c = {.batch = gpu_random_between(&random, 1, 2),
                           .heads = 2 * gpu_random_between(&random, 1, 2),
                           .kv_heads = gpu_random_between(&random, 1, 2),
                           .q_len = gpu_random_between(&random, 128, 150),
                           .kv_len = gpu_random_between(&random, 1, 170),
                           .head_dim = dim}};
        add_ranges(&p, &random, i);
        compute(&p, &random, i == 1 ? 6 : 0.5);
        ck_assert_int_gt(asked_workgroups, 0);
        asked_workgroups = 0;
    }
}
END_TEST

/* Calls that the kernel cannot compute, and a device on which it failed its self-test. */
START_TEST(workgroups_fall_back)
{
    NEEDS_WORKGROUPS(TSR_F16);
    for (int i = 0; i < 7; i++) {
        gpu_random random = {(uint64_t)i + 80};
        problem p = {.dtype = TSR_F16,
                     .plain = i != 0,
                     .c = {.batch = 1,
                           .heads = 1,
                           .kv_heads = 1,
                           .q_len = i == 1 ? 127 : 128,
                           .kv_len = 40,
                           .head_dim = i == 2 ? 28 : 16}};
        const int64_t mask_shape[] = {1, 1, 128, 40};
        p.c.softcap = i == 3 ? 1.5 : 0;
        p.c.temperature = i == 4 ? 0.125 : 0;
        p.c.temperature_length = 30;
        if (i == 5) {
            p.c.mask = attention_random_mask(&random, 128 * 40, TSR_F32);
            p.mask = make(&p, &random, TSR_F32, 4, mask_shape);
            gpu_put(p.mask, p.c.mask);
        }
        if (i == 6)
            gpu->info.device_id = 0x2330; /* an H100, on which these matrices are slower */
        compute(&p, &random, 0.5);
        ck_assert_int_eq(asked_workgroups, 0);
    }
}
END_TEST

TESTS(attention_workgroups)
{
    tcase_add_checked_fixture(tests, setup_workgroups, gpu_teardown);
    tcase_add_loop_test(tests, workgroups_agree_with_doubles, 0, 2);
    tcase_add_test(tests, workgroups_fall_back);
}

TESTS(attention_coopmat)
{
    tcase_add_checked_fixture(tests, setup, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_doubles, 0, 2);
    tcase_add_loop_test(tests, follows_maxima, 0, 2);
    tcase_add_test(tests, stays_inside_documents);
    tcase_add_loop_test(tests, reads_pages, 0, 2);
    tcase_add_test(tests, obeys_the_work_limit);
    tcase_add_test(tests, falls_back);
}

TESTS(attention_coopmat_slow)
{
    tcase_add_checked_fixture(tests, setup, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_doubles, 2, 16);
}
