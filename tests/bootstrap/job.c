#include "bootstrap/job.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "support/check_main.h"

static job_rank *ranks; /* shared memory of all processes */
static pid_t pids[JOB_MAX];

/* One process appends to the log; other processes may read its first log_size bytes at any time. */
static void keep_log(void *user, tsr_log_level level, const char *message)
{
    job_rank *rank = user;
    (void)level;
    size_t length = strlen(message);
    if (rank->log_size + length + 2 > sizeof rank->log)
        return;
    memcpy(rank->log + rank->log_size, message, length);
    rank->log[rank->log_size + length] = '\n';
    __atomic_store_n(&rank->log_size, rank->log_size + length + 1, __ATOMIC_RELEASE);
}

static void share(void)
{
    if (ranks == NULL) {
        int zero = fileno(tmpfile());
        ck_assert_int_eq(ftruncate(zero, sizeof *ranks * JOB_MAX), 0);
        ranks = mmap(NULL, sizeof *ranks * JOB_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
        ck_assert(ranks != MAP_FAILED);
    }
}

void job_start(int slot, job_fn function, void *user)
{
    share();
    job_rank *rank = &ranks[slot];
    memset(rank, 0, sizeof *rank);
    fflush(NULL);
    pid_t parent = getpid();
    pids[slot] = fork();
    ck_assert_int_ge(pids[slot], 0);
    if (pids[slot] > 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    tsr_log_set(keep_log, rank, TSR_LOG_DEBUG);
    uint64_t start = tsr__now_ns();
    rank->status = function(slot, user);
    rank->took_ns = tsr__now_ns() - start;
    snprintf(rank->error, sizeof rank->error, "%s", rank->status != TSR_OK ? tsr_last_error() : "");
    exit(0); /* not _exit(), for the leak checker */
}

const job_rank *job_wait(int slot)
{
    int status;
    ck_assert_int_eq(waitpid(pids[slot], &status, 0), pids[slot]);
    ck_assert_msg(status == 0, "process %d ended with wait status 0x%x", slot, (unsigned)status);
    return &ranks[slot];
}

const job_rank *job_look(int slot)
{
    return &ranks[slot];
}

pid_t job_pid(int slot)
{
    return pids[slot];
}

void job_kill(int slot)
{
    kill(pids[slot], SIGKILL);
    ck_assert_int_eq(waitpid(pids[slot], NULL, 0), pids[slot]);
}

int job_count(int slot, const char *text)
{
    const job_rank *rank = &ranks[slot];
    size_t size = __atomic_load_n(&rank->log_size, __ATOMIC_ACQUIRE);
    int count = 0;
    size_t length = strlen(text);
    for (size_t i = 0; i + length <= size; i++)
        count += memcmp(rank->log + i, text, length) == 0;
    return count;
}

void job_wait_for(int slot, const char *text, int count)
{
    uint64_t deadline = tsr__deadline_ns(20 * TSR__SECOND);
    while (job_count(slot, text) < count) {
        ck_assert_msg(tsr__now_ns() < deadline, "only %d of %d times '%s' in the log:\n%.4000s",
                      job_count(slot, text), count, text, ranks[slot].log);
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
}

uint16_t job_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0); /* open until the test ends */
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int)), 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    return ntohs(address.sin_port);
}

tsr__rendezvous_params job_params(int rank, int size, uint16_t port)
{
    static const char token[] = "the token of the tests";
    return (tsr__rendezvous_params){
        .rank = rank,
        .size = size,
        .address = "127.0.0.1",
        .port = port,
        .token = token,
        .token_size = sizeof token - 1,
        .timeout_ns = 20 * TSR__SECOND,
    };
}

tsr_status job_exchange(tsr__rendezvous *rendezvous, const tsr__rendezvous_params *params,
                        uint64_t largest)
{
    static uint8_t mine[TSR__BOOTSTRAP_MAX_BYTES];
    uint64_t size = largest * (uint64_t)params->rank / (uint64_t)params->size;
    memset(mine, 'a' + params->rank, sizeof mine);
    tsr__bootstrap_gathered blocks;
    tsr__bootstrap_limit limit = tsr__bootstrap_limit_from_now(params->timeout_ns);
    TSR__TRY(tsr__rendezvous_exchange(rendezvous, mine, size, &limit, &blocks));
    bool right = blocks.starts[0] == 0;
    for (int32_t rank = 0; rank < params->size; rank++) {
        right = right && blocks.starts[rank + 1] - blocks.starts[rank] ==
                             largest * (uint64_t)rank / (uint64_t)params->size;
        for (uint64_t i = blocks.starts[rank]; right && i < blocks.starts[rank + 1]; i++)
            right = blocks.bytes[i] == 'a' + rank;
    }
    tsr__bootstrap_gathered_finish(&blocks);
    return right ? TSR_OK : tsr__fail(TSR_ERR_INVALID, "wrong bytes");
}

tsr_status job_meet(int slot, void *user)
{
    const tsr__rendezvous_params *params = user;
    (void)slot;
    tsr__rendezvous *rendezvous;
    TSR__TRY(tsr__rendezvous_open(params, &rendezvous));
    tsr_status status = job_exchange(rendezvous, params, 100);
    if (status == TSR_OK)
        status = job_exchange(rendezvous, params, TSR__BOOTSTRAP_MAX_BYTES);
    tsr__rendezvous_close(&rendezvous);
    return status;
}
