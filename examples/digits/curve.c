/* Plots the losses: two lines over the epochs, with the losses on a logarithmic scale. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "report.h"

#define WIDTH 720.0
#define HEIGHT 400.0
#define LEFT 60.0
#define RIGHT 110.0
#define TOP 40.0
#define BOTTOM 50.0

typedef struct chart {
    FILE *file;
    const epoch_result *results;
    int count;
    int lowest, highest; /* powers of ten */
} chart;

static double x_of(const chart *c, int epoch)
{
    int last = c->count > 1 ? c->results[c->count - 1].epoch : 1;
    return LEFT + (WIDTH - LEFT - RIGHT) * epoch / last;
}

static double y_of(const chart *c, double loss)
{
    double place = (log10(loss) - c->lowest) / (c->highest - c->lowest);
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * place;
}

static double loss_of(const epoch_result *result, bool held_out)
{
    return held_out ? result->held_out_loss : result->loss;
}

static void choose_scale(chart *c)
{
    double least = INFINITY, most = 0;
    for (int i = 0; i < c->count; i++) {
        for (int held_out = c->results[i].images == 0; held_out < 2; held_out++) {
            double loss = loss_of(&c->results[i], held_out);
            if (loss > 0 && isfinite(loss)) {
                least = fmin(least, loss);
                most = fmax(most, loss);
            }
        }
    }
    c->lowest = most > 0 ? (int)floor(log10(least)) : -1;
    c->highest = most > 0 ? (int)ceil(log10(most)) : 0;
    if (c->highest == c->lowest)
        c->highest++;
}

static void draw_axes(const chart *c)
{
    int last = c->results[c->count - 1].epoch, step = 1;
    int digit = 1; /* labels are 1, 2, 5, 10, 20, … epochs apart */
    for (int exponent = c->lowest; exponent <= c->highest; exponent++) {
        double y = y_of(c, pow(10, exponent));
        fprintf(c->file, "<line class=\"grid\" x1=\"%g\" y1=\"%.1f\" x2=\"%g\" y2=\"%.1f\"/>\n",
                LEFT, y, WIDTH - RIGHT, y);
        fprintf(c->file, "<text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", LEFT - 8,
                y + 4, pow(10, exponent));
    }
    while (last / step > 8) {
        step = digit == 2 ? step / 2 * 5 : step * 2;
        digit = digit == 1 ? 2 : digit == 2 ? 5 : 1;
    }
    for (int epoch = 0; epoch <= last; epoch += step)
        fprintf(c->file, "<text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%d</text>\n",
                x_of(c, epoch), HEIGHT - BOTTOM + 20, epoch);
    fprintf(c->file, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">epoch</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
}

static void draw_line(const chart *c, const char *name, bool held_out)
{
    double x = 0, y = 0;
    bool any = false;
    fprintf(c->file, "<polyline class=\"%s\" points=\"", held_out ? "held" : "train");
    for (int i = 0; i < c->count; i++) {
        double loss = loss_of(&c->results[i], held_out);
        if ((c->results[i].images == 0 && !held_out) || !(loss > 0) || !isfinite(loss))
            continue;
        x = x_of(c, c->results[i].epoch);
        y = y_of(c, loss);
        any = true;
        fprintf(c->file, "%.1f,%.1f ", x, y);
    }
    fprintf(c->file, "\"/>\n");
    if (any)
        fprintf(c->file, "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n",
                held_out ? "held" : "train", x + 8, y + 4, name);
}

static void draw(const chart *c)
{
    fprintf(c->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" role=\"img\" "
            "aria-label=\"Loss by epoch\">\n"
            "<style>\n"
            "  svg { background: #ffffff; font: 13px sans-serif }\n"
            "  text { fill: #333333 } .grid { stroke: #dddddd }\n"
            "  polyline { fill: none; stroke-width: 2; stroke-linejoin: round }\n"
            "  .train { stroke: #1f6feb } text.train { stroke: none; fill: #1f6feb }\n"
            "  .held { stroke: #d1570a } text.held { stroke: none; fill: #d1570a }\n"
            "  @media (prefers-color-scheme: dark) {\n"
            "    svg { background: #16181d } text { fill: #cccccc } .grid { stroke: #3a3d45 }\n"
            "  }\n"
            "</style>\n"
            "<text x=\"%g\" y=\"24\">cross-entropy of handwritten digits (logarithmic)</text>\n",
            WIDTH, HEIGHT, LEFT);
    draw_axes(c);
    draw_line(c, "learned from", false);
    draw_line(c, "held out", true);
    fprintf(c->file, "</svg>\n");
}

bool report_curve(const char *path, const epoch_result *results, int count)
{
    chart c = {.file = fopen(path, "w"), .results = results, .count = count};
    bool good = c.file != NULL;
    if (good) {
        choose_scale(&c);
        draw(&c);
        good = !ferror(c.file);
        good = fclose(c.file) == 0 && good;
    }
    if (!good)
        fprintf(stderr, "digits: %s: %s\n", path, strerror(errno));
    return good;
}
