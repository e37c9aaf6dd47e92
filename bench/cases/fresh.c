#include "bench/cases/fresh.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/child.h"
#include "bench/harness/clock.h"

#define MIN 3
#define MAX 15
#define STEPS 8

/* The rows for the steps of `tessera bench first`. Each run of that benchmark gives one sample for
 * every row. A row has the name of its step. */
typedef struct steps {
    const char *caches; /* what the caches on disk were at the start: "empty" or "warm" */
    int count;
    bench_row *rows[STEPS];
} steps;

static bench_row *row_for(bench_context *context, steps *all, int step, const char *name)
{
    if (step < all->count)
        return all->rows[step];
    bench_row *row = bench_add(context, "launch", BENCH_TIME, 1);
    bench_text(row, "what", "fresh process, %s caches: %s", all->caches, name);
    bench_check_begin(&row->check, "each process verified its matmul in double precision");
    return all->rows[all->count++] = row;
}

/* Reads the figures from the JSON document that the process printed. */
static bool read_document(bench_context *context, steps *all, const char *text)
{
    json_error_t error;
    json_t *document = json_loads(text, 0, &error);
    json_t *results = json_object_get(document, "results"), *result;
    size_t step;
    int count = 0;
    json_array_foreach(results, step, result)
    {
        const char *what;
        double median;
        if (json_unpack(result, "{s:{s:s}, s:{s:F}}", "case", "what", &what, "value", "median",
                        &median) != 0 ||
            count == STEPS)
            break;
        bench_row *row = row_for(context, all, count++, what);
        bench_sample(row, median);
        row->check.checked++; /* verified by the process; otherwise it had failed */
    }
    json_decref(document);
    if (count == 0)
        return bench_fail(context, "bench launch: cannot read what 'bench first' printed: %.200s",
                          text);
    return true;
}

static bool run_once(bench_context *context, steps *all, const char *cache)
{
    bench_child_result result;
    char index[16]; /* the child selects the device by index: two drivers of one GPU give it the
                       same UUID */
    snprintf(index, sizeof index, "%d", context->info->index);
    char *const arguments[] = {"bench", "first", "--json", "--device", index, NULL};
    if (!bench_child_run(arguments, cache, &result))
        return bench_fail(context, "bench launch: cannot start a process: %s", strerror(errno));
    bool done = result.exit_code == 0
                    ? all == NULL || read_document(context, all, result.output)
                    : bench_fail(context, "bench launch: a fresh process failed with exit code %d",
                                 result.exit_code);
    free(result.output);
    return done;
}

static bool no_folder(bench_context *context)
{
    return bench_fail(context, "bench launch: no temporary folder in %.200s: %s",
                      bench_folder_parent(), strerror(errno));
}

static bool run_many(bench_context *context, const char *caches, const char *shared_cache)
{
    steps all = {.caches = caches};
    double start = bench_now_ns(), budget = context->options->seconds * 1e9;
    for (int i = 0; i < MIN || (i < MAX && bench_now_ns() - start < budget); i++) {
        char own[BENCH_FOLDER_SIZE];
        if (shared_cache == NULL && !bench_folder_create(own))
            return no_folder(context);
        bool done = run_once(context, &all, shared_cache != NULL ? shared_cache : own);
        if (shared_cache == NULL)
            bench_folder_remove(own);
        if (!done)
            return false;
    }
    return true;
}

bool bench_fresh_processes(bench_context *context)
{
    char warm[BENCH_FOLDER_SIZE];
    bench_progress_show(&context->progress, "measuring fresh processes");
    if (!run_many(context, "empty", NULL))
        return false;
    if (!bench_folder_create(warm))
        return no_folder(context);
    bool done = run_once(context, NULL, warm) && run_many(context, "warm", warm);
    bench_folder_remove(warm);
    return done;
}
