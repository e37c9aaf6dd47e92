/* tessera bench report: one page about the results of runs. The page is one HTML file with CSS and
 * inline SVG, without scripts and without references to other files; or Markdown, or CSV. */
#ifndef TSR_BENCH_REPORT_PAGE_H
#define TSR_BENCH_REPORT_PAGE_H

#include "bench/report/document.h"
#include "cli/lib/command.h"

extern const cli_command bench_report_command;

/* Parts of the page ---------------------------------------------------------------------------- */

/* A series: the results of one device of a run, or of its host, which have one colour in all
 * drawings. */
typedef struct page_series {
    const bench_document *run;
    int device; /* -1: the host */
    int colour; /* 0 to PAGE_COLOURS - 1: the class s0, s1, … of the style sheet */
    char name[384];
} page_series;

#define PAGE_COLOURS 8

typedef struct page {
    FILE *out;
    int run_count, series_count;
    const bench_document *runs;
    page_series *series;
} page_context;

/* Collects the series of all runs: first those of devices, then those of hosts. The runs must
 * outlive the page. The caller frees page.series. */
page_context page_of(const bench_document *runs, int count);

/* Adds the series of a device, with a name that no other series has. Adds nothing if the device has
 * neither results nor ceilings. */
void page_add_series(page_context *page, const bench_document *run, int device);

/* Returns the best result of the series in a benchmark, which may be a ceiling. If `name` is not
 * NULL, only the cases whose parameter `name` starts with `value` are considered. */
const bench_figures *page_best(const page_series *series, const char *benchmark, const char *name,
                               const char *value);
/* Returns the bandwidth of the device's memory: the host's memcpy for a CPU driver, otherwise the
 * faster of a copy and a kernel. NULL if it was not measured. */
const bench_figures *page_memory(const page_series *series);

/* Returns text that explains why a result is above its ceiling, such as ", caches"; it is printed
 * after the percentage. "" if the result is not above its ceiling. */
const char *page_standing(const bench_figures *one);

/* Calls `write` once for each benchmark, with one of its results: first those of devices, then
 * those of hosts, then ceilings. */
void page_each_benchmark(const page_context *page,
                         void (*write)(const page_context *page, const bench_figures *one));

/* Write all results as Markdown, or as CSV. */
void page_markdown(const page_context *page);
void page_csv(const page_context *page);

/* Write the results of a benchmark: as bars, and as a table with all details. */
void page_benchmark(const page_context *page, const char *benchmark);
void page_table(const page_context *page, const char *benchmark);
/* page_has_pairs returns whether the results of a benchmark are those of pairs of ranks; page_pairs
 * writes them as matrices. */
bool page_has_pairs(const page_context *page, const char *benchmark);
void page_pairs(const page_context *page, const char *benchmark);
/* page_has_roofline returns whether the series has a product to draw. page_roofline draws the
 * roofline of a device: its products, and the limits of its arithmetic and memory. */
bool page_has_roofline(const page_series *series);
void page_roofline(const page_context *page, const page_series *series);

#endif
