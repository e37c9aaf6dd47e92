/* Writes the results of the page as Markdown, for issues and chats, and as CSV, for
 * spreadsheets. */
#include <stdio.h>
#include <string.h>

#include "bench/harness/bench.h"
#include "bench/report/page.h"
#include "cli/lib/numbers.h"

/* Markdown ------------------------------------------------------------------------------------- */

/* Escapes characters that have a meaning in Markdown or in a cell of a table. */
static void markdown_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("\\`*_[]<>&|~#!", *text) != NULL)
            fputc('\\', out);
        fputc(*text, out);
    }
}

static void markdown_cell(FILE *out, const char *text)
{
    fputs(" ", out);
    markdown_text(out, text);
    fputs(" |", out);
}

static void markdown_row(FILE *out, const page_series *series, const bench_figures *figures)
{
    char median[BENCH_VALUE_TEXT], low[BENCH_VALUE_TEXT], high[BENCH_VALUE_TEXT];
    char percent[CLI_NUMBER_TEXT];
    fputs("|", out);
    markdown_cell(out, series->name);
    markdown_cell(out, figures->label);
    fprintf(out, " %s%s | %s – %s |", bench_figures_text(figures, figures->median, median),
            figures->noisy ? " \\*" : "", bench_figures_text(figures, figures->low, low),
            bench_figures_text(figures, figures->high, high));
    if (figures->fraction > 0) {
        fprintf(out, " %s of ", cli_percent(figures->fraction, percent));
        markdown_text(out, figures->ceiling);
        fputs(page_standing(figures), out);
    }
    fputs(" |\n", out);
}

static void markdown_benchmark(const page_context *page, const bench_figures *which)
{
    FILE *out = page->out;
    const bench *known = which->is_ceiling ? NULL : bench_find(which->benchmark);
    fputs("\n## ", out);
    markdown_text(out, which->benchmark);
    fprintf(out, "\n\n%s\n\n",
            which->is_ceiling ? "A ceiling that other results are compared with."
            : known != NULL   ? known->summary
                              : "");
    fputs("| device | case | median | p10 – p90 | of its ceiling |\n"
          "| --- | --- | ---: | ---: | ---: |\n",
          out);
    for (int s = 0; s < page->series_count; s++) {
        const page_series *series = &page->series[s];
        for (int i = 0; i < series->run->result_count; i++) {
            const bench_figures *figures = &series->run->results[i];
            if (figures->device == series->device &&
                strcmp(figures->benchmark, which->benchmark) == 0)
                markdown_row(out, series, figures);
        }
    }
}

static bool has_noisy(const page_context *page)
{
    for (int r = 0; r < page->run_count; r++)
        for (int i = 0; i < page->runs[r].result_count; i++)
            if (page->runs[r].results[i].noisy)
                return true;
    return false;
}

static void markdown_devices(FILE *out, const bench_document *run)
{
    char memory[CLI_BYTES_TEXT];
    for (int d = 0; d < run->device_count; d++) {
        const bench_device_figures *device = &run->devices[d];
        fputs("  - ", out);
        markdown_text(out, device->name);
        if (device->memory_bytes > 0)
            fprintf(out, ", %s", cli_bytes((uint64_t)device->memory_bytes, memory));
        fputs(", ", out);
        markdown_text(out, device->driver_name);
        fputs(" ", out);
        markdown_text(out, device->driver_info);
        fputs("\n", out);
    }
}

static void markdown_notes(FILE *out, const bench_document *run)
{
    const json_t *figures;
    size_t i;
    json_array_foreach(run->warnings, i, figures)
    {
        fputs("  - warning: ", out);
        markdown_text(out, json_string_value(figures));
        fputs("\n", out);
    }
    json_array_foreach(run->failures, i, figures)
    {
        fputs("  - failed: ", out);
        markdown_text(out, json_string_value(json_object_get(figures, "benchmark")));
        fputs(": ", out);
        markdown_text(out, json_string_value(json_object_get(figures, "text")));
        fputs("\n", out);
    }
}

void page_markdown(const page_context *page)
{
    FILE *out = page->out;
    for (int r = 0; r < page->run_count; r++) {
        const bench_document *run = &page->runs[r];
        fputs("- ", out);
        markdown_text(out, run->name);
        fputs(": tessera ", out);
        markdown_text(out, run->tessera);
        fputs(", ", out);
        markdown_text(out, run->time);
        fputs(", ", out);
        markdown_text(out, run->cpu);
        fprintf(out, ", %d CPUs\n", run->cpus);
        markdown_devices(out, run);
        markdown_notes(out, run);
    }
    page_each_benchmark(page, markdown_benchmark);
    if (has_noisy(page))
        fputs("\n\\* noisy: the middle 80 % of the samples spread over more than 20 % of the "
              "median.\n",
              out);
}

/* CSV ------------------------------------------------------------------------------------------ */

/* Writes a field, quoted as in RFC 4180. */
static void csv_text(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    fputs("\",", out);
}

static void csv_row(FILE *out, const bench_document *run, const bench_figures *figures)
{
    const bench_device_figures *device =
        figures->device >= 0 ? &run->devices[figures->device] : NULL;
    const char *const texts[] = {run->name,
                                 run->time,
                                 run->tessera,
                                 run->cpu,
                                 device != NULL ? device->name : "",
                                 device != NULL ? bench_driver_text(device) : "",
                                 figures->benchmark,
                                 figures->label,
                                 figures->unit};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        csv_text(out, texts[i]);
    fprintf(out, "%.9g,%.9g,%.9g,%.9g,%d,%d,", figures->median, figures->low, figures->high,
            figures->best, figures->noisy, figures->is_ceiling);
    csv_text(out, figures->ceiling != NULL ? figures->ceiling : "");
    if (figures->ceiling != NULL)
        fprintf(out, "%.9g", figures->fraction);
    fputs(",", out);
    if (figures->busbw > 0)
        fprintf(out, "%.9g", figures->busbw);
    fputs("\r\n", out);
}

void page_csv(const page_context *page)
{
    fputs("run,time,tessera,cpu,device,driver,benchmark,case,unit,median,low,high,best,noisy,"
          "is_ceiling,ceiling,fraction,busbw\r\n",
          page->out);
    for (int r = 0; r < page->run_count; r++)
        for (int i = 0; i < page->runs[r].result_count; i++)
            csv_row(page->out, &page->runs[r], &page->runs[r].results[i]);
}
