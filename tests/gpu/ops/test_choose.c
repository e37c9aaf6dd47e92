/* Compares tokens that the device chooses with those of tsr_sampling_draw, for several
 * vocabularies: 2,000 draws for each filter, and hundreds for each of the other sets of params. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/internal.h"
#include "gpu/stream/state.h"
#include "model/generate/generator.h"
#include "shaders/params/choose.h"
#include "support/check_main.h"
#include "support/gpu.h"

enum { DRAWS = 2000, COUNTS = 4, ROWS = 100, HISTORY = 40, MANY = 151936, ROWS_OF_MANY = 8 };

static const struct {
    const char *name;
    tsr_sampling_params p;
} sets[] = {
    {"temperature", {.temperature = 1}},
    {"hot", {.temperature = 40}},
    {"cold", {.temperature = 0.05}},
    {"tiny temperature", {.temperature = 1e-300}},
    {"huge temperature", {.temperature = 1e300}},
    {"top_k", {.temperature = 0.9, .top_k = 40}},
    {"top_k 1", {.temperature = 0.9, .top_k = 1}},
    {"top_p", {.temperature = 1.1, .top_p = 0.9}},
    {"top_p 0", {.temperature = 1, .top_p = TSR_ZERO}},
    {"top_p with ties", {.temperature = 1.3, .top_p = 0.37}},
    {"min_p", {.temperature = 1.5, .min_p = 0.02}},
    {"min_p 1", {.temperature = 1.5, .min_p = 1}},
    {"penalty", {.temperature = 0.8, .repetition_penalty = 1.3}},
    {"greedy penalty", {.repetition_penalty = 1.7}},
    {"penalty below 1", {.temperature = 1, .repetition_penalty = 0.2}},
    {"greedy", {.temperature = 0}},
    {"all",
     {.temperature = 0.7, .top_k = 50, .top_p = 0.95, .min_p = 0.01, .repetition_penalty = 1.1}},
};
enum { SETS = sizeof sets / sizeof *sets };

/* Rows of logits. Every third row has only a few values, so that there are ties; others are close
 * together, or far apart; some have −inf, zeros of both signs and subnormal numbers. */
static void fill_row(gpu_random *random, int row, int64_t count, float *logits)
{
    const double scales[] = {3, 0.01, 30, 3};
    for (int64_t i = 0; i < count; i++) {
        const double x = gpu_random_unit(random) * scales[row % 4];
        logits[i] = (float)(row % 3 == 0 ? round(x) : x);
        if (row % 5 == 1 && gpu_random_u64(random) % 4 == 0)
            logits[i] = -INFINITY;
        if (row % 7 == 2 && gpu_random_u64(random) % 2 == 0)
            logits[i] = (float)(x * 1e-39);
        if (row % 7 == 3 && i % 2 == 0)
            logits[i] = -0.0f;
        if (row % 11 == 4 && i % 3 == 0)
            logits[i] = -FLT_MAX;
    }
    logits[gpu_random_u64(random) % (uint64_t)count] = 1;
}

typedef struct rig {
    int rows;
    int64_t count;
    float *logits;
    int32_t *history;
    uint32_t *bits;
    tsr_tensor *on_device, *ids, *results, *seen;
} rig;

static void create_rig(rig *r, int rows, int64_t count)
{
    gpu_random random = {.state = (uint64_t)count};
    const int64_t words = (count + 31) / 32;
    *r = (rig){.rows = rows, .count = count};
    r->logits = calloc((size_t)(rows * count), sizeof *r->logits);
    r->history = calloc((size_t)rows * HISTORY, sizeof *r->history);
    r->bits = calloc((size_t)(rows * words), sizeof *r->bits);
    for (int row = 0; row < rows; row++) {
        fill_row(&random, row, count, r->logits + row * count);
        for (int i = 0; i < HISTORY; i++) {
            const int32_t token = (int32_t)(gpu_random_u64(&random) % (uint64_t)count);
            r->history[row * HISTORY + i] = token;
            r->bits[(rows - 1 - row) * words + token / 32] |= UINT32_C(1) << token % 32;
        }
    }
    r->on_device = gpu_new(TSR_F32, 2, (int64_t[]){rows, count});
    r->ids = gpu_new(TSR_I32, 2, (int64_t[]){rows, 1});
    GPU_OK(tsr_tensor_create_host(gpu, TSR_I32, 1, (int64_t[]){rows}, &r->results));
    r->seen = gpu_new(TSR_U32, 2, (int64_t[]){rows, words});
    GPU_OK(tsr_tensor_upload(queue, r->on_device, r->logits,
                             (uint64_t)(rows * count) * sizeof *r->logits));
}

