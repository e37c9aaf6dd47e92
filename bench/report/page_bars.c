/* Draws the results of a benchmark: rates as bars that start at 0; times, and rates of unlike
 * devices, as dots on a logarithmic scale, because they differ by orders of magnitude. Horizontal
 * positions are percentages, so that the drawing fits any width while its text keeps its size. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/report/html.h"
#include "bench/report/page.h"
#include "cli/lib/numbers.h"

#define MAX_CASES 256
#define PLOT 56.0 /* per cent of the width; the values are printed to the right of the plot */
#define BAR 12
#define LINE 18
#define CASE_GAP 10
/* The most powers of ten that the axis covers; smaller values are drawn at its left edge. */
#define MAX_DECADES 24

typedef struct scale {
    bool is_log;
    /* both are positive; on a logarithmic scale they are exponents of 10, which are integers */
    double low, high;
} scale;

typedef struct chart {
    const page_context *page;
    const char *benchmark;
    int count;
    bool is_time;
    bool is_full;                          /* there was no room for some cases */
    const bench_figures *cases[MAX_CASES]; /* the first result of each case */
    scale scale;
} chart;

static const bench_figures *find_figures(const page_series *series, const bench_figures *like)
{
    for (int i = 0; i < series->run->result_count; i++) {
        const bench_figures *figures = &series->run->results[i];
        if (figures->device == series->device && !figures->is_ceiling &&
            strcmp(figures->benchmark, like->benchmark) == 0 &&
            strcmp(figures->unit, like->unit) == 0 && json_equal(figures->which, like->which))
            return figures;
    }
    return NULL;
}

/* Adds a case to the chart, unless it has the case already: after the case `before`, which precedes
 * it in its own run, so that a case which only some devices have is next to similar ones. Returns
 * its index. */
static int add_case(chart *bars, const bench_figures *figures, int before)
{
    for (int i = 0; i < bars->count; i++)
        if (json_equal(bars->cases[i]->which, figures->which) &&
            strcmp(bars->cases[i]->unit, figures->unit) == 0)
            return i;
    if (bars->count == MAX_CASES) {
        bars->is_full = true;
        return before;
    }
    memmove(&bars->cases[before + 2], &bars->cases[before + 1],
            (size_t)(bars->count - before - 1) * sizeof *bars->cases);
    bars->cases[before + 1] = figures;
    bars->count++;
    return before + 1;
}

static void add_cases(chart *bars, const bench_document *run)
{
    int before = -1, device = -1;
    for (int i = 0; i < run->result_count; i++) {
        const bench_figures *figures = &run->results[i];
        if (figures->is_ceiling || strcmp(figures->benchmark, bars->benchmark) != 0)
            continue;
        before = add_case(bars, figures, figures->device == device ? before : -1);
        device = figures->device;
    }
}

/* A ceiling that is more than this factor above all results is not drawn, because it would make the
 * bars too short. */
#define CEILING_ROOM 3

static double ceiling_of(const bench_figures *figures)
{
    return figures->fraction > 0 && !figures->is_time ? figures->median / figures->fraction : 0;
}

/* Rates are drawn on a logarithmic scale if those of one case differ by more than this factor. */
#define UNLIKE 20

static void choose_scale(chart *bars)
{
    double low = INFINITY, high = 0, ceiling = 0;
    for (int i = 0; i < bars->count; i++) {
        double slowest = INFINITY, fastest = 0;
        for (int s = 0; s < bars->page->series_count; s++) {
            const bench_figures *figures = find_figures(&bars->page->series[s], bars->cases[i]);
            if (figures == NULL)
                continue;
            bars->is_time = figures->is_time;
            slowest = fmin(slowest, figures->median);
            fastest = fmax(fastest, figures->median);
            low = fmin(low, figures->low);
            high = fmax(high, figures->high);
            ceiling = fmax(ceiling, ceiling_of(figures));
        }
        bars->scale.is_log = bars->scale.is_log || bars->is_time || fastest / UNLIKE > slowest;
    }
    bars->scale.high = ceiling > high && ceiling < CEILING_ROOM * high ? ceiling : high;
    if (bars->scale.is_log) { /* the axis covers at least one power of ten */
        bars->scale.high = ceil(log10(fmax(high, ceiling)));
        double lowest = floor(log10(low < high ? low : high / 10));
        bars->scale.low = fmin(fmax(lowest, bars->scale.high - MAX_DECADES), bars->scale.high - 1);
    }
}

