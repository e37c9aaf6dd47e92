/* tessera launch, run as a program. Its ranks are shells. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "support/check_main.h"

#define MOST_ARGUMENTS 16

/* Where a test's files are; every test runs in a process of its own. */
static char folder[64];

/* Where a job's output goes instead of a file, or −1. */
static int piped = -1;

typedef struct launched {
    pid_t pid;
    int status; /* exit status, or −signal */
    char *out, *err;
    double seconds;
} launched;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static void rest(double seconds)
{
    const int64_t ns = (int64_t)(seconds * 1e9);
    nanosleep(&(struct timespec){ns / 1000000000, ns % 1000000000}, NULL);
}

static void make_folder(void)
{
    strcpy(folder, "/tmp/tessera-launch-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    setenv("FOLDER", folder, 1);
    /* The tests' own caller may ignore them: nohup, or a shell that is no terminal's with the tests
     * in its background. */
    signal(SIGHUP, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    signal(SIGQUIT, SIG_DFL);
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static const char *in_folder(const char *name)
{
    static char path[2][128];
    static int turn;
    snprintf(path[turn ^= 1], sizeof path[0], "%s/%s", folder, name);
    return path[turn];
}

static char *read_file(const char *name)
{
    FILE *file = fopen(in_folder(name), "r");
    size_t size = 1 << 23;
    char *text = calloc(size, 1);
    ck_assert_ptr_nonnull(text);
    if (file != NULL) {
        size_t got = fread(text, 1, size - 1, file);
        text[got] = '\0';
        fclose(file);
    }
    return text;
}

/* `arguments`: those of `tessera launch`, separated by ~. */
static launched start(const char *arguments)
{
    char copy[2048], *argv[MOST_ARGUMENTS + 3] = {(char[]){TEST_TOOL}, (char[]){"launch"}};
    int argc = 2;
    ck_assert_uint_lt(strlen(arguments), sizeof copy);
    strcpy(copy, arguments);
    for (char *word = strtok(copy, "~"); word != NULL; word = strtok(NULL, "~")) {
        ck_assert_int_lt(argc, MOST_ARGUMENTS + 2);
        argv[argc++] = word;
    }
    launched job = {.seconds = now()};
    job.pid = fork();
    ck_assert_int_ge(job.pid, 0);
    if (job.pid == 0) {
        int out = open(in_folder("out"), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
        int err = open(in_folder("err"), O_CREAT | O_TRUNC | O_WRONLY | O_APPEND, 0600);
        int in = access(in_folder("in"), R_OK) == 0 ? open(in_folder("in"), O_RDONLY)
                                                    : open("/dev/null", O_RDONLY);
        dup2(in, 0);
        dup2(piped >= 0 ? piped : out, 1);
        dup2(err, 2);
        close(piped);
        execv(argv[0], argv);
        _exit(99);
    }
    return job;
}

static void finish(launched *job)
{
    int status;
    ck_assert_int_eq(waitpid(job->pid, &status, 0), job->pid);
    job->seconds = now() - job->seconds;
    job->status = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    job->out = read_file("out");
    job->err = read_file("err");
}

static launched launch(const char *arguments)
{
    launched job = start(arguments);
    finish(&job);
    return job;
}

static void done(launched *job)
{
    free(job->out);
    free(job->err);
}

/* Waits until a file is there, for 10 s at most. Ranks make one to say that they are ready. */
static void wait_for(const char *name)
{
    for (int i = 0; i < 2000; i++) {
        if (access(in_folder(name), F_OK) == 0)
            return;
        rest(0.005);
    }
    char *err = read_file("err");
    ck_abort_msg("no file %s; standard error: %s", name, err);
}

/* Whether a process that wrote its number into a file is there: a zombie is not. */
static bool is_alive(const char *name)
{
    char *number = read_file(name), path[64], line[512] = "";
    ck_assert_msg(atoi(number) > 0, "no number in %s", name);
    snprintf(path, sizeof path, "/proc/%d/stat", atoi(number));
    free(number);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return false;
    bool got = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *state = strrchr(line, ')');
    return got && state != NULL && state[2] != 'Z' && state[2] != 'X';
}

static void assert_gone(const char *name)
{
    for (int i = 0; i < 1000 && is_alive(name); i++)
        rest(0.002);
    ck_assert_msg(!is_alive(name), "process %s is still there", name);
}

static int count(const char *text, const char *what)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at += strlen(what))
        found++;
    return found;
}

static void assert_has(const char *text, const char *what)
{
    ck_assert_msg(strstr(text, what) != NULL, "no '%s' in: %.2000s", what, text);
}

/* Arguments. */

static const struct {
    const char *arguments, *error;
} mistakes[] = {
    {"", "tessera: launch: how many processes? -n N says it\n"},
    {"true", "tessera: launch: how many processes? -n N says it\n"},
    {"-n~2", "tessera: launch: which program? It stands after the options\n"},
    {"-n~2~--", "tessera: launch: which program? It stands after the options\n"},
    {"-n~0~true", "tessera: launch: --ranks takes an integer from 1 to 1024, not '0'\n"},
    {"--ranks=1025~true", "tessera: launch: --ranks takes an integer from 1 to 1024, not '1025'\n"},
    {"-n~two~true", "tessera: launch: --ranks takes an integer from 1 to 1024, not 'two'\n"},
    {"-n", "tessera: launch: --ranks needs a value: N\n"},
    {"-x~true", "tessera: launch: unknown option '-x'; 'tessera help launch' lists them\n"},
    {"-n~2~--grace~-1~true", "tessera: launch: --grace takes a number from 0 to 86400, not '-1'\n"},
    {"-n~2~--device-map~0,a~true", "tessera: launch: --device-map takes auto or indices from 0 to "
                                   "4095 with commas between them, not '0,a'\n"},
    {"-n~2~--device-map~0,~true", "tessera: launch: --device-map takes auto or indices from 0 to "
                                  "4095 with commas between them, not '0,'\n"},
    {"-n~2~--device-map~-1~true", "tessera: launch: --device-map takes auto or indices from 0 to "
                                  "4095 with commas between them, not '-1'\n"},
};

START_TEST(refuses_wrong_arguments)
{
    launched job = launch(mistakes[_i].arguments);
    ck_assert_str_eq(job.err, mistakes[_i].error);
    ck_assert_str_eq(job.out, "");
    ck_assert_int_eq(job.status, 2);
    done(&job);
}
END_TEST

START_TEST(leaves_arguments_to_the_program)
{
    static const char *const ways[] = {
        "-n~1~echo~-n~--help~--json~--~x",
        "-n~1~--~echo~-n~--help~--json~--~x",
        "--ranks=1~--grace=1~--~echo~-n~--help~--json~--~x",
    };
    for (int i = 0; i < 3; i++) {
        launched job = launch(ways[i]);
        ck_assert_str_eq(job.err, "");
        ck_assert_str_eq(job.out, "[0] --help --json -- x\n");
        ck_assert_int_eq(job.status, 0);
        done(&job);
    }
    launched job = launch("-n~1~--help");
    assert_has(job.out, "usage: tessera launch -n N [options] [--] PROGRAM [arguments]\n");
    ck_assert_int_eq(job.status, 0);
    done(&job);
}
END_TEST

START_TEST(says_what_cannot_be_run)
{
    launched job = launch("-n~3~/nonexistent/program");
    ck_assert_str_eq(job.err, "tessera: launch: cannot run '/nonexistent/program': No such file or "
                              "directory\n");
    ck_assert_int_eq(job.status, 127);
    done(&job);
    job = launch("-n~3~/etc/passwd");
    ck_assert_str_eq(job.err, "tessera: launch: cannot run '/etc/passwd': Permission denied\n");
    ck_assert_int_eq(job.status, 126);
    done(&job);
}
END_TEST

/* Ranks get the limit that the launcher had, which takes more. */
START_TEST(starts_more_than_files_may_be_open)
{
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    ck_assert_uint_ge(limit.rlim_max, 256);
    limit.rlim_cur = 32;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    launched job = launch("-n~40~--device-map~0~sh~-c~ulimit -Sn");
    ck_assert_str_eq(job.err, "");
    ck_assert_int_eq(count(job.out, "] 32\n"), 40);
    ck_assert_int_eq(job.status, 0);
    done(&job);

    limit.rlim_max = 32;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    job = launch("-n~40~--device-map~0~sleep~60");
    int rank = 0;
    ck_assert_int_eq(sscanf(job.err, "tessera: launch: cannot start rank %d of 40: ", &rank), 1);
    ck_assert(rank > 0 && rank < 16);
    assert_has(job.err, ": too many open files; each takes two, and 'ulimit -Hn' shows the most\n");
    ck_assert_int_eq(count(job.err, "\n"), 1);
    ck_assert_int_eq(job.status, 1);
    done(&job);
}
END_TEST

/* What ranks are told. */

static const char show_all[] =
    "-n~3~--device-map~4,1~sh~-c~echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR "
    "$TESSERA_DEVICE $TESSERA_BOOT ${PMIX_RANK-none} ${TORCHELASTIC_RUN_ID-none} "
    "$MASTER_PORT $TESSERA_MASTER_PORT $TESSERA_TOKEN >$FOLDER/rank.$RANK";

START_TEST(tells_ranks_who_they_are)
{
    char token[2][65] = {""};
    setenv("PMIX_RANK", "7", 1);
    setenv("TORCHELASTIC_RUN_ID", "x", 1);
    setenv("TESSERA_TOKEN", "of the launcher around this one", 1);
    for (int round = 0; round < 2; round++) {
        launched job = launch(show_all);
        ck_assert_str_eq(job.err, "");
        ck_assert_int_eq(job.status, 0);
        int ports[2] = {0};
        for (int rank = 0; rank < 3; rank++) {
            char name[24], expected[256], one[65];
            int port[2];
            snprintf(name, sizeof name, "rank.%d", rank);
            char *said = read_file(name);
            snprintf(expected, sizeof expected, "%d 3 %d 3 127.0.0.1 %d env none none ", rank, rank,
                     rank == 1 ? 1 : 4);
            ck_assert_msg(strncmp(said, expected, strlen(expected)) == 0, "'%s' and not '%s'", said,
                          expected);
            ck_assert_int_eq(sscanf(said + strlen(expected), "%d %d %64s", &port[0], &port[1], one),
                             3);
            free(said);
            if (rank == 0) {
                memcpy(ports, port, sizeof ports);
                strcpy(token[round], one);
            }
            ck_assert_int_eq(port[0], ports[0]);
            ck_assert_int_eq(port[1], ports[1]);
            ck_assert_str_eq(one, token[round]);
        }
        ck_assert_int_ne(ports[0], ports[1]);
        ck_assert_int_ge(ports[0], 1024);
        ck_assert_uint_eq(strlen(token[round]), 64);
        ck_assert_uint_eq(strspn(token[round], "0123456789abcdef"), 64);
        done(&job);
    }
    ck_assert_str_ne(token[0], token[1]);
}
END_TEST

START_TEST(leaves_a_device_that_is_set)
{
    setenv("VK_DRIVER_FILES", "/nonexistent.json", 1);
    setenv("VK_ICD_FILENAMES", "/nonexistent.json", 1);
    unsetenv("TESSERA_DEVICE");
    launched job = launch("-n~1~sh~-c~echo ${TESSERA_DEVICE-none}");
    ck_assert_str_eq(job.out, "[0] none\n"); /* there is none */
    done(&job);
    setenv("TESSERA_DEVICE", "of mine", 1);
    job = launch("-n~1~sh~-c~echo ${TESSERA_DEVICE-none}");
    ck_assert_str_eq(job.out, "[0] of mine\n");
    done(&job);
    job = launch("-n~1~--device-map~3~sh~-c~echo ${TESSERA_DEVICE-none}");
    ck_assert_str_eq(job.out, "[0] 3\n");
    done(&job);
}
END_TEST

START_TEST(gives_standard_input_to_rank_0)
{
    FILE *in = fopen(in_folder("in"), "w");
    ck_assert_ptr_nonnull(in);
    fputs("one\ntwo\n", in);
    fclose(in);
    launched job = launch("-n~3~cat");
    ck_assert_str_eq(job.out, "[0] one\n[0] two\n");
    ck_assert_int_eq(job.status, 0);
    done(&job);
}
END_TEST

/* What ranks say. */

START_TEST(keeps_lines_whole)
{
    launched job = launch("-n~4~sh~-c~for i in 1 2 3 4 5; do "
                          "seq -f \"$RANK: %05.0f of a line of some length\" 400; done");
    ck_assert_str_eq(job.err, "");
    ck_assert_int_eq(job.status, 0);
    int lines[4] = {0};
    for (char *line = strtok(job.out, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        int prefix, rank, number;
        char expected[128];
        ck_check(sscanf(line, "[%d] %d: %d of a line", &prefix, &rank, &number) == 3);
        ck_check(prefix == rank && rank >= 0 && rank < 4);
        ck_check(number == lines[rank] % 400 + 1); /* in order */
        snprintf(expected, sizeof expected, "[%d] %d: %05d of a line of some length", rank, rank,
                 number);
        ck_check(strcmp(line, expected) == 0);
        lines[rank]++;
    }
    for (int rank = 0; rank < 4; rank++)
        ck_assert_int_eq(lines[rank], 2000);
    done(&job);
}
END_TEST

START_TEST(keeps_output_and_error_apart)
{
    launched job = launch("-n~12~sh~-c~if [ $RANK = 3 ]; then echo out; printf 'no end' >&2; fi; "
                          "if [ $RANK = 11 ]; then echo; fi");
    ck_assert_int_eq(job.status, 0);
    assert_has(job.out, "[ 3] out\n");
    assert_has(job.out, "[11] \n");
    ck_assert_uint_eq(strlen(job.out), strlen("[ 3] out\n[11] \n"));
    ck_assert_str_eq(job.err, "[ 3] no end\n");
    done(&job);
    job = launch("-n~1~--no-prefix~sh~-c~printf 'as it'; printf ' is' >&2");
    ck_assert_str_eq(job.out, "as it");
    ck_assert_str_eq(job.err, " is");
    done(&job);
}
END_TEST

START_TEST(cuts_lines_without_end)
{
    launched job = launch("-n~1~sh~-c~head -c 3000000 /dev/zero | tr '\\0' x");
    ck_assert_int_eq(job.status, 0);
    ck_assert_int_eq(count(job.out, "[0] "), 3); /* of 1 MiB, the last shorter */
    ck_assert_uint_eq(strlen(job.out), 3000000 + 3 * strlen("[0] \n"));
    done(&job);
}
END_TEST

START_TEST(a_full_disk_is_a_failure)
{
    char command[512];
    snprintf(command, sizeof command,
             "'%s' launch -n 2 --grace 1 sh -c 'echo $$ >$FOLDER/pid.$RANK; while [ ! -s "
             "$FOLDER/pid.0 ] "
             "|| [ ! -s $FOLDER/pid.1 ]; do sleep 0.01; done; yes' >/dev/full 2>'%s'",
             TEST_TOOL, in_folder("err"));
    ck_assert_int_eq(system(command), 1 << 8);
    char *err = read_file("err");
    ck_assert_str_eq(err,
                     "tessera: launch: cannot write to standard output: No space left on device\n");
    free(err);
    assert_gone("pid.0");
    assert_gone("pid.1");
}
END_TEST

/* Not a pipe of the launcher's own that got its number. */
START_TEST(a_closed_output_is_a_failure)
{
    char command[256];
    snprintf(command, sizeof command, "'%s' launch -n 2 echo hello >&- 2>'%s'", TEST_TOOL,
             in_folder("err"));
    ck_assert_int_eq(system(command), 1 << 8);
    char *err = read_file("err");
    ck_assert_str_eq(err,
                     "tessera: launch: cannot write to standard output: Bad file descriptor\n");
    free(err);
}
END_TEST

/* Starts a job whose output goes into a pipe that is not read yet; its end to read from. */
static launched start_into_pipe(const char *arguments, int flags, int *out)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(fcntl(ends[1], F_SETFL, O_WRONLY | flags), 0);
    ck_assert_int_eq(fcntl(ends[0], F_SETFD, FD_CLOEXEC), 0);
    piped = ends[1];
    launched job = start(arguments);
    piped = -1;
    close(ends[1]);
    *out = ends[0];
    return job;
}

/* All that comes until the end, and how many bytes it is. */
static char *read_all(int from, size_t *size)
{
    size_t most = 1 << 23;
    char *text = calloc(most, 1);
    ck_assert_ptr_nonnull(text);
    *size = 0;
    for (ssize_t got; (got = read(from, text + *size, most - 1 - *size)) > 0;)
        *size += (size_t)got;
    close(from);
    return text;
}

static const struct {
    const char *arguments;
    int signals, status;
} unread[] = {
    {"-n~2~--grace~1~sh~-c~echo $$ >$FOLDER/pid.$RANK; exec yes", 1, 128 + SIGTERM},
    {"-n~2~--grace~1~sh~-c~trap '' TERM; echo $$ >$FOLDER/pid.$RANK; yes", 1, 128 + SIGKILL},
    {"-n~2~--grace~60~sh~-c~trap '' TERM; echo $$ >$FOLDER/pid.$RANK; yes", 2, 128 + SIGKILL},
    /* They have ended, only their output is left. */
    {"-n~2~--grace~1~sh~-c~echo $$ >$FOLDER/pid.$RANK; yes | head -n 20000", 1, 1},
};

START_TEST(ends_where_nobody_reads)
{
    int out;
    launched job = start_into_pipe(unread[_i].arguments, 0, &out);
    wait_for("pid.0");
    wait_for("pid.1");
    rest(0.5); /* the pipe is full */
    for (int i = 0; i < unread[_i].signals; i++) {
        kill(job.pid, SIGTERM);
        rest(0.2);
    }
    job.seconds = now();
    finish(&job);
    ck_assert_double_lt(job.seconds, 3);
    ck_assert_int_eq(job.status, unread[_i].status);
    ck_assert_str_eq(job.err,
                     "tessera: launch: nobody reads standard output: the rest of it is lost\n");
    assert_gone("pid.0");
    assert_gone("pid.1");
    done(&job);
    close(out);
}
END_TEST

/* No deadline ends what a job that was not told to end has printed: somebody may read it later. */
START_TEST(waits_for_who_reads_late)
{
    static const int flags[] = {0, O_NONBLOCK};
    int out;
    size_t size, expected = 0;
    launched job = start_into_pipe("-n~1~--grace~0~sh~-c~seq 40000; exit 3", flags[_i], &out);
    rest(1);
    char *text = read_all(out, &size);
    finish(&job);
    for (int i = 1; i <= 40000; i++)
        expected += (size_t)snprintf(NULL, 0, "[0] %d\n", i);
    ck_assert_int_eq(job.status, 3);
    ck_assert_uint_eq(size, expected);
    assert_has(job.err, "exited with status 3\n");
    ck_assert_int_eq(count(job.err, "\n"), 1);
    free(text);
    done(&job);
}
END_TEST

/* How it ends. */

START_TEST(fails_as_the_first_that_failed)
{
    launched job = launch("-n~3~sh~-c~echo $$ >$FOLDER/pid.$RANK; if [ $RANK = 1 ]; then "
                          "while [ ! -s $FOLDER/pid.0 ] || [ ! -s $FOLDER/pid.2 ]; do sleep 0.01; "
                          "done; exit 7; fi; exec sleep 60");
    ck_assert_int_eq(job.status, 7);
    ck_assert_double_lt(job.seconds, 5);
    char expected[128], *pid = read_file("pid.1");
    snprintf(expected, sizeof expected,
             "tessera: launch: rank 1 (process %d) exited with status 7; stopping the others\n",
             atoi(pid));
    ck_assert_str_eq(job.err, expected);
    free(pid);
    assert_gone("pid.0");
    assert_gone("pid.2");
    done(&job);
}
END_TEST

START_TEST(fails_with_128_and_the_signal)
{
    launched job = launch("-n~2~sh~-c~if [ $RANK = 0 ]; then kill -9 $$; fi; exec sleep 60");
    ck_assert_int_eq(job.status, 128 + 9);
    assert_has(job.err, "tessera: launch: rank 0 (process ");
    assert_has(job.err, ") was ended by signal 9, Killed; stopping the others\n");
    done(&job);
    job = launch("-n~1~sh~-c~kill -6 $$");
    ck_assert_int_eq(job.status, 128 + 6);
    assert_has(job.err, ") was ended by signal 6, Aborted\n");
    done(&job);
}
END_TEST

START_TEST(kills_who_does_not_end)
{
    launched job =
        launch("-n~3~--grace~0.5~sh~-c~echo $$ >$FOLDER/pid.$RANK; trap 'echo asked' TERM; "
               "if [ $RANK = 1 ]; then while [ ! -s $FOLDER/pid.0 ] || [ ! -s $FOLDER/pid.2 ]; do "
               "sleep 0.01; done; exit 3; fi; if [ $RANK = 2 ]; then kill -STOP $$; fi; "
               "while :; do sleep 0.05; done");
    ck_assert_int_eq(job.status, 3);
    ck_assert_double_ge(job.seconds, 0.5);
    ck_assert_double_lt(job.seconds, 3);
    assert_has(job.out, "[0] asked\n");
    assert_gone("pid.0");
    assert_gone("pid.2");
    done(&job);
}
END_TEST

/* A rank's own processes, and those that have left its group and its session. */
static const char with_children[] =
    "-n~2~--grace~0.3~sh~-c~trap '' TERM; "
    "sh -c 'echo $$ >$FOLDER/child.$RANK; trap \"\" TERM; while :; do sleep 1; done' & "
    "setsid sh -c 'trap \"\" TERM; echo $$ >$FOLDER/session.$RANK; while :; do sleep 1; done' & "
    "while [ ! -s $FOLDER/child.$RANK ] || [ ! -s $FOLDER/session.$RANK ]; do sleep 0.01; done; "
    "echo $$ >$FOLDER/pid.$RANK; if [ ${STAY-no} = yes ]; then while :; do sleep 1; done; fi; ";

static void assert_all_gone(void)
{
    static const char *const names[] = {"pid.0",   "pid.1",     "child.0",
                                        "child.1", "session.0", "session.1"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_gone(names[i]);
}

START_TEST(leaves_nothing_behind)
{
    launched job = launch(with_children);
    ck_assert_int_eq(job.status, 0);
    ck_assert_double_lt(job.seconds, 5);
    assert_all_gone();
    done(&job);
}
END_TEST

START_TEST(killed_it_takes_all_along)
{
    setenv("STAY", "yes", 1);
    launched job = start(with_children);
    wait_for("pid.0");
    wait_for("pid.1");
    kill(job.pid, SIGKILL);
    finish(&job);
    ck_assert_int_eq(job.status, -9);
    assert_all_gone();
    done(&job);
}
END_TEST

/* Children of the process that are zombies. */
static int count_zombies(pid_t pid)
{
    char command[256], text[16] = "";
    snprintf(command, sizeof command,
             "for i in $(cat /proc/%d/task/%d/children); do cat /proc/$i/status; done | "
             "grep -c 'State:.Z'",
             (int)pid, (int)pid);
    FILE *pipe = popen(command, "r");
    ck_assert_ptr_nonnull(pipe);
    ck_assert_ptr_nonnull(fgets(text, sizeof text, pipe));
    pclose(pipe);
    return atoi(text);
}

START_TEST(buries_orphans_that_end_together)
{
    launched job = start(
        "-n~1~sh~-c~mkfifo $FOLDER/gate; for j in 1 2 3 4 5; do sh -c 'for i in $(seq 60); do "
        "read line <$FOLDER/gate & done'; done; echo >$FOLDER/orphans; "
        "sleep 0.3; : >$FOLDER/gate; echo >$FOLDER/ended; sleep 3");
    wait_for("ended");
    rest(1);
    ck_assert_int_eq(count_zombies(job.pid), 0);
    finish(&job);
    ck_assert_int_eq(job.status, 0);
    done(&job);
}
END_TEST

/* A launcher in a launcher. Both are killed, and the guard of the inner one lives to see it:
 * nothing but that launcher is of the outer job. */
START_TEST(killed_it_takes_a_launcher_inside_along)
{
    /* Once the inner guard has changed its own, the inner launcher alone has the outer token. */
    launched job = start("-n~1~sh~-c~export OUTER=$TESSERA_TOKEN; exec \"$0\" launch -n 1 sh -c '"
                         "until [ $(grep -lzx TESSERA_TOKEN=$OUTER /proc/[0-9]*/environ "
                         "2>/dev/null | wc -l) = 1 ]; do sleep 0.05; done; "
                         "echo $$ >$FOLDER/pid.0; setsid sleep 60 & echo $! >$FOLDER/session.0; "
                         "sleep 60'~" TEST_TOOL);
    wait_for("session.0");
    rest(0.05);
    kill(job.pid, SIGKILL);
    finish(&job);
    assert_gone("pid.0");
    assert_gone("session.0");
    done(&job);
}
END_TEST

/* Signals. */

static const char with_traps[] =
    "-n~2~--grace~20~sh~-c~trap 'echo USR1' USR1; trap 'echo HUP; exit 5' HUP; "
    "trap 'echo TERM; exit 0' TERM; trap 'echo INT; exit 0' INT; echo $$ >$FOLDER/pid.$RANK; "
    "while :; do sleep 0.02; done";

static launched start_ready(const char *arguments)
{
    launched job = start(arguments);
    wait_for("pid.0");
    wait_for("pid.1");
    rest(0.05); /* the file is there before its process has gone on */
    return job;
}

static const struct {
    int signal, status;
    const char *said;
} signals[] = {{SIGTERM, 0, "TERM"}, {SIGINT, 0, "INT"}, {SIGHUP, 5, "HUP"}};

START_TEST(passes_signals_on)
{
    launched job = start_ready(with_traps);
    kill(job.pid, SIGUSR1);
    rest(0.2);
    kill(job.pid, signals[_i].signal);
    finish(&job);
    ck_assert_int_eq(job.status, signals[_i].status);
    for (int rank = 0; rank < 2; rank++) {
        char line[32];
        snprintf(line, sizeof line, "[%d] USR1\n", rank);
        assert_has(job.out, line);
        snprintf(line, sizeof line, "[%d] %s\n", rank, signals[_i].said);
        assert_has(job.out, line);
    }
    done(&job);
}
END_TEST

START_TEST(interrupted_it_says_so_by_its_status)
{
    launched job = start_ready("-n~2~sh~-c~echo $$ >$FOLDER/pid.$RANK; exec sleep 60");
    kill(job.pid, SIGINT);
    finish(&job);
    ck_assert_int_eq(job.status, 128 + SIGINT);
    ck_assert_str_eq(job.err, "");
    assert_gone("pid.0");
    assert_gone("pid.1");
    done(&job);
}
END_TEST

START_TEST(a_second_signal_kills)
{
    launched job = start_ready("-n~2~--grace~60~sh~-c~trap '' INT; echo $$ >$FOLDER/pid.$RANK; "
                               "while :; do sleep 1; done");
    kill(job.pid, SIGINT);
    rest(0.3);
    ck_assert(is_alive("pid.0") && is_alive("pid.1"));
    kill(job.pid, SIGINT);
    finish(&job);
    ck_assert_int_eq(job.status, 128 + SIGKILL);
    ck_assert_double_lt(job.seconds, 5);
    assert_gone("pid.0");
    assert_gone("pid.1");
    done(&job);
}
END_TEST

START_TEST(a_signal_ignored_stays_ignored)
{
    signal(SIGHUP, SIG_IGN); /* nohup */
    launched job = start_ready("-n~2~sh~-c~echo $$ >$FOLDER/pid.$RANK; kill -HUP $$; sleep 0.4");
    kill(job.pid, SIGHUP);
    finish(&job);
    ck_assert_int_eq(job.status, 0);
    done(&job);
}
END_TEST

TESTS(launch)
{
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_loop_test(tests, refuses_wrong_arguments, 0,
                        (int)(sizeof mistakes / sizeof mistakes[0]));
    tcase_add_test(tests, leaves_arguments_to_the_program);
    tcase_add_test(tests, says_what_cannot_be_run);
    tcase_add_test(tests, starts_more_than_files_may_be_open);
    tcase_add_test(tests, tells_ranks_who_they_are);
    tcase_add_test(tests, leaves_a_device_that_is_set);
    tcase_add_test(tests, gives_standard_input_to_rank_0);
    tcase_add_test(tests, keeps_lines_whole);
    tcase_add_test(tests, keeps_output_and_error_apart);
    tcase_add_test(tests, cuts_lines_without_end);
    tcase_add_test(tests, a_full_disk_is_a_failure);
    tcase_add_test(tests, a_closed_output_is_a_failure);
    tcase_add_loop_test(tests, ends_where_nobody_reads, 0, (int)(sizeof unread / sizeof unread[0]));
    tcase_add_loop_test(tests, waits_for_who_reads_late, 0, 2);
    tcase_add_test(tests, fails_as_the_first_that_failed);
    tcase_add_test(tests, fails_with_128_and_the_signal);
    tcase_add_test(tests, kills_who_does_not_end);
    tcase_add_test(tests, leaves_nothing_behind);
    tcase_add_test(tests, killed_it_takes_all_along);
    tcase_add_test(tests, buries_orphans_that_end_together);
    tcase_add_test(tests, killed_it_takes_a_launcher_inside_along);
    tcase_add_loop_test(tests, passes_signals_on, 0, (int)(sizeof signals / sizeof signals[0]));
    tcase_add_test(tests, interrupted_it_says_so_by_its_status);
    tcase_add_test(tests, a_second_signal_kills);
    tcase_add_test(tests, a_signal_ignored_stays_ignored);
}
