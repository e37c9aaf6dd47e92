/* Compares attention and its gradients with double precision for random shapes, views, dtypes and
 * options. */
#include "attention_case.h"

#include "base/fault.h"
#include "gpu/attention/call.h"
#include "gpu/device/device.h"
#include "gpu/device/vendors.h"
#include "gpu/stream/state.h"

#define F32_ERROR 2e-6
#define SCORE_ERROR 0x1p-24 /* for each unit of the largest score: see attention.h */

/* A case and its tensors, which are views of larger tensors. */
typedef struct problem {
    attention_case c;
    const tsr_dtype *dtypes;
    tsr_tensor *q, *k, *v, *dy, *y, *lse, *dq, *dk, *dv, *mask, *q_lengths, *kv_lengths, *sinks,
        *dsinks, *starts;
    tsr_tensor *parents[16];
    int parent_count;
    bool large_scores; /* allow the error by which attention.h says that large scores add */
} problem;

static tsr_tensor *view(problem *p, gpu_random *random, tsr_dtype dtype, int ndim,
                        const int64_t *shape)
{
    ck_assert_int_lt(p->parent_count, 16);
    return gpu_random_view(random, dtype, ndim, shape, &p->parents[p->parent_count++]);
}

/* The dtypes of q, k, v, dy, y, dq, dk, dv and mask. There are few combinations, because drivers
 * compile kernels for each. */
static const tsr_dtype mixtures[][9] = {
    {TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32, TSR_F32},
    {TSR_F16, TSR_F16, TSR_F16, TSR_F16, TSR_F16, TSR_F16, TSR_F16, TSR_F16, TSR_F16},
    {TSR_BF16, TSR_BF16, TSR_BF16, TSR_BF16, TSR_BF16, TSR_BF16, TSR_BF16, TSR_BF16, TSR_F32},
    {TSR_F16, TSR_F32, TSR_BF16, TSR_F32, TSR_BF16, TSR_F32, TSR_F16, TSR_F32, TSR_BF16},
};
enum { Q, K, V, DY, Y, DQ, DK, DV, MASK };

/* Adds a sink for each head. Every fifth is −inf. */
static void add_sinks(problem *p, gpu_random *random)
{
    attention_case *c = &p->c;
    c->sinks = attention_random_values(random, c->heads, 3, TSR_F32);
    for (int64_t h = 4; h < c->heads; h += 5)
        c->sinks[h] = -INFINITY;
    p->sinks = view(p, random, TSR_F32, 1, &c->heads);
    p->dsinks = view(p, random, TSR_F32, 1, &c->heads);
    gpu_put(p->sinks, c->sinks);
    gpu_poison(p->dsinks);
}

/* Adds options; the bits of `number` choose them. Among any eight consecutive numbers, any two
 * options occur together, each alone, and both missing. Any two numbers that use the same
 * mixture of dtypes differ in the mask, the soft cap and both lengths. */
static void add_options(problem *p, gpu_random *random, int number)
{
    attention_case *c = &p->c;
    const int64_t mask_shape[] = {c->batch, c->heads, c->q_len, c->kv_len};
    const bool first = number & 1, second = number & 2, third = number & 4;
    if (first) {
        c->scale = 0.375;
        c->temperature = 0.125;
        c->temperature_length = 7;
    }
    c->causal = first == second;
    if (c->causal && third)
        c->window = gpu_random_between(random, 1, 40);
    if (first != third)
        c->softcap = 1.5;
    if (third) {
        const tsr_dtype dtype = p->dtypes[MASK];
        c->mask = attention_random_mask(random, attention_queries_count(c) * c->kv_len, dtype);
        p->mask = view(p, random, dtype, 4, mask_shape);
        gpu_put(p->mask, c->mask);
    }
    if (!c->kv_length && second != third) {
        c->kv_length = attention_random_lengths(random, c->batch, c->kv_len);
        p->kv_lengths = view(p, random, TSR_I32, 1, mask_shape);
        gpu_put(p->kv_lengths, c->kv_length);
    }
    if (first ^ second ^ third) {
        c->q_length = attention_random_lengths(random, c->batch, c->q_len);
        p->q_lengths = view(p, random, TSR_I32, 1, mask_shape);
        gpu_put(p->q_lengths, c->q_length);
    }
    if (!second)
        add_sinks(p, random);
    if (second) {
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
                  k_shape[] = {c->batch, c->kv_heads, c->kv_len, c->head_dim},
                  y_shape[] = {c->batch, c->heads, c->q_len, attention_value_dim(c)},
                  v_shape[] = {c->batch, c->kv_heads, c->kv_len, attention_value_dim(c)};
    const int64_t *shapes[] = {q_shape, k_shape, v_shape, y_shape};
    tsr_tensor **inputs[] = {&p->q, &p->k, &p->v, &p->dy};
    double **values[] = {&c->q, &c->k, &c->v, &c->dy};
    for (int i = 0; i < 4; i++) {
        const bool of_keys = i == 1 || i == 2;
        const tsr_dtype dtype = p->dtypes[i];
        const int64_t count = of_keys ? attention_keys_count(c) : attention_queries_count(c);
        *values[i] = attention_random_values(random, count * shapes[i][3],
                                             of_keys || i > 0 ? 2 : 0.5, dtype);
        if (of_keys)
            attention_spoil_keys(c, *values[i], shapes[i][3]);
        *inputs[i] = view(p, random, dtype, 4, shapes[i]);
        gpu_put(*inputs[i], *values[i]);
    }
    p->y = view(p, random, p->dtypes[Y], 4, y_shape);
    p->lse = gpu_new(TSR_F32, 3, q_shape);
    p->dq = gpu_new(p->dtypes[DQ], 4, q_shape);
    p->dk = gpu_new(p->dtypes[DK], 4, k_shape);
    p->dv = view(p, random, p->dtypes[DV], 4, v_shape);
    gpu_poison(p->lse);
    gpu_poison(p->dq);
    gpu_poison(p->dk);
}

static void free_problem(problem *p)
{
    tsr_tensor *tensors[] = {p->q,         p->k,          p->v,     p->dy,     p->y,
                             p->lse,       p->dq,         p->dk,    p->dv,     p->mask,
                             p->q_lengths, p->kv_lengths, p->sinks, p->dsinks, p->starts};
    for (int i = 0; i < 15; i++)
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
                                  .causal = p->c.causal,
                                  .window = p->c.window,
                                  .temperature = (float)p->c.temperature,
                                  .temperature_length = p->c.temperature_length,
                                  .mask = p->mask,
                                  .q_lengths = p->q_lengths,
                                  .kv_lengths = p->kv_lengths,
                                  .kv_head = p->c.kv_head,
                                  .sinks = p->sinks,
                                  .dsinks = p->dsinks,
                                  .starts = p->starts};
}

/* Returns whether kernels with cooperative matrices may compute a problem. These kernels round
 * probabilities, and their gradients, to the dtype before they multiply them. */