/* Returns the horizontal position of the value 10^decade, in per cent of
 * the width of the drawing. */
static double decade_place(const scale *of, double decade)
{
    return PLOT * fmin(fmax((decade - of->low) / (of->high - of->low), 0), 1);
}

static double place(const scale *of, double value)
{
    return of->is_log ? decade_place(of, log10(value)) : PLOT * fmin(value / of->high, 1);
}

static void write_tip(FILE *out, const page_series *series, const bench_figures *figures)
{
    char median[BENCH_VALUE_TEXT], low[BENCH_VALUE_TEXT], high[BENCH_VALUE_TEXT];
    html_line(out, "<title>%s, %s: %s; p10 – p90: %s – %s</title>", series->name, figures->label,
              bench_figures_text(figures, figures->median, median),
              bench_figures_text(figures, figures->low, low),
              bench_figures_text(figures, figures->high, high));
}

static void draw_one(const chart *bars, const page_series *series, const bench_figures *figures,
                     int y)
{
    FILE *out = bars->page->out;
    const scale *of = &bars->scale;
    char text[BENCH_VALUE_TEXT], percent[CLI_NUMBER_TEXT];
    double at = place(of, figures->median), middle = y + BAR / 2.0;
    html_line(out, "<g class=\"s%d\">", series->colour);
    write_tip(out, series, figures);
    if (of->is_log)
        html_line(out, "<circle cx=\"%f%%\" cy=\"%f\" r=\"5\"/>", at, middle);
    else
        html_line(out, "<rect x=\"0\" y=\"%d\" width=\"%f%%\" height=\"%d\" rx=\"2\"/>", y, at,
                  BAR);
    html_line(out, "<line class=\"spread\" x1=\"%f%%\" x2=\"%f%%\" y1=\"%f\" y2=\"%f\"/>",
              place(of, figures->low), place(of, figures->high), middle, middle);
    double ceiling = ceiling_of(figures);
    if (ceiling > 0 && (of->is_log || ceiling <= of->high))
        html_line(out, "<line class=\"ceiling\" x1=\"%f%%\" x2=\"%f%%\" y1=\"%d\" y2=\"%d\"/>",
                  place(of, ceiling), place(of, ceiling), y - 2, y + BAR + 2);
    html_line(out, "<text class=\"value\" x=\"%f%%\" dx=\"8\" y=\"%d\">%s", PLOT, y + BAR - 2,
              bench_figures_text(figures, figures->median, text));
    if (figures->fraction > 0)
        html_line(out, "<tspan class=\"faint\"> · %s%s</tspan>",
                  cli_percent(figures->fraction, percent), page_standing(figures));
    if (figures->busbw > 0)
        html_line(out, "<tspan class=\"faint\"> · busbw %s</tspan>",
                  cli_number(figures->busbw, percent));
    html_line(out, "%s</text></g>\n", figures->noisy ? " *" : "");
}

static void write_decade(const chart *bars, int decade, char text[CLI_NUMBER_TEXT])
{
    if (bars->is_time)
        cli_duration(pow(10, decade), text);
    else
        snprintf(text, CLI_NUMBER_TEXT, "%.7g", pow(10, decade));
}

