/* Draws the roofline of a device. Each product is a point: its operations per byte, and its rate.
 * Above it are the limits of memory and of the arithmetic of its dtype. Both axes are
 * logarithmic. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/report/html.h"
#include "bench/report/page.h"
#include "cli/lib/numbers.h"

#define WIDTH 720.0
#define HEIGHT 380.0
#define LEFT 76.0
#define RIGHT 24.0
#define TOP 16.0
#define BOTTOM 52.0

typedef struct axes {
    double x_low, x_high, y_low, y_high; /* the ends of the axes, as exponents of two */
} axes;

static double x_of(const axes *of, double intensity)
{
    double share = (log2(intensity) - of->x_low) / (of->x_high - of->x_low);
    return LEFT + (WIDTH - LEFT - RIGHT) * fmin(fmax(share, 0), 1);
}

static double y_of(const axes *of, double rate)
{
    double share = (log2(rate) - of->y_low) / (of->y_high - of->y_low);
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * fmin(fmax(share, 0), 1);
}

static bool is_point(const page_series *series, const bench_figures *figures)
{
    return figures->device == series->device && !figures->is_ceiling && figures->bytes > 0 &&
           figures->work > 0 && figures->median > 0 && strcmp(figures->unit, "GFLOP/s") == 0;
}

/* Chooses the ranges of the axes so that they contain all products and limits. Returns false if
 * there is no product. */
static bool choose_axes(const page_series *series, double peak, axes *out)
{
    double x_low = INFINITY, x_high = 0, y_low = INFINITY, y_high = peak;
    for (int i = 0; i < series->run->result_count; i++) {
        const bench_figures *figures = &series->run->results[i];
        if (!is_point(series, figures))
            continue;
        x_low = fmin(x_low, figures->work / figures->bytes);
        x_high = fmax(x_high, figures->work / figures->bytes);
        y_low = fmin(y_low, figures->median);
        y_high = fmax(y_high, figures->median);
    }
    if (x_high <= 0 || peak <= 0)
        return false;
    *out = (axes){floor(log2(x_low)) - 1, ceil(log2(x_high)) + 1, floor(log2(y_low)) - 1,
                  ceil(log2(y_high)) + 0.5};
    return isfinite(out->x_low) && isfinite(out->x_high) && isfinite(out->y_low) &&
           isfinite(out->y_high);
}

/* Writes the label of a tick, which is a power of two. */
static void write_tick(double value, char text[CLI_NUMBER_TEXT])
{
    snprintf(text, CLI_NUMBER_TEXT, value >= 1 && value < 1e8 ? "%.0f" : "%.3g", value);
}

