/* Which devices of which runs the page is of, what they are called, and the best they did. */
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

static const bench_figures *best_of(const bench_document *run, int device, const char *benchmark,
                                    const char *name, const char *value)
{
    const bench_figures *best = NULL;
    for (int i = 0; i < run->result_count; i++) {
        const bench_figures *one = &run->results[i];
        if (one->device != device || strcmp(one->benchmark, benchmark) != 0)
            continue;
        const char *text =
            name != NULL ? json_string_value(json_object_get(one->which, name)) : NULL;
        if (name != NULL && (text == NULL || strncmp(text, value, strlen(value)) != 0))
            continue;
        bool better = best == NULL ||
                      (one->is_time ? one->median < best->median : one->median > best->median);
        if (better)
            best = one;
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
    /* Where a GPU was measured too, memcpy may be there for what ran on the host. */
    bool is_cpu = series->device >= 0 && strcmp(run->devices[series->device].type, "cpu") == 0;
    return is_cpu && host != NULL ? host : page_best(series, "device_copy", NULL, NULL);
}
