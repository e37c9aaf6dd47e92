/* Starts real processes as the ranks of a communicator, and records how each of them ends. Their
 * bootstrap is a callback that uses shared memory, so that only the communicator is tested. */
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "support/check_main.h"
#include "tessera/comm.h"

#define MAX_RANKS 20      /* of most tests */
#define RANKS_CAPACITY 64 /* the largest number of ranks that can be started */

/* How data get from one rank to another. */
typedef enum ranks_path {
    PATH_SHM,      /* the shared-memory transport, if it serves the operation */
    PATH_MESSAGES, /* messages, which UCX sends through shared memory */
    PATH_TCP,      /* messages, which UCX sends through sockets */
    PATHS
} ranks_path;
extern const char *const path_names[PATHS];

typedef struct ranks_job {
    int size;
    ranks_path path;
    bool reproducible;
    const char *hosts; /* each rank's host, named by one letter; NULL: all ranks are on one host */
    uint64_t timeout_ns; /* 0: 20 s */
    int fault; /* n > 0: the n-th allocation of the last rank fails, counted from the start of its
                  process */
    /* The function that each rank runs. The rank ends when it returns or when a need() fails. */
    void (*run)(tsr_comm *comm, void *user);
    void *user;
} ranks_job;

typedef struct rank_record {
    char failure[1024]; /* the text of the need() that failed; "" if run() returned */
    bool has_returned;
    int wait_status;
    double seconds; /* from the start of the job until it ended */
} rank_record;

/* Starts all ranks and waits for them. Fails the test unless all of them succeed. */
void ranks_run(const ranks_job *job);

/* Like ranks_run, but in steps: ranks_start starts the ranks, and the functions below wait for
 * them and check them. */
void ranks_start(const ranks_job *job);
/* Starts one more process, which joins by tsr_comm_create with TSR_BOOTSTRAP_JOIN and then calls
 * `run`. Returns its number; the first such process has number `size` of the job. If joining fails,
 * the record of the process says why, and `run` is not called. If `timeout_ns` is 0, the process
 * does not join, and `run` gets NULL as its communicator. */
int ranks_join(void (*run)(tsr_comm *comm, void *user), void *user, uint64_t timeout_ns);
void ranks_signal(int rank, int signal);
pid_t ranks_pid(int rank);
/* Waits for the ranks that are still running, for 60 s at most. Then it kills the remaining ones
 * and fails the test. */
void ranks_wait(void);
const rank_record *ranks_record(int rank);
/* Fails the test unless this rank has returned without a failure. */
void ranks_check(int rank);

/* Memory that the test and all ranks share. Each ranks_start sets it to zero. */
#define RANKS_SHARED (UINT64_C(8) << 20)
void *ranks_shared(void);

/* Chooses a free port and a token for a rendezvous, and sets them for processes that are started
 * from now on. */
void ranks_choose_port(void);

/* Functions that run in a rank ----------------------------------------------------------------- */

double seconds_now(void);
void rest_ms(int ms);

void rank_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
#define need(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            rank_fail("%s:%d: '%s' does not hold", __FILE__, __LINE__, #condition);                \
    } while (0)
#define need_ok(call)                                                                              \
    do {                                                                                           \
        tsr_status need_status_ = (call);                                                          \
        if (need_status_ != TSR_OK)                                                                \
            rank_fail("%s:%d: %s: %s: %s", __FILE__, __LINE__, #call,                              \
                      tsr_status_name(need_status_), tsr_last_error());                            \
    } while (0)
/* Requires that the call fails with this status, and with a text that contains `words`. */
#define need_error(call, status, words)                                                            \
    do {                                                                                           \
        tsr_status need_status_ = (call);                                                          \
        if (need_status_ != (status) || !strstr(tsr_last_error(), (words)))                        \
            rank_fail("%s:%d: %s: %s: %s", __FILE__, __LINE__, #call,                              \
                      tsr_status_name(need_status_),                                               \
                      need_status_ == TSR_OK ? "no error" : tsr_last_error());                     \
    } while (0)

/* Waits until `size` ranks have called this function. It can be used repeatedly. `arrived` is
 * memory that the ranks share, and must be 0 at first. Use it before a rank ends or shrinks a
 * communicator: a barrier of the communicator is not enough, because ranks that are still in the
 * barrier would get an error. */
void ranks_meet(_Atomic int *arrived, int size);

/* Destroys the rank's communicator before the rank ends. */
void rank_destroy(void);

/* Allocates memory that is freed when the rank ends. */
void *rank_memory(uint64_t size_bytes);

#endif