static void destroy_rig(rig *r)
{
    tsr_tensor_destroy(&r->on_device);
    tsr_tensor_destroy(&r->ids);
    tsr_tensor_destroy(&r->results);
    tsr_tensor_destroy(&r->seen);
    free(r->logits);
    free(r->history);
    free(r->bits);
}

/* Draws a token from each row on the device and on the host. */
static void compare(rig *r, int set, int64_t position)
{
    const int rows = r->rows;
    const int64_t words = (r->count + 31) / 32;
    struct tsr_choice_words choices[ROWS];
    int32_t ids[ROWS], results[ROWS];
    tsr_sampling_params p = sets[set].p;
    p.struct_size = sizeof p;
    p.seed = 7;
    for (int row = 0; row < rows; row++) {
        GPU_OK(tsr__sampling_choice(&p, (uint64_t)row, position, &choices[row]));
        choices[row].seen_row = (uint32_t)(rows - 1 - row);
    }
    GPU_OK(tsr_tensor_upload(queue, r->seen, r->bits, (uint64_t)(rows * words) * sizeof *r->bits));
    GPU_OK(tsr__choose(queue, r->ids, r->results, r->seen, r->on_device, choices));
    GPU_OK(tsr_tensor_download(queue, r->ids, ids, (uint64_t)rows * sizeof *ids));
    GPU_OK(tsr_tensor_download(queue, r->results, results, (uint64_t)rows * sizeof *results));
    for (int row = 0; row < rows; row++) {
        int32_t want = -1;
        GPU_OK(tsr_sampling_draw(&p, (uint64_t)row, position, r->count, r->logits + row * r->count,
                                 HISTORY, r->history + row * HISTORY, &want));
        ck_assert_msg(ids[row] == want && results[row] == want,
                      "%s, %d tokens, row %d, position %d: token %d and result %d instead of %d",
                      sets[set].name, (int)r->count, row, (int)position, ids[row], results[row],
                      want);
    }
}

static void compare_draws(int set, int draws)
{
    static const int64_t counts[COUNTS] = {1, 17, 259, 1009};
    for (size_t c = 0; c < COUNTS; c++) {
        rig r;
        create_rig(&r, ROWS, counts[c]);
        for (int64_t position = 0; position < draws / COUNTS / ROWS; position++)
            compare(&r, set, position);
        destroy_rig(&r);
    }
}

START_TEST(draws_are_those_of_the_host)
{
    compare_draws(_i, COUNTS * ROWS);
}
END_TEST

/* Every filter alone, and all of them together: 2000 draws each. */
START_TEST(two_thousand_draws_are_those_of_the_host)
{
    static const char *const names[] = {"temperature", "top_k", "top_p", "min_p", "penalty", "all"};
    int found = 0;
    for (int set = 0; set < SETS; set++)
        for (size_t i = 0; i < sizeof names / sizeof *names; i++)
            if (strcmp(sets[set].name, names[i]) == 0) {
                compare_draws(set, DRAWS);
                found++;
            }
    ck_assert_int_eq(found, sizeof names / sizeof *names);
}
END_TEST

/* A vocabulary as large as those of today's models. */
START_TEST(draws_from_many_tokens)
{
    rig r;
    create_rig(&r, ROWS_OF_MANY, MANY);
    for (int set = 0; set < SETS; set++)
        compare(&r, set, set);
    destroy_rig(&r);
}
END_TEST

