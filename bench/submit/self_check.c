/* Finds results that cannot be trusted: from a busy machine, above the hardware's limits, measured
 * by a wrong clock, or changed by hand. */
#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/harness/samples.h"
#include "bench/report/report.h"
#include "bench/submit/members.h"
#include "bench/submit/submit.h"
#include "bench/submit/traces.h"
#include "cli/lib/memory.h"
#include "cli/lib/numbers.h"

#define FIRST_YEAR "2026"
/* The relative difference up to which a median or quantile in the file equals the one that is
 * computed again from its samples. Rounding to six digits changes it by less. */
#define SAME 1e-3
/* The host's time of a repetition includes the device's time. The median of the device's times may
 * nevertheless be larger by a little, but not more than by this factor. */
#define MOST_OF_HOST 1.1
/* The kernel of a ceiling runs long, so that the device's time is most of the host's time, and at
 * least this fraction. */
#define LEAST_OF_HOST 0.3

void bench_reason(bench_reasons *reasons, const char *format, ...)
{
    va_list arguments;
    if (reasons->count == BENCH_MAX_REASONS)
        return;
    va_start(arguments, format);
    vsnprintf(reasons->text[reasons->count++], BENCH_REASON, format, arguments);
    va_end(arguments);
}

static bool is_time(const char *text)
{
    static const char like[] = "0000-00-00T00:00:00Z";
    size_t i = 0;
    while (text[i] != '\0' &&
           (like[i] == '0' ? isdigit((unsigned char)text[i]) : text[i] == like[i]))
        i++;
    return i == sizeof like - 1 && text[i] == '\0';
}

static void check_run(const bench_document *run, bench_reasons *reasons)
{
    const double seconds = json_number_value(json_object_get(run->root, "seconds_per_result"));
    const json_t *failure = json_array_get(run->failures, 0);
    if (run->alone != NULL)
        bench_reason(reasons, "it is a run of %.40s alone, not a complete run", run->alone);
    if (!(seconds >= BENCH_SUBMIT_SECONDS))
        bench_reason(reasons, "each result had %g s, less than %g s", seconds,
                     BENCH_SUBMIT_SECONDS);
    if (!is_time(run->time))
        bench_reason(reasons, "\"time\" is '%.40s', not like 2026-01-02T03:04:05Z", run->time);
    else if (strcmp(run->time, FIRST_YEAR) < 0)
        bench_reason(reasons, "the machine's date was %.10s, before tessera existed", run->time);
    if (failure != NULL)
        bench_reason(reasons, "%zu benchmarks failed, such as %.40s: %.120s",
                     json_array_size(run->failures),
                     json_string_value(json_object_get(failure, "benchmark")),
                     json_string_value(json_object_get(failure, "text")));
}

static void check_noise(const bench_document *run, bench_reasons *reasons)
{
    const json_t *noise = json_object_get(run->root, "noise");
    const double other = json_number_value(json_object_get(noise, "other_cpus"));
    int noisy = 0;
    for (int i = 0; i < run->result_count; i++)
        noisy += run->results[i].noisy;
    if (other > BENCH_BUSY_SHARE * run->cpus)
        bench_reason(
            reasons,
            "the machine was busy: other processes used %.2f of its %d CPUs during the run, more "
            "than %.2f",
            other, run->cpus, BENCH_BUSY_SHARE * run->cpus);
    if (noisy > 1 && noisy > BENCH_NOISY_SHARE * run->result_count)
        bench_reason(reasons, "%d of %d results are noisy, more than %.0f %%", noisy,
                     run->result_count, 100 * BENCH_NOISY_SHARE);
}

static void check_ceilings(const bench_document *run, bench_reasons *reasons)
{
    const bench_figures *worst = NULL;
    int above = 0;
    for (int i = 0; i < run->result_count; i++) {
        const bench_figures *figures = &run->results[i];
        if (figures->ceiling == NULL || figures->standing != BENCH_ABOVE)
            continue;
        above++;
        if (worst == NULL || figures->fraction > worst->fraction)
            worst = figures;
    }
    if (above > 0)
        bench_reason(reasons,
                     "%d of %d results are above their ceilings; %s %s reaches %.0f %% of %.40s",
                     above, run->result_count, worst->benchmark, worst->label,
                     100 * worst->fraction, worst->ceiling);
}

static bool same(double a, double b)
{
    return fabs(a - b) <= SAME * fabs(b);
}

/* Returns the median of a result's samples by one of the clocks, "host_ns" or "device_ns"; 0
 * without samples. */
