/* Writes a table with all details of the results of a benchmark. */
#include <stdio.h>
#include <string.h>

#include "bench/report/html.h"
#include "bench/report/page.h"
#include "cli/lib/numbers.h"

static void write_row(FILE *out, const page_series *series, const bench_figures *one)
{
    char text[BENCH_VALUE_TEXT], high[BENCH_VALUE_TEXT];
    html_line(out, "<tr><td>%s</td><td>%s</td><td class=\"n\">%s%s</td>", series->name, one->label,
              bench_figures_text(one, one->median, text), one->noisy ? " *" : "");
    html_line(out, "<td class=\"n\">%s – %s</td>", bench_figures_text(one, one->low, text),
              bench_figures_text(one, one->high, high));
    html_line(out, "<td class=\"n\">%s</td>", bench_figures_text(one, one->best, text));
    if (one->fraction > 0)
        html_line(out, "<td class=\"n\">%s of %s%s</td>", cli_percent(one->fraction, text),
                  one->ceiling, page_standing(one));
    else
        fputs("<td></td>", out);
    if (one->peer != NULL)
        html_line(out, "<td class=\"n\">%s, %s</td>",
                  bench_figures_text(one, one->peer_median, text), one->peer);
    else
        fputs("<td></td>", out);
    /* Shows the device's time per repetition. If the value is a time, and a repetition has several
     * equal actions, shows the time per action. */
    double device_ns = one->is_time && one->work > 0 ? one->device_ns / one->work : one->device_ns;
    html_line(out, "<td class=\"n\">%s</td>",
              one->device_ns > 0 ? cli_duration(device_ns, text) : "");
    html_line(out, "<td class=\"n\">%d × %f</td><td>%s</td></tr>\n", one->samples, one->repetitions,
              one->method);
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
            const bench_figures *one = &page->series[s].run->results[i];
            if (one->device == page->series[s].device && strcmp(one->benchmark, benchmark) == 0)
                write_row(out, &page->series[s], one);
        }
    fputs("</tbody></table></div></details>\n", out);
}