static void draw_decades(const chart *bars, int height)
{
    FILE *out = bars->page->out;
    char text[CLI_NUMBER_TEXT];
    int first = (int)bars->scale.low, last = (int)bars->scale.high;
    int step =
        (last - first + 2) / 3; /* there is room for few labels; the first and the last have one */
    for (int decade = first; decade <= last; decade++) {
        double x = decade_place(&bars->scale, decade);
        html_line(out, "<line class=\"grid\" x1=\"%f%%\" x2=\"%f%%\" y1=\"16\" y2=\"%d\"/>", x, x,
                  height);
        if (decade != last && ((decade - first) % step != 0 || last - decade < step))
            continue;
        write_decade(bars, decade, text);
        html_line(out, "<text class=\"tick%s\" x=\"%f%%\" y=\"11\">%s</text>\n",
                  decade == first  ? " first"
                  : decade == last ? " last"
                                   : "",
                  x, text);
    }
}

static int height_of(const chart *bars)
{
    int height = bars->scale.is_log ? 20 : 0;
    for (int i = 0; i < bars->count; i++) {
        height += LINE + CASE_GAP;
        for (int s = 0; s < bars->page->series_count; s++)
            height += find_figures(&bars->page->series[s], bars->cases[i]) != NULL ? LINE : 0;
    }
    return height;
}

static void draw_bars(const chart *bars)
{
    FILE *out = bars->page->out;
    int y = bars->scale.is_log ? 20 : 0, height = height_of(bars);
    html_line(out,
              "<svg class=\"bars\" xmlns=\"http://www.w3.org/2000/svg\" width=\"100%%\" "
              "height=\"%d\" role=\"img\" aria-label=\"%s\">\n",
              height, bars->benchmark);
    if (bars->scale.is_log)
        draw_decades(bars, height);
    for (int i = 0; i < bars->count; i++) {
        html_line(out, "<text class=\"case\" x=\"0\" y=\"%d\">%s</text>\n", y + 13,
                  bars->cases[i]->label);
        y += LINE;
        for (int s = 0; s < bars->page->series_count; s++) {
            const bench_figures *figures = find_figures(&bars->page->series[s], bars->cases[i]);
            if (figures == NULL)
                continue;
            draw_one(bars, &bars->page->series[s], figures, y);
            y += LINE;
        }
        y += CASE_GAP;
    }
    fputs("</svg>\n", out);
}

/* Writes the names of the series that are in the drawing. */
static void write_legend(const chart *bars)
{
    FILE *out = bars->page->out;
    fputs("<ul class=\"legend\">", out);
    for (int s = 0; s < bars->page->series_count; s++) {
        const page_series *series = &bars->page->series[s];
        bool is_listed = false;
        for (int i = 0; i < bars->count && !is_listed; i++)
            is_listed = find_figures(series, bars->cases[i]) != NULL;
        if (is_listed)
            html_line(out, "<li class=\"s%d\"><i></i>%s</li>", series->colour, series->name);
    }
    fputs("</ul>\n", out);
}

static bool has_busbw(const chart *bars)
{
    for (int i = 0; i < bars->count; i++)
        if (bars->cases[i]->busbw > 0)
            return true;
    return false;
}

void page_benchmark(const page_context *page, const char *benchmark)
{
    chart bars = {.page = page, .benchmark = benchmark};
    for (int r = 0; r < page->run_count; r++)
        add_cases(&bars, &page->runs[r]);
    if (bars.count == 0)
        return;
    choose_scale(&bars);
    write_legend(&bars);
    draw_bars(&bars);
    if (has_busbw(&bars))
        fputs("<p class=\"note\">GB/s are the bytes of the whole data by time; busbw is the rate "
              "that "
              "the links between ranks carry, also in GB/s. nccl-tests defines both.</p>\n",
              page->out);
    if (bars.is_full)
        html_line(page->out,
                  "<p class=\"note\">The drawing shows %d cases; all are in the table.</p>\n",
                  MAX_CASES);
    if (bars.scale.is_log && !bars.is_time)
        html_line(
            page->out,
            "<p class=\"note\">%s, on a logarithmic scale, because the devices are so unlike: "
            "from one vertical line to the next, rates are ten times as high. Right is "
            "faster.</p>\n",
            bars.cases[0]->unit);
    else if (bars.scale.is_log)
        fputs(
            "<p class=\"note\">Times, on a logarithmic scale: from one vertical line to the next, "
            "times are ten times as long. Left is faster.</p>\n",
            page->out);
}
