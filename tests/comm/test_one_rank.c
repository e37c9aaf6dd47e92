/* A build without UCX supports one rank, with which every operation works (test_operations.c), and
 * refuses several. */
#include <string.h>

#include "support/check_main.h"
#include "tessera/comm.h"

/* The bootstrap's all-gather: every rank contributes the same bytes as this one. */
static int all_alike(void *user, const void *mine, uint64_t size_bytes, void *all)
{
    const int size = *(const int *)user;
    for (int rank = 0; rank < size; rank++)
        memcpy((char *)all + (uint64_t)rank * size_bytes, mine, size_bytes);
    return 0;
}

START_TEST(several_are_refused)
{
    int size = 2;
    tsr_comm *comm = NULL;
    const tsr_comm_params params = {.struct_size = sizeof params,
                                    .bootstrap = TSR_BOOTSTRAP_CALLBACK,
                                    .rank = 1,
                                    .size = size,
                                    .all_gather = all_alike,
                                    .user = &size};
    ck_assert_error(tsr_comm_create(&params, &comm), TSR_ERR_UNSUPPORTED,
                    "comm_create: this build of tessera has no UCX");
    ck_assert_ptr_null(comm);
}
END_TEST

/* Split and duplicated communicators also have one rank, which cannot send to any other. */
START_TEST(one_is_a_communicator)
{
    tsr_comm *comm = NULL, *part = NULL, *twin = NULL, *none = NULL;
    float value = 3;
    ck_assert_ok(tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_SINGLE), &comm));
    ck_assert_int_eq(tsr_comm_size(comm), 1);
    ck_assert_int_eq(tsr_comm_local_size(comm), 1);
    ck_assert_ok(tsr_comm_split(comm, 7, 0, &part));
    ck_assert_ok(tsr_comm_split(comm, TSR_COLOUR_NONE, 0, &none));
    ck_assert_ptr_null(none);
    ck_assert_ok(tsr_comm_duplicate(part, &twin));
    tsr_comm_destroy(&part);
    tsr_comm_destroy(&comm);
    ck_assert_ok(tsr_comm_all_reduce(twin, &value, &value, 1, TSR_F32, TSR_OP_SUM, NULL));
    ck_assert(value == 3);
    ck_assert_int_eq(tsr_comm_send(twin, &value, 1, TSR_F32, 1, 0, NULL), TSR_ERR_INVALID);
    ck_assert_int_eq(tsr_comm_send(twin, &value, 1, TSR_F32, 0, 0, NULL), TSR_ERR_INVALID);
    tsr_comm_destroy(&twin);
}
END_TEST

START_TEST(one_is_left)
{
    tsr_comm *comm = NULL, *left = NULL, *larger = NULL;
    float value = 3;
    ck_assert_ok(tsr_comm_create(tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_SINGLE), &comm));
    setenv("TESSERA_MASTER_PORT", "29777", 1);
    ck_assert_ok(tsr_comm_shrink(comm, NULL, &left));
    ck_assert_error(tsr_comm_barrier(comm, NULL), TSR_ERR_PEER_LOST,
                    "rank 0 shrinks the communicator");
    tsr_comm_destroy(&comm);
    ck_assert_int_eq(tsr_comm_grow(left, tsr_comm_grow_params(.timeout_ns = 1000000), &larger),
                     TSR_ERR_TIMEOUT);
    ck_assert_ptr_nonnull(strstr(tsr_last_error(), "grow: no process has joined at 127.0.0.1:"));
    ck_assert_ok(tsr_comm_all_reduce(left, &value, &value, 1, TSR_F32, TSR_OP_SUM, NULL));
    ck_assert(value == 3);
    tsr_comm_destroy(&left);
}
END_TEST

TESTS(one_rank)
{
    tcase_add_test(tests, several_are_refused);
    tcase_add_test(tests, one_is_a_communicator);
    tcase_add_test(tests, one_is_left);
}
