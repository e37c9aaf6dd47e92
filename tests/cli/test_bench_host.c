/* Tests that the benchmarks that need no device run, verify and report. */
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/bench_result.h"
#include "cli/tool.h"
#include "cli/tool_config.h"
#include "support/check_main.h"
#include "tsr_config.h"

/* The numbers of results of collectives, which have ten sizes with two and with four ranks; and of
 * their ceiling, which is the bandwidth of the memory. */
#if TSR__HAVE_UCX
enum { ALL_REDUCES = 20, ALL_REDUCE_CEILINGS = 1 };
#else
enum { ALL_REDUCES = 0, ALL_REDUCE_CEILINGS = 0 };
#endif

static const struct {
    const char *arguments;
    int results, with_memory;
} benchmarks[] = {
    {"bench rng --json --time 0.001", 5, 0},
    {"bench sample --json --time 0.001", 7, 1},
    {"bench plan --json --time 0.001", 4, 0},
#if TSR__HAVE_UCX
    {"bench all-reduce --ranks 2 --json --time 0.001", 10, 0},
    /* messages between each pair of ranks, and all-reduces of all ranks */
    {"bench link --ranks 3 --json --time 0.001", 6 + 2, 0},
    {"bench link -b 4 -e 64 -f 4 --json --time 0.001", 3 + 3, 0},
#endif
#if !TSR__HAVE_VULKAN
    /* A build without Vulkan has the host's benchmarks only. */
    {"bench --json --time 0.001", 26 + ALL_REDUCES, 1},
#endif
};

/* Counts the results for which the peak of memory was measured. The peak includes 4 bytes for each
 * of 10^7 items. */
static int with_memory(const json_t *document)
{
    int measured = 0;
    const json_t *result;
    size_t i;
    json_array_foreach(tool_member(document, "results"), i, result)
    {
        if (json_is_null(tool_member(result, "peak_bytes")))
            continue;
        ck_assert_double_gt(tool_number(result, "peak_bytes"), 4e7);
        ck_assert_ptr_nonnull(strstr(tool_text(result, "elsewhere"), "690 MiB"));
        measured++;
    }
    return measured;
}

/* Counts the results that exist only where ranks share processors. */
static int of_shared_processors(const json_t *document)
{
    int count = 0;
    const json_t *result;
    size_t i;
    json_array_foreach(tool_member(document, "results"), i, result)
    {
        count += strcmp(tool_text(result, "benchmark"), "turn") == 0;
    }
    return count;
}

START_TEST(every_result_is_valid)
{
    int count;
    json_t *document = bench_result_run(benchmarks[_i].arguments, &count);
    ck_assert_int_eq(count - of_shared_processors(document), benchmarks[_i].results);
    ck_assert_int_eq(with_memory(document), benchmarks[_i].with_memory);
    ck_assert_int_eq((int)json_array_size(tool_member(document, "devices")), 0);
    json_decref(document);
}
END_TEST

#if TSR__HAVE_UCX
/* Two runs must have results with the same cases, so that they can be compared: measured values
 * must not be part of a case. */
START_TEST(collectives_can_be_compared)
{
    char paths[2][32] = {"/tmp/tessera-test-XXXXXX", "/tmp/tessera-test-XXXXXX"}, arguments[160];
    for (int i = 0; i < 2; i++) {
        int file = mkstemp(paths[i]);
        ck_assert_int_ge(file, 0);
        close(file);
        snprintf(arguments, sizeof arguments, "bench all-reduce --ranks 2 --time 0.001 -o %s",
                 paths[i]);
        tool_result result = tool_run(arguments);
        ck_assert_msg(result.exit_code == 0, "%s", result.err);
        ck_assert_ptr_nonnull(strstr(result.out, "  busbw  "));
        ck_assert_ptr_nonnull(strstr(result.out, "\nceiling  memcpy "));
        tool_result_free(&result);
    }
    json_t *document = json_load_file(paths[0], 0, NULL);
    const json_t *result;
    size_t i;
    json_array_foreach(tool_member(document, "results"), i, result)
    {
        if (json_is_true(tool_member(result, "is_ceiling")))
            continue;
        ck_assert_double_eq_tol(tool_number(result, "busbw") /
                                    tool_number(tool_member(result, "value"), "median"),
                                1, 1e-12); /* 2 (N - 1) / N of the bytes, for two ranks */
    }
    json_decref(document);
    snprintf(arguments, sizeof arguments, "bench compare %s %s", paths[0], paths[1]);
    tool_result compared = tool_run(arguments);
    ck_assert_ptr_nonnull(strstr(compared.out, "\n10 compared: "));
    tool_result_free(&compared);
    remove(paths[0]);
    remove(paths[1]);
}
END_TEST

