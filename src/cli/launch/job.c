/* The state of a running job. It changes when the launcher receives a signal, when a rank ends, and
 * when a deadline that one of these has set is reached. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/launch/launch.h"

/* How long to read the last output of ranks after they were killed. */
#define LAST_OUTPUT_MS 500
/* How long to wait before another write, if poll() reported room but the output accepted
 * nothing. */
#define STALLED_MS 10
/* How long to wait between attempts to kill the orphans of killed ranks. */
#define SWEEP_MS 10

int64_t launch_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

int launch_poll_ms(int64_t then_ms)
{
    int64_t left = then_ms == LAUNCH_NEVER ? INT_MAX : then_ms - launch_now_ms();
    return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

void launch_interrupt_calls(bool on)
{
    const suseconds_t us = on ? 100000 : 0;
    const struct itimerval timer = {{0, us}, {0, us}};
    (void)setitimer(ITIMER_REAL, &timer, NULL);
}

/* Sends a signal to all processes of the job. While a rank is running, no rank is reaped, because
 * the number of a rank's process group must not be reused while signals are sent to it. After all
 * ranks have been reaped (`sweeping`), the groups do not exist any more, so the signal is sent to
 * all children of the launcher. */
static void signal_all(const launch_job *job, int signal)
{
    if (job->sweeping)
        (void)launch_children_signal(job->guard.pid, signal);
    for (int i = 0; i < job->started && !job->sweeping; i++)
        kill(-job->ranks[i].pid, signal);
}

/* Returns the milliseconds between SIGTERM and SIGKILL. `asked` are the seconds that the ranks have
 * asked for, or 0. */
static int64_t grace_ms(const launch_job *job, double asked)
{
    const double given = job->options->grace;
    const double grace = given != LAUNCH_GRACE_UNSET ? given : fmax(asked, LAUNCH_GRACE);
    return (int64_t)(grace * 1000);
}

void launch_job_end_processes(launch_job *job, int signal)
{
    if (job->kill_at_ms == LAUNCH_NEVER)
        job->kill_at_ms = launch_now_ms() + grace_ms(job, 0);
    signal_all(job, signal);
    signal_all(job, SIGCONT); /* a stopped process handles most signals only after SIGCONT */
}

void launch_job_sweep(launch_job *job)
{
    const int64_t kill_at_ms = launch_now_ms() + grace_ms(job, 0);
    if (job->stopping && job->kill_at_ms > kill_at_ms)
        job->kill_at_ms = kill_at_ms;
    launch_job_stop(job, SIGTERM);
}

void launch_job_stop(launch_job *job, int signal)
{
    if (!job->stopping)
        job->kill_at_ms = LAUNCH_NEVER;
    job->stopping = true;
    launch_job_end_processes(job, signal);
}

/* The signals that the launcher passes on to the ranks. If a signal was ignored when the launcher
 * started, it stays ignored. */
static const int passed_on[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

/* The handler for the timer of launch_interrupt_calls(). It does nothing: that a signal has a
 * handler is enough to make a blocking call return EINTR. */
static void on_alarm(int signal)
{
    (void)signal;
}

bool launch_job_catch_signals(launch_job *job)
{
    sigset_t caught, timer, terminal;
    sigemptyset(&caught);
    sigaddset(&caught, SIGCHLD);
    for (size_t i = 0; i < sizeof passed_on / sizeof passed_on[0]; i++) {
        struct sigaction action;
        if (sigaction(passed_on[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&caught, passed_on[i]);
    }
    struct sigaction ignore = {.sa_handler = SIG_IGN}, usual = {.sa_handler = SIG_DFL},
                     interrupt = {.sa_handler = on_alarm};
    sigaction(SIGCHLD, &usual, NULL);
    sigaction(SIGPIPE, &ignore, &job->inherited.pipe);
    sigaction(SIGALRM, &interrupt, &job->inherited.alarm);
    sigprocmask(SIG_BLOCK, &caught, &job->inherited.mask);
    /* Otherwise the kernel would stop a launcher that comes into the background while it reads a
     * terminal. */
    sigemptyset(&terminal);
    sigaddset(&terminal, SIGTTIN);
    sigprocmask(SIG_BLOCK, &terminal, NULL);
    sigemptyset(&timer);
    sigaddset(&timer, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &timer, NULL);
    job->signal_fd = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    return job->signal_fd >= 0;
}

/* Starts a process that replaces a failed rank, unless --respawn does not allow more. The process
 * joins the job when the other ranks grow their communicator. */
static void replace(launch_job *job, int number)
{
    if (job->respawns == 0)
        return;
    launch_rank *rank = &job->ranks[job->started];
    rank->place = job->ranks[number].place;
    if (launch_rank_start(rank, job->started, job->env, job) != 0)
        return;
    job->respawns--;
    job->started++;
    job->running++;
    launch_job_say(job, "launch: process %d joins as [%d] in the place of rank %d", (int)rank->pid,
                   (int)(rank - job->ranks), number);
}

/* Writes a remark about another rank that explains why a rank has failed, or nothing. All ranks of
 * a job may end because one of them was asked to, or because one does not answer. */
static void explain_end(const launch_job *job, int number, size_t size, char *out)
{
    out[0] = '\0';
    for (int i = 0; i < job->started && out[0] == '\0'; i++) {
        const launch_rank *rank = &job->ranks[i];
        if (rank->asked_by != 0 && i == number)
            snprintf(out, size, " after signal %d, %s", rank->asked_by, strsignal(rank->asked_by));
        else if (rank->asked_by != 0)
            snprintf(out, size, " because rank %d (process %d) got signal %d, %s", i,
                     (int)rank->pid, rank->asked_by, strsignal(rank->asked_by));
    }
    for (int i = 0; i < job->started && out[0] == '\0'; i++) {
        const launch_rank *rank = &job->ranks[i];
        if (rank->running && rank->stopped_by != 0)
            snprintf(out, size, " while rank %d (process %d) was stopped", i, (int)rank->pid);
    }
}

static void report_end(launch_job *job, int number, const siginfo_t *info, const char *rest)
{
    const launch_rank *rank = &job->ranks[number];
    char why[128];
    explain_end(job, number, sizeof why, why);
    if (info->si_code == CLD_EXITED)
        launch_job_say(job, "launch: rank %d (process %d) exited with status %d%s%s", number,
                       (int)rank->pid, info->si_status, why, rest);
    else
        launch_job_say(job, "launch: rank %d (process %d) was ended by signal %d, %s%s", number,
                       (int)rank->pid, info->si_status, strsignal(info->si_status), rest);
}

/* Ends all processes. run.c then starts all ranks again. */
static void restart(launch_job *job, const char *why)
{
    job->respawns--;
    job->restarting = true;
    launch_members_kill_waiting(job);
    launch_job_end_processes(job, SIGTERM);
    launch_job_say(job, "launch: %s: starting all %" PRId64 " ranks again with TESSERA_RESTART=%s",
                   why, job->options->ranks, job->reports.restart);
}

static void check_members(launch_job *job)
{
    const char *why = launch_members_gave_up(job);
    if (why != NULL) {
        restart(job, why);
        return;
    }
    if (!launch_members_are_gone(job))
        return;
    const int waiting = job->running;
    const bool is_first = !job->is_over;
    job->is_over = true;
    launch_members_kill_waiting(job);
    if (is_first)
        launch_job_say(job, "launch: %s; ending %d %s to join",
                       job->some_succeeded ? "the job is complete" : "no member of the job is left",
                       waiting, waiting == 1 ? "process that waits" : "processes that wait");
}

static void note_end(launch_job *job, int number, const siginfo_t *info)
{
    launch_rank *rank = &job->ranks[number];
    const bool exited = info->si_code == CLD_EXITED;
    rank->running = false;
    job->running--;
    if (exited && info->si_status == 0) {
        job->some_succeeded = true;
        return;
    }
    if (job->is_over || (job->restarting && !job->stopping)) /* the launcher has ended the rank */
        return;
    if (job->code == 0)
        job->code = exited ? info->si_status : 128 + info->si_status;
    if (job->stopping)
        return;
    const bool stops = job->running > 0 && !job->options->keep_going;
    const char *rest = stops              ? "; stopping the others"
                       : job->running > 0 ? "; the others continue"
                                          : "";
    if (stops)
        launch_job_stop(job, SIGTERM);
    report_end(job, number, info, rest);
    const char *why = launch_members_lost(job, &job->ranks[number], !exited);
    if (why != NULL)
        restart(job, why);
    else if (launch_members_can_grow(job))
        replace(job, number);
}

/* Notes that a rank was stopped (suspended), or continues. */
static void look_for_stop(launch_job *job, int number)
{
    launch_rank *rank = &job->ranks[number];
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)rank->pid, &info, WSTOPPED | WCONTINUED | WNOHANG) != 0 ||
        info.si_pid != rank->pid)
        return;
    rank->stopped_by = info.si_code == CLD_STOPPED ? info.si_status : 0;
    if (rank->stopped_by != 0 && !job->stopping && !job->restarting)
        launch_job_say(job,
                       "launch: rank %d (process %d) was stopped by signal %d, %s; 'kill -CONT "
                       "%d' lets it continue",
                       number, (int)rank->pid, rank->stopped_by, strsignal(rank->stopped_by),
                       (int)rank->pid);
}

static bool has_ended(const launch_rank *rank, siginfo_t *info)
{
    *info = (siginfo_t){0};
    return waitid(P_PID, (id_t)rank->pid, info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info->si_pid == rank->pid;
}

static void look_for_ends(launch_job *job)
{
    siginfo_t info;
    launch_reports_read(job);
    /* Several ranks may have ended. Each of them counts as ended when the first is handled. */
    for (int i = 0; i < job->started; i++) {
        launch_rank *rank = &job->ranks[i];
        rank->ending = rank->running && has_ended(rank, &info);
        if (rank->running && !rank->ending)
            look_for_stop(job, i);
    }
    for (int i = 0; i < job->started; i++)
        if (job->ranks[i].running && has_ended(&job->ranks[i], &info))
            note_end(job, i, &info);
    check_members(job);
}

/* Handles a signal that ends the job. Also sets the deadline for reading the remaining output. All
 * ranks run, so they get the time that they have asked for, unlike those that another rank's
 * failure leaves. */
static void handle_end(launch_job *job, int signal)
{
    launch_reports_read(job);
    const int64_t grace = job->stopping ? 0 : grace_ms(job, job->reports.grace);
    const int64_t last = launch_now_ms() + grace + LAST_OUTPUT_MS;
    if (!job->stopping)
        launch_job_stop(job, signal);
    job->kill_at_ms = launch_now_ms() + grace; /* a second signal kills the job at once */
    job->give_up_at_ms = last < job->give_up_at_ms ? last : job->give_up_at_ms;
}

void launch_job_handle_signals(launch_job *job)
{
    struct signalfd_siginfo info;
    bool ended = false;
    while (read(job->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        int signal = (int)info.ssi_signo;
        if (signal == SIGCHLD) {
            ended = true;
        } else if (signal == SIGTSTP) {
            signal_all(job, SIGTSTP);
            raise(SIGSTOP);
        } else if (signal == SIGUSR1 || signal == SIGUSR2 || signal == SIGCONT) {
            signal_all(job, signal);
        } else {
            handle_end(job, signal);
        }
    }
    if (ended)
        launch_children_reap(job->ranks, job->started, job->guard.pid);
    look_for_ends(job);
}

void launch_job_keep_deadline(launch_job *job)
{
    if (launch_now_ms() < job->kill_at_ms)
        return;
    signal_all(job, SIGKILL);
    job->killed = true;
    /* The orphans of killed processes become children of the launcher, so it must kill again after
     * a short time. */
    job->kill_at_ms = job->sweeping ? launch_now_ms() + SWEEP_MS : LAUNCH_NEVER;
}

bool launch_job_wait_to_write(launch_job *job, int fd, bool stalled)
{
    for (;; stalled = false) {
        struct pollfd polls[] = {{.fd = stalled ? -1 : fd, .events = POLLOUT},
                                 {.fd = job->signal_fd, .events = POLLIN}};
        int64_t next = job->kill_at_ms < job->give_up_at_ms ? job->kill_at_ms : job->give_up_at_ms;
        int timeout = launch_poll_ms(next);
        int ready = poll(polls, 2, stalled && timeout > STALLED_MS ? STALLED_MS : timeout);
        if (ready > 0 && polls[0].revents != 0)
            return true;
        if (ready > 0)
            launch_job_handle_signals(job);
        launch_job_keep_deadline(job);
        if (launch_now_ms() >= job->give_up_at_ms) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

void launch_job_say(launch_job *job, const char *format, ...)
{
    if (!launch_job_wait_to_write(job, 2, false))
        return;
    va_list arguments;
    va_start(arguments, format);
    launch_interrupt_calls(true);
    cli_say_list(format, arguments);
    launch_interrupt_calls(false);
    va_end(arguments);
}
