/* Tests which kernel the search of bench --tune chooses, with a simulated library and clock. */
#include <stdlib.h>
#include <string.h>

#include "bench/tune/search.h"
#include "support/check_main.h"

/* `gain`: how many times as fast as the default kernel the candidate is. `stumbles_every`: after
 * this number of products, one takes twenty times as long; 0: never. */
static double gain;
static int stumbles_every;

/* [0] is for products without a bias, [1] for those with a bias. tuned: the candidate is stored;
 * was_set: the search has stored or removed it. */
static bool tuned[2], was_set[2];
static int products;

void tune_probes_finish(tune_probes *s)
{
    (void)s;
}

bool tune_probes_create(tune_probes *s, const tune_product *product)
{
    for (s->count = 0; s->count < 2; s->count++)
        s->all[s->count] = (tune_case){.context = s->context, .product = *product, .usual_ns = 100};
    strcpy(s->all[0].info.usual.kernel, "usual");
    strcpy(s->all[0].info.chosen.kernel, tuned[0] ? "other" : "usual");
    return true;
}

tsr_matmul_params tune_case_params(const tune_case *test, bool bias)
{
    (void)test;
    return (tsr_matmul_params){.struct_size = sizeof(tsr_matmul_params), .alpha = bias ? 2 : 1};
}

bool tune_case_time(tune_case *test, bool bias, const tsr__tuning_choice *choice,
                    uint64_t repetitions, double *ns)
{
    (void)test, (void)bias, (void)repetitions;
    *ns = choice == NULL ? 100 : 100 / gain;
    if (choice != NULL && stumbles_every > 0 && ++products % stumbles_every == 0)
        *ns *= 20;
    return true;
}

bool tune_case_again(tune_case *test, const tsr__tuning_choice *choice, double *ns)
{
    return tune_case_time(test, false, choice, 1, ns);
}

bool tune_case_verify(tune_case *test, bool bias, const tsr__tuning_choice *choice, bool *able)
{
    (void)test, (void)bias, (void)choice;
    *able = true;
    return true;
}

/* These functions replace those of the library. */
tsr_status __wrap_tsr__tuning_candidate(tsr_stream *stream, const tsr_tensor *y,
                                        const tsr_tensor *a, const tsr_tensor *b,
                                        const tsr_matmul_params *params, int index,
                                        tsr__tuning_choice *out);
tsr_status __wrap_tsr__tuning_inspect(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                                      const tsr_tensor *b, const tsr_matmul_params *params,
                                      tsr__tuning_info *out);
tsr_status __wrap_tsr__tuning_set(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                                  const tsr_tensor *b, const tsr_matmul_params *params,
                                  const tsr__tuning_choice *choice);

tsr_status __wrap_tsr__tuning_candidate(tsr_stream *stream, const tsr_tensor *y,
                                        const tsr_tensor *a, const tsr_tensor *b,
                                        const tsr_matmul_params *params, int index,
                                        tsr__tuning_choice *out)
{
    (void)stream, (void)y, (void)a, (void)b, (void)params;
    *out = (tsr__tuning_choice){.kernel = "other"};
    return index == 0 ? TSR_OK : TSR_ERR_NOT_FOUND;
}

tsr_status __wrap_tsr__tuning_inspect(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                                      const tsr_tensor *b, const tsr_matmul_params *params,
                                      tsr__tuning_info *out)
{
    (void)stream, (void)y, (void)a, (void)b;
    *out = (tsr__tuning_info){.usual = {.kernel = "usual"}, .tuned = tuned[params->alpha > 1]};
    strcpy(out->chosen.kernel, out->tuned ? "other" : "usual");
    return TSR_OK;
}

tsr_status __wrap_tsr__tuning_set(tsr_stream *stream, const tsr_tensor *y, const tsr_tensor *a,
                                  const tsr_tensor *b, const tsr_matmul_params *params,
                                  const tsr__tuning_choice *choice)
{
    (void)stream, (void)y, (void)a, (void)b;
    bool bias = params->alpha > 1;
    tuned[bias] = choice != NULL;
    was_set[bias] = true;
    return TSR_OK;
}

