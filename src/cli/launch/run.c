/* A job from its start to the end of its last process. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/launch/launch.h"
#include "cli/lib/memory.h"
#include "cli/lib/say.h"

#define NEVER INT64_MAX

/* For what the last ranks have said, after they were killed, to get through to who reads it. */
#define LAST_WORDS_MS 500
/* Until an output is tried again that has taken nothing although poll() says so. */
#define STALLED_MS 10

struct launch_job {
    const launch_options *options;
    launch_rank *ranks;
    int started, running;
    launch_guard guard;
    launch_inherited inherited;
    int signal_fd;
    struct pollfd *polls;
    bool stopping;      /* asked to end */
    bool killed;        /* not asked any more */
    bool sweeping;      /* all ranks have ended and are buried */
    bool lost;          /* output that nobody has read */
    int64_t kill_at;    /* ms */
    int64_t give_up_at; /* ms; what nobody reads. Only a signal to the launcher sets it */
    int code;           /* of the first that failed */
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* A rank that has ended is not waited for before all have: until then no other process can have its
 * group's number. After that, groups have no number any more, and it goes by children. */
static void signal_all(const launch_job *job, int signal)
{
    if (job->sweeping)
        (void)launch_children_signal(job->guard.pid, signal);
    for (int i = 0; i < job->started && !job->sweeping; i++)
        kill(-job->ranks[i].pid, signal);
}

/* Asks everyone to end, and sees to it that they do. */
static void stop(launch_job *job, int signal)
{
    if (!job->stopping)
        job->kill_at = now_ms() + (int64_t)(job->options->grace * 1000);
    job->stopping = true;
    signal_all(job, signal);
    signal_all(job, SIGCONT); /* a stopped process hears no other signal */
}

/* Signals to pass on; those the launcher was started to ignore stay ignored. */
static const int passed_on[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT,
                                SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT};

/* That of launch_hurry(). */
static void on_alarm(int signal)
{
    (void)signal;
}

static bool catch_signals(launch_job *job)
{
    sigset_t caught, timer;
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
    sigemptyset(&timer);
    sigaddset(&timer, SIGALRM);
    sigprocmask(SIG_UNBLOCK, &timer, NULL);
    job->signal_fd = signalfd(-1, &caught, SFD_CLOEXEC | SFD_NONBLOCK);
    return job->signal_fd >= 0;
}

static void note_end(launch_job *job, int number, const siginfo_t *info)
{
    launch_rank *rank = &job->ranks[number];
    bool exited = info->si_code == CLD_EXITED;
    rank->running = false;
    job->running--;
    if (exited && info->si_status == 0)
        return;
    if (job->code == 0)
        job->code = exited ? info->si_status : 128 + info->si_status;
    if (job->stopping) /* as it was told */
        return;
    const char *rest = job->running > 0 ? "; stopping the others" : "";
    if (job->running > 0)
        stop(job, SIGTERM);
    if (exited)
        launch_say(job, "launch: rank %d (process %d) exited with status %d%s", number,
                   (int)rank->pid, info->si_status, rest);
    else
        launch_say(job, "launch: rank %d (process %d) was ended by signal %d, %s%s", number,
                   (int)rank->pid, info->si_status, strsignal(info->si_status), rest);
}

static void look_for_ends(launch_job *job)
{
    for (int i = 0; i < job->started; i++) {
        siginfo_t info = {0};
        if (job->ranks[i].running &&
            waitid(P_PID, (id_t)job->ranks[i].pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid == job->ranks[i].pid)
            note_end(job, i, &info);
    }
}

/* Whoever sends a signal wants an end, also where nobody reads what is left of the output. */
static void hear_end(launch_job *job, int signal)
{
    int64_t grace = job->stopping ? 0 : (int64_t)(job->options->grace * 1000);
    int64_t last = now_ms() + grace + LAST_WORDS_MS;
    if (job->stopping) /* once more: now */
        job->kill_at = now_ms();
    else
        stop(job, signal);
    job->give_up_at = last < job->give_up_at ? last : job->give_up_at;
}

static void hear_signals(launch_job *job)
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
            hear_end(job, signal);
        }
    }
    if (ended)
        launch_children_bury(job->ranks, job->started, job->guard.pid);
    look_for_ends(job);
}

/* The time until then, for poll(). */
static int ms_until(int64_t then)
{
    int64_t left = then == NEVER ? INT_MAX : then - now_ms();
    return left < 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left;
}

static void keep_deadline(launch_job *job)
{
    if (now_ms() < job->kill_at)
        return;
    signal_all(job, SIGKILL);
    job->killed = true;
    /* Children of those that were killed become ours, and their turn comes then. */
    job->kill_at = job->sweeping ? now_ms() + 10 : NEVER;
}

bool launch_wait_to_write(launch_job *job, int fd, bool stalled)
{
    for (;; stalled = false) {
        struct pollfd polls[] = {{.fd = stalled ? -1 : fd, .events = POLLOUT},
                                 {.fd = job->signal_fd, .events = POLLIN}};
        int64_t next = job->kill_at < job->give_up_at ? job->kill_at : job->give_up_at;
        int most = ms_until(next);
        int ready = poll(polls, 2, stalled && most > STALLED_MS ? STALLED_MS : most);
        if (ready > 0 && polls[0].revents != 0)
            return true;
        if (ready > 0)
            hear_signals(job);
        keep_deadline(job);
        if (now_ms() >= job->give_up_at) {
            errno = ETIMEDOUT;
            return false;
        }
    }
}

