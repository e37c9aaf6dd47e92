/* Tests how the tool reads files of results: `bench report --check`, a page of several files, and
 * files that are hostile or not JSON. Also tests mistakes in the use of `bench --submit`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/made_run.h"
#include "cli/submitted_run.h"
#include "cli/tool.h"
#include "support/check_main.h"

static json_t *submission_of(const char *device, double median)
{
    json_t *run = submitted_run();
    submitted_set(run, "devices/0", "name", json_string(device));
    made_set(run, 2, median, median * 0.9, median * 1.1);
    submitted_set(run, "results/2", "work", json_real(1e4 / median));
    submitted_set(run, "results/2/value", "best", json_real(median * 0.9));
    return run;
}

/* One page shows three submissions. Each device has a column, a colour and a legend. */
START_TEST(a_page_of_several_submissions)
{
    static const char *const devices[] = {"Card A", "Card B", "Card C"};
    char paths[3][MADE_PATH], arguments[320];
    for (int i = 0; i < 3; i++)
        made_write(submission_of(devices[i], 1e4 * (1 << i)), paths[i]);
    snprintf(arguments, sizeof arguments, "bench report --check %s %s %s -o html", paths[0],
             paths[1], paths[2]);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_str_eq(result.err, "");
    const char *glance = strstr(result.out, "At a glance"), *end = strstr(glance, "</table>");
    for (int i = 0; i < 3; i++) {
        char column[64];
        snprintf(column, sizeof column, "<th class=\"n s%d\"><i></i>%s", i, devices[i]);
        const char *at = strstr(glance, column);
        ck_assert_msg(at != NULL && at < end, "%s", column);
    }
    ck_assert_ptr_nonnull(strstr(glance, "<td class=\"n\">10.0 µs</td><td class=\"n\">20.0 µs</td>"
                                         "<td class=\"n\">40.0 µs</td>"));
    tool_result_free(&result);
    for (int i = 0; i < 3; i++)
        remove(paths[i]);
}
END_TEST

/* With --check, a run that would not be published is refused. Without it, the run is drawn. */
START_TEST(a_check_names_what_is_wrong)
{
    char path[MADE_PATH], arguments[160], want[512];
    json_t *run = submitted_run();
    submitted_set(run, "results/0/value", "median", json_real(104));
    submitted_set(run, "noise", "other_cpus", json_real(1.5));
    made_write(run, path);
    snprintf(arguments, sizeof arguments, "bench report --check %s -o html", path);
    snprintf(want, sizeof want,
             "tessera: bench report: %s: the machine was busy: other processes used 1.50 of its 2 "
             "CPUs during the run, more than 0.20\n"
             "tessera: bench report: %s: matmul f32 64×65×66 is given as 104 GFLOP/s, but its "
             "samples give 100\n",
             path, path);
    tool_reports(arguments, want);
    snprintf(arguments, sizeof arguments, "bench report %s -o html", path);
    tool_result result = tool_run(arguments);
    ck_assert_int_eq(result.exit_code, 0);
    tool_result_free(&result);
    remove(path);

    run = submitted_run();
    json_object_del(submitted_at(run, "noise"), "other_cpus");
    made_write(run, path);
    snprintf(arguments, sizeof arguments, "bench report --check %s -o html", path);
    snprintf(want, sizeof want, "tessera: bench report: %s: noise: there is no \"other_cpus\"\n",
             path);
    tool_reports(arguments, want);
    remove(path);
}
END_TEST

static bool report_exists(void)
{
    struct stat info;
    return stat("report.html", &info) == 0;
}

/* A check alone says which files pass and writes no page; with --format it also writes a page. */
START_TEST(a_check_alone_writes_no_page)
{
    char path[MADE_PATH], arguments[160], want[160];
    char folder[] = "/tmp/tessera-check-XXXXXX", *before = getcwd(NULL, 0);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    made_write(submitted_run(), path);
    ck_assert_int_eq(chdir(folder), 0);
    snprintf(arguments, sizeof arguments, "bench report --check %s", path);
    snprintf(want, sizeof want, "%s: passes the self-check of 'tessera bench --submit'\n", path);
    tool_prints(arguments, want);
    ck_assert(!report_exists());

    snprintf(arguments, sizeof arguments, "bench report --check %s --format html", path);
    tool_prints(arguments, "");
    ck_assert(report_exists());
    ck_assert_int_eq(remove("report.html"), 0);
    ck_assert_int_eq(chdir(before), 0);
    ck_assert_int_eq(rmdir(folder), 0);
    free(before);
    remove(path);
}
END_TEST

/* Hostile files ------------------------------------------------------------------------------- */

static const struct {
    const char *text;
    size_t size; /* 0: use all of the text */
    const char *says;
} texts[] = {
    {"", 0, " cannot be read as JSON: line 1: '[' or '{' expected near end of file\n"},
    {"{", 0, " cannot be read as JSON: line 1: string or '}' expected near end of file\n"},
    {"[]", 0, ": this is not what 'tessera bench --json' writes\n"},
    {"{}", 0, ": this is not what 'tessera bench --json' writes\n"},
    {"null", 0, " cannot be read as JSON: line 1: '[' or '{' expected near 'null'\n"},
    {"{\"schema\": \"tessera.bench\"}", 0, ": there is no \"schema_version\"\n"},
    {"{\"schema\": \"tessera.bench\", \"schema\": \"tessera.bench\"}", 0,
     " cannot be read as JSON: line 1: duplicate object key near '\"schema\"'\n"},
    {"{\"schema\": \"tessera.bench\", \"schema_version\": 1e999}", 0,
     " cannot be read as JSON: line 1: real number overflow near '1e999'\n"},
    {"{\"schema\": \"tessera.bench\", \"schema_version\": 99999999999999999999}", 0,
     " cannot be read as JSON: line 1: too big integer near '99999999999999999999'\n"},
    {"{\"schema\": \"tessera\xff\"}", 0,
     " cannot be read as JSON: line 1: unable to decode byte 0xff near '"},
    {"{\"schema\": \"a\\u0000b\"}", 0,
     " cannot be read as JSON: line 1: \\u0000 is not allowed without JSON_ALLOW_NUL"},
    {"{\"sch\0ema\": 1}", 14,
     " cannot be read as JSON: line 1: control character 0x0 near '\"sch'\n"},
    {"{} {}", 0, " cannot be read as JSON: line 1: end of file expected near '{'\n"},
    {"\xef\xbb\xbf{}", 0, " cannot be read as JSON: line 1: '[' or '{' expected near '"},
};

