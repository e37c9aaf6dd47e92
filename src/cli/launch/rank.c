/* Starts one process of a job. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launch/launch.h"
#include "cli/lib/say.h"

extern char **environ;

typedef struct start {
    const launch_inherited *inherited;
    char **program, **env;
    pid_t launcher;
    int number;
    int input;      /* the end of a pipe for input; −1: use the launcher's own file */
    int outputs[2]; /* the ends of pipes for output and errors; −1: use the launcher's own files */
    int problem;    /* a pipe that receives errno if the program cannot be run */
    int reports;    /* the pipe for the rank's reports, which the program inherits */
} start;

/* Executes the program in the new process. */
static void run_program(const start *how)
{
    int reason = 0;
    (void)setpgid(0, 0);
    /* The kernel kills the rank when the launcher ends, but only if that happens after this call. A
     * different parent shows that the launcher has already ended. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != how->launcher)
        _exit(LAUNCH_CANNOT_RUN);
    for (int i = 0; i < 2; i++)
        if (how->outputs[i] >= 0 && dup2(how->outputs[i], 1 + i) < 0)
            reason = errno;
    if (how->input >= 0 && dup2(how->input, 0) < 0)
        reason = errno;
    if (how->number > 0) { /* only rank 0 reads the input */
        int null = open("/dev/null", O_RDONLY);
        if (null < 0 || dup2(null, 0) < 0)
            reason = errno;
        if (null > 0)
            close(null);
    }
    /* With `stty tostop`, the kernel also stops a background process that writes to a terminal.
     * Ranks are in the background even if their launcher is not. */
    if (how->outputs[0] < 0 && (isatty(1) || isatty(2)))
        (void)signal(SIGTTOU, SIG_IGN);
    sigaction(SIGPIPE, &how->inherited->pipe, NULL);
    sigaction(SIGALRM, &how->inherited->alarm, NULL);
    sigprocmask(SIG_SETMASK, &how->inherited->mask, NULL);
    (void)setrlimit(RLIMIT_NOFILE, &how->inherited->files);
    if (fcntl(how->reports, F_SETFD, 0) != 0)
        reason = errno;
    if (reason == 0) {
        environ = how->env;
        execvp(how->program[0], how->program);
        reason = errno;
    }
    (void)!write(how->problem, &reason, sizeof reason);
    _exit(LAUNCH_CANNOT_RUN);
}

static bool make_pipe(int ends[2])
{
    if (pipe(ends) != 0) {
        ends[0] = ends[1] = -1;
        return false;
    }
    return fcntl(ends[0], F_SETFD, FD_CLOEXEC) == 0 && fcntl(ends[1], F_SETFD, FD_CLOEXEC) == 0;
}

static void close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* Prints why a rank could not be started. Returns the exit code of the launcher. */
static int fail_to_start(int number, int reason, launch_job *job)
{
    const launch_options *options = job->options;
    if (reason == EMFILE) {
        launch_job_say(job,
                       "launch: cannot start rank %d of %" PRId64
                       ": too many open files; each rank takes two: raise 'ulimit -Hn'",
                       number, options->ranks);
        return CLI_FAILED;
    }
    if (reason == ENFILE || reason == EAGAIN || reason == ENOMEM) {
        launch_job_say(job, "launch: cannot start rank %d of %" PRId64 ": %s", number,
                       options->ranks, strerror(reason));
        return CLI_FAILED;
    }
    launch_job_say(job, "launch: cannot run '%s': %s", options->program[0], strerror(reason));
    return reason == ENOENT ? LAUNCH_NOT_FOUND : LAUNCH_CANNOT_RUN;
}

/* Waits until the program runs or has failed to start. Returns 0 or errno. */
static int wait_for_exec(int problem)
{
    int reason = 0;
    ssize_t got;
    do
        got = read(problem, &reason, sizeof reason);
    while (got < 0 && errno == EINTR);
    return got == (ssize_t)sizeof reason ? reason : 0;
}

int launch_rank_start(launch_rank *rank, int number, const launch_env *env, launch_job *job)
{
    const launch_options *options = job->options;
    /* pipes for output, errors, a failure to start, and input */
    int pipes[4][2] = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};
    bool made = make_pipe(pipes[2]) &&
                (options->no_prefix || (make_pipe(pipes[0]) && make_pipe(pipes[1]))) &&
                (!launch_input_needed(number) || make_pipe(pipes[3]));
    int reason = made ? 0 : errno;
    rank->serial = job->serial++;
    rank->joins = number >= env->ranks;
    rank->has_met = rank->ending = false;
    rank->asked_by = rank->stopped_by = 0;
    start how = {&job->inherited,
                 options->program,
                 launch_env_of_rank(env, rank->place, rank->joins, rank->serial),
                 getpid(),
                 number,
                 pipes[3][0],
                 {pipes[0][1], pipes[1][1]},
                 pipes[2][1],
                 job->reports.to};
    pid_t pid = made ? fork() : -1;
    if (pid == 0)
        run_program(&how);
    if (made && pid < 0)
        reason = errno;
    free(how.env);
    for (int i = 0; i < 3; i++)
        close_one(&pipes[i][1]);
    close_one(&pipes[3][0]);
    if (pid > 0) {
        /* both processes call this, because either of them may run first */
        (void)setpgid(pid, pid);
        reason = wait_for_exec(pipes[2][0]);
        if (reason != 0)
            (void)waitpid(pid, NULL, 0);
    }
    close_one(&pipes[2][0]);
    if (reason != 0) {
        close_one(&pipes[0][0]);
        close_one(&pipes[1][0]);
        close_one(&pipes[3][1]);
        return fail_to_start(number, reason, job);
    }
    rank->pid = pid;
    rank->running = true;
    if (pipes[3][1] >= 0)
        launch_input_begin(&job->input, pipes[3][1]);
    int width = snprintf(NULL, 0, "%d", env->ranks - 1);
    for (int i = 0; i < 2; i++) {
        launch_stream *stream = &rank->streams[i];
        *stream = (launch_stream){.from = pipes[i][0], .to = 1 + i, .rank = number};
        if (stream->from >= 0)
            (void)fcntl(stream->from, F_SETFL, O_NONBLOCK);
        snprintf(stream->prefix, sizeof stream->prefix, "[%*d] ", width, number);
    }
    return 0;
}