/* As in nccl-tests, all ranks have equal shares, so a size may be a little smaller than the
 * requested one. */
static const struct {
    const char *arguments;
    int64_t bytes[4], busbw_over_rate; /* the ratio of busbw and rate, times 6 */
} sizes[] = {
    {"all-reduce --ranks 2 -b 16 -e 1k -f 4", {16, 64, 256, 1024}, 6},
    {"all-reduce --ranks 3 --minbytes 1M --maxbytes 2M", {1 << 20, 2 << 20}, 8},
    {"all-gather --ranks 3 -b 64 -e 100 --stepfactor 9", {60}, 4},
    {"reduce-scatter --ranks 3 -b 8 -e 16", {12}, 4},
};

START_TEST(sizes_are_chosen)
{
    char arguments[160];
    int count, want = 0;
    snprintf(arguments, sizeof arguments, "bench %s --time 0.001 --json", sizes[_i].arguments);
    json_t *document = bench_result_run(arguments, &count);
    while (want < 4 && sizes[_i].bytes[want] > 0)
        want++;
    ck_assert_int_eq(count, want);
    const json_t *result;
    size_t i;
    int seen = 0;
    json_array_foreach(tool_member(document, "results"), i, result)
    {
        if (json_is_true(tool_member(result, "is_ceiling")))
            continue;
        const json_t *bytes = tool_member(tool_member(result, "case"), "bytes");
        ck_assert_int_eq(json_integer_value(bytes), sizes[_i].bytes[seen++]);
        ck_assert_double_eq_tol(6 * tool_number(result, "busbw") /
                                    tool_number(tool_member(result, "value"), "median"),
                                (double)sizes[_i].busbw_over_rate, 1e-9);
    }
    json_decref(document);
}
END_TEST

/* Under a launcher, the ranks of the job are measured, and rank 0 alone reports. */
static const struct {
    const char *benchmark;
    int ranks, results;
} jobs[] = {
    {"all-reduce -b 8 -e 64K -f 8192", 3, 2},
    {"reduce-scatter -b 4 -e 64 -f 4", 3, 2}, /* 4 B are less than one element for each rank */
    {"link", 3, 6},
};

START_TEST(a_job_is_measured)
{
    char path[] = "/tmp/tessera-test-XXXXXX", arguments[256];
    int file = mkstemp(path), results = 0;
    ck_assert_int_ge(file, 0);
    close(file);
    snprintf(arguments, sizeof arguments, "launch -n %d -- %s bench %s --time 0.001 -o %s",
             jobs[_i].ranks, TEST_TOOL, jobs[_i].benchmark, path);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_ptr_nonnull(strstr(result.out, "[0] "));
    ck_assert_ptr_null(strstr(result.out, "[1] "));
    tool_result_free(&result);
    json_t *document = json_load_file(path, 0, NULL);
    const json_t *one;
    size_t i;
    json_array_foreach(tool_member(document, "results"), i, one)
    {
        const json_t *which = tool_member(one, "case");
        const char *name = tool_text(one, "benchmark");
        if (strncmp(jobs[_i].benchmark, name, strlen(name)) != 0)
            continue;
        results++;
        ck_assert_double_gt(tool_number(tool_member(one, "value"), "median"), 0);
        if (strcmp(jobs[_i].benchmark, "link") == 0) {
            ck_assert_double_lt(tool_number(which, "rank"), tool_number(which, "peer"));
            ck_assert_str_eq(tool_text(which, "hosts"), "same");
        } else {
            ck_assert_double_eq(tool_number(which, "ranks"), jobs[_i].ranks);
            ck_assert_double_eq(tool_number(which, "hosts"), 1);
        }
    }
    ck_assert_int_eq(results, jobs[_i].results);
    json_decref(document);
    remove(path);
}
END_TEST

