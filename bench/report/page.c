#include "bench/report/page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/bench.h"
#include "bench/report/html.h"
#include "cli/lib/command.h"
#include "cli/lib/memory.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"

#define MOST_RUNS 32

static const char *const style[] = {
#include "bench/page.css.inc"
};

typedef struct format {
    const char *name, *usual; /* its file, where none is named */
    void (*write)(const page_context *page);
} format;
static void write_page(const page_context *page);
static const format formats[] = {{"html", "report.html", write_page},
                                 {"md", "report.md", page_markdown},
                                 {"csv", "report.csv", page_csv}};
static const format *chosen_format;
static const char *output;

static const format *find_format(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

static bool read_format(void *user, const char *text, char *problem, size_t size)
{
    (void)user;
    chosen_format = find_format(text);
    if (chosen_format == NULL)
        snprintf(problem, size, "takes html, md or csv, not '%s'", text);
    return chosen_format != NULL;
}

static const cli_option options[] = {
    {"output", "FILE",
     "what to write (default report.html, .md or .csv by the format); -o FILE; -: standard output",
     .text = &output, .letter = 'o'},
    {"format", "FORMAT", "html, md or csv (default: as FILE ends, or html)", .read = read_format},
    {0},
};

/* Parts ---------------------------------------------------------------------------------------- */

static void write_head(const page_context *page)
{
    FILE *out = page->out;
    /* The policy is for the day on which something is not escaped: no script would run. */
    fputs("<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
          "<meta charset=\"utf-8\"/>\n<meta http-equiv=\"Content-Security-Policy\" "
          "content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
          "<title>tessera bench</title>\n<style>\n",
          out);
    for (size_t i = 0; i < sizeof style / sizeof *style; i++)
        fputs(style[i], out);
    fputs("</style>\n</head>\n<body>\n<main>\n<h1>How fast these devices are</h1>\n"
          "<p>Measured with <b>tessera bench</b>, which runs the same work through Vulkan on any "
          "vendor's device, and on CPUs. Every result was compared with a reference before it was "
          "timed.</p>\n",
          out);
}

static void write_cell(FILE *out, const bench_figures *one)
{
    char text[BENCH_VALUE_TEXT];
    html_line(out, "<td class=\"n\">%s</td>",
              one != NULL ? bench_figures_text(one, one->median, text) : "–");
}

/* Of the devices; a page of what hosts did has none. */
static void write_summary(const page_context *page)
{
    FILE *out = page->out;
    int devices = 0;
    for (int s = 0; s < page->series_count; s++)
        devices += page->series[s].device >= 0;
    if (devices == 0)
        return;
    fputs("<section><h2>At a glance</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>device</th>"
          "<th class=\"n\">arithmetic, f32</th><th class=\"n\">f16</th><th class=\"n\">memory</th>"
          "<th class=\"n\">best product, f32</th><th class=\"n\">f16</th><th class=\"n\">bf16</th>"
          "<th class=\"n\">round trip</th></tr></thead>\n<tbody>\n",
          out);
    for (int s = 0; s < page->series_count; s++) {
        const page_series *series = &page->series[s];
        if (series->device < 0)
            continue;
        html_line(out, "<tr><td class=\"s%d\"><i></i>%s</td>", series->colour, series->name);
        write_cell(out, page_best(series, "fma_peak", "dtype", "f32"));
        write_cell(out, page_best(series, "fma_peak", "dtype", "f16"));
        write_cell(out, page_memory(series));
        write_cell(out, page_best(series, "matmul", "dtype", "f32"));
        write_cell(out, page_best(series, "matmul", "dtype", "f16"));
        write_cell(out, page_best(series, "matmul", "dtype", "bf16"));
        write_cell(out, page_best(series, "launch", "what", "round trip"));
        fputs("</tr>\n", out);
    }
    fputs("</tbody></table></div>\n", out);
    fputs(
        "<dl><dt>arithmetic</dt><dd>what multiply-adds reach when nothing else is in the way: "
        "numbers stay in registers. A multiply-add is two floating-point operations; a GFLOP/s "
        "is 10⁹ operations a second.</dd><dt>memory</dt><dd>bytes read plus bytes written by a "
        "plain copy, in 10⁹ a second.</dd><dt>best product</dt><dd>the fastest of the matrix "
        "products below. f16 and bf16 are numbers of 16 bits; sums are in f32 all the same, and so "
        "a product can be faster than arithmetic in f16 alone."
        "</dd><dt>round trip</dt><dd>handing the smallest piece of work to the device and waiting "
        "for it.</dd></dl></section>\n",
        out);
}

static void write_reading(const page_context *page)
{
    fputs("<section><h2>How to read the rest</h2>\n<p>A bar is the median of many samples; the "
          "thin line across its end spans the middle 80 % of them (p10 – p90). A star marks a "
          "result whose middle 80 % spread over more than 20 % of the median: do not make much of "
          "small differences there. The percentage is the part of its limit, measured in the same "
          "run, that a result reaches: arithmetic or memory, whichever is met first. A short "
          "upright line marks that limit where there is room for it. Above 100 %, caches helped or "
          "the machine was busier while the limit was measured. Point at a bar, or open "
          "<b>All figures</b>, for more.</p></section>\n",
          page->out);
}

static void write_rooflines(const page_context *page)
{
    FILE *out = page->out;
    int rooflines = 0;
    for (int s = 0; s < page->series_count; s++)
        rooflines += page_has_roofline(&page->series[s]);
    if (rooflines == 0)
        return;
    fputs("<section><h2>Matrix products under the roofline</h2>\n<p>Each mark is a product of two "
          "matrices. Those to the left need many bytes for few operations and are limited by "
          "memory, the slope; those to the right by arithmetic, the level part. The closer to the "
          "line, the less is left to gain.</p>\n",
          out);
    for (int s = 0; s < page->series_count; s++)
        page_roofline(page, &page->series[s]);
    fputs("</section>\n", out);
}

/* True the first time a benchmark is met. */
static bool is_first(const page_context *page, int run, int result)
{
    const char *name = page->runs[run].results[result].benchmark;
    for (int r = 0; r <= run; r++)
        for (int i = 0; i < (r < run ? page->runs[r].result_count : result); i++)
            if (strcmp(page->runs[r].results[i].benchmark, name) == 0)
                return false;
    return true;
}

static void write_benchmark(const page_context *page, const bench_figures *one)
{
    const bench *known = bench_find(one->benchmark);
    html_line(page->out, "<section><h2>%s</h2>\n<p>%s</p>\n", one->benchmark,
              one->is_ceiling ? "A limit that other results are compared with."
              : known != NULL ? known->summary
                              : "");
    page_benchmark(page, one->benchmark);
    page_table(page, one->benchmark);
    fputs("</section>\n", page->out);
}

static int rank_of(const bench_figures *one)
{
    return one->is_ceiling ? 2 : one->device < 0 ? 1 : 0;
}

void page_each_benchmark(const page_context *page,
                         void (*write)(const page_context *page, const bench_figures *one))
{
    for (int rank = 0; rank < 3; rank++)
        for (int r = 0; r < page->run_count; r++)
            for (int i = 0; i < page->runs[r].result_count; i++)
                if (is_first(page, r, i) && rank_of(&page->runs[r].results[i]) == rank)
                    write(page, &page->runs[r].results[i]);
}

static void write_warnings(const page_context *page)
{
    const json_t *warning;
    size_t i;
    for (int r = 0; r < page->run_count; r++) {
        const bench_document *run = &page->runs[r];
        json_array_foreach(run->warnings, i, warning) html_line(
            page->out, "<p class=\"warn\">%s: %s.</p>\n", run->name, json_string_value(warning));
        if (json_array_size(run->failures) > 0)
            html_line(page->out,
                      "<p class=\"warn\">%s: %d benchmarks failed; see The runs, below.</p>\n",
                      run->name, (int)json_array_size(run->failures));
    }
}

static void write_notes(FILE *out, const bench_document *run, const json_t *notes,
                        const char *heading)
{
    const json_t *one;
    size_t i;
    if (json_array_size(notes) == 0)
        return;
    html_line(out, "<dt>%s</dt><dd><ul>", heading);
    json_array_foreach(notes, i, one)
    {
        const json_t *device = json_object_get(one, "device");
        const char *name =
            json_is_integer(device) ? run->devices[json_integer_value(device)].name : "host";
        html_line(out, "<li>%s: %s: %s</li>", name,
                  json_string_value(json_object_get(one, "benchmark")),
                  json_string_value(json_object_get(one, "text")));
    }
    fputs("</ul></dd>", out);
}

static void write_run(FILE *out, const bench_document *run)
{
    html_line(out, "<h3>%s</h3>\n<dl><dt>when</dt><dd>%s, %f s</dd>", run->name, run->time,
              run->duration_s);
    html_line(out, "<dt>host</dt><dd>%s, %d CPUs, %s</dd><dt>tessera</dt><dd>%s</dd>", run->cpu,
              run->cpus, run->os, run->tessera);
    for (int d = 0; d < run->device_count; d++)
        html_line(out, "<dt>device</dt><dd>%s (%s), driver %s %s</dd>", run->devices[d].name,
                  run->devices[d].type, run->devices[d].driver_name, run->devices[d].driver_info);
    write_notes(out, run, run->failures, "failed");
    write_notes(out, run, run->left_out, "left out, mostly as too slow here");
    fputs("</dl>\n", out);
}

static void write_page(const page_context *page)
{
    FILE *out = page->out;
    write_head(page);
    write_warnings(page);
    write_summary(page);
    write_reading(page);
    write_rooflines(page);
    page_each_benchmark(page, write_benchmark);
    fputs("<section><h2>The runs</h2>\n", out);
    for (int r = 0; r < page->run_count; r++)
        write_run(out, &page->runs[r]);
    fputs("</section>\n</main>\n</body>\n</html>\n", out);
}

/* Command -------------------------------------------------------------------------------------- */

static int write_file(page_context *page)
{
    cli_output to;
    if (cli_output_is_standard(output)) {
        page->out = stdout;
        chosen_format->write(page);
        return CLI_DONE;
    }
    bool written = cli_output_begin(output, &to);
    if (written) {
        page->out = to.file;
        chosen_format->write(page);
        written = cli_output_end(&to);
    }
    return written ? CLI_DONE
                   : cli_failed("bench report: cannot write '%s': %s", output, strerror(errno));
}

static void help(FILE *out)
{
    fprintf(
        out,
        "Makes one page of what 'tessera bench -o FILE' has written, %d files at the most, to be "
        "passed on: an HTML\n"
        "file with charts, light or dark, without scripts or anything from elsewhere; or the "
        "figures as tables in Markdown,\n"
        "or as CSV.\n",
        MOST_RUNS);
    cli_options_help(out, options);
}

/* CLI_DONE, or why there is no page. */
static int write_page_of(const char *const *paths, int count)
{
    char problem[BENCH_PROBLEM];
    bench_document *runs = cli_alloc((size_t)count, sizeof *runs);
    int read = 0, code;
    while (read < count && bench_document_read(paths[read], &runs[read], problem))
        read++;
    if (read < count) {
        code = cli_usage_error("bench report: %s", problem);
    } else {
        bench_documents_name(runs, count);
        page_context page = {.run_count = count, .runs = runs};
        for (int r = 0; r < count; r++)
            for (int d = 0; d < runs[r].device_count; d++)
                page_add_series(&page, &runs[r], d);
        for (int r = 0; r < count; r++)
            page_add_series(&page, &runs[r], -1);
        code = write_file(&page);
        free(page.series);
    }
    for (int i = 0; i < read; i++)
        bench_document_free(&runs[i]);
    free(runs);
    return code;
}

static void choose_format(void)
{
    const char *end = output != NULL ? strrchr(output, '.') : NULL;
    if (chosen_format == NULL && end != NULL)
        chosen_format = find_format(end + 1);
    if (chosen_format == NULL)
        chosen_format = &formats[0];
    if (output == NULL)
        output = chosen_format->usual;
}

static int check_paths(const char *const *paths, int count)
{
    if (count == 0)
        return cli_usage_error(
            "bench report: which files? 'tessera bench -o FILE.json' writes one");
    if (count > MOST_RUNS)
        return cli_usage_error("bench report: a page is made of %d files at the most, not of %d",
                               MOST_RUNS, count);
    for (int i = 0; i < count; i++)
        if (cli_output_is(output, paths[i]))
            return cli_usage_error("bench report: the page would replace '%s', which it is made of",
                                   paths[i]);
    return CLI_DONE;
}

static int run(int argc, char **argv)
{
    const char **paths = cli_alloc((size_t)argc, sizeof *paths);
    int count;
    int code = cli_options_read("bench report", options, argc, argv, argc, paths, &count);
    choose_format();
    if (code == CLI_DONE)
        code = check_paths(paths, count);
    if (code == CLI_DONE)
        code = write_page_of(paths, count);
    free(paths);
    return code;
}

const cli_command bench_report_command = {
    .name = "bench report",
    .usage = "FILE... [-o PAGE]",
    .summary = "a page of what was measured",
    .run = run,
    .help = help,
};
