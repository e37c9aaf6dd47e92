/* Tests how a process finds the identity of its job in its environment. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/bootstrap/job_identity.h"
#include "support/check_main.h"

static tsr__identity identity;

/* Reads the identity with the variables of a text such as "A=1 B=2". No other variables that matter
 * are set. */
static void init_with(const char *variables)
{
    static const char *const names[] = {"TESSERA_JOB_ID", "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID",
                                        "SLURM_HET_JOB_ID", "SLURM_STEP_ID"};
    char copy[256];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        unsetenv(names[i]);
    snprintf(copy, sizeof copy, "%s", variables);
    for (char *one = strtok(copy, " "); one != NULL; one = strtok(NULL, " ")) {
        char *value = strchr(one, '=');
        ck_assert_ptr_nonnull(value);
        *value = '\0';
        setenv(one, value + 1, 1);
    }
    tsr__identity_init(&identity);
}

static const char *text(tsr__identity_field field, bool loopback)
{
    const char *found = tsr__identity_text(&identity, field, loopback);
    return found != NULL ? found : "(none)";
}

START_TEST(is_user_and_executable)
{
    char user[24], path[4096] = "";
    init_with("");
    snprintf(user, sizeof user, "%lu", (unsigned long)geteuid());
    ck_assert_int_gt(readlink("/proc/self/exe", path, sizeof path - 1), 0);
    ck_assert_str_eq(text(TSR__IDENTITY_USER, true), user);
    ck_assert_str_eq(text(TSR__IDENTITY_EXECUTABLE, true), path);
    /* User ids and folders may differ between machines, so a job on several machines leaves them
     * out of its identity. */
    ck_assert_str_eq(text(TSR__IDENTITY_USER, false), "(none)");
    ck_assert_str_eq(text(TSR__IDENTITY_EXECUTABLE, false), strrchr(path, '/') + 1);
    for (int loopback = 0; loopback < 2; loopback++) {
        ck_assert_str_eq(text(TSR__IDENTITY_JOB_ID, loopback), "(none)");
        ck_assert_str_eq(text(TSR__IDENTITY_TORCHRUN, loopback), "(none)");
        ck_assert_str_eq(text(TSR__IDENTITY_SLURM, loopback), "(none)");
    }
}
END_TEST

static const struct {
    const char *variables, *torchrun, *slurm;
} launchers[] = {
    {"TORCHELASTIC_RUN_ID=a", "a", "(none)"},
    {"SLURM_JOB_ID=12 SLURM_STEP_ID=3", "(none)", "12.3"},
    {"SLURM_JOB_ID=12", "(none)", "12"},
    {"SLURM_JOB_ID=13 SLURM_HET_JOB_ID=12 SLURM_STEP_ID=3", "(none)", "12.3"},
    /* Each node's torchrun may be a Slurm step of its own, so the step is no part of the
     * identity. */
    {"SLURM_JOB_ID=12 SLURM_STEP_ID=3 TORCHELASTIC_RUN_ID=a", "a", "12"},
};

START_TEST(is_that_of_the_launcher)
{
    init_with(launchers[_i].variables);
    ck_assert_str_eq(text(TSR__IDENTITY_TORCHRUN, true), launchers[_i].torchrun);
    ck_assert_str_eq(text(TSR__IDENTITY_SLURM, false), launchers[_i].slurm);
}
END_TEST

START_TEST(is_the_job_id_alone)
{
    init_with("TESSERA_JOB_ID=nightly TORCHELASTIC_RUN_ID=a SLURM_JOB_ID=12 SLURM_STEP_ID=3");
    ck_assert_str_eq(text(TSR__IDENTITY_JOB_ID, true), "nightly");
    for (int field = TSR__IDENTITY_JOB_ID + 1; field < TSR__IDENTITY_FIELDS; field++)
        ck_assert_str_eq(text((tsr__identity_field)field, true), "(none)");
}
END_TEST

START_TEST(differences_are_explained)
{
    char explained[180], expected[180];
    init_with("TORCHELASTIC_RUN_ID=secret");
    memset(identity.executable, 'x', 300);
    strcpy(identity.executable + 300, "/train");
    ck_assert_str_eq(
        tsr__identity_difference(&identity, TSR__IDENTITY_EXECUTABLE, explained, sizeof explained),
        strcat(strcat(strcpy(expected, "runs another executable, this process runs '…"),
                      identity.executable + 306 - 100),
               "'"));
    ck_assert_str_eq(
        tsr__identity_difference(&identity, TSR__IDENTITY_TORCHRUN, explained, sizeof explained),
        "has another TORCHELASTIC_RUN_ID");
    ck_assert_str_eq(
        tsr__identity_difference(&identity, TSR__IDENTITY_SLURM, explained, sizeof explained),
        "belongs to another Slurm job or step, this process to none");
}
END_TEST

TESTS(identity)
{
    tcase_add_test(tests, is_user_and_executable);
    tcase_add_loop_test(tests, is_that_of_the_launcher, 0,
                        (int)(sizeof launchers / sizeof launchers[0]));
    tcase_add_test(tests, is_the_job_id_alone);
    tcase_add_test(tests, differences_are_explained);
}