START_TEST(the_chosen_token_is_seen)
{
    rig r;
    struct tsr_choice_words choices[ROWS];
    uint32_t bits[ROWS * 9];
    int32_t ids[ROWS];
    create_rig(&r, ROWS, 259);
    for (int row = 0; row < ROWS; row++) {
        GPU_OK(tsr__sampling_choice(tsr_sampling_params(.temperature = 2), (uint64_t)row, 3,
                                    &choices[row]));
        choices[row].seen_row = (uint32_t)(ROWS - 1 - row);
    }
    GPU_OK(tsr_tensor_upload(queue, r.seen, r.bits, sizeof bits));
    GPU_OK(tsr__choose(queue, r.ids, r.results, r.seen, r.on_device, choices));
    GPU_OK(tsr_tensor_download(queue, r.ids, ids, sizeof ids));
    GPU_OK(tsr_tensor_download(queue, r.seen, bits, sizeof bits));
    for (int row = 0; row < ROWS; row++)
        r.bits[(ROWS - 1 - row) * 9 + ids[row] / 32] |= UINT32_C(1) << ids[row] % 32;
    ck_assert(memcmp(bits, r.bits, sizeof bits) == 0);
    destroy_rig(&r);
}
END_TEST

/* The kernel reads the logits more often than once, and this counts as work. */
START_TEST(reading_the_logits_again_is_work)
{
    const double usual = gpu->work_limit;
    struct tsr_choice_words choices[ROWS];
    rig r;
    create_rig(&r, ROWS, 2000);
    for (int row = 0; row < ROWS; row++)
        GPU_OK(tsr__sampling_choice(tsr_sampling_params(.temperature = 2), 0, row, &choices[row]));
    GPU_OK(tsr_stream_wait(queue));
    const uint64_t before = queue->timeline->submitted;
    gpu->work_limit = 4.0 * ROWS * 2000 * sizeof(float) * TSR__BYTE_WORK;
    GPU_OK(tsr__choose(queue, r.ids, r.results, NULL, r.on_device, choices));
    gpu->work_limit = usual;
    ck_assert_uint_eq(queue->timeline->submitted - before, 1);
    destroy_rig(&r);
}
END_TEST

START_TEST(rows_without_a_choice_are_marked)
{
    const float inf = INFINITY,
                logits[4][3] = {{1, NAN, 2}, {inf, 0, 0}, {-inf, -inf, -inf}, {0, -inf, 3}};
    static const int32_t want[4] = {TSR_CHOICE_NOT_FINITE, TSR_CHOICE_NOT_FINITE,
                                    TSR_CHOICE_NOTHING, 2};
    for (int greedy = 0; greedy < 2; greedy++) {
        struct tsr_choice_words choices[4];
        int32_t ids[4], results[4];
        tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){4, 3}),
                   *y = gpu_new(TSR_I32, 1, (int64_t[]){4}),
                   *z = gpu_new(TSR_I32, 1, (int64_t[]){4});
        for (int i = 0; i < 4; i++)
            GPU_OK(tsr__sampling_choice(tsr_sampling_params(.temperature = greedy ? 0 : 0.01), 0, i,
                                        &choices[i]));
        GPU_OK(tsr_tensor_upload(queue, x, logits, sizeof logits));
        GPU_OK(tsr__choose(queue, y, z, NULL, x, choices));
        GPU_OK(tsr_tensor_download(queue, y, ids, sizeof ids));
        GPU_OK(tsr_tensor_download(queue, z, results, sizeof results));
        for (int i = 0; i < 4; i++) {
            ck_assert_int_eq(results[i], want[i]);
            ck_assert_int_eq(ids[i], want[i] < 0 ? 0 : want[i]);
        }
        tsr_tensor_destroy(&x);
        tsr_tensor_destroy(&y);
        tsr_tensor_destroy(&z);
    }
}
END_TEST

