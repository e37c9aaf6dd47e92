/* Running this very program again, and temporary folders for it to keep its caches in. */
#ifndef TSR_BENCH_HARNESS_CHILD_H
#define TSR_BENCH_HARNESS_CHILD_H

#include <stdbool.h>

#define BENCH_FOLDER_SIZE 4096

/* Where temporary folders are made: TMPDIR or /tmp. */
const char *bench_folder_parent(void);
/* A new one, one at a time; also removed when SIGINT, SIGTERM or SIGHUP ends the program. False
 * with errno set. */
bool bench_folder_create(char path[BENCH_FOLDER_SIZE]);
/* With all that is in it. */
void bench_folder_remove(const char *path);

typedef struct bench_child_result {
    int exit_code; /* 128 + the signal that ended it */
    char *output;  /* what it wrote to standard output; for free() */
} bench_child_result;

/* Runs the program with these arguments (argv[1] onwards, ending with NULL) and `cache` as
 * XDG_CACHE_HOME, until it exits. Its standard error is ours. False with errno set when it could
 * not be started. */
bool bench_child_run(char *const *arguments, const char *cache, bench_child_result *result);

#endif