void launch_say(launch_job *job, const char *format, ...)
{
    if (!launch_wait_to_write(job, 2, false))
        return;
    va_list arguments;
    va_start(arguments, format);
    launch_hurry(true);
    cli_say_list(format, arguments);
    launch_hurry(false);
    va_end(arguments);
}

/* A stream whose output takes nothing more. It is said once, and not of a job that was to end. */
static void give_up(launch_job *job, launch_stream *stream)
{
    int reason = errno;
    const char *name = stream->to == 1 ? "output" : "error";
    bool nobody_reads = reason == ETIMEDOUT;
    bool say = nobody_reads ? !job->lost : !job->stopping;
    job->lost = job->lost || nobody_reads;
    job->code = job->code != 0 ? job->code : CLI_FAILED;
    launch_stream_finish(stream);
    stop(job, SIGTERM);
    if (say && nobody_reads)
        launch_say(job, "launch: nobody reads standard %s: the rest of it is lost", name);
    else if (say)
        launch_say(job, "launch: cannot write to standard %s: %s", name, strerror(reason));
}

static void pass_output(launch_job *job)
{
    nfds_t at = 1;
    for (int i = 0; i < job->started; i++)
        for (int j = 0; j < 2; j++) {
            launch_stream *stream = &job->ranks[i].streams[j];
            if (stream->from < 0)
                continue;
            bool ready = job->polls[at++].revents != 0;
            if (ready && !launch_stream_pass(stream, job, false))
                give_up(job, stream);
        }
}

static void wait_for_events(launch_job *job)
{
    nfds_t count = 0;
    job->polls[count++] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    for (int i = 0; i < job->started; i++)
        for (int j = 0; j < 2; j++)
            if (job->ranks[i].streams[j].from >= 0)
                job->polls[count++] =
                    (struct pollfd){.fd = job->ranks[i].streams[j].from, .events = POLLIN};
    int ready = poll(job->polls, count, ms_until(job->kill_at));
    if (ready > 0) {
        pass_output(job);
        if (job->polls[0].revents != 0)
            hear_signals(job);
    }
    keep_deadline(job);
}

/* True once the launcher has no child but the guard. */
static bool bury_all(const launch_job *job)
{
    pid_t pid;
    do
        pid = waitpid(-1, NULL, WNOHANG);
    while (pid > 0);
    return pid < 0 || launch_children_signal(job->guard.pid, 0) == 0;
}

/* Once all ranks have ended, what they have started ends too: asked first, then killed. */
static bool all_gone(launch_job *job)
{
    if (job->running > 0)
        return false;
    bool first = !job->sweeping;
    job->sweeping = true;
    if (bury_all(job))
        return true;
    if (first && job->killed)
        job->kill_at = now_ms();
    else if (first)
        stop(job, SIGTERM);
    return false;
}

static void pass_rest(launch_job *job)
{
    for (int i = 0; i < job->started; i++)
        for (int j = 0; j < 2; j++) {
            launch_stream *stream = &job->ranks[i].streams[j];
            while (stream->from >= 0)
                if (!launch_stream_pass(stream, job, true))
                    give_up(job, stream);
        }
}

/* Two for each rank, which is more than most shells allow; the ranks get what was allowed before.
 */
static bool allow_files(launch_job *job)
{
    struct rlimit *before = &job->inherited.files;
    if (getrlimit(RLIMIT_NOFILE, before) != 0)
        return false;
    struct rlimit most = {before->rlim_max, before->rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &most); /* what there is may do */
    return true;
}

static void start_all(launch_job *job, const launch_env *env)
{
    for (int i = 0; i < env->ranks && job->code == 0; i++) {
        job->code = launch_rank_start(&job->ranks[i], i, job->options, env, &job->inherited, job);
        if (job->code != 0) {
            stop(job, SIGTERM);
            return;
        }
        job->started++;
        job->running++;
    }
}

int launch_run(const launch_options *options, const launch_devices *devices)
{
    int count = (int)options->ranks;
    launch_env env;
    launch_job job = {.options = options,
                      .kill_at = NEVER,
                      .give_up_at = NEVER,
                      .guard = {.pipe = -1},
                      .signal_fd = -1};
    if (!launch_env_init(&env, count, devices) || !launch_guard_start(&job.guard, env.token) ||
        prctl(PR_SET_CHILD_SUBREAPER, 1) != 0 || !catch_signals(&job) || !allow_files(&job)) {
        int reason = errno;
        launch_guard_dismiss(&job.guard);
        launch_env_finish(&env);
        return cli_failed("launch: cannot prepare for %d processes: %s", count, strerror(reason));
    }
    job.ranks = cli_alloc((size_t)count, sizeof *job.ranks);
    job.polls = cli_alloc(2 * (size_t)count + 1, sizeof *job.polls);
    start_all(&job, &env);
    while (!all_gone(&job))
        wait_for_events(&job);
    pass_rest(&job);
    launch_guard_dismiss(&job.guard);
    launch_env_finish(&env);
    close(job.signal_fd);
    free(job.polls);
    free(job.ranks);
    return job.code;
}
