/* Tests tessera finetune: recorded runs on several grids, interrupted and lost trainings, bad
 * input, and the loss of preferences. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/finetune/dpo.h"
#include "cli/tool.h"
#include "cli/tool_config.h"
#include "launch/launched.h"
#include "support/check_main.h"

#define RECORDED TEST_DATA "/training/lora/"
#define STORIES TEST_DATA "/model/stories260K-f16.gguf"

/* Recorded runs -------------------------------------------------------------------------------- */

/* Compares the first steps of a log in the test's folder with a recorded run. */
static void assert_as_recorded(const char *run, const char *log, int steps)
{
    char path[256];
    json_error_t problem;
    snprintf(path, sizeof path, RECORDED "%s_trajectory.json", run);
    json_t *recorded = json_load_file(path, 0, &problem);
    ck_assert_msg(recorded != NULL, "%s: %s", path, problem.text);
    const json_t *losses = tool_member(recorded, "loss_f64"),
                 *norms = tool_member(recorded, "grad_norm_f64");
    char *text = read_file(log), *rest = text;
    for (int i = 0; i < steps; i++) {
        int step;
        double loss, norm;
        ck_assert_msg(sscanf(rest, "{\"step\": %d, \"loss\": %lf, \"grad_norm\": %lf", &step, &loss,
                             &norm) == 3,
                      "step %d is missing: %.200s", i, rest);
        const double l = json_number_value(json_array_get(losses, (size_t)i)),
                     n = json_number_value(json_array_get(norms, (size_t)i));
        ck_assert_int_eq(step, i);
        ck_assert_msg(fabs(loss - l) <= 1e-4 * l, "step %d: loss %.9g, not %.9g", i, loss, l);
        ck_assert_msg(fabs(norm - n) <= 1e-4 * n, "step %d: norm %.9g, not %.9g", i, norm, n);
        rest = strchr(rest, '\n') + 1;
    }
    ck_assert_str_eq(rest, "");
    free(text);
    json_decref(recorded);
}

/* Each recorded run, on a grid of its own. */
START_TEST(losses_are_as_recorded)
{
    static const struct {
        const char *run, *base, *ranks, *options;
    } cases[] = {
        {"lora", "lora_base", "1", "~--recompute~--accumulate~2"},
        {"lora_clip", "lora_base", "3", "~--rates~3,1,1"},
        {"qlora_q4_0", "qlora_base_q4_0/base.gguf", "2", "~--stages~2~--accumulate~3"},
        {"qlora_q8_0", "qlora_base_q8_0/base.gguf", "2", "~--data-parallel~2"},
    };
    char arguments[1024];
    if (!TEST_HAVE_UCX && _i > 0)
        SKIP("the library was built without UCX");
    snprintf(arguments, sizeof arguments,
             "-n~%s~" TEST_TOOL "~finetune~" RECORDED "%s~--reference~" RECORDED
             "%s_trajectory.json~--text~" TEST_TEXT "~--steps~4~--log~%s%s",
             cases[_i].ranks, cases[_i].base, cases[_i].run, in_folder("log"), cases[_i].options);
    launched job = launch(arguments);
    ck_assert_msg(job.status == 0, "%s", job.err);
    assert_as_recorded(cases[_i].run, "log", 4);
    done(&job);
}
END_TEST

/* Preferences ---------------------------------------------------------------------------------- */

/* The formula by itself, for one pair. */
static double loss_of_pair(double beta, const double own[2], const double reference[2])
{
    const double z = beta * ((own[0] - reference[0]) - (own[1] - reference[1]));
    return -log(1 / (1 + exp(-z)));
}

START_TEST(preferences_are_as_the_formula)
{
    int32_t labels[12] = {-100, 3, 4, 1, -100, 2, -100, -100, -100, -100, -100, -100};
    const data_batch rows = {.rows = 6, .context = 2, .labels = labels};
    const double own[6] = {-3, -5, -2, -2.5, -1, -1}, reference[6] = {-4, -4.5, -1, -1, -9, -9},
                 beta = 0.3, scale = 0.5, step = 1e-6;
    double slopes[6], moved[6];
    const double sum = finetune_dpo(&rows, beta, own, reference, scale, slopes);
    /* the last pair has no labels */
    ck_assert_double_eq_tol(
        sum,
        scale * (loss_of_pair(beta, own, reference) + loss_of_pair(beta, own + 2, reference + 2)),
        1e-14);
    for (int i = 0; i < 6; i++) {
        double ignored[6];
        memcpy(moved, own, sizeof moved);
        moved[i] += step;
        const double up = finetune_dpo(&rows, beta, moved, reference, scale, ignored);
        moved[i] -= 2 * step;
        const double down = finetune_dpo(&rows, beta, moved, reference, scale, ignored);
        /* a slope is the derivative by minus the log-probability */
        ck_assert_double_eq_tol(slopes[i], -(up - down) / (2 * step), 1e-9);
    }
    /* neither overflows nor becomes infinite */
    const double far[6] = {-1e6, 0, 0, -1e6, 0, 0};
    ck_assert(isfinite(finetune_dpo(&rows, 1, far, reference, 1, slopes)));
}
END_TEST

/* Endings -------------------------------------------------------------------------------------- */

static void write_texts(void)
{
    char text[4096] = "";
    for (int i = 0; i < 24; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used,
                 "{\"prompt\": \"Tom has %d red balls. \", \"completion\": \"Lily has %d.\"}\n", i,
                 i + 1);
    }
    write_file("texts.jsonl", text);
}

/* Returns what all runs of this test have in common. */
static const char *common(void)
{
    static char text[512];
    char folder[128];
    snprintf(folder, sizeof folder, "%s", in_folder(""));
    snprintf(text, sizeof text,
             "~finetune~" STORIES
             "~--data~%stexts.jsonl~--batch~2~--context~32~--learning-rate~1e-3"
             "~--checkpoint-every~3",
             folder);
    return text;
}