static bool may_round(const problem *p)
{
    const tsr_dtype dtype = p->dtypes[Q];
    const int used = dtype == TSR_F16    ? gpu->info.coopmat_used
                     : dtype == TSR_BF16 ? gpu->info.coopmat_bf16_used
                                         : -1;
    return gpu->traits.device_class == TSR__CLASS_GPU && used >= 0;
}

/* Returns the largest magnitude of a score that counts, for problems without mask and lengths. */
static double largest_score(const attention_case *c)
{
    double most = 0;
    for (int64_t row = 0; row < attention_queries_count(c); row++) {
        const int64_t query = row % c->q_len, head = row / c->q_len % c->heads,
                      batch = row / c->q_len / c->heads,
                      kv_head = batch * c->kv_heads + head * c->kv_heads / c->heads,
                      position = c->kv_len - c->q_len + query;
        const int64_t first = c->window > 0 && position >= c->window ? position - c->window + 1 : 0,
                      end = c->causal ? position + 1 : c->kv_len;
        for (int64_t key = first; key < end; key++) {
            double sum = 0;
            for (int64_t d = 0; d < c->head_dim; d++)
                sum += c->q[row * c->head_dim + d] *
                       c->k[(kv_head * c->kv_len + key) * c->head_dim + d];
            most = fmax(most, fabs(sum * attention_scale(c)));
        }
    }
    return c->softcap > 0 ? fmin(most, c->softcap) : most;
}

/* Compares the results with the references. Results for which the problem has no tensor are left
 * out. */
