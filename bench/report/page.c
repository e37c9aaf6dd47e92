#include "bench/report/page.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/bench.h"
#include "bench/report/html.h"
#include "bench/submit/submit.h"
#include "cli/lib/command.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"
#include "cli/lib/options.h"
#include "cli/lib/output.h"
#include "cli/lib/terminal.h"

#define MAX_RUNS 32

static const char *const style[] = {
#include "bench/page.css.inc"
};

typedef struct format {
    const char *name, *usual; /* `usual`: the name of the file to write if none is given */
    void (*write)(const page_context *page);
} format;
static void write_page(const page_context *page);
static const format formats[] = {{"html", "report.html", write_page},
                                 {"md", "report.md", page_markdown},
                                 {"csv", "report.csv", page_csv}};
static const format *chosen_format;
static const char *output;
static bool checks;

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
     "file to write (default: report.html, .md or .csv, by the format); html, md or csv: print in "
     "this format; -: print",
     .text = &output, .letter = 'o'},
    {"check", NULL,
     "refuse files that 'tessera bench --submit' would not have written; without -o and --format, "
     "write no page",
     .flag = &checks},
    {"format", "FORMAT", "html, md or csv (default: by the extension of FILE, or html)",
     .read = read_format},
    {0},
};

/* Parts ---------------------------------------------------------------------------------------- */

static void write_head(const page_context *page)
{
    FILE *out = page->out;
    /* The content security policy prevents scripts from running, in case some text is not escaped
     * by mistake. */
    fputs("<!DOCTYPE html>\n<html xmlns=\"http://www.w3.org/1999/xhtml\" lang=\"en\">\n<head>\n"
          "<meta charset=\"utf-8\"/>\n<meta http-equiv=\"Content-Security-Policy\" "
          "content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
          "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
          "<title>tessera bench</title>\n<style>\n",
          out);
    for (size_t i = 0; i < sizeof style / sizeof *style; i++)
        fputs(style[i], out);
    fputs(
        "</style>\n</head>\n<body>\n<main>\n<h1>Benchmark results</h1>\n"
        "<p>Measured with <b>tessera bench</b>, which runs the same work through Vulkan on GPUs of "
        "any vendor and on CPUs. Every result was verified before it was timed.</p>\n",
        out);
}

#define DATE_TEXT 16
/* Writes only the day; the section "Runs" has the time. */
static const char *date_of(const bench_document *run, char text[DATE_TEXT])
{
    snprintf(text, DATE_TEXT, "%.10s", run->time);
    return text;
}

/* Writes a table of what was measured, where and when, with one row per device. */
static void write_devices(const page_context *page)
{
    FILE *out = page->out;
    char memory[CLI_BYTES_TEXT], date[DATE_TEXT];
    fputs("<section>\n<div class=\"wide\"><table>\n<thead><tr><th>device</th><th>memory</th>"
          "<th>driver</th><th>host</th><th>date</th></tr></thead>\n<tbody>\n",
          out);
    for (int s = 0; s < page->series_count; s++) {
        const page_series *series = &page->series[s];
        const bench_document *run = series->run;
        if (series->device < 0 && run->device_count > 0)
            continue;
        html_line(out, "<tr><td class=\"s%d\"><i></i>%s</td>", series->colour, series->name);
        if (series->device >= 0) {
            const bench_device_figures *device = &run->devices[series->device];
            html_line(out, "<td>%s</td><td>%s %s</td>",
                      device->memory_bytes > 0 ? cli_bytes((uint64_t)device->memory_bytes, memory)
                                               : "–",
                      device->driver_name, device->driver_info);
        } else {
            fputs("<td>–</td><td>–</td>", out);
        }
        html_line(out, "<td>%s, %d CPUs</td><td class=\"date\">%s</td></tr>\n", run->cpu, run->cpus,
                  date_of(run, date));
    }
    fputs("</tbody></table></div></section>\n", out);
}

/* A row of the summary: the result that page_best selects, or, if `benchmark` is NULL, the
 * bandwidth of the memory. */
typedef struct quantity {
    const char *name, *explanation;
    const char *benchmark, *param, *value;
} quantity;

static const quantity quantities[] = {
    {"arithmetic, f32", "multiply-adds on numbers in registers", "fma_peak", "dtype", "f32"},
    {"arithmetic, f16", "the same in 16 bits", "fma_peak", "dtype", "f16"},
    {"matrices, f16", "products of cooperative matrices (tensor cores and the like) in registers",
     "coopmat_peak", NULL, NULL},
    {"memory", "bytes read plus bytes written", NULL, NULL, NULL},
    {"best product, f32", "the fastest matrix product below", "matmul", "dtype", "f32"},
    {"best product, f16", "16-bit operands and result, sums in f32", "matmul", "dtype", "f16"},
    {"best product, bf16", "16-bit operands and result, sums in f32", "matmul", "dtype", "bf16"},
    {"round trip", "submitting the smallest piece of work and waiting for it", "launch", "what",
     "round trip"},
};

