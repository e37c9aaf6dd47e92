/* Compares attention and its gradients with PyTorch's results in tests/data. */
#include "attention_case.h"
#include "support/golden.h"
#include "support/golden_tensor.h"

#define F32_ERROR 2e-6

/* A golden tensor's values; the caller frees them. */
static double *values_of(const json_t *one, const char *name, int64_t count)
{
    golden_tensor tensor = golden_tensor_load(one, name);
    ck_assert_int_eq(tensor.count, count);
    return tensor.values;
}

static void broadcast_mask(attention_case *c, const golden_tensor *mask, bool is_bool)
{
    const int64_t shape[] = {c->batch, c->heads, c->q_len, c->kv_len};
    c->mask = attention_doubles(attention_queries_count(c) * c->kv_len);
    for (int64_t n = 0; n < attention_queries_count(c) * c->kv_len; n++) {
        int64_t rest = n, from = 0, step = 1;
        for (int d = 3; d >= 0; d--) {
            const int own = d - 4 + mask->ndim;
            const int64_t at = rest % shape[d];
            rest /= shape[d];
            if (own < 0)
                continue;
            from += mask->shape[own] == 1 ? 0 : at * step;
            step *= mask->shape[own];
        }
        const double value = mask->values[from];
        c->mask[n] = !is_bool ? value : value != 0 ? 0 : -INFINITY;
    }
}

static attention_case case_of(const json_t *one)
{
    attention_case c = {
        .batch = golden_integer(one, "B"),
        .heads = golden_integer(one, "Hq"),
        .kv_heads = golden_integer(one, "Hkv"),
        .q_len = golden_integer(one, "Tq"),
        .kv_len = golden_integer(one, "Tk"),
        .head_dim = golden_integer(one, "D"),
        .scale = strtod(golden_text(one, "scale"), NULL),
    };
    const char *mask = golden_text(one, "mask");
    const int64_t rows = attention_queries_count(&c), keys = attention_keys_count(&c);
    if (json_is_true(golden_member(one, "scale_is_default")))
        c.scale = 0;
    if (json_object_get(one, "softcap"))
        c.softcap = strtod(golden_text(one, "softcap"), NULL);
    c.causal = strcmp(mask, "causal") == 0 || strcmp(mask, "window") == 0;
    if (strcmp(mask, "window") == 0)
        c.window = golden_integer(one, "window");
    if (strcmp(mask, "additive") == 0 || strcmp(mask, "bool") == 0) {
        const bool is_bool = strcmp(mask, "bool") == 0;
        golden_tensor given = golden_tensor_load(one, is_bool ? "bool_mask" : "add_mask");
        broadcast_mask(&c, &given, is_bool);
        golden_tensor_free(&given);
    }
    c.q = values_of(one, "q", rows * c.head_dim);
    c.k = values_of(one, "k", keys * c.head_dim);
    c.v = values_of(one, "v", keys * c.head_dim);
    c.dy = values_of(one, "dy", rows * c.head_dim);
    c.y = values_of(one, "y", rows * c.head_dim);
    c.lse = values_of(one, "lse", rows);
    c.dq = values_of(one, "dq", rows * c.head_dim);
    c.dk = values_of(one, "dk", keys * c.head_dim);
    c.dv = values_of(one, "dv", keys * c.head_dim);
    return c;
}

/* The magnitude to which errors are relative. It is the largest value, unless the values are small
 * only because large ones cancel. */
static double relative_to(double most, double natural)
{
    return most < 0.03 * natural ? natural : most;
}

static void check_one(const json_t *one)
{
    attention_case c = case_of(one);
    const char *name = golden_text(one, "name");
    const int64_t q_shape[] = {c.batch, c.heads, c.q_len, c.head_dim},
                  k_shape[] = {c.batch, c.kv_heads, c.kv_len, c.head_dim},
                  mask_shape[] = {c.batch, c.heads, c.q_len, c.kv_len};
    const int64_t rows = attention_queries_count(&c), keys = attention_keys_count(&c);
    tsr_tensor *q = gpu_new(TSR_F32, 4, q_shape), *k = gpu_new(TSR_F32, 4, k_shape),
               *v = gpu_new(TSR_F32, 4, k_shape), *dy = gpu_new(TSR_F32, 4, q_shape),
               *y = gpu_new(TSR_F32, 4, q_shape), *lse = gpu_new(TSR_F32, 3, q_shape),
               *dq = gpu_new(TSR_F32, 4, q_shape), *dk = gpu_new(TSR_F32, 4, k_shape),
               *dv = gpu_new(TSR_F32, 4, k_shape), *mask = gpu_new(TSR_F32, 4, mask_shape);
    tsr_tensor *in[] = {q, k, v, dy}, *out[] = {y, lse, dq, dk, dv};
    double *in_values[] = {c.q, c.k, c.v, c.dy};
    for (int i = 0; i < 4; i++)
        gpu_put(in[i], in_values[i]);
    if (c.mask)
        gpu_put(mask, c.mask);
    for (int i = 0; i < 5; i++)
        gpu_poison(out[i]);
    const tsr_attention_params params = {.scale = (float)c.scale,
                                         .softcap = (float)c.softcap,
                                         .causal = c.causal,
                                         .window = c.window,
                                         .mask = c.mask ? mask : NULL};
    GPU_OK(tsr_attention(queue, y, lse, q, k, v, &params));
    GPU_OK(tsr_attention_grad(queue, dq, dk, dv, dy, y, lse, q, k, v, &params));

    const double scale = fabs(attention_scale(&c)), most_q = attention_most(c.q, rows * c.head_dim),
                 most_k = attention_most(c.k, keys * c.head_dim),
                 most_v = attention_most(c.v, keys * c.head_dim),
                 most_dy = attention_most(c.dy, rows * c.head_dim);
    const struct {
        const char *name;
        const double *want;
        int64_t count;
        double natural;
    } results[] = {
        {"y", c.y, rows * c.head_dim, 0},
        {"lse", c.lse, rows, 1},
        {"dq", c.dq, rows * c.head_dim, most_dy * most_v * most_k * scale},
        {"dk", c.dk, keys * c.head_dim, most_dy * most_v * most_q * scale},
        {"dv", c.dv, keys * c.head_dim, most_dy},
    };
    double *got = attention_doubles((rows + keys) * c.head_dim);
    for (int i = 0; i < 5; i++) {
        gpu_get(out[i], got);
        const double most = attention_most(results[i].want, results[i].count);
        attention_compare(name, results[i].name, results[i].count, got, results[i].want,
                          relative_to(most, results[i].natural), F32_ERROR, TSR_F32);
    }
    free(got);
    tsr_tensor *tensors[] = {q, k, v, dy, y, lse, dq, dk, dv, mask};
    for (int i = 0; i < 10; i++)
        tsr_tensor_destroy(&tensors[i]);
    attention_free(&c);
}

static void check_file(const char *name, int cases)
{
    json_t *document = golden_load(name), *one;
    size_t index;
    ck_assert_int_eq((int)json_array_size(golden_list(document, "cases")), cases);
    json_array_foreach(golden_list(document, "cases"), index, one) check_one(one);
    json_decref(document);
}

START_TEST(agrees_with_pytorch)
{
    check_file("attention_0", 33);
    check_file("attention_1", 22);
}
END_TEST

TESTS(attention_golden)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, agrees_with_pytorch);
}
