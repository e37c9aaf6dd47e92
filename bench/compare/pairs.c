#include "bench/compare/pairs.h"

#include <math.h>
#include <string.h>

#include "bench/harness/samples.h"
#include "cli/lib/memory.h"

/* Returns the length of a device's name without the parentheses that drivers append for their own
 * name or version, as in "llvmpipe (LLVM 15.0.6, 256 bits)". */
static size_t model_length(const char *name)
{
    const char *end = strstr(name, " (");
    return end != NULL ? (size_t)(end - name) : strlen(name);
}

static bool same_model(const char *a, const char *b)
{
    size_t length = model_length(a);
    return length == model_length(b) && memcmp(a, b, length) == 0;
}

int bench_same_device(const bench_document *from, int device, const bench_document *to)
{
    if (device < 0)
        return -1;
    for (int i = 0; i < to->device_count; i++)
        if (strcmp(to->devices[i].name, from->devices[device].name) == 0)
            return i;
    bool alone = from->device_count == 1 && to->device_count == 1;
    return alone && same_model(from->devices[0].name, to->devices[0].name) ? 0 : -2;
}

static const bench_figures *find_partner(const bench_document *in, int device,
                                         const bench_figures *like)
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

/* Returns the ceiling of a result, which is itself a result; NULL if it has none. */
static const bench_figures *ceiling_of(const bench_document *in, const bench_figures *one)
{
    return one->ceiling != NULL ? &in->results[one->ceiling_place] : NULL;
}

/* Returns true if two ceilings are the same; different variants of one ceiling count as the same.
 * Fractions of different ceilings must not be compared. For example, a product that no longer uses
 * cooperative matrices becomes slower; its ceiling becomes lower, too, so the fraction may even
 * grow. */
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

/* Computes a result as a part of its ceiling. The range of the part comes from the spread of the
 * result and the spread of the ceiling; the highest value of the ceiling gives the lowest part.
 * Both spreads are assumed to be independent factors, so the squares of their logarithms are added.
 * If the machine was in fact slow for both at the same time, the range is too large, and some
 * changes remain
 * undecided. */
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
    bench_pair pair = {
        .old_run = old, .new_run = new, .old = was, .new = is, .is_time = was->is_time};
    const bench_figures *first = of_ceiling ? ceiling_of(old, was) : NULL;
    const bench_figures *second = of_ceiling ? ceiling_of(new, is) : NULL;
    bool shared = first != NULL && second != NULL && same_ceiling(old, first, new, second);
    pair.above_ceiling = shared && fmax(was->fraction, is->fraction) > BENCH_MAX_OF_CEILING;
    if (shared && !pair.above_ceiling) {
        pair.of = first->benchmark;
        pair.is_time = false;
    }
    return pair;
}

static const bench_figures *find_in(const bench_document *run, const bench_document *from,
                                    const bench_figures *like)
{
    return find_partner(run, bench_same_device(from, like->device, run), like);
}

/* Finds one run of each side that has the result. It prefers two runs in which the result has the
 * same ceiling. */
static bool pair_up(const bench_runs *old, int place, const bench_figures *was,
                    const bench_runs *new, bool of_ceiling, bench_pair *out)
{
    bool found = false;
    for (int i = place; i < old->count; i++) {
        const bench_figures *one = find_in(&old->all[i], &old->all[place], was);
        for (int j = 0; j < new->count &&one != NULL; j++) {
            const bench_figures *other = find_in(&new->all[j], &old->all[i], one);
            if (other == NULL)
                continue;
            bench_pair pair = make_pair(&old->all[i], one, &new->all[j], other, of_ceiling);
            if (!found || (out->of == NULL && pair.of != NULL))
                *out = pair;
            found = true;
        }
    }
    return found;
}

/* Gets the range of a result in one run; if `of_ceiling`, the range of the result as a part of its
 * ceiling. Returns false if the run does not have the result. */
static bool range_in(const bench_document *run, const bench_document *from,
                     const bench_figures *like, bool of_ceiling, bench_range *out)
{
    const bench_figures *one = find_in(run, from, like);
    if (one == NULL)
        return false;
    if (!of_ceiling) {
        *out = as_it_is(one);
        return true;
    }
    const bench_figures *ceiling = ceiling_of(run, one);
    if (ceiling == NULL || !same_ceiling(from, ceiling_of(from, like), run, ceiling) ||
        one->fraction > BENCH_MAX_OF_CEILING)
        return false;
    *out = part_of(one, ceiling);
    return true;
}

/* The combined values of one result in the runs of one side. */
typedef struct joined {
    int runs;
    bench_range all;     /* from the lowest end of the runs' ranges to the highest */
    bench_range medians; /* from the lowest of the runs' medians to the highest */
} joined;

static joined join(const bench_runs *side, const bench_document *from, const bench_figures *like,
                   bool of_ceiling)
{
    double medians[BENCH_MAX_RUNS];
    joined out = {.all = {.low = INFINITY, .high = -INFINITY}};
    bench_range one;
    for (int i = 0; i < side->count; i++) {
        if (!range_in(&side->all[i], from, like, of_ceiling, &one))
            continue;
        medians[out.runs++] = one.median;
        out.all.low = fmin(out.all.low, one.low);
        out.all.high = fmax(out.all.high, one.high);
    }
    bench_sort(medians, out.runs);
    out.all.median = bench_quantile(medians, out.runs, 0.5);
    out.medians = (bench_range){out.all.median, medians[0], medians[out.runs - 1]};
    return out;
}

/* Chooses the ranges that are compared. If both sides have many runs, the medians of the runs show
 * how much results differ from run to run. If there are few runs, their medians may be close by
 * chance, so the spread within each run is used, too. */
static void set_ranges(const joined *was, const joined *is, bench_pair *pair)
{
    bool many = was->runs >= BENCH_MANY_RUNS && is->runs >= BENCH_MANY_RUNS;
    pair->was = many ? was->medians : was->all;
    pair->is = many ? is->medians : is->all;
}

/* Returns true if an earlier run of this side has the result, too. */
static bool is_repeated(const bench_runs *side, int place, const bench_figures *one)
{
    for (int i = 0; i < place; i++)
        if (find_in(&side->all[i], &side->all[place], one) != NULL)
            return true;
    return false;
}

int bench_distinct(const bench_runs *side)
{
    int count = 0;
    for (int i = 0; i < side->count; i++)
        for (int j = 0; j < side->all[i].result_count; j++)
            count += !is_repeated(side, i, &side->all[i].results[j]);
    return count;
}

int bench_pairs(const bench_runs *old, const bench_runs *new, bool of_ceiling, bench_pair **out)
{
    bench_pair *pairs = cli_alloc((size_t)bench_distinct(old), sizeof *pairs);
    int count = 0;
    for (int i = 0; i < old->count; i++)
        for (int j = 0; j < old->all[i].result_count; j++) {
            const bench_figures *was = &old->all[i].results[j];
            bench_pair *pair = &pairs[count];
            if (is_repeated(old, i, was) ||
                !pair_up(old, i, was, new, of_ceiling && !was->is_ceiling, pair))
                continue;
            const joined was_all = join(old, pair->old_run, pair->old, pair->of != NULL);
            const joined is_all = join(new, pair->new_run, pair->new, pair->of != NULL);
            set_ranges(&was_all, &is_all, pair);
            count++;
        }
    *out = pairs;
    return count;
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