static const bench_figures *find_quantity(const page_series *series, const quantity *what)
{
    return what->benchmark != NULL ? page_best(series, what->benchmark, what->param, what->value)
                                   : page_memory(series);
}

static void write_quantity(const page_context *page, const quantity *what)
{
    FILE *out = page->out;
    char text[BENCH_VALUE_TEXT];
    bool any = false;
    for (int s = 0; s < page->series_count; s++)
        any = any || (page->series[s].device >= 0 && find_quantity(&page->series[s], what) != NULL);
    if (!any)
        return;
    html_line(out, "<tr><th>%s <span class=\"faint\">%s</span></th>", what->name,
              what->explanation);
    for (int s = 0; s < page->series_count; s++) {
        if (page->series[s].device < 0)
            continue;
        const bench_figures *figures = find_quantity(&page->series[s], what);
        html_line(out, "<td class=\"n\">%s</td>",
                  figures != NULL ? bench_figures_text(figures, figures->median, text) : "–");
    }
    fputs("</tr>\n", out);
}

/* Writes the table of the best results of each device. Writes nothing if the runs have no devices,
 * only hosts. */
static void write_summary(const page_context *page)
{
    FILE *out = page->out;
    int devices = 0;
    for (int s = 0; s < page->series_count; s++)
        devices += page->series[s].device >= 0;
    if (devices == 0)
        return;
    fputs("<section id=\"summary\"><h2>At a glance</h2>\n<div class=\"wide\"><table>\n"
          "<thead><tr><th></th>",
          out);
    for (int s = 0; s < page->series_count; s++)
        if (page->series[s].device >= 0)
            html_line(out, "<th class=\"n s%d\"><i></i>%s</th>", page->series[s].colour,
                      page->series[s].name);
    fputs("</tr></thead>\n<tbody>\n", out);
    for (size_t i = 0; i < sizeof quantities / sizeof *quantities; i++)
        write_quantity(page, &quantities[i]);
    fputs(
        "</tbody></table></div>\n<p class=\"note\">1 GFLOP/s is 10⁹ floating-point operations per "
        "second, and a multiply-add is two of them; 1 TFLOP/s is 1000 GFLOP/s; 1 GB/s is 10⁹ bytes "
        "per second.</p>"
        "</section>\n",
        out);
}

static void write_reading(const page_context *page)
{
    fputs(
        "<section id=\"reading\"><h2>How to read the charts</h2>\n<p>A bar, or a dot on a "
        "logarithmic scale, is the median of many samples. The "
        "thin line across its end spans the middle 80 % of them (p10 – p90). A star marks a noisy "
        "result, for which that span is more than 20 % of the median.</p>\n<p>The percentage is "
        "the part of its ceiling that a result reaches. The ceiling is that of arithmetic or of "
        "memory, whichever limits the work, measured in the same run; a short vertical line marks "
        "it if there is room. <b>caches</b>: the result is above the ceiling of memory because its "
        "data fits in caches. <b>above</b>: the device was slower while the ceiling was measured, "
        "although that was done several times. Point at a bar, or open <b>All figures</b>, for "
        "details.</p></section>\n",
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
    fputs(
        "<section id=\"rooflines\"><h2>Rooflines of matrix products</h2>\n<p>Each mark is a "
        "product of two "
        "matrices. "
        "Products to the left need many bytes per operation and are limited by memory, the slope; "
        "products to the right are limited by arithmetic, the level part. Each dtype has its own "
        "line. The closer a mark is to its line, the less there is to gain; marks above the slope "
        "have their data in caches.</p>\n",
        out);
    for (int s = 0; s < page->series_count; s++)
        page_roofline(page, &page->series[s]);
    fputs("</section>\n", out);
}

static void write_benchmark(const page_context *page, const bench_figures *figures)
{
    const bench *known = bench_find(figures->benchmark);
    html_line(page->out, "<section id=\"%s\"><h2>%s</h2>\n<p>%s</p>\n", figures->benchmark,
              figures->benchmark,
              figures->is_ceiling ? "A ceiling that other results are compared with."
              : known != NULL     ? known->summary
                                  : "");
    if (page_has_pairs(page, figures->benchmark))
        page_pairs(page, figures->benchmark);
    else
        page_benchmark(page, figures->benchmark);
    page_table(page, figures->benchmark);
    fputs("</section>\n", page->out);
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
                      "<p class=\"warn\">%s: %d benchmarks failed; see \"Runs\" below.</p>\n",
                      run->name, (int)json_array_size(run->failures));
    }
}