static double median_by(const bench_document *run, int i, const char *clock)
{
    const json_t *result = json_array_get(json_object_get(run->root, "results"), (size_t)i);
    const json_t *all = json_object_get(json_object_get(result, clock), "samples"), *figures;
    const int count = (int)json_array_size(all);
    double *ns = cli_alloc((size_t)count + 1, sizeof *ns);
    size_t at;
    json_array_foreach(all, at, figures) ns[at] = json_number_value(figures);
    bench_sort(ns, count);
    const double median = count > 0 ? bench_quantile(ns, count, 0.5) : 0;
    free(ns);
    return median;
}

/* Computes again which fraction of its ceiling a result is, as bench_fraction does. */
static double fraction_of(const bench_document *run, const bench_figures *figures, double ns)
{
    const bench_figures *ceiling = &run->results[figures->ceiling_place];
    const double rate =
        strcmp(figures->unit, ceiling->unit) == 0 ? figures->median : figures->bytes / ns;
    return rate / ceiling->median;
}

/* Reports the first result in which a median, a quantile or a fraction is not what its samples
 * give. */
static void check_figures(const bench_document *run, bench_reasons *reasons)
{
    for (int i = 0; i < run->result_count; i++) {
        const bench_figures *figures = &run->results[i];
        const json_t *result = json_array_get(json_object_get(run->root, "results"), (size_t)i);
        const double error = json_number_value(
            json_object_get(json_object_get(result, "verified"), "worst_error_over_tolerance"));
        const double ns = median_by(run, i, "host_ns"),
                     median = figures->is_time ? ns / figures->work : figures->work / ns;
        if (!(error >= 0 && error <= 1))
            bench_reason(reasons, "%s %s has %g of the permitted error", figures->benchmark,
                         figures->label, error);
        else if (!same(figures->median, median))
            bench_reason(reasons, "%s %s is given as %g %s, but its samples give %g",
                         figures->benchmark, figures->label, figures->median, figures->unit,
                         median);
        else if (figures->ceiling != NULL &&
                 !same(figures->fraction, fraction_of(run, figures, ns)))
            bench_reason(reasons, "%s %s is given as %g of %.40s, but it is %g", figures->benchmark,
                         figures->label, figures->fraction, figures->ceiling,
                         fraction_of(run, figures, ns));
        else
            continue;
        return;
    }
}

static void check_clock(const bench_document *run, bench_reasons *reasons)
{
    double most = 0, best = 0;
    const bench_figures *longest = NULL, *of_ceiling = NULL;
    for (int i = 0; i < run->result_count; i++) {
        const bench_figures *figures = &run->results[i];
        const double ratio = median_by(run, i, "device_ns") / median_by(run, i, "host_ns");
        if (ratio > most) {
            most = ratio;
            longest = figures;
        }
        if (figures->is_ceiling && ratio > best) {
            best = ratio;
            of_ceiling = figures;
        }
    }
    if (longest != NULL && most > MOST_OF_HOST)
        bench_reason(
            reasons,
            "the device's clock is too fast: %s %s took %.3g times as long by it as by the host's",
            longest->benchmark, longest->label, most);
    if (of_ceiling != NULL && best < LEAST_OF_HOST)
        bench_reason(reasons,
                     "the device's clock is too slow: by it, %s %s took %.2g of the host's time",
                     of_ceiling->benchmark, of_ceiling->label, best);
}

/* Checks that a file has only what the tool writes: making a submission of it again must give an
 * equal document. */
static void check_anonymity(const bench_document *run, bench_reasons *reasons)
{
    char place[BENCH_PLACE] = "";
    json_t *again = bench_submission(run->root, 0);
    const char *path = bench_find_path(run->root);
    if (path != NULL)
        bench_reason(reasons, "it contains the path '%.80s'", path);
    if (bench_find_difference(run->root, again, place))
        bench_reason(reasons, "%s is not as 'tessera bench --submit' writes it", place);
    json_decref(again);
}

void bench_self_check(const bench_document *run, bench_reasons *reasons)
{
    char problem[BENCH_REASON];
    reasons->count = 0;
    /* Check the members first: the other checks read members that a run need not have. */
    if (!bench_members_check(run->root, problem, sizeof problem)) {
        bench_reason(reasons, "%s", problem);
        return;
    }
    if (run->device_count != 1) {
        bench_reason(reasons, "it has %d devices, not 1", run->device_count);
        return;
    }
    check_run(run, reasons);
    check_noise(run, reasons);
    check_ceilings(run, reasons);
    check_figures(run, reasons);
    check_clock(run, reasons);
    check_anonymity(run, reasons);
}
