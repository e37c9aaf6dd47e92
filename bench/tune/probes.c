#include "bench/tune/probes.h"

#include <stdio.h>
#include <string.h>

static bool alike(int64_t a, int64_t b)
{
    return (a % 4 == 0) == (b % 4 == 0);
}

/* Return the largest and the smallest size in the same class as `size`. They are multiples of 4
 * exactly if `size` is one, because sizes that are and sizes that are not belong to different
 * classes. */
static int64_t largest_like(int64_t size)
{
    int64_t largest = 1;
    while (largest < size)
        largest *= 2;
    while (!alike(largest, size))
        largest--;
    return largest;
}

static int64_t smallest_like(int64_t size)
{
    int64_t above = 1;
    while (above < size)
        above *= 2;
    int64_t smallest = above / 2 + 1;
    while (!alike(smallest, size))
        smallest++;
    return smallest;
}

static tune_product scaled(const tune_product *product, int64_t (*size)(int64_t))
{
    tune_product out = *product;
    out.shape.m = size(product->shape.m);
    out.shape.k = size(product->shape.k);
    out.shape.n = size(product->shape.n);
    return out;
}

/* Adds a product to the probes, unless it is in another class than the first probe, or equal to an
 * earlier probe. */
static bool add_probe(tune_probes *s, const tune_product *product)
{
    for (int i = 0; i < s->count; i++)
        if (memcmp(&s->all[i].product.shape, &product->shape, sizeof product->shape) == 0)
            return true;
    tune_case *test = &s->all[s->count++];
    if (!tune_case_create(s->context, product, test)) {
        if (test->no_room)
            snprintf(s->left_out, TUNE_REASON, "%.255s", s->context->error);
        return test->no_room;
    }
    double limit = s->context->options->seconds * 1e9;
    for (int i = 1; i < TUNE_TRIES && test->usual_ns > limit; i++)
        if (!tune_case_again(test, NULL, &test->usual_ns))
            return false;
    if (test->usual_ns > limit)
        snprintf(s->left_out, TUNE_REASON, "one product takes %.2g s", test->usual_ns / 1e9);
    if (test->info.shape_class != s->all[0].info.shape_class)
        tune_case_finish(&s->all[--s->count]);
    return true;
}

bool tune_probes_create(tune_probes *s, const tune_product *product)
{
    tune_product small = scaled(product, smallest_like), large = scaled(product, largest_like);
    const tune_product *probes[TUNE_PROBES] = {&small, &large, product};
    for (int i = 0; i < TUNE_PROBES && s->left_out[0] == '\0'; i++)
        if (!add_probe(s, probes[i]))
            return false;
    return true;
}

void tune_probes_finish(tune_probes *s)
{
    for (int i = 0; i < s->count; i++)
        tune_case_finish(&s->all[i]);
}
