/* tessera launch: starts several processes on this machine as one job. This header is shared by the
 * files of this folder. */
#ifndef TSR_CLI_LAUNCH_LAUNCH_H
#define TSR_CLI_LAUNCH_LAUNCH_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "cli/lib/say.h"

#define LAUNCH_MAX_RANKS 1024
#define LAUNCH_MAX_VALUE 64 /* bytes of the value of a report, with the terminating 0 */
#define LAUNCH_GRACE 5.0    /* default of --grace */
#define LAUNCH_GRACE_UNSET (-1.0)
#define LAUNCH_MAX_GRACE 86400.0

/* Exit codes if the program cannot be started, as in env(1). */
enum { LAUNCH_CANNOT_RUN = 126, LAUNCH_NOT_FOUND = 127 };

typedef struct launch_options {
    int64_t ranks;
    const char *device_map; /* the value of --device-map, or NULL */
    double grace;           /* seconds between SIGTERM and SIGKILL, or LAUNCH_GRACE_UNSET */
    bool no_prefix;
    bool keep_going; /* a failed rank does not end the others */
    int64_t respawn; /* how many failures of ranks are made good by new ones; implies keep_going */
    char **program;  /* the program's name and arguments, terminated by NULL */
} launch_options;

/* devices.c: the devices that the ranks get in TESSERA_DEVICE. Rank r gets indices[r % count]. If
 * count is 0, TESSERA_DEVICE is not changed. */
typedef struct launch_devices {
    int count;
    int indices[LAUNCH_MAX_RANKS];
} launch_devices;
/* Interprets the value of --device-map. Returns CLI_DONE or CLI_USAGE. */
int launch_devices_find(const char *map, launch_devices *out);

/* env.c: the environment of the ranks. */
typedef struct launch_env {
    int sockets[2];  /* reserve the two ports for rank 0; they do not listen */
    int ports[2];    /* for MASTER_PORT and TESSERA_MASTER_PORT */
    char token[65];  /* hexadecimal */
    char job_id[33]; /* hexadecimal */
    const launch_devices *devices;
    int ranks;
    int report_fd; /* for TESSERA_LAUNCH, and its number of a file */
    uint64_t report_inode;
    char restart[LAUNCH_MAX_VALUE]; /* for TESSERA_RESTART; empty: the first start */
} launch_env;
/* Creates a random token and reserves the ports. On failure, returns false and sets errno. */
bool launch_env_init(launch_env *env, int ranks, const launch_devices *devices);
void launch_env_finish(launch_env *env);
/* Returns the complete environment of a rank, whose reports start with the number `serial`. It is
 * one block of memory; free it with free(). If `joins` is true, it is the environment of a process
 * that gets the rank's device and joins the running job. */
char **launch_env_of_rank(const launch_env *env, int rank, bool joins, int serial);

/* guard.c: a process that kills the job's processes if the launcher is killed. */
typedef struct launch_guard {
    int pipe; /* −1: there is no guard */
    pid_t pid;
} launch_guard;
bool launch_guard_start(launch_guard *guard, const char *token);
void launch_guard_dismiss(launch_guard *guard);

/* messages.c: messages of the tool that ranks have printed on standard error. A message that
 * several ranks print is passed on as often as one of them has printed it. */
#define LAUNCH_MAX_MESSAGES 64 /* different messages; more are always passed on */
typedef struct launch_message {
    char *text;
    size_t length;
    int *times; /* [ranks]: how often each rank has printed it */
    int passed; /* how often it was passed on */
} launch_message;
typedef struct launch_messages {
    int ranks; /* replacements for failed ranks included */
    int count;
    launch_message each[LAUNCH_MAX_MESSAGES];
} launch_messages;
/* Returns whether a line on standard error of a rank must be passed on. */
bool launch_messages_pass(launch_messages *messages, int rank, const char *line, size_t length);
void launch_messages_finish(launch_messages *messages);