static void check(problem *p, const char *name)
{
    attention_case *c = &p->c;
    const int64_t rows = attention_queries_count(c), keys = attention_keys_count(c),
                  v_dim = attention_value_dim(c),
                  widest = v_dim > c->head_dim ? v_dim : c->head_dim;
    const double scale = attention_scale(c), most_q = attention_most(c->q, rows * c->head_dim),
                 most_k = attention_most(c->k, keys * c->head_dim),
                 most_v = attention_most(c->v, keys * v_dim),
                 most_dy = c->dy ? attention_most(c->dy, rows * v_dim) : 0;
    const bool rounds = may_round(p);
    const double more = p->large_scores ? largest_score(c) * SCORE_ERROR : 0;
    const struct {
        const char *name;
        const tsr_tensor *got;
        const double *want;
        int64_t count;
        double natural;
    } results[] = {
        {"y", p->y, c->y, rows * v_dim, rounds ? most_v : 0},
        {"lse", p->lse, c->lse, rows, 1},
        {"dq", p->dq, c->dq, rows * c->head_dim, most_dy * most_v * most_k * scale},
        {"dk", p->dk, c->dk, keys * c->head_dim, most_dy * most_v * most_q * scale},
        {"dv", p->dv, c->dv, keys * v_dim, most_dy},
        /* rounding of y to 16 bits shows in the gradients of the sinks */
        {"dsinks", c->dy ? p->dsinks : NULL, c->dsinks, c->heads,
         most_dy * most_v * (double)(c->batch * c->q_len) *
             (p->dtypes[Y] == TSR_F32 && !rounds ? 0.1
                                                 : attention_half_unit(p->dtypes[Y]) / F32_ERROR)},
    };
    double *got = attention_doubles((rows + keys) * widest);
    for (int i = 0; i < 6; i++) {
        if (!results[i].got || !results[i].want)
            continue;
        gpu_get((tsr_tensor *)results[i].got, got);
        const double most =
            fmax(attention_most(results[i].want, results[i].count), results[i].natural);
        const double error = !rounds  ? F32_ERROR + more
                             : i == 1 ? 4e-6
                                      : attention_half_unit(p->dtypes[Q]);
        attention_compare(name, results[i].name, results[i].count, got, results[i].want, most,
                          error, tsr_tensor_layout(results[i].got)->dtype);
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
    if (!gpu_is_swiftshader() && (p->kv_lengths || p->q_lengths)) {
        /* For lengths without lse, lavapipe uses another kernel. */
        gpu_poison(p->y);
        GPU_OK(tsr_attention(queue, p->y, NULL, p->q, p->k, p->v, &params));
        check(p, name);
    }
    free_problem(p);
}

/* On lavapipe, other kernels read starts without gaps. */
static void add_starts(problem *p, gpu_random *random, int64_t longest, bool dense)
{
    const int64_t shape[] = {p->c.batch, p->c.q_len};
    p->c.causal = true;
    p->c.starts = attention_random_starts(random, &p->c, longest);
    p->starts = dense ? gpu_new(TSR_I32, 2, shape) : view(p, random, TSR_I32, 2, shape);
    gpu_put(p->starts, p->c.starts);
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
    static const int64_t dims[] = {17, 64, 250, 3, 8, 66, 32, 96, 1, 256, 128, 200};
    gpu_random random = {(uint64_t)_i + 1};
    /* Compiling the kernels takes most of the time, so only the first round uses all mixtures of
     * dtypes; the other rounds use two. */
    const int first = _i == 0 ? 0 : _i % 3, count = _i == 0 ? 4 : 2;
    for (int n = first; n < first + count; n++) {
        char name[128];
        problem p = {.dtypes = mixtures[n],
                     .c = {.batch = gpu_random_between(&random, 1, 2),
                           .heads = gpu_random_between(&random, 1, 5),
                           .kv_heads = gpu_random_between(&random, 1, 3),
                           .q_len = gpu_random_between(&random, 1, 70),
                           .kv_len = gpu_random_between(&random, 1, 90),
                           .head_dim = dims[(4 * _i + n) % 12]}};
        random_name(&p, name);
        add_options(&p, &random, 4 * _i + n);
        compute(&p, &random, name);
    }
}
END_TEST

/* Sizes of heads up to the largest, and of values that differ from those of keys. Few queries use
 * another kernel. */
START_TEST(agrees_with_doubles_for_head_sizes)
{
    static const int64_t sizes[][2] = {{576, 512}, {320, 320}, {192, 128}, {16, 80},
                                       {24, 576},  {576, 24},  {80, 17},   {33, 256}};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    gpu_random random = {(uint64_t)_i + 500};
    for (int n = _i; n < _i + 2; n++) {
        char name[128];
        const int number = n % SIZES;
        problem p = {.dtypes = mixtures[_i % 2],
                     .c = {.batch = 2,
                           .heads = 4,
                           .kv_heads = 2,
                           .q_len = n % 2 ? 45 : 70,
                           .kv_len = 90,
                           .head_dim = sizes[number][0],
                           .value_dim = sizes[number][1]}};
        random_name(&p, name);
        add_options(&p, &random, n);
        p.c.scale = 0; /* 0.375 would make large scores, which have larger errors */
        compute(&p, &random, name);
        problem few = {.dtypes = mixtures[_i % 2]};
        few.c = (attention_case){.batch = 1,
                                 .heads = 6,
                                 .kv_heads = 2,
                                 .q_len = 2,
                                 .kv_len = n % 2 ? 200 : 700,
                                 .head_dim = sizes[number][0],
                                 .value_dim = sizes[number][1]};
        few.c.kv_length = attention_random_lengths(&random, few.c.batch, few.c.kv_len);
        few.kv_lengths = gpu_new(TSR_I32, 1, &few.c.batch);
        gpu_put(few.kv_lengths, few.c.kv_length);
        random_name(&few, name);
        add_options(&few, &random, n);
        few.c.scale = 0;
        compute(&few, &random, name);
    }
}
END_TEST

/* Packed documents: long ones, of which blocks are skipped, and short ones; with a temperature,
 * whose positions count from a document's start; fewer queries than keys, and few queries. */
START_TEST(agrees_with_doubles_for_documents)
{
    static const struct {
        attention_case c;
        int64_t longest;
    } cases[] = {
        {{.batch = 2, .heads = 4, .kv_heads = 2, .q_len = 150, .kv_len = 150, .head_dim = 24}, 70},
        {{.batch = 2,
          .heads = 3,
          .kv_heads = 3,
          .q_len = 90,
          .kv_len = 110,
          .head_dim = 24,
          .temperature = 0.5,
          .temperature_length = 3,
          .window = 20},
         30},
        {{.batch = 3, .heads = 2, .kv_heads = 1, .q_len = 4, .kv_len = 300, .head_dim = 24}, 90},
        /* several blocks of keys */
        {{.batch = 1, .heads = 2, .kv_heads = 1, .q_len = 150, .kv_len = 700, .head_dim = 16}, 260},
    };
    const int number = _i % 4;
    if (_i >= 4 && gpu->traits.device_class != TSR__CLASS_LAVAPIPE)
        SKIP("only lavapipe has another kernel for starts without gaps");
    gpu_random random = {(uint64_t)_i + 700};
    char name[128];
    problem p = {.dtypes = mixtures[0], .c = cases[number].c};
    random_name(&p, name);
    add_starts(&p, &random, cases[number].longest, _i >= 4);
    if (number == 0)
        add_sinks(&p, &random);
    compute(&p, &random, name);
}
END_TEST

/* Scores of 20 times the usual size, whose rounding to f32 is the largest error. */
START_TEST(errors_grow_with_scores)
{
    static const attention_case cases[] = {
        {.batch = 1,
         .heads = 6,
         .kv_heads = 2,
         .q_len = 70,
         .kv_len = 70,
         .head_dim = 32,
         .causal = true,
         .window = 24,
         .softcap = 30},
        {.batch = 2, .heads = 4, .kv_heads = 4, .q_len = 33, .kv_len = 50, .head_dim = 64},
        {.batch = 1,
         .heads = 8,
         .kv_heads = 1,
         .q_len = 90,
         .kv_len = 90,
         .head_dim = 16,
         .causal = true,
         .window = 40,
         .softcap = 12},
    };
    gpu_random random = {(uint64_t)_i + 400};
    char name[128];
    problem p = {.dtypes = mixtures[0], .c = cases[_i], .large_scores = true};
    p.c.scale = 20 / sqrt((double)p.c.head_dim);
    random_name(&p, name);
    compute(&p, &random, name);
}
END_TEST

/* Makes a view [batch, heads, length, head_dim] of a tensor [batch, length, heads, head_dim]. */
static tsr_tensor *by_heads(problem *p, int64_t heads, int64_t length)
{
    const int64_t shape[] = {p->c.batch, length, heads, p->c.head_dim};
    tsr_tensor *all = gpu_new(TSR_F32, 4, shape), *out;
    gpu_poison(all);
    GPU_OK(tsr_tensor_transpose(all, 1, 2, &out));
    p->parents[p->parent_count++] = all;
    return out;
}

/* Replaces three tensors, which must have the same shape, by parts of one tensor, as if one product
 * had made queries, keys and values. */
static void fuse(problem *p, tsr_tensor **parts[3])
{
    const int64_t heads = p->c.heads;
    tsr_tensor *all = by_heads(p, 3 * heads, p->c.q_len);
    p->parents[p->parent_count++] = all;
    for (int i = 0; i < 3; i++) {
        tsr_tensor_destroy(parts[i]);
        GPU_OK(tsr_tensor_slice(all, 1, i * heads, (i + 1) * heads, 1, parts[i]));
    }
}

/* Many short sequences in tensors without gaps in a row, for which lavapipe has a kernel of its
 * own. There are as many queries as keys, fewer, or more; with more, some queries see no key. Some
 * rows do not fill a workgroup. */
START_TEST(agrees_with_doubles_for_short_sequences)
{
    static const attention_case cases[] = {
        {.batch = 3, .heads = 4, .q_len = 64, .kv_len = 64, .head_dim = 32, .causal = true},
        {.batch = 2, .heads = 5, .q_len = 40, .kv_len = 56, .head_dim = 16, .causal = true},
        {.batch = 5, .heads = 3, .q_len = 32, .kv_len = 24, .head_dim = 40, .causal = true},
        {.batch = 1, .heads = 4, .q_len = 72, .kv_len = 72, .head_dim = 24, .scale = 0.375},
    };
    if (_i > 0 && gpu->traits.device_class != TSR__CLASS_LAVAPIPE)
        SKIP("the kernel for short sequences is lavapipe's");
    gpu_random random = {(uint64_t)_i + 60};
    char name[128];
    problem p = {.dtypes = mixtures[0], .c = cases[_i]};
    attention_case *c = &p.c;
    c->kv_heads = c->heads;
    random_name(&p, name);
    tsr_tensor **of_queries[] = {&p.q, &p.dy, &p.y, &p.dq},
               **of_keys[] = {&p.k, &p.v, &p.dk, &p.dv};
    for (int i = 0; i < 4; i++) {
        *of_queries[i] = by_heads(&p, c->heads, c->q_len);
        *of_keys[i] = by_heads(&p, c->heads, c->kv_len);
    }
    if (c->q_len == c->kv_len) {
        fuse(&p, (tsr_tensor * *[]){&p.q, &p.k, &p.v});
        fuse(&p, (tsr_tensor * *[]){&p.dq, &p.dk, &p.dv});
    }
    p.lse = gpu_new(TSR_F32, 3, (const int64_t[]){c->batch, c->heads, c->q_len});
    gpu_poison(p.lse);
    tsr_tensor *inputs[] = {p.q, p.k, p.v, p.dy};
    double **values[] = {&c->q, &c->k, &c->v, &c->dy};
    for (int i = 0; i < 4; i++) {
        const bool of_key = i == 1 || i == 2;
        const int64_t rows = of_key ? attention_keys_count(c) : attention_queries_count(c);
        *values[i] = attention_random_values(&random, rows * c->head_dim, i > 0 ? 2 : 0.5, TSR_F32);
        gpu_put(inputs[i], *values[i]);
    }
    const tsr_attention_params params = params_of(&p);
    attention_solve(c);
    GPU_OK(tsr_attention(queue, p.y, p.lse, p.q, p.k, p.v, &params));
    GPU_OK(tsr_attention_grad(queue, p.dq, p.dk, p.dv, p.dy, p.y, p.lse, p.q, p.k, p.v, &params));
    check(&p, name);
    gpu_poison(p.y);
    GPU_OK(tsr_attention(queue, p.y, NULL, p.q, p.k, p.v, &params));
    check(&p, name);
    free_problem(&p);
}
END_TEST

/* Makes the device look like one from Intel, for which the kernel has loops whose number of
 * trips is not a constant. */
START_TEST(agrees_with_doubles_as_on_intel)
{
    gpu_random random = {41};
    problem p = {
        .dtypes = mixtures[0],
        .c = {.batch = 1, .heads = 3, .kv_heads = 2, .q_len = 45, .kv_len = 70, .head_dim = 72}};

    add_options(&p, &random, 3);
    gpu->info.vendor_id = TSR__VENDOR_INTEL;
    compute(&p, &random, "as on Intel");
}
END_TEST

/* Calls with so few queries that the keys are divided into ranges, which different workgroups
 * read. */
START_TEST(agrees_with_doubles_for_few_queries)
{
    static const int64_t dims[] = {64, 1, 20, 128, 20, 250, 128, 64};
    gpu_random random = {(uint64_t)_i + 50};
    for (int n = 0; n < (gpu_is_swiftshader() ? 1 : 2); n++) {
        char name[128];
        const int number = 2 * _i + n;
        problem p = {.dtypes = mixtures[number % 4],
                     .c = {.batch = gpu_random_between(&random, 1, 3),
                           .heads = gpu_random_between(&random, 1, 7),
                           .kv_heads = gpu_random_between(&random, 1, 2),
                           .q_len = gpu_random_between(&random, 1, 2),
                           .kv_len = gpu_random_between(&random, 1, 1500),
                           .head_dim = dims[number]}};
        /* Sets lengths of the sequences, because lavapipe uses the kernel for few queries for
         * calls with lengths and lse, too. */
        p.c.kv_length = attention_random_lengths(&random, p.c.batch, p.c.kv_len);
        p.kv_lengths = gpu_new(TSR_I32, 1, &p.c.batch);
        gpu_put(p.kv_lengths, p.c.kv_length);
        random_name(&p, name);
        add_options(&p, &random, number);
        compute(&p, &random, name);
    }
}
END_TEST

/* On GPUs, heads of one token that read the same keys share them: the kernel for few queries takes
 * up to 128 of them. */
START_TEST(heads_of_a_token_share_keys)
{
    gpu_random random = {60};
    problem p = {
        .dtypes = mixtures[0],
        .c = {.batch = 2, .heads = 21, .kv_heads = 1, .q_len = 1, .kv_len = 300, .head_dim = 20}};
    gpu->traits.few_invocations = false;
    p.c.kv_length = attention_random_lengths(&random, p.c.batch, p.c.kv_len);
    p.kv_lengths = gpu_new(TSR_I32, 1, &p.c.batch);
    gpu_put(p.kv_lengths, p.c.kv_length);
    make_tensors(&p, &random);
    const tsr_attention_params params = params_of(&p);
    tsr__attention call = {.op = "attention",
                           .stream = queue,
                           .y = p.y,
                           .lse = p.lse,
                           .q = p.q,
                           .k = p.k,
                           .v = p.v,
                           .params = params};
    GPU_OK(tsr__attention_check(&call));
    ck_assert(tsr__attention_few_suit(&call));
    tsr__attention_finish(&call);
    attention_solve(&p.c);
    GPU_OK(tsr_attention(queue, p.y, p.lse, p.q, p.k, p.v, &params));
    GPU_OK(tsr_attention_grad(queue, p.dq, p.dk, p.dv, p.dy, p.y, p.lse, p.q, p.k, p.v, &params));
    check(&p, "21 heads of a token");
    free_problem(&p);
}
END_TEST

/* `plain`: the tensors have no gaps, so that lavapipe copies the pages to consecutive memory
 * before it multiplies. */
typedef struct paging {
    int64_t q_len, page_len, head_dim;
    bool q_lengths, plain, sinks;
} paging;

static tsr_tensor *plain_or_view(problem *p, gpu_random *random, bool plain, tsr_dtype dtype,
                                 int ndim, const int64_t *shape)
{
    if (!plain)
        return view(p, random, dtype, ndim, shape);
    tsr_tensor *tensor = gpu_new(dtype, ndim, shape);
    gpu_poison(tensor);
    return tensor;
}

/* Tests keys in pages of a cache, in any order. Sequences share some pages. */
static void try_pages(gpu_random *random, const paging *how, const tsr_dtype *dtypes)
{
    enum { PAGES = 7, COUNT = 6 };
    const int64_t q_len = how->q_len, page_len = how->page_len;
    char name[128];
    problem p = {.dtypes = dtypes,
                 .c = {.batch = 3,
                       .heads = 4,
                       .kv_heads = 2,
                       .q_len = q_len,
                       .kv_len = page_len * COUNT,
                       .head_dim = how->head_dim,
                       .causal = true,
                       .window = q_len > 2 ? 30 : 0}};
    attention_case *c = &p.c;
    const int64_t q_shape[] = {c->batch, c->heads, c->q_len, c->head_dim},
                  cache_shape[] = {PAGES, c->kv_heads, page_len, c->head_dim},
                  table_shape[] = {c->batch, COUNT};
    const int64_t page = c->kv_heads * page_len * c->head_dim, size = PAGES * page;
    double table[3 * COUNT];
    double *caches[2], **wanted[] = {&c->k, &c->v};
    tsr_tensor **tensors[] = {&p.k, &p.v};
    c->kv_length = attention_doubles(c->batch);
    for (int64_t b = 0; b < c->batch; b++)
        c->kv_length[b] = (double)gpu_random_between(random, 5, c->kv_len);
    for (int i = 0; i < 3 * COUNT; i++) {
        const bool used = (double)(i % COUNT * page_len) < c->kv_length[i / COUNT];
        table[i] = used ? (double)gpu_random_between(random, 0, PAGES - 1) : -77777;
    }
    for (int which = 0; which < 2; which++) {
        caches[which] = attention_random_values(random, size, 2, dtypes[K + which]);
        *wanted[which] = attention_doubles(attention_keys_count(c) * c->head_dim);
        for (int64_t n = 0; n < attention_keys_count(c) * c->head_dim; n++) {
            const int64_t d = n % c->head_dim, j = n / c->head_dim % c->kv_len,
                          g = n / c->head_dim / c->kv_len % c->kv_heads,
                          b = n / c->head_dim / c->kv_len / c->kv_heads;
            const double number = table[b * COUNT + j / page_len];
            if (number >= 0)
                (*wanted[which])[n] =
                    caches[which][(int64_t)number * page +
                                  (g * page_len + j % page_len) * c->head_dim + d];
        }
        *tensors[which] = plain_or_view(&p, random, how->plain, dtypes[K + which], 4, cache_shape);
        gpu_put(*tensors[which], caches[which]);
        free(caches[which]);
    }
    c->q =
        attention_random_values(random, attention_queries_count(c) * c->head_dim, 0.5, dtypes[Q]);
    p.q = view(&p, random, dtypes[Q], 4, q_shape);
    gpu_put(p.q, c->q);
    p.y = view(&p, random, dtypes[Y], 4, q_shape);
    p.lse = gpu_new(TSR_F32, 3, q_shape);
    gpu_poison(p.lse);
    p.kv_lengths = gpu_new(TSR_I32, 1, &c->batch);
    gpu_put(p.kv_lengths, c->kv_length);
    if (how->q_lengths) {
        c->q_length = attention_random_lengths(random, c->batch, q_len);
        p.q_lengths = gpu_new(TSR_I32, 1, &c->batch);
        gpu_put(p.q_lengths, c->q_length);
    }
    tsr_tensor *pages = plain_or_view(&p, random, how->plain, TSR_I32, 2, table_shape);
    gpu_put(pages, table);
    if (how->sinks)
        add_sinks(&p, random);
    tsr_attention_params params = params_of(&p);
    params.pages = pages;
    attention_solve(c);
    GPU_OK(tsr_attention(queue, p.y, p.lse, p.q, p.k, p.v, &params));
    snprintf(name, sizeof name, "pages of %lld, %lld queries", (long long)page_len,
             (long long)q_len);
    check(&p, name);
    tsr_tensor_destroy(&pages);
    free_problem(&p);
}

START_TEST(reads_pages)
{
    gpu_random random = {(uint64_t)_i + 70};
    try_pages(&random, &(paging){.q_len = 1, .page_len = 11, .head_dim = 24, .sinks = true},
              mixtures[_i]);
    try_pages(&random, &(paging){.q_len = 37, .page_len = 11, .head_dim = 24}, mixtures[_i]);
}
END_TEST

/* Tests the kernel for few queries with several blocks of keys, where the keys are in pages. */
START_TEST(reads_pages_for_few_queries)
{
    gpu_random random = {75};
    try_pages(&random, &(paging){.q_len = 1, .page_len = 90, .head_dim = 36, .sinks = true},
              mixtures[1]);
    try_pages(&random, &(paging){.q_len = 1, .page_len = 90, .head_dim = 576}, mixtures[1]);
}
END_TEST

/* Tensors without gaps, for which lavapipe copies the pages to consecutive memory. The first
 * case has more keys than a block of scores can hold, and an odd head_dim; the second has
 * several blocks of queries. */
START_TEST(gathers_pages)
{
    gpu_random random = {(uint64_t)_i + 90};
    try_pages(&random,
              &(paging){.q_len = 3,
                        .page_len = 101,
                        .head_dim = 33,
                        .q_lengths = true,
                        .plain = true,
                        .sinks = true},
              mixtures[_i]);
    try_pages(&random, &(paging){.q_len = 140, .page_len = 8, .head_dim = 64, .plain = true},
              mixtures[_i]);
}
END_TEST

/* More queries and keys than one block of each, and key heads that serve different numbers of
 * query heads. Drivers that run all kernels as GPUs do run iteration 1, whose shape is only as
 * large as the blocks of these kernels need. */
START_TEST(agrees_with_doubles_in_several_blocks)
{
    const bool small = _i == 1;
    gpu_random random = {(uint64_t)_i + 100};
    char name[128];
    problem p = {.dtypes = mixtures[_i % 4],
                 .c = {.batch = 1 + _i / 4,
                       .heads = 3 + _i % 2,
                       .kv_heads = 2,
                       .q_len = gpu_random_between(&random, small ? 130 : 257, small ? 160 : 400),
                       .kv_len = gpu_random_between(&random, small ? 140 : 600, small ? 300 : 1200),
                       .head_dim = gpu_random_between(&random, 4, 10) * 4,
                       .causal = _i % 2 == 0,
                       .window = _i % 4 == 2 ? 300 : 0,
                       .softcap = _i == 3 ? 3 : 0}};
    const int64_t mask_shape[] = {1, p.c.heads, 1, p.c.kv_len};
    if (_i != 1)
        add_sinks(&p, &random);
    if (_i == 1 || _i == 2) {
        /* This mask is the same for all queries, so its dimension of queries has size 1. */
        double *values = attention_random_mask(&random, p.c.heads * p.c.kv_len, p.dtypes[MASK]);
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

/* Checks that attention does not store all scores, which would take 1 GiB for each head of
 * 16,384 queries. */
START_TEST(takes_little_memory)
{
    const int64_t shape[] = {1, 1, 16384, 64}, last[] = {1, 1, 1, 64};
    tsr_tensor *q = gpu_new(TSR_F32, 4, shape), *k = gpu_new(TSR_F32, 4, shape),
               *v = gpu_new(TSR_F32, 4, shape), *y = gpu_new(TSR_F32, 4, shape),
               *lse = gpu_new(TSR_F32, 3, shape);
    tsr_tensor *inputs[] = {q, k, v};
    for (uint64_t i = 0; i < 3; i++)
        GPU_OK(tsr_random_uniform(queue, inputs[i], -1, 1, tsr_random_params(.seed = i)));
    gpu_poison(y);
    uint64_t before, after;
    tsr_device_memory_usage(gpu, NULL, &before);
    /* Iteration 1 also wants the log-sum-exp, for which CPU drivers use the kernels for GPUs. With
     * all keys, these would take 16 s on lavapipe, so they get a window. */
    const bool for_gradient = _i == 1;
    const int64_t window = for_gradient && gpu->traits.device_class != TSR__CLASS_GPU ? 1024 : 0;
    GPU_OK(tsr_attention(queue, y, for_gradient ? lse : NULL, q, k, v,
                         tsr_attention_params(.causal = true, .window = window)));
    GPU_OK(tsr_stream_wait(queue));
    tsr_device_memory_usage(gpu, NULL, &after);
    ck_assert_uint_le(after - before, UINT64_C(64) << 20);

    /* Compares the last query's result with that of a separate call for this query. */
    tsr_tensor *one = gpu_new(TSR_F32, 4, last), *of_y, *of_q;
    GPU_OK(tsr_tensor_slice(q, 2, -1, TSR_END, 1, &of_q));
    GPU_OK(tsr_tensor_slice(y, 2, -1, TSR_END, 1, &of_y));
    GPU_OK(tsr_attention(queue, one, NULL, of_q, k, v,
                         tsr_attention_params(.causal = true, .window = window)));
    double got[64], want[64];
    gpu_get(of_y, got);
    gpu_get(one, want);
    /* A call adds n products of either sign. The intermediate sums have either sign, too, so their
     * roundings are independent. Together, n roundings come to about sqrt(n) · 2^-24 of the largest
     * intermediate sum (Higham and Mary, 2019), which is about as large as the largest result. That
     * is 7.6e-6 here; without one of the 16,384 keys the result would differ by 5e-3. */
    const double keys = window > 0 ? (double)window : (double)shape[2];
    attention_compare("16384", "y", 64, got, want, attention_most(want, 64),
                      fmax(F32_ERROR, sqrt(keys) * 0x1p-24), TSR_F32);
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

/* Refused calls ------------------------------------------------------------------------------ */

static tsr_tensor *zeros(tsr_dtype dtype, int ndim, const int64_t *shape)
{
    tsr_tensor *tensor = gpu_new(dtype, ndim, shape);
    GPU_OK(tsr_fill(queue, tensor, 0));
    return tensor;
}

START_TEST(refuses_tensors)
{
    const int64_t shape[] = {2, 4, 3, 8}, k_shape[] = {2, 2, 5, 8}, wide[] = {2, 2, 5, 577},
                  narrow[] = {2, 2, 5, 6}, other[] = {3, 2, 5, 8}, none[] = {2, 0, 5, 8},
                  many[] = {2, 4097, 1, 1}, wide_q[] = {2, 4, 3, 577}, many_q[] = {2, 4, 3, 1};
    tsr_tensor *q = zeros(TSR_F32, 4, shape), *k = zeros(TSR_F32, 4, k_shape),
               *v = zeros(TSR_F32, 4, k_shape), *y = zeros(TSR_F32, 4, shape),
               *lse = zeros(TSR_F32, 3, shape), *half_lse = zeros(TSR_F16, 3, shape),
               *k_wide = zeros(TSR_F32, 4, wide), *k_narrow = zeros(TSR_F32, 4, narrow),
               *k_other = zeros(TSR_F32, 4, other), *k_none = zeros(TSR_F32, 4, none),
               *k_many = zeros(TSR_F32, 4, many), *q_wide = zeros(TSR_F32, 4, wide_q),
               *q_many = zeros(TSR_F32, 4, many_q), *words = zeros(TSR_I32, 4, shape),
               *flat = zeros(TSR_F32, 3, shape), *repeated;
    GPU_OK(tsr_tensor_broadcast(lse, 4, (const int64_t[]){2, 2, 4, 3}, &repeated));
    const struct {
        tsr_tensor *y, *lse;
        const tsr_tensor *q, *k, *v;
        const char *words;
    } wrong[] = {
        {y, lse, NULL, k, v, "attention: q is NULL"},
        {y, lse, q, NULL, v, "k is NULL"},
        {y, lse, q, k, NULL, "v is NULL"},
        {NULL, lse, q, k, v, "y is NULL"},
        {y, lse, flat, k, v, "q is [2,4,3]; 4 dimensions are needed"},
        {y, lse, words, k, v, "q is i32; f32, f16 or bf16 is needed"},
        {y, lse, q, k_narrow, k_narrow,
         "q is [2,4,3,8] and k is [2,2,5,6]; their head_dims differ"},
        {y, lse, q, k_other, k_other, "q is [2,4,3,8] and k is [3,2,5,8]; their batches differ"},
        {y, lse, q, k, k_other,
         "k is [2,2,5,8] and v is [3,2,5,8]; only their head_dims may differ"},
        {y, lse, q, k, k_wide, "the head_dim of v is 577; 1 to 576 are possible"},
        {y, lse, q, k, k_narrow,
         "y is [2,4,3,8]; [2,4,3,6], the shape of q with the head_dim of v, is needed"},
        {y, lse, q, k_none, k_none, "there are 4 heads, which need a kv head, but k is [2,0,5,8]"},
        {y, lse, q_wide, k_wide, k_wide, "head_dim is 577; 1 to 576 are possible"},
        {y, lse, q_many, k_many, k_many, "4 heads and 4097 kv heads; at most 4096 are possible"},
        {k, lse, q, k, v, "y is [2,2,5,8]"},
        {y, half_lse, q, k, v, "lse is f16; f32 is needed"},
        {y, k, q, k, v, "lse is [2,2,5,8]; [2,4,3] is needed"},
        {q, lse, q, k, v, "overlap"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        GPU_FAILS(tsr_attention(queue, wrong[i].y, wrong[i].lse, wrong[i].q, wrong[i].k, wrong[i].v,
                                NULL),
                  TSR_ERR_INVALID, wrong[i].words);
    GPU_FAILS(tsr_attention_grad(queue, NULL, NULL, NULL, y, y, lse, q, k, v, NULL),
              TSR_ERR_INVALID, "attention_grad: dq, dk, dv and dsinks are all NULL");
    GPU_FAILS(tsr_attention_grad(queue, y, NULL, NULL, NULL, y, lse, q, k, v, NULL),
              TSR_ERR_INVALID, "attention_grad: dy is NULL");
    GPU_FAILS(tsr_attention_grad(queue, y, NULL, NULL, q, y, lse, q, k, v, NULL), TSR_ERR_INVALID,
              "overlap");
    GPU_FAILS(tsr_attention_grad(queue, k, NULL, NULL, q, y, lse, q, k, v, NULL), TSR_ERR_INVALID,
              "dq");
    GPU_FAILS(tsr_attention_grad(queue, NULL, y, NULL, q, q, lse, q, k, v, NULL), TSR_ERR_INVALID,
              "dk");
    GPU_FAILS(tsr_attention_grad(queue, NULL, NULL, y, q, q, lse, q, k, v, NULL), TSR_ERR_INVALID,
              "dv");
    GPU_FAILS(tsr_attention_grad(queue, y, NULL, NULL, q, q, NULL, q, k, v, NULL), TSR_ERR_INVALID,
              "lse is NULL");
    double got[192];
    gpu_get(y, got);
    for (int i = 0; i < 192; i++)
        ck_assert_double_eq(got[i], 0);
    tsr_tensor *tensors[] = {repeated, q,       k,      v,      y,      lse,    half_lse, k_wide,
                             k_narrow, k_other, k_none, k_many, q_wide, q_many, words,    flat};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tsr_tensor_destroy(&tensors[i]);
}
END_TEST

START_TEST(refuses_params)
{
    const int64_t shape[] = {2, 4, 3, 8}, k_shape[] = {2, 2, 5, 8}, pair = 2, three = 3, four = 4,
                  table[] = {2, 4}, wrong_table[] = {3, 4}, mask_shape[] = {4, 3, 6};
    tsr_tensor *q = zeros(TSR_F32, 4, shape), *k = zeros(TSR_F32, 4, k_shape),
               *y = zeros(TSR_F32, 4, shape), *lse = zeros(TSR_F32, 3, shape),
               *two = zeros(TSR_I32, 1, &pair), *reals = zeros(TSR_F32, 1, &pair),
               *more = zeros(TSR_I32, 1, &three), *pages = zeros(TSR_I32, 2, table),
               *other_pages = zeros(TSR_I32, 2, wrong_table), *mask = zeros(TSR_F32, 3, mask_shape),
               *sinks = zeros(TSR_F32, 1, &four), *half_sinks = zeros(TSR_F16, 1, &four),
               *other_sinks = zeros(TSR_F32, 1, &four);
    const int32_t heads[] = {0, 1, 2, 0}, negative[] = {0, 1, 0, -1};
    struct {
        tsr_attention_params params;
        const char *words;
    } wrong[] = {
        {{.scale = NAN}, "attention: scale is "},
        {{.scale = INFINITY}, "scale is inf"},
        {{.softcap = -1}, "softcap is -1; 0 (none) or a positive number is needed"},
        {{.softcap = NAN}, "softcap is "},
        {{.temperature = 1}, "temperature is 1 and temperature_length 0; a length of 1 to"},
        {{.temperature = INFINITY, .temperature_length = 1}, "temperature is inf"},
        {{.temperature = 1, .temperature_length = INT64_C(1) << 31},
         "temperature_length 2147483648; a length of 1 to 2147483647"},
        {{.window = -2, .causal = true}, "window is -2; 0 (none) or a positive number is needed"},
        {{.window = 2}, "window is 2, but causal is not set"},
        {{.mask = mask}, "mask [4,3,6] does not broadcast to [2,4,3,5]"},
        {{.mask = two}, "mask is i32"},
        {{.q_lengths = more}, "q_lengths is [3]; [batch] with a batch of 2 is needed"},
        {{.kv_lengths = reals}, "kv_lengths is f32; i32 is needed"},
        {{.kv_lengths = pages}, "kv_lengths is [2,4]"},
        {{.pages = two}, "pages is [2]; [batch, n] with a batch of 2 is needed"},
        {{.pages = other_pages}, "pages is [3,4]"},
        {{.kv_head = heads}, "kv_head[2] is 2; there are 2 kv heads"},
        {{.kv_head = negative}, "kv_head[3] is -1; there are 2 kv heads"},
        {{.sinks = reals}, "attention: sinks is [2]; [4], one number for each head, is needed"},
        {{.sinks = half_sinks}, "sinks is f16; f32 is needed"},
        {{.dsinks = sinks}, "dsinks is given, but sinks is NULL"},
        {{.starts = pages}, "attention: starts is given, but causal is not set"},
        {{.starts = reals, .causal = true}, "starts is f32; i32 is needed"},
        {{.starts = pages, .causal = true},
         "attention: starts is [2,4]; [2,3], one number for each query, is needed"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong[i].params.struct_size = sizeof wrong[i].params;
        GPU_FAILS(tsr_attention(queue, y, lse, q, k, k, &wrong[i].params), TSR_ERR_INVALID,
                  wrong[i].words);
    }
    GPU_FAILS(tsr_attention_grad(queue, y, NULL, NULL, q, q, lse, q, k, k,
                                 tsr_attention_params(.pages = pages)),
              TSR_ERR_INVALID, "attention_grad: there are no gradients of pages");
    GPU_FAILS(tsr_attention_grad(queue, y, NULL, NULL, q, q, lse, q, k, k,
                                 tsr_attention_params(.sinks = sinks, .dsinks = reals)),
              TSR_ERR_INVALID,
              "attention_grad: dsinks is [2]; [4], one number for each head, is needed");
    GPU_FAILS(tsr_attention_grad(queue, y, NULL, NULL, q, q, lse, q, k, k,
                                 tsr_attention_params(.sinks = sinks, .dsinks = half_sinks)),
              TSR_ERR_INVALID, "dsinks is f16; f32 is needed");
    GPU_FAILS(tsr_attention_grad(queue, y, NULL, NULL, q, q, lse, q, k, k,
                                 tsr_attention_params(.sinks = sinks, .dsinks = sinks)),
              TSR_ERR_INVALID, "overlap");
    GPU_OK(tsr_attention_grad(queue, NULL, NULL, NULL, q, q, lse, q, k, k,
                              tsr_attention_params(.sinks = sinks, .dsinks = other_sinks)));
    tsr_tensor *tensors[] = {q,     k,           y,    lse,   two,        reals,      more,
                             pages, other_pages, mask, sinks, half_sinks, other_sinks};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++)
        tsr_tensor_destroy(&tensors[i]);
}
END_TEST

/* Variants of the call. On lavapipe, each uses another kernel. */
typedef enum variant { PLAIN, LENGTHS, LENGTHS_WITHOUT_LSE, SHORT } variant;

/* Every allocation and every Vulkan call fails once. Nothing may leak, and the result must be
 * unchanged, or correct where the library could continue without the failed call. */
static void survive(tsr__fault_kind kind, int code, variant which)
{
    const int64_t long_shape[] = {1, 2, 24, 64}, short_shape[] = {4, 4, 24, 8}, one = 1,
                  *shape = which == SHORT ? short_shape : long_shape, count = 2 * 24 * 64;
    tsr_tensor *q = gpu_new(TSR_F32, 4, shape), *v = gpu_new(TSR_F32, 4, shape),
               *y = gpu_new(TSR_F32, 4, shape), *lse = gpu_new(TSR_F32, 3, shape),
               *length = gpu_new(TSR_I32, 1, &one), *gradients[3];
    GPU_OK(tsr_fill(queue, q, 0));
    GPU_OK(tsr_fill(queue, v, 3));
    GPU_OK(tsr_fill(queue, length, 24));
    for (int i = 0; i < 3; i++)
        gradients[i] = gpu_new(TSR_F32, 4, shape);
    const tsr_attention_params params = {
        .struct_size = sizeof params,
        .kv_lengths = which == LENGTHS || which == LENGTHS_WITHOUT_LSE ? length : NULL};
    double *got = attention_doubles(count);
    for (int back = 0; back < (which == LENGTHS_WITHOUT_LSE ? 1 : 2); back++) {
        bool reached = true;
        tsr_tensor *result = back ? gradients[0] : y;
        for (uint64_t nth = 0; reached; nth++) {
            ck_assert_uint_lt(nth, 1000);
            GPU_OK(tsr_fill(queue, result, 77));
            GPU_OK(tsr_stream_wait(queue));
            tsr__fault_arm(kind, nth, code);
            const tsr_status status =
                back ? tsr_attention_grad(queue, gradients[0], gradients[1], gradients[2], v, y,
                                          lse, q, q, v, &params)
                     : tsr_attention(queue, y, which == LENGTHS_WITHOUT_LSE ? NULL : lse, q, q, v,
                                     &params);
            reached = tsr__fault_site() != NULL;
            tsr__fault_disarm();
            gpu_get(result, got);
            const double want = status != TSR_OK ? 77 : back ? 0 : 3;
            for (int64_t i = 0; i < count; i++)
                ck_assert_double_eq_tol(got[i], want, 1e-5);
        }
    }
    free(got);
    tsr_tensor *tensors[] = {q, v, y, lse, length, gradients[0], gradients[1], gradients[2]};
    for (int i = 0; i < 8; i++)
        tsr_tensor_destroy(&tensors[i]);
}

/* The kernels number the rows with 32 bits. Tensors of so many rows would need more memory than
 * most devices have, so the test calls the function that would record the kernels. */
START_TEST(refuses_too_many_rows)
{
    tsr__attention call = {.op = "attention", .batch = 1 << 16, .heads = 1 << 8, .q_len = 1 << 8};
    GPU_FAILS(tsr__attention_tiled(&call), TSR_ERR_INVALID,
              "attention: 65536 sequences of 256 heads with 256 queries; at most 2^32 - 1 rows are "
              "possible");
}
END_TEST

START_TEST(survives_failures)
{
    survive(TSR__FAULT_ALLOC, 0, (variant)_i);
    survive(TSR__FAULT_VULKAN, -1 /* VK_ERROR_OUT_OF_HOST_MEMORY */, (variant)_i);
}
END_TEST

/* Parameters need a command and a barrier only if the host cannot reach the device's memory. The
 * test makes more consecutive calls than one buffer of parameters can serve. Each call has its own
 * scale, and y is the sigmoid of the scale. */
START_TEST(sends_parameters)
{
    enum { CALLS = 300, FEW = 8 };
    const int64_t shape[] = {1, 1, 1, 8}, keys[] = {1, 1, 2, 8}, all[] = {CALLS, 1, 1, 8};
    const double one[8] = {1}, second[16] = {[8] = 1};
    static double values[CALLS * 8];
    tsr_tensor *q = gpu_new(TSR_F32, 4, shape), *k = gpu_new(TSR_F32, 4, keys),
               *y = gpu_new(TSR_F32, 4, all);
    const bool reached = gpu->wants_mapping || gpu->wants_direct_uploads;
    gpu_put(q, one);
    gpu_put(k, second);
    tsr__device_treat_as(gpu, TSR__CLASS_GPU);
    GPU_OK(tsr_fill(queue, y, 0));
    uint64_t serial = 0, barriers = 0;
    for (int i = 0; i < CALLS; i++) {
        tsr_tensor *part = NULL;
        GPU_OK(tsr_tensor_slice(y, 0, i, i + 1, 1, &part));
        GPU_OK(tsr_attention(queue, part, NULL, q, k, k,
                             tsr_attention_params(.scale = (float)(i + 1) / 128)));
        tsr_tensor_destroy(&part);
        if (i == 0) {
            serial = queue->serial;
            barriers = queue->barriers;
        }
        if (i < FEW && reached)
            ck_assert_uint_eq(queue->barriers, barriers);
    }
    /* The stream's `serial` grows by one for each command, and by another one if the command has
     * a preflight. */
    const uint64_t commands = queue->serial - serial;
    ck_assert_uint_eq(commands, (reached ? 2 : 4) * (CALLS - 1));
    gpu_get(y, values);
    for (int i = 0; i < CALLS; i++)
        ck_assert_double_eq_tol(values[8 * i], 1 / (1 + exp(-(i + 1) / 128.0)), 1e-5);
    tsr_tensor_destroy(&q);
    tsr_tensor_destroy(&k);
    tsr_tensor_destroy(&y);
}
END_TEST

/* The gradients of queries, keys and values are independent, also if they are views of one tensor.
 */
START_TEST(gradients_have_no_barriers_between_them)
{
    enum { TOKENS = 4, COLUMNS = 8 };
    const int64_t one[] = {1, 1, TOKENS, COLUMNS}, all[] = {1, 1, TOKENS, 3 * COLUMNS};
    const int64_t rows[] = {1, 1, TOKENS};
    tsr_tensor *x = gpu_new(TSR_F32, 4, one), *lse = gpu_new(TSR_F32, 3, rows),
               *together = gpu_new(TSR_F32, 4, all), *out[2][3];
    uint64_t barriers[2];
    GPU_OK(tsr_fill(queue, x, 1));
    GPU_OK(tsr_fill(queue, lse, 1));
    for (int i = 0; i < 3; i++) {
        out[0][i] = gpu_new(TSR_F32, 4, one);
        GPU_OK(tsr_tensor_slice(together, 3, i * COLUMNS, (i + 1) * COLUMNS, 1, &out[1][i]));
    }
    for (int views = 0; views < 2; views++) {
        GPU_OK(tsr_stream_wait(queue));
        const uint64_t before = queue->barriers;
        GPU_OK(tsr_attention_grad(queue, out[views][0], out[views][1], out[views][2], x, x, lse, x,
                                  x, x, NULL));
        barriers[views] = queue->barriers - before;
    }
    ck_assert_uint_eq(barriers[1], barriers[0]);
    ck_assert_uint_gt(barriers[0], 0);
    for (int i = 0; i < 6; i++)
        tsr_tensor_destroy(&out[i / 3][i % 3]);
    tsr_tensor_destroy(&x);
    tsr_tensor_destroy(&lse);
    tsr_tensor_destroy(&together);
}
END_TEST

/* What SwiftShader and the lane `adversary` run: each kernel with few variants, because both
 * compile each variant for seconds. */
TESTS(attention)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_doubles_in_several_blocks, 1, 2);
    tcase_add_loop_test(tests, agrees_with_doubles_for_documents, 0, 1);
    tcase_add_loop_test(tests, agrees_with_doubles_for_documents, 2, 3);
    tcase_add_test(tests, accepts_nothing);
    tcase_add_loop_test(tests, agrees_with_doubles_for_few_queries, 3, 4);
    tcase_add_loop_test(tests, reads_pages, 1, 2);
    tcase_add_test(tests, refuses_tensors);
    tcase_add_test(tests, refuses_params);
    tcase_add_test(tests, refuses_too_many_rows);
}

TESTS(attention_scores)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, errors_grow_with_scores, 0, 3);
}

TESTS(attention_scores_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, errors_grow_with_scores, 0, 1);
}

TESTS(attention_parameters)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, sends_parameters);
}