START_TEST(a_job_refuses_other_ranks)
{
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    tool_refuses("bench link --ranks 3", "tessera: bench: --ranks 3: the launcher has started 2 "
                                         "ranks, which are measured\n");
    tool_refuses("bench all-reduce --peer",
                 "tessera: bench: --peer: MPI cannot be measured in a launcher's job\n");
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    tool_fails("bench link -b 4 -e 1k",
               "bench link: more than 8 sizes from 4 to 1024 bytes; choose a larger --stepfactor");
}
END_TEST

/* The tool must report the mistake before it measures anything. */
START_TEST(sizes_without_an_element_are_refused)
{
    tool_refuses("bench all-gather --ranks 4 -b 4 -e 12 --time 0.001",
                 "tessera: bench: all-gather: --maxbytes is too small: the largest size is 8 "
                 "bytes, less than one element for each of 4 ranks\n");
    tool_refuses("bench reduce-scatter -b 4 -e 4",
                 "tessera: bench: reduce-scatter: --maxbytes is too small: the largest size is 4 "
                 "bytes, less than one element for each of 2 ranks\n");
    tool_refuses("bench all-reduce -b 1M -e 1K",
                 "tessera: bench: --minbytes is 1048576, more than --maxbytes, 1024\n");
}
END_TEST

static const char with_peer[] = "bench all-reduce --ranks 2 --peer --json --time 0.003 -b 8 -e 32";

#if TEST_HAVE_MPI
START_TEST(a_peer_is_measured_alternately)
{
    int count;
    json_t *document = bench_result_run(with_peer, &count);
    const json_t *results = tool_member(document, "results"), *result;
    size_t i;
    int peers = 0;
    json_array_foreach(results, i, result)
    {
        const json_t *peer = tool_member(result, "peer");
        if (json_is_null(peer))
            continue;
        ck_assert_ptr_nonnull(strstr(tool_text(peer, "name"), "MPI"));
        ck_assert_double_gt(tool_number(peer, "median"), 0);
        peers++;
    }
    ck_assert_int_eq(peers, 3);
    json_decref(document);
}
END_TEST
#else
/* A missing MPI must be reported before the benchmark measures anything else, which would take
 * ten minutes. */
START_TEST(a_missing_peer_is_reported_at_once)
{
    unsetenv("TESSERA_BENCH_MPI");
    tool_result result = tool_run("bench all-reduce --ranks 2 --peer --time 600");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.err,
                     "tessera: bench: --peer: this build of tessera has no program for MPI, "
                     "because no MPI was found\n");
    tool_result_free(&result);
}
END_TEST
#endif

/* The tool must pass on the messages of mpirun. */
START_TEST(a_failing_peer_names_the_reason)
{
    char folder[] = "/tmp/tessera-test-XXXXXX", mpirun[64], path[4096];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(mpirun, sizeof mpirun, "%s/mpirun", folder);
    FILE *script = fopen(mpirun, "w");
    ck_assert_ptr_nonnull(script);
    fputs("#!/bin/sh\necho -----\necho 'There are not enough slots.' >&2\nexit 1\n", script);
    ck_assert_int_eq(fchmod(fileno(script), 0755) | fclose(script), 0);
    snprintf(path, sizeof path, "%s:%s", folder, getenv("PATH"));
    setenv("PATH", path, 1);
    setenv("TESSERA_BENCH_MPI", "peer", 1);
    tool_result result = tool_run(with_peer);
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_ptr_nonnull(
        strstr(result.err, "tessera: bench: --peer: this command failed: mpirun "));
    ck_assert_ptr_nonnull(strstr(
        result.err, "'peer' all-reduce 0.001000 8 16 32 2>&1: There are not enough slots.\n"));
    tool_result_free(&result);
    ck_assert_int_eq(unlink(mpirun) | rmdir(folder), 0);
}
END_TEST

