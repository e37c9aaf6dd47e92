/* The headers declare nftw and mkdtemp only with X/Open. */
#define _XOPEN_SOURCE 700

#include "bench/harness/child.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/lib/memory.h"

extern char **environ;

#define MAX_ARGUMENTS 16

/* What the signal handler must clean up: a temporary folder and a child process. */
static char folder_in_use[BENCH_FOLDER_SIZE];
static volatile pid_t child_in_use;

static const int deadly[] = {SIGINT, SIGTERM, SIGHUP};
#define DEADLY (sizeof deadly / sizeof *deadly)

/* The signal handler: cleans up, and then lets the signal have its default effect. It uses
 * posix_spawn, because fork takes malloc's locks, which the interrupted thread may hold. */
static void clear_away(int number)
{
    pid_t remover;
    char *const argv[] = {(char[]){"rm"}, (char[]){"-rf"}, (char[]){"--"}, folder_in_use, NULL};
    if (child_in_use > 0) {
        kill(child_in_use, SIGKILL);
        waitpid(child_in_use, NULL, 0);
    }
    if (posix_spawn(&remover, "/bin/rm", NULL, NULL, argv, environ) == 0)
        waitpid(remover, NULL, 0);
    /* The signal is blocked until this handler returns; then the raised signal ends the process. */
    signal(number, SIG_DFL);
    raise(number);
}

static void deadly_set(sigset_t *set)
{
    sigemptyset(set);
    for (size_t i = 0; i < DEADLY; i++)
        sigaddset(set, deadly[i]);
}

/* Sets the handler `with` for the signals whose handler is `old`. A signal that is ignored, as with
 * nohup, has another handler and so stays ignored. */
static void replace_handlers(void (*old)(int), void (*with)(int))
{
    struct sigaction found, action = {.sa_handler = with};
    deadly_set(&action.sa_mask); /* a second signal waits until the clean-up is complete */
    for (size_t i = 0; i < DEADLY; i++)
        if (sigaction(deadly[i], NULL, &found) == 0 && found.sa_handler == old)
            sigaction(deadly[i], &action, NULL);
}

static void hold_signals(sigset_t *before)
{
    sigset_t set;
    deadly_set(&set);
    pthread_sigmask(SIG_BLOCK, &set, before);
}

const char *bench_folder_parent(void)
{
    const char *parent = getenv("TMPDIR");
    return parent != NULL && parent[0] != '\0' ? parent : "/tmp";
}

bool bench_folder_create(char path[BENCH_FOLDER_SIZE])
{
    if (snprintf(path, BENCH_FOLDER_SIZE, "%s/tessera-bench-XXXXXX", bench_folder_parent()) >=
        BENCH_FOLDER_SIZE) {
        errno = ENAMETOOLONG;
        return false;
    }
    sigset_t before;
    hold_signals(&before);
    bool created = mkdtemp(path) != NULL;
    int reason = errno;
    if (created) {
        strcpy(folder_in_use, path);
        replace_handlers(SIG_DFL, clear_away);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = reason;
    return created;
}

static int remove_entry(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    return remove(path);
}

void bench_folder_remove(const char *path)
{
    /* nftw visits the contents of a folder before the folder, and does not follow links. */
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    replace_handlers(clear_away, SIG_DFL);
}

/* Returns a copy of the environment in which the variables that name folders of caches (the
 * library's and Mesa's) have the value `cache`. */
static char **environment_with(const char *cache)
{
    static const char *const replaced[] = {"XDG_CACHE_HOME=", "MESA_SHADER_CACHE_DIR="};
    size_t count = 0;
    while (environ[count] != NULL)
        count++;
    char **copy = cli_alloc(count + 2, sizeof *copy);
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        bool keep = true;
        for (size_t j = 0; j < sizeof replaced / sizeof replaced[0]; j++)
            keep = keep && strncmp(environ[i], replaced[j], strlen(replaced[j])) != 0;
        if (keep)
            copy[kept++] = environ[i];
    }
    size_t size = strlen(replaced[0]) + strlen(cache) + 1;
    copy[kept] = cli_alloc(size, 1);
    snprintf(copy[kept], size, "%s%s", replaced[0], cache);
    return copy;
}

static void free_environment(char **copy)
{
    size_t last = 0;
    while (copy[last + 1] != NULL)
        last++;
    free(copy[last]);
    free(copy);
}

static char *read_all(int from)
{
    size_t used = 0, size = 4096;
    char *text = cli_alloc(size, 1);
    for (;;) {
        ssize_t got = read(from, text + used, size - used - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
        if (size - used < 2)
            text = cli_resize(text, size *= 2, 1);
    }
    text[used] = '\0';
    return text;
}

/* Blocks signals, so that none arrives between starting the child and storing its id. */
static int spawn_known(pid_t *child, const posix_spawn_file_actions_t *actions, char *const *argv,
                       char *const *environment)
{
    sigset_t before;
    posix_spawnattr_t attributes;
    int failed = posix_spawnattr_init(&attributes);
    if (failed != 0)
        return failed;
    hold_signals(&before);
    failed = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    if (failed == 0)
        failed = posix_spawnattr_setsigmask(&attributes, &before);
    if (failed == 0)
        failed = posix_spawn(child, "/proc/self/exe", actions, &attributes, argv, environment);
    child_in_use = failed == 0 ? *child : 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    posix_spawnattr_destroy(&attributes);
    return failed;
}

static int spawn(char *const *arguments, const char *cache, int output, pid_t *child)
{
    char *argv[MAX_ARGUMENTS + 2] = {(char[]){"tessera"}};
    for (int i = 0; arguments[i] != NULL && i < MAX_ARGUMENTS; i++)
        argv[i + 1] = arguments[i];
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);
    if (failed != 0)
        return failed;
    failed = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    if (failed == 0) {
        char **environment = environment_with(cache);
        failed = spawn_known(child, &actions, argv, environment);
        free_environment(environment);
    }
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

bool bench_child_run(char *const *arguments, const char *cache, bench_child_result *result)
{
    int ends[2];
    pid_t child;
    if (pipe(ends) != 0)
        return false;
    fcntl(ends[0], F_SETFD, FD_CLOEXEC);
    fcntl(ends[1], F_SETFD, FD_CLOEXEC);
    int failed = spawn(arguments, cache, ends[1], &child);
    close(ends[1]);
    if (failed != 0) {
        close(ends[0]);
        errno = failed;
        return false;
    }
    result->output = read_all(ends[0]);
    close(ends[0]);
    /* The signal handler must not kill the child from here on: it ends by itself, and its id may
     * then belong to another process. */
    child_in_use = 0;
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        continue;
    result->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
}