static void write_notes(FILE *out, const bench_document *run, const json_t *notes,
                        const char *heading)
{
    const json_t *figures;
    size_t i;
    if (json_array_size(notes) == 0)
        return;
    html_line(out, "<dt>%s</dt><dd><ul>", heading);
    json_array_foreach(notes, i, figures)
    {
        const json_t *device = json_object_get(figures, "device");
        const char *name =
            json_is_integer(device) ? run->devices[json_integer_value(device)].name : "host";
        html_line(out, "<li>%s: %s: %s</li>", name,
                  json_string_value(json_object_get(figures, "benchmark")),
                  json_string_value(json_object_get(figures, "text")));
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
    write_notes(out, run, run->left_out, "not measured, mostly because it would take too long");
    fputs("</dl>\n", out);
}

static void write_page(const page_context *page)
{
    FILE *out = page->out;
    write_head(page);
    write_devices(page);
    write_warnings(page);
    write_summary(page);
    write_reading(page);
    write_rooflines(page);
    page_each_benchmark(page, write_benchmark);
    fputs("<section id=\"runs\"><h2>Runs</h2>\n", out);
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
    char text[512];
    snprintf(
        text, sizeof text,
        "Makes one page with the results of up to %d runs, from the files that 'tessera bench -o "
        "FILE' writes: HTML with charts in a single file, without scripts; or Markdown tables; "
        "or CSV.\n",
        MAX_RUNS);
    cli_wrap(out, text);
    cli_options_help(out, options);
}

/* Says which runs are not valid submissions, and why. Returns an exit code. */
static int check_runs(const bench_document *runs, int count)
{
    bench_reasons *reasons = cli_alloc(1, sizeof *reasons);
    int code = CLI_DONE;
    for (int r = 0; r < count; r++) {
        bench_self_check(&runs[r], reasons);
        for (int i = 0; i < reasons->count; i++)
            code = cli_failed("bench report: %s: %s", runs[r].path, reasons->text[i]);
    }
    free(reasons);
    return code;
}

static int draw_page(bench_document *runs, int count)
{
    bench_documents_name(runs, count);
    page_context page = page_of(runs, count);
    const int code = write_file(&page);
    free(page.series);
    return code;
}

/* Reads the runs, checks them with --check, and writes a page if one is wanted. Returns an exit
 * code. */
static int report_on(const char *const *paths, int count)
{
    char problem[BENCH_PROBLEM];
    bench_document *runs = cli_alloc((size_t)count, sizeof *runs);
    int read = 0, code = CLI_DONE;
    while (read < count && bench_document_read(paths[read], &runs[read], problem))
        read++;
    if (read < count)
        code = cli_failed("bench report: %s", problem);
    else if (checks)
        code = check_runs(runs, count);
    if (code == CLI_DONE && output != NULL)
        code = draw_page(runs, count);
    else if (code == CLI_DONE)
        for (int r = 0; r < count; r++)
            printf("%s: passes the self-check of 'tessera bench --submit'\n", runs[r].path);
    for (int i = 0; i < read; i++)
        bench_document_free(&runs[i]);
    free(runs);
    return code;
}

/* Sets the format if --output names one, as with the other commands of bench. Otherwise --output is
 * the page's file. */
static int read_output(void)
{
    const format *named = output != NULL ? find_format(output) : NULL;
    if (named == NULL)
        return CLI_DONE;
    if (chosen_format != NULL && chosen_format != named)
        return cli_usage_error("bench report: --output %s and --format %s are two formats", output,
                               chosen_format->name);
    chosen_format = named;
    output = "-";
    return CLI_DONE;
}

/* With --check alone, neither a format nor an output is chosen, and no page is written. */
static void choose_format(void)
{
    if (checks && output == NULL && chosen_format == NULL)
        return;
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
            "bench report: missing FILE; 'tessera bench -o FILE.json' writes one");
    if (count > MAX_RUNS)
        return cli_usage_error("bench report: too many files: %d; the maximum is %d", count,
                               MAX_RUNS);
    for (int i = 0; i < count; i++)
        if (output != NULL && cli_output_is(output, paths[i]))
            return cli_usage_error("bench report: --output would overwrite the input '%s'",
                                   paths[i]);
    return CLI_DONE;
}

static int run_report(int argc, char **argv)
{
    const char **paths = cli_alloc((size_t)argc, sizeof *paths);
    int count;
    int code = cli_options_read("bench report", options, argc, argv, argc, paths, &count);
    if (code == CLI_DONE)
        code = read_output();
    choose_format();
    if (code == CLI_DONE)
        code = check_paths(paths, count);
    if (code == CLI_DONE)
        code = report_on(paths, count);
    free(paths);
    return code;
}

const cli_command bench_report_command = {
    .name = "bench report",
    .usage = "FILE... [-o PAGE]",
    .summary = "make a page with the results",
    .run = run_report,
    .help = help,
};