static int children_of(pid_t parent)
{
    glob_t all;
    int count = 0;
    ck_assert_int_eq(glob("/proc/[0-9]*/stat", 0, NULL, &all), 0);
    for (size_t i = 0; i < all.gl_pathc; i++) {
        char line[512];
        FILE *file = fopen(all.gl_pathv[i], "r");
        if (file == NULL)
            continue; /* the process has ended */
        int its_parent = 0;
        const char *name_end = fgets(line, sizeof line, file) != NULL ? strrchr(line, ')') : NULL;
        count += name_end != NULL && sscanf(name_end, ") %*c %d", &its_parent) == 1 &&
                 its_parent == parent;
        fclose(file);
    }
    globfree(&all);
    return count;
}

/* The ranks must end when the tool ends for any reason. They hold the other end of this pipe, so
 * reading it ends when they have ended. */
START_TEST(ranks_end_with_the_tool)
{
    static const int signals[] = {SIGTERM, SIGKILL};
    int ends[2];
    char byte;
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        if (dup2(ends[1], STDOUT_FILENO) < 0 || close(ends[0]) != 0 || close(ends[1]) != 0)
            _exit(126);
        execl(TEST_TOOL, TEST_TOOL, "bench", "link", "--ranks", "2", "-b", "1M", "-e", "64M", "-f",
              "2", "--time", "2", (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    while (children_of(child) < 2) {
        ck_assert_int_eq(waitpid(child, NULL, WNOHANG), 0);
        ck_assert_int_eq(nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL), 0);
    }
    ck_assert_int_eq(kill(child, signals[_i]), 0);
    ck_assert_int_eq(waitpid(child, NULL, 0), child);
    alarm(60);
    while (read(ends[0], &byte, 1) > 0)
        continue;
    alarm(0);
    close(ends[0]);
}
END_TEST
#endif

START_TEST(large_weights)
{
    int count;
    SKIP_UNLESS_HUGE("2 GiB of memory");
    json_decref(bench_result_run("bench sample --large --json --time 0.001", &count));
    ck_assert_int_eq(count, 9);
}
END_TEST

START_TEST(writes_the_json_beside_the_table)
{
    char path[] = "/tmp/tessera-test-XXXXXX", arguments[128];
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
    snprintf(arguments, sizeof arguments, "bench rng --time 0.001 -o %s", path);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_ptr_nonnull(strstr(result.out, "\nmt19937 "));
    json_t *document = json_load_file(path, 0, NULL);
    ck_assert_int_eq((int)json_array_size(tool_member(document, "results")), 5);
    json_decref(document);
    remove(path);
    tool_result_free(&result);

    result = tool_run("bench rng --time 0.001 -o /proc/nonexistent/a.json");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.err,
                     "tessera: bench: cannot write '/proc/nonexistent/a.json': No such file "
                     "or directory\n");
    ck_assert_str_eq(result.out, ""); /* nothing has been measured */
    tool_result_free(&result);

    result = tool_run("bench rng --time 0.001 -o /dev/full");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.err,
                     "tessera: bench: cannot write '/dev/full': No space left on device\n");
    ck_assert_ptr_nonnull(strstr(result.out, "\nmt19937 "));
    tool_result_free(&result);
}
END_TEST

/* The formats on standard output, and their first characters. */
static const struct {
    const char *option, *begin;
    int lines; /* 0: not tested */
} printed[] = {{"text", "rng      time per random number", 0},
               {"md", "- rng: tessera ", 0},
               {"csv", "run,time,tessera,cpu,device,", 6}};

START_TEST(prints_every_format)
{
    char arguments[128];
    snprintf(arguments, sizeof arguments, "bench rng --time 0.001 -o %s", printed[_i].option);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_msg(strncmp(result.out, printed[_i].begin, strlen(printed[_i].begin)) == 0, "%s",
                  result.out);
    ck_assert_int_ge(tool_count(result.out, "mt19937"), 1);
    if (printed[_i].lines > 0)
        ck_assert_int_eq(tool_count(result.out, "\n"), printed[_i].lines);
    ck_assert_int_eq(access(printed[_i].option, F_OK), -1);
    tool_result_free(&result);
}
END_TEST

