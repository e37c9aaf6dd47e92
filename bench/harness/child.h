/* Running this program as a child process, and temporary folders for its caches. */
#ifndef TSR_BENCH_HARNESS_CHILD_H
#define TSR_BENCH_HARNESS_CHILD_H

#include <stdbool.h>

#define BENCH_FOLDER_SIZE 4096

/* Returns the folder in which temporary folders are created: TMPDIR or /tmp. */
const char *bench_folder_parent(void);
/* Creates a temporary folder; the program may have only one at a time. It is also removed if
 * SIGINT, SIGTERM or SIGHUP ends the program. On failure returns false and sets errno. */
bool bench_folder_create(char path[BENCH_FOLDER_SIZE]);
/* Removes the folder with its contents. */
void bench_folder_remove(const char *path);

typedef struct bench_child_result {
    int exit_code; /* the child's exit code; 128 + the signal number if a signal ended it */
    char *output;  /* the child's standard output; the caller frees it with free() */
} bench_child_result;

/* Runs the program with these arguments (argv[1] onwards, ending with NULL) and with `cache` as
 * XDG_CACHE_HOME, and waits until it exits. It shares our standard error. If it cannot be started,
 * returns false and sets errno. */
bool bench_child_run(char *const *arguments, const char *cache, bench_child_result *result);

#endif