TESTS(attention_parameters_staged)
{
    tcase_add_checked_fixture(tests, gpu_setup_staged, gpu_teardown);
    tcase_add_test(tests, sends_parameters);
}

TESTS(attention_slow)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_doubles, 0, 2);
    tcase_add_loop_test(tests, agrees_with_doubles_for_head_sizes, 0, 1);
    tcase_add_loop_test(tests, agrees_with_doubles_for_head_sizes, 4, 5);
    tcase_add_loop_test(tests, agrees_with_doubles_in_several_blocks, 0, 1);
    tcase_add_loop_test(tests, agrees_with_doubles_in_several_blocks, 2, 4);
    tcase_add_loop_test(tests, agrees_with_doubles_for_documents, 1, 2);
    tcase_add_loop_test(tests, agrees_with_doubles_for_documents, 3, 8);
    tcase_add_loop_test(tests, agrees_with_doubles_for_short_sequences, 0, 4);
    tcase_add_loop_test(tests, agrees_with_doubles_for_few_queries, 0, 1);
    tcase_add_loop_test(tests, takes_little_memory, 0, 2);
    tcase_add_loop_test(tests, reads_pages, 0, 1);
    tcase_add_loop_test(tests, gathers_pages, 0, 4);
    tcase_add_loop_test(tests, survives_failures, 0, 4);
}

TESTS(attention_packed)
{
    tcase_add_checked_fixture(tests, gpu_setup_packed, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_doubles, 5, 6);
}

TESTS(attention_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_doubles, 6, 7);
    tcase_add_test(tests, agrees_with_doubles_as_on_intel);
    tcase_add_loop_test(tests, agrees_with_doubles_for_head_sizes, 2, 3);
    tcase_add_loop_test(tests, agrees_with_doubles_for_few_queries, 2, 3);
    tcase_add_test(tests, heads_of_a_token_share_keys);
    tcase_add_test(tests, reads_pages_for_few_queries);
    tcase_add_test(tests, gradients_have_no_barriers_between_them);
}
