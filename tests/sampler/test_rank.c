/* Tests how tsr_rank_from_environment finds the rank and the number of ranks in the variables of
 * launchers. */
#include <stdlib.h>

#include "sampler/read.h"

static const char *const variables[] = {
    "RANK",           "WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
    "PMI_RANK",       "PMI_SIZE",   "SLURM_PROCID",         "SLURM_STEP_NUM_TASKS",
    "PMIX_NAMESPACE", "PMIX_RANK",  "TESSERA_BOOT",         "TORCHELASTIC_RUN_ID"};

static void clear(void)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        unsetenv(variables[i]);
}

static void check(int64_t expected_rank, int64_t expected_ranks)
{
    int64_t rank = -7, ranks = -7;
    ck_assert_ok(tsr_rank_from_environment(&rank, &ranks));
    ck_assert_int_eq(rank, expected_rank);
    ck_assert_int_eq(ranks, expected_ranks);
}

static void set(const char *name, const char *value)
{
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

START_TEST(one_process_without_a_launcher)
{
    check(0, 1);
}
END_TEST

START_TEST(every_launcher)
{
    set("SLURM_PROCID", "1");
    set("SLURM_STEP_NUM_TASKS", "2");
    check(1, 2);
    set("PMI_RANK", "2");
    set("PMI_SIZE", "3");
    check(2, 3);
    set("OMPI_COMM_WORLD_RANK", "3");
    set("OMPI_COMM_WORLD_SIZE", "4");
    set("PMIX_RANK", "3");
    check(3, 4);
    set("RANK", "4");
    set("WORLD_SIZE", "5");
    check(4, 5);
}
END_TEST

/* Slurm gives a batch script the number of tasks and a rank, but the script is not one of the
 * tasks. */
START_TEST(batch_script)
{
    set("SLURM_NTASKS", "9");
    set("SLURM_PROCID", "0");
    check(0, 1);
}
END_TEST

/* For the rank of a sampler, as for that of a communicator, PMIx takes precedence over RANK
 * unless PMIx started a torchrun, and TESSERA_BOOT takes precedence over everything. */
START_TEST(ranks_equal_those_of_communicators)
{
    set("RANK", "4");
    set("WORLD_SIZE", "5");
    set("SLURM_PROCID", "1");
    set("SLURM_STEP_NUM_TASKS", "2");
    set("PMIX_RANK", "1");
    check(4, 5);
    set("PMIX_NAMESPACE", "slurm.pmix.7.0");
    check(1, 2);
    set("TORCHELASTIC_RUN_ID", "none");
    check(4, 5);
    set("TESSERA_BOOT", "pmix");
    check(1, 2);
    set("TESSERA_BOOT", "env");
    unsetenv("TORCHELASTIC_RUN_ID");
    check(4, 5);
    set("TESSERA_BOOT", "single");
    check(0, 1);
    set("TESSERA_BOOT", "auto");
    check(1, 2);
}
END_TEST

START_TEST(empty_is_not_set)
{
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        set(variables[i], "");
    check(0, 1);
    set("PMI_RANK", "2");
    set("PMI_SIZE", "3");
    check(2, 3);
}
END_TEST

#define ERROR(text)                                                                                \
    do {                                                                                           \
        int64_t rank_ = -7, ranks_ = -7;                                                           \
        ck_assert_error(tsr_rank_from_environment(&rank_, &ranks_), TSR_ERR_INVALID, text);        \
        ck_assert(rank_ == -7 && ranks_ == -7);                                                    \
    } while (0)

START_TEST(errors)
{
    set("RANK", "0");
    ERROR("rank: RANK is set, but WORLD_SIZE is not: set both, or neither for a single process");
    set("WORLD_SIZE", "0");
    ERROR("rank: WORLD_SIZE is '0', not an integer from 1 to 2147483647");
    set("WORLD_SIZE", "4 ");
    ERROR("rank: WORLD_SIZE is '4 ', not an integer from 1 to 2147483647");
    set("WORLD_SIZE", "");
    ERROR("rank: RANK is set, but WORLD_SIZE is not: set both, or neither for a single process");
    set("WORLD_SIZE", " 4");
    ERROR("rank: WORLD_SIZE is ' 4', not an integer from 1 to 2147483647");
    set("WORLD_SIZE", "99999999999999999999");
    ERROR("rank: WORLD_SIZE is '99999999999999999999', not an integer from 1 to 2147483647");
    set("WORLD_SIZE", "4");
    set("RANK", "4");
    ERROR("rank: RANK is '4', not an integer from 0 to 3");
    set("RANK", "-1");
    ERROR("rank: RANK is '-1', not an integer from 0 to 3");
    set("RANK", "two");
    ERROR("rank: RANK is 'two', not an integer from 0 to 3");
    unsetenv("RANK");
    ERROR("rank: WORLD_SIZE is set, but RANK is not: set both, or neither for a single process");
    unsetenv("WORLD_SIZE");
    set("PMIX_RANK", "1");
    ERROR("rank: PMIX_RANK is set, but no variable gives the number of ranks");
    set("TESSERA_BOOT", "env");
    ERROR("rank: TESSERA_BOOT is env, but RANK is not set");
    set("TESSERA_BOOT", "join");
    ERROR("rank: TESSERA_BOOT is join, so the rank is known only after joining: take it from the "
          "communicator");
    set("TESSERA_BOOT", "mpi");
    ERROR("rank: TESSERA_BOOT is 'mpi', not auto, pmix, env, join or single");
}
END_TEST

START_TEST(distributed_samplers_use_the_environment)
{
    tsr_sampler *sampler = NULL;
    tsr_sampler_info info = TSR_INIT(tsr_sampler_info);
    set("RANK", "2");
    set("WORLD_SIZE", "5");
    ck_assert_ok(tsr_sampler_create_distributed(tsr_sampler_distributed_params(.n = 11), &sampler));
    ck_assert_ok(tsr_sampler_get_info(sampler, &info));
    ck_assert(info.rank == 2 && info.ranks == 5 && tsr_sampler_length(sampler) == 3 &&
              info.total == 15);
    tsr_sampler_destroy(&sampler);
    set("RANK", "5");
    ck_assert_error(
        tsr_sampler_create_distributed(tsr_sampler_distributed_params(.n = 11), &sampler),
        TSR_ERR_INVALID, "rank: RANK is '5', not an integer from 0 to 4");
}
END_TEST

TESTS(rank)
{
    tcase_add_checked_fixture(tests, clear, NULL);
    tcase_add_test(tests, one_process_without_a_launcher);
    tcase_add_test(tests, every_launcher);
    tcase_add_test(tests, batch_script);
    tcase_add_test(tests, ranks_equal_those_of_communicators);
    tcase_add_test(tests, empty_is_not_set);
    tcase_add_test(tests, errors);
    tcase_add_test(tests, distributed_samplers_use_the_environment);
}
