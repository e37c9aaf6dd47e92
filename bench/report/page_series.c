/* Finds the devices and hosts of the runs, their names, their best results, and the order of
 * benchmarks. */
#include <stdio.h>
#include <string.h>

#include "bench/report/page.h"
#include "cli/lib/memory.h"

static const char *plain_name(const bench_document *run, int device)
{
    return device >= 0 ? run->devices[device].name : run->cpu;
}

static bool has_results(const bench_document *run, int device)
{
    for (int i = 0; i < run->result_count; i++)
        if (run->results[i].device == device)
            return true;
    return false;
}

void page_add_series(page_context *page, const bench_document *run, int device)
{
    if (!has_results(run, device))
        return;
    page->series = cli_resize(page->series, (size_t)page->series_count + 1, sizeof *page->series);
    page_series *series = &page->series[page->series_count];
    *series =
        (page_series){.run = run, .device = device, .colour = page->series_count++ % PAGE_COLOURS};
    bool shared = false;
    for (const bench_document *other = page->runs; other < page->runs + page->run_count; other++)
        for (int i = -1; i < other->device_count; i++)
            shared = shared ||
                     (other != run && strcmp(plain_name(other, i), plain_name(run, device)) == 0);
    snprintf(series->name, sizeof series->name, "%.200s%s%s", plain_name(run, device),
             shared ? " · " : "", shared ? run->name : "");
}

page_context page_of(const bench_document *runs, int count)
{
    page_context page = {.run_count = count, .runs = runs};
    for (int r = 0; r < count; r++)
        for (int d = 0; d < runs[r].device_count; d++)
            page_add_series(&page, &runs[r], d);
    for (int r = 0; r < count; r++)
        page_add_series(&page, &runs[r], -1);
    return page;
}

static const bench_figures *best_of(const bench_document *run, int device, const char *benchmark,
                                    const char *name, const char *value)
{
    const bench_figures *best = NULL;
    for (int i = 0; i < run->result_count; i++) {
        const bench_figures *figures = &run->results[i];
        if (figures->device != device || strcmp(figures->benchmark, benchmark) != 0)
            continue;
        const char *text =
            name != NULL ? json_string_value(json_object_get(figures->which, name)) : NULL;
        if (name != NULL && (text == NULL || strncmp(text, value, strlen(value)) != 0))
            continue;
        bool better = best == NULL || (figures->is_time ? figures->median < best->median
                                                        : figures->median > best->median);
        if (better)
            best = figures;
    }
    return best;
}

const bench_figures *page_best(const page_series *series, const char *benchmark, const char *name,
                               const char *value)
{
    return best_of(series->run, series->device, benchmark, name, value);
}

const bench_figures *page_memory(const page_series *series)
{
    const bench_document *run = series->run;
    const bench_figures *host = best_of(run, -1, "memcpy", NULL, NULL);
    bool is_cpu = series->device >= 0 && strcmp(run->devices[series->device].type, "cpu") == 0;
    if (is_cpu && host != NULL)
        return host;
    const bench_figures *copy = page_best(series, "device_copy", NULL, NULL);
    const bench_figures *stream = page_best(series, "memory_stream", NULL, NULL);
    if (copy == NULL || stream == NULL)
        return copy != NULL ? copy : stream;
    return copy->median > stream->median ? copy : stream;
}

const char *page_standing(const bench_figures *figures)
{
    return figures->standing == BENCH_CACHED  ? ", caches"
           : figures->standing == BENCH_ABOVE ? ", above"
                                              : "";
}

/* Returns true if this result is the first one of its benchmark in all runs. */
static bool is_first(const page_context *page, int run, int result)
{
    const char *name = page->runs[run].results[result].benchmark;
    for (int r = 0; r <= run; r++)
        for (int i = 0; i < (r < run ? page->runs[r].result_count : result); i++)
            if (strcmp(page->runs[r].results[i].benchmark, name) == 0)
                return false;
    return true;
}

static int rank_of(const bench_figures *figures)
{
    return figures->is_ceiling ? 2 : figures->device < 0 ? 1 : 0;
}

void page_each_benchmark(const page_context *page,
                         void (*write)(const page_context *page, const bench_figures *figures))
{
    for (int rank = 0; rank < 3; rank++)
        for (int r = 0; r < page->run_count; r++)
            for (int i = 0; i < page->runs[r].result_count; i++)
                if (is_first(page, r, i) && rank_of(&page->runs[r].results[i]) == rank)
                    write(page, &page->runs[r].results[i]);
}
