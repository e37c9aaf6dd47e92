/* Plots losses as an SVG picture. */
#ifndef EXAMPLES_CURVE_H
#define EXAMPLES_CURVE_H

#include <stdbool.h>

/* One line of the plot. Points whose loss is not positive and finite are left out. */
typedef struct curve_line {
    const char *name;
    int count;
    const double *x, *loss; /* [count], x ascending from 0 or above */
} curve_line;

typedef struct curve_params {
    const char *title;
    const char *unit;    /* what x counts, for example "epoch"; written below the horizontal axis */
    curve_line lines[2]; /* the losses of training data; those of held-out data */
    bool is_logarithmic;
} curve_params;

/* Writes the file. Returns false, with a message of `program` on standard error, if it cannot be
 * written. */
bool curve_write(const char *program, const char *path, const curve_params *params);

#endif
