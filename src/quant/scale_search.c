#include "quant/scale_search.h"

#include <math.h>
#include <string.h>

#include "quant/block_format.h"

/* A group in which no element has a larger magnitude is treated as all zeros. */
#define NEGLIGIBLE 1e-15f

static int limited(float value, int low, int high)
{
    const int nearest = tsr__quant_nearest(value);
    return nearest < low ? low : nearest > high ? high : nearest;
}

/* Levels with a minimum ------------------------------------------------------------------------ */

static void weigh(const tsr__quant_min_search *search, const float *x, float *weights)
{
    float squares = 0, base = 0;
    for (int i = 0; i < search->count; i++)
        squares += x[i] * x[i];
    if (!search->absolute)
        base = sqrtf(squares / (float)search->count);
    for (int i = 0; i < search->count; i++)
        weights[i] = base + fabsf(x[i]);
}

static void choose_levels(const tsr__quant_min_search *search, const float *x, float inverse,
                          float min, uint8_t *levels)
{
    for (int i = 0; i < search->count; i++)
        levels[i] = (uint8_t)limited(inverse * (x[i] - min), 0, search->top);
}

static float error_of(const tsr__quant_min_search *search, const float *x, const float *weights,
                      const uint8_t *levels, float scale, float min)
{
    float error = 0;
    for (int i = 0; i < search->count; i++) {
        const float difference = scale * (float)levels[i] + min - x[i];
        error += weights[i] * (search->absolute ? fabsf(difference) : difference * difference);
    }
    return error;
}

/* Solves the weighted least squares problem for the scale and the minimum of given levels. Returns
 * false if the levels do not determine them. */
static bool fit(const tsr__quant_min_search *search, const float *x, const float *weights,
                const uint8_t *levels, float *scale, float *min)
{
    float w = 0, wx = 0, wl = 0, wll = 0, wlx = 0;
    for (int i = 0; i < search->count; i++) {
        const float level = (float)levels[i], weighted = weights[i] * level;
        w += weights[i];
        wx += weights[i] * x[i];
        wl += weighted;
        wll += weighted * level;
        wlx += weighted * x[i];
    }
    const float determinant = w * wll - wl * wl;
    if (!(determinant > 0))
        return false;
    *scale = (w * wlx - wx * wl) / determinant;
    *min = (wll * wx - wl * wlx) / determinant;
    if (*min > 0) {
        *min = 0;
        *scale = wlx / wll;
    }
    return true;
}

float tsr__quant_search_min(const tsr__quant_min_search *search, const float *x, uint8_t *levels,
                            float *negated_min)
{
    float weights[TSR__QUANT_MAX_GROUP], min = x[0], max = x[0];
    uint8_t tried[TSR__QUANT_MAX_GROUP];
    const size_t bytes = (size_t)search->count;

    weigh(search, x, weights);
    for (int i = 1; i < search->count; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    min = min > 0 ? 0 : min;
    if (max == min) {
        memset(levels, 0, bytes);
        *negated_min = -min;
        return 0;
    }

    float inverse = (float)search->top / (max - min), scale = 1 / inverse;
    choose_levels(search, x, inverse, min, levels);
    float best = error_of(search, x, weights, levels, scale, min);
    for (int step = 0; step <= search->steps; step++) {
        float new_scale, new_min;
        /* `min` is the best minimum so far. */
        inverse = (search->first + 0.1f * (float)step + (float)search->top) / (max - min);
        choose_levels(search, x, inverse, min, tried);
        if (!fit(search, x, weights, tried, &new_scale, &new_min))
            continue;
        const float error = error_of(search, x, weights, tried, new_scale, new_min);
        if (error < best) {
            memcpy(levels, tried, bytes);
            best = error;
            scale = new_scale;
            min = new_min;
        }
    }
    *negated_min = -min;
    return scale;
}

/* Levels around zero --------------------------------------------------------------------------- */

/* The best scale for signed levels is lx / ll. The weight of an element in these sums is its
 * square. */
typedef struct fitted {
    float lx, ll;
} fitted;

static float farthest(int count, const float *x)
{
    float max = 0;
    for (int i = 0; i < count; i++)
        max = fabsf(x[i]) > fabsf(max) ? x[i] : max;
    return max;
}

static fitted choose_signed(int count, int half, const float *x, float inverse, int8_t *levels)
{
    fitted sums = {0, 0};
    for (int i = 0; i < count; i++) {
        const int level = limited(inverse * x[i], -half, half - 1);
        const float weight = x[i] * x[i];
        sums.lx += weight * x[i] * (float)level;
        sums.ll += weight * (float)level * (float)level;
        levels[i] = (int8_t)level;
    }
    return sums;
}

static void make_unsigned(int count, int half, const int8_t *from, uint8_t *levels)
{
    for (int i = 0; i < count; i++)
        levels[i] = (uint8_t)(from[i] + half);
}

float tsr__quant_search_scales(int count, int half, const float *x, uint8_t *levels)
{
    int8_t chosen[TSR__QUANT_MAX_GROUP], tried[TSR__QUANT_MAX_GROUP];
    const float largest = farthest(count, x);
    if (fabsf(largest) < NEGLIGIBLE) {
        memset(levels, 0, (size_t)count);
        return 0;
    }

    fitted sums = choose_signed(count, half, x, (float)-half / largest, chosen);
    float scale = sums.ll != 0 ? sums.lx / sums.ll : 0;
    float best = scale * sums.lx;
    for (int step = -9; step <= 9; step++) {
        if (step == 0)
            continue;
        sums = choose_signed(count, half, x, -((float)half + 0.1f * (float)step) / largest, tried);
        if (sums.ll > 0 && sums.lx * sums.lx > best * sums.ll) {
            memcpy(chosen, tried, (size_t)count);
            scale = sums.lx / sums.ll;
            best = scale * sums.lx;
        }
    }
    make_unsigned(count, half, chosen, levels);
    return scale;
}

/* Computes the best scale for the group's other elements, and the level of element x that is
 * nearest with this scale. Replaces the element's level by it if the error of the whole group
 * becomes smaller. */
static bool improve(int half, float x, int8_t *level, fitted *sums)
{
    const float weight = x * x, old = (float)*level;
    fitted rest = {sums->lx - weight * x * old, sums->ll - weight * old * old};
    if (!(rest.lx > 0))
        return false;
    const int replacement = limited(x * rest.ll / rest.lx, -half, half - 1);
    if (replacement == *level)
        return false;
    rest.lx += weight * x * (float)replacement;
    rest.ll += weight * (float)replacement * (float)replacement;
    if (!(rest.ll > 0 && rest.lx * rest.lx * sums->ll > sums->lx * sums->lx * rest.ll))
        return false;
    *level = (int8_t)replacement;
    *sums = rest;
    return true;
}

float tsr__quant_search_levels(int count, int half, const float *x, uint8_t *levels)
{
    int8_t chosen[TSR__QUANT_MAX_GROUP];
    const float largest = farthest(count, x);
    if (fabsf(largest) < NEGLIGIBLE) {
        memset(levels, 0, (size_t)count);
        return 0;
    }

    fitted sums = choose_signed(count, half, x, (float)-half / largest, chosen);
    bool changed = true;
    for (int pass = 0; pass < 5 && changed; pass++) {
        changed = false;
        for (int i = 0; i < count; i++)
            changed = improve(half, x[i], &chosen[i], &sums) || changed;
    }
    make_unsigned(count, half, chosen, levels);
    return sums.ll > 0 ? sums.lx / sums.ll : 0;
}