START_TEST(wrong_arguments_are_named)
{
    struct tsr_choice_words choices[2];
    tsr_tensor *x = gpu_new(TSR_F32, 2, (int64_t[]){2, 40}),
               *y = gpu_new(TSR_I32, 1, (int64_t[]){2}), *z = gpu_new(TSR_I32, 1, (int64_t[]){2}),
               *short_one = gpu_new(TSR_I32, 1, (int64_t[]){1}),
               *seen = gpu_new(TSR_U32, 2, (int64_t[]){2, 1}),
               *one_row = gpu_new(TSR_U32, 2, (int64_t[]){1, 2}),
               *many = gpu_new(TSR_F32, 2, (int64_t[]){1, (INT64_C(1) << 23) + 1});
    const tsr_sampling_params *penalty =
        tsr_sampling_params(.temperature = 1, .repetition_penalty = 2);
    for (int i = 0; i < 2; i++)
        GPU_OK(tsr__sampling_choice(penalty, 0, 0, &choices[i]));
    choices[1].seen_row = 1;
    GPU_FAILS(tsr__choose(queue, y, z, NULL, x, choices), TSR_ERR_INVALID,
              "choose: row 0 has a repetition penalty, but seen is NULL");
    GPU_FAILS(tsr__choose(queue, y, z, one_row, x, choices), TSR_ERR_INVALID,
              "choose: row 1 has seen_row 1 of 1");
    GPU_FAILS(tsr__choose(queue, y, z, seen, x, choices), TSR_ERR_INVALID,
              "choose: seen is u32 [2,1]; contiguous u32 [rows,2] is needed");
    GPU_FAILS(tsr__choose(queue, short_one, z, seen, x, choices), TSR_ERR_INVALID,
              "choose: ids are i32 [1]; 2 contiguous i32 are needed");
    GPU_FAILS(tsr__choose(queue, y, short_one, seen, x, choices), TSR_ERR_INVALID,
              "choose: results are i32 [1]; 2 contiguous i32 are needed");
    GPU_FAILS(tsr__choose(queue, y, z, seen, y, choices), TSR_ERR_INVALID,
              "choose: logits are i32 [2]; f32 [rows,count] with contiguous rows is needed");
    GPU_FAILS(tsr__choose(queue, short_one, short_one, NULL, many, choices), TSR_ERR_UNSUPPORTED,
              "choose: the rows have 8388609 tokens; at most ");
    tsr_tensor *all[] = {x, y, z, short_one, seen, one_row, many};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tsr_tensor_destroy(&all[i]);
}
END_TEST

TESTS(choose)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_loop_test(tests, draws_are_those_of_the_host, 0, SETS);
    tcase_add_test(tests, draws_from_many_tokens);
    tcase_add_test(tests, the_chosen_token_is_seen);
    tcase_add_test(tests, rows_without_a_choice_are_marked);
    tcase_add_test(tests, reading_the_logits_again_is_work);
    tcase_add_test(tests, wrong_arguments_are_named);
}

/* Only the number of draws is new here. SwiftShader takes a minute, and the lane `adversary` looks
 * for mistakes that do not depend on the draw, so both leave this list out. */
TESTS(choose_long)
{
    tcase_add_checked_fixture(tests, gpu_setup, gpu_teardown);
    tcase_add_test(tests, two_thousand_draws_are_those_of_the_host);
}

/* With the workgroups of GPUs, and choices that are uploaded. */
TESTS(choose_as_gpu)
{
    tcase_add_checked_fixture(tests, gpu_setup_as_gpu_packed, gpu_teardown);
    tcase_add_loop_test(tests, draws_are_those_of_the_host, SETS - 1, SETS);
    tcase_add_test(tests, draws_from_many_tokens);
    tcase_add_test(tests, the_chosen_token_is_seen);
    tcase_add_test(tests, rows_without_a_choice_are_marked);
}

TESTS(choose_staged)
{
    tcase_add_checked_fixture(tests, gpu_setup_staged, gpu_teardown);
    tcase_add_test(tests, draws_from_many_tokens);
    tcase_add_test(tests, the_chosen_token_is_seen);
}