static launched begin(const char *ranks, const char *options)
{
    char arguments[2048];
    snprintf(arguments, sizeof arguments,
             "-n~%s~%s~sh~-c~echo $$ >>$FOLDER/pid.$RANK; exec \"$@\"~sh~" TEST_TOOL "%s~%s", ranks,
             strstr(options, "--elastic") ? "--respawn~1" : "--no-prefix", common(), options);
    return start(arguments);
}

/* Compares the losses of two logs. */
static void assert_same_losses(const char *a, const char *b, int steps, double tolerance)
{
    char *texts[2] = {read_file(a), read_file(b)}, *rest[2] = {texts[0], texts[1]};
    for (int i = 0; i < steps; i++) {
        double losses[2];
        for (int t = 0; t < 2; t++) {
            int step;
            ck_assert_msg(sscanf(rest[t], "{\"step\": %d, \"loss\": %lf", &step, &losses[t]) == 2 &&
                              step == i,
                          "log %d, step %d: %.200s", t, i, rest[t]);
            rest[t] = strchr(rest[t], '\n') + 1;
        }
        ck_assert_msg(fabs(losses[0] - losses[1]) <= tolerance * losses[0],
                      "step %d: losses %.9g and %.9g", i, losses[0], losses[1]);
    }
    free(texts[0]);
    free(texts[1]);
}

/* A training that was killed goes on with other ranks, as if nothing had happened. */
START_TEST(a_killed_training_goes_on_from_its_checkpoint)
{
    char options[512], arguments[512];
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    write_texts();
    snprintf(options, sizeof options, "--steps~8~--log~%s", in_folder("whole"));
    launched whole = begin("1", options);
    finish(&whole);
    ck_assert_msg(whole.status == 0, "%s", whole.err);
    done(&whole);
    remove(in_folder("pid.0"));
    snprintf(options, sizeof options, "--steps~8~--log~%s~--checkpoint~%s", in_folder("log"),
             in_folder("checkpoint"));
    launched job = begin("1", options);
    wait_for_text("log", "{\"step\": 3,", 1);
    char *number = read_file("pid.0");
    ck_assert_int_eq(kill(atoi(number), SIGKILL), 0);
    free(number);
    finish(&job);
    ck_assert_int_eq(job.status, 128 + SIGKILL);
    done(&job);
    snprintf(arguments, sizeof arguments, "-n~2~" TEST_TOOL "~finetune~--resume~%s~--log~%s",
             in_folder("checkpoint"), in_folder("log"));
    job = launch(arguments);
    ck_assert_msg(job.status == 0, "%s", job.err);
    done(&job);
    assert_same_losses("whole", "log", 8, 1e-5);
}
END_TEST

/* Ctrl-C saves the adapter and a checkpoint. */
START_TEST(an_interrupt_saves)
{
    char options[512];
    write_texts();
    snprintf(options, sizeof options, "--steps~5000~--log~%s~--checkpoint~%s~--output~",
             in_folder("log"), in_folder("checkpoint"));
    strcat(options, in_folder("adapter.gguf"));
    launched job = begin("1", options);
    wait_for_text("log", "{\"step\": 1,", 1);
    send_signal(&job, SIGINT);
    finish(&job);
    ck_assert_int_eq(job.status, 128 + SIGINT);
    assert_has(job.err, "; go on with: tessera finetune --resume ");
    ck_assert_int_eq(access(in_folder("adapter.gguf"), R_OK), 0);
    ck_assert_int_eq(access(in_folder("checkpoint"), R_OK), 0);
    done(&job);
}
END_TEST

/* A lost rank costs no more than a step, and another takes its place. */
START_TEST(a_lost_rank_is_replaced)
{
    char options[512];
    if (!TEST_HAVE_UCX)
        SKIP("the library was built without UCX");
    write_texts();
    snprintf(options, sizeof options, "--elastic~--steps~16~--timeout~20~--log~%s",
             in_folder("log"));
    launched job = begin("2", options);
    wait_for_text("log", "{\"step\": 2,", 1);
    char *number = read_file("pid.1");
    ck_assert_int_eq(kill(atoi(number), SIGKILL), 0);
    free(number);
    finish(&job);
    ck_assert_msg(job.status == 0, "%s", job.err);
    assert_has(job.err, "going on with 1 rank after ");
    char *log = read_file("log");
    ck_assert_int_eq(count(log, "{\"step\": "), 16);
    free(log);
    done(&job);
}
END_TEST

/* A loss that explodes ends the training, and what was saved before stays. */
START_TEST(a_training_that_diverges_ends)
{
    char options[512];
    write_texts();
    snprintf(options, sizeof options,
             "--steps~60~--learning-rate~1000~--warmup~0~--clip~0~--checkpoint~%s",
             in_folder("checkpoint"));
    launched job = begin("1", options);
    finish(&job);
    ck_assert_int_eq(job.status, 1);
    assert_has(job.err, "tessera: finetune: step ");
    assert_has(job.err, ", so the training ends; ");
    assert_has(job.err, "a lower --learning-rate may help\n");
    done(&job);
}
END_TEST

TESTS(finetune)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_loop_test(tests, losses_are_as_recorded, 0, 4);
    tcase_add_test(tests, preferences_are_as_the_formula);
    tcase_add_test(tests, a_killed_training_goes_on_from_its_checkpoint);
    tcase_add_test(tests, an_interrupt_saves);
    tcase_add_test(tests, a_lost_rank_is_replaced);
    tcase_add_test(tests, a_training_that_diverges_ends);
}