/* Checks that the tool refuses the file with one line, and writes no page. */
static void refuses_file(const char *text, size_t size, const char *says)
{
    char path[MADE_PATH] = "/tmp/tessera-test-XXXXXX", page[MADE_PATH + 8], arguments[320];
    const int file = mkstemp(path);
    ck_assert_int_eq((int)write(file, text, size), (int)size);
    close(file);
    snprintf(page, sizeof page, "%s.html", path);
    snprintf(arguments, sizeof arguments, "bench report %s -o %s", path, page);
    tool_result result = tool_run(arguments);
    ck_assert_msg(result.exit_code == 1, "%d: %s", result.exit_code, result.err);
    ck_assert_str_eq(result.out, "");
    ck_assert_msg(strstr(result.err, says) != NULL, "%s", result.err);
    ck_assert_int_eq(tool_count(result.err, "\n"), 1);
    ck_assert_int_eq(access(page, F_OK), -1);
    tool_result_free(&result);
    remove(path);
}

START_TEST(hostile_files_are_refused)
{
    const char *text = texts[_i].text;
    refuses_file(text, texts[_i].size > 0 ? texts[_i].size : strlen(text), texts[_i].says);
}
END_TEST

/* Files that would need much stack or memory must be refused. */
START_TEST(deep_and_large_files_are_refused)
{
    enum { SIZE = 1 << 20 };
    char *text = malloc(SIZE);
    ck_assert_ptr_nonnull(text);
    memset(text, '[', SIZE);
    refuses_file(text, SIZE, "maximum parsing depth reached");
    memset(text, '"', 1);
    memset(text + 1, 'a', SIZE - 1);
    refuses_file(text, SIZE, " cannot be read as JSON: line 1: premature end of input");
    memset(text, ' ', SIZE);
    refuses_file(text, SIZE,
                 " cannot be read as JSON: line 1: '[' or '{' expected near end of file");
    free(text);
    json_t *run = submitted_run();
    for (int i = 0; i < 100001; i++)
        json_array_append_new(submitted_at(run, "results/0/host_ns/samples"), json_integer(1));
    text = json_dumps(run, 0);
    refuses_file(text, strlen(text),
                 ": results[0]: \"samples\" is not an array of at most 100000 elements\n");
    free(text);
    json_decref(run);
}
END_TEST

START_TEST(a_file_that_is_cut_is_refused)
{
    json_t *run = submitted_run();
    char *text = json_dumps(run, 0);
    for (int part = 1; part < 8; part++)
        refuses_file(text, strlen(text) * (size_t)part / 8, " cannot be read as JSON: line 1: ");
    free(text);
    json_decref(run);
}
END_TEST

/* Mistakes ------------------------------------------------------------------------------------- */

static const struct {
    const char *arguments, *sentence;
} mistakes[] = {
    {"bench --submit", "tessera: bench: missing value: --submit DIR\n"},
    {"bench rng --submit /tmp", "tessera: bench: --submit takes a complete run; remove 'rng'\n"},
    {"bench --tune --submit /tmp",
     "tessera: bench: --submit takes a complete run; remove '--tune'\n"},
    {"bench --submit /tmp --time 0.01",
     "tessera: bench: --submit takes a --time of at least 0.05, not 0.01\n"},
};

START_TEST(mistakes_are_refused_before_the_run)
{
    tool_refuses(mistakes[_i].arguments, mistakes[_i].sentence);
}
END_TEST

START_TEST(folders_are_checked_before_the_run)
{
    tool_fails("bench --submit /proc/nonexistent",
               "tessera: bench: --submit: cannot write into '/proc/nonexistent': No such file or "
               "directory\n");
    tool_fails("bench --submit /dev/null",
               "tessera: bench: --submit: cannot write into '/dev/null': Not a directory\n");
    if (geteuid() == 0)
        SKIP("the superuser may write into every folder");
    tool_fails("bench --submit /",
               "tessera: bench: --submit: cannot write into '/': Permission denied\n");
}
END_TEST

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

TESTS(bench_submitted)
{
    tcase_add_test(tests, a_page_of_several_submissions);
    tcase_add_test(tests, a_check_names_what_is_wrong);
    tcase_add_test(tests, a_check_alone_writes_no_page);
    tcase_add_loop_test(tests, hostile_files_are_refused, 0, COUNT(texts));
    tcase_add_test(tests, deep_and_large_files_are_refused);
    tcase_add_test(tests, a_file_that_is_cut_is_refused);
    tcase_add_loop_test(tests, mistakes_are_refused_before_the_run, 0, COUNT(mistakes));
    tcase_add_test(tests, folders_are_checked_before_the_run);
}