static tune_result search_for(bench_shape shape, tune_given_up *given_up)
{
    const bench_options options = {.seconds = 1e-9};
    bench_context context = {.options = &options, .device_count = 1};
    const tune_product product = {.dtype = TSR_F32, .shape = shape};
    tune_result result;
    char left_out[TUNE_REASON];
    ck_assert(tune_search(&context, &product, given_up, &result, left_out));
    ck_assert_str_eq(left_out, "");
    return result;
}

static tune_result search(void)
{
    tune_given_up given_up = {0};
    return search_for((bench_shape){64, 64, 64}, &given_up);
}

static const struct {
    const char *what;
    double gain;
    int stumbles_every;
    bool before, after;
} searches[] = {
    {"clearly faster", 2, 0, false, true},
    {"not by enough", 1.01, 0, false, false},
    {"slower", 0.5, 0, false, false},
    {"not in nine pairs of ten", 2, 4, false, false},
    {"again", 2, 0, true, true},
    {"it won earlier, and has not lost", 1.01, 0, true, true},
    {"likewise, on a busy machine", 2, 4, true, true},
    {"it won earlier, and has lost", 0.5, 0, true, false},
};

START_TEST(a_stored_kernel_stays_until_it_is_slower)
{
    gain = searches[_i].gain;
    stumbles_every = searches[_i].stumbles_every;
    tuned[0] = tuned[1] = searches[_i].before;
    tune_result result = search();
    bool after = searches[_i].after;
    ck_assert_msg(result.won == after && result.with_bias == after, "%s", searches[_i].what);
    ck_assert_msg(tuned[0] == after && tuned[1] == after, "%s", searches[_i].what);
    ck_assert_str_eq(result.usual.kernel, "usual");
    if (after)
        ck_assert_str_eq(result.winner.kernel, "other");
    ck_assert_int_eq(result.candidates, 1);
    if (searches[_i].gain >= 1)
        ck_assert_double_eq_tol(result.ratio.median, searches[_i].gain, 1e-9);
}
END_TEST

/* A kernel that is stored only for products without a bias is not tried with a bias. */
START_TEST(a_choice_without_bias_is_not_tried_with_bias)
{
    gain = 1.01;
    tuned[0] = true;
    tune_result result = search();
    ck_assert(result.won && !result.with_bias);
    ck_assert(tuned[0] && !was_set[0] && !tuned[1]);
}
END_TEST

/* A kernel that is far slower on one product is not tried on larger ones, but is tried on smaller
 * ones. */
START_TEST(a_slow_kernel_is_not_tried_on_larger_products)
{
    static const struct {
        bench_shape shape;
        int tried;
    } others[] = {
        {{64, 64, 64}, 0},    {{4096, 64, 128}, 0},  {{16, 16, 16}, 1},
        {{1, 4096, 4096}, 1}, {{4096, 4096, 16}, 1}, {{4096, 16, 4096}, 1},
    };
    tune_given_up given_up = {0};
    gain = 0.1;
    ck_assert_int_eq(search_for((bench_shape){64, 64, 64}, &given_up).candidates, 1);
    gain = 2;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        tune_result result = search_for(others[i].shape, &given_up);
        ck_assert_int_eq(result.candidates, others[i].tried);
        ck_assert_int_eq(result.won, others[i].tried);
        tuned[0] = tuned[1] = false;
    }
    free(given_up.all);
}
END_TEST

TESTS(tune_search)
{
    tcase_add_loop_test(tests, a_stored_kernel_stays_until_it_is_slower, 0,
                        (int)(sizeof searches / sizeof *searches));
    tcase_add_test(tests, a_choice_without_bias_is_not_tried_with_bias);
    tcase_add_test(tests, a_slow_kernel_is_not_tried_on_larger_products);
}