/* Standard output gets JSON, while the file has the format of its extension. */
START_TEST(a_file_has_the_format_of_its_name)
{
    static const char *const begins[][2] = {
        {"md", "- rng: tessera "}, {"csv", "run,time,tessera,"}, {"txt", "{\n  \"schema\": "}};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        char path[] = "/tmp/tessera-test-XXXXXX", named[64], arguments[160], text[32] = "";
        int file = mkstemp(path);
        ck_assert_int_ge(file, 0);
        close(file);
        snprintf(named, sizeof named, "%s.%s", path, begins[i][0]);
        snprintf(arguments, sizeof arguments, "bench rng --time 0.001 -o %s --json", named);
        json_decref(tool_json_version(arguments, "tessera.bench", 2));
        FILE *written = fopen(named, "r");
        ck_assert_ptr_nonnull(written);
        ck_assert_uint_gt(fread(text, 1, sizeof text - 1, written), 0);
        fclose(written);
        ck_assert_msg(strncmp(text, begins[i][1], strlen(begins[i][1])) == 0, "%s", text);
        remove(named);
        remove(path);
    }
}
END_TEST

START_TEST(prints_the_json_for_a_dash)
{
    json_t *document = tool_json_version("bench rng --time 0.001 -o -", "tessera.bench", 2);
    ck_assert_int_eq((int)json_array_size(tool_member(document, "results")), 5);
    ck_assert_int_eq(access("-", F_OK), -1);
    json_decref(document);
}
END_TEST

/* Sends a signal twice. The tool also gets two signals from timeout(1), which sends one to the
 * process and one to its group. */
static void interrupt_twice(int number)
{
    char folder[] = "/tmp/tessera-test-XXXXXX", out[] = "/dev/null";
    ck_assert_ptr_nonnull(mkdtemp(folder));
    setenv("TMPDIR", folder, 1);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        /* Restores the default effect of the signal, which is ignored if the tests run under nohup
         * or in the background of a script. */
        if (freopen(out, "w", stdout) == NULL || signal(number, SIG_DFL) == SIG_ERR)
            _exit(126);
        execl(TEST_TOOL, TEST_TOOL, "bench", "plan", "--time", "60", (char *)NULL);
        _exit(127);
    }
    char pattern[64];
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*", folder);
    while (glob(pattern, 0, NULL, &found) == GLOB_NOMATCH) {
        ck_assert_int_eq(waitpid(child, NULL, WNOHANG), 0);
        ck_assert_int_eq(nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL), 0);
    }
    globfree(&found);
    ck_assert_int_eq(kill(child, number), 0);
    ck_assert_int_eq(kill(child, number), 0);
    int ended;
    ck_assert_int_eq(waitpid(child, &ended, 0), child);
    ck_assert(WIFSIGNALED(ended) && WTERMSIG(ended) == number);
    ck_assert_int_eq(rmdir(folder), 0);
}

/* After a signal that ends it, the tool leaves no folder behind. */
START_TEST(a_signal_leaves_no_folder)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
    for (int i = 0; i < 16; i++)
        interrupt_twice(signals[_i]);
}
END_TEST

/* If benchmarks fail, the others continue, and the exit code is 1. */
START_TEST(a_failure_is_reported_among_the_rest)
{
    setenv("TMPDIR", "/proc/nonexistent", 1);
    tool_result result = tool_run("bench --time 0.001 --json");
    unsetenv("TMPDIR");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.err, "tessera: bench: 2 of the benchmarks failed; see the report\n");
    json_t *document = json_loads(result.out, 0, NULL);
    const json_t *failures = tool_member(document, "failures");
    ck_assert_int_eq((int)json_array_size(failures), 2);
    ck_assert_str_eq(tool_text(json_array_get(failures, 0), "benchmark"), "plan");
    ck_assert_str_eq(tool_text(json_array_get(failures, 1), "benchmark"), "grammar");
    ck_assert_int_eq((int)json_array_size(tool_member(document, "devices")), 0);
    ck_assert_str_eq(
        tool_text(json_array_get(failures, 0), "text"),
        "bench plan: no temporary folder in /proc/nonexistent: No such file or directory");
    ck_assert_int_eq((int)json_array_size(tool_member(document, "results")),
                     12 + ALL_REDUCES + ALL_REDUCE_CEILINGS);
    json_decref(document);
    tool_result_free(&result);
}
END_TEST

