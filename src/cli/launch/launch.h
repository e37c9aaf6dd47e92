/* tessera launch: one job of several processes on this machine. What its files share. */
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

/* Exit codes of a program that could not be started, as those of env(1). */
enum { LAUNCH_CANNOT_RUN = 126, LAUNCH_NOT_FOUND = 127 };

typedef struct launch_options {
    int64_t ranks;
    const char *device_map; /* NULL: not given */
    double grace;           /* seconds between TERM and KILL */
    bool no_prefix;
    char **program; /* its name and arguments, ending with NULL */
} launch_options;

/* devices.c: what TESSERA_DEVICE is to be for each rank: `count` texts that repeat, or none.
 * A usage error, or CLI_DONE. */
typedef struct launch_devices {
    int count;
    int indices[LAUNCH_MAX_RANKS];
} launch_devices;
int launch_devices_find(const char *map, launch_devices *out);

/* env.c: what all ranks have in common. The sockets keep two ports free for rank 0; they do
 * not listen. */
typedef struct launch_env {
    int sockets[2];
    int ports[2];    /* MASTER_PORT, TESSERA_MASTER_PORT */
    char token[65];  /* hexadecimal */
    char job_id[33]; /* hexadecimal */
    const launch_devices *devices;
    int ranks;
} launch_env;
bool launch_env_init(launch_env *env, int ranks, const launch_devices *devices);
void launch_env_finish(launch_env *env);
/* A rank's whole environment, in one block for free(). */
char **launch_env_of_rank(const launch_env *env, int rank);

/* guard.c: a process that outlives a killed launcher by a moment, to kill what it started.
 */
typedef struct launch_guard {
    int pipe; /* −1: there is none */
    pid_t pid;
} launch_guard;
bool launch_guard_start(launch_guard *guard, const char *token);
void launch_guard_dismiss(launch_guard *guard);

typedef struct launch_job launch_job;

/* output.c: lines of ranks, whole and with their rank in front. */
typedef struct launch_stream {
    int from, to;
    char prefix[16];
    char *line;
    size_t used, capacity;
} launch_stream;
/* Passes on what there is. False once nothing can be written any more; `from` becomes −1 at its
 * end. `last`: that is where there is nothing now, though somebody outside of the job may hold it
 * open. */
bool launch_stream_pass(launch_stream *stream, launch_job *job, bool last);
void launch_stream_finish(launch_stream *stream);
/* While it is on, a call that waits ends with EINTR after a moment. poll() promises too little: a
 * terminal with room for one byte is ready, and a write of two waits until somebody reads. */
void launch_hurry(bool on);

/* rank.c */
typedef struct launch_rank {
    pid_t pid; /* and its process group */
    bool running;
    launch_stream streams[2];
} launch_rank;

/* What ranks are to have as the launcher itself was started with it. */
typedef struct launch_inherited {
    sigset_t mask;
    struct sigaction pipe, alarm;
    struct rlimit files;
} launch_inherited;

/* Starts one rank. 0, or the exit code of the launch, the reason having been said. */
int launch_rank_start(launch_rank *rank, int number, const launch_options *options,
                      const launch_env *env, const launch_inherited *inherited, launch_job *job);

/* children.c */
/* Sends a signal (0: none) to every process that is the launcher's child now, the guard excepted.
 * How many there are. */
int launch_children_signal(pid_t guard, int signal);
/* Waits for what has ended of the children that are neither ranks nor the guard. */
void launch_children_bury(const launch_rank *ranks, int count, pid_t guard);

/* run.c: the whole job; its exit code. */
int launch_run(const launch_options *options, const launch_devices *devices);
/* Waits until an output takes something. Meanwhile signals and the end of the grace period are
 * served: nobody may ever read it. `stalled`: it has just taken nothing, whatever poll() says.
 * False, with errno, once what is left is to be given up. */
bool launch_wait_to_write(launch_job *job, int fd, bool stalled);
/* Says something on standard error, unless nobody reads it. */
void launch_say(launch_job *job, const char *format, ...) CLI_PRINTF(2, 3);

#endif
