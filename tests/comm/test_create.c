/* Creating a communicator: the parameters that it refuses, and the deadline, which is one for
 * all steps: it must hold whichever step another rank does not reach. */
#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/bootstrap/bootstrap.h"
#include "comm/ranks.h"
#include "comm/ucx/transport.h"

static void set_variables(int rank, uint16_t port)
{
    char text[16];
    snprintf(text, sizeof text, "%d", (int)port);
    setenv("TESSERA_MASTER_PORT", text, 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("RANK", rank == 0 ? "0" : "1", 1);
}

/* Starts the bootstrap late as rank 1, and then does nothing more, so that rank 0 waits for it. */
static void be_rank_one(uint16_t port)
{
    tsr__bootstrap *bootstrap;
    set_variables(1, port);
    rest_ms(1000);
    if (tsr__bootstrap_open(&(tsr__bootstrap_params){.kind = TSR__BOOTSTRAP_ENV}, &bootstrap) !=
        TSR_OK)
        _exit(1);
    pause();
}

/* Returns a port that the kernel assigns to no other process while this one runs. */
static uint16_t free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    return ntohs(address.sin_port);
}

START_TEST(variables_of_ucx)
{
    /* Pairs of the value before and the one afterwards. */
    const char *const values[][2] = {{NULL, "256k"}, {"128k", "128k"}};
    for (int i = 0; i < 2; i++) {
        tsr__transport *transport = NULL;
        unsetenv("UCX_TCP_RX_SEG_SIZE");
        if (values[i][0])
            setenv("UCX_TCP_RX_SEG_SIZE", values[i][0], 1);
        ck_assert_int_eq(tsr__transport_create(false, &transport), TSR_OK);
        ck_assert_str_eq(getenv("UCX_TCP_RX_SEG_SIZE"), values[i][1]);
        tsr__transport_destroy(&transport, tsr__now_ns() + 1000000000);
    }
    (void)dlerror(); /* frees its message for the leak checker, as in ranks.c */
    (void)dlerror();
}
END_TEST

START_TEST(one_deadline_covers_all_steps)
{
    tsr_comm *comm = NULL;
    const uint16_t port = free_port();
    const pid_t other = fork();
    ck_assert_int_ge(other, 0); /* kill(-1) would signal all processes */
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        be_rank_one(port);
    }
    set_variables(0, port);
    const double start = seconds_now();
    ck_assert_error(
        tsr_comm_create(
            tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_ENV, .timeout_ns = UINT64_C(2000000000)),
            &comm),
        TSR_ERR_TIMEOUT,
        "comm_create: rendezvous: after 2.0 s these of 2 ranks have not joined the exchange: 1");
    ck_assert_double_lt(seconds_now() - start, 3);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    (void)dlerror(); /* frees its message for the leak checker, as in ranks.c */
    (void)dlerror();
}
END_TEST

START_TEST(an_unknown_bootstrap_is_refused)
{
    tsr_comm *comm = NULL;
    ck_assert_error(tsr_comm_create(tsr_comm_params(.bootstrap = (tsr_bootstrap)9), &comm),
                    TSR_ERR_INVALID, "comm_create: unsupported bootstrap 9");
    ck_assert_error(tsr_comm_create(tsr_comm_params(.bootstrap = (tsr_bootstrap)-1), &comm),
                    TSR_ERR_INVALID, "comm_create: unsupported bootstrap -1");
    ck_assert_ptr_null(comm);
}
END_TEST

TESTS(create)
{
    tcase_add_test(tests, an_unknown_bootstrap_is_refused);
    tcase_add_test(tests, variables_of_ucx);
    tcase_add_test(tests, one_deadline_covers_all_steps);
}
