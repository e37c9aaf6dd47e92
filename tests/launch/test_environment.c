/* Tests the environment of ranks and their standard input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launch/launched.h"
#include "support/check_main.h"

static const char show_all[] =
    "-n~3~--device-map~4,1~sh~-c~echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR "
    "$TESSERA_DEVICE $TESSERA_BOOT ${PMIX_RANK-none} ${TORCHELASTIC_RUN_ID-none} "
    "$MASTER_PORT $TESSERA_MASTER_PORT $TESSERA_TOKEN $TESSERA_JOB_ID >$FOLDER/rank.$RANK";

START_TEST(sets_the_variables_of_ranks)
{
    char token[2][65] = {""}, job_id[2][48] = {""};
    setenv("PMIX_RANK", "7", 1);
    setenv("TORCHELASTIC_RUN_ID", "x", 1);
    setenv("TESSERA_TOKEN", "that of an outer launcher", 1);
    setenv("TESSERA_JOB_ID", "that of an outer launcher", 1);
    for (int round = 0; round < 2; round++) {
        launched job = launch(show_all);
        ck_assert_str_eq(job.err, "");
        ck_assert_int_eq(job.status, 0);
        int ports[2] = {0};
        for (int rank = 0; rank < 3; rank++) {
            char name[24], expected[256], one[65], id[48];
            int port[2];
            snprintf(name, sizeof name, "rank.%d", rank);
            char *said = read_file(name);
            snprintf(expected, sizeof expected, "%d 3 %d 3 127.0.0.1 %d env none none ", rank, rank,
                     rank == 1 ? 1 : 4);
            ck_assert_msg(strncmp(said, expected, strlen(expected)) == 0, "'%s' and not '%s'", said,
                          expected);
            ck_assert_int_eq(
                sscanf(said + strlen(expected), "%d %d %64s %47s", &port[0], &port[1], one, id), 4);
            free(said);
            if (rank == 0) {
                memcpy(ports, port, sizeof ports);
                strcpy(token[round], one);
                strcpy(job_id[round], id);
            }
            ck_assert_int_eq(port[0], ports[0]);
            ck_assert_int_eq(port[1], ports[1]);
            ck_assert_str_eq(one, token[round]);
            ck_assert_str_eq(id, job_id[round]);
        }
        ck_assert_int_ne(ports[0], ports[1]);
        ck_assert_int_ge(ports[0], 1024);
        ck_assert_uint_eq(strlen(token[round]), 64);
        ck_assert_uint_eq(strspn(token[round], "0123456789abcdef"), 64);
        done(&job);
    }
    ck_assert_str_ne(token[0], token[1]);
    ck_assert_str_ne(job_id[0], job_id[1]);
    ck_assert_int_eq(strncmp(job_id[0], "launch-", 7), 0);
}
END_TEST

START_TEST(leaves_a_device_that_is_set)
{
    setenv("VK_DRIVER_FILES", "/proc/nonexistent.json", 1);
    setenv("VK_ICD_FILENAMES", "/proc/nonexistent.json", 1);
    unsetenv("TESSERA_DEVICE");
    launched job = launch("-n~1~sh~-c~echo ${TESSERA_DEVICE-none}");
    ck_assert_str_eq(job.out, "[0] none\n"); /* the machine has no device */
    done(&job);
    setenv("TESSERA_DEVICE", "of mine", 1);
    job = launch("-n~1~sh~-c~echo ${TESSERA_DEVICE-none}");
    ck_assert_str_eq(job.out, "[0] of mine\n");
    done(&job);
    job = launch("-n~1~--device-map~3~sh~-c~echo ${TESSERA_DEVICE-none}");
    ck_assert_str_eq(job.out, "[0] 3\n");
    done(&job);
}
END_TEST

START_TEST(gives_standard_input_to_rank_0)
{
    FILE *in = fopen(in_folder("in"), "w");
    ck_assert_ptr_nonnull(in);
    fputs("one\ntwo\n", in);
    fclose(in);
    launched job = launch("-n~3~cat");
    ck_assert_str_eq(job.out, "[0] one\n[0] two\n");
    ck_assert_int_eq(job.status, 0);
    done(&job);
}
END_TEST

TESTS(environment)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, sets_the_variables_of_ranks);
    tcase_add_test(tests, leaves_a_device_that_is_set);
    tcase_add_test(tests, gives_standard_input_to_rank_0);
}
