#include "cli/training/dpo.h"

#include <math.h>
#include <stdbool.h>

static bool has_label(const data_batch *rows, int64_t row)
{
    for (int64_t i = 0; i < rows->context; i++)
        if (rows->labels[row * rows->context + i] >= 0)
            return true;
    return false;
}

/* −log σ(z), without overflow. */
static double minus_log_sigmoid(double z)
{
    return z > 0 ? log1p(exp(-z)) : log1p(exp(z)) - z;
}

double training_dpo(const data_batch *rows, double beta, const double *own, const double *reference,
                    double scale, double *slopes)
{
    double sum = 0;
    for (int64_t good = 0; good + 1 < rows->rows; good += 2) {
        const int64_t bad = good + 1;
        const double z = beta * ((own[good] - reference[good]) - (own[bad] - reference[bad]));
        const double slope = scale * beta / (1 + exp(z));
        slopes[good] = slopes[bad] = 0;
        if (!has_label(rows, good) && !has_label(rows, bad))
            continue;
        sum += scale * minus_log_sigmoid(z);
        slopes[good] = slope;
        slopes[bad] = -slope;
    }
    return sum;
}
