/* The 1F1B schedule as arithmetic: every step can be made in time, no stage keeps more
 * micro-batches than it reports, and the bubble is that of the formula. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "parallel/pipeline/schedule.h"
#include "support/check_main.h"

static const int stage_counts[] = {1, 2, 3, 4, 7, 8, 16};
static const int batch_counts[] = {1, 2, 3, 4, 5, 8, 13, 32};
#define COUNT(array) (sizeof(array) / sizeof *(array))

static tsr__pipeline_step *schedule_of(int stage, int stages, int batches)
{
    tsr__pipeline_step *steps = calloc(2 * (size_t)batches, sizeof *steps);
    ck_assert_ptr_nonnull(steps);
    ck_assert(tsr__pipeline_schedule(stage, stages, batches, steps) == TSR_OK);
    return steps;
}

/* Executes all stages. Each step begins as soon as everything it needs has been computed. Returns
 * the time when the last stage ends. A forward pass takes `forward`, a backward pass `backward`. */
static int simulate(int stages, int batches, int forward, int backward)
{
    tsr__pipeline_step **steps = calloc((size_t)stages, sizeof *steps);
    int *next = calloc((size_t)stages, sizeof *next), *now = calloc((size_t)stages, sizeof *now);
    /* end[(stage * batches + batch) * 2 + pass]; 0: the pass has not been made yet */
    int *end = calloc((size_t)stages * (size_t)batches * 2, sizeof *end);
    ck_assert(steps && next && now && end);
    for (int s = 0; s < stages; s++)
        steps[s] = schedule_of(s, stages, batches);
    int left = 2 * stages * batches, last = 0;
    while (left > 0) {
        const int before = left;
        for (int s = 0; s < stages; s++) {
            if (next[s] == 2 * batches)
                continue;
            const tsr__pipeline_step step = steps[s][next[s]];
            const int pass = step.pass == TSR_PASS_BACKWARD;
            const int from = pass ? s + 1 : s - 1;
            const int *need = from >= 0 && from < stages
                                  ? &end[(from * batches + step.micro_batch) * 2 + pass]
                                  : NULL;
            if (need && *need == 0)
                continue;
            const int start = need && *need > now[s] ? *need : now[s];
            now[s] = start + (pass ? backward : forward);
            end[(s * batches + step.micro_batch) * 2 + pass] = now[s];
            last = now[s] > last ? now[s] : last;
            next[s]++;
            left--;
        }
        ck_assert_msg(left < before, "%d stages, %d micro-batches: deadlock", stages, batches);
    }
    for (int s = 0; s < stages; s++)
        free(steps[s]);
    free(steps);
    free(next);
    free(now);
    free(end);
    return last;
}

START_TEST(bubble_is_that_of_the_formula)
{
    for (size_t i = 0; i < COUNT(stage_counts); i++) {
        for (size_t j = 0; j < COUNT(batch_counts); j++) {
            const int stages = stage_counts[i], batches = batch_counts[j];
            const int time = simulate(stages, batches, 1, 2);
            const double idle = 1 - 3.0 * batches / time;
            ck_assert_double_eq_tol(idle, tsr_pipeline_bubble(stages, batches), 1e-12);
        }
    }
    ck_assert_double_eq(tsr_pipeline_bubble(2, 1), 0.5);
    ck_assert_double_eq(tsr_pipeline_bubble(4, 9), 0.25);
    ck_assert_double_eq(tsr_pipeline_bubble(1, 3), 0);
}
END_TEST

/* Each micro-batch has one forward pass and later one backward pass, both in the order of their
 * numbers. */
START_TEST(keeps_few_micro_batches)
{
    for (size_t i = 0; i < COUNT(stage_counts); i++) {
        for (size_t j = 0; j < COUNT(batch_counts); j++) {
            const int stages = stage_counts[i], batches = batch_counts[j];
            for (int s = 0; s < stages; s++) {
                tsr__pipeline_step *steps = schedule_of(s, stages, batches);
                int forward = 0, backward = 0, most = 0;
                for (int k = 0; k < 2 * batches; k++) {
                    int *count = steps[k].pass == TSR_PASS_FORWARD ? &forward : &backward;
                    ck_assert_int_eq(steps[k].micro_batch, (*count)++);
                    ck_assert_int_le(backward, forward);
                    most = forward - backward > most ? forward - backward : most;
                }
                ck_assert_int_eq(forward, batches);
                ck_assert_int_eq(backward, batches);
                ck_assert_int_eq(most, tsr__pipeline_in_flight(s, stages, batches));
                ck_assert_int_eq(most, stages - s < batches ? stages - s : batches);
                free(steps);
            }
        }
    }
}
END_TEST

START_TEST(last_stage_alternates)
{
    tsr__pipeline_step *steps = schedule_of(3, 4, 5);
    for (int k = 0; k < 10; k++) {
        ck_assert_int_eq(steps[k].pass, k % 2 == 0 ? TSR_PASS_FORWARD : TSR_PASS_BACKWARD);
        ck_assert_int_eq(steps[k].micro_batch, k / 2);
    }
    free(steps);
}
END_TEST

START_TEST(refuses)
{
    tsr__pipeline_step steps[2] = {{TSR_PASS_FORWARD, 7}, {TSR_PASS_FORWARD, 7}};
    const int wrong[][3] = {{0, 0, 1},  {1, 1, 1},    {-1, 2, 1},     {0, 2, 0},
                            {0, 1, -1}, {0, 4097, 1}, {0, 1, 1048577}};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "pipeline_schedule: stage %d of %d with %d micro-batches; 1 to 4096 stages and 1 "
                 "to 1048576 micro-batches are allowed",
                 wrong[i][0], wrong[i][1], wrong[i][2]);
        ck_assert_error(tsr__pipeline_schedule(wrong[i][0], wrong[i][1], wrong[i][2], steps),
                        TSR_ERR_INVALID, text);
        ck_assert_int_eq(tsr__pipeline_in_flight(wrong[i][0], wrong[i][1], wrong[i][2]), 0);
    }
    ck_assert_int_eq(steps[0].micro_batch, 7);
    ck_assert_error(tsr__pipeline_schedule(0, 1, 1, NULL), TSR_ERR_INVALID,
                    "pipeline_schedule: steps is NULL");
    ck_assert(isnan(tsr_pipeline_bubble(0, 1)));
    ck_assert(isnan(tsr_pipeline_bubble(1, 0)));
}
END_TEST

TESTS(schedule)
{
    tcase_add_test(tests, bubble_is_that_of_the_formula);
    tcase_add_test(tests, keeps_few_micro_batches);
    tcase_add_test(tests, last_stage_alternates);
    tcase_add_test(tests, refuses);
}
