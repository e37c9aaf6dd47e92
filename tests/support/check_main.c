/* Runs every registered list and prints TAP, which is what meson reads, at the end. */
#include "support/check_main.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_LISTS 64

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

/* Check writes TAP as it goes, but a message of several lines may look like further results. Only
 * lines that carry the next number are results; the others become comments. */
static void print_tap(FILE *tap)
{
    char line[4096];
    int next = 1, number, plan;
    bool at_start = true;
    while (fgets(line, sizeof line, tap)) {
        bool result =
            sscanf(line, "ok %d - ", &number) == 1 || sscanf(line, "not ok %d - ", &number) == 1;
        if (at_start && result && number == next)
            next++;
        else if (at_start && !(sscanf(line, "1..%d", &plan) == 1 && plan == next - 1))
            fputs("# ", stdout);
        fputs(line, stdout);
        at_start = strchr(line, '\n') != NULL;
    }
}

int main(void)
{
    /* Check's own limit of 4 s per test is too short for a sanitizer on a loaded machine. */
    setenv("CK_DEFAULT_TIMEOUT", "300", 0);

    Suite *suite = suite_create("tessera");
    for (int i = 0; i < list_count; i++) {
        TCase *tests = tcase_create(lists[i].name);
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

    if (run == 0) /* TAP would call that skipped, and nobody would notice */
        fprintf(stderr, "no test was run\n");
    return run > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
