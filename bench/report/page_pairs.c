/* Results between every two ranks ("bench link") as a matrix; the better a result, the stronger the
 * colour of its cell. */
#include <stdio.h>
#include <string.h>

#include "bench/report/html.h"
#include "bench/report/page.h"
#include "cli/lib/numbers.h"

enum {
    MAX_RANKS = 64, /* with more, a matrix would not fit on a page */
    SHADES = 9,     /* the classes h0 to h8 of the style sheet */
    SMALL = 4096,   /* up to this many bytes, the time of a message is shown, otherwise the rate */
};

/* Returns a parameter of a case that should be a number; −1 if it is not. */
static int64_t number_of(const bench_figures *figures, const char *name)
{
    const json_t *value = json_object_get(figures->which, name);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

static bool is_pair(const page_series *series, const bench_figures *figures, const char *benchmark)
{
    const int64_t rank = number_of(figures, "rank"), peer = number_of(figures, "peer");
    return figures->device == series->device && strcmp(figures->benchmark, benchmark) == 0 &&
           rank >= 0 && rank < MAX_RANKS && peer >= 0 && peer < MAX_RANKS &&
           number_of(figures, "bytes") > 0 && !figures->is_time && figures->median > 0;
}

bool page_has_pairs(const page_context *page, const char *benchmark)
{
    for (int s = 0; s < page->series_count; s++)
        for (int i = 0; i < page->series[s].run->result_count; i++)
            if (is_pair(&page->series[s], &page->series[s].run->results[i], benchmark))
                return true;
    return false;
}

/* The results of one series for one message size. */
typedef struct matrix {
    int ranks;
    double least, most; /* the lowest and the highest of all rates */
    const bench_figures *cells[MAX_RANKS][MAX_RANKS];
} matrix;

static void collect(const page_series *series, const char *benchmark, int64_t bytes, matrix *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < series->run->result_count; i++) {
        const bench_figures *figures = &series->run->results[i];
        if (!is_pair(series, figures, benchmark) || number_of(figures, "bytes") != bytes)
            continue;
        const int rank = (int)number_of(figures, "rank"), peer = (int)number_of(figures, "peer");
        const int higher = rank > peer ? rank : peer;
        out->cells[rank][peer] = out->cells[peer][rank] = figures;
        out->ranks = higher >= out->ranks ? higher + 1 : out->ranks;
        out->most = figures->median > out->most ? figures->median : out->most;
        out->least = out->least == 0 || figures->median < out->least ? figures->median : out->least;
    }
}

static int shade_of(const matrix *table, double rate)
{
    if (table->most <= table->least)
        return SHADES / 2;
    return (int)((rate - table->least) / (table->most - table->least) * (SHADES - 1) + 0.5);
}

static void write_cell(FILE *out, const matrix *table, const bench_figures *figures, bool as_time)
{
    char text[BENCH_VALUE_TEXT];
    if (figures == NULL) {
        fputs("<td class=\"n\"></td>", out);
        return;
    }
    html_line(out, "<td class=\"n h%d\">%s%s</td>", shade_of(table, figures->median),
              as_time ? cli_duration(figures->work / figures->median, text)
                      : cli_number(figures->median, text),
              figures->noisy ? " *" : "");
}

static void write_matrix(FILE *out, const page_series *series, const matrix *table, int64_t bytes)
{
    const bool as_time = bytes <= SMALL;
    char size[CLI_BYTES_TEXT];
    html_line(out,
              "<h3>%s: %s of %s</h3>\n<div class=\"wide\"><table class=\"pairs\">\n<tr><th></th>",
              series->name, as_time ? "time of a message" : "GB/s of a message",
              cli_bytes((uint64_t)bytes, size));
    for (int peer = 0; peer < table->ranks; peer++)
        html_line(out, "<th class=\"n\">%d</th>", peer);
    fputs("</tr>\n", out);
    for (int rank = 0; rank < table->ranks; rank++) {
        html_line(out, "<tr><th class=\"n\">%d</th>", rank);
        for (int peer = 0; peer < table->ranks; peer++)
            write_cell(out, table, table->cells[rank][peer], as_time);
        fputs("</tr>\n", out);
    }
    fputs("</table></div>\n", out);
}

/* Returns whether this result is the series' first one with its size of messages. */
static bool is_first(const page_series *series, int result, const char *benchmark)
{
    const bench_figures *results = series->run->results;
    for (int i = 0; i < result; i++)
        if (is_pair(series, &results[i], benchmark) &&
            number_of(&results[i], "bytes") == number_of(&results[result], "bytes"))
            return false;
    return true;
}

void page_pairs(const page_context *page, const char *benchmark)
{
    fputs("<p class=\"note\">A row and a column for each rank; the stronger a cell's colour, the "
          "faster the link.</p>\n",
          page->out);
    for (int s = 0; s < page->series_count; s++) {
        const page_series *series = &page->series[s];
        for (int i = 0; i < series->run->result_count; i++) {
            const bench_figures *figures = &series->run->results[i];
            if (!is_pair(series, figures, benchmark) || !is_first(series, i, benchmark))
                continue;
            matrix table;
            collect(series, benchmark, number_of(figures, "bytes"), &table);
            write_matrix(page->out, series, &table, number_of(figures, "bytes"));
        }
    }
}
