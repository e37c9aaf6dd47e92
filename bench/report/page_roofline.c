/* The roofline: how many operations a product does for each byte it needs, and how fast it runs,
 * under what the device's memory and its arithmetic allow. Both axes are logarithmic. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench/harness/format.h"
#include "bench/report/html.h"
#include "bench/report/page.h"

#define WIDTH 720.0
#define HEIGHT 380.0
#define LEFT 76.0
#define RIGHT 24.0
#define TOP 16.0
#define BOTTOM 52.0

typedef struct axes {
    double x_low, x_high, y_low, y_high; /* powers of two */
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

static bool is_point(const page_series *series, const bench_figures *one)
{
    return one->device == series->device && !one->is_ceiling && one->bytes > 0 && one->work > 0 &&
           one->median > 0 && strcmp(one->unit, "GFLOP/s") == 0;
}

/* False where there is nothing to show. */
static bool choose_axes(const page_series *series, double peak, axes *out)
{
    double x_low = INFINITY, x_high = 0, y_low = INFINITY, y_high = peak;
    for (int i = 0; i < series->run->result_count; i++) {
        const bench_figures *one = &series->run->results[i];
        if (!is_point(series, one))
            continue;
        x_low = fmin(x_low, one->work / one->bytes);
        x_high = fmax(x_high, one->work / one->bytes);
        y_low = fmin(y_low, one->median);
        y_high = fmax(y_high, one->median);
    }
    if (x_high <= 0 || peak <= 0)
        return false;
    *out = (axes){floor(log2(x_low)) - 1, ceil(log2(x_high)) + 1, floor(log2(y_low)) - 1,
                  ceil(log2(y_high)) + 0.5};
    return isfinite(out->x_low) && isfinite(out->x_high) && isfinite(out->y_low) &&
           isfinite(out->y_high);
}

/* A power of two; beyond 65536 in three digits. */
static void write_tick(double value, char text[BENCH_NUMBER])
{
    snprintf(text, BENCH_NUMBER, value >= 1 && value <= 65536 ? "%.0f" : "%.3g", value);
}

static void draw_grid(FILE *out, const axes *of)
{
    char text[BENCH_NUMBER];
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

/* Up along memory's speed, then level at the arithmetic's. `kind` is its class. */
static void draw_roof(FILE *out, const axes *of, const char *kind, double peak, double bandwidth)
{
    double left = exp2(of->x_low), right = exp2(of->x_high), bottom = exp2(of->y_low);
    double start = fmax(left, bottom / bandwidth);
    double ridge = fmin(fmax(peak / bandwidth, start), right);
    double roof = fmin(peak, ridge * bandwidth);
    html_line(out, "<polyline class=\"%s\" points=\"%f,%f %f,%f %f,%f\"/>\n", kind, x_of(of, start),
              y_of(of, fmin(start * bandwidth, roof)), x_of(of, ridge), y_of(of, roof),
              x_of(of, right), y_of(of, roof));
}

static const char *dtype_of(const bench_figures *one)
{
    const char *text = json_string_value(json_object_get(one->which, "dtype"));
    return text != NULL ? text : "";
}

static const char *const dtypes[] = {"f32", "f16", "bf16"};

static int shape_of(const bench_figures *one)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(dtype_of(one), dtypes[i]) == 0)
            return i;
    return 0;
}

/* A shape each, so that colours are not needed to tell them apart. */
static void draw_mark(FILE *out, int shape, double x, double y)
{
    if (shape == 0)
        html_line(out, "<circle class=\"d0\" cx=\"%f\" cy=\"%f\" r=\"5\">", x, y);
    else if (shape == 1)
        html_line(out, "<rect class=\"d1\" x=\"%f\" y=\"%f\" width=\"9\" height=\"9\">", x - 4.5,
                  y - 4.5);
    else
        html_line(out, "<path class=\"d2\" d=\"M%f %fl6 10h-12z\">", x, y - 6);
}

