#include "bench/compare_pairs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/samples.h"
#include "cli/memory.h"

int bench_same_device(const bench_document *from, int device, const bench_document *to)
{
    if (device < 0)
        return -1;
    int seen = 0; /* devices of the same name keep their order */
    for (int i = 0; i < device; i++)
        seen += strcmp(from->devices[i].name, from->devices[device].name) == 0;
    for (int i = 0; i < to->device_count; i++)
        if (strcmp(to->devices[i].name, from->devices[device].name) == 0 && seen-- == 0)
            return i;
    return from->device_count == 1 && to->device_count == 1 ? 0 : -2;
}

static const bench_figures *find(const bench_document *in, int device, const bench_figures *like)
{
    for (int i = 0; i < in->result_count; i++) {
        const bench_figures *one = &in->results[i];
        if (one->device == device && one->is_ceiling == like->is_ceiling &&
            strcmp(one->benchmark, like->benchmark) == 0 && strcmp(one->unit, like->unit) == 0 &&
            json_equal(one->which, like->which))
            return one;
    }
    return NULL;
}

/* The ceiling's figures; NULL where there is none. */
static const bench_figures *ceiling_of(const bench_document *in, const bench_figures *one)
{
    return one->ceiling != NULL ? &in->results[one->ceiling_place] : NULL;
}

/* Parts of another ceiling say nothing: a product that no longer uses cooperative matrices is a
 * larger part of a lower one. Which variant of a ceiling was the best one does not matter. */
static bool same_ceiling(const bench_document *old, const bench_figures *was,
                         const bench_document *new, const bench_figures *is)
{
    const json_t *dtype = json_object_get(was->which, "dtype");
    const json_t *other = json_object_get(is->which, "dtype");
    return strcmp(was->benchmark, is->benchmark) == 0 && strcmp(was->unit, is->unit) == 0 &&
           bench_same_device(old, was->device, new) == is->device &&
           (dtype == other || json_equal(dtype, other));
}

static bench_range as_it_is(const bench_figures *one)
{
    return (bench_range){.median = one->median, .low = one->low, .high = one->high};
}

/* The ceiling spreads too, and a high one makes a low part. Both spreads are taken as independent
 * and as those of factors, so that their squares add in logarithms. Where the machine was slow for
 * both at once the part in truth spreads less, and less is called a change than could be. */
static bench_range part_of(const bench_figures *one, const bench_figures *ceiling)
{
    double down = hypot(log(one->median / one->low), log(ceiling->high / ceiling->median));
    double up = hypot(log(one->high / one->median), log(ceiling->median / ceiling->low));
    return (bench_range){.median = one->fraction,
                         .low = one->fraction * exp(-down),
                         .high = one->fraction * exp(up)};
}

static bench_pair make_pair(const bench_document *old, const bench_figures *was,
                            const bench_document *new, const bench_figures *is, bool of_ceiling)
{
    bench_pair pair = {.old = was, .new = is, .is_time = was->is_time};
    const bench_figures *first = of_ceiling ? ceiling_of(old, was) : NULL;
    const bench_figures *second = of_ceiling ? ceiling_of(new, is) : NULL;
    bool shared = first != NULL && second != NULL && same_ceiling(old, first, new, second);
    pair.above_ceiling = shared && fmax(was->fraction, is->fraction) > BENCH_MOST_OF_CEILING;
    if (shared && !pair.above_ceiling) {
        pair.of = first->benchmark;
        pair.is_time = false;
        pair.was = part_of(was, first);
        pair.is = part_of(is, second);
    } else {
        pair.was = as_it_is(was);
        pair.is = as_it_is(is);
    }
    return pair;
}

int bench_pairs(const bench_document *old, const bench_document *new, bool of_ceiling,
                bench_pair **out)
{
    bench_pair *pairs = cli_alloc((size_t)old->result_count, sizeof *pairs);
    int count = 0;
    for (int i = 0; i < old->result_count; i++) {
        const bench_figures *was = &old->results[i];
        const bench_figures *is = find(new, bench_same_device(old, was->device, new), was);
        if (is != NULL)
            pairs[count++] = make_pair(old, was, new, is, of_ceiling && !was->is_ceiling);
    }
    *out = pairs;
    return count;
}

/* In the pair's terms; false where the run has nothing to say in them. */
static bool range_in(const bench_document *run, const bench_document *first, const bench_pair *pair,
                     const bench_figures *like, bench_range *out)
{
    const bench_figures *one = find(run, bench_same_device(first, like->device, run), like);
    if (one == NULL)
        return false;
    if (pair->of == NULL) {
        *out = as_it_is(one);
        return true;
    }
    const bench_figures *ceiling = ceiling_of(run, one);
    if (ceiling == NULL || !same_ceiling(first, ceiling_of(first, like), run, ceiling) ||
        one->fraction > BENCH_MOST_OF_CEILING)
        return false;
    *out = part_of(one, ceiling);
    return true;
}

static int ascending(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

void bench_pairs_join(bench_pair *pairs, int count, bool old, const bench_document *first,
                      const bench_document *further, int further_count)
{
    double *medians = cli_alloc((size_t)further_count + 1, sizeof *medians);
    for (int i = 0; i < count; i++) {
        bench_range *all = old ? &pairs[i].was : &pairs[i].is, one;
        const bench_figures *like = old ? pairs[i].old : pairs[i].new;
        int runs = 0;
        medians[runs++] = all->median;
        for (int j = 0; j < further_count; j++) {
            if (!range_in(&further[j], first, &pairs[i], like, &one))
                continue;
            medians[runs++] = one.median;
            all->low = fmin(all->low, one.low);
            all->high = fmax(all->high, one.high);
        }
        qsort(medians, (size_t)runs, sizeof *medians, ascending);
        all->median = bench_quantile(medians, runs, 0.5);
    }
    free(medians);
}

double bench_pair_slowdown(const bench_pair *pair)
{
    double was = pair->is_time ? pair->was.median : pair->is.median;
    double is = pair->is_time ? pair->is.median : pair->was.median;
    return is / was;
}

bench_verdict bench_pair_judge(const bench_pair *pair, double threshold)
{
    double ratio = bench_pair_slowdown(pair), limit = 1 + threshold / 100;
    bool apart = pair->was.low > pair->is.high || pair->is.low > pair->was.high;
    if (ratio >= 1 / limit && ratio <= limit)
        return BENCH_NO_CHANGE;
    return !apart ? BENCH_NOT_DECIDED : ratio > limit ? BENCH_GOT_SLOWER : BENCH_GOT_FASTER;
}
