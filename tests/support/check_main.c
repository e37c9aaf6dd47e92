/* Runs every registered list of tests, then prints the results as TAP, which meson reads. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include "support/check_main.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support/at_end.h"

#define MAX_LISTS 64
#define MAX_SKIPS 256

/* The tests that were skipped, in the order of their numbers. They are in shared memory, because
 * Check runs each test in a process of its own. */
typedef struct skip_list {
    int test; /* the number of the running test, counted from 1 */
    int count;
    struct {
        int test;
        char reason[256];
    } skips[MAX_SKIPS];
} skip_list;
static skip_list *skipped;

static struct {
    const char *name;
    tests_add_fn add;
} lists[MAX_LISTS];
static int list_count;

void tests_register(const char *name, tests_add_fn add)
{
    if (list_count == MAX_LISTS) {
        fprintf(stderr, "more than %d TESTS lists in one executable\n", MAX_LISTS);
        exit(EXIT_FAILURE);
    }
    lists[list_count].name = name;
    lists[list_count].add = add;
    list_count++;
}

/* A fixture that runs before every test, and before every round of a loop test. */
static void count_test(void)
{
    skipped->test++;
}

void tests_skip(const char *format, ...)
{
    if (skipped->count == MAX_SKIPS) {
        fprintf(stderr, "more than %d skipped tests in one executable\n", MAX_SKIPS);
        exit(EXIT_FAILURE);
    }
    skipped->skips[skipped->count].test = skipped->test;
    char *reason = skipped->skips[skipped->count].reason;
    va_list args;
    va_start(args, format);
    vsnprintf(reason, sizeof skipped->skips[0].reason, format, args);
    va_end(args);
    for (char *c = strchr(reason, '\n'); c; c = strchr(c, '\n'))
        *c = ' ';
    skipped->count++;
}

/* Returns the reason why a test was skipped, or NULL if it was not. */
static const char *skip_reason(int test)
{
    for (int i = 0; i < skipped->count; i++)
        if (skipped->skips[i].test == test)
            return skipped->skips[i].reason;
    return NULL;
}

/* Prints "ok N - file:list:test: Passed" as "ok N - file:list:test # SKIP reason". */
static void print_skip(char *line, const char *reason)
{
    char *message = strrchr(line, ':');
    if (message)
        *message = '\0';
    printf("%s # SKIP %s\n", line, reason);
}

/* Prints a result. In TAP a '#' ends the text of a result, so it is written as "No. ". */
static void print_result(const char *line)
{
    for (; *line; line++) {
        if (*line == '#')
            fputs("No. ", stdout);
        else
            putchar(*line);
    }
}

/* Prints the results. Check writes TAP, but a message of several lines may look like further
 * results. Only lines that carry the next number are results; the others are printed as
 * comments. */
static void print_tap(FILE *tap)
{
    char line[4096];
    int next = 1, number, plan;
    bool at_start = true;
    while (fgets(line, sizeof line, tap)) {
        bool passed = sscanf(line, "ok %d - ", &number) == 1;
        bool result = passed || sscanf(line, "not ok %d - ", &number) == 1;
        if (at_start && result && number == next) {
            const char *reason = passed ? skip_reason(next) : NULL;
            next++;
            at_start = strchr(line, '\n') != NULL;
            if (reason)
                print_skip(line, reason);
            else
                print_result(line);
            continue;
        }
        if (at_start && !(sscanf(line, "1..%d", &plan) == 1 && plan == next - 1))
            fputs("# ", stdout);
        fputs(line, stdout);
        at_start = strchr(line, '\n') != NULL;
    }
}

/* Gives the list's tests the words of its name as tags: those of norm_packed are "norm" and
 * "packed". The variables CK_INCLUDE_TAGS and CK_EXCLUDE_TAGS select tests by their tags. */
static void set_tags(TCase *tests, const char *name)
{
    char tags[128];
    snprintf(tags, sizeof tags, "%s", name);
    for (char *c = strchr(tags, '_'); c; c = strchr(c, '_'))
        *c = ' ';
    tcase_set_tags(tests, tags);
}

void tests_remove(const char *path)
{
    char below[1024];
    const struct dirent *entry;
    DIR *folder = opendir(path);
    while (folder && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        ck_assert_int_lt(snprintf(below, sizeof below, "%s/%s", path, entry->d_name),
                         (int)sizeof below);
        tests_remove(below);
    }
    if (folder)
        closedir(folder);
    ck_assert_int_eq(remove(path), 0);
}

int main(void)
{
    /* Sets a longer limit than Check's 4 s per test, which is too short for a sanitizer on a
     * loaded machine. */
    setenv("CK_DEFAULT_TIMEOUT", "300", 0);

    skipped =
        mmap(NULL, sizeof *skipped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (skipped == MAP_FAILED) {
        perror("mmap");
        return EXIT_FAILURE;
    }

    Suite *suite = suite_create("tessera");
    for (int i = 0; i < list_count; i++) {
        TCase *tests = tcase_create(lists[i].name);
        set_tags(tests, lists[i].name);
        tcase_add_checked_fixture(tests, count_test, NULL);
        lists[i].add(tests);
        suite_add_tcase(suite, tests);
    }

    SRunner *runner = srunner_create(suite);
    char path[] = "/tmp/tessera-tap-XXXXXX";
    int file = mkstemp(path);
    FILE *tap = file < 0 ? NULL : fdopen(file, "r");
    if (!tap) {
        perror(path);
        return EXIT_FAILURE;
    }
    srunner_set_tap(runner, path);
    srunner_run_all(runner, CK_SILENT);
    print_tap(tap);
    fclose(tap);
    unlink(path);
    int run = srunner_ntests_run(runner);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    if (tests_at_end)
        tests_at_end();

    if (run == 0) /* TAP would count no tests as skipped, and nobody would notice */
        fprintf(stderr, "no test was run\n");
    return run > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
