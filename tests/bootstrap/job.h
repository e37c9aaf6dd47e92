/* Ranks for tests: processes that run a function and tell how it went. */
#ifndef TESTS_BOOTSTRAP_JOB_H
#define TESTS_BOOTSTRAP_JOB_H

#include <stdbool.h>
#include <sys/types.h>

#include "comm/bootstrap/rendezvous.h"

#define JOB_MAX 16

typedef struct job_rank {
    tsr_status status;
    char error[1024];
    uint64_t took_ns;
    /* What the library logged, a line each. */
    char log[1 << 20];
    size_t log_size;
} job_rank;

/* In a process of its own. `slot` chooses where its job_rank is; what the function returns, and the
 * library's error text, is put there. */
typedef tsr_status (*job_fn)(int slot, void *user);
void job_start(int slot, job_fn function, void *user);

/* Waits until it has ended, and fails the test unless it did so in order: no crash, no leak. */
const job_rank *job_wait(int slot);
/* Its record, while it runs. */
const job_rank *job_look(int slot);
pid_t job_pid(int slot);
/* Ends it with SIGKILL and buries it. */
void job_kill(int slot);

/* How often a text stands in a rank's log. */
int job_count(int slot, const char *text);
/* Waits until it stands there `count` times, for 20 s at most. */
void job_wait_for(int slot, const char *text, int count);

/* A port of 127.0.0.1 that only those get who ask for it. */
uint16_t job_port(void);

/* Parameters of a rank at that port, with a token and 20 s. */
tsr__rendezvous_params job_params(int rank, int size, uint16_t port);

/* One exchange, of blocks up to `largest` bytes, and a check of what came. */
tsr_status job_exchange(tsr__rendezvous *rendezvous, const tsr__rendezvous_params *params,
                        uint64_t largest);

/* Boots at a rendezvous, exchanges twice. `user`: its tsr__rendezvous_params.
 */
tsr_status job_meet(int slot, void *user);

#endif
