/* Writes a table with all details of the results of a benchmark. */
#include <stdio.h>
#include <string.h>

#include "bench/report/html.h"
#include "bench/report/page.h"
#include "cli/lib/numbers.h"

static void write_row(FILE *out, const page_series *series, const bench_figures *figures)
{
    char text[BENCH_VALUE_TEXT], high[BENCH_VALUE_TEXT];
    html_line(out, "<tr><td>%s</td><td>%s</td><td class=\"n\">%s%s</td>", series->name,
              figures->label, bench_figures_text(figures, figures->median, text),
              figures->noisy ? " *" : "");
    html_line(out, "<td class=\"n\">%s – %s</td>", bench_figures_text(figures, figures->low, text),
              bench_figures_text(figures, figures->high, high));
    html_line(out, "<td class=\"n\">%s</td>", bench_figures_text(figures, figures->best, text));
    if (figures->fraction > 0)
        html_line(out, "<td class=\"n\">%s of %s%s</td>", cli_percent(figures->fraction, text),
                  figures->ceiling, page_standing(figures));
    else
        fputs("<td></td>", out);
    if (figures->peer != NULL)
        html_line(out, "<td class=\"n\">%s, %s</td>",
                  bench_figures_text(figures, figures->peer_median, text), figures->peer);
    else
        fputs("<td></td>", out);
    /* Shows the device's time per repetition. If the value is a time, and a repetition has several
     * equal actions, shows the time per action. */
    double device_ns = figures->is_time && figures->work > 0 ? figures->device_ns / figures->work
                                                             : figures->device_ns;
    html_line(out, "<td class=\"n\">%s</td>",
              figures->device_ns > 0 ? cli_duration(device_ns, text) : "");
    html_line(out, "<td class=\"n\">%d × %f</td><td>%s</td></tr>\n", figures->samples,
              figures->repetitions, figures->method);
}

void page_table(const page_context *page, const char *benchmark)
{
    FILE *out = page->out;
    fputs("<details><summary>All figures</summary><div class=\"wide\"><table>\n<thead><tr>"
          "<th>device</th><th>case</th><th class=\"n\">median</th><th class=\"n\">p10 – p90</th>"
          "<th class=\"n\">best</th><th class=\"n\">of its ceiling</th><th class=\"n\">peer</th>"
          "<th class=\"n\">device clock</th><th class=\"n\">samples</th>"
          "<th>verified</th></tr></thead>\n<tbody>\n",
          out);
    for (int s = 0; s < page->series_count; s++)
        for (int i = 0; i < page->series[s].run->result_count; i++) {
            const bench_figures *figures = &page->series[s].run->results[i];
            if (figures->device == page->series[s].device &&
                strcmp(figures->benchmark, benchmark) == 0)
                write_row(out, &page->series[s], figures);
        }
    fputs("</tbody></table></div></details>\n", out);
}