/* The tool must report a device that does not exist before it measures anything. */
START_TEST(a_missing_device_is_reported_at_once)
{
    tool_result result = tool_run("bench --device nowhere --time 600");
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_str_eq(result.out, "");
    ck_assert_ptr_nonnull(
        strstr(result.err, TSR__HAVE_VULKAN ? "there is no Vulkan driver" : "has no Vulkan"));
    tool_result_free(&result);
}
END_TEST

static const char *const for_one[] = {"bench --time 0.001", "bench rng --time 0.001",
                                      "bench --tune --time 0.001"};

/* If several processes run a benchmark for one process, only rank 0 measures and reports. */
START_TEST(other_ranks_are_silent)
{
    setenv("RANK", "1", 1);
    setenv("WORLD_SIZE", "2", 1);
    tool_result result = tool_run(for_one[_i]);
    unsetenv("RANK");
    unsetenv("WORLD_SIZE");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_str_eq(result.out, "");
    ck_assert_str_eq(result.err, "");
    tool_result_free(&result);
}
END_TEST

/* If only one of a launcher's two variables is set, for example because it is left over in a shell,
 * the tool ignores it. */
START_TEST(one_variable_of_a_rank_is_ignored)
{
    setenv(_i == 0 ? "RANK" : "WORLD_SIZE", "1", 1);
    tool_result result = tool_run("bench rng --time 0.001");
    unsetenv(_i == 0 ? "RANK" : "WORLD_SIZE");
    ck_assert_str_eq(result.err, "");
    ck_assert_int_eq(result.exit_code, 0);
    ck_assert_ptr_nonnull(strstr(result.out, "\nphilox"));
    tool_result_free(&result);
}
END_TEST

START_TEST(one_variable_of_a_rank_is_an_error_if_required)
{
    setenv("TESSERA_BOOT", "env", 1);
    setenv("RANK", "1", 1);
    tool_result result = tool_run("bench rng --time 0.001");
    unsetenv("RANK");
    unsetenv("TESSERA_BOOT");
    ck_assert_str_eq(result.out, "");
    ck_assert_str_eq(result.err, "tessera: bench: rank: RANK is set, but WORLD_SIZE is not\n");
    ck_assert_int_eq(result.exit_code, 1);
    tool_result_free(&result);
}
END_TEST

START_TEST(prints_a_table)
{
    tool_result result = tool_run("bench sample --time 0.002");
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_str_eq(result.err, "");
    ck_assert_ptr_null(strstr(result.out, "\ndevice "));
    ck_assert_ptr_nonnull(strstr(result.out, "peak memory  elsewhere"));
    ck_assert_ptr_nonnull(strstr(result.out, "\nelsewhere: "));
    ck_assert_ptr_nonnull(strstr(result.out, "\nfeistel: an index, rank 3 of 8 "));
    tool_result_free(&result);
}
END_TEST

#if TSR__HAVE_VULKAN && TSR__HAVE_UCX
#define IN_THIS_BUILD ""
#elif TSR__HAVE_VULKAN
#define IN_THIS_BUILD " in this build, which has no UCX"
#elif TSR__HAVE_UCX
#define IN_THIS_BUILD " in this build, which has no Vulkan"
#else
#define IN_THIS_BUILD " in this build, which has neither Vulkan nor UCX"
#endif

