/* The choice of experts, its gradient, and the sort of pairs, compared with double precision. */
#include "gpu/experts/experts_case.h"

typedef struct route_case {
    int64_t tokens, experts, chosen;
    tsr_route_params params;
    bool bias;
} route_case;

#define ROUTE(T, E, K, BIAS, ...)                                                                  \
    {                                                                                              \
        .tokens = (T), .experts = (E), .chosen = (K), .bias = (BIAS), .params = {                  \
            .struct_size = sizeof(tsr_route_params),                                               \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const route_case cases[] = {
    ROUTE(7, 8, 2, false, .normalise = true),                     /* Qwen, Mixtral */
    ROUTE(5, 60, 4, false, .gating = TSR_GATING_SOFTMAX),         /* Qwen 2 */
    ROUTE(33, 32, 4, false, .gating = TSR_GATING_SOFTMAX_CHOSEN), /* gpt-oss */
    ROUTE(6, 256, 8, true, .gating = TSR_GATING_SIGMOID, .groups = 8, .groups_used = 4,
          .normalise = true, .epsilon = 1e-20F, .scale = 2.5F), /* DeepSeek V3 */
    ROUTE(9, 128, 8, true, .gating = TSR_GATING_SIGMOID, .normalise = true,
          .least_sum = 6.103515625e-5F),                                /* MiniMax, GLM */
    ROUTE(4, 64, 6, false, .groups = 8, .groups_used = 3, .scale = 16), /* DeepSeek V2 */
    ROUTE(3, 512, 10, false, .normalise = true),                        /* Qwen3-Next */
    ROUTE(2, 1024, 32, true, .normalise = true),
    ROUTE(2, 129, 16, false, .gating = TSR_GATING_SIGMOID, .normalise = true, .least_sum = 100),
    ROUTE(1, 1, 1, false, .normalise = true),
    ROUTE(3, 6, 6, false, .gating = TSR_GATING_SOFTMAX_CHOSEN, .scale = 0.5F),
    ROUTE(4, 8, 2, true, .groups = 8, .groups_used = 3),
    ROUTE(4, 8, 2, true, .gating = TSR_GATING_SOFTMAX_CHOSEN, .normalise = true),
    ROUTE(0, 8, 2, false, .normalise = true),
};

static void check_route(gpu_random *random, const route_case *c)
{
    const int64_t logits_shape[] = {c->tokens, c->experts}, shape[] = {c->tokens, c->chosen},
                  pairs = c->tokens * c->chosen;
    double *in = drawn(random, c->tokens * c->experts, 4), *bias = drawn(random, c->experts, 0.3);
    tsr_tensor *logits = filled(TSR_F32, in, 2, logits_shape),
               *of_bias = filled(TSR_F32, bias, 1, &c->experts), *ids = gpu_new(TSR_I32, 2, shape),
               *weights = gpu_new(TSR_F32, 2, shape);
    tsr_route_params params = c->params;
    params.bias = c->bias ? of_bias : NULL;
    GPU_OK(tsr_route(queue, ids, weights, logits, &params));
    double *got = doubles(pairs), *at = doubles(pairs), want[32], want_at[32];
    gpu_get(ids, at);
    gpu_get(weights, got);
    for (int64_t t = 0; t < c->tokens; t++) {
        reference_route(in + t * c->experts, c->experts, c->chosen, c->bias ? bias : NULL, &params,
                        want_at, want);
        for (int64_t r = 0; r < c->chosen; r++) {
            ck_assert_msg(at[t * c->chosen + r] == want_at[r],
                          "%lld experts: token %lld, rank %lld: %g instead of %g",
                          (long long)c->experts, (long long)t, (long long)r, at[t * c->chosen + r],
                          want_at[r]);
            assert_close(got[t * c->chosen + r], want[r], 4e-6 * fabs(want[r]) + 1e-30, "weights",
                         r);
        }
    }

    /* The gradient of Σ dweights · weights + Σ over tokens of dprobabilities · softmax, by central
     * differences; the choice does not change. */
    double *dw = drawn(random, pairs, 1), *dp = drawn(random, c->experts, 1),
           *grad = doubles(c->tokens * c->experts);
    tsr_tensor *dweights = filled(TSR_F32, dw, 2, shape),
               *dprobabilities = filled(TSR_F32, dp, 1, &c->experts),
               *dlogits = gpu_new(TSR_F32, 2, logits_shape);
    for (int with = 1; with < 4; with++) {
        gpu_poison(dlogits);
        GPU_OK(tsr_route_grad(queue, dlogits, logits, ids, with & 1 ? dweights : NULL,
                              with & 2 ? dprobabilities : NULL, &params));
        gpu_get(dlogits, grad);
        for (int64_t i = 0; i < c->tokens * c->experts; i += 1 + c->experts / 16) {
            double row[1024], loss[2], probabilities[1024];
            const int64_t t = i / c->experts;
            for (int side = 0; side < 2; side++) {
                const double step = side ? 1e-5 : -1e-5;
                memcpy(row, in + t * c->experts, (size_t)c->experts * sizeof *row);
                row[i % c->experts] += step;
                reference_route(row, c->experts, c->chosen, c->bias ? bias : NULL, &params, want_at,
                                want);
                loss[side] = 0;
                for (int64_t r = 0; r < c->chosen && (with & 1); r++) {
                    ck_assert_double_eq(want_at[r], at[t * c->chosen + r]);
                    loss[side] += dw[t * c->chosen + r] * want[r];
                }
                double total = 0;
                for (int64_t e = 0; e < c->experts; e++)
                    total += probabilities[e] = exp(row[e]);
                for (int64_t e = 0; e < c->experts && (with & 2); e++)
                    loss[side] += dp[e] * probabilities[e] / total;
            }
            assert_close(grad[i], (loss[1] - loss[0]) / 2e-5, 4e-6, "dlogits", i);
        }
    }
    tsr_tensor *all[] = {logits, of_bias, ids, weights, dweights, dprobabilities, dlogits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tsr_tensor_destroy(&all[i]);
    double *memory[] = {in, bias, got, at, dw, dp, grad};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        free(memory[i]);
}

START_TEST(routes)
{
    gpu_random random = {(uint64_t)_i + 11};
    check_route(&random, &cases[_i]);
}
END_TEST

/* Logits so far above the others that the largest must be subtracted from all of them. They are
 * those of experts that the last invocations hold. */
START_TEST(large_logits)
{
    enum { EXPERTS = 100, FIRST = 60, SECOND = 52 };
    double in[EXPERTS] = {[FIRST] = 100, [SECOND] = 99.5}, at[2], got[2], grad[EXPERTS];
    const double want = 1 / (1 + exp(-0.5)), dw[2] = {1, 0};
    tsr_tensor *logits = gpu_new(TSR_F32, 2, (int64_t[]){1, EXPERTS}),
               *dlogits = gpu_new(TSR_F32, 2, (int64_t[]){1, EXPERTS}),
               *ids = gpu_new(TSR_I32, 2, (int64_t[]){1, 2}),
               *weights = gpu_new(TSR_F32, 2, (int64_t[]){1, 2}),
               *dweights = gpu_new(TSR_F32, 2, (int64_t[]){1, 2});
    gpu_put(logits, in);
    gpu_put(dweights, dw);
    GPU_OK(tsr_route(queue, ids, weights, logits, NULL));
    GPU_OK(tsr_route_grad(queue, dlogits, logits, ids, dweights, NULL, NULL));
    gpu_get(ids, at);
    gpu_get(weights, got);
    gpu_get(dlogits, grad);
    ck_assert(at[0] == FIRST && at[1] == SECOND);
    assert_close(got[0], want, 1e-6, "weights", 0);
    assert_close(got[1], 1 - want, 1e-6, "weights", 1);
    for (int i = 0; i < EXPERTS; i++)
        assert_close(grad[i], ((i == FIRST) - (i == SECOND)) * want * (1 - want), 1e-6, "dlogits",
                     i);
    tsr_tensor *all[] = {logits, dlogits, ids, weights, dweights};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

/* Equal scores, NaN and infinities: the ids are experts, each once, ties to the lowest index. */
START_TEST(special_logits)
{
    double in[4][8] = {
        {1, 1, 1, 1, 1, 1, 1, 1},
        {0, NAN, 3, NAN, 3, 0, 0, 0},
        {-INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY},
        {0, 5, 5, -1, 5, INFINITY, 2, 2}};
    const double want[4][3] = {{0, 1, 2}, {1, 3, 2}, {0, 1, 2}, {5, 1, 2}};
    for (int gating = 0; gating < 3; gating++) {
        tsr_tensor *logits = gpu_new(TSR_F32, 2, (int64_t[]){4, 8}),
                   *ids = gpu_new(TSR_I32, 2, (int64_t[]){4, 3}),
                   *weights = gpu_new(TSR_F32, 2, (int64_t[]){4, 3});
        double at[12], got[12];
        gpu_put(logits, in[0]);
        GPU_OK(tsr_route(queue, ids, weights, logits,
                         tsr_route_params(.gating = (tsr_gating)gating, .normalise = true)));
        gpu_get(ids, at);
        gpu_get(weights, got);
        for (int i = 0; i < 12; i++)
            ck_assert_double_eq(at[i], want[i / 3][i % 3]);
        for (int r = 0; r < 3; r++) {
            assert_close(got[r], 1.0 / 3, 1e-6, "weights of equal scores", r);
            ck_assert_msg(isnan(got[3 + r]), "gating %d: the weight beside a NaN is %g", gating,
                          got[3 + r]);
        }
        tsr_tensor_destroy(&logits);
        tsr_tensor_destroy(&ids);
        tsr_tensor_destroy(&weights);
    }
}
END_TEST

static void check_sort(gpu_random *random, int64_t tokens, int64_t chosen, int64_t experts)
{
    const int64_t pairs = tokens * chosen;
    double *in = doubles(pairs), *order = doubles(pairs), *offsets = doubles(experts + 1);
    for (int64_t i = 0; i < pairs; i++) /* some ids are no experts */
        in[i] = (double)gpu_random_between(random, -1, experts + 1);
    tsr_tensor *ids = filled(TSR_I32, in, 2, (int64_t[]){tokens, chosen}),
               *of_order = gpu_new(TSR_I32, 1, &pairs),
               *of_offsets = gpu_new(TSR_I32, 1, (int64_t[]){experts + 1});
    gpu_poison(of_order);
    gpu_poison(of_offsets);
    GPU_OK(tsr_route_sort(queue, of_order, of_offsets, ids));
    gpu_get(of_order, order);
    gpu_get(of_offsets, offsets);
    int64_t at = 0;
    for (int64_t e = 0; e < experts; e++) {
        ck_assert_double_eq(offsets[e], (double)at);
        for (int64_t i = 0; i < pairs; i++)
            if (in[i] == (double)e)
                ck_assert_double_eq(order[at++], (double)i);
    }
    ck_assert_double_eq(offsets[experts], (double)at);
    for (; at < pairs; at++)
        ck_assert_double_eq(order[at], -1); /* as gpu_poison left it */
    tsr_tensor_destroy(&ids);
    tsr_tensor_destroy(&of_order);
    tsr_tensor_destroy(&of_offsets);
    free(in);
    free(order);
    free(offsets);
}

START_TEST(sorts)
{
    gpu_random random = {12};
    check_sort(&random, 1, 1, 1);
    check_sort(&random, 5, 2, 8);
    check_sort(&random, 300, 4, 33);
    check_sort(&random, 129, 8, 2);
    check_sort(&random, 64, 1, 700);
    check_sort(&random, 0, 2, 3);
}
END_TEST

START_TEST(refusals)
{
    tsr_tensor *logits = gpu_new(TSR_F32, 2, (int64_t[]){4, 8}),
               *wide = gpu_new(TSR_F32, 2, (int64_t[]){4, 1025}),
               *half = gpu_new(TSR_F16, 2, (int64_t[]){4, 8}),
               *ids = gpu_new(TSR_I32, 2, (int64_t[]){4, 3}),
               *many = gpu_new(TSR_I32, 2, (int64_t[]){4, 9}),
               *many_weights = gpu_new(TSR_F32, 2, (int64_t[]){4, 9}),
               *weights = gpu_new(TSR_F32, 2, (int64_t[]){4, 3}),
               *bias = gpu_new(TSR_F32, 1, (int64_t[]){7}),
               *order = gpu_new(TSR_I32, 1, (int64_t[]){11}),
               *offsets = gpu_new(TSR_I32, 1, (int64_t[]){1});
    GPU_FAILS(tsr_route(queue, ids, weights, half, NULL), TSR_ERR_INVALID, "logits is f16 [4,8]");
    GPU_FAILS(tsr_route(queue, ids, weights, wide, NULL), TSR_ERR_INVALID, "1025 experts");
    GPU_FAILS(tsr_route(queue, many, many_weights, logits, NULL), TSR_ERR_INVALID,
              "9 experts are to be chosen from 8");
    GPU_FAILS(tsr_route(queue, ids, weights, logits, tsr_route_params(.gating = (tsr_gating)7)),
              TSR_ERR_INVALID, "gating 7");
    GPU_FAILS(tsr_route(queue, ids, weights, logits, tsr_route_params(.groups = 3)),
              TSR_ERR_INVALID, "3 groups do not divide 8 experts");
    GPU_FAILS(
        tsr_route(queue, ids, weights, logits, tsr_route_params(.groups = 4, .groups_used = 1)),
        TSR_ERR_INVALID, "1 of 4 groups of 2 experts");
    GPU_FAILS(tsr_route(queue, ids, weights, logits, tsr_route_params(.bias = bias)),
              TSR_ERR_INVALID, "bias is f32 [7]");
    GPU_FAILS(tsr_route(queue, ids, weights, logits, tsr_route_params(.epsilon = -1)),
              TSR_ERR_INVALID, "epsilon -1");
    GPU_FAILS(tsr_route(queue, weights, weights, logits, NULL), TSR_ERR_INVALID, "ids are f32");
    GPU_FAILS(tsr_route_grad(queue, logits, logits, ids, NULL, NULL, NULL), TSR_ERR_INVALID,
              "both NULL");
    GPU_FAILS(tsr_route_grad(queue, wide, logits, ids, weights, NULL, NULL), TSR_ERR_INVALID,
              "dlogits");
    GPU_FAILS(tsr_route_grad(queue, logits, logits, ids, NULL, bias, NULL), TSR_ERR_INVALID,
              "dprobabilities is f32 [7]");
    GPU_FAILS(tsr_route_sort(queue, order, offsets, ids), TSR_ERR_INVALID,
              "order has 11 elements; there are 12 pairs");
    tsr_tensor *all[] = {logits,       wide,    half, ids,   many,
                         many_weights, weights, bias, order, offsets};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

TESTS(route)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, routes, 0, (int)(sizeof cases / sizeof cases[0]));
    tcase_add_test(tests, large_logits);
    tcase_add_test(tests, special_logits);
    tcase_add_test(tests, sorts);
    tcase_add_test(tests, refusals);
}
