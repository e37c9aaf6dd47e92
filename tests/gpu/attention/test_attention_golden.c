/* Compares attention and its gradients with PyTorch's results in tests/data. */
#include "attention_case.h"
#include "support/golden.h"
#include "support/golden_tensor.h"

#define F32_ERROR 2e-6

/* Returns the values of the tensor `name` of a case in the file; the caller frees them. */
static double *values_of(const json_t *one, const char *name, int64_t count)
{
    golden_tensor tensor = golden_tensor_load(one, name);
    ck_assert_int_eq(tensor.count, count);
    return tensor.values;
}

static double *lengths_of(const json_t *one, const char *name, int64_t count)
{
    const json_t *list = golden_list(one, name), *length;
    double *lengths = attention_doubles(count);
    size_t i;
    ck_assert_int_eq((int64_t)json_array_size(list), count);
    json_array_foreach(list, i, length) lengths[i] = json_number_value(length);
    return lengths;
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
    if (json_object_get(one, "sink")) {
        c.sinks = values_of(one, "sink", c.heads);
        c.dsinks = values_of(one, "dsink", c.heads);
    }
    if (json_object_get(one, "q_lengths")) {
        c.q_length = lengths_of(one, "q_lengths", c.batch);
        c.kv_length = lengths_of(one, "kv_lengths", c.batch);
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

/* Returns the magnitude to which rounding errors are relative: the largest result, or `natural`,
 * the magnitude of the terms, if the terms cancel and all results are small. */
static double relative_to(double most, double natural)
{
    return most < 0.03 * natural ? natural : most;
}

/* Uploads values that a case may lack. */
static tsr_tensor *optional(tsr_dtype dtype, int64_t count, const double *values)
{
    if (!values)
        return NULL;
    tsr_tensor *tensor = gpu_new(dtype, 1, &count);
    gpu_put(tensor, values);
    return tensor;
}

/* Replaces results of queries past the end of their sequence, which the file does not define, by
 * the file's numbers. `columns` is the number of results of a query. */
static void leave_out(const attention_case *c, double *got, const double *want, int64_t columns)
{
    for (int64_t row = 0; row < attention_queries_count(c); row++)
        if (row % c->q_len >= attention_clamped(c->q_length, row / c->q_len / c->heads, c->q_len))
            memcpy(got + row * columns, want + row * columns, (size_t)columns * sizeof *got);
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
    tsr_tensor *sinks = optional(TSR_F32, c.heads, c.sinks),
               *dsinks = optional(TSR_F32, c.heads, c.sinks),
               *q_lengths = optional(TSR_I32, c.batch, c.q_length),
               *kv_lengths = optional(TSR_I32, c.batch, c.kv_length);
    tsr_tensor *in[] = {q, k, v, dy}, *out[] = {y, lse, dq, dk, dv, dsinks};
    const int outs = dsinks ? 6 : 5;
    double *in_values[] = {c.q, c.k, c.v, c.dy};
    for (int i = 0; i < 4; i++)
        gpu_put(in[i], in_values[i]);
    if (c.mask)
        gpu_put(mask, c.mask);
    for (int i = 0; i < outs; i++)
        gpu_poison(out[i]);
    const tsr_attention_params params = {.struct_size = sizeof params,
                                         .scale = (float)c.scale,
                                         .softcap = (float)c.softcap,
                                         .causal = c.causal,
                                         .window = c.window,
                                         .mask = c.mask ? mask : NULL,
                                         .q_lengths = q_lengths,
                                         .kv_lengths = kv_lengths,
                                         .sinks = sinks,
                                         .dsinks = dsinks};
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
        {"dsinks", c.dsinks, c.heads, most_dy * most_v},
    };
    double *got = attention_doubles((rows + keys) * c.head_dim);
    for (int i = 0; i < outs; i++) {
        gpu_get(out[i], got);
        if (i < 2)
            leave_out(&c, got, results[i].want, i == 0 ? c.head_dim : 1);
        const double most = attention_most(results[i].want, results[i].count);
        attention_compare(name, results[i].name, results[i].count, got, results[i].want,
                          relative_to(most, results[i].natural), F32_ERROR, TSR_F32);
    }
    free(got);
    tsr_tensor *tensors[] = {q,  k,  v,    dy,    y,      lse,       dq,
                             dk, dv, mask, sinks, dsinks, q_lengths, kv_lengths};
    for (int i = 0; i < 14; i++)
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
    static const char *const names[] = {"attention_0", "attention_1", "attention_sinks"};
    static const int cases[] = {33, 22, 25};
    check_file(names[_i], cases[_i]);
}
END_TEST

/* Loads a tensor [a,b,c] of a file as [1,a,b,c]. */
static tsr_tensor *load(const json_t *one, const char *name)
{
    golden_tensor given = golden_tensor_load(one, name);
    const int64_t shape[] = {1, given.shape[0], given.shape[1], given.shape[2]};
    tsr_tensor *tensor = gpu_new(TSR_F32, 4, shape);
    gpu_put(tensor, given.values);
    golden_tensor_free(&given);
    return tensor;
}

static tsr_tensor *slice(const tsr_tensor *from, int dim, int64_t first, int64_t end)
{
    tsr_tensor *view;
    GPU_OK(tsr_tensor_slice(from, dim, first, end, 1, &view));
    return view;
}

/* Generation computes one query after the other with a cache that grows. This test computes all
 * of them in one call: each query is a sequence of its own length, and all sequences read the
 * same keys. */
static void check_decode(const json_t *one)
{
    const json_t *list = golden_list(one, "kv_lens"), *length;
    golden_tensor y_want = golden_tensor_load(one, "y"), lse_want = golden_tensor_load(one, "lse");
    tsr_tensor *k = load(one, "k"), *v = load(one, "v"), *q = load(one, "q"), *k_all, *v_all,
               *q_all;
    const int64_t heads = golden_integer(one, "Hq"), kv_heads = golden_integer(one, "Hkv"),
                  dim = golden_integer(one, "D"), steps = (int64_t)json_array_size(list),
                  longest = tsr_tensor_layout(k)->shape[2];
    const int64_t cache_shape[] = {steps, kv_heads, longest, dim},
                  q_shape[] = {steps, heads, 1, dim};
    double *lengths = attention_doubles(steps), *got = attention_doubles(steps * heads * dim);
    size_t i;
    json_array_foreach(list, i, length) lengths[i] = json_number_value(length);
    GPU_OK(tsr_tensor_broadcast(k, 4, cache_shape, &k_all));
    GPU_OK(tsr_tensor_broadcast(v, 4, cache_shape, &v_all));
    GPU_OK(tsr_tensor_reshape(q, 4, q_shape, &q_all));
    tsr_tensor *y = gpu_new(TSR_F32, 4, q_shape), *lse = gpu_new(TSR_F32, 3, q_shape),
               *kv_lengths = gpu_new(TSR_I32, 1, &steps);
    gpu_put(kv_lengths, lengths);
    gpu_poison(y);
    gpu_poison(lse);
    const int64_t window = json_object_get(one, "window") ? golden_integer(one, "window") : 0;
    GPU_OK(tsr_attention(
        queue, y, lse, q_all, k_all, v_all,
        tsr_attention_params(.causal = true, .window = window, .kv_lengths = kv_lengths)));
    gpu_get(y, got);
    attention_compare(golden_text(one, "name"), "y", y_want.count, got, y_want.values,
                      attention_most(y_want.values, y_want.count), F32_ERROR, TSR_F32);
    gpu_get(lse, got);
    attention_compare(golden_text(one, "name"), "lse", lse_want.count, got, lse_want.values,
                      attention_most(lse_want.values, lse_want.count), F32_ERROR, TSR_F32);
    tsr_tensor *tensors[] = {k_all, v_all, q_all, k, v, q, y, lse, kv_lengths};
    for (int n = 0; n < 9; n++)
        tsr_tensor_destroy(&tensors[n]);
    golden_tensor_free(&y_want);
    golden_tensor_free(&lse_want);
    free(lengths);
    free(got);
}

START_TEST(decodes_like_pytorch)
{
    json_t *document = golden_load("attention_decode"), *one;
    size_t index;
    ck_assert_int_eq((int)json_array_size(golden_list(document, "cases")), 5);
    json_array_foreach(golden_list(document, "cases"), index, one) check_decode(one);
    json_decref(document);
}
END_TEST

/* Computes the queries of a sequence in consecutive chunks, with one call for each. A chunk's
 * keys end at its last query. */
static void check_chunks(const json_t *one)
{
    golden_tensor want = golden_tensor_load(one, "y");
    tsr_tensor *q = load(one, "q"), *k = load(one, "k"), *v = load(one, "v"),
               *y = gpu_new(TSR_F32, 4, tsr_tensor_layout(q)->shape);
    const int64_t window = json_object_get(one, "window") ? golden_integer(one, "window") : 0;
    const json_t *chunk;
    double *got = attention_doubles(want.count);
    int64_t done = 0;
    size_t i;
    gpu_poison(y);
    json_array_foreach(golden_list(one, "chunks"), i, chunk)
    {
        const int64_t end = done + json_integer_value(chunk);
        tsr_tensor *views[] = {slice(y, 2, done, end), slice(q, 2, done, end), slice(k, 2, 0, end),
                               slice(v, 2, 0, end)};
        GPU_OK(tsr_attention(queue, views[0], NULL, views[1], views[2], views[3],
                             tsr_attention_params(.causal = true, .window = window)));
        for (int n = 0; n < 4; n++)
            tsr_tensor_destroy(&views[n]);
        done = end;
    }
    ck_assert_int_eq(done, golden_integer(one, "T"));
    gpu_get(y, got);
    attention_compare(golden_text(one, "name"), "y", want.count, got, want.values,
                      attention_most(want.values, want.count), F32_ERROR, TSR_F32);
    tsr_tensor *tensors[] = {q, k, v, y};
    for (int n = 0; n < 4; n++)
        tsr_tensor_destroy(&tensors[n]);
    golden_tensor_free(&want);
    free(got);
}

START_TEST(prefills_in_chunks_like_pytorch)
{
    json_t *document = golden_load("attention_chunked_prefill"), *one;
    size_t index;
    int checked = 0;
    json_array_foreach(golden_list(document, "cases"), index, one)
    {
        /* Skips the case that only shows how PyTorch's own causal mask differs. */
        if (json_object_get(one, "informational"))
            continue;
        check_chunks(one);
        checked++;
    }
    ck_assert_int_eq(checked, 3);
    json_decref(document);
}
END_TEST

TESTS(attention_golden)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_pytorch, 1, 3);
    tcase_add_test(tests, decodes_like_pytorch);
    tcase_add_test(tests, prefills_in_chunks_like_pytorch);
}

TESTS(attention_golden_slow)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, agrees_with_pytorch, 0, 1);
}
