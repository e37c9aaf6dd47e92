/* Ranks for tests. Each is a process that runs a function and reports the result. */
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
    /* the library's log, one message per line */
    char log[1 << 20];
    size_t log_size;
} job_rank;

/* Runs a function in a process of its own. The function's status and the library's error text go to
 * the job_rank of `slot`. */
typedef tsr_status (*job_fn)(int slot, void *user);
void job_start(int slot, job_fn function, void *user);

/* Waits for the process and fails the test if it crashed or leaked. */
const job_rank *job_wait(int slot);
/* Returns the job_rank of a process that may still be running. */
const job_rank *job_look(int slot);
pid_t job_pid(int slot);
/* Kills the process with SIGKILL and waits for it. */
void job_kill(int slot);

/* Returns how often a text occurs in a rank's log. */
int job_count(int slot, const char *text);
/* Waits until the text occurs `count` times, for 20 s at most. */
void job_wait_for(int slot, const char *text, int count);

/* Returns a port of 127.0.0.1 that the kernel gives to no other process, but that a rank 0 can
 * bind. */
uint16_t job_port(void);

/* Returns the parameters of a rank at that port, with a token, no identity and a timeout of 20
 * s. */
tsr__rendezvous_params job_params(int rank, int size, uint16_t port);

/* Exchanges contributions of up to `largest` bytes and checks all received bytes. */
tsr_status job_exchange(tsr__rendezvous *rendezvous, const tsr__rendezvous_params *params,
                        uint64_t largest);

/* Opens a rendezvous and exchanges twice. `user` is its tsr__rendezvous_params. */
tsr_status job_meet(int slot, void *user);

#endif
