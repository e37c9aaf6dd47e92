/* What bench rates concludes from the times that it has measured. */
#include <math.h>
#include <string.h>

#include "bench/model/rates.h"

#define EQUAL_WITHIN 0.125

static double all_seconds(const bench_rates_times *times, int passes)
{
    double sum = 0;
    for (int m = 0; m < BENCH_RATES_MODELS; m++)
        for (int i = 0; i < passes; i++)
            sum += times->seconds[m][i];
    return sum;
}

void bench_rates_average(int ranks, const bench_rates_times *times, int rank, int passes,
                         bench_rates_times *out)
{
    const bench_rates_times *mine = &times[rank];
    const double own_seconds = all_seconds(mine, passes);
    int equal = 0;
    *out = *mine;
    memset(out->seconds, 0, sizeof out->seconds);
    for (int r = 0; r < ranks; r++) {
        if (strcmp(times[r].device, mine->device) != 0 ||
            fabs(all_seconds(&times[r], passes) - own_seconds) > EQUAL_WITHIN * own_seconds)
            continue;
        equal++;
        for (int m = 0; m < BENCH_RATES_MODELS; m++)
            for (int i = 0; i < passes; i++)
                out->seconds[m][i] += times[r].seconds[m][i];
    }
    for (int m = 0; m < BENCH_RATES_MODELS; m++)
        for (int i = 0; i < passes; i++)
            out->seconds[m][i] /= equal;
}

/* Divides a time into a fixed part and one for each element, from the times of a matrix and of a
 * part of it. Noise cannot make either negative, or *element 0. */
static void split(double whole, double part, double elements, double part_elements, double *fixed,
                  double *element)
{
    const double most = whole / elements;
    if (elements <= part_elements) { /* there was no smaller matrix */
        *element = most;
        *fixed = 0;
        return;
    }
    *element = fmin(fmax((whole - part) / (elements - part_elements), 1e-3 * most), most);
    *fixed = fmax(whole - elements * *element, 0);
}

/* Sets *layer to the time of a layer, from the times with few layers and with many. If the
 * difference is too small or negative because of noise, returns false, and *layer is a small time.
 */
static bool find_layer(double few, double many, double *layer)
{
    const double least = 1e-3 * few;
    *layer = (many - few) / (BENCH_RATES_MANY_LAYERS - BENCH_RATES_FEW_LAYERS);
    if (*layer >= least)
        return true;
    *layer = least;
    return false;
}

/* Divides the time of a layer into that of its experts' elements, of the other elements, and a
 * fixed part. Returns false if noise hides the time of a layer with a part of the experts. */
static bool split_experts(const bench_rates_times *times, const bench_rates_sizes *sizes, int i,
                          double layer, double part_layer, bench_rates_pass *pass)
{
    double fewer, rest;
    const bool found = find_layer(times->seconds[BENCH_RATES_EXPERTS][i],
                                  times->seconds[BENCH_RATES_DEEP_EXPERTS][i], &fewer);
    split(layer, fewer, sizes->experts, sizes->part_experts, &rest, &pass->expert_element);
    /* The same without the experts, of which both layers have the measured time. Something is left
     * for the other elements, even if noise gives all of it to the experts. */
    split(fmax(rest, 1e-3 * layer),
          fmax(part_layer - sizes->part_experts * pass->expert_element, 0),
          sizes->layer - sizes->experts, sizes->part_layer - sizes->part_experts, &pass->layer,
          &pass->element);
    return found;
}

bool bench_rates_fit(const bench_rates_times *times, const bench_rates_sizes *sizes, int passes,
                     bench_rates_pass *pass, int *noisy)
{
    bool clear = true;
    for (int i = 0; i < passes; i++) {
        const double whole = times->seconds[BENCH_RATES_WHOLE][i],
                     part = times->seconds[BENCH_RATES_PART][i];
        double layer, part_layer, empty_layer;
        bool found = find_layer(whole, times->seconds[BENCH_RATES_DEEP_WHOLE][i], &layer);
        found = find_layer(part, times->seconds[BENCH_RATES_DEEP_PART][i], &part_layer) && found;
        if (sizes->experts > 0)
            found = split_experts(times, sizes, i, layer, part_layer, &pass[i]) && found;
        else
            split(layer, part_layer, sizes->layer, sizes->part_layer, &pass[i].layer,
                  &pass[i].element);
        if (clear && !found) {
            clear = false;
            *noisy = i;
        }
        const double layers = BENCH_RATES_FEW_LAYERS * layer,
                     empty = times->seconds[BENCH_RATES_EMPTY][i];
        (void)find_layer(empty, times->seconds[BENCH_RATES_DEEP_EMPTY][i], &empty_layer);
        pass[i].pass = fmax(empty - BENCH_RATES_FEW_LAYERS * empty_layer, 0);
        split(fmax(whole - layers - pass[i].pass, 1e-9),
              times->seconds[BENCH_RATES_PART_HEAD][i] - layers - pass[i].pass, sizes->head,
              sizes->part_head, &pass[i].head, &pass[i].head_element);
    }
    return clear;
}

double bench_rates_part_seconds(const bench_rates_pass *pass, const bench_rates_sizes *sizes,
                                int layers, int ranks)
{
    const double others = sizes->layer - sizes->experts;
    return pass->pass +
           layers * (pass->layer +
                     (others * pass->element + sizes->experts * pass->expert_element) / ranks) +
           pass->head + sizes->head / ranks * pass->head_element;
}
