/* tessera bench --submit: files of results for docs/results, one for each device, which name no
 * person and no machine, and which have passed a self-check. */
#ifndef TSR_BENCH_SUBMIT_SUBMIT_H
#define TSR_BENCH_SUBMIT_SUBMIT_H

#include <jansson.h>
#include <stdbool.h>

#include "bench/report/document.h"
#include "cli/lib/say.h"

/* The shortest --time with which results may be submitted; with a shorter one they are not exact
 * enough. */
#define BENCH_SUBMIT_SECONDS 0.05

/* Returns a document of one device of a run: its results and the ceilings that they refer to. It
 * has only members that are listed in members.c: no identifier of the device, no path, and of the
 * operating system only its name and version numbers. Numbers have six digits. Calling the function
 * again with its result gives an equal document. The caller owns the document. */
json_t *bench_submission(const json_t *run, size_t device);

#define BENCH_MAX_REASONS 12
#define BENCH_REASON 256
typedef struct bench_reasons {
    int count;
    char text[BENCH_MAX_REASONS][BENCH_REASON];
} bench_reasons;

void bench_reason(bench_reasons *reasons, const char *format, ...) CLI_PRINTF(2, 3);

/* Lists why the results of a run cannot be trusted or published, as sentences with the values. */
void bench_self_check(const bench_document *run, bench_reasons *reasons);

/* Writes the name of a submission's file: device, driver and date, such as
 * "nvidia-h100-80gb-hbm3--nvidia-580.159--2026-11-26". For a CPU driver, the name contains the
 * processor. */
#define BENCH_FILE_NAME 200
void bench_submission_name(const bench_document *run, char name[BENCH_FILE_NAME]);

/* Returns whether `folder` is a folder in which files can be created; otherwise sets errno. */
bool bench_submit_possible(const char *folder);

/* Writes a file into `folder` for each device of the run whose results pass the self-check. A file
 * that exists is never overwritten; the new name then gets a number. Prints the names of the files,
 * or the reasons, to standard error. Returns an exit code. */
int bench_submit(const json_t *run, const char *folder);

#endif
