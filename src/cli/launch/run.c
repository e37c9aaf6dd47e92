/* Runs a job until its last process has ended. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/launch/launch.h"
#include "cli/lib/memory.h"

/* Ends the job because the output of a stream cannot be passed on. Prints the reason, except if the
 * job is being stopped already. If the reader has closed the pipe, as head(1) does, this is not an
 * error: the launcher ends as if by SIGPIPE. */
static void give_up(launch_job *job, launch_stream *stream)
{
    const int reason = errno;
    const char *name = stream->to == 1 ? "output" : "error";
    const bool nobody_reads = reason == ETIMEDOUT;
    const bool closed = reason == EPIPE && job->inherited.pipe.sa_handler != SIG_IGN;
    const bool say = nobody_reads ? !job->output_lost : !job->stopping && !closed;
    job->output_lost = job->output_lost || nobody_reads;
    if (job->code == 0)
        job->code = closed ? 128 + SIGPIPE : CLI_FAILED;
    launch_stream_finish(stream);
    launch_job_stop(job, SIGTERM);
    if (say && nobody_reads)
        launch_job_say(job, "launch: nobody reads standard %s: the rest of it is lost", name);
    else if (say)
        launch_job_say(job, "launch: cannot write to standard %s: %s", name, strerror(reason));
}

static void pass_output(launch_job *job)
{
    nfds_t at = 3;
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
    int timeout_ms = launch_poll_ms(job->kill_at_ms);
    job->polls[count++] = (struct pollfd){.fd = job->signal_fd, .events = POLLIN};
    job->polls[count++] = launch_input_poll(&job->input, &timeout_ms);
    job->polls[count++] = (struct pollfd){.fd = job->reports.from, .events = POLLIN};
    for (int i = 0; i < job->started; i++)
        for (int j = 0; j < 2; j++)
            if (job->ranks[i].streams[j].from >= 0)
                job->polls[count++] =
                    (struct pollfd){.fd = job->ranks[i].streams[j].from, .events = POLLIN};
    int ready = poll(job->polls, count, timeout_ms);
    if (ready > 0) {
        if (job->polls[1].revents != 0)
            launch_input_pass(&job->input);
        pass_output(job);
        if (job->polls[0].revents != 0 || job->polls[2].revents != 0)
            launch_job_handle_signals(job);
    }
    launch_job_keep_deadline(job);
}

/* Reaps all children that have ended. Returns true if no child except the guard is left. */
static bool reap_all(const launch_job *job)
{
    pid_t pid;
    do
        pid = waitpid(-1, NULL, WNOHANG);
    while (pid > 0);
    return pid < 0 || launch_children_signal(job->guard.pid, 0) == 0;
}

/* Returns true if no process of the job is left. When all ranks have ended, stops the processes
 * that the ranks have started. It uses SIGTERM first, and SIGKILL after the grace period. */
static bool all_gone(launch_job *job)
{
    if (job->running > 0)
        return false;
    const bool first = !job->sweeping;
    job->sweeping = true;
    /* With --keep-going, the job has succeeded if one rank has, unless a signal stopped the job. */
    if (first && job->options->keep_going && job->some_succeeded && !job->stopping)
        job->code = CLI_DONE;
    if (reap_all(job))
        return true;
    if (first && job->killed)
        job->kill_at_ms = launch_now_ms();
    else if (first && job->restarting)
        launch_job_end_processes(job, SIGTERM);
    else if (first)
        launch_job_sweep(job);
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

/* Raises the launcher's own limit of open files, because it needs two files for each rank. */
static bool allow_files(launch_job *job)
{
    struct rlimit *before = &job->inherited.files;
    if (getrlimit(RLIMIT_NOFILE, before) != 0)
        return false;
    struct rlimit raised = {before->rlim_max, before->rlim_max};
    /* the current limit may be sufficient, so a failure is ignored */
    (void)setrlimit(RLIMIT_NOFILE, &raised);
    return true;
}

static void start_all(launch_job *job, const launch_env *env)
{
    for (int i = 0; i < env->ranks && job->code == 0; i++) {
        job->ranks[i].place = i;
        job->code = launch_rank_start(&job->ranks[i], i, env, job);
        if (job->code != 0) {
            launch_job_stop(job, SIGTERM);
            return;
        }
        job->started++;
        job->running++;
    }
}

/* Starts all ranks again after every process of the job has ended. */
static void start_again(launch_job *job, launch_env *env)
{
    memcpy(env->restart, job->reports.restart, sizeof env->restart);
    launch_input_finish(&job->input);
    pass_rest(job);
    launch_reports_read(job);
    launch_reports_reset(&job->reports);
    job->started = 0;
    job->restarting = job->sweeping = job->killed = false;
    job->kill_at_ms = LAUNCH_NEVER;
    job->code = 0;
    start_all(job, env);
}

static void run_to_end(launch_job *job, launch_env *env)
{
    start_all(job, env);
    for (;;) {
        while (!all_gone(job))
            wait_for_events(job);
        if (!job->restarting || job->stopping)
            return;
        start_again(job, env);
    }
}

static bool prepare(launch_job *job, launch_env *env, const launch_devices *devices)
{
    if (!launch_env_init(env, (int)job->options->ranks, devices) ||
        !launch_reports_open(&job->reports))
        return false;
    env->report_fd = job->reports.to;
    env->report_inode = job->reports.inode;
    return launch_guard_start(&job->guard, env->token) && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0 &&
           launch_job_catch_signals(job) && allow_files(job);
}

int launch_run(const launch_options *options, const launch_devices *devices)
{
    const int count = (int)options->ranks;
    launch_env env;
    const size_t most = (size_t)(options->ranks + options->respawn);
    launch_job job = {.options = options,
                      .env = &env,
                      .respawns = options->respawn,
                      .reports = {.from = -1, .to = -1},
                      .kill_at_ms = LAUNCH_NEVER,
                      .give_up_at_ms = LAUNCH_NEVER,
                      .guard = {.pipe = -1},
                      .input = {.to = -1},
                      .messages = {.ranks = (int)most},
                      .signal_fd = -1};
    if (!prepare(&job, &env, devices)) {
        int reason = errno;
        launch_guard_dismiss(&job.guard);
        launch_reports_close(&job.reports);
        launch_env_finish(&env);
        return cli_failed("launch: cannot prepare %d processes: %s", count, strerror(reason));
    }
    job.ranks = cli_alloc(most, sizeof *job.ranks);
    job.polls = cli_alloc(2 * most + 3, sizeof *job.polls);
    run_to_end(&job, &env);
    launch_input_finish(&job.input);
    pass_rest(&job);
    launch_messages_finish(&job.messages);
    launch_guard_dismiss(&job.guard);
    launch_reports_close(&job.reports);
    launch_env_finish(&env);
    close(job.signal_fd);
    free(job.polls);
    free(job.ranks);
    return job.code;
}
