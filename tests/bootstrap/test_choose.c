/* Tests the environment variables that choose a bootstrap, and their errors. Every test runs in a
 * process of its own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/environment.h"
#include "comm/bootstrap/backend.h"
#include "comm/bootstrap/bootstrap.h"
#include "support/check_main.h"

/* Removes the variables by which the tests themselves may have been started. */
static void clear(void)
{
    static const char *const names[] = {
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "TESSERA_MASTER_PORT",
        "TESSERA_TOKEN",
        "TESSERA_BOOT",
        "TESSERA_JOB_ID",
        "TESSERA_NODE",
        "PMIX_NAMESPACE",
        "PMIX_RANK",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_USE_AGENT_STORE",
        "SLURM_STEP_NUM_TASKS",
        "OMPI_COMM_WORLD_SIZE",
        "PMI_SIZE",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
}

/* Sets the variables of a text such as "A=1 B=2", and removes all others that matter. */
static void set(const char *variables)
{
    char copy[512];
    clear();
    ck_assert_uint_lt(strlen(variables), sizeof copy);
    strcpy(copy, variables);
    for (char *one = strtok(copy, " "); one != NULL; one = strtok(NULL, " ")) {
        char *value = strchr(one, '=');
        ck_assert_ptr_nonnull(value);
        *value = '\0';
        setenv(one, value + 1, 1);
    }
}

static const struct {
    const char *variables;
    tsr__bootstrap_kind kind;
    const char *why;
} choices[] = {
    {"", TSR__BOOTSTRAP_SINGLE, "there is neither PMIX_NAMESPACE nor RANK"},
    {"RANK= WORLD_SIZE=", TSR__BOOTSTRAP_SINGLE, "there is neither PMIX_NAMESPACE nor RANK"},
    {"MASTER_ADDR=a MASTER_PORT=1 LOCAL_RANK=0", TSR__BOOTSTRAP_SINGLE,
     "there is neither PMIX_NAMESPACE nor RANK"},
    {"RANK=0 WORLD_SIZE=1", TSR__BOOTSTRAP_ENV, "RANK and WORLD_SIZE are set"},
    {"PMIX_NAMESPACE=a PMIX_RANK=0", TSR__BOOTSTRAP_PMIX, "PMIX_NAMESPACE and PMIX_RANK are set"},
    {"PMIX_NAMESPACE=a", TSR__BOOTSTRAP_SINGLE, "there is neither PMIX_NAMESPACE nor RANK"},
    {"PMIX_RANK=0", TSR__BOOTSTRAP_SINGLE, "there is neither PMIX_NAMESPACE nor RANK"},
    {"PMIX_NAMESPACE=a PMIX_RANK=0 RANK=0 WORLD_SIZE=2", TSR__BOOTSTRAP_PMIX,
     "PMIX_NAMESPACE and PMIX_RANK are set"},
    {"PMIX_NAMESPACE=a PMIX_RANK=0 RANK=0 WORLD_SIZE=2 TORCHELASTIC_RUN_ID=x", TSR__BOOTSTRAP_ENV,
     "RANK and WORLD_SIZE are set, by a torchrun that was itself started through PMIx"},
    {"TESSERA_BOOT=single RANK=0 WORLD_SIZE=2", TSR__BOOTSTRAP_SINGLE, "TESSERA_BOOT is single"},
    {"TESSERA_BOOT=env PMIX_NAMESPACE=a PMIX_RANK=0", TSR__BOOTSTRAP_ENV, "TESSERA_BOOT is env"},
    {"TESSERA_BOOT=join RANK=0 WORLD_SIZE=2", TSR__BOOTSTRAP_JOIN, "TESSERA_BOOT is join"},
    {"TESSERA_BOOT=single RANK=0", TSR__BOOTSTRAP_SINGLE, "TESSERA_BOOT is single"},
    {"TESSERA_BOOT=pmix", TSR__BOOTSTRAP_PMIX, "TESSERA_BOOT is pmix"},
    {"TESSERA_BOOT=auto RANK=0 WORLD_SIZE=2", TSR__BOOTSTRAP_ENV, "RANK and WORLD_SIZE are set"},
    {"TESSERA_BOOT=single SLURM_STEP_NUM_TASKS=4", TSR__BOOTSTRAP_SINGLE, "TESSERA_BOOT is single"},
    {"SLURM_STEP_NUM_TASKS=1 OMPI_COMM_WORLD_SIZE=1", TSR__BOOTSTRAP_SINGLE,
     "there is neither PMIX_NAMESPACE nor RANK"},
    {"SLURM_STEP_NUM_TASKS=4 PMIX_NAMESPACE=a PMIX_RANK=0", TSR__BOOTSTRAP_PMIX,
     "PMIX_NAMESPACE and PMIX_RANK are set"},
};

START_TEST(chooses_by_what_is_there)
{
    set(choices[_i].variables);
    tsr__bootstrap_kind kind = TSR__BOOTSTRAP_AUTO;
    const char *why = "";
    ck_assert_ok(tsr__bootstrap_choose(&kind, &why));
    ck_assert_int_eq(kind, choices[_i].kind);
    ck_assert_str_eq(why, choices[_i].why);
}
END_TEST

#define RANGE_OF_PORTS "not an integer from 1 to 65535"

static const struct {
    const char *variables, *error;
} mistakes[] = {
    {"TESSERA_BOOT=mpi", "bootstrap: TESSERA_BOOT is 'mpi', not auto, pmix, env, join or single"},
    {"TESSERA_BOOT=ENV", "bootstrap: TESSERA_BOOT is 'ENV', not auto, pmix, env, join or single"},
    {"SLURM_STEP_NUM_TASKS=4",
     "bootstrap: SLURM_STEP_NUM_TASKS is 4 but there is neither PMIX_NAMESPACE nor RANK, so these "
     "processes cannot find one another: start it with srun --mpi=pmix, or set "
     "TESSERA_BOOT=single"},
    {"OMPI_COMM_WORLD_SIZE=2",
     "bootstrap: OMPI_COMM_WORLD_SIZE is 2 but there is neither PMIX_NAMESPACE nor RANK, so these "
     "processes cannot find one another: its mpirun has no PMIx, or set TESSERA_BOOT=single"},
    {"PMI_SIZE=2",
     "bootstrap: PMI_SIZE is 2 but there is neither PMIX_NAMESPACE nor RANK, so these processes "
     "cannot "
     "find one another: its launcher uses PMI, not PMIx, or set TESSERA_BOOT=single"},
    {"SLURM_STEP_NUM_TASKS=x",
     "bootstrap: SLURM_STEP_NUM_TASKS is 'x', not an integer from 0 to 2147483647"},
    {"TESSERA_BOOT=pmix", /* the error text of a build without PMIx is different */
     "bootstrap: PMIX_NAMESPACE and PMIX_RANK are not set: this process was not started through "
     "PMIx"},
    {"RANK=0",
     "bootstrap: RANK is set, but WORLD_SIZE is not: set both, or neither for a single process"},
    {"WORLD_SIZE=1 RANK=",
     "bootstrap: WORLD_SIZE is set, but RANK is not: set both, or neither for a single process"},
    {"TESSERA_BOOT=env RANK=0", "bootstrap: WORLD_SIZE is not set"},
    {"TESSERA_BOOT=env WORLD_SIZE=2", "bootstrap: RANK is not set"},
    {"RANK=0 WORLD_SIZE=0", "bootstrap: WORLD_SIZE is '0', not an integer from 1 to 2147483647"},
    {"RANK=0 WORLD_SIZE=4097", "bootstrap: 4097 ranks are more than 4096"},
    {"RANK=0 WORLD_SIZE=65537", "bootstrap: 65537 ranks are more than 4096"},
    {"RANK=9999 WORLD_SIZE=2147483647", "bootstrap: 2147483647 ranks are more than 4096"},
    {"RANK=0 WORLD_SIZE=-1", "bootstrap: WORLD_SIZE is '-1', not an integer from 1 to 2147483647"},
    {"RANK=0 WORLD_SIZE=4294967298",
     "bootstrap: WORLD_SIZE is '4294967298', not an integer from 1 to 2147483647"},
    {"RANK=0 WORLD_SIZE=99999999999999999999",
     "bootstrap: WORLD_SIZE is '99999999999999999999', not an integer from 1 to 2147483647"},
    {"RANK=0 WORLD_SIZE=2x", "bootstrap: WORLD_SIZE is '2x', not an integer from 1 to 2147483647"},
    {"RANK=0 WORLD_SIZE=+2", "bootstrap: WORLD_SIZE is '+2', not an integer from 1 to 2147483647"},
    {"RANK=0 WORLD_SIZE=0x2",
     "bootstrap: WORLD_SIZE is '0x2', not an integer from 1 to 2147483647"},
    {"RANK=2 WORLD_SIZE=2", "bootstrap: RANK is '2', not an integer from 0 to 1"},
    {"RANK=-1 WORLD_SIZE=2", "bootstrap: RANK is '-1', not an integer from 0 to 1"},
    {"RANK=0 WORLD_SIZE=2 LOCAL_WORLD_SIZE=3",
     "bootstrap: LOCAL_WORLD_SIZE is '3', not an integer from 1 to 2"},
    {"RANK=0 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 LOCAL_RANK=2",
     "bootstrap: LOCAL_RANK is '2', not an integer from 0 to 1"},
    {"RANK=0 WORLD_SIZE=4 LOCAL_RANK=4",
     "bootstrap: LOCAL_RANK is '4', not an integer from 0 to 3"},
    {"RANK=0 WORLD_SIZE=2 MASTER_PORT=0", "bootstrap: MASTER_PORT is '0', " RANGE_OF_PORTS},
    {"RANK=0 WORLD_SIZE=2 MASTER_PORT=65536", "bootstrap: MASTER_PORT is '65536', " RANGE_OF_PORTS},
    {"RANK=0 WORLD_SIZE=2 MASTER_PORT=65535",
     "bootstrap: MASTER_PORT is 65535, so that there is no port after it: set TESSERA_MASTER_PORT"},
    {"RANK=0 WORLD_SIZE=2 TESSERA_MASTER_PORT=http",
     "bootstrap: TESSERA_MASTER_PORT is 'http', " RANGE_OF_PORTS},
    {"RANK=0 WORLD_SIZE=2 MASTER_PORT=29500 TESSERA_MASTER_PORT=29500 "
     "TORCHELASTIC_USE_AGENT_STORE=True",
     "bootstrap: TESSERA_MASTER_PORT is 29500, which is MASTER_PORT and belongs to torchrun's "
     "agent"},
    {"RANK=0 WORLD_SIZE=2 TESSERA_TOKEN=0123456789abcde",
     "bootstrap: TESSERA_TOKEN has 15 characters, at least 16 are needed"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=0.0.0.0",
     "rendezvous: MASTER_ADDR is '0.0.0.0': it stands for all addresses of a machine, not for "
     "one"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=192.0.2.1",
     "rendezvous: TESSERA_TOKEN is not set, but 192.0.2.1:29501 can be reached from other "
     "machines"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 MASTER_PORT=1234",
     "rendezvous: TESSERA_TOKEN is not set, but 192.0.2.1:1235 can be reached from other "
     "machines"},
    {"RANK=0 WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 MASTER_PORT=1234 TESSERA_MASTER_PORT=7",
     "rendezvous: TESSERA_TOKEN is not set, but 192.0.2.1:7 can be reached from other machines"},
};

START_TEST(names_what_is_wrong)
{
    const char *error = mistakes[_i].error;
    set(mistakes[_i].variables);
#if !TEST_HAVE_PMIX
    if (strcmp(mistakes[_i].variables, "TESSERA_BOOT=pmix") == 0)
        error =
            "bootstrap: this process was started through PMIx, but this tessera was built without "
            "it; TESSERA_BOOT=env uses RANK, WORLD_SIZE and MASTER_ADDR instead";
#endif
    tsr__bootstrap *bootstrap = NULL;
    ck_assert_int_ne(tsr__bootstrap_open(NULL, &bootstrap), TSR_OK);
    ck_assert_str_eq(tsr_last_error(), error);
    ck_assert_ptr_null(bootstrap);
}
END_TEST

static char logged[512];

static void keep_log(void *user, tsr_log_level level, const char *message)
{
    (void)user, (void)level;
    snprintf(logged, sizeof logged, "%s", message);
}

static void assert_alone(tsr__bootstrap_kind kind, const char *log)
{
    tsr__bootstrap *bootstrap;
    tsr_log_set(keep_log, NULL, TSR_LOG_INFO);
    ck_assert_ok(tsr__bootstrap_open(NULL, &bootstrap));
    const tsr__bootstrap_info *info = tsr__bootstrap_get_info(bootstrap);
    ck_assert_int_eq(info->kind, kind);
    ck_assert_int_eq(info->rank, 0);
    ck_assert_int_eq(info->size, 1);
    ck_assert_int_eq(info->local_rank, 0);
    ck_assert_int_eq(info->local_size, 1);
    ck_assert_int_eq(info->node_count, 1);
    ck_assert_int_eq(info->node_of[0], 0);
    ck_assert_str_eq(logged, log);
    tsr__bootstrap_gathered blocks;
    ck_assert_ok(tsr__bootstrap_exchange(bootstrap, "hello", 5, NULL, &blocks));
    ck_assert_uint_eq(blocks.starts[0], 0);
    ck_assert_uint_eq(blocks.starts[1], 5);
    ck_assert_mem_eq(blocks.bytes, "hello", 5);
    tsr__bootstrap_gathered_finish(&blocks);
    ck_assert_ok(tsr__bootstrap_exchange(bootstrap, NULL, 0, NULL, &blocks));
    ck_assert_uint_eq(blocks.starts[1], 0);
    tsr__bootstrap_gathered_finish(&blocks);
    ck_assert_ptr_null(blocks.bytes);
    tsr__bootstrap_close(&bootstrap);
    ck_assert_ptr_null(bootstrap);
    tsr__bootstrap_close(&bootstrap);
    tsr__bootstrap_close(NULL);
}

START_TEST(a_single_process_logs_the_reason)
{
    set("");
    assert_alone(
        TSR__BOOTSTRAP_SINGLE,
        "bootstrap: rank 0 of 1, local rank 0 of 1, node 0 of 1, through a single process: there "
        "is neither PMIX_NAMESPACE nor RANK");
    set("RANK=0 WORLD_SIZE=1");
    assert_alone(TSR__BOOTSTRAP_ENV,
                 "bootstrap: rank 0 of 1, local rank 0 of 1, node 0 of 1, through a single "
                 "process: RANK and WORLD_SIZE are set");
}
END_TEST

START_TEST(refuses_invalid_contributions)
{
    set("");
    tsr__bootstrap *bootstrap;
    tsr__bootstrap_gathered blocks;
    static uint8_t large[TSR__BOOTSTRAP_MAX_BYTES + 1];
    ck_assert_ok(tsr__bootstrap_open(NULL, &bootstrap));
    ck_assert_error(tsr__bootstrap_exchange(bootstrap, large, sizeof large, NULL, &blocks),
                    TSR_ERR_INVALID,
                    "bootstrap: a contribution of 65537 bytes is too large, the limit is 65536");
    ck_assert_error(tsr__bootstrap_exchange(bootstrap, NULL, 3, NULL, &blocks), TSR_ERR_INVALID,
                    "bootstrap: a contribution of 3 bytes is NULL");
    ck_assert_ok(tsr__bootstrap_exchange(bootstrap, large, sizeof large - 1, NULL,
                                         &blocks)); /* the bootstrap is still usable */
    tsr__bootstrap_gathered_finish(&blocks);
    tsr__bootstrap_close(&bootstrap);
    ck_assert_error(
        tsr__bootstrap_open(&(tsr__bootstrap_params){.kind = (tsr__bootstrap_kind)17}, &bootstrap),
        TSR_ERR_INVALID, "bootstrap: invalid kind 17");
    ck_assert_error(tsr__bootstrap_open(NULL, NULL), TSR_ERR_INVALID, "bootstrap: out is NULL");
}
END_TEST

TESTS(choose)
{
    tcase_add_loop_test(tests, chooses_by_what_is_there, 0,
                        (int)(sizeof choices / sizeof choices[0]));
    tcase_add_loop_test(tests, names_what_is_wrong, 0, (int)(sizeof mistakes / sizeof mistakes[0]));
    tcase_add_test(tests, a_single_process_logs_the_reason);
    tcase_add_test(tests, refuses_invalid_contributions);
}
