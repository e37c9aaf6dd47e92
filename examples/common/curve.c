#include "common/curve.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH 720.0
#define HEIGHT 400.0
#define LEFT 60.0
#define RIGHT 110.0
#define TOP 40.0
#define BOTTOM 50.0
#define MAX_TICKS 8

typedef struct chart {
    FILE *file;
    const curve_params *params;
    double last; /* the value of x at the right end of the horizontal axis, which starts at 0 */
    double lowest, step; /* the vertical axis: its lower end and the distance of its ticks */
    int steps;
} chart;

/* Returns where a loss is on the vertical axis: the loss itself, or its logarithm if the axis is
 * logarithmic. */
static double level(const chart *c, double loss)
{
    return c->params->is_logarithmic ? log10(loss) : loss;
}

static double x_of(const chart *c, double x)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * x / c->last;
}

static double y_of(const chart *c, double height)
{
    double place = (height - c->lowest) / (c->step * c->steps);
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * place;
}

static bool is_drawn(double loss)
{
    return loss > 0 && isfinite(loss);
}

/* Returns the smallest of 1, 2, 5, 10, 20, … times a power of ten that divides `range` into few
 * steps. */
static double tick_step(double range)
{
    double power = pow(10, floor(log10(range / MAX_TICKS)));
    static const double factors[] = {1, 2, 5};
    for (int i = 0; i < 3; i++)
        if (range / (factors[i] * power) <= MAX_TICKS)
            return factors[i] * power;
    return 10 * power;
}

static void choose_scale(chart *c)
{
    double least = INFINITY, most = -INFINITY;
    c->last = 0;
    for (int l = 0; l < 2; l++) {
        const curve_line *line = &c->params->lines[l];
        for (int i = 0; i < line->count; i++) {
            c->last = fmax(c->last, line->x[i]);
            if (is_drawn(line->loss[i])) {
                least = fmin(least, level(c, line->loss[i]));
                most = fmax(most, level(c, line->loss[i]));
            }
        }
    }
    if (!(c->last > 0))
        c->last = 1;
    if (!(most >= least)) {
        least = 0;
        most = 1;
    }
    c->step = c->params->is_logarithmic ? 1 : tick_step(fmax(most - least, 1e-3));
    c->lowest = floor(least / c->step) * c->step;
    c->steps = (int)ceil((most - c->lowest) / c->step);
    if (c->steps < 1)
        c->steps = 1;
}

static void draw_axes(const chart *c)
{
    for (int i = 0; i <= c->steps; i++) {
        double height = c->lowest + i * c->step, y = y_of(c, height);
        fprintf(c->file, "<line class=\"grid\" x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\"/>\n",
                LEFT, y, WIDTH - RIGHT, y);
        fprintf(c->file, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n", LEFT - 8,
                y + 4, c->params->is_logarithmic ? pow(10, height) : height);
    }
    double step = fmax(1, tick_step(c->last));
    for (double x = 0; x <= c->last; x += step)
        fprintf(c->file, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%g</text>\n", x_of(c, x),
                HEIGHT - BOTTOM + 20, x);
    fprintf(c->file, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">%s</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, c->params->unit);
}

static void draw_line(const chart *c, int index)
{
    const curve_line *line = &c->params->lines[index];
    double x = 0, y = 0;
    bool any = false;
    fprintf(c->file, "<polyline class=\"line%d\" points=\"", index);
    for (int i = 0; i < line->count; i++) {
        if (!is_drawn(line->loss[i]))
            continue;
        x = x_of(c, line->x[i]);
        y = y_of(c, level(c, line->loss[i]));
        any = true;
        fprintf(c->file, "%.1f,%.1f ", x, y);
    }
    fprintf(c->file, "\"/>\n");
    /* Two lines may end close together, so the name of the first is written below its end and that
     * of the second above. */
    if (any)
        fprintf(c->file, "<text class=\"line%d\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", index, x + 8,
                y + (index == 0 ? 12 : -4), line->name);
}

static void draw(const chart *c)
{
    fprintf(c->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" role=\"img\" "
            "aria-label=\"Loss by %s\">\n"
            "<style>\n"
            "  svg { background: #ffffff; font: 13px sans-serif }\n"
            "  text { fill: #333333 } .grid { stroke: #dddddd }\n"
            "  polyline { fill: none; stroke-width: 2; stroke-linejoin: round }\n"
            "  .line0 { stroke: #1f6feb } text.line0 { stroke: none; fill: #1f6feb }\n"
            "  .line1 { stroke: #d1570a } text.line1 { stroke: none; fill: #d1570a }\n"
            "  @media (prefers-color-scheme: dark) {\n"
            "    svg { background: #16181d } text { fill: #cccccc } .grid { stroke: #3a3d45 }\n"
            "  }\n"
            "</style>\n"
            "<text x=\"%g\" y=\"24\">%s</text>\n",
            WIDTH, HEIGHT, c->params->unit, LEFT, c->params->title);
    draw_axes(c);
    draw_line(c, 0);
    draw_line(c, 1);
    fprintf(c->file, "</svg>\n");
}

bool curve_write(const char *program, const char *path, const curve_params *params)
{
    chart c = {.file = fopen(path, "w"), .params = params};
    bool good = c.file != NULL;
    if (good) {
        choose_scale(&c);
        draw(&c);
        good = !ferror(c.file);
        good = fclose(c.file) == 0 && good;
    }
    if (!good)
        fprintf(stderr, "%s: %s: %s\n", program, path, strerror(errno));
    return good;
}
