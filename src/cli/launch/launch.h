/* tessera launch: starts several processes on this machine as one job. Shared by its files. */
#ifndef TSR_CLI_LAUNCH_LAUNCH_H
#define TSR_CLI_LAUNCH_LAUNCH_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "cli/lib/say.h"

#define LAUNCH_MAX_RANKS 1024

/* Exit codes for a program that could not be started, as in env(1). */
enum { LAUNCH_CANNOT_RUN = 126, LAUNCH_NOT_FOUND = 127 };

typedef struct launch_options {
    int64_t ranks;
    const char *device_map; /* NULL: not given */
    double grace;           /* seconds between SIGTERM and SIGKILL */
    bool no_prefix;
    char **program; /* its name and arguments, terminated by NULL */
} launch_options;

/* devices.c: the devices that ranks get in TESSERA_DEVICE. Rank r gets indices[r % count]; if count
 * is 0, TESSERA_DEVICE is left as it is. */
typedef struct launch_devices {
    int count;
    int indices[LAUNCH_MAX_RANKS];
} launch_devices;
/* Reads --device-map. Returns CLI_DONE or CLI_USAGE. */
int launch_devices_find(const char *map, launch_devices *out);

/* env.c: the environment of the ranks. */
typedef struct launch_env {
    int sockets[2];  /* reserve the ports for rank 0; they do not listen */
    int ports[2];    /* MASTER_PORT, TESSERA_MASTER_PORT */
    char token[65];  /* hexadecimal */
    char job_id[33]; /* hexadecimal */
    const launch_devices *devices;
    int ranks;
} launch_env;
/* Draws the token and reserves the ports. Returns false, with errno, on failure. */
bool launch_env_init(launch_env *env, int ranks, const launch_devices *devices);
void launch_env_finish(launch_env *env);
/* Returns the complete environment of a rank, in one block for free(). */
char **launch_env_of_rank(const launch_env *env, int rank);

/* guard.c: a process that kills the job's processes if the launcher is killed. */
typedef struct launch_guard {
    int pipe; /* −1: there is no guard */
    pid_t pid;
} launch_guard;
bool launch_guard_start(launch_guard *guard, const char *token);
void launch_guard_dismiss(launch_guard *guard);

/* output.c: passes on the lines of a rank's output, complete and with the rank in front. */
typedef struct launch_stream {
    int from, to; /* descriptors; `from` is −1 after the end */
    char prefix[16];
    char *line; /* what has been read of a line that is not complete */
    size_t used, capacity;
} launch_stream;

typedef struct launch_rank {
    pid_t pid; /* also the number of its process group */
    bool running;
    launch_stream streams[2];
} launch_rank;

/* The launcher's own settings, which it changes for itself and restores in the ranks. */
typedef struct launch_inherited {
    sigset_t mask;
    struct sigaction pipe, alarm;
    struct rlimit files;
} launch_inherited;

/* job.c: the state of a running job; its signals and deadlines. */
typedef struct launch_job {
    const launch_options *options;
    launch_rank *ranks;
    int started, running; /* numbers of ranks */
    launch_guard guard;
    launch_inherited inherited;
    int signal_fd;
    struct pollfd *polls;
    bool stopping;         /* the ranks have been sent a signal that ends them */
    bool killed;           /* SIGKILL has been sent */
    bool sweeping;         /* all ranks have ended; their children are being stopped */
    bool output_lost;      /* some output could not be written before give_up_at_ms */
    int64_t kill_at_ms;    /* when to send SIGKILL */
    int64_t give_up_at_ms; /* when to discard output that nobody reads; only a signal to the
                            * launcher sets it */
    int code;              /* the exit code of the launch: that of the first rank that failed */
} launch_job;
#define LAUNCH_NEVER INT64_MAX

/* Blocks the signals that the launcher handles and opens job->signal_fd. Returns false, with errno,
 * on failure. */
bool launch_job_catch_signals(launch_job *job);
/* Handles the signals that have arrived, and ranks that have ended. */
void launch_job_handle_signals(launch_job *job);
/* Sends SIGKILL once kill_at_ms has passed. */
void launch_job_keep_deadline(launch_job *job);
/* Sends a signal that ends the processes, and starts the grace period. */
void launch_job_stop(launch_job *job, int signal);
int64_t launch_now_ms(void);
/* The timeout for poll() until this time. */
int launch_poll_ms(int64_t then_ms);
/* Waits until a descriptor can be written to; handles signals and the grace period meanwhile, as
 * nobody may ever read the output. `stalled`: the last write failed although poll() had reported
 * room. Returns false, with errno, once the output has to be discarded. */
bool launch_job_wait_to_write(launch_job *job, int fd, bool stalled);
/* Prints a message on standard error; discards it if nobody reads it. */
void launch_job_say(launch_job *job, const char *format, ...) CLI_PRINTF(2, 3);
/* While this is on, a blocking call ends with EINTR after a moment. poll() is not enough: a
 * terminal with room for one byte counts as ready, and a write of two bytes blocks until somebody
 * reads. */
void launch_interrupt_calls(bool on);

/* output.c: passes on what can be read. `last`: treats an empty pipe as the end, although a process
 * outside the job may still hold it open. Returns false, with errno, if the output cannot be
 * written. */
bool launch_stream_pass(launch_stream *stream, launch_job *job, bool last);
void launch_stream_finish(launch_stream *stream);

/* rank.c: starts one rank. Returns 0, or the exit code of the launch after printing the reason. */
int launch_rank_start(launch_rank *rank, int number, const launch_env *env, launch_job *job);

/* children.c: sends a signal (0: none) to all present children of the launcher but the guard, and
 * returns their number. */
int launch_children_signal(pid_t guard, int signal);
/* Reaps the children that have ended and are neither ranks nor the guard: orphans of ranks. */
void launch_children_reap(const launch_rank *ranks, int count, pid_t guard);

/* run.c: runs a job from start to end and returns its exit code. */
int launch_run(const launch_options *options, const launch_devices *devices);

#endif
