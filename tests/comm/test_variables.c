/* Environment variables that tsr_comm_create reads: an invalid value is an error at once. */
#include <stdlib.h>

#include "support/check_main.h"
#include "tessera/comm.h"

static const char *const good[] = {NULL, "", "on", "off"};

START_TEST(shared_memory)
{
    tsr_comm *comm = NULL;
    if (good[_i])
        setenv("TESSERA_SHARED_MEMORY", good[_i], 1);
    ck_assert_ok(tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_SINGLE), &comm));
    tsr_comm_destroy(&comm);
}
END_TEST

static const struct {
    const char *value, *error;
} bad[] = {
    {"maybe", "comm_create: TESSERA_SHARED_MEMORY is 'maybe', not on or off"},
    {"OFF", "comm_create: TESSERA_SHARED_MEMORY is 'OFF', not on or off"},
    {"0", "comm_create: TESSERA_SHARED_MEMORY is '0', not on or off"},
    {"off ", "comm_create: TESSERA_SHARED_MEMORY is 'off ', not on or off"},
};

START_TEST(shared_memory_mistakes)
{
    tsr_comm *comm = NULL;
    setenv("TESSERA_SHARED_MEMORY", bad[_i].value, 1);
    ck_assert_error(tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_SINGLE), &comm),
                    TSR_ERR_INVALID, bad[_i].error);
    ck_assert_ptr_null(comm);
}
END_TEST

/* Fails without waiting for the other ranks, which do not exist. */
START_TEST(too_many_ranks)
{
    tsr_comm *comm = NULL;
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "5000", 1);
    ck_assert_error(tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_ENV), &comm),
                    TSR_ERR_UNSUPPORTED, "comm_create: bootstrap: 5000 ranks are more than 4096");
    ck_assert_ptr_null(comm);
}
END_TEST

TESTS(variables)
{
    tcase_add_loop_test(tests, shared_memory, 0, (int)(sizeof good / sizeof *good));
    tcase_add_loop_test(tests, shared_memory_mistakes, 0, (int)(sizeof bad / sizeof *bad));
    tcase_add_test(tests, too_many_ranks);
}
