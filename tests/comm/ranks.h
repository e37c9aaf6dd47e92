/* Real processes that are the ranks of a communicator, and what became of each of them. Their
 * bootstrap is a callback through memory that they share, so that nothing but the communicator is
 * tested. */
#ifndef TESTS_COMM_RANKS_H
#define TESTS_COMM_RANKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "support/check_main.h"
#include "tessera/comm.h"

#define RANKS_MOST 20

/* How ranks reach each other. */
typedef enum ranks_path {
    PATH_SHM,      /* shared memory, where they have it */
    PATH_MESSAGES, /* messages, which UCX sends through shared memory */
    PATH_TCP,      /* … or through sockets */
    PATHS
} ranks_path;
extern const char *const path_names[PATHS];

typedef struct ranks_job {
    int size;
    ranks_path path;
    bool reproducible;
    uint64_t timeout_ns; /* 0: 20 s */
    int fault;           /* n > 0: the last rank's n-th allocation fails, from its start on */
    /* What a rank does. It ends by returning, or where need() fails. */
    void (*run)(tsr_comm *comm, void *user);
    void *user;
} ranks_job;

typedef struct rank_record {
    char failure[1024]; /* what did not hold; "" when it returned */
    bool has_returned;
    int wait_status;
    double seconds; /* until it ended, from the start of the job */
} rank_record;

/* Starts them, waits until all have ended in order, or fails the test. */
void ranks_run(const ranks_job *job);

/* The same in steps. */
void ranks_start(const ranks_job *job);
void ranks_signal(int rank, int signal);
pid_t ranks_pid(int rank);
/* Waits for those that are still there, for 60 s at most; those that do not end are killed, and the
 * test fails. */
void ranks_wait(void);
const rank_record *ranks_record(int rank);
/* Fails the test unless this rank has returned without a failure. */
void ranks_check(int rank);

/* Memory of the test and all of its ranks, zero at each ranks_start. */
#define RANKS_SHARED (UINT64_C(8) << 20)
void *ranks_shared(void);

/* In a rank ------------------------------------------------------------------------------------ */

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
/* The call fails like this, with a text that holds `words`. */
#define need_error(call, status, words)                                                            \
    do {                                                                                           \
        tsr_status need_status_ = (call);                                                          \
        if (need_status_ != (status) || !strstr(tsr_last_error(), (words)))                        \
            rank_fail("%s:%d: %s: %s: %s", __FILE__, __LINE__, #call,                              \
                      tsr_status_name(need_status_),                                               \
                      need_status_ == TSR_OK ? "no error" : tsr_last_error());                     \
    } while (0)

/* Destroys the communicator of the rank before its end does. */
void rank_destroy(void);

/* Memory that the rank's end frees. */
void *rank_memory(uint64_t size_bytes);

#endif
