/* Training continues without ranks that are lost at any point of a step or of rebuilding, and with
 * ranks that join. */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "parallel/elastic.h"

static char folder[64];

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/tessera-elastic-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static unsigned victims_of(const elastic_job *job)
{
    unsigned all = 0;
    for (int i = 0; i < ELASTIC_LOSSES; i++)
        all |= job->losses[i].victims;
    return all;
}

/* Runs a job without losses, and then the job. Each rebuilt model must have the same bits as the
 * undisturbed model at that step. Afterwards it must train like a model that is loaded from the
 * undisturbed model's file. */
static void compare(elastic_job job, bool repeats)
{
    elastic_job undisturbed = job;
    memset(undisturbed.losses, 0, sizeof undisturbed.losses);
    undisturbed.folder = folder;
    elastic_start(&undisturbed);
    elastic_wait(job.ranks, 0);
    job.folder = job.compared = folder;
    elastic_start(&job);
    elastic_wait(job.ranks, victims_of(&job));
    const elastic_shared *shared = ranks_shared();
    ck_assert_int_eq(shared->final_steps, job.steps);
    ck_assert_int_eq(shared->resumed_at, job.losses[0].at + (repeats ? 0 : 1));
    ck_assert_int_eq(shared->final_ranks, job.ranks - __builtin_popcount(victims_of(&job)));
}

/* If no rank has made the step yet, all repeat it; if some ranks have made it, the others
 * follow. */
static const struct {
    elastic_job job;
    bool repeats; /* the step of the first loss is repeated */
} losses[] = {
    {{.ranks = 4, .steps = 6, .losses = {{POINT_BACKWARD, 1U << 1, 0, 3}}}, true},
    {{.ranks = 4, .steps = 6, .losses = {{POINT_BEFORE_BARRIER, 1U << 3, 0, 3}}}, true},
    {{.ranks = 4, .steps = 6, .losses = {{POINT_AFTER_BARRIER, 1U << 0, 0, 3}}}, false},
    {{.ranks = 4, .steps = 6, .losses = {{POINT_AFTER_BARRIER, 1U << 1, 1U << 2, 3}}}, false},
    /* a loss after another one: the new copies are as good as the first ones */
    {{.ranks = 4,
      .steps = 6,
      .momentum = true,
      .layerwise = true,
      .losses = {{POINT_BACKWARD, 1U << 2, 0, 2}, {POINT_AFTER_BARRIER, 1U << 3, 1U << 0, 4}}},
     true},
    /* all ranks of a host are lost */
    {{.ranks = 4,
      .steps = 5,
      .hosts = "aabb",
      .staged = true,
      .dtype = TSR_BF16,
      .losses = {{POINT_BACKWARD, 3U, 0, 3}}},
     true},
    /* a further rank is lost while shards are moved */
    {{.ranks = 5,
      .steps = 5,
      .losses = {{POINT_BACKWARD, 1U << 1, 0, 3}, {POINT_MOVING, 1U << 3, 0, 1}}},
     true},
    /* … and when some ranks have the new model and others do not know that */
    {{.ranks = 5,
      .steps = 5,
      .losses = {{POINT_BACKWARD, 1U << 1, 0, 3}, {POINT_REBUILT, 1U << 3, 1U << 4, 1}}},
     true},
    {{.ranks = 3, .steps = 5, .losses = {{POINT_BACKWARD, 1U << 1, 0, 2}}}, true},
    {{.ranks = 2, .steps = 4, .losses = {{POINT_AFTER_BARRIER, 1U << 0, 0, 2}}}, false},
};

START_TEST(goes_on_from_the_last_step)
{
    compare(losses[_i].job, losses[_i].repeats);
}
END_TEST

/* Runs a job whose losses cannot be repaired. Rebuilding must fail with this text. */
static void refuse(elastic_job job)
{
    elastic_start(&job);
    elastic_wait(job.ranks, victims_of(&job));
}

START_TEST(names_what_is_lost_with_its_copy)
{
    refuse((elastic_job){.ranks = 4,
                         .steps = 4,
                         .losses = {{POINT_BACKWARD, 6U, 0, 2}},
                         .refused = "rank 1 of 4 is lost, and so is rank 2, which had "
                                    "the replicas of its shards; load a checkpoint"});
}
END_TEST

START_TEST(names_what_has_no_copy)
{
    refuse((elastic_job){.ranks = 3,
                         .steps = 4,
                         .no_replicas = true,
                         .losses = {{POINT_BACKWARD, 4U, 0, 2}},
                         .refused = "rank 2 of 3 is lost, and its shards have no "
                                    "replicas; load a checkpoint"});
}
END_TEST

/* If every rank has all parameters, nothing is lost even without copies. */
START_TEST(needs_no_copies_of_gathered_parameters)
{
    elastic_job job = {.ranks = 3,
                       .steps = 4,
                       .no_replicas = true,
                       .everywhere = true,
                       .losses = {{POINT_BACKWARD, 4U, 0, 2}}};
    elastic_start(&job);
    elastic_wait(3, 4U);
}
END_TEST

/* A process joins. In two of the jobs, rank 0 is lost afterwards; in one of these, it was the only
 * rank at first. */
static const struct {
    elastic_job job;
    int ranks; /* how many ranks there are at the end */
} joins[] = {
    {{.ranks = 2, .joins_at = 3, .losses = {{POINT_BACKWARD, 1U, 0, 5}}}, 2},
    {{.ranks = 2, .joins_at = 3, .no_replicas = true}, 3},
    {{.ranks = 1, .joins_at = 3, .momentum = true, .losses = {{POINT_BACKWARD, 1U, 0, 5}}}, 1},
};

START_TEST(takes_in_a_rank_that_joins)
{
    elastic_job job = joins[_i].job;
    job.steps = 8;
    ranks_choose_port();
    elastic_start(&job);
    const int joined = ranks_join(elastic_join, &job, UINT64_C(30000000000));
    elastic_wait(joined + 1, victims_of(&job));
    const elastic_shared *shared = ranks_shared();
    ck_assert_int_eq(shared->grows, job.ranks);
    ck_assert_int_eq(shared->final_steps, 8);
    ck_assert_int_eq(shared->final_ranks, joins[_i].ranks);
}
END_TEST

TESTS(elastic)
{
    tcase_set_timeout(tests, 300);
    tcase_add_unchecked_fixture(tests, make_folder, remove_folder);
    tcase_add_loop_test(tests, goes_on_from_the_last_step, 0,
                        (int)(sizeof losses / sizeof *losses));
    tcase_add_test(tests, names_what_is_lost_with_its_copy);
    tcase_add_test(tests, names_what_has_no_copy);
    tcase_add_test(tests, needs_no_copies_of_gathered_parameters);
    tcase_add_loop_test(tests, takes_in_a_rank_that_joins, 0, (int)(sizeof joins / sizeof *joins));
}