static const struct {
    const char *arguments, *sentence;
} mistakes[] = {
    {"bench rng --device 0", "tessera: bench: rng does not take --device\n"},
    {"bench rng --tune", "tessera: bench: --tune tunes matrix products; remove 'rng'\n"},
    {"bench --tune --peer", "tessera: bench: --tune does not take --peer\n"},
    {"bench --tune --size 1", "tessera: bench: --tune does not take --size\n"},
    {"bench --tune --ranks 2", "tessera: bench: --tune does not take --ranks\n"},
    {"bench --tune --large", "tessera: bench: --tune does not take --large\n"},
    {"bench rng --large", "tessera: bench: rng does not take --large\n"},
    {"bench plan --size 3", "tessera: bench: plan does not take --size\n"},
    {"bench frob",
     "tessera: bench: unknown benchmark 'frob'" IN_THIS_BUILD "; see 'tessera help bench'\n"},
    {"bench --shape 1x1x1", "tessera: bench: --shape, --dtype and --size need a BENCHMARK\n"},
    {"bench -x", "tessera: bench: unknown option '-x'; see 'tessera help bench'\n"},
    {"bench rng -o", "tessera: bench: missing value: -o FORMAT|FILE\n"},
    {"bench rng -o jsn", "tessera: bench: -o takes text, md, csv, json, or a file whose name "
                         "contains '.' or '/', not 'jsn'\n"},
    {"bench rng -o md -o csv", "tessera: bench: -o names two formats, md and csv\n"},
    {"bench rng -o - -o text", "tessera: bench: -o names two formats, json and text\n"},
    {"bench rng -o ./a -o b.md", "tessera: bench: -o names two files, './a' and 'b.md'\n"},
    {"bench rng --json -o csv", "tessera: bench: --json and --output csv are two formats\n"},
    {"bench compare a b --json -o md",
     "tessera: bench compare: --json and --output md are two formats\n"},
    {"bench compare a b --all -o csv",
     "tessera: bench compare: remove --all; -o csv always lists all results\n"},
    {"bench report a -o md --format csv",
     "tessera: bench report: --output md and --format csv are two formats\n"},
    {"bench report",
     "tessera: bench report: missing FILE; 'tessera bench -o FILE.json' writes one\n"},
    {"bench compare a.json",
     "tessera: bench compare: missing files; give the old run and the new run\n"},
    {"bench compare a b c", "tessera: bench compare: unexpected argument 'c'\n"},
    {"bench compare a b --threshold -1",
     "tessera: bench compare: --threshold takes a number from 0 to 1000, not '-1'\n"},
};

START_TEST(refuses_wrong_arguments)
{
    tool_refuses(mistakes[_i].arguments, mistakes[_i].sentence);
}
END_TEST

TESTS(bench_host)
{
    tcase_set_timeout(tests, 240);
    tcase_add_loop_test(tests, every_result_is_valid, 0,
                        (int)(sizeof benchmarks / sizeof *benchmarks));
#if TSR__HAVE_UCX
    tcase_add_test(tests, collectives_can_be_compared);
    tcase_add_loop_test(tests, sizes_are_chosen, 0, (int)(sizeof sizes / sizeof *sizes));
    tcase_add_test(tests, sizes_without_an_element_are_refused);
    tcase_add_loop_test(tests, a_job_is_measured, 0, (int)(sizeof jobs / sizeof *jobs));
    tcase_add_test(tests, a_job_refuses_other_ranks);
#if TEST_HAVE_MPI
    tcase_add_test(tests, a_peer_is_measured_alternately);
#else
    tcase_add_test(tests, a_missing_peer_is_reported_at_once);
#endif
    tcase_add_test(tests, a_failing_peer_names_the_reason);
    tcase_add_loop_test(tests, ranks_end_with_the_tool, 0, 2);
#endif
    tcase_add_test(tests, large_weights);
    tcase_add_test(tests, writes_the_json_beside_the_table);
    tcase_add_loop_test(tests, prints_every_format, 0, (int)(sizeof printed / sizeof *printed));
    tcase_add_test(tests, a_file_has_the_format_of_its_name);
    tcase_add_test(tests, prints_the_json_for_a_dash);
    tcase_add_loop_test(tests, a_signal_leaves_no_folder, 0, 3);
    tcase_add_test(tests, a_failure_is_reported_among_the_rest);
    tcase_add_test(tests, a_missing_device_is_reported_at_once);
    tcase_add_loop_test(tests, other_ranks_are_silent, 0, (int)(sizeof for_one / sizeof *for_one));
    tcase_add_loop_test(tests, one_variable_of_a_rank_is_ignored, 0, 2);
    tcase_add_test(tests, one_variable_of_a_rank_is_an_error_if_required);
    tcase_add_test(tests, prints_a_table);
    tcase_add_loop_test(tests, refuses_wrong_arguments, 0,
                        (int)(sizeof mistakes / sizeof *mistakes));
}