/* output.c: passes on the output of a rank, in complete lines that begin with the rank's number. */
typedef struct launch_stream {
    int from, to; /* file descriptors; `from` is −1 after the end of the output */
    int rank;     /* the rank's number; replacements for failed ranks have numbers of their own */
    char prefix[16];
    char *line; /* the bytes of a line that is not complete yet */
    size_t used, capacity;
} launch_stream;

typedef struct launch_rank {
    pid_t pid; /* number of the process and of its process group */
    bool running;
    bool ending;    /* the process has ended, but that has not been handled yet */
    int place;      /* the rank that this process replaces, or its own rank if it replaces none */
    int serial;     /* identifies the process in its reports */
    bool joins;     /* it was started to join the running job */
    bool has_met;   /* it has reported that it belongs to the job (reports.c) */
    int asked_by;   /* the signal by which it was asked to end, as it has reported; 0: none */
    int stopped_by; /* the signal that has stopped (suspended) it; 0: it is not stopped */
    launch_stream streams[2];
} launch_rank;

/* reports.c: what the ranks tell the launcher through a pipe. */
typedef struct launch_reports {
    int from, to;   /* the ends of the pipe; the ranks inherit `to` */
    uint64_t inode; /* identifies the pipe */
    char bytes[1024];
    size_t used;                    /* the bytes of a report that is not complete yet */
    char restart[LAUNCH_MAX_VALUE]; /* the value of the last report "restartable"; empty: none */
    bool state_lost;                /* a rank has reported that the job cannot go on */
    double grace;                   /* the most seconds of reports "grace"; 0: none */
} launch_reports;

/* input.c: passes what is typed at a terminal on to rank 0, through a pipe. */
typedef struct launch_input {
    int to; /* the pipe; −1: nothing is passed on */
    char bytes[4096];
    size_t used, done; /* the bytes that were read, and how many of them are written */
} launch_input;
/* Returns whether a process gets its input through a pipe: rank 0, if the launcher's standard input
 * is a terminal. */
bool launch_input_needed(int number);
void launch_input_begin(launch_input *input, int to);
void launch_input_finish(launch_input *input);
/* Returns what to wait for before the next call of launch_input_pass. Its fd is −1 if there is
 * nothing to wait for. Lowers *timeout_ms if it must be called again after less time. */
struct pollfd launch_input_poll(const launch_input *input, int *timeout_ms);
/* Reads a line, or writes one, without blocking. */
void launch_input_pass(launch_input *input);

/* Settings that the launcher has inherited and changed for itself. Each rank starts with the
 * inherited ones. */
typedef struct launch_inherited {
    sigset_t mask;
    struct sigaction pipe, alarm;
    struct rlimit files;
} launch_inherited;

/* job.c: the state of a running job; its signals and deadlines. */
typedef struct launch_job {
    const launch_options *options;
    const launch_env *env;
    launch_rank *ranks;   /* [options->ranks + options->respawn] */
    int started, running; /* number of ranks that have been started, and number that are running */
    int serial;           /* number of processes that have been started, also before a restart */
    int64_t respawns;     /* how many more failures are made good */
    launch_reports reports;
    launch_guard guard;
    launch_inherited inherited;
    launch_input input;
    launch_messages messages;
    int signal_fd;
    struct pollfd *polls;
    bool stopping; /* a signal that ends the ranks has been sent to them */
    /* all processes are being ended, and then all ranks are started again; `stopping` overrules
     * this */
    bool restarting;
    bool is_over; /* no member is left, and the processes that wait to join have been killed */
    bool killed;  /* SIGKILL has been sent */
    /* all ranks have ended, and the orphans that they have left are being ended */
    bool sweeping;
    bool output_lost;   /* some output could not be written before give_up_at_ms */
    int64_t kill_at_ms; /* when to send SIGKILL */
    /* When to discard output that nobody reads. Only a signal that ends the job sets this time. */
    int64_t give_up_at_ms;
    /* the exit code of the launcher, which is that of the first rank that has failed */
    int code;
    bool some_succeeded; /* a rank has ended with status 0 */
} launch_job;
#define LAUNCH_NEVER INT64_MAX

