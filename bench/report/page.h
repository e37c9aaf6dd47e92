/* tessera bench report: one page of what was measured, for people who were not there. It is HTML
 * and CSS with inline SVG, in one file, without scripts and without anything from elsewhere; or
 * Markdown, or CSV. */
#ifndef TSR_BENCH_REPORT_PAGE_H
#define TSR_BENCH_REPORT_PAGE_H

#include "bench/report/document.h"
#include "cli/lib/command.h"

extern const cli_command bench_report_command;

/* The page's parts --------------------------------------------------------------------------------
 */

/* One device of one run, or its host: a colour. */
typedef struct page_series {
    const bench_document *run;
    int device; /* -1: the host's */
    int colour; /* 0 to PAGE_COLOURS - 1: a class s0, s1, … of the style sheet */
    char name[384];
} page_series;

#define PAGE_COLOURS 8

typedef struct page {
    FILE *out;
    int run_count, series_count;
    const bench_document *runs;
    page_series *series;
} page_context;

/* With a name that tells it from the others. None where the device has no results, ceilings
 * included. */
void page_add_series(page_context *page, const bench_document *run, int device);

/* The best of the series' results of a benchmark, or of those whose case has `name` = `value`;
 * ceilings included. */
const bench_figures *page_best(const page_series *series, const char *benchmark, const char *name,
                               const char *value);
/* The copy that is as fast as the device's memory: the host's memcpy where the device is the host's
 * CPUs, its own copy otherwise. NULL: it was not measured. */
const bench_figures *page_memory(const page_series *series);

/* Calls it once for each benchmark, with one of its results: what devices do, then what their hosts
 * do, then the limits. */
void page_each_benchmark(const page_context *page,
                         void (*write)(const page_context *page, const bench_figures *one));

/* All of it as Markdown, or as CSV. */
void page_markdown(const page_context *page);
void page_csv(const page_context *page);

/* The results of a benchmark: bars of all series, and a table of all that is known. */
void page_benchmark(const page_context *page, const char *benchmark);
void page_table(const page_context *page, const char *benchmark);
/* A device's products under the limits of its arithmetic and its memory. Nothing where there are no
 * such results. */
bool page_has_roofline(const page_series *series);
void page_roofline(const page_context *page, const page_series *series);

#endif
