#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "comm/ranks.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdalign.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fault.h"
#include "comm/comm_state.h"
#include "support/random.h"

#define MAX_BLOCK 65536
#define EXCHANGES 8
static double patience = 60; /* seconds in which all ranks must end */

const char *const path_names[PATHS] = {"shm", "messages", "tcp"};

typedef struct shared {
    rank_record records[RANKS_CAPACITY];
    _Atomic int arrived[EXCHANGES];
    _Atomic bool has_given_up; /* some rank could not create its communicator */
    uint8_t blocks[2][RANKS_CAPACITY][MAX_BLOCK];
    alignas(64) uint8_t user[RANKS_SHARED];
} shared;

static shared *common;
static ranks_job current;
static pid_t pids[RANKS_CAPACITY];
static double started;
static int my_rank = -1, exchanges;
static tsr_comm *world;
static void *memory[64];
static int memories;

double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void rest_ms(int ms)
{
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000L}, NULL);
}

void *ranks_shared(void)
{
    return common->user;
}

/* Linux gives the ports from 32768 on to sockets that ask for any port. Ranks use such ports
 * after losses, so this function chooses a port below 32768, which is free unless another test
 * chooses it, too. */
void ranks_choose_port(void)
{
    enum { LOWEST = 15000, HIGHEST = 32767, TRIES = 1000 };
    char text[16];
    uint64_t random = (uint64_t)getpid() ^ (uint64_t)(seconds_now() * 1e9);
    int port = 0, taken = -1;
    for (int i = 0; i < TRIES && taken != 0; i++) {
        struct sockaddr_in address = {.sin_family = AF_INET};
        port = (int)random_between(&random, LOWEST, HIGHEST);
        address.sin_port = htons((uint16_t)port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        ck_assert_int_ge(fd, 0);
        taken = bind(fd, (const struct sockaddr *)&address, sizeof address);
        close(fd);
    }
    ck_assert_int_eq(taken, 0);
    snprintf(text, sizeof text, "%d", port);
    setenv("TESSERA_MASTER_PORT", text, 1);
    setenv("TESSERA_TOKEN", "0123456789abcdef", 1);
}

/* Default options of the sanitizers, which call these functions by their names. */
const char *__asan_default_options(void);
const char *__lsan_default_options(void);

/* Disables symbols in the sanitizer's reports, because reading them takes each rank ten times as
 * long as all its work. Reports still contain addresses, for addr2line, and the name of the
 * library that leaks. */
const char *__asan_default_options(void)
{
    return "symbolize=0";
}

/* Disables the leak checker's search in thread-local memory: it fails on that of libraries that
 * have just been unloaded. */
const char *__lsan_default_options(void)
{
    return "use_tls=0:print_suppressions=0";
}

/* Functions that run in a rank ----------------------------------------------------------------- */

void rank_fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(common->records[my_rank].failure, sizeof common->records[my_rank].failure, format,
              arguments);
    va_end(arguments);
    if (getenv("TEST_LOG"))
        fprintf(stderr, "rank %d: %s\n", my_rank, common->records[my_rank].failure);
    _exit(3);
}