static void draw_grid(FILE *out, const axes *of)
{
    char text[CLI_NUMBER_TEXT];
    int x_step = (int)ceil((of->x_high - of->x_low) / 8),
        y_step = (int)ceil((of->y_high - of->y_low) / 6);
    for (int i = 0; of->x_low + i <= of->x_high; i += x_step) {
        double value = exp2(of->x_low + i), x = x_of(of, value);
        html_line(out, "<line class=\"grid\" x1=\"%f\" x2=\"%f\" y1=\"%f\" y2=\"%f\"/>", x, x, TOP,
                  HEIGHT - BOTTOM);
        write_tick(value, text);
        html_line(out, "<text class=\"tick\" x=\"%f\" y=\"%f\">%s</text>\n", x,
                  HEIGHT - BOTTOM + 20, text);
    }
    for (int i = 0; of->y_low + i <= of->y_high; i += y_step) {
        double value = exp2(of->y_low + i), y = y_of(of, value);
        html_line(out, "<line class=\"grid\" x1=\"%f\" x2=\"%f\" y1=\"%f\" y2=\"%f\"/>", LEFT,
                  WIDTH - RIGHT, y, y);
        write_tick(value, text);
        html_line(out, "<text class=\"tick last\" x=\"%f\" y=\"%f\">%s</text>\n", LEFT - 6, y + 4,
                  text);
    }
    html_line(out,
              "<text class=\"tick\" x=\"%f\" y=\"%f\">operations per byte of operands</text>\n",
              (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
    html_line(out,
              "<text class=\"tick\" transform=\"rotate(-90)\" x=\"%f\" y=\"14\">GFLOP/s</text>\n",
              -(TOP + HEIGHT - BOTTOM) / 2);
}

/* Dtypes of products. Each has its own shape of marks and its own pattern of lines, so that readers
 * do not have to distinguish colours. */
static const char *const dtypes[] = {"f32", "f16", "bf16"};
#define DTYPES 3

static int dtype_of(const bench_figures *figures)
{
    const char *text = json_string_value(json_object_get(figures->which, "dtype"));
    for (int i = 0; i < DTYPES && text != NULL; i++)
        if (strcmp(text, dtypes[i]) == 0)
            return i;
    return 0;
}

typedef struct limits {
    const bench_figures *memory;
    const bench_figures *arithmetic[DTYPES]; /* NULL: the series has no products of the dtype */
    axes axes;
} limits;

/* Returns the ceiling of arithmetic for products of a dtype: the one that limits at least one of
 * these products. If memory limits all of them, it is the ceiling of arithmetic that the benchmark
 * would choose. */
static const bench_figures *arithmetic_of(const page_series *series, int dtype)
{
    const bench_document *run = series->run;
    bool any = false;
    for (int i = 0; i < run->result_count; i++) {
        const bench_figures *figures = &run->results[i];
        if (!is_point(series, figures) || dtype_of(figures) != dtype)
            continue;
        any = true;
        if (figures->ceiling != NULL &&
            strcmp(run->results[figures->ceiling_place].unit, "GFLOP/s") == 0)
            return &run->results[figures->ceiling_place];
    }
    if (!any)
        return NULL;
    const bench_figures *matrices = page_best(series, "coopmat_peak", NULL, NULL);
    return dtype > 0 && matrices != NULL ? matrices : page_best(series, "fma_peak", "dtype", "f32");
}

/* Finds the ceilings of memory and of the arithmetic of each dtype. Returns false if the drawing
 * would have no limits or no products. */
static bool find_limits(const page_series *series, limits *out)
{
    double highest = 0;
    out->memory = page_memory(series);
    for (int i = 0; i < DTYPES; i++) {
        out->arithmetic[i] = arithmetic_of(series, i);
        if (out->arithmetic[i] != NULL)
            highest = fmax(highest, out->arithmetic[i]->median);
    }
    return out->memory != NULL && highest > 0 && choose_axes(series, highest, &out->axes);
}

bool page_has_roofline(const page_series *series)
{
    limits ignored;
    return find_limits(series, &ignored);
}

/* Draws the limit of a dtype: the sloping line of the memory's bandwidth, then the level line of
 * the arithmetic. */
static void draw_roof(FILE *out, const axes *of, int dtype, double peak, double bandwidth)
{
    double left = exp2(of->x_low), right = exp2(of->x_high), bottom = exp2(of->y_low);
    double start = fmax(left, bottom / bandwidth);
    double ridge = fmin(fmax(peak / bandwidth, start), right);
    double roof = fmin(peak, ridge * bandwidth);
    html_line(out, "<polyline class=\"roof r%d\" points=\"%f,%f %f,%f %f,%f\"/>\n", dtype,
              x_of(of, start), y_of(of, fmin(start * bandwidth, roof)), x_of(of, ridge),
              y_of(of, roof), x_of(of, right), y_of(of, roof));
}

static void draw_mark(FILE *out, int dtype, double x, double y)
{
    if (dtype == 0)
        html_line(out, "<circle class=\"d0\" cx=\"%f\" cy=\"%f\" r=\"5\">", x, y);
    else if (dtype == 1)
        html_line(out, "<rect class=\"d1\" x=\"%f\" y=\"%f\" width=\"9\" height=\"9\">", x - 4.5,
                  y - 4.5);
    else
        html_line(out, "<path class=\"d2\" d=\"M%f %fl6 10h-12z\">", x, y - 6);
}

static const char *const mark_ends[] = {"</circle>", "</rect>", "</path>"};

static void draw_point(FILE *out, const axes *of, const bench_figures *figures)
{
    char text[BENCH_VALUE_TEXT], percent[CLI_NUMBER_TEXT];
    int dtype = dtype_of(figures);
    draw_mark(out, dtype, x_of(of, figures->work / figures->bytes), y_of(of, figures->median));
    html_line(out, "<title>%s %s: %s", figures->benchmark, figures->label,
              bench_figures_text(figures, figures->median, text));
    if (figures->fraction > 0)
        html_line(out, ", %s of %s%s", cli_percent(figures->fraction, percent), figures->ceiling,
                  page_standing(figures));
    html_line(out, "</title>%s", "");
    fputs(mark_ends[dtype], out);
    fputs("\n", out);
}

/* Lists the dtypes in the drawing, each with its mark, its line and the rate of its arithmetic. */
static void write_legend(FILE *out, const limits *of)
{
    char text[BENCH_VALUE_TEXT];
    fputs("<ul class=\"legend\">", out);
    for (int i = 0; i < DTYPES; i++) {
        if (of->arithmetic[i] == NULL)
            continue;
        fputs("<li><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"40\" height=\"14\" "
              "aria-hidden=\"true\">",
              out);
        draw_mark(out, i, 7, 7);
        fputs(mark_ends[i], out);
        html_line(out,
                  "<polyline class=\"roof r%d\" points=\"16,12 25,4 40,4\"/></svg>%s: %s, %s</li>",
                  i, dtypes[i], of->arithmetic[i]->benchmark,
                  bench_figures_text(of->arithmetic[i], of->arithmetic[i]->median, text));
    }
    html_line(out, "<li>memory: %s, %s</li></ul>\n", of->memory->benchmark,
              bench_figures_text(of->memory, of->memory->median, text));
}

void page_roofline(const page_context *page, const page_series *series)
{
    FILE *out = page->out;
    limits of;
    if (!find_limits(series, &of))
        return;
    html_line(out, "<h3>%s</h3>\n", series->name);
    write_legend(out, &of);
    html_line(out,
              "<div class=\"wide\"><svg class=\"roofline\" xmlns=\"http://www.w3.org/2000/svg\" "
              "viewBox=\"0 0 %f %f\" role=\"img\" aria-label=\"roofline of %s\">\n",
              WIDTH, HEIGHT, series->name);
    draw_grid(out, &of.axes);
    for (int i = 0; i < DTYPES; i++)
        if (of.arithmetic[i] != NULL)
            draw_roof(out, &of.axes, i, of.arithmetic[i]->median, of.memory->median);
    for (int i = 0; i < series->run->result_count; i++)
        if (is_point(series, &series->run->results[i]))
            draw_point(out, &of.axes, &series->run->results[i]);
    fputs("</svg></div>\n", out);
}