static void draw_point(FILE *out, const axes *of, const bench_figures *one)
{
    static const char *const ends[] = {"</circle>\n", "</rect>\n", "</path>\n"};
    char text[BENCH_VALUE_TEXT], percent[BENCH_NUMBER];
    int shape = shape_of(one);
    draw_mark(out, shape, x_of(of, one->work / one->bytes), y_of(of, one->median));
    html_line(out, "<title>%s %s: %s", one->benchmark, one->label,
              bench_figures_text(one, one->median, text));
    if (one->fraction > 0)
        html_line(out, ", %s of what %s allows", bench_percent(one->fraction, percent),
                  one->ceiling);
    html_line(out, "</title>%s", "");
    fputs(ends[shape], out);
}

static void write_limit(FILE *out, const char *kind, const char *name)
{
    html_line(
        out,
        "<li><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"22\" height=\"14\" "
        "aria-hidden=\"true\"><polyline class=\"%s\" points=\"1,12 10,4 22,4\"/></svg>%s</li>",
        kind, name);
}

static void write_legend(FILE *out, bool has_matrices)
{
    fputs("<ul class=\"legend\">", out);
    for (int i = 0; i < 3; i++) {
        fputs("<li><svg xmlns=\"http://www.w3.org/2000/svg\" width=\"14\" height=\"14\" "
              "aria-hidden=\"true\">",
              out);
        draw_mark(out, i, 7, 7);
        fputs(i == 0 ? "</circle>" : i == 1 ? "</rect>" : "</path>", out);
        html_line(out, "</svg>%s</li>", dtypes[i]);
    }
    write_limit(out, "roof", "limit");
    if (has_matrices)
        write_limit(out, "roof matrices", "limit of cooperative matrices");
    fputs("</ul>\n", out);
}

typedef struct limits {
    const bench_figures *arithmetic, *matrices, *memory; /* matrices: NULL where it has none */
    axes axes;
} limits;

/* False where there is nothing to draw. */
static bool find_limits(const page_series *series, limits *out)
{
    out->arithmetic = page_best(series, "fma_peak", "dtype", "f32");
    out->matrices = page_best(series, "coopmat_peak", NULL, NULL);
    out->memory = page_memory(series);
    if (out->arithmetic == NULL || out->memory == NULL)
        return false;
    double matrices = out->matrices != NULL ? out->matrices->median : 0;
    return choose_axes(series, fmax(out->arithmetic->median, matrices), &out->axes);
}

bool page_has_roofline(const page_series *series)
{
    limits ignored;
    return find_limits(series, &ignored);
}

static void write_note(FILE *out, const limits *of)
{
    char text[BENCH_VALUE_TEXT];
    html_line(out, "<p class=\"note\">f32 multiply-adds in registers reach %s, ",
              bench_figures_text(of->arithmetic, of->arithmetic->median, text));
    if (of->matrices != NULL)
        html_line(out, "cooperative matrices of 16 bits %s, ",
                  bench_figures_text(of->matrices, of->matrices->median, text));
    html_line(out, "memory %s.</p>\n", bench_figures_text(of->memory, of->memory->median, text));
}

void page_roofline(const page_context *page, const page_series *series)
{
    FILE *out = page->out;
    limits of;
    if (!find_limits(series, &of))
        return;
    html_line(out, "<h3>%s</h3>\n", series->name);
    write_note(out, &of);
    write_legend(out, of.matrices != NULL);
    html_line(out,
              "<div class=\"wide\"><svg class=\"roofline\" xmlns=\"http://www.w3.org/2000/svg\" "
              "viewBox=\"0 0 %f %f\" role=\"img\" aria-label=\"roofline of %s\">\n",
              WIDTH, HEIGHT, series->name);
    draw_grid(out, &of.axes);
    draw_roof(out, &of.axes, "roof", of.arithmetic->median, of.memory->median);
    if (of.matrices != NULL)
        draw_roof(out, &of.axes, "roof matrices", of.matrices->median, of.memory->median);
    for (int i = 0; i < series->run->result_count; i++)
        if (is_point(series, &series->run->results[i]))
            draw_point(out, &of.axes, &series->run->results[i]);
    fputs("</svg></div>\n", out);
}
