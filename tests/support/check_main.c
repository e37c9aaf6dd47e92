/* Runs every registered list and prints TAP, which is what meson reads. */
#include "support/check_main.h"

#include <stdio.h>
#include <stdlib.h>

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
    srunner_set_tap(runner, "/dev/stdout");
    srunner_run_all(runner, CK_SILENT);
    int run = srunner_ntests_run(runner);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);

    if (run == 0) /* TAP would call that skipped, and nobody would notice */
        fprintf(stderr, "no test was run\n");
    return run > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