/* Blocks the signals that the launcher handles, and opens job->signal_fd. On failure, returns false
 * and sets errno. */
bool launch_job_catch_signals(launch_job *job);
/* Handles the signals that have arrived and the ranks that have ended. */
void launch_job_handle_signals(launch_job *job);
/* Sends SIGKILL to the job's processes if the time kill_at_ms has passed. */
void launch_job_keep_deadline(launch_job *job);
/* Sends a signal that ends the job's processes. The first call starts the grace period. */
void launch_job_stop(launch_job *job, int signal);
/* The same for processes that ranks have left behind. They do not get the time for which the ranks
 * have asked. */
void launch_job_sweep(launch_job *job);
/* As launch_job_stop, but does not prevent that all ranks are started again. */
void launch_job_end_processes(launch_job *job, int signal);
int64_t launch_now_ms(void);
/* Returns the timeout for a call of poll() that must return at `then_ms`. */
int launch_poll_ms(int64_t then_ms);
/* Waits until a descriptor can be written to. Nobody may ever read the output, so this handles
 * signals and the grace period at the same time. `stalled` is true if the last write failed
 * although poll() had reported room. When the output must be discarded, returns false and sets
 * errno. */
bool launch_job_wait_to_write(launch_job *job, int fd, bool stalled);
/* Prints a message on standard error. Discards the message if nobody reads it. */
void launch_job_say(launch_job *job, const char *format, ...) CLI_PRINTF(2, 3);
/* While this is on, a timer makes each blocking call end with EINTR after a short time. poll()
 * alone does not prevent blocking. For example, a terminal with room for one byte counts as ready,
 * but a write of two bytes blocks until somebody reads. */
void launch_interrupt_calls(bool on);

/* output.c: passes on the output that can be read. If `last` is true, an empty pipe counts as the
 * end of the output, although a process outside the job may still have the pipe open. If the output
 * cannot be written, returns false and sets errno. */
bool launch_stream_pass(launch_stream *stream, launch_job *job, bool last);
void launch_stream_finish(launch_stream *stream);

/* rank.c: starts one rank, or a replacement if `number` is not below the number of ranks;
 * rank->place must be set. Returns 0. On failure, prints the reason and returns the exit code of
 * the launcher. */
int launch_rank_start(launch_rank *rank, int number, const launch_env *env, launch_job *job);

/* Opens the pipe. On failure, returns false and sets errno. */
bool launch_reports_open(launch_reports *reports);
void launch_reports_close(launch_reports *reports);
/* Forgets what the ranks have reported before a restart. */
void launch_reports_reset(launch_reports *reports);
/* Reads the reports that have arrived, without blocking. */
void launch_reports_read(launch_job *job);

/* members.c: which processes belong to the job. The first two functions return why all ranks must
 * be started again, or NULL. */
/* Called when a process has failed; `killed` means that a signal ended it. */
const char *launch_members_lost(const launch_job *job, const launch_rank *rank, bool killed);
const char *launch_members_gave_up(const launch_job *job);
/* Returns whether a process that is started in the place of a failed one can join the job. */
bool launch_members_can_grow(const launch_job *job);
/* Returns whether all processes that run wait to join, although nobody is left to join. */
bool launch_members_are_gone(const launch_job *job);
/* Kills the processes that wait to join. Nothing is lost with them, so they get no time. */
void launch_members_kill_waiting(const launch_job *job);

/* children.c: sends a signal (0: none) to all current children of the launcher except the guard.
 * Returns the number of these children. */
int launch_children_signal(pid_t guard, int signal);
/* Reaps the orphans of ranks that have ended. These are all children except the ranks and the
 * guard. */
void launch_children_reap(const launch_rank *ranks, int count, pid_t guard);

/* run.c: runs a job from start to end and returns its exit code. */
int launch_run(const launch_options *options, const launch_devices *devices);

#endif