void ranks_meet(_Atomic int *arrived, int size)
{
    const int turn = atomic_fetch_add(arrived, 1) / size;
    const double end = seconds_now() + 60;
    while (atomic_load(arrived) < (turn + 1) * size) {
        need(seconds_now() < end);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
}

void rank_destroy(void)
{
    tsr_comm_destroy(&world);
}

void *rank_memory(uint64_t size_bytes)
{
    need(memories < (int)(sizeof memory / sizeof memory[0]));
    void *taken = calloc(size_bytes ? size_bytes : 1, 1);
    need(taken);
    memory[memories++] = taken;
    return taken;
}

static int all_gather(void *user, const void *mine, uint64_t size_bytes, void *all)
{
    (void)user;
    const int turn = exchanges++;
    if (turn >= EXCHANGES || size_bytes > MAX_BLOCK)
        return 1;
    memcpy(common->blocks[turn % 2][my_rank], mine, size_bytes);
    atomic_fetch_add(&common->arrived[turn], 1);
    const double end = seconds_now() + 30;
    while (atomic_load(&common->arrived[turn]) < current.size) {
        if (seconds_now() > end || common->has_given_up)
            return 1;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    for (int i = 0; i < current.size; i++)
        memcpy((uint8_t *)all + (uint64_t)i * size_bytes, common->blocks[turn % 2][i], size_bytes);
    return 0;
}

/* Ends the rank with exit(), so that a leak checker runs. A failed dlopen leaves its message in
 * thread-local memory, which the checker does not search; the second dlerror() frees it. */
static void leave(void)
{
    (void)dlerror();
    (void)dlerror();
    exit(0);
}

static void print_log(void *user, tsr_log_level level, const char *message)
{
    (void)user;
    fprintf(stderr, "rank %d: log %d: %s\n", my_rank, (int)level, message);
}

static void end_without(tsr_status status)
{
    snprintf(common->records[my_rank].failure, sizeof common->records[my_rank].failure, "%s: %s",
             tsr_status_name(status), tsr_last_error());
    if (getenv("TEST_LOG"))
        fprintf(stderr, "rank %d: %s\n", my_rank, common->records[my_rank].failure);
    common->has_given_up = true;
    leave();
}

static void set_up(int rank)
{
    my_rank = rank;
    if (getenv("TEST_LOG"))
        tsr_log_set(print_log, NULL, TSR_LOG_DEBUG);
    if (current.path != PATH_SHM)
        setenv("TESSERA_SHARED_MEMORY", "off", 1);
    if (current.path == PATH_TCP)
        setenv("UCX_TLS", "tcp,self", 1);
    if (current.hosts)
        setenv("TESSERA_NODE", (const char[]){current.hosts[rank], '\0'}, 1);
}

static void run_and_leave(void)
{
    current.run(world, current.user);
    rank_destroy();
    while (memories > 0)
        free(memory[--memories]);
    common->records[my_rank].has_returned = true;
    leave();
}

static void be_newcomer(int rank, uint64_t timeout_ns)
{
    set_up(rank);
    tsr_status status = TSR_OK;
    if (timeout_ns > 0)
        status = tsr_comm_create(
            tsr_comm_params(.bootstrap = TSR_BOOTSTRAP_JOIN, .timeout_ns = timeout_ns), &world);
    if (status != TSR_OK)
        end_without(status);
    run_and_leave();
}

static void be_rank(int rank)
{
    set_up(rank);
    const tsr_comm_params params = {.struct_size = sizeof params,
                                    .bootstrap = TSR_BOOTSTRAP_CALLBACK,
                                    .rank = rank,
                                    .size = current.size,
                                    .all_gather = all_gather,
                                    .reproducible = current.reproducible,
                                    .timeout_ns = current.timeout_ns ? current.timeout_ns
                                                                     : UINT64_C(20000000000)};
    if (current.fault > 0 && rank == current.size - 1)
        tsr__fault_arm(TSR__FAULT_ALLOC, (uint64_t)current.fault - 1, 0);
    const tsr_status status = tsr_comm_create(&params, &world);
    tsr__fault_disarm();
    if (status != TSR_OK && current.fault > 0)
        end_without(status);
    need_ok(status);
    need(current.hosts || (world->shm != NULL) == (current.path == PATH_SHM && current.size > 1));
    run_and_leave();
}

/* Functions that run in the test --------------------------------------------------------------- */

/* Forks. Returns true in the new process. */
static bool start_process(int number)
{
    const pid_t parent = getpid();
    pids[number] = fork();
    ck_assert_int_ge(pids[number], 0);
    if (pids[number] > 0)
        return false;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    return true;
}

void ranks_start(const ranks_job *job)
{
    ck_assert_int_le(job->size, RANKS_CAPACITY);
    if (common)
        munmap(common, sizeof *common);
    common = mmap(NULL, sizeof *common, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(common != MAP_FAILED);
    current = *job;
    started = seconds_now();
    if (getenv("TESSERA_TEST_SOAK"))
        patience = 3000;
    fflush(NULL);
    for (int i = 0; i < job->size; i++) {
        if (start_process(i))
            be_rank(i);
    }
}

int ranks_join(void (*run)(tsr_comm *comm, void *user), void *user, uint64_t timeout_ns)
{
    const int number = current.size;
    ck_assert_int_lt(number, MAX_RANKS);
    current.size++;
    current.run = run;
    current.user = user;
    if (start_process(number))
        be_newcomer(number, timeout_ns);
    return number;
}

void ranks_signal(int rank, int signal)
{
    if (pids[rank] > 0)
        kill(pids[rank], signal);
}

pid_t ranks_pid(int rank)
{
    return pids[rank];
}

const rank_record *ranks_record(int rank)
{
    return &common->records[rank];
}

/* Reaps the ranks that have ended. Returns how many are still running. */
static int collect(void)
{
    int left = 0;
    for (int i = 0; i < current.size; i++) {
        rank_record *record = &common->records[i];
        if (pids[i] == 0)
            continue;
        if (waitpid(pids[i], &record->wait_status, WNOHANG) == pids[i]) {
            pids[i] = 0;
            record->seconds = seconds_now() - started;
        } else {
            left++;
        }
    }
    return left;
}

void ranks_wait(void)
{
    const double end = seconds_now() + patience;
    char stuck[256] = "";
    while (collect() > 0) {
        if (seconds_now() < end) {
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            continue;
        }
        for (int i = 0; i < current.size; i++) {
            if (pids[i] == 0)
                continue;
            snprintf(stuck + strlen(stuck), sizeof stuck - strlen(stuck), " %d", i);
            kill(pids[i], SIGKILL);
            waitpid(pids[i], NULL, 0);
            pids[i] = 0;
        }
    }
    ck_assert_msg(!stuck[0], "%s: %d ranks: these did not end:%s", path_names[current.path],
                  current.size, stuck);
}

void ranks_check(int rank)
{
    const rank_record *record = &common->records[rank];
    /* Prints how all ranks failed or ended, because one failure causes others. */
    for (int i = 0; i < current.size && record->failure[0]; i++) {
        const rank_record *other = &common->records[i];
        if (other->failure[0])
            fprintf(stderr, "%s: rank %d of %d, after %.2f s: %s\n", path_names[current.path], i,
                    current.size, other->seconds, other->failure);
        else if (other->wait_status != 0 || !other->has_returned)
            fprintf(stderr, "%s: rank %d of %d, after %.2f s: wait status 0x%x\n",
                    path_names[current.path], i, current.size, other->seconds,
                    (unsigned)other->wait_status);
    }
    ck_assert_msg(!record->failure[0], "%s: rank %d of %d: %s", path_names[current.path], rank,
                  current.size, record->failure);
    ck_assert_msg(record->wait_status == 0 && record->has_returned,
                  "%s: rank %d of %d ended with wait status 0x%x", path_names[current.path], rank,
                  current.size, (unsigned)record->wait_status);
}

void ranks_run(const ranks_job *job)
{
    ranks_start(job);
    ranks_wait();
    for (int i = 0; i < job->size; i++)
        ranks_check(i);
}
